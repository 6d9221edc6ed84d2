"""Runs over memory in place, repeated: what a run did at the same geometry is done again.

Owns the shortcut for plans that write into existing arrays (time loops over slices): the first run
of a geometry is observed, and the following ones go through its launches and copies with nothing
but addresses and scalars filled in. What the decisions hung on is in the key: sizes, strides,
layouts, and which operands the recording alone still holds. Whatever is unusual goes to `Run`.
Knows nodes and numpy arrays, never the array type.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lazyfuse import floating, programs, report
from lazyfuse.codegen import ops
from lazyfuse.codegen.linearize import Recording
from lazyfuse.codegen.plan import UNKNOWN, KernelStep, Plan, SingleStep
from lazyfuse.copies import Copy, Part, copy_of
from lazyfuse.devices.base import Device
from lazyfuse.execute import Run
from lazyfuse.prepared import is_usual
from lazyfuse.views import address
from lazyfuse.windows import is_unseen

Array = np.ndarray[Any, np.dtype[Any]]

# Geometries kept per plan, and how many may be learnt before one has come again: a loop over
# windows that never come again is not worth observing.
LIMIT = 8
PATIENCE = 4
# Runs observed at first, and afterwards one in so many: programs may still be compiled.
EAGER_TURNS = 4
SPACING = 16


@dataclass(frozen=True, slots=True)
class Allocation:
    """A block of the device's memory."""

    root: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a block whose place may differ from run to run: addressed as a block of its own."""

    index: int
    source: Part
    root: int


@dataclass(frozen=True, slots=True)
class Call:
    """An operation that NumPy does: its result is a block of its own."""

    index: int
    sources: tuple[tuple[int, Part], ...]  # those that the run does not begin with
    root: int


@dataclass(frozen=True, slots=True)
class Start:
    """One launch, its strides and chunks filled in."""

    step: KernelStep
    run: Callable[[Any, tuple[Any, ...]], int]
    places: tuple[tuple[int, int], ...]  # of each array: block and byte offset
    scalars: tuple[int | Part, ...]
    finish: Callable[[list[Array]], object] | None
    arrays: tuple[Part, ...]
    inputs: tuple[Part, ...]
    outputs: tuple[Part, ...]
    spoiled: bool
    language: str
    operations: int


Event = Allocation | Copy | Window | Call | Start


@dataclass(frozen=True, slots=True)
class Replay:
    """A run at one geometry, on one device."""

    device: Device
    leaves: tuple[int, ...]  # values whose memory is block 0, 1, ...
    written: frozenset[int]  # blocks among them that are written to
    given: tuple[int, ...]  # those of them whose operands die, and that took results
    events: tuple[Event, ...]
    dead: tuple[tuple[int, ...], ...]  # after each event: blocks that nothing reads again
    results: tuple[tuple[int, Part], ...]
    updates: tuple[tuple[int, Part, int], ...]  # value, where it lies, event that completes it


class Kept:
    """The replays of one plan."""

    __slots__ = ("found", "learnt", "slides", "turns", "windows")

    def __init__(self, plan: Plan) -> None:
        self.found: dict[Any, Replay] = {}
        self.learnt = 0  # since one was last used
        self.turns = 0  # runs that were not replays
        values = enumerate(plan.graph.values)
        # where nothing is written over, no decision hangs on where in its block a part lies
        self.slides = not any(value.op is ops.UPDATE for value in plan.graph.values)
        # parts of memory whose place in their block is not in the plan
        self.windows = tuple(
            [i for i, v in values if v.op is ops.UPDATE or (v.op is ops.VIEW and v.axes is None)]
        )

    def is_worth_observing(self) -> bool:
        """Whether the next run may teach something: not at every turn while programs compile."""
        self.turns += 1
        return self.learnt < PATIENCE and (self.turns <= EAGER_TURNS or not self.turns % SPACING)


def suits(plan: Plan) -> bool:
    """Whether a plan's steps are such as can be told to happen again, and not kernels alone."""
    if plan.chains:
        return False
    values = plan.graph.values
    singles = [values[step.index] for step in plan.steps if type(step) is SingleStep]
    return bool(singles) and all(value.op.kind in _KINDS for value in singles)


_KINDS = frozenset({"view", "update", "map", "reduce", "host", "contract"})


def key_of(run: Run) -> tuple[Any, ...] | None:
    """What decides how a run goes; None if not everything is in host memory."""
    values = run.plan.graph.values
    nodes, edges = run.nodes, run.recording.edges
    count = sys.getrefcount
    found: list[Any] = run.recording.sizes.copy()
    for index in run.plan.bound:
        value = values[index]
        node = nodes[value.origin]
        real = node.value
        if real is None or node.resident is not None:
            return None
        if value.op is ops.LEAF:
            # the list, our name and getrefcount's argument: nobody reads it after this run
            dies = count(node) <= edges.get(id(node), 0) + 3
            found += (real.strides, dies, value.origin in run.free, real.flags.writeable)
    kept: Kept = run.plan.replays
    for index in kept.windows:
        layout = nodes[values[index].origin].arg
        found.append((layout.shape, layout.strides) if kept.slides else layout)
    return tuple(found)


def run_again(run: Run) -> bool:
    """Do again what a run of this plan did at the same geometry; False if `Run` has to."""
    kept = _kept(run.plan)
    if kept is None or not kept.found or not is_usual():
        return False
    found = kept.found.get(key_of(run))
    if found is None or found.device is not run.device:
        return False
    roots: list[Any] = [run.env[index] for index in found.leaves]
    if not _apart(roots, found.written):
        return False
    for root in found.given:
        if not is_unseen(roots[root], _OWNERS):
            return False
    kept.learnt = 0
    _play(found, run, roots)
    return True


# Who refers to an operand's array: the environment, the list of blocks, the node, getrefcount.
_OWNERS = 4


def _kept(plan: Plan) -> Kept | None:
    if plan.replays == UNKNOWN:
        plan.replays = Kept(plan) if suits(plan) else None
    found: Kept | None = plan.replays
    return found


def _apart(roots: list[Array], written: frozenset[int]) -> bool:
    """Whether blocks that are written share no memory with others, as when they were observed."""
    if len(roots) == 1:
        return True
    ends = [(address(root), root.nbytes) for root in roots]
    for at in written:
        start, size = ends[at]
        for other, (begin, length) in enumerate(ends):
            if other != at and start < begin + length and begin < start + size:
                return False
    return True


def _play(replay: Replay, run: Run, roots: list[Any]) -> None:
    roots += [None] * (len(replay.events) + 1)
    addresses = [address(root) if root is not None else 0 for root in roots]
    empty = run.device.empty
    done = 0
    try:
        for event, dead in zip(replay.events, replay.dead, strict=True):
            if type(event) is Start:
                _start(event, run, addresses)
            elif type(event) is Allocation:
                block = roots[event.root] = empty(event.shape, event.dtype)
                addresses[event.root] = address(block)
            elif type(event) is Window:
                value = run.plan.graph.values[event.index]
                place = run.nodes[value.origin].arg.offset * value.dtype.itemsize
                source = event.source
                addresses[event.root] = addresses[source.root] + source.offset + place
                roots[event.root] = roots[source.root]
            elif type(event) is Call:
                for index, part in event.sources:
                    run.env[index] = part.held(roots, addresses)
                run.run_single(event.index)
                block = roots[event.root] = run.array(event.index)
                addresses[event.root] = address(block)
            else:
                event.play(addresses)  # type: ignore[union-attr]
            done += 1
            for root in dead:
                roots[root] = None
    except BaseException:
        # memory that has been updated must not be updated again
        for index, part, after in replay.updates:
            if after < done and roots[part.root] is not None:
                _commit(run, index, part.of(roots[part.root]))
        raise
    for index, part in replay.results:
        _commit(run, index, part.of(roots[part.root]))


def _commit(run: Run, index: int, array: Array) -> None:
    node = run.nodes[run.plan.graph.values[index].origin]
    node.value = array
    node.src = ()


def _start(event: Start, run: Run, addresses: list[int]) -> None:
    env = run.env
    scalars = tuple(
        [
            env[each][()] if type(each) is int else each.at(addresses)[()]  # type: ignore[index,union-attr]
            for each in event.scalars
        ]
    )
    bits = event.run([addresses[root] + offset for root, offset in event.places], scalars)
    if event.finish is not None:
        with floating.collecting() as found:
            event.finish([part.at(addresses) for part in event.arrays])
        bits |= found.bits
    if bits and floating.is_wanted(bits):
        step = event.step
        outputs = [part.at(addresses) for part in event.outputs]
        sources = None
        if not event.spoiled:
            for index, part in zip(step.inputs, event.inputs, strict=True):
                env[index] = part.at(addresses)
            for index, each in zip(step.scalars, event.scalars, strict=True):
                if type(each) is Part:
                    env[index] = each.at(addresses)
            sources = run.sources_of(step)
        run.tell(step, bits, sources, outputs)
    report.ran_again(run.device, event.language, event.operations)


# ------------------------------------------------------------------------------------ observing


def observed(run: Run) -> Run:
    """A run to be executed: one that keeps what it does, if that is likely to come again."""
    kept = _kept(run.plan)
    if kept is None or not is_usual() or not kept.is_worth_observing():
        return run
    run.env.clear()  # the operands: it would look like somebody who reads them
    return Observed(run.plan, run.recording, run.device)


class Observed(Run):
    """A run that writes down what it does."""

    __slots__ = ("events", "extents", "fit", "key", "known", "leaves", "slides", "updates")

    def __init__(self, plan: Plan, recording: Recording, device: Device) -> None:
        super().__init__(plan, recording, device)
        self.events: list[Event] = []
        self.extents: list[tuple[int, int, Any]] = []  # address and bytes of each block
        self.updates: list[tuple[int, Part, int]] = []
        self.slides: dict[int, int] = {}  # windows, and the blocks that stand for them
        values = plan.graph.values
        self.leaves = tuple([i for i in plan.bound if values[i].op is ops.LEAF])
        self.key = key_of(self)
        self.fit = self.key is not None and not self.away
        for index in self.leaves:
            array = self.env[index]
            if array is None:
                self.fit = False
                return
            self.extents.append((address(array), array.nbytes, array.flags.c_contiguous))
        self.known = len(self.extents)

    # -- what happens ---------------------------------------------------------------------------

    def execute(self) -> None:
        super().execute()
        if self.fit:
            self.keep()

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        array = super().empty(shape, dtype)
        self.allocated(array)
        return array

    def allocated(self, array: Array) -> None:
        self.events.append(Allocation(len(self.extents), array.shape, array.dtype))
        self.extents.append((address(array), array.nbytes, True))

    def run_single(self, index: int) -> None:
        super().run_single(index)
        value = self.plan.graph.values[index]
        result = self.array(index)
        if value.op is ops.VIEW and self.plan.replays.slides:
            if value.axes is not None:
                if value.src[0] in self.slides:
                    self.slides[index] = self.slides[value.src[0]]
                return
            self.slides[index] = len(self.extents)
            source = self.located(value.src[0])
            self.events.append(Window(index, source, len(self.extents)))
            self.extents.append((address(result), 0, False))
        if value.op in (ops.VIEW, ops.UPDATE):
            return
        if type(result) is not np.ndarray:
            self.fit = False
            return
        sources = [(at, self.scalar(at)) for at in value.src]
        parts = tuple([(at, part) for at, part in sources if type(part) is Part])
        if not all(self.is_flat(part.root) for _, part in parts):
            self.fit = False
        self.events.append(Call(index, parts, len(self.extents)))
        self.extents.append((address(result), result.nbytes, True))

    def is_flat(self, root: int) -> bool:
        """Whether arrays can be made over a block: NumPy asks for C order."""
        windows = {each.root: each.source.root for each in self.events if type(each) is Window}
        return bool(self.extents[windows.get(root, root)][2])

    def target(self, index: int) -> tuple[Array, Array]:
        old = self.array(self.plan.graph.values[index].src[0])
        part, whole = super().target(index)
        if whole is not old:
            if not whole.flags.c_contiguous or not old.flags.c_contiguous:
                self.fit = False
            self.allocated(whole)
            self.copied(whole, old)
        return part, whole

    def packed(self, array: Array, perm: tuple[int, ...] | None) -> Array:
        flat = super().packed(array, perm)
        if not np.may_share_memory(flat, array):
            self.fit = False
        return flat

    def copied(self, target: Array, source: Array) -> None:
        """Elements were copied."""
        self.events.append(copy_of(self.part(target), self.part(source)))

    def update(self, index: int) -> None:
        super().update(index)
        value = self.plan.graph.values[index]
        whole = self.array(index)
        flat = super().packed(whole, value.perm)
        layout = self.nodes[value.origin].arg
        size = flat.itemsize
        strides = tuple([stride * size for stride in layout.strides])
        part = np.ndarray(layout.shape, flat.dtype, flat, layout.offset * size, strides)
        source = self.array(value.src[1])
        if source.ndim > part.ndim or not np.may_share_memory(flat, whole):
            self.fit = False
        else:
            self.copied(part, np.broadcast_to(source, part.shape))
        self.updated(index, whole)

    def updated(self, index: int, whole: Array) -> None:
        self.updates.append((index, self.part(whole), len(self.events) - 1))

    def move(self, temporary: Array, part: Array) -> None:
        super().move(temporary, part)
        self.copied(part, temporary)

    def attempt(self, step: KernelStep, last: Sequence[int]) -> list[Array]:
        outputs = super().attempt(step, last)
        for index in step.targets.values():
            self.updated(index, self.array(index))
        return outputs

    def launch(
        self, step: KernelStep, shape: tuple[int, ...], inputs: list[Array], outputs: list[Array]
    ) -> Any:
        flags = super().launch(step, shape, inputs, outputs)
        found = step.ready.get(programs.geometry(self.device, shape, inputs, outputs))
        if found is None or found[1] is None or not isinstance(flags, int):
            self.fit = False  # not the program that will run from now on
            return flags
        lowered, program = found
        assert program is not None, "asked above"
        prepare = getattr(program, "prepare_addresses", None)
        if prepare is None or lowered.second() is not None:
            self.fit = False
            return flags
        blocks = range(len(self.extents) - len(lowered.temporaries), len(self.extents))
        arrays = [self.located(index, at) for index, at in zip(step.inputs, inputs, strict=True)]
        arrays += [self.part(array) for array in outputs]
        for root, (size, dtype) in zip(blocks, lowered.temporaries, strict=True):
            strides = np.empty(size, dtype).strides
            arrays.append(Part(root, 0, size, strides, np.dtype(dtype)))
        real = [part.at([each[0] for each in self.extents]) for part in arrays]
        launch = lowered.launch(program.source.language, real, (0,) * len(step.scalars))
        slots = lowered.slots
        self.events.append(
            Start(
                step,
                prepare(launch),
                tuple([(arrays[slot].root, arrays[slot].offset) for slot in slots]),
                tuple([self.scalar(index) for index in step.scalars]),
                lowered.finish if lowered.is_partial else None,
                tuple(arrays),
                tuple(arrays[: len(inputs)]),
                tuple(arrays[len(inputs) : len(inputs) + len(outputs)]),
                bool(step.targets) or any(out is each for out in outputs for each in inputs),
                program.source.language,
                len(step.members) + len(step.reductions),
            )
        )
        return flags

    def run_members(self, step: KernelStep, outputs: list[Array]) -> int:
        self.fit = False  # a kernel that failed has left no launch to do again
        return super().run_members(step, outputs)

    def scalar(self, index: int) -> int | Part:
        if self.plan.graph.values[index].op in (ops.SCALAR, ops.LEAF):
            return index
        return self.located(index)

    def located(self, index: int, array: Array | None = None) -> Part:
        """Where a value lies."""
        if array is None:
            array = self.array(index)
        root = self.slides.get(index)
        if root is None:
            return self.part(array)
        offset = address(array) - self.extents[root][0]  # one place along an axis: Value.picks
        return Part(root, offset, array.shape, array.strides, array.dtype)

    def part(self, array: Array) -> Part:
        """Where an array lies; the run is not kept if that is in none of its blocks."""
        start = address(array)
        for root in range(len(self.extents) - 1, -1, -1):
            begin, size, _ = self.extents[root]
            if begin <= start < begin + size:
                return Part(root, start - begin, array.shape, array.strides, array.dtype)
        self.fit = False
        return Part(0, 0, array.shape, array.strides, array.dtype)

    # -- what is kept of it ---------------------------------------------------------------------

    def keep(self) -> None:
        """Keep the run for its geometry."""
        kept: Kept | None = self.plan.replays
        if kept is None or self.key is None:
            return
        if any(index in self.slides for index in self.plan.outputs):
            return
        results = [(index, self.part(self.array(index))) for index in self.plan.outputs]
        stored = {part.root for event in self.events for part in _written(event)}
        if any(not self.extents[part.root][2] for _, part in results if not _is_whole(self, part)):
            return
        launched = sum(type(event) is Start for event in self.events)
        if not self.fit or launched != len(self.plan.kernels):
            return
        kept.learnt += 1
        if len(kept.found) >= LIMIT:
            kept.found.clear()
        leaves = frozenset(range(self.known))
        kept.found[self.key] = Replay(
            self.device,
            self.leaves,
            frozenset(stored & leaves),
            tuple([root for root in stored if self.gave(root)]),
            tuple(self.events),
            _dead(self.events, {part.root for _, part in results}),
            tuple(results),
            tuple(self.updates),
        )

    def gave(self, root: int) -> bool:
        """Whether a block that was written belongs to an operand that no update writes to: its
        buffer was given away, which depends on more than the key.
        """
        if root >= self.known:
            return False
        return not any(part.root == root for _, part, _ in self.updates)


def _is_whole(run: Observed, part: Part) -> bool:
    if part.root >= run.known:
        return False
    array = run.env[run.leaves[part.root]]
    return array is not None and array.strides == part.strides and not part.offset


def _written(event: Event) -> tuple[Part, ...]:
    if type(event) is Start:
        return event.outputs
    return (event.target,) if type(event) is Copy else ()


def _touched(event: Event) -> list[int]:
    if type(event) is Start:
        scalars = [each.root for each in event.scalars if type(each) is Part]
        return scalars + [part.root for part in event.arrays]
    if type(event) is Copy:
        return [event.target.root, event.source.root]
    if type(event) is Window:
        return [event.root, event.source.root]
    if type(event) is Call:
        return [event.root, *[part.root for _, part in event.sources]]
    return [event.root]  # type: ignore[union-attr]


def _dead(events: Sequence[Event], kept: set[int]) -> tuple[tuple[int, ...], ...]:
    """After each event, the blocks that may go."""
    final: dict[int, int] = {}
    for at, event in enumerate(events):
        for root in _touched(event):
            final[root] = at
    found: list[list[int]] = [[] for _ in events]
    for root, at in final.items():
        if root not in kept:
            found[at].append(root)
    return tuple(tuple(roots) for roots in found)
