"""Calls of ufuncs and of their methods with words, on small arrays and on many single bytes."""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

import lazyfuse as lf
from tests.campaign import TIMEOUT, rounds

pytestmark = TIMEOUT

ONE = ["negative", "sqrt", "invert", "floor", "rint", "isnan", "square"]
TWO = ["add", "maximum", "divide", "subtract", "bitwise_and", "less", "floor_divide"]
# No objects: NumPy remembers the loop of a call with an `out` of objects for later calls without.
DTYPES = ["f8", "f4", "i4", "i8", "u1", "?"]
SHAPES = [(), (1,), (7,), (1, 7), (7, 1), (3, 7), (200, 250), (0,)]


def _values(draw: random.Random, shape: tuple[int, ...], dtype: str) -> Any:
    numbers = np.random.default_rng(draw.randrange(1000)).integers(-3, 9, shape)
    return np.asarray(numbers).astype(dtype)


def _operand(xp: Any, draw: random.Random, pool: list[Any]) -> Any:
    kind = draw.randrange(8)
    x = draw.choice(pool)
    if kind == 0:
        return draw.choice([2, 1.5, True, 0, np.float32(2)])
    if kind == 1 and x.ndim:
        return x[1:]
    if kind == 2:
        return x.T
    return x


def _call(xp: Any, draw: random.Random, pool: list[Any]) -> Any:
    if draw.random() < 0.25:
        ufunc = getattr(xp, draw.choice(["add", "maximum", "multiply", "logical_or"]))
        name = draw.choice(["accumulate", "reduce", "outer", "reduceat", "at"])
        x = _operand(xp, draw, pool)
        words: dict[str, Any] = {}
        if draw.random() < 0.6 and name in ("accumulate", "reduce", "reduceat"):
            words["axis"] = draw.choice([0, -1, 1, 5])
        if draw.random() < 0.2 and name != "at":
            words["dtype"] = draw.choice(["f8", "i8"])
        if name in ("reduceat", "at"):
            others = [draw.choice([[0, 2], [0], xp.asarray([1, 0]), 0])]
            others += [draw.choice([1, 2.5])] if name == "at" else []
            return getattr(ufunc, name)(x, *others, **words)
        others = [_operand(xp, draw, pool)] if name == "outer" else []
        if others and np.size(x) * np.size(others[0]) > 1_000_000:
            return None
        return getattr(ufunc, name)(x, *others, **words)
    unary = draw.random() < 0.4
    ufunc = getattr(xp, draw.choice(ONE if unary else TWO))
    operands = [_operand(xp, draw, pool) for _ in range(1 if unary else 2)]
    words = {}
    if draw.random() < 0.6:
        words["out"] = _operand(xp, draw, pool)
    if draw.random() < 0.6 and words.get("out") is not None:
        masks = [x for x in pool if x.dtype == bool]
        words["where"] = draw.choice([True, False, *masks, *masks, pool[0]])
    if draw.random() < 0.1:
        words["casting"] = draw.choice(["unsafe", "no", "nonsense"])
    if draw.random() < 0.1:
        words = dict(reversed(words.items()))
    return ufunc(*operands, **words)


def _told(value: Any) -> Any:
    real = np.asarray(value)
    return real.dtype, real.shape, real.tobytes()


def _program(xp: Any, seed: int) -> list[Any]:
    draw = random.Random(seed)
    shape = draw.choice(SHAPES)
    pool = []
    for _ in range(5):
        own = shape if draw.random() < 0.8 else draw.choice(SHAPES)
        pool.append(xp.asarray(_values(draw, own, draw.choice(DTYPES))))
    pool.append(xp.asarray(_values(draw, shape, "?")))
    told: list[Any] = []
    for _ in range(6):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                found = _call(xp, draw, pool)
                told.append(found if found is None else _told(found))
            except Exception as error:
                told.append((type(error), str(error)))
        told.append(sorted({(each.category, str(each.message)) for each in caught}, key=repr))
    return told + [_told(each) for each in pool]


@rounds(600)
def test_random_calls(seeds: Sequence[int]) -> None:
    for seed in seeds:
        assert _program(lf, seed) == _program(np, seed), seed
