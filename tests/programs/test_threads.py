"""Several Python threads at once, and children made by fork."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import lazyfuse
from lazyfuse import config

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def at_once(work: Callable[[int], object], count: int = 4) -> None:
    """Run `work(0)` ... in threads that start together; the first failure is raised."""
    failures: list[BaseException] = []
    gate = threading.Barrier(count)

    def run(number: int) -> None:
        gate.wait()
        try:
            work(number)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    if failures:
        raise failures[0]


def computed(xp: Any, seed: int, size: int = 40_000) -> Any:
    """A few dozen operations with writes, views and reductions."""
    x = xp.array(numpy.random.default_rng(seed).uniform(1, 2, size))
    for k in range(8):
        y = (x * 2 + k) / (x + 1)
        y[1:] += x[:-1] * 0.5
        x = y - y.mean() + 1.5
        x[::3] = y[::3]
        if x.max() > 3:
            x /= x.max()
    return x


def test_threads_with_arrays_of_their_own_U7() -> None:
    wanted = [computed(numpy, seed) for seed in range(4)]

    def work(number: int) -> None:
        for _ in range(3):
            numpy.testing.assert_array_equal(computed(lazyfuse, number), wanted[number])

    at_once(work)


def test_threads_that_record_everything_U7() -> None:
    wanted = [computed(numpy, seed, 500) for seed in range(4)]

    def work(number: int) -> None:
        for _ in range(3):
            numpy.testing.assert_array_equal(computed(lazyfuse, number, 500), wanted[number])

    with config.options(eager_below=0):
        at_once(work)


def test_threads_that_look_at_the_same_pending_array_U7() -> None:
    plain = numpy.random.default_rng(0).uniform(1, 2, 50_000)
    for _ in range(10):
        x = lazyfuse.array(plain)
        shared = [x * 2.0 + 1.0, (x - 1.0).sum(), x[::-1] / 3.0]

        def work(number: int, shared: list[Any] = shared) -> None:
            numpy.testing.assert_array_equal(shared[0], plain * 2.0 + 1.0)
            assert float(shared[1]) == (plain - 1.0).sum()
            numpy.testing.assert_array_equal(shared[2] + number, plain[::-1] / 3.0 + number)

        at_once(work)


def test_threads_that_read_one_array_and_write_their_own_U7() -> None:
    plain = numpy.random.default_rng(1).uniform(1, 2, 40_000)
    x = lazyfuse.array(plain)

    def work(number: int) -> None:
        for k in range(10):
            y = x + number
            y[k:] *= 2.0
            want = plain + number
            want[k:] *= 2.0
            numpy.testing.assert_array_equal(y, want)

    at_once(work)
    numpy.testing.assert_array_equal(x, plain)


def test_threads_that_compile_at_once_U7() -> None:
    plain = numpy.random.default_rng(2).uniform(1, 2, 40_000)

    def work(number: int) -> None:
        x = lazyfuse.array(plain)
        powers = [x * float(number + 1) for _ in range(number + 1)]
        for each in powers:
            x = x + each * number
        want = plain
        for _ in powers:
            want = want + plain * float(number + 1) * number
        numpy.testing.assert_array_equal(x, want)

    with config.options(compile_after=0):
        at_once(work)


# ------------------------------------------------------------------------------------- fork


def child_says(work: Callable[[], object]) -> int:
    """The exit status of a forked child that runs `work`."""
    with warnings.catch_warnings():
        # Python warns of forking with threads: that this works is what we test
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@needs_fork
def test_a_forked_child_evaluates_U7() -> None:
    plain = numpy.random.default_rng(3).uniform(1, 2, 300_000)
    x = lazyfuse.array(plain)
    with config.options(threads=2, threads_above=1):
        first = x * 2.0 + 1.0
        numpy.testing.assert_array_equal(first, plain * 2.0 + 1.0)
        pending = first / 3.0

        def work() -> None:
            numpy.testing.assert_array_equal(pending, (plain * 2.0 + 1.0) / 3.0)
            numpy.testing.assert_array_equal(computed(lazyfuse, 5), computed(numpy, 5))

        assert child_says(work) == 0
        work()


@needs_fork
def test_a_child_forked_while_another_thread_evaluates_U7() -> None:
    plain = numpy.random.default_rng(4).uniform(1, 2, 300_000)
    stop = threading.Event()

    def busy() -> None:
        x = lazyfuse.array(plain)
        while not stop.is_set():
            numpy.asarray(lazyfuse.sin(x) * 2.0)

    thread = threading.Thread(target=busy)
    thread.start()

    def work() -> None:
        x = lazyfuse.array(plain)
        numpy.testing.assert_array_equal(x * 3.0 - 1.0, plain * 3.0 - 1.0)

    try:
        for _ in range(5):
            assert child_says(work) == 0
    finally:
        stop.set()
        thread.join()


def in_a_process(seed: int) -> Any:
    return numpy.asarray(computed(lazyfuse, seed)).tobytes()


@needs_fork
def test_a_pool_of_forked_processes_U7() -> None:
    computed(lazyfuse, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with multiprocessing.get_context("fork").Pool(2) as pool:
            found = pool.map_async(in_a_process, range(4)).get(timeout=60)
    assert found == [computed(numpy, seed).tobytes() for seed in range(4)]
