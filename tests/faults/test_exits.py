"""Programs that compute when they end: finalisers and functions of `atexit`.

Each process has many objects whose finalisers compute a random expression each. They are found in
different moments of the interpreter's end: by `atexit`, by the collector, when modules go. Before,
the program has evaluated nothing or something. Each value is NumPy's, the process ends with 0, says
nothing else, and does not wait for ever. No daemon threads compute meanwhile: one that dies in the
middle of an import keeps Python's own lock, or half a module of ours.
"""

from __future__ import annotations

import collections
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.campaign import TIMEOUT, rounds
from tests.faults.children import Runs

pytestmark = TIMEOUT

OBJECTS = 20  # in each process
SECONDS = 240.0  # after which a process waits for ever

PROGRAM = """
import atexit, builtins, random, sys, threading
import numpy
import lazyfuse
import exit_holder

PLANS, TEXTS, BEFORE = {plans!r}, {texts!r}, {before!r}
if PLANS:
    lazyfuse.options(plan_after=0)
X = numpy.arange(60_000) * 1e-3 - 7.0
Y = (numpy.arange(60_000) * 7919 % 1009) * 0.5 + 1.0


def value(np, text, x, y):
    names = dict(np=np, x=x, y=y)
    exec(text, names)
    return names["value"]


class Last:
    def __init__(self, number, text):
        self.number, self.code = number, compile(text, "text", "exec")
        self.want = float(value(numpy, self.code, X.copy(), Y.copy()))
        self.x, self.y = lazyfuse.array(X), lazyfuse.array(Y)
        if number % 2:
            self.x = self.x * 1.0  # is pending

    def compute(self, value=value, np=lazyfuse, say=print, float=float, sys=sys):
        got = float(value(np, self.code, self.x, self.y))
        outcome = "right" if got == self.want else f"{{got!r}} for {{self.want!r}}"
        moment = "ending" if sys.is_finalizing() else "running"
        say(f"{{self.number}}\\t{{outcome}}\\t{{moment}}\\n", end="", flush=True)

    __del__ = compute


for text in BEFORE:
    assert float(value(lazyfuse, text, lazyfuse.array(X), lazyfuse.array(Y))) == float(
        value(numpy, text, X.copy(), Y.copy())
    )
for number, (where, text) in enumerate(TEXTS):
    last = Last(number, text)
    if where == "global":
        globals()[f"last{{number}}"] = last
    elif where == "builtins":
        setattr(builtins, f"last{{number}}", last)
    elif where == "module":
        setattr(exit_holder, f"last{{number}}", last)
    elif where == "cycle":
        last.me = last
    elif where == "atexit":
        atexit.register(lambda last: None, last)
    del last
"""

_LEAVES = ("x", "y", "x", "y", "x[::-1]", "3.0", "(y - 0.5)")
_BINARY = ("({} + {})", "({} * {})", "({} - {})", "np.maximum({}, {})", "np.where(x > 0, {}, {})")
_UNARY = ("np.abs({})", "np.sqrt(np.abs({}))", "(-{})", "np.floor({})")
_ENDS = (
    "value = ({}).max()",
    "value = ({}).sum()",
    "value = ({})[17]",
    "value = np.sort({})[5]",
    "value = np.argmax({})",
    "value = np.cumsum({})[-1]",
    "value = ({}).reshape(300, 200).sum(axis=0)[3]",
    "z = {}; value = z[z > 1.0].sum()",
    "z = ({}).copy(); z[10:-10] += y[10:-10]; value = z.sum()",
    "x += y; value = ({}).min()",
    "value = ({}).std()",
    "value = np.concatenate([{}, x]).sum()",
)
_PLACES = ("global", "builtins", "module", "cycle", "atexit")


def _expression(draw: random.Random, depth: int) -> str:
    if depth == 0:
        return draw.choice(_LEAVES)
    if draw.random() < 0.3:
        return draw.choice(_UNARY).format(_expression(draw, depth - 1))
    return draw.choice(_BINARY).format(_expression(draw, depth - 1), _expression(draw, depth - 1))


def _text(draw: random.Random) -> str:
    return draw.choice(_ENDS).format(f"(x * 1.5 + {_expression(draw, draw.randint(0, 3))})")


def _run(folder: Path, seed: int, found: collections.Counter[str]) -> None:
    folder.mkdir()
    draw = random.Random(seed)
    texts = [(draw.choice(_PLACES), _text(draw)) for _ in range(OBJECTS)]
    before = [_text(draw) for _ in range(draw.choice((0, 0, 1, 4)))]
    before *= draw.choice((1, 3))
    plans = draw.random() < 0.5
    settings = {"plans": plans, "before": before}
    (folder / "exit_holder.py").write_text("")
    program = folder / "program.py"
    program.write_text(PROGRAM.format(texts=texts, **settings))
    done = subprocess.run(
        [sys.executable, str(program)], env=_environment(folder), capture_output=True, text=True,
        timeout=SECONDS, check=False,
    )  # fmt: skip
    what = f"seed {seed}"
    assert (done.returncode, done.stderr) == (0, ""), f"{what}\n{done.stderr[-3000:]}"
    said = [line.split("\t") for line in done.stdout.splitlines()]
    for number, outcome, _ in said:
        assert outcome == "right", f"{what}, {texts[int(number)]}: {outcome}"
    assert len(said) == OBJECTS, what
    found.update(moment for *_, moment in said)
    found["objects"] += len(said)
    found["with plans"] += len(said) * plans
    found["nothing evaluated before"] += len(said) * (not before)


@rounds(9)
def test_what_is_computed_at_exit(seeds: range, tmp_path: Path) -> None:
    found: collections.Counter[str] = collections.Counter()
    for seed in seeds:
        _run(tmp_path / str(seed), seed, found)
    print(dict(found))
    assert found["ending"]
    assert found["running"]


HANDLERS = """
import ctypes, faulthandler, os, signal, tempfile
import numpy
import lazyfuse as np

libc = ctypes.PyDLL(None)

def action(number):
    found = ctypes.create_string_buffer(256)
    assert libc.sigaction(number, None, found) == 0
    return found.raw[:8], found.raw[136:140]  # handler, flags

def evaluate():
    assert float((np.array(numpy.arange(300_000.0)) * 2.0 + 1.0).max()) == 599999.0

signal.signal(signal.SIGUSR1, lambda *a: None)
signal.signal(signal.SIGUSR2, lambda *a: None)
signal.siginterrupt(signal.SIGUSR2, False)
with tempfile.TemporaryFile() as log:
    for number in (signal.SIGINT, signal.SIGUSR1):
        faulthandler.register(number, file=log, chain=False)
        found = action(number), action(signal.SIGUSR2), signal.getsignal(number)
        for _ in range(3):
            evaluate()
        assert found == (action(number), action(signal.SIGUSR2), signal.getsignal(number))
        size = os.fstat(log.fileno()).st_size
        os.kill(os.getpid(), number)
        assert os.fstat(log.fileno()).st_size > size
        faulthandler.unregister(number)
    evaluate()
    try:  # Python's own handler is the system's again, and is put off as before
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000): pass
    except KeyboardInterrupt:
        print("whole")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it reads the system's own structure")
def test_handlers_in_c_and_their_flags_stay(tmp_path: Path) -> None:
    assert _said(HANDLERS, tmp_path) == "whole"


SUB_INTERPRETER = """
try:
    import _xxsubinterpreters as interpreters
    made = interpreters.create()
except ImportError:
    import _interpreters as interpreters
    made = interpreters.create("legacy")
failed = interpreters.run_string(made, '''
import warnings; warnings.simplefilter("ignore")
import lazyfuse as np
x = np.arange(100_000) * 2.0
assert float(x.max()) == 199998.0
assert float((np.arange(10.0) * 2).sum()) == 90.0
y = x.reshape(100, 1000)
y[3:, :] = np.exp(y[3:, :] * 1e-6) + 1.0
assert 2.0 < float(y[4, 4]) < 2.1 and float(np.sort(-x)[0]) == -5998.0 and float(x.std()) > 1.0
assert not np.build_info()["record path"].startswith("compiled")
print("computed", flush=True)
''')
assert not failed, failed
interpreters.destroy(made)
print("ended")
"""


def test_a_sub_interpreter_computes(tmp_path: Path) -> None:
    """Where NumPy does: in Python 3.12.1 its own import fails there."""
    begins = SUB_INTERPRETER.index("import warnings")
    ends = SUB_INTERPRETER.index("''')")
    alone = f"{SUB_INTERPRETER[:begins]}import numpy\n{SUB_INTERPRETER[ends:]}"
    done = subprocess.run([sys.executable, "-c", alone], capture_output=True, timeout=SECONDS)
    if done.returncode:
        pytest.skip("NumPy itself is not imported in a sub-interpreter here")
    assert _said(SUB_INTERPRETER, tmp_path) == "computed\nended"


AGAIN = """
import sys
import numpy
import lazyfuse as np

def check():
    x = np.arange(100_000) * 2.0
    assert float(np.sort(-x)[0]) == -199998.0 and float(x.std()) > 1.0
    return x

old = check()
for name in [name for name in sys.modules if name.partition(".")[0] == "lazyfuse"]:
    del sys.modules[name]
import lazyfuse as new
assert new is np and "lazyfuse.arrays.ndarray" in sys.modules
check()
both = numpy.asarray(old + new.array(numpy.arange(100_000)))
assert numpy.array_equal(both, numpy.arange(100_000) * 3.0)
print("one")
"""


def test_an_import_after_the_modules_were_deleted_gives_the_same_ones(tmp_path: Path) -> None:
    assert _said(AGAIN, tmp_path) == "one"


def _environment(folder: Path) -> dict[str, str]:
    """As of other children, in the build that is tested."""
    build = {name: os.environ[name] for name in ("LAZYFUSE_COMPILED",) if name in os.environ}
    return Runs(folder).environment | build


def _said(text: str, folder: Path) -> str:
    """What a program says that ends well."""
    done = subprocess.run(
        [sys.executable, "-c", text], env=_environment(folder), capture_output=True, text=True,
        timeout=SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()
