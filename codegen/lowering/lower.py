"""Level 2: how one kernel runs at concrete sizes and strides.

Owns the choice of loop order, core, layout classes, tiles, chunks and partial results. Its
decisions follow from the kernel, sizes and strides alone, so results are the same for any number of
threads. Sums and products of floats keep NumPy's order, and so its bits (see summation.py); other
reductions are exact in any order. Imports no device and no compiler.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any

import numpy as np

from lazyfuse.codegen.graph.shapes import contiguous_strides
from lazyfuse.codegen.lowering import languages, registered_kernels
from lazyfuse.codegen.lowering.chunks import Table, box_table, stretch_table
from lazyfuse.codegen.lowering.combine_partials import Combination, combine_boxes, combine_stretches
from lazyfuse.codegen.lowering.kernel import (
    Kernel,
    Reduce,
    cost,
    is_argument,
    is_ordered,
    memory_of,
    value_dtypes,
)
from lazyfuse.codegen.lowering.loop_nest import (
    LONG,
    SHORT,
    SHORTEST_CUT,
    Ints,
    Loop,
    Nest,
    divisor_strip,
    flip,
    merge,
    sink,
    tile,
    whole,
    with_parts,
)
from lazyfuse.codegen.lowering.summation import Summation, leaves, summation
from lazyfuse.codegen.lowering.variant import RUN_BLOCK, KernelVariant, program_arrays
from lazyfuse.devices.base import Launch, Source
from lazyfuse.devices.caches import memo
from lazyfuse.devices.dataclass import dataclass

Array = np.ndarray[Any, np.dtype[Any]]
Temporary = tuple[Ints, np.dtype[Any]]

# Elements per chunk: enough work to pay for its dispatch, few enough for many chunks.
CHUNK = 1 << 17
SMALLEST_CHUNK = 1 << 14
# A map of fewer elements than CHUNK is still cut for several threads: the number of chunks, and
# the least elements of a chunk. The cut does not affect results.
SHARES = 4
SMALLEST_SHARE = 1 << 13
# Bodies that cost more than this many additions per element get proportionally smaller chunks.
CHEAP = 8.0
# Blocked NumPy: operands and intermediate results of a chunk stay in the L2 cache.
NUMPY_CHUNK = 1 << 14
# Largest segment of a pairwise tree that one chunk sums. It fixes the shape of partial results.
STRETCH = 1 << 16
# With this many independent results, reduced loops need not be cut for parallelism.
ENOUGH_RESULTS = 64

# Least bytes in a row of a streamed loop: the ends of a row are written byte by byte.
STREAMED_ROW = 2048
STREAM_ABOVE = 32 << 20

_TABLES = {"opencl": "numba"}  # languages whose chunks are those of another
_SOURCES: dict[tuple[Kernel, KernelVariant, str], Source] = memo(
    "codegen.lowering.lower.sources",
    4096,  # texts of a few kilobytes
)
_stream_above = STREAM_ABOVE


def stream_above(size: int) -> None:
    """Write results of maps past the caches if a kernel touches at least `size` bytes; 0: never.

    Changes no bit of any value. Applies to later calls of `lower`.
    """
    global _stream_above
    _stream_above = size


@dataclass(frozen=True, eq=False)
class Lowered:
    """A kernel at concrete sizes and strides; may be kept and launched any number of times.

    `arrays` everywhere: the inputs, the outputs (stores, then reductions), then one array for each
    of `temporaries` (C-contiguous, uninitialised, allocated by the caller).
    """

    kernel: Kernel
    variant: KernelVariant
    temporaries: tuple[Temporary, ...]
    elements: int
    slots: Ints  # which of the caller's arrays each array of the program is
    _makers: Mapping[str, Callable[[], Table]]
    _combination: Combination | None = None
    _tables: dict[str, Table] = field(default_factory=dict)
    _sources: dict[str, Source] = field(default_factory=dict)

    def source(self, language: str) -> Source:
        """The program text for a language; memoised by kernel and variant."""
        source = self._sources.get(language)
        if source is None:
            source = self._sources[language] = _print(self.kernel, self.variant, language)
        return source

    def table(self, language: str) -> Table:
        """The chunks, made when a language is first launched."""
        kind = _TABLES.get(language, language)
        table = self._tables.get(kind) or self._makers[kind]()
        self._tables[kind] = self._tables[language] = table
        return table

    def launch(self, language: str, arrays: Sequence[Array], scalars: tuple[Any, ...]) -> Launch:
        """The arguments of one run, cut into chunks."""
        table = self._tables.get(language) or self.table(language)
        chosen = tuple([arrays[slot] for slot in self.slots])
        return Launch(
            chosen + table.extra, table.strides, scalars, table.sizes, table.offsets, self.elements
        )

    @property
    def is_partial(self) -> bool:
        """Whether reductions wait for `finish`."""
        return self._combination is not None

    def combining(self) -> Any:
        """The work of `finish` in the terms of `Combination.numbers`."""
        return None if self._combination is None else self._combination.numbers()

    def second(self) -> Any:
        """A second program that combines partial results on the device; None: `finish` does."""
        return None

    def finish(self, arrays: Sequence[Array]) -> None:
        """Combine partial results into the reduction outputs, in a fixed order, with NumPy."""
        found = self._combination
        if found is not None:
            for each in found.results:
                found.run(each, arrays)

    def finishers(self) -> list[Callable[[Sequence[Array]], None]]:
        """The work of `finish` as one function per reduction."""
        found = self._combination
        return [] if found is None else [partial(found.run, each) for each in found.results]


def _print(kernel: Kernel, form: KernelVariant, language: str) -> Source:
    key = kernel, form, language
    source = _SOURCES.get(key)
    if source is None:
        source = _SOURCES[key] = languages.printer(language)(kernel, form)
    if language == languages.VECTOR:  # registered texts promise NumPy's bits
        return source
    return registered_kernels.choose(kernel, form, source)


def lower(
    kernel: Kernel,
    shape: Ints,
    in_strides: Sequence[Ints],
    out_strides: Sequence[Ints],
    order: Ints | None = None,
    value_strides: Ints | None = None,
    decide: type[Job] | None = None,
    others: Sequence[tuple[Ints, Ints]] = (),
) -> Lowered:
    """Decide loops, classes and chunks of `kernel` over `shape`.

    Strides are in elements, one per domain axis (0: broadcast); those of reduction outputs are 0 on
    reduced axes. An array's first element (index 0 on every axis) is where its numpy array starts.
    `order` is the memory order (axes from slowest to fastest, None: C) of the reduced values, which
    fixes NumPy's order of summation. `value_strides`, where given, are their strides in NumPy (a
    view of a computed array is not packed). A reduction directly over an input takes both from
    that input's own strides, as NumPy does. No axis may have size 0. `decide` replaces the
    decisions for work in chunks (see grid_maps.py). `others`: further boxes of a map's domain, by
    their sizes and how many elements from its first one each array begins there.
    """
    job = (decide or Job)(kernel, shape, [*in_strides, *out_strides])
    if not kernel.reductions:
        job.others = others
        return job.lower_map()
    if value_strides is None:
        value_strides = contiguous_strides(shape, order)
    return job.lower_reduction(value_strides)


def sums_like(
    kernel: Kernel,
    shapes: tuple[Ints, Ints],
    in_strides: tuple[Sequence[Ints], Sequence[Ints]],
    order: Ints | None,
    axis: int,
) -> bool:
    """Whether a tile of a kernel sums in the order of the whole. Pairs: of the whole, of the tile.

    `axis` is the tiled axis, which is not reduced.
    """
    found: list[Any] = []
    for shape, strides in zip(shapes, in_strides, strict=True):
        how = Job(kernel, shape, list(strides)).summation(contiguous_strides(shape, order))
        if how is None:
            return True
        slow = tuple(each for each in how.order if each != axis)
        found.append((slow, how.run, how.block))
    return bool(found[0] == found[1])


def _class(stride: int) -> str:
    return {0: "0", 1: "1", -1: "-"}.get(stride, "s")


class Job:
    """One call of `lower`."""

    def __init__(self, kernel: Kernel, shape: Ints, operands: list[Ints]) -> None:
        self.kernel = kernel
        self.shape = shape
        self.operands = operands
        self.wide = [axis for axis, size in enumerate(shape) if size > 1]
        self.elements = math.prod(shape)
        self.first_output = len(kernel.inputs)
        self.first_target = len(kernel.inputs) + len(kernel.stores)
        self.caller_arrays = len(operands)
        self.others: Sequence[tuple[Ints, Ints]] = ()  # further boxes of a map's domain
        scale = max(1, round(cost(kernel) / CHEAP))
        self.chunk = max(SMALLEST_CHUNK, CHUNK // scale)
        self.map_chunk = min(self.chunk, max(SMALLEST_SHARE, -(-self.elements // SHARES)))

    # Maps

    def lower_map(self) -> Lowered:
        stores = self.operands[self.first_output :]
        order = self.sorted_axes(stores, self.operands[: self.first_output])
        loops = self.axis_loops(order, (False,) * len(self.shape))
        if self.others:
            self.elements += sum(math.prod(sizes) for sizes, _ in self.others)
            nest = with_parts(loops, order, self.others, self.first_output)
        else:
            loops, offsets = flip(loops, self.first_output)
            nest = whole(merge(loops), offsets)
        nest = _arrange_map(nest)
        classes, outer = self.classes(nest.loops[-1]), (False,) * (len(nest.loops) - 1)
        form = KernelVariant("map", outer, 1, classes, stream=self.streams(nest, classes))
        count = len(self.operands)
        tables = {
            "numba": partial(box_table, nest, form, self.map_chunk, count),
            "numpy": partial(box_table, nest, form, NUMPY_CHUNK, count),
        }
        slots = tuple(range(len(self.operands)))
        return Lowered(self.kernel, form, (), self.elements, slots, tables)

    def streams(self, nest: Nest, classes: str) -> bool:
        """Whether the arrays of a map are too large for the last cache, and its stores dense."""
        sizes = [int(dtype[1:]) for dtype in program_arrays(self.kernel)]
        stores = range(self.first_output, len(self.operands))
        row = nest.loops[-1].size * min((sizes[k] for k in stores if classes[k] == "1"), default=0)
        if not _stream_above or row < STREAMED_ROW:
            return False
        return self.touched(sizes) > _stream_above

    def touched(self, sizes: Sequence[int]) -> int:
        """The least number of bytes touched: inputs may be windows of one array."""
        found = []
        for size, strides in zip(sizes, self.operands, strict=True):
            steps = zip(self.shape, strides, strict=True)
            found.append(size * math.prod([n for n, stride in steps if stride]))
        return max(found[: self.first_output], default=0) + sum(found[self.first_output :])

    def sorted_axes(self, leading: list[Ints], others: list[Ints]) -> list[int]:
        """Axes of size above 1 from slowest to fastest; the first leading array decides."""

        def slowness(axis: int) -> tuple[int, ...]:
            return (*(abs(e[axis]) for e in leading), sum(abs(e[axis]) for e in others))

        return sorted(self.wide, key=slowness, reverse=True)  # ties stay in C order

    def axis_loops(self, axes: Sequence[int], reduced: tuple[bool, ...]) -> list[Loop]:
        loops = [
            Loop(self.shape[a], reduced[a], tuple(each[a] for each in self.operands)) for a in axes
        ]
        if not loops:
            loops.append(Loop(1, any(reduced), (0,) * len(self.operands)))
        return loops

    def classes(self, last: Loop) -> str:
        return "".join(_class(stride) for stride in last.strides[: self.program_arrays])

    @property
    def program_arrays(self) -> int:
        return len(program_arrays(self.kernel))

    # Reductions

    def lower_reduction(self, value_strides: Ints) -> Lowered:
        kernel = self.kernel
        has_index = any(is_argument(each) for each in kernel.reductions)
        if has_index:
            self.operands.append(_positions(self.shape, kernel.reduced))
        ordered = self.ordered_reduction()
        if ordered is None:
            return self.lower_boxes(self.sorted_axes([], self.operands[: self.caller_arrays]))
        how = self.summation(value_strides)
        assert how is not None
        lanes = 4 if ordered.accumulator[0] == "c" else 8
        run = how.order[len(how.order) - how.run :]
        alone = sum(kernel.reduced[axis] for axis in how.order) == len(run)
        short = alone and not how.block and math.prod([self.shape[a] for a in run]) < lanes
        if ordered.op == "multiply" or not how.run or short:
            return self.lower_boxes(how.order)
        return self.lower_tree(how.order[: -how.run], run, how.block, ordered)

    def summation(self, value_strides: Ints) -> Summation | None:
        """NumPy's order for the ordered reductions of a kernel; None if it has none."""
        ordered = self.ordered_reduction()
        if ordered is None:
            return None
        dtype = value_dtypes(self.kernel)[ordered.value]
        lies = memory_of(self.kernel, ordered.value)
        if lies < len(self.kernel.inputs):
            value_strides = self.operands[lies]
        convert = dtype != ordered.accumulator
        return summation(self.shape, value_strides, self.kernel.reduced, convert)

    def ordered_reduction(self) -> Reduce | None:
        """The reduction that fixes the order: one over a computed value has precedence."""
        ordered = [each for each in self.kernel.reductions if is_ordered(each)]
        ordered.sort(key=lambda each: memory_of(self.kernel, each.value) < len(self.kernel.inputs))
        return ordered[0] if ordered else None

    def lower_tree(self, slow: Ints, run: Ints, block: int, ordered: Reduce) -> Lowered:
        """Pairwise sums over runs; their results are combined by `finish`."""
        kernel = self.kernel
        outer = merge(self.axis_loops(slow, kernel.reduced)) if slow else []
        inner = merge(self.axis_loops(run, kernel.reduced))
        total = math.prod([loop.size for loop in inner])
        # a costly body is shared out in shorter segments: the tree, and its bits, stay
        limit = max(RUN_BLOCK, min(STRETCH, self.chunk // 2))
        lows, blocks = _stretches(total, block, ordered.accumulator[0] == "c", limit)
        is_partial = len(lows) > 1 or any(loop.reduced for loop in outer)
        shape = tuple(loop.size for loop in outer if is_partial or not loop.reduced)
        loops = self.with_targets(outer + inner, len(outer), is_partial, all_outer=True)
        if is_partial:
            shape = (len(lows), *shape)
        temporaries, slots = self.temporaries(shape, is_partial)
        nest = whole(loops, (0,) * len(loops[0].strides))
        long = min(total, block or total, limit) > RUN_BLOCK
        form = KernelVariant(
            "row",
            (False,) * len(outer),
            len(inner),
            self.classes(nest.loops[-1]),
            self.methods("tree"),
            long,
        )
        bounds = np.array([*lows, total], dtype=np.int64)
        tables = {
            language: partial(
                stretch_table,
                nest,
                form,
                language,
                size,
                bounds,
                is_partial,
                self.program_arrays,
                self.first_target,
            )
            for language, size in (("numba", self.kept_chunk(is_partial)), ("numpy", NUMPY_CHUNK))
        }
        combination = None
        if is_partial:
            stretches = np.diff(bounds).tolist(), blocks
            combination = combine_stretches(kernel, outer, stretches, self.partial_slots())
        return Lowered(kernel, form, temporaries, self.elements, slots, tables, combination)

    def lower_boxes(self, order: Sequence[int]) -> Lowered:
        """Reductions that run one after the other, or in any order."""
        kernel = self.kernel
        loops = merge(self.axis_loops(order, kernel.reduced))
        free = not any(is_ordered(each) for each in kernel.reductions)
        core, inner = _choose_core(loops, free)
        # strips of a reduced loop may leave a remainder, which is a chunk of its own
        strips = loops[inner].reduced and inner != len(loops) - 1
        is_partial = free and (strips or self.needs_partials(loops, core, inner))
        shape = tuple(loop.size for loop in loops if not loop.reduced)
        offsets = (0,) * (len(self.operands) + self.values)
        nest = whole(self.with_targets(loops, len(loops), is_partial), offsets)
        if inner != len(loops) - 1:
            nest = _sink(nest, inner, free)
        form = KernelVariant(
            core,
            tuple(loop.reduced for loop in nest.loops[:-1]),
            1,
            self.classes(nest.loops[-1]),
            self.methods("chain") if core == "row" else (),
        )
        step = math.prod(shape) if is_partial else 0
        arrays = self.program_arrays
        numpy_chunk = self.chunk if is_partial else NUMPY_CHUNK  # partial results are cut alike
        tables = {
            language: partial(
                box_table, nest, form, size, arrays, language, step, self.first_target
            )
            for language, size in (("numba", self.kept_chunk(is_partial)), ("numpy", numpy_chunk))
        }
        if not is_partial:
            temporaries, slots = self.temporaries(shape, is_partial)
            return Lowered(kernel, form, temporaries, self.elements, slots, tables)
        table = tables["numba"]()
        temporaries, slots = self.temporaries((table.zones, *shape), is_partial)
        combination = combine_boxes(kernel, loops, self.partial_slots())
        made = {"numba": table}
        return Lowered(kernel, form, temporaries, self.elements, slots, tables, combination, made)

    def kept_chunk(self, is_partial: bool) -> int:
        """Elements of a chunk of a reduction: smaller where chunks leave whole results."""
        return self.chunk if is_partial else self.map_chunk

    @property
    def values(self) -> int:
        """The number of targets for values of argmin and argmax."""
        return sum(is_argument(each) for each in self.kernel.reductions)

    def needs_partials(self, loops: list[Loop], core: str, inner: int) -> bool:
        """Whether there are too few results to share the work by them alone."""
        room = 1
        for at, loop in enumerate(loops):
            if not loop.reduced:
                is_column = core == "column" and at == inner
                room *= max(1, loop.size // SHORTEST_CUT) if is_column else loop.size
        wanted = -(-self.elements // self.chunk)
        return room < min(wanted, ENOUGH_RESULTS)

    def with_targets(
        self, loops: list[Loop], outer: int, is_partial: bool, all_outer: bool = False
    ) -> list[Loop]:
        """Loops with the strides of the targets that the program writes.

        Strides of partial results replace those of the outputs; values of argmin and argmax are
        added before the positions.
        """
        dense: list[int] = []
        step = 1
        for at in reversed(range(len(loops))):
            loop = loops[at]
            counts = at < outer and (not loop.reduced or (all_outer and is_partial))
            dense.insert(0, step if counts else 0)
            step *= loop.size if counts else 1
        first, targets = self.first_target, len(self.kernel.reductions)
        changed: list[Loop] = []
        for loop, stride in zip(loops, dense, strict=True):
            strides = list(loop.strides)
            if is_partial:
                strides[first : first + targets] = [stride] * targets
            strides[first + targets : first + targets] = [stride] * self.values
            flag = loop.reduced and not (all_outer and len(changed) < outer)
            changed.append(Loop(loop.size, flag, tuple(strides)))
        return changed

    def temporaries(self, shape: Ints, is_partial: bool) -> tuple[tuple[Temporary, ...], Ints]:
        """Arrays for partial results and values; which of the caller's arrays the program takes."""
        reductions = self.kernel.reductions
        found = [each.dtype for each in reductions] if is_partial else []
        slots = list(range(self.caller_arrays))
        if is_partial:
            slots[self.first_target :] = range(
                self.caller_arrays, self.caller_arrays + len(reductions)
            )
        for each in reductions:
            if is_argument(each):
                slots.append(self.caller_arrays + len(found))
                found.append(each.accumulator)
        return tuple((shape, np.dtype(dtype)) for dtype in found), tuple(slots)

    def partial_slots(self) -> tuple[Ints, Ints]:
        """Indices, among the caller's arrays, of reduction outputs and their partial results."""
        count = len(self.kernel.reductions)
        outputs = tuple(range(self.first_target, self.first_target + count))
        return outputs, tuple(range(self.caller_arrays, self.caller_arrays + count))

    def methods(self, ordered: str) -> tuple[str, ...]:
        """How a row's reductions are combined, those whose order counts by `ordered`."""
        return tuple(
            ordered if is_ordered(each) else "seek" if is_argument(each) else "scalar"
            for each in self.kernel.reductions
        )


def _positions(shape: Ints, reduced: tuple[bool, ...]) -> Ints:
    """Strides of the position that argmin and argmax report: C order over the reduced axes."""
    strides = [0] * len(shape)
    step = 1
    for axis in reversed(range(len(shape))):
        if reduced[axis]:
            strides[axis] = step
            step *= shape[axis]
    return tuple(strides)


def _stretches(
    total: int, block: int, complex_values: bool, limit: int
) -> tuple[list[int], list[int]]:
    """The start of each segment of a run, and the NumPy block that it belongs to."""
    lows: list[int] = []
    blocks: list[int] = []
    block = block or total
    sizes: dict[int, list[int]] = {}
    for number, start in enumerate(range(0, total, block)):
        length = min(block, total - start)
        if length not in sizes:
            sizes[length] = leaves(length, limit, complex_values)
        for size in sizes[length]:
            lows.append(start)
            blocks.append(number)
            start += size
    return lows, blocks


def _arrange_map(nest: Nest) -> Nest:
    """Move a long loop inside, and block a loop that operands walk in the opposite order."""
    last = len(nest.loops) - 1
    if nest.loops[last].size < SHORT:
        long = _innermost(nest.loops[:last], lambda loop: loop.size >= LONG)
        return nest if long is None else sink(nest, long)
    far = [k for k, stride in enumerate(nest.loops[last].strides) if stride not in (-1, 0, 1)]
    across = _innermost(
        nest.loops[:last],
        lambda loop: loop.size >= SHORT and any(abs(loop.strides[k]) == 1 for k in far),
    )
    return nest if across is None else tile(nest, across)


def _innermost(loops: Sequence[Loop], wanted: Any) -> int | None:
    for at in reversed(range(len(loops))):
        if wanted(loops[at]):
            return at
    return None


def _choose_core(loops: list[Loop], free: bool) -> tuple[str, int]:
    """The core of a reduction, and the loop to make the innermost."""
    last = len(loops) - 1
    if loops[last].size >= SHORT:
        return ("row" if loops[last].reduced else "column"), last
    across = _innermost(loops, lambda loop: not loop.reduced and loop.size >= LONG)
    if across is not None:
        return "column", across
    along = _innermost(loops, lambda loop: loop.reduced)
    if along is not None and loops[along].size >= LONG:
        return ("row", along) if free or divisor_strip(loops[along].size) else ("column", last)
    return ("row" if loops[last].reduced else "column"), last


def _sink(nest: Nest, at: int, free: bool) -> Nest:
    """Make a loop the innermost; a chain must not leave a remainder, which would be a chunk."""
    if nest.loops[at].reduced and not free:
        return sink(nest, at, divisor_strip(nest.loops[at].size))
    return sink(nest, at)
