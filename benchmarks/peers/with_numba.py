"""numba: loops written by hand, compiled, on one thread and on all."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.case import Case
from benchmarks.libraries import Library, Runner

prange = range  # numba reads this name as its own parallel range, see `_compiled`
_LOOPS: dict[str, Callable[..., Any]] = {}


def _loop(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _LOOPS[name] = function
        return function

    return register


@_loop("00_add")
def _add(a: Any, b: Any) -> Any:
    out = np.empty_like(a)
    for i in prange(a.size):
        out[i] = a[i] + b[i]
    return out


@_loop("01_triad")
def _triad(a: Any, b: Any, c: Any) -> Any:
    out = np.empty_like(a)
    for i in prange(a.size):
        out[i] = a[i] * b[i] + c[i] * a[i] - b[i]
    return out


@_loop("02_chain10")
def _chain(a: Any, b: Any) -> Any:
    out = np.empty_like(a)
    for i in prange(a.size):
        x, y = a[i], b[i]
        out[i] = (((x + y) * x - y) * 0.5 + x * y) * (x - 0.25) + y * 3.0 - x
    return out


@_loop("03_expsinlog")
def _exp_sin_log(x: Any) -> Any:
    out = np.empty_like(x)
    for i in prange(x.size):
        out[i] = math.exp(x[i]) * math.sin(x[i]) + math.log(x[i])
    return out


@_loop("08_reductions")
def _reductions(a: Any, b: Any) -> Any:
    n = a.size
    squares, total, product, product2 = 0.0, 0.0, 0.0, 0.0
    low, high = np.inf, -np.inf
    for i in prange(n):
        d, p = a[i] - b[i], a[i] * b[i]
        squares += d * d
        total += a[i]
        product += p
        product2 += p * p
        low = min(low, d)
        high = max(high, d)
    mean = product / n
    return math.sqrt(squares), total / n, math.sqrt(product2 / n - mean * mean), low, high


@_loop("09_mask_sum")
def _mask_sum(x: Any) -> Any:
    total = 0.0
    for i in prange(x.size):
        if x[i] > 1.0:
            total += x[i]
    return total


@_loop("10_mask_assign")
def _mask_assign(x: Any) -> Any:
    out = np.empty_like(x)
    for i in prange(x.size):
        y = x[i] * 2.0
        out[i] = 0.0 if y > 2.0 else y
    return out


@_loop("11_jacobi2d")
def _jacobi(grid: Any) -> Any:
    u, new = grid.copy(), grid.copy()
    for _ in range(20):
        for i in prange(1, u.shape[0] - 1):
            for j in range(1, u.shape[1] - 1):
                new[i, j] = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])
        u, new = new, u
    return u


@_loop("13_mandelbrot")
def _mandelbrot(x: Any, y: Any) -> Any:
    out = np.zeros_like(x)
    for i in prange(x.shape[0]):
        for j in range(x.shape[1]):
            a = b = count = 0.0
            for _ in range(20):
                if a * a + b * b > 4.0:
                    break
                a, b = a * a - b * b + x[i, j], 2.0 * a * b + y[i, j]
                count += 1.0
            out[i, j] = count
    return out


@_loop("15_kmeans")
def _nearest(data: Any, centres: Any) -> Any:
    labels = np.empty(data.shape[0], np.int64)
    total = 0.0
    for i in prange(data.shape[0]):
        best, place = np.inf, 0
        for k in range(centres.shape[0]):
            dx, dy = data[i, 0] - centres[k, 0], data[i, 1] - centres[k, 1]
            distance = dx * dx + dy * dy
            if distance < best:
                best, place = distance, k
        labels[i] = place
        total += best
    return labels, total


def _compiled(numba: Any, parallel: bool) -> Callable[[Case], Runner | None]:
    globals()["prange"] = numba.prange

    def runner(case: Case) -> Runner | None:
        loop = _LOOPS.get(case.name)
        compiled: Runner | None = loop and numba.njit(parallel=parallel)(loop)
        return compiled

    return runner


def libraries() -> list[Library]:
    """Two columns: sequential loops, and `parallel=True`."""
    numba = importlib.import_module("numba")
    version: str = numba.__version__
    return [
        Library("numba.seq", version, _compiled(numba, parallel=False)),
        Library("numba.par", version, _compiled(numba, parallel=True)),
    ]
