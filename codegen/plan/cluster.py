"""Fusion: which values share a kernel, which are stored, and the reason of every refusal.

A value's stage is the length of the longest path of kernel boundaries below it. Maps of one stage
and one iteration domain can always share a kernel: a path between them that leaves the group would
raise the stage. So grouping takes linear time, and no cycle can arise.
"""

from __future__ import annotations

import math
from dataclasses import field
from typing import Any

from lazyfuse.codegen.graph.linearize import Graph, Value
from lazyfuse.codegen.graph.moves import Moves
from lazyfuse.codegen.graph.node import Shape
from lazyfuse.codegen.plan.lifetimes import newest_versions
from lazyfuse.codegen.table import ops
from lazyfuse.codegen.table.op import Verdict
from lazyfuse.devices.dataclass import dataclass

# Kernel arguments are cheap on a CPU, but streams beyond this many defeat the prefetchers.
MAX_ARRAYS = 24
# Compile time grows faster than the body; beyond this length fusing more saves little.
MAX_LENGTH = 256
# A value is computed twice rather than stored if that costs less than this many additions and
# reads no more arrays than loading the stored value would. For a single other kernel the limit is
# what storing it (which reads the lines that it writes) and loading it take together.
RECOMPUTE_COST = 4.0
RECOMPUTE_LOADS = 1
RECOMPUTE_LOADS_ONCE = 2
# Up to this cost it may pay for exact values that no cache holds
# (lazyfuse/runtime/scheduling/recompute.py).
RECOMPUTE_MOST = 20.0
# A value that only one later kernel reads is computed there if it needs no more arrays than this:
# storing and loading it would move as much.
LATER_LOADS = 2
# Why a marked node shares no kernel.
MARKED = "marked by lazyfuse.unfused"


@dataclass(frozen=True)
class Limits:
    """Fusion settings of the user, and the values that are recomputed at any cost."""

    fusion: bool = True
    max_length: int = 0  # operations per kernel, 0 for no limit
    recompute: frozenset[int] = frozenset()


@dataclass
class Group:
    """Values that one kernel computes. `stored` and `reductions` are its outputs."""

    domain: Shape
    stage: int
    members: list[int] = field(default_factory=list)
    reductions: list[int] = field(default_factory=list)
    axes: tuple[int, ...] | None = None  # reduced axes, once it has a reduction
    summation: object = None  # its order of sums, if it has any: see `summation_order`
    stored: list[int] = field(default_factory=list)
    fusion_barrier: bool = False  # its only operation is marked
    moving: bool = False  # whether it reads through maps of indices

    @property
    def inside(self) -> frozenset[int]:
        return frozenset(self.members)


@dataclass
class Clusters:
    """The groups, the values outside all groups, and why neighbours were not fused."""

    groups: list[Group]
    alone: list[int]
    materialised: set[int]
    refusals: list[tuple[int, int, str]]  # producer, consumer, reason
    costly: list[tuple[int, float]]  # stored value, additions to recompute it


def fusible(value: Value, graph: Graph) -> Verdict:
    """Whether a value can be an instruction or a reduction of a generated kernel."""
    if 0 in value.shape:
        return Verdict(False, "no elements")
    if value.op is ops.FULL:
        return Verdict(ops.kernel_dtype(value.dtype), f"{value.dtype} runs in NumPy")
    if value.op.kind == "reduce":
        source = graph.values[value.src[0]]
        if 0 in source.shape or source.shape == ():
            return Verdict(False, "nothing to reduce")
        axes = value.arg.axes
        if not axes:
            return Verdict(False, "no axis is reduced")
        if value.op.ufunc is None and 1 < len(axes) < len(source.shape):
            return Verdict(False, "the index over several axes runs in NumPy")
        return ops.supports_reduce(value.op, source.dtype, value.arg.accumulator)
    if value.op.kind != "map":
        return Verdict(False, f"{value.op.name} is not elementwise")
    if value.shape == ():
        return Verdict(False, "a single element")
    for operand in value.src:
        if not ops.kernel_dtype(graph.values[operand].dtype):
            return Verdict(False, f"kernels do not load {graph.values[operand].dtype}")
    return ops.supports(value.op, value.arg)


def summation_order(value: Value, graph: Graph) -> object:
    """A value that floating-point sums in the same loops must share; None for other reductions.

    NumPy cuts sums of complex numbers, sums that convert their operands, and products at other
    positions than plain sums, and follows the memory order of the summed array. So a view that is
    not even shares loops only with sums of the same view.
    """
    name, accumulator = value.op.name.removesuffix(".reduce"), value.arg.accumulator
    if not value.op.ordered or accumulator.kind not in "fc":
        return None
    source = graph.values[value.src[0]]
    lies = value.src[0]
    while graph.values[lies].op.name in ops.PIECES:  # they lie in complex numbers
        lies = graph.values[lies].src[0]
    uneven = graph.values[lies].op is ops.VIEW and not graph.values[lies].even
    return (name, accumulator.kind, source.dtype != accumulator, source.perm, uneven and lies)


def cluster(graph: Graph, limits: Limits | None = None) -> Clusters:
    """Group the values of a graph into kernels."""
    builder = _Clustering(graph, limits or Limits())
    for index in range(len(graph.values)):
        builder.place(index)
    return builder.finish()


class _Clustering:
    def __init__(self, graph: Graph, limits: Limits) -> None:
        self.graph = graph
        self.values = graph.values
        self.limits = limits
        self.stage = [0] * len(graph.values)
        self.group: list[Group | None] = [None] * len(graph.values)
        self.open: dict[tuple[int, Shape], list[Group]] = {}
        self.groups: list[Group] = []
        self.alone: list[int] = []
        self.refusals: list[tuple[int, int, str]] = []
        self.users = graph.consumers()
        self.costly: list[tuple[int, float]] = []
        self.whole: set[int] = set()  # values that no kernel may compute in part
        self.moving: set[int] = set()  # values whose kernel reads through maps of indices
        self.taken: dict[int, int] = {}  # operations that a group adds for earlier groups, by id
        self.memory: tuple[list[Any], list[int], dict[Any, int]] = ([], [], {})
        self.written: dict[Any, list[int]] = {}  # by block and version: what updates store

    def first_stage(self, index: int) -> int:
        """The first stage whose kernels can read the stored value."""
        value = self.values[index]
        if value.op.kind == "source" and value.op is not ops.FULL:
            return 0
        return self.stage[index] if value.op in ops.PLACES else self.stage[index] + 1

    def place(self, index: int) -> None:
        value = self.values[index]
        if value.op in (ops.LEAF, ops.SCALAR):
            return
        if value.op in ops.PLACES:
            self.stage[index] = max(self.first_stage(source) for source in value.src)
            self.alone.append(index)
            return
        verdict = fusible(value, self.graph)
        if not verdict.ok:
            self.stage[index] = max((self.first_stage(s) for s in value.src), default=0)
            self.alone.append(index)
            if value.op.kind in ("map", "reduce", "host"):
                self.refusals += [(s, index, verdict.why) for s in value.src if self.group[s]]
            return
        if value.op.kind == "reduce":
            self.place_reduction(index, value)
        else:
            self.place_map(index, value)

    def place_map(self, index: int, value: Value) -> None:
        stage = 0
        apart = value.op.fusion_barrier
        for source in value.src:
            joined = self.joins(source, index, value.shape)
            stage = max(stage, self.stage[source] if joined else self.first_stage(source))
        moving = any(self.is_moving(source) for source in value.src)
        found = None
        while not apart:
            found = next(
                (
                    g
                    for g in self.open.get((stage, value.shape), ())
                    if not self.full(g) and not (moving and g.axes is not None)
                ),
                None,
            )
            if found is not None or not self.open.get((stage, value.shape)):
                break
            stage += 1  # every group here is full: later stages only
        group = found or self.new_group(stage, value.shape, apart)
        group.members.append(index)
        if moving:
            self.moving.add(index)
            group.moving = True
        self.stage[index], self.group[index] = stage, group

    def is_moving(self, source: int) -> bool:
        """Whether a kernel that computes from a value reads through a map of indices."""
        if source in self.moving:
            return True
        value = self.values[source]
        if value.op is not ops.INDEX:
            return False
        divides = type(value.arg) is Moves and value.arg.divides  # else it is a view's
        return divides or any(map(self.is_moving, value.src))

    def joins(self, source: int, index: int, domain: Shape) -> bool:
        """Whether a source can be computed in the kernel of its consumer."""
        group = self.group[source]
        if group is None:
            return False
        why = ""
        if self.values[source].op.fusion_barrier or self.values[index].op.fusion_barrier:
            why = MARKED
        elif self.values[source].op.kind == "reduce":
            why = "reads the result of a reduction"
        elif group.domain != domain:
            why = "another iteration domain"
        elif self.loses(source, index):
            why = "the other parts of its complex numbers may raise exceptions, too"
            self.whole.add(source)
        elif not self.limits.fusion:
            why = "fusion is switched off"
        elif self.full(group):
            why = "the kernel is as long as the options allow"
        if why:
            self.refusals.append((source, index, why))
        return not why

    def loses(self, source: int, index: int) -> bool:
        """Whether a kernel would compute a value for one part of its complex numbers alone: the
        compiler leaves the other part out, and with it the exceptions that it raises.
        """
        below, op = self.values[source], self.values[index].op
        if below.dtype.kind != "c" or below.op.kind != "map" or below.output:
            return False
        is_part = op.name in ops.PIECES or self.values[index].dtype.kind in "iuf"  # a cast
        if not is_part or not below.op.raises(below.arg.ins[0]):
            return False
        return all(self.values[each].op is op for each in self.users[source])

    def full(self, group: Group) -> bool:
        limit = (self.limits.max_length or MAX_LENGTH) if self.limits.fusion else 1
        return limit <= len(group.members)

    def new_group(self, stage: int, domain: Shape, apart: bool = False) -> Group:
        group = Group(domain, stage, fusion_barrier=apart)
        self.groups.append(group)
        if not apart:
            self.open.setdefault((stage, domain), []).append(group)
        return group

    def place_reduction(self, index: int, value: Value) -> None:
        source = value.src[0]
        domain = self.values[source].shape
        group = self.group[source]
        if group is not None and self.values[source].op.kind == "reduce":
            group = None
        apart = value.op.fusion_barrier
        summation = summation_order(value, self.graph)
        why = ""
        if group is None:
            pass
        elif not self.limits.fusion:
            why = "fusion is switched off"
        elif apart or group.fusion_barrier:
            why = MARKED
        elif group.moving:
            why = "reads pieces, which sums would meet in any order"
        elif not _joinable(group, value.arg.axes, summation):
            why = "the kernel reduces in another order"
        if why:
            self.refusals.append((source, index, why))
            group = None
        if group is None and apart:
            group = self.new_group(self.first_stage(source), domain, apart)
        elif group is None:
            group = self.reducing_group(self.first_stage(source), domain, value.arg.axes, summation)
        group.axes = value.arg.axes
        group.summation = group.summation or summation
        group.reductions.append(index)
        self.stage[index], self.group[index] = group.stage, group

    def reducing_group(
        self, stage: int, domain: Shape, axes: tuple[int, ...], summation: object
    ) -> Group:
        if self.limits.fusion:
            for group in self.open.get((stage, domain), ()):
                if _joinable(group, axes, summation):
                    return group
        return self.new_group(stage, domain)

    def finish(self) -> Clusters:
        materialised = self.materialise()
        groups: list[Group] = []
        for group in self.groups:
            groups += split(group, self.graph, materialised)
        return Clusters(groups, self.alone, materialised, self.refusals, self.costly)

    def materialise(self) -> set[int]:
        """Values that need a buffer: outputs, and those that no other kernel can recompute."""
        stored = {i for i, value in enumerate(self.values) if value.output} | self.whole
        users = self.users
        self.memory = root, version, _ = newest_versions(self.graph)
        for index, value in enumerate(self.values):
            if value.op is ops.UPDATE:
                self.written.setdefault((root[index], version[index]), []).append(value.src[1])
        for index, group in enumerate(self.group):
            if group is None or self.values[index].op.kind == "reduce":
                stored.add(index)
                continue
            outside = [u for u in users[index] if self.group[u] is not group]
            if outside and not self.recompute(index, group, outside):
                stored.add(index)
        return stored

    def recompute(self, index: int, group: Group, outside: list[int]) -> bool:
        """Whether computing a value again in other kernels of its domain beats storing it."""
        if group.fusion_barrier or not self.limits.fusion or self.limits.max_length:
            return False
        kernels = set()
        for user in outside:
            other = self.group[user]
            if other is None or other.domain != group.domain or other.fusion_barrier:
                return False
            if other.axes is not None and index in self.moving:
                return False
            kernels.add(id(other))
        cost, loads = 0.0, set()
        stack, seen = [index], {index}
        limit, allowed = RECOMPUTE_COST, RECOMPUTE_LOADS
        once = len(kernels) == 1
        exact = True
        waits = self.waits_for(index, group, outside)
        if waits:
            limit, allowed, once = math.inf, LATER_LOADS, False
        while stack:
            value = self.values[stack.pop()]
            cost += value.op.cost
            exact = exact and (value.op is ops.FULL or value.op.is_exact(value.arg.ins[0]))
            dear = cost > limit
            if not value.op.pure or (dear and (not exact or cost * len(kernels) > RECOMPUTE_MOST)):
                return False
            for source in value.src:
                if self.group[source] is group and self.values[source].op.kind != "reduce":
                    if source not in seen:
                        seen.add(source)
                        stack.append(source)
                elif self.values[source].shape == group.domain:  # smaller values stay in a cache
                    loads.add(source)
        loads = self.graph.lying(loads)
        if (once and len(loads) > allowed) or cost > limit:
            root, version, newest = self.memory  # values that are read again must stay
            kept = all(newest.get(root[source], 0) <= version[source] for source in loads)
            allowed = RECOMPUTE_LOADS_ONCE if once and kept else allowed
            if cost > limit and index not in self.limits.recompute:
                lies = [self.values[source] for source in loads]  # as dense as the stored one?
                alike = all(
                    v.op is not ops.VIEW and v.perm == self.values[index].perm for v in lies
                )
                if kept and alike and len(loads) <= allowed:
                    self.costly.append((index, cost * len(kernels)))
                return False
        if waits:  # windows of one block are in the cache once one of them is
            loads = {self.memory[0][source] for source in loads}
        return len(loads) <= allowed

    def waits_for(self, index: int, group: Group, outside: list[int]) -> bool:
        """Whether only one later kernel needs a value: then that kernel can compute it."""
        users = self.users
        if len(outside) != len(users[index]) or len({id(self.group[u]) for u in outside}) != 1:
            return False
        inside, loads = [index], set[int]()
        seen = {index}
        for at in inside:
            for source in self.values[at].src:
                if self.group[source] is not group or self.values[source].op.kind == "reduce":
                    loads.add(source)
                elif source not in seen:
                    seen.add(source)
                    inside.append(source)
        if any(self.values[at].output for at in inside):
            return False
        if not all(user in seen for at in inside[1:] for user in users[at]):
            return False
        # kernels that were split for their length stay split
        other = self.group[outside[0]]
        assert other is not None
        moved = len(inside) + self.taken.get(id(group), 0)
        taken = moved + self.taken.get(id(other), 0)
        if taken + len(other.members) > MAX_LENGTH:
            return False
        self.taken[id(other)] = taken
        return all(self.is_kept(source, other) for source in self.graph.lying(loads))

    def is_kept(self, source: int, until: Group) -> bool:
        """Whether no step overwrites a value before a group has run, except its own updates."""
        root, version, newest = self.memory
        if newest.get(root[source], 0) <= version[source]:
            return True
        written = self.written.get((root[source], version[source] + 1), ())
        return all(self.group[index] is until for index in written)


def _joinable(group: Group, axes: tuple[int, ...], summation: object) -> bool:
    """Whether a reduction over `axes` can join a group."""
    same_order = summation is None or group.summation in (None, summation)
    return group.axes in (None, axes) and same_order and not group.moving


def split(group: Group, graph: Graph, materialised: set[int]) -> list[Group]:
    """Cut a group into kernels that share work or data, within the limit of arguments."""
    outputs = [m for m in group.members if m in materialised] + group.reductions
    parts: list[tuple[set[int], list[int]]] = []  # what each part touches, its outputs
    for output in sorted(outputs):
        computed, loaded = body(group, [output], graph, materialised)
        touched = {*computed, output} | {-1 - source for source in graph.lying(loaded)}
        joined = [output]
        rest = []
        for other, members in parts:
            room = sum(t < 0 for t in touched | other) <= MAX_ARRAYS
            if touched & other and room:
                touched |= other
                joined = members + joined
            else:
                rest.append((other, members))
        parts = [*rest, (touched, joined)]
    return [_part(group, graph, members) for _, members in parts]


def body(
    group: Group, outputs: list[int], graph: Graph, materialised: set[int]
) -> tuple[list[int], list[int]]:
    """The values that a kernel with these outputs computes, in order, and those that it reads."""
    inside = group.inside
    computed: set[int] = set()
    loaded: set[int] = set()
    stack: list[int] = []

    def need(index: int) -> None:
        value = graph.values[index]
        if reads(value) or (index in materialised and index not in inside):
            loaded.add(index)
        elif index not in computed:
            computed.add(index)
            stack.append(index)

    for output in outputs:
        value = graph.values[output]
        if value.op.kind == "reduce":
            need(value.src[0])
        else:
            need(output)
    while stack:
        value = graph.values[stack.pop()]
        for source in value.src:
            need(source)
    return sorted(computed), sorted(loaded)


def reads(value: Value) -> bool:
    """Whether kernels only load this value: it is never in a kernel's body."""
    if value.op is ops.FULL:
        return False
    return value.op.kind != "map" or value.shape == ()


def _part(group: Group, graph: Graph, outputs: list[int]) -> Group:
    outputs = sorted(outputs)
    reductions = [o for o in outputs if graph.values[o].op.kind == "reduce"]
    stored = [o for o in outputs if graph.values[o].op.kind != "reduce"]
    axes = graph.values[reductions[0]].arg.axes if reductions else None
    members = list(group.members)
    return Group(group.domain, group.stage, members, reductions, axes, stored=stored)
