"""Floating-point conditions of fused kernels, told as NumPy tells them.

A kernel reports which IEEE conditions arose; the warning names the operation that can raise them
and the user's line that recorded it. Imports nothing of arrays or devices.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from lazyfuse.codegen.graph import Node, source_line
from lazyfuse.codegen.op import Op

# NumPy's bits, which the devices use too, with the name of the errstate key and NumPy's wording.
CONDITIONS = (
    (1, "divide", "divide by zero"),
    (2, "over", "overflow"),
    (4, "under", "underflow"),
    (8, "invalid", "invalid value"),
)
UNDER = 4
ALL = 15
# Python shows a warning once per location and module: one registry for each file.
_registries: dict[str, dict[Any, Any]] = {}


class Flags:
    """The conditions seen so far."""

    __slots__ = ("bits",)

    def __init__(self) -> None:
        self.bits = 0

    def __call__(self, _: str, bits: int) -> None:
        self.bits |= bits


@contextmanager
def collecting() -> Iterator[Flags]:
    """Run NumPy without warnings and collect the conditions that it would have warned of."""
    flags = Flags()
    with np.errstate(all="call", call=flags):
        yield flags


def is_wanted(bits: int) -> bool:
    """Whether any condition in `bits` is to be told in the present context."""
    state: dict[str, Any] = dict(np.geterr())
    return any(bits & bit and state[name] != "ignore" for bit, name, _ in CONDITIONS)


# Their vector forms raise "invalid" for quiet NaN, or run an arm whose result is thrown away.
_MISREPORTING = frozenset(
    "less less_equal greater greater_equal maximum minimum fmax fmin clip clip_each where sign "
    "rint cast floor_divide remainder fmod power float_power nextafter heaviside logaddexp "
    "logaddexp2 hypot arctan2 copysign isfinite isnan isinf".split()
)


def misreports(op: Op) -> bool:
    """Whether an operation can raise hardware flags that NumPy does not report."""
    name = op.name.removesuffix(".reduce")
    return name in _MISREPORTING or (op.kind == "map" and not op.exact)


def warn_for(bits: int, operations: Sequence[tuple[Op, Node]]) -> None:
    """Warn of each condition in `bits` as the error state of the present context asks."""
    state: dict[str, Any] = dict(np.geterr())
    for bit, name, text in CONDITIONS:
        if not bits & bit or state[name] == "ignore":
            continue
        op, node = _culprit(name, operations)
        if getattr(node.where, "ignored", 0) & bit:
            continue  # recorded where this condition was ignored
        file, line, _ = source_line(node.where)
        spelled = node.arg.name if op.kind == "host" else op.name
        spelled = "reduce" if op.kind == "reduce" else spelled
        words = f"{text} encountered in {spelled}"
        if state[name] == "raise":
            raise FloatingPointError(words)
        registry = _registries.setdefault(file, {})
        warnings.warn_explicit(words, RuntimeWarning, file, line, registry=registry)


def raises(op: Op, arg: Any) -> tuple[str, ...]:
    """The conditions that an operation can raise, on integers other ones than on floats."""
    return op.raises(arg.ins[0]) if op.kind == "map" and arg.ins else op.flags


def _culprit(name: str, operations: Sequence[tuple[Op, Node]]) -> tuple[Op, Node]:
    """The first operation that can raise the condition by itself; the last one if none says so."""
    for op, node in operations:
        if name in raises(op, node.arg):
            return op, node
    return operations[-1]
