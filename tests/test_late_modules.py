"""Modules run when they are read: what plain `import lazyfuse` runs, and what may come between."""

from __future__ import annotations

import importlib.util
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from lazyfuse import late_modules
from lazyfuse.late_modules import Late, Loader

LATE = (
    "array_api", "codegen.blocked", "codegen.lowering", "codegen.numba", "codegen.opencl",
    "codegen.plan", "codegen.rewrite", "devices.cost", "devices.cpu", "devices.opencl",
    "devices.pools", "devices.registry", "devices.thread_pool", "interop.import_hook",
    "interop.overrides", "kernels", "runtime.capture.capture", "runtime.capture.native_replay",
    "runtime.capture.replay", "runtime.events.counters", "runtime.execution.executor",
    "runtime.execution.matmul", "runtime.execution.routine", "runtime.execution.tiles",
    "runtime.placement", "runtime.scheduling.elision", "tools",
)  # fmt: skip
"""Modules, and packages of modules, that plain `import lazyfuse` must not run."""

MOST = 94
"""Modules that it runs at the most. A new one that has to run is a reason to raise this."""

_PROGRAM = """
import sys, lazyfuse
from lazyfuse.late_modules import Late
ours = [name for name in sys.modules if name.startswith("lazyfuse.")]
found = [sys.modules[name] for name in ours]
print(*[name for name, module in zip(ours, found) if type(module) is not Late and (
    module.__spec__ is not None and module.__spec__.has_location and not hasattr(module, "__path__")
)])
"""


def ran(more: str = "") -> set[str]:
    """The modules that have run in a fresh process, without `lazyfuse.`."""
    found = python(_PROGRAM.replace("\nours", f"\n{more}\nours"))
    return {name.removeprefix("lazyfuse.") for name in found.split()}


def python(program: str, *arguments: str) -> str:
    """What a program prints in a fresh process, without warnings of forks."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_plain_import_runs_what_it_needs() -> None:
    found = ran()
    early = sorted(name for name in found if any(f"{name}.".startswith(f"{x}.") for x in LATE))
    assert not early, "these run at import: where names of them are read, read them from the module"
    assert "arrays.ndarray" in found
    assert len(found) <= MOST, sorted(found)


def test_small_arrays_need_no_planner() -> None:
    found = ran("x = lazyfuse.arange(10) + 1; str(x); x.sum(); lazyfuse.sin(x)[2:]; x *= 2")
    assert not [name for name in found if name.startswith(("codegen.plan.", "codegen.lowering."))]


def test_forks_during_a_first_evaluation() -> None:
    """The order of locks must not hang on the order in which modules happen to run."""
    program = """
import os, threading, lazyfuse as np
def compute():
    return float((np.sin(np.arange(200_000.0)) * 2.0).sum())
thread = threading.Thread(target=compute)
thread.start()
children = []
while len(children) < 10 or (thread.is_alive() and len(children) < 40):
    child = os.fork()
    if not child:
        os._exit(compute() <= 0.0)
    children.append(child)
thread.join()
print({os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children})
"""
    if hasattr(os, "fork"):
        assert python(program) == "{0}\n"


def test_interrupts_of_a_first_evaluation() -> None:
    """An interrupt at any moment leaves modules that run, or run again."""
    program = """
import random, signal, sys, numpy, lazyfuse as np
random.seed(int(sys.argv[1]))
def interrupt(*_):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
tries = 0
while tries < 40:
    tries += 1
    signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0005, 0.03))
    try:
        found = float((np.sin(np.arange(200_000.0)) * 2.0).sum()), np.sort(np.arange(9)[::-1])[0]
        break
    except KeyboardInterrupt:
        pass
signal.setitimer(signal.ITIMER_REAL, 0)
x, real = np.arange(200_000.0), numpy.arange(200_000.0)
difference = float((np.sin(x) * 2.0).sum()) - (numpy.sin(real) * 2.0).sum()
print(abs(difference) < 1e-6, np.sort(x[::-1])[0])
"""
    if hasattr(signal, "setitimer"):
        assert {python(program, str(seed)) for seed in range(3)} == {"True 0.0\n"}


# ------------------------------------------------------------------------- modules of the tests


@pytest.fixture
def late(tmp_path: Path) -> Iterator[Any]:
    """Makes late modules from text."""
    made: list[str] = []

    def make(text: str, name: str = "") -> ModuleType:
        name = name or f"late_module_{len(made)}"
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(name, path, loader=Loader(name, str(path)))
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        made.append(name)
        spec.loader.exec_module(module)
        assert type(module) is Late
        return module

    yield make
    for name in made:
        del sys.modules[name]


def test_reading_a_name_runs_a_module(late: Any) -> None:
    module = late("value = 3\n")
    assert (module.__name__, module.__spec__.name) == ("late_module_0", "late_module_0")
    assert late_modules.is_late(module)
    assert module.value == 3
    assert type(module) is ModuleType
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        module.other  # noqa: B018


@pytest.mark.parametrize("use", ["vars(m)", "dir(m)", "m.__doc__", "m.new", "set", "delete"])
def test_whatever_looks_at_a_module_runs_it(late: Any, use: str) -> None:
    m = late('"""Text."""\nvalue = 3\n')
    if use == "set":
        m.value = 4
        assert m.value == 4  # what the file says came first
    elif use == "delete":
        del m.value
        assert not hasattr(m, "value")
    elif use == "m.new":
        assert not hasattr(m, "new")
    else:
        assert "value" in vars(m) or eval(use) == "Text."
    assert type(m) is ModuleType


def test_what_is_pickled_by_name_is_found(late: Any) -> None:
    late("def function(): return 3\n")
    assert pickle.loads(b"clate_module_0\nfunction\n.")() == 3


def test_a_failed_module_runs_again(late: Any) -> None:
    module = late("import late_module_1\nvalue = 3\nlate_module_1.fail()\n")
    late("failed = 0\ndef fail():\n    if failed < 2:\n        more(); raise KeyboardInterrupt\n")
    sys.modules["late_module_1"].more = lambda: setattr(
        sys.modules["late_module_1"], "failed", sys.modules["late_module_1"].failed + 1
    )
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            module.value  # noqa: B018
        assert late_modules.is_late(module)
        assert "value" not in object.__getattribute__(module, "__dict__")
    assert module.value == 3


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="needs signals")
def test_handlers_wait_until_a_module_is_whole(late: Any) -> None:
    module = late("import signal\nsignal.raise_signal(signal.SIGUSR1)\nvalue = 3\n")
    seen: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(module.value))
    try:
        assert module.value == 3
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [3]


def test_an_interrupt_leaves_a_whole_module(late: Any) -> None:
    module = late("import signal\nsignal.raise_signal(signal.SIGINT)\nvalue = 3\n")
    with pytest.raises(KeyboardInterrupt):
        module.value  # noqa: B018
    assert type(module) is ModuleType
    assert module.value == 3


_SLOW = "import time\nvalue = [1]\ntime.sleep(0.1)\nvalue.append(2)\nother = 3\n"


def test_threads_wait_for_a_whole_module(late: Any) -> None:
    module = late(_SLOW)
    start = threading.Barrier(4)
    seen: list[Any] = []

    def read() -> None:
        start.wait()
        seen.append((len(module.value), module.other))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert seen == [(2, 3)] * 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_fork_waits_until_a_module_is_whole(late: Any) -> None:
    module = late(f"import threading\nthreading.Event.begun.set()\n{_SLOW}")
    threading.Event.begun = begun = threading.Event()  # type: ignore[attr-defined]
    thread = threading.Thread(target=lambda: module.other)
    thread.start()
    begun.wait()
    child = os.fork()
    if not child:  # pragma: no cover
        os._exit(module.other)
    thread.join()
    del threading.Event.begun  # type: ignore[attr-defined]
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3


def test_calls_and_followers_come_with_a_module(late: Any) -> None:
    first, second = (
        late("seen = []\n"),
        late("import late_module_0\nlate_module_0.seen.append(2)\n"),
    )
    late_modules.when_run(first, lambda: first.seen.append(1))
    late_modules.follow(first, second)
    assert late_modules.is_late(second)
    assert first.seen == [1, 2]
    assert not late_modules.is_late(second)
    third = late("")
    late_modules.follow(first, third)  # which has run
    late_modules.when_run(first, lambda: first.seen.append(3))
    assert not late_modules.is_late(third)
    assert first.seen == [1, 2, 3]


def test_a_follower_that_fails_runs_with_the_next_module(late: Any) -> None:
    first, second = (
        late("seen = []\n"),
        late("from late_module_0 import seen\nseen.append(2)\nassert len(seen) > 1\n"),
    )
    late_modules.follow(first, second)
    with pytest.raises(AssertionError):
        first.seen  # noqa: B018
    late_modules.run(late(""))
    assert first.seen == [2, 2]
    assert not late_modules.is_late(second)
