"""The shortest ways through an array: its slots, and what is quick on operands that are direct.

Owns `Core`, the base of `ndarray`, with the operators and indexing of small arrays. Everything that
is not quick goes to the functions that operators.py, indexing.py and methods.py put in.

mypyc compiles this module, beside.py and the quick_*.py where lazyfuse is installed with a C
compiler (setup.py); the same text runs as it stands elsewhere. So they never ask
`isinstance(x, ndarray)`, whose answer depends on the frame that asks, count no references, and
find the user's line by `caller`, which tells frames by their package: compiled functions have none.
Without a compiler the operators of fastpath.py, printed with all names bound, replace those here.
"""

from __future__ import annotations

import operator
from types import EllipsisType
from typing import Any, Final

import numpy as np

from lazyfuse import config, errstate, evaluate
from lazyfuse.beside import NUMBERS, PLAIN, STRONG, WEAK, constant, number
from lazyfuse.codegen.graph import Node
from lazyfuse.nodes import caller

try:
    from mypy_extensions import mypyc_attr
except ImportError:  # mypyc reads it; to Python it is nothing

    def mypyc_attr(**traits: Any) -> Any:  # type: ignore[misc]
        """As in `mypy_extensions`."""
        return lambda kind: kind


REAL: Final[Any] = np.ndarray
ASARRAY: Final[Any] = np.asarray
OPTIONS: Final[Any] = config.options
NOTE: Final[Any] = evaluate.note_recorded

BASIC: Final[Any] = frozenset((int, slice, EllipsisType, type(None)))
"""The types of keys, and of what tuples hold, that give views or elements."""


class Bindings:
    """What the modules above put in: the array type, and what is not quick."""

    __slots__ = (
        "array",
        "del_item",
        "dtype",
        "geometry",
        "get_item",
        "length",
        "matmul",
        "plain",
        "power",
        "set_item",
        "shape",
        "transposed",
        "wrap",
    )

    def __init__(self) -> None:
        self.array: Any = None  # `ndarray`, once it is there
        self.plain: bool = True  # whether NumPy's floating-point error state is its default
        self.get_item: Any = None
        self.set_item: Any = None
        self.del_item: Any = None
        self.length: Any = None
        self.matmul: Any = None
        self.power: Any = None
        self.dtype: Any = None
        self.geometry: Any = None
        self.shape: Any = None
        self.transposed: Any = None
        self.wrap: Any = None


SLOW: Final = Bindings()

# ------------------------------------------------------------------------------------ operators


class Operator:
    """One operator: NumPy's function for two arrays, for an array and a number, and our own."""

    __slots__ = ("both", "call", "loops", "op", "slow", "slow_inplace", "spec")

    def __init__(self, name: str, both: Any = None) -> None:
        self.call: Any = getattr(np, name)
        self.both: Any = both if both is not None else self.call
        self.loops: dict[Any, Any] = {}
        self.op: Any = None
        self.spec: Any = None
        self.slow: Any = None
        self.slow_inplace: Any = None


OPERATORS: Final[dict[str, Operator]] = {}
"""By the name of the row of the op table: what operators.py completes."""


def _operator(name: str, both: Any = None) -> Operator:
    made = OPERATORS[name] = Operator(name, both)
    return made


ADD: Final = _operator("add")
SUBTRACT: Final = _operator("subtract")
MULTIPLY: Final = _operator("multiply")
DIVIDE: Final = _operator("divide")
FLOOR_DIVIDE: Final = _operator("floor_divide")
REMAINDER: Final = _operator("remainder")
BITWISE_AND: Final = _operator("bitwise_and")
BITWISE_OR: Final = _operator("bitwise_or")
BITWISE_XOR: Final = _operator("bitwise_xor")
LEFT_SHIFT: Final = _operator("left_shift")
RIGHT_SHIFT: Final = _operator("right_shift")
# comparisons of two arrays are more than their ufuncs: records, dtypes that cannot be compared
EQUAL: Final = _operator("equal", operator.eq)
NOT_EQUAL: Final = _operator("not_equal", operator.ne)
LESS: Final = _operator("less", operator.lt)
LESS_EQUAL: Final = _operator("less_equal", operator.le)
GREATER: Final = _operator("greater", operator.gt)
GREATER_EQUAL: Final = _operator("greater_equal", operator.ge)
NEGATIVE: Final = _operator("negative")
POSITIVE: Final = _operator("positive", operator.pos)
ABSOLUTE: Final = _operator("absolute")
INVERT: Final = _operator("invert")


@mypyc_attr(allow_interpreted_subclasses=True)
class Core:
    """The slots of an array (array.py says what they hold) and its quick methods."""

    __slots__ = (
        "_base",
        "_deferred",
        "_layout",
        "_node",
        "_picks",
        "_reals",
        "_small",
        "_storage",
        "_thin",
        "_ticket",
        "_view",
    )

    _base: Any  # the array that a view was made from
    _deferred: Any  # of a selection whose size nobody has asked for, else not set: deferred.py
    _layout: Any  # of a view on a storage: its graph.Layout, once asked for
    _node: Any
    _picks: Any  # of an array that is alone: how often an element was read while it was pending
    _reals: Any
    _small: Any
    _storage: Any
    _ticket: Any
    _thin: bool  # direct, but not for the quick ways: may broadcast to something big
    _view: Any

    def __new__(cls) -> Core:
        return super().__new__(cls)

    def __getitem__(self, key: Any) -> Any:
        small = self._small
        if small is not None:
            if is_basic(key):
                if not self._thin or small.dtype in NUMBERS:
                    value = small[key]
                    if type(value) is not REAL:
                        return value
                    x = Core.__new__(SLOW.array)
                    x._small = value
                    x._node = None
                    x._storage = None
                    base = self._base
                    x._base = self if base is None else base
                    if self._thin:
                        x._thin = is_thin(value)
                    else:
                        x._thin = value.ndim > 1 and 1 in value.shape
                    return x
            elif type(key) is SLOW.array and small.dtype in NUMBERS:
                chosen: Core = key
                where = chosen._small
                if where is not None and where.ndim and where.size < OPTIONS.eager_below:
                    value = small[where]
                    return direct(value) if value.size < OPTIONS.eager_below else SLOW.wrap(value)
        return SLOW.get_item(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        small = self._small
        if small is not None and is_basic(key):
            if type(value) in PLAIN:
                small[key] = value
                return
            if type(value) is SLOW.array and small.dtype in NUMBERS:
                other: Core = value
                right = other._small
                if right is not None:
                    small[key] = right
                    return
        SLOW.set_item(self, key, value)

    def __delitem__(self, key: Any) -> None:
        SLOW.del_item(self, key)

    def __len__(self) -> int:
        small = self._small
        return len(small) if small is not None else SLOW.length(self)

    def __add__(self, other: Any) -> Any:
        return _binary(ADD, self, other, False)

    def __radd__(self, other: Any) -> Any:
        return _binary(ADD, self, other, True)

    def __iadd__(self, other: Any) -> Any:
        return _inplace(ADD, self, other)

    def __sub__(self, other: Any) -> Any:
        return _binary(SUBTRACT, self, other, False)

    def __rsub__(self, other: Any) -> Any:
        return _binary(SUBTRACT, self, other, True)

    def __isub__(self, other: Any) -> Any:
        return _inplace(SUBTRACT, self, other)

    def __mul__(self, other: Any) -> Any:
        return _binary(MULTIPLY, self, other, False)

    def __rmul__(self, other: Any) -> Any:
        return _binary(MULTIPLY, self, other, True)

    def __imul__(self, other: Any) -> Any:
        return _inplace(MULTIPLY, self, other)

    def __truediv__(self, other: Any) -> Any:
        return _binary(DIVIDE, self, other, False)

    def __rtruediv__(self, other: Any) -> Any:
        return _binary(DIVIDE, self, other, True)

    def __itruediv__(self, other: Any) -> Any:
        return _inplace(DIVIDE, self, other)

    def __floordiv__(self, other: Any) -> Any:
        return _binary(FLOOR_DIVIDE, self, other, False)

    def __rfloordiv__(self, other: Any) -> Any:
        return _binary(FLOOR_DIVIDE, self, other, True)

    def __ifloordiv__(self, other: Any) -> Any:
        return _inplace(FLOOR_DIVIDE, self, other)

    def __mod__(self, other: Any) -> Any:
        return _binary(REMAINDER, self, other, False)

    def __rmod__(self, other: Any) -> Any:
        return _binary(REMAINDER, self, other, True)

    def __imod__(self, other: Any) -> Any:
        return _inplace(REMAINDER, self, other)

    def __and__(self, other: Any) -> Any:
        return _binary(BITWISE_AND, self, other, False)

    def __rand__(self, other: Any) -> Any:
        return _binary(BITWISE_AND, self, other, True)

    def __iand__(self, other: Any) -> Any:
        return _inplace(BITWISE_AND, self, other)

    def __or__(self, other: Any) -> Any:
        return _binary(BITWISE_OR, self, other, False)

    def __ror__(self, other: Any) -> Any:
        return _binary(BITWISE_OR, self, other, True)

    def __ior__(self, other: Any) -> Any:
        return _inplace(BITWISE_OR, self, other)

    def __xor__(self, other: Any) -> Any:
        return _binary(BITWISE_XOR, self, other, False)

    def __rxor__(self, other: Any) -> Any:
        return _binary(BITWISE_XOR, self, other, True)

    def __ixor__(self, other: Any) -> Any:
        return _inplace(BITWISE_XOR, self, other)

    def __lshift__(self, other: Any) -> Any:
        return _binary(LEFT_SHIFT, self, other, False)

    def __rlshift__(self, other: Any) -> Any:
        return _binary(LEFT_SHIFT, self, other, True)

    def __ilshift__(self, other: Any) -> Any:
        return _inplace(LEFT_SHIFT, self, other)

    def __rshift__(self, other: Any) -> Any:
        return _binary(RIGHT_SHIFT, self, other, False)

    def __rrshift__(self, other: Any) -> Any:
        return _binary(RIGHT_SHIFT, self, other, True)

    def __irshift__(self, other: Any) -> Any:
        return _inplace(RIGHT_SHIFT, self, other)

    def __pow__(self, other: Any, modulo: Any = None) -> Any:
        small = self._small
        if small is not None and not self._thin and type(other) in PLAIN and modulo is None:
            return _placed(small**other)
        return SLOW.power(self, other, modulo, False)

    def __rpow__(self, other: Any) -> Any:
        return SLOW.power(self, other, None, True)

    def __matmul__(self, other: Any) -> Any:
        small = self._small
        if small is not None and type(other) is SLOW.array:
            second: Core = other
            right = second._small
            if right is not None and small.dtype in NUMBERS and right.dtype in NUMBERS:
                result = small @ right
                if type(result) is not REAL or result.size < OPTIONS.eager_below:
                    return direct(result) if type(result) is REAL else result
                return SLOW.wrap(result)
        return SLOW.matmul(self, other, False)

    def __rmatmul__(self, other: Any) -> Any:
        return SLOW.matmul(self, other, True)

    def __eq__(self, other: object) -> Any:
        return _binary(EQUAL, self, other, False)

    def __ne__(self, other: object) -> Any:
        return _binary(NOT_EQUAL, self, other, False)

    def __lt__(self, other: Any) -> Any:
        return _binary(LESS, self, other, False)

    def __le__(self, other: Any) -> Any:
        return _binary(LESS_EQUAL, self, other, False)

    def __gt__(self, other: Any) -> Any:
        return _binary(GREATER, self, other, False)

    def __ge__(self, other: Any) -> Any:
        return _binary(GREATER_EQUAL, self, other, False)

    def __neg__(self) -> Any:
        return _unary(NEGATIVE, self)

    def __pos__(self) -> Any:
        return _unary(POSITIVE, self)

    def __abs__(self) -> Any:
        return _unary(ABSOLUTE, self)

    def __invert__(self) -> Any:
        return _unary(INVERT, self)


def _placed(value: Any) -> Any:
    """A result of NumPy's that nobody else holds and that is not big, as ours."""
    if type(value) is not REAL:
        return value
    x = Core.__new__(SLOW.array)
    x._small = value
    x._node = None
    x._storage = None
    x._base = None
    x._thin = False
    return x


def is_basic(key: Any) -> bool:
    """Whether a key gives a view or an element: integers, slices, `...`, None, tuples of them."""
    kind = type(key)
    if kind is int or kind is slice:
        return True
    if kind is tuple:
        parts: tuple[Any, ...] = key
        for part in parts:
            kind = type(part)
            if kind is not int and kind is not slice and kind not in BASIC:
                return False
        return True
    return kind in BASIC


def _binary(o: Operator, self: Core, other: Any, swapped: bool) -> Any:
    """`self op other`, or the reverse."""
    small = self._small
    if small is not None:
        if not self._thin:
            kind = type(other)
            if kind is SLOW.array:
                second: Core = other
                right = second._small
                if right is not None and not second._thin:
                    both = o.both
                    return _placed(both(right, small) if swapped else both(small, right))
            elif kind is float or kind is int:
                right = number(small, other, kind)
                call = o.call
                return _placed(call(right, small) if swapped else call(small, right))
            elif kind in STRONG:  # NumPy takes longer to look at its own numbers than at arrays
                right = ASARRAY(other)
                call = o.call
                return _placed(call(right, small) if swapped else call(small, right))
            elif kind is complex:
                both = o.both
                return _placed(both(other, small) if swapped else both(small, other))
    else:
        found = _recorded(o, self, other, swapped)
        if found is not None:
            return found
    return o.slow(o.spec, self, other, swapped)


def _recorded(o: Operator, self: Core, other: Any, swapped: bool) -> Any:
    """The operation as recorded before, on plain recorded arrays; None for everything else."""
    node = self._node
    if node is None or not SLOW.plain or node.perm is not None:
        return None
    value = node.value
    if value is not None and value.size < OPTIONS.eager_below:
        return None
    shape = node.shape
    if not shape:
        return None
    kind = type(other)
    dtype = node.dtype
    if kind is SLOW.array:
        second: Core = other
        right = second._node
        if right is None or right.perm is not None or shape != right.shape:
            return None
        loop = o.loops.get((right.dtype, dtype) if swapped else (dtype, right.dtype))
        if loop is None:
            return None
    elif kind in WEAK:
        loop = o.loops.get((kind, dtype) if swapped else (dtype, kind))
        if loop is None:
            return None
        try:
            right = constant(other, loop.ins[0 if swapped else 1])
        except OverflowError:
            return None
    else:
        return None
    nodes = (right, node) if swapped else (node, right)
    made = Node(o.op, nodes, loop, shape, loop.out, None, caller())
    x = Core.__new__(SLOW.array)
    x._small = None
    x._storage = None
    x._base = None
    x._node = made
    NOTE(made)
    return x


def _inplace(o: Operator, self: Core, other: Any) -> Any:
    """`self op= other`."""
    small = self._small
    kind = type(other)
    if small is not None:
        if kind is SLOW.array:
            second: Core = other
            right = second._small
            if right is not None:
                o.call(small, right, small)
                return self
        elif kind is float or kind is int:
            o.call(small, number(small, other, kind), small)
            return self
        elif kind in PLAIN:
            o.call(small, other, small)
            return self
    elif _recorded_inplace(o, self, other, kind):
        return self
    return o.slow_inplace(o.spec, self, other)


def _recorded_inplace(o: Operator, self: Core, other: Any, kind: Any) -> bool:
    """Whether the operation was recorded as one met before."""
    node = self._node
    if node is None or not SLOW.plain:
        return False
    value = node.value
    if value is not None and value.size < OPTIONS.eager_below:
        return False
    dtype = node.dtype
    shape = node.shape
    if kind is SLOW.array:
        second: Core = other
        right = second._node
        if right is None or shape != right.shape:
            return False
        loop = o.loops.get((dtype, right.dtype))
        if loop is None or loop.out is not dtype:
            return False
    elif kind in WEAK:
        loop = o.loops.get((dtype, kind))
        if loop is None or loop.out is not dtype:
            return False
        right = constant(other, loop.ins[1])
    else:
        return False
    made = Node(o.op, (node, right), loop, shape, dtype, node.perm, caller())
    self._node = made
    NOTE(made)
    return True


def _unary(o: Operator, self: Core) -> Any:
    """`op self`."""
    small = self._small
    if small is not None and not self._thin:
        return _placed(o.both(small))
    return o.slow(o.spec, self)


# --------------------------------------------------------------------------------------- making


def direct(value: Any, base: Any = None) -> Any:
    """An array that runs everything at once on `value`, whoever else holds it."""
    x = Core.__new__(SLOW.array)
    x._small = value
    x._thin = is_thin(value)
    x._node = None
    x._storage = None
    x._base = base
    return x


def is_thin(value: Any) -> bool:
    """Whether an operation on a direct array might give, or already has, many elements."""
    size = value.size
    if size >= OPTIONS.eager_below:
        return True
    return value.ndim > 1 and size > 1 and 1 in value.shape


def alone(node: Any) -> Any:
    """An array whose values are those of `node`, in memory of its own."""
    x = Core.__new__(SLOW.array)
    x._small = None
    x._node = node
    x._storage = None
    x._base = None
    return x


COMPILED: Final = type(Core.__getitem__).__name__ != "function"
"""Whether this module runs as machine code."""

if not COMPILED:
    del Core.__new__  # `object` has the same one, and a quicker one


def _listen(plain: bool) -> None:
    SLOW.plain = plain


errstate.on_change(_listen)
