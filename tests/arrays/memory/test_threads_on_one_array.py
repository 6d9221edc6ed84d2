"""Threads that write to parts of one array: nothing is lost, and whoever reads finds values.

What may go wrong between two steps of one thread is shown by a second thread that is let in there:
it has to wait (for as long as the test gives it) where the first one holds the lock.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy
import pytest

import lazyfuse
from lazyfuse.arrays import conversion, indexing
from lazyfuse.arrays.ndarray import gather
from lazyfuse.arrays.storage import Storage
from lazyfuse.runtime.scheduling import evaluate

PATIENCE = 0.1  # seconds that a second thread is given to get in


class Intruder:
    """A thread that is started once, in the middle of what another one does."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.errors: list[BaseException] = []
        self._work = work
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.came = False

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self.errors.append(error)

    def let_in(self) -> None:
        if not self.came:
            self.came = True
            self.thread.start()
            self.thread.join(PATIENCE)

    def finish(self) -> None:
        assert self.came, "the test did not reach the step that it is about"
        self.thread.join(20)
        assert not self.thread.is_alive()
        assert not self.errors, self.errors


def after(function: Any, intruder: Intruder) -> Any:
    """`function`, and then the other thread, once."""

    def call(*args: Any, **kwargs: Any) -> Any:
        found = function(*args, **kwargs)
        if threading.current_thread() is not intruder.thread:
            intruder.let_in()
        return found

    return call


@pytest.fixture(params=[100_000, 400_000])
def size(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def block(size: int) -> Any:
    """A recorded array that views look at, its values there."""
    x = lazyfuse.arange(size) * 1.0
    x[::2] = x[::2] * 2.0
    float(x.sum())
    return x


def expected(size: int) -> Any:
    x = numpy.arange(size) * 1.0
    x[::2] *= 2.0
    return x


def test_a_write_waits_until_what_was_evaluated_is_read(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = block(size)
    half = size // 2
    x[:half] = x[half:] * 3.0 + x[:half]
    intruder = Intruder(lambda: x.__setitem__(slice(half, None), x[:half] + x[half:]))
    monkeypatch.setattr(evaluate, "evaluate", after(evaluate.evaluate, intruder))
    gather(x)
    intruder.finish()
    monkeypatch.undo()
    want = expected(size)
    want[:half] = want[half:] * 3.0 + want[:half]
    want[half:] = want[:half] + want[half:]
    assert numpy.asarray(x).tobytes() == want.tobytes()


def test_two_recorded_writes_do_not_lose_one_another(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = block(size)
    y = lazyfuse.arange(size) * 0.5
    half = size // 2

    def other() -> None:
        x[half:] = y[half:] + 7.0

    intruder = Intruder(other)
    values = y[:half] * 5.0
    monkeypatch.setattr(Storage, "read", after(Storage.read, intruder))
    x[:half] = values
    intruder.finish()
    monkeypatch.undo()
    want = numpy.arange(size) * 0.5
    want[:half] *= 5.0
    want[half:] += 7.0
    assert numpy.asarray(x).tobytes() == want.tobytes()


def test_a_block_does_not_move_under_a_write_at_once(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = block(size)
    gather(x)

    def other() -> None:
        x[1000:-1000] = 0.5 * (x[999:-1001] + x[1001:-999])
        float(x[2000])

    intruder = Intruder(other)
    monkeypatch.setattr(indexing, "writable", after(indexing.writable, intruder))
    x[7] = 4.0
    x[:5] = [numpy.float32(3)] * 5  # C leaves it to Python, where another thread can be let in
    intruder.finish()
    monkeypatch.undo()
    want = expected(size)
    want[1000:-1000] = 0.5 * (want[999:-1001] + want[1001:-999])
    want[7] = 4.0
    want[:5] = 3.0
    assert numpy.asarray(x).tobytes() == want.tobytes()


def part_by_python(x: Any) -> Any:
    """`x[2:5]`, which C does in one step: no other thread can be let in."""
    key = slice(2, 5)
    return indexing.get_item(x, key) if type(x) is lazyfuse.ndarray else x[key]


@pytest.mark.parametrize(
    ("module", "view"),
    [
        (indexing, part_by_python),
        (conversion, lambda x: x[None, 2:5].T),
        (conversion, lambda x: x.reshape(2, -1)),
        (conversion, lambda x: x.view("i8")),
    ],
)
def test_an_array_may_become_direct_while_a_view_is_made(
    module: Any, view: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix = numpy.arange(40_000.0).reshape(100, 400)
    x = (lazyfuse.array(matrix) + 1.0).sum(axis=0)
    intruder = Intruder(lambda: gather(x))
    monkeypatch.setattr(module, "materialise", after(module.materialise, intruder))
    found = view(x)
    monkeypatch.undo()
    intruder.finish()
    want = (matrix + 1.0).sum(axis=0)
    assert numpy.asarray(found).tobytes() == view(want).tobytes()
    x[3] = want[3] = 7.0  # what was made is a view
    assert numpy.asarray(found).tobytes() == view(want).tobytes()


# ------------------------------------------------------------------------------- many at once


THREADS = 4


def change(xp: Any, x: Any, y: Any, low: int, high: int, steps: list[int]) -> None:
    """What one thread does to its part of `x`."""
    for step in steps:
        if step == 0:
            x[low:high] = y[low:high] * 2.0
        elif step == 1:
            x[low:high] += 1.0
        elif step == 2:
            part = x[low:high]
            part *= 3.0
        elif step == 3:
            x[low + 1 : high - 1] = 0.5 * (x[low : high - 2] + x[low + 2 : high])
        elif step == 4:
            x[low] = float(high)
        elif step == 5:
            xp.add(x[low:high], y[low:high], out=x[low:high])
        elif step == 6:
            x[low:high][::2] = -1.0
        elif step == 7:
            float(x[low:high].max())
        elif step == 8:
            x[low:high].sort()
        elif step == 9:
            x[low:high][x[low:high] > 3.0] = 0.25
        elif step == 10:
            xp.cumsum(y[low:high], out=x[low:high])
        elif step == 11:
            xp.add.at(x, low + 3, 2.0)
        elif step == 12:
            x[low:high].flat[5:9] = 1.5
        else:
            x[low:high].fill(0.5)


STEPS = 14


def run_all(works: Sequence[Callable[[], None]]) -> None:
    """Each in a thread of its own; the first error is raised here."""
    with ThreadPoolExecutor(len(works)) as pool:
        for each in [pool.submit(work) for work in works]:
            each.result()


@pytest.fixture
def often() -> Iterator[None]:
    """Threads change places at every opportunity."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("size", [2_000, 40_000, 140_000])
@pytest.mark.parametrize("threads", [1, 2])
def test_threads_fill_parts_of_one_array(size: int, threads: int, often: None) -> None:
    rng = numpy.random.default_rng(size)
    with lazyfuse.options(eager_below=500 if size < 10_000 else 16384, threads=threads):
        for turn in range(4):
            x, y = lazyfuse.ones(size) * 2.0, lazyfuse.arange(size) * 1.0
            if turn % 2:
                float(x.sum()), float(y.sum())
            part = size // THREADS
            steps = rng.integers(0, STEPS, (THREADS, 6)).tolist()

            def work(at: int, x: Any = x, y: Any = y, steps: Any = steps) -> None:
                change(lazyfuse, x, y, at * part, (at + 1) * part, steps[at])  # noqa: B023

            run_all([functools.partial(work, at) for at in range(THREADS)])
            want, other = numpy.ones(size) * 2.0, numpy.arange(size) * 1.0
            for at in range(THREADS):
                change(numpy, want, other, at * part, (at + 1) * part, steps[at])
            assert numpy.asarray(x).tobytes() == want.tobytes(), steps


def test_threads_read_and_write_one_array(often: None) -> None:
    """Values are anybody's guess, errors are not allowed."""
    with lazyfuse.options(eager_below=0):
        arrays = [lazyfuse.ones(200) + 1]
        y = lazyfuse.ones(200)

        def read() -> None:
            for _ in range(60):
                a = arrays[0]
                _ = a * 2.5, 1.5 - a, lazyfuse.multiply(a, 3.5), -a, a[3:7], a + y, float(a[9])

        def write() -> None:
            for turn in range(40):
                a = arrays[0]
                a += 0.5
                a *= 0.999
                float(a[5])
                a[:] = 0.25
                if turn % 20 == 19:
                    arrays[0] = lazyfuse.ones(200) + 1

        run_all([read, read, write, write])
