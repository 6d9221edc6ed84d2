"""Updates of a block by its own row and column have the values of NumPy."""

from __future__ import annotations

import itertools
import operator
import random
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lazyfuse
from lazyfuse import config
from lazyfuse.runtime.events import counters
from tests import campaign

COMBINE = {
    "multiply": operator.mul,
    "add": operator.add,
    "subtract": operator.sub,
    "minimum": None,
    "maximum": None,
}
UPDATE = [operator.iadd, operator.isub, operator.imul]
OUT = ["minimum", "maximum", "add", "subtract"]


@pytest.fixture(autouse=True)
def blocks_that_tests_can_afford() -> Iterator[None]:
    with config.options(eager_below=4096):
        yield


def _block(seed: int, dtype: str, rows: int, columns: int) -> Any:
    generator = np.random.default_rng(seed)
    if dtype[0] == "f":
        return generator.normal(size=(rows, columns)).astype(dtype)
    return generator.integers(-9, 9, (rows, columns)).astype(dtype)


def _combined(xp: Any, name: str, left: Any, right: Any) -> Any:
    function = COMBINE[name]
    return getattr(xp, name)(left, right) if function is None else function(left, right)


def test_elimination_whose_sizes_change() -> None:
    def program(xp: Any, matrix: Any) -> Any:
        a = xp.array(matrix)
        for k in range(40):
            a[k + 1 :, k] /= a[k, k]
            a[k + 1 :, k + 1 :] -= a[k + 1 :, k, None] * a[None, k, k + 1 :]
        return a

    matrix = _block(0, "f8", 150, 150) + 150 * np.eye(150)
    found = np.asarray(program(lazyfuse, matrix))
    assert found.tobytes() == program(np, matrix).tobytes()


@pytest.mark.usefixtures("on_cpu")
def test_elimination_that_comes_round_stays_numpys() -> None:
    """Also once C follows its calls: a part of a block that has its values is NumPy's at once."""

    def program(xp: Any, a: Any) -> Any:
        for k in range(0, 12, 3):
            a[k + 1 :, k] /= a[k, k]
            a[k + 1 :, k + 1 :] -= a[k + 1 :, k, None] * a[None, k, k + 1 :]
        return a

    matrix = _block(0, "f8", 120, 120) + 150 * np.eye(120)
    expected = program(np, matrix.copy()).tobytes()
    with config.options(tape_after=1):
        for turn in range(6):
            a = lazyfuse.array(matrix)
            lazyfuse.evaluate(a)
            before = counters.totals().singles, counters.totals().kernels
            program(lazyfuse, a)
            if turn > 1:
                assert (counters.totals().singles, counters.totals().kernels) == before
            assert np.asarray(a).tobytes() == expected


def test_a_row_and_a_column_inside_the_part_are_read_as_they_were() -> None:
    def program(xp: Any, distances: Any) -> Any:
        d = xp.array(distances)
        for k in range(0, 120, 7):
            xp.minimum(d, d[:, k, None] + d[None, k, :], out=d)
            xp.maximum(d[None, k, :] - d[:, k, None], d, out=d)
        return d

    distances = _block(1, "f8", 120, 120)
    found = np.asarray(program(lazyfuse, distances))
    assert found.tobytes() == program(np, distances).tobytes()


def _program(xp: Any, seed: int, met: list[Any]) -> Any:
    """The same few statements several times over, with other parts and values each time."""
    pick = random.Random(seed)
    dtype = pick.choice(["f8", "f8", "f4", "i8", "i4"])
    rows, columns = pick.choice([(90, 90), (64, 100), (130, 71)])
    a = xp.array(_block(seed, dtype, rows, columns))
    if pick.random() < 0.2:
        a = xp.array(_block(seed, dtype, columns, rows)).T
    shape = tuple(a.shape)
    statements = [
        (pick.choice(list(COMBINE)), pick.random(), pick.choice([0, 0, 1, 3])) for _ in "ab"
    ]
    held: list[Any] = []
    for _ in range(pick.randint(3, 6)):
        for name, way, start in statements:
            top, left = (pick.randint(0, 4) for _ in "ab") if start else (0, 0)
            k, m = pick.randrange(min(shape)), pick.randrange(min(shape))
            whole = not start
            part = a if whole else a[top:, left:]
            column, row = a[top:, k, None], a[None, m, left:]
            if way < 0.1:
                column = column[::-1]
            product = _combined(xp, name, column, row)
            if way < 0.15 and dtype[0] == "f":
                product = 0.5 * product - row
            if 0.4 < way < 0.5:
                held.append(product)
            if way < 0.6:
                which = UPDATE[int(way * 10) % 3]
                if whole:
                    a = which(a, product)
                else:
                    a[top:, left:] = which(part, product)
            elif way < 0.9:
                operands = (part, product) if way < 0.8 else (product, part)
                getattr(xp, OUT[int(way * 100) % 4])(*operands, out=part)
            else:
                met.append(xp.where(product > part, product, part).sum(axis=0) > 0)
        if pick.random() < 0.2:
            met.append(a[0].copy())
    return [a, *held]


@campaign.rounds(3, start=3)
def test_random_updates(seeds: range) -> None:
    for seed in seeds:
        found, expected = [], []
        with warnings.catch_warnings(record=True) as ours:
            warnings.simplefilter("always")
            found += _program(lazyfuse, seed, found)
            values = [np.asarray(each) for each in found]
        with warnings.catch_warnings(record=True) as theirs:
            warnings.simplefilter("always")
            expected += _program(np, seed, expected)
        for mine, wanted in zip(values, expected, strict=True):
            assert (mine.shape, mine.dtype) == (wanted.shape, wanted.dtype), seed
            assert mine.tobytes() == wanted.tobytes(), seed
        assert {str(each.message) for each in ours} == {str(each.message) for each in theirs}, seed


@pytest.mark.smoke
def test_a_product_that_is_kept_has_the_values_from_before_the_update() -> None:
    matrix = _block(3, "f8", 80, 80)
    a = lazyfuse.array(matrix)
    for _ in range(3):
        before = np.asarray(a).copy()
        a = lazyfuse.array(before)
        product = a[:, 2, None] * a[None, 2, :]
        a -= product
        assert np.asarray(product).tobytes() == (before[:, 2, None] * before[None, 2, :]).tobytes()
        assert (
            np.asarray(a).tobytes() == (before - before[:, 2, None] * before[None, 2, :]).tobytes()
        )
        a = lazyfuse.array(np.asarray(a) % 3)


@pytest.mark.parametrize("value", [1e200, np.inf, np.nan])
@pytest.mark.parametrize("turns", [1, 4])
def test_conditions_are_told_once_with_numpy_s_words(value: float, turns: int) -> None:
    matrix = _block(4, "f8", 80, 80)
    matrix[5, 5] = value

    def program(xp: Any) -> list[str]:
        a = xp.array(matrix)
        told: list[str] = []
        for k in itertools.chain(range(turns), [5]):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                product = a[:, k, None] * a[None, k, :]
                a -= product
                np.asarray(product)
            told += [str(each.message) for each in caught]
        return told

    assert program(lazyfuse) == program(np)


def test_memory_that_others_see_is_left_to_numpy() -> None:
    matrix = _block(5, "f8", 80, 80)
    for _ in range(3):
        a = lazyfuse.array(matrix)
        seen = np.asarray(a)
        a -= a[:, 2, None] * a[None, 2, :]
        assert seen.tobytes() == np.asarray(a).tobytes()
        assert seen.tobytes() == (matrix - matrix[:, 2, None] * matrix[None, 2, :]).tobytes()


def test_what_waits_for_the_old_values_gets_them() -> None:
    matrix = _block(6, "f8", 80, 80)
    for _ in range(3):
        a = lazyfuse.array(matrix)
        later = a * 2.0 + 1.0
        a -= a[:, 2, None] * a[None, 2, :]
        assert np.asarray(later).tobytes() == (matrix * 2.0 + 1.0).tobytes()
        assert (
            np.asarray(a).tobytes() == (matrix - matrix[:, 2, None] * matrix[None, 2, :]).tobytes()
        )


def test_error_states_that_raise() -> None:
    matrix = _block(7, "f8", 80, 80) * 1e200
    a = lazyfuse.array(matrix)
    with np.errstate(over="raise"), pytest.raises(FloatingPointError, match="multiply"):
        a -= a[:, 2, None] * a[None, 2, :]
    assert np.asarray(a).tobytes() == matrix.tobytes()
