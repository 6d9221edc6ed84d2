"""Capturing runs: runs that write down what they do, so that it can be replayed.

Owns `CapturingRun`, which notes its allocations, copies, launches and calls as events of a replay
(replay.py), and the choice of what is kept of it. A run that does anything which it cannot express
in numbers is not kept. Knows nodes and numpy arrays, never the array type.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from lazyfuse.codegen.graph.linearize import Recording
from lazyfuse.codegen.graph.node import Node
from lazyfuse.codegen.graph.shapes import contiguous_strides
from lazyfuse.codegen.plan.chains import Chain
from lazyfuse.codegen.plan.plan import KernelStep, Plan
from lazyfuse.codegen.table import ops
from lazyfuse.devices.base import Device, Program, Source
from lazyfuse.runtime.capture import conditions
from lazyfuse.runtime.capture.replay import (
    LIMIT,
    Allocation,
    Call,
    ChainEvent,
    Event,
    LaunchEvent,
    Replay,
    ReplayCache,
    Window,
    cache_of,
    key_of,
)
from lazyfuse.runtime.execution import program_tiers, tiled_run
from lazyfuse.runtime.execution.executor import Run
from lazyfuse.runtime.execution.moved import Others, loaded
from lazyfuse.runtime.execution.run_values import at_most
from lazyfuse.runtime.layout.copies import BlockPart, Copy, copy_of
from lazyfuse.runtime.layout.meta_arrays import address

Array = np.ndarray[Any, np.dtype[Any]]


def run_of(plan: Plan, recording: Recording, device: Device) -> Run:
    """A run to execute: a capturing one, if its geometry is likely to repeat and C replays it."""
    replays = conditions.native is not None and not device.asynchronous
    kept = cache_of(plan) if replays and conditions.may_capture() else None
    if kept is None or plan.keeping > 1 or not kept.is_worth_observing():
        return Run(plan, recording, device)
    return CapturingRun(plan, recording, device)


class CapturingRun(Run):
    """A run that writes down what it does."""

    __slots__ = (
        "awaited",
        "copy",
        "events",
        "extents",
        "fit",
        "key",
        "known",
        "leaves",
        "slides",
        "updates",
    )

    def __init__(self, plan: Plan, recording: Recording, device: Device) -> None:
        super().__init__(plan, recording, device)
        self.awaited: list[Source] = []  # what takes the place of blocked NumPy once it has come
        self.events: list[Event] = []
        self.extents: list[tuple[int, int, Any]] = []  # address and bytes of each block
        self.updates: list[tuple[int, BlockPart, int]] = []
        self.slides: dict[int, int] = {}  # windows, and the blocks that represent them
        self.copy: Array | None = None  # the packed copy that a view is a window of
        values = plan.graph.values
        # numbers that are written to a part are copied from where they lie, as arrays are
        written = {each.src[1] for each in values if each.op is ops.UPDATE}
        written |= {source for each in values if each.op is ops.INDEX for source in each.src}
        written = {i for i in written if values[i].op is ops.SCALAR}
        self.leaves = tuple([i for i in plan.bound if values[i].op is ops.LEAF or i in written])
        self.key = key_of(self)
        self.fit = self.key is not None
        for index in self.leaves:
            array = self.env[index]
            if type(array) is not np.ndarray:
                self.fit = False
                return
            self.extents.append((address(array), array.nbytes, array.flags.c_contiguous))
        self.known = len(self.extents)
        spans = sorted([(start, start + size) for start, size, _ in self.extents if size])
        if any(end > start for (_, end), (start, _) in itertools.pairwise(spans)):
            self.fit = False  # an address would not say which operand it belongs to

    # -- events ---------------------------------------------------------------------------------

    def execute(self) -> None:
        super().execute()
        if self.fit:
            self.store()

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        array = super().empty(shape, dtype)
        self.allocated(array)
        return array

    def allocated(self, array: Array) -> None:
        self.events.append(Allocation(len(self.extents), array.shape, array.dtype))
        self.extents.append((address(array), array.nbytes, True))

    def run_single(self, index: int) -> None:
        value = self.plan.graph.values[index]
        reached = self.reached() if value.op is ops.HOST and self.spoilt else ()
        self.copy = None
        super().run_single(index)
        if value.op is ops.EMPTY:
            return
        if value.op in (ops.VIEW, ops.INDEX):
            if self.plan.replays.slides:
                self.slid(index)
            return
        result = self.array(index)
        if value.op is ops.UPDATE:
            return
        if type(result) is not np.ndarray:
            self.fit = False
            return
        sources = [(at, self.scalar(at)) for at in value.src]
        parts = tuple([(at, part) for at, part in sources if type(part) is BlockPart])
        if not all(self.is_flat(part.root) for _, part in parts):
            self.fit = False
        self.extents.append((address(result), result.nbytes, True))
        if value.op is ops.COPY and parts and result.flags.c_contiguous and result.base is None:
            self.events.append(Allocation(len(self.extents) - 1, result.shape, result.dtype))
            self.events.append(copy_of(self.part(result), parts[0][1]))
        else:
            self.events.append(Call(index, parts, len(self.extents) - 1, reached))

    def slid(self, index: int) -> None:
        """Note a part whose offset in its block may be another in the next run."""
        value = self.plan.graph.values[index]
        below = value.src[0]
        if value.axes is not None:
            if below in self.slides:
                self.slides[index] = self.slides[below]
            return
        (result,), (source,) = loaded([self.operand(index)]), loaded([self.operand(below)])
        steps: tuple[tuple[int, int], ...] = ((1, value.dtype.itemsize),)
        if value.op is ops.INDEX:
            steps = _steps_of(self.nodes[value.origin].src[0], source)
        self.slides[index] = len(self.extents)
        place = self.located(below, source) if self.copy is None else self.part(self.copy)
        self.events.append(Window(index, place, len(self.extents), steps))
        self.extents.append((address(result), 0, False))

    def run_chain(self, chain: Chain) -> bool:
        before = len(self.events)
        loads = [self.array(index) for index in chain.loads]
        if not super().run_chain(chain):
            return False
        bound = tiled_run.bind(self, chain, loads)
        if bound is None:
            self.fit = False
            return True
        del self.events[before:]  # the chain allocates its results each time
        scalars = {index for step in bound.sized_chain.kernels for index in step.scalars}
        computed = [(index, self.scalar(index)) for index in sorted(scalars)]
        sources = [(i, self.located(i, a)) for i, a in zip(chain.loads, loads, strict=True)]
        sources += [(index, part) for index, part in computed if type(part) is BlockPart]
        made = tuple([(index, self.part(self.array(index)).root) for index in chain.kept])
        self.events.append(ChainEvent(bound, tuple(sources), made))
        return True

    def reached(self) -> tuple[tuple[int, BlockPart], ...]:
        """The values that the run has made and that are still needed."""
        values = self.plan.graph.values
        made = {i for i, x in enumerate(self.env) if x is not None and not values[i].derived}
        found = [(i, self.located(i)) for i in sorted(made.difference(self.plan.bound))]
        if not all(self.is_flat(part.root) for _, part in found):
            self.fit = False
        return tuple(found)

    def is_flat(self, root: int) -> bool:
        """Whether a block can be the base of arrays: NumPy asks for C order."""
        if not self.fit:
            return False  # what lies in no block has none
        windows = {each.root: each.source.root for each in self.events if type(each) is Window}
        return bool(self.extents[windows.get(root, root)][2])

    def target(self, index: int) -> tuple[Array, Array]:
        old = self.array(self.plan.graph.values[index].src[0])
        part, whole = super().target(index)
        if whole is not old and not (whole.flags.c_contiguous and old.flags.c_contiguous):
            self.fit = False
        return part, whole

    def packed(self, index: int, array: Array, perm: tuple[int, ...] | None) -> Array:
        flat = super().packed(index, array, perm)
        self.copy = None if np.may_share_memory(flat, array) else flat
        return flat

    def copied(self, target: Array, source: Array, index: int = -1) -> None:
        """Note that elements were copied."""
        self.events.append(copy_of(self.part(target), self.located(index, source)))

    def update(self, index: int) -> None:
        super().update(index)
        value = self.plan.graph.values[index]
        whole = self.array(index)
        flat = self.packed(index, whole, value.perm)
        layout = self.layout(index)
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

    def reserve_boxes(self, step: KernelStep, boxes: Sequence[Any]) -> list[Program]:
        programs = super().reserve_boxes(step, boxes)
        if any(each.source.language == "numpy" for each in programs):
            self.fit = False  # blocked NumPy allocates in replays, too
        return programs

    def launch(
        self,
        step: KernelStep,
        shape: tuple[int, ...],
        inputs: list[Array],
        outputs: list[Array],
        others: Others = (),
        whole: int = 0,
    ) -> Any:
        flags = super().launch(step, shape, inputs, outputs, others, whole)
        lowered, program = self.launched
        key = program_tiers.size_key(step, self.device, shape, inputs, outputs, others, whole)
        found = step.selected.get(key)
        is_final = found is not None and found[1] is program
        source = None if is_final else program_tiers.awaited(program, lowered, self.device)
        if not isinstance(flags, int) or not (is_final or source):
            self.fit = False  # this program is not the one that will run from now on
            return flags
        if source is not None:
            self.awaited.append(source)
        blocks = range(len(self.extents) - len(lowered.temporaries), len(self.extents))
        arrays = [self.located(index, at) for index, at in zip(step.inputs, inputs, strict=True)]
        arrays += [self.part(array) for array in outputs]
        for root, (size, dtype) in zip(blocks, lowered.temporaries, strict=True):
            strides = np.empty(size, dtype).strides
            arrays.append(BlockPart(root, 0, size, strides, np.dtype(dtype)))
        real = [part.at([each[0] for each in self.extents]) for part in arrays]
        launch = lowered.launch(program.source.language, real, (0,) * len(step.scalars))
        self.events.append(
            LaunchEvent(
                step,
                program,
                program.bound(launch),
                tuple([self.scalar(index) for index in step.scalars]),
                lowered,
                tuple(arrays),
                tuple(arrays[: len(inputs)]),
                tuple(arrays[len(inputs) : len(inputs) + len(outputs)]),
                len(step.members) + len(step.reductions),
                tuple([(at, self.located(at)) for at in self.plan.graph.lying(step.inputs)])
                if self.plan.graph.reads_moves(step.inputs)
                else (),
            )
        )
        return flags

    def keep_operands(self) -> None:
        """Write nothing down: later runs write in place."""
        self.fit = False

    def assembled(self, index: int) -> Array:
        self.fit = False  # a copy that is no event
        return super().assembled(index)

    def run_members(self, step: KernelStep, outputs: list[Array]) -> int:
        self.fit = False  # a kernel that failed has no launch to replay
        return super().run_members(step, outputs)

    def scalar(self, index: int) -> int | BlockPart:
        if self.plan.graph.values[index].op in (ops.SCALAR, ops.LEAF):
            return index
        return self.located(index)

    def located(self, index: int, array: Array | None = None) -> BlockPart:
        """The part of a block where a value lies."""
        if array is None:
            array = self.array(index)
        root = self.slides.get(index)
        if root is None:
            return self.part(array)
        offset = address(array) - self.extents[root][0]  # one index along an axis: Value.picks
        return BlockPart(root, offset, array.shape, array.strides, array.dtype)

    def part(self, array: Array) -> BlockPart:
        """The part of a block where an array lies; if there is none, the run is not kept."""
        start = address(array)
        for root in range(len(self.extents) - 1, -1, -1):
            begin, size, _ = self.extents[root]
            if begin <= start < begin + size:
                return BlockPart(root, start - begin, array.shape, array.strides, array.dtype)
        self.fit = False
        return BlockPart(0, 0, array.shape, array.strides, array.dtype)

    # -- the replay -----------------------------------------------------------------------------

    def store(self) -> None:
        """Keep the run as the replay of its geometry."""
        kept: ReplayCache | None = self.plan.replays
        if kept is None or self.key is None or self.careful:
            return
        if any(index in self.slides for index in self.plan.outputs):
            return
        results = [(index, self.part(self.array(index))) for index in self.plan.outputs]
        stored = {part.root for event in self.events for part in _written(event)}
        if any(not self.extents[part.root][2] for _, part in results if not _is_whole(self, part)):
            return
        starts = [event for event in self.events if type(event) is LaunchEvent]
        launched = {id(event.step) for event in starts}
        values = self.plan.graph.values
        chains = [event.bound.chain for event in self.events if type(event) is ChainEvent]
        kernels = len(launched) + sum(len(each.kernels) for each in chains)
        if not self.fit or kernels != len(self.plan.kernels):
            return
        kept.learnt += 1
        if len(kept.found) >= LIMIT:
            kept.found.clear()
        leaves = frozenset(range(self.known))
        dead = _dead(self.events, {part.root for _, part in results})
        kept.found[self.key] = Replay(
            self.device,
            len(self.extents),
            self.leaves,
            frozenset(stored & leaves),
            tuple([root for root in stored if self.gave(root)]),
            tuple(self.events),
            dead,
            tuple(results),
            tuple(self.updates),
            small=tuple([(x.step, x.lowered) for x in starts if _is_small(x, self.awaited)]),
            blocks=self.taken(dead) if stored & leaves else (),
            awaited=tuple(self.awaited),
            maps=tuple([self.nodes[values[i].origin].arg for i in kept.maps]),
        )

    def taken(self, dead: Sequence[tuple[int, ...]]) -> tuple[tuple[int, int], ...]:
        """The most blocks that a run uses at a time, by class: what it reserves."""
        sizes = [size for _, size, _ in self.extents]
        turns = (
            (
                [sizes[root] for root in _allocated(event)],
                [sizes[root] for root in roots if root >= self.known],
            )
            for event, roots in zip(self.events, dead, strict=True)
        )
        buffers: Any = self.device
        found: tuple[tuple[int, int], ...] = buffers.buffers.classes(at_most(turns).items())
        return found

    def gave(self, root: int) -> bool:
        """Whether a block that was written belongs to an operand that no update writes to: its
        buffer was donated, which depends on more than the key.
        """
        if root >= self.known:
            return False
        return not any(part.root == root for _, part, _ in self.updates)


def _steps_of(base: Node, source: Array) -> tuple[tuple[int, int], ...]:
    """Along each axis of a base, in memory order: the elements and the bytes that one index is,
    where `source` lies that is shown in its place, broadcast to it.
    """
    shown = np.broadcast_to(source, base.shape).strides
    steps = list(zip(contiguous_strides(base.shape, base.perm), shown, strict=True))
    return tuple([steps[axis] for axis in base.perm or range(len(steps))])


def _is_small(event: LaunchEvent, awaited: Sequence[Source]) -> bool:
    if event.language != "numpy" or event.lowered.source("numba") in awaited:
        return False
    return program_tiers.is_exact(event.lowered)


def _is_whole(run: CapturingRun, part: BlockPart) -> bool:
    if part.root >= run.known:
        return False
    array = run.env[run.leaves[part.root]]
    return array is not None and array.strides == part.strides and not part.offset


def _written(event: Event) -> tuple[BlockPart, ...]:
    if type(event) is LaunchEvent:
        return event.outputs
    return (event.target,) if type(event) is Copy else ()


def _allocated(event: Event) -> list[int]:
    if type(event) is ChainEvent:
        return [root for _, root in event.made]
    return [event.root] if type(event) is Allocation else []


def _touched(event: Event) -> list[int]:
    if type(event) is LaunchEvent:
        scalars = [each.root for each in event.scalars if type(each) is BlockPart]
        # of a box, the program may read nothing; what asks for exceptions reads all
        whole = [*event.inputs, *[part for _, part in event.sources]]
        return scalars + [part.root for part in (*event.arrays, *whole)]
    if type(event) is Copy:
        return [event.target.root, event.source.root]
    if type(event) is Window:
        return [event.root, event.source.root]
    if type(event) is Call:
        return [event.root, *[part.root for _, part in event.sources]]
    if type(event) is ChainEvent:
        return _allocated(event) + [part.root for _, part in event.sources]
    return [event.root]  # type: ignore[union-attr]


def _dead(events: Sequence[Event], kept: set[int]) -> tuple[tuple[int, ...], ...]:
    """The blocks that may be freed after each event."""
    final: dict[int, int] = {}
    for at, event in enumerate(events):
        for root in _touched(event):
            final[root] = at
    found: list[list[int]] = [[] for _ in events]
    for root, at in final.items():
        if root not in kept:
            found[at].append(root)
    return tuple(tuple(roots) for roots in found)
