"""`lazyfuse.explain(x)`: what evaluating x would do, and why, without evaluating it.

Owns the description of plans. Reads the plan that evaluation would use; launches nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lazyfuse import evaluate
from lazyfuse.array import ndarray, node_of
from lazyfuse.codegen import ops
from lazyfuse.codegen.graph import Node, source_line
from lazyfuse.codegen.linearize import Recording, linearize, memory_strides
from lazyfuse.codegen.lower import lower
from lazyfuse.codegen.plan import KernelStep, Plan, SingleStep
from lazyfuse.codegen.shapes import size_of


@dataclass(frozen=True, slots=True)
class Operation:
    """One recorded operation and where the user wrote it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.name} -> {self.dtype}{list(self.shape)}  {self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """One kernel that would be launched. Sizes in bytes."""

    operations: tuple[Operation, ...]
    domain: tuple[int, ...]
    inputs: int
    outputs: int
    bytes_read: int
    bytes_written: int
    bytes_unfused: int
    texts: dict[str, str] = field(repr=False)

    def source(self, language: str = "numba") -> str:
        """The generated text."""
        return self.texts[language]

    def __str__(self) -> str:
        moved = self.bytes_read + self.bytes_written
        head = (
            f"{len(self.operations)} operations over {list(self.domain)}: {self.inputs} arrays in, "
            f"{self.outputs} out, {_size(moved)} instead of {_size(self.bytes_unfused)}"
        )
        return "\n".join([head, *(f"    {each}" for each in self.operations)])


@dataclass(frozen=True, slots=True)
class Explanation:
    """What would run. `str()` is the report."""

    kernels: list[KernelInfo]
    alone: list[Operation]
    refusals: list[str]
    recorded: int
    planned: int

    def __str__(self) -> str:
        if not self.recorded:
            return "nothing to do: the value is there"
        lines = [
            f"{self.recorded} recorded operations, {self.planned} after planning, "
            f"{len(self.kernels)} kernel{'s' * (len(self.kernels) != 1)}"
        ]
        for number, kernel in enumerate(self.kernels):
            lines.append(f"kernel {number}: {kernel}")
        lines += [f"in NumPy: {each}" for each in self.alone]
        lines += [f"not fused: {each}" for each in self.refusals]
        return "\n".join(lines)

    __repr__ = __str__


def _size(count: int) -> str:
    for unit, scale in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} B"


def explain_nodes(nodes: Sequence[Node]) -> Explanation:
    """The explanation of evaluating these nodes."""
    pending = [node for node in nodes if node.value is None]
    if not pending:
        return Explanation([], [], [], 0, 0)
    recording = linearize(pending)
    plan = evaluate.plan_for(recording)
    describe = _Describer(plan, recording)
    kernels = [describe.kernel(step) for step in plan.steps if type(step) is KernelStep]
    alone = [
        describe.operation(step.index)
        for step in plan.steps
        if type(step) is SingleStep and plan.graph.values[step.index].op is not ops.VIEW
    ]
    planned = sum(v.op not in (ops.LEAF, ops.SCALAR) for v in plan.graph.values)
    refusals = [describe.refusal(*each) for each in plan.refusals]
    return Explanation(kernels, alone, list(dict.fromkeys(refusals)), plan.recorded, planned)


class _Describer:
    def __init__(self, plan: Plan, recording: Recording) -> None:
        self.plan = plan
        self.nodes = recording.nodes
        self.values = plan.graph.values
        self.resized = dict(zip(plan.sizes, recording.sizes, strict=True))

    def shape(self, index: int) -> tuple[int, ...]:
        return tuple(self.resized[size] for size in self.values[index].shape)

    def nbytes(self, index: int) -> int:
        return size_of(self.shape(index)) * self.values[index].dtype.itemsize

    def operation(self, index: int) -> Operation:
        value = self.values[index]
        node = self.nodes[value.origin]
        name = node.arg.name if value.op is ops.HOST else value.op.name
        return Operation(name, value.dtype.name, self.shape(index), *source_line(node.where))

    def refusal(self, producer: int, consumer: int, why: str) -> str:
        first, second = self.operation(producer), self.operation(consumer)
        return f"{first.name} (line {first.line}) into {second.name} (line {second.line}): {why}"

    def kernel(self, step: KernelStep) -> KernelInfo:
        indices = sorted((*step.members, *step.reductions))
        outputs = (*step.stores, *step.reductions)
        unfused = sum(
            self.nbytes(index) + sum(self.nbytes(s) for s in self.values[index].src)
            for index in indices
        )
        return KernelInfo(
            tuple(self.operation(index) for index in indices),
            self.shape(step.domain_of),
            len(step.inputs),
            len(outputs),
            sum(self.nbytes(index) for index in step.inputs),
            sum(self.nbytes(index) for index in outputs),
            unfused,
            self.texts(step),
        )

    def texts(self, step: KernelStep) -> dict[str, str]:
        """Generated text, as it is for results that lie densely in memory."""
        domain = self.shape(step.domain_of)
        loads = tuple(self.strides(index, domain) for index in step.inputs)
        stores = tuple(self.strides(index, domain) for index in step.stores)
        reduced = step.kernel.reduced
        kept = tuple(size for size, flag in zip(domain, reduced, strict=False) if not flag)
        steps = iter(memory_strides(kept, None))
        totals = tuple(0 if flag else next(steps) for flag in reduced)
        lowered = lower(step.kernel, domain, loads, stores + (totals,) * len(step.reductions))
        return {name: lowered.source(name).text for name in ("numba", "numpy")}

    def strides(self, index: int, domain: tuple[int, ...]) -> tuple[int, ...]:
        value = self.values[index]
        shape = self.shape(index)
        array = self.nodes[value.origin].value if value.op is ops.LEAF else None
        if array is not None and array.shape == shape:
            own = tuple(stride // array.itemsize for stride in array.strides)
        else:
            own = memory_strides(shape, value.perm)
        spread = tuple(0 if size == 1 else stride for size, stride in zip(shape, own, strict=True))
        return (0,) * (len(domain) - len(shape)) + spread


def explain(*arrays: Any) -> Explanation:
    """What evaluating the arrays would launch, and why, without evaluating them.

    Returns an object whose `str()` is the report and whose `kernels` lists the kernels.
    """
    return explain_nodes([node_of(x) for x in arrays if isinstance(x, ndarray)])
