"""The printer of language "numba": a kernel variant as one function of machine types.

`def NAME(meta, scalars)`: `meta` points to int64: the loop sizes and other numbers of a chunk (see
chunks.py), then for each array its byte address and its strides in elements. The names that the
text may use come from the device (devices/cpu/numba_runtime.py). Identifiers: a array address,
p pointer, s stride, n size, i loop counter, v value, x scalar, t buffer, acc accumulator.
"""

from __future__ import annotations

from lazyfuse.codegen.lowering import interleave
from lazyfuse.codegen.lowering.kernel import Kernel, cost, is_argument, is_exact
from lazyfuse.codegen.lowering.printing import LoopText, named_source
from lazyfuse.codegen.lowering.variant import RUN_BLOCK, KernelVariant, value_target
from lazyfuse.codegen.numba import expressions, leaf_sums
from lazyfuse.codegen.numba import helpers as numba_helpers
from lazyfuse.codegen.numba.expressions import NumbaValues, combined, identity, load, number, stored
from lazyfuse.devices.base import Source

# Elements of a run that are evaluated at once where none of its reductions is a pairwise sum. The
# same number of partial results ("lanes") is combined side by side, and joined at the run's end.
LANES = 256
# Elements of a streamed map that are computed at once, into a buffer in the first cache.
STREAMED = 512
# Bodies of at least this cost copy their strided inputs into buffers first, up to this many inputs.
GATHER_COST = 3.0
GATHERED = 8
# The mark of the innermost loop: its iterations do not touch each other's memory.
_INDEPENDENT = "independent()"


def print_source(kernel: Kernel, form: KernelVariant) -> Source:
    """The program text of a kernel variant."""
    printer = Printer(kernel, form)
    printer.entry()
    body = "\n".join(printer.lines)
    helpers = numba_helpers.source(numba_helpers.names_in(body))
    text = f"{helpers}\n\ndef NAME(meta, scalars):\n{body}\n".lstrip()
    return named_source("numba", text, printer.rank, printer.arrays, kernel, is_exact(kernel))


class Printer(LoopText):
    """The statements of one text."""

    def __init__(self, kernel: Kernel, form: KernelVariant) -> None:
        super().__init__(kernel, form)
        self.values = NumbaValues(kernel)
        self.independent = interleave.statement(kernel)
        self.folds = [r for r, method in enumerate(form.methods) if method == "fold"]
        lanes_alone = not {"tree", "chain"} & set(form.methods)
        self.leafwise = leaf_sums.suits(kernel, form) and not self.only_pointers()
        self.block = LANES if lanes_alone else leaf_sums.LEAF if self.leafwise else RUN_BLOCK
        stores = range(self.first_store, self.first_target) if form.stream else range(0)
        self.streamed = [k for k in stores if form.classes[k] == "1"]
        self.gathered = self.strided() if form.core in ("map", "row") and not form.ragged else []

    # Text

    def open(self, text: str) -> None:
        self.line(text)
        self.depth += 1

    def close(self) -> None:
        self.depth -= 1

    def itemsize(self, array: int) -> int:
        return int(self.arrays[array][1:])

    # The parts of a program

    def entry(self) -> None:
        self.arguments()
        if self.flags:
            self.line("clear_flags()")
        if self.variant.needs_start:
            self.start_targets()
        self.loops(0)
        if self.streamed:
            self.line("fence_streaming_stores()")
        self.line(f"return {'test_flags()' if self.flags else 'int32(0)'}")

    def arguments(self) -> None:
        for at in range(self.variant.loops):
            self.line(f"n{at} = meta[{at}]")
        if self.variant.ragged:
            self.line(f"length = meta[{self.variant.loops}]")
            for at in range(self.variant.run):
                self.line(f"start{at} = meta[{self.variant.loops + 1 + at}]")
        if self.has_index:
            self.line(f"where_0 = meta[{self.position}]")
            for at in range(self.variant.loops):
                self.line(f"sw_{at} = meta[{self.position + 1 + at}]")
        for k in range(len(self.arrays)):
            self.array_arguments(k)
        for k, dtype in enumerate(self.kernel.scalars):
            self.line(f"x{k} = scalar_{dtype}(scalars, {k})")
        if self.variant.core == "row":
            self.buffers()
        for k in self.streamed:
            self.line(f"t{k} = local_{self.arrays[k]}({STREAMED})")
        for k in self.gathered:
            self.line(f"g{k} = local_{self.arrays[k]}({max(self.block, STREAMED)})")

    def array_arguments(self, k: int) -> None:
        first = self.rank + k * (1 + self.rank)
        self.line(f"a{k}_0 = meta[{first}]")
        for at in range(self.variant.loops):
            if self.moves(k, at):
                self.line(f"s{k}_{at} = meta[{first + 1 + at}] * {self.itemsize(k)}")
        if self.variant.classes[k] == "s":
            self.line(f"e{k} = meta[{first + 1 + self.last}]")

    def loops(self, at: int) -> None:
        """The loops around the core, from number `at` inwards, and the core."""
        if self.variant.core == "row" and at == self.variant.suffix:
            self.start_row()
        if at < self.outer:
            self.open(f"for i{at} in range(n{at}):")
            self.advance(at)
            self.loops(at + 1)
            self.close()
        else:
            {"map": self.flat, "column": self.flat, "row": self.row}[self.variant.core]()
        if self.variant.core == "row" and at == self.variant.suffix:
            self.end_row()

    def advance(self, at: int) -> None:
        for k in range(len(self.arrays)):
            step = f" + i{at} * s{k}_{at}" if self.moves(k, at) else ""
            self.line(f"a{k}_{at + 1} = a{k}_{at}{step}")
        if self.has_index:
            self.line(f"where_{at + 1} = where_{at} + i{at} * sw_{at}")

    # Targets that accumulate in memory

    def start_targets(self) -> None:
        depth = self.depth
        targets = range(self.first_target, len(self.arrays))
        for at in range(self.outer):
            if self.variant.outer[at]:
                for k in targets:
                    self.line(f"a{k}_{at + 1} = a{k}_{at}")
            else:
                self.open(f"for i{at} in range(n{at}):")
                for k in targets:
                    self.line(f"a{k}_{at + 1} = a{k}_{at} + i{at} * s{k}_{at}")
        for k in targets:
            self.line(f"p{k} = pointer_{self.arrays[k]}(a{k}_{self.outer})")
        place = dict.fromkeys(targets, "0")
        if self.variant.core == "column":
            self.open(f"for i in range(n{self.last}):")
            self.line(_INDEPENDENT)
            place = {k: self.offset(k) for k in targets}
        for r, each in enumerate(self.kernel.reductions):
            k = self.first_target + r
            self.line(f"p{k}[{place[k]}] = {stored(identity(each), each.dtype)}")
            if is_argument(each):
                k = value_target(self.kernel, r)
                self.line(f"p{k}[{place[k]}] = " + stored(identity(each, True), each.accumulator))
        self.depth = depth

    # The innermost loop

    def offset(self, k: int) -> str:
        return {"0": "0", "1": "i", "-": "-i", "s": f"i * e{k}"}[self.variant.classes[k]]

    def pointers(self, arrays: range, shift: dict[int, str]) -> None:
        for k in arrays:
            self.line(f"p{k} = pointer_{self.arrays[k]}(a{k}_{self.outer}{shift.get(k, '')})")
        for k in range(self.first_store):
            if self.variant.classes[k] == "0":
                self.line(f"h{k} = {load(f'p{k}', '0', self.arrays[k])}")

    def compute(self) -> None:
        """All values of one iteration, and the stores."""
        for k in range(self.first_store):
            if self.variant.classes[k] != "0":
                pointer, place = (
                    (f"p{k}", self.offset(k)) if k not in self.gathered else (f"g{k}", "i")
                )
                self.line(f"h{k} = {load(pointer, place, self.arrays[k])}")
        for text in self.values.statements():
            self.line(text)
        for k, store in enumerate(self.kernel.stores, self.first_store):
            value = self.values.cast(store.value, store.dtype)
            target = f"t{k}[i]" if k in self.streamed else f"p{k}[{self.offset(k)}]"
            self.line(f"{target} = {stored(value, store.dtype)}")

    def streams(self) -> None:
        """A map whose dense stores go past the caches, a buffer at a time."""
        self.open(f"for low in range(0, n{self.last}, {STREAMED}):")
        self.line(f"count = min({STREAMED}, n{self.last} - low)")
        every = range(len(self.arrays))
        self.pointers(
            every, {k: f" + low * s{k}_{self.last}" for k in every if self.moves(k, self.last)}
        )
        self.gather()
        self.open("for i in range(count):")
        self.line(self.independent)
        self.compute()
        self.close()
        for k in self.streamed:
            size = self.itemsize(k)
            self.line(f"stream(a{k}_{self.outer} + low * {size}, t{k}, count * {size})")
        self.close()

    def strided(self) -> list[int]:
        """Inputs that are copied into buffers before the computation.

        Compilers do not vectorise loops over such inputs where the processor gathers slowly.
        """
        found = [k for k in range(self.first_store) if self.variant.classes[k] == "s"]
        return found if len(found) <= GATHERED and cost(self.kernel) >= GATHER_COST else []

    def gather(self) -> None:
        """Copy `count` elements of each strided input into its buffer."""
        for k in self.gathered:
            self.open("for i in range(count):")
            self.line(_INDEPENDENT)
            self.line(f"g{k}[i] = p{k}[{self.offset(k)}]")
            self.close()

    def flat(self) -> None:
        """A map, or reductions into one target per iteration."""
        if self.streamed or (self.gathered and self.variant.core == "map"):
            self.streams()
            return
        self.pointers(range(len(self.arrays)), {})
        self.open(f"for i in range(n{self.last}):")
        self.line(self.independent)
        self.compute()
        for r, each in enumerate(self.kernel.reductions):
            k = self.first_target + r
            place = self.offset(k)
            value = self.values.cast(each.value, each.accumulator)
            if is_argument(each):
                v = value_target(self.kernel, r)
                self.line(f"w{r} = where_{self.outer} + i * sw_{self.last}")
                self.line(f"c{r} = {number(value, each)}")
                self.line(f"b{r} = {load(f'p{v}', self.offset(v), self.number_dtype(r))}")
                self.line(f"j{r} = p{k}[{place}]")
                self.line(f"take{r} = {expressions.best(each, f'c{r}', f'w{r}', f'b{r}', f'j{r}')}")
                self.line(f"p{v}[{self.offset(v)}] = c{r} if take{r} else b{r}")
                self.line(f"p{k}[{place}] = w{r} if take{r} else j{r}")
            else:
                before = load(f"p{k}", place, each.dtype)
                self.line(f"p{k}[{place}] = {stored(combined(each, before, value), each.dtype)}")
        self.close()

    def number_dtype(self, r: int) -> str:
        """The dtype in which an argmin or argmax compares: truth values as numbers."""
        dtype = self.kernel.reductions[r].accumulator
        return "u1" if dtype == "b1" else dtype

    # Rows

    def buffers(self) -> None:
        if self.leafwise:
            leaf_sums.buffers(self)
        for r, each in enumerate(self.kernel.reductions):
            if self.leafwise:
                pass
            elif self.variant.methods[r] != "scalar" and self.source_pointer(r) is None:
                dtype = self.number_dtype(r) if is_argument(each) else each.accumulator
                self.line(f"t{r} = local_{dtype}({self.block})")
            if is_argument(each):
                self.line(f"u{r} = local_i8({self.block})")
            if self.variant.methods[r] == "tree" and (self.variant.long or self.leafwise):
                self.line(f"left{r} = local_{each.accumulator}(64)")
        if self.variant.long or self.leafwise:
            self.line("right = local_i8(64)")
            self.line("side = local_i8(64)")

    def source_pointer(self, r: int) -> str | None:
        """The input that a pairwise sum may read directly, without a computation between.

        A kernel with stores buffers it, since a store may go to the input's memory.
        """
        each = self.kernel.reductions[r]
        direct = (
            self.variant.methods[r] == "tree"
            and not self.kernel.stores
            and not self.variant.ragged
            and each.value < self.first_store
            and self.variant.classes[each.value] == "1"
            and self.arrays[each.value] == each.accumulator
        )
        return f"p{each.value}" if direct else None

    def start_row(self) -> None:
        for r, each in enumerate(self.kernel.reductions):
            if self.variant.methods[r] == "tree":
                continue
            k = self.first_target + r
            if self.variant.methods[r] == "chain" and self.variant.needs_start:
                self.line(f"p{k} = pointer_{each.dtype}(a{k}_{self.variant.suffix})")
                self.line(f"acc{r} = {load(f'p{k}', '0', each.dtype)}")
            elif is_argument(each):
                self.line(f"acc{r} = {identity(each, True)}")
                self.line(f"pos{r} = {identity(each)}")
            else:
                self.line(f"acc{r} = {identity(each)}")

    def end_row(self) -> None:
        for r, each in enumerate(self.kernel.reductions):
            k = self.first_target + r
            self.line(f"p{k} = pointer_{each.dtype}(a{k}_{self.variant.suffix})")
            if is_argument(each):
                self.end_argument(r, k)
                continue
            value = f"acc{r}"
            if self.variant.methods[r] == "tree":
                value = combined(each, identity(each), value)
            elif self.variant.needs_start and self.variant.methods[r] != "chain":
                value = combined(each, load(f"p{k}", "0", each.dtype), value)
            self.line(f"p{k}[0] = {stored(value, each.dtype)}")

    def end_argument(self, r: int, k: int) -> None:
        each = self.kernel.reductions[r]
        v = value_target(self.kernel, r)
        self.line(f"p{v} = pointer_{self.number_dtype(r)}(a{v}_{self.variant.suffix})")
        if self.variant.needs_start:
            self.line(
                f"take{r} = {expressions.best(each, f'acc{r}', f'pos{r}', f'p{v}[0]', f'p{k}[0]')}"
            )
            self.open(f"if take{r}:")
        self.line(f"p{v}[0] = acc{r}")
        self.line(f"p{k}[0] = pos{r}")
        if self.variant.needs_start:
            self.close()

    def row(self) -> None:
        """Runs of the innermost loops, block by block, into the accumulators."""
        if self.variant.ragged:
            for at in range(self.variant.run):
                self.line(f"c{at} = start{at}")
        total = "length" if self.variant.ragged else f"n{self.last}"
        if self.leafwise:
            leaf_sums.start_row(self)
            self.walk_tree(total)
            leaf_sums.end_row(self)
            return
        if self.folds:
            self.line("lanes = 0")
        if self.variant.long and not self.only_pointers():
            self.walk_tree(total)
        elif "tree" in self.variant.methods:
            self.line("low = 0")
            self.line(f"count = {total}")
            self.fill()
            self.combine_block()
        else:
            self.open(f"for low in range(0, {total}, {self.block}):")
            self.line(f"count = min({self.block}, {total} - low)")
            self.fill()
            self.combine_block()
            if self.may_stop():
                self.open(f"if {' and '.join(self.decided('not '))}:")
                self.line("break")
                self.close()
            self.close()
        if self.folds:
            self.line("width = lanes")
            self.fold()

    def only_pointers(self) -> bool:
        """Whether every reduction sums an input directly from memory."""
        direct = all(self.source_pointer(r) for r in range(len(self.kernel.reductions)))
        return direct and not self.kernel.stores

    def walk_tree(self, total: str) -> None:
        """NumPy's pairwise tree above blocks, left to right, with a stack."""
        half = "(count - (count & 7)) >> 1" if self.is_complex_tree() else "(count >> 1) & ~7"
        trees = self.trees()
        self.line("top = 0")
        self.line("low = 0")
        self.line(f"count = {total}")
        self.open("while True:")
        self.open(f"while count > {self.block}:")
        self.line(f"half = {half}")
        self.line("right[top] = count - half")
        self.line("side[top] = 0")
        self.line("top += 1")
        self.line("count = half")
        self.close()
        self.fill()
        self.combine_block()
        self.line("low += count")
        self.open("while top > 0 and side[top - 1] == 1:")
        self.line("top -= 1")
        for r in trees:
            self.line(f"acc{r} = left{r}[top] + acc{r}")
        self.close()
        self.open("if top == 0:")
        self.line("break")
        self.close()
        for r in trees:
            self.line(f"left{r}[top - 1] = acc{r}")
        self.line("side[top - 1] = 1")
        self.line("count = right[top - 1]")
        self.close()

    def fill(self) -> None:
        """Evaluate elements [low, low + count) of the run into buffers; store the stores."""
        if not self.leafwise:
            self.start_lanes()
        moved = range(self.first_target)
        if not self.variant.ragged:
            shift = {k: f" + low * s{k}_{self.last}" for k in moved if self.moves(k, self.last)}
            self.pointers(moved, shift)
            self.gather()
            if self.leafwise:
                leaf_sums.leaf(self)
            elif not self.only_pointers():
                self.fill_loop("count", "i", "low + i")
            return
        last = self.variant.run - 1
        self.line("done = 0")
        self.open("while done < count:")
        self.line(f"piece = min(n{self.last} - c{last}, count - done)")
        shift = {
            k: "".join(
                f" + c{at} * s{k}_{self.outer + at}"
                for at in range(self.variant.run)
                if self.moves(k, self.outer + at)
            )
            for k in moved
        }
        self.pointers(moved, shift)
        if self.has_index:
            terms = "".join(f" + c{at} * sw_{self.outer + at}" for at in range(self.variant.run))
            self.line(f"here = where_{self.outer}{terms}")
        self.fill_loop("piece", "done + i", "")
        self.line("done += piece")
        self.line(f"c{last} += piece")
        for at in range(last, 0, -1):
            self.open(f"if c{at} == n{self.outer + at}:")
            self.line(f"c{at} = 0")
            self.line(f"c{at - 1} += 1")
        self.depth -= last
        self.close()

    def fill_loop(self, count: str, slot: str, along: str) -> None:
        self.open(f"for i in range({count}):")
        self.line(self.independent)
        self.compute()
        for r, each in enumerate(self.kernel.reductions):
            value = self.values.cast(each.value, each.accumulator)
            if self.variant.methods[r] == "scalar":
                self.line(f"acc{r} = {combined(each, f'acc{r}', value)}")
                continue
            if is_argument(each):
                here = f"where_{self.outer} + ({along}) * sw_{self.last}"
                if not along:
                    here = f"here + i * sw_{self.last}"
                lane = f"t{r}[{slot}]", f"u{r}[{slot}]"
                self.line(f"w{r}, c{r} = {here}, {number(value, each)}")
                beats = expressions.best(each, f"c{r}", f"w{r}", *lane)
                if self.in_order(r):  # a later position never wins a tie
                    beats = expressions.better(each, f"c{r}", lane[0])
                self.line(f"take{r} = {beats}")
                self.line(f"{lane[0]} = c{r} if take{r} else {lane[0]}")
                self.line(f"{lane[1]} = w{r} if take{r} else {lane[1]}")
                continue
            if self.variant.methods[r] == "fold":
                before = load(f"t{r}", slot, each.accumulator)
                self.line(
                    f"t{r}[{slot}] = {stored(combined(each, before, value), each.accumulator)}"
                )
                continue
            if self.source_pointer(r) is None:
                self.line(f"t{r}[{slot}] = {stored(value, each.accumulator)}")
        self.close()

    def combine_block(self) -> None:
        if self.leafwise:
            return
        combine = {"tree": self.combine_tree, "chain": self.combine_chain}
        for r, method in enumerate(self.variant.methods):
            if method in combine:  # the others are combined while the values are computed
                combine[method](r)

    def combine_tree(self, r: int) -> None:
        dtype = self.kernel.reductions[r].accumulator
        self.line(f"acc{r} = pairwise_{dtype}({self.source_pointer(r) or f't{r}'}, count)")

    def combine_chain(self, r: int) -> None:
        each = self.kernel.reductions[r]
        self.open("for i in range(count):")
        self.line(f"acc{r} = {combined(each, f'acc{r}', load(f't{r}', 'i', each.accumulator))}")
        self.close()

    def in_order(self, r: int) -> bool:
        """Whether a lane meets real numbers in the order of their positions, knowing the first."""
        return not self.variant.ragged and self.kernel.reductions[r].accumulator[0] != "c"

    def start_lanes(self) -> None:
        """Initialise the lanes that this run uses for the first time."""
        if not self.folds:
            return
        self.open("for i in range(lanes, count):")
        self.line(_INDEPENDENT)
        for r in self.folds:
            each = self.kernel.reductions[r]
            if is_argument(each):
                self.line(f"t{r}[i] = {identity(each, True)}")
                first = f"where_{self.outer} + (low + i) * sw_{self.last}"
                self.line(f"u{r}[i] = {first if self.in_order(r) else identity(each)}")
            else:
                self.line(f"t{r}[i] = {stored(identity(each), each.accumulator)}")
        self.close()
        self.line("lanes = max(lanes, count)")

    def fold(self) -> None:
        """Halve the lanes until one remains: every step is a map, and so vectorises."""
        self.open("while width > 1:")
        self.line("half = width >> 1")
        self.line("rest = width - half")
        self.open("for i in range(half):")
        self.line(_INDEPENDENT)
        for r in self.folds:
            each = self.kernel.reductions[r]
            if is_argument(each):
                self.line(f"b{r}, j{r} = t{r}[rest + i], u{r}[rest + i]")
                self.line(
                    f"take{r} = {expressions.best(each, f'b{r}', f'j{r}', f't{r}[i]', f'u{r}[i]')}"
                )
                self.line(f"t{r}[i] = b{r} if take{r} else t{r}[i]")
                self.line(f"u{r}[i] = j{r} if take{r} else u{r}[i]")
                continue
            first = load(f"t{r}", "i", each.accumulator)
            second = load(f"t{r}", "rest + i", each.accumulator)
            self.line(f"t{r}[i] = {stored(combined(each, first, second), each.accumulator)}")
        self.close()
        self.line("width = rest")
        self.close()
        for r in self.folds:
            each = self.kernel.reductions[r]
            if is_argument(each):
                self.open(
                    f"if {expressions.best(each, f't{r}[0]', f'u{r}[0]', f'acc{r}', f'pos{r}')}:"
                )
                self.line(f"acc{r} = t{r}[0]")
                self.line(f"pos{r} = u{r}[0]")
                self.close()
            else:
                last = load(f"t{r}", "0", each.accumulator)
                self.line(f"acc{r} = {combined(each, f'acc{r}', last)}")
