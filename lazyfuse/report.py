"""What ran, where, and why not faster: counters per source line.

Owns the counters. Filled by evaluate.py; per-line counting is on only with the option `report`,
the totals always. Knows steps and nodes, never arrays.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyfuse import config
from lazyfuse.codegen.graph import Node, source_line

if TYPE_CHECKING:
    from lazyfuse.codegen.linearize import Recording
    from lazyfuse.codegen.plan import KernelStep, Plan
    from lazyfuse.devices.base import Source
    from lazyfuse.execute import Run

Array = np.ndarray[Any, np.dtype[Any]]
Line = tuple[str, int]


@dataclass(slots=True)
class LineCounts:
    """What the kernels whose last operation was recorded at one source line did."""

    kernels: int = 0
    operations: int = 0
    seconds: float = 0.0
    bytes_moved: int = 0
    bytes_saved: int = 0
    languages: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Totals:
    """Counters of one process."""

    kernels: int = 0
    fused: int = 0  # operations inside those kernels
    singles: int = 0  # operations that ran alone, in NumPy
    flushes: Counter[str] = field(default_factory=Counter)
    languages: Counter[str] = field(default_factory=Counter)
    fallbacks: Counter[str] = field(default_factory=Counter)  # kernels that took another tier
    lines: dict[Line, LineCounts] = field(default_factory=dict)
    single_lines: Counter[tuple[str, int, str]] = field(default_factory=Counter)


totals = Totals()


def reset() -> None:
    """Start counting anew."""
    global totals
    totals = Totals()


def _debug(level: int, text: str) -> None:
    if config.options.debug >= level:
        print(f"lazyfuse: {text}", file=sys.stderr)


def flushed(reason: str, plan: Plan, recording: Recording) -> None:
    """An evaluation begins."""
    totals.flushes[reason] += 1
    if config.options.debug:
        nodes = len(recording.nodes)
        _debug(1, f"evaluate {nodes} nodes in {len(plan.kernels)} kernels ({reason})")
        if config.options.debug >= 4:
            for name, seconds in plan.times.items():
                _debug(4, f"  {name} {seconds * 1e6:.0f} us")


def ran_kernel(
    step: KernelStep,
    run: Run,
    source: Source,
    inputs: list[Array],
    outputs: list[Array],
    start: float,
) -> None:
    """A kernel has run."""
    totals.kernels += 1
    count = len(step.members) + len(step.reductions)
    totals.fused += count
    totals.languages[source.language] += 1
    options = config.options
    if options.debug >= 2:
        _debug(2, f"  kernel {source.name} [{source.language}] {count} operations")
        _debug(3, source.text)
    if options.report:
        _count_line(step, run, source, inputs, outputs, time.perf_counter() - start)


def _count_line(
    step: KernelStep,
    run: Run,
    source: Source,
    inputs: list[Array],
    outputs: list[Array],
    seconds: float,
) -> None:
    file, number, _ = source_line(run.nodes_of(step)[-1].where)
    line = totals.lines.setdefault((file, number), LineCounts())
    line.kernels += 1
    line.operations += len(step.members) + len(step.reductions)
    line.seconds += seconds
    moved = sum(array.nbytes for array in (*inputs, *outputs))
    line.bytes_moved += moved
    line.bytes_saved += max(0, unfused_bytes(run, step) - moved)
    line.languages[source.language] += 1


def unfused_bytes(run: Run, step: KernelStep) -> int:
    """Bytes that the kernel's operations would read and write one by one."""
    values = run.plan.graph.values
    total = 0
    for index in (*step.members, *step.reductions):
        for other in (index, *values[index].src):
            size = values[other].dtype.itemsize
            for length in run.shape(other):
                size *= length
            total += size
    return total


def ran_single(node: Node) -> None:
    """An operation has run alone, in NumPy."""
    totals.singles += 1
    if config.options.report:
        file, number, _ = source_line(node.where)
        name = node.arg.name if node.op.kind == "host" else node.op.name
        totals.single_lines[file, number, name] += 1


def fell_back(step: KernelStep, nodes: list[Node], why: str) -> None:
    """A kernel could not run where it should have."""
    names = " -> ".join(node.op.name for node in nodes)
    totals.fallbacks[f"{names}: {why.splitlines()[0] if why else 'no reason given'}"] += 1
    _debug(1, f"fallback: {names}: {why}")


def text(fallback_counts: dict[Any, int] | None = None) -> str:
    """The report of `python -m lazyfuse --report`."""
    lines = [
        f"kernels launched  {totals.kernels}, holding {totals.fused} operations",
        f"operations alone  {totals.singles}",
    ]
    for title, counter in (
        ("run as", totals.languages),
        ("evaluations", totals.flushes),
        ("other tier", totals.fallbacks),
    ):
        lines += [f"{title:<17} {n} {name}" for name, n in counter.most_common()]
    lines += _line_table()
    for (file, number, name), count in totals.single_lines.most_common(_ROWS):
        lines.append(f"in NumPy          {count} {name} at {file}:{number}")
    for place, count in sorted((fallback_counts or {}).items(), key=lambda item: -item[1])[:_ROWS]:
        lines.append(f"not recorded      {count} {place}")
    return "\n".join(lines)


# Lines shown per part of the report: the heaviest ones.
_ROWS = 20


def _line_table() -> list[str]:
    heavy = sorted(totals.lines.items(), key=lambda item: -item[1].seconds)[:_ROWS]
    rows = []
    for (file, number), line in heavy:
        how = ", ".join(f"{name} {count}" for name, count in line.languages.items())
        rows.append(
            f"line              {file}:{number}  {line.kernels} kernels, "
            f"{line.operations} operations, {line.seconds * 1e3:.1f} ms, "
            f"{line.bytes_moved / 1e6:.1f} MB moved, {line.bytes_saved / 1e6:.1f} MB saved ({how})"
        )
    return rows
