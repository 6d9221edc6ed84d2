"""The registry of caches: each with its name, its size, its limit, and how it is emptied.

Every module of lazyfuse registers its caches here, so this module imports nothing of lazyfuse.
`cached` is for functions, `memo` for tables, `Group` for caches of objects, `register` for all
others. A cache without a limit states why its size is bounded; a cache that is never emptied states
the reason.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Collection, Hashable, Iterator
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

T = TypeVar("T")

DTYPES = "one for each dtype, or combination of dtypes, in use"
CONSTANT = "computed once; others hold what it gave"


class Cache(NamedTuple):
    """One cache. `limit` None: `why` says what bounds it. `clear` None: it is never emptied."""

    name: str
    size: Callable[[], int]
    limit: int | Callable[[], int] | None
    clear: Callable[[], object] | None
    why: str

    def info(self) -> dict[str, Any]:
        """Entries and limit, with the reason where there is none."""
        limit = self.limit() if callable(self.limit) else self.limit
        found: dict[str, Any] = {"entries": self.size(), "limit": limit}
        return {**found, "why": self.why} if self.why else found


REGISTERED: dict[str, Cache] = {}
"""Every cache of this process, by name."""


def register(
    name: str,
    size: Callable[[], int],
    limit: int | Callable[[], int] | None,
    clear: Callable[[], object] | None,
    why: str = "",
) -> None:
    """Register a cache. `why` is required if it has no limit, or is never emptied."""
    if (limit is None or clear is None) and not why:
        raise ValueError(f"[caches] {name}: expected why its size is bounded, or why it stays")
    REGISTERED[name] = Cache(name, size, limit, clear, why)


def cached(
    limit: int | None = None, why: str = "", clears: bool = True
) -> Callable[[Callable[..., T]], functools._lru_cache_wrapper[T]]:
    """`functools.lru_cache`, registered under the function's name."""

    def enter(function: Callable[..., T]) -> functools._lru_cache_wrapper[T]:
        made = functools.lru_cache(maxsize=limit)(function)
        name = f"{_short(function.__module__)}.{function.__name__.lstrip('_')}"
        clear = made.cache_clear if clears else None
        register(name, lambda: made.cache_info().currsize, limit, clear, why)
        return made

    return enter


class Memo(dict[Any, Any]):
    """A table that is emptied when it is full, so reading it counts nothing."""

    __slots__ = ("limit",)

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def __setitem__(self, key: Hashable, value: Any) -> None:
        if len(self) >= self.limit:
            self.clear()
        super().__setitem__(key, value)


def memo(name: str, limit: int, clears: bool = True, why: str = "") -> dict[Any, Any]:
    """A new `Memo`, registered."""
    made = Memo(limit)
    register(name, made.__len__, limit, made.clear if clears else None, why)
    return made


def tables(name: str, parts: Collection[dict[Any, Any]], limit: int | None, why: str = "") -> None:
    """Register several tables as one cache."""

    def clear() -> None:
        for each in parts:
            each.clear()

    register(name, lambda: sum(map(len, parts)), limit, clear, why)


class Group(Generic[T]):
    """The live objects of one kind that have caches, registered as one cache."""

    def __init__(
        self,
        name: str,
        size: Callable[[T], int],
        limit: int | Callable[[], int] | None,
        clear: Callable[[T], object] | None,
        why: str = "",
    ) -> None:
        # by identity: some are tables themselves, and have no hash
        self._members: weakref.WeakValueDictionary[int, T] = weakref.WeakValueDictionary()
        empty = None if clear is None else functools.partial(self._each, clear)
        register(name, lambda: sum(map(size, self)), limit, empty, why)

    def add(self, member: T) -> None:
        """Add an object."""
        self._members[id(member)] = member

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._members.values()))

    def _each(self, clear: Callable[[T], object]) -> None:
        for member in self:
            clear(member)


class Pool(Protocol):
    """A pool of memory for arrays."""

    limit: int

    def clear(self) -> None: ...

    def info(self) -> dict[str, int]: ...


P = TypeVar("P", bound=Pool)


def pools(name: str) -> Group[P]:
    """A group of pools: its size and its limit are bytes of free memory."""
    made: Group[P] = Group(
        name,
        lambda each: each.info()["free_bytes"],
        lambda: max((each.limit for each in made), default=0),
        lambda each: each.clear(),
    )
    return made


def clear_all() -> None:
    """Empty every cache that may be emptied; twice, for what one held may lie free in another."""
    for each in 2 * list(REGISTERED.values()):
        if each.clear is not None:
            each.clear()


def _short(module: str) -> str:
    return module.removeprefix("lazyfuse.")
