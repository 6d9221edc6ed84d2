"""The recorded graph: nodes, the memory of its leaves, and how to walk it.

Owns `Node`, `Memory`, `Layout` and the iterative traversal. Knows nothing of users, kernels or
devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from lazyfuse.codegen.graph import references
from lazyfuse.codegen.table.ops import Op

Shape = tuple[int, ...]
Where = tuple[
    CodeType, int
]  # code object and instruction offset: the user's source line, kept cheap


LONGEST = 16
"""Elements of the longest axis that a reduction over it may write out (unroll_reductions.py)."""


class Layout(NamedTuple):
    """An affine view of a flat buffer; offset and strides in elements."""

    offset: int
    shape: Shape
    strides: tuple[int, ...]


class Reduction(NamedTuple):
    """Static arguments of a reduce node. Axes are sorted and non-negative."""

    axes: tuple[int, ...]
    keepdims: bool
    accumulator: np.dtype[Any]  # the dtype that elements are cast to before they are combined
    short: int = 0  # elements that are combined, if few enough to be written out


class HostCall(NamedTuple):
    """Static arguments of a host node: a function from NumPy arrays to one NumPy array."""

    name: str
    function: Callable[..., Any]


class Memory:
    """One block of host memory that leaves of pending graphs refer to.

    Every `LEAF` node over the same block carries the same `Memory` as its `arg`. `leaves` keeps
    each of them alive; a leaf without another reference is free. Before a write in place, the
    caller asks `has_readers()`: a leaf that a pending node still reads must keep its old values.
    """

    __slots__ = ("leaves", "owned")

    def __init__(self, owned: bool) -> None:
        self.leaves: list[Node] = []
        self.owned = owned  # False: other code may access the block at any time

    def has_readers(self, edges: dict[int, int] | None = None) -> bool:
        """Whether a node beyond those counted in `edges` (id -> references) reads a leaf."""
        alive: list[Node] = []
        found = False
        leaves, self.leaves = self.leaves, alive
        for leaf, count in zip(leaves, references.of_each(leaves), strict=True):
            if count > 1 + (edges.get(id(leaf), 0) if edges else 0):  # 1: the list
                found = True
                alive.append(leaf)
            elif edges and id(leaf) in edges:
                alive.append(leaf)
        return found


class Node:
    """One recorded operation. It never changes, except that evaluation gives it a value and that a
    mark replaces `op` by the same op as a fusion barrier (`ops.as_fusion_barrier`).

    `perm` is the memory order of the result (axes from slowest to fastest), None for C order.
    `arg` by kind: map -> `dtypes.Loop`, reduce -> `Reduction`, view and update -> `Layout` over
    the flat memory of `src[0]`, host -> `HostCall`, leaf -> `Memory`, everything else None.
    `value` is the NumPy array once evaluated (leaves: always; scalars: the 0-d array). `resident`
    says where the value lies in the memory of a device. A node with either is evaluated; a node
    without `value` looks pending to every reader, and its value is copied back.
    """

    __slots__ = (
        "__weakref__",
        "arg",
        "dtype",
        "location",
        "op",
        "perm",
        "resident",
        "shape",
        "src",
        "value",
    )

    def __init__(
        self,
        op: Op,
        src: tuple[Node, ...],
        arg: Any,
        shape: Shape,
        dtype: np.dtype[Any],
        perm: tuple[int, ...] | None,
        where: Where | None,
    ) -> None:
        self.op = op
        self.src = src
        self.arg = arg
        self.shape = shape
        self.dtype = dtype
        self.perm = perm
        self.location = where
        self.value: np.ndarray[Any, np.dtype[Any]] | None = None
        self.resident: Any = None

    def __repr__(self) -> str:
        done = self.value is not None or self.resident is not None
        state = "evaluated" if done else "pending"
        return f"<{self.op.name} {self.dtype.name}{list(self.shape)} {state}>"


def topological(roots: Iterable[Node], known: Iterable[Node] = ()) -> list[Node]:
    """Every node reachable from `roots` through pending nodes, sources first, without recursion;
    neither the `known` ones nor what only they reach.
    """
    order: list[Node] = []
    seen: set[int] = {id(node) for node in known}
    stack: list[Node] = list(roots)
    while stack:
        node = stack[-1]
        key = id(node)
        if key in seen:
            stack.pop()
            continue
        if node.value is None and node.resident is None:
            waiting = [source for source in node.src if id(source) not in seen]
            if waiting:
                stack.extend(waiting)
                continue
        seen.add(key)
        order.append(node)
        stack.pop()
    return order


def source_line(where: Where | None) -> tuple[str, int, str]:
    """File, line and function that recorded a node."""
    if where is None:
        return ("<unknown>", 0, "")
    code, offset = where
    line = code.co_firstlineno
    for start, end, number in code.co_lines():
        if start <= offset < end and number is not None:
            line = number
            break
    return (code.co_filename, line, code.co_name)
