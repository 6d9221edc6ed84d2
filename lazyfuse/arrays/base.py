"""The array's base: its slots, how arrays are made, and the hooks that the modules above fill.

Where lazyfuse was installed with a C compiler (setup.py), native/arrays/array.c replaces what is
here. Files beside it have the operators and indexing of eager arrays, which eager_operators.py
and indexing.py have in Python; both behave the same. Functions in C have no frames and hold other
references. So none of them counts references or asks `isinstance(x, ndarray)`, whose answer depends
on the frame that asks.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lazyfuse import bootstrap, config
from lazyfuse.arrays.nodes import (
    CONSTANTS,
    INSIDE,
    PLAIN,
    STRONG,
    caller,
    constant,
)
from lazyfuse.arrays.storage import Storage
from lazyfuse.codegen.table import ops
from lazyfuse.devices.caches import memo
from lazyfuse.runtime.events import tracing
from lazyfuse.runtime.layout.meta_arrays import ORIGIN, meta_array
from lazyfuse.runtime.numerics import errstate
from lazyfuse.runtime.scheduling import evaluate

REAL: Final[Any] = np.ndarray
OPTIONS: Final[Any] = config.options
NOTE: Final[Any] = evaluate.note_recorded

NATIVE: Final[Any] = bootstrap.machine_code()
"""The module lazyfuse._native, or None."""

COMPILED: Final = NATIVE is not None
"""Whether the native extension replaces the classes and functions here."""


class Hooks:
    """Late-bound functions of the modules above: the array type, and the general paths.

    scalars.py fills it, once and completely.
    """

    array: Any  # `ndarray`
    scalar: Any  # the type of lazy scalars
    make_scalar: Any
    deliver: Any  # what the user gets for a lazy scalar
    deliver_several: Any  # for the results of one call
    wrap: Any
    wrap_shared: Any
    get_item: Any
    set_item: Any
    del_item: Any
    length: Any
    iterate: Any
    matmul: Any
    power: Any
    export: Any
    real: Any
    imag: Any
    dtype: Any
    shape: Any
    geometry: Any
    transposed: Any
    value_node: Any  # the assigned value as a node
    resolve: Any  # this and the four below: of dynamic-size selections
    selection_binary: Any
    selection_inplace: Any
    selection_shape: Any
    selection_unary: Any

    __slots__ = tuple(__annotations__)

    def fill(self, **parts: Any) -> None:
        """Set all hooks; the native extension gets those that it calls."""
        if parts.keys() != set(self.__slots__):
            raise TypeError(f"[arrays] bindings: {sorted({*parts} ^ set(self.__slots__))}")
        for name, value in parts.items():
            setattr(self, name, value)
            if COMPILED and name in _OF_NATIVE:
                NATIVE.bind(name, value)


_OF_NATIVE = frozenset(
    """del_item deliver dtype export geometry get_item imag iterate length matmul power real scalar
    set_item shape transposed wrap""".split()
)

HOOKS: Final = Hooks()


class Core:
    """The slots of an array: ndarray.py says what they hold."""

    __slots__ = (
        "_base",
        "_eager",
        "_layout",
        "_may_grow",
        "_node",
        "_picks",
        "_reals",
        "_selection",
        "_storage",
        "_ticket",
        "_view",
    )

    _base: Any  # the array that a view was made from
    _selection: Any  # of a dynamic-size selection, else not set: mask_selection.py
    _layout: Any  # of an aliased array: its graph.Layout, once computed
    _node: Any
    _picks: Any  # of an owned array: how often an element was read while it was pending
    _reals: Any
    _eager: Any
    _storage: Any
    _ticket: Any
    _may_grow: bool  # eager, but not for the eager path: may broadcast to a large result
    _view: Any

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """What `isinstance` reads where the type does not match: instance_checks.py says why."""
        asking = str(sys._getframe(1).f_globals.get("__name__"))
        return np.ndarray if asking.startswith("numpy.") else type(self)

    if TYPE_CHECKING:  # the modules above, or C, put these on `ndarray`

        def __getitem__(self, key: Any) -> Any: ...
        def __setitem__(self, key: Any, value: Any) -> None: ...
        def __len__(self) -> int: ...


# --------------------------------------------------------------------------------------- making


def direct(value: Any, base: Any = None) -> Any:
    """An eager array on `value`, which other code may hold, too."""
    x = new(HOOKS.array)
    x._eager = value
    x._may_grow = may_grow(value)
    x._node = None
    x._storage = None
    x._base = base
    return x


def may_grow(value: Any) -> bool:
    """Whether an eager array has many elements, or an operation on it may give many."""
    size = value.size
    if size >= OPTIONS.eager_below:
        return True
    return value.ndim > 1 and size > 1 and 1 in value.shape


def alone(node: Any) -> Any:
    """An owned array: the values of `node`, in memory of its own."""
    x = new(HOOKS.array)
    x._eager = None
    x._node = node
    x._storage = None
    x._base = None
    return x


def kept_real(x: Any, reals: dict[int, Any]) -> Any:
    """The real view of an aliased array that `reals`, a table of its block, keeps; or None."""
    return reals.get(x._ticket) if x._reals is reals else None


LOOPS: Final[dict[Any, Any]] = memo("arrays.base.loops", 1 << 14)
"""Loops found so far, by row and operand keys (recording.py); None: there is none."""

PIECES: Final[dict[Any, tuple[Any, Any]]] = memo("arrays.base.pieces", 64)
"""Rows and loops that give real (True: imaginary) parts, by dtype and side, found so far."""

REDUCTIONS: Final[dict[str, tuple[Any, Any]]] = {
    "all": (ops.TABLE["reduce:logical_and"], np.bool_),
    "any": (ops.TABLE["reduce:logical_or"], np.bool_),
    "argmax": (ops.TABLE["reduce:argmax"], None),
    "argmin": (ops.TABLE["reduce:argmin"], None),
    "max": (ops.TABLE["reduce:maximum"], None),
    "min": (ops.TABLE["reduce:minimum"], None),
    "prod": (ops.TABLE["reduce:multiply"], None),
    "sum": (ops.TABLE["reduce:add"], None),
}
"""The row that a one-step reduction method records, and the dtype that it requests."""

_DTYPES = sorted(map(np.dtype, "?bBhHiIlLqQfdgFD"), key=lambda each: each.num)
"""The plain dtypes by their numbers, which have no gaps."""


def loop_types(ufunc: Any) -> bytes | None:
    """How native/base/loops.c may call NumPy's loop for operands of each plain dtype: 0: never; 1:
    on all elements at once, as NumPy does; 2: on any part of them. Then how it reduces (0: not; 1:
    floats from where sums start; 2: from the first elements on), the exceptions that NumPy's loops
    of floats raise, and the name of the C library's function, if it has one. None: no map of the
    op table.
    """
    op = ops.BY_UFUNC.get(ufunc)
    if op is None or op.kind != "map":
        return None
    ways = bytes([0 if x.kind in op.refused else 1 + op.is_exact_in_numpy(x) for x in _DTYPES])
    raised = sum([errstate.BITS[each] for each in op.flags])
    sums = op.ordered and op.start == "zero"
    reduces = 1 if sums else 2 if op.start and not op.ordered else 0
    return ways + bytes([reduces, raised]) + op.library.encode()


new: Any = object.__new__
ARRAY_SLOTS: tuple[str, ...] = ("__weakref__",)
"""The slots that `ndarray` adds."""

if COMPILED:
    globals().update(
        {each: getattr(NATIVE, each) for each in "Core alone direct kept_real may_grow new".split()}
    )
    ARRAY_SLOTS = ()
    for _name, _value in {
        "caller": caller,
        "constant": constant,
        "constants": CONSTANTS,
        "error_bits": errstate.error_bits,
        "inside": INSIDE,
        "loop_types": loop_types,
        "meta": meta_array((), np.dtype(np.bool_), None),
        "note": NOTE,
        "options": OPTIONS,
        "origin": ORIGIN,
        "source_location": errstate.SourceLocation,
        "plain_numbers": PLAIN,
        "reductions": REDUCTIONS,
        "quiet": evaluate.quiet,
        "state": errstate.STATE,
        "storage": Storage,
        "strong": STRONG,
        "tracing": vars(tracing),
        "usual_state": errstate.DEFAULT,
        "view_op": ops.VIEW,
    }.items():
        NATIVE.bind(_name, _value)
    errstate.on_change(partial(NATIVE.bind, "plain"))
