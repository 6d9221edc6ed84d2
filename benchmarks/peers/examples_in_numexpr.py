"""The examples in numexpr: expressions of their heavy functions as strings, the rest is NumPy's."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

Function = Callable[..., Any]

_TAIL = (
    "((((1.330274429 * k - 1.821255978) * k + 1.781477937) * k - 0.356563782) * k"
    " + 0.319381530) * k * exp(-0.5 * x * x) * 0.3989422804014327"
)


def evaluate(text: str, **names: Any) -> Any:
    """A string's value."""
    return importlib.import_module("numexpr").evaluate(text, names)


def normal_cdf(x: Any) -> Any:
    """The cumulative normal distribution."""
    tail = evaluate(_TAIL, x=x, k=evaluate("1 / (1 + 0.2316419 * abs(x))", x=x))
    return evaluate("where(x > 0, 1 - t, t)", x=x, t=tail)


def black_scholes(spot: Any, strike: Any, years: Any, rate: float, volatility: float) -> Any:
    """Prices of a call and a put, and the call's delta."""
    names = {"s": spot, "k": strike, "t": years, "r": rate, "v": volatility}
    d1 = evaluate("(log(s / k) + (r + 0.5 * v * v) * t) / (v * sqrt(t))", **names)
    d2 = evaluate("d - v * sqrt(t)", d=d1, t=years, v=volatility)
    delta = normal_cdf(d1)
    names |= {"a": delta, "b": normal_cdf(d2), "c": normal_cdf(-d2), "d": normal_cdf(-d1)}
    call = evaluate("s * a - k * exp(-r * t) * b", **names)
    return call, evaluate("k * exp(-r * t) * c - s * d", **names), delta


def heat_step(plate: Any, conductivity: float) -> None:
    """One time step of the heat equation, in place."""
    plate[1:-1, 1:-1] = evaluate(
        "c + f * (n + s + w + e - 4 * c)",
        n=plate[:-2, 1:-1], s=plate[2:, 1:-1], w=plate[1:-1, :-2], e=plate[1:-1, 2:],
        c=plate[1:-1, 1:-1], f=conductivity,
    )  # fmt: skip


def assign(data: Any, centres: Any) -> Any:
    """The nearest centre of each point, and the squared distance to it."""
    distance = evaluate(
        "(x - a) ** 2 + (y - b) ** 2",
        x=data[:, :1], y=data[:, 1:], a=centres[None, :, 0], b=centres[None, :, 1],
    )  # fmt: skip
    return distance.argmin(axis=1), distance.min(axis=1)


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    small = evaluate("exp(-abs(x))", x=x)
    return evaluate("where(x >= 0, 1, s) / (1 + s)", x=x, s=small)


def escape_times(c: Any, limit: int) -> Any:
    """The Mandelbrot set."""
    z, times = np.zeros_like(c), np.full(c.shape, limit)
    for step in range(limit):
        z = evaluate("where(t == limit, z * z + c, z)", t=times, limit=limit, z=z, c=c)
        text = "where((real(z) * real(z) + imag(z) * imag(z) > 4) & (t == limit), step, t)"
        times = evaluate(text, z=z, t=times, limit=limit, step=step)
    return times


def accelerations(position: Any, mass: Any) -> Any:
    """The pull of every star on every other."""
    names = dict(zip("xyz", position[:, None, :], strict=True))
    names |= dict(zip("uvw", position[:, :, None], strict=True))
    squared = "((x - u) * (x - u) + (y - v) * (y - v) + (z - w) * (z - w) + 0.0025)"
    pull = evaluate(f"m / ({squared} * sqrt({squared}))", m=mass[None, :], **names)
    pairs = (("x", "u"), ("y", "v"), ("z", "w"))
    sums = [evaluate("sum((a - b) * p, axis=1)", a=names[a], b=names[b], p=pull) for a, b in pairs]
    return np.stack(sums)


EXAMPLES: dict[str, dict[str, Function]] = {
    "black_scholes": {"black_scholes": black_scholes},
    "heat_equation": {"step": heat_step},
    "kmeans": {"assign": assign},
    "logistic_regression": {"sigmoid": sigmoid},
    "mandelbrot": {"escape_times": escape_times},
    "nbody": {"accelerations": accelerations},
}
"""By script and function. It has neither bytes nor rolls, stacks or running sums."""
