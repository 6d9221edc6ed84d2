"""Kernels of a plan at the sizes of a recording, assuming that results are dense in memory.

Owns what explain.py and offload.py need to know about a plan before it runs: shapes, bytes, and
the lowered kernel. Runs nothing, and knows only the traits of a device.
"""

from __future__ import annotations

from lazyfuse.codegen.graph.linearize import Recording, memory_strides
from lazyfuse.codegen.graph.shapes import size_of
from lazyfuse.codegen.lowering.languages import lowering
from lazyfuse.codegen.lowering.lower import Lowered
from lazyfuse.codegen.plan.plan import KernelStep, Plan
from lazyfuse.codegen.table import ops
from lazyfuse.devices.base import Source, Traits
from lazyfuse.runtime.numerics import narrow_precision


class SizedPlan:
    """A plan with the sizes of one recording."""

    __slots__ = ("nodes", "plan", "resized", "values")

    def __init__(self, plan: Plan, recording: Recording) -> None:
        self.plan = plan
        self.nodes = recording.nodes
        self.values = plan.graph.values
        self.resized = dict(zip(plan.sizes, recording.sizes, strict=True))

    def shape(self, index: int) -> tuple[int, ...]:
        """The shape of a value in this recording."""
        return tuple([self.resized[size] for size in self.values[index].shape])

    def size(self, index: int) -> int:
        """The number of elements of a value."""
        return size_of(self.shape(index))

    def nbytes(self, index: int) -> int:
        """The bytes of a value's elements."""
        return self.size(index) * self.values[index].dtype.itemsize

    def source(self, step: KernelStep, language: str, traits: Traits | None = None) -> Source:
        """The source of a kernel in a language of any device; see `lowered`."""
        return self.lowered(step, language, traits).source(language)

    def lowered(
        self, step: KernelStep, language: str = "numba", traits: Traits | None = None
    ) -> Lowered:
        """The kernel at these sizes; evaluated operands have their own strides.

        With traits, the kernel as that device runs it; raises `DeviceError` if it cannot.
        """
        kernel = step.kernel if traits is None else narrow_precision.fitted(step.kernel, traits)
        domain = self.shape(step.domain_of)
        loads = tuple(self._strides(index, domain) for index in step.inputs)
        stores = tuple(self._strides(index, domain) for index in step.stores)
        reduced = kernel.reduced
        kept = tuple(size for size, flag in zip(domain, reduced, strict=False) if not flag)
        steps = iter(memory_strides(kept, None))
        totals = tuple(0 if flag else next(steps) for flag in reduced)
        outputs = stores + (totals,) * len(step.reductions)
        lowered: Lowered = lowering(language)(kernel, domain, loads, outputs)
        return lowered

    def _strides(self, index: int, domain: tuple[int, ...]) -> tuple[int, ...]:
        value = self.values[index]
        shape = self.shape(index)
        array = self.nodes[value.origin].value if value.op is ops.LEAF else None
        if array is not None and array.shape == shape:
            own = tuple(stride // array.itemsize for stride in array.strides)
        else:
            own = memory_strides(shape, value.perm)
        spread = tuple(0 if size == 1 else stride for size, stride in zip(shape, own, strict=True))
        return (0,) * (len(domain) - len(shape)) + spread
