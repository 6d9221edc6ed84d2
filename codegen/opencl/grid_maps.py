"""Level 2 for GPUs: maps as texts of language "opencl-grid", and the entry point of all.

Owns `lower_grid`, and the decisions and the printer for maps. Neighbouring work-items take
neighbouring elements of the whole domain, or vectors of 16 bytes of them where every array is
dense; a fixed number of groups walks over it. Reductions are in grid_reduce.py, the second
pass over partial results in second_pass.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from lazyfuse.codegen.lowering.chunks import Table
from lazyfuse.codegen.lowering.kernel import Kernel
from lazyfuse.codegen.lowering.loop_nest import SHORT, Ints, Loop, Nest, flip, merge, tile, whole
from lazyfuse.codegen.lowering.lower import Lowered, lower
from lazyfuse.codegen.opencl.expressions import c_type
from lazyfuse.codegen.opencl.grid_lowered import GridLowered, is_wide, plain_form
from lazyfuse.codegen.opencl.grid_reduce import GridReductions
from lazyfuse.codegen.opencl.grid_sizes import SIZES
from lazyfuse.codegen.opencl.grid_text import LANGUAGE, GridText, GridVariant
from lazyfuse.codegen.opencl.text import assign, element, memory_type
from lazyfuse.devices.base import Source

# Bytes that a work-item loads at once: the widest access that GPUs have.
VECTOR_BYTES = 16
# More elements per work-item would repeat the element's arithmetic too often in the text.
LARGEST_VECTOR = 8
# Bodies of more operations than this take one element per work-item: arithmetic limits them.
LONGEST_VECTOR_BODY = 24


def lower_grid(
    kernel: Kernel,
    shape: Ints,
    in_strides: Sequence[Ints],
    out_strides: Sequence[Ints],
    order: Ints | None = None,
    value_strides: Ints | None = None,
) -> Lowered:
    """`lower` for language "opencl-grid"; the result is a `GridLowered`."""
    return lower(kernel, shape, in_strides, out_strides, order, value_strides, GridJob)


class GridJob(GridReductions):
    """One call of `lower_grid`."""

    def lower_map(self) -> Lowered:
        stores = self.operands[self.first_output :]
        order = self.sorted_axes(stores, self.operands[: self.first_output])
        loops = self.axis_loops(order, (False,) * len(self.shape))
        loops, offsets = flip(loops, self.first_output)
        nest = whole(merge(loops), offsets)
        across = _across(nest, self.first_output)
        group, vector = SIZES.group, self.vector(nest)
        through: Ints = ()
        if across is not None:
            side = _side()
            group, vector = side * side, 1
            nest = tile(nest, across, (side, side))
            through = _far(nest.loops[-1], nest.loops[-2], self.first_output)
        wide = is_wide(nest, self.elements)
        classes = self.classes(nest.loops[-1])
        form = GridVariant("map", len(nest.loops) - 1, 1, classes, group, wide, vector, through)
        return GridLowered(
            self.kernel,
            plain_form(form),
            (),
            self.elements,
            tuple(range(len(self.operands))),
            {LANGUAGE: lambda: _map_table(nest)},
            grid=form,
            tasks=-(-self.elements // (group * vector)),
            printer=print_map,
        )

    def vector(self, nest: Nest) -> int:
        """How many neighbouring elements a work-item computes."""
        last = nest.loops[-1]
        arrays = self.dtypes
        dense = [k for k in range(len(arrays)) if last.strides[k] == 1]
        if any(last.strides[k] not in (0, 1) for k in range(len(arrays))):
            return 1
        if any(dtype[0] == "c" for dtype in arrays):
            return 1
        if len(self.kernel.body) > LONGEST_VECTOR_BODY or not dense:
            return 1
        wide = VECTOR_BYTES // max(int(arrays[k][1:]) for k in dense)
        count = max(1, min(wide, LARGEST_VECTOR))
        aligned = all(loop.strides[k] % count == 0 for loop in nest.loops[:-1] for k in dense)
        return count if aligned and last.size >= 4 * count else 1


def _side() -> int:
    """The side of a transposition's tile: a group's elements."""
    return int(1 << (SIZES.group.bit_length() - 1) // 2)


def _far(last: Loop, across: Loop, inputs: int) -> tuple[int, ...]:
    """The inputs that are dense along another loop than the last one."""
    strides = enumerate(zip(last.strides[:inputs], across.strides, strict=False))
    return tuple(k for k, (near, far) in strides if near not in (-1, 0, 1) and abs(far) == 1)


def _across(nest: Nest, inputs: int) -> int | None:
    """The loop along which some input is dense while the last loop strides through it."""
    last = len(nest.loops) - 1
    for at in reversed(range(last)):
        sizes = nest.loops[last].size, nest.loops[at].size
        if min(sizes) >= SHORT and _far(nest.loops[last], nest.loops[at], inputs):
            return at
    return None


def _map_table(nest: Nest) -> Table:
    """One chunk for each part of the nest."""
    strides = tuple(zip(*(loop.strides for loop in nest.loops), strict=True))
    sizes = np.array([part.sizes for part in nest.parts], dtype=np.int64)
    offsets = np.array([part.offsets for part in nest.parts], dtype=np.int64)
    return Table(sizes, offsets, strides)


def print_map(kernel: Kernel, form: GridVariant) -> Source:
    """The program text of a map."""
    printer = _MapPrinter(kernel, form)
    printer.entry()
    return printer.source(form.loops)


class _MapPrinter(GridText):
    def entry(self) -> None:
        form = self.variant
        self.arguments(form.loops)
        width = form.loops + len(self.arrays)
        self.open("for (long chunk = 0; chunk < chunks; chunk++)")
        self.line(f"__global const long *row = rows + chunk * {width};")
        for at in range(form.loops):
            self.line(f"const {self.index} n{at} = row[{at}];")
        for k in range(len(self.arrays)):
            self.pointer(k, f"row[{form.loops + k}]")
        if form.through:
            self.tiles()
        else:
            self.elements()
        self.close()
        self.finish()

    def elements(self) -> None:
        """The elements (or vectors) of a chunk, one for each work-item at a time."""
        form, last = self.variant, self.variant.loops - 1
        sizes = [f"n{at}" for at in range(form.loops)]
        if form.vector > 1:
            self.line(f"const {self.index} units = (n{last} + {form.vector - 1}) / {form.vector};")
            sizes[last] = "units"
        self.line(f"const {self.index} total = {' * '.join(sizes)};")
        self.line(f"const {self.index} step = get_num_groups(0) * {form.group};")
        first = f"get_group_id(0) * {form.group} + get_local_id(0)"
        self.open(f"for ({self.index} unit = {first}; unit < total; unit += step)")
        names = [f"i{at}" for at in range(form.loops)]
        if form.vector > 1:
            names[last] = "of_row"
        self.unravel("unit", sizes, names)
        if form.vector > 1:
            self.vectors()
        else:
            self.single(list(enumerate(names)))
        self.close()

    def tiles(self) -> None:
        """Square tiles, one for each group at a time. All items meet the barriers."""
        form, side = self.variant, math.isqrt(self.variant.group)
        rows, columns = form.loops - 2, form.loops - 1
        for k in form.through:
            name = f"tile{k}[{side * (side + 1)}]"  # one more column: no two rows in one bank
            self.lines.insert(0, f"    __local {c_type(self.arrays[k])} {name};")
        self.line(f"const int down = get_local_id(0) / {side}, right = get_local_id(0) % {side};")
        sizes = [f"n{at}" for at in range(rows)]
        self.line(f"const {self.index} tiles = {' * '.join(sizes) or '1'};")
        self.open(
            f"for ({self.index} unit = get_group_id(0); unit < tiles; unit += get_num_groups(0))"
        )
        names = [f"i{at}" for at in range(rows)]
        self.unravel("unit", sizes, names)
        outer = list(enumerate(names))
        self.open(f"if (right < n{rows} && down < n{columns})")
        for k in form.through:
            place = self.offset(k, [*outer, (rows, "right"), (columns, "down")])
            value = element(f"p{k}", place, self.arrays[k])
            self.line(f"tile{k}[right * {side + 1} + down] = {value};")
        self.close()
        self.barrier()
        self.open(f"if (down < n{rows} && right < n{columns})")
        turned = {k: f"tile{k}[down * {side + 1} + right]" for k in form.through}
        self.single([*outer, (rows, "down"), (columns, "right")], turned)
        self.close()
        self.barrier()
        self.close()

    def single(
        self, loops: Sequence[tuple[int, str]], turned: Mapping[int, str] | None = None
    ) -> None:
        """One element; some inputs may already have been read."""
        inputs = []
        for k in range(self.first_store):
            inputs.append(f"h{k}")
            kind, place = c_type(self.arrays[k]), self.offset(k, loops)
            value = element(f"p{k}", place, self.arrays[k])
            self.line(f"const {kind} h{k} = {(turned or {}).get(k, value)};")
        outputs = self.output_variables("y{k}")
        self.call_element(inputs, outputs)
        for k, name in enumerate(outputs, self.first_store):
            self.line(assign(f"p{k}", self.offset(k, loops), name, self.arrays[k]))

    def output_variables(self, pattern: str) -> list[str]:
        names = [pattern.format(k=k) for k in range(len(self.kernel.stores))]
        for store, name in zip(self.kernel.stores, names, strict=True):
            self.line(f"{c_type(store.dtype)} {name};")
        return names

    def vectors(self) -> None:
        """Neighbours of a row: vectors of memory if aligned, else one by one."""
        form, last = self.variant, self.variant.loops - 1
        self.line(f"const {self.index} i{last} = of_row * {form.vector};")
        outer = [(at, f"i{at}") for at in range(form.outer)]
        moving = [k for k in range(len(self.arrays)) if form.classes[k] == "1"]
        for k in range(len(self.arrays)):
            place = self.offset(k, [*outer, (last, f"i{last}")])
            self.line(f"{self.pointer_type(k)}r{k} = p{k} + ({place});")
        for k in range(self.first_store):
            if k not in moving:
                dtype = self.arrays[k]
                self.line(f"const {c_type(dtype)} h{k} = {element(f'r{k}', '0', dtype)};")
        tests = [f"i{last} + {form.vector} <= n{last}"]
        bytes_of = {k: form.vector * int(self.arrays[k][1:]) for k in moving}
        tests += [f"((ulong)r{k} & {bytes_of[k] - 1}) == 0" for k in moving]
        self.open(f"if ({' && '.join(tests)})")
        self.aligned(moving)
        self.depth -= 1
        self.open("} else")
        self.line(f"const {self.index} left = min(n{last} - i{last}, ({self.index}){form.vector});")
        self.open(f"for ({self.index} j = 0; j < left; j++)")
        inputs = []
        for k in range(self.first_store):
            here = element(f"r{k}", "j", self.arrays[k])
            inputs.append(here if k in moving else f"h{k}")
        outputs = self.output_variables("y{k}")
        self.call_element(inputs, outputs)
        for k, name in enumerate(outputs, self.first_store):
            place = "j" if k in moving else "0"
            self.line(assign(f"r{k}", place, name, self.arrays[k]))
        self.close()
        self.close()

    def aligned(self, moving: Sequence[int]) -> None:
        width = self.variant.vector
        for k in moving:
            if k < self.first_store:
                kind = f"{memory_type(self.arrays[k])}{width}"
                self.line(f"const {kind} m{k} = *(__global const {kind} *)r{k};")
        names = []
        for lane in range(width):
            part = f".s{lane:x}"
            inputs = []
            for k in range(self.first_store):
                truth = self.arrays[k] == "b1"
                here = f"(uchar)(m{k}{part} != 0)" if truth else f"m{k}{part}"
                inputs.append(here if k in moving else f"h{k}")
            names.append(self.output_variables(f"y{{k}}_{lane}"))
            self.call_element(inputs, names[-1])
        for at, k in enumerate(range(self.first_store, len(self.arrays))):
            kind = f"{memory_type(self.arrays[k])}{width}"
            lanes = ", ".join(each[at] for each in names)
            self.line(f"*(__global {kind} *)r{k} = ({kind})({lanes});")
