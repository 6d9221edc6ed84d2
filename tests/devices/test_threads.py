"""The pool of helper threads: sharing, errors, several callers, forks."""

from __future__ import annotations

import _thread
import gc
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from lazyfuse.devices import thread_pool as threads
from lazyfuse.devices.base import Array
from lazyfuse.devices.cpu.device import CPU
from lazyfuse.devices.thread_pool import ThreadPool, available
from tests.devices.sources import launch_of, map_source, numpy_source


def share(pool: ThreadPool, count: int, helpers: int) -> list[int]:
    """What the participants took from a common iterator."""
    taken: list[int] = []
    pending: Iterator[int] = iter(range(count))

    def work() -> None:
        for number in pending:
            taken.append(number)
            time.sleep(0)

    pool.run(work, work, helpers)
    return sorted(taken)


@pytest.mark.smoke
def test_all_work_is_done_once() -> None:
    pool = ThreadPool(4)
    for _ in range(50):
        assert share(pool, 100, 3) == list(range(100))


def test_helpers_take_part() -> None:
    pool = ThreadPool(4)
    meeting = threading.Barrier(4, timeout=60)  # nobody gets past it alone
    pool.run(meeting.wait, meeting.wait, 3)


@pytest.mark.parametrize(("threads", "helpers"), [(1, 5), (4, 0)])
def test_without_helpers_the_caller_works_alone(threads: int, helpers: int) -> None:
    seen: list[int] = []
    ThreadPool(threads).run(lambda: seen.append(threading.get_ident()), pytest.fail, helpers)
    assert seen == [threading.get_ident()]


def test_nobody_waits_for_helpers_when_the_work_is_known_to_be_done() -> None:
    pool = ThreadPool(2)
    entered, leave = threading.Event(), threading.Event()

    def assist() -> None:
        entered.set()
        leave.wait(60)

    pool.run(lambda: entered.wait(60), assist, 1)  # returns although the helper has not
    leave.set()


@pytest.mark.parametrize("who", ["caller", "helper", "both"])
def test_an_exception_is_raised_after_all_have_stopped(who: str) -> None:
    pool = ThreadPool(2)
    meeting = threading.Barrier(2, timeout=60)
    stopped: list[str] = []

    def part(name: str) -> None:
        meeting.wait()
        time.sleep(0.02 if name == "helper" else 0)
        stopped.append(name)
        if who in (name, "both"):
            raise KeyError(name)

    with pytest.raises(KeyError):
        pool.run(lambda: part("caller"), lambda: part("helper"), 1)
    assert sorted(stopped) == ["caller", "helper"]
    pool.run(lambda: None, lambda: None, 1)


def test_an_interrupt_waits_for_helpers_too() -> None:
    pool = ThreadPool(2)
    meeting = threading.Barrier(2, timeout=60)
    stopped: list[bool] = []

    def assist() -> None:
        meeting.wait()
        time.sleep(0.02)
        _thread.interrupt_main()
        time.sleep(0.05)
        stopped.append(True)

    # shells start what runs in the background with interrupts ignored
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            pool.run(lambda: meeting.wait() < 0, assist, 1)
    finally:
        signal.signal(signal.SIGINT, before)
    assert stopped == [True]


def test_idle_helpers_keep_nothing_alive() -> None:
    pool = ThreadPool(3)

    class Thing:
        def __init__(self) -> None:
            self.meeting = threading.Barrier(3, timeout=60)

        def work(self) -> None:
            self.meeting.wait()

    thing = Thing()
    gone = weakref.ref(thing)
    pool.run(thing.work, thing.work, 2)
    del thing
    end = time.monotonic() + 60.0
    while gone() is not None and time.monotonic() < end:
        gc.collect()
        time.sleep(0.01)
    assert gone() is None


def test_the_number_of_threads_can_change() -> None:
    pool = ThreadPool(2)
    for count in (4, 1, 3, 2):
        pool.resize(count)
        assert share(pool, 50, 8) == list(range(50))
        assert pool.threads == count


def test_available_cores_are_at_least_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert available() >= 1
    monkeypatch.setattr(threads, "_quota", lambda: 1)
    assert available() == 1


@pytest.mark.parametrize("language", ["numba", "numpy"])
def test_several_callers_may_launch_at_once(language: str) -> None:
    cpu = CPU(threads=4, threads_above=1)
    if language == "numba":
        source = map_source("a1[i] = a0[i] * x0", ("f8", "f8"), ("f8",))
    else:
        source = numpy_source("np.multiply(a0, x0, out=a1)", ("f8", "f8"), ("f8",))
    program = cpu.compile(source)
    data = np.arange(20_000.0)
    wrong: list[int] = []

    def use(factor: int) -> None:
        for _ in range(30):
            out: Array = np.zeros_like(data)
            program.launch(launch_of((data, out), (float(factor),), 17))
            if not np.array_equal(out, data * factor):
                wrong.append(factor)

    callers = [threading.Thread(target=use, args=(factor,)) for factor in range(5)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert wrong == []


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    cpu = CPU(threads=1, threads_above=1)
    program = cpu.compile(map_source("a1[i] = vm_exp(a0[i]) * vm_sin(a0[i])", ("f8", "f8")))
    data = np.random.default_rng(0).standard_normal(10_001)
    outputs = []
    for count in (1, 2, 5):
        cpu.set_threads(count)
        out = np.zeros_like(data)
        program.launch(launch_of((data, out), (), 23))
        outputs.append(out.tobytes())
    assert len(set(outputs)) == 1


def test_few_elements_wake_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = CPU(threads=4, threads_above=1000)
    monkeypatch.setattr(cpu.work.native, "_failed", True)  # Python's threads
    program = cpu.compile(map_source("a1[i] = a0[i]", ("f8", "f8")))
    helpers: list[int] = []

    def run(work: Callable[[], object], assist: object, count: int) -> None:
        helpers.append(count)
        work()

    monkeypatch.setattr(cpu.threads, "run", run)
    data, out = np.arange(400.0), np.zeros(400)
    for elements in (999, 1000, 1500, 5000):
        program.launch(launch_of((data, out), (), 8, elements))
    cpu.set_threads_above(10_000)
    program.launch(launch_of((data, out), (), 8, 5000))
    assert helpers == [0, 1, 2, 3, 0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own() -> None:
    cpu = CPU(threads=3, threads_above=1)
    program = cpu.compile(map_source("a1[i] = a0[i] + 1.0", ("f8", "f8")))
    data, out = np.arange(5000.0), np.zeros(5000)
    program.launch(launch_of((data, out), (), 11))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            meeting = threading.Barrier(3, timeout=60)
            cpu.threads.run(meeting.wait, meeting.wait, 2)
            out[:] = 0
            program.launch(launch_of((data, out), (), 11))
            other = cpu.compile(map_source("a1[i] = a0[i] + 2.0", ("f8", "f8")))
            other.launch(launch_of((out, out), (), 11))
            large = cpu.empty((100_000,), np.dtype("f8"))
            code = 0 if np.array_equal(out, data + 3.0) and len(large) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
