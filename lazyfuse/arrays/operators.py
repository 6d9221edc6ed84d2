"""Python's operators on arrays: one `Spec` per operator, made from the op table.

Owns what an operator does in every case that the eager path (eager_operators.py) does not cover,
the rules for recording (loops, scalar operands, memory order, in-place writes), and the names of
operations that NumPy's warnings call otherwise than the rows that record them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from lazyfuse import registry
from lazyfuse.arrays import base
from lazyfuse.arrays import ndarray as array
from lazyfuse.arrays.base import HOOKS
from lazyfuse.arrays.conversion import real_operand, to_numpy
from lazyfuse.arrays.eager_policy import (
    for_update,
    has_bits_of_its_own,
    operation,
    operation_on_values,
    update,
)
from lazyfuse.arrays.exported_memory import read_in_place, read_in_stretch
from lazyfuse.arrays.ndarray import (
    CANONICAL,
    OURS,
    SELECTIONS,
    caller,
    cast_node,
    concrete_value,
    from_node,
    geometry,
    materialise,
    ndarray,
    node_of,
    scalar_node,
    wrap,
    writable,
    write_node,
)
from lazyfuse.arrays.nodes import PLAIN as PLAIN
from lazyfuse.arrays.nodes import STRONG, constant, is_by_operator
from lazyfuse.arrays.nodes import WEAK as WEAK
from lazyfuse.codegen.graph.node import HostCall, Node
from lazyfuse.codegen.graph.shapes import broadcast
from lazyfuse.codegen.table import ops, promotion
from lazyfuse.codegen.table.op import Op
from lazyfuse.codegen.table.ops import TABLE as TABLE
from lazyfuse.errors import refuses_ours
from lazyfuse.runtime.layout.meta_arrays import Array, DType, keep_order, one_element, result_order
from lazyfuse.runtime.numerics import errstate
from lazyfuse.versions import POWER_TAKES_ROOTS, SQUARES_BOOLEANS


class Spec:
    """One operator: its row, and Python's function for it."""

    __slots__ = ("compares", "function", "inplace", "names", "op")

    def __init__(self, op: Op) -> None:
        self.op = op
        self.names = op.dunders
        word = op.dunders[0].strip("_")
        self.function: Callable[..., Any] = getattr(operator, f"__{word}__")
        self.inplace: Callable[..., Any] | None = getattr(operator, f"__i{word}__", None)
        self.compares = word in ("eq", "ne", "lt", "le", "gt", "ge")

    def __repr__(self) -> str:
        return f"<operator {self.names[0]}>"


# ----------------------------------------------------------------------------- the general path


def dtype_of(x: ndarray) -> DType:
    """The dtype of an array of ours, in the spelling that nodes use."""
    node = x._node
    if node is not None:
        return node.dtype
    small = x._eager
    if small is None and x._storage is None:  # dynamic-size; or it has just got its values
        found = getattr(x, "_selection", None)
        return dtype_of(x) if found is None else found.dtype
    dtype = small.dtype if small is not None else x._view.dtype
    return CANONICAL.get(dtype, dtype)


def binary(spec: Spec, self: ndarray, other: Any, swapped: bool) -> Any:
    """`self op other` (or the reverse), for any `other`."""
    if SELECTIONS and (found := HOOKS.selection_binary(spec, self, other, swapped)) is not None:
        return found
    kind = type(other)
    right: Any
    if kind in PLAIN:
        right = other
    elif type(other) in OURS:
        right = concrete_value(other)
    elif kind is np.ndarray:
        right = other
    else:
        return _with_unsupported(spec, self, other, swapped)
    left = concrete_value(self)
    if left is not None and right is not None and not has_bits_of_its_own(spec.op, (left, right)):
        rule = operation_on_values(left, right) or for_update(spec.op, self, other, left, right)
        if rule is not None:
            return _run(spec, left, right, swapped)
    if operation(spec.op, self, other):
        return run_now(spec, self, other, swapped)
    return read_in_stretch(record, spec, self, other, swapped)


def _run(spec: Spec, left: Any, right: Any, swapped: bool) -> Any:
    return wrap(spec.function(right, left) if swapped else spec.function(left, right))


def run_now(spec: Spec, self: ndarray, other: Any, swapped: bool) -> Any:
    """The operation in NumPy, at once, on evaluated operands."""
    return _run(spec, real_operand(self), real_operand(other), swapped)


def _with_unsupported(spec: Spec, self: ndarray, other: Any, swapped: bool) -> Any:
    """`self op other` for operands that are neither arrays nor numbers."""
    if type(self) is not ndarray:  # `other` gets NumPy's number
        return run_now(spec, self, other, swapped)
    if type(other) in (list, tuple):
        return binary(spec, self, np.array(to_numpy(other)), swapped)
    function = override(other, spec.op.ufunc)
    defers = _defers(other, "" if spec.compares else spec.names[1], swapped)
    if function is not None and not (defers and is_by_operator()):
        return function(other, self) if swapped else function(self, other)
    if defers:
        return NotImplemented
    name = spec.names[1] if swapped else spec.names[0]
    try:
        return wrap(getattr(np.ndarray, name)(np.asarray(real_operand(self)), other))
    except ValueError as error:
        if not refuses_ours(error):
            raise
    # our ufunc accepts objects whose `__array__` gives ours
    function = registry.ufunc_of(spec.op.ufunc)
    return function(other, self) if swapped else function(self, other)


def _defers(other: Any, reflected: str, swapped: bool) -> bool:
    """Whether Python should ask `other`, by its method `reflected` ("" for comparisons).

    NumPy leaves the operation to objects whose `__array_ufunc__` is None; and Python asks a
    subclass of NumPy's array before the array on its left.
    """
    kind = type(other)
    if getattr(kind, "__array_ufunc__", True) is None:
        return True
    if swapped or not isinstance(other, np.ndarray):
        return False
    return not reflected or getattr(kind, reflected) is not getattr(np.ndarray, reflected)


def override(other: Any, ufunc: Any) -> Any:
    """Our ufunc, where `other` has its own `__array_ufunc__`, which the ufunc calls; else None."""
    method = getattr(type(other), "__array_ufunc__", None)
    if method is None or method is np.ndarray.__array_ufunc__:
        return None
    return registry.ufunc_of(ufunc)


def operand_key(x: Any) -> Any:
    """The key of an operand in the choice of a loop: a dtype, or the type of a weak scalar."""
    kind = type(x)
    if kind in WEAK:
        return kind
    if type(x) in OURS:
        return dtype_of(x)
    if kind is np.ndarray:
        return CANONICAL.get(x.dtype, x.dtype)
    return STRONG[kind]


def loop_for(op: Op, keys: tuple[Any, ...]) -> promotion.Loop | None:
    """The loop for the keys of operands; None if NumPy has none that can be recorded."""
    try:
        found: promotion.Loop | None = base.LOOPS[op, keys]
    except KeyError:
        found = base.LOOPS[op, keys] = choose_loop(op, keys, promotion.resolve)
    return found


def choose_loop(
    op: Op, keys: tuple[Any, ...], resolve: Callable[[Op, tuple[Any, ...]], promotion.Loop]
) -> promotion.Loop | None:
    """The same by one of NumPy's rules. Where there is none, NumPy runs, and says so."""
    if not all(key in CANONICAL or key in WEAK for key in keys):
        return None
    try:
        loop = resolve(op, keys)
    except TypeError:
        return None
    known = loop.out in CANONICAL and all(dtype in CANONICAL for dtype in loop.ins)
    return loop if known else None


def operand_node(x: Any, dtype: DType) -> Node:
    """An operand as a node; weak scalars take the dtype of the loop."""
    kind = type(x)
    if kind in WEAK:
        return constant(x, dtype)
    if type(x) in OURS:
        return node_of(x)
    if kind is np.ndarray:
        return array.snapshot(x)
    return scalar_node(x, STRONG[kind])


def record(spec: Spec, self: ndarray, other: Any, swapped: bool) -> Any:
    """Record `self op other`; what cannot be recorded runs at once."""
    first, second = (other, self) if swapped else (self, other)
    keys = operand_key(first), operand_key(second)
    loop = loop_for(spec.op, keys)
    if loop is None:
        _raise_as_numpy(spec, first, second, keys)
        return run_now(spec, self, other, swapped)
    shape = broadcast(shape_of(first), shape_of(second))
    try:
        nodes = operand_node(first, loop.ins[0]), operand_node(second, loop.ins[1])
    except OverflowError:
        if not spec.compares:
            raise
        return run_now(spec, self, other, swapped)
    op = _checked_power(first, second, loop) if spec.op is _POWER else spec.op
    if op is None:
        return run_now(spec, self, other, swapped)
    if not shape and are_scalars(self, other):
        return from_node(_scalar_operation(spec.function, op, nodes, loop))
    perm = order_of(shape, first, second)
    node = Node(op, nodes, loop, shape, loop.out, perm, caller())
    return from_node(root(node, second) if op is _POWER else node)


def root(node: Node, exponent: Any) -> Node:
    """A power; where its exponent is the number one half, the root that NumPy's loops take then."""
    if not POWER_TAKES_ROOTS or type(exponent) not in PLAIN or exponent != 0.5:
        return node
    if node.dtype.char not in "fd":
        return node
    row, dtype = TABLE["sqrt"], node.dtype
    loop = promotion.resolve(row, (dtype,))
    found = Node(row, node.src[:1], loop, node.shape, dtype, node.perm, node.location)
    name_steps("power", [found])
    return found


def _raise_as_numpy(spec: Spec, first: Any, second: Any, keys: tuple[Any, Any]) -> None:
    """Raise NumPy's error, if it refuses the operation, before anything is evaluated."""
    if all(key in CANONICAL or key in WEAK for key in keys):
        spec.function(_meta_operand(first, ()), _meta_operand(second, ()))


def _meta_operand(x: Any, shape: tuple[int, ...]) -> Any:
    """An operand that NumPy refuses exactly as it would refuse `x` in that shape."""
    if type(x) not in OURS and type(x) is not np.ndarray:
        return x
    meta = one_element(shape, operand_key(x))
    if type(x) in OURS and x._storage is not None and not x._view.flags.writeable:
        meta.flags.writeable = False
    return meta


def shape_of(x: Any) -> tuple[int, ...]:
    """The shape of any operand."""
    if type(x) in OURS:
        node = x._node
        if node is None and SELECTIONS:
            deferred: tuple[int, ...] = HOOKS.selection_shape(x)
            return deferred
        x = node if node is not None else geometry(x)
    elif type(x) is not np.ndarray:
        return ()
    shape: tuple[int, ...] = x.shape
    return shape


def order_of(shape: tuple[int, ...], *operands: Any) -> tuple[int, ...] | None:
    """The memory order that NumPy gives to an elementwise result."""
    shown = []
    for x in operands:
        if type(x) in OURS:
            node = x._node
            if node is None or node.perm is not None:
                break
        elif type(x) is np.ndarray:
            break
    else:
        return None
    for x in operands:
        if type(x) in OURS:
            shown.append(geometry(x))
        elif type(x) is np.ndarray:
            shown.append(x)
    return result_order(shape, shown)


_POWER = TABLE["power"]
_POWER_NONNEGATIVE = TABLE["power_nonnegative"]


def _checked_power(first: Any, second: Any, loop: promotion.Loop) -> Op | None:
    """The row for a power; None if NumPy must look at integer exponents first."""
    if loop.out.kind not in "iu":
        return _POWER
    if type(second) in PLAIN:
        if second >= 0:
            return _POWER_NONNEGATIVE
        return None
    return _POWER if loop.out.kind == "u" else None


# ------------------------------------------------------------------------- names in warnings


def are_scalars(*operands: Any) -> bool:
    """Whether none of these operands (ours, NumPy's or Python's) is an array."""
    return not any(type(x) is ndarray or type(x) is np.ndarray for x in operands)


def _is_number(op: Op, x: ndarray) -> bool:
    """Whether NumPy's scalar does an operator of one operand."""
    return type(x) is not ndarray and is_of_scalars(op, dtype_of(x))


def is_of_scalars(op: Op, dtype: DType) -> bool:
    """Whether NumPy's scalars do an operator otherwise than kernels for its arrays: they report
    overflow of integers, and round on their own what is not exact.
    """
    return op.scalar_overflow if dtype.kind in "iu" else not op.is_exact(dtype)


def _scalar_operation(
    function: Callable[[Any, Any], Any], op: Op, nodes: tuple[Node, Node], loop: promotion.Loop
) -> Node:
    """The operation `op` (Python's `function`) on two scalars."""
    name = f"scalar {op.name.removesuffix('_nonnegative')}"
    if is_of_scalars(op, loop.ins[0] if loop.out.kind == "b" else loop.out):
        call = HostCall(name, partial(_on_scalars, function))
        return Node(ops.HOST, nodes, call, (), loop.out, None, caller())
    place = errstate.SourceLocation.like(caller(), name=name)
    return Node(op, nodes, loop, (), loop.out, None, place)


def _on_scalars(function: Callable[..., Any], *values: Array) -> Any:
    return function(*[value[()] for value in values])


def name_steps(name: str, nodes: Sequence[Node | None]) -> None:
    """Name nodes that are one NumPy operation: each floating-point exception is reported once."""
    first = nodes[0]
    if first is None or first.location is None:
        return
    place = errstate.SourceLocation.like(first.location, name=name)
    for node in nodes:
        if node is not None:
            node.location = place


# ------------------------------------------------------------------------------------- in place


def inplace(spec: Spec, self: ndarray, other: Any) -> Any:
    """`self op= other`, for any two."""
    assert spec.inplace is not None
    if SELECTIONS and (found := HOOKS.selection_inplace(spec, self, other)) is not None:
        return found
    if type(other) in (list, tuple):
        other = np.array(to_numpy(other))
    known = type(other) in PLAIN or type(other) in OURS or type(other) is np.ndarray
    if known and materialise(self) is None and not update(spec.op, self, other):
        return read_in_place(record_inplace, spec, self, other)
    function = None if known else override(other, spec.op.ufunc)
    if function is not None:
        return function(self, other, out=(self,))
    value = real_operand(other)
    real = writable(self)
    result = spec.inplace(real, value)
    return self if result is real else wrap(result)


def record_inplace(spec: Spec, self: ndarray, other: Any) -> Any:
    """Record an in-place operation on an array that is not eager."""
    assert spec.inplace is not None
    dtype = dtype_of(self)
    loop = loop_for(spec.op, (dtype, operand_key(other)))
    shape = geometry(self).shape
    op = _checked_power(self, other, loop) if loop and spec.op is _POWER else spec.op
    if op is None or loop is None or not _fits(self, other, loop, shape):
        if op is not None:
            spec.inplace(
                _meta_operand(self, shape), _meta_operand(other, shape_of(other))
            )  # raises
        spec.inplace(writable(self), real_operand(other))
        return self
    nodes = node_of(self), operand_node(other, loop.ins[1])
    node = self._node
    perm = node.perm if node is not None else keep_order(self._view)
    result = Node(op, nodes, loop, shape, loop.out, perm, caller())
    write_node(self, cast_node(root(result, other) if op is _POWER else result, dtype))
    return self


def _fits(self: ndarray, other: Any, loop: promotion.Loop, shape: tuple[int, ...]) -> bool:
    if not np.can_cast(loop.out, dtype_of(self), "same_kind"):
        return False
    if self._storage is not None and not self._view.flags.writeable:
        return False
    try:
        return broadcast(shape, shape_of(other)) == shape
    except ValueError:
        return False


# ---------------------------------------------------------------------------------------- unary


def unary(spec: Spec, self: ndarray) -> Any:
    """`op self` where the eager path does not apply."""
    if _is_number(spec.op, self):
        return spec.function(real_operand(self))
    if SELECTIONS and (found := HOOKS.selection_unary(spec.op, self)) is not None:
        return found
    if (value := concrete_value(self)) is not None and type(self) is ndarray:
        return wrap(spec.function(value))
    if value is not None or operation(spec.op, self):
        return wrap(spec.function(real_operand(self)))
    return read_in_stretch(record_unary, spec.op, self)


def record_unary(op: Op, self: ndarray) -> Any:
    """Record an elementwise operation of one operand."""
    keys = (dtype_of(self),)
    try:
        loop = promotion.resolve(op, keys)
    except TypeError:
        op.ufunc(_meta_operand(self, ()))
        raise
    perm = order_of(shape := shape_of(self), self)
    return from_node(Node(op, (node_of(self),), loop, shape, loop.out, perm, caller()))


# -------------------------------------------------------------------------------- special cases


def power_row(self: ndarray, exponent: Any) -> Op | None:
    """The row that replaces a power with a scalar exponent, as in NumPy's `fast_scalar_power`."""
    kind = type(exponent)
    if kind is int:
        if exponent == 2:
            return TABLE["square"] if SQUARES_BOOLEANS or dtype_of(self) != np.bool_ else None
        if exponent == -1 and dtype_of(self).kind in "fc":
            return TABLE["reciprocal"]
    elif kind is float and exponent == 0.5 and dtype_of(self).kind in "fc":
        return TABLE["sqrt"]
    return None


def power(spec: Spec, self: ndarray, exponent: Any, modulo: Any = None) -> Any:
    """`self ** exponent`."""
    if modulo is not None:
        return NotImplemented
    row = power_row(self, exponent) if type(self) is ndarray else None  # scalars have none
    if SELECTIONS and row is not None and (found := HOOKS.selection_unary(row, self)) is not None:
        return found
    if type(self) is not ndarray and dtype_of(self).kind == "b":
        return run_now(spec, self, exponent, False)  # not as an array of booleans
    if row is None:
        return binary(spec, self, exponent, False)
    if concrete_value(self) is not None or operation(row, self):
        return run_now(spec, self, exponent, False)  # NumPy's operator takes the same row
    return read_in_stretch(record_unary, row, self)


def inplace_power(spec: Spec, self: ndarray, exponent: Any) -> Any:
    """`self **= exponent`."""
    row = power_row(self, exponent)
    if row is None or concrete_value(self) is not None or update(spec.op, self, exponent):
        return inplace(spec, self, exponent)
    loop = promotion.resolve(row, (dtype_of(self),))
    if not _fits(self, exponent, loop, shape_of(self)):
        return inplace(spec, self, exponent)
    node = self._node
    perm = node.perm if node is not None else keep_order(self._view)
    where = caller()
    result = Node(row, (node_of(self),), loop, shape_of(self), loop.out, perm, where)
    del node
    write_node(self, cast_node(result, dtype_of(self)))
    return self


def divide_with_rest(self: ndarray, other: Any, swapped: bool) -> Any:
    """`divmod`: two operations where it is recorded."""
    known = type(other) in PLAIN or type(other) in OURS or type(other) is np.ndarray
    lazy = concrete_value(self) is None or (type(other) in OURS and concrete_value(other) is None)
    if known and lazy and _divides(self, other, swapped):
        quotient = binary(SPECS["floor_divide"], self, other, swapped)
        rest = binary(SPECS["remainder"], self, other, swapped)
        name = "scalar divmod" if are_scalars(self, other) else "divmod"
        name_steps(name, [getattr(each, "_node", None) for each in (quotient, rest)])
        return HOOKS.deliver_several((quotient, rest))
    if type(other) in (list, tuple):
        return divide_with_rest(self, np.array(to_numpy(other)), swapped)
    function = None if known else override(other, np.divmod)
    defers = not known and _defers(other, "__rdivmod__", swapped)
    if function is not None and not (defers and is_by_operator()):
        return function(other, self) if swapped else function(self, other)
    if defers:
        return NotImplemented
    name = "__rdivmod__" if swapped else "__divmod__"
    pair = getattr(np.ndarray, name)(np.asarray(real_operand(self)), real_operand(other))
    return pair if pair is NotImplemented else (wrap(pair[0]), wrap(pair[1]))


def _divides(self: ndarray, other: Any, swapped: bool) -> bool:
    """Whether `divmod` can be recorded as two operations."""
    keys = operand_key(self), operand_key(other)
    return loop_for(TABLE["floor_divide"], keys[::-1] if swapped else keys) is not None


_ARRAY_LIKE = ("__len__", "shape", "__array_ufunc__")


def contract(self: ndarray, other: Any, swapped: bool = False) -> Any:
    """`self @ other`; the functions of linear algebra set what it calls (see `set_matmul`)."""
    known = type(other) in OURS or type(other) in PLAIN or type(other) is np.ndarray
    defers = not known and _defers(other, "__rmatmul__", swapped)
    if defers and (override(other, np.matmul) is None or is_by_operator()):
        return NotImplemented
    if _knows_better(other):
        name = "__rmatmul__" if swapped else "__matmul__"
        return wrap(getattr(np.ndarray, name)(np.asarray(real_operand(self)), other))
    if type(other) in PLAIN or not any(hasattr(other, name) for name in _ARRAY_LIKE):
        name = "__rmatmul__" if swapped else "__matmul__"
        return getattr(np.ndarray, name)(
            _meta_operand(self, (1,) * min(1, len(shape_of(self)))), other
        )
    return _matmul(other, self) if swapped else _matmul(self, other)


def _knows_better(other: Any) -> bool:
    """Whether `other` may do the work: subclasses, and sparse matrices by their priority."""
    kind = type(other)
    if kind in OURS or kind in (np.ndarray, list, tuple) or not hasattr(other, "shape"):
        return False
    return kind not in PLAIN and override(other, np.matmul) is None


def contract_in_place(self: ndarray, other: Any) -> Any:
    """`self @= other`."""
    known = type(other) in PLAIN or type(other) in OURS or type(other) is np.ndarray
    function: Any = None if known else override(other, np.matmul)
    if function is not None:
        own = (-2, -1) if len(shape_of(self)) > 1 else (-1,)
        axes = [own, (-2, -1), own]
        return function(self, other, axes=axes, out=(self,))
    real = writable(self)
    function = operator.imatmul
    result = function(real, real_operand(other))
    return self if result is real else wrap(result)


def _numpy_matmul(first: Any, second: Any) -> Any:
    return wrap(np.matmul(real_operand(first), real_operand(second)))


_matmul: Callable[[Any, Any], Any] = _numpy_matmul


def set_matmul(function: Callable[[Any, Any], Any]) -> None:
    """Set the function that `@` calls."""
    global _matmul
    _matmul = function


SPECS: dict[str, Spec] = {
    op.name: Spec(op) for op in dict.fromkeys(TABLE.values()) if op.dunders and op.kind == "map"
}
