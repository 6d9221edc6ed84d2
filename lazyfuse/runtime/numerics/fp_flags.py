"""Floating-point exceptions of fused kernels, reported as NumPy reports them.

A kernel returns the IEEE flags that it raised; the warning names the operation that can raise them
and the user's line that recorded it. Imports nothing of arrays or devices.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from lazyfuse.codegen.graph.node import Node, Reduction, source_line
from lazyfuse.codegen.lowering import flag_slots
from lazyfuse.codegen.table import promotion
from lazyfuse.codegen.table.op import Op
from lazyfuse.runtime.numerics import errstate, warning_filters
from lazyfuse.runtime.numerics.errstate import SourceLocation
from lazyfuse.runtime.numerics.warning_filters import NotedFilters

# NumPy's flags, which the devices use too, each with its errstate key and NumPy's wording.
CONDITIONS = (
    (1, "divide", "divide by zero"),
    (2, "over", "overflow"),
    (4, "under", "underflow"),
    (8, "invalid", "invalid value"),
)
DIVIDE, OVER, UNDER, INVALID = 1, 2, 4, 8
ALL = 15
_PLAIN = {bit: errstate.PLAIN[name] for bit, name, _ in CONDITIONS}


class Flags:
    """The floating-point exceptions seen so far."""

    __slots__ = ("bits",)

    def __init__(self) -> None:
        self.bits = 0

    def __call__(self, _: str, bits: int) -> None:
        self.bits |= bits


class collecting(Flags):  # noqa: N801  # a context manager
    """Run NumPy without warnings and collect the exceptions that it would have warned of."""

    __slots__ = ("_state",)

    def __enter__(self) -> Flags:
        self._state = state = np.errstate(all="call", call=self)
        state.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._state.__exit__(*raised)


def is_wanted(bits: int) -> bool:
    """Whether any exception in `bits` may have to be reported in the present context."""
    state: dict[str, Any] = dict(np.geterr())
    return any(bits & bit and not _is_ignored(bit, state[name], ()) for bit, name, _ in CONDITIONS)


def _is_ignored(bit: int, state: str, where: Any) -> bool:
    """Whether an exception is ignored: at its source location, or now by NumPy's own `errstate`.

    Operations recorded before a lazyfuse `errstate` began report as if NumPy had run them there.
    """
    if getattr(where, "ignored", 0) & bit:
        return True
    return state == "ignore" and (bit == UNDER or errstate.plain or where is None)


def misreports(op: Op, node: Node) -> bool:
    """Whether an operation can raise hardware flags that NumPy does not report."""
    return op.misreports(node.dtype)


def is_clear(bits: int, operations: Sequence[tuple[Op, Node]]) -> bool:
    """Whether a kernel's flags are NumPy's, and each can have come from one operation alone."""
    if any(misreports(op, node) for op, node in operations):
        return False
    able = [raises(op, node.arg) for op, node in operations]
    return all(sum(name in each for each in able) == 1 for bit, name, _ in CONDITIONS if bits & bit)


def minded(bits: int, operations: Sequence[tuple[Op, Node]]) -> int:
    """The exceptions among `bits` that an operation can raise where they are not ignored."""
    state: dict[str, Any] = dict(np.geterr())
    found = 0
    for bit, name, text in CONDITIONS:
        if bits & bit and any(
            name in raises(op, node.arg) and _is_due(bit, state[name], text, op, node)
            for op, node in operations
        ):
            found |= bit
    return found


def place_of(nodes: Sequence[Node]) -> Any:
    """The code that recorded operations, and the filters that it had."""
    where = nodes[0].location
    # code objects of two files are equal if their texts are
    code = None if where is None else (where[0], where[0].co_filename)
    return code, _filters(where).entries


def attributed(bits: int, operations: Sequence[tuple[Op, Node]]) -> list[int]:
    """For each operation the exceptions among `bits` that it is the first to be able to raise."""
    found = []
    for op, node in operations:
        names = raises(op, node.arg)
        found.append(bits & sum(bit for bit, name, _ in CONDITIONS if name in names))
        bits &= ~found[-1]
    return found


def by_operation(
    bits: int, operations: list[tuple[Op, Any]], slots: Sequence[int]
) -> list[tuple[int, list[tuple[Op, Any]]]]:
    """The exceptions that a program has reported, with the operations that its `slots` name."""
    seen = [flag_slots.of_slot(bits, slot) for slot in slots]
    found = [(own, [each]) for each, own in zip(operations, seen, strict=True) if own]
    bits &= ALL
    for own in seen:
        bits &= ~own
    return [*found, (bits, operations)] if bits else found


def shown(outputs: Sequence[Any], operations: Sequence[tuple[Op, Node]]) -> int:
    """The exceptions that the operations can raise and that the results confirm.

    After a comparison a NaN confirms nothing. Integer results confirm all flags: integer operations
    raise only those that NumPy's raise.
    """
    names = {name for op, node in operations for name in raises(op, node.arg)}
    possible = sum(bit for bit, name, _ in CONDITIONS if name in names)
    quiet = not any(op.drops_nan for op, _ in operations)
    bits = UNDER
    for array in outputs:
        if array.dtype.kind not in "fc":
            bits |= ALL
        elif not np.isfinite(array).all():
            bits |= DIVIDE | OVER if np.isinf(array).any() else 0
            bits |= INVALID if quiet and np.isnan(array).any() else 0
    return bits & possible


def warn_for(bits: int, operations: Sequence[tuple[Op, Node]], now: bool = False) -> None:
    """Warn of each exception in `bits` as the error state of the present context asks.

    NumPy's own `errstate` notifies no listener. So operations recorded in the default state are
    reported by that state, unless the function is called `now`.
    """
    state: dict[str, Any] = dict(np.geterr())
    for bit, name, text in CONDITIONS:
        if not bits & bit:
            continue
        op, node = _raising_op(name, operations)
        place = node.location
        way = _way(bit, state[name], place, now)
        if way == "ignore":
            continue
        if isinstance(place, SourceLocation):
            if place.reported & bit:
                continue
            place.reported |= bit if place.name else 0
        words = f"{text} encountered in {_spelled(op, node)}"
        if not _is_handled(way, bit, text, words):
            file, line, _ = source_line(place)
            warning_filters.show(_filters(place), words, file, line)


def warn_for_all(raised: Iterable[tuple[int, Sequence[tuple[Op, Node]]]]) -> None:
    """Warn of the exceptions that arose, each with the operations that may have raised it."""
    for flags, operations in raised:
        warn_for(flags, operations)


def _way(bit: int, state: str, where: Any, now: bool = False) -> str:
    """What is done about an exception: what NumPy's error state says, or said where it arose."""
    if where is not None and not now and not (errstate.plain and state == "ignore"):
        state = _PLAIN[bit]  # the state at its source location
    if _is_ignored(bit, state, where):
        return "ignore"
    return "warn" if state == "ignore" else state


def _is_due(bit: int, state: str, text: str, op: Op, node: Node) -> bool:
    """Whether the program would be told of an exception of an operation."""
    way = _way(bit, state, node.location)
    if way != "warn":
        return way != "ignore"
    if getattr(node.location, "reported", 0) & bit:
        return False
    words = f"{text} encountered in {_spelled(op, node)}"
    file, line, _ = source_line(node.location)
    return warning_filters.is_due(_filters(node.location), words, file, line)


def _filters(where: Any) -> NotedFilters:
    """The filters at a source location."""
    return getattr(where, "filters", None) or warning_filters.usual


def _is_handled(state: str, bit: int, text: str, words: str) -> bool:
    """Act as NumPy does in an error state that asks for more than a warning; False for others."""
    if state == "raise":
        raise FloatingPointError(words)
    handler: Any = np.geterrcall()
    if state == "call":
        handler(text, bit)
    elif state == "log":
        handler.write(f"Warning: {words}\n")
    elif state == "print":
        sys.stderr.write(f"Warning: {words}\n")
    return state in ("call", "log", "print")


def _spelled(op: Op, node: Node) -> str:
    """The name that NumPy's warnings give to an operation."""
    if isinstance(node.location, SourceLocation) and node.location.name:
        return node.location.name
    if op.kind == "host":
        name: str = node.arg.name
        return name
    # a pass may have replaced a reduction by its steps
    return "reduce" if "reduce" in (op.kind, getattr(node, "op", op).kind) else op.name


def raises(op: Op, arg: Any) -> tuple[str, ...]:
    """The exceptions that an operation can raise; they differ between integers and floats."""
    # a pass may have replaced the recorded operation
    if isinstance(arg, Reduction):  # replaced by its steps or not
        return op.raises(arg.accumulator)
    loop = arg if op.kind == "map" and isinstance(arg, promotion.Loop) else None
    return op.raises(loop.ins[0]) if loop is not None and loop.ins else op.flags


def _raising_op(name: str, operations: Sequence[tuple[Op, Node]]) -> tuple[Op, Node]:
    """The first operation whose own flags include the exception; else the last operation."""
    for op, node in operations:
        if name in raises(op, node.arg):
            return op, node
    return operations[-1]
