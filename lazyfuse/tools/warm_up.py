"""`lazyfuse.warm_up`: compiles the programs that an evaluation would need.

Owns the walk over a plan's kernels. Runs no kernel; sees plans and the device in use.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from lazyfuse.arrays.ndarray import ndarray, node_of
from lazyfuse.arrays.scalars import numbers_stay
from lazyfuse.codegen.graph.linearize import linearize
from lazyfuse.codegen.graph.node import Node
from lazyfuse.devices.base import Device, DeviceError
from lazyfuse.runtime.events import counters
from lazyfuse.runtime.execution import executor, tiled_run
from lazyfuse.runtime.placement import devices
from lazyfuse.runtime.placement.plan_sizes import SizedPlan
from lazyfuse.runtime.scheduling import evaluate
from lazyfuse.tools.describe_kernel import source_of


def warm_up(*arrays: Any, **named: Any) -> list[str]:
    """Compile the programs that evaluating the arrays would launch. Returns the programs' names.

    `warm_up(function, ...)` calls the function with the other arguments and takes its results
    (arrays, also in tuples, lists and dictionaries), so the function should not look at values.
    The programs serve every size of the same structure with dense results; on disk, they also serve
    later runs. Kernels that would run as blocked NumPy need no program.
    """
    if arrays and callable(arrays[0]) and not isinstance(arrays[0], ndarray):
        with numbers_stay():
            found: Any = arrays[0](*arrays[1:], **named)
    else:
        found = [*arrays, *named.values()]
    nodes = [node_of(x) for x in parts(found) if isinstance(x, ndarray)]
    pending = [node for node in nodes if node.value is None and node.resident is None]
    with evaluate.quiet:
        return _compile(pending, devices.current()) if pending else []


def parts(value: Any) -> Iterator[Any]:
    """The values in tuples, lists and dictionaries; another value itself."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        for each in value:
            yield from parts(each)
    else:
        yield value


def _compile(pending: list[Node], device: Device) -> list[str]:
    recording = linearize(pending)
    plan = evaluate.plan_for(recording)
    geometry = SizedPlan(plan, recording)
    names = []
    for step in plan.kernels:
        try:
            source = source_of(geometry, step, device.traits)
            if source is None or source.language == "numpy":
                continue
            names.append(counters.compiled(device, source).source.name)
        except DeviceError as error:
            indices = step.in_order
            nodes = [recording.nodes[plan.graph.values[index].origin] for index in indices]
            counters.fell_back(nodes, str(error), device.traits.languages[0], "numpy")
    for chain in plan.chains:
        for source in tiled_run.sources(executor.Run(plan, recording, device), chain):
            with suppress(DeviceError):  # a chain without a program runs step by step
                names.append(counters.compiled(device, source).source.name)
    return list(dict.fromkeys(names))
