"""Floating-point exceptions of fused kernels, reported as NumPy reports them.

A kernel returns the IEEE flags that it raised; the warning names the operation that can raise them
and the user's line that recorded it. Imports nothing of arrays or devices.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from lazyfuse.codegen.graph.node import Node, Reduction, source_line
from lazyfuse.codegen.lowering import flag_slots
from lazyfuse.codegen.table import promotion
from lazyfuse.codegen.table.op import Op
from lazyfuse.runtime.numerics import errstate
from lazyfuse.runtime.numerics.errstate import SourceLocation

# NumPy's flags, which the devices use too, each with its errstate key and NumPy's wording.
CONDITIONS = (
    (1, "divide", "divide by zero"),
    (2, "over", "overflow"),
    (4, "under", "underflow"),
    (8, "invalid", "invalid value"),
)
DIVIDE, OVER, UNDER, INVALID = 1, 2, 4, 8
ALL = 15
# Python shows a warning once per location and module: one registry for each file.
_registries: dict[str, dict[Any, Any]] = {}


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


def is_ambiguous(bits: int, operations: Sequence[tuple[Op, Node]]) -> bool:
    """Whether more than one operation of a kernel may have raised its flags."""
    names = {name for bit, name, _ in CONDITIONS if bits & bit}
    return sum(not names.isdisjoint(raises(op, node.arg)) for op, node in operations) > 1


def attributed(
    bits: int, operations: list[tuple[Op, Any]], known: Sequence[int]
) -> list[tuple[int, list[tuple[Op, Any]]]]:
    """A kernel's exceptions, each with the operations `known` to raise it (all, if none is known).

    The exceptions of one operation come after those of the operations before it, as in NumPy.
    """
    pairs = list(zip(operations, known, strict=True))
    found = [(bits & seen, [each]) for each, seen in pairs if bits & seen]
    for _, seen in pairs:
        bits &= ~seen
    return [*found, (bits, operations)] if bits else found


def by_operation(
    bits: int, operations: list[tuple[Op, Any]], slots: Sequence[int]
) -> list[tuple[int, list[tuple[Op, Any]]]]:
    """The exceptions that a program has reported, with the operations that its `slots` name."""
    known = [flag_slots.of_slot(bits, slot) for slot in slots]
    return attributed(bits & ALL, operations, known)


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
        way = state[name]
        if type(node.location) is tuple and errstate.plain and not now and way != "ignore":
            way = errstate.PLAIN[name]  # the state at its source location
        if _is_ignored(bit, way, node.location):
            continue
        file, line, _ = source_line(node.location)
        words = f"{text} encountered in {_spelled(op, node)}"
        if isinstance(node.location, SourceLocation):
            place = node.location
            if place.reported & bit or place.is_silent(words, _module(file), line):
                continue
            place.reported |= bit if place.name else 0
        if _is_handled(way, bit, text, words):
            continue
        registry = _registries.setdefault(file, {})
        warnings.warn_explicit(words, RuntimeWarning, file, line, registry=registry)


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


def _module(file: str) -> str:
    """The module name that `warnings.warn_explicit` derives from a file."""
    return file.removesuffix(".py") or "<unknown>"


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
