"""NumPy's floating-point error state, and what it means for recording.

Owns the wrappers of `seterr` and `errstate`, and `SourceLocation`: the `Node.location` of an
operation that is recorded while a floating-point exception is ignored. Recording is allowed while
every exception is set to "warn" or "ignore"; with "raise", "call", "print" or "log" an operation
must run at its own line.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from contextvars import Context, ContextVar
from types import CodeType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from lazyfuse.registry import implements, pair
from lazyfuse.runtime.numerics.warning_filters import NotedFilters

F = TypeVar("F", bound=Callable[..., Any])

PLAIN = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
BITS = {"divide": 1, "over": 2, "under": 4, "invalid": 8}  # as NumPy's and the kernels' flags

STATE: ContextVar[object] = np._core.umath._extobj_contextvar  # type: ignore[attr-defined]
DEFAULT = Context().run(
    STATE.get
)  # what NumPy starts with, even if this is imported in an errstate

_equal: object = DEFAULT  # the last other state that equals it

plain = True
"""Whether the state that was set through lazyfuse is NumPy's default."""

lock = threading.RLock()
_quiet: AbstractContextManager[Any] = lock
_entered: list[Any] = []  # of all threads: if it is empty, every thread has the default state
_listeners: list[Callable[[bool], None]] = []
_finishers: list[Callable[[], None]] = []


class SourceLocation(tuple[CodeType, int]):
    """A source location, with what a later report of a floating-point exception must know.

    `ignored`: the flags that were ignored there; they never warn. `filters`: Python's warning
    filters, if they were not the default ones. `name`: NumPy's name for a function that was
    recorded as several operations; together they report each exception once (`reported`).
    """

    ignored = 0
    filters: NotedFilters | None = None
    name = ""
    reported = 0

    @classmethod
    def like(cls, where: tuple[CodeType, int], **facts: Any) -> SourceLocation:
        """`where` with more `facts` about it."""
        place = cls(where)
        place.__dict__.update(getattr(where, "__dict__", {}), **facts)
        return place


class _Facts(NamedTuple):
    """What a state means. NumPy makes a new object for each state."""

    state: object
    plain: bool
    handled: bool  # exceptions do more than warn
    ignored: int


def _facts() -> _Facts:
    """What this thread's state means: asked of NumPy where it is not the one asked about last."""
    global _last
    found, state = _last, STATE.get()
    if found is None or found.state is not state:
        settings: Mapping[str, Any] = np.geterr()
        handled = any(
            value not in ("warn", "ignore") or (value == "warn" and name == "under")
            for name, value in settings.items()
        )
        ignored = [bit for name, bit in BITS.items() if settings[name] == "ignore"]
        found = _last = _Facts(state, settings == PLAIN, handled, sum(ignored))
    return found


_last: _Facts | None = None


def ignored_bits() -> int:
    """The flags that this thread ignores now."""
    return _facts().ignored


def must_run_at_once() -> bool:
    """Whether a floating-point exception would have to be handled at the line that raises it."""
    is_plain()
    return _facts().handled


def error_bits() -> int:
    """`ignored_bits`; -1 where `must_run_at_once`."""
    return -1 if must_run_at_once() else ignored_bits()


def is_plain() -> bool:
    """Whether the state is NumPy's default. Checks again: `numpy.errstate` ends without notice."""
    if not plain and not _entered and _facts().plain:
        changed()
    return plain


def is_untouched() -> bool:
    """Whether this thread's state is the object NumPy starts with; sees `numpy.errstate` too."""
    return STATE.get() is DEFAULT


def is_default() -> bool:
    """Whether the state equals the one NumPy starts with; sees `numpy.errstate` too."""
    if not plain:
        return False
    state = STATE.get()
    return state is DEFAULT or state is _equal or _is_equal(state)


def _is_equal(state: object) -> bool:
    """Whether a state equals NumPy's first one, as after `seterr(**before)`; remembers it if so."""
    global _equal
    if np.geterr() != PLAIN or np.geterrcall() is not None:
        return False
    _equal = state
    return True


def on_change(listener: Callable[[bool], None]) -> None:
    """Call `listener(plain)` whenever the error state changes through lazyfuse."""
    _listeners.append(listener)


def on_handling(finisher: Callable[[], None]) -> None:
    """Call `finisher()` before floating-point exceptions do more than warn."""
    _finishers.append(finisher)


def _finish_before(state: Mapping[str, Any]) -> None:
    """Report what was recorded under another `state` by that state, before the new one acts."""
    if must_run_at_once():
        with np.errstate(**state):
            for finisher in _finishers:
                finisher()


def changed() -> None:
    """Notify the listeners whether the state of every thread is NumPy's default."""
    global plain
    plain = not _entered and np.geterr() == PLAIN
    for listener in _listeners:
        listener(plain)


@implements(np.seterr)
def seterr(*args: Any, **kwargs: Any) -> dict[str, str]:
    """As `numpy.seterr`."""
    before: dict[str, str] = np.seterr(*args, **kwargs)  # type: ignore[assignment]
    _finish_before(before)
    changed()
    return before


def use(section: AbstractContextManager[Any], quietly: Callable[[Any], Any]) -> None:
    """Let states begin and end in `section`, with `lock`: no handler runs between a state and what
    is noted of it. `quietly`: critical.begin_quietly, as a handler that raised before the first
    line of `__exit__` would leave the state.
    """
    global _quiet
    _quiet = section
    quietly(errstate.__exit__)


class errstate(np.errstate):  # noqa: N801  # NumPy's spelling
    """As `numpy.errstate`."""

    def __enter__(self) -> None:
        state, before, entries = STATE.get(), np.geterr(), _entered.count(self)
        try:
            super().__enter__()
            _finish_before(before)  # not in the section: it evaluates, which takes another lock
            with _quiet:
                _entered.append(self)
                changed()
        except BaseException:  # an interrupt, or the user's filters turned a warning into an error
            with _quiet:
                STATE.set(state)
                if _entered.count(self) > entries:
                    _entered.remove(self)
                changed()
            raise

    def __exit__(self, *exception: Any) -> None:
        try:
            self._leave(*exception)
        finally:
            if self in _entered:  # a handler ran first
                self._leave(*exception)

    def _leave(self, *exception: Any) -> None:
        with _quiet:
            super().__exit__(*exception)
            _entered.remove(self)
            changed()

    def __call__(self, function: F) -> F:
        """As a decorator: the state holds while `function` runs."""
        names = ("call", "all", "divide", "over", "under", "invalid")
        settings = {name: getattr(self, f"_{name}") for name in names}

        @functools.wraps(function)
        def inner(*args: Any, **kwargs: Any) -> Any:
            with errstate(**settings):
                return function(*args, **kwargs)

        return inner  # type: ignore[return-value]


pair(np.errstate, errstate)
