"""Lazy scalars: reductions and picks of recorded arrays, until the program looks at the value.

A `scalar` takes part in recorded operations like an array without axes; to everything else it is
the NumPy scalar of its dtype: `isinstance(x, np.float64)` holds, it hashes, formats and indexes.
Importing this module completes the array type.
"""

from __future__ import annotations

import operator
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType, ModuleType
from typing import Any

import numpy as np

from lazyfuse import config
from lazyfuse.arrays import (
    assignment,
    attributes,
    base,
    eager_operators,
    indexing,
    mask_selection,
    methods,
    operators,
)
from lazyfuse.arrays import ndarray as array
from lazyfuse.arrays.conversion import real_operand, to_numpy
from lazyfuse.arrays.ndarray import from_node, gather, ndarray, new, node_of
from lazyfuse.arrays.nodes import INSIDE, PLAIN, user_frame
from lazyfuse.arrays.operators import SPECS, record_unary
from lazyfuse.codegen.graph.node import Node
from lazyfuse.devices import caches
from lazyfuse.errors import EvaluationError
from lazyfuse.runtime.events import decisions
from lazyfuse.runtime.scheduling import escapes, stand_ins

__all__ = ["all_stay", "deliver", "make_scalar", "numbers_stay", "scalar", "value_of"]


class scalar(ndarray):  # noqa: N801  # as NumPy spells its scalars
    """One number that may not have been computed yet. Immutable."""

    __slots__ = ()

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        node = self._node
        return scalar if node is None else node.dtype.type

    def __new__(cls, value: Any = 0.0) -> Any:
        """A NumPy scalar, as the value is known; of other numbers (fractions) a float64."""
        found: Any = np.asarray(value)[()]
        return found if isinstance(found, np.generic) else np.float64(value)

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(value_of(self))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__array_"):
            raise AttributeError(name)
        return getattr(value_of(self), name)


def _gathered(x: ndarray) -> Any:
    return gather(x)[()]


value_of: Callable[[Any], Any] = _gathered
"""The NumPy scalar of a lazy one, evaluated if needed."""


class _Inside(threading.local):
    """Of each thread: the calls of ours under way that go on with the number."""

    calls = 0


_inside = _Inside()


@contextmanager
def numbers_stay() -> Iterator[None]:
    """Numbers that this thread records meanwhile stay lazy: a function of ours goes on with them,
    and delivers its result.
    """
    _inside.calls += 1
    try:
        yield
    finally:
        _inside.calls -= 1


def all_stay() -> bool:
    """Whether numbers stay pending wherever they go."""
    return bool(_inside.calls or config.options.lazy_numbers)


def deliver(x: Any, is_alone: bool = True) -> Any:
    """What the user gets for a recorded number: the lazy scalar where only operations of ours take
    it from his function, NumPy's number elsewhere. `is_alone`: it is what a call gives, not a part
    of that.
    """
    if all_stay():
        return x
    frame = user_frame()
    code, names = frame.f_code, frame.f_globals
    if names.get("__package__") in INSIDE:
        return x
    is_script = code.co_name == "<module>" and _is_program(frame)
    needed = escapes.uses(code, frame.f_lasti, is_script) if is_alone else None
    if needed is not None and all(_is_met(each, frame) for each in needed):
        return x
    try:
        return value_of(x)
    except EvaluationError as error:
        if error.op != "freeze":
            raise
        return x  # of a parameter: it has no value, the expression is to be frozen


def _is_program(frame: FrameType) -> bool:
    """Whether a frame is that of a program's file, whose names no other module reads."""
    names = frame.f_globals
    if names.get("__name__") != "__main__" or frame.f_code.co_filename != names.get("__file__"):
        return False
    outer = frame.f_back
    while outer is not None and outer.f_globals.get("__package__") in INSIDE:
        outer = outer.f_back  # `lazyfuse program.py`
    while outer is not None and outer.f_code.co_name in ("_run_code", "_run_module_as_main"):
        outer = outer.f_back  # `python -m`
    return outer is None and not sys.flags.interactive


def _is_met(use: escapes.Use, frame: FrameType) -> bool:
    """Whether a name is what takes a lazy scalar."""
    kind, (place, _, name, attribute) = use
    found: Any
    if place < 0:
        found = frame.f_locals.get(name, _MISSING) if place == escapes.NAME else _MISSING
        if found is _MISSING:
            found = frame.f_globals.get(name, frame.f_builtins.get(name))
    elif base.NATIVE is None:
        return False  # `f_locals` would keep what it shows
    else:
        try:
            found = base.NATIVE.frame_local(frame, place, name)
        except NameError:
            return False
    for each in () if attribute is None else attribute.split("."):
        if type(found) in array.OURS:
            return kind != escapes.ELEMENTS  # its methods, and parts of it
        found = _attribute(found, each)
    if kind == escapes.FUNCTION:
        return any(found is each for each in _TAKES_NUMBERS) or any(
            str(getattr(each, "__module__", "")).partition(".")[0] == "lazyfuse"
            for each in (found, type(found))
        )
    found_kind = type(found)
    if found_kind in array.OURS:
        return True
    if kind == escapes.OPERAND:
        return found_kind is np.ndarray or found_kind in _LEFT
    return found_kind is np.ndarray and found.dtype.kind in "biufc"  # others keep what they get


def _attribute(owner: Any, name: str) -> Any:
    """What an object has by a name, where that is asked of nothing else."""
    kind: Any = type(owner)
    if isinstance(owner, ModuleType):
        ours = owner.__name__.partition(".")[0] == "lazyfuse"  # its names come when asked for
        return getattr(owner, name, None) if ours else vars(owner).get(name)
    if kind.__getattribute__ is not object.__getattribute__:
        return None
    if any(name in vars(each) for each in kind.__mro__):
        return None
    return getattr(owner, "__dict__", {}).get(name)


_MISSING = object()
_LEFT = PLAIN - {complex}
_TAKES_NUMBERS = (print, float, int, bool, str, repr, format, round, abs)
"""Python's own functions that ask our number for its value."""


_KINDS = {escapes.OPERAND: 0, escapes.FUNCTION: 1, escapes.ELEMENTS: 2}


def _number_uses(code: CodeType, offset: int) -> Any:
    """What has to hold for a number of a place to stay lazy, for native/player/places.c; None: it
    is looked at. False: only `deliver` can tell.
    """
    needed = escapes.uses(code, offset, False)
    if needed is None:
        return None
    found = [(place, _KINDS[kind], name, end) for kind, (place, _, name, end) in needed]
    return tuple(found) if all(end is None or "." not in end for *_, end in found) else False


def deliver_several(results: Iterable[Any]) -> tuple[Any, ...]:
    """What the user gets for the results of one call: of its numbers NumPy's."""
    return tuple([deliver(x, False) if type(x) is scalar else x for x in results])


def make_scalar(node: Node) -> scalar:
    """The lazy scalar whose value is that of a node without axes."""
    x: scalar = new(scalar)
    x._eager = None
    x._node = node
    x._storage = None
    x._base = None
    return x


array.OURS.add(scalar)

# ------------------------------------------------------------------------------------- sinks

_SINKS: dict[str, Callable[..., Any]] = {
    "__bool__": bool,
    "__int__": int,
    "__float__": float,
    "__complex__": complex,
    "__index__": operator.index,
    "__repr__": repr,
    "__str__": str,
    "__format__": format,
    "__len__": len,  # an instance of `Sized`; a call raises NumPy's error
    "__contains__": operator.contains,
    "__getitem__": operator.getitem,
    "__setitem__": operator.setitem,
    "__delitem__": operator.delitem,
    "__round__": round,
}


def _sink(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: scalar, *args: Any) -> Any:
        result = function(value_of(self), *args)
        return array.wrap(result) if type(result) is np.ndarray else result

    return methods._named(name, method)


def _delegated(name: str) -> Callable[..., Any]:
    def method(self: scalar, *args: Any, **kwargs: Any) -> Any:
        value = value_of(self)
        args = to_numpy(args)
        named = {key: to_numpy(each) for key, each in kwargs.items()}
        return array.wrap(getattr(value, name)(*args, **named))

    return methods._named(name, method)


def _not_in_place(name: str, swapped: str) -> Callable[..., Any]:
    def method(self: scalar, other: Any) -> Any:
        return getattr(super(scalar, self), swapped)(other)

    return methods._named(name, method)


def astype(self: scalar, dtype: Any, *args: Any, **kwargs: Any) -> Any:
    target = np.dtype(dtype)
    if target not in array.CANONICAL or args or kwargs:
        return array.wrap(value_of(self).astype(dtype, *args, **kwargs))
    node = node_of(self)
    if node.dtype.kind == "c" and target.kind != "c":
        stand_ins.speak()
        np.ones((), node.dtype).astype(target)  # warns
    return from_node(array.cast_node(node, array.CANONICAL[target]))


def _lazy_part(name: str) -> Any:
    row = operators.TABLE[name]
    return property(lambda self: record_unary(row, self))


def _itself(self: scalar, *args: Any, **kwargs: Any) -> scalar:
    return self


def _conjugate(self: scalar) -> Any:
    if array.node_of(self).dtype.kind != "c":
        return self
    return record_unary(operators.TABLE["conjugate"], self)


def _matmul(self: scalar, other: Any) -> Any:
    return array.wrap(operator.matmul(value_of(self), real_operand(other)))


def _reduce(self: scalar, protocol: Any = 2) -> Any:
    return value_of(self).__reduce__()


def _rmatmul(self: scalar, other: Any) -> Any:
    if isinstance(other, (int, float, complex, np.generic)):
        # NumPy's number on the left has called this first: raise Python's own error
        raise TypeError(
            f"unsupported operand type(s) for @: {_spelled(type(other))!r} and "
            f"{_spelled(self.dtype.type)!r}"
        )
    return array.wrap(operator.matmul(real_operand(other), value_of(self)))


def _spelled(kind: type) -> str:
    return f"numpy.{kind.__name__}" if issubclass(kind, np.generic) else kind.__name__


_OWN: dict[str, Any] = {
    "__matmul__": _matmul,
    "__rmatmul__": _rmatmul,
    "__imatmul__": _matmul,
    "__copy__": _itself,
    "__numpy_dtype__": property(lambda self: self.dtype),
    "__deepcopy__": _itself,
    "__reduce__": _reduce,
    "__reduce_ex__": _reduce,
    # None marks a missing method in Python: a number is not `Iterable`
    "__iter__": None,
    "astype": astype,
    "base": property(lambda self: None),
    "conj": _conjugate,
    "conjugate": _conjugate,
    "copy": _itself,
    "data": property(lambda self: value_of(self).data),
    "flags": property(lambda self: value_of(self).flags),
    "flat": property(lambda self: value_of(self).flat),
    "imag": _lazy_part("imag"),
    "mT": property(lambda self: value_of(self).mT),  # numbers have none
    "real": _lazy_part("real"),
    "T": property(_itself),
}


def _install() -> None:
    for name, function in _SINKS.items():
        setattr(scalar, name, _sink(name, function))
    for name in dir(np.generic):
        if not name.startswith("_") and callable(getattr(np.generic, name)):
            setattr(scalar, name, _delegated(name))
    for spec in SPECS.values():
        if len(spec.names) > 2:
            setattr(scalar, spec.names[2], _not_in_place(spec.names[2], spec.names[0]))
    for name, found in _OWN.items():
        setattr(scalar, name, found)


_install()
# The modules of arrays call each other in cycles: an operator makes an array, and an array has
# operators. Lower modules, and the native extension, call higher ones through these hooks.
if base.COMPILED:
    for _name, _value in {
        "evaluation_error": EvaluationError,
        "gather_rule": decisions.GATHER,
        "gathered": _gathered,
        "number_uses": _number_uses,
        "numbers_inside": _inside,
        "takes_numbers": frozenset(_TAKES_NUMBERS),
    }.items():
        base.NATIVE.bind(_name, _value)
    value_of = base.NATIVE.number
    caches.register(
        "runtime.scheduling.escapes.places",
        base.NATIVE.numbers_count,
        4096,
        base.NATIVE.numbers_forget,
    )
base.HOOKS.fill(
    array=ndarray,
    scalar=scalar,
    make_scalar=make_scalar,
    deliver=deliver,
    deliver_several=deliver_several,
    wrap=array.wrap,
    wrap_shared=array.wrap_shared,
    get_item=indexing.get_item,
    set_item=indexing.set_item,
    del_item=methods.__delitem__,
    length=methods.__len__,
    iterate=methods.__iter__,
    matmul=operators.contract,
    power=eager_operators.power,
    export=methods.to_numpy,
    real=attributes.get_real,
    imag=attributes.get_imag,
    dtype=operators.dtype_of,
    shape=operators.shape_of,
    geometry=array.geometry,
    transposed=attributes.transposed,
    value_node=assignment.value_node,
    resolve=mask_selection.resolve,
    selection_binary=mask_selection.binary,
    selection_inplace=mask_selection.inplace,
    selection_shape=mask_selection.shape,
    selection_unary=mask_selection.unary,
)
