"""The printer for reductions of language "opencl-grid": work-items that share results.

A task is a block of results and a segment of their elements. All items of a group meet the same
barriers: loops around barriers run equally often for all of them, and items without work pass
through. Besides loop sizes a chunk has: the start of its segment, its length, whether nodes
at the depth of the leaves may be two leaves (2) or not (1), the levels of the tree, and, for argmin
and argmax, how far each loop moves the position.
"""

from __future__ import annotations

from lazyfuse.codegen.lowering.kernel import Kernel, Reduce, is_argument
from lazyfuse.codegen.lowering.variant import value_target
from lazyfuse.codegen.opencl import raised_words
from lazyfuse.codegen.opencl.expressions import best, c_type, combined, identity
from lazyfuse.codegen.opencl.grid_sizes import EXTRA
from lazyfuse.codegen.opencl.grid_text import GridText, GridVariant, leaf_size, tree_lanes
from lazyfuse.codegen.opencl.reduce_step import joined, not_finite
from lazyfuse.codegen.opencl.text import assign, element
from lazyfuse.devices.base import Source


def print_reduction(kernel: Kernel, form: GridVariant) -> Source:
    """The program text of a kernel with reductions."""
    printer = ReductionPrinter(kernel, form)
    printer.entry()
    return printer.source(printer.rank)


class ReductionPrinter(GridText):
    """Writes one program."""

    def __init__(self, kernel: Kernel, form: GridVariant) -> None:
        super().__init__(kernel, form)
        self.has_index = self.counts_positions()
        self.rank = form.loops + EXTRA + (form.run if self.has_index else 0)
        self.teams = form.group // form.lanes
        self.trees, self.chains, self.frees, self.joined = (
            [r for r, method in enumerate(form.methods) if method == wanted]
            for wanted in ("tree", "chain", "free", "joined")
        )
        self.rounds = max(1, (1 << form.depth) // form.lanes)  # of joined partial results
        self.leaf = leaf_size(form.complex_tree)
        self.leaf_lanes = tree_lanes(form.complex_tree)

    def counts_positions(self) -> bool:
        """Whether an element's position follows from the loops, for argmin and argmax."""
        return any(is_argument(each) for each in self.kernel.reductions)

    def where(self, r: int) -> str:
        """The position of the current element."""
        return "where"

    def reduction(self, r: int) -> Reduce:
        return self.kernel.reductions[r]

    def stepped(self, r: int, first: str, second: str) -> str:
        raised = raised_words.of_reduction(r)
        return joined(self.reduction(r), first, second, f"&{raised}")

    def kind(self, r: int) -> str:
        return c_type(self.kernel.reductions[r].accumulator)

    # The parts of a program

    def entry(self) -> None:
        form = self.variant
        self.arguments(self.rank)
        self.local_memory()
        self.line(f"const {self.index} item = get_local_id(0);")
        count = self.teams if form.interleaved else form.lanes
        names = ("lane", "team") if form.interleaved else ("team", "lane")
        self.line(f"const {self.index} {names[0]} = item / {count}, {names[1]} = item % {count};")
        for at in range(form.loops):
            self.line(f"const {self.index} n{at} = rows[{at}];")
        if self.has_index:
            for at in range(form.run):
                self.line(f"const long move{at} = rows[{form.loops + EXTRA + at}];")
        results = " * ".join(f"n{at}" for at in range(form.outer)) or "1"
        self.line(f"const {self.index} results = {results};")
        self.line(f"const {self.index} blocks = (results + {self.teams - 1}) / {self.teams};")
        self.line("const long tasks = chunks * blocks;")
        self.open("for (long task = get_group_id(0); task < tasks; task += get_num_groups(0))")
        self.task()
        self.close()
        self.finish()

    def local_memory(self) -> None:
        """One buffer per dtype, which reductions share over time, and the sums of leaves."""
        shared = [r for r in range(len(self.variant.methods)) if self.uses_buffer(r)]
        for dtype in dict.fromkeys(self.reduction(r).accumulator for r in shared):
            self.line(f"__local {c_type(dtype)} t_{dtype}[{self.variant.group}];")
        if any(is_argument(self.reduction(r)) for r in shared):
            self.line(f"__local long t_where[{self.variant.group}];")
        for dtype in dict.fromkeys(self.reduction(r).accumulator for r in self.trees):
            self.line(f"__local {c_type(dtype)} u_{dtype}[{self.variant.group}];")
        for r in self.trees:
            self.line(f"__local {self.kind(r)} lead{r}[{self.teams << self.variant.depth}];")
        for r in self.joined:
            self.line(f"__local {self.kind(r)} lead{r}[{self.teams * self.rounds}];")

    def uses_buffer(self, r: int) -> bool:
        return self.variant.lanes > 1 or r in self.trees

    def buffer(self, r: int) -> str:
        return f"t_{self.reduction(r).accumulator}"

    def task(self) -> None:
        """One block of results over one segment."""
        form = self.variant
        width = self.rank + len(self.arrays)
        self.line(f"__global const long *row = rows + task / blocks * {width};")
        for at, name in enumerate(("low", "length", "parts", "levels")):
            if at < 2 or self.trees:
                self.line(f"const {self.index} {name} = row[{form.loops + at}];")
        self.line(f"const {self.index} result = (task % blocks) * {self.teams} + team;")
        self.line(f"const {self.index} count = result < results ? length : 0;")
        for k in range(len(self.arrays)):
            self.pointer(k, f"row[{self.rank + k}]")
        names = [f"r{at}" for at in range(form.outer)]
        self.unravel("result", [f"n{at}" for at in range(form.outer)], names)
        for k in range(len(self.arrays)):
            place = self.offset(k, list(enumerate(names)))
            self.line(f"const {self.index} w{k} = {place};")
        for r in (*self.chains, *self.joined, *self.frees):
            each = self.reduction(r)
            if is_argument(each):
                self.line(f"{self.kind(r)} acc{r} = {identity(each, True)};")
                self.line(f"long pos{r} = {identity(each)};")
            else:
                self.line(f"{self.kind(r)} acc{r} = {identity(each)};")
        if self.trees:
            self.walk_leaves()
            self.join_leaves()
        elif self.joined:
            self.walk_joined()
        elif self.chains and form.lanes > 1:
            self.walk_in_step()
        else:
            self.open(f"for ({self.index} j = lane; j < count; j += {form.lanes})")
            self.compute("low + j")
            for r in (*self.chains, *self.frees):
                self.combine(r)
            self.close()
        if form.lanes > 1:
            for r in self.frees:
                self.join_lanes(r)
        self.open("if (lane == 0 && count > 0)")
        for r in range(len(form.methods)):
            self.write(r)
        self.close()

    def compute(self, position: str) -> None:
        """The values of the element at a position of the run, and the stores."""
        form = self.variant
        sizes = [f"n{form.outer + at}" for at in range(form.run)]
        counters = [f"c{at}" for at in range(form.run)]
        self.line(f"const {self.index} here = {position};")
        self.unravel("here", sizes, counters)
        loops = list(enumerate(counters, form.outer))
        inputs = []
        for k in range(self.first_store):
            inputs.append(f"h{k}")
            value = element(f"p{k}", f"w{k} + {self.offset(k, loops)}", self.arrays[k])
            self.line(f"const {c_type(self.arrays[k])} h{k} = {value};")
        stores = [f"y{k}" for k in range(len(self.kernel.stores))]
        for k, name in enumerate(stores):
            self.line(f"{c_type(self.kernel.stores[k].dtype)} {name};")
        reduced = [f"q{r}" for r in range(len(form.methods))]
        for r, name in enumerate(reduced):
            self.line(f"{self.kind(r)} {name};")
        self.call_element(inputs, stores + reduced)
        for k, name in enumerate(stores, self.first_store):
            place = f"w{k} + {self.offset(k, loops)}"
            self.line(assign(f"p{k}", place, name, self.arrays[k]))
        if self.has_index:
            terms = " + ".join(f"{name} * move{at}" for at, name in enumerate(counters))
            self.line(f"const long where = {terms};")

    def combine(self, r: int) -> None:
        """Take an element into an accumulator."""
        self.take(r, f"q{r}", self.where(r), f"acc{r}", f"pos{r}")

    def take(self, r: int, value: str, place: str, best_value: str, best_place: str) -> None:
        each = self.reduction(r)
        if is_argument(each):
            self.open(f"if ({best(each, value, place, best_value, best_place)})")
            self.line(f"{best_value} = {value};")
            self.line(f"{best_place} = {place};")
            self.close()
        else:
            self.line(f"{best_value} = {self.stepped(r, best_value, value)};")

    # Lanes

    def slot(self, lane: str) -> str:
        """The index of a lane of the work-item's team in a buffer."""
        if self.variant.interleaved:
            return f"{lane} * {self.teams} + team"
        return f"team * {self.variant.lanes} + {lane}"

    def walk_in_step(self) -> None:
        """All lanes compute an element each, then the first combines them in their order."""
        lanes = self.variant.lanes
        self.open(f"for ({self.index} base = 0; base < length; base += {lanes})")
        self.each_lanes("base + lane", self.chains)
        for r in self.chains:
            self.line(f"{self.buffer(r)}[item] = found{r};")
            self.barrier()
            self.open("if (lane == 0)")
            self.line(f"const {self.index} left = min(count - base, ({self.index}){lanes});")
            self.combine_chain(r, f"{self.buffer(r)}[{self.slot('k')}]")
            self.close()
            self.barrier()
        self.close()

    def each_lanes(self, place: str, ordered: list[int]) -> None:
        """Compute the element at `place`, which the ordered reductions have as `found`."""
        self.line(f"const {self.index} j = {place};")
        for r in ordered:
            self.line(f"{self.kind(r)} found{r} = {identity(self.reduction(r))};")
        self.open("if (j < count)")
        self.compute("low + j")
        for r in self.frees:
            self.combine(r)
        for r in ordered:
            self.line(f"found{r} = q{r};")
        self.close()

    def combine_chain(self, r: int, value: str) -> None:
        """Elements one after the other; repeated if not finite, to find the exceptions."""
        each = self.reduction(r)
        self.line(f"{self.kind(r)} slow = acc{r};")
        self.line(f"for ({self.index} k = 0; k < left; k++)")
        self.line(f"    acc{r} = {combined(each, f'acc{r}', value)};")
        self.open(f"if ({not_finite(f'acc{r}', each.accumulator)})")
        self.line(f"for ({self.index} k = 0; k < left; k++)")
        self.line(f"    slow = {self.stepped(r, 'slow', value)};")
        self.close()

    def join_lanes(self, r: int) -> None:
        """A tree over the accumulators of a team, in any order."""
        each, t = self.reduction(r), self.buffer(r)
        step = self.teams if self.variant.interleaved else 1
        self.line(f"{t}[item] = acc{r};")
        if is_argument(each):
            self.line(f"t_where[item] = pos{r};")
        self.barrier()
        self.open(f"for (int width = {self.variant.lanes // 2}; width > 0; width /= 2)")
        self.open("if (lane < width)")
        self.line(f"const int other = item + width * {step};")
        self.take(r, f"{t}[other]", "t_where[other]", f"{t}[item]", "t_where[item]")
        self.close()
        self.barrier()
        self.close()
        self.line(f"acc{r} = {t}[item];")
        if is_argument(each):
            self.line(f"pos{r} = t_where[item];")

    # NumPy's tree

    def helpers(self) -> str:
        """The start and length of a node of the tree; length 0 where there is no such node."""
        if not self.trees:
            return ""
        return f"""
static inline {self.index}2 node({self.index} size, const int path, const int levels)
{{
    {self.index} start = 0;
    for (int level = levels - 1; level >= 0; level--) {{
        const int right = path >> level & 1;
        if (size > {self.leaf}) {{
            const {self.index} middle = {self.half("size")};
            start += right ? middle : 0;
            size = right ? size - middle : middle;
        }} else if (right) {{
            size = 0;
        }}
    }}
    return ({self.index}2)(start, size);
}}
"""

    def half(self, count: str) -> str:
        if self.variant.complex_tree:
            return f"({count} - {count} % 8) / 2"
        return f"{count} / 2 / 8 * 8"

    def walk_leaves(self) -> None:
        """Leaves of the tree, one per few lanes at a time; `lead` takes their sums."""
        at_once = self.variant.lanes // self.leaf_lanes
        self.line(f"const int sub = lane % {self.leaf_lanes};")
        self.open(f"for (int round = 0; round * {at_once} < 1 << levels; round++)")
        self.line(f"const int path = round * {at_once} + (int)lane / {self.leaf_lanes};")
        self.line(f"const {self.index} under = path >> levels ? 0 : count;")
        self.line(f"const {self.index}2 mine = node(under, path, levels);")
        for r in self.trees:
            self.line(f"{self.kind(r)} leaf{r} = 0;")
        self.open("for (int part = 0; part < parts; part++)")
        self.leaf_elements()
        for r in self.trees:
            self.sum_leaf(r)
        self.close()
        base = f"(team << {self.variant.depth}) + path"
        self.open("if (sub == 0 && mine.y > 0)")
        for r in self.trees:
            self.line(f"lead{r}[{base}] = leaf{r};")
        self.close()
        self.close()
        self.barrier()

    def leaf_elements(self) -> None:
        """Add a lane's elements of a leaf to one accumulator; keep the remainder separate."""
        self.line(f"{self.index} first = low + mine.x, size = part ? 0 : mine.y;")
        self.open(f"if (mine.y > {self.leaf})")
        self.line(f"const {self.index} middle = {self.half('mine.y')};")
        self.line("first += part ? middle : 0;")
        self.line("size = part ? mine.y - middle : middle;")
        self.close()
        self.line(f"const {self.index} whole = size - size % {self.leaf_lanes};")
        for r in self.trees:
            zero = f"({self.kind(r)})(-0.0)"
            self.line(f"{self.kind(r)} sum{r} = {zero}, rest{r} = {zero};")
        self.open(f"for ({self.index} j = sub; j < size; j += {self.leaf_lanes})")
        self.compute("first + j")
        for r in self.frees:
            self.combine(r)
        self.open("if (j < whole)")
        for r in self.trees:
            self.line(f"sum{r} = {self.stepped(r, f'sum{r}', f'q{r}')};")
        self.depth -= 1
        self.open("} else")
        for r in self.trees:
            self.line(f"rest{r} = q{r};")
        self.close()
        self.close()

    def sum_leaf(self, r: int) -> None:
        """NumPy's order for one leaf: pairs of accumulators, then the remaining elements."""
        each = self.reduction(r)
        t, u = self.buffer(r), f"u_{each.accumulator}"
        self.line(f"{t}[item] = sum{r};")
        self.line(f"{u}[item] = rest{r};")
        self.barrier()
        self.open("if (sub == 0 && size > 0)")
        terms = [f"{t}[item + {lane}]" for lane in range(self.leaf_lanes)]
        while len(terms) > 1:
            pairs = zip(terms[::2], terms[1::2], strict=True)
            terms = [self.stepped(r, first, second) for first, second in pairs]
        self.line(f"{self.kind(r)} total = {terms[0]};")
        self.open(f"for ({self.index} k = whole; k < size; k++)")
        self.line(f"total = {self.stepped(r, 'total', f'{u}[item + k - whole]')};")
        self.close()
        self.line(f"leaf{r} = part ? {self.stepped(r, f'leaf{r}', 'total')} : total;")
        self.close()
        self.barrier()

    def join_leaves(self) -> None:
        """The tree above the leaves, level by level; a node's sum goes to its first leaf's slot."""
        depth = self.variant.depth
        if not depth:
            return
        self.open("for (int level = levels - 1; level >= 0; level--)")
        self.open(f"for (int path = lane; path < 1 << level; path += {self.variant.lanes})")
        self.open(f"if (node(count, path, level).y > {self.leaf})")
        self.line(f"const int left = (team << {depth}) + (path << (levels - level));")
        self.line("const int right = left + (1 << (levels - 1 - level));")
        for r in self.trees:
            total = self.stepped(r, f"lead{r}[left]", f"lead{r}[right]")
            self.line(f"lead{r}[left] = {total};")
        self.close()
        self.close()
        self.barrier()
        self.close()

    # Partial results: nodes of one depth

    def walk_joined(self) -> None:
        """A regular tree over neighbours; slower axes than the tree's are added in order."""
        lanes, rounds = self.variant.lanes, self.rounds
        self.open(f"for ({self.index} base = 0; base < length; base += {1 << self.variant.depth})")
        self.open(f"for (int round = 0; round < {rounds}; round++)")
        self.each_lanes(f"base + round * {lanes} + lane", self.joined)
        for r in self.joined:
            t = self.buffer(r)
            self.line(f"{t}[item] = found{r};")
            self.barrier()
            self.open(f"for (int width = 1; width < {lanes}; width *= 2)")
            self.open("if (lane % (2 * width) == 0)")
            joined = self.stepped(r, f"{t}[item]", f"{t}[item + width]")
            self.line(f"{t}[item] = {joined};")
            self.close()
            self.barrier()
            self.close()
            self.open("if (lane == 0)")
            self.line(f"lead{r}[team * {rounds} + round] = {t}[item];")
            self.close()
        self.close()
        self.barrier()
        for r in self.joined:
            self.join_rounds(r)
        self.close()

    def join_rounds(self, r: int) -> None:
        """The levels of a regular tree above what all lanes join at once."""
        lanes, rounds = self.variant.lanes, self.rounds
        self.open(f"for (int width = 1; width < {rounds}; width *= 2)")
        step = f"{lanes} * 2 * width"
        self.open(f"for (int k = lane * 2 * width; k < {rounds}; k += {step})")
        total = self.stepped(r, f"lead{r}[k]", f"lead{r}[k + width]")
        self.line(f"lead{r}[k] = {total};")  # only a single team has several rounds
        self.close()
        self.barrier()
        self.close()
        self.open("if (lane == 0 && base < count)")
        self.line(f"acc{r} = {self.stepped(r, f'acc{r}', f'lead{r}[team * {rounds}]')};")
        self.close()

    # Results

    def write(self, r: int) -> None:
        each, k = self.reduction(r), self.first_target + r
        value = f"acc{r}"
        if r in self.trees:
            value = self.stepped(r, identity(each), f"lead{r}[team << {self.variant.depth}]")
        if is_argument(each):
            v = value_target(self.kernel, r)
            self.line(assign(f"p{v}", f"w{v}", value, each.accumulator))
            value = f"pos{r}"
        self.line(assign(f"p{k}", f"w{k}", value, each.dtype))
