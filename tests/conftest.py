"""For every test: costs that a developer has measured on this machine must not choose devices,
programs are compiled when they are wanted, not when a worker process gets round to it, and a test
that leaves global state behind fails (`global_state.py`).

All tests of a run share one folder of compiled programs, pytest's own cache of the checkout: a
structure is compiled once, and a second run finds it (`--cache-clear` forgets it).

Marks: `smoke` is what a newcomer sees first, in less than a minute; `long` are campaigns and the
combinations that the others leave out. `-m long --part 3/14` runs one of fourteen parts of them,
`--part today/14` the part of the day.

An OpenCL runtime that builds nothing on this machine (PoCL 3.0 refuses CPUs that its LLVM does not
know) counts as none: tests that need one are skipped, as they are without pyopencl.
"""

from __future__ import annotations

import datetime
import gc
import importlib.util
import os
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("LAZYFUSE_OFFLOAD", "off")
os.environ.setdefault("LAZYFUSE_COMPILE_AHEAD", "off")
os.environ.setdefault("LAZYFUSE_PLAN_AFTER", "0")
os.environ.setdefault("LAZYFUSE_COMPILE_AFTER_EXIT", "off")  # tests count what is on disk
# pytest makes errors of warnings, and what tests look at is recorded work
os.environ.setdefault("LAZYFUSE_ERRORS_AT_ONCE", "off")
# the same for numbers; tests/programs, tests/interop and test_escapes.py have them as users do
os.environ.setdefault("LAZYFUSE_LAZY_NUMBERS", "on")
# many tests take arrays of 20,000 elements to see them recorded
os.environ.setdefault("LAZYFUSE_EAGER_BELOW", "16384")

_ROOT = Path(__file__).resolve().parent.parent
os.environ.setdefault("LAZYFUSE_CACHE_DIR", str(_ROOT / ".pytest_cache" / "d" / "lazyfuse"))
_BUILDS = "LAZYFUSE_TEST_OPENCL_BUILDS"
"""Set by whoever asked first, so that the processes of xdist need not ask again."""
_PROBE = _ROOT / "devices" / "opencl" / "probe.py"


def _builds_opencl() -> bool:
    """Whether the first OpenCL device builds and runs a program, tried in a child process."""
    if importlib.util.find_spec("pyopencl") is None:
        return True  # the tests say that it is missing
    known = os.environ.get(_BUILDS)
    if known is None:
        command = [sys.executable, "-P", str(_PROBE), "0", "16"]
        try:
            done = subprocess.run(command, capture_output=True, timeout=60, check=False)
            known = "no" if done.returncode else "yes"
        except (OSError, subprocess.SubprocessError):
            known = "no"
        os.environ[_BUILDS] = known
    return known != "no"


if not _builds_opencl():
    sys.modules["pyopencl"] = None  # type: ignore[assignment]  # importing it fails from now on

from lazyfuse import config  # noqa: E402  # reads the environment when it is imported
from lazyfuse.runtime.execution import concurrency  # noqa: E402
from lazyfuse.runtime.placement import devices  # noqa: E402  # reads the environment when it is imported
from lazyfuse.runtime.scheduling import evaluate  # noqa: E402
from tests import global_state, opencl_builds, reached  # noqa: E402

_REACHED = "reached"  # the name of a test's property with what its programs reached


@pytest.fixture(params=(1, 4))
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """A test that asks for it runs on one thread, and on four however little there is to do."""
    with config.options(threads=request.param, threads_above=0):
        yield request.param


@pytest.fixture
def on_cpu() -> Iterator[None]:
    """What a test says is true of the CPU alone: it runs there, whatever LAZYFUSE_DEVICE says."""
    if not devices.current().asynchronous:
        yield  # as programs have it, where nobody named a device
        return
    with config.options(device="cpu"):
        yield


@pytest.fixture
def at_home() -> None:
    """A skip where LAZYFUSE_DEVICE names a device. Where nobody does, plans run on the CPU without
    being asked about: they are replayed, and those of several threads overlap.
    """
    if not devices.is_default_cpu():
        pytest.skip("runs are replayed, and overlap, where nobody has named a device")


@pytest.fixture(autouse=True)
def leaves_global_state_alone() -> Iterator[None]:
    """Name the test that changes what other tests find."""
    before = global_state.snapshot()
    concurrency.share = 0.0  # another test had threads: evaluations would expect them for a while
    yield
    found = global_state.changes(before)
    global_state.usual_error_state()
    if found:
        pytest.fail("left behind: " + "; ".join(found), pytrace=False)


@pytest.fixture(autouse=True, scope="module")
def objects_of_others_are_not_traversed() -> None:
    """Collections pass over 15,000 tests and all modules, which took a quarter of the time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def without_chunks_after() -> Iterator[None]:
    """Evaluations look for chunks once there have been any; other tests count without that."""
    before = evaluate.chunked, evaluate.in_chunks
    yield
    gc.collect()
    evaluate.chunked, evaluate.in_chunks = before


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Tests are programs: the filters that pytest set for them are the usual ones. What a
    campaign's programs reached is a property of the test, which xdist hands on.
    """
    try:
        with global_state.usual_filters():
            return (yield)
    finally:
        found = reached.taken()
        if found:
            item.user_properties.append((_REACHED, found))
            print(f"\n{item.nodeid}: {reached.line(Counter(found))}")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What the programs of each file reached."""
    files: dict[str, Counter[str]] = {}
    for status in ("passed", "failed"):
        for report in terminalreporter.getreports(status):
            for name, found in report.user_properties if report.when == "call" else ():
                if name == _REACHED:
                    files.setdefault(report.location[0], Counter()).update(found)
    if files:
        terminalreporter.section("what random programs reached")
    for file, found in sorted(files.items()):
        terminalreporter.line(f"{file}: {reached.line(found)}")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--part`."""
    what = "run one part of the chosen tests: 3/14 is the third of 14, today/14 the day's"
    parser.addoption("--part", default="1/1", metavar="K/N", help=what)


def pytest_itemcollected(item: pytest.Item) -> None:
    """The long parameters of a test that is `smoke` are `long` alone."""
    if item.get_closest_marker("long"):
        item.own_markers = [each for each in item.own_markers if each.name != "smoke"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the part that was asked for; a test's part does not change when others come or go."""
    number, parts = _part(config)
    left_out = [item for item in items if zlib.crc32(item.nodeid.encode()) % parts != number]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


def _part(config: pytest.Config) -> tuple[int, int]:
    """Which part of how many, from 0 on."""
    asked = config.getoption("--part")
    first, _, last = asked.partition("/")
    try:
        parts = int(last)
        number = (_day() if first == "today" else int(first) - 1) % parts
    except (ValueError, ZeroDivisionError) as error:
        raise pytest.UsageError(f"--part: expected 3/14 or today/14, got {asked!r}") from error
    return number, parts


def _day() -> int:
    return datetime.datetime.now(datetime.UTC).date().toordinal()


def pytest_report_header(config: pytest.Config) -> str:
    """A line at the top of every run."""
    found = {"yes": "works", "no": "no runtime here builds programs, its tests are skipped"}
    text = f"OpenCL: {found.get(os.environ.get(_BUILDS, ''), 'pyopencl is not installed')}"
    if os.environ.get(_BUILDS) == "yes":
        text += ", kernels are " + ("optimised" if opencl_builds.OPTIMISED else "not optimised")
    number, parts = _part(config)
    return text if parts == 1 else f"{text}; part {number + 1} of {parts}"
