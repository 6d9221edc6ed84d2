"""Python's warning filters as they were where an operation was recorded, and what they ask for.

Filters change between the line that records an operation and the evaluation that finds out what it
raised. Owns `NotedFilters`, the choice that they make, and the registries of what has been shown:
those of the user's modules, which NumPy's own warnings use too.
"""

from __future__ import annotations

import sys
import warnings
from contextlib import suppress
from typing import Any

_ONCE = ("default", "module", "once")


def _fits(pattern: Any, text: str) -> bool:
    """Whether a part of a filter (None, a text or a pattern) matches `text`."""
    if pattern is None or type(pattern) is str:
        return pattern is None or pattern == text
    return pattern.match(text) is not None


class _Unhashable(str):
    """A text that ends a look-up in a registry, after Python has looked at its version."""

    __slots__ = ()

    def __hash__(self) -> int:
        raise _Seen


class _Seen(Exception):
    pass


class NotedFilters:
    """The filters of one moment."""

    __slots__ = ("entries", "source", "told", "version")

    def __init__(self) -> None:
        self.source = warnings.filters
        self.entries = tuple(self.source)
        self.told: set[Any] = set()  # warnings that are shown once
        self.version = self.number()

    def number(self, words: str = "", module: str = "", line: int = 0) -> Any:
        """The number that Python gives to the filters now: what was shown counts for one number.

        None where they would show these words more often than once.
        """
        if self.action(words, module, line) not in _ONCE:
            return None
        registry: dict[Any, Any] = {}
        with suppress(_Seen):
            warnings.warn_explicit(_Unhashable(words), RuntimeWarning, "", line, module, registry)
        return registry.get("version")

    def are_current(self) -> bool:
        """Whether the filters have not changed since; a new one stands first or makes more."""
        now = warnings.filters
        if now is not self.source or len(now) != len(self.entries):
            return False
        return not now or now[0] is self.entries[0]

    def action(self, words: str, module: str, line: int) -> str:
        """What the filters do with a RuntimeWarning."""
        for action, message, category, source, number in self.entries:
            if (
                _fits(message, words)
                and issubclass(RuntimeWarning, category)
                and _fits(source, module)
                and number in (0, line)
            ):
                return str(action)
        return str(getattr(warnings, "defaultaction", "default"))


usual = NotedFilters()
"""The list that Python started with, as the last operation recorded under it has found it."""


def look_again() -> NotedFilters | None:
    """Note the usual filters anew if they have changed; what they were, else None."""
    global usual
    before = usual
    if before.are_current() and before.version in (None, before.number()):
        return None
    usual = NotedFilters()
    return before


_registries: dict[str, dict[Any, Any]] = {}  # of files that are no module's
_homes: dict[str, str] = {}  # the modules of files


def _scope(file: str) -> tuple[str, dict[Any, Any]]:
    """The name and the registry of a file's module."""
    module = sys.modules.get(_homes.get(file, "__main__"))
    if getattr(module, "__file__", None) != file:
        for module in list(sys.modules.values()):
            if getattr(module, "__file__", None) == file:
                break
        else:
            return file.removesuffix(".py") or "<unknown>", _registries.setdefault(file, {})
    scope = vars(module)
    _homes[file] = name = scope["__name__"]
    return name, scope.setdefault("__warningregistry__", {})


def _is_python_asked(filters: NotedFilters, words: str, module: str, line: int) -> bool:
    """Whether Python's registries know what was shown under these filters."""
    if not filters.are_current():
        return False
    return filters.version in (None, filters.number(words, module, line))


def is_due(filters: NotedFilters, words: str, file: str, line: int) -> bool:
    """Whether a warning would be shown or raised now, were it given."""
    module, registry = _scope(file)
    action = filters.action(words, module, line)
    if action not in _ONCE:
        return action != "ignore"
    if not _is_python_asked(filters, words, module, line):
        return _key(action, words, line) not in filters.told
    if action == "once":
        return (words, RuntimeWarning) not in getattr(warnings, "onceregistry", ())
    key = (words, RuntimeWarning, 0 if action == "module" else line)
    return key not in registry or registry.get("version") != filters.number(words, module, line)


def _key(action: str, words: str, line: int) -> Any:
    return words, line if action == "default" else 0


def show(filters: NotedFilters, words: str, file: str, line: int) -> None:
    """Warn as these filters ask."""
    if not is_due(filters, words, file, line):
        return
    module, registry = _scope(file)
    action = filters.action(words, module, line)
    asks = filters.are_current()
    if action in _ONCE:
        asks = _is_python_asked(filters, words, module, line)
        filters.told.add(_key(action, words, line))
    if asks or action == "error":
        warnings.warn_explicit(words, RuntimeWarning, file, line, module, registry)
    else:
        warnings.showwarning(RuntimeWarning(words), RuntimeWarning, file, line)
