"""What fails while arrays in chunks are computed: the result comes, or a clear error.

Workers are real processes and are killed; afterwards everything goes on, and no value is wrong.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import InvalidStateError
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import dask.array
import numpy
import pytest

import lazyfuse as np
from lazyfuse import config
from lazyfuse.errors import EvaluationError
from lazyfuse.runtime.scheduling import evaluate
from tests import campaign
from tests.campaign import rounds
from tests.faults.test_interrupts import is_free

pytestmark = [
    campaign.TIMEOUT,
    pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no such signals"),
]
SIZE = 10  # elements of a chunk


def slowly(block: Any, seconds: float) -> Any:
    time.sleep(seconds)
    return block


def source(chunks: int, seconds: float) -> Any:
    """The numbers 0, 1, ... in chunks that take some time each."""
    lazy = dask.array.arange(float(SIZE * chunks), chunks=SIZE)
    return np.from_chunks(lazy.map_blocks(slowly, seconds, dtype=float, meta=numpy.empty(0)))


def plain(chunks: int) -> Any:
    return numpy.arange(float(SIZE * chunks))


def kill_a_worker(client: Any) -> None:
    os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)


@contextmanager
def after(seconds: float, act: Callable[[], None]) -> Iterator[None]:
    timer = threading.Timer(seconds, act)
    timer.start()
    try:
        yield
    finally:
        timer.join()


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Ctrl-C in the middle of the block, which has to end by it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with after(seconds, interrupt):
            yield
            time.sleep(10)
    except KeyboardInterrupt:
        return
    finally:
        signal.signal(signal.SIGINT, before)
    pytest.fail("no KeyboardInterrupt came")


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


# ------------------------------------------------------------------------------------ workers


def test_a_worker_killed_in_the_middle_costs_time_alone(cluster: Any) -> None:
    total = (source(20, 0.04) * 2 + 1).sum()
    with after(0.2, lambda: kill_a_worker(cluster)):
        assert float(total) == (plain(20) * 2 + 1).sum()


def test_a_lost_chunk_is_computed_again(cluster: Any) -> None:
    kept = np.persist(source(8, 0.0) + 1)
    (where,) = {name for each in np.resident() if (name := each.device)}
    assert where == "dask"
    numpy.asarray(kept[:1])  # all are there
    kill_a_worker(cluster)
    assert numpy.array_equal(numpy.asarray(kept * 2), (plain(8) + 1) * 2)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # distributed's own
def test_an_interrupted_client_goes_on(cluster: Any) -> None:
    x = source(30, 0.03)
    y, z = x * 3, np.persist(source(4, 0.0) + 1)
    with interrupted_after(0.3):
        float(y.sum())
    assert is_free(evaluate.lock)
    assert numpy.array_equal(numpy.asarray(z), plain(4) + 1)
    assert float(y.sum()) == (plain(30) * 3).sum()


@pytest.mark.parametrize("scheduler", ["on_threads", "synchronous"])
def test_interrupted_on_this_machine(scheduler: str, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(scheduler)
    x = source(60, 0.01)
    y = x * 3
    y[5] = 100.0
    want = plain(60) * 3
    want[5] = 100.0
    with interrupted_after(0.1):
        float(y.sum())
    assert is_free(evaluate.lock)
    assert float(y.sum()) == want.sum()
    assert float(x[:30].sum()) == plain(60)[:30].sum()


class Interrupt(BaseException):
    """What a handler raises."""


@pytest.fixture
def no_callbacks() -> Iterator[None]:
    """Without callbacks of the collector, as distributed has: an interrupt is dropped in them."""
    kept = gc.callbacks[:]
    gc.callbacks.clear()
    yield
    gc.callbacks[:] = kept


# the callbacks of weak dictionaries are Python, which prints what is raised
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@rounds(30)
@pytest.mark.usefixtures("synchronous", "no_callbacks")
def test_signals_at_any_moment(seeds: range) -> None:
    """While a long graph is planned, run and put together.

    In one thread: on threads one in a thousand interrupts meets Dask's `queue.Queue` between two
    steps, its lock stays taken, and the threads of the pool wait for it for good.
    """
    met = 0

    def handler(number: int, frame: Any) -> None:
        raise Interrupt

    before = signal.signal(signal.SIGALRM, handler)
    try:
        for seed in seeds:
            x = np.from_chunks(dask.array.arange(400.0, chunks=20))
            want = plain(40)
            for step in range(25):
                x, want = x + step, want + step
                if step % 5 == 0:
                    x[step:200:3] = x[step + 1 : 201 : 3]
                    want[step:200:3] = want[step + 1 : 201 : 3]
            held = x - 1
            try:
                signal.setitimer(signal.ITIMER_REAL, random.Random(seed).random() * 0.06 + 1e-4)
                float(x.sum())
                signal.setitimer(signal.ITIMER_REAL, 0)
            except (Interrupt, InvalidStateError):  # between two steps of Dask's own future
                met += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            assert numpy.array_equal(numpy.asarray(x), want)
            assert numpy.array_equal(numpy.asarray(held), want - 1)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert met
    assert is_free(evaluate.lock)


# ---------------------------------------------------------------------------- what cannot be done


@pytest.mark.parametrize("scheduler", ["on_threads", "cluster"])
def test_a_file_that_vanished(
    scheduler: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(scheduler)
    path = tmp_path / "data.npy"
    numpy.save(path, plain(10))
    x = np.from_chunks(str(path), chunks=20)
    y = x * 2
    z = np.arange(3.0) + 1
    path.rename(tmp_path / "elsewhere.npy")
    for _ in range(2):
        with pytest.raises(FileNotFoundError, match=r"data\.npy") as caught:
            numpy.asarray(y)
        (note,) = caught.value.__notes__
        assert __file__ in note
        assert "[multiply]" in note
    (tmp_path / "elsewhere.npy").rename(path)
    assert numpy.array_equal(numpy.asarray(y), plain(10) * 2)
    assert float(z.sum()) == 6


@pytest.mark.usefixtures("on_threads")
def test_more_than_gather_limit_is_refused() -> None:
    x = np.from_chunks(dask.array.arange(200_000.0, chunks=20_000))
    y = np.sqrt(x)
    plain = numpy.sqrt(numpy.arange(200_000.0))
    with config.options(gather_limit=1_000_000):
        with pytest.raises(
            EvaluationError, match=r"sqrt has 0.0016 GB .*gather_limit.*save_chunks"
        ):
            numpy.asarray(y)
        # what needs all of it on the host says so
        with pytest.raises(EvaluationError, match="gather_limit") as caught:
            numpy.asarray(np.convolve(y, numpy.ones(3)))
        assert caught.value.file == __file__
        assert float((y * y).sum().round()) == 19999900000
        # a part is fetched alone, so it is no memory of the array
        part = numpy.asarray(y[5:10])
        assert numpy.array_equal(part, plain[5:10])
        assert not part.flags.writeable
    assert numpy.array_equal(numpy.asarray(y), plain)
    part = numpy.asarray(y[5:10])  # all of it is on the host now
    part[0] = 7
    assert float(y[5]) == 7


def test_a_cluster_that_is_gone(tmp_path: Path) -> None:
    """Its chunks are lost, with a clear error; everything else goes on, without a cluster."""
    distributed = pytest.importorskip("distributed")
    at = tmp_path / "scheduler.json"
    common = ["--no-dashboard", "--scheduler-file", str(at)]
    commands = (
        ["dask_scheduler", "--host", "127.0.0.1", "--port", "0", *common],
        ["dask_worker", "--no-nanny", "--nthreads", "1", *common],
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.{command}", *more], stderr=subprocess.DEVNULL
        )
        for command, *more in commands
    ]
    settings = {"distributed.comm.timeouts.connect": "500ms"}
    try:
        while not at.exists():
            time.sleep(0.05)
        with dask.config.set(settings):
            client = distributed.Client(scheduler_file=str(at), timeout=30)
            with client:
                x = np.from_chunks(dask.array.arange(40.0, chunks=10))
                kept = np.persist(x + 1)
                read = kept * 2
                host = np.arange(5.0) + 1
                assert float(read[:5].sum()) == 30
                processes[0].kill()
                with pytest.raises(EvaluationError, match="cluster that is gone") as caught:
                    numpy.asarray(read)
                assert caught.value.file == __file__
                assert numpy.array_equal(numpy.asarray(host), numpy.arange(5.0) + 1)
        with dask.config.set(scheduler="synchronous"):
            with pytest.raises(EvaluationError, match="cluster that is gone"):
                float(kept.sum())
            assert float((x * 2).sum()) == (plain(4) * 2).sum()
    finally:
        for process in processes:
            process.kill()
            process.wait()
