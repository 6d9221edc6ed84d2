"""Whether a value that several kernels read is stored, or computed again by each of them.

A value is stored where storing it costs little (it fits in a cache) or computing it costs much;
codegen/plan/cluster.py decides so without knowing sizes. Owns the other decision: for arrays that
no cache holds, a plan has a large-array variant in which kernels compute cheap, exact values again
instead of writing them to memory and reading them. The limit follows from figures that are measured
once per machine (devices/cpu_figures.py). No bit depends on it: both plans do the same exact
operations.
"""

from __future__ import annotations

from typing import NamedTuple

from lazyfuse.codegen.graph.linearize import Recording
from lazyfuse.codegen.graph.shapes import size_of
from lazyfuse.codegen.plan.cluster import Limits
from lazyfuse.codegen.plan.plan import Plan, make_plan
from lazyfuse.runtime.execution import program_tiers
from lazyfuse.runtime.placement import devices


class Decision(NamedTuple):
    """One such value: what it costs, the limit up to which that pays, and the decision."""

    value: int
    additions: float  # to compute it again in every kernel that reads it, per element
    limit: float  # what storing and loading an element costs, in additions
    recompute: bool


def decisions(plan: Plan, recording: Recording) -> list[Decision]:
    """The decision for each value of a plan that might be computed again, at these sizes."""
    device = devices.cpu()  # which also loads the measured figures
    limit = devices.tuning().recompute_limit(device.traits.threads)
    large = _is_large(plan, recording)
    return [Decision(*each, limit, large and each[1] <= limit) for each in plan.costly]


def by_size(plan: Plan, recording: Recording) -> Plan:
    """The plan (with `costly` values) or its large-array variant, by the sizes of a recording."""
    if not _is_large(plan, recording):
        return plan
    if plan.large_variant is None:
        again = frozenset(each.value for each in decisions(plan, recording) if each.recompute)
        plan.large_variant = plan
        if again:
            plan.large_variant = make_plan(recording.graph(), Limits(recompute=again))
            plan.large_variant.sizes, plan.large_variant.costly = recording.sizes, plan.costly
    return plan.large_variant


def _is_large(plan: Plan, recording: Recording) -> bool:
    """Whether one of these values, with its operands, is larger than any cache."""
    most = devices.tuning().l3_bytes
    values, nodes = plan.graph.values, recording.nodes
    for index, _ in plan.costly:
        size = size_of(nodes[values[index].origin].shape)
        # below COMPILE_ELEMENTS the tier changes: there, measured figures must not decide
        if (
            2 * size * values[index].dtype.itemsize > most
            and size >= program_tiers.COMPILE_ELEMENTS
        ):
            return True
    return False
