"""A pool of daemon threads that help the calling thread; owns waking, joining and forking.

`ThreadPool.run(work, assist, helpers)` runs `work()` in the caller and `assist()` in helper
threads, as far as these wake in time. Both share the work out by themselves (a common counter) and
return when none is left, so a helper that wakes late costs nothing but its share, and several
callers may run at once.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable

from . import fork_safety

callers = 1
"""How many callers are at work at the same time: each has its part of the threads."""


def share_out(count: int) -> None:
    """From now on so many callers are at work."""
    global callers
    callers = count


# Jobs that no helper has looked at yet, per helper: more are of no use to busy helpers.
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
    """Work to share: tickets are taken by helpers that join, outcomes given back by them."""

    __slots__ = ("assist", "finished", "outcomes", "tickets")

    def __init__(self, assist: Callable[[], object], helpers: int) -> None:
        self.assist = assist
        self.tickets = [None] * helpers
        self.outcomes: list[BaseException | None] = []
        self.finished: queue.SimpleQueue[None] = queue.SimpleQueue()  # one item after each outcome

    def join(self) -> None:
        """Take part, if there is a ticket left."""
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
        """Let no more helpers in; how many tickets were left."""
        unused = 0
        while self.tickets:
            try:
                self.tickets.pop()
            except IndexError:
                break
            unused += 1
        return unused


class ThreadPool:
    """Helper threads, started when first needed."""

    def __init__(self, threads: int) -> None:
        self.threads = max(1, threads)
        self.after_fork()
        fork_safety.register(self)

    def after_fork(self) -> None:
        """Begin without helper threads."""
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._started = 0
        self._lock = threading.Lock()

    def resize(self, threads: int) -> None:
        """Use this many threads (the caller's included) from now on."""
        with self._lock:
            self.threads = max(1, threads)
            for _ in range(self.threads - 1, self._started):
                self._jobs.put(None)  # ends one helper
            self._started = min(self._started, self.threads - 1)

    def run(self, work: Callable[[], object], assist: Callable[[], object], helpers: int) -> None:
        """`work()` here, `assist()` in up to `helpers` helpers.

        If `work()` returns something true, all work is known to be done; else we wait for the
        helpers that joined. The first exception is raised once every participant has stopped.
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
                except KeyboardInterrupt as raised:  # helpers still write to the caller's arrays
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
                try:
                    helper.start()
                except RuntimeError:  # the system has no room for one: those that are there serve
                    return
                self._started += 1


def _work(jobs: queue.SimpleQueue[_Job | None]) -> None:
    while True:
        job = jobs.get()
        if job is None:
            return
        job.join()
        del job  # an idle helper must not keep the caller's arrays alive
