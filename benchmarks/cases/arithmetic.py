"""Elementwise arithmetic on long vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.case import Array, case, square, vectors


@case("00_add", vectors(2), streams=True)
def add(xp: Any, a: Any, b: Any) -> Any:
    return a + b


@case("01_triad", vectors(3), streams=True)
def triad(xp: Any, a: Any, b: Any, c: Any) -> Any:
    return a * b + c * a - b


@case("02_chain10", vectors(2), streams=True)
def chain(xp: Any, a: Any, b: Any) -> Any:
    return (((a + b) * a - b) * 0.5 + a * b) * (a - 0.25) + b * 3.0 - a


@case("03_expsinlog", vectors(1), exact=False)
def exp_sin_log(xp: Any, x: Any) -> Any:
    return xp.exp(x) * xp.sin(x) + xp.log(x)


def _options(n: int, generator: np.random.Generator) -> tuple[Array, ...]:
    limits = ((10.0, 50.0), (10.0, 50.0), (0.1, 2.0))
    return tuple(generator.uniform(low, high, n) for low, high in limits)


def _cumulative(xp: Any, x: Any) -> Any:
    k = 1.0 / (1.0 + 0.2316419 * xp.abs(x))
    series = (((1.330274429 * k - 1.821255978) * k + 1.781477937) * k - 0.356563782) * k
    tail = (series + 0.319381530) * k * xp.exp(-0.5 * x * x) * 0.3989422804014327
    return xp.where(x > 0.0, 1.0 - tail, tail)


@case("04_blackscholes", _options, exact=False)
def black_scholes(xp: Any, spot: Any, strike: Any, years: Any) -> Any:
    spread = 0.25 * xp.sqrt(years)
    d1 = (xp.log(spot / strike) + 0.06125 * years) / spread
    d2 = d1 - spread
    discounted = strike * xp.exp(-0.03 * years)
    call = spot * _cumulative(xp, d1) - discounted * _cumulative(xp, d2)
    put = call - spot + discounted
    return call, put


def _complex(n: int, generator: np.random.Generator) -> tuple[Array, ...]:
    return tuple(generator.normal(size=n) + 1j * generator.normal(size=n) for _ in range(2))


@case("20_complex", _complex, streams=True, exact=False)
def complex_product(xp: Any, z: Any, c: Any) -> Any:
    return (z * z + c) * c - 0.5 * z


@case("21_transpose", square)
def add_transpose(xp: Any, a: Any) -> Any:
    return 0.5 * (a + a.T) - a.T * 0.25
