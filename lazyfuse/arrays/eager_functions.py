"""The eager path of NumPy's functions: on eager arrays, plain values, and lists of both.

Owns the check that comes before everything else, and how results become ours. `eager_table.py`
lists the functions. In C: native/functions.c, for functions whose results are never views.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from lazyfuse.arrays.base import COMPILED, HOOKS, NATIVE, OPTIONS, REAL, Core, direct
from lazyfuse.arrays.conversion import from_numpy
from lazyfuse.arrays.ndarray import wrap
from lazyfuse.arrays.nodes import PLAIN

SIMPLE: Final[Any] = frozenset(
    (int, float, complex, bool, type(None), str, type, type(np.dtype("f8")))
) | {type(np.dtype(char)) for char in "?bhilqBHILQefdgFDG"}
"""Types that a call may hold besides arrays: none can contain an array of ours."""

LONGEST: Final = 64
"""The longest list whose items are looked at one by one."""


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


def several(results: Any) -> Any:
    """A tuple of NumPy's results as ours; they share no memory with the operands."""
    found = []
    for result in results:
        if type(result) is not REAL:
            found.append(result)
        elif result.size < OPTIONS.eager_below:
            found.append(direct(result))
        else:
            found.append(wrap(result))
    return tuple(found)


def method(theirs: Any, ours: Any, writes: bool = False) -> Any:
    """A method: NumPy's on eager arrays, ours on the others.

    `writes`: it changes the array; C then gives it no parts of blocks.
    """

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        core: Core = self
        small = core._eager
        if small is None:
            return ours(self, *args, **kwargs)
        if args:
            for value in args:
                if type(value) not in SIMPLE and not is_simple(value):
                    return ours(self, *args, **kwargs)
        if kwargs:
            for value in kwargs.values():
                if type(value) not in SIMPLE and not is_simple(value):
                    return ours(self, *args, **kwargs)
        try:
            result = theirs(small, *args, **kwargs) if kwargs else theirs(small, *args)
        except TypeError as error:  # ours raises it with the method's text
            if came_from_inside(error):
                raise
            return ours(self, *args, **kwargs)
        kind = type(result)
        if kind is REAL:
            if result.base is None and result is not small and result.size < OPTIONS.eager_below:
                return direct(result)
            return from_numpy(result, [small], [self])
        return several(result) if kind is tuple else result

    return call


def first_array(theirs: Any, ours: Any, most: int, keywords: Any) -> Any:
    """A function of one array and plain values; `theirs` is the method of that name.

    `most`: how many positional arguments, and `keywords`: which keywords mean the same to both.
    """
    array = HOOKS.array

    def call(*args: Any, **kwargs: Any) -> Any:
        count = len(args)
        if 0 < count <= most:
            first = args[0]
            if type(first) is array:
                core: Core = first
                small = core._eager
                if small is not None:
                    if kwargs:
                        for key, value in kwargs.items():
                            if key not in keywords or not is_simple(value):
                                return ours(*args, **kwargs)
                    for at in range(1, count):
                        value = args[at]
                        if type(value) not in SIMPLE and not is_simple(value):
                            return ours(*args, **kwargs)
                    try:
                        if kwargs or count > 1:
                            result = theirs(small, *args[1:], **kwargs)
                        else:
                            result = theirs(small)
                    except TypeError as error:  # ours raises it with the function's text
                        if came_from_inside(error):
                            raise
                        return ours(*args, **kwargs)
                    kind = type(result)
                    if kind is REAL:
                        if result.base is None and result is not small:
                            if result.size < OPTIONS.eager_below:
                                return direct(result)
                            return wrap(result)
                        return from_numpy(result, [small], [first])
                    return several(result) if kind is tuple else result
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
    array = HOOKS.array

    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) > most:
            return ours(*args, **kwargs)
        reals: list[Any] = []
        arrays: list[Any] = []
        given: list[Any] = []
        for value in args:
            kind = type(value)
            if kind is array:
                core: Core = value
                small = core._eager
                if small is None or (spreads and core._may_grow):
                    return ours(*args, **kwargs)
                given.append(small)
                reals.append(small)
                arrays.append(value)
            elif kind in SIMPLE:
                given.append(value)
            elif kind is list or kind is tuple:
                items = _items(value, spreads, reals, arrays)
                if items is None:
                    return ours(*args, **kwargs)
                given.append(items if kind is list else tuple(items))
            elif kind in PLAIN:
                given.append(value)
            else:
                return ours(*args, **kwargs)
        if not reals:
            return ours(*args, **kwargs)
        if kwargs:
            for key, value in kwargs.items():
                if key == "device" or not is_simple(value):  # NumPy knows the host alone
                    return ours(*args, **kwargs)
        try:
            count = len(given)
            if kwargs:
                result = theirs(*given, **kwargs)
            elif count == 1:  # written out: a call with a list is slower
                result = theirs(given[0])
            elif count == 2:
                result = theirs(given[0], given[1])
            elif count == 3:
                result = theirs(given[0], given[1], given[2])
            else:
                result = theirs(*given)
        except TypeError as error:  # ours raises it with the function's text
            if came_from_inside(error):
                raise
            return ours(*args, **kwargs)
        kind = type(result)
        if kind in PLAIN or result is None:
            return result
        if kind is REAL and not views:
            if result.size < OPTIONS.eager_below:
                return direct(result)
            return wrap(result)
        if kind is tuple and not views:
            return several(result)
        return from_numpy(result, reals, arrays)

    return call


def _items(values: Any, spreads: bool, reals: list[Any], arrays: list[Any]) -> Any:
    """A list with NumPy arrays instead of ours; None if it holds anything else but plain values."""
    if len(values) > LONGEST:
        return None
    found: list[Any] = []
    for value in tuple(values):  # a finaliser or another thread may change a list meanwhile
        kind = type(value)
        if kind is HOOKS.array:
            core: Core = value
            small = core._eager
            if small is None or (spreads and core._may_grow):
                return None
            found.append(small)
            reals.append(small)
            arrays.append(value)
        elif kind in SIMPLE or kind in PLAIN:
            found.append(value)
        else:
            return None
    return found


def created(theirs: Any, ours: Any) -> Any:
    """A function of a shape, and perhaps a number and a dtype: NumPy makes small arrays at once."""
    if COMPILED:
        return NATIVE.created(theirs, ours)

    def call(*args: Any, **kwargs: Any) -> Any:
        if not args or not _is_small(args[0]):
            return ours(*args, **kwargs)
        if kwargs:
            for key, value in kwargs.items():
                if (key != "dtype" and key != "order") or not is_simple(value):
                    return ours(*args, **kwargs)
        for at in range(1, len(args)):
            if not is_simple(args[at]):
                return ours(*args, **kwargs)
        try:
            if kwargs or len(args) > 1:
                result = theirs(*args, **kwargs)
            else:
                result = theirs(args[0])
        except TypeError as error:  # ours raises it with NumPy's text
            if came_from_inside(error):
                raise
            return ours(*args, **kwargs)
        return direct(result) if result.size < OPTIONS.eager_below else wrap(result)

    return call


def listed(theirs: Any, ours: Any) -> Any:
    """`array` of a short list of plain numbers, or of an eager array."""
    array = HOOKS.array
    if COMPILED:
        return NATIVE.listed(theirs, ours)

    def call(*args: Any, **kwargs: Any) -> Any:
        if not kwargs and len(args) == 1:
            numbers = args[0]
            if type(numbers) is array:
                core: Core = numbers
                small = core._eager
                return ours(numbers) if small is None else wrap(small.copy("K"))
            short = type(numbers) is list and len(numbers) < min(LONGEST, OPTIONS.eager_below)
            if (
                short
                and len(numbers) < OPTIONS.eager_below
                and PLAIN.issuperset(map(type, numbers))
            ):
                return direct(theirs(numbers))
        return ours(*args, **kwargs)

    return call


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


def _is_small(shape: Any) -> bool:
    kind = type(shape)
    if kind is int:
        return bool(shape < OPTIONS.eager_below)
    if kind is not tuple:
        return False
    size = 1
    for length in shape:
        if type(length) is not int:
            return False
        size *= length
    return bool(size < OPTIONS.eager_below)


GOVERNABLE = {"clip": 1, "mean": 1, "ptp": 2, "std": 4, "var": 4, "where": 1}
"""How many exact operations on all elements functions record, for the governor."""

if COMPILED:
    NATIVE.bind("simple", SIMPLE | PLAIN)
    NATIVE.bind("governable", GOVERNABLE)
    NATIVE.bind("adopted", from_numpy)
    globals().update({each: getattr(NATIVE, each) for each in ("first_array", "method")})
