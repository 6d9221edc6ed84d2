"""One execution of a plan: buffers, steps in order, programs, fallbacks.

Owns `Run`. Speaks of nodes and numpy arrays, never of the array type. Sees both the compiler and
the devices, as evaluate.py does, which decides when to run what.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from lazyfuse import check_step, config, floating, report
from lazyfuse.codegen import interpret, ops
from lazyfuse.codegen.graph import Memory, Node, source_line
from lazyfuse.codegen.linearize import Recording, Value
from lazyfuse.codegen.lower import Lowered, lower
from lazyfuse.codegen.memory import overlap
from lazyfuse.codegen.op import Op
from lazyfuse.codegen.plan import KernelStep, Plan
from lazyfuse.codegen.shapes import size_of
from lazyfuse.devices.base import Device, DeviceError, Program, Source
from lazyfuse.windows import arrange, dense, flat_memory, strides_kept, strides_over, window

Array = np.ndarray[Any, np.dtype[Any]]

# Launch geometries kept per kernel: one per shape and layout that it meets.
READY_LIMIT = 64
# Below this many element operations a kernel runs as blocked NumPy: it is done before a compiled
# program would be loaded. For inexact kernels this is the whole rule, so that runs repeat bitwise.
COMPILE_ELEMENTS = 32768
# How often the oracle is asked whether a kernel's floating-point conditions are real.
RECHECKS = 4


class Run:
    """One execution of a plan for one recording."""

    __slots__ = ("device", "env", "free", "nodes", "plan", "raised", "recording", "resized")

    def __init__(self, plan: Plan, recording: Recording, device: Device) -> None:
        self.plan = plan
        self.recording = recording
        self.device = device
        self.nodes = recording.nodes
        self.raised: list[tuple[int, list[tuple[Op, Node]]]] = []
        self.env: list[Array | None] = [None] * len(plan.graph.values)
        same = recording.sizes == plan.sizes
        self.resized = None if same else dict(zip(plan.sizes, recording.sizes, strict=True))
        self.free = self.writable_memories() if plan.in_place else set()
        values = plan.graph.values
        for index in plan.bound:
            self.env[index] = self.nodes[values[index].origin].value

    def writable_memories(self) -> set[int]:
        """Leaves whose memory nobody outside this graph still reads: updates may write there."""
        positions: dict[int, list[int]] = {}
        memories: dict[int, Memory] = {}
        for position, node in enumerate(self.nodes):
            if isinstance(node.arg, Memory) and node.value is not None:
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

    def execute(self) -> None:
        """Run the steps. Whatever happens, nothing that was computed is lost."""
        try:
            for step, last in zip(self.plan.steps, self.plan.lifetimes.last, strict=True):
                if isinstance(step, KernelStep):
                    self.run_kernel(step, last)
                else:
                    self.run_single(step.index)
                for index in last:
                    self.env[index] = None
        except BaseException:
            self.commit_updates()
            raise
        finally:
            self.commit(self.plan.outputs)

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

    # -- single values --------------------------------------------------------------------------

    def run_single(self, index: int) -> None:
        value = self.plan.graph.values[index]
        node = self.nodes[value.origin]
        if value.op is ops.VIEW:
            self.env[index] = self.view(index)
            return
        try:
            if value.op is ops.UPDATE:
                target, whole = self.target(index, ())
                target[...] = self.array(value.src[1])
                self.env[index] = whole
                return
            sources = [self.array(source) for source in value.src]
            perms = [self.plan.graph.values[source].perm for source in value.src]
            shape = self.shape(index)
            with floating.collecting() as flags:
                found = interpret.run_node(
                    value.op, value.arg if value.op is not ops.HOST else node.arg,
                    shape, value.dtype, value.perm, sources, perms,
                )  # fmt: skip
            self.env[index] = found
        except Exception as error:
            explain_failure(error, [node])
            raise
        report.ran_single(node)
        if flags.bits:
            self.raised.append((flags.bits, [(value.op, node)]))

    def view(self, index: int) -> Array:
        """A value that only looks at another one's memory."""
        value = self.plan.graph.values[index]
        source = self.array(value.src[0])
        if value.axes is not None:
            return arrange(source, value.axes, self.shape(index))
        perm = self.plan.graph.values[value.src[0]].perm
        layout = self.nodes[value.origin].arg
        return window(flat_memory(source, perm), layout)

    def target(self, index: int, inputs: Sequence[Array]) -> tuple[Array, Array]:
        """Where update `index` writes, and the whole array that it leaves behind.

        In place where that is safe: no older value of the memory is needed and no load of the same
        kernel overlaps the written part in another arrangement. Otherwise in a copy.
        """
        value = self.plan.graph.values[index]
        before = value.src[0]
        old = self.array(before)
        layout = self.nodes[value.origin].arg
        flat = flat_memory(old, value.perm)
        if self.may_overwrite(index, before, old) and np.may_share_memory(flat, old):
            return window(flat, layout), old
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
            return value.origin in self.free
        return not value.output and values[before].op is not ops.VIEW

    # -- kernels --------------------------------------------------------------------------------

    def run_kernel(self, step: KernelStep, last: Sequence[int]) -> None:
        shape = self.shape(step.domain_of)
        inputs = [self.array(index) for index in step.inputs]
        expected = check_step.before(self, step) if config.options.validate else None
        donors = self.donors(step, last, shape) if step.may_reuse else None
        outputs, pending, made = self.outputs(step, shape, inputs, donors)
        try:
            flags = self.launch(step, shape, inputs, outputs)
        except DeviceError as error:
            report.fell_back(step, self.nodes_of(step), str(error))
            flags = self.run_members(step, outputs)
        except Exception as error:
            explain_failure(error, self.nodes_of(step))
            raise
        for part, temporary in pending:
            np.copyto(part, temporary)
        env = self.env
        for index, array in made:
            env[index] = array
        if expected is not None:
            check_step.after(self, step, outputs, expected)
        if flags and floating.is_wanted(flags):
            flags = self.confirmed(step, flags, bool(donors or step.targets))
            if flags:
                self.raised.append((flags, self.operations(step)))

    def confirmed(self, step: KernelStep, flags: int, overwritten: bool) -> int:
        """The conditions that NumPy would report too.

        Vector comparisons of NaN and the arms of selects raise flags of their own, which NumPy
        clears. Where a kernel has such operations the oracle is asked, a few times per kernel.
        """
        operations = self.operations(step)
        if not any(floating.misreports(op) for op, _ in operations):
            return flags
        if overwritten or step.rechecks >= RECHECKS:
            return flags & step.seen
        step.rechecks += 1
        with floating.collecting() as found:
            self.members(step)
        step.seen |= found.bits
        return flags & found.bits

    def nodes_of(self, step: KernelStep) -> list[Node]:
        """The recorded operations that a kernel computes, in order."""
        values = self.plan.graph.values
        indices = sorted((*step.members, *step.reductions))
        return [self.nodes[values[index].origin] for index in indices]

    def donors(
        self, step: KernelStep, last: Sequence[int], shape: tuple[int, ...]
    ) -> dict[np.dtype[Any], list[Array]]:
        """Operands that nobody reads again: their buffers may take the kernel's results."""
        found: dict[np.dtype[Any], list[Array]] = {}
        for index in step.inputs:
            if index not in last:
                continue
            array = self.array(index)
            if array.shape != shape or not array.flags.c_contiguous:
                continue
            value = self.plan.graph.values[index]
            # the environment, the list of inputs, the local name, getrefcount's argument
            owners = 4
            if value.op is ops.LEAF:
                node = self.nodes[value.origin]
                edges = self.recording.edges.get(id(node), 0)
                if sys.getrefcount(node) > edges + 3:
                    continue
                owners = 5  # and its node
            if value.op is not ops.VIEW and _unseen(array, owners):
                found.setdefault(array.dtype, []).append(array)
        return found

    def outputs(
        self,
        step: KernelStep,
        shape: tuple[int, ...],
        inputs: list[Array],
        donors: dict[np.dtype[Any], list[Array]] | None,
    ) -> tuple[list[Array], list[tuple[Array, Array]], list[tuple[int, Array]]]:
        """Arrays that a kernel writes; copies to make, and values that exist, once it has run."""
        values = self.plan.graph.values
        outputs: list[Array] = []
        pending: list[tuple[Array, Array]] = []
        made: list[tuple[int, Array]] = []
        targets = step.targets
        for position, index in enumerate(step.stores):
            if not targets or position not in targets:
                value = values[index]
                gifts = donors.get(value.dtype) if donors and value.perm is None else None
                array = gifts.pop() if gifts else self.fresh(value, shape)
                made.append((index, array))
                outputs.append(array)
                continue
            part, whole = self.target(targets[position], inputs)
            made.append((targets[position], whole))
            if any(overlap(part, loaded) for loaded in inputs) or _crowded(part, outputs):
                temporary = self.device.empty(part.shape, part.dtype)
                pending.append((part, temporary))
                outputs.append(temporary)
            else:
                outputs.append(part)
        for index in step.reductions:
            array = self.fresh(values[index], self.shape(index))
            made.append((index, array))
            outputs.append(array)
        return outputs, pending, made

    def fresh(self, value: Value, shape: tuple[int, ...]) -> Array:
        if value.perm is None:
            return self.device.empty(shape, value.dtype)
        dense_shape = tuple([shape[axis] for axis in value.perm])
        return self.device.empty(dense_shape, value.dtype).transpose(np.argsort(value.perm))

    def launch(
        self,
        step: KernelStep,
        shape: tuple[int, ...],
        inputs: list[Array],
        outputs: list[Array],
    ) -> int:
        key = (
            shape,
            tuple([(array.shape, array.strides) for array in inputs]),
            tuple([array.strides for array in outputs]),
        )
        ready = step.ready.get(key)
        if ready is None:
            ready = self.prepare(step, shape, inputs, outputs)
            if len(step.ready) >= READY_LIMIT:
                step.ready.clear()
            step.ready[key] = ready
        lowered, program = ready
        if program is None:
            program = self.program(step, lowered, shape)
            if program.source.language == "numba" or not lowered.source("numba").exact:
                step.ready[key] = (lowered, program)  # the choice is final
        env = self.env
        scalars = tuple([env[index][()] for index in step.scalars])  # type: ignore[index]
        arrays = inputs + outputs
        start = time.perf_counter()
        if lowered.temporaries:
            arrays += [self.device.empty(shape, dtype) for shape, dtype in lowered.temporaries]
        flags = program.launch(lowered.launch(program.source.language, arrays, scalars))
        if lowered.temporaries:
            with floating.collecting() as found:
                lowered.finish(arrays)
            flags |= found.bits
        report.ran_kernel(step, self, program.source, inputs, outputs, start)
        return flags

    def prepare(
        self,
        step: KernelStep,
        shape: tuple[int, ...],
        inputs: list[Array],
        outputs: list[Array],
    ) -> tuple[Lowered, Program | None]:
        """A kernel at these sizes and strides; its program is chosen until the choice is final."""
        rank = len(shape)
        for array in inputs:
            if any(stride % array.itemsize for stride in array.strides):
                raise DeviceError("[launch] strides: expected whole elements")
        in_strides = tuple([strides_over(array, shape, rank) for array in inputs])
        stores = len(step.stores)
        out_strides = tuple(
            [strides_over(array, shape, rank) for array in outputs[:stores]]
            + [strides_kept(array, step.kernel.reduced, rank) for array in outputs[stores:]]
        )
        return lower(step.kernel, shape, in_strides, out_strides, self.order(step, rank)), None

    def order(self, step: KernelStep, rank: int) -> tuple[int, ...] | None:
        if not step.reductions:
            return None
        perm = self.plan.graph.values[step.domain_of].perm
        return perm if perm is not None and len(perm) == rank else None

    def program(self, step: KernelStep, lowered: Lowered, shape: tuple[int, ...]) -> Program:
        """The program for a kernel: compiled where that pays, blocked NumPy elsewhere."""
        source = self.source(step, lowered, shape)
        program = step.programs.get(source)
        if program is not None:
            return program
        try:
            program = self.device.compile(source)
        except DeviceError as error:
            if source.language == "numpy":
                raise
            report.fell_back(step, self.nodes_of(step), str(error))
            program = self.device.compile(lowered.source("numpy"))
        step.programs[source] = program
        return program

    def source(self, step: KernelStep, lowered: Lowered, shape: tuple[int, ...]) -> Source:
        languages = self.device.traits.languages
        if len(languages) == 1:
            return lowered.source(languages[0])
        large = size_of(shape) * max(step.cost, 1.0) >= COMPILE_ELEMENTS
        source = lowered.source("numba")
        if not source.exact:
            return source if large else lowered.source("numpy")
        if source in step.programs:
            return source
        if not large:
            return lowered.source("numpy")
        step.uses += 1
        if step.uses > config.options.compile_after or self.device.cached(source):
            return source
        return lowered.source("numpy")

    def members(self, step: KernelStep) -> dict[int, Array]:
        """What each operation of a kernel gives, by the oracle."""
        values = self.plan.graph.values
        found: dict[int, Array] = {}
        for index in sorted((*step.members, *step.reductions)):
            value = values[index]
            sources = [found[s] if s in found else self.array(s) for s in value.src]
            perms = [values[s].perm for s in value.src]
            found[index] = interpret.run_node(
                value.op, value.arg, self.shape(index), value.dtype, value.perm, sources, perms
            )
        return found

    def run_members(self, step: KernelStep, outputs: list[Array]) -> int:
        """The last fallback: a kernel's operations one by one with NumPy."""
        with floating.collecting() as flags:
            values = self.members(step)
        for array, index in zip(outputs, (*step.stores, *step.reductions), strict=True):
            np.copyto(array, values[index], casting="unsafe")
        return flags.bits

    def operations(self, step: KernelStep) -> list[tuple[Op, Node]]:
        values = self.plan.graph.values
        indices = sorted((*step.members, *step.reductions))
        return [(values[i].op, self.nodes[values[i].origin]) for i in indices]


def explain_failure(error: BaseException, nodes: list[Node]) -> None:
    """Name the user's line and the fused stage on an exception that keeps its own type."""
    node = nodes[-1]
    file, line, function = source_line(node.where)
    stage = " -> ".join(each.op.name for each in nodes)
    error.add_note(f'[{node.op.name}] recorded in File "{file}", line {line}, in {function}')
    error.add_note(f"[{node.op.name}] fused stage: {stage}")


def _unseen(array: Array, owners: int) -> bool:
    """Whether `owners` references are all there are to an array, and it alone to its memory."""
    if sys.getrefcount(array) > owners + 1 or not array.flags.writeable:
        return False
    base = array.base
    while isinstance(base, np.ndarray):
        # the array above it, the local name and getrefcount's argument
        if sys.getrefcount(base) > 3:
            return False
        base = base.base
    return True


def _crowded(part: Array, outputs: list[Array]) -> bool:
    return any(np.may_share_memory(part, other) for other in outputs)
