"""Fresh structures: NumPy runs them, operation by operation, until a plan is worth making.

A plan, its kernels' texts and their programs take some ten milliseconds, and blocked NumPy, which
runs until the compiler's process has a program, is no faster than NumPy in half of the cases. A
script that is done in fifty milliseconds had better be NumPy's. So each structure has a count of
the time that NumPy has spent on it, and is planned once that exceeds `plan_after`.

Only structures whose operations have NumPy's bits in every tier are NumPy's at first, and inexact
ones whose loop needs no compiler (inexact.py): no bit depends on when a structure is planned.
Updates write into copies of blocks, as long as that is little work. Owns the counts; evaluate.py
asks.
"""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time
from typing import Any

import numpy as np

from lazyfuse.codegen.graph import interpret
from lazyfuse.codegen.graph.linearize import Recording
from lazyfuse.codegen.graph.node import HostCall, Node
from lazyfuse.codegen.graph.shapes import size_of
from lazyfuse.codegen.table import ops
from lazyfuse.config import on_any_change, options
from lazyfuse.devices.caches import memo
from lazyfuse.late_modules import is_late
from lazyfuse.runtime.capture.conditions import Raised
from lazyfuse.runtime.events import counters, spans
from lazyfuse.runtime.events.decisions import FRESH
from lazyfuse.runtime.execution import concurrency, matmul, routine, run_values
from lazyfuse.runtime.layout.strides import flat_memory, window
from lazyfuse.runtime.numerics import fp_flags
from lazyfuse.runtime.placement import devices as hardware
from lazyfuse.runtime.scheduling import inexact

Array = np.ndarray[Any, np.dtype[Any]]

LARGEST = 1 << 24
"""Additions of one evaluation, some 15 ms of NumPy's, from which it is planned at once."""
CALL = 4.0
"""Additions per element that a call of NumPy's is taken for, if it is no ufunc's."""

_spent: dict[Any, list[float]] = memo("runtime.scheduling.fresh.spent", 4096)
"""Seconds in NumPy, by structure: of this thread, since what others take is no reason to plan. In a
list, so that C can add to it; a second number is there while programs of its plan are awaited.
"""


def is_numpys(recording: Recording, has_plan: bool) -> bool:
    """Whether NumPy runs a structure: it has no plan, or one of which programs are awaited."""
    if has_plan and len(_spent.get(recording.key, ())) < 2:
        return False
    if not (options.plan_after and options.plan_limit and options.fusion):
        return False
    if options.fusion_max_length or _is_due(recording.key):
        return False
    work = 0.0
    for node, held in zip(recording.nodes, recording.held, strict=True):
        if node.resident is not None:
            return False
        if node.value is None:
            more = _additions(node, held)
            if more < 0:
                return False
            work += more
    return work < LARGEST


def _is_due(structure: Any) -> bool:
    """Whether NumPy has spent so long on a structure that it is to be planned."""
    spent = _spent.get(structure)
    return spent is not None and spent[0] * 1e3 >= options.plan_after


def go_on(recording: Recording) -> None:
    """Programs of its plan are being compiled: until they are there, blocked NumPy would run, which
    may take longer than NumPy. So NumPy goes on for half of `plan_after`; then the plan is asked.
    """
    spent = _spent.get(recording.key)
    if spent is not None:
        spent[:] = min(spent[0], options.plan_after / 2e3), 1.0


def _additions(node: Node, held: bool) -> float:
    """The work of an operation in additions; -1 if it is not NumPy's at first."""
    op = node.op
    if ops.is_view(op):  # a held one has memory of its own
        return -1 if held else 0.0
    if op.kind == "map":
        is_numpys = op.is_exact(node.arg.ins[0]) or _own_loop(node) is not None
        return op.cost * size_of(node.shape) if is_numpys else -1
    if op.kind == "reduce":
        source = node.src[0]
        return op.cost * size_of(source.shape) if op.is_exact(source.dtype) else -1
    if op.kind == "host":
        return CALL * sum([size_of(source.shape) for source in node.src])
    return size_of(node.shape) if op is ops.FULL or op.kind in ("index", "update") else -1


def _own_loop(node: Node) -> Callable[..., int] | None:
    """The loop of compiled programs for an inexact map; None: there is none, or it is exact.

    Operations on numbers alone are folded when a plan is made, by NumPy's loop.
    """
    if node.op.kind != "map" or node.perm is not None or not node.shape:
        return None
    if node.op.is_exact(node.arg.ins[0]):
        return None
    return inexact.loop_of(node.op, node.arg.ins, node.dtype)


by_key: dict[bytes, list[float]] = memo("runtime.scheduling.fresh.by_key", 1024)
"""By the keys of evaluations that C may run (evaluations.py): what was spent on the structure."""
on_any_change(lambda _: by_key.clear())


def remember(key: bytes, recording: Recording) -> None:
    """Note that an evaluation is run here, so that C runs it the next time: by NumPy's loops, in
    blocks (native/player/plain.c).
    """
    by_key[key] = _spent.setdefault(recording.key, [0.0])


def one(node: Node, values: list[Array]) -> Array | None:
    """A node's value by NumPy; None if floating-point exceptions arose, or it is not NumPy's at
    first. For C.
    """
    if node.op.name in ops.PIECES:  # a part of its source in NumPy: sums would follow another order
        return None
    if not 0 <= _additions(node, False) < LARGEST:
        return None
    with fp_flags.collecting() as flags:
        if (loop := _own_loop(node)) is not None:
            found = hardware.empty(node.shape, node.dtype)
            return None if inexact.run(loop, found, values) | flags.bits else found
        found = interpret.run_node(
            node.op, _call(node.arg) if node.op is ops.HOST else node.arg,
            node.shape, node.dtype, node.perm, values, [source.perm for source in node.src],
        )  # fmt: skip
    return None if flags.bits else found


def run(recording: Recording) -> Raised:
    """Run a recording, which is empty afterwards; the exceptions, with their operations."""
    counters.runs_at_once(FRESH, recording.nodes)
    raised: Raised = []
    spent = _Spent(recording)
    nodes = recording.nodes[::-1]
    recording.nodes.clear()  # a value goes with its last reader
    began = thread_time()
    try:
        while nodes:
            if nodes[-1].value is None:
                if ops.is_view(nodes[-1].op):
                    bits = _look(nodes[-1])
                else:
                    bits = run_node(nodes[-1], spent.operand(nodes[-1], len(nodes)))
                if bits:
                    raised.append((bits, [(nodes[-1].op, nodes[-1])]))
            nodes.pop()
    finally:
        _spent.setdefault(recording.key, [0.0])[0] += thread_time() - began
    return raised


def run_node(node: Node, spent: Array | None = None) -> int:
    """Give a node its value; the exceptions that arose.

    `spent`: memory of the result's shape and dtype, perhaps an operand's that nothing else reads.
    """
    op = node.op
    values = [source.value for source in node.src if source.value is not None]
    plain = op.kind == "map" and op.ufunc is not None and node.perm is None
    span = spans.begin() if spans.on else None
    for value, dtype in zip(values, node.arg.ins if plain else (), strict=False):
        plain = plain and value.dtype is dtype
    loop = _own_loop(node)
    try:
        with fp_flags.collecting() as flags:
            if loop is not None:
                found = hardware.empty(node.shape, node.dtype)
                with fp_flags.collecting() as own:
                    own.bits |= inexact.run(loop, found, values)
                if own.bits:  # those of NumPy's loop are the ones to tell
                    op.ufunc(*values)
            elif plain:
                out = hardware.empty(node.shape, node.dtype) if spent is None else spent
                found = concurrency.call_unlocked(op.ufunc, *values, out=out)
            else:
                perms = [source.perm for source in node.src]
                arg = node.arg if op is not ops.HOST else _call(node.arg)
                product = op.kind == "contract"  # elsewhere its module is of no use
                found = concurrency.numpys(op, arg)(
                    matmul.run_node if product else interpret.run_node,
                    op, arg, node.shape, node.dtype, node.perm, values, perms,
                )  # fmt: skip
    except Exception as error:
        run_values.explain_failure(error, [node])
        raise
    if node.value is None:  # else another thread was quicker
        node.value = found
    node.src = ()
    counters.ran_single(node, span=span)
    return flags.bits


def _call(call: HostCall) -> HostCall:
    """A recorded call of NumPy's: by our loops, once something has needed them."""
    return call if is_late(routine) else routine.native_kernel(call)


class _Spent:
    """Which operands of a run an operation may write over, as NumPy does with temporaries."""

    def __init__(self, recording: Recording) -> None:
        self._last: dict[int, int] = {}  # by id: nodes that are left when the last reader runs
        left = len(recording.nodes)
        kept = set()
        for at, held in enumerate(recording.held):
            node = recording.nodes[at]
            if node.value is not None or held or node.op.kind != "map" or ops.is_view(node.op):
                kept.add(id(node))
            for source in node.src if node.value is None else ():
                self._last[id(source)] = left - at
                if ops.is_view(node.op):
                    kept.add(id(source))
        for each in kept:
            self._last.pop(each, None)

    def operand(self, node: Node, left: int) -> Array | None:
        """Memory for the result: that of an operand which nothing else reads. None: new memory."""
        if node.op.kind != "map":
            return None
        values = [each.value for each in node.src if each.value is not None]
        if not all(value.flags.aligned for value in values):
            return None  # NumPy copies what is not aligned, for which memory may be short
        for each, value in zip(node.src, values, strict=True):
            fits = value.shape == node.shape and value.dtype is node.dtype and each.perm is None
            if fits and self._last.get(id(each)) == left:
                return value
        return None


def _look(node: Node) -> int:
    """Give a view that only this run reads its value: a part of its source's memory, as in NumPy,
    whose sums depend on how that lies.
    """
    (source,) = node.src
    value = source.value
    assert value is not None
    if node.op is ops.VIEW:
        node.value = window(flat_memory(value, source.perm), node.arg)
    else:
        node.value = getattr(value, node.op.name)
    node.src = ()
    return 0
