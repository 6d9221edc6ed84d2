"""As NumPy's elementwise functions that are not ufuncs: `where`, `clip`, `round`, `copyto`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lazyfuse.arrays.eager_policy import elementwise, spares_copy
from lazyfuse.arrays.exported_memory import read_in_place
from lazyfuse.arrays.ndarray import (
    alone,
    cast_node,
    concrete_value,
    from_node,
    geometry,
    materialise,
    ndarray,
    node_of,
    scalar_node,
    write_node,
)
from lazyfuse.arrays.operators import PLAIN, WEAK, dtype_of, operand_key, operand_node
from lazyfuse.arrays.recording import (
    as_operand,
    drops_imaginary,
    is_operand,
    map_node,
    may_record,
    may_write,
    shape_of,
    step,
    steps_over,
)
from lazyfuse.arrays.storage import CANONICAL
from lazyfuse.codegen.graph.node import Node
from lazyfuse.codegen.graph.shapes import broadcast_all, size_of
from lazyfuse.codegen.table import promotion
from lazyfuse.codegen.table.ops import TABLE
from lazyfuse.interop import fallback
from lazyfuse.interop.fallback import records
from lazyfuse.registry import OURS, implements
from lazyfuse.runtime.layout.meta_arrays import result_order
from lazyfuse.runtime.scheduling import evaluate
from lazyfuse.runtime.scheduling.compound_calls import as_one

_NoValue = np._NoValue


def _recorded(row: str, operands: tuple[Any, ...], made: Callable[[Node], Any] = from_node) -> Any:
    """A recorded elementwise operation on any operands, as what is `made` of its node; None if it
    should run at once.
    """
    taken = [as_operand(x) for x in operands]
    if not all(map(is_operand, taken)) or elementwise(taken) or not may_record():
        return None
    try:
        node = map_node(TABLE[row], taken)
    except ValueError:
        return None  # the shapes do not match: NumPy may raise another error first
    return None if node is None else made(node)


def _always_an_array(node: Node) -> ndarray:
    evaluate.note_recorded(node)
    return alone(node)


@records(np.where, eager="broadcast")
def where(condition: Any, x: Any = _NoValue, y: Any = _NoValue, /) -> Any:
    """As `numpy.where`; with one argument it needs the values and evaluates."""
    if x is _NoValue or y is _NoValue:
        is_searched = x is y and type(condition) is ndarray
        return OURS[np.nonzero](condition) if is_searched else None
    operands = (condition, x, y)
    if spares_copy(TABLE["where"], operands):
        return None
    return read_in_place(lambda *given: _recorded("where", given, _always_an_array), *operands)


@records(np.clip, eager="broadcast")
def clip(
    a: Any,
    a_min: Any = _NoValue,
    a_max: Any = _NoValue,
    out: Any = None,
    *,
    min: Any = _NoValue,  # NumPy's name
    max: Any = _NoValue,  # NumPy's name
    **kwargs: Any,
) -> Any:
    """As `numpy.clip`."""
    if type(a) is not ndarray or concrete_value(a) is not None or out is not None or kwargs:
        return None
    if a_min is _NoValue and a_max is _NoValue:
        low = None if min is _NoValue else min
        return _clip(a, low, None if max is _NoValue else max)
    if a_min is not _NoValue is not a_max and min is max is _NoValue:
        return _clip(a, a_min, a_max)
    return None


def _clip(a: ndarray, low: Any, high: Any) -> Any:
    """The steps of NumPy's `_clip`."""
    dtype = dtype_of(a)
    if dtype.kind in "iu":
        if type(low) is int and low <= np.iinfo(dtype).min:
            low = None
        if type(high) is int and high >= np.iinfo(dtype).max:
            high = None
    if low is None and high is None:
        return _recorded("positive", (a,))
    if low is None:
        return _recorded("minimum", (a, high))
    if high is None:
        return _recorded("maximum", (a, low))
    low, high = as_operand(low), as_operand(high)
    return _recorded("clip_each" if _steps(a, low, high) else "clip", (a, low, high))


def _steps(a: ndarray, low: Any, high: Any) -> bool:
    """Whether the bounds change within NumPy's inner loop: then zeros get the bounds' signs."""
    if type(low) in PLAIN and type(high) in PLAIN:
        return False
    arrays = [_shown(x) for x in (a, low, high)]
    try:
        shape = broadcast_all([x.shape for x in arrays])
    except ValueError:
        return False  # NumPy raises its error
    if size_of(shape) == 1:  # one element: NumPy loops over arrays of equal rank directly
        plain = len({x.ndim for x in arrays if x.ndim}) == 1
        return plain and any(x.ndim > 1 or x.strides[0] != 0 for x in arrays[1:] if x.ndim)
    run = 1  # consecutive elements with the same bounds
    fast: list[int] = []
    for axis in reversed(result_order(shape, arrays) or range(len(shape))):
        if any(_moves(x, axis - len(shape)) for x in arrays[1:]):
            # NumPy copies as many rows as fit into its buffer, if that saves enough loops
            rows = min(shape[axis], _BUFFER // run)
            copied = [x for x in arrays if _is_uneven(x, axis - len(shape), fast)]
            return run == 1 or rows > len(copied)
        if shape[axis] != 1:
            run *= shape[axis]
            fast.append(axis - len(shape))
    return False


_BUFFER = 8192  # elements: NumPy's default for ufuncs


def _moves(x: Any, axis: int) -> bool:
    """Whether an operand's elements differ along an axis (counted from the last)."""
    if x.ndim < -axis:
        return False
    return bool(x.shape[axis] != 1 and x.strides[axis] != 0)


def _is_uneven(x: Any, axis: int, fast: list[int]) -> bool:
    """Whether an operand repeats elements either along an axis or along all faster ones."""
    return _moves(x, axis) != any(_moves(x, each) for each in fast)


def _shown(x: Any) -> Any:
    """An array with the geometry of an operand."""
    if isinstance(x, ndarray):
        return geometry(x)
    return x if type(x) is np.ndarray else np.empty(())


@records(np.round)
def round(a: Any, decimals: Any = 0, out: Any = None) -> Any:  # NumPy's name
    """As `numpy.round`."""
    plain = type(a) is ndarray and out is None and type(decimals) is int
    if plain and may_record() and concrete_value(a) is None and dtype_of(a).kind == "f":
        return _round(a, decimals)
    return None


around = records(np.around, eager="arrays")(round.recorded)


@as_one
def _round(a: ndarray, decimals: int) -> Any:
    """The steps of NumPy's `PyArray_Round` for floats."""
    source = node_of(a)
    if decimals == 0:
        return from_node(step(TABLE["rint"], source))
    power = scalar_node(10.0 ** abs(decimals), source.dtype)
    first, second = ("multiply", "divide") if decimals > 0 else ("divide", "multiply")
    scaled = step(TABLE["rint"], step(TABLE[first], source, power))
    last = step(TABLE[second], scaled, power)
    # `PyArray_Round` allocates its result in Fortran or C order
    perm = tuple(reversed(range(len(shape_of(a))))) if geometry(a).flags.fnc else None
    ordered = Node(last.op, last.src, last.arg, last.shape, last.dtype, perm, last.location)
    return from_node(ordered)


# ---------------------------------------------------------------------- copyto


@implements(np.copyto, eager="target")
def copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> Any:
    """As `numpy.copyto`."""
    if type(dst) is ndarray and materialise(dst) is None and not steps_over(dst, src):
        value = _value_to_copy(dst, as_operand(src), casting, as_operand(where))
        if value is not None:
            write_node(dst, value)
            return None
    named: dict[str, Any] = {} if casting == "same_kind" else {"casting": casting}
    if where is not True:
        named["where"] = where
    # None, unless the class of an array has its own `__array_function__`
    return fallback.run_writing(np.copyto, "copyto", (dst, src), named)


def _value_to_copy(dst: ndarray, src: Any, casting: Any, mask: Any) -> Node | None:
    """The new value of all of `dst`; None if NumPy must copy, or raise its error."""
    dtype = dtype_of(dst)
    if not is_operand(src) or not (mask is True or is_operand(mask)) or not may_write(dst):
        return None
    if not _casts(operand_key(src), dtype, casting):
        return None
    shape = shape_of(dst)
    shapes = [shape_of(src)] if mask is True else [shape_of(src), shape_of(mask)]
    try:
        if broadcast_all([shape, *shapes]) != shape:
            return None
        value = cast_node(operand_node(src, dtype), dtype)
    except (ValueError, OverflowError):
        return None
    if mask is True:
        return value
    truth = operand_node(mask, np.dtype(bool))
    if truth.dtype.kind != "b":
        return None
    row = TABLE["where"]
    node = map_node(row, (mask, dst, dst))
    if node is None:
        return None
    loop = promotion.resolve(row, (truth.dtype, dtype, dtype))
    return Node(row, (truth, value, node.src[2]), loop, shape, dtype, node.perm, node.location)


def _casts(key: Any, dtype: Any, casting: Any) -> bool:
    if (key not in CANONICAL and key not in WEAK) or drops_imaginary(key, dtype):
        return False
    if key in WEAK:  # by kind; the conversion of the number checks its range
        order = {int: "iufc", float: "fc", complex: "c"}[key]
        # other casting rules depend on the dtype that NumPy gives the number
        return casting == "unsafe" or (casting in ("safe", "same_kind") and dtype.kind in order)
    return bool(np.can_cast(key, dtype, casting))
