"""Tables that plans keep for the sizes that they have met, as entries of the list of caches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from lazyfuse.devices.caches import register

if TYPE_CHECKING:
    from lazyfuse.codegen.plan.plan import Plan


def enter(plans: Mapping[Any, Plan]) -> None:
    """Enter the tables of these plans."""

    def of_plans(name: str, size: Callable[[Plan], int], why: str) -> None:
        register(name, lambda: sum(map(size, list(plans.values()))), None, None, why)

    of_plans(
        "runtime.execution.program_tiers.selected",
        lambda plan: sum(len(step.selected) for step in plan.kernels),
        "MOST_SIZES for each kernel; they go with their plan",
    )
    of_plans(
        "runtime.execution.program_tiers.programs",
        lambda plan: sum(len(step.programs) for step in plan.kernels),
        "one for each form of each kernel; they go with their plan",
    )
    of_plans(
        "runtime.execution.tiled_run.bound",
        lambda plan: sum(len(chain.bound) for chain in plan.chains),
        "MOST_SIZES for each chain; they go with their plan",
    )
    of_plans(
        "runtime.capture.replays",
        lambda plan: len(getattr(plan.replays, "found", ())),
        "LIMIT for each plan; they go with it",
    )
