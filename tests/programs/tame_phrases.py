"""Statements with inexact functions that keep all values near one, so that errors stay small."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.programs.phrases import (
    Phrase,
    Written,
    creation,
    is_complex,
    removal,
    result,
    update,
    view,
    write,
)

if TYPE_CHECKING:
    from tests.programs.grammar import Grammar

TAME = (
    "np.exp({a} * 0.3)", "np.log({a} + 1.5)", "np.sin({a}) * 0.5 + 1", "np.cos({a} * 0.5) + 0.6",
    "np.tanh({a}) + 0.5", "np.sqrt({a} * {a})", "({a} + {b}) * 0.5", "1 / {a}", "{a} ** 0.5",
    "{a} ** 2 / {a}", "np.power({a}, 0.75)", "np.square({a}) * 0.6", "np.exp(-{a}) + 0.7",
    "np.arctan({a}) + 0.4", "np.log1p({a})", "np.expm1({a} * 0.5) + 0.4", "np.sinh({a}) * 0.5",
    "np.abs({a})", "np.where({a}.real > 0, {a}, {b})", "{a} * 1j + 1", "np.cosh({a} * 0.5)",
    "{a} / {a}.max()", "{a} - {a}.mean() + 1", "{a} / np.sqrt(({a} * {a}).mean())",
    "np.exp({a} - {a}.max(axis=0)) + 0.5", "{a}.sum(axis=0) / max(len({a}), 1)",
    "{a}.mean(axis=-1, keepdims=True)", "np.prod(np.ones_like({a}) * {a} / {a}, axis=0)",
    "np.linalg.norm({a} / np.sqrt({a}.size))", "({a} * {b}.conj()) * 0.5 + 0.5",
    "np.multiply({a}, {b}) * 0.7", "np.divide({a}, {b})",
)  # fmt: skip
TAME_REAL = (
    "np.hypot({a}, {b}) * 0.7", "np.arctan2({a}, {b}) + 0.3", "np.cbrt({a})", "{a} ** {b}",
    "np.exp2({a}) * 0.5", "np.log2({a} + 1.2)", "np.log10({a} * 10)", "np.arcsinh({a})",
    "np.arcsin({a} * 0.4) + 0.5", "np.logaddexp({a}, {b}) * 0.6", "np.clip({a}, 0.6, 1.8)",
    "np.maximum({a}, {b})", "np.tan({a} * 0.5) + 0.3", "{a}.var() + 1", "{a}.std(axis=0) + 1",
    "np.float_power({a}, 0.5)", "np.arccosh({a} + 1)", "np.arctanh({a} * 0.4) + 0.3",
    "np.arccos({a} * 0.4)", "np.median({a})", "np.dot({a}.ravel(), {a}.ravel()) / {a}.size",
)  # fmt: skip


def tame(grammar: Grammar) -> Written:
    a = grammar.pick(lambda x: x.dtype.kind in "fc" and x.size > 0)
    b = grammar.pick(lambda x: x.dtype.kind in "fc" and x.size > 0)
    if a is None or b is None or not grammar.fits(a, b):
        return None
    forms = TAME if is_complex(grammar, a, b) else TAME + TAME_REAL * 2
    return result(grammar, kept(grammar, grammar.rng.choice(forms).format(a=a, b=b)))


def kept(grammar: Grammar, text: str) -> str:
    """An expression whose values are brought back to the middle of the road."""
    if grammar.rng.random() < 0.3:
        return text
    return f"({text}) / np.abs({text}).max() + 0.4"


INEXACT: list[tuple[Phrase, float]] = [
    (creation, 2), (tame, 20), (view, 4), (write, 2), (update, 1), (removal, 1)
]  # fmt: skip
