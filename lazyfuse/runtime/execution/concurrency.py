"""Concurrent evaluations: several threads evaluate at once, each on its part of the cores.

By default evaluations take turns under one lock, and kernels have all cores. While threads wait for
each other, an evaluation that only makes new arrays releases the lock around calls that use one
core anyway: NumPy's own functions, and the loops that replace them. Owns the lock, the nodes that
such evaluations have claimed, and into how many parts the cores are divided meanwhile.

Why no value can be wrong: an evaluation under way holds its operands like any pending work, so code
that counts references leaves their memory alone (a write at once moves to a copy of the block, see
`Storage.detach`). Its results are new memory, and they become values while the lock is held. Other
evaluations wait for a claimed node. Where they cannot wait (an outer frame holds the lock), the
node is computed twice, and the first result counts.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from lazyfuse import config, late_modules
from lazyfuse.codegen.graph.node import Node
from lazyfuse.codegen.graph.shapes import size_of
from lazyfuse.codegen.table import ops
from lazyfuse.codegen.table.op import Op
from lazyfuse.devices import fork_safety, thread_pool
from lazyfuse.runtime.events import counters, decisions

if TYPE_CHECKING:
    from lazyfuse.codegen.plan.plan import Plan


# Held by an evaluation, and by any code that moves an array from one state to another.
lock = threading.RLock()
is_owned: Callable[[], bool] = lock._is_owned  # type: ignore[attr-defined]

busy = 0
"""Evaluations of all threads that have begun and not ended."""
under_way = 0
"""Those among them that have claimed nodes: they may have released the lock."""
share = 0.0
"""The fraction of recent evaluations that met an unfinished one of another thread."""
current: ConcurrentEvaluation | None = None
"""The evaluation that holds the lock, if it releases it around long calls."""

# The weight of the newest evaluation in `share`; below the least, no evaluation releases the lock.
_NEWEST = 1 / 8
_LEAST = 1 / 64
# From this share on, worker threads would take the cores of the other threads.
_MANY = 1 / 4

# Elements that long calls read. A handover takes 50 us, a NumPy call 1 to 10 ns per element.
_LONG = 1 << 15

_claimed: set[int] = set()  # ids of nodes; the evaluation that claimed them keeps them alive
_unlocked_threads: set[int] = set()  # threads that have released the lock
_landed = threading.Condition(lock)


def notice(met: bool) -> bool:
    """Note whether an evaluation met another thread's; whether to release the lock for others."""
    global share
    share += (met - share) * _NEWEST
    if share < _LEAST:
        share = 0.0
        return False
    return config.options.concurrent_evaluations


def meets(nodes: Sequence[Node]) -> bool:
    """Whether another thread evaluates pending work below `nodes`."""
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
    """Whether calls among pending nodes take longer than handing the lock to another thread."""
    calls = [node for node in nodes if node.value is None and node.op is ops.HOST]
    return sum([size_of(each.shape) for node in calls for each in node.src]) >= _LONG


def writes(plan: Plan) -> bool:
    """Whether a plan writes to existing arrays."""
    return any(value.op is ops.UPDATE for value in plan.graph.values)


class ConcurrentEvaluation:
    """An evaluation that may run concurrently with others."""

    __slots__ = ("_ids",)

    def __init__(self) -> None:
        self._ids: list[int] = []  # the caller that runs the plan keeps the nodes

    def begin(self, nodes: list[Node], plan: Plan | None) -> None:
        """Release the lock around long calls from now on, if the plan only makes new arrays."""
        global current, under_way
        if self._ids or not _is_long(nodes) or (plan is not None and writes(plan)):
            return
        self._ids = [id(node) for node in nodes if node.value is None]
        _claimed.update(self._ids)
        under_way += 1
        thread_pool.share_out(max(under_way, 2) if share > _MANY else 1)
        current = self
        counters.totals().decisions[decisions.CONCURRENT] += 1

    def end(self) -> None:
        """End the claim: the values exist, or never will."""
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
        """Make a call that needs only its arguments while other threads may hold the lock."""
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
            except BaseException as error:  # an interrupt; the caller relies on the lock
                interrupted = error
        current = self
        if interrupted is not None:
            raise interrupted


def call_unlocked(call: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Make a call that needs only its arguments, concurrently with others where that is allowed."""
    apart = current
    if apart is None or not is_owned():  # it may be another thread's
        return call(*args, **named)
    return apart.run(call, *args, **named)


def numpys(op: Op, arg: Any) -> Callable[..., Any]:
    """`call_unlocked` for a NumPy call while an evaluation may release the lock; else `_here`."""
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
    """In a forked child: drop the claims of the other threads, which do not exist there."""
    global busy, under_way, current, _landed
    busy = under_way = 0
    current = None
    _claimed.clear()
    _unlocked_threads.clear()
    if not late_modules.is_late(thread_pool):
        thread_pool.share_out(1)
    _landed = threading.Condition(lock)


# A child forked during an evaluation would wait for ever, with tables half changed.
fork_safety.hold(lock)
fork_safety.call(_begin_anew)
