"""One callback for everything that happens: the events, who listens, two ready-made listeners.

    with lazyfuse.tracing(print):                 # every event
        ...
    listener = lazyfuse.tracing.add(callback, KernelEnd, Fallback)    # until listener.remove()
    with lazyfuse.tracing.collect() as events:    # as a list
        ...
    with lazyfuse.tracing.chrome("trace.json"):   # a timeline for a browser (Perfetto)
        ...

The events of one evaluation are handed over in order, with their times, when it is over and its
lock is open again; a `Record` at once. So a callback cannot disturb what it watches, and may
compute with arrays itself: what it does makes no events. It runs in the thread that computed,
perhaps in several at a time. One that raises is dropped with a warning. Nothing is built or called
for an event while nobody listens. Owns the events and the list of listeners; counters.py makes most
of the events.
"""

from __future__ import annotations

import json
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from types import TracebackType
from typing import Any

from lazyfuse.codegen.graph.node import Node, source_line
from lazyfuse.codegen.table import ops


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened at `time` (of `time.perf_counter()`) in `thread`.

    What took `seconds` ended at `time`.
    """

    time: float = field(default_factory=time.perf_counter, repr=False)
    thread: int = field(default_factory=threading.get_ident, repr=False)


@dataclass(frozen=True, slots=True)
class Record(Event):
    """An array or lazy number was recorded; steps inside of one call of the user's make none."""

    operation: Operation


@dataclass(frozen=True, slots=True)
class Plan(Event):
    """A plan was found in the cache (`hit`), or made in so many `seconds` per pass."""

    hit: bool
    kernels: int
    recorded: int  # operations before planning
    planned: int  # values after it
    passes: tuple[tuple[str, float], ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Flush(Event):
    """A plan begins to run. `reason`: the sink or the rule that asked for it.

    A few operations that NumPy does at once have no plan: they are only told as `Single`.
    """

    reason: str
    nodes: int
    kernels: int

    @property
    def code(self) -> str:
        """The reason in one word: "loop", "nodes", "bytes", or the name of the sink."""
        return self.reason.partition(":")[0]


@dataclass(frozen=True, slots=True)
class Compile(Event):
    """A program was asked for, and `found` in "memory", on "disk", or "built": `why` it had to be.

    `found` is "failed" where no program came of it; `why` is then the error.
    """

    program: str
    language: str
    device: str
    found: str
    why: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Kernel(Event):
    """One launch of a kernel, with the original operations that it holds.

    `cost` is the estimate that decides how it runs, per element, relative to an addition.
    """

    program: str
    language: str
    device: str
    operations: tuple[Operation, ...]
    elements: int
    cost: float

    @property
    def stages(self) -> int:
        """How many original operations run as one."""
        return len(self.operations)


@dataclass(frozen=True, slots=True)
class KernelBegin(Kernel):
    """A kernel is about to be launched; an end or a `Fallback` follows."""


@dataclass(frozen=True, slots=True)
class KernelEnd(Kernel):
    """A kernel has run; `under_way`: it was launched, and `seconds` is what launching took."""

    bytes_read: int
    bytes_written: int
    seconds: float
    under_way: bool = False


@dataclass(frozen=True, slots=True)
class StageTimes(Event):
    """What each operation of a kernel costs alone, by NumPy, on the same operands.

    Made only for listeners with `stages=True`: each kernel's operations are run one by one before
    it, the results thrown away. A fused kernel has no times of its stages: they run interleaved.
    """

    program: str
    operations: tuple[Operation, ...]
    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Single(Event):
    """One operation has run alone: in NumPy, or by a library of `device`."""

    operation: Operation
    device: str = ""


@dataclass(frozen=True, slots=True)
class Copy(Event):
    """Bytes were copied. `direction`: "upload", "gather" or "copy"; `purpose`: what for."""

    direction: str
    bytes: int
    device: str
    purpose: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Fallback(Event):
    """A kernel could not run where it should have: the tier `origin` gave way to `to`."""

    operations: tuple[Operation, ...]
    origin: str
    to: str
    reason: str


# ----------------------------------------------------------------------------------- listeners

Callback = Callable[[Any], object]


class Listener:
    """A callback that listens until `remove()`, or until the end of its `with` block."""

    __slots__ = ("callback", "kinds", "stages")

    def __init__(self, callback: Callback, kinds: tuple[type[Event], ...], stages: bool) -> None:
        self.callback = callback
        self.kinds = kinds
        self.stages = stages

    def remove(self) -> None:
        """Stop listening; done twice, nothing happens."""
        with _changing:
            _set(tuple(each for each in listeners if each is not self))

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()


listeners: tuple[Listener, ...] = ()
"""Who listens. Empty: no event may be made, so ask before making one."""
stages = False
"""Whether somebody wants to know what each operation of a kernel costs."""
records = False
"""Whether somebody wants to hear of every recorded operation."""

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
    """Call `callback()` whenever somebody begins or ceases to listen."""
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
        self.depth = 0  # evaluations that this thread is inside of
        self.telling = False  # while it runs a callback
        self.waiting: list[Event] = []


_thread = _Thread()


def emit(event: Event) -> None:
    """Tell the listeners; inside of an evaluation, once that is over."""
    if _thread.telling:  # what a callback does is not told
        return
    if _thread.depth:
        _thread.waiting.append(event)
    else:
        _notify([event])


def recorded(node: Node) -> None:
    """A node was recorded. Memory that is there already is no operation."""
    if node.value is None:
        emit(Record(operation_of(node)))


class Watched:
    """The lock of evaluations while somebody listens: on leaving it, tells what happened inside."""

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
    with open(path, "w", encoding="utf-8") as file:  # a bad path is an error now, not at the end
        listener = add(lambda event: rows.append(_row(event)), stages=stages)
        try:
            yield
        finally:
            listener.remove()
            json.dump({"traceEvents": rows, "displayTimeUnit": "ms"}, file)


def _row(event: Event) -> dict[str, Any]:
    """One entry of the timeline; what took no time, or only announces, is an instant."""
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
    """What the timeline shows on the bar."""
    operations = getattr(event, "operations", None)
    if operations is None:
        one = getattr(event, "operation", None)
        operations = (one,) if one is not None else ()
    detail = " ".join(each.name for each in operations)
    detail = detail or getattr(event, "reason", "") or getattr(event, "direction", "")
    detail = detail or getattr(event, "program", "")
    return f"{type(event).__name__}: {detail}" if detail else type(event).__name__
