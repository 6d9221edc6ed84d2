"""One execution of a plan: steps in order, tiers, fallbacks.

Owns `Run`. Handles nodes and numpy arrays, never the array type. It sees both the compiler and the
devices; so does evaluate.py, which decides when to run what.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from lazyfuse import config
from lazyfuse.codegen.graph import references
from lazyfuse.codegen.graph.moves import assemble
from lazyfuse.codegen.graph.node import source_line
from lazyfuse.codegen.graph.shapes import size_of
from lazyfuse.codegen.lowering import flag_slots
from lazyfuse.codegen.lowering.kernel import KernelError
from lazyfuse.codegen.lowering.lower import Lowered
from lazyfuse.codegen.plan.chains import Chain
from lazyfuse.codegen.plan.lifetimes import crosses_itself, overlap, safe_source, shares
from lazyfuse.codegen.plan.plan import KernelStep
from lazyfuse.codegen.table import ops
from lazyfuse.devices import critical, progress
from lazyfuse.devices.base import DeviceError, DeviceLost, Later, Program
from lazyfuse.errors import EvaluationError
from lazyfuse.runtime.events import counters, decisions, spans
from lazyfuse.runtime.execution import (
    concurrency,
    matmul,
    program_tiers,
    tiled_run,
)
from lazyfuse.runtime.execution import (
    validate as check_step,
)
from lazyfuse.runtime.execution.moved import Moved, Others, as_array, divided, loaded, reloaded
from lazyfuse.runtime.execution.routine import native_kernel
from lazyfuse.runtime.execution.run_values import (
    Abandoned,
    PendingLaunch,
    RunValues,
    explain_failure,
)
from lazyfuse.runtime.execution.update_hazards import store_targets
from lazyfuse.runtime.layout.strides import is_alone
from lazyfuse.runtime.numerics import fp_flags, narrow_precision
from lazyfuse.runtime.placement import devices, library_calls

Array = np.ndarray[Any, np.dtype[Any]]


class Run(RunValues):
    """One execution of a plan for one recording."""

    __slots__ = ()

    keeps_origins = False
    """Whether the operands of a run can be had again after a kernel has written over them."""

    def execute(self) -> None:
        """Run the steps. Computed values are kept even if a step fails."""
        chains: dict[int, list[Chain]] = {}
        for chain in self.plan.chains:
            for each in (chain, *chain.parts):
                chains.setdefault(each.first, []).append(each)
        steps, lasts = self.plan.steps, self.plan.lifetimes.last
        at = 0
        reserved = self.reserve()
        work = progress.begin(len(steps)) if progress.watchers else None
        try:
            while at < len(steps):
                if critical.waiting and not self.spoilt:
                    critical.give_way()
                if work is not None:
                    work.at(at)
                begin, step = at, steps[at]
                here = chains.get(at, ()) if chains else ()
                at += 1
                if here:
                    self.spoilt = True
                ran = next((each for each in here if self.run_chain(each)), None)
                if ran is not None:
                    at = begin + len(ran.steps)
                elif isinstance(step, KernelStep):
                    self.run_kernel(step, lasts[begin])
                else:
                    self.run_single(step.index)
                for last in lasts[begin:at]:
                    for index in last:
                        self.env[index] = None
            self.wait()
        except Abandoned:
            self.commit_updates()
            raise
        except BaseException:
            with suppress(Abandoned):
                self.wait()
            self.commit_reached()
            raise
        finally:
            self.commit(self.plan.outputs)
            self.plan.keeping -= self.plan.keeping > 0
            if reserved is not None:
                reserved.release()
            if work is not None:
                work.end()

    def run_chain(self, chain: Chain) -> bool:
        """Run a chain tile by tile; False if its steps have to run one after the other."""
        return tiled_run.run(self, chain)

    def run_single(self, index: int) -> None:
        value = self.plan.graph.values[index]
        node = self.nodes[value.origin]
        if value.op is ops.VIEW:
            self.env[index] = self.view(index)
            return
        if value.op is ops.INDEX:
            return  # its readers look where its sources lie
        if value.op is ops.EMPTY:
            self.env[index] = self.fresh(value, self.shape(index))
            return
        if self.off_cpu and (done := library_calls.run(self, index)) is not None:
            self.env[index] = done
            return
        self.wait()
        span = spans.begin() if spans.on else None
        try:
            if value.op is ops.UPDATE:
                self.update(index)
                return
            sources = [self.host(source) for source in value.src]
            perms = [self.plan.graph.values[source].perm for source in value.src]
            shape = self.shape(index)
            with fp_flags.collecting() as flags:
                arg = value.arg if value.op is not ops.HOST else native_kernel(node.arg)
                found = concurrency.numpys(value.op, arg)(
                    matmul.run_node,
                    value.op, arg, shape, value.dtype, value.perm, sources, perms,
                )  # fmt: skip
            self.env[index] = found
        except Exception as error:
            explain_failure(error, [node])
            raise
        counters.ran_single(node, span=span)
        if flags.bits:
            self.note_raised(index, flags.bits)

    def update(self, index: int) -> None:
        """Write a value into a part of an array."""
        self.spoilt = True
        target, whole = self.target(index)
        target[...] = safe_source(target, self.array(self.plan.graph.values[index].src[1]))
        self.env[index] = whole

    def run_kernel(self, step: KernelStep, last: Sequence[int]) -> None:
        """Run a kernel on the assigned device, else on the CPU, else by the interpreter."""
        validate = config.options.validate and not self.narrowed(step)
        expected = check_step.before(self, step) if validate else None
        if self.off_cpu:
            outputs = self.descend(step, last)
        else:
            outputs = self.attempt(step, last)
        if expected is not None:
            self.wait()
            check_step.after(self, step, self.readable(outputs), expected)

    def descend(self, step: KernelStep, last: Sequence[int]) -> list[Array]:
        """Run on the assigned device, or on the CPU if that fails; the arrays that it wrote."""
        home = self.assigned_device.traits.name
        why = self.unfit(step)
        if not why:
            try:
                return self.attempt(step, last)
            except (DeviceError, KernelError) as error:
                if isinstance(error, DeviceLost):
                    self.abandon(error)
                why = str(error)
        counters.fell_back(self.nodes_of(step), why, home, "cpu")
        self.wait()
        self.device = devices.cpu()
        try:
            return self.attempt(step, ())
        finally:
            self.device = self.assigned_device

    def unfit(self, step: KernelStep) -> str:
        """Why the device cannot run a kernel; empty if it may."""
        if fp_flags.is_wanted(fp_flags.UNDER) and any(
            "under" in fp_flags.raises(op, node.arg) for op, node in self.operations(step)
        ):
            return "the device does not tell of underflow, which the error state asks for"
        return narrow_precision.why_not(step.kernel, self.assigned_device.traits)

    def narrowed(self, step: KernelStep) -> bool:
        """Whether the device computes a kernel in float32: then the reference cannot judge it."""
        return narrow_precision.is_narrowed(step.kernel, self.assigned_device.traits)

    def attempt(self, step: KernelStep, last: Sequence[int]) -> list[Array]:
        """Run a kernel on the present device; the arrays that it wrote."""
        shape = self.shape(step.domain_of)
        self.overwrites = False
        operands = [self.operand(index) for index in step.inputs]
        in_parts = any(isinstance(each, Moved) for each in operands)
        inputs: list[Array] = loaded(operands) if in_parts else operands  # type: ignore[assignment]
        # the reference interpreter needs the operands if the kernel raises exceptions
        keeps = self.plan.keeping and (step.targets or step.may_reuse) and self.may_ask(step)
        if keeps:
            counters.totals().decisions[decisions.KEPT_OPERANDS] += 1
            self.keep_operands()
        reuses = step.may_reuse and last and not keeps
        donors = self.donors(step, last, shape, in_parts) if reuses else None
        outputs, pending, made, late = self.outputs(step, shape, inputs, donors, bool(keeps))
        if in_parts:
            operands = reloaded(operands, inputs)
        if self.overwrites:
            self.wait()  # while all launches under way can still be run again
        if self.overwrites or step.targets or pending or late:
            self.spoilt = True
        flags = self.started(step, shape, operands, outputs)
        if not isinstance(flags, int):
            self.waiting.append(PendingLaunch(flags, step))
            self.made += [index for index, _ in made]
            flags = 0
            if pending or late or self.overwrites or not config.options.pipelining:
                self.wait_for_overwriting(step)
        if flags:
            sources = self.sources_of(step)
            if sources is not None:
                sources.update(zip(step.inputs, map(as_array, operands), strict=True))
            self.note_exceptions(step, flags, sources, outputs)
        for part, temporary in pending:
            self.move(temporary, part)
        for index, array in made:
            self.env[index] = array
        for index, temporary in sorted(late.items()):
            part, whole = self.target(index)
            self.move(temporary, part)
            self.env[index] = whole
        return outputs

    def keep_operands(self) -> None:
        """Called where a kernel writes to memory of its own, although it might write in place."""

    def started(
        self,
        step: KernelStep,
        shape: tuple[int, ...],
        inputs: list[Array | Moved],
        outputs: list[Array],
    ) -> int | Later:
        """Launch a kernel; where the CPU's launch fails, run its operations with NumPy."""
        try:
            return self.launch_all(step, shape, inputs, outputs)
        except DeviceError as error:
            if self.off_cpu and self.device is self.assigned_device:
                raise
            counters.fell_back(self.nodes_of(step), str(error), "cpu")
            return self.run_members(step, outputs)
        except (Abandoned, KernelError):
            raise
        except Exception as error:
            explain_failure(error, self.nodes_of(step))
            raise

    def wait_for_overwriting(self, step: KernelStep) -> None:
        """Wait for a kernel that may have written over operands of the run."""
        try:
            self.wait()
        except Abandoned as error:
            if not self.overwrites or self.keeps_origins:
                raise
            file, line, function = source_line(self.nodes_of(step)[-1].location)
            what = f"the device failed while it wrote over its operands: {error}"
            name = self.nodes_of(step)[-1].op.name
            raise EvaluationError(what, op=name, file=file, line=line, function=function) from error

    def readable(self, outputs: list[Array]) -> list[Array]:
        """Results in memory that NumPy can read."""
        return outputs

    def move(self, temporary: Array, part: Array) -> None:
        """Copy a result to the part of an array that the kernel could not write in place."""
        np.copyto(part, temporary)

    def donors(
        self, step: KernelStep, last: Sequence[int], shape: tuple[int, ...], in_parts: bool
    ) -> dict[np.dtype[Any], list[Array]]:
        """Operands that nothing reads again: their buffers may be donated to results.

        `in_parts`: a second list holds the operands, too.
        """
        found: dict[np.dtype[Any], list[Array]] = {}
        updated = self.updated_by(step) if step.targets else ()
        places = [
            index
            for index in step.inputs
            if index in last and index not in updated and self.env[index] is not None
        ]
        counts = references.of_each([self.array(index) for index in places])
        for index, count in zip(places, counts, strict=True):
            value = self.plan.graph.values[index]
            # the environment, the list of inputs, and the list counted here
            owners = 3 + in_parts
            if value.op is ops.LEAF:
                # another thread may evaluate a reader of it, too
                if self.keeps_leaves() or concurrency.current is not None:
                    continue
                edges = self.recording.edges.get(id(self.nodes[value.origin]), 0)
                if references.of(self.nodes[value.origin]) > edges + 1:  # 1: the recording's list
                    continue
                owners += 1  # its node
            array = self.array(index)
            if array.shape != shape or not array.flags.c_contiguous:
                continue
            if value.op is not ops.VIEW and count <= owners and is_alone(array):
                if value.op is ops.LEAF:
                    self.overwrites = True
                    self.take(self.nodes[value.origin])
                found.setdefault(array.dtype, []).append(array)
        return found

    def updated_by(self, step: KernelStep) -> set[int]:
        """The values whose memory a kernel's updates may write, down to the first one."""
        values = self.plan.graph.values
        found: set[int] = set()
        for at in step.targets.values():
            while values[at].op in (ops.VIEW, ops.UPDATE):
                at = values[at].src[0]
                found.add(at)
        return found

    def outputs(
        self,
        step: KernelStep,
        shape: tuple[int, ...],
        inputs: list[Array],
        donors: dict[np.dtype[Any], list[Array]] | None,
        apart: bool = False,
    ) -> tuple[list[Array], list[tuple[Array, Array]], list[tuple[int, Array]], dict[int, Array]]:
        """The arrays that a kernel writes. For when it has run: copies to make, values that then
        exist, and updates to make from its results. `apart`: no operand is written over.
        """
        values = self.plan.graph.values
        outputs: list[Array] = []
        pending: list[tuple[Array, Array]] = []
        made: list[tuple[int, Array]] = []
        late: dict[int, Array] = {}
        targets = step.targets
        places = store_targets(self, targets, inputs) if targets else {}
        for position, index in enumerate(step.stores):
            if not targets or position not in targets:
                value = values[index]
                gifts = donors.get(value.dtype) if donors and value.perm is None else None
                array = gifts.pop() if gifts else self.fresh(value, shape)
                made.append((index, array))
                outputs.append(array)
                continue
            place = places[targets[position]]
            if place is None:
                array = self.empty(shape, values[index].dtype)
                late[targets[position]] = array
                outputs.append(array)
                continue
            part, whole = place
            made.append((targets[position], whole))
            if (
                any((shares if apart else overlap)(part, loaded) for loaded in inputs)
                or _crowded(part, outputs)
                or crosses_itself(part)  # the last write counts, in NumPy's order
            ):
                temporary = self.empty(part.shape, part.dtype)
                pending.append((part, temporary))
                outputs.append(temporary)
            else:
                outputs.append(part)
        for index in step.reductions:
            array = self.fresh(values[index], self.shape(index))
            made.append((index, array))
            outputs.append(array)
        return outputs, pending, made, late

    def launch_all(
        self,
        step: KernelStep,
        shape: tuple[int, ...],
        operands: list[Array | Moved],
        outputs: list[Array],
    ) -> int | Later:
        """Start a kernel, box by box where it reads through maps of indices."""
        if not any(isinstance(each, Moved) and each.divides for each in operands):
            return self.launch(step, shape, loaded(operands), outputs)
        boxes = divided(shape, operands, outputs, apart=self.off_cpu)
        if not boxes:
            inputs = [self.gathered(each) if isinstance(each, Moved) else each for each in operands]
            return self.launch(step, shape, inputs, outputs)
        flags: int | Later = 0
        count = len(operands)
        split = [
            (each.shape, each.arrays[:count], each.arrays[count:], each.others, size_of(shape))
            for each in boxes
        ]
        if len(split) > 1 and not self.off_cpu:
            loads = loaded(operands)
            if step.targets or any(shares(x, out) for x in loads for out in outputs):
                self.reserve_boxes(step, split)
        for box in split:
            own = self.launch(step, *box)
            both = isinstance(flags, int) and isinstance(own, int)
            flags = flags | own if both else program_tiers.Both(flags, own)  # type: ignore[operator]
        return flags

    def reserve_boxes(self, step: KernelStep, boxes: Sequence[Any]) -> list[Program]:
        """Select the programs of a kernel's boxes, and take their working memory: where one is
        written over what is needed again, none may fail after another one has written.
        """
        found = []
        for box in boxes:
            lowered, program = self.select(step, *box)
            program.reserve(lowered.launch(program.source.language, [*box[1], *box[2]], ()))
            found.append(program)
        return found

    def gathered(self, operand: Moved) -> Array:
        """An operand in memory of its own, where a kernel would read it in too many boxes."""
        self.wait()
        found = self.empty(operand.space or operand.shape, operand.dtype)
        assemble(found, operand.parts, lambda target, part: self.move(part, target))
        return found.reshape(operand.shape) if operand.space else found

    def launch(
        self,
        step: KernelStep,
        shape: tuple[int, ...],
        inputs: list[Array],
        outputs: list[Array],
        others: Others = (),
        whole: int = 0,
    ) -> int | Later:
        """Start a kernel on the present device; its exceptions, or the pending launch."""
        lowered, program = self.select(step, shape, inputs, outputs, others, whole)
        counters.kernel_begins(step, self, program.source)
        scalars = tuple([self.number(index) for index in step.scalars])
        arrays = inputs + outputs
        start = time.perf_counter()
        if lowered.temporaries:
            arrays += [self.empty(shape, dtype) for shape, dtype in lowered.temporaries]
        flags = program.launch(lowered.launch(program.source.language, arrays, scalars))
        self.launched = lowered, program
        if lowered.is_partial:
            flags = self.finish(step, lowered, arrays, flags)
        under_way = not isinstance(flags, int)
        took = time.perf_counter() - start
        counters.ran_kernel(step, self, program.source, inputs, outputs, took, under_way)
        if program_tiers.awaited(program, lowered, self.device):
            counters.waited(1, took)
        return flags

    def select(
        self,
        step: KernelStep,
        shape: tuple[int, ...],
        inputs: list[Array],
        outputs: list[Array],
        others: Others = (),
        whole: int = 0,
    ) -> tuple[Lowered, Program]:
        """A kernel at concrete sizes, and the program that runs it on the present device."""
        order = self.order(step, len(shape))
        return program_tiers.select_program(
            step, shape, inputs, outputs, order, self.device, self.refused, others, whole
        )

    def refused(self, step: KernelStep, why: str) -> None:
        """Report that compiled text was refused: the kernel runs as blocked NumPy."""
        counters.fell_back(self.nodes_of(step), why, "numba", "numpy")

    def finish(
        self, step: KernelStep, lowered: Lowered, arrays: list[Array], flags: int | Later
    ) -> int | Later:
        """Combine partial results: on the device where it can, else when they have arrived."""
        second = lowered.second()
        if second is not None:
            source, launch = second
            program = program_tiers.compiled(step, source, self.device)
            return program_tiers.Both(flags, program.launch(launch(arrays)))
        return self.combine(step, lowered, arrays, flags)

    def combine(
        self, step: KernelStep, lowered: Lowered, arrays: list[Array], flags: int | Later
    ) -> int:
        """Combine partial results with NumPy."""
        return self.outcome(flags) | self.finished(lowered, arrays)

    def finished(self, lowered: Lowered, arrays: list[Array]) -> int:
        """Combine partial results with NumPy; the exceptions, in the format of the programs."""
        if not self.works_out:
            with fp_flags.collecting() as found:
                lowered.finish(arrays)
            return found.bits
        bits = 0
        slots = flag_slots.of_reductions(lowered.kernel)
        for slot, finish in zip(slots, lowered.finishers(), strict=False):
            with fp_flags.collecting() as found:
                finish(arrays)
            bits |= flag_slots.in_slot(found.bits, slot)
        return bits

    def outcome(self, flags: int | Later) -> int:
        """The exceptions of a launch, once it has run."""
        if isinstance(flags, int):
            return flags
        try:
            return flags.flags()
        except DeviceError as error:
            self.abandon(error)

    def order(self, step: KernelStep, rank: int) -> tuple[int, ...] | None:
        if not step.reductions:
            return None
        perm = self.plan.graph.values[step.domain_of].perm
        return perm if perm is not None and len(perm) == rank else None

    def run_members(self, step: KernelStep, outputs: list[Array]) -> int:
        """Run a kernel's operations one by one with NumPy: the last fallback."""
        with fp_flags.collecting() as flags:
            values = self.members(step)
        for array, index in zip(outputs, (*step.stores, *step.reductions), strict=True):
            np.copyto(array, values[index], casting="unsafe")
        return flags.bits


def _crowded(part: Array, outputs: list[Array]) -> bool:
    return any(shares(part, other) for other in outputs)
