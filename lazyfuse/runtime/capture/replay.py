"""Replays of runs that write in place: a run at a known geometry repeats what the first one did.

The first run of a geometry is captured. The following ones go through its launches and copies and
fill in only addresses and scalars (native_replay.py). The key holds everything that the decisions
depended on: sizes, strides, layouts, and the operands that the recording alone still holds. All
other cases go to `Run`. Owns the events, where replays are kept, and the work on an event that C
leaves to Python. Knows nodes and numpy arrays, never the array type.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np

from lazyfuse.codegen.graph.linearize import Recording, Value
from lazyfuse.codegen.graph.node import Layout, Node, Where
from lazyfuse.codegen.lowering.lower import Lowered
from lazyfuse.codegen.plan.plan import UNKNOWN, KernelStep, Plan, SingleStep
from lazyfuse.codegen.table import ops
from lazyfuse.devices.base import Bound, Device, Program, Source
from lazyfuse.devices.dataclass import dataclass
from lazyfuse.runtime.capture import conditions
from lazyfuse.runtime.events import counters, spans
from lazyfuse.runtime.execution.executor import Run
from lazyfuse.runtime.execution.tiled_run import BoundChain
from lazyfuse.runtime.layout.copies import BlockPart, Copy
from lazyfuse.runtime.layout.meta_arrays import address
from lazyfuse.runtime.numerics import fp_flags

Array = np.ndarray[Any, np.dtype[Any]]

# Geometries kept per plan, and how many runs may be captured before one of them is replayed: a loop
# over windows that never repeat is not worth capturing.
LIMIT = 32
PATIENCE = 4
# The first `EAGER_TURNS` runs are captured, then one in `SPACING`: programs may still be compiled.
EAGER_TURNS = 4
SPACING = 16


@dataclass(frozen=True)
class Allocation:
    """A block of the device's memory."""

    root: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class Window:
    """A part of a block at an offset that differs from run to run: addressed as its own block.

    The offset counts elements of what the part was recorded of. `steps`: along each of its axes, in
    memory order, how many of them one index is, and how many bytes it is in the block.
    """

    index: int
    source: BlockPart
    root: int
    steps: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Call:
    """An operation that NumPy does: its result is a block of its own."""

    index: int
    sources: tuple[tuple[int, BlockPart], ...]  # those that are no operands of the run
    root: int
    reached: tuple[tuple[int, BlockPart], ...] = ()  # existing values, if operands were overwritten


@dataclass(frozen=True)
class LaunchEvent:
    """One launch with its strides and chunks filled in."""

    step: KernelStep
    program: Program
    bound: Bound | None  # None: Python launches
    scalars: tuple[int | BlockPart, ...]
    lowered: Lowered
    arrays: tuple[BlockPart, ...]
    inputs: tuple[BlockPart, ...]
    outputs: tuple[BlockPart, ...]
    operations: int
    sources: tuple[tuple[int, BlockPart], ...] = ()  # of operands that are read in boxes

    @property
    def language(self) -> str:
        """The language of the program."""
        return self.program.source.language


@dataclass(frozen=True)
class ChainEvent:
    """A chain of kernels that runs tile by tile; its results are blocks of their own."""

    bound: BoundChain
    sources: tuple[tuple[int, BlockPart], ...]  # loads, and scalars that the run computes
    made: tuple[tuple[int, int], ...]  # values and their blocks


Event = Allocation | Copy | Window | Call | ChainEvent | LaunchEvent


@dataclass(frozen=True)
class Replay:
    """A run at one geometry, on one device."""

    device: Device
    size: int  # how many blocks there are
    leaves: tuple[int, ...]  # values whose memory is block 0, 1, ...
    written: frozenset[int]  # blocks among them that are written to
    given: tuple[int, ...]  # those of them whose operands die: donated buffers that took results
    events: tuple[Event, ...]
    dead: tuple[tuple[int, ...], ...]  # after each event: blocks that nothing reads again
    results: tuple[tuple[int, BlockPart], ...]
    updates: tuple[tuple[int, BlockPart, int], ...]  # value, its memory, event that completes it
    program: list[Any] = field(default_factory=list)  # once it is made: native_replay.py
    small: tuple[tuple[KernelStep, Lowered], ...] = ()  # exact kernels that run as blocked NumPy
    turns: list[int] = field(default_factory=lambda: [0])  # number of runs: tier_up.py
    blocks: tuple[tuple[int, int], ...] = ()  # what to reserve: BufferPool.classes
    awaited: tuple[Source, ...] = ()  # programs that are being compiled
    maps: tuple[Any, ...] = ()  # of indices: the key has their addresses

    def is_outdated(self) -> bool:
        """Whether a program has come for which blocked NumPy has stood in."""
        if not self.awaited:
            return False
        pool = self.device.programs
        return pool is None or not all(map(pool.awaits, self.awaited))


class ReplayCache:
    """The replays of one plan."""

    __slots__ = (
        "found", "learnt", "maps", "operands", "places", "size", "slides", "turns", "unmet",
        "windows",
    )  # fmt: skip

    def __init__(self, plan: Plan) -> None:
        self.found: dict[Any, Replay] = {}
        self.learnt = 0  # runs captured since the last replay
        self.turns = 0  # runs that were not replays
        self.unmet = 0  # evaluations kept since one was met again (evaluations.py)
        values = enumerate(plan.graph.values)
        # where nothing is written over, no decision depends on the offset of a part in its block;
        # maps of indices that are no such parts have numbers of their own
        self.slides = not any(
            value.op is ops.UPDATE or (value.op is ops.INDEX and type(value.arg) is not Layout)
            for value in plan.graph.values
        )
        # parts of memory whose offset in their block is not in the plan
        found = plan.graph.values
        self.maps = tuple([i for i, value in enumerate(found) if value.op is ops.INDEX])
        self.windows = self.maps + tuple(
            [i for i, v in values if v.op is ops.UPDATE or (v.op is ops.VIEW and v.axes is None)]
        )
        self.size = len(found)
        self.places = tuple([found[index].origin for index in self.windows])
        self.operands = tuple([(found[i].origin, i, found[i].op is ops.LEAF) for i in plan.bound])

    def look_up(self, key: Any) -> Replay | None:
        """The replay of a geometry; all are captured anew where a program has come for it."""
        found = self.found.get(key)
        if found is not None and found.is_outdated():
            self.found.clear()
            self.turns = self.learnt = 0
            return None
        return found

    def is_worth_observing(self) -> bool:
        """Whether to capture the next run: only now and then, while programs are compiled."""
        self.turns += 1
        return self.learnt < PATIENCE and (self.turns <= EAGER_TURNS or not self.turns % SPACING)


def suits(plan: Plan) -> bool:
    """Whether a plan's steps can be replayed."""
    values = plan.graph.values
    singles = [values[step.index] for step in plan.steps if type(step) is SingleStep]
    return all(value.op.kind in _KINDS or value.op is ops.EMPTY for value in singles)


_KINDS = frozenset({"view", "index", "update", "map", "reduce", "host", "contract"})


def bind(kept: ReplayCache, recording: Recording, free: set[int] | bool) -> Any:
    """The key of a run and its operands, found by C; None if some are not in host memory.

    `free`: the nodes whose memory may be written over; True: C finds them.
    """
    return conditions.native.replay_bind(
        kept.size, kept.operands, kept.places, kept.slides, free, recording.nodes,
        recording.edges, recording.sizes,
    )  # fmt: skip


def key_of(run: Run) -> Any:
    """The key of a run's decisions; None if an operand is not in host memory."""
    bound = bind(run.plan.replays, run.recording, run.free)
    return None if bound is None else bound[0]


def cache_of(plan: Plan) -> ReplayCache | None:
    """The replays of a plan; None if its runs cannot be replayed."""
    if plan.replays == UNKNOWN:
        plan.replays = ReplayCache(plan) if suits(plan) else None
    found: ReplayCache | None = plan.replays
    return found


def launched(replay: Replay, plan: Plan, nodes: Sequence[Node]) -> list[spans.Launched]:
    """The kernels of a replay, for the report."""
    found = []
    values = plan.graph.values

    def shape(index: int) -> tuple[int, ...]:
        return nodes[values[index].origin].shape

    for event in replay.events:
        if type(event) is LaunchEvent:
            places = _places(event.step, values, nodes)
            parts = (*event.inputs, *event.outputs)
            moved = sum(math.prod(each.shape) * each.dtype.itemsize for each in parts)
            unfused = counters.unfused_bytes(event.step, values, shape)
            saved = max(0, unfused - moved)
            found.append(spans.Launched(places, moved, saved, event.language))
        elif type(event) is ChainEvent:
            for step in event.bound.sized_chain.kernels:
                places = _places(step, values, nodes)
                found.append(spans.Launched(places, 0, 0, "numba"))
    return found


def _places(
    step: KernelStep, values: Sequence[Value], nodes: Sequence[Node]
) -> tuple[Where | None, ...]:
    return tuple([nodes[values[index].origin].location for index in step.in_order])


def keep_updates(
    replay: Replay, plan: Plan, nodes: list[Node], roots: list[Any], done: int
) -> None:
    """After a failure: commit updates, so that updated memory is not updated again."""
    for index, part, after in replay.updates:
        derived = plan.graph.values[index].derived
        if after < done and not derived and roots[part.root] is not None:
            commit(plan, nodes, index, part.of(roots[part.root]))


def commit(plan: Plan, nodes: list[Node], index: int, array: Array) -> None:
    """Make a result the value of its node."""
    node = nodes[plan.graph.values[index].origin]
    node.value = array
    node.src = ()


def call(event: Call, run: Run, roots: list[Any], addresses: list[int]) -> None:
    """Have NumPy do an operation."""
    for index, part in event.sources:
        run.env[index] = part.held(roots, addresses)
    try:
        run.run_single(event.index)
    except BaseException:
        for index, part in event.reached:  # as RunValues.commit_reached
            if roots[part.root] is not None:
                commit(run.plan, run.nodes, index, part.held(roots, addresses))
        raise
    block = roots[event.root] = run.array(event.index)
    addresses[event.root] = address(block)


def run_chain(event: ChainEvent, run: Run, roots: list[Any], addresses: list[int]) -> None:
    """Run a chain tile by tile; kernel by kernel, where its exceptions need a closer look."""
    for index, part in event.sources:
        run.env[index] = part.at(addresses)
    flags = event.bound.start(run.env)
    if flags is None or (any(flags) and not event.bound.report_exceptions(run, flags)):
        for step in event.bound.chain.steps:
            if isinstance(step, KernelStep):
                run.run_kernel(step, ())
            else:
                run.run_single(step.index)
    for index, root in event.made:
        perm = run.plan.graph.values[index].perm
        array = run.array(index)
        block = roots[root] = array if perm is None else array.transpose(perm)
        addresses[root] = address(block)


def start(event: LaunchEvent, run: Run, addresses: list[int]) -> None:
    """Launch a kernel."""
    env = run.env
    scalars = tuple(
        [
            env[each][()] if type(each) is int else each.at(addresses)[()]  # type: ignore[index,union-attr]
            for each in event.scalars
        ]
    )
    arrays = [part.at(addresses) for part in event.arrays]
    launch = event.lowered.launch(event.language, arrays, scalars)
    end(event, run, addresses, run.outcome(event.program.launch(launch)))


def end(event: LaunchEvent, run: Run, addresses: list[int], bits: int) -> None:
    """Combine partial results of a kernel that has run, and report its exceptions."""
    env = run.env
    if event.lowered.is_partial:
        with fp_flags.collecting() as found:
            event.lowered.finish([part.at(addresses) for part in event.arrays])
        bits |= found.bits
    if bits and fp_flags.is_wanted(bits):
        step = event.step
        outputs = [part.at(addresses) for part in event.outputs]
        pairs = event.sources or zip(step.inputs, event.inputs, strict=True)
        for index, part in pairs:
            env[index] = part.at(addresses)
        for index, each in zip(step.scalars, event.scalars, strict=True):
            if type(each) is BlockPart:
                env[index] = each.at(addresses)
        run.note_exceptions(step, bits, run.sources_of(step), () if event.sources else outputs)
