"""Calls on small arrays that come round: done by programs, with the bits of NumPy."""

from __future__ import annotations

import gc
import random
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse import config
from lazyfuse.arrays import base
from tests import campaign

pytestmark = pytest.mark.skipif(not base.COMPILED, reason="programs are the compiled part's")

ROWS = (
    "np.std(x)|np.var(x, ddof=1)|np.clip(x, 0.3, 1.7)|np.clip(x, y, y + 1)|np.roll(x, 2)"
    "|np.pad(x, 1)|np.pad(x, 1, mode='edge')|np.pad(x, 1, mode='wrap')|np.diff(x)"
    "|np.zeros_like(x)|np.full_like(x, 3)|np.nan_to_num(x)|np.any(x > 1)|np.all(x > 0)|np.ptp(x)"
    "|np.average(x)|np.trapezoid(x)|np.round(x, 1)|np.tile(x, 2)|np.repeat(x, 2)|np.prod(x)"
    "|np.select([x > 1, x < -1], [1.0, -1.0], x)|np.where(x > 0, x, y)|np.hstack([x, y])"
    "|np.stack([x, y], -1)|np.concatenate([x, y])|np.column_stack([x, y])|np.append(x, x[0])"
    "|np.meshgrid(x.ravel(), y.ravel())|np.insert(x, 1, 2)|np.delete(x, 1)|np.nansum(x)"
    "|np.isin(x, x[:3])|np.isin(x, y[:2], invert=True)|np.polyval([1, 2, 3.0], x)|np.angle(x)"
    "|np.ediff1d(x)|np.outer(x, y)|np.fix(x)"
    "|x.std()|x.clip(-1, 1)|x.round(1)|x.repeat(3)|x.prod()|(x > 0).any()"
).split("|")
TABLES = (
    "np.std(x, axis=0)|np.std(x, axis=1, keepdims=True)|np.var(x, axis=1)|np.prod(x, axis=0)"
    "|np.ptp(x, axis=0)|np.triu(x)|np.tril(x, -1)|np.pad(x, ((1, 0), (0, 2)), mode='wrap')"
    "|np.roll(x, 1, 0)|np.roll(x, (1, 2), (0, 1))|np.diff(x, axis=0)|np.gradient(x, axis=0)"
    "|np.linalg.norm(x, axis=1)|np.linalg.norm(x, axis=0)|np.tile(x, (2, 1))|np.vstack([x, y])"
    "|np.repeat(x, 2, axis=1)|np.stack([x, y], 1)|np.concatenate([x, y], 1)|np.any(x > 1, axis=0)"
    "|np.nansum(x, axis=0)|np.insert(x, 1, 0, axis=1)|np.average(x, axis=0)|np.clip(x, -1, y)"
    "|np.where(x > 0, x, x[0])|np.trapezoid(x)|np.outer(x[0], x[1])|x.std(axis=0)"
).split("|")
DTYPES = "? i1 u1 i4 i8 u8 f4 f8 c8 c16".split()


@pytest.fixture(autouse=True)
def _at_once() -> Iterator[None]:
    with config.options(tape_after=1):
        yield


def programs_run() -> int:
    followed: int = base.NATIVE.steps_count()[1]
    return followed


def values(draw: random.Random, shape: tuple[int, ...], dtype: str) -> Any:
    """Random numbers, with one of those that NumPy treats in another way."""
    made = np.random.default_rng(draw.randrange(2**32)).normal(size=shape) * 4
    odd = draw.choice([None, np.nan, np.inf, -np.inf, -0.0, 1e308, 5e-324])
    with np.errstate(all="ignore"):
        if dtype[0] in "fc" and odd is not None and made.size:
            made.flat[draw.randrange(made.size)] = odd
        return (abs(made) if dtype[0] == "u" else made).astype(dtype)


def outcome(code: Any, names: dict[str, Any]) -> tuple[Any, Any]:
    """What a statement gives, or its error; and its warnings."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            found = eval(code, names)
        except Exception as error:
            found = type(error), str(error)
    return found, sorted((each.category.__name__, str(each.message)) for each in seen)


def is_same(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, (tuple, list)):
        return len(ours) == len(theirs) and all(map(is_same, ours, theirs))
    if isinstance(theirs, np.ndarray):
        assert type(ours) is lf.ndarray
        x = np.asarray(ours)
        alike = x.dtype == theirs.dtype and x.shape == theirs.shape and x.strides == theirs.strides
        return alike and x.flags.writeable and x.tobytes() == theirs.tobytes()
    if isinstance(theirs, np.generic):
        return type(ours) is type(theirs) and ours.tobytes() == theirs.tobytes()
    same: bool = ours == theirs
    return same


def check(statement: str, draw: random.Random, shape: tuple[int, ...], dtype: str) -> None:
    """A statement does what it does in NumPy, each time, and leaves its operands alone."""
    code = compile(statement, "<statement>", "eval")
    for _ in range(3):
        x, y = values(draw, shape, dtype), values(draw, shape, dtype)
        ours = {"np": lf, "x": lf.array(x), "y": lf.array(y)}
        found, said = outcome(code, ours)
        wanted, told = outcome(code, {"np": np, "x": x.copy(), "y": y.copy()})
        what = statement, shape, dtype
        assert is_same(found, wanted), what
        assert said == told, what
        for each in found if isinstance(found, (tuple, list)) else [found]:
            if type(each) is lf.ndarray:
                each[...] = 1
        assert np.asarray(ours["x"]).tobytes() == x.tobytes(), what
        assert np.asarray(ours["y"]).tobytes() == y.tobytes(), what


@campaign.rounds(120)
def test_statements_give_what_numpy_gives(seeds: range) -> None:
    before = programs_run()
    for seed in seeds:
        draw = random.Random(seed)
        if draw.random() < 0.5:
            statement, shape = (
                draw.choice([*ROWS, "np.mean(x)"]),
                (draw.choice([2, 3, 9, 40, 300]),),
            )
        else:
            shape = draw.choice([(5, 6), (12, 2), (2, 9), (30, 20), (3, 4, 5)])
            statement = draw.choice(TABLES)
        check(statement, draw, shape, draw.choice(DTYPES))
    assert programs_run() > before


@pytest.mark.parametrize("statement", [*ROWS, *TABLES])
def test_statements_have_programs(statement: str) -> None:
    data = np.random.default_rng(3).random((6, 7) if statement in TABLES else 30) + 0.5
    names = {"np": lf, "x": lf.array(data), "y": lf.array(data[::-1].copy())}
    code = compile(statement, "<statement>", "eval")
    for _ in range(70):  # a function that has none of late is asked seldom
        eval(code, names)
    before = programs_run()
    for _ in range(40):
        eval(code, names)
    assert programs_run() > before


def test_numbers_of_a_call_are_those_of_the_call() -> None:
    x = lf.array(np.arange(20.0))
    for number in (0.3, 1.7, 2.9, 6.1, -3.3):
        assert np.array_equal(lf.clip(x, -5.5, number), np.clip(np.arange(20.0), -5.5, number))
        assert np.append(np.arange(3.0), number).tolist() == lf.append(x[:3], number).tolist()


def test_exceptions_are_numpys() -> None:
    x = lf.array([1.0, np.inf, -np.inf, 2.0])
    for _ in range(4):
        with pytest.warns(RuntimeWarning, match="invalid value"):
            lf.std(x)
        with np.errstate(invalid="raise"), pytest.raises(FloatingPointError):
            lf.std(x)
        with np.errstate(invalid="ignore"):
            assert np.isnan(lf.std(x))


def test_a_call_that_warns_warns_once_at_each_visit() -> None:
    x = lf.array([[1.0], [2.0]])
    for _ in range(4):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            lf.cov(x)
        texts = [str(each.message) for each in seen]
        assert texts.count("Degrees of freedom <= 0 for slice") == 1


def test_views_stay_views() -> None:
    x = lf.array(np.arange(12.0).reshape(3, 4))
    for _ in range(4):
        for view in (lf.flip(x), lf.rot90(x), lf.squeeze(x), lf.broadcast_to(x, (2, 3, 4))):
            assert np.shares_memory(np.asarray(view), np.asarray(x))
        lf.nan_to_num(x, copy=False)
    lf.flip(x)[0, 0] = 7
    assert x[2, 3] == 7


def test_calls_before_the_program_are_numpys() -> None:
    x = lf.array(np.arange(9.0))
    with config.options(tape_after=3):
        before = programs_run()
        for _ in range(60):
            lf.std(x)
        assert programs_run() == before
        for _ in range(60):
            lf.std(x)
        assert programs_run() > before


def test_finalisers_that_change_operands() -> None:
    """What takes memory may run the collector, and a finaliser with it."""
    x = lf.array(np.arange(40.0))
    wanted = {np.std(np.arange(40.0)), np.std(np.arange(40.0) + 1)}

    class Cycle:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            lf.roll(x, 1)
            if len(kept) % 7 == 0:
                base.NATIVE.steps_forget()
            x[...] = np.arange(40.0) + (float(x[0]) == 0)
            if going:
                Cycle()

    many, kept = lf.array(np.arange(100.0)), []  # results that take memory of their own
    going = True
    before = gc.get_threshold()
    gc.set_threshold(2)
    Cycle()
    try:
        for _ in range(300):
            found = lf.std(x)
            kept.append(lf.meshgrid(many, many))
            lf.roll(x, 3), lf.pad(x, 1)
            assert float(found) in wanted
    finally:
        going = False
        gc.set_threshold(*before)
        gc.collect()
