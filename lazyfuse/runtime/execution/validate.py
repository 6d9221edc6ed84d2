"""LAZYFUSE_VALIDATE=1: compares every kernel with the reference interpreter, step by step.

Owns the comparison. Exact operations must agree bit for bit (except NaN payloads), the others
within their stated error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyfuse.errors import EvaluationError

if TYPE_CHECKING:
    from lazyfuse.codegen.plan.plan import KernelStep
    from lazyfuse.runtime.execution.executor import Run

Array = np.ndarray[Any, np.dtype[Any]]
# Errors of inexact operations add up along a fused chain: this many times the largest of them.
CHAIN_SLACK = 64


def before(run: Run, step: KernelStep) -> list[Array]:
    """The reference interpreter's results, from the inputs before the kernel runs."""
    with np.errstate(all="ignore"):
        found = run.members(step)
    return [found[index] for index in (*step.stores, *step.reductions)]


def after(run: Run, step: KernelStep, outputs: list[Array], expected: list[Array]) -> None:
    """Raise `EvaluationError` where the kernel and the reference interpreter differ."""
    values = run.plan.graph.values
    members = [values[index] for index in (*step.members, *step.reductions)]
    exact = all(not v.src or v.op.is_exact(values[v.src[0]].dtype) for v in members)
    ulps = 0 if exact else CHAIN_SLACK * max([v.op.ulps for v in members] + [1])
    for output, want in zip(outputs, expected, strict=True):
        if not agree(output, want, ulps):
            names = " -> ".join(value.op.name for value in members)
            what = f"kernel and oracle differ: expected {want!r}, got {output!r} ({names})"
            raise EvaluationError(what, op=members[-1].op.name, stage=names)


def agree(got: Array, want: Array, ulps: int) -> bool:
    """Whether two arrays are equal within `ulps` (0: bit for bit, any NaN equal to any other)."""
    if got.dtype.kind not in "fc":
        return bool(np.array_equal(got, want))
    with np.errstate(all="ignore"):
        same = (got == want) | ((got != got) & (want != want))
        if ulps == 0:
            return bool(same.all())
        scale = float(np.finfo(got.dtype).eps) * ulps
        magnitude = np.abs(want[np.isfinite(want)])
        floor = float(magnitude.max()) if magnitude.size else 0.0
        near = np.abs(got - want) <= scale * np.maximum(np.abs(want), floor)
    return bool((same | near).all())
