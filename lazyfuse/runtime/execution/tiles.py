"""The geometry of tiles: how large a tile is, and where each operand of a kernel lies in it.

Owns the size of tiles, the lowering of kernels to them, and the offsets, in a thread's scratch, of
values that exist for one tile at a time. tiled_run.py runs the tiles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lazyfuse.codegen.graph.linearize import memory_strides
from lazyfuse.codegen.graph.node import HostCall
from lazyfuse.codegen.graph.shapes import size_of
from lazyfuse.codegen.lowering.lower import Lowered, lower, sums_like
from lazyfuse.codegen.plan.chains import Chain, Tiling, multiplies_rows
from lazyfuse.codegen.plan.plan import KernelStep
from lazyfuse.codegen.table import ops
from lazyfuse.devices.base import Source
from lazyfuse.devices.dataclass import dataclass
from lazyfuse.runtime.placement import devices

if TYPE_CHECKING:
    from lazyfuse.runtime.execution.executor import Run

Array = np.ndarray[Any, np.dtype[Any]]
Ints = tuple[int, ...]

# Tiles per thread, where there is enough to divide: so that no thread waits for long at the end.
TILES_PER_THREAD = 4
# Where tiles divide the axis that is dense in memory: the fewest elements of it in a tile.
SHORTEST = 64
# What the steps of a chain pass on stays in the last cache up to this fraction of it. Tiles for the
# second cache gain nothing there: matrices of 200 to 1,000 rows took 1.1 to 5 times as long.
STAYS = 2
# Tiles that multiply matrices begin at multiples of this many rows (matmul_blas.BLOCK). With fewer
# rows, packing the second operand shows in the time.
PRODUCT_ROWS = 128
# Scratch starts at cache lines.
LINE = 64


class TileOperand(NamedTuple):
    """An operand of one tile: its shape, its strides in elements and its dtype."""

    shape: Ints
    strides: Ints
    dtype: np.dtype[Any]
    full_shape: Ints = ()  # the shape of all tiles together


class TileCall(NamedTuple):
    """The call that does a host call's work on one tile.

    `entry` is the address of `int32 f(int64 *row, double *scalars)`, which returns IEEE flags and
    may run in any thread. Its row: `meta`, then the address of each source, then of the result.
    `keep` holds the code. No entry (0): its code is being compiled. `work`: of all tiles, in
    additions. `within`: the context in which the call may run.
    """

    entry: int
    meta: Ints
    keep: Any = None
    work: float = 0.0
    within: Any = None


Maker = Callable[[HostCall, Sequence[TileOperand], TileOperand], TileCall | None]

MAKERS: dict[str, Maker] = {}
"""By name of a host call (see `chains.TILED`): makes its call on a tile; None: it has none."""


class Declined(Exception):
    """Why a chain does not run by tiles."""


@dataclass(frozen=True)
class Operand:
    """A value as the kernels of a tile read or write it."""

    number: int  # of the launch's arrays; -1: scratch
    offset: int  # bytes; in scratch
    step: int  # bytes from one index of the tiled axis to the next; 0 in scratch
    shape: Ints  # of the tile
    strides: Ints
    dtype: np.dtype[Any]


@dataclass
class Task:
    """One step on tiles of one size."""

    group: int
    step: KernelStep | None
    lowered: Lowered | None
    operands: list[Operand]
    part: TileCall | None = None

    @property
    def source(self) -> Source:
        assert self.lowered is not None
        return self.lowered.source("numba")


@dataclass
class SizedChain:
    """A chain at one geometry."""

    rows: int = 0  # of a tile
    tiles: int = 0
    full_tiles: int = 0  # tiles of full size
    scratch: int = 0
    variants: list[list[Task]] = field(default_factory=list)
    kernels: list[KernelStep] = field(default_factory=list)
    batch: Any = None  # the calls of all tiles, once every program is compiled
    programs: list[Any] = field(default_factory=list)  # by group
    keep: list[Any] = field(default_factory=list)
    why: str = ""


def prepare(values: Run, chain: Chain, loads: list[Array]) -> SizedChain:
    """The tiles of a chain for all its kernels, or the reason why there are none."""
    why = ""
    figures = devices.tuning()
    limit = figures.tile_bytes
    multiplies = multiplies_rows(chain, values.plan.graph)
    if _passed_on(values, chain) <= max(limit, 0 if multiplies else figures.l3_bytes // STAYS):
        return SizedChain(why="what its steps pass on stays in the cache anyway")
    found = [(_bytes_per_row(values, chain, tiling), tiling) for tiling in chain.tilings]
    fitting = [each for each in found if each[0] <= limit] or [min(found, key=lambda x: x[0])]
    for per_row, tiling in fitting:
        try:
            return _Preparation(values, chain, tiling, loads).make(per_row, limit)
        except Declined as declined:
            why = why or str(declined)
    return SizedChain(why=why)


def _passed_on(values: Run, chain: Chain) -> int:
    """Bytes of the values that one step of a chain leaves in the cache for a later one."""
    readers = Counter(index for step in chain.steps for index in set(step.reads))
    made = {index for step in chain.steps for index in step.writes}
    graph = values.plan.graph.values
    return sum(
        size_of(values.shape(index)) * graph[index].dtype.itemsize
        for index, count in readers.items()
        if count > 1 or index in made
    )


def _bytes_per_row(values: Run, chain: Chain, tiling: Tiling) -> int:
    total = 0
    for index in (*chain.loads, *chain.kept, *chain.inner):
        place = tiling.axis_of.get(index)
        if place is not None:
            shape = values.shape(index)
            each = size_of(shape) // max(shape[place], 1)
            total += each * values.plan.graph.values[index].dtype.itemsize
    return total


class _Preparation:
    def __init__(self, values: Run, chain: Chain, tiling: Tiling, loads: list[Array]) -> None:
        self.values = values
        self.graph = values.plan.graph.values
        self.chain = chain
        self.tiling = tiling
        self.loads = dict(zip(chain.loads, loads, strict=True))
        self.numbers = {index: n for n, index in enumerate((*chain.loads, *chain.kept))}
        index, axis = tiling.size_of
        self.size = values.shape(index)[axis]
        self.places: dict[int, tuple[int, int]] = {}  # in scratch: value -> offset, bytes
        self.end = 0
        self.free: list[tuple[int, int]] = []
        self.shortest = SHORTEST if self.is_dense_axis() else 1

    def make(self, per_row: int, limit: int) -> SizedChain:
        rows = self.rows(per_row, limit)
        whole, rest = divmod(self.size, rows)
        if 0 < rest < self.shortest and whole > 1:  # too narrow for a tile: the last one adds it
            whole, rest = whole - 1, rest + rows
        prepared = SizedChain(rows, whole + bool(rest), whole)
        prepared.kernels = list(self.chain.kernels)
        larger = max(rows, rest)  # its scratch also has room for the smaller one
        made = {
            count: self.variant(count, count == larger)
            for count in (larger, min(rows, rest))
            if count
        }
        prepared.variants = [made[count] for count in (rows, rest) if count]
        prepared.scratch = self.end
        return prepared

    def rows(self, per_row: int, limit: int) -> int:
        """How many indices of the tiled axis one tile takes."""
        threads = self.values.device.traits.threads
        shortest = self.shortest
        multiplies = multiplies_rows(self.chain, self.values.plan.graph)
        least = max(shortest, PRODUCT_ROWS if multiplies else 1)
        rows = max(least, limit // max(per_row, 1))
        if per_row * self.size > limit:
            rows = min(rows, max(least, -(-self.size // (TILES_PER_THREAD * threads))))
            if -(-self.size // rows) < threads:
                raise Declined("too few tiles for all threads")
        if per_row * rows > 2 * (limit if shortest > 1 else devices.tuning().l3_bytes):
            raise Declined("a tile is larger than the caches")
        if rows >= self.size:
            return self.size
        if multiplies:
            return rows - rows % PRODUCT_ROWS
        return rows if rows < 2 * shortest else rows - rows % shortest

    def is_dense_axis(self) -> bool:
        """Whether a large operand is divided along the axis that is dense in memory."""
        for index, array in self.loads.items():
            place = self.tiling.axis_of.get(index)
            if place is not None and array.ndim > 1:
                return bool(array.strides[place] == array.itemsize)
        return False

    def variant(self, count: int, first: bool) -> list[Task]:
        """All steps on tiles of `count` rows."""
        operands = {index: self.operand(index, count) for index in self.loads}
        operands |= {index: self.operand(index, count) for index in self.chain.kept}
        tasks: list[Task] = []
        steps = self.chain.steps
        final = {index: at for at, step in enumerate(steps) for index in self.owners(step.reads)}
        kernels = 0
        for at, step in enumerate(steps):
            if isinstance(step, KernelStep):
                for index in (*step.stores, *step.reductions):
                    if index not in operands:
                        operands[index] = self.scratch(index, count, first)
                tasks.append(self.kernel(step, kernels, self.tiling.kernels[at], operands, count))
                kernels += 1
            elif self.graph[step.index].op is ops.VIEW:
                operands[step.index] = self.view(step.index, operands)
                continue
            else:
                if step.index not in operands:
                    operands[step.index] = self.scratch(step.index, count, first)
                tasks.append(self.call(step.index, kernels, operands))
            if first:
                self.release([i for i, last in final.items() if last == at])
        return tasks

    def owners(self, indices: Sequence[int]) -> list[int]:
        """The values whose memory is read, with views resolved to their sources."""
        found = []
        for index in indices:
            while self.graph[index].op is ops.VIEW and index not in self.numbers:
                index = self.graph[index].src[0]
            found.append(index)
        return found

    def operand(self, index: int, count: int) -> Operand:
        """A value that exists as a whole."""
        value = self.graph[index]
        shape = self.values.shape(index)
        size = value.dtype.itemsize
        strides = memory_strides(shape, value.perm)
        if index in self.loads:
            array = self.loads[index]
            if any(stride % array.itemsize for stride in array.strides):
                raise Declined("strides are no whole elements")
            shape, size = array.shape, array.itemsize
            strides = tuple([stride // size for stride in array.strides])
        place = self.tiling.axis_of.get(index)
        step = 0 if place is None else strides[place] * size
        return Operand(
            self.numbers[index], 0, step, self.cut(shape, place, count), strides, value.dtype
        )

    def cut(self, shape: Ints, place: int | None, count: int) -> Ints:
        """The shape of a tile."""
        return shape if place is None else (*shape[:place], count, *shape[place + 1 :])

    def scratch(self, index: int, count: int, first: bool) -> Operand:
        """A value that exists for one tile at a time. `first`: reserve scratch for it."""
        value = self.graph[index]
        shape = self.cut(self.values.shape(index), self.tiling.axis_of[index], count)
        if first:
            self.places[index] = self.reserve(size_of(shape) * value.dtype.itemsize)
        strides = memory_strides(shape, value.perm)
        return Operand(-1, self.places[index][0], 0, shape, strides, value.dtype)

    def reserve(self, size: int) -> tuple[int, int]:
        size += -size % LINE
        for at, (offset, room) in enumerate(self.free):
            if room == size:
                del self.free[at]
                return offset, room
        self.end += size
        return self.end - size, size

    def release(self, indices: Sequence[int]) -> None:
        """Free the scratch of values that have been read for the last time."""
        self.free += [self.places[index] for index in indices if index in self.places]

    def view(self, index: int, operands: dict[int, Operand]) -> Operand:
        """A view that permutes, adds and repeats axes."""
        value = self.graph[index]
        source = operands[value.src[0]]
        assert value.axes is not None
        strides = tuple([source.strides[axis] if axis >= 0 else 0 for axis in value.axes])
        place = self.tiling.axis_of[index]
        count = source.shape[self.tiling.axis_of[value.src[0]]]  # type: ignore[index]
        shape = self.cut(self.values.shape(index), place, count)
        return Operand(source.number, source.offset, source.step, shape, strides, value.dtype)

    def kernel(
        self,
        step: KernelStep,
        group: int,
        axis: int,
        operands: dict[int, Operand],
        count: int,
    ) -> Task:
        kernel = step.kernel
        domain = self.values.shape(step.domain_of)
        tile = self.cut(domain, axis, count)
        rank = len(domain)
        inputs = [operands[index] for index in step.inputs]
        stores = [operands[index] for index in step.stores]
        results = [operands[index] for index in step.reductions]
        ins = [_over(each.shape, each.strides, rank) for each in inputs]
        outs = [_over(each.shape, each.strides, rank) for each in stores]
        outs += [_kept(each, kernel.reduced, rank) for each in results]
        order = self.values.order(step, rank)
        if kernel.reductions:
            full = [self.whole(index, rank) for index in step.inputs]
            if not sums_like(kernel, (domain, tile), (full, ins), order, axis):
                raise Declined("a tile would sum in another order")
        lowered = lower(kernel, tile, ins, outs, order)
        if lowered.is_partial:
            raise Declined("one row alone is worth cutting")
        arrays = inputs + stores + results
        for shape, dtype in lowered.temporaries:
            size = size_of(shape) * dtype.itemsize
            offset, self.end = self.end, self.end + size + -size % LINE  # its own in each variant
            arrays.append(Operand(-1, offset, 0, shape, memory_strides(shape, None), dtype))
        return Task(group, step, lowered, [arrays[slot] for slot in lowered.slots])

    def whole(self, index: int, rank: int) -> Ints:
        """The strides over the domain that an operand would have if it existed as a whole."""
        shape = self.values.shape(index)
        if index in self.loads:
            array = self.loads[index]
            return _over(shape, tuple([s // array.itemsize for s in array.strides]), rank)
        value = self.graph[index]
        if value.op is ops.VIEW:
            source = value.src[0]
            over = self.whole(source, len(self.values.shape(source)))
            assert value.axes is not None
            strides = tuple([over[axis] if axis >= 0 else 0 for axis in value.axes])
            return _over(shape, strides, rank)
        return _over(shape, memory_strides(shape, value.perm), rank)

    def call(self, index: int, group: int, operands: dict[int, Operand]) -> Task:
        """A host call's task on tiles."""
        value = self.graph[index]
        call: HostCall = self.values.nodes[value.origin].arg
        name = call.name if value.op is ops.HOST else value.op.name
        made = [
            TileOperand(each.shape, each.strides, each.dtype, self.values.shape(source))
            for source in (*value.src, index)
            for each in (operands[source],)
        ]
        taken = [operands[source] for source in (*value.src, index)]
        maker = MAKERS.get(name)
        part = maker(call, made[:-1], made[-1]) if maker is not None else None
        if part is None:
            raise Declined(f"{name} does not work on tiles of this kind or size")
        if not part.entry:
            raise Declined(f"{name} is not compiled yet")
        return Task(group, None, None, taken, part)


def _over(shape: Ints, strides: Ints, rank: int) -> Ints:
    """Strides of an operand over a domain of `rank` axes; 0 where it is repeated."""
    own = [0 if size == 1 else stride for size, stride in zip(shape, strides, strict=True)]
    return (0,) * (rank - len(own)) + tuple(own)


def _kept(operand: Operand, reduced: tuple[bool, ...], rank: int) -> Ints:
    """Strides of a reduction's result over the domain; 0 on reduced axes."""
    if len(operand.shape) == rank:
        return tuple([0 if flag else s for flag, s in zip(reduced, operand.strides, strict=True)])
    own = iter(operand.strides)
    return tuple([0 if flag else next(own) for flag in reduced])
