"""Memory that cannot be had: MemoryError at the statement, all as before, right afterwards."""

from __future__ import annotations

import compileall
import gc
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import pytest

import lazyfuse
from lazyfuse import config
from lazyfuse.arrays.ndarray import node_of
from lazyfuse.arrays.recording import host
from lazyfuse.codegen.table import ops
from lazyfuse.codegen.table.op import Op
from lazyfuse.devices.cpu import launch
from lazyfuse.devices.pools import buffers as buffer_pool
from lazyfuse.runtime.events import decisions
from lazyfuse.runtime.execution import matmul
from lazyfuse.runtime.placement import devices
from lazyfuse.runtime.scheduling import evaluate
from tests import campaign
from tests.faults import statements
from tests.faults.children import ROOT

pytestmark = campaign.TIMEOUT


class Allocator:
    """Stands for `numpy` where buffers are made: some of its large arrays are not to be had.

    Where a few bytes are not, the interpreter itself ends.
    """

    def __init__(self, draw: random.Random, part: float) -> None:
        self.draw = draw
        self.part = part
        self.armed = False
        self.failures = 0

    def empty(self, *args: Any, **kwargs: Any) -> Any:
        found = numpy.empty(*args, **kwargs)
        if found.nbytes >= buffer_pool.SMALLEST:
            self.may_fail()
        return found

    def may_fail(self) -> None:
        """The moment at which something may not be had."""
        if self.armed and self.draw.random() < self.part:
            self.failures += 1
            raise MemoryError("planned")

    def refuses(self, line: str, names: dict[str, Any]) -> bool:
        """Do a statement; whether it had no memory."""
        try:
            self.armed = True
            exec(line, names)
        except MemoryError:
            return True
        finally:
            self.armed = False
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(numpy, name)


@contextmanager
def failing(allocator: Allocator) -> Iterator[None]:
    """Buffers come from it, and none is kept for later."""
    buffers = devices.cpu().buffers
    limit = buffers.limit
    buffers.set_limit(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buffer_pool, "np", allocator)
        try:
            yield
        finally:
            allocator.armed = False
            buffers.set_limit(limit)


@campaign.rounds(20)
@pytest.mark.parametrize("part", [0.2, 1.0])
def test_statements_without_memory_are_done_or_not(seeds: range, part: float) -> None:
    allocator = Allocator(random.Random(seeds.start), part)
    with failing(allocator):
        met = sum([statements.disturbed(seed, allocator.refuses) for seed in seeds])
        gc.collect()
        assert devices.cpu().buffers.info()["free_bytes"] == 0
    assert allocator.failures >= met
    assert met or part < 1


@campaign.rounds(60, 10**6)
def test_calls_without_memory_are_done_or_not(
    seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They fail in the middle of an evaluation, whose operands may be written over by then."""
    allocator = Allocator(random.Random(seeds.start), 0.3)
    run_node = matmul.run_node

    def run(op: Op, *args: Any) -> Any:
        if op is ops.HOST:
            allocator.may_fail()
        return run_node(op, *args)

    monkeypatch.setattr(matmul, "run_node", run)
    assert sum([statements.disturbed(seed, allocator.refuses) for seed in seeds])


@contextmanager
def without_working_memory(allocator: Allocator) -> Iterator[None]:
    """Kernels stay blocked NumPy, and ask the allocator for what they work in."""
    allocate = launch.Scratch.__call__

    def scratch(self: launch.Scratch, *key: Any) -> Any:
        if key not in self:
            allocator.may_fail()
        return allocate(self, *key)

    with pytest.MonkeyPatch.context() as patch, config.options(compile_after=10**6, eager_below=0):
        patch.setattr(launch.Scratch, "__call__", scratch)
        yield


def test_a_block_that_a_view_alone_shows_is_kept() -> None:
    """One kernel halves `b` where it lies, a later one reads it backwards, and has no memory."""
    allocator = Allocator(random.Random(0), 1.0)
    k = numpy.arange(100_000)
    with without_working_memory(allocator):
        a, b = lazyfuse.array(k * 0.5), lazyfuse.array(k % 997 * 0.25 - 70)
        b *= 0.5
        b[4735] = 3.0
        b = b[::-1] + a
        c = a * 1.5 + b
        c = lazyfuse.minimum(c, 1e6) - c.max()
        launch.thread_scratch().clear()
        allocator.armed = True
        with pytest.raises(MemoryError, match="planned"):
            numpy.asarray(c)
        allocator.armed = False
        expected = (k % 997 * 0.25 - 70) * 0.5
        expected[4735] = 3.0
        numpy.testing.assert_array_equal(b, expected[::-1] + k * 0.5)


@campaign.rounds(40, 2 * 10**6)
def test_kernels_without_working_memory_are_done_or_not(seeds: range) -> None:
    allocator = Allocator(random.Random(seeds.start), 0.3)

    def refuses(line: str, names: dict[str, Any]) -> bool:
        launch.thread_scratch().clear()
        return allocator.refuses(line, names)

    with without_working_memory(allocator):
        assert sum([statements.disturbed(seed, refuses) for seed in seeds])


@pytest.mark.parametrize("size", [30_000, 200_000])
def test_what_was_written_over_before_a_failed_call_is_not_needed(size: int) -> None:
    """Turn by turn: planned, observed, replayed."""
    allocator = Allocator(random.Random(0), 1.0)

    def call(x: Any) -> Any:
        allocator.may_fail()
        return x

    expected = numpy.arange(size) * 2.0
    for turn in range(6):
        a = lazyfuse.arange(size) * 1.0
        float(a[0])
        b = a * 2.0  # goes where `a` lies
        failing = host("call", call, (b,), b.shape, b.dtype)
        late = (b + 1.0)[::-1] + b.cumsum()
        nodes = [node_of(late), node_of(failing)]
        del a, b
        allocator.armed = bool(turn % 3)
        if allocator.armed:
            with pytest.raises(MemoryError, match="planned"):
                evaluate.evaluate(nodes, decisions.CALLED)
            allocator.armed = False
        numpy.testing.assert_array_equal(late, (expected + 1.0)[::-1] + expected.cumsum())
        numpy.testing.assert_array_equal(failing, expected)


def test_a_result_without_memory_is_computed_when_there_is_some() -> None:
    allocator = Allocator(random.Random(0), 1.0)
    x = lazyfuse.array(numpy.arange(100_000.0))
    y = x * 2.0 + 1.0
    total = (y - x).sum()
    with failing(allocator):
        for _ in range(3):
            allocator.armed = True
            with pytest.raises(MemoryError, match="planned"):
                numpy.asarray(y)
            allocator.armed = False
    assert float(total) == (numpy.arange(100_000.0) + 1.0).sum()
    numpy.testing.assert_array_equal(y, numpy.arange(100_000.0) * 2.0 + 1.0)


LIMITED = """
import errno, faulthandler, gc, hashlib, resource, sys  # hashlib would be without its functions
faulthandler.enable()
faulthandler.dump_traceback_later(300, exit=True)  # where it waits, if it does so for ever
import numpy, lazyfuse
from tests.faults import statements

def mapped():
    with open("/proc/self/statm", encoding="utf-8") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
first, last, room = map(int, sys.argv[1:])
errors = 0
# Python's small objects have room: where they have none, an error cannot be made, and Python ends.
spare = [bytes(size) for size in range(16, 480, 16) for _ in range(4000)][::100]
def limit(size):
    resource.setrlimit(resource.RLIMIT_AS, (size, resource.RLIM_INFINITY))
for seed in range(first, last):
    statements.N = 1_000_000
    ours, theirs = statements.arrays(lazyfuse), statements.arrays(numpy)
    for line in statements.program(seed):
        before = statements.values(theirs)
        exec(line, theirs)
        wanted = statements.values(theirs)
        code = compile(line, "<statement>", "exec")
        limit(mapped() + (room << 20))
        try:
            exec(code, ours)
            continue
        except (MemoryError, ImportError):  # the system's loader maps what is imported late
            errors += 1
        except OSError as error:  # nor is there room to list the folder of a module
            assert error.errno == errno.ENOMEM, error
            errors += 1
        except SystemError as error:  # Python 3.12 finds no room for the frame of a call
            assert "without exception set" in str(error), error
            errors += 1
        finally:
            limit(resource.RLIM_INFINITY)
        found = statements.values(ours)
        if not statements.equal(found, wanted):
            assert statements.equal(found, before), (seed, line)
            theirs.update({name: before[at] for at, name in enumerate(statements.NAMES)})
    assert statements.equal(statements.values(ours), statements.values(theirs)), seed
print(errors)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits addresses, asks /proc")
@campaign.rounds(2)
def test_in_a_process_without_room(seeds: range) -> None:
    """No room for a block, for two, for four: whatever asks for memory, be it numba or a thread."""
    met = 0
    # As pip does: Python's own compiler makes other errors of a lack of memory.
    for package in ("lazyfuse", "codegen", "devices"):
        compileall.compile_dir(ROOT / package, quiet=1)
    # The heap of the C library would keep what NumPy's arrays leave, and go on within the limit.
    variables = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}
    for room in (1, 12):
        arguments = [str(seeds.start), str(seeds.stop), str(room)]
        command = [sys.executable, "-c", LIMITED, *arguments]
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, env=variables
        )
        assert done.returncode == 0, (room, done.stderr)
        met += int(done.stdout)
    assert met


WITHOUT = """
import _testcapi, gc, sys
import numpy, lazyfuse
from lazyfuse.arrays.base import COMPILED
from tests.faults import statements
first, last, most = map(int, sys.argv[1:])
errors = 0
for seed in range(first, last):
    for number, line in enumerate(statements.program(seed)):
        if "np.cumsum" in line and numpy.__version__ < "2.4":
            continue  # NumPy itself crashes
        if "numpy.asarray" in line and not COMPILED:
            continue  # without memory for the callback's arguments ctypes reports a full buffer
        code = compile(line, "<statement>", "exec")
        theirs = statements.arrays(numpy)
        before = statements.values(theirs)
        exec(code, theirs)
        after = statements.values(theirs)
        for at in range(number % 3, most, 3):
            ours = statements.arrays(lazyfuse)
            if at % 2:
                statements.values(ours)
            failed = True
            gc.disable()
            _testcapi.set_nomemory(at, at + 1)
            try:
                exec(code, ours)
                failed = False
            except Exception:
                errors += 1
            finally:
                _testcapi.remove_mem_hooks()
            gc.enable()
            found = statements.values(ours)
            fine = statements.equal(found, after) or failed and statements.equal(found, before)
            assert fine, (line, at)
print(errors)
"""


@pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="Python itself crashes: tuple(x for x in y) without memory"
)
@campaign.rounds(1, 500)
def test_where_one_small_allocation_fails(seeds: range) -> None:
    """Be it in C or in the interpreter, which may make another error of it: no harm is done."""
    pytest.importorskip("_testcapi", reason="no such hook in this interpreter")
    command = [sys.executable, "-X", "faulthandler", "-c", WITHOUT]
    command += [str(seeds.start), str(seeds.stop), "90"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert int(done.stdout)
