"""The versions of Python and NumPy that the tests have met, and what NumPys do in different ways.

NumPy's order of summation, its inner loops and the texts of its errors change now and then, and
lazyfuse repeats them. What differs among the NumPys that are declared is found by trying, here. pip
refuses NumPys that are too old; newer ones are used, and named.
"""

from __future__ import annotations

import re
import sys

import numpy as np

OLDEST = "2.3"
NEWEST = "2.5"
PYTHONS = ((3, 11), (3, 14))


def _series(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def untested(version: str = np.__version__) -> str:
    """Why a last bit or a message may differ from this NumPy's; empty where the tests ran."""
    if _series(OLDEST) <= _series(version) <= _series(NEWEST):
        return ""
    return f"{version} is not among those that the tests have met, {OLDEST} to {NEWEST}"


def unknown_python(version: tuple[int, ...] = sys.version_info[:2]) -> str:
    """Why this interpreter's instructions are not known (entrance_code.py); empty: they are."""
    if sys.implementation.name == "cpython" and PYTHONS[0] <= version <= PYTHONS[1]:
        return ""
    first, last = (".".join(map(str, each)) for each in PYTHONS)
    return f"not CPython {first} to {last}: other libraries' functions stay as they are"


def _are_squared() -> bool:
    """The ufunc that squares deviations is what warnings of `std` name."""
    try:
        with np.errstate(over="raise"):
            np.var(np.array([1e200, -1e200]))
    except FloatingPointError as error:
        return "square" in str(error)
    return True


def _assigns_parts() -> bool:
    try:
        np.zeros(1, np.int8).real = 300
    except OverflowError:
        return True
    return False


SQUARES_BOOLEANS = bool((np.ones(1, np.bool_) ** 2).dtype == np.int8)
"""Whether `** 2` is `square` for booleans, too, whose dtype is another (2.4)."""

DEVIATIONS_ARE_SQUARED = _are_squared()
"""Whether `var` and `std` call `square`, or multiply (until 2.3)."""

ASSIGNS_PARTS = _assigns_parts()
"""Whether `real` and `imag` are set as `[...]`, which refuses numbers out of bounds (2.5)."""
