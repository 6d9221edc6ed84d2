"""One execution of a plan on a device whose memory the host cannot read.

Owns `DiscreteRun`. Values on the device are meta arrays, values on the host are host arrays.
Operands are uploaded when a kernel first needs them, host steps gather theirs, and results stay
where they were made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from lazyfuse import config
from lazyfuse.codegen.graph import references
from lazyfuse.codegen.graph.linearize import Recording
from lazyfuse.codegen.graph.node import Node
from lazyfuse.codegen.lowering.lower import Lowered
from lazyfuse.codegen.plan.lifetimes import crosses_itself, overlap
from lazyfuse.codegen.plan.plan import KernelStep, Plan
from lazyfuse.codegen.table import ops
from lazyfuse.devices.base import Device, DeviceError, DeviceLost, Later
from lazyfuse.runtime.events import counters
from lazyfuse.runtime.execution import program_tiers
from lazyfuse.runtime.execution.executor import Run
from lazyfuse.runtime.layout.meta_arrays import is_exported
from lazyfuse.runtime.layout.strides import (
    arrange,
    arrange_meta,
    dense,
    flat_memory,
    is_dense,
    picked,
    window,
)
from lazyfuse.runtime.numerics import narrow_precision
from lazyfuse.runtime.placement import pending_launches, residency

Array = np.ndarray[Any, np.dtype[Any]]


class DiscreteRun(Run):
    """A `Run` on a device with its own memory.

    `hosts` are the host copies of values that the run has on the device, `wanted` the views and
    updates that kernels read, `combined` results that the host has combined.
    """

    __slots__ = ("combined", "hosts", "memory", "wanted")

    keeps_origins = True

    def __init__(self, plan: Plan, recording: Recording, device: Device) -> None:
        assert device.memory is not None, "runs on host memory are `Run`s"
        self.memory = device.memory
        self.hosts: dict[int, Array] = {}
        self.combined: dict[int, Array] = {}
        self.assigned_device = device
        super().__init__(plan, recording, device)
        self.wanted = _wanted(plan, device)

    def bound(self, node: Node) -> Array:
        """The meta array of a value on this device; the host array of other values.

        Those are on another device, or no program of this device can touch them.
        """
        resident = node.resident
        elsewhere = resident.device is not self.assigned_device or resident.spoiled
        if elsewhere or narrow_precision.lacks(node.dtype, self.assigned_device.traits):
            return residency.gather(node, "operand")
        resident.uses += self.recording.edges.get(id(node), 0)
        return residency.upload(node, self.assigned_device, "operand")

    # -- where values are -----------------------------------------------------------------------

    @property
    def here(self) -> bool:
        """Whether the CPU works at the moment, instead of the device."""
        return self.device is not self.assigned_device

    def loaded(self, index: int) -> Array:
        return self.host(index) if self.here else self.placed(index)

    def placed(self, index: int) -> Array:
        """The meta array of a value, uploaded if only the host has it."""
        array = self.array(index)
        if self.memory.holds(array):
            return array
        value = self.plan.graph.values[index]
        node = self.nodes[value.origin]
        if value.op is ops.LEAF and node.value is array:
            found = residency.upload(node, self.assigned_device, "operand")
            node.resident.uses += self.recording.edges.get(id(node), 0)
        else:
            found = residency.copied_there(array, self.assigned_device, "operand")
        self.hosts[index] = array
        self.env[index] = found
        return found

    def host(self, index: int) -> Array:
        """The host array of a value, gathered if only the device has it."""
        array = self.array(index)
        if not self.memory.holds(array):
            return array
        value = self.plan.graph.values[index]
        found = self.hosts.get(index)
        if found is None and value.op is ops.LEAF:
            node = self.nodes[value.origin]
            if node.resident is not None and node.resident.array is array:
                found = residency.gather(node, "host step")
        if found is None:
            try:
                found = residency.copied_back(array, self.assigned_device, "host step")
            except DeviceError as error:
                self.abandon(error)
            self.hosts[index] = found
        return found

    def number(self, index: int) -> Any:
        return self.host(index)[()]

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        return self.device.empty(shape, dtype) if self.here else self.memory.empty(shape, dtype)

    def readable(self, outputs: list[Array]) -> list[Array]:
        return [
            residency.copied_back(array, self.assigned_device, "check")
            if self.memory.holds(array)
            else array
            for array in outputs
        ]

    def sources_of(self, step: KernelStep) -> dict[int, Array] | None:
        """The operands on the host; None: the device's report needs no confirmation."""
        return super().sources_of(step) if self.here else None

    def take(self, node: Node) -> None:
        """Drop the node's upload, which the device is about to write over."""
        residency.drop(node)

    # -- views and updates ----------------------------------------------------------------------

    def view(self, index: int) -> Array:
        value = self.plan.graph.values[index]
        before = value.src[0]
        source = self.array(before)
        if index in self.wanted:
            try:
                source = self.placed(before)
            except DeviceError as error:  # the view itself may still fit
                self.report_single(index, error)
        shape = self.shape(index)
        if value.axes is not None:
            away = self.memory.holds(source)
            part = picked(source, value.picks)
            return (arrange_meta if away else arrange)(part, value.axes, shape)
        flat = self.flat(source, self.plan.graph.values[before].perm)
        return window(flat, self.nodes[value.origin].arg)

    def flat(self, array: Array, perm: tuple[int, ...] | None) -> Array:
        """Flat memory with the values of an array: its own if it is dense."""
        if is_dense(array, perm) or not self.memory.holds(array):
            return flat_memory(array, perm)
        ordered = array if perm is None else array.transpose(perm)
        packed = self.memory.empty(ordered.shape, ordered.dtype)
        self.put(ordered, packed)
        return packed.reshape(-1)

    def target(self, index: int) -> tuple[Array, Array]:
        if self.here:
            return self.copied_whole(index)
        value = self.plan.graph.values[index]
        before = value.src[0]
        old = self.placed(before)
        layout = self.layout(index)
        flat = self.flat(old, value.perm)
        if self.may_overwrite(index, before, old) and np.may_share_memory(flat, old):
            return window(flat, layout), old
        fresh = self.memory.empty(flat.shape, flat.dtype)
        self.memory.copy(flat, fresh)
        counters.copied("copy", flat.nbytes, self.assigned_device.traits.name, "update")
        return window(fresh, layout), dense(fresh, self.shape(index), value.perm)

    def copied_whole(self, index: int) -> tuple[Array, Array]:
        """The target of an update, copied on the host where the device could not make it."""
        value = self.plan.graph.values[index]
        flat = flat_memory(self.host(value.src[0]), value.perm).copy()
        layout = self.layout(index)
        return window(flat, layout), dense(flat, self.shape(index), value.perm)

    def update(self, index: int) -> None:
        """Write a value into a part of an array, on the device that holds the array."""
        value = self.plan.graph.values[index]
        old, written = value.src
        if index in self.wanted or self.memory.holds(self.array(old)):
            try:
                part, whole = self.target(index)
                self.put(self.placed(written), part)
                self.env[index] = whole
                return
            except DeviceError as error:
                self.report_single(index, error)
        part, whole = self.copied_whole(index)
        part[...] = self.host(written)
        self.env[index] = whole

    def report_single(self, index: int, error: DeviceError) -> None:
        """Report that the host does what the device could not; abandon a device that is lost."""
        if isinstance(error, DeviceLost):
            self.abandon(error)
        node = self.nodes[self.plan.graph.values[index].origin]
        counters.fell_back([node], str(error), self.assigned_device.traits.name, "cpu")

    def put(self, source: Array, part: Array) -> None:
        """Copy a value, broadcast, into a part of an array, both on the device."""
        if not part.size:
            return
        if crosses_itself(part):
            raise DeviceError("[update] target: expected places of their own, got some that meet")
        if overlap(source, part):
            apart = self.memory.empty(source.shape, source.dtype)
            self.put(source, apart)
            source = apart
        lowered, program = program_tiers.copying(source, part.shape, part, self.assigned_device)
        program.launch(lowered.launch(program.source.language, [source, part], ()))
        counters.copied("copy", part.nbytes, self.assigned_device.traits.name, "update")

    def move(self, temporary: Array, part: Array) -> None:
        if self.here:
            super().move(temporary, part)
            return
        try:
            self.put(temporary, part)
        except DeviceError as error:  # the kernel has run, perhaps over its operands
            self.abandon(error)

    # -- kernels --------------------------------------------------------------------------------

    def wait(self) -> None:
        """Leave pending launches to the next gather: launches and copies run in order."""
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            if config.options.pipelining:
                pending_launches.add(
                    self.assigned_device,
                    each.later,
                    self.operations(each.step),
                    self.slots(each.step),
                )
            else:
                self.note_exceptions(each.step, self.outcome(each.later), None)

    def abandon(self, error: DeviceError) -> NoReturn:
        """Drop what a failed device held: of its values, only copies on the host remain."""
        for index, array in enumerate(self.env):
            if array is not None and self.memory.holds(array):
                self.env[index] = self.hosts.get(index)
        super().abandon(error)

    def attempt(self, step: KernelStep, last: Sequence[int]) -> list[Array]:
        outputs = super().attempt(step, last)
        first = len(step.stores)
        for position, index in enumerate(step.reductions):
            if index in self.combined:
                outputs[first + position] = self.env[index] = self.combined.pop(index)
        return outputs

    def combine(
        self, step: KernelStep, lowered: Lowered, arrays: list[Array], flags: int | Later
    ) -> int:
        """Combine partial results on the host; the results stay there until a kernel needs them."""
        if self.here:
            return super().combine(step, lowered, arrays, flags)
        bits = self.outcome(flags)
        inputs = len(step.inputs)
        temporaries = len(arrays) - len(lowered.temporaries)
        hosts = arrays[:inputs]
        hosts += [np.empty_like(array) for array in arrays[inputs:temporaries]]
        hosts += [
            residency.copied_back(array, self.assigned_device, "partial results")
            for array in arrays[temporaries:]
        ]
        bits |= self.finished(lowered, hosts)
        results = hosts[inputs + len(step.stores) : temporaries]
        self.combined.update(zip(step.reductions, results, strict=True))
        return bits

    # -- results --------------------------------------------------------------------------------

    def commit(self, indices: Sequence[int]) -> None:
        values = self.plan.graph.values
        found = [index for index in indices if self.env[index] is not None]
        lineages = residency.Lineages(self.unheld())
        taken: set[int] = set()
        for index in found:
            node = self.nodes[values[index].origin]
            array = self.array(index)
            if not self.memory.holds(array):
                node.value = array
                continue
            if id(array) in taken:  # two nodes must not share memory that one of them may change
                array = self.device_copy(array)
            taken.add(id(array))
            lineage = lineages.of(node)
            resident = residency.keep(node, array, self.assigned_device)
            resident.lineage, resident.made = lineage, True
            node.value = self.hosts.get(index)
        for index in found:
            self.nodes[values[index].origin].src = ()

    def device_copy(self, array: Array) -> Array:
        twin = self.memory.empty(array.shape, array.dtype)
        self.put(array, twin)
        return twin

    def unheld(self) -> set[int]:
        """The ids of leaves that only this run holds, and whose memory is our own."""
        found = set()
        for node, count in zip(self.nodes, references.of_each(self.nodes), strict=True):
            alone = count <= self.recording.references_to(node)
            if alone and node.value is not None and not is_exported(node.value):
                found.add(id(node))
        return found


def _wanted(plan: Plan, device: Device) -> set[int]:
    """The values that kernels of the device read, with the views and updates below them."""
    values = plan.graph.values
    found: set[int] = set()
    for step in reversed(plan.steps):
        if isinstance(step, KernelStep):
            if narrow_precision.why_not(step.kernel, device.traits):
                continue  # the CPU runs it
            found.update(step.inputs)
            found.update([values[index].src[0] for index in step.targets.values()])
        elif step.index in found and values[step.index].op is ops.INDEX:
            found.update(values[step.index].src)
        elif step.index in found and values[step.index].op in (ops.VIEW, ops.UPDATE):
            found.add(values[step.index].src[0])
    return found
