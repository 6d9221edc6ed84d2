"""A plan as boxes: arrays that are there, kernels, operations alone, results, and who reads whom.

Owns what the picture of `explain` says. explain_html.py draws it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from lazyfuse.codegen.plan.plan import KernelStep, Plan
from lazyfuse.codegen.table import ops
from lazyfuse.devices.dataclass import dataclass
from lazyfuse.runtime.events import spans
from lazyfuse.runtime.events.tracing import Operation
from lazyfuse.runtime.placement.plan_sizes import SizedPlan
from lazyfuse.tools.describe_kernel import size
from lazyfuse.tools.notebook_names import short

if TYPE_CHECKING:
    from lazyfuse.tools.explain import Describer, KernelInfo

_TIMES = " \N{MULTIPLICATION SIGN} "
ARRAY, KERNEL, ALONE, RESULT = "array", "kernel", "alone", "result"


@dataclass(frozen=True)
class Box:
    """One box of the picture. `reads`: positions of the boxes whose values it reads."""

    kind: str
    title: str
    lines: tuple[str, ...]
    reads: tuple[int, ...]


def of_plan(describe: Describer, kernels: Sequence[KernelInfo]) -> tuple[Box, ...]:
    """The boxes of a plan; those that a box reads come before it."""
    geometry = describe.geometry
    plan, values = geometry.plan, geometry.plan.graph.values
    boxes: list[Box] = []
    made_by: dict[int, int] = {}  # value: position of the box that has it
    coming = iter(enumerate(kernels))

    def sources(indices: Sequence[int]) -> tuple[int, ...]:
        for index in indices:
            if index not in made_by and values[index].op is ops.LEAF:
                made_by[index] = len(boxes)
                place = describe.residency(index)
                told = (f"in the memory of {place}",) if place != "host" else ()
                boxes.append(Box(ARRAY, _array(geometry, index), told, ()))
        found = [made_by[index] for index in indices if index in made_by]
        return tuple(dict.fromkeys(found))

    for step in plan.steps:
        if type(step) is KernelStep:
            number, info = next(coming)
            reads = sources(step.inputs)
            for index in step.writes:
                made_by[index] = len(boxes)
            lines = (*_kernel(info), *_tiled(plan, step))
            boxes.append(Box(KERNEL, f"kernel {number}", lines, reads))
            continue
        (index,) = step.writes
        reads = sources(values[index].src)
        if values[index].op in ops.PLACES:
            if reads:
                made_by[index] = reads[0]
            continue
        made_by[index] = len(boxes)
        done = describe.operation(index)
        lines = (describe.alone(index), _shape(done.dtype, done.shape), _lines([done]))
        boxes.append(Box(ALONE, done.name, lines, reads))
    ends = [(index, sources([index])) for index in plan.outputs]
    boxes += [
        Box(RESULT, _array(geometry, index), ("result",), reads) for index, reads in ends if reads
    ]
    return tuple(boxes)


def _tiled(plan: Plan, step: KernelStep) -> Iterator[str]:
    """With which kernels a kernel may run tile by tile."""
    for chain in plan.chains:
        if any(each is step for each in chain.kernels):
            kernels = plan.kernels
            others = [
                str(number)
                for number, each in enumerate(kernels)
                if each is not step and any(each is other for other in chain.kernels)
            ]
            if others:
                yield f"tile by tile with kernel {', '.join(others)}"


def _array(geometry: SizedPlan, index: int) -> str:
    return _shape(geometry.values[index].dtype.name, geometry.shape(index))


def _shape(dtype: str, shape: tuple[int, ...]) -> str:
    return f"{dtype} {_sizes(shape) if shape else 'number'}"


def _kernel(info: KernelInfo) -> tuple[str, ...]:
    moved = info.bytes_read + info.bytes_written
    saved = info.bytes_unfused - moved
    lines = [
        _names(info.operations),
        f"on {info.device} as {info.language}, over {_sizes(info.domain)}",
        f"moves {size(moved)}" + (f", saves {size(saved)}" if saved * 100 > moved else ""),
        _lines(info.operations),
    ]
    if took := _measured(info.operations[-1]):
        lines.append(took)
    return tuple([line for line in lines if line])


def _names(operations: Sequence[Operation]) -> str:
    """The operations in order, each name once, with its number."""
    counts = Counter(each.name for each in operations)
    return ", ".join([f"{n} {name}" if n > 1 else name for name, n in counts.items()])


def _sizes(domain: tuple[int, ...]) -> str:
    return _TIMES.join([f"{size:,}" for size in domain]) or "one number"


def _lines(operations: Sequence[Operation]) -> str:
    """Where the operations were written: each file with its lines."""
    found: dict[str, set[int]] = {}
    for each in operations:
        if each.line:
            found.setdefault(each.file, set()).add(each.line)
    return ", ".join([f"{short(file)}:{_span(lines)}" for file, lines in found.items()])


def _span(lines: set[int]) -> str:
    first, last = min(lines), max(lines)
    return str(first) if first == last else f"{first}-{last}"


def _measured(last: Operation) -> str:
    """What that line took in earlier evaluations, where the option `report` has measured it."""
    place = last.file, last.line
    found = [line for where, line in spans.gather().lines.items() if where[1:] == place]
    count = sum(line.evaluations for line in found)
    if not count:
        return ""
    mean = sum(line.seconds for line in found) / count
    return f"its line took {mean * 1e3:.3g} ms (mean of {count})"
