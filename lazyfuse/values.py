"""The values of one run of a plan: where each of them is, and what launches under way will say.

Owns `Values`: operands, views, the targets of updates, which memory may be written in place, and
how results become the values of nodes. Which step runs where is execute.py's; memory that the host
cannot read is discrete.py's.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from lazyfuse import floating, hardware, residency
from lazyfuse.codegen import interpret, ops
from lazyfuse.codegen.graph import Memory, Node, source_line
from lazyfuse.codegen.linearize import Recording, Value
from lazyfuse.codegen.op import Op
from lazyfuse.codegen.plan import KernelStep, Plan
from lazyfuse.devices.base import Device, DeviceError, DeviceLost, Later
from lazyfuse.windows import arrange, dense, flat_memory, is_dense, window

Array = np.ndarray[Any, np.dtype[Any]]

# How often the oracle is asked whether a kernel's floating-point conditions are real.
RECHECKS = 4


class Abandoned(Exception):
    """A device failed in work that it had accepted; what it did since the last wait is undone."""


@dataclass(slots=True)
class Waiting:
    """A launch under way."""

    later: Later
    step: KernelStep


class Values:
    """The values of one run.

    `home` is the device that the run was given to, `device` the one that works at the moment: what
    `home` cannot run is run by the CPU. `away`: `home` is not the CPU.
    """

    __slots__ = (
        "away",
        "device",
        "env",
        "free",
        "home",
        "made",
        "nodes",
        "overwrites",
        "plan",
        "raised",
        "recording",
        "resized",
        "waiting",
    )

    def __init__(self, plan: Plan, recording: Recording, device: Device) -> None:
        self.plan = plan
        self.recording = recording
        self.home = self.device = device
        self.away = not hardware.is_host(device)
        self.nodes = recording.nodes
        self.raised: list[tuple[int, list[tuple[Op, Node]]]] = []
        self.waiting: list[Waiting] = []
        self.made: list[int] = []  # values that launches since the last wait have made
        self.overwrites = False  # whether the kernel at hand writes over what the run began with
        self.env: list[Array | None] = [None] * len(plan.graph.values)
        same = recording.sizes == plan.sizes
        self.resized = None if same else dict(zip(plan.sizes, recording.sizes, strict=True))
        self.free = self.writable_memories() if plan.in_place else set()
        values = plan.graph.values
        for index in plan.bound:
            node = self.nodes[values[index].origin]
            self.env[index] = node.value if node.resident is None else self.bound(node)

    def bound(self, node: Node) -> Array:
        """A value that the run begins with and that a device has, too."""
        return residency.gather(node, "operand")

    def writable_memories(self) -> set[int]:
        """Leaves whose memory nobody outside this graph still reads: updates may write there."""
        positions: dict[int, list[int]] = {}
        memories: dict[int, Memory] = {}
        for position, node in enumerate(self.nodes):
            if isinstance(node.arg, Memory) and node.op is ops.LEAF:
                positions.setdefault(id(node.arg), []).append(position)
                memories[id(node.arg)] = node.arg
        node = self.nodes[0]  # the loop's last node is not one of our references to it
        # the recording's list of nodes holds each leaf once more than the edges do
        edges = {key: count + 1 for key, count in self.recording.edges.items()}
        edges[id(node)] = edges.get(id(node), 1) + 1
        free: set[int] = set()
        for key, memory in memories.items():
            if memory.owned and not memory.captured(edges):
                free.update(positions[key])
        return free

    def shape(self, index: int) -> tuple[int, ...]:
        """The shape of a value in this recording."""
        shape = self.plan.graph.values[index].shape
        if self.resized is None:
            return shape
        resized = self.resized
        return tuple([resized[size] for size in shape])

    def array(self, index: int) -> Array:
        found = self.env[index]
        assert found is not None, "a step ran before its source"
        return found

    def operand(self, index: int) -> Array:
        """A value where the present device can read it."""
        return self.array(index)

    def host(self, index: int) -> Array:
        """A value where NumPy can read it."""
        self.settle()
        return self.array(index)

    def number(self, index: int) -> Any:
        """A value without axes as a number."""
        if self.waiting and self.plan.graph.values[index].op not in (ops.SCALAR, ops.LEAF):
            self.settle()  # a launch under way may be about to write it
        return self.env[index][()]  # type: ignore[index]

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Memory that the present device can write."""
        return self.device.empty(shape, dtype)

    def fresh(self, value: Value, shape: tuple[int, ...]) -> Array:
        if value.perm is None:
            return self.empty(shape, value.dtype)
        dense_shape = tuple([shape[axis] for axis in value.perm])
        return self.empty(dense_shape, value.dtype).transpose(np.argsort(value.perm))

    def view(self, index: int) -> Array:
        """A value that only looks at another one's memory."""
        value = self.plan.graph.values[index]
        source = self.array(value.src[0])
        if value.axes is not None:
            return arrange(source, value.axes, self.shape(index))
        perm = self.plan.graph.values[value.src[0]].perm
        layout = self.nodes[value.origin].arg
        return window(self.packed(source, perm), layout)

    def packed(self, array: Array, perm: tuple[int, ...] | None) -> Array:
        """The flat memory of an array: its own if it is dense, else a copy."""
        if not is_dense(array, perm):
            self.settle()
        return flat_memory(array, perm)

    def target(self, index: int) -> tuple[Array, Array]:
        """Where update `index` writes, and the whole array that it leaves behind.

        In place where no older value of the memory is needed. Otherwise in a copy.
        """
        value = self.plan.graph.values[index]
        before = value.src[0]
        old = self.array(before)
        layout = self.nodes[value.origin].arg
        flat = self.packed(old, value.perm)
        if self.may_overwrite(index, before, old) and np.may_share_memory(flat, old):
            return window(flat, layout), old
        self.settle()
        fresh = self.device.empty(flat.shape, flat.dtype)
        np.copyto(fresh, flat)
        shape = self.shape(index)
        whole = dense(fresh, shape, value.perm)
        return window(fresh, layout), whole

    def may_overwrite(self, index: int, before: int, old: Array) -> bool:
        if index not in self.plan.in_place or not old.flags.writeable:
            return False
        values = self.plan.graph.values
        at = before
        while values[at].op in (ops.VIEW, ops.UPDATE):
            if values[at].op is ops.UPDATE and at not in self.plan.in_place:
                return True  # it has a block of its own
            at = values[at].src[0]
        value = values[at]
        if value.op is ops.LEAF:
            if value.origin not in self.free:
                return False
            self.overwrites = True
            self.take(self.nodes[value.origin])
            return True
        return not value.output and values[before].op is not ops.VIEW

    def take(self, node: Node) -> None:
        """The memory of a leaf that nobody else holds is about to be written to."""
        if node.resident is not None:
            residency.forget(node)

    def settle(self) -> None:
        """Wait for what is under way: only then host code may read or write what launches use."""
        if not self.waiting:
            return
        waiting, self.waiting = self.waiting, []
        try:
            self.home.settle()  # type: ignore[attr-defined]  # nothing waits on other devices
            found = [(each, each.later.flags()) for each in waiting]
        except DeviceError as error:
            self.abandon(error)
        self.made.clear()
        for each, bits in found:
            self.tell(each.step, bits, None)

    def abandon(self, error: DeviceError) -> NoReturn:
        """Forget what a failed device was given since the last wait."""
        if isinstance(error, DeviceLost):
            hardware.lose(self.home, str(error))
        self.waiting.clear()
        for index in self.made:
            self.env[index] = None
        raise Abandoned(str(error)) from error

    def tell(self, step: KernelStep, bits: int, sources: dict[int, Array] | None) -> None:
        """Note the conditions of a kernel that the user wants to hear of."""
        if bits and floating.is_wanted(bits):
            bits = self.confirmed(step, bits, sources)
            if bits:
                self.raised.append((bits, self.operations(step)))

    def confirmed(self, step: KernelStep, flags: int, sources: dict[int, Array] | None) -> int:
        """The conditions that NumPy would report too.

        Vector comparisons of NaN and the arms of selects raise flags of their own, which NumPy
        clears. Where a kernel has such operations the oracle is asked, a few times per kernel.
        Other devices have no such flags: their programs work conditions out from values.
        """
        works_out = self.away and self.device is self.home
        if works_out or not any(floating.misreports(op) for op, _ in self.operations(step)):
            return flags
        if sources is None or step.rechecks >= RECHECKS:
            return flags & step.seen
        step.rechecks += 1
        with floating.collecting() as found:
            self.members(step, sources=sources)
        step.seen |= found.bits
        return flags & found.bits

    def sources_of(self, step: KernelStep) -> dict[int, Array] | None:
        """The operands of a kernel, if the oracle may have to be asked when it has run."""
        if not any(floating.misreports(op) for op, _ in self.operations(step)):
            return None
        return {index: self.operand(index) for index in step.reads}

    def members(
        self,
        step: KernelStep,
        seconds: list[float] | None = None,
        sources: dict[int, Array] | None = None,
    ) -> dict[int, Array]:
        """What each operation of a kernel gives, by the oracle; appends how long each one took."""
        values = self.plan.graph.values
        known = sources if sources is not None else {s: self.host(s) for s in step.reads}
        found: dict[int, Array] = {}
        for index in sorted((*step.members, *step.reductions)):
            value = values[index]
            operands = [found[s] if s in found else known[s] for s in value.src]
            perms = [values[s].perm for s in value.src]
            start = time.perf_counter()
            try:
                found[index] = interpret.run_node(
                    value.op, value.arg, self.shape(index), value.dtype, value.perm, operands, perms
                )
            except Exception as error:
                explain_failure(error, self.nodes_of(step), self.nodes[value.origin])
                raise
            if seconds is not None:
                seconds.append(time.perf_counter() - start)
        return found

    def commit(self, indices: Sequence[int]) -> None:
        values = self.plan.graph.values
        for index in indices:
            value = self.env[index]
            if value is not None:
                node = self.nodes[values[index].origin]
                node.value = value
                node.src = ()

    def commit_updates(self) -> None:
        """After a failure: memory that has been updated must not be updated again."""
        values = self.plan.graph.values
        self.commit([i for i, value in enumerate(values) if value.op is ops.UPDATE])

    def nodes_of(self, step: KernelStep) -> list[Node]:
        """The recorded operations that a kernel computes, in order."""
        values = self.plan.graph.values
        indices = sorted((*step.members, *step.reductions))
        return [self.nodes[values[index].origin] for index in indices]

    def operations(self, step: KernelStep) -> list[tuple[Op, Node]]:
        values = self.plan.graph.values
        indices = sorted((*step.members, *step.reductions))
        return [(values[i].op, self.nodes[values[i].origin]) for i in indices]


def explain_failure(error: BaseException, nodes: list[Node], culprit: Node | None = None) -> None:
    """Name the user's line and the fused stage on an exception that keeps its own type."""
    node = culprit or nodes[-1]
    file, line, function = source_line(node.where)
    stage = " -> ".join(each.op.name for each in nodes)
    error.add_note(f'[{node.op.name}] recorded in File "{file}", line {line}, in {function}')
    error.add_note(f"[{node.op.name}] fused stage: {stage}")
