"""Chains: kernels in a row that may run tile by tile, because they share an axis that none reduces.

A tile is a segment of that axis. All kernels of a chain run on one tile before the next tile
begins, so what one kernel passes to the next is still in a cache, and a value that dies inside the
chain never exists as a whole. Owns `Chain` and the search for chains in a plan's ordered steps, by
structure alone; lazyfuse/runtime/execution/tiled_run.py looks at sizes and decides whether it pays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeGuard

from lazyfuse.codegen.graph.linearize import Graph, Value
from lazyfuse.codegen.graph.node import Shape
from lazyfuse.codegen.table import ops
from lazyfuse.devices.dataclass import dataclass

if TYPE_CHECKING:
    from lazyfuse.codegen.plan.plan import KernelStep, SingleStep, Step

# Steps that one chain may hold: each adds streams that should stay in the cache.
LONGEST = 24
# Steps that a search may put in front of the chain that it extends.
SKIPPED = 32

Places = tuple[int | None, ...]
Rule = Callable[[tuple[Shape, ...], Shape, Places], int | None]

TILED: dict[str, Rule] = {}
"""Host calls that also work on tiles, by name: (shapes of the sources, shape of the result, the
tiled axis of each source) -> the tiled axis of the result, None if it cannot be tiled."""

PRODUCTS: dict[str, Callable[[Sequence[Value]], bool]] = {}
"""Products of matrices, by name of operation or host call: whether rows can be tiles."""


@dataclass(frozen=True)
class Tiling:
    """One way to tile a chain: which axis of each value is cut into segments."""

    size_of: tuple[int, int]  # a value and the axis of it whose size is that of the tiled axis
    kernels: tuple[int, ...]  # for each step, the axis of its domain (of its result, for others)
    axis_of: dict[int, int | None]  # for each value read or made, its axis; None: it has none


@dataclass
class Chain:
    """Steps `first` to `first + len(steps)` of a plan, and what flows between them."""

    first: int
    steps: tuple[Step, ...]
    tilings: tuple[Tiling, ...]
    loads: tuple[int, ...]  # values that exist before it and that its tiles read
    kept: tuple[int, ...]  # values that it makes and that are read after it
    inner: tuple[int, ...]  # values that exist for one tile at a time
    views: tuple[int, ...]  # views among the steps that are read after it
    uses: int = 0  # how often it could have run with its programs compiled
    failures: int = 0  # runs in a row that raised floating-point exceptions
    backoff: int = 0  # runs until the next try
    bound: dict[Any, Any] = field(default_factory=dict)  # by geometry
    domain_elements: dict[Any, int] = field(
        default_factory=dict
    )  # by sizes: `KernelStep.domain_elements`
    why: str = ""  # the last reason against running it by tiles
    kernels: tuple[KernelStep, ...] = ()
    parts: tuple[Chain, ...] = ()  # shorter chains without products, for use where NumPy multiplies
    parent: Chain | None = None  # the chain that this is a part of

    def __post_init__(self) -> None:
        self.kernels = tuple(step for step in self.steps if _is_kernel(step))


def _is_kernel(step: Step) -> TypeGuard[KernelStep]:
    return hasattr(step, "kernel")


def arrange(
    steps: list[Step], graph: Graph, everything: Sequence[Step] = ()
) -> tuple[list[Step], tuple[Chain, ...]]:
    """The steps reordered so that those of each chain are adjacent, and the chains.

    `everything`: all steps of the plan, where `steps` are some of them.
    """
    everything = everything or steps
    found: list[Step] = []
    chains: list[Chain] = []
    rest = list(steps)
    while rest:
        best = _longest(rest, graph) if _may_begin(rest[0], graph) else None
        if best is None:
            found.append(rest.pop(0))
            continue
        members, tilings = best
        inside = set(members)
        before = [rest[at] for at in range(max(members)) if at not in inside]
        after = [step for at, step in enumerate(rest) if at > max(members)]
        if before:  # the steps in front may have their own chains
            moved, earlier = arrange(before, graph, everything)
            for each in earlier:
                for moved_chain in (each, *each.parts):
                    moved_chain.first += len(found)
            found += moved
            chains += earlier
        chains.append(_chain(len(found), [rest[at] for at in members], tilings, everything, graph))
        chains[-1].parts = tuple(_parts(chains[-1], everything, graph))
        found += chains[-1].steps
        rest = after
    return found, tuple(chains)


def _parts(chain: Chain, everything: Sequence[Step], graph: Graph) -> Iterator[Chain]:
    """The chains among the steps of a chain that need no product of matrices."""
    steps, at = list(chain.steps), 0
    if not any(is_product(step, graph) for step in steps):
        return
    while at < len(steps):
        first, best = steps[at], None
        if _is_kernel(first) and _may_begin(first, graph):
            best = _longest(steps[at:], graph, products=False)
        if best is None or best[0] != list(range(len(best[0]))):
            at += 1
            continue
        end = at + len(best[0])
        part = _chain(chain.first + at, steps[at:end], best[1], everything, graph)
        part.parent = chain
        yield part
        at = end


def is_product(step: Step, graph: Graph) -> bool:
    """Whether a step multiplies matrices, so that some of its rows can be a tile."""
    if _is_kernel(step):
        return False
    value = graph.values[step.writes[0]]
    rule = PRODUCTS.get(value.arg.name if value.op is ops.HOST else value.op.name)
    if rule is None or not rule([graph.values[source] for source in value.src]):
        return False
    return not _is_by_transpose(value.src, graph)


def _is_by_transpose(sources: Sequence[int], graph: Graph) -> bool:
    """Whether a matrix is multiplied by its own transpose: BLAS computes half of the result."""
    for one, other in (sources, sources[::-1]):
        value = graph.values[other]
        if value.op is ops.VIEW and value.src[0] == one and value.axes == (1, 0):
            return True
    return False


def multiplies_rows(chain: Chain, graph: Graph) -> bool:
    """Whether the tiles of a chain are rows of matrices that it multiplies."""
    products = [step.writes[0] for step in chain.steps if is_product(step, graph)]
    return any(len(graph.values[index].shape) == 2 for index in products)


def _may_begin(step: Step, graph: Graph) -> bool:
    return not step.targets if _is_kernel(step) else is_product(step, graph)


def _longest(
    steps: list[Step], graph: Graph, products: bool = True
) -> tuple[list[int], list[Tiling]] | None:
    """The positions of the longest chain that begins with the first step, and how to tile it."""
    first = steps[0]
    domain = graph.values[first.domain_of if _is_kernel(first) else first.writes[0]].shape
    found: list[tuple[list[int], Tiling]] = []
    for axis in range(len(domain)):
        search = _Search(graph, axis, domain, products)
        if search.run(steps):
            found.append((search.members, search.tiling()))
    if not found:
        return None
    longest = max((members for members, _ in found), key=len)
    return longest, [tiling for members, tiling in found if members == longest]


class _Search:
    """One try: as many steps as possible that agree with the first step's axis."""

    def __init__(self, graph: Graph, axis: int, domain: Shape, products: bool) -> None:
        self.graph = graph
        self.products = products  # whether products of matrices may join
        self.axis = axis
        self.rank = len(domain)
        self.size = domain[axis]
        self.axis_of: dict[int, int | None] = {}
        self.made: set[int] = set()
        self.members: list[int] = []
        self.axes: list[int] = []
        self.size_of = (-1, 0)

    def run(self, steps: list[Step]) -> bool:
        """Whether there is a chain of at least two steps, where one reads from another.

        Only kernels and products of matrices count as steps, and at least one is a kernel.
        """
        if self.size == 1:
            return False
        kernels = skipped = products = 0
        linked = False
        for at, step in enumerate(steps):
            if kernels + skipped >= LONGEST + SKIPPED or len(self.members) >= LONGEST:
                break
            reads_chain = not self.made.isdisjoint(step.reads)
            if _is_kernel(step):
                if step.targets:
                    break
                joins = self.kernel(step)
                kernels += joins
                linked = linked or (joins and reads_chain)
            elif is_product(step, self.graph):
                joins = self.products and (reads_chain or at == 0) and self.product(step)
                products += joins
                linked = linked or (joins and reads_chain)
            elif _is_barrier(step, self.graph):  # type: ignore[arg-type]
                break
            else:
                joins = reads_chain and self.single(step)  # type: ignore[arg-type]
                linked = linked or joins
            if joins:
                self.members.append(at)
            elif reads_chain or at == 0:
                break
            else:
                skipped += 1
        while self.members and not _is_kernel(steps[self.members[-1]]):
            if self.graph.values[steps[self.members[-1]].writes[0]].op is not ops.VIEW:
                break
            self.drop_last(steps)
        return kernels > 0 and kernels + products > 1 and linked

    def drop_last(self, steps: list[Step]) -> None:
        """Drop a view at the end, which can be made after the chain."""
        made = steps[self.members.pop()].writes[0]
        self.axes.pop()
        self.made.discard(made)
        self.axis_of.pop(made, None)

    def tiling(self) -> Tiling:
        return Tiling(self.size_of, tuple(self.axes), dict(self.axis_of))

    def kernel(self, step: KernelStep) -> bool:
        """Add a kernel, if its operands agree with the tiles."""
        if self.graph.reads_moves(step.inputs):
            return False
        domain = self.graph.values[step.domain_of].shape
        rank = len(domain)
        axes = {self.axis_of[i] + rank - self.rank_of(i) for i in step.inputs if i in self.made}  # type: ignore[operator]
        if not self.made.isdisjoint(step.scalars) or len(axes) > 1:
            return False
        if not axes and (rank != self.rank or step.kernel.rank != rank):
            return False
        axis = axes.pop() if axes else self.axis
        if not 0 <= axis < rank or domain[axis] != self.size:
            return False
        reduced = step.kernel.reduced
        if reduced and reduced[axis]:
            return False
        places: dict[int, int | None] = {}
        for index in step.inputs:
            places[index] = self.aligned(index, axis - rank + self.rank_of(index))
            if self.axis_of.get(index, places[index]) != places[index]:
                return False  # another kernel of the chain reads it along another axis
        for index in step.stores:
            places[index] = axis
        for index in step.reductions:
            own = self.rank_of(index)
            places[index] = axis if own == rank else axis - sum(reduced[:axis])
            if self.graph.values[index].shape[places[index]] != self.size:  # type: ignore[index]
                return False
        self.axis_of |= places
        self.made.update(step.stores, step.reductions)
        self.axes.append(axis)
        if self.size_of[0] < 0:
            self.size_of = step.domain_of, axis
        return True

    def product(self, step: Step) -> bool:
        """Add a product: rows of the first operand are tiled, or both operands' stacks."""
        index = step.writes[0]
        left, right = self.graph.values[index].src
        axis = self.axis_of[left] if left in self.made else self.axis
        if axis != 0 or self.graph.values[index].shape[0] != self.size:
            return False
        stacks = self.rank_of(right) > 2
        cut = 0 if stacks else None  # read as a whole, so the chain must not make it
        if (right in self.made and not stacks) or (left == right and not stacks):
            return False
        if self.axis_of.get(left, 0) != 0 or self.axis_of.get(right, cut) != cut:
            return False
        self.axis_of |= {left: 0, right: cut, index: 0}
        self.made.add(index)
        self.axes.append(0)
        if self.size_of[0] < 0:
            self.size_of = index, 0
        return True

    def single(self, step: SingleStep) -> bool:
        """Add a view of a value of the chain, or a host call that works on tiles."""
        value = self.graph.values[step.index]
        if value.op is ops.VIEW:
            place = self.axis_of[value.src[0]]
            if value.axes is None or value.picks or place not in value.axes:
                return False
            at: int | None = value.axes.index(place)
        else:
            rule = TILED.get(value.arg.name) if value.op is ops.HOST else None
            if rule is None:
                return False
            shapes = tuple([self.graph.values[source].shape for source in value.src])
            at = rule(shapes, value.shape, tuple([self.axis_of.get(s) for s in value.src]))
        if at is None or value.shape[at] != self.size:
            return False
        for source in value.src:
            self.axis_of.setdefault(source, None)
        self.axis_of[step.index] = at
        self.made.add(step.index)
        self.axes.append(at)
        return True

    def aligned(self, index: int, place: int) -> int | None:
        """The axis of an operand that a tile cuts, if its position is `place`; None: broadcast."""
        if place < 0 or self.graph.values[index].shape[place] != self.size:
            return None
        return place

    def rank_of(self, index: int) -> int:
        return len(self.graph.values[index].shape)


def _is_barrier(step: SingleStep, graph: Graph) -> bool:
    """Whether no step may move past this one."""
    op = graph.values[step.index].op
    return op is ops.UPDATE or (op is ops.HOST and graph.values[step.index].arg.name not in TILED)


def _chain(
    first: int, members: list[Step], tilings: list[Tiling], steps: Sequence[Step], graph: Graph
) -> Chain:
    inside = {id(step) for step in members}
    made = {index for step in members for index in step.writes}
    read = {index for step in members for index in step.reads}
    values = graph.values
    later: set[int] = {index for index in made if values[index].output}
    for step in steps:
        if id(step) in inside:
            continue
        later.update(made.intersection(step.reads))
        for index in step.writes:
            if values[index].op is ops.UPDATE:
                later.update(made.intersection(values[index].src))
    views = sorted(index for index in later if values[index].op is ops.VIEW)
    for index in views:
        while values[index].op is ops.VIEW:
            index = values[index].src[0]
        later.add(index)
    scalars = {index for step in members if _is_kernel(step) for index in step.scalars}
    stored = {index for index in made if values[index].op is not ops.VIEW}
    return Chain(
        first,
        tuple(members),
        tuple(tilings),
        tuple(sorted(read - made - scalars)),
        tuple(sorted(stored & later)),
        tuple(sorted(stored - later)),
        tuple(views),
    )
