"""`unique` of integers in a short range, by a table of marks; `isin` of few, by comparisons.

Owns both. NumPy does the rest: other dtypes, wide ranges, indices and counts, many test elements.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lazyfuse.arrays.ndarray import concrete_value, gather, ndarray, wrap
from lazyfuse.arrays.operators import dtype_of
from lazyfuse.arrays.recording import may_record, shape_of
from lazyfuse.arrays.storage import CANONICAL
from lazyfuse.devices.caches import DTYPES, cached
from lazyfuse.functions import reductions
from lazyfuse.interop.fallback import records
from lazyfuse.kernels import compact
from lazyfuse.runtime.execution import routine

Array = np.ndarray[Any, np.dtype[Any]]

FEW = 8  # test elements that are compared one by one
CHUNKS = 4  # each chunk has its own table
SHORT = 2  # values of the range per element, up to which marks are faster than sorting


@cached(why=DTYPES)
def _marking(code: str) -> routine.Routine:
    body = """
    for i in range(count):
        marks[int64(data[i]) - least] = 1
    """
    arrays = {"data": code, "marks": "u1"}
    return routine.Routine(f"mark_{code}", ("count",), arrays, body, scalars={"least": "i8"})


def _unique(values: Array, least: int, greatest: int) -> Array | None:
    """The values that occur, in ascending order; None if NumPy must find them."""
    span = greatest - least + 1
    if span > SHORT * values.size:
        return None
    launch = _marking(values.dtype.str[1:]).launcher()
    if launch is None:
        return None
    flat = np.ascontiguousarray(values).reshape(-1)
    starts, counts = routine.spread(flat.size, 1 << 16, CHUNKS)
    marks = np.zeros((len(starts), span), dtype=np.uint8)
    offsets = np.stack([starts, np.arange(len(starts)) * span], 1)
    base = int(np.uint64(least % 2**64).astype(np.int64))
    launch((flat, marks), counts[:, None], offsets, (base,), work=2 * flat.size)
    found = compact.positions(np.bitwise_or.reduce(marks, axis=0).view(bool))[0]
    return (found + base).astype(values.dtype, copy=False)


def _by_numpy(values: Array, least: int, greatest: int) -> Array:
    return np.unique(values)


def _is_searched(ar: Any) -> bool:
    """Whether marks can find the values of an array: large, and of native integers."""
    if type(ar) is not ndarray or concrete_value(ar) is not None or not may_record():
        return False
    return dtype_of(ar).kind in "iu" and dtype_of(ar).isnative and 0 not in shape_of(ar)


@records(np.unique, eager="arrays")
def unique(ar: Any, *args: Any, **kwargs: Any) -> Any:
    """As `numpy.unique`."""
    if args or kwargs or not _is_searched(ar):
        return None
    least, greatest = reductions.min(ar), reductions.max(ar)
    values = gather(ar)
    return wrap(routine.either(_unique, _by_numpy, values, int(least), int(greatest)))


@records(np.isin, eager="arrays")
def isin(
    element: Any,
    test_elements: Any,
    assume_unique: Any = False,
    invert: Any = False,
    *,
    kind: Any = None,
) -> Any:
    """As `numpy.isin`; recorded for a few test elements of the same dtype."""
    if type(element) is not ndarray or concrete_value(element) is not None or not may_record():
        return None
    if (
        type(test_elements) not in (ndarray, np.ndarray)
        or kind is not None
        or not shape_of(element)
    ):
        return None
    dtype, tests = dtype_of(element), test_elements.reshape(-1)
    if tests.dtype != dtype or dtype not in CANONICAL or dtype.kind not in "biuf":
        return None
    if not 0 < tests.size <= FEW or type(invert) is not bool:
        return None
    found: Any = element == tests[:1]
    for at in range(1, tests.size):
        found = found | (element == tests[at : at + 1])
    return ~found if invert else found
