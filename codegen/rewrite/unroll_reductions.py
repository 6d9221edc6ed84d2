"""Reductions over a short axis, written out: one value per element of the axis, then combined.

Distances between points of three coordinates, the nearest of eight centres, the squared length of a
vector: such axes are too short to be loops. Written out, a reduction becomes elementwise work
over the rest of the domain, and fuses with the producers of its operand and with its readers. The
key holds the length of the axis (`Reduction.short`), so each length has its own plan.

Owns `write_out`, the last pass. The order of additions is NumPy's: fewer than eight elements are
added to 0 one after the other, in any layout.
"""

from __future__ import annotations

import numpy as np

from lazyfuse.codegen.graph.linearize import Graph, Value, memory_strides
from lazyfuse.codegen.graph.node import LONGEST, Layout, Reduction
from lazyfuse.codegen.table import ops, promotion
from lazyfuse.devices.dataclass import replace

# Elements that are added one after the other in any layout: NumPy's pairwise sums begin at 8.
ONE_BY_ONE = 7
# Operations that a reduction may be written out as: longer text takes long to compile.
MOST = 160
# A value with other readers is computed twice if one operation of at most this cost makes it from
# small values.
FREE_COST = 1.0

_READ = ("source", "view")
_PLACES = {"argmin": "less", "argmax": "greater"}
_INTP, _BOOL = np.dtype(np.int64), np.dtype(bool)


def write_out(graph: Graph) -> Graph:
    """Write out reductions over short axes whose operands are computed for them alone."""
    chosen, inside = _choose(graph)
    if not chosen:
        return graph
    writer = _Writer(graph, inside)
    for index, value in enumerate(graph.values):
        writer.take(index, value, index in chosen)
    return graph.replaced(writer.values)


def _name(value: Value) -> str:
    return value.op.name.removesuffix(".reduce")


def _is_short(value: Value, graph: Graph) -> bool:
    """Whether this kind of reduction can be written out."""
    if value.op.kind != "reduce" or value.op.fusion_barrier:
        return False
    arg: Reduction = value.arg
    source = graph.values[value.src[0]]
    if not 1 < arg.short <= LONGEST or arg.keepdims or len(arg.axes) != 1:
        return False
    if source.dtype.kind not in "biuf" or arg.accumulator.kind not in "biuf" or not value.shape:
        return False
    if not all(map(ops.kernel_dtype, (source.dtype, arg.accumulator, value.dtype))):
        return False
    if value.op.ordered:
        return arg.short <= ONE_BY_ONE or arg.accumulator.kind in "iu"
    return bool(value.op.start) and (_name(value) not in _PLACES or source.dtype == arg.accumulator)


def _choose(graph: Graph) -> tuple[set[int], set[int]]:
    """The reductions to write out, and the values that are computed for them alone."""
    values = graph.values
    users = graph.consumers()
    chosen = {index for index, value in enumerate(values) if _is_short(value, graph)}
    again = {index for index in range(len(values)) if chosen and _is_free(index, graph)}
    while chosen:
        inside = set(again)
        for index in range(len(values) - 1, -1, -1):
            value = values[index]
            computed = (value.op.kind == "map" and value.shape != ()) or index in chosen
            if not computed or value.output or value.op.fusion_barrier or not value.op.pure:
                continue
            if users[index] and all(user in chosen or user in inside for user in users[index]):
                inside.add(index)
        wrong = {
            index
            for index in chosen
            if not _length(index, values[index].arg.axes[0], graph, chosen, inside) <= MOST
        }
        if not wrong:
            return chosen, inside
        chosen -= wrong
    return chosen, set()


def _is_free(index: int, graph: Graph) -> bool:
    """Whether computing a value again costs no more than reading it: its sources are small."""
    value = graph.values[index]
    if (
        value.op.kind != "map"
        or value.op.fusion_barrier
        or not value.op.pure
        or value.op.cost > FREE_COST
    ):
        return False
    sources = [graph.values[source] for source in value.src]
    return all(each.op.kind in _READ and each.shape != value.shape for each in sources)


def _length(index: int, axis: int, graph: Graph, chosen: set[int], inside: set[int]) -> float:
    """How many operations a reduction over `axis` becomes; infinity if it cannot be written out."""
    value = graph.values[index]
    source = value.src[0]
    if graph.values[source].op.kind != "map" and source not in chosen:
        return float("inf")  # of memory: a loop does as well
    each = _copies(source, axis, graph, chosen, inside)
    return float(value.arg.short) * (each + (8 if _name(value) in _PLACES else 1))


def _copies(index: int, axis: int, graph: Graph, chosen: set[int], inside: set[int]) -> float:
    """The number of operations for one element along an axis."""
    value = graph.values[index]
    if value.op.kind not in ("map", "reduce") or value.shape == ():
        return 0.0
    if value.op.kind == "reduce" and index not in chosen:
        return 0.0
    if index not in inside:
        return float("inf")  # it is stored for others, and would be computed twice
    if value.op.kind == "reduce":
        inner = value.arg.axes[0]
        return _length(index, inner, graph, chosen, inside)
    total = 1.0
    for source in value.src:
        at = axis - len(value.shape) + len(graph.values[source].shape)
        if at >= 0:
            total += _copies(source, at, graph, chosen, inside)
    return total


class _Writer:
    """Builds the new graph."""

    def __init__(self, graph: Graph, inside: set[int]) -> None:
        self.graph = graph
        self.values: list[Value] = []
        self.moved: list[int] = []
        self.old_inside = inside
        self.open: set[int] = set()  # new values that may be computed element by element
        self.known: dict[tuple[int, int, int], int] = {}

    def take(self, index: int, value: Value, chosen: bool) -> None:
        mapped = replace(value, src=tuple([self.moved[source] for source in value.src]))
        new = self.combined(mapped) if chosen else self.add(mapped)
        if index in self.old_inside:
            self.open.add(new)
        self.moved.append(new)

    def add(self, value: Value) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def at(self, index: int, axis: int, place: int) -> int:
        """The values at one index along an axis, which is removed."""
        value = self.values[index]
        if axis < 0 or value.shape == ():
            return index
        place = 0 if value.shape[axis] == 1 else place
        key = index, axis, place
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self.computed(key) if index in self.open else self.seen(key)
        return found

    def computed(self, key: tuple[int, int, int]) -> int:
        index, axis, place = key
        value = self.values[index]
        rank = len(value.shape)
        sources = [
            self.at(source, axis - rank + len(self.values[source].shape), place)
            for source in value.src
        ]
        shape = value.shape[:axis] + value.shape[axis + 1 :]
        perm = _without(value.perm, axis)
        made = replace(value, src=tuple(sources), shape=shape, perm=perm, output=False)
        new = self.add(made)
        self.open.add(new)
        return new

    def seen(self, key: tuple[int, int, int]) -> int:
        """A view of a value in memory."""
        index, axis, place = key
        value = self.values[index]
        strides = memory_strides(value.shape, value.perm)
        shape = value.shape[:axis] + value.shape[axis + 1 :]
        left = strides[:axis] + strides[axis + 1 :]
        layout = Layout(place * strides[axis], shape, left)
        axes = tuple(range(len(shape)))
        picks = tuple([place if each == axis else -1 for each in range(len(value.shape))])
        view = Value(
            ops.VIEW, (index,), layout, shape, value.dtype, None, value.origin,
            axes=axes, picks=picks, derived=True,
        )  # fmt: skip
        return self.add(view)

    # Combining

    def combined(self, value: Value) -> int:
        """A reduction, element by element."""
        arg: Reduction = value.arg
        source, axis = value.src[0], arg.axes[0]
        each = [self.at(source, axis, place) for place in range(arg.short)]
        self.origin = value.origin
        self.like = self.values[each[0]]
        name = _name(value)
        if name in _PLACES:
            found = self.place_of(name, each)
        else:
            each = [self.cast(one, arg.accumulator) for one in each]
            if name == "add" and arg.accumulator.kind == "f":
                each.insert(0, self.step("imag", each[0]))  # NumPy adds to 0: never -0.0
            row = ops.TABLE[value.op.combine].name
            found = each[0]
            for one in each[1:]:
                found = self.step(row, found, one)
            found = self.cast(found, value.dtype)
        last = self.values[found]
        self.values[found] = replace(last, perm=value.perm, output=value.output, derived=False)
        return found

    def place_of(self, name: str, each: list[int]) -> int:
        """The index of the best element; the first NaN is better than any number."""
        best = each[0]
        places = one = count = -1
        for turn, value in enumerate(each[1:], 1):
            better = self.step(_PLACES[name], value, best)
            if self.values[value].dtype.kind == "f":
                bad = self.step("not_equal", value, value)
                fine = self.step("equal", best, best)
                better = self.step("logical_or", better, self.step("logical_and", bad, fine))
            if turn == 1:
                places = self.cast(better, _INTP)
                nothing = self.step("imag", places)
                one = count = self.cast(self.step("equal", nothing, nothing), _INTP)
            else:
                count = self.step("add", count, one)
                places = self.step("where", better, count, places)
            best = self.step("where", better, value, best)
        return places

    def cast(self, index: int, dtype: np.dtype[np.generic]) -> int:
        given = self.values[index].dtype
        if given == dtype:
            return index
        return self.new("cast", (index,), promotion.cast_loop(given, dtype), dtype)

    def step(self, name: str, *sources: int) -> int:
        kinds = tuple([self.values[source].dtype for source in sources])
        loop = promotion.resolve(ops.TABLE[name], kinds)
        return self.new(name, sources, loop, loop.out)

    def new(
        self, name: str, sources: tuple[int, ...], loop: object, dtype: np.dtype[np.generic]
    ) -> int:
        row, like = ops.TABLE[name], self.like
        made = Value(row, sources, loop, like.shape, dtype, like.perm, self.origin, derived=True)
        found = self.add(made)
        self.open.add(found)
        return found


def _without(perm: tuple[int, ...] | None, axis: int) -> tuple[int, ...] | None:
    if perm is None:
        return None
    order = [each - (each > axis) for each in perm if each != axis]
    return None if order == sorted(order) else tuple(order)
