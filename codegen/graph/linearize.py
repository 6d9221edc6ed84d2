"""From recorded nodes to a canonical list of values: the structural key and its bindings.

The key holds ops, dtypes, ranks, the pattern of equal sizes, equal layouts and shared memories; no
size, stride, offset or scalar value. Two recordings with the same key share one plan. Owns `Graph`
and `Value`, which the passes rewrite. Imports nothing of users or devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from lazyfuse.codegen.graph import references
from lazyfuse.codegen.graph.moves import Moves, of_view
from lazyfuse.codegen.graph.node import HostCall, Layout, Memory, Node, Shape
from lazyfuse.codegen.graph.shapes import crosses_itself
from lazyfuse.codegen.table import ops
from lazyfuse.codegen.table.ops import Op
from lazyfuse.devices.caches import memo
from lazyfuse.devices.dataclass import dataclass, replace


@dataclass(frozen=True)
class Value:
    """One value of a graph. `src` are indices of earlier values.

    `origin` is the index of the value's recorded node (for bindings, source lines and traces).
    `output` marks values that must exist after the run. Shapes and layouts are those of one
    recording; passes may only compare them for equality (and with 1), which the key covers.
    """

    op: Op
    src: tuple[int, ...]
    arg: Any
    shape: Shape
    dtype: np.dtype[Any]
    perm: tuple[int, ...] | None
    origin: int
    output: bool = False
    axes: tuple[int, ...] | None = None  # of a view: source axis of each axis, -1 new or repeated
    even: bool = False  # of a view: forwards, without gaps other than a constant step
    is_piece: bool = False  # of a view: whether a map of indices describes it
    twins: tuple[int, ...] = ()  # the recorded nodes of equal values that it stands for
    picks: tuple[int, ...] = ()  # of a view, before: per source axis its single index, or -1: all
    piece: int = -1  # of an update: the piece of the map of indices at `origin` that it stores
    derived: bool = False  # whether it is not the value of its recorded node, but a part or a view


@dataclass(frozen=True)
class Graph:
    """Values in topological order."""

    values: tuple[Value, ...]

    def replaced(self, values: Sequence[Value]) -> Graph:
        return replace(self, values=tuple(values))

    def consumers(self) -> list[list[int]]:
        """For each value, the values that read it (once per use)."""
        users: list[list[int]] = [[] for _ in self.values]
        for index, value in enumerate(self.values):
            for source in value.src:
                users[source].append(index)
        return users

    def reads_moves(self, loads: Iterable[int]) -> bool:
        """Whether some of these values are maps of indices."""
        return any(self.values[index].op is ops.INDEX for index in loads)

    def lying(self, loads: Iterable[int]) -> set[int]:
        """The values whose memory is read with these: maps of indices have none of their own."""
        found = set[int]()
        waiting = list(loads)
        while waiting:
            index = waiting.pop()
            if self.values[index].op is ops.INDEX:
                waiting += self.values[index].src
            else:
                found.add(index)
        return found


@dataclass
class Recording:
    """What `linearize` found: the nodes in order, their key, and which of them outlive the run."""

    nodes: list[Node]
    key: tuple[Any, ...]
    held: list[bool]
    edges: dict[int, int]
    sizes: list[int]  # distinct sizes in the order of their numbers in the key
    graph_cache: Graph | None = None

    def graph(self) -> Graph:
        """The recorded nodes as a `Graph` (built only when the key is new)."""
        if self.graph_cache is None:
            self.graph_cache = _graph(self)
        return self.graph_cache

    def references_to(self, node: Node) -> int:
        """How many references to a node this recording holds: the list's, the graph's edges', and
        those of a plain block, which keeps its leaves.
        """
        return 1 + self.edges.get(id(node), 0) + (type(node.arg) is Memory)


def memory_strides(shape: Shape, perm: tuple[int, ...] | None) -> tuple[int, ...]:
    """Element strides of a dense buffer whose axes lie in memory order `perm`."""
    strides = [0] * len(shape)
    step = 1
    for axis in reversed(range(len(shape)) if perm is None else perm):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


_AXES: dict[tuple[Layout, Shape, tuple[int, ...] | None], tuple[int, ...] | None] = memo(
    "codegen.graph.linearize.axes", 4096
)


def view_axes(layout: Layout, shape: Shape, perm: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Which source axis each axis of a view is, if the view only permutes, adds or repeats."""
    key = (layout, shape, perm)
    try:
        return _AXES[key]
    except KeyError:
        pass
    found = _view_axes(layout, shape, perm)
    _AXES[key] = found
    return found


def _view_axes(
    layout: Layout, shape: Shape, perm: tuple[int, ...] | None
) -> tuple[int, ...] | None:
    if layout.offset != 0 or 0 in shape:
        return None
    strides = memory_strides(shape, perm)
    free = {axis: (shape[axis], strides[axis]) for axis in range(len(shape)) if shape[axis] > 1}
    axes: list[int] = []
    for size, stride in zip(layout.shape, layout.strides, strict=True):
        if size == 1 or stride == 0:
            axes.append(-1)
            continue
        match = next((a for a, pair in free.items() if pair == (size, stride)), None)
        if match is None:
            return None
        del free[match]
        axes.append(match)
    return None if free else tuple(axes)


def is_even(shape: Shape, strides: Shape) -> bool:
    """Whether sums walk a view like an array without gaps in the same memory order."""
    expected = 0
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size != 1:
            if stride <= 0 or expected not in (0, stride):
                return False
            expected = stride * size
    return True


Walked = tuple[list[Node], tuple[Any, ...], list[bool], dict[int, int], list[int]]
"""The fields of a `Recording`, in their order."""


def linearize(roots: Sequence[Node]) -> Recording:
    """Order the pending graph below `roots` and derive its structural key.

    A node is `held` if it is a root or has a reference from outside the graph.
    """
    return Recording(*_walk(roots))


def walk(roots: Sequence[Node]) -> Walked:
    """The fields of the `Recording` of the graph below `roots`."""
    nodes, index, edges = _order(roots)
    sizes: dict[int, int] = {0: -1, 1: 0}
    shapes: dict[Shape, tuple[int, ...]] = {}
    layouts: dict[Layout, int] = {}
    memories: dict[int, int] = {}
    roots_ids = {id(root) for root in roots}
    key: list[Any] = []
    held: list[bool] = []
    # references beyond those of the node list and the graph's edges come from outside
    for node, count in zip(nodes, references.of_each(nodes), strict=True):
        identity = id(node)
        shape = node.shape
        ids = shapes.get(shape)
        if ids is None:
            ids = shapes[shape] = tuple(sizes.setdefault(size, len(sizes)) for size in shape)
        if node.value is not None or node.resident is not None:
            if node.op is ops.SCALAR:
                key.append((0, node.dtype.char))
            else:
                memory = id(node.arg) if isinstance(node.arg, Memory) else identity
                place = memories.setdefault(memory, len(memories))
                key.append((1, node.dtype.char, ids, node.perm, place))
            held.append(False)
            continue
        op = node.op
        keep = identity in roots_ids or (count > 1 + edges.get(identity, 0) and not _is_full(node))
        held.append(keep)
        src = tuple([index[id(source)] for source in node.src])
        arg = node.arg
        if type(arg) is Layout:
            arg = (
                layouts.setdefault(arg, len(layouts)),
                shapes.get(arg.shape) or _shape_ids(arg.shape, shapes, sizes),
                _arrangement(node),
            )
        elif type(arg) is HostCall:
            arg = arg.name
        elif type(arg) is Moves:
            arg = arg.structure
        key.append((op.number, src, ids, node.dtype.char, arg, node.perm, keep))
    return nodes, tuple(key), held, edges, list(sizes)


def _is_full(node: Node) -> bool:
    """Whether a node is a constant array, which costs less to make again than to write: only if
    the number is there. One that this run computes may read memory that the run writes over.
    """
    return node.op is ops.FULL and node.src[0].value is not None


_walk: Callable[[Sequence[Node]], Walked] = walk

_ARRANGED: dict[Any, Any] = memo("codegen.graph.linearize.arranged", 4096)
"""Results of `_arrangement` by op, layout, shape and order: the walk in C keeps them here."""


def use(native: Any) -> None:
    """Walk with the native extension (native/graph/order.c); None: with the Python above."""
    global _walk
    if native is not None:
        introduce(native)
    _walk = walk if native is None else native.walk


def introduce(native: Any) -> None:
    """Pass to the native extension what it reads of nodes."""
    for name, value in {
        "arranged": _ARRANGED,
        "arrangement": _arrangement,
        "full_op": ops.FULL,
        "host_call": HostCall,
        "index_op": ops.INDEX,
        "layout": Layout,
        "leaf_op": ops.LEAF,
        "memory": Memory,
        "moves": Moves,
        "node": Node,
        "scalar_op": ops.SCALAR,
        "update_op": ops.UPDATE,
    }.items():
        native.bind(name, value)


def _order(roots: Sequence[Node]) -> tuple[list[Node], dict[int, int], dict[int, int]]:
    """Nodes below `roots`, sources first; their positions; how often pending ones refer to each.

    Does the same as `graph.topological`, and counts on the way. It is a function of its own because
    names that its loops leave would count as references to a node.
    """
    order: list[Node] = []
    index: dict[int, int] = {}
    edges: dict[int, int] = {}
    stack = list(roots)
    while stack:
        node = stack[-1]
        key = id(node)
        if key in index:
            stack.pop()
            continue
        if node.value is None and node.resident is None:
            waiting = False
            for source in node.src:
                if id(source) not in index:
                    if source.value is None and source.resident is None:
                        stack.append(source)
                        waiting = True
                    else:
                        index[id(source)] = len(order)
                        order.append(source)
            if waiting:
                continue
            for source in node.src:
                edges[id(source)] = edges.get(id(source), 0) + 1
        index[key] = len(order)
        order.append(node)
        stack.pop()
    return order, index, edges


def _arrangement(node: Node) -> object:
    """The part of a view's or an update's layout that a plan depends on."""
    base = node.src[0]
    if node.op is ops.VIEW:
        piece = of_view(node.arg, base.shape, base.perm)
        axes = None if piece is None else tuple([axis for axis, _ in piece.steps])
        return view_axes(node.arg, base.shape, base.perm), is_even(*node.arg[1:]), axes
    if crosses_itself(node.arg.shape, node.arg.strides):
        return None
    return _covers(node.arg, base)


def _shape_ids(
    shape: Shape, shapes: dict[Shape, tuple[int, ...]], sizes: dict[int, int]
) -> tuple[int, ...]:
    ids = shapes[shape] = tuple(sizes.setdefault(size, len(sizes)) for size in shape)
    return ids


def _covers(layout: Layout, base: Node) -> bool:
    """Whether an update overwrites every element of its old value, in order."""
    return layout == Layout(0, base.shape, memory_strides(base.shape, base.perm))


def _graph(recording: Recording) -> Graph:
    index = {id(node): position for position, node in enumerate(recording.nodes)}
    values = []
    for position, node in enumerate(recording.nodes):
        done = node.value is not None or node.resident is not None
        op = (ops.SCALAR if node.op is ops.SCALAR else ops.LEAF) if done else node.op
        axes, is_piece = None, False
        if op is ops.VIEW:
            base = node.src[0].shape, node.src[0].perm
            axes = view_axes(node.arg, *base)
            is_piece = of_view(node.arg, *base) is not None
        values.append(
            Value(
                op,
                () if done else tuple(index[id(source)] for source in node.src),
                node.arg,
                node.shape,
                node.dtype,
                node.perm,
                position,
                recording.held[position],
                axes,
                op is ops.VIEW and is_even(*node.arg[1:]),
                is_piece,
            )
        )
    return Graph(tuple(values))
