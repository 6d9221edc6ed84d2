"""What ran, where, and why not faster: counters, the events of tracing.py, and the log.

Owns the counters. Called by evaluate.py, executor.py and devices.py. Totals are always counted,
source lines (spans.py) only with the option `report`; events are made only for listeners. Knows
steps and nodes, never arrays.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyfuse import bootstrap
from lazyfuse.codegen.graph.node import Node
from lazyfuse.codegen.graph.shapes import size_of
from lazyfuse.devices.dataclass import dataclass
from lazyfuse.runtime.events import decisions, log, spans, tracing
from lazyfuse.runtime.events.decisions import Rule
from lazyfuse.runtime.events.tracing import Operation, operation_of
from lazyfuse.runtime.numerics import fp_flags

if TYPE_CHECKING:
    from lazyfuse.codegen.graph.linearize import Recording, Value
    from lazyfuse.codegen.plan.plan import KernelStep, Plan
    from lazyfuse.devices.base import Device, Program, Source
    from lazyfuse.runtime.execution.executor import Run

Array = np.ndarray[Any, np.dtype[Any]]
Copied = tuple[str, str, str]  # direction, device, purpose
Found = tuple[str, str, str]  # language, where it was found, why it had to be built


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
    evaluations: int = 0
    plan_hits: int = 0
    plan_misses: int = 0
    programs: Counter[Found] = field(default_factory=Counter)  # requests, by origin
    compiling: float = 0.0  # seconds that the requests took
    waiting: int = 0  # launches of blocked NumPy for programs that were being compiled
    waited: float = 0.0  # seconds that they took
    tasks: dict[tuple[str, str], tuple[int, float, int]] = field(default_factory=dict)
    """Of Dask, by worker and kernel: how many, their seconds, the bytes of their results."""


_totals = Totals()

_uncounted: Callable[[], Sequence[tuple[Any, Rule, int]]]
_uncounted = getattr(bootstrap.machine_code(), "replay_uncounted", tuple)
"""What C has done since it was asked last: a replay under a rule, evaluations that NumPy's loops
have done (the rule that says so) under another one, or a decision (None); and how often."""


def totals() -> Totals:
    """The counters of this process."""
    for what, rule, times in _uncounted():
        if what is None:
            _totals.decisions[rule] += times
            continue
        _totals.flushes[rule] += times
        _totals.evaluations += times
        if isinstance(what, Rule):
            _totals.decisions[what] += times
        else:
            _totals.decisions[decisions.REPLAYED] += times
            _totals.plan_hits += times
            ran_replay(what, times)
    return _totals


def exchange(others: Totals) -> Totals:
    """Count in others from now on; the counters until now."""
    global _totals
    before, _totals = totals(), others
    return before


def reset() -> None:
    """Set all counters to zero."""
    exchange(Totals())
    spans.reset()


def planned(plan: Plan, hit: bool) -> None:
    """Report a plan that was found or made."""
    if tracing.listeners:
        passes = () if hit else tuple(plan.times.items())
        seconds = sum((each for _, each in passes), 0.0)
        planned = sum(value.op.kind != "source" for value in plan.graph.values)
        tracing.emit(tracing.Plan(hit, len(plan.kernels), plan.recorded, planned, passes, seconds))


def flushed(rule: Rule, plan: Plan, recording: Recording, replay: Rule | None = None) -> None:
    """Count an evaluation that begins; with `replay`, one that a replay has done."""
    _totals.flushes[rule] += 1
    if spans.on and replay is None:
        spans.note(spans.shares_in(plan, recording.nodes))
    if replay is not None:
        _totals.decisions[replay] += 1
    if tracing.listeners:
        tracing.emit(tracing.Flush(str(rule), len(recording.nodes), len(plan.kernels)))
    if log.is_heard(1):
        nodes = len(recording.nodes)
        log.tell(1, f"evaluate {nodes} nodes in {len(plan.kernels)} kernels ({rule})")
        for name, seconds in plan.times.items():
            log.tell(4, f"  {name} {seconds * 1e6:.0f} us")


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
        _totals.compiling += seconds
        if spans.on:
            spans.compiled(seconds)
        _totals.programs[source.language, found, why] += 1
        if tracing.listeners:
            name = device.traits.name
            tracing.emit(tracing.Compile(source.name, source.language, name, found, why, seconds))


def awaited(device: Device, source: Source) -> bool:
    """Whether the device's worker still compiles a program, so that another tier must run."""
    pool = device.programs
    assert pool is not None, "a device that compiles ahead keeps programs"
    before, was_awaited = pool.loaded, pool.awaits(source)
    start = time.perf_counter()
    found = device.soon(source)
    if spans.on:
        spans.compiled(time.perf_counter() - start)
    if found is not None:
        if pool.loaded > before:
            _totals.programs[source.language, "disk", ""] += 1
        return False
    if not was_awaited:
        why = device.why_missed(source)
        _totals.programs[source.language, "built by the worker", why] += 1
    return not device.why_never(source)


def waited(launches: int, seconds: float) -> None:
    """Count launches of blocked NumPy that stood in for programs not compiled yet."""
    _totals.waiting += launches
    _totals.waited += seconds
    if spans.on:
        spans.waited(seconds)


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
    seconds: float,
    under_way: bool = False,
) -> None:
    """Count a kernel that has run, or that was launched and is `under_way`."""
    _totals.kernels += 1
    count = len(step.members) + len(step.reductions)
    _totals.fused += count
    _totals.languages[source.language] += 1
    _totals.launches[run.device.traits.name] += 1
    if run.narrowed(step) and run.device is run.assigned_device:
        _totals.narrowed[run.device.traits.name] += 1
    if tracing.listeners:
        read = sum(array.nbytes for array in inputs)
        written = sum(array.nbytes for array in outputs)
        described = _described(step, run, source)
        tracing.emit(tracing.KernelEnd(*described, read, written, seconds, under_way))
    if log.is_heard(2):
        log.tell(2, f"  kernel {source.name} [{source.language}] {count} operations")
        log.tell(3, source.text)
    if spans.on:
        _count_line(step, run, source, inputs, outputs, seconds)


def ran_again(device: Device, language: str, operations: int) -> None:
    """Count a kernel that ran by a captured launch."""
    _totals.kernels += 1
    _totals.fused += operations
    _totals.languages[language] += 1
    _totals.launches[device.traits.name] += 1


def ran_replay(replay: Any, times: int = 1) -> None:
    """Count runs of a replay in C (`capture.replay.Replay`): kernels, and single numbers."""
    _, (operations, languages), numbers = replay.program
    for language, count in languages:
        _totals.kernels += times * count
        _totals.languages[language] += times * count
        _totals.launches[replay.device.traits.name] += times * count
    _totals.fused += times * operations
    _totals.singles += times * numbers


def copied(direction: str, nbytes: int, device: str, purpose: str = "") -> None:
    """Count bytes copied to a device ("upload"), back ("gather"), or on the device ("copy")."""
    _totals.copies[direction, device, purpose] += 1
    _totals.copied[direction, device, purpose] += nbytes
    if spans.on:
        reason = f"{direction} {device}: {purpose}" if purpose else f"{direction} {device}"
        spans.clock.line(spans.here()).copied[reason] += nbytes
    if tracing.listeners:
        tracing.emit(tracing.Copy(direction, nbytes, device, purpose))


def _count_line(
    step: KernelStep,
    run: Run,
    source: Source,
    inputs: list[Array],
    outputs: list[Array],
    seconds: float,
) -> None:
    nodes = run.nodes_of(step)
    moved = sum(array.nbytes for array in (*inputs, *outputs))
    saved = max(0, unfused_bytes(step, run.plan.graph.values, run.shape) - moved)
    places = tuple([node.location for node in nodes])
    launched = spans.Launched(places, moved, saved, source.language)
    spans.ran(launched, run.device.traits.name)
    spans.add(spans.shares_of(nodes), seconds)


def unfused_bytes(
    step: KernelStep, values: Sequence[Value], shape: Callable[[int], tuple[int, ...]]
) -> int:
    """Bytes that the kernel's operations would read and write if each ran alone."""
    total = 0
    for index in (*step.members, *step.reductions):
        for other in (index, *values[index].src):
            total += size_of(shape(other)) * values[other].dtype.itemsize
    return total


def runs_at_once(rule: Rule, nodes: Sequence[Node]) -> None:
    """Count operations that are to run in NumPy, one by one."""
    _totals.decisions[rule] += 1
    if spans.on:
        spans.note(spans.shares_of(nodes))


def ran_single(node: Node, device: str = "", span: spans.Span | None = None) -> None:
    """Count an operation that ran alone: in NumPy, or by a library of a device, in `span`."""
    if span is not None:
        spans.ended_at(span, node.location)
    if spans.on:
        line = spans.clock.line(spans.line_at(node.location))
        name = node.arg.name if node.op.kind == "host" else node.op.name
        line.singles[name] += 1
        line.operations += 1
        line.devices[device or "cpu"] += 1
        line.tiers["library" if device else "NumPy"] += 1
    if device:
        _totals.launches[device] += 1
        _totals.languages["library"] += 1
        if tracing.listeners:
            tracing.emit(tracing.Single(operation_of(node), device))
        return
    _totals.singles += 1
    if tracing.listeners:
        tracing.emit(tracing.Single(operation_of(node)))


def fell_back(nodes: list[Node], why: str, origin: str = "", to: str = "NumPy") -> None:
    """Count a kernel that should have run on the tier `origin`, could not, and runs on `to`."""
    names = " -> ".join(node.op.name for node in nodes)
    reason = _first_line(why)
    _totals.fallbacks[f"{names}: {reason}" if names else reason] += 1
    if tracing.listeners:
        operations = tuple([operation_of(node) for node in nodes])
        tracing.emit(tracing.Fallback(operations, origin, to, reason))
    log.tell(1, f"fallback: {names}: {why}", log.INFO)
