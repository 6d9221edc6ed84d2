"""A pool of daemon worker threads for the calling thread; owns waking, joining and forking.

`ThreadPool.run(work, assist, helpers)` runs `work()` in the caller and `assist()` in the worker
threads that wake in time. Both take work from a common counter and return when none is left. So a
worker that wakes late costs nothing but its share, and several callers may run at once.
"""

from __future__ import annotations

import ctypes
import os
import queue
import threading
from collections.abc import Callable

from . import fork_safety, interpreter

callers = 1
"""How many callers work at the same time: each has its part of the threads."""
changes = ctypes.c_int64()
"""How often the threads of launches have changed: C asks again who helps only then."""


def change() -> None:
    """Note that the threads of launches are others from now on."""
    changes.value += 1


def share_out(count: int) -> None:
    """Set the number of callers that work at the same time."""
    global callers
    if count != callers:
        callers = count
        change()


# Most waiting jobs per worker thread: busy threads would not reach more of them in time.
_BACKLOG = 4


def available() -> int:
    """Cores that this process may use: affinity and the container's quota; at least 1."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        cores = os.cpu_count() or 1
    return max(1, min(cores, _quota()))


def _quota() -> int:
    """Whole cores that the control group grants, rounded up (version 2 of Linux's cgroups)."""
    try:
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:
            quota, period = file.read().split()
        return -(-int(quota) // int(period))
    except (OSError, ValueError):  # no such file, or "max 100000"
        return 1 << 16


class _Job:
    """Work to share: each worker thread that joins takes a ticket and returns an outcome."""

    __slots__ = ("assist", "finished", "outcomes", "tickets")

    def __init__(self, assist: Callable[[], object], helpers: int) -> None:
        self.assist = assist
        self.tickets = [None] * helpers
        self.outcomes: list[BaseException | None] = []
        self.finished: queue.SimpleQueue[None] = queue.SimpleQueue()  # one item after each outcome

    def join(self) -> None:
        """Take part in the work, if there is a ticket left."""
        try:
            self.tickets.pop()
        except IndexError:
            return
        outcome: BaseException | None = None
        try:
            self.assist()
        except BaseException as error:
            outcome = error
        self.outcomes.append(outcome)
        self.finished.put(None)

    def close(self) -> int:
        """Admit no more worker threads. Return the number of tickets left."""
        unused = 0
        while self.tickets:
            try:
                self.tickets.pop()
            except IndexError:
                break
            unused += 1
        return unused


class ThreadPool:
    """Worker threads, started on first use."""

    def __init__(self, threads: int) -> None:
        self.threads = max(1, threads)
        self.after_fork()
        fork_safety.register(self)

    def after_fork(self) -> None:
        """In a child: begin without worker threads."""
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._started = 0
        self._lock = threading.Lock()
        change()

    def resize(self, threads: int) -> None:
        """Use this many threads (the caller's included) from now on."""
        with self._lock:
            self.threads = max(1, threads)
            change()
            for _ in range(self.threads - 1, self._started):
                self._jobs.put(None)  # ends one worker thread
            self._started = min(self._started, self.threads - 1)

    def run(self, work: Callable[[], object], assist: Callable[[], object], helpers: int) -> None:
        """Run `work()` here, and `assist()` in up to `helpers` worker threads.

        If `work()` returns a true value, all work is done; else wait for the worker threads that
        joined. The first exception is raised once every thread has stopped.
        """
        helpers = min(helpers, self.threads // callers - 1)
        if helpers < 1:
            work()
            return
        if self._started < helpers:
            self._start()
            helpers = min(helpers, self._started)
        job = _Job(assist, helpers)
        if self._jobs.qsize() < _BACKLOG * helpers:
            for _ in range(helpers):
                self._jobs.put(job)
        error: BaseException | None = None
        done: object = False
        try:
            done = work()
        except BaseException as raised:
            error = raised
        joined = helpers - job.close()
        if not done:
            while len(job.outcomes) < joined:
                try:
                    job.finished.get()
                except KeyboardInterrupt as raised:  # workers still write to the arrays
                    error = error or raised
            for outcome in job.outcomes:
                error = error or outcome
        if error is not None:
            raise error

    def _start(self) -> None:
        with self._lock:
            while self._started < self.threads - 1:
                name = f"lazyfuse-{self._started + 1}"
                helper = threading.Thread(target=_work, args=(self._jobs,), name=name, daemon=True)
                if not interpreter.start(helper):
                    return  # the existing ones serve
                self._started += 1


def _work(jobs: queue.SimpleQueue[_Job | None]) -> None:
    while True:
        job = jobs.get()
        if job is None:
            return
        job.join()
        del job  # an idle thread must not keep the caller's arrays alive
