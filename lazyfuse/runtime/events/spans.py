"""Where the wall time went: the time of spans, by thread and line of the user's program.

A span is a stretch of time in which lazyfuse works for some lines. What spans inside it have taken
is not counted again, so the lines of a thread and the rest add up to its wall clock. Nothing is
measured unless the option `report` is on. Operators, calls of ufuncs and of most functions are
measured by native/graph/spans.c; without the native extension they count as the rest. Owns the
clock, the figures by line, and how the time of an evaluation is divided among the lines that
recorded it.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import field, fields
from types import CodeType
from typing import TYPE_CHECKING, Any

from lazyfuse import bootstrap, config
from lazyfuse.codegen.graph.node import Node, Where, source_line
from lazyfuse.codegen.graph.shapes import size_of
from lazyfuse.codegen.table import ops
from lazyfuse.devices.caches import memo
from lazyfuse.devices.dataclass import dataclass

if TYPE_CHECKING:
    from lazyfuse.codegen.plan.plan import Plan

Place = tuple[int, str, int]
"""A thread, a file, a line."""

KINDS = ("operations", "calls", "element reads", "element writes", "views and parts", "recorded")
"""What native/graph/spans.c tells apart, by number."""

AT_ONCE = ("operations", "calls", "element reads", "element writes")
"""Those of them that ran at once."""

_INSIDE = bootstrap.PACKAGES | {"lazyfuse.followed"}

on = False
"""Whether lines are measured."""


@dataclass
class LineCounts:
    """What one line has cost: the line at which operations were recorded, or ran at once."""

    seconds: float = 0.0
    evaluations: int = 0  # in which its operations ran
    kernels: int = 0  # a fused kernel is its last operation's
    operations: int = 0
    bytes_moved: int = 0
    bytes_saved: int = 0
    waited: float = 0.0  # seconds of blocked NumPy that stood in for the compiler
    compiled: float = 0.0  # seconds of compiling in this process
    tiers: Counter[str] = field(default_factory=Counter)
    devices: Counter[str] = field(default_factory=Counter)
    singles: Counter[str] = field(default_factory=Counter)  # operations in NumPy, by name
    at_once: Counter[str] = field(default_factory=Counter)  # by kind
    at_once_seconds: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)  # functions of NumPy's, by name
    looks: Counter[str] = field(default_factory=Counter)  # evaluations begun here, by rule
    copied: Counter[str] = field(default_factory=Counter)  # bytes, by reason


class Clock:
    """The figures since the last reset."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.lines: dict[Place, LineCounts] = {}
        self.threads: dict[int, str] = {}

    def line(self, where: tuple[str, int]) -> LineCounts:
        """The figures of a line in this thread."""
        return self.line_of(threading.get_ident(), *where)

    def line_of(self, thread: int, file: str, number: int) -> LineCounts:
        """The figures of a line in a thread."""
        found = self.lines.get((thread, file, number))
        if found is None:
            if thread == threading.get_ident():
                self.threads[thread] = threading.current_thread().name
            found = self.lines.setdefault((thread, file, number), LineCounts())
        return found

    @property
    def seconds(self) -> float:
        """The wall clock."""
        return time.perf_counter() - self.began


class _Thread(threading.local):
    def __init__(self) -> None:
        self.attributed = 0.0  # seconds of spans that have ended
        self.shares: Shares = ()  # of the evaluation that runs


Shares = Sequence[tuple[tuple[str, int], float]]
"""Lines, and the part of an evaluation's time that is theirs."""
Span = tuple[float, float]

_thread = _Thread()
clock = Clock()


def _begin() -> Span:
    """A span begins."""
    return time.perf_counter(), _thread.attributed


def _end(span: Span) -> float:
    """The seconds of a span without those of the spans in it."""
    began, before = span
    elapsed = time.perf_counter() - began
    own = elapsed - (_thread.attributed - before)
    _thread.attributed = before + elapsed
    return max(own, 0.0)


_native = bootstrap.machine_code()
begin = _begin if _native is None else _native.span_begin
end = _end if _native is None else _native.span_end
covers_operators = _native is not None
"""Whether what runs at once is measured, too."""


def reset() -> None:
    """Begin anew: clock and lines."""
    global clock
    if _native is not None:
        _native.spans_take()
    clock = Clock()


def _switch(value: Any) -> None:
    global on
    if value and not on:
        reset()
    on = bool(value)
    if _native is not None:
        _native.spans_switch(on)


config.on_change("report", _switch)


def gather() -> Clock:
    """The clock, with what native/graph/spans.c has measured since."""
    if _native is not None:
        for code, offset, thread, kind, count, seconds in _native.spans_take():
            line = clock.line_of(thread, *line_at((code, offset)))
            line.seconds += seconds
            line.at_once[KINDS[kind]] += count
            line.at_once_seconds[KINDS[kind]] += seconds
    return clock


@contextmanager
def apart() -> Iterator[Clock]:
    """Measure the lines of a block with a clock of its own; then add them to the present one's."""
    global clock
    before = clock = gather()
    own = clock = Clock()
    try:
        yield own
    finally:
        gather()
        clock = before
        before.threads |= own.threads
        for place, counts in own.lines.items():
            sum_up(before.lines.setdefault(place, LineCounts()), counts)


def sum_up(whole: Any, more: Any) -> None:
    """Add the figures of one dataclass instance to those of another one of its class."""
    for each in fields(more):
        first, second = getattr(whole, each.name), getattr(more, each.name)
        if isinstance(first, dict):
            for key, value in second.items():
                known = isinstance(value, (int, float)) and key in first
                first[key] = first[key] + value if known else value
        else:
            setattr(whole, each.name, first + second)


def adopted() -> None:
    """The array type exists now: its operators are measured, too."""
    if on and _native is not None:
        _native.spans_switch(True)


_lines: dict[Any, tuple[CodeType, tuple[str, int]]] = memo("runtime.events.spans.lines", 4096)


def line_at(where: Where | None) -> tuple[str, int]:
    """File and line of an instruction, remembered."""
    if where is None:
        return "<unknown>", 0
    code, offset = where[0], where[1]
    key = id(code), offset
    found = _lines.get(key)
    if found is None or found[0] is not code:
        file, number, _ = source_line((code, offset))
        found = _lines[key] = code, (file, number)
    return found[1]


def here() -> tuple[str, int]:
    """The user's present line: of the first frame outside lazyfuse."""
    frame = sys._getframe(1)
    while frame.f_globals.get("__package__") in _INSIDE and frame.f_back is not None:
        frame = frame.f_back
    return line_at((frame.f_code, frame.f_lasti))


class Called:
    """Measures a call that lazyfuse makes of NumPy, for the line of the user's program."""

    __slots__ = ("name", "span")

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        self.span = begin()

    def __exit__(self, *error: object) -> None:
        line = clock.line(here())
        line.seconds += end(self.span)
        if self.name:
            line.calls[self.name] += 1


_NOTHING: AbstractContextManager[None] = nullcontext()


def calling(name: str) -> AbstractContextManager[None]:
    """A block that calls NumPy for the user's program."""
    return Called(name) if on else _NOTHING


# ------------------------------------------------------------------------------------- evaluations


def _divided(work: Iterable[tuple[Where | None, float]]) -> Shares:
    """How time is divided among lines: by estimated work."""
    found: dict[tuple[str, int], float] = {}
    for where, each in work:
        if where is not None:
            line = line_at(where)
            found[line] = found.get(line, 0.0) + each
    total = sum(found.values())
    return [(line, each / total) for line, each in found.items()]


def shares_of(nodes: Iterable[Node]) -> Shares:
    """The lines of operations that have not run yet."""
    return _divided(
        (node.location, node.op.cost * _size(node.shape, [each.shape for each in node.src]))
        for node in nodes
        if node.op not in ops.PLACES
    )


def shares_in(plan: Plan, nodes: Sequence[Node]) -> Shares:
    """The lines of what a plan computes for a recording."""
    values = plan.graph.values
    work = []
    for step in plan.steps:
        for index in getattr(step, "in_order", None) or (step.index,):  # type: ignore[union-attr]
            value = values[index]
            if value.op in ops.PLACES:
                continue
            node = nodes[value.origin]
            shapes = [nodes[values[each].origin].shape for each in value.src]
            work.append((node.location, value.op.cost * _size(node.shape, shapes)))
    return _divided(work)


def _size(shape: tuple[int, ...], sources: Sequence[tuple[int, ...]]) -> int:
    """The elements that an operation goes through: of its result or, if reduced, its operand."""
    return max(1, size_of(shape), *map(size_of, sources))


def note(shares: Shares) -> None:
    """The evaluation that runs computes operations of these lines."""
    _thread.shares = shares
    for line, _ in shares:
        clock.line(line).evaluations += 1


def add(shares: Shares, seconds: float) -> None:
    """Seconds inside the present span belong to these lines."""
    skip(seconds)
    for line, part in shares or _thread.shares or [(here(), 1.0)]:
        clock.line(line).seconds += part * seconds


def ended_at(span: Span, where: Where | None) -> None:
    """A span ends that belongs to the line of one operation."""
    clock.line(line_at(where)).seconds += end(span)


def _skip(seconds: float) -> None:
    """Take seconds out of the spans that are open."""
    _thread.attributed += seconds


skip = _skip if _native is None else _native.span_skip


def evaluated(span: Span | None, rule: str) -> None:
    """An evaluation has ended: what is left of its time is divided among its lines."""
    if span is None:
        return
    shares, _thread.shares = _thread.shares, ()
    seconds = end(span)
    asking = here()
    clock.line(asking).looks[rule] += 1
    for line, part in shares or [(asking, 1.0)]:
        clock.line(line).seconds += part * seconds


def compiled(seconds: float) -> None:
    """The present evaluation has waited for the compiler."""
    for line, part in _thread.shares or [(here(), 1.0)]:
        clock.line(line).compiled += part * seconds


def waited(seconds: float) -> None:
    """Blocked NumPy has stood in for the compiler in the present evaluation."""
    for line, part in _thread.shares or [(here(), 1.0)]:
        clock.line(line).waited += part * seconds


# ----------------------------------------------------------------------------------------- replays


@dataclass(frozen=True)
class Launched:
    """What one kernel adds to its lines: the last one's are its bytes and operations."""

    places: tuple[Where | None, ...]  # of its operations, in order
    bytes_moved: int
    bytes_saved: int
    tier: str


_replays: dict[Any, tuple[Any, Shares, Sequence[Launched]]] = memo(
    "runtime.events.spans.replays", 1024
)


def replayed(
    replay: Any,
    plan: Plan,
    nodes: Sequence[Node],
    device: str,
    launched: Callable[[Any, Plan, Sequence[Node]], Sequence[Launched]],
) -> None:
    """Count a replay that has run. The lines of a replay are looked up once for each line that
    recorded its last operation; `launched` says what its kernels are.
    """
    last = nodes[-1].location
    key = id(replay), None if last is None else (id(last[0]), last[1])
    found = _replays.get(key)
    if found is None or found[0] is not replay:
        kernels = launched(replay, plan, nodes)
        found = _replays[key] = replay, shares_in(plan, nodes), kernels
    _, shares, kernels = found
    note(shares)
    for each in kernels:
        ran(each, device)


def ran(kernel: Launched, device: str) -> None:
    """Count a kernel at its lines."""
    for place in dict.fromkeys(map(line_at, kernel.places)):
        line = clock.line(place)
        line.tiers[kernel.tier] += 1
        line.devices[device] += 1
    last = clock.line(line_at(kernel.places[-1]))
    last.kernels += 1
    last.operations += len(kernel.places)
    last.bytes_moved += kernel.bytes_moved
    last.bytes_saved += kernel.bytes_saved
