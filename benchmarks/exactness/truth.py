"""True values of functions by gmpy2 (MPFR, correctly rounded), and distances from them.

Owns `Truth`, what a function truly gives at many points, and `errors`, how many units in the last
place results are off. Imports gmpy2 when it is asked for values.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.exactness.units import units

Array = np.ndarray[Any, np.dtype[Any]]
PRECISION = 160  # bits: what is left after a double's 53 is known to far below a unit
SUM_PRECISION = 400  # for logarithms of sums, which cancel
LONG_PRECISION = 2400  # for formulas over numbers of any size, which cancel too
_FORMULAS = ("multiply", "square", "expm1", "log1p", "sign")  # of complex numbers

_RENAMED = {
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "arcsinh": "asinh",
    "arccosh": "acosh",
    "arctanh": "atanh",
    "arctan2": "atan2",
    "absolute": "abs",
}
WRONG = np.inf  # the error of a NaN or an infinity that should not be, or is missing


@dataclass(frozen=True, slots=True)
class Truth:
    """True values as unevaluated sums `high + low`: `high` is the nearest float64."""

    high: Array
    low: Array


def real_function(name: str) -> Callable[..., Any]:
    """A function of numbers of gmpy2's, real or complex."""
    gmpy2: Any = importlib.import_module("gmpy2")
    special = {
        "cbrt": gmpy2.cbrt,
        "power": lambda x, y: x**y,
        "float_power": lambda x, y: x**y,
        "logaddexp": _added(gmpy2, gmpy2.exp, gmpy2.log1p),
        "logaddexp2": _added(gmpy2, gmpy2.exp2, lambda x: gmpy2.log1p(x) / gmpy2.log(2)),
        "multiply": lambda x, y: x * y,
        "square": lambda x: x * x,
        "sign": lambda x: x / abs(x),
        "exp2": _complex_too(gmpy2, gmpy2.exp2, lambda x: gmpy2.exp(x * gmpy2.log(2))),
        "log2": _complex_too(gmpy2, gmpy2.log2, lambda x: gmpy2.log(x) / gmpy2.log(2)),
        "expm1": _complex_too(gmpy2, gmpy2.expm1, lambda x: gmpy2.exp(x) - 1),
        "log1p": _complex_too(gmpy2, gmpy2.log1p, lambda x: gmpy2.log(1 + x)),
    }
    if name in special:
        return special[name]
    renamed = _RENAMED.get(name, name)
    return abs if renamed == "abs" else getattr(gmpy2, renamed)


def _complex_too(gmpy2: Any, real: Any, other: Any) -> Callable[[Any], Any]:
    return lambda x: other(x) if isinstance(x, gmpy2.mpc) else real(x)


def _added(gmpy2: Any, power: Any, one_more: Any) -> Callable[[Any, Any], Any]:
    def function(x: Any, y: Any) -> Any:
        if gmpy2.is_nan(x) or gmpy2.is_nan(y):
            return gmpy2.mpfr("nan")
        low, high = (x, y) if x < y else (y, x)
        if gmpy2.is_infinite(high) or gmpy2.is_infinite(low):
            return high
        return high + one_more(power(low - high))

    return function


def truth(name: str, arguments: list[Array]) -> list[Truth]:
    """What a function truly gives; for a complex result its two parts."""
    gmpy2: Any = importlib.import_module("gmpy2")
    function = real_function(name)
    is_complex = arguments[0].dtype.kind == "c"
    bits = SUM_PRECISION if name.startswith("logaddexp") else PRECISION
    bits = LONG_PRECISION if is_complex and name in _FORMULAS else bits
    make = gmpy2.mpc if is_complex else gmpy2.mpfr
    with gmpy2.context(gmpy2.get_context(), precision=bits, emin=-(1 << 40), emax=1 << 40):
        found = [
            function(*map(make, numbers))
            for numbers in zip(*(each.tolist() for each in arguments), strict=True)
        ]
        if is_complex and name != "absolute":
            return [_split([x.real for x in found]), _split([x.imag for x in found])]
        return [_split(found)]


def _split(values: list[Any]) -> Truth:
    high = [float(x) for x in values]
    low = [
        float(x - top) if abs(top) < np.inf else 0.0 for x, top in zip(values, high, strict=True)
    ]
    return Truth(np.array(high), np.array(low))


def errors(found: Array, true: Truth, sizes: Array) -> Array:
    """Units in the last place between results and the truth; WRONG where only one is a number.

    `sizes`: the magnitudes whose last place is the unit.
    """
    limit = float(np.finfo(found.dtype).max)
    step = units(found, sizes)
    with np.errstate(all="ignore"):
        # beyond the largest number everything counts as infinite, and infinity as that number
        got = np.clip(found.astype(np.float64), -limit, limit)
        aim = np.clip(true.high, -limit, limit)
        low = np.where(np.abs(true.high) > limit, 0.0, true.low)
        lift = np.where(step < 1e-200, 2.0**100, 2.0**-100)  # away from both ends of the range
        off = np.abs((got * lift - aim * lift) / (step * lift) - low * lift / (step * lift))
        unlike = np.isnan(found) != np.isnan(true.high)
        return np.where(unlike, WRONG, np.where(np.isnan(true.high), 0.0, off))


def distances(found: Array, other: Array, sizes: Array) -> Array:
    """Units in the last place between two results, as `errors`."""
    there = other.astype(np.float64)
    return errors(found, Truth(there, np.zeros_like(there)), sizes)
