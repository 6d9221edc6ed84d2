"""The planning pipeline: plain functions from graph to graph, in one visible list.

Each pass takes time linear in the graph, keeps `interpret` of every output, and decides only by the
contents of the structural key. Outputs stay separate values: two arrays of the user never share one
buffer.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from lazyfuse.codegen.graph.linearize import Graph, Value, memory_strides
from lazyfuse.codegen.graph.moves import stored_of
from lazyfuse.codegen.graph.node import Layout, Shape
from lazyfuse.codegen.graph.shapes import crosses_itself
from lazyfuse.codegen.rewrite.rules import RULES
from lazyfuse.codegen.table import ops, promotion
from lazyfuse.devices.dataclass import replace

COPY = ops.TABLE["copy"]

Pass = Callable[[Graph], Graph]


class _Builder:
    """A graph under construction, and the new index of each old value."""

    __slots__ = ("moved", "values")

    def __init__(self) -> None:
        self.values: list[Value] = []
        self.moved: list[int] = []

    def add(self, value: Value) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def mapped(self, value: Value) -> Value:
        src = tuple([self.moved[source] for source in value.src])
        return value if src == value.src else replace(value, src=src)

    def become(self, value: Value, same_as: int) -> int:
        """`value` equals an earlier one: share it, or copy it where it is an output."""
        return self.copied(value, same_as) if value.output else same_as

    def copied(self, value: Value, same_as: int) -> int:
        """A copy of an earlier value that replaces `value`."""
        loop = promotion.cast_loop(value.dtype, value.dtype)
        return self.add(replace(value, op=COPY, src=(same_as,), arg=loop, axes=None, twins=()))


def _map(graph: Graph, visit: Callable[[Value, _Builder], int]) -> Graph:
    builder = _Builder()
    for value in graph.values:
        builder.moved.append(visit(builder.mapped(value), builder))
    return graph.replaced(builder.values)


def fold_constants(graph: Graph) -> Graph:
    """Read a constant array as its scalar wherever another operand carries the shape."""

    def visit(value: Value, builder: _Builder) -> int:
        if value.op.kind == "map" and len(value.src) > 1:
            sources = [builder.values[s] for s in value.src]
            carried = any(s.op is not ops.FULL and s.shape == value.shape for s in sources)
            if carried:
                pairs = zip(value.src, sources, strict=True)
                src = tuple(v.src[0] if _is_plain_full(v, builder) else s for s, v in pairs)
                value = replace(value, src=src)
        return builder.add(value)

    return _map(graph, visit)


def _is_plain_full(value: Value, builder: _Builder) -> bool:
    return value.op is ops.FULL and builder.values[value.src[0]].dtype == value.dtype


def simplify(graph: Graph) -> Graph:
    """Apply the exact rules to each value until none matches.

    A copy of a view stays if a sum or a call follows its layout: the copy has no gaps, so NumPy
    adds in another order. A copy to a part of a result stays if its source is loaded anyway.
    """
    followed = _followed_layouts(graph)
    loaded = _loaded_copies(graph)

    def visit(value: Value, builder: _Builder) -> int:
        for rule in () if value.op.fusion_barrier else RULES:
            same_as = rule(value, builder.values)
            if same_as is not None:
                stays = followed[len(builder.moved)] and _is_view(same_as, builder)
                stays = stays or len(builder.moved) in loaded
                stays = stays or builder.values[same_as].op is ops.INDEX  # its readers want memory
                if value.op.kind == "map" and (stays or (value.output and value.op is COPY)):
                    return builder.copied(value, same_as)
                return builder.become(value, same_as)
        return builder.add(value)

    return _map(graph, visit)


def _is_view(index: int, builder: _Builder) -> bool:
    """Whether a value lies in the memory of another value."""
    return ops.is_view(builder.values[index].op)


def _followed_layouts(graph: Graph) -> list[bool]:
    """For each value, whether a reader depends on its memory layout in addition to its elements."""
    values = graph.values
    followed = [False] * len(values)
    for index in range(len(values) - 1, -1, -1):
        value = values[index]
        if value.op is ops.VIEW:
            followed[value.src[0]] |= followed[index] or value.output
        elif value.op.kind != "map":
            for at, source in enumerate(value.src):
                followed[source] |= value.op is not ops.UPDATE or not at
    return followed


def _loaded_copies(graph: Graph) -> set[int]:
    """The copies that are stored in parts of results, of values that other operations load."""
    placed = {each.src[1] for each in graph.values if each.op is ops.UPDATE and each.piece >= 0}
    copies = {index for index in placed if graph.values[index].op is COPY}
    maps = [each for at, each in enumerate(graph.values) if at not in copies]
    sources = {source for each in maps if each.op.kind == "map" for source in each.src}
    return {index for index in copies if graph.values[index].src[0] in sources}


def dedupe(graph: Graph) -> Graph:
    """Compute equal expressions once."""
    seen: dict[object, int] = {}

    def visit(value: Value, builder: _Builder) -> int:
        if value.op.kind not in ("map", "reduce", "view") or not value.op.pure:
            return builder.add(value)
        key = (value.op.number, value.src, value.arg, value.dtype, value.perm, value.shape)
        if key in seen:
            first = builder.values[seen[key]]
            twins = (*first.twins, value.origin, *value.twins)
            builder.values[seen[key]] = replace(first, twins=twins)
            return builder.become(value, seen[key])
        seen[key] = builder.add(value)
        return seen[key]

    return _map(graph, visit)


def read_back(graph: Graph) -> Graph:
    """Let operations read what an update has just written from the value, not from memory.

    Only if nothing else of the updated memory is read: else the value would be stored twice.
    Sums and calls read memory: its layout decides the order in which NumPy adds.
    """
    readers = graph.consumers()

    def visit(value: Value, builder: _Builder) -> int:
        if _is_read_back(len(builder.moved), graph, readers):
            return builder.become(value, builder.values[value.src[0]].src[1])
        return builder.add(value)

    return _map(graph, visit)


def _is_read_back(index: int, graph: Graph, readers: list[list[int]]) -> bool:
    """Whether a value views exactly what the update below it writes, for operations alone."""
    values = graph.values
    view = values[index]
    if view.op is not ops.VIEW or values[view.src[0]].op is not ops.UPDATE:
        return False
    at = view.src[0]
    update = values[at]
    written = values[update.src[1]]
    if update.arg != view.arg or written.shape != view.shape or written.dtype != view.dtype:
        return False
    # where indices share an element, the last write counts
    if crosses_itself(view.arg.shape, view.arg.strides):
        return False
    if not all(_takes_value(values[user], index) for user in readers[index]):
        return False
    return all(_same_window(values[user], at, update) for user in readers[at])


def _takes_value(reader: Value, index: int) -> bool:
    return reader.op.kind == "map" or (reader.op is ops.UPDATE and reader.src[0] != index)


def _same_window(reader: Value, at: int, update: Value) -> bool:
    if reader.op is ops.VIEW:
        return bool(reader.arg == update.arg)
    return reader.op is ops.UPDATE and reader.src[1] != at


def _seen_order(view: Value, below: Value) -> tuple[int, ...] | None:
    """The memory order of `below` in the axes of the view, which sums follow."""
    place = {axis: at for at, axis in enumerate(view.axes or ()) if axis >= 0}
    order = [place[a] for a in below.perm or range(len(below.shape)) if a in place]
    order += [at for at in range(len(view.shape)) if at not in order]
    return None if order == sorted(order) else tuple(order)


def _seen_through(view: Value, below: Value, source: int, builder: _Builder) -> Value:
    """The operand `source` of `below`, with its axes arranged as `view` arranges its result."""
    operand = builder.values[source]
    shift = len(below.shape) - len(operand.shape)
    axes: list[int] = []
    for axis in view.axes or ():
        inner = axis - shift
        axes.append(inner if axis >= 0 and inner >= 0 and operand.shape[inner] != 1 else -1)
    shape = tuple(operand.shape[a] if a >= 0 else 1 for a in axes)
    strides = memory_strides(operand.shape, operand.perm)
    layout = Layout(0, shape, tuple(strides[a] if a >= 0 else 0 for a in axes))
    found = Value(ops.VIEW, (source,), layout, shape, operand.dtype, None, operand.origin)
    return replace(found, axes=tuple(axes), derived=True)


def store_moves(graph: Graph) -> Graph:
    """Copy what a map of indices shows wherever it is an output or read by more than kernels."""
    readers = graph.consumers()

    def visit(new: Value, builder: _Builder) -> int:
        old = len(builder.moved)
        if new.op is not ops.INDEX or (not new.output and _maps_read(readers[old], graph)):
            return builder.add(new)
        sources = graph.values[old].src
        computed = [_is_computed(source, readers, graph) for source in sources]
        fills = any(computed) and all(new.arg.wholes) and len(set(sources)) > 1
        return (_filled if fills else _gathered)(new, builder)

    return _map(graph, visit)


def _gathered(value: Value, builder: _Builder) -> int:
    """A copy of what a map shows."""
    return builder.copied(value, builder.add(replace(value, output=False)))


def _filled(value: Value, builder: _Builder) -> int:
    """Memory whose parts the kernels that compute the sources of a map store."""
    empty = replace(value, op=ops.EMPTY, src=(), arg=None, output=False, derived=True)
    at = builder.add(empty)
    for number, piece in enumerate(value.arg.pieces):
        source = value.src[piece.source]
        if builder.values[source].op.kind != "map":
            source = builder.copied(replace(builder.values[source], output=False), source)
        arg = stored_of(value.arg, number, value.perm)
        at = builder.add(replace(empty, op=ops.UPDATE, src=(at, source), arg=arg, piece=number))
    builder.values[at] = replace(builder.values[at], output=value.output, derived=value.derived)
    return at


def _is_computed(source: int, readers: list[list[int]], graph: Graph) -> bool:
    """Whether a kernel may store a value where its one reader wants it."""
    value = graph.values[source]
    return value.op.kind == "map" and not value.output and len(readers[source]) == 1


def _maps_read(users: list[int], graph: Graph) -> bool:
    return all(graph.values[user].op.kind in ("map", "index") for user in users)


# A value that several maps of indices show, or a larger map shows more than once, is computed
# again by each reader if all of that costs no more than this many additions per element.
MOVED_COST = 4.0
MOVED_LENGTH = 200  # operations that are read through one map at most


def sink_moves(graph: Graph) -> Graph:
    """Read the operands of an elementwise operation through the map that its result is read by."""
    readers = graph.consumers()
    cost = _cost_below(graph)
    builder = _Builder()
    cheap: set[int] = set()  # new indices of values that may be computed where they are read
    for old, value in enumerate(graph.values):
        new = builder.mapped(value)
        moves = _moves(value, readers[old], graph) and (new.op is ops.INDEX or new.src[0] in cheap)
        if moves:
            at = _sunk_move(new, builder, cheap, {})
        else:
            at = builder.add(new)
        builder.moved.append(at)
        made = builder.values[at]
        if made.op.kind == "map" and made.op.pure and not made.op.fusion_barrier:
            users = [graph.values[user] for user in readers[old]]
            moving = [
                each
                for each, place in zip(users, readers[old], strict=True)
                if _moves(each, readers[place], graph)
            ]
            alone = len(readers[old]) == 1 and not value.output
            once = alone and all(each.shape == value.shape or _permutes(each) for each in moving)
            again = cost[old] * max(len(moving), 1) <= MOVED_COST
            if once or (again and not value.output):  # what is stored is read where it lies
                cheap.add(at)
    return graph.replaced(builder.values)


def _moves(value: Value, readers: list[int], graph: Graph) -> bool:
    """Whether a value is a map of indices, or a view whose readers need no memory behind it.

    Sums may read one that permutes the axes of what they would sum.
    """
    if value.op is ops.INDEX:
        return True
    if value.op is not ops.VIEW or value.output:
        return False
    kinds = {graph.values[user].op.kind for user in readers}
    return kinds <= {"map", "index"} or (_permutes(value) and kinds <= {"map", "index", "reduce"})


def _permutes(view: Value) -> bool:
    """Whether a view repeats no element."""
    if view.axes is None:
        return False
    return all(a >= 0 or size == 1 for a, size in zip(view.axes, view.shape, strict=True))


def _cost_below(graph: Graph) -> list[float]:
    """Additions per element that computing each value from what is stored would take; of inexact
    operations too many, since their bits may hang on the kernel.
    """
    found: list[float] = []
    for value in graph.values:
        own = 0.0
        if value.op.kind == "map":
            own = value.op.cost if value.op.is_exact(value.arg.ins[0]) else math.inf
        inside = value.op.kind == "map" or value.op in ops.PLACES
        found.append(own + sum(found[source] for source in value.src) if inside else 0.0)
    return found


def _sunk_move(value: Value, builder: _Builder, cheap: set[int], done: dict[int, int]) -> int:
    """The operation below a map of indices, on operands that are read through the map; the map
    itself where what is below is stored. `done`: by source, what it is through this map.
    """
    at = value.src[0]
    if at in done:
        return done[at]
    below = builder.values[at]
    operands = [builder.values[source] for source in below.src]
    carried = [operand for operand in operands if operand.shape != ()] if at in cheap else []
    by = _shown_by(value, below, carried)
    if not carried or set(value.src) != {at} or len(done) > MOVED_LENGTH or not by:
        done[at] = builder.add(value)
        return done[at]
    if by == INDICES:
        value = replace(value, op=ops.INDEX, axes=None, even=False)
    src = []
    for source, operand in zip(below.src, operands, strict=True):
        if operand.shape == ():
            src.append(source)
            continue
        if by == AXES:
            shown = _seen_through(value, below, source, builder)
        else:
            repeated = (source,) * len(value.src)
            shown = replace(value, src=repeated, dtype=operand.dtype, derived=True)
        src.append(_sunk_move(shown, builder, cheap, done))
    perm = value.perm if value.axes is None else _seen_order(value, below)
    found = replace(below, src=tuple(src), shape=value.shape, perm=perm, axes=None)
    done[at] = builder.add(replace(found, output=False, derived=True))
    cheap.add(done[at])
    return done[at]


INDICES, AXES, MEMORY = "indices", "axes", "memory"


def _shown_by(value: Value, below: Value, operands: list[Value]) -> str:
    """By what a map or a view can show the operands of what it shows; empty: by nothing."""
    if value.op is ops.INDEX:
        return INDICES
    are_stored = all(operand.op not in ops.PLACES for operand in operands)
    if value.axes is not None and are_stored:
        return AXES
    lies = below.shape, below.perm
    if are_stored and all((operand.shape, operand.perm) == lies for operand in operands):
        return MEMORY
    return INDICES if value.is_piece else ""


def forward_updates(graph: Graph) -> Graph:
    """Skip values that an update overwrites: a whole temporary, or the same part written before."""
    uses = [len(users) for users in graph.consumers()]
    once = [count == 1 and not v.output for count, v in zip(uses, graph.values, strict=True)]
    temporary: set[int] = set()

    def visit(new: Value, builder: _Builder) -> int:
        if new.op is ops.UPDATE and new.src[0] in temporary:
            below = builder.values[new.src[0]]
            if below.op is ops.UPDATE and below.arg == new.arg:
                new = replace(new, src=(below.src[0], new.src[1]))
            elif below.op.kind != "leaf" and _overwrites(new, builder.values[new.src[1]].shape):
                loop = promotion.cast_loop(new.dtype, new.dtype)
                new = replace(new, op=COPY, src=(new.src[1],), arg=loop)
        at = builder.add(new)
        if once[len(builder.moved)]:
            temporary.add(at)
        return at

    return _map(graph, visit)


def _overwrites(update: Value, written: Shape) -> bool:
    strides = memory_strides(update.shape, update.perm)
    return update.arg == Layout(0, update.shape, strides) and written == update.shape


def drop_dead(graph: Graph) -> Graph:
    """Keep only values that an output needs."""
    alive = [value.output for value in graph.values]
    for index in range(len(graph.values) - 1, -1, -1):
        if alive[index]:
            for source in graph.values[index].src:
                alive[source] = True
    builder = _Builder()
    for index, value in enumerate(graph.values):
        builder.moved.append(builder.add(builder.mapped(value)) if alive[index] else -1)
    return graph.replaced(builder.values)


PASSES: tuple[Pass, ...] = (
    fold_constants,
    read_back,
    simplify,
    dedupe,
    store_moves,
    sink_moves,
    simplify,
    forward_updates,
    drop_dead,
)
