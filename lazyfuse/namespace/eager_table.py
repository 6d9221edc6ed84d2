"""Functions and methods on small arrays go straight to NumPy.

Owns which functions are called so, and with what of NumPy's: often the method behind a function, or
its implementation without the question whether anybody overrides it. The calls themselves are
eager_functions.py's. What is not so simple goes to the function that knows how to record it.
Importing this module puts the checks in place.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from lazyfuse.arrays import base
from lazyfuse.arrays.eager_functions import (
    ABOVE,
    any_arrays,
    counted,
    created,
    first_array,
    listed,
    method,
)
from lazyfuse.arrays.ndarray import ndarray, wrap
from lazyfuse.functions.joining import rolled
from lazyfuse.interop import conversion, fallback
from lazyfuse.namespace import numpy_modules
from lazyfuse.registry import OURS, THEIRS, as_builtin

Real = np.ndarray

# Reductions and the like: their results are never bigger than what goes in.
METHODS = (
    "sum", "prod", "min", "max", "any", "all", "mean", "var", "std", "argmin", "argmax",
    "cumsum", "cumprod", "argsort", "round", "searchsorted", "ptp", "trace", "clip", "nonzero",
    "repeat", "item", "copy", "flatten", "tolist", "astype", "fill",
)  # fmt: skip


# Methods that give views: in C, since Python's own ways to them are as quick as asking first.
VIEWED = ("ravel", "reshape", "squeeze", "swapaxes", "transpose") if base.COMPILED else ()


def _copied(a: Any, order: Any = "K") -> Any:
    return a.copy(order)


def _sorted(a: Any, axis: Any = -1) -> Any:
    """As `numpy.sort` does it."""
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
# Functions of one array that NumPy's methods serve: what is called, the most positional arguments
# that mean the same to both, the keywords that do.
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
# Functions of ours on numpy arrays that take less than NumPy's.
REPLACED: dict[str, Callable[..., Any]] = {"roll": rolled}
# Functions of several arrays that a method of the first serves, given nothing by keyword.
METHOD_OF_FIRST: dict[str, Callable[..., Any]] = {
    "searchsorted": Real.searchsorted,
    "take": Real.take,
    "repeat": Real.repeat,
}

# Functions of arrays that are not broadcast against each other.
ARRAYS = (
    "append argpartition argwhere around array_equal array_equiv array_split atleast_1d atleast_2d "
    "atleast_3d average bincount broadcast_to column_stack compress concat concatenate convolve "
    "corrcoef correlate count_nonzero cov delete diag diagflat diff digitize dot dsplit dstack "
    "ediff1d expand_dims extract fix flatnonzero flip fliplr flipud gradient histogram hsplit "
    "hstack i0 inner intersect1d interp isin lexsort median moveaxis nanmax nanmean nanmedian "
    "nanmin nanstd nansum nanvar nan_to_num outer partition percentile polyfit polyval ptp "
    "quantile real_if_close rollaxis rot90 setdiff1d setxor1d sinc split stack tensordot tile "
    "trapezoid tril trim_zeros triu union1d unique unwrap vander vdot vsplit vstack kron angle "
    "nancumsum nancumprod nanprod nanargmax nanargmin matrix_transpose copyto"
).split()
# Functions whose operands are: thin ones may give an array that is to be recorded.
SPREAD = ("where", "clip", "isclose", "allclose", "select", "cross", "nanquantile")
# Of all these, the functions whose results may look at the memory of their operands.
VIEWS = frozenset(
    "array_split atleast_1d atleast_2d atleast_3d broadcast_to diag diff dsplit expand_dims flip "
    "fliplr flipud hsplit matrix_power matrix_transpose moveaxis nan_to_num real_if_close rollaxis "
    "rot90 split trim_zeros unwrap vsplit".split()
)
# Where `out` stands among the arguments of those that take it by position: not quick.
OUT = {
    "fix": 1,
    **dict.fromkeys(("around", "concat", "concatenate", "dot", "median", "nanargmax"), 2),
    **dict.fromkeys(("nanargmin", "nanmax", "nanmedian", "nanmin", "outer", "ptp", "stack"), 2),
    **dict.fromkeys(("clip", "compress", "nancumprod", "nancumsum", "nanmean", "nanprod"), 3),
    **dict.fromkeys(("nanquantile", "nanstd", "nansum", "nanvar", "percentile"), 3),
    **dict.fromkeys(("quantile", "take"), 3),
}
MOST = 16
LINALG = (
    "cholesky cond det eig eigh eigvals eigvalsh inv lstsq matrix_norm matrix_power matrix_rank "
    "multi_dot norm pinv qr slogdet solve svd vector_norm"
).split()
LIKE = ("empty_like", "zeros_like", "ones_like", "full_like")
CREATED = ("empty", "zeros", "ones", "full", "eye", "identity")


def _put(theirs: Any, ours: Any, call: Any) -> Any:
    """Put `call`, which asks what it was given first, in the place of our function."""
    made = as_builtin(functools.update_wrapper(call, ours), theirs)
    names = [name for name, value in list(OURS.items()) if value is ours]
    for name in (*names, theirs):  # all of NumPy's functions that ours stands for
        OURS[name] = made
        _makers.pop(name, None)
    THEIRS[made] = theirs
    return made


def _of_first(quick: Any, ours: Any) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs or not args or type(args[0]) is not ndarray:
            return ours(*args, **kwargs)
        return quick(*args)

    return call


def _bare(theirs: Any) -> Any:
    """NumPy's function without the question whether an argument overrides it."""
    return getattr(theirs, "_implementation", theirs)


_makers: dict[Any, Callable[[Any], Any]] = {}
"""NumPy's function -> what makes the quick call of ours, when it is first asked for."""


def quicken(theirs: Any, ours: Any) -> Any:
    """What stands for NumPy's function: `ours`, or the quick call in front of it."""
    try:
        make = _makers.get(theirs)
    except TypeError:  # not hashable: a constant
        return ours
    if make is None or isinstance(ours, type):
        return ours
    return _put(theirs, ours, make(ours))


def _note(home: Any, name: str, make: Callable[[Any, Any], Any]) -> None:
    """Say how the quick call is made of NumPy's function and ours, where this NumPy has it."""
    theirs = getattr(home, name, None)
    if theirs is not None and not isinstance(theirs, (type, np.ufunc)):
        _makers[theirs] = functools.partial(make, theirs)


def _first(quick: Any, most: int, keywords: tuple[str, ...]) -> Callable[[Any, Any], Any]:
    return lambda theirs, ours: first_array(quick, ours, most, frozenset(keywords))


def _any(name: str, spreads: bool) -> Callable[[Any, Any], Any]:
    views, most = name in VIEWS, OUT.get(name, MOST)
    return lambda theirs, ours: any_arrays(_bare(theirs), ours, spreads, views, most)


def _replaced(quick: Any) -> Callable[[Any, Any], Any]:
    return lambda theirs, ours: any_arrays(quick, ours, False, False, MOST)


def _method_of_first(name: str, quick: Any) -> Callable[[Any, Any], Any]:
    most = OUT.get(name, MOST)
    return lambda theirs, ours: _of_first(any_arrays(quick, ours, False, False, most), ours)


def _install() -> None:
    if base.COMPILED:
        fallback.register_type(base.NATIVE.Quick)
        conversion.register_type(base.NATIVE.Quick)
    ABOVE.wrap = wrap
    ABOVE.from_numpy = fallback.from_numpy
    for name in (*METHODS, *VIEWED):
        theirs, ours = getattr(Real, name, None), getattr(ndarray, name, None)
        if theirs is not None and ours is not None:
            made: Any = functools.update_wrapper(method(theirs, ours), ours)
            made.__wrapped__ = theirs  # whose signature is shown
            setattr(ndarray, name, made)
    for name in (*ARRAYS, *LIKE):
        _note(np, name, _any(name, False))
    for name in SPREAD:
        _note(np, name, _any(name, True))
    for name, quick in REPLACED.items():
        _note(np, name, _replaced(quick))
    for name in LINALG:
        _note(np.linalg, name, _any(name, False))
    for name, given in BY_METHOD.items():
        _note(np, name, _first(*given))
    for name, quick in METHOD_OF_FIRST.items():
        _note(np, name, _method_of_first(name, quick))
    for name in CREATED:
        _note(np, name, created)
    _note(np, "arange", counted)
    _note(np, "array", listed)
    numpy_modules.quicken = quicken


_install()
