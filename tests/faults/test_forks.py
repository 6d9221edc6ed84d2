"""Forks while threads of ours hold locks that no child can make anew."""

from __future__ import annotations

import os
import threading
import time
import warnings

import pytest

from lazyfuse.devices import forking

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks")


def child_says(lock: threading.Lock) -> int:
    """The status of a child that takes a lock."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        os._exit(0 if lock.acquire(timeout=1.0) else 7)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_fork_waits_for_threads_that_hold_other_peoples_locks() -> None:
    lock, holding = threading.Lock(), threading.Event()

    def work() -> None:
        with forking.settled, lock:
            holding.set()
            time.sleep(0.3)

    for _ in range(3):
        holding.clear()
        thread = threading.Thread(target=work)
        thread.start()
        assert holding.wait(10)
        assert child_says(lock) == 0
        thread.join()
    with forking.settled:  # the parent's is free again, and the forking thread may hold it
        assert child_says(lock) == 0


def test_a_fork_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forking, "PATIENCE", 0.05)
    ended, lock, holding = threading.Event(), threading.Lock(), threading.Event()

    def work() -> None:
        with forking.settled:
            holding.set()
            ended.wait(30)

    thread = threading.Thread(target=work)
    thread.start()
    assert holding.wait(10)
    assert child_says(lock) == 0
    ended.set()
    thread.join()
    with forking.settled:
        assert child_says(lock) == 0
