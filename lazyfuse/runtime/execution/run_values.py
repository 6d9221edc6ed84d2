"""The values of one run of a plan: where each of them is, and which launches are pending.

Owns `RunValues`: operands, views, the targets of updates, which memory may be written in place, and
how results become the values of nodes. executor.py owns which step runs where; discrete_run.py owns
memory that the host cannot read.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import reduce
from operator import or_
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np

from lazyfuse.codegen.graph import interpret, references
from lazyfuse.codegen.graph.linearize import Recording, Value
from lazyfuse.codegen.graph.moves import stored_of
from lazyfuse.codegen.graph.node import Layout, Memory, Node, source_line
from lazyfuse.codegen.graph.shapes import size_of
from lazyfuse.codegen.lowering.flag_slots import slots
from lazyfuse.codegen.plan.lifetimes import shares
from lazyfuse.codegen.plan.plan import KernelStep, Plan
from lazyfuse.codegen.table import ops
from lazyfuse.codegen.table.op import Op
from lazyfuse.devices.base import Device, DeviceError, DeviceLost, Later
from lazyfuse.devices.dataclass import dataclass
from lazyfuse.runtime.events import counters, decisions
from lazyfuse.runtime.execution import known_exceptions, moved
from lazyfuse.runtime.execution.known_exceptions import KnownExceptions
from lazyfuse.runtime.execution.moved import Moved, as_array
from lazyfuse.runtime.layout.strides import (
    around,
    arrange,
    dense,
    flat_memory,
    is_alone,
    is_dense,
    picked,
    window,
)
from lazyfuse.runtime.numerics import fp_flags
from lazyfuse.runtime.placement import devices, residency

Array = np.ndarray[Any, np.dtype[Any]]

# Runs that keep the operands of a plan's kernels once exceptions arose whose operands were lost.
KEEPING = 64


class Abandoned(Exception):
    """A device failed in work that it had accepted; its work since the last wait is undone."""


@dataclass
class PendingLaunch:
    """A launch under way."""

    later: Later
    step: KernelStep


def at_most(turns: Iterable[tuple[Sequence[int], Sequence[int]]]) -> Counter[int]:
    """How many of each size exist at a time, if each step takes some and then gives some back."""
    now: Counter[int] = Counter()
    most: Counter[int] = Counter()
    for taken, given in turns:
        for size in taken:
            now[size] += 1
            most[size] = max(most[size], now[size])
        for size in given:
            now[size] -= now[size] > 0
    return most


class RunValues:
    """The values of one run.

    `assigned_device` is the device that the run was given to, `device` the one that works at the
    moment: the CPU runs what the assigned device cannot. `off_cpu`: the assigned device is not the
    CPU.
    """

    __slots__ = (
        "assigned_device",
        "careful",
        "device",
        "env",
        "free",
        "launched",
        "made",
        "moved",
        "nodes",
        "off_cpu",
        "overwrites",
        "plan",
        "raised",
        "recording",
        "resized",
        "spares",
        "spoilt",
        "waiting",
    )

    def __init__(self, plan: Plan, recording: Recording, device: Device) -> None:
        self.plan = plan
        self.recording = recording
        self.assigned_device = self.device = device
        self.off_cpu = device.asynchronous
        self.nodes = recording.nodes
        self.raised: list[tuple[int, list[tuple[Op, Node]]]] = []
        self.waiting: list[PendingLaunch] = []
        self.made: list[int] = []  # values that launches since the last wait have made
        self.moved: set[int] = set()  # updates that write to a copy of their array
        self.spares: list[Array] = []  # buffers that were swapped out: see update_hazards.py
        self.overwrites = False  # whether the kernel at hand writes over operands of the run
        self.spoilt = False  # whether any kernel so far has written over them
        self.careful = False  # whether none may: memory is short, and a run may end halfway
        self.env: list[Array | None] = [None] * len(plan.graph.values)
        same = recording.sizes == plan.sizes
        self.resized = None if same else dict(zip(plan.sizes, recording.sizes, strict=True))
        self.free = self.writable_memories() | self.spent_results() if plan.in_place else set()
        values = plan.graph.values
        for index in plan.bound:
            node = self.nodes[values[index].origin]
            self.env[index] = node.value if node.resident is None else self.bound(node)

    def bound(self, node: Node) -> Array:
        """An operand of the run that also resides on a device."""
        return residency.gather(node, "operand")

    def leaf_positions(self) -> list[int]:
        """The positions, among the nodes, of the plan's operands that are arrays."""
        values = self.plan.graph.values
        return [values[at].origin for at in self.plan.bound if values[at].op is ops.LEAF]

    def writable_memories(self) -> set[int]:
        """Leaves whose memory nothing outside this graph reads: updates may write there."""
        positions: dict[int, list[int]] = {}
        memories: dict[int, Memory] = {}
        for position in self.leaf_positions():
            node = self.nodes[position]
            if isinstance(node.arg, Memory) and node.op is ops.LEAF:
                positions.setdefault(id(node.arg), []).append(position)
                memories[id(node.arg)] = node.arg
        if not memories:
            return set()
        del node  # the variable would count as a reference
        # the recording's list of nodes holds each leaf once more than the edges do
        edges = {key: count + 1 for key, count in self.recording.edges.items()}
        free: set[int] = set()
        for key, memory in memories.items():
            if memory.owned and not memory.has_readers(edges):
                free.update(positions[key])
        return free

    def spent_results(self) -> set[int]:
        """Nodes that an earlier run has evaluated and that only this graph still reads.

        They replace leaves in a loop that was evaluated between the reads of a statement.
        """
        free: set[int] = set()
        edges = self.recording.edges
        places = [] if self.off_cpu else self.leaf_positions()
        counts = references.of_each([self.nodes[position] for position in places])
        for position, count in zip(places, counts, strict=True):
            node = self.nodes[position]
            if node.value is None or node.resident is not None or isinstance(node.arg, Memory):
                continue
            # 2: the recording's list and ours; of the array 1: the node
            alone = count <= edges.get(id(node), 0) + 2 and references.of(node.value) <= 1
            if alone and is_alone(node.value):
                free.add(position)
        return free

    @property
    def sizes(self) -> tuple[int, ...]:
        """The distinct sizes of this recording: with the plan, the shapes of all values."""
        return tuple(self.recording.sizes)

    def shape(self, index: int) -> tuple[int, ...]:
        """The shape of a value in this recording."""
        shape = self.plan.graph.values[index].shape
        if self.resized is None:
            return shape
        resized = self.resized
        return tuple([resized[size] for size in shape])

    def array(self, index: int) -> Array:
        found = self.env[index]
        if found is None and self.plan.graph.values[index].op is ops.INDEX:
            found = self.env[index] = self.assembled(index)
        assert found is not None, "a step ran before its source"
        return found

    def operand(self, index: int) -> Array | Moved:
        """A value in memory that the present device can read."""
        if self.env[index] is None and self.plan.graph.values[index].op is ops.INDEX:
            return moved.shown(self, index)
        return self.loaded(index)

    def loaded(self, index: int) -> Array:
        """The array of a value, in memory that the present device can read."""
        return self.array(index)

    def assembled(self, index: int) -> Array:
        """What a map of indices shows, as an array of its own in host memory."""
        return moved.assembled(self, index)

    def host(self, index: int) -> Array:
        """A value in memory that NumPy can read."""
        self.wait()
        return self.array(index)

    def number(self, index: int) -> Any:
        """A value without axes as a number."""
        if self.waiting and self.plan.graph.values[index].op not in (ops.SCALAR, ops.LEAF):
            self.wait()  # a launch under way may be about to write it
        return self.env[index][()]  # type: ignore[index]

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Memory that the present device can write."""
        return self.device.empty(shape, dtype)

    def reserve(self) -> Any:
        """Reserve the memory of all steps if one of them may write over operands of the run.

        Overwritten operands cannot be had again, so the run must not end halfway for want of
        memory. Returns the buffers to release after the run; None if there are none.
        """
        plan = self.plan
        buffers = None if self.off_cpu or len(plan.steps) < 2 else self.device.buffers
        if buffers is None:
            return None
        blocks = plan.blocks if self.resized is None else None
        if blocks is None:
            blocks = buffers.classes(self.blocks())
            if self.resized is None:
                plan.blocks = blocks
        if blocks and not buffers.reserve(blocks):
            self.careful = True
            return None
        return buffers if blocks else None

    def blocks(self) -> list[tuple[int, int]]:
        """Bytes of the blocks that the run uses at a time, and the most of each size."""
        values = self.plan.graph.values
        taken = {
            index: size_of(self.shape(index)) * values[index].dtype.itemsize
            for step in self.plan.steps
            for index in step.writes
            if values[index].op is not ops.INDEX
        }
        turns = (
            ([taken[i] for i in step.writes if i in taken], [taken[i] for i in last if i in taken])
            for step, last in zip(self.plan.steps, self.plan.lifetimes.last, strict=True)
        )
        return sorted(at_most(turns).items())

    def copied(self, target: Array, source: Array, index: int = -1) -> None:
        """Called after a copy that is part of no kernel: capturing runs note it (capture.py).

        `index`: the value that `source` is, if any.
        """

    def fresh(self, value: Value, shape: tuple[int, ...]) -> Array:
        if value.perm is None:
            return self.empty(shape, value.dtype)
        dense_shape = tuple([shape[axis] for axis in value.perm])
        return self.empty(dense_shape, value.dtype).transpose(np.argsort(value.perm))

    def view(self, index: int) -> Array:
        """A value that is a view of another value's memory."""
        value = self.plan.graph.values[index]
        source = self.array(value.src[0])
        if value.axes is not None:
            return arrange(picked(source, value.picks), value.axes, self.shape(index))
        perm = self.plan.graph.values[value.src[0]].perm
        layout = self.layout(index)
        return window(self.packed(value.src[0], source, perm), layout)

    def packed(self, index: int, array: Array, perm: tuple[int, ...] | None) -> Array:
        """The flat memory of a value's array: its own if it is dense, else a copy."""
        if is_dense(array, perm):
            return flat_memory(array, perm)
        self.wait()
        source = array if perm is None else array.transpose(perm)
        target = self.empty(source.shape, source.dtype)
        np.copyto(target, source)
        self.copied(target, source, index)
        return target.reshape(-1)

    def layout(self, index: int) -> Layout:
        """The layout of a view or an update in the memory of its source."""
        value = self.plan.graph.values[index]
        node = self.nodes[value.origin]
        if value.piece < 0:
            found: Layout = node.arg
            return found
        return stored_of(node.arg, value.piece, node.perm)

    def joined(self, index: int, old: Array) -> Array | None:
        """Where update `index` writes if the kernel at hand also makes `old`; None: only after it.

        No later step may need an older value of the memory: the kernel's stores cannot be copied
        yet.
        """
        if self.off_cpu or index not in self.plan.in_place or not old.flags.writeable:
            return None
        flat = flat_memory(old, self.plan.graph.values[index].perm)
        if not np.may_share_memory(flat, old):
            return None
        return window(flat, self.layout(index))

    def target(self, index: int) -> tuple[Array, Array]:
        """Where update `index` writes, and the whole array that results from it.

        It writes in place where no step needs an older value of the memory. Otherwise in a copy.
        """
        value = self.plan.graph.values[index]
        before = value.src[0]
        old = self.array(before)
        layout = self.layout(index)
        flat = self.packed(before, old, value.perm)
        if self.may_overwrite(index, before, old) and np.may_share_memory(flat, old):
            return window(flat, layout), old
        self.wait()
        self.moved.add(index)
        fresh = self.empty(flat.shape, flat.dtype)
        shape = self.shape(index)
        packed = shape if value.perm is None else tuple([shape[axis] for axis in value.perm])
        slabs = around(packed, layout)
        for slab in ((...,),) if slabs is None else slabs:  # only what lies outside the window
            target, source = fresh.reshape(packed)[slab], flat.reshape(packed)[slab]
            np.copyto(target, source)
            self.copied(target, source)
        return window(fresh, layout), dense(fresh, shape, value.perm)

    def may_overwrite(self, index: int, before: int, old: Array) -> bool:
        if index not in self.plan.in_place or not old.flags.writeable:
            return False
        values = self.plan.graph.values
        at = before
        while values[at].op in (ops.VIEW, ops.UPDATE):
            if at in self.moved or (values[at].op is ops.UPDATE and at not in self.plan.in_place):
                return True  # it has a block of its own
            at = values[at].src[0]
        value = values[at]
        if value.op is ops.LEAF:
            if value.origin not in self.free or self.keeps_leaves():
                return False
            self.overwrites = True
            self.take(self.nodes[value.origin])
            return True
        return not value.output and values[before].op is not ops.VIEW

    def keeps_leaves(self) -> bool:
        """Whether the run may end halfway where what it has made is the value of no node: then its
        operands are needed again.
        """
        return self.careful or self.plan.fragments

    def take(self, node: Node) -> None:
        """Prepare for a write to the memory of a leaf that only this run holds."""
        if node.resident is not None:
            residency.forget(node)

    def wait(self) -> None:
        """Wait for pending launches: only then may host code read or write their memory."""
        if not self.waiting:
            return
        waiting, self.waiting = self.waiting, []
        try:
            self.assigned_device.wait()
            found = [(each, each.later.flags()) for each in waiting]
        except DeviceError as error:
            self.abandon(error)
        self.made.clear()
        for each, bits in found:
            self.note_exceptions(each.step, bits, None)

    def abandon(self, error: DeviceError) -> NoReturn:
        """Drop the work that a failed device was given since the last wait."""
        if isinstance(error, DeviceLost):
            devices.lose(self.assigned_device, str(error))
        self.waiting.clear()
        for index in self.made:
            self.env[index] = None
        raise Abandoned(str(error)) from error

    def note_exceptions(
        self,
        step: KernelStep,
        bits: int,
        sources: dict[int, Array] | None,
        outputs: Sequence[Array] = (),
    ) -> None:
        """Note the exceptions of a kernel that the user wants to be warned of."""
        if not bits or not fp_flags.is_wanted(bits):
            return
        if self.works_out:
            self.raised += fp_flags.by_operation(bits, self.operations(step), self.slots(step))
            return
        operations = self.operations(step)
        pairs = zip(operations, step.in_order, strict=True)
        bits = fp_flags.minded(bits, [(op, n) for (op, _), i in pairs for n in self.recorded(i)])
        if not bits:
            return
        if fp_flags.is_clear(bits, operations):
            raised = fp_flags.attributed(bits, operations)
        else:
            known = known_exceptions.at(step.known, fp_flags.place_of(self.nodes_of(step)))
            if self.is_known(known, bits):
                return
            raised = self.asked(step, bits, sources or {}, outputs, known)
        for index, own in zip(step.in_order, raised, strict=True):
            self.note_raised(index, own)

    def is_known(self, known: KnownExceptions, bits: int) -> bool:
        """Whether nothing is to be told, as far as the reference interpreter was asked before."""
        for index, own in known.raised.items():
            op = self.plan.graph.values[index].op
            if fp_flags.minded(bits & own, [(op, node) for node in self.recorded(index)]):
                known.runs = 0
                return False
        if not known.suffices(bits):
            return False
        if known_exceptions.is_due(known.runs + 1):
            self.plan.keeping = max(self.plan.keeping, 2)  # this run and the next
        return True

    def asked(
        self,
        step: KernelStep,
        bits: int,
        sources: dict[int, Array],
        outputs: Sequence[Array],
        known_here: KnownExceptions,
    ) -> list[int]:
        """What each operation of a kernel has raised, by the reference interpreter.

        Operands that the kernel has written over are lost. What was computed from them has raised
        what nothing else has: the first operation that can raise it, whatever was lost.
        """
        stored = dict(zip((*step.stores, *step.reductions), outputs, strict=False))
        kept = {i: x for i, x in sources.items() if not any(shares(x, out) for out in outputs)}
        lost = len(kept) < len(step.reads)
        counters.totals().decisions[decisions.LOST_OPERANDS] += lost
        if (lost or self.plan.keeping) and known_here.are_fresh:
            self.plan.keeping = KEEPING  # it may go on raising them
        found: dict[int, int] = {}
        known = {**kept, **self.members(step, sources=kept, conditions=found, stored=stored)}
        left = bits & ~reduce(or_, found.values(), 0)
        for index in step.in_order if left else ():
            if index not in found:
                found[index] = left & known_exceptions.possible(
                    self, index, known, stored.get(index)
                )
                left &= ~found[index]
        known_here.add(bits, found)
        return [found.get(index, 0) for index in step.in_order]

    def recorded(self, index: int) -> list[Node]:
        """The recorded nodes of a value: equal ones are computed once."""
        value = self.plan.graph.values[index]
        return [self.nodes[at] for at in (value.origin, *value.twins)]

    def note_raised(self, index: int, bits: int) -> None:
        """Note what a value has raised; once, although several kernels may compute it."""
        op = self.plan.graph.values[index].op
        for node in self.recorded(index) if bits else ():
            own = bits
            for seen, operations in self.raised:
                if operations[0][1] is node and operations[0][0] is op:
                    own &= ~seen
            if own:
                self.raised.append((own, [(op, node)]))

    @property
    def works_out(self) -> bool:
        """Whether programs derive exceptions from values, and name the operations that raised."""
        return self.off_cpu and self.device is self.assigned_device

    def may_ask(self, step: KernelStep) -> bool:
        """Whether the reference interpreter may have to check a kernel's exceptions."""
        if self.works_out:
            return False
        return not fp_flags.is_clear(fp_flags.ALL, self.operations(step))

    def slots(self, step: KernelStep) -> list[int]:
        """The slots in which a device's program reports each operation's exceptions."""
        if not step.slots:
            found = dict(zip((*step.reductions, *step.members), slots(step.kernel), strict=True))
            step.slots = [found[index] for index in step.in_order]
        return step.slots

    def sources_of(self, step: KernelStep) -> dict[int, Array] | None:
        """The operands of a kernel, if the reference interpreter can check it after it has run."""
        return {index: as_array(self.operand(index)) for index in step.reads}

    def members(
        self,
        step: KernelStep,
        seconds: list[float] | None = None,
        sources: dict[int, Array] | None = None,
        conditions: dict[int, int] | None = None,
        stored: Mapping[int, Array] = MappingProxyType({}),
    ) -> dict[int, Array]:
        """The result of each operation of a kernel, by the reference interpreter.

        Appends the time of each operation to `seconds`; `conditions` gets its exceptions. What
        cannot be computed, since `sources` lack an operand, is taken from `stored`.
        """
        values = self.plan.graph.values
        known = sources if sources is not None else {s: self.host(s) for s in step.reads}
        found: dict[int, Array] = {}
        for index in step.in_order:
            value = values[index]
            if sources is not None and any(s not in found and s not in known for s in value.src):
                if index in stored:
                    found[index] = stored[index]
                continue
            operands = [found[s] if s in found else known[s] for s in value.src]
            perms = [values[s].perm for s in value.src]
            start = time.perf_counter()
            collecting: AbstractContextManager[fp_flags.Flags | None] = nullcontext()
            if conditions is not None:
                collecting = fp_flags.collecting()
            try:
                with collecting as flags:
                    found[index] = interpret.run_node(
                        value.op, value.arg, self.shape(index), value.dtype, value.perm, operands,
                        perms,
                    )  # fmt: skip
            except Exception as error:
                explain_failure(error, self.nodes_of(step), self.nodes[value.origin])
                raise
            if seconds is not None:
                seconds.append(time.perf_counter() - start)
            if conditions is not None and flags is not None:
                conditions[index] = flags.bits
        return found

    def commit(self, indices: Sequence[int]) -> None:
        values = self.plan.graph.values
        for index in indices:
            value = self.env[index]
            if value is not None:
                node = self.nodes[values[index].origin]
                if node.value is None:  # else another thread was quicker
                    node.value = value
                node.src = ()

    def commit_updates(self) -> None:
        """After a failure: commit updates, so that updated memory is not updated again."""
        values = self.plan.graph.values
        self.commit([i for i, x in enumerate(values) if x.op is ops.UPDATE and not x.derived])

    def commit_reached(self) -> None:
        """After a failure: commit existing values, for pending work to go on from.

        The operands of those values may have been written over, so they cannot be computed again.
        """
        if self.spoilt:
            values = self.plan.graph.values
            self.commit([i for i, value in enumerate(values) if not value.derived])
        else:
            self.commit_updates()

    def nodes_of(self, step: KernelStep) -> list[Node]:
        """The recorded operations that a kernel computes, in order."""
        values = self.plan.graph.values
        return [self.nodes[values[index].origin] for index in step.in_order]

    def operations(self, step: KernelStep) -> list[tuple[Op, Node]]:
        values = self.plan.graph.values
        return [(values[i].op, self.nodes[values[i].origin]) for i in step.in_order]


def explain_failure(error: BaseException, nodes: list[Node], failing: Node | None = None) -> None:
    """Name the user's line and the fused stage on an exception that keeps its own type."""
    node = failing or nodes[-1]
    file, line, function = source_line(node.location)
    stage = " -> ".join(each.op.name for each in nodes)
    error.add_note(f'[{node.op.name}] recorded in File "{file}", line {line}, in {function}')
    error.add_note(f"[{node.op.name}] fused stage: {stage}")
