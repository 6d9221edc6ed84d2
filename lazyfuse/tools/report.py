"""The report: where the wall time went, what ran where, and what to change, as data.

`lazyfuse.report()` gives a `Report`: a tree of frozen dataclasses that prints as text and is also
JSON (`to_json`) and a page (`to_html`, report_html.py). Owns the tree, its text, and the advice.
Reads the counters of runtime/events; measures nothing itself.
"""

from __future__ import annotations

import dataclasses
import json
import linecache
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lazyfuse import versions
from lazyfuse.codegen.graph import references
from lazyfuse.runtime.events import counters, numpy_calls, spans
from lazyfuse.runtime.numerics import narrow_precision
from lazyfuse.runtime.placement import devices as device_in_use
from lazyfuse.runtime.scheduling import evaluate
from lazyfuse.tools import report_html
from lazyfuse.tools.explain_loops import explain_loops

ELSEWHERE = "elsewhere (Python, other packages, I/O)"
NOT_MEASURED = "not measured; --report, LAZYFUSE_REPORT=1 and options(report=True) measure them"
ROWS = 20
"""Lines shown per part of the text, the costliest first."""

OFTEN = 100
"""How often a line looks at values, or at elements, before advice mentions it."""


@dataclass(frozen=True)
class Line:
    """What one line of the user's program has cost in one thread.

    `seconds` is wall time that no other line has; `share` is its part of the wall clock, from 0 to
    1. A kernel counts at the line of its last operation; its time is divided among the lines of all
    its operations. `looks`: evaluations that this line began, by rule; `at_once`: operations in the
    call itself, by kind; `calls`: functions that NumPy ran; `copied`: bytes, by reason.
    """

    file: str
    line: int
    code: str
    seconds: float
    share: float
    evaluations: int
    kernels: int
    operations: int
    tiers: dict[str, int]
    devices: dict[str, int]
    bytes_moved: int
    bytes_saved: int
    waited: float
    looks: dict[str, int]
    at_once: dict[str, int]
    calls: dict[str, int]
    copied: dict[str, int]
    advice: str

    @property
    def place(self) -> str:
        """The file and the line."""
        return f"{self.file}:{self.line}"

    @property
    def how(self) -> str:
        """By which tiers, and on which devices but the CPU, it ran; at once where nothing else."""
        devices = [name for name in self.devices if name != "cpu"]
        named = [*self.tiers, *devices]
        if not named and any(self.at_once.get(kind) for kind in spans.AT_ONCE):
            return "at once"
        return ", ".join(named) or ("NumPy" if self.calls else "")


@dataclass(frozen=True)
class Thread:
    """The lines of one thread, the costliest first. With `elsewhere` their seconds add up to the
    wall clock, which all threads share.
    """

    name: str
    is_main: bool
    lines: tuple[Line, ...]
    elsewhere: float

    @property
    def rest(self) -> str:
        """What `elsewhere` is."""
        return ELSEWHERE if self.is_main else "elsewhere, and waiting"


@dataclass(frozen=True)
class Copies:
    """Bytes that were copied to a device ("upload"), back ("gather"), or on it ("copy")."""

    direction: str
    device: str
    purpose: str
    count: int
    bytes: int


@dataclass(frozen=True)
class Resident:
    """What lies in the memory of a device."""

    device: str
    arrays: int
    bytes: int


@dataclass(frozen=True)
class Tasks:
    """Tasks of Dask with one kernel, on one worker."""

    worker: str
    kernel: str
    count: int
    seconds: float
    bytes: int


@dataclass(frozen=True)
class Call:
    """A function that is not recorded: NumPy ran it on arrays that had to be evaluated."""

    name: str
    file: str
    line: int
    count: int


@dataclass(frozen=True)
class Report:
    """What has run since the start or the last reset. `print` shows it as text.

    `seconds`: the wall clock, in seconds; `measured`: whether lines were measured, else `threads`
    is empty. The counters are by name. `programs`: by language and where they were found; `notes`:
    what else the user should know, as pairs of a title and a text.
    """

    seconds: float
    measured: bool
    threads: tuple[Thread, ...]
    kernels: int
    fused_operations: int
    single_operations: int
    run_as: dict[str, int]
    launched_on: dict[str, int]
    evaluations: dict[str, int]
    decisions: dict[str, int]
    other_tier: dict[str, int]
    selections: dict[str, int]
    notes: tuple[tuple[str, str], ...]
    plans_found: int
    plans_made: int
    programs: dict[str, int]
    compiling: float
    waiting_launches: int
    waited: float
    compiled_ahead: int
    copies: tuple[Copies, ...]
    resident: tuple[Resident, ...]
    tasks: tuple[Tasks, ...]
    not_recorded: tuple[Call, ...]

    def __str__(self) -> str:
        return "\n".join(_text(self))

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        """The report as dictionaries, lists, texts and numbers."""
        return dataclasses.asdict(self)

    def to_json(self, indent: int | None = None) -> str:
        """The report as JSON."""
        return json.dumps(self.to_dict(), indent=indent)

    def to_html(self) -> str:
        """The report as one page that needs nothing else."""
        return report_html.page(self, counted(self))

    def _repr_html_(self) -> str:
        return report_html.fragment(self, counted(self))


def report(reset: bool = False) -> Report:
    """Where the time went, what ran where, and what to change.

    Lines are measured with the option `report` only. `reset`: counters and clock begin anew.
    """
    found = _made()
    if reset:
        counters.reset()
        numpy_calls.clear_counts()
    return found


def _made() -> Report:
    totals, clock = counters.totals(), spans.gather()
    calls = _calls()
    seconds = clock.seconds
    measured = spans.on or bool(clock.lines)
    plans = evaluate.plan_cache_info()
    cpu: Any = device_in_use.cpu()
    return Report(
        seconds=seconds,
        measured=measured,
        threads=_threads(clock, seconds, calls) if measured else (),
        kernels=totals.kernels,
        fused_operations=totals.fused,
        single_operations=totals.singles,
        run_as=_named(totals.languages),
        launched_on=_named(totals.launches),
        evaluations=_named(totals.flushes),
        decisions=_named(totals.decisions),
        other_tier=_named(totals.fallbacks),
        selections=_named(totals.selections),
        notes=tuple(_notes(cpu.programs.disk.trouble)),
        plans_found=plans["plan hits"],
        plans_made=plans["plan misses"],
        programs={_origin(each): count for each, count in totals.programs.most_common()},
        compiling=totals.compiling,
        waiting_launches=totals.waiting,
        waited=totals.waited,
        compiled_ahead=cpu.programs.ahead,
        copies=tuple(
            [Copies(*key, count, totals.copied[key]) for key, count in totals.copies.items()]
        ),
        resident=tuple(_residents()),
        tasks=tuple(
            [Tasks(*key, count, took, size) for key, (count, took, size) in totals.tasks.items()]
        ),
        not_recorded=calls,
    )


def _named(counter: Counter[Any]) -> dict[str, int]:
    return {str(name): count for name, count in counter.most_common()}


def _calls() -> tuple[Call, ...]:
    found = [Call(*place, count) for place, count in numpy_calls.counts().items()]
    return tuple(sorted(found, key=lambda each: -each.count))


def _notes(disk: str) -> Iterator[tuple[str, str]]:
    if versions.untested():
        yield "NumPy", versions.untested()
    if versions.unknown_python():
        yield "Python", versions.unknown_python()
    if references.trouble:
        yield "memory", f"nothing is written over: {references.trouble}"
    for name, count in counters.totals().narrowed.items():
        yield "single precision", f"{count} kernels on {name}: {narrow_precision.NARROWED}"
    if spans.on and not spans.covers_operators:
        yield "lines", "without the native extension, operations at once count as elsewhere"
    if disk:
        yield "programs on disk", disk


def _origin(found: counters.Found) -> str:
    language, where, why = found
    how = {"disk": "from disk", "memory": "from memory"}.get(where, where or "asked for")
    return f"{language} {how}{f': {why}' if why else ''}"


def _residents() -> list[Resident]:
    """What lies in the memory of devices; nothing if none with its own memory was used."""
    listing = sys.modules.get("lazyfuse.runtime.placement.residency")
    arrays: Counter[str] = Counter()
    size: Counter[str] = Counter()
    for each in listing.residents() if listing is not None else ():
        name = each.device.traits.name
        arrays[name] += 1
        size[name] += each.array.nbytes
    return [Resident(name, count, size[name]) for name, count in arrays.items()]


# --------------------------------------------------------------------------------------- lines


def _threads(clock: spans.Clock, seconds: float, calls: tuple[Call, ...]) -> tuple[Thread, ...]:
    main = threading.main_thread().ident
    lines: dict[int, list[Line]] = {main or 0: []}
    names: dict[tuple[str, int], list[str]] = {}
    for call in calls:
        names.setdefault((call.file, call.line), []).append(call.name)
    for (thread, file, number), counts in list(clock.lines.items()):
        not_recorded = names.get((file, number), [])
        lines.setdefault(thread, []).append(_line(file, number, counts, seconds, not_recorded))
    found = []
    for thread, each in lines.items():
        each.sort(key=lambda line: -line.seconds)
        rest = max(seconds - sum(line.seconds for line in each), 0.0)
        name = clock.threads.get(thread, "MainThread" if thread == main else f"thread {thread}")
        found.append(Thread(name, thread == main, tuple(each), rest))
    return tuple(found)


def _line(
    file: str, number: int, counts: spans.LineCounts, seconds: float, not_recorded: list[str]
) -> Line:
    return Line(
        file=file,
        line=number,
        code=linecache.getline(file, number).strip(),
        seconds=counts.seconds,
        share=counts.seconds / seconds,
        evaluations=counts.evaluations,
        kernels=counts.kernels,
        operations=counts.operations,
        tiers=_named(counts.tiers),
        devices=_named(counts.devices),
        bytes_moved=counts.bytes_moved,
        bytes_saved=counts.bytes_saved,
        waited=counts.waited + counts.compiled,
        looks=_named(counts.looks),
        at_once=_named(counts.at_once),
        calls=_named(counts.calls),
        copied=_named(counts.copied),
        advice=advice(counts, not_recorded),
    )


def advice(counts: spans.LineCounts, not_recorded: list[str]) -> str:
    """What to change at a line, in one sentence; empty where nothing is to be said.

    `not_recorded`: functions that NumPy ran there on arrays that had to be evaluated.
    """
    half = counts.seconds / 2
    for kind in ("element reads", "element writes"):
        if counts.at_once[kind] >= OFTEN and counts.at_once_seconds[kind] > half:
            return f"runs at once: {kind} in a loop; {_FOR_LOOPS}"
    if not_recorded:
        names = ", ".join(f"`np.{name}`" for name in not_recorded)
        return f"falls back to NumPy: {names}"
    if counts.waited + counts.compiled > half:
        return "waits for the compiler; the next run finds the kernels on disk"
    if counts.copied:
        reason, size = counts.copied.most_common(1)[0]
        what = "because other code holds the memory" if reason == "snapshot" else f"({reason})"
        return f"copied {what}: {size / 1e6:.1f} MB"
    small = counts.at_once["operations"] + counts.at_once["calls"]
    took = counts.at_once_seconds["operations"] + counts.at_once_seconds["calls"]
    if small >= 10 * OFTEN and took > half:
        return "runs at once: operations on small arrays in a loop; work on larger ones"
    if sum(counts.looks.values()) >= OFTEN:
        rule, count = counts.looks.most_common(1)[0]
        if rule not in _UNASKED:
            return f"looks at a value {count} times; each time what was recorded runs"
    return ""


_FOR_LOOPS = (
    "`lazyfuse FILE` compiles such loops, and `explain_loops` says what keeps one in Python"
)
_UNASKED = ("loop", "nodes", "bytes", "errstate", "conditions")
"""Rules of evaluations that no line asked for."""


# ---------------------------------------------------------------------------------------- text


def _row(title: str, text: str) -> str:
    return f"{title:<17} {text}"


def _text(found: Report) -> Iterator[str]:
    yield from _line_table(found)
    for each in counted(found):
        yield _row(*each)


def counted(found: Report) -> Iterator[tuple[str, str]]:
    """All but the lines, as titles with texts."""
    launched = f"{found.kernels}, holding {found.fused_operations} operations"
    yield "kernels launched", launched
    yield "operations alone", str(found.single_operations)
    for title, counter in (
        ("run as", found.run_as),
        ("launched on", found.launched_on),
        ("evaluations", found.evaluations),
        ("decisions", found.decisions),
        ("other tier", found.other_tier),
        ("selections", found.selections),
    ):
        yield from [(title, f"{count} {name}") for name, count in counter.items()]
    yield from found.notes
    if found.plans_found or found.plans_made:
        yield "plans", f"{found.plans_found} found, {found.plans_made} made"
    yield from [("programs", f"{count} {name}") for name, count in found.programs.items()]
    if found.programs:
        yield "compiling took", f"{found.compiling:.3f} s"
    if found.waiting_launches:
        took = f"{found.waiting_launches} launches, {found.waited:.2f} s"
        yield "waiting for the compiler:", f"{took}, now compiled: {found.compiled_ahead}"
    for loop in explain_loops():
        text = f"{loop.compiled_turns} turns compiled, {loop.turns} in Python, {loop.seconds:.3f} s"
        yield f"loop {loop.line}", f"{text}; {loop.stays}" if loop.stays else text
    for each in found.copies:
        what = f"{each.count} {each.direction} {each.device}, {each.bytes / 1e6:.1f} MB"
        yield "copied", f"{what}: {each.purpose}" if each.purpose else what
    for held in found.resident:
        yield "resident", f"{held.arrays} arrays on {held.device}, {held.bytes / 1e6:.1f} MB"
    for each_task in found.tasks:
        took = f"{each_task.seconds:.3f} s, {each_task.bytes / 1e6:.1f} MB"
        what = f"{each_task.count} {each_task.kernel} on {each_task.worker}, {took}"
        yield "tasks of Dask", what
    for call in found.not_recorded[:ROWS]:
        yield "not recorded", f"{call.count} {call.name} at {call.file}:{call.line}"


def _line_table(found: Report) -> Iterator[str]:
    if not found.measured:
        yield _row("lines", NOT_MEASURED)
        return
    for thread in found.threads:
        yield _row("wall clock", f"{found.seconds:.3f} s of {thread.name}, by line")
        for line in thread.lines[:ROWS]:
            yield _time_row(line.share, line.seconds, f"{line.place}{_figures(line)}")
            if line.advice:
                yield f"{'':<18}{'':<17}  {line.advice}"
        rest = thread.lines[ROWS:]
        if rest:
            seconds = sum(line.seconds for line in rest)
            yield _time_row(seconds / found.seconds, seconds, f"{len(rest)} other lines")
        yield _time_row(thread.elsewhere / found.seconds, thread.elsewhere, thread.rest)


def _time_row(share: float, seconds: float, text: str) -> str:
    return f"{'':<18}{100 * share:5.1f} % {seconds:7.3f} s  {text}"


def _figures(line: Line) -> str:
    parts = [line.how] if line.how else []
    if line.evaluations:
        parts.append(f"{line.evaluations} evaluation{'s' if line.evaluations > 1 else ''}")
    if line.bytes_moved:
        parts.append(f"{line.bytes_moved / 1e6:.1f} MB moved, {line.bytes_saved / 1e6:.1f} saved")
    return f"  ({'; '.join(parts)})" if parts else ""
