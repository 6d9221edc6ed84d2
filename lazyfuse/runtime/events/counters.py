"""What ran, where, and why not faster: counters per source line, and the events of tracing.py.

Owns the counters. Called by evaluate.py, executor.py and devices.py. Totals are always counted,
source lines only with the option `report`; events are made only for listeners. Knows steps and
nodes, never arrays.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyfuse import config, versions
from lazyfuse.codegen.graph import references
from lazyfuse.codegen.graph.node import Node, source_line
from lazyfuse.codegen.graph.shapes import size_of
from lazyfuse.devices.dataclass import dataclass
from lazyfuse.runtime.events import tracing
from lazyfuse.runtime.events.decisions import Rule
from lazyfuse.runtime.events.tracing import Operation, operation_of
from lazyfuse.runtime.numerics import fp_flags, narrow_precision

if TYPE_CHECKING:
    from lazyfuse.codegen.graph.linearize import Recording
    from lazyfuse.codegen.plan.plan import KernelStep, Plan
    from lazyfuse.devices.base import Device, Program, Source
    from lazyfuse.runtime.execution.executor import Run
    from lazyfuse.runtime.placement.residency import Resident

Array = np.ndarray[Any, np.dtype[Any]]
Line = tuple[str, int]
Copied = tuple[str, str, str]  # direction, device, purpose
Found = tuple[str, str, str]  # language, where it was found, why it had to be built


@dataclass
class LineCounts:
    """Counters of the kernels whose last operation was recorded at one source line."""

    kernels: int = 0
    operations: int = 0
    seconds: float = 0.0
    bytes_moved: int = 0
    bytes_saved: int = 0
    languages: Counter[str] = field(default_factory=Counter)


@dataclass
class Totals:
    """Counters of one process."""

    kernels: int = 0
    fused: int = 0  # operations in those kernels
    singles: int = 0  # operations that ran alone, in NumPy
    flushes: Counter[Rule] = field(default_factory=Counter)
    languages: Counter[str] = field(default_factory=Counter)
    fallbacks: Counter[str] = field(default_factory=Counter)  # kernels that ran on another tier
    launches: Counter[str] = field(default_factory=Counter)  # by device
    selections: Counter[str] = field(default_factory=Counter)  # x[mask]: why it ran at once
    decisions: Counter[Rule] = field(default_factory=Counter)  # not those in `flushes`
    narrowed: Counter[str] = field(default_factory=Counter)  # float64 kernels run in float32
    copies: Counter[Copied] = field(default_factory=Counter)
    copied: Counter[Copied] = field(default_factory=Counter)  # bytes
    programs: Counter[Found] = field(default_factory=Counter)  # requests, by origin
    compiling: float = 0.0  # seconds that the requests took
    waiting: int = 0  # launches of blocked NumPy for programs that were being compiled
    waited: float = 0.0  # seconds that they took
    lines: dict[Line, LineCounts] = field(default_factory=dict)
    single_lines: Counter[tuple[str, int, str]] = field(default_factory=Counter)
    governed: dict[tuple[str, int], tuple[float, float]] = field(default_factory=dict)
    """Lines that run at once: NumPy's seconds, and those of recorded work."""


totals = Totals()


def reset() -> None:
    """Set all counters to zero."""
    global totals
    totals = Totals()


def _debug(level: int, text: str) -> None:
    if config.options.debug >= level:
        print(f"lazyfuse: {text}", file=sys.stderr)


def planned(plan: Plan, hit: bool) -> None:
    """Report a plan that was found or made."""
    if tracing.listeners:
        passes = () if hit else tuple(plan.times.items())
        seconds = sum((each for _, each in passes), 0.0)
        planned = sum(value.op.kind != "source" for value in plan.graph.values)
        tracing.emit(tracing.Plan(hit, len(plan.kernels), plan.recorded, planned, passes, seconds))


def flushed(rule: Rule, plan: Plan, recording: Recording, replay: Rule | None = None) -> None:
    """Count an evaluation that begins; with `replay`, one that a replay has done."""
    totals.flushes[rule] += 1
    if replay is not None:
        totals.decisions[replay] += 1
    if tracing.listeners:
        tracing.emit(tracing.Flush(str(rule), len(recording.nodes), len(plan.kernels)))
    if config.options.debug:
        nodes = len(recording.nodes)
        _debug(1, f"evaluate {nodes} nodes in {len(plan.kernels)} kernels ({rule})")
        if config.options.debug >= 4:
            for name, seconds in plan.times.items():
                _debug(4, f"  {name} {seconds * 1e6:.0f} us")


def compiled(device: Device, source: Source) -> Program:
    """Compile a source on the device, and count where the program was found."""
    pool = device.programs
    before = (pool.built, pool.loaded) if pool else (0, 0)
    start = time.perf_counter()
    found, why = "memory", ""
    try:
        program = device.compile(source)
    except Exception as error:
        found, why = "failed", _first_line(error)
        raise
    else:
        if not pool:
            found = ""
        elif pool.built > before[0]:
            found, why = "built", device.why_missed(source)
        elif pool.loaded > before[1]:
            found = "disk"
        return program
    finally:
        seconds = time.perf_counter() - start
        totals.compiling += seconds
        totals.programs[source.language, found, why] += 1
        if tracing.listeners:
            name = device.traits.name
            tracing.emit(tracing.Compile(source.name, source.language, name, found, why, seconds))


def awaited(device: Device, source: Source) -> bool:
    """Whether the device's worker still compiles a program, so that another tier must run."""
    pool = device.programs
    assert pool is not None, "a device that compiles ahead keeps programs"
    before, was_awaited = pool.loaded, pool.awaits(source)
    if device.soon(source) is not None:
        if pool.loaded > before:
            totals.programs[source.language, "disk", ""] += 1
        return False
    if not was_awaited:
        why = device.why_missed(source)
        totals.programs[source.language, "built by the worker", why] += 1
    return not device.why_never(source)


def waited(launches: int, seconds: float) -> None:
    """Count launches of blocked NumPy that stood in for programs not compiled yet."""
    totals.waiting += launches
    totals.waited += seconds


@contextmanager
def waiting(launches: int) -> Iterator[None]:
    """Count a replay with so many such launches."""
    start = time.perf_counter()
    yield
    if launches:
        waited(launches, time.perf_counter() - start)


def _first_line(what: object) -> str:
    return next(iter(str(what).splitlines()), "no reason given")


def kernel_begins(step: KernelStep, run: Run, source: Source) -> None:
    """Report a kernel that is about to be launched."""
    if tracing.listeners:
        if tracing.stages:
            _time_stages(step, run, source)
        tracing.emit(tracing.KernelBegin(*_described(step, run, source)))


def _described(
    step: KernelStep, run: Run, source: Source
) -> tuple[str, str, str, tuple[Operation, ...], int, float]:
    """The fields that all events of a kernel share."""
    operations = tuple([operation_of(node) for node in run.nodes_of(step)])
    elements = size_of(run.shape(step.domain_of))
    return source.name, source.language, run.device.traits.name, operations, elements, step.cost


def _time_stages(step: KernelStep, run: Run, source: Source) -> None:
    """Time each operation of a kernel alone, before the kernel can overwrite its operands."""
    seconds: list[float] = []
    with fp_flags.collecting():
        run.members(step, seconds)
    operations = tuple([operation_of(node) for node in run.nodes_of(step)])
    tracing.emit(tracing.StageTimes(source.name, operations, tuple(seconds)))


def ran_kernel(
    step: KernelStep,
    run: Run,
    source: Source,
    inputs: list[Array],
    outputs: list[Array],
    start: float,
    under_way: bool = False,
) -> None:
    """Count a kernel that has run, or that was launched and is `under_way`."""
    totals.kernels += 1
    count = len(step.members) + len(step.reductions)
    totals.fused += count
    totals.languages[source.language] += 1
    totals.launches[run.device.traits.name] += 1
    if run.narrowed(step) and run.device is run.assigned_device:
        totals.narrowed[run.device.traits.name] += 1
    options = config.options
    if tracing.listeners:
        seconds = time.perf_counter() - start
        read = sum(array.nbytes for array in inputs)
        written = sum(array.nbytes for array in outputs)
        described = _described(step, run, source)
        tracing.emit(tracing.KernelEnd(*described, read, written, seconds, under_way))
    if options.debug >= 2:
        _debug(2, f"  kernel {source.name} [{source.language}] {count} operations")
        _debug(3, source.text)
    if options.report:
        _count_line(step, run, source, inputs, outputs, time.perf_counter() - start)


def ran_again(device: Device, language: str, operations: int) -> None:
    """Count a kernel that ran by a captured launch."""
    totals.kernels += 1
    totals.fused += operations
    totals.languages[language] += 1
    totals.launches[device.traits.name] += 1


def ran_replay(
    device: Device, launched: tuple[int, Sequence[tuple[str, int]]], numbers: int
) -> None:
    """Count a replay in C: `launched` (operations; kernels by language), and single `numbers`."""
    operations, languages = launched
    for language, count in languages:
        totals.kernels += count
        totals.languages[language] += count
        totals.launches[device.traits.name] += count
    totals.fused += operations
    totals.singles += numbers


def copied(
    direction: str, nbytes: int, device: str, purpose: str = "", seconds: float = 0.0
) -> None:
    """Count bytes copied to a device ("upload"), back ("gather"), or on the device ("copy")."""
    totals.copies[direction, device, purpose] += 1
    totals.copied[direction, device, purpose] += nbytes
    if tracing.listeners:
        tracing.emit(tracing.Copy(direction, nbytes, device, purpose, seconds))


def _count_line(
    step: KernelStep,
    run: Run,
    source: Source,
    inputs: list[Array],
    outputs: list[Array],
    seconds: float,
) -> None:
    file, number, _ = source_line(run.nodes_of(step)[-1].location)
    line = totals.lines.setdefault((file, number), LineCounts())
    line.kernels += 1
    line.operations += len(step.members) + len(step.reductions)
    line.seconds += seconds
    moved = sum(array.nbytes for array in (*inputs, *outputs))
    line.bytes_moved += moved
    line.bytes_saved += max(0, unfused_bytes(run, step) - moved)
    line.languages[source.language] += 1


def unfused_bytes(run: Run, step: KernelStep) -> int:
    """Bytes that the kernel's operations would read and write if each ran alone."""
    values = run.plan.graph.values
    total = 0
    for index in (*step.members, *step.reductions):
        for other in (index, *values[index].src):
            size = values[other].dtype.itemsize
            for length in run.shape(other):
                size *= length
            total += size
    return total


def ran_single(node: Node, device: str = "") -> None:
    """Count an operation that ran alone: in NumPy, or by a library of a device."""
    if device:
        totals.launches[device] += 1
        totals.languages["library"] += 1
        if tracing.listeners:
            tracing.emit(tracing.Single(operation_of(node), device))
        return
    totals.singles += 1
    if tracing.listeners:
        tracing.emit(tracing.Single(operation_of(node)))
    if config.options.report:
        file, number, _ = source_line(node.location)
        name = node.arg.name if node.op.kind == "host" else node.op.name
        totals.single_lines[file, number, name] += 1


def fell_back(
    step: KernelStep | None, nodes: list[Node], why: str, origin: str = "", to: str = "NumPy"
) -> None:
    """Count a kernel that should have run on the tier `origin`, could not, and runs on `to`."""
    names = " -> ".join(node.op.name for node in nodes)
    reason = _first_line(why)
    totals.fallbacks[f"{names}: {reason}" if names else reason] += 1
    if tracing.listeners:
        operations = tuple([operation_of(node) for node in nodes])
        tracing.emit(tracing.Fallback(operations, origin, to, reason))
    _debug(1, f"fallback: {names}: {why}")


def text(
    fallback_counts: dict[Any, int] | None = None,
    plans: dict[str, int] | None = None,
    resident: Sequence[Resident] = (),
    trouble: str = "",  # problems with the folder of programs
    ahead: int = 0,  # programs that the compiler's process has made
) -> str:
    """The report of `lazyfuse --report`."""
    lines = [
        f"kernels launched  {totals.kernels}, holding {totals.fused} operations",
        f"operations alone  {totals.singles}",
    ]
    for title, counter in (
        ("run as", totals.languages),
        ("launched on", totals.launches),
        ("evaluations", totals.flushes),
        ("decisions", totals.decisions),
        ("other tier", totals.fallbacks),
        ("selections", totals.selections),
    ):
        lines += [f"{title:<17} {n} {name}" for name, n in counter.most_common()]
    if versions.untested():
        lines.append(f"{'NumPy':<17} {versions.untested()}")
    if versions.unknown_python():
        lines.append(f"{'Python':<17} {versions.unknown_python()}")
    if references.trouble:
        lines.append(f"{'memory':<17} nothing is written over: {references.trouble}")
    for name, count in totals.narrowed.items():
        lines.append(
            f"{'single precision':<17} {count} kernels on {name}: {narrow_precision.NARROWED}"
        )
    lines += _cache_lines(plans or {})
    if totals.waiting:
        took = f"{totals.waiting} launches, {totals.waited:.2f} s, now compiled: {ahead}"
        lines.append(f"waiting for the compiler: {took}")
    if trouble:
        lines.append(f"{'programs on disk':<17} {trouble}")
    lines += [f"{'copied':<17} {_copied_line(key)}" for key in totals.copies]
    lines += _resident_lines(resident)
    lines += _line_table()
    for (file, number), (theirs, ours) in list(totals.governed.items())[-_ROWS:]:
        took = f"{theirs * 1e6:.0f} us against {ours * 1e6:.0f} us recorded"
        lines.append(f"{'runs at once':<17} {file}:{number}: {took}")
    for (file, number, name), count in totals.single_lines.most_common(_ROWS):
        lines.append(f"in NumPy          {count} {name} at {file}:{number}")
    for place, count in sorted((fallback_counts or {}).items(), key=lambda item: -item[1])[:_ROWS]:
        lines.append(f"not recorded      {count} {place}")
    return "\n".join(lines)


# Lines shown per part of the report, the costliest first.
_ROWS = 20


def _cache_lines(plans: dict[str, int]) -> list[str]:
    """Report lines: where plans and programs were found, and why programs had to be built."""
    lines = []
    if plans.get("plan hits", 0) + plans.get("plan misses", 0):
        found = f"{plans['plan hits']} found, {plans['plan misses']} made"
        lines.append(f"{'plans':<17} {found}")
    for (language, where, why), count in totals.programs.most_common():
        how = {"disk": "from disk", "memory": "from memory"}.get(where, where or "asked for")
        lines.append(f"{'programs':<17} {count} {language} {how}{f': {why}' if why else ''}")
    if totals.programs:
        lines.append(f"{'compiling took':<17} {totals.compiling:.3f} s")
    return lines


def _copied_line(key: Copied) -> str:
    direction, device, purpose = key
    what = f"{totals.copies[key]} {direction} {device}, {totals.copied[key] / 1e6:.1f} MB"
    return f"{what}: {purpose}" if purpose else what


def _resident_lines(resident: Sequence[Resident]) -> list[str]:
    """Report lines: how many values and bytes each device holds."""
    arrays = Counter(each.device.traits.name for each in resident)
    return [
        f"{'resident':<17} {count} arrays on {name}, "
        f"{sum(r.array.nbytes for r in resident if r.device.traits.name == name) / 1e6:.1f} MB"
        for name, count in arrays.items()
    ]


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
