"""numexpr: expressions as strings, with NumPy for what is no expression."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.case import Case
from benchmarks.libraries import Library, Runner
from benchmarks.peers import examples
from benchmarks.peers.examples_in_numexpr import EXAMPLES

_CDF = (
    "where({x} > 0, 1 - {tail}, {tail})",
    "((((1.330274429 * {k} - 1.821255978) * {k} + 1.781477937) * {k} - 0.356563782) * {k}"
    " + 0.319381530) * {k} * exp(-0.5 * {x} * {x}) * 0.3989422804014327",
)

EXPRESSIONS: dict[str, str] = {
    "00_add": "a + b",
    "01_triad": "a * b + c * a - b",
    "02_chain10": "(((a + b) * a - b) * 0.5 + a * b) * (a - 0.25) + b * 3.0 - a",
    "03_expsinlog": "exp(a) * sin(a) + log(a)",
    "09_mask_sum": "sum(where(a > 1.0, a, 0.0))",
    "10_mask_assign": "where(a * 2.0 > 2.0, 0.0, a * 2.0)",
    "20_complex": "(a * a + b) * b - 0.5 * a",
}

Evaluate = Callable[..., Any]
_PROGRAMS: dict[str, Callable[..., Any]] = {}


def _program(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _PROGRAMS[name] = function
        return function

    return register


def libraries() -> list[Library]:
    """One column: `numexpr.evaluate`."""
    numexpr = importlib.import_module("numexpr")
    evaluate = numexpr.evaluate

    def runner(case: Case) -> Runner | None:
        script = examples.name_of(case)
        if script:
            return examples.ported(case, EXAMPLES.get(script, {}))
        program = _PROGRAMS.get(case.name)
        if program is not None:
            return lambda *args: program(evaluate, *args)
        text = EXPRESSIONS.get(case.name)
        if text is None:
            return None
        return lambda *args: evaluate(text, dict(zip("abc", args, strict=False)))

    return [Library("numexpr", numexpr.__version__, runner)]


def _cumulative(evaluate: Evaluate, x: Any) -> Any:
    tail = _CDF[1].format(k="(1 / (1 + 0.2316419 * abs(x)))", x="x")
    return evaluate(_CDF[0].format(x="x", tail=f"({tail})"), {"x": x})


@_program("04_blackscholes")
def _black_scholes(evaluate: Evaluate, spot: Any, strike: Any, years: Any) -> Any:
    names = {"s": spot, "k": strike, "t": years}
    d1 = evaluate("(log(s / k) + 0.06125 * t) / (0.25 * sqrt(t))", names)
    names |= {"d": d1}
    d2 = evaluate("d - 0.25 * sqrt(t)", names)
    names |= {"x": _cumulative(evaluate, d1), "y": _cumulative(evaluate, d2)}
    call = evaluate("s * x - k * exp(-0.03 * t) * y", names)
    return call, evaluate("c - s + k * exp(-0.03 * t)", names | {"c": call})


@_program("05_softmax")
def _softmax(evaluate: Evaluate, x: Any) -> Any:
    e = evaluate("exp(x - m)", {"x": x, "m": x.max(axis=1, keepdims=True)})
    return evaluate("e / s", {"e": e, "s": e.sum(axis=1, keepdims=True)})


@_program("06_layernorm")
def _layer_norm(evaluate: Evaluate, x: Any) -> Any:
    names = {"x": x, "m": x.mean(axis=1, keepdims=True)}
    variance = evaluate("(x - m) * (x - m)", names).mean(axis=1, keepdims=True)
    return evaluate("(x - m) / sqrt(v + 1e-5) * 1.5 + 0.25", names | {"v": variance})


@_program("07_gelu_linear")
def _layer(evaluate: Evaluate, x: Any, weights: Any, bias: Any) -> Any:
    y = evaluate("p + b", {"p": x @ weights, "b": bias})
    text = "0.5 * y * (1.0 + tanh(0.7978845608028654 * (y + 0.044715 * y * y * y)))"
    return evaluate(text, {"y": y})


@_program("08_reductions")
def _reductions(evaluate: Evaluate, a: Any, b: Any) -> Any:
    names = {"a": a, "b": b}
    d = evaluate("a - b", names)
    norm = np.sqrt(evaluate("sum(d * d)", {"d": d}))
    return (
        norm,
        evaluate("sum(a)", names) / a.size,
        evaluate("a * b", names).std(),
        d.min(),
        d.max(),
    )


@_program("11_jacobi2d")
def _jacobi(evaluate: Evaluate, grid: Any) -> Any:
    u = grid.copy()
    for _ in range(20):
        names = {"n": u[:-2, 1:-1], "s": u[2:, 1:-1], "w": u[1:-1, :-2], "e": u[1:-1, 2:]}
        u[1:-1, 1:-1] = evaluate("0.25 * (n + s + w + e)", names)
    return u


@_program("12_heat3d")
def _heat(evaluate: Evaluate, grid: Any) -> Any:
    u = grid.copy()
    inner = u[1:-1, 1:-1, 1:-1]
    for _ in range(10):
        names = {
            "a": u[:-2, 1:-1, 1:-1], "b": u[2:, 1:-1, 1:-1], "c": u[1:-1, :-2, 1:-1],
            "d": u[1:-1, 2:, 1:-1], "e": u[1:-1, 1:-1, :-2], "f": u[1:-1, 1:-1, 2:], "u": inner,
        }  # fmt: skip
        inner[...] = evaluate("u + 0.1 * (a + b + c + d + e + f - 6.0 * u)", names)
    return u


@_program("13_mandelbrot")
def _mandelbrot(evaluate: Evaluate, x: Any, y: Any) -> Any:
    a, b, count = x * 0.0, y * 0.0, x * 0.0
    for _ in range(20):
        names = {"a": a, "b": b, "x": x, "y": y, "n": count}
        inside = "a * a + b * b <= 4.0"
        count = evaluate(f"where({inside}, n + 1.0, n)", names)
        a, b = (
            evaluate(f"where({inside}, a * a - b * b + x, a)", names),
            evaluate(f"where({inside}, 2.0 * a * b + y, b)", names),
        )
    return count


@_program("14_nbody")
def _gravity(evaluate: Evaluate, x: Any, y: Any, z: Any, mass: Any) -> Any:
    names = {name: each[None, :] for name, each in zip("xyz", (x, y, z), strict=True)}
    names |= {name: each[:, None] for name, each in zip("uvw", (x, y, z), strict=True)}
    squared = evaluate("(x - u) * (x - u) + (y - v) * (y - v) + (z - w) * (z - w) + 0.01", names)
    names |= {"s": squared, "m": mass[None, :]}
    return tuple(
        evaluate(f"sum(({a} - {b}) * m / (s * sqrt(s)), axis=1)", names)
        for a, b in ("xu", "yv", "zw")
    )


@_program("15_kmeans")
def _nearest(evaluate: Evaluate, data: Any, centres: Any) -> Any:
    names = {"d": data[:, None, :], "c": centres[None, :, :]}
    distance = evaluate("sum((d - c) * (d - c), axis=2)", names)
    return distance.argmin(axis=1), distance.min(axis=1).sum()


@_program("16_mcpi")
def _estimate_pi(evaluate: Evaluate, n: int) -> Any:
    generator = np.random.default_rng(1)
    names = {"x": generator.random(n), "y": generator.random(n)}
    return 4.0 * evaluate("sum(where(x * x + y * y <= 1.0, 1.0, 0.0))", names) / n


@_program("17_rolling")
def _rolling(evaluate: Evaluate, x: Any) -> Any:
    total = np.cumsum(x)
    return evaluate("(a - b) / 16", {"a": total[16:], "b": total[:-16]})


@_program("18_argsort")
def _argsort(evaluate: Evaluate, x: Any) -> Any:
    return np.argsort(evaluate("1.0 / x + x * x", {"x": x}))


@_program("19_intmix")
def _mix(evaluate: Evaluate, x: Any) -> Any:
    x = evaluate("(x ^ (x >> 13)) * 31 + 7", {"x": x})
    x = evaluate("(x ^ (x << 5)) & 4294967295", {"x": x})
    return evaluate("(x * 5 - (x >> 3)) % 1009", {"x": x})


@_program("21_transpose")
def _transpose(evaluate: Evaluate, a: Any) -> Any:
    return evaluate("0.5 * (a + b) - b * 0.25", {"a": a, "b": a.T})


@_program("22_histogram")
def _histogram(evaluate: Evaluate, x: Any) -> Any:
    return np.histogram(evaluate("x * x", {"x": x}), bins=64, range=(0.0, 4.0))[0]


@_program("30_heat")
def _plate(evaluate: Evaluate, plate: Any) -> Any:
    u = plate.copy()
    for _ in range(60):
        centre = u[1:-1, 1:-1]
        names = {
            "n": u[:-2, 1:-1], "s": u[2:, 1:-1], "w": u[1:-1, :-2], "e": u[1:-1, 2:], "c": centre,
        }  # fmt: skip
        centre[...] = evaluate("c + 0.2 * (n + s + w + e - 4.0 * c)", names)
    return u


@_program("36_floyd_warshall")
def _floyd_warshall(evaluate: Evaluate, distances: Any) -> Any:
    d = distances.copy()
    for k in range(len(d)):
        names = {"d": d, "a": d[:, k, None].copy(), "b": d[None, k, :].copy()}
        evaluate("where(a + b < d, a + b, d)", names, out=d)
    return d
