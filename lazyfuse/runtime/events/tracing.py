"""One callback for everything that happens: the events, the listeners, and two made for users.

Four ways to listen::

    with lazyfuse.tracing(print):                 # every event
        ...
    listener = lazyfuse.tracing.add(callback, KernelEnd, Fallback)    # until listener.remove()
    with lazyfuse.tracing.collect() as events:    # as a list
        ...
    with lazyfuse.tracing.chrome("trace.json"):   # a timeline for a browser (Perfetto)
        ...

Listeners get the events of an evaluation in order, with their times, after it has released its
lock; they get a `Record` at once. So a callback cannot disturb what it watches. It may compute with
arrays itself: its own work makes no events. It runs in the thread that computed, so several threads
may call it at the same time. A callback that raises is removed with a warning. Without listeners no
event is made. Owns the events and the list of listeners; counters.py makes most of the events.
"""

from __future__ import annotations

import importlib
import itertools
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, fields
from types import TracebackType
from typing import Any

from lazyfuse.codegen.graph.node import Node, source_line
from lazyfuse.codegen.table import ops
from lazyfuse.devices.dataclass import dataclass


@dataclass(frozen=True)
class Operation:
    """One recorded operation and where the user wrote it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.name} -> {self.dtype}{list(self.shape)}  {self.file}:{self.line}"


def operation_of(node: Node) -> Operation:
    """The description of a recorded node; keeps no reference to it."""
    name = node.arg.name if node.op is ops.HOST else node.op.name
    return Operation(name, node.dtype.name, node.shape, *source_line(node.location))


# ------------------------------------------------------------------------------------- events


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened at `time` (of `time.perf_counter()`) in `thread`.

    An event with `seconds` ended at `time`.
    """

    time: float = field(default_factory=time.perf_counter, repr=False)
    thread: int = field(default_factory=threading.get_ident, repr=False)


@dataclass(frozen=True)
class Record(Event):
    """An array or lazy number was recorded. Steps inside one call by the user make no events."""

    operation: Operation


@dataclass(frozen=True)
class Plan(Event):
    """A plan was found in the cache (`hit`), or made; `passes` has the seconds of each pass."""

    hit: bool
    kernels: int
    recorded: int  # operations before planning
    planned: int  # values after planning
    passes: tuple[tuple[str, float], ...]
    seconds: float


@dataclass(frozen=True)
class Flush(Event):
    """A plan begins to run. `reason`: the sink or the rule that caused it.

    The few operations that NumPy runs at once have no plan: they only make `Single` events.
    """

    reason: str
    nodes: int
    kernels: int

    @property
    def code(self) -> str:
        """The reason as one word: "loop", "nodes", "bytes", or the name of the sink."""
        return self.reason.partition(":")[0]


@dataclass(frozen=True)
class Compile(Event):
    """A program was requested. `found`: in "memory", on "disk", "built" or "failed".

    `why`: the reason for building it, or the error if it failed.
    """

    program: str
    language: str
    device: str
    found: str
    why: str
    seconds: float


@dataclass(frozen=True)
class Kernel(Event):
    """One launch of a kernel, with the original operations in it.

    `cost` is the estimate per element, relative to an addition, that decides how the kernel runs.
    """

    program: str
    language: str
    device: str
    operations: tuple[Operation, ...]
    elements: int
    cost: float

    @property
    def stages(self) -> int:
        """The number of original operations in the kernel."""
        return len(self.operations)


@dataclass(frozen=True)
class KernelBegin(Kernel):
    """A kernel is about to be launched; an end or a `Fallback` follows."""


@dataclass(frozen=True)
class KernelEnd(Kernel):
    """A kernel has run. With `under_way` it was only launched, and `seconds` is the launch time."""

    bytes_read: int
    bytes_written: int
    seconds: float
    under_way: bool = False


@dataclass(frozen=True)
class StageTimes(Event):
    """The time of each operation of a kernel alone, in NumPy, on the same operands.

    Made only for listeners with `stages=True`: before each kernel its operations run one by one,
    and their results are dropped. In a fused kernel they are interleaved and have no times.
    """

    program: str
    operations: tuple[Operation, ...]
    seconds: tuple[float, ...]


@dataclass(frozen=True)
class Single(Event):
    """One operation has run alone: in NumPy, or by a library of `device`."""

    operation: Operation
    device: str = ""


@dataclass(frozen=True)
class Copy(Event):
    """Bytes were copied. `direction`: "upload", "gather" or "copy"; `purpose`: the reason."""

    direction: str
    bytes: int
    device: str
    purpose: str


@dataclass(frozen=True)
class Fallback(Event):
    """A kernel could not run on the tier `origin` and ran on `to` instead."""

    operations: tuple[Operation, ...]
    origin: str
    to: str
    reason: str


# ----------------------------------------------------------------------------------- listeners

Callback = Callable[[Any], object]


class Listener:
    """A callback that gets events until `remove()`, or until the end of its `with` block."""

    __slots__ = ("callback", "kinds", "stages")

    def __init__(self, callback: Callback, kinds: tuple[type[Event], ...], stages: bool) -> None:
        self.callback = callback
        self.kinds = kinds
        self.stages = stages

    def remove(self) -> None:
        """Stop listening; a second call does nothing."""
        with _changing:
            _set(tuple(each for each in listeners if each is not self))

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()


listeners: tuple[Listener, ...] = ()
"""The current listeners. If empty, no event may be made: check before making one."""
stages = False
"""Whether a listener wants the time of each operation of a kernel."""
records = False
"""Whether a listener wants an event for every recorded operation."""

_changing = threading.Lock()
_observers: list[Callable[[], None]] = []


def add(callback: Callback, *kinds: type[Event], stages: bool = False) -> Listener:
    """Call `callback(event)` for every event from now on (of the classes `kinds`, if given).

    `stages`: also time each kernel's operations one by one (see `StageTimes`; slow).
    """
    listener = Listener(callback, kinds or (Event,), stages)
    with _changing:
        _set((*listeners, listener))
    return listener


def on_change(callback: Callable[[], None]) -> None:
    """Call `callback()` whenever a listener is added or removed."""
    _observers.append(callback)


def _set(found: tuple[Listener, ...]) -> None:
    global listeners, stages, records
    listeners = found
    stages = any(each.stages for each in found)
    records = any(issubclass(Record, each.kinds) for each in found)
    for callback in _observers:
        callback()


class _Thread(threading.local):
    def __init__(self) -> None:
        self.depth = 0  # nested evaluations in this thread
        self.telling = False  # whether this thread runs a callback
        self.waiting: list[Event] = []


_thread = _Thread()


def emit(event: Event) -> None:
    """Notify the listeners: now, or at the end of the current evaluation."""
    if _thread.telling:  # work of a callback makes no events
        return
    if _thread.depth:
        _thread.waiting.append(event)
    else:
        _notify([event])


def recorded(node: Node) -> None:
    """Emit a `Record` for a new node; a node that already has a value is no operation."""
    if node.value is None:
        emit(Record(operation_of(node)))


class Watched:
    """The evaluation lock while there are listeners: its release notifies them of the events."""

    __slots__ = ("lock",)

    def __init__(self, lock: Any) -> None:
        self.lock = lock

    def __enter__(self) -> None:
        self.lock.acquire()
        _thread.depth += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.lock.release()
        _thread.depth -= 1
        if not _thread.depth and _thread.waiting:
            events, _thread.waiting = _thread.waiting, []
            _notify(events)


def _notify(events: list[Event]) -> None:
    failed: list[tuple[Listener, Exception]] = []
    _thread.telling = True
    try:
        for event in events:
            for listener in listeners:
                if isinstance(event, listener.kinds):
                    try:
                        listener.callback(event)
                    except Exception as error:
                        listener.remove()
                        failed.append((listener, error))
    finally:
        _thread.telling = False
    for listener, problem in failed:
        text = f"[tracing] {listener.callback!r} raised {problem!r} and is not called any more"
        warnings.warn(text, RuntimeWarning, stacklevel=3)


# --------------------------------------------------------------------------- ready-made listeners


@contextmanager
def collect(*kinds: type[Event], stages: bool = False) -> Iterator[list[Any]]:
    """The events of a `with` block as a list."""
    events: list[Any] = []
    with add(events.append, *kinds, stages=stages):
        yield events


@contextmanager
def chrome(path: str | os.PathLike[str], stages: bool = False) -> Iterator[None]:
    """Write what happens in a `with` block as a timeline: Chrome's trace event format, in JSON.

    Perfetto and Chrome's tracing page show it: a track per thread, with what was recorded and what
    ran, and arrows from the lines that recorded operations to the kernels that computed them.
    """
    told: list[tuple[Event, str]] = []

    def listen(event: Event) -> None:
        told.append((event, threading.current_thread().name))

    began = time.perf_counter()
    with open(path, "w", encoding="utf-8") as file:  # a bad path fails now, not at the end
        listener = add(listen, stages=stages)
        try:
            yield
        finally:
            listener.remove()
            json = importlib.import_module("json")  # 1 ms, which few programs need
            json.dump({"traceEvents": _timeline(told, began), "displayTimeUnit": "ms"}, file)


Row = dict[str, Any]
SHOWN = 3
"""Operations that the name of a kernel or of a recording line shows."""
_LEAST = 1.0  # microseconds of a bar


def _timeline(told: list[tuple[Event, str]], began: float) -> list[Row]:
    """The rows of a timeline, in order of time, with the names of process and threads before."""
    rows: list[Row] = []
    last: dict[int, Row] = {}  # the bar of the line that records, by thread
    lines: dict[tuple[str, int], Row] = {}  # the last bar of each line
    flows = itertools.count(1)
    for event, _ in sorted(told, key=lambda each: _start(each[0])):
        at = (_start(event) - began) * 1e6
        bar = last.get(event.thread)
        if isinstance(event, Record):
            place = event.operation.file, event.operation.line
            if bar is None or bar["args"]["line"] != "{}:{}".format(*place):
                bar = last[event.thread] = lines[place] = _recording(event, at)
                rows.append(bar)
            bar["args"]["operations"].append(str(event.operation))
            bar["dur"] = max(at - bar["ts"], _LEAST)
            continue
        if not _is_shown(event):
            continue
        if bar is not None:  # bars of one thread may lie in each other, but not across
            bar["dur"] = min(bar["dur"], max(at - bar["ts"], 0.0))
            del last[event.thread]
        row = _row(event, at)
        rows.append(row)
        if isinstance(event, KernelEnd):
            places = {(each.file, each.line): None for each in event.operations}
            for source in [lines[place] for place in places if place in lines]:
                rows += _flow(source, row, next(flows))
    for row in rows:
        if row["cat"] == "Record":
            row["name"] = "record " + _short([each.partition(" ")[0] for each in _said(row)])
    rows.sort(key=lambda row: row["ts"])
    names = {event.thread: name for event, name in told}
    return [*_named("process_name", "lazyfuse", 0), *_threads(names), *rows]


def _said(row: Row) -> list[str]:
    found: list[str] = row["args"]["operations"]
    return found


def _start(event: Event) -> float:
    seconds = getattr(event, "seconds", None)
    return event.time - seconds if isinstance(seconds, float) else event.time


def _is_shown(event: Event) -> bool:
    """Whether an event is more than a step that each evaluation takes anew."""
    if isinstance(event, Plan):
        return not event.hit
    if isinstance(event, Compile):
        return event.found != "memory"
    return not isinstance(event, KernelBegin)


def _named(what: str, name: str, thread: int) -> list[Row]:
    row = {"ph": "M", "name": what, "pid": os.getpid(), "tid": thread, "cat": "__metadata"}
    return [{**row, "ts": 0.0, "args": {"name": name}}]


def _threads(names: dict[int, str]) -> list[Row]:
    return [row for thread, name in names.items() for row in _named("thread_name", name, thread)]


def _recording(event: Record, at: float) -> Row:
    place = f"{event.operation.file}:{event.operation.line}"
    row: Row = {"name": "record", "cat": "Record", "ph": "X", "ts": at, "dur": _LEAST}
    row["args"] = {"line": place, "operations": []}
    return row | {"pid": os.getpid(), "tid": event.thread}


def _flow(source: Row, kernel: Row, number: int) -> list[Row]:
    """An arrow from the line that recorded an operation to the kernel that computed it."""
    row = {"name": "computes", "cat": "flow", "id": number, "pid": os.getpid()}
    begin = {**row, "ph": "s", "ts": source["ts"], "tid": source["tid"]}
    return [begin, {**row, "ph": "f", "bp": "e", "ts": kernel["ts"], "tid": kernel["tid"]}]


def _row(event: Event, at: float) -> Row:
    """One entry of the timeline; an event without duration is an instant."""
    names = [each.name for each in fields(event) if each.name not in ("time", "thread", "seconds")]
    arguments = {name: _plain(getattr(event, name)) for name in names}
    row: Row = {"name": _title(event), "cat": type(event).__name__, "args": arguments}
    row |= {"pid": os.getpid(), "tid": event.thread, "ts": at}
    seconds = getattr(event, "seconds", None)
    if isinstance(seconds, float):
        return row | {"ph": "X", "dur": seconds * 1e6}
    if seconds is not None:
        arguments["microseconds"] = [each * 1e6 for each in seconds]
    return row | {"ph": "i", "s": "t"}


def _plain(value: Any) -> Any:
    if isinstance(value, Operation):
        return str(value)
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def _short(names: Sequence[str]) -> str:
    """The first names of operations, and how many more there are."""
    rest = len(names) - SHOWN
    return " ".join(names[:SHOWN]) + (f" +{rest}" if rest > 0 else "")


def _title(event: Event) -> str:
    """The text on an event's bar in the timeline."""
    if isinstance(event, Flush):
        return event.code
    if isinstance(event, Compile):
        return f"compile {event.language}"
    if isinstance(event, Copy):
        return event.direction
    if isinstance(event, Single):
        return event.operation.name
    if isinstance(event, Kernel):
        return _short([each.name for each in event.operations])
    if isinstance(event, Fallback):
        return f"falls back to {event.to}"
    return {StageTimes: "stage times", Plan: "plan"}.get(type(event), type(event).__name__)
