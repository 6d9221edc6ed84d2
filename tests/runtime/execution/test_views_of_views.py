"""Views of operations on views: maps that a kernel reads its operands through, one upon another."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from lazyfuse import config
from tests.campaign import TIMEOUT, rounds

pytestmark = TIMEOUT

SHAPES = [(12,), (4, 6), (3, 4, 5)]
VIEWS = ["flip", "transpose", "step", "part", "roll", "swap", "new axis", "ravel", "repeat"]
OPERATIONS = ["add", "multiply", "negative", "maximum", "where", "sum"]


def _viewed(xp: Any, x: Any, kind: str, choice: int) -> Any:
    axis = choice % x.ndim
    key = [slice(None)] * x.ndim
    if kind == "flip":
        return xp.flip(x, axis)
    if kind == "transpose":
        return x.T
    if kind == "step":
        key[axis] = slice(None, None, (2, -2, -1)[choice % 3])
        return x[tuple(key)]
    if kind == "part":
        key[axis] = slice(choice % 2, None if choice % 3 else -1)
        return x[tuple(key)]
    if kind == "roll":
        return xp.roll(x, choice + 1, axis)
    if kind == "swap":
        return xp.swapaxes(x, 0, axis)
    if kind == "new axis":
        return xp.expand_dims(x, axis)[..., ::-1] if x.ndim < 4 else x
    if kind == "repeat":
        return xp.repeat(x, 2, axis) if x.size < 1000 else x
    return x.reshape(-1)[::-1].reshape(x.shape)


def _operated(xp: Any, x: Any, others: Sequence[Any], kind: str, choice: int) -> Any:
    fitting = [each for each in others if each.shape == x.shape]
    other = fitting[choice % len(fitting)] if fitting else choice
    if kind == "negative":
        return -x
    if kind == "where":
        return xp.where(x > 0, x, other)
    if kind == "sum" and x.ndim > 1 and choice == 3:
        return x.sum(choice % x.ndim)
    return getattr(xp, kind if kind != "sum" else "add")(x, other)


def _program(xp: Any, seed: int) -> list[np.ndarray[Any, Any]]:
    draw = random.Random(seed)
    numbers = np.random.default_rng(seed)
    shape = draw.choice(SHAPES)
    dtype = draw.choice(["f8", "f4", "i4", "u1", "c16"])
    pool = [xp.asarray((numbers.normal(size=shape) * 9).astype(dtype)) for _ in range(3)]
    kept = []
    for _ in range(draw.randint(3, 9)):
        x = draw.choice(pool[-4:])
        for _ in range(draw.randint(1, 3)):
            x = _viewed(xp, x, draw.choice(VIEWS), draw.randrange(6))
            if 0 in x.shape:
                break
            if draw.random() < 0.7:
                x = _operated(xp, x, pool, draw.choice(OPERATIONS), draw.randrange(6))
        if x.ndim and x.size:
            pool.append(x)
        if draw.random() < 0.2:
            kept.append(x)
    return [np.asarray(each) for each in [*kept, *pool[-2:]]]


@rounds(150)
def test_random_programs(seeds: Sequence[int]) -> None:
    import lazyfuse as lf

    for seed in seeds:
        with np.errstate(all="ignore"):
            wanted = _program(np, seed)
            for turn in range(2):
                with config.options(eager_below=0, plan_after=0):
                    found = _program(lf, seed)
                for mine, theirs in zip(found, wanted, strict=True):
                    assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape), (seed, turn)
                    assert np.array_equal(mine, theirs, equal_nan=True), (seed, turn)
