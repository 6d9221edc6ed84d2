"""The eager path of NumPy's functions: on eager arrays, plain values, and lists of both.

Owns what is plain. `eager_table.py` lists the functions. The native extension checks and calls
(native/arrays/functions.c); without it our functions, which take all arguments, are called.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from lazyfuse.arrays.base import COMPILED, NATIVE, OPTIONS, direct
from lazyfuse.arrays.conversion import from_numpy
from lazyfuse.arrays.nodes import PLAIN

SIMPLE: Final[Any] = frozenset(
    (int, float, complex, bool, type(None), str, type, type(np.dtype("f8")))
) | {type(np.dtype(char)) for char in "?bhilqBHILQefdgFDG"}
"""Types that a call may hold besides arrays: none can contain an array of ours."""

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


def method(theirs: Any, ours: Any, writes: bool = False) -> Any:
    """A method: NumPy's on eager arrays, ours on the others.

    `writes`: it changes the array; C then gives it no parts of blocks.
    """
    return NATIVE.method(theirs, ours, writes) if COMPILED else ours


def first_array(theirs: Any, ours: Any, most: int, keywords: Any) -> Any:
    """A function of one array and plain values; `theirs` is the method of that name.

    `most`: how many positional arguments, and `keywords`: which keywords mean the same to both.
    """
    return NATIVE.first_array(theirs, ours, most, keywords) if COMPILED else ours


def any_arrays(
    theirs: Any, ours: Any, spreads: bool, views: bool, most: int, writes: bool = False
) -> Any:
    """A function of arrays and of lists of arrays, with at most `most` positional arguments.

    `spreads`: it broadcasts its operands, so that a row and a column may give a large result.
    `views`: its result may be an operand, or a view of one.
    """
    if not COMPILED:
        return ours
    return NATIVE.any_arrays(theirs, ours, spreads, views, most, writes)


def followed(theirs: Any, ours: Any) -> Any:
    """A function whose calls C only follows (steps.py)."""
    return NATIVE.followed(theirs, ours) if COMPILED else ours


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


if COMPILED:
    NATIVE.bind("simple", SIMPLE | PLAIN)
    NATIVE.bind("adopted", from_numpy)
