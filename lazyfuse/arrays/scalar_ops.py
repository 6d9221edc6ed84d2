"""Operations whose names in NumPy's warnings differ from the rows that record them.

Owns the nodes of operations on two scalars, and the name of an operation recorded in several steps.
Knows nodes and the array type, not its operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from lazyfuse.arrays.ndarray import caller, ndarray
from lazyfuse.codegen.graph.node import HostCall, Node
from lazyfuse.codegen.table import ops, promotion
from lazyfuse.codegen.table.op import Op
from lazyfuse.runtime.layout.meta_arrays import Array
from lazyfuse.runtime.numerics import errstate


def are_scalars(*operands: Any) -> bool:
    """Whether none of these operands (ours, NumPy's or Python's) is an array."""
    return not any(type(x) is ndarray or type(x) is np.ndarray for x in operands)


def overflows_alone(op: Op, x: Any) -> bool:
    """Whether an operator on a lazy scalar may overflow, which NumPy reports for its integers."""
    if type(x) is ndarray or not op.scalar_overflow:
        return False
    return bool(x.dtype.kind in "iu")


def scalar_node(
    function: Callable[[Any, Any], Any], op: Op, nodes: tuple[Node, Node], loop: promotion.Loop
) -> Node:
    """The operation `op` (Python's `function`) on two scalars.

    NumPy reports overflow of integer scalars but not of arrays, so its scalars do the work.
    """
    name = f"scalar {op.name.removesuffix('_nonnegative')}"
    if loop.out.kind in "iu" and op.scalar_overflow:
        call = HostCall(name, partial(_on_scalars, function))
        return Node(ops.HOST, nodes, call, (), loop.out, None, caller())
    place = errstate.SourceLocation.like(caller(), name=name)
    return Node(op, nodes, loop, (), loop.out, None, place)


def _on_scalars(function: Callable[..., Any], *values: Array) -> Any:
    return function(*[value[()] for value in values])


def name_steps(name: str, nodes: Sequence[Node | None]) -> None:
    """Name nodes that are one NumPy operation: each floating-point exception is reported once."""
    first = nodes[0]
    if first is None or first.location is None:
        return
    place = errstate.SourceLocation.like(first.location, name=name)
    for node in nodes:
        if node is not None:
            node.location = place
