"""Forks while threads of ours hold locks that no child can make anew."""

from __future__ import annotations

import gc
import os
import random
import signal
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import lazyfuse
from lazyfuse.devices import critical, fork_safety, registry
from tests import campaign
from tests.faults import statements
from tests.faults.children import until

pytestmark = [
    campaign.TIMEOUT,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks"),
]


def in_a_child(work: Callable[[], object]) -> int:
    """The status of a child that does some work: 0 if it says yes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        os._exit(0 if work() else 7)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def child_says(lock: threading.Lock) -> int:
    """The status of a child that takes a lock."""
    return in_a_child(lambda: lock.acquire(timeout=1.0))


def test_a_fork_waits_for_threads_that_hold_other_peoples_locks() -> None:
    lock, holding = threading.Lock(), threading.Event()

    def work() -> None:
        with fork_safety.fork_lock, lock:
            holding.set()
            time.sleep(0.3)

    for _ in range(3):
        holding.clear()
        thread = threading.Thread(target=work)
        thread.start()
        assert holding.wait(10)
        assert child_says(lock) == 0
        thread.join()
    with fork_safety.fork_lock:  # the parent's is free again, and the forking thread may hold it
        assert child_says(lock) == 0


def test_a_fork_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_safety, "PATIENCE", 0.05)
    ended, lock, holding = threading.Event(), threading.Lock(), threading.Event()

    def work() -> None:
        with fork_safety.fork_lock:
            holding.set()
            ended.wait(30)

    thread = threading.Thread(target=work)
    thread.start()
    assert holding.wait(10)
    assert child_says(lock) == 0
    ended.set()
    thread.join()
    with fork_safety.fork_lock:
        assert child_says(lock) == 0


def sections_end(section: critical.Section, handler: object) -> bool:
    """Whether a section that is left leaves nothing behind, and the next one is a whole one."""
    clean = signal.getsignal(signal.SIGUSR1) is handler and collects()
    with section:
        inside = signal.getsignal(signal.SIGUSR1) is not handler and not collects()
    again = signal.getsignal(signal.SIGUSR1) is handler and collects()
    return clean and inside and again


def collects() -> bool:
    """Whether the collector finds a cycle."""
    cycle = Cycle()
    cycle.me, seen = cycle, weakref.ref(cycle)
    del cycle
    gc.collect()
    return seen() is None


class Cycle:
    me: Any


def handler(number: int, frame: Any) -> None: ...


def test_a_child_that_is_forked_in_a_section_leaves_it() -> None:
    """A hook of the program's, such as `warnings.showwarning`, runs while the lock is held."""
    section = critical.section(threading.RLock())
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with section, warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        ended = sections_end(section, handler)
        if pid == 0:
            os._exit(0 if ended else 7)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert ended
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_child_of_another_thread_has_the_handlers_back() -> None:
    section, inside, forked = critical.section(Lent()), threading.Event(), threading.Event()
    before = signal.signal(signal.SIGUSR1, handler)
    found: list[int] = []

    def fork() -> None:
        inside.wait(10)
        found.append(in_a_child(lambda: sections_end(section, handler)))
        forked.set()

    thread = threading.Thread(target=fork)
    thread.start()
    try:
        with section:
            inside.set()
            forked.wait(30)
        thread.join()
        assert found == [0]
        assert sections_end(section, handler)
    finally:
        signal.signal(signal.SIGUSR1, before)


class Lent:
    """A lock that is lent to whoever asks, as that of evaluations is around long calls."""

    def acquire(self) -> None: ...

    def release(self) -> None: ...


def test_a_child_opens_devices_while_a_thread_of_its_parent_did() -> None:
    """Opening imports modules: a fork waits for it, as for every thread that does."""
    inside = threading.Event()

    def opens() -> None:
        with registry._opening:
            inside.set()
            time.sleep(0.3)

    thread = threading.Thread(target=opens)
    thread.start()
    assert inside.wait(10)
    status = in_a_child(lambda: registry._opening.lock.acquire(timeout=1.0))
    thread.join()
    assert status == 0


# ------------------------------------------------------------------------------- at random moments


def goes_on(seed: int) -> bool:
    """Whether a program does what it does in NumPy."""
    ours, theirs = statements.arrays(lazyfuse), statements.arrays(numpy)
    for line in statements.program(seed):
        exec(line, ours)
        exec(line, theirs)
    return statements.equal(statements.values(ours), statements.values(theirs))


class Busy(threading.Thread):
    """Evaluates all the time."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = threading.Event()
        self.wrong: list[int] = []

    def run(self) -> None:
        seed = 0
        while not self.ended.is_set():
            seed += 1
            if not goes_on(seed % 50):
                self.wrong.append(seed)


def child_of(work: Callable[[], bool]) -> int:
    """The status of a child, which is not waited for longer than a minute."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        status = 7
        try:
            status = 0 if work() else 8
        finally:
            os._exit(status)
    found: list[int] = []

    def ended() -> bool:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            found.append(os.waitstatus_to_exitcode(status))
        return bool(done)

    try:
        until(ended, lambda: "the child hangs")
    except AssertionError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    return found[0]


@campaign.rounds(3)
def test_children_at_random_moments(seeds: range) -> None:
    """Arrays that are pending in the parent are the child's, too; threads of the parent are not."""
    busy = Busy()
    busy.start()
    try:
        for seed in seeds:
            draw = random.Random(seed)
            ours, theirs = statements.arrays(lazyfuse), statements.arrays(numpy)
            lines = statements.program(seed)
            for line in lines[: draw.randrange(len(lines))]:
                exec(line, ours)
                exec(line, theirs)

            def work(ours: Any = ours, theirs: Any = theirs, seed: int = seed) -> bool:
                same = statements.equal(statements.values(ours), statements.values(theirs))
                return same and goes_on(seed + 1)

            time.sleep(draw.random() * 0.02)
            assert child_of(work) == 0, seed
            assert work(), seed
    finally:
        busy.ended.set()
        busy.join()
    assert busy.wrong == []
