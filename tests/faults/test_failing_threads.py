"""Threads some of which fail in every way, while the others compute: each sees its own errors only.

A program is a few threads. Some run loops and compare all that they see with NumPy. The others have
pending work that cannot be done: results beyond memory, calls and tasks that raise, handlers that
raise, files that are gone. Their errors are raised where they ask, and nowhere else; interrupts
come in the main thread, which computes as well.
"""

from __future__ import annotations

import importlib.util
import itertools
import random
import signal
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import CodeType
from typing import Any

import numpy
import pytest

import lazyfuse
from lazyfuse import config
from lazyfuse.arrays.recording import host
from tests import campaign, reached
from tests.faults import statements
from tests.faults.test_interrupts import Sender

pytestmark = [
    pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="no such signals"),
    campaign.TIMEOUT,
]
SIZE = 20_000
LINES = (
    "x = x * 0.5 + y", "x = np.sqrt(abs(x)) + y", "x[1:] += x[:-1] * 0.25", "s = (x * y).sum()",
    "x = np.where(x > y, x, y) - 0.5", "t = (x - y).max(); u = (x - y).min()", "x[::3] = y[::3]",
    "x = np.minimum(x, 50.0) * 1.25 - y.min()", "y = y[::-1] - x * 1e-3", "kept = x + y",
    "x = np.sort(x) * 0.5", "y = np.cumsum(y * 1e-4)",
)  # fmt: skip
NAMES = "x", "y", "s", "t", "u", "kept"


class Planned(Exception):
    """What fails because a program wants it to."""


ERRORS = (MemoryError, OSError, ValueError, ZeroDivisionError, numpy.linalg.LinAlgError, Planned)


@lru_cache(maxsize=256)
def loop_of(lines: tuple[str, ...], count: int) -> CodeType:
    """A loop over a few lines."""
    text = "".join(f"    {line}\n" for line in lines)
    return compile(f"for k in range({count}):\n{text}", "<loop>", "exec")


class World:
    """A program's arrays, in NumPy and in lazyfuse."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        plain = {"x": numpy.arange(SIZE) * 7919 % 1009 * 0.5, "y": numpy.arange(SIZE) % 31 - 3.0}
        plain |= {"s": numpy.zeros(2), "t": numpy.zeros(2), "u": numpy.zeros(2)}
        plain["kept"] = numpy.ones(3)
        self.theirs: dict[str, Any] = {"np": numpy, "numpy": numpy}
        self.ours: dict[str, Any] = {"np": lazyfuse, "numpy": numpy}
        for name, value in plain.items():
            self.theirs[name], self.ours[name] = value.copy(), lazyfuse.array(value)

    def loop(self) -> None:
        """Some rounds of a few lines in both, with a look in between."""
        first = self.draw.randrange(len(LINES))
        code = loop_of(
            LINES[first : first + self.draw.randrange(1, 4)], self.draw.choice([1, 3, 12])
        )
        exec(code, self.theirs)
        exec(code, self.ours)
        if self.draw.random() < 0.6:
            self.look(self.draw.choice(NAMES))

    def look(self, name: str) -> None:
        """A name has what it has in NumPy."""
        assert numpy.array_equal(numpy.asarray(self.ours[name]), self.theirs[name]), name


def raises(kind: type[BaseException], look: Callable[[], Any]) -> None:
    """A look raises that, as often as it is tried."""
    for _ in range(2):
        try:
            look()
        except kind:
            continue
        raise AssertionError(f"no {kind.__name__}")


class Trouble:
    """Pending work that cannot be done."""

    def __init__(self, draw: random.Random, folder: Path, name: str) -> None:
        self.draw, self.folder, self.name = draw, folder, name
        self.looks: list[tuple[type[BaseException], Callable[[], Any]]] = []
        self.kept: list[Any] = []

    def make(self, x: Any) -> None:
        """One more piece of it, and the look that raises."""
        kind = self.draw.choice(KINDS)
        error, bad, *more = getattr(self, kind)(x)
        self.kept += [bad, *more]
        if self.draw.random() < 0.5:
            raises(error, lambda: numpy.asarray(bad))
        else:
            self.looks.append((error, lambda: numpy.asarray(bad)))

    def call(self, x: Any) -> Any:
        """A call that raises when it runs, and what reads it."""
        error = self.draw.choice(ERRORS)

        def fails(*values: Any) -> Any:
            raise error("planned")

        found = host("call", fails, [x], (SIZE,), numpy.dtype(float))
        whole = {"axis": 0, "keepdims": True}  # a number would be computed at once
        readers = found * 2.0, (found + x).sum(**whole), (found - 1.0).max(**whole)
        return error, found, *readers[: self.draw.randrange(4)]

    def vast(self, x: Any) -> Any:
        """A result beyond memory raises at the call; nothing pending is left of it."""
        wide = lazyfuse.arange(1 << 22) * 1.0
        with pytest.raises(MemoryError, match="Unable to allocate 128"):
            wide[:, None] * wide[None, :]
        return self.call(x)

    def handler(self, x: Any) -> Any:
        """A handler of floating-point errors raises, at the operation."""

        def handle(what: str, bits: int) -> None:
            raise Planned(what)

        with numpy.errstate(all="call", call=handle):
            raises(Planned, lambda: numpy.asarray(abs(x) / 0.0))
        return self.call(x)

    def gone(self, x: Any) -> Any:
        """A file in chunks that is no longer there."""
        path = self.folder / f"{self.name}-{len(self.kept)}.npy"
        numpy.save(path, numpy.arange(200_000.0).reshape(200, 1000))
        found = lazyfuse.from_chunks(path, chunks=(50, 1000))
        path.unlink()
        return OSError, found * 2.0, (found + 1.0).sum(axis=0), found - 1.0


KINDS = ["call", "call", "vast", "handler"] + ["gone"] * bool(importlib.util.find_spec("dask"))


class Worker(threading.Thread):
    """A thread of a program; `fails`: it has trouble of its own."""

    def __init__(self, seed: int, number: int, fails: bool, folder: Path, ready: Any) -> None:
        super().__init__()
        self.seed = seed * 8 + number
        self.fails, self.folder, self.ready = fails, folder, ready
        self.wrong: BaseException | None = None

    def run(self) -> None:
        world = World(self.seed)
        trouble = Trouble(world.draw, self.folder, str(self.seed))
        self.ready.wait()
        try:
            with numpy.errstate(all="ignore"):
                for _ in range(world.draw.randrange(1, 5)):
                    world.loop()
                    if self.fails:
                        trouble.make(world.ours["x"])
                for name in NAMES:
                    world.look(name)
                for error, look in trouble.looks:
                    raises(error, look)
        except BaseException as error:
            self.wrong = error


@contextmanager
def switching(seconds: float) -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@contextmanager
def tasks() -> Iterator[None]:
    """Tasks of all threads run on these: dask makes some for each of ours, and lets them live."""
    if "gone" in KINDS:
        dask = importlib.import_module("dask")
        with ThreadPoolExecutor(2) as pool, dask.config.set(pool=pool):
            yield
    else:
        yield


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("interval", [5e-3, 1e-5])
@campaign.rounds(20, 14**7)
def test_a_thread_sees_its_own_errors_only(seeds: range, interval: float, tmp_path: Path) -> None:
    wrong: dict[int, str] = {}
    sender, plan_after = Sender(), itertools.cycle([0, 50])
    signals = statements.signals(sender, 2e-3)
    with tasks(), warnings.catch_warnings(), signals, switching(interval):
        warnings.simplefilter("ignore")
        for seed in seeds:
            draw = random.Random(seed)
            ready = threading.Barrier(3)
            fails = [True, *draw.choices([True, False], k=2)]
            workers = [Worker(seed, k, fails[k], tmp_path, ready) for k in range(3)]
            found: list[BaseException | None] = []
            with reached.program(seed), config.options(plan_after=next(plan_after)):
                for worker in workers:
                    worker.start()
                try:
                    statements.beside_others(seed, sender.interrupts)
                except Exception as error:
                    found.append(error)
                for worker in workers:
                    worker.join()
            found += [worker.wrong for worker in workers]
            for each in found:
                if each is not None:
                    wrong[seed] = f"{type(each).__name__}: {each}"[:80]
    kinds = Counter(wrong.values()).most_common(6)
    assert not wrong, f"{len(wrong)} of {len(seeds)} programs, as {[*wrong][:3]}: {kinds}"
