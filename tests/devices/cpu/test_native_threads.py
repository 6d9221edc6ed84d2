"""Helper threads in machine code: all work is done once, whoever calls, resizes or forks."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse.devices import thread_pool
from lazyfuse.devices.cpu import native_threads
from lazyfuse.runtime.placement import devices

N = 400_000

pytestmark = pytest.mark.skipif(
    not native_threads.AVAILABLE, reason="no futex, or an unknown processor"
)


@pytest.fixture
def work() -> Any:
    """How the CPU runs chunks, with two threads whatever the machine has."""
    with lf.options(device="cpu", threads=3, threads_above=1000):
        device: Any = devices.cpu()
        yield device.work


def data(seed: int = 0) -> tuple[Any, Any]:
    generator = np.random.default_rng(seed)
    return generator.random(N), generator.random(N)


def check(seed: int, rounds: int, wrong: list[int]) -> None:
    a, b = data(seed)
    x, y = lf.array(a), lf.array(b)
    expected = a * b + a - b / 3.0
    for _ in range(rounds):
        if not np.array_equal((x * y + x - y / 3.0).to_numpy(), expected):
            wrong.append(seed)
        if float((x * y).sum()) != (a * b).sum():
            wrong.append(seed)


def test_helpers_are_used(work: Any) -> None:
    wrong: list[int] = []
    check(0, 30, wrong)
    assert not wrong
    assert work.native._team.size >= 1
    assert int(work.native._team.words[native_threads._LOCK]) == 0


def test_many_callers_at_once(work: Any) -> None:
    wrong: list[int] = []
    callers = [threading.Thread(target=check, args=(k, 15, wrong)) for k in range(4)]
    for each in callers:
        each.start()
    for each in callers:
        each.join()
    assert not wrong


def test_another_number_of_threads(work: Any) -> None:
    wrong: list[int] = []
    before = None
    for count in (1, 2, 4, 1, 3):
        with lf.options(threads=count):
            check(1, 5, wrong)
            crew = devices.cpu().work.native._team  # type: ignore[attr-defined]
            assert crew is None or crew.size == count - 1
            assert crew is None or crew is not before
            before = crew
    assert not wrong


def test_pythons_threads_serve_where_there_is_no_machine_code(
    work: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong: list[int] = []
    with monkeypatch.context() as patched:
        work.native.resize()
        patched.setattr(work.native, "_failed", True)
        check(2, 5, wrong)
        assert work.native._team is None
    check(2, 5, wrong)
    assert not wrong


def test_no_machine_code_no_native_threads() -> None:
    def refuse(entry: str) -> Any:
        raise OSError(entry)

    threads = native_threads.NativeThreads(refuse)
    assert not threads.run(0, (0, 0, 0, 0, 0, 0), 1)
    assert not threads.run(0, (0, 0, 0, 0, 0, 0), 1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_has_helpers_of_its_own(work: Any) -> None:
    wrong: list[int] = []
    check(3, 5, wrong)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            check(3, 5, wrong)
            code = 1 if wrong else 0
        finally:
            os._exit(code)
    check(3, 5, wrong)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not wrong


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that `native_threads` sees, in a list of one number; it begins at the real time,
    with which moments that earlier tests have set are compared."""
    now = [time.perf_counter()]
    monkeypatch.setattr(native_threads.time, "perf_counter", lambda: now[0])
    return now


def test_short_launches_do_without_workers_that_were_late(work: Any, clock: list[float]) -> None:
    wrong: list[int] = []
    check(4, 3, wrong)
    crew = work.native._team
    before = -1
    while crew.late.value != before:  # a busy machine may have made them late just now
        before = crew.late.value
        time.sleep(0.05)
    work.native.are_late()
    clock[0] += 10.0
    assert not work.native.are_late()
    crew.late.value += 1
    assert work.helpers(200_000.0, 8) == 0  # a short launch
    assert work.helpers(1e8, 8) > 0
    clock[0] += 1.01 * native_threads.ALONE
    assert not work.native.are_late()  # tried again
    crew.late.value += 1
    assert work.native.are_late()
    clock[0] += 1.01 * native_threads.ALONE
    assert work.native.are_late()  # late again at once: for longer
    clock[0] += 10.0
    assert not work.native.are_late()
    crew.late.value += 1
    assert work.native.are_late()
    clock[0] += 1.01 * native_threads.ALONE
    assert not work.native.are_late()  # they had come in time: as at first
    check(4, 3, wrong)
    assert not wrong


def test_a_worker_that_keeps_its_chunk_for_long_is_counted(work: Any) -> None:
    wrong: list[int] = []
    check(5, 30, wrong)
    crew, words = work.native._team, work.native._team.words
    before = work.native._late = crew.late.value
    work.native._alone_until = 0.0  # on a busy machine a worker may have been late just now,
    thread_pool.change()  # and launches that run again would do without them for a while

    def come_back() -> None:  # the caller waits, so nothing else changes the word
        words[native_threads._ACTIVE] -= 1

    words[native_threads._ACTIVE] += 1
    ended = threading.Timer(0.05, come_back)
    ended.start()
    check(5, 5, wrong)
    ended.join()
    assert not wrong
    assert crew.late.value > before
