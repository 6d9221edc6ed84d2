"""Warnings of every ufunc for special values: zeros, infinities, NaN, the largest, least ones."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import lazyfuse as lf
from lazyfuse import config
from tests.campaign import TIMEOUT, rounds

pytestmark = TIMEOUT

N = 5_000
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 3.0, np.inf, -np.inf, np.nan, 1e-5, 700.0, -0.5]
LIMITS = ["max", "min", "tiny", "smallest_subnormal"]
WHOLE = [0, 1, -1, 2, 3, 7, -5, "max", "min"]
UFUNCS = [
    name
    for name, each in vars(np).items()
    if isinstance(each, np.ufunc) and each.signature is None and each.nin <= 2
]
# NumPy's own loops differ from processor to processor; of overflow see `misreported`.
RARE = {"float_power", "power", "pow", "logaddexp", "logaddexp2", "tan", "log1p"}


def _value(draw: random.Random, dtype: str) -> Any:
    if dtype[0] == "f":
        chosen = draw.choice([*FLOATS, *LIMITS])
        return getattr(np.finfo(dtype), chosen) if isinstance(chosen, str) else chosen
    chosen = draw.choice(WHOLE)
    if isinstance(chosen, str):
        return getattr(np.iinfo(dtype), chosen)
    return abs(chosen) if dtype[0] == "u" else chosen


def _told(run: Callable[[], Any]) -> Any:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = run()
        except (TypeError, ValueError) as error:
            return type(error)
        for each in found if isinstance(found, tuple) else (found,):
            np.asarray(each)
    return sorted({str(each.message) for each in caught})


@rounds(400)
def test_warnings_of_special_values(seeds: Sequence[int]) -> None:
    wrong = []
    for seed in seeds:
        draw = random.Random(seed)
        name = draw.choice([each for each in UFUNCS if each not in RARE])
        dtype = draw.choice(["f8", "f4", "i8", "i4", "i2", "u1"])
        operands = []
        for _ in range(getattr(np, name).nin):
            operand = np.ones(N, dtype)
            operand[:: draw.choice([1, 2, 7])] = _value(draw, dtype)
            operands.append(operand)
        wanted = _told(lambda: getattr(np, name)(*operands))  # noqa: B023
        with config.options(eager_below=0, plan_after=0, compile_after=0, compile_ahead=False):
            # of memory that other code has, kernels read copies, and may write over these
            ours = [lf.array(each) for each in operands]
            found = [_told(lambda: getattr(lf, name)(*ours)) for _ in range(2)]  # noqa: B023
        if found != [wanted, wanted]:
            wrong.append((seed, name, dtype, [each[0] for each in operands], wanted, found))
    assert not wrong
