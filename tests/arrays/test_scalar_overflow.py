"""NumPy's integer scalars tell of overflow, its arrays do not: so do results of reductions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse import config
from lazyfuse.codegen.graph.node import Reduction
from lazyfuse.codegen.table.ops import TABLE
from lazyfuse.runtime.numerics.fp_flags import raises

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "-max": lambda xp, b: -b.max(),
    "-sum": lambda xp, b: -b.sum(),
    "-ptp": lambda xp, b: -xp.ptp(b),
    "-argmax": lambda xp, b: -b.argmax(),
    "-element": lambda xp, b: -b[3],
    "abs": lambda xp, b: abs(b.min()),
    "add": lambda xp, b: b.max() + b.max(),
    "subtract": lambda xp, b: b.min() - b.max(),
    "multiply": lambda xp, b: b.max() * b.max(),
    "invert": lambda xp, b: ~b.max(),
    "ufunc": lambda xp, b: xp.negative(b.max()),
    "array": lambda xp, b: -b,
}


def _outcome(xp: Any, call: Callable[[Any, Any], Any], data: Any) -> tuple[Any, bytes, set[str]]:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        result = np.asarray(call(xp, xp.array(data) + data.dtype.type(0)))
    return result.dtype, result.tobytes(), {str(each.message) for each in told}


@pytest.mark.parametrize("eager_below", [0, 32768])
@pytest.mark.parametrize("dtype", ["u1", "u8", "i1", "i8"])
def test_overflow_of_numbers_is_told_D2(dtype: str, eager_below: int) -> None:
    limits = np.iinfo(dtype)
    data = np.arange(100).astype(dtype)
    data[7], data[9] = limits.min, limits.max
    for name, call in CALLS.items():
        expected = _outcome(np, call, data)
        with config.options(eager_below=eager_below):
            for _ in range(3):
                assert _outcome(lf, call, data) == expected, name


def test_sums_of_integers_tell_of_nothing_D2() -> None:
    """Flags of a kernel that also divides are not theirs, in whichever operations they are done."""
    told = [
        raises(TABLE[row], Reduction((0,), False, np.dtype(dtype), 0))
        for dtype in ("i8", "f8")
        for row in ("reduce:add", "add")
    ]
    assert told[:2] == [(), ()]
    assert all("invalid" in each for each in told[2:])
