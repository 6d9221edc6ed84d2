"""The tested versions of Python and NumPy, and the differences between versions of NumPy.

NumPy's order of summation, its inner loops and the texts of its errors change between versions, and
lazyfuse repeats them. This module finds the differences between the declared versions by trying.
pip refuses older versions; newer ones are used, and reported.
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
    """Why a last bit or a message may differ from this NumPy's; empty for a tested version."""
    if _series(OLDEST) <= _series(version) <= _series(NEWEST):
        return ""
    return f"{version} is not among those that the tests have met, {OLDEST} to {NEWEST}"


def unknown_python(version: tuple[int, ...] = sys.version_info[:2]) -> str:
    """Why this interpreter's instructions are unknown (entrance_code.py); empty if known."""
    if sys.implementation.name == "cpython" and PYTHONS[0] <= version <= PYTHONS[1]:
        return ""
    first, last = (".".join(map(str, each)) for each in PYTHONS)
    return f"not CPython {first} to {last}: other libraries' functions stay as they are"


def _assigns_parts() -> bool:
    try:
        np.zeros(1, np.int8).real = 300
    except OverflowError:
        return True
    return False


def _takes_roots() -> bool:
    with np.errstate(all="ignore"):
        return bool(np.isnan(np.power(np.full(2, -np.inf), 0.5)[0]))


SQUARES_BOOLEANS = bool((np.ones(1, np.bool_) ** 2).dtype == np.int8)
"""Whether `** 2` is `square` for booleans too, which gives another dtype (NumPy 2.4)."""

POWER_TAKES_ROOTS = _takes_roots()
"""Whether `power` of float32 and float64 takes the square root where the exponent is the number
one half: of minus infinity it is NaN."""

DEVIATIONS_ARE_SQUARED = "square" in np._core._methods._var.__code__.co_names  # type: ignore[attr-defined]
"""Whether `var` and `std` call `square`; until NumPy 2.3 they multiply. It shows in the
name that a warning has; but in a sub-interpreter, NumPy waits for ever where it is to warn."""

ASSIGNS_PARTS = _assigns_parts()
"""Whether setting `real` and `imag` refuses numbers out of bounds, as `[...]` does (NumPy 2.5)."""
