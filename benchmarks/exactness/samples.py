"""Where functions are measured: random bit patterns and the regions in which they go wrong.

Owns `points`: arguments for a function and a dtype, the same ones for the same seed.
"""

from __future__ import annotations

import importlib
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

_POWERS = ("power", "float_power")
_SUMS = ("logaddexp", "logaddexp2")


def points(name: str, dtype: str, size: int, seed: int = 1) -> list[Array]:
    """About `size` points: for each operand an array of that dtype."""
    random = np.random.default_rng([seed, *name.encode()])
    count = 2 if name in ("multiply", "arctan2", "hypot", *_POWERS, *_SUMS) else 1
    with np.errstate(all="ignore"):
        if dtype[0] == "c":
            parts = [_complex(random, dtype, size) for _ in range(count)]
        elif count == 1:
            parts = [np.concatenate(_regions(random, dtype, size // 10))]
        else:
            pairs = _pairs(random, name, dtype, size // 6)
            parts = [np.concatenate(each) for each in zip(*pairs, strict=True)]
        return [each.astype(dtype) for each in parts]


def patterns(random: np.random.Generator, dtype: str, size: int) -> Array:
    """Numbers of random bits: every magnitude alike, infinities and NaN among them."""
    width = int(dtype[1:])
    bits = random.integers(0, 1 << (8 * width), size, dtype=f"u{width}", endpoint=False)
    found = bits.view(dtype)
    return np.where(np.isnan(found), np.asarray(np.nan, dtype), found)  # no signalling ones


def _regions(random: np.random.Generator, dtype: str, size: int) -> list[Array]:
    """Arguments of one operand, each region with as many."""
    real = np.finfo(dtype)
    top = float(np.log(real.max))
    signs = random.choice([-1.0, 1.0], size)
    steps = 2.0 ** -random.uniform(0, real.nmant, size)  # distances of every magnitude
    turns = random.integers(1, 1 << 20, size) * random.choice([1.0, 2.0**20], size)
    special = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, float(real.max), -float(real.max)]
    special += [float(real.smallest_subnormal), float(real.smallest_normal), 2.0, 10.0, 100.0]
    special += [np.e, np.pi, np.pi / 2, 0.5]
    return [
        patterns(random, dtype, 3 * size),
        random.uniform(-10, 10, size),
        signs * (1 + random.choice([-1.0, 1.0], size) * steps),
        (turns * (np.pi / 2)),
        random.integers(1, 1 << 16, size) * float(real.smallest_subnormal) * signs,
        signs * top * (1 + 0.05 * random.uniform(-1, 1, size)),
        signs * top * 1.5 * random.uniform(0.9, 1.1, size),  # and for exp2, whose limits lie there
        signs * random.uniform(0, 1, size) ** 8,
        near_multiples(dtype),
        np.array(special),
    ]


def near_multiples(dtype: str) -> Array:
    """For each exponent the number that comes nearest to a whole multiple of pi/2."""
    real = np.finfo(dtype)
    found = []
    for exponent in range(-real.nmant, real.maxexp - real.nmant - 1):
        ratio = Fraction(2) ** exponent / _half_pi()
        # convergents p/q of the ratio: q times it is closest to a whole number
        before, q = 1, 0
        while True:
            whole = ratio.__floor__()
            before, q = q, whole * q + before
            if q >= 2 ** (real.nmant + 1) or ratio == whole:
                break
            ratio = 1 / (ratio - whole)
        found.append(float(before) * 2.0**exponent)
    return np.array(found)


@lru_cache(maxsize=1)
def _half_pi() -> Fraction:
    """As many digits as the largest argument asks for."""
    gmpy2: Any = importlib.import_module("gmpy2")
    with gmpy2.context(gmpy2.get_context(), precision=1400):
        return Fraction(*map(int, gmpy2.const_pi().as_integer_ratio())) / 2


def _pairs(random: np.random.Generator, name: str, dtype: str, size: int) -> list[list[Array]]:
    """Arguments of two operands."""
    some = [patterns(random, dtype, size) for _ in range(2)]
    special = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 2.0, -3.0, 0.5, 1e30])
    grid = [each.ravel() for each in np.meshgrid(special, special)]
    pairs = [some, grid, [random.uniform(-10, 10, size) for _ in range(2)]]
    if name in _POWERS:
        return pairs + _powers(random, dtype, size)
    if name in _SUMS:
        log = np.log if name == "logaddexp" else np.log2
        x = -(random.uniform(0, 2, size) ** 3)
        power = np.exp(x) if name == "logaddexp" else np.exp2(x)
        zeros = [x, log(1 - power) * (1 + 1e-6 * random.standard_normal(size))]
        far = random.uniform(-300, 300, size)
        return [*pairs, zeros, [far, far + random.uniform(-40, 40, size)]]
    exponents = random.uniform(-30, 30, size)
    x = patterns(random, dtype, size)
    return [*pairs, [x, x * 2.0**exponents], [x, x * random.uniform(0.5, 2, size)]]


def _powers(random: np.random.Generator, dtype: str, size: int) -> list[list[Array]]:
    """Bases and exponents whose power is neither 0 nor infinite, and whole exponents."""
    real = np.finfo(dtype)
    base = np.abs(patterns(random, dtype, size))
    results = random.uniform(-1.05, 1.01, size) * real.maxexp
    near = 1 + random.choice([-1.0, 1.0], size) * 2.0 ** -random.uniform(0, real.nmant, size)
    near = near.astype(dtype)
    return [
        [base, results / np.log2(base)],
        [near, results / np.log2(near)],
        [random.uniform(-20, 20, size), random.integers(-40, 40, size).astype(float)],
    ]


def _complex(random: np.random.Generator, dtype: str, size: int) -> Array:
    """Complex numbers of all magnitudes, and of common ones."""
    part = {"c8": "f4", "c16": "f8"}[dtype]
    third = size // 3
    wild = patterns(random, part, third) + 1j * patterns(random, part, third)
    spread = random.standard_normal(third) * 10.0 ** random.uniform(-8, 3, third)
    spread = spread + 1j * random.standard_normal(third) * 10.0 ** random.uniform(-8, 3, third)
    plain = random.uniform(-3, 3, third) + 1j * random.uniform(-3, 3, third)
    return np.concatenate([wild, spread, plain])
