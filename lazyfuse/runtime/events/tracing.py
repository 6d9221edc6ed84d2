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

import json
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
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
    seconds: float = 0.0


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
    """Write what happens in a `with` block as a timeline: Chrome's trace event format, in JSON."""
    rows: list[dict[str, Any]] = []
    with open(path, "w", encoding="utf-8") as file:  # a bad path fails now, not at the end
        listener = add(lambda event: rows.append(_row(event)), stages=stages)
        try:
            yield
        finally:
            listener.remove()
            json.dump({"traceEvents": rows, "displayTimeUnit": "ms"}, file)


def _row(event: Event) -> dict[str, Any]:
    """One entry of the timeline; an event without duration, or a begin event, is an instant."""
    names = [each.name for each in fields(event) if each.name not in ("time", "thread", "seconds")]
    arguments = {name: _plain(getattr(event, name)) for name in names}
    row: dict[str, Any] = {"name": _title(event), "cat": type(event).__name__, "args": arguments}
    row |= {"pid": os.getpid(), "tid": event.thread}
    seconds = getattr(event, "seconds", None)
    if not isinstance(seconds, float):
        if seconds is not None:
            arguments["microseconds"] = [each * 1e6 for each in seconds]
        return row | {"ph": "i", "s": "t", "ts": event.time * 1e6}
    return row | {"ph": "X", "ts": (event.time - seconds) * 1e6, "dur": seconds * 1e6}


def _plain(value: Any) -> Any:
    if isinstance(value, Operation):
        return str(value)
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def _title(event: Event) -> str:
    """The text on an event's bar in the timeline."""
    operations = getattr(event, "operations", None)
    if operations is None:
        one = getattr(event, "operation", None)
        operations = (one,) if one is not None else ()
    detail = " ".join(each.name for each in operations)
    detail = detail or getattr(event, "reason", "") or getattr(event, "direction", "")
    detail = detail or getattr(event, "program", "")
    return f"{type(event).__name__}: {detail}" if detail else type(event).__name__
