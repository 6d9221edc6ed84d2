"""Level 1: from a graph to a list of steps, once per structural key.

A plan names values by index and knows no size, stride, offset or scalar value. Owns `Plan` and the
step types. `cluster` decides what shares a kernel, `lifetimes` which updates happen in place.
"""

from __future__ import annotations

import heapq
import time
from dataclasses import field
from typing import Any

from lazyfuse.codegen.graph.linearize import Graph, Value
from lazyfuse.codegen.lowering.kernel import Instruction, Kernel, Reduce, Store, verify
from lazyfuse.codegen.lowering.lower import Lowered
from lazyfuse.codegen.plan.chains import Chain, arrange
from lazyfuse.codegen.plan.cluster import Clusters, Group, Limits, body, cluster
from lazyfuse.codegen.plan.lifetimes import Lifetimes, lifetimes, update_hazards
from lazyfuse.codegen.rewrite.passes import COPY, PASSES, drop_dead
from lazyfuse.codegen.rewrite.unroll_reductions import write_out
from lazyfuse.codegen.table import ops
from lazyfuse.devices.base import Program
from lazyfuse.devices.dataclass import dataclass

UNKNOWN = "unknown"
"""The value of fields that are computed at their first use."""


@dataclass
class KernelStep:
    """Run one kernel. `targets` maps a position in `stores` to the update that it feeds."""

    kernel: Kernel
    domain_of: int  # the value whose shape is the iteration domain
    inputs: tuple[int, ...]
    scalars: tuple[int, ...]
    stores: tuple[int, ...]
    reductions: tuple[int, ...]
    targets: dict[int, int]
    members: tuple[int, ...]  # values that it computes, in order: the body of the kernel
    cost: float
    may_reuse: bool = False  # whether an input dies here and may donate its buffer to a result
    selected: dict[Any, tuple[Lowered, Program | None]] = field(default_factory=dict)  # by geometry
    programs: dict[Any, Program] = field(default_factory=dict)  # by source
    slots: list[int] = field(default_factory=list)  # of its operations, if asked: flag_slots.py
    known: dict[Any, Any] = field(default_factory=dict)  # of its exceptions: known_exceptions.py
    uses: int = 0  # as blocked NumPy, of a size worth compiling
    domain_elements: int = 0  # elements of the largest domain of its chain, which decides its tier

    @property
    def reads(self) -> tuple[int, ...]:
        return self.inputs + self.scalars

    @property
    def writes(self) -> tuple[int, ...]:
        return self.stores + self.reductions + tuple(self.targets.values())

    @property
    def in_order(self) -> list[int]:
        """The values that it computes, reductions among them."""
        return sorted((*self.members, *self.reductions))


@dataclass
class SingleStep:
    """Run one value outside all kernels: a view, an update, a host call, a single element."""

    index: int
    reads: tuple[int, ...]

    @property
    def writes(self) -> tuple[int, ...]:
        return (self.index,)


Step = KernelStep | SingleStep


@dataclass
class Plan:
    """The steps and memory decisions for one structural key."""

    graph: Graph
    steps: list[Step]
    bound: tuple[int, ...]  # values that the recording provides: leaves and scalars
    outputs: tuple[int, ...]
    lifetimes: Lifetimes
    in_place: frozenset[int]  # updates after the last use of all earlier values of their memory
    refusals: list[tuple[int, int, str]]
    recorded: int  # operations before planning
    times: dict[str, float] = field(default_factory=dict)  # seconds per pass
    sizes: list[int] = field(default_factory=list)  # of the recording that it was made from
    choices: dict[Any, Any] = field(default_factory=dict)  # of a device, by class of sizes
    chains: tuple[Chain, ...] = ()  # steps that may run tile by tile
    replays: Any = UNKNOWN  # captured runs, by geometry; None: unsuitable
    costly: tuple[
        tuple[int, float], ...
    ] = ()  # values that recomputing may serve better: additions
    elisions: dict[Any, Any] = field(default_factory=dict)  # the memory of elision.py, by sizes
    fragments: bool = False  # whether a step before the last stores what is no node's value
    keeping: int = 1  # runs from now on that write over no operand of a kernel that may raise
    blocks: Any = None  # buffers that a run reserves at `sizes`: BufferPool.classes
    large_variant: Plan | None = (
        None  # its variant for arrays that no cache holds, from first use on
    )

    @property
    def kernels(self) -> list[KernelStep]:
        return [step for step in self.steps if type(step) is KernelStep]

    def forget(self) -> None:
        """Drop the programs, and what earlier runs bound for their sizes."""
        self.replays = UNKNOWN
        if self.large_variant is not None and self.large_variant is not self:
            self.large_variant.forget()
        for step in self.kernels:
            step.selected.clear()
            step.programs.clear()
        for chain in self.chains:
            chain.bound.clear()


def make_plan(graph: Graph, limits: Limits | None = None) -> Plan:
    """Run the passes, group the values, and order the steps."""
    times: dict[str, float] = {}
    recorded = sum(value.op not in (ops.LEAF, ops.SCALAR) for value in graph.values)
    for rewrite in PASSES:
        start = time.perf_counter()
        graph = rewrite(graph)
        name = rewrite.__name__
        times[name] = times.get(name, 0.0) + time.perf_counter() - start
    start = time.perf_counter()
    if limits is None or (limits.fusion and not limits.max_length):
        graph = drop_dead(write_out(graph))
    clusters = cluster(graph, limits)
    steps = order(_steps(graph, clusters), graph)
    chains: tuple[Chain, ...] = ()
    if limits is None or limits.fusion:
        steps, chains = arrange(steps, graph)
    times["cluster"] = time.perf_counter() - start
    bound = tuple(i for i, v in enumerate(graph.values) if v.op in (ops.LEAF, ops.SCALAR))
    outputs = tuple(i for i, value in enumerate(graph.values) if value.output)
    hazards = update_hazards(graph, steps)
    lives = lifetimes(graph, steps, outputs)
    for step, last in zip(steps, lives.last, strict=True):
        if type(step) is KernelStep:
            step.may_reuse = not step.reductions and not set(step.inputs).isdisjoint(last)
    updates = (i for i, value in enumerate(graph.values) if value.op is ops.UPDATE)
    inner = {index for chain in chains for index in chain.inner}  # these stay in a cache
    return Plan(
        graph,
        steps,
        bound,
        outputs,
        lives,
        frozenset(i for i in updates if i not in hazards),
        clusters.refusals,
        recorded,
        times,
        chains=chains,
        costly=tuple([each for each in clusters.costly if each[0] not in inner]),
        fragments=any(
            graph.values[index].derived
            for step in steps[:-1]
            if type(step) is KernelStep
            for index in step.writes
        ),
    )


def _steps(graph: Graph, clusters: Clusters) -> list[Step]:
    fed = _fused_updates(graph, clusters)
    steps: list[Step] = [
        _kernel_step(graph, g, clusters.materialised, fed) for g in clusters.groups
    ]
    targets = set(fed.values())
    alone = [index for index in clusters.alone if index not in targets]
    return steps + [SingleStep(index, graph.values[index].src) for index in alone]


def _fused_updates(graph: Graph, clusters: Clusters) -> dict[int, int]:
    """Stored values that can be written directly into the array that an update changes."""
    users = graph.consumers()
    groups = list(enumerate(clusters.groups))
    made = {o: (g.stage, at) for at, g in groups for o in g.stored + g.reductions}
    kernel = {o: at for at, group in enumerate(clusters.groups) for o in group.stored}
    fed: dict[int, int] = {}
    after: dict[int, int] = {}  # updates, and the kernel that makes them
    for index in clusters.alone:
        value = graph.values[index]
        if value.op is not ops.UPDATE:
            continue
        old, written = value.src
        source = graph.values[written]
        if written not in kernel or source.output:
            continue
        if users[written] != [index] and not _stays_inside(written, index, users, clusters):
            continue
        if source.shape != value.arg.shape:
            continue
        if (
            after.get(old) == kernel[written]  # another part of the same block: a join
            or _maker(old, graph, made) < made[written]
            or _is_filled(old, written, clusters, graph)
        ):
            fed[written] = index
            after[index] = kernel[written]
    return fed


def _is_filled(old: int, written: int, clusters: Clusters, graph: Graph) -> bool:
    """Whether a kernel that reads nothing makes the array that an update changes: it goes first."""
    group = next((g for g in clusters.groups if old in g.stored), None)
    if group is None or written in group.stored or group.reductions:
        return False
    return all(graph.values[made].op is ops.FULL for made in group.stored)


def _stays_inside(written: int, update: int, users: list[list[int]], clusters: Clusters) -> bool:
    """Whether only an update and the kernel that computes a value read it.

    Other kernels may recompute a reader in that kernel that is not stored; they then read the
    value.
    """
    if users[written].count(update) != 1:
        return False
    inside = next(
        set(g.members) | set(g.reductions) for g in clusters.groups if written in g.stored
    )
    waiting = [user for user in users[written] if user != update]
    seen = set(waiting)
    for user in waiting:
        if user not in inside:
            return False
        if user not in clusters.materialised:
            new = [further for further in users[user] if further not in seen]
            seen.update(new)
            waiting += new
    return True


def _maker(index: int, graph: Graph, made: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """The last kernel that a value waits for: its stage and its place among the groups.

    Edges between kernels lead from lower to higher pairs, so none that is added so closes a cycle.
    """
    last = (-1, -1)
    stack = [index]
    seen = set()
    while stack:
        at = stack.pop()
        if at in seen:
            continue
        seen.add(at)
        if at in made:
            last = max(last, made[at])
        else:
            stack += graph.values[at].src
    return last


def _kernel_step(
    graph: Graph, group: Group, materialised: set[int], fed: dict[int, int]
) -> KernelStep:
    values = graph.values
    outputs = group.stored + group.reductions
    computed, loaded = body(group, outputs, graph, materialised)
    inputs = [i for i in loaded if values[i].shape != ()]
    scalars = [i for i in loaded if values[i].shape == ()]
    number = {index: position for position, index in enumerate(inputs + scalars + computed)}
    instructions = tuple(_instruction(values[i], number) for i in computed)
    stores = tuple(Store(number[i], _name(values[i])) for i in group.stored)
    reductions = tuple(_reduce(values[i], number) for i in group.reductions)
    rank = len(group.domain)
    reduced = tuple(axis in group.axes for axis in range(rank)) if group.axes is not None else ()
    kernel = Kernel(
        rank,
        tuple(_name(values[i]) for i in inputs),
        tuple(_name(values[i]) for i in scalars),
        instructions,
        stores,
        reductions,
        reduced,
    )
    verify(kernel)
    targets = {p: fed[i] for p, i in enumerate(group.stored) if i in fed}
    anchor = values[group.reductions[0]].src[0] if group.reductions else group.stored[0]
    cost = sum(values[i].op.cost for i in computed) + len(reductions)
    return KernelStep(
        kernel,
        anchor,
        tuple(inputs),
        tuple(scalars),
        tuple(group.stored),
        tuple(group.reductions),
        targets,
        tuple(computed),
        cost,
    )


def _name(value: Value) -> str:
    return value.dtype.str[1:]


def _instruction(value: Value, number: dict[int, int]) -> Instruction:
    args = tuple(number[source] for source in value.src)
    if value.op is ops.FULL:
        name = _name(value)
        return Instruction(COPY.name, args, (name,), name)
    loop = value.arg
    return Instruction(value.op.name, args, tuple(d.str[1:] for d in loop.ins), loop.out.str[1:])


def _reduce(value: Value, number: dict[int, int]) -> Reduce:
    name = value.op.name.removesuffix(".reduce")
    return Reduce(name, number[value.src[0]], value.arg.accumulator.str[1:], _name(value))


def order(steps: list[Step], graph: Graph) -> list[Step]:
    """Topological order that writes into existing memory as late as possible."""
    producer = {index: at for at, step in enumerate(steps) for index in step.writes}
    waiting = [0] * len(steps)
    after: list[list[int]] = [[] for _ in steps]
    for at, step in enumerate(steps):
        reads = set(step.reads)
        if type(step) is KernelStep:
            reads |= {graph.values[u].src[0] for u in step.targets.values()}
        for before in {producer[r] for r in reads if r in producer} - {at}:
            after[before].append(at)
            waiting[at] += 1
    ready = [(_lateness(steps[at], graph), at) for at in range(len(steps)) if not waiting[at]]
    heapq.heapify(ready)
    found: list[Step] = []
    while ready:
        _, at = heapq.heappop(ready)
        found.append(steps[at])
        for next_at in after[at]:
            waiting[next_at] -= 1
            if not waiting[next_at]:
                heapq.heappush(ready, (_lateness(steps[next_at], graph), next_at))
    assert len(found) == len(steps), "a cycle between kernels"
    return found


def _lateness(step: Step, graph: Graph) -> int:
    """Kernels in order of their first value; updates of memory after everything else."""
    first = min(step.writes)
    if type(step) is KernelStep:
        updates = bool(step.targets)
    else:
        updates = graph.values[step.writes[0]].op is ops.UPDATE
    return first + (len(graph.values) if updates else 0)
