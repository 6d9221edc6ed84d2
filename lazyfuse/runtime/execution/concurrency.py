"""Evaluations of several threads at once, each on its part of the cores.

Evaluations take turns under one lock, and kernels have all cores. While threads wait for each
other, an evaluation that only makes new arrays gives the lock up around calls that have one core
anyway: NumPy's own functions, and the loops that stand for them. Owns the lock, which nodes such
evaluations have claimed, and into how many parts the cores are shared out meanwhile.

Why no value can be wrong: what is under way holds its operands like any pending work, so whoever
asks by reference counts leaves their memory alone (a write at once moves to a copy of the block,
see `Storage.detach`). Its results are new memory, and they become values with the lock held. A node
that is claimed is waited for; where that cannot be (the lock is held further up), it is computed
twice, and the first one counts.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

from lazyfuse import config
from lazyfuse.codegen.graph.node import Node
from lazyfuse.codegen.graph.shapes import size_of
from lazyfuse.codegen.plan.plan import Plan
from lazyfuse.codegen.table import ops
from lazyfuse.codegen.table.op import Op
from lazyfuse.devices import thread_pool
from lazyfuse.runtime.events import counters, decisions

# Held by whoever evaluates, and by whoever moves an array from one state to another.
lock = threading.RLock()
is_owned: Callable[[], bool] = lock._is_owned  # type: ignore[attr-defined]

busy = 0
"""Evaluations between their first question and their last value, of all threads."""
under_way = 0
"""Those among them that have claimed nodes: the lock may be open."""
share = 0.0
"""How many of the last evaluations found another thread's not finished, as a part of one."""
current: ConcurrentEvaluation | None = None
"""The evaluation that holds the lock, if it gives it up around long calls."""

# A quarter of the newest evaluations' word counts; below the least nobody waits any more.
_NEWEST = 1 / 8
_LEAST = 1 / 64
# From so many on, helpers would take the cores of the other threads.
_MANY = 1 / 4

# Elements that such calls read. Handing over takes 50 us, a call of NumPy's 1 to 10 ns per element.
_LONG = 1 << 15

_claimed: set[int] = set()  # ids of nodes; whoever has claimed them keeps them alive
_unlocked_threads: set[int] = set()  # threads that have given the lock up
_landed = threading.Condition(lock)


def notice(met: bool) -> bool:
    """Note whether an evaluation has met another thread's; whether to give the lock up for them."""
    global share
    share += (met - share) * _NEWEST
    if share < _LEAST:
        share = 0.0
        return False
    return config.options.concurrent_evaluations


def meets(nodes: Sequence[Node]) -> bool:
    """Whether pending work below `nodes` is being done by another thread."""
    seen: set[int] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        key = id(node)
        if node.value is not None or key in seen:
            continue
        if key in _claimed:
            return True
        seen.add(key)
        stack += node.src
    return False


def wait_for(nodes: Sequence[Node]) -> None:
    """Wait until no other thread works below `nodes`. The lock must be held once."""
    while under_way and meets(nodes) and threading.get_ident() not in _unlocked_threads:
        _landed.wait()


def _is_long(nodes: Sequence[Node]) -> bool:
    """Whether calls among pending nodes take longer than to hand the lock to another thread."""
    calls = [node for node in nodes if node.value is None and node.op is ops.HOST]
    return sum([size_of(each.shape) for node in calls for each in node.src]) >= _LONG


def _writes(plan: Plan) -> bool:
    """Whether a plan writes to arrays that are there."""
    return any(value.op is ops.UPDATE for value in plan.graph.values)


class ConcurrentEvaluation:
    """An evaluation that may run beside others."""

    __slots__ = ("_ids",)

    def __init__(self) -> None:
        self._ids: list[int] = []  # whoever runs the plan keeps the nodes

    def begin(self, nodes: list[Node], plan: Plan | None) -> None:
        """Give the lock up around long calls from now on, if the plan only makes new arrays."""
        global current, under_way
        if self._ids or not _is_long(nodes) or (plan is not None and _writes(plan)):
            return
        self._ids = [id(node) for node in nodes if node.value is None]
        _claimed.update(self._ids)
        under_way += 1
        thread_pool.share_out(max(under_way, 2) if share > _MANY else 1)
        current = self
        counters.totals.decisions[decisions.CONCURRENT] += 1

    def end(self) -> None:
        """The values are there, or never will be."""
        global current, under_way
        if self._ids:
            current = None
            _claimed.difference_update(self._ids)
            self._ids = []
            under_way -= 1
            if not under_way:
                thread_pool.share_out(1)
            _landed.notify_all()

    def run(self, call: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Make a call that needs nothing but its arguments while others may hold the lock."""
        global current
        current = None
        thread = threading.get_ident()
        _unlocked_threads.add(thread)
        lock.release()
        try:
            return call(*args, **named)
        finally:
            _unlocked_threads.discard(thread)
            self._come_back()

    def _come_back(self) -> None:
        global current
        interrupted = None
        while True:
            try:
                lock.acquire()
                break
            except BaseException as error:  # an interrupt; who called us counts on the lock
                interrupted = error
        current = self
        if interrupted is not None:
            raise interrupted


def call_unlocked(call: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Make a call that needs nothing but its arguments, others going on meanwhile if they may."""
    apart = current
    if apart is None or not is_owned():  # it may be another thread's
        return call(*args, **named)
    return apart.run(call, *args, **named)


def numpys(op: Op, arg: Any) -> Callable[..., Any]:
    """`outside` for one call of NumPy's on what is there; else what makes a call just here."""
    if current is None:
        return _here
    function: Any = arg.function if op is ops.HOST else None
    while isinstance(function, functools.partial):
        function = function.func
    owner = getattr(function, "__self__", None)  # of methods of ufuncs
    module: str = getattr(function, "__module__", None) or type(owner).__module__
    return call_unlocked if module.partition(".")[0] == "numpy" else _here


def _here(call: Callable[..., Any], *args: Any) -> Any:
    return call(*args)


def _begin_anew() -> None:
    """In a child: the other threads are gone, and with them what they had claimed."""
    global busy, under_way, current, _landed
    busy = under_way = 0
    current = None
    _claimed.clear()
    _unlocked_threads.clear()
    thread_pool.share_out(1)
    _landed = threading.Condition(lock)


# A child forked in the middle of an evaluation would wait for ever, on tables half changed.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=lock.acquire, after_in_parent=lock.release)
    os.register_at_fork(after_in_child=lock.release)
    os.register_at_fork(after_in_child=_begin_anew)
