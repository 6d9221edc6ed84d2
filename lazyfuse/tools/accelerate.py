"""`accelerate`: runs an unedited function, written for NumPy, on lazyfuse.

Owns the conversion between a caller with NumPy arrays and a function with ours: of arguments
(`Border.enter`), of results (`Border.leave`), and of in-place writes, which the caller sees; and
the choice of the plain function for calls on few elements, where it is faster (small_calls.py).
rebind.py makes the copies of functions that see lazyfuse.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator, Iterable
from types import FunctionType, MethodType, coroutine
from typing import Any, TypeVar, cast

import numpy as np
from numpy.lib.array_utils import byte_bounds

from lazyfuse.arrays.ndarray import (
    CANONICAL,
    export,
    gather,
    ndarray,
    on_storage,
    real_view,
    wrap_shared,
)
from lazyfuse.arrays.scalars import scalar
from lazyfuse.arrays.storage import Export, Storage, foreign_over, leaf
from lazyfuse.codegen.graph.node import Node
from lazyfuse.errors import UnsupportedError, message
from lazyfuse.namespace.rebind import ORIGINAL, ReboundFunctions, package_of
from lazyfuse.runtime.events import decisions
from lazyfuse.runtime.layout.meta_arrays import Array, window
from lazyfuse.runtime.placement import residency
from lazyfuse.runtime.scheduling import evaluate
from lazyfuse.runtime.scheduling.eager_rules import small
from lazyfuse.tools import small_calls

F = TypeVar("F", bound=Callable[..., Any])


def accelerate(function: F) -> F:
    """Make `function`, written against numpy, record and fuse; its source stays unchanged.

    In the function, in other functions of the same package and in closures, lazyfuse's modules and
    functions replace NumPy's. Arguments and results are of type `numpy.ndarray`; the caller sees
    writes into its arguments. Called with arrays of lazyfuse, it returns arrays of lazyfuse.

    The contract: while a call runs, only the function reads and writes the arrays it was given. So
    nothing is copied, and nothing runs before it has to; a result that is an argument, or a part of
    one, comes back as that argument or in its memory. Arguments that overlap, and those of
    generators and coroutines, whose callers go on meanwhile, are shared: they may be read and
    written at any time, and reads that are recorded are copies.

    Takes functions, methods, generators and coroutines. Arrays are found in arguments, in lists,
    tuples and dicts, and in attributes of objects and dataclasses of the function's own package
    (with `__slots__`, too). Raises `UnsupportedError` for classes, asynchronous generators, and
    what cannot be called.
    """
    target: Any = function
    if isinstance(target, (staticmethod, classmethod)):
        return cast("F", type(target)(accelerate(target.__func__)))
    if isinstance(target, MethodType):
        return cast("F", MethodType(accelerate(target.__func__), target.__self__))
    if hasattr(target, ORIGINAL):
        return function
    if not callable(target) or isinstance(target, type) or inspect.isasyncgenfunction(target):
        what = "cannot be accelerated"
        instead = "decorate the functions or methods that compute"
        raise UnsupportedError(message("accelerate", what, "a function", target, instead))
    twins = ReboundFunctions(target) if isinstance(target, FunctionType) else None
    call = _function(twins, target)
    if twins and inspect.isgeneratorfunction(target):
        call = _generator(twins)
    elif twins and inspect.iscoroutinefunction(target):
        call = _coroutine(twins)
    wrapper = functools.wraps(target)(call)
    setattr(wrapper, ORIGINAL, target)
    return cast("F", wrapper)


def _function(twins: ReboundFunctions | None, target: Callable[..., Any]) -> Callable[..., Any]:
    inner, direct = (twins.main, twins.plain) if twins else (target, target)

    def accelerated(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        border = Border(twins)
        try:
            inside = border.enter_call(args, kwargs)
            return border.leave_call(inner(*inside[0], **inside[1]))
        finally:
            border.close()

    ways = small_calls.Ways(direct, accelerated)
    plain = ways.plain

    def call(*args: Any, **kwargs: Any) -> Any:
        key = small_calls.key_of(args, kwargs)
        if key is None:
            return accelerated(args, kwargs)
        left = plain.get(key)
        if left:
            plain[key] = left - 1
            return direct(*args, **kwargs)
        return ways.call(key, args, kwargs)

    return call


def _generator(twins: ReboundFunctions) -> Callable[..., Any]:
    """Wrap a generator. It may be resumed at any time, so the caller shares its arguments."""

    def call(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        border = Border(twins, shared=True)
        inside = border.enter_call(args, kwargs)
        running = twins.main(*inside[0], **inside[1])
        return (yield from _driven(running, border, border.leave_call, border.enter))

    return call


def _coroutine(twins: ReboundFunctions) -> Callable[..., Any]:
    """Wrap a coroutine. Others run while it waits, so the caller shares its arguments."""

    async def call(*args: Any, **kwargs: Any) -> Any:
        border = Border(twins, shared=True)
        inside = border.enter_call(args, kwargs)
        return await _awaited(twins.main(*inside[0], **inside[1]), border, _same, _same)

    return call


def _same(value: Any) -> Any:
    """What the event loop and what it waits for exchange stays as it is."""
    return value


def _driven(
    running: Any, border: Border, leave: Callable[[Any], Any], enter: Callable[[Any], Any]
) -> Generator[Any, Any, Any]:
    """Run a generator or coroutine to its end, as `yield from` does; whenever it gives control
    away, the caller sees its own arrays, with what was written to them.
    """
    resume: Callable[[], Any] = functools.partial(running.send, None)
    while True:
        try:
            value = resume()
        except StopIteration as stop:
            return border.leave_call(stop.value)
        finally:
            border.close()
        try:
            sent = yield leave(value)
        except GeneratorExit:
            running.close()
            raise
        except BaseException as error:
            resume = functools.partial(running.throw, error)
        else:
            resume = functools.partial(running.send, enter(sent))


_awaited = coroutine(_driven)


class _ExportedArgument:
    """An array of the caller whose memory only lazyfuse uses until the call ends.

    The caller waits, so reads need no copy, and writes may wait to be fused.
    """

    __slots__ = ("array", "flat", "real", "root", "storage")

    def __init__(self, real: Array, storage: Storage, root: Export, origin: int) -> None:
        self.real = real
        self.storage = storage
        self.root = root
        # this reference keeps other results out of the caller's memory
        self.flat = cast("Array", storage.value)
        storage.exports = None
        self.array = on_storage(storage, real, origin, None)

    @classmethod
    def of(cls, real: Array) -> _ExportedArgument | None:
        """Take `real` for the call; None if it is small or cannot be recorded."""
        if not real.size or small(real.size) or real.dtype not in CANONICAL:
            return None
        found = window(real)
        storage = None if found is None else foreign_over(real, found)
        if storage is None or found is None or storage.exports is None:
            return None
        return cls(real, storage, storage.exports[0], found[1])

    def give_back(self) -> None:
        """Put the values into the caller's memory, and share it again."""
        storage = self.storage
        evaluate.evaluate([storage.node], decisions.ACCELERATED)
        if storage.has_readers():
            storage.detach()
        flat = self.flat
        if storage.node.value is not flat:
            self._move_back()
        elif storage.value is not flat:  # written in place
            storage.adopt_value(flat)
        residency.forget(storage.node)  # the caller may write to the memory from now on
        storage.exports = [self.root]

    def _move_back(self) -> None:
        self.storage.memory()
        np.copyto(self.real, real_view(self.array))
        self.storage.node = leaf(self.flat, None)
        self.storage.adopt_value(self.flat)


class Border:
    """The conversion of one call's values between numpy (outside) and lazyfuse (inside).

    Lists, dicts and objects of the program's own classes are changed in place, and changed back.
    """

    def __init__(self, twins: ReboundFunctions | None, shared: bool = False) -> None:
        self._twins = twins
        self._shared = shared
        self._lazy_caller = False
        self._loans: list[_ExportedArgument] = []
        self._inside: dict[int, tuple[Any, Any]] = {}  # id(outside) -> (outside, inside)
        self._outside: dict[int, tuple[Any, Any]] = {}  # id(inside) -> (inside, outside)
        self._opened: dict[int, Any] = {}  # lists, dicts and objects, by id

    def enter_call(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """The arguments as the function sees them."""
        if self._twins:
            self._twins.refresh()
        values = [*args, *kwargs.values()]
        self._lazy_caller = any(isinstance(value, (ndarray, scalar)) for value in values)
        self._shared = self._shared or self._overlapping(values)
        named = {name: self.enter(value) for name, value in kwargs.items()}
        return [self.enter(value) for value in args], named

    def leave_call(self, result: Any) -> Any:
        """The result as the caller sees it; runs all recorded work together."""
        if self._lazy_caller:
            self._give_back()
            return result
        # no variable may hold the nodes when the arrays are given back: it would count as a reader
        evaluate.evaluate([*self._pending(), *_nodes(result)], decisions.ACCELERATED)
        self._give_back()
        return self.leave(result)

    def close(self) -> None:
        """However the call ended, make the caller see writes, and remove every array of ours."""
        self._give_back()
        opened = list(self._opened.values())
        self._opened.clear()
        for value in opened:
            _exchange(value, self._leave_item)
        if self._twins:
            self._twins.write_back(self.leave)
        self._opened.clear()

    def _pending(self) -> list[Node]:
        return [loan.storage.node for loan in self._loans]

    def _give_back(self) -> None:
        while self._loans:
            self._loans.pop().give_back()

    # ------------------------------------------------------------------------ going in

    def enter(self, value: Any) -> Any:
        """What the function gets for an argument of the caller."""
        return (
            self._open(value, self._enter_item) if self._is_own(value) else self._enter_item(value)
        )

    def _enter_item(self, value: Any) -> Any:
        kind = type(value)
        if kind is np.ndarray:
            known = self._inside.get(id(value))
            return known[1] if known else self._enter_array(value)
        if kind is tuple:
            return tuple([self._enter_item(item) for item in value])
        return self._open(value, self._enter_item) if self._is_nested(value) else value

    def _is_nested(self, value: Any) -> bool:
        """Whether a list, dict or object is looked into: it holds arrays of the caller's."""
        kind = type(value)
        return kind in (list, dict) or (hasattr(kind, _DATACLASS) and self._is_own(value))

    def _open(self, value: Any, convert: Callable[[Any], Any]) -> Any:
        """Convert what a list, dict or object holds, once."""
        if id(value) not in self._opened:
            self._opened[id(value)] = value
            _exchange(value, convert)
        return value

    def _enter_array(self, value: Array) -> Any:
        loan = None if self._shared else _ExportedArgument.of(value)
        if loan is not None:
            self._loans.append(loan)
        inside = wrap_shared(value) if loan is None else loan.array
        self._inside[id(value)] = (value, inside)
        self._outside[id(inside)] = (inside, value)
        return inside

    def _is_own(self, value: Any) -> bool:
        """Whether `value` is an object of one of the program's own classes, with attributes."""
        twins = self._twins
        return (
            twins is not None
            and package_of(type(value).__module__) == twins.package
            and _holds_attributes(value)
        )

    def _overlapping(self, values: Iterable[Any]) -> bool:
        """Whether the function can reach one block of memory in more than one way."""
        arrays: dict[int, Array] = {}
        self._collect(values, arrays)
        if all(small(array.size) for array in arrays.values()):
            return False  # small arrays are views of the caller's memory
        elsewhere: dict[int, Array] = {}
        if self._twins:
            self._collect(self._twins.values(), elsewhere)
        every = [*arrays.values(), *elsewhere.values()]
        ends = sorted(byte_bounds(array) for array in every if array.size)
        return any(ends[k][1] > ends[k + 1][0] for k in range(len(ends) - 1))

    def _collect(self, values: Iterable[Any], found: dict[int, Array], depth: int = 2) -> None:
        """Collect the NumPy arrays among `values` and in their items."""
        for value in values:
            if isinstance(value, np.ndarray):
                found[id(value)] = value
            elif depth and (type(value) in (tuple, list, dict) or self._is_own(value)):
                self._collect(_items(value), found, depth - 1)

    # ----------------------------------------------------------------------- coming out

    def leave(self, value: Any) -> Any:
        """What the caller gets for a result of the function."""
        return (
            self._open(value, self._leave_item) if self._is_own(value) else self._leave_item(value)
        )

    def _leave_item(self, value: Any) -> Any:
        kind = type(value)
        if kind is ndarray:
            known = self._outside.get(id(value))
            return known[1] if known else export(value)
        if kind is scalar:
            return gather(value)[()]
        if kind is tuple:
            return tuple([self._leave_item(item) for item in value])
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return kind(*[self._leave_item(item) for item in value])
        return self._open(value, self._leave_item) if self._is_nested(value) else value


_DATACLASS = "__dataclass_fields__"
_NO_VALUES = ("__dict__", "__weakref__")  # slots
_HOLDERS = frozenset((np.ndarray, ndarray, scalar, tuple, list, dict))


def _items(value: Any) -> Iterable[Any]:
    """The items of a tuple, list, dict or object; none if no array can be among them."""
    items = value
    if not isinstance(value, (tuple, list)):
        items = value.values() if type(value) is dict else [each for _, each in _attributes(value)]
    kinds = set(map(type, items))
    holds = not _HOLDERS.isdisjoint(kinds) or any(hasattr(kind, _DATACLASS) for kind in kinds)
    return items if holds else ()


def _holds_attributes(value: Any) -> bool:
    kind = type(value)
    return isinstance(getattr(value, "__dict__", None), dict) or any(
        "__slots__" in each.__dict__ for each in kind.__mro__
    )


def _attributes(value: Any) -> list[tuple[str, Any]]:
    """The attributes of an object, in its dict and in its slots."""
    found = list(getattr(value, "__dict__", {}).items())
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        names = (slots,) if isinstance(slots, str) else slots
        held = [name for name in names if name not in _NO_VALUES and hasattr(value, name)]
        found += [(name, getattr(value, name)) for name in held]
    return found


def _exchange(value: Any, convert: Callable[[Any], Any]) -> None:
    """Apply `convert` to the items of a list, dict or object, in place."""
    if not _items(value):
        return
    if type(value) is list:
        value[:] = [convert(item) for item in value]
        return
    if type(value) is dict:
        for key, item in list(value.items()):
            value[key] = convert(item)
        return
    inside = getattr(value, "__dict__", {})
    for name, item in _attributes(value):
        new = convert(item)
        if name in inside:
            inside[name] = new
        elif new is not item:
            object.__setattr__(value, name, new)  # frozen dataclasses, too


def _nodes(value: Any) -> list[Node]:
    """The recorded work behind a result."""
    if isinstance(value, (ndarray, scalar)):
        storage = value._storage
        node = storage.node if storage is not None else value._node
        return [node] if node is not None else []
    if type(value) in (tuple, list, dict):
        return [node for item in _items(value) for node in _nodes(item)]
    return []
