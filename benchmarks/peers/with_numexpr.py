"""numexpr: an expression as a string, for the cases that are one expression."""

from __future__ import annotations

import importlib
from typing import Any

from benchmarks.case import Case
from benchmarks.libraries import Library, Runner

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


def libraries() -> list[Library]:
    """One column: `numexpr.evaluate`."""
    numexpr = importlib.import_module("numexpr")

    def runner(case: Case) -> Runner | None:
        if case.name == "04_blackscholes":
            return lambda *args: _black_scholes(numexpr, *args)
        text = EXPRESSIONS.get(case.name)
        if text is None:
            return None
        return lambda *args: numexpr.evaluate(text, dict(zip("abc", args, strict=False)))

    return [Library("numexpr", numexpr.__version__, runner)]


def _cumulative(numexpr: Any, x: Any) -> Any:
    tail = _CDF[1].format(k="(1 / (1 + 0.2316419 * abs(x)))", x="x")
    return numexpr.evaluate(_CDF[0].format(x="x", tail=f"({tail})"), {"x": x})


def _black_scholes(numexpr: Any, spot: Any, strike: Any, years: Any) -> Any:
    names = {"s": spot, "k": strike, "t": years}
    d1 = numexpr.evaluate("(log(s / k) + 0.06125 * t) / (0.25 * sqrt(t))", names)
    names |= {"d": d1}
    d2 = numexpr.evaluate("d - 0.25 * sqrt(t)", names)
    names |= {"x": _cumulative(numexpr, d1), "y": _cumulative(numexpr, d2)}
    call = numexpr.evaluate("s * x - k * exp(-0.03 * t) * y", names)
    return call, numexpr.evaluate("c - s + k * exp(-0.03 * t)", names | {"c": call})
