"""NumPy's floating-point error state, and what it means for recording.

Owns the wrappers of `seterr` and `errstate`, and how an operation that is recorded while a
condition is ignored says so: its place in the source (`Node.location`) is a `Place`. Recording is
allowed while every condition is "warn" or "ignore"; with "raise", "call", "print" or "log" an
operation has to run where it stands.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context, ContextVar
from types import CodeType
from typing import Any, TypeVar

import numpy as np

from lazyfuse.registry import implements, pair

F = TypeVar("F", bound=Callable[..., Any])

PLAIN = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
BITS = {"divide": 1, "over": 2, "under": 4, "invalid": 8}  # as NumPy's and the kernels' flags

STATE: ContextVar[object] = np._core.umath._extobj_contextvar  # type: ignore[attr-defined]
DEFAULT = Context().run(
    STATE.get
)  # what NumPy starts with, even if this is imported in an errstate

_equal: object = DEFAULT  # the last other one that says the same

plain = True
"""Whether the state that was set through lazyfuse is NumPy's default."""

_entered: list[Any] = []  # of all threads: only without any is everybody's state the default
_listeners: list[Callable[[bool], None]] = []
_finishers: list[Callable[[], None]] = []


class SourceLocation(tuple[CodeType, int]):
    """A place in the source, and what to know there when a condition is told later.

    `ignored`: the bits of the conditions that were ignored there: never warn of them. `filters`:
    Python's filters of warnings, if others than usual were in force. `name`: NumPy's name for what
    was recorded there as several operations, which tell each condition (`told`) once.
    """

    ignored = 0
    filters: Sequence[tuple[Any, ...]] = ()
    name = ""
    reported = 0

    @classmethod
    def like(cls, where: tuple[CodeType, int], **facts: Any) -> SourceLocation:
        """`where` with more `facts` about it."""
        place = cls(where)
        place.__dict__.update(getattr(where, "__dict__", {}), **facts)
        return place

    def is_silent(self, words: str, module: str, line: int) -> bool:
        """Whether the filters here ignore a RuntimeWarning with these words."""
        for action, message, category, source, number in self.filters:
            if (
                _fits(message, words)
                and issubclass(RuntimeWarning, category)
                and _fits(source, module)
                and number in (0, line)
            ):
                return bool(action == "ignore")
        return False


def _fits(pattern: Any, text: str) -> bool:
    """Whether a part of a filter (None, a text or a pattern) allows `text`."""
    if pattern is None or type(pattern) is str:
        return pattern is None or pattern == text
    return pattern.match(text) is not None


def ignored_bits() -> int:
    """The conditions that this thread ignores now (underflow, ignored by default, not counted)."""
    state: Mapping[str, Any] = np.geterr()
    ignored = [bit for name, bit in BITS.items() if state[name] == "ignore" != PLAIN[name]]
    return sum(ignored)


def must_run_at_once() -> bool:
    """Whether a condition would have to be handled at the very line that raises it."""
    is_plain()
    state = np.geterr()
    return any(
        value not in ("warn", "ignore") or (value == "warn" and name == "under")
        for name, value in state.items()
    )


def is_plain() -> bool:
    """Whether the state is NumPy's default: asked again, since `numpy.errstate` ends unheard."""
    if not plain and not _entered and np.geterr() == PLAIN:
        changed()
    return plain


def is_untouched() -> bool:
    """Whether this thread's state is the one that NumPy starts with: of `numpy.errstate`, too."""
    return STATE.get() is DEFAULT


def is_default() -> bool:
    """Whether the state is the one NumPy starts with, NumPy's own `errstate` included."""
    if not plain:
        return False
    state = STATE.get()
    return state is DEFAULT or state is _equal or _is_equal(state)


def _is_equal(state: object) -> bool:
    """Whether a state says what NumPy starts with, as after `seterr(**before)`; kept if it does."""
    global _equal
    if np.geterr() != PLAIN or np.geterrcall() is not None:
        return False
    _equal = state
    return True


def on_change(listener: Callable[[bool], None]) -> None:
    """Call `listener(plain)` whenever the error state changes through lazyfuse."""
    _listeners.append(listener)


def on_handling(finisher: Callable[[], None]) -> None:
    """Call `finisher()` before conditions are handled in another way than by warning of them."""
    _finishers.append(finisher)


def _finish_before(state: Mapping[str, Any]) -> None:
    """What was recorded in another `state` is told of as there, not by an exception here."""
    if must_run_at_once():
        with np.errstate(**state):
            for finisher in _finishers:
                finisher()


def changed() -> None:
    """Tell the listeners whether the state of this and every other thread is NumPy's default."""
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


class errstate(np.errstate):  # noqa: N801  # NumPy's spelling
    """As `numpy.errstate`."""

    def __enter__(self) -> None:
        before = np.geterr()
        super().__enter__()
        try:
            _finish_before(before)
        except BaseException:  # a warning that the user has made an error
            super().__exit__(None, None, None)
            raise
        _entered.append(self)
        changed()

    def __exit__(self, *exception: Any) -> None:
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
