"""The eager path of NumPy's functions: on eager arrays, plain values, and lists of both.

Owns the check that comes before everything else, and how results become ours. `eager_table.py`
lists the functions. In C: native/functions.c, for functions whose results are never views.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from lazyfuse.arrays.base import COMPILED, HOOKS, NATIVE, OPTIONS, direct
from lazyfuse.arrays.conversion import from_numpy
from lazyfuse.arrays.nodes import PLAIN

SIMPLE: Final[Any] = frozenset(
    (int, float, complex, bool, type(None), str, type, type(np.dtype("f8")))
) | {type(np.dtype(char)) for char in "?bhilqBHILQefdgFDG"}
"""Types that a call may hold besides arrays: none can contain an array of ours."""

LONGEST: Final = 64
"""The longest list whose items are looked at one by one."""

MOST: Final = 16
"""The most positional arguments that the eager path takes."""


def is_simple(value: Any) -> bool:
    """Whether an argument is plain: a value, a dtype, or a tuple of numbers and None."""
    kind = type(value)
    if kind in SIMPLE:
        return True
    if kind is tuple:
        for item in value:
            inner = type(item)
            if inner is not int and inner is not float and item is not None:
                return False
        return True
    return kind in PLAIN


def came_from_inside(error: BaseException) -> bool:
    """Whether code that the call ran raised the error, not NumPy's check of its arguments."""
    trace = error.__traceback__
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.endswith("eager_functions.py"):
            return True
        trace = trace.tb_next
    return False


def method(theirs: Any, ours: Any, writes: bool = False) -> Any:
    """A method: NumPy's on eager arrays, ours on the others.

    `writes`: it changes the array; C then gives it no parts of blocks.
    """
    if COMPILED:
        return NATIVE.method(theirs, ours, writes)
    return _of_one(any_arrays(theirs, ours, False, True, MOST), ours)


def first_array(theirs: Any, ours: Any, most: int, keywords: Any) -> Any:
    """A function of one array and plain values; `theirs` is the method of that name.

    `most`: how many positional arguments, and `keywords`: which keywords mean the same to both.
    """
    if COMPILED:
        return NATIVE.first_array(theirs, ours, most, keywords)
    return _of_one(any_arrays(theirs, ours, False, True, most), ours, keywords)


def _of_one(quick: Any, ours: Any, keywords: Any = None) -> Any:
    """`quick` where only the first argument is an array, and for these keywords (None: for all)."""

    def call(*args: Any, **kwargs: Any) -> Any:
        plain = args and type(args[0]) is HOOKS.array and all(map(is_simple, args[1:]))
        if plain and (keywords is None or keywords.issuperset(kwargs)):
            return quick(*args, **kwargs)
        return ours(*args, **kwargs)

    return call


def any_arrays(
    theirs: Any, ours: Any, spreads: bool, views: bool, most: int, writes: bool = False
) -> Any:
    """A function of arrays and of lists of arrays, with at most `most` positional arguments.

    `spreads`: it broadcasts its operands, so that a row and a column may give a large result.
    `views`: its result may be an operand, or a view of one.
    """
    if COMPILED:
        return NATIVE.any_arrays(theirs, ours, spreads, views, most, writes)

    def call(*args: Any, **kwargs: Any) -> Any:
        reals: list[Any] = []
        arrays: list[Any] = []
        plain = len(args) <= most and "device" not in kwargs  # NumPy knows the host alone
        plain = plain and all(map(is_simple, kwargs.values()))
        given = _given(args, spreads, reals, arrays) if plain else None
        if given is None or not reals:
            return ours(*args, **kwargs)
        try:
            result = theirs(*given, **kwargs)
        except TypeError as error:  # ours raises it with the function's text
            if came_from_inside(error):
                raise
            return ours(*args, **kwargs)
        return from_numpy(result, reals, arrays)

    return call


def _given(
    values: Any, spreads: bool, reals: list[Any], arrays: list[Any], listed: bool = False
) -> Any:
    """Arguments with NumPy arrays instead of ours, also in lists; None if there is anything else
    but plain values.
    """
    found: list[Any] = []
    for value in tuple(values):  # a finaliser or another thread may change a list meanwhile
        kind = type(value)
        if kind is HOOKS.array:
            small = value._eager
            if small is None or (spreads and value._may_grow):
                return None
            reals.append(small)
            arrays.append(value)
            value = small
        elif kind is list or kind is tuple:
            few = not listed and len(value) <= LONGEST
            items = _given(value, spreads, reals, arrays, True) if few else None
            if items is None:
                return None
            value = items if kind is list else tuple(items)
        elif not is_simple(value):
            return None
        found.append(value)
    return found


def created(theirs: Any, ours: Any) -> Any:
    """A function of a shape, and perhaps a number and a dtype: C makes small arrays at once."""
    return NATIVE.created(theirs, ours) if COMPILED else ours


def listed(theirs: Any, ours: Any) -> Any:
    """`array`: C makes it at once of a short list of plain numbers, or of an eager array."""
    return NATIVE.listed(theirs, ours) if COMPILED else ours


def counted(theirs: Any, ours: Any) -> Any:
    """`arange` of one or two plain numbers, if it gives few elements."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if not kwargs and 0 < len(args) < 3:
            low: Any = 0
            high: Any = args[0]
            if len(args) == 2:
                low = high
                high = args[1]
            kind = type(low)
            other = type(high)
            plain = (kind is int or kind is float) and (other is int or other is float)
            if plain and high - low < OPTIONS.eager_below:
                return direct(theirs(*args))
        return ours(*args, **kwargs)

    return call


GOVERNABLE = {"clip": 1, "mean": 1, "ptp": 2, "std": 4, "var": 4, "where": 1}
"""How many exact operations on all elements functions record, for the governor."""

if COMPILED:
    NATIVE.bind("simple", SIMPLE | PLAIN)
    NATIVE.bind("governable", GOVERNABLE)
    NATIVE.bind("adopted", from_numpy)
