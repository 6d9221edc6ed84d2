"""`lazyfuse.explain(x)`: what evaluating x would do, where, and why, without evaluating it.

Owns the description of plans. Reads the plan that an evaluation would use; launches nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

from lazyfuse import config
from lazyfuse.arrays import eager_policy, mask_selection
from lazyfuse.arrays.ndarray import ndarray, node_of
from lazyfuse.codegen.graph.linearize import Recording, linearize
from lazyfuse.codegen.graph.node import HostCall, Node, source_line
from lazyfuse.codegen.lowering import registered_kernels
from lazyfuse.codegen.lowering.languages import LANGUAGES
from lazyfuse.codegen.plan.chains import PRODUCTS
from lazyfuse.codegen.plan.plan import KernelStep, Plan, SingleStep
from lazyfuse.codegen.table import ops
from lazyfuse.codegen.table.op import Verdict
from lazyfuse.devices.base import Device, Traits
from lazyfuse.devices.dataclass import dataclass, replace
from lazyfuse.runtime.chunked import describe as in_chunks
from lazyfuse.runtime.events import decisions
from lazyfuse.runtime.events.decisions import Rule
from lazyfuse.runtime.events.tracing import Operation
from lazyfuse.runtime.execution import (
    matmul,
    tiled_run,
)
from lazyfuse.runtime.execution import (
    routine as routines,
)
from lazyfuse.runtime.numerics import narrow_precision
from lazyfuse.runtime.placement import calibrate_cpu, devices, library_calls, offload
from lazyfuse.runtime.placement.offload import Choice
from lazyfuse.runtime.placement.plan_sizes import SizedPlan
from lazyfuse.runtime.scheduling import elision, evaluate, recompute
from lazyfuse.runtime.scheduling.recompute import Decision
from lazyfuse.tools import describe_kernel as schedule
from lazyfuse.tools import explain_boxes, explain_html
from lazyfuse.tools.describe_kernel import size
from lazyfuse.tools.explain_boxes import Box

HOST = "host"
NOTHING = ("no", "at all")  # if a device has no language, or none that can express the kernel


@dataclass(frozen=True)
class KernelInfo:
    """One kernel that would be launched. Sizes in bytes.

    `device`, `language` and `name` are those of its program; "numba" programs of exact kernels run
    as "numpy" until they are compiled. `residency`: the memory that holds each operand. `note`: how
    the device changes the kernel for want of float64, if it does. `schedule`: on the CPU, its tier,
    chunks and threads with the figures that decide, and the results written in place.
    """

    operations: tuple[Operation, ...]
    domain: tuple[int, ...]
    inputs: int
    outputs: int
    bytes_read: int
    bytes_written: int
    bytes_unfused: int
    device: str
    language: str
    name: str
    residency: tuple[str, ...]
    note: str
    schedule: tuple[str, ...]
    _traits: Traits = field(repr=False, compare=False)
    _geometry: SizedPlan = field(repr=False, compare=False)
    _step: KernelStep = field(repr=False, compare=False)

    def source(self, language: str = "numba") -> str:
        """The generated text in one of `LANGUAGES`, for results that are dense in memory."""
        traits = self._traits if language in self._traits.languages else None
        return self._geometry.source(self._step, language, traits).text

    @property
    def left_out(self) -> str:
        """Why a program registered for this kernel is not used; empty if none is left out."""
        form = self._geometry.lowered(self._step, self.language).variant
        return registered_kernels.why_not(self._step.kernel, form, self.language)

    @property
    def texts(self) -> dict[str, str]:
        """The generated text in every language."""
        return {language: self.source(language) for language in LANGUAGES}

    def __str__(self) -> str:
        moved = self.bytes_read + self.bytes_written
        lines = [
            f"{len(self.operations)} operations over {list(self.domain)}: {self.inputs} arrays in, "
            f"{self.outputs} out, {size(moved)} instead of {size(self.bytes_unfused)}",
            f"    on {self.device} as {self.language} program {self.name}",
        ]
        lines += [f"    {each}" for each in self.schedule]
        if self.note:
            lines.append(f"    {self.note}")
        if any(place != HOST for place in self.residency):
            lines.append(f"    operands in: {', '.join(self.residency)}")
        if self.left_out:
            lines.append(f"    not used: {self.left_out}")
        return "\n".join([*lines, *(f"    {each}" for each in self.operations)])


@dataclass(frozen=True)
class Explanation:
    """The work that would run. `str()` is the report.

    `choice` is the device with the reason and the estimates of the devices that were compared.
    `rules`: the scheduler's decisions (docs/decisions.md). If NumPy does the operations at once,
    the plan is that for larger arrays.
    `place`: the device that holds the values, if nothing has to run. `library`: operations of the
    device's own libraries; if they refuse one, NumPy does it. `processor`: the figures of this
    processor that decide schedules.
    """

    kernels: list[KernelInfo]
    alone: list[Operation]
    refusals: list[str]
    recorded: int
    planned: int
    choice: Choice | None = None
    rules: tuple[Rule, ...] = ()
    residence: str = HOST
    library: list[Operation] = field(default_factory=list)
    routines: list[str] = field(default_factory=list)  # operations without NumPy, and how
    selections: list[str] = field(default_factory=list)  # x[mask] that keep their mask
    chains: list[str] = field(default_factory=list)  # kernels that run tile by tile
    processor: str = ""
    stored: list[str] = field(default_factory=list)  # values that might be recomputed
    tasks: list[str] = field(default_factory=list)  # of arrays in chunks, by stage
    boxes: tuple[Box, ...] = field(default=(), repr=False)  # the same as a picture

    def __str__(self) -> str:
        rules = [f"rule {rule}" for rule in self.rules]
        if self.tasks:
            return "\n".join([f"{self.recorded} recorded operations", *self.tasks, *rules])
        if self.selections and not self.recorded:
            deferred = [f"deferred: {each}" for each in self.selections]
            return "\n".join([*deferred, *rules])
        if not self.recorded:
            there = "nothing to do: the value is there" + f", on {self.residence}" * (
                self.residence != HOST
            )
            return "\n".join([there, *rules])
        lines = [
            f"{self.recorded} recorded operations, {self.planned} after planning, "
            f"{len(self.kernels)} kernel{'s' * (len(self.kernels) != 1)}"
        ]
        if self.choice is not None:
            lines.append(f"device {self.choice}")
        for number, kernel in enumerate(self.kernels):
            lines.append(f"kernel {number}: {kernel}")
        lines += self.chains
        lines += [f"by a library of the device: {each}" for each in self.library]
        for each, how in zip(self.alone, self.routines, strict=True):
            lines.append(f"{how or 'in NumPy'}: {each}")
        lines += [f"not fused: {each}" for each in self.refusals]
        lines += self.stored
        lines += [f"deferred: {each}" for each in self.selections]
        lines += rules
        lines += [f"processor: {self.processor}"] if self.processor else []
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head, _, rest = str(self).partition("\n")
        return explain_html.page(head, self.boxes, rest)


def explain_nodes(nodes: Sequence[Node]) -> Explanation:
    """The explanation of evaluating these nodes."""
    pending = [node for node in nodes if node.value is None and node.resident is None]
    if evaluate.in_chunks is not None and any(map(evaluate.in_chunks, nodes)):
        tasks = in_chunks.described(nodes)
        recorded = linearize(pending).nodes if pending else []
        count = sum(node.value is None and node.resident is None for node in recorded)
        return Explanation([], [], [], count, count, residence="dask", tasks=tasks)
    if not pending:
        places = sorted({_residence(node) for node in nodes} - {HOST})
        return Explanation([], [], [], 0, 0, residence=", ".join(places) or HOST)
    recording = linearize(pending)
    elided, _ = elision.elide(recording, pending, evaluate.known, dry_run=True)
    plan = evaluate.plan_for(recording)
    device, choice = _choice(plan, recording)
    describe = Describer(plan, recording, device)
    kernels = [describe.kernel(step) for step in plan.steps if type(step) is KernelStep]
    alone: list[Operation] = []
    library: list[Operation] = []
    looped: list[str] = []
    for step in plan.steps:
        if type(step) is SingleStep and plan.graph.values[step.index].op not in ops.PLACES:
            there = describe.has_library(step.index)
            (library if there else alone).append(describe.operation(step.index))
            if not there:
                looped.append(describe.routine(step.index))
    planned = sum(v.op not in (ops.LEAF, ops.SCALAR) for v in plan.graph.values)
    refusals = list(dict.fromkeys(describe.refusal(*each) for each in plan.refusals))
    stored = [describe.stored(each) for each in recompute.decisions(plan, recording)]
    if elided.rule is not None:
        stored.append(f"left unwritten: {len(elided.watched)} values ({elided.rule})")
    scheduled = any(kernel.schedule for kernel in kernels)
    processor = calibrate_cpu.described(devices.tuning()) if scheduled else ""
    return Explanation(
        kernels,
        alone,
        refusals,
        plan.recorded,
        planned,
        choice,
        _rules(pending, plan, elided.rule, recording),
        library=library,
        routines=looped,
        chains=[
            line + schedule.tiles(describe.geometry, chain)
            for line, chain in zip(tiled_run.described(plan), plan.chains, strict=True)
        ],
        processor=processor,
        stored=stored,
        boxes=explain_boxes.of_plan(describe, kernels),
    )


def _rules(
    pending: list[Node], plan: Plan, elided: Rule | None, recording: Recording
) -> tuple[Rule, ...]:
    """The scheduler's decisions about an evaluation, in the order of the list."""
    found = {elided}
    if together := evaluate.together(pending, decisions.GATHER):
        found.add(together[0])
    if any(each.recompute for each in recompute.decisions(plan, recording)):
        found.add(decisions.COSTLY)
    if plan.in_place:
        found.add(decisions.UPDATE)
    if any(type(step) is KernelStep and step.may_reuse for step in plan.steps):
        found.add(decisions.DONATION)
    return tuple(rule for rule in decisions.RULES if rule in found)


def _choice(plan: Plan, recording: Recording) -> tuple[Device, Choice]:
    """The device that an evaluation would take, and why."""
    device = devices.user_selected()
    if device is None:
        choice = offload.preview(plan, recording)
        return devices.named(choice.device), choice
    name = config.options.device
    by_option = name not in devices.CHOOSE and devices.named(name) is device
    return device, Choice(device.traits.name, offload.selected_by(name if by_option else ""))


def _residence(node: Node) -> str:
    """The memory that holds an evaluated value."""
    if node.resident is None:
        return HOST
    name: str = node.resident.device.traits.name
    return f"{HOST} and {name}" if node.value is not None else name


class Describer:
    """What says in words what a value of the plan is."""

    def __init__(self, plan: Plan, recording: Recording, device: Device) -> None:
        self.geometry = SizedPlan(plan, recording)
        self.nodes = recording.nodes
        self.values = plan.graph.values
        self.device = device

    def operation(self, index: int) -> Operation:
        value = self.values[index]
        node = self.nodes[value.origin]
        name = node.arg.name if value.op is ops.HOST else value.op.name
        shape = self.geometry.shape(index)
        return Operation(name, value.dtype.name, shape, *source_line(node.location))

    def routine(self, index: int) -> str:
        """How hand-written loops do an operation; empty if NumPy does it."""
        call = self.nodes[self.values[index].origin].arg
        value = self.values[index]
        name = call.name if type(call) is HostCall else value.op.name
        if name in PRODUCTS:
            sources = [self.values[source] for source in value.src]
            shapes = [self.geometry.shape(source) for source in value.src]
            found: Verdict | None = matmul.verdict(sources, shapes)
        else:
            found = routines.verdict(call) if type(call) is HostCall else None
        return f"by {found.why}" if found else ""

    def has_library(self, index: int) -> bool:
        """Whether a library of the device would do an operation on operands in its memory."""
        if not library_calls.is_wanted(self.device):
            return False
        return library_calls.work_of(self.nodes[self.values[index].origin]) is not None

    def alone(self, index: int) -> str:
        """Who does an operation outside all kernels."""
        if self.has_library(index):
            return f"by a library of {self.device.traits.name}"
        return self.routine(index) or "in NumPy"

    def refusal(self, producer: int, consumer: int, why: str) -> str:
        first, second = self.operation(producer), self.operation(consumer)
        return f"{first.name} (line {first.line}) into {second.name} (line {second.line}): {why}"

    def stored(self, decision: Decision) -> str:
        """Whether a value is stored, and why."""
        value = self.operation(decision.value)
        cost, limit = f"{decision.additions:.0f} additions", f"up to {decision.limit:.0f} cost less"
        what = f"{value.name} (line {value.line})"
        if decision.recompute:
            return f"{what} is computed again, not stored: {cost}, {limit} than memory"
        why = f"{limit} than memory" if decision.additions > decision.limit else "a cache holds it"
        return f"{what} is stored, not computed again: {cost}, {why}"

    def kernel(self, step: KernelStep) -> KernelInfo:
        nbytes = self.geometry.nbytes
        indices = step.in_order
        outputs = (*step.stores, *step.reductions)
        unfused = sum(
            nbytes(index) + sum(nbytes(s) for s in self.values[index].src) for index in indices
        )
        why = narrow_precision.why_not(step.kernel, self.device.traits)
        device = devices.cpu() if why else self.device
        language, name = self.program(step, device)
        return KernelInfo(
            tuple(self.operation(index) for index in indices),
            self.geometry.shape(step.domain_of),
            len(step.inputs),
            len(outputs),
            sum(nbytes(index) for index in step.inputs),
            sum(nbytes(index) for index in outputs),
            unfused,
            device.traits.name,
            language,
            name,
            tuple(self.residency(index) for index in step.inputs),
            self.note(step, why),
            tuple(schedule.of_kernel(self.geometry, step, device, language)),
            device.traits,
            self.geometry,
            step,
        )

    def note(self, step: KernelStep, why: str) -> str:
        """How the device changes a kernel for want of float64."""
        if why:
            return f"not on {self.device.traits.name}: {why}"
        return (
            narrow_precision.NARROWED
            if narrow_precision.is_narrowed(step.kernel, self.device.traits)
            else ""
        )

    def program(self, step: KernelStep, device: Device) -> tuple[str, str]:
        """The language and name of the program that the executor takes."""
        source = schedule.source_of(self.geometry, step, device.traits)
        return NOTHING if source is None else (source.language, source.name)

    def residency(self, index: int) -> str:
        """The memory that holds an operand; computed operands are where their kernels run."""
        node = self.nodes[self.values[index].origin]
        if node.value is not None or node.resident is not None:
            return _residence(node)
        return HOST if self.device.traits.shares_memory else self.device.traits.name


def explain(*arrays: Any) -> Explanation:
    """What evaluating the arrays would launch, and why, without evaluating them.

    Returns an object whose `str()` is the report and whose `kernels` lists the kernels.
    """
    nodes, selections = [], []
    rules: set[Rule | None] = set()
    for x in arrays:
        found = mask_selection.of(x)
        if found is not None:
            nodes += [found.everything(), found.mask]
            file, line, _ = source_line(found.where)
            selections.append(f"{file}:{line}: its size is not known, its values were not made")
            rules.add(decisions.SELECTION)
        elif isinstance(x, ndarray):
            rules.add(eager_policy.evaluated(x))
            if x._eager is None:  # an eager array has its value
                nodes.append(node_of(x))
    explained = explain_nodes(nodes)
    rules.update(explained.rules)
    ordered = tuple(rule for rule in decisions.RULES if rule in rules)
    return replace(explained, selections=selections, rules=ordered)
