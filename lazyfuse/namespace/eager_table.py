"""The eager path: functions and methods on small arrays call NumPy directly.

Owns the table of these functions, with what each calls: often the method behind NumPy's function,
or its implementation without the dispatch to overriding objects. eager_functions.py makes the
calls. Other arguments go to our function, which records. Importing this module installs the
checks.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from lazyfuse import config
from lazyfuse.arrays import base
from lazyfuse.arrays.conversion import register_paired
from lazyfuse.arrays.eager_functions import (
    MOST,
    any_arrays,
    counted,
    created,
    first_array,
    listed,
    method,
)
from lazyfuse.arrays.ndarray import ndarray, snapshot, storage_of
from lazyfuse.devices import caches
from lazyfuse.namespace import numpy_modules, small_programs, steps
from lazyfuse.registry import EAGER
from lazyfuse.runtime.events import numpy_calls
from lazyfuse.runtime.scheduling import fresh

Real = np.ndarray

# Reductions and similar methods: their results are never larger than their operands.
METHODS = (
    "sum", "prod", "min", "max", "any", "all", "mean", "var", "std", "argmin", "argmax",
    "cumsum", "cumprod", "argsort", "round", "searchsorted", "trace", "clip", "nonzero",
    "repeat", "item", "copy", "flatten", "tolist", "astype", "fill",
)  # fmt: skip


# Those that write to the array.
WRITTEN = ("fill",)
# Methods that give views: only in C, since in Python the check costs as much as it saves.
VIEWED = ("ravel", "reshape", "squeeze", "swapaxes", "transpose") if base.COMPILED else ()


def _copied(a: Any, order: Any = "K") -> Any:
    return a.copy(order)


def _sorted(a: Any, axis: Any = -1) -> Any:
    """As `numpy.sort`."""
    if axis is None:
        a = a.flatten()
        axis = -1
    else:
        a = a.copy("K")
    a.sort(axis)
    return a


def _flattened(a: Any, order: Any = "C") -> Any:
    return a.ravel(order)


_REDUCED = ("axis", "keepdims")
# Functions of one array that NumPy's methods serve: the method, and the positional arguments (how
# many at most) and keywords that mean the same to both.
BY_METHOD: dict[str, tuple[Callable[..., Any], int, tuple[str, ...]]] = {
    **{name: (getattr(Real, name), 2, (*_REDUCED, "dtype")) for name in ("sum", "prod", "mean")},
    **{name: (getattr(Real, name), 2, _REDUCED) for name in ("min", "max", "any", "all")},
    **{name: (getattr(Real, name), 2, _REDUCED) for name in ("argmin", "argmax")},
    **{name: (getattr(Real, name), 2, (*_REDUCED, "dtype", "ddof")) for name in ("var", "std")},
    **{name: (getattr(Real, name), 2, ("axis", "dtype")) for name in ("cumsum", "cumprod")},
    "amax": (Real.max, 2, _REDUCED),
    "amin": (Real.min, 2, _REDUCED),
    "argsort": (Real.argsort, 2, ("axis",)),
    "ascontiguousarray": (np.ascontiguousarray, 1, ()),
    "asfortranarray": (np.asfortranarray, 1, ()),
    "sort": (_sorted, 2, ("axis",)),
    "copy": (_copied, 2, ("order",)),
    "diagonal": (Real.diagonal, 4, ("offset", "axis1", "axis2")),
    "imag": (operator.attrgetter("imag"), 1, ()),
    "ndim": (operator.attrgetter("ndim"), 1, ()),
    "nonzero": (Real.nonzero, 1, ()),
    "ravel": (_flattened, 2, ("order",)),
    "real": (operator.attrgetter("real"), 1, ()),
    "reshape": (Real.reshape, 2, ()),
    "round": (Real.round, 2, ("decimals",)),
    "shape": (operator.attrgetter("shape"), 1, ()),
    "size": (operator.attrgetter("size"), 1, ()),
    "squeeze": (Real.squeeze, 2, ("axis",)),
    "swapaxes": (Real.swapaxes, 3, ()),
    "trace": (Real.trace, 4, ("offset", "axis1", "axis2", "dtype")),
    "transpose": (Real.transpose, 2, ()),
}
# Functions that others serve in less time: a method of the first array, which refuses what is none,
# or one of ours on NumPy's arrays.
SERVED: dict[str, Callable[..., Any]] = {
    "searchsorted": Real.searchsorted,
    "take": Real.take,
    "repeat": Real.repeat,
}

# How NumPy's functions take small arrays, if no function of ours states it (registry.implements):
# functions without one, and those of numpy.linalg.
ARRAYS = (
    "argpartition convolve correlate delete diagflat ediff1d gradient i0 intersect1d isin "
    "nanargmax nanargmin nancumprod nancumsum nanmedian partition percentile polyfit quantile "
    "setdiff1d setxor1d tile union1d"
).split()
VIEWS = ("diag", "einsum", "real_if_close", "trim_zeros")
BROADCAST = ("nanquantile",)
CREATED = ("eye", "identity")
LINALG = (
    "cholesky cond det eig eigh eigvals eigvalsh inv lstsq matrix_norm matrix_rank multi_dot norm "
    "pinv qr slogdet solve svd vector_norm"
).split()
LINALG_VIEWS = ("matrix_power",)


def _bare(theirs: Any) -> Any:
    """NumPy's function without the dispatch to arguments that override it."""
    return getattr(theirs, "_implementation", theirs)


def _note(theirs: Any, make: Callable[[Any, Any], Any]) -> None:
    """Register how the eager call is made of NumPy's function and ours, if this NumPy has it."""
    if theirs is not None and not isinstance(theirs, (type, np.ufunc)):
        numpy_modules.makers[theirs] = functools.partial(make, theirs)


def _first(quick: Any, most: int, keywords: tuple[str, ...]) -> Callable[[Any, Any], Any]:
    return lambda theirs, ours: first_array(quick, ours, most, frozenset(keywords))


def _before_out(theirs: Any, ours: Any) -> int:
    """The number of positional arguments before `out`, which the eager path does not take."""
    own = getattr(ours, "func", ours)
    names = _positional(inspect.unwrap(theirs)) or _positional(getattr(own, "recorded", own))
    return names.index("out") if "out" in names else MOST


def _positional(function: Any) -> tuple[str, ...]:
    """The names of positional parameters, as far as they are known. `inspect.signature` takes five
    milliseconds for the first function in C, to compile the regular expressions of a tokeniser.
    """
    code = getattr(function, "__code__", None)
    if code is not None:
        return tuple(code.co_varnames[: code.co_argcount])
    text = (getattr(function, "__text_signature__", None) or "").partition("*")[0]
    names = [each.partition("=")[0].strip("( )") for each in text.split(",")]
    return tuple([each for each in names if each.isidentifier()])


def _any(broadcasts: bool, views: bool, writes: bool = False) -> Callable[[Any, Any], Any]:
    def make(theirs: Any, ours: Any) -> Any:
        most = _before_out(theirs, ours)
        return any_arrays(_bare(theirs), ours, broadcasts, views, most, writes)

    return make


KINDS: dict[str, Callable[[Any, Any], Any]] = {
    "arrays": _any(False, False),
    "views": _any(False, True),
    "broadcast": _any(True, False),
    "target": _any(False, False, True),
    "created": created,
}
"""How the eager call is made for a function of each kind: see registry.implements."""


def _served(quick: Any) -> Callable[[Any, Any], Any]:
    return lambda theirs, ours: any_arrays(quick, ours, False, False, _before_out(theirs, ours))


def _install() -> None:
    if base.COMPILED:
        register_paired(base.NATIVE.Quick)
        base.NATIVE.bind("traced", lambda *call: steps.traced(*call))
        base.NATIVE.bind("small_program", lambda *call: small_programs.program(*call))
        base.NATIVE.bind("is_same", lambda *pair: small_programs.is_same(*pair))
        base.NATIVE.bind("storage_of", storage_of)
        base.NATIVE.bind("snapshot", snapshot)
        base.NATIVE.bind("plain_node", lambda *node: fresh.one(*node))
        base.NATIVE.bind("called_name", steps.called_name)
        base.NATIVE.bind("calls_counted", numpy_calls.begin)
        base.NATIVE.bind("numpys_item", operator.getitem)
        base.NATIVE.bind("numpys_matmul", np.matmul)
        config.on_any_change(lambda _: base.NATIVE.steps_forget())
        config.on_change("tape_after", base.NATIVE.steps_after)
        count = base.NATIVE.steps_count
        caches.register("namespace.steps", lambda: count()[0], 4096, base.NATIVE.steps_forget)
    for name in (*METHODS, *VIEWED):
        theirs, ours = getattr(Real, name, None), getattr(ndarray, name, None)
        if theirs is not None and ours is not None:
            made: Any = functools.update_wrapper(method(theirs, ours, name in WRITTEN), ours)
            made.__wrapped__ = theirs  # its signature is shown
            setattr(ndarray, name, made)
    said = {"arrays": ARRAYS, "views": VIEWS, "broadcast": BROADCAST, "created": CREATED}
    for kind, names in said.items():
        for name in names:
            _note(getattr(np, name, None), KINDS[kind])
    for theirs, kind in EAGER.items():
        _note(theirs, KINDS[kind])
    for name in LINALG:
        _note(getattr(np.linalg, name, None), KINDS["arrays"])
    for name in LINALG_VIEWS:
        _note(getattr(np.linalg, name, None), KINDS["views"])
    for name, given in BY_METHOD.items():
        _note(getattr(np, name, None), _first(*given))
    for name, quick in SERVED.items():
        _note(getattr(np, name, None), _served(quick))
    _note(np.arange, counted)
    _note(np.array, listed)


_install()
