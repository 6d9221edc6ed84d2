"""Worker threads that wait and work in machine code, without Python's lock.

A worker is a Python thread that enters machine code once and stays there. It spins for a job for
some ten microseconds, spins on for a tenth of a millisecond in which it yields the core to other
threads, then sleeps on a futex. It sleeps at once where threads of another library are about to
work. Waking it costs the caller one system call and the job some fifty microseconds; a spinning
worker costs nothing. A Python thread would have to be woken twice, for the queue and for the lock.

Owns the two loops ("share" for the caller, "help" for the workers), the words through which they
communicate, and the threads. Linux on x86-64 and AArch64 only: elsewhere `run` returns False, and
thread_pool.py does the work.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import fork_safety, interpreter, thread_pool
from ..pools.object_code import Loaded
from .llvm_text import words

ENTRY = "lazyfuse_share"
HELP_ENTRY = "lazyfuse_help"

_MACHINE = os.uname().machine if sys.platform == "linux" else ""
_FUTEX = {"x86_64": 202, "aarch64": 98}.get(_MACHINE, 0)
_PAUSE = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": (
        "declare void @llvm.aarch64.hint(i32)",
        "call void @llvm.aarch64.hint(i32 1)",
    ),
}.get(_MACHINE, ("", ""))

_WAIT, _WAKE = 128, 129  # FUTEX_WAIT and FUTEX_WAKE, within one process

# How often a worker checks for the next job before it sleeps: some 30 us in which it holds its
# core, then some 150 us in which it yields the core to other threads each time.
# Evaluations in a loop follow each other that fast, and waking costs as much as the longest spin.
SPINS = 3000
YIELDS = 400

# How often the caller checks for workers that still have a chunk before it counts them as late,
# some 150 us: a chunk takes less, so the system has given their core to another program. After that
# short launches do without workers, for a moment that grows as long as workers are late again.
LATE = 8192
ALONE, LONGEST_ALONE = 0.02, 0.64  # seconds

# Shared words, each on its own cache line.
_SEQUENCE, _LOCK, _TICKETS, _ACTIVE, _SLEEPERS, _JOB, _QUIT, _REST, _LATE, _WORDS = range(0, 80, 8)

# A job: the loop and its arguments but the last, each in a word.
_ARGUMENTS = dict.fromkeys(("loop", "a", "b", "c", "d"), "ptr") | {"e": "i64", "f": "i64"}
_STORES = "\n".join(
    f"  %j{k} = getelementptr i64, ptr %shared, i64 {_JOB + k}\n"
    f"  store {_ARGUMENTS[name]} %{name}, ptr %j{k}"
    for k, name in enumerate(_ARGUMENTS)
)

# One job at a time. A worker registers as active, then takes a ticket. The caller takes the tickets
# back, then waits until no worker is active: it waits for workers with a ticket; a late worker
# finds no ticket and touches nothing.
TEXT = f"""
declare i64 @syscall(i64, ...)
declare i32 @sched_yield()
{_PAUSE[0]}

define i32 @{ENTRY}(ptr %shared, i64 %helpers, ptr %loop, ptr %a, ptr %b, ptr %c, ptr %d,
                    i64 %e, i64 %f) {{
start:
  %lock = getelementptr i64, ptr %shared, i64 {_LOCK}
  %tickets = getelementptr i64, ptr %shared, i64 {_TICKETS}
  %active = getelementptr i64, ptr %shared, i64 {_ACTIVE}
  %sleepers = getelementptr i64, ptr %shared, i64 {_SLEEPERS}
  %late = getelementptr i64, ptr %shared, i64 {_LATE}
  %locked = cmpxchg ptr %lock, i64 0, i64 1 seq_cst seq_cst
  %mine = extractvalue {{i64, i1}} %locked, 1
  br i1 %mine, label %post, label %alone
alone:
  %r0 = call i32 %loop(ptr %a, ptr %b, ptr %c, ptr %d, i64 %e, i64 %f, i64 0)
  ret i32 0
post:
{_STORES}
  store atomic i64 %helpers, ptr %tickets seq_cst, align 8
  %before = atomicrmw add ptr %shared, i32 1 seq_cst
  %asleep = load atomic i64, ptr %sleepers seq_cst, align 8
  %any = icmp sgt i64 %asleep, 0
  br i1 %any, label %wake, label %work
wake:
  %r1 = call i64 (i64, ...) @syscall(i64 {_FUTEX}, ptr %shared, i64 {_WAKE}, i64 %helpers)
  br label %work
work:
  %r2 = call i32 %loop(ptr %a, ptr %b, ptr %c, ptr %d, i64 %e, i64 %f, i64 0)
  %left = atomicrmw xchg ptr %tickets, i64 0 seq_cst
  br label %look
look:
  %turn = phi i64 [0, %work], [%following, %again], [%turn, %yield]
  %inside = load atomic i64, ptr %active seq_cst, align 8
  %none = icmp eq i64 %inside, 0
  br i1 %none, label %done, label %more
more:
  %patient = icmp slt i64 %turn, {LATE}
  br i1 %patient, label %again, label %enough
enough:
  %first = icmp eq i64 %turn, {LATE}
  br i1 %first, label %note, label %yield
note:
  %r4 = atomicrmw add ptr %late, i64 1 seq_cst
  br label %again
again:
  %following = add i64 %turn, 1
  {_PAUSE[1]}
  br label %look
yield:
  %r3 = call i32 @sched_yield()
  br label %look
done:
  store atomic i64 0, ptr %lock seq_cst, align 8
  ret i32 1
}}

define void @{HELP_ENTRY}(ptr %shared, i64 %spins, i64 %yields) {{
start:
  %turns = add i64 %spins, %yields
  %tickets = getelementptr i64, ptr %shared, i64 {_TICKETS}
  %active = getelementptr i64, ptr %shared, i64 {_ACTIVE}
  %sleepers = getelementptr i64, ptr %shared, i64 {_SLEEPERS}
  %quit = getelementptr i64, ptr %shared, i64 {_QUIT}
  %rest = getelementptr i64, ptr %shared, i64 {_REST}
  %first = load atomic i32, ptr %shared seq_cst, align 8
  br label %try
try:
  %seen = phi i32 [%first, %start], [%now, %changed]
  %r0 = atomicrmw add ptr %active, i64 1 seq_cst
  br label %take
take:
  %count = load atomic i64, ptr %tickets seq_cst, align 8
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %claim, label %leave
claim:
  %less = sub i64 %count, 1
  %pair = cmpxchg ptr %tickets, i64 %count, i64 %less seq_cst seq_cst
  %got = extractvalue {{i64, i1}} %pair, 1
  br i1 %got, label %work, label %take
work:
{words("shared", _ARGUMENTS, _JOB)}
  %r1 = call i32 %loop(ptr %a, ptr %b, ptr %c, ptr %d, i64 %e, i64 %f, i64 0)
  br label %leave
leave:
  %r2 = atomicrmw sub ptr %active, i64 1 seq_cst
  br label %wait
wait:
  %turn = phi i64 [0, %leave], [%following, %again], [%next, %polite], [0, %sleep]
  %now = load atomic i32, ptr %shared seq_cst, align 8
  %same = icmp eq i32 %now, %seen
  br i1 %same, label %still, label %changed
changed:
  %leaving = load atomic i64, ptr %quit seq_cst, align 8
  %stay = icmp eq i64 %leaving, 0
  br i1 %stay, label %try, label %out
still:
  %told = load atomic i32, ptr %rest seq_cst, align 8
  %resting = icmp eq i32 %told, %seen
  br i1 %resting, label %sleep, label %awake
awake:
  %patient = icmp slt i64 %turn, %spins
  br i1 %patient, label %again, label %enough
again:
  %following = add i64 %turn, 1
  {_PAUSE[1]}
  br label %wait
enough:
  %more = icmp slt i64 %turn, %turns
  br i1 %more, label %polite, label %sleep
polite:
  %next = add i64 %turn, 1
  %r6 = call i32 @sched_yield()
  br label %wait
sleep:
  %r3 = atomicrmw add ptr %sleepers, i64 1 seq_cst
  %expected = sext i32 %seen to i64
  %r4 = call i64 (i64, ...) @syscall(i64 {_FUTEX}, ptr %shared, i64 {_WAIT}, i64 %expected, i64 0)
  %r5 = atomicrmw sub ptr %sleepers, i64 1 seq_cst
  br label %wait
out:
  ret void
}}
"""

_Pointer, _Int64 = ctypes.c_void_p, ctypes.c_int64
_Share = ctypes.CFUNCTYPE(
    ctypes.c_int32, _Pointer, _Int64, _Pointer, *[_Pointer] * 4, _Int64, _Int64
)
_Help = ctypes.CFUNCTYPE(None, _Pointer, _Int64, _Int64)

AVAILABLE = bool(_FUTEX and _PAUSE[1])


class _Team:
    """Worker threads that wait at the same words."""

    def __init__(self, loaded: tuple[Loaded, Loaded]) -> None:
        memory = np.zeros(_WORDS + 8, dtype=np.int64)
        start: int = memory.__array_interface__["data"][0]
        skip = -start % 64 // 8
        self.memory = memory  # workers keep the team, and with it memory and code
        self.words = memory[skip : skip + _WORDS]
        self.address = start + 8 * skip
        self.sleepers = ctypes.c_int64.from_address(self.address + 8 * _SLEEPERS)
        self.sequence = ctypes.c_int32.from_address(self.address)
        self.resting = ctypes.c_int32.from_address(self.address + 8 * _REST)
        self.late = ctypes.c_int64.from_address(self.address + 8 * _LATE)
        self.resting.value = -1
        self.loaded = loaded
        self.share = _Share(loaded[0].address)
        self.help = _Help(loaded[1].address)
        self.size = 0

    def grow(self, size: int) -> bool:
        """Start workers until there are `size`; False: the system has no room for them."""
        while self.size < size:
            name = f"lazyfuse-native-{self.size + 1}"
            helper = threading.Thread(target=_work, args=(self,), name=name, daemon=True)
            if not interpreter.start(helper):
                return False
            self.size += 1
        return True

    def dismiss(self) -> None:
        """Let the workers end; those at work finish first."""
        self.words[_QUIT] = 1
        self.words[_SEQUENCE] += 1 << 20  # a larger step than any that a caller makes meanwhile
        ctypes.CDLL(None).syscall(
            _Int64(_FUTEX), _Pointer(self.address), _Int64(_WAKE), _Int64(self.size)
        )


def _work(crew: _Team) -> None:
    crew.help(crew.address, SPINS, YIELDS)


class NativeThreads:
    """The workers of one device. `load(entry)` gives the machine code of one of the two loops."""

    def __init__(self, load: Callable[[str], Loaded]) -> None:
        self._load = load
        self._failed = not AVAILABLE
        self.after_fork()
        fork_safety.register(self)

    def after_fork(self) -> None:
        """Start without workers."""
        self._team: _Team | None = None
        self._lock = threading.Lock()
        self._late = 0  # what the team's counter was
        self._alone_until = 0.0
        self._alone = ALONE

    def resize(self) -> None:
        """Start again, with the new number of threads."""
        with self._lock:
            crew, self._team = self._team, None
        thread_pool.change()
        if crew is not None:
            crew.dismiss()

    def are_late(self) -> bool:
        """Whether workers kept a caller waiting a moment ago: other programs have their cores."""
        crew = self._team
        if crew is None or (crew.late.value == self._late and not self._alone_until):
            return False
        now = time.perf_counter()
        if crew.late.value != self._late:
            again = now < self._alone_until + 2 * self._alone
            self._late = crew.late.value
            self._alone = min(2 * self._alone, LONGEST_ALONE) if again else ALONE
            self._alone_until = now + self._alone
        elif now > self._alone_until + 2 * self._alone:
            self._alone_until = 0.0  # they came in time
        return now < self._alone_until

    def sure_for(self) -> float:
        """For how many seconds `are_late` says the same, unless a worker is late meanwhile."""
        crew = self._team
        if crew is None or (crew.late.value == self._late and not self._alone_until):
            return math.inf
        left = self._alone_until - time.perf_counter()
        return left if left > 0.0 else left + 2 * self._alone

    def sleep_early(self) -> None:
        """Let waiting workers sleep at once, to free their cores for other libraries."""
        crew = self._team
        if crew is not None:
            crew.resting.value = crew.sequence.value

    def run(self, loop: int, arguments: tuple[Any, ...], helpers: int) -> bool:
        """Run `loop(*arguments, 0)` here and in up to `helpers` workers; False: unsupported.

        `loop`: the address of a function of four pointers and three integers, which takes work from
        shared words until none remains. On return no worker works on it any more.
        """
        crew = self.team(helpers)
        if crew is None:
            return False
        crew.share(crew.address, helpers, loop, *arguments)
        return True

    def team(self, helpers: int) -> _Team | None:
        """A team of at least `helpers` workers; None: unsupported."""
        crew = self._team
        if crew is None or crew.size < helpers:
            return self._started(helpers)
        return crew

    def prepare(self) -> None:
        """Load the code before it is needed."""
        self._started(0)

    def _started(self, helpers: int) -> _Team | None:
        if self._failed:
            return None
        with self._lock:
            if self._team is None:
                try:
                    self._team = _Team((self._load(ENTRY), self._load(HELP_ENTRY)))
                except Exception:  # no code for this machine: Python threads do the work
                    self._failed = True
                    return None
            return self._team if self._team.grow(helpers) else None
