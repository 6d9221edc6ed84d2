"""Reductions, and work along the rows of a matrix with reductions in the middle."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.case import Array, case, rows_of, vectors


@case("05_softmax", rows_of(1000), exact=False)
def softmax(xp: Any, x: Any) -> Any:
    e = xp.exp(x - xp.amax(x, axis=1, keepdims=True))
    return e / xp.sum(e, axis=1, keepdims=True)


@case("06_layernorm", rows_of(500))
def layer_norm(xp: Any, x: Any) -> Any:
    centred = x - xp.mean(x, axis=1, keepdims=True)
    variance = xp.mean(centred * centred, axis=1, keepdims=True)
    return centred / xp.sqrt(variance + 1e-5) * 1.5 + 0.25


def _layer(n: int, generator: np.random.Generator) -> tuple[Array, ...]:
    width = int(np.clip(n**0.5, 8, 512))
    rows = max(n // width, 1)
    weights = generator.normal(size=(width, width)) / width**0.5
    return generator.normal(size=(rows, width)), weights, generator.normal(size=width)


@case("07_gelu_linear", _layer, exact=False)
def gelu_linear(xp: Any, x: Any, weights: Any, bias: Any) -> Any:
    y = x @ weights + bias
    return 0.5 * y * (1.0 + xp.tanh(0.7978845608028654 * (y + 0.044715 * y * y * y)))


@case("08_reductions", vectors(2), streams=True)
def reductions(xp: Any, a: Any, b: Any) -> Any:
    d = a - b
    norm = xp.sqrt(xp.sum(d * d))
    return norm, xp.mean(a), xp.std(a * b), xp.amin(d), xp.amax(d)


@case("17_rolling", vectors(1))
def rolling_mean(xp: Any, x: Any) -> Any:
    total = xp.cumsum(x, axis=0)
    window = 16
    return (total[window:] - total[:-window]) / window
