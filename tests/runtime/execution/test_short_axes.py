"""Reductions over short axes are written out: NumPy's values, in a kernel with what is around."""

from __future__ import annotations

import itertools
import re
import warnings
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse import config
from lazyfuse.codegen.rewrite.unroll_reductions import ONE_BY_ONE
from tests.helpers.discrete_device import in_use
from tests.pairwise import first

SIZE = 20_000
LENGTHS = (2, 7, 8)
NAMES = ("sum", "prod", "min", "max", "argmin", "argmax", "any", "all", "mean")


@pytest.fixture(autouse=True)
def _recorded() -> Any:
    with config.options(eager_below=1000):
        yield


def equal(found: Any, wanted: Any) -> None:
    found = np.asarray(found)
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    assert found.strides == wanted.strides
    if wanted.dtype.kind == "f":  # whichever NaN it is
        assert np.array_equal(np.isnan(found), np.isnan(wanted))
        found, wanted = np.nan_to_num(found, nan=1.0), np.nan_to_num(wanted, nan=1.0)
    assert found.tobytes() == wanted.tobytes()


def drawn(dtype: str, shape: tuple[int, ...], seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape) * 3
    if dtype[0] == "f":
        values[rng.random(shape) < 0.02] = np.nan
        values[rng.random(shape) < 0.01] = np.inf
    return np.abs(values).astype(dtype) if dtype[0] == "u" else values.astype(dtype)


def check(run: Any, *arrays: Any) -> None:
    wanted = run(np, *arrays)
    found = run(lf, *[lf.array(each) for each in arrays])
    if not isinstance(wanted, tuple):
        wanted, found = (wanted,), (found,)
    for one, other in zip(found, wanted, strict=True):
        equal(one, other)


def places(length: int) -> list[tuple[tuple[int, ...], int]]:
    return [((1500, length), 1), ((length, 1500), 0), ((30, length, 50), 1), ((30, 50, length), -1)]


@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "u1", "b1"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore")
def test_values(name: str, dtype: str) -> None:
    lengths = LENGTHS if dtype == "f8" else (3,)
    for length, (order, _) in itertools.product(lengths, enumerate("xx")):
        for shape, axis in places(length)[order::2]:
            x, y = drawn(dtype, shape), drawn(dtype, shape, 1)

            def run(xp: Any, x: Any, y: Any, axis: int = axis) -> Any:
                made = (x | y) if dtype[0] in "bu" else x * y + x
                return getattr(xp, name)(made, axis=axis)

            check(run, x, y)


# without fusion nothing is written out: its kernels are those of other tests
@pytest.mark.parametrize("way", first(2, [(True, 1), (True, 2), (False, 1)]))
def test_nearest_centres(way: tuple[bool, int]) -> None:
    fusion, threads = way
    rng = np.random.default_rng(1)
    data, centres = rng.standard_normal((SIZE, 2)), rng.standard_normal((3, 2))

    def run(xp: Any, data: Any, centres: Any) -> Any:
        difference = data[:, None, :] - centres[None, :, :]
        distance = xp.sum(difference * difference, axis=2)
        nearest, least = xp.argmin(distance, axis=1), xp.amin(distance, axis=1)
        return nearest, least, xp.sum(least), xp.argmax(distance, axis=1)

    with config.options(fusion=fusion, threads=threads, threads_above=0):
        for _ in range(3):
            check(run, data, centres)


def test_one_kernel() -> None:
    data, centres = lf.array(drawn("i8", (SIZE, 2))), lf.array(drawn("i8", (4, 2)))
    difference = data[:, None, :] - centres[None, :, :]
    distance = (difference * difference).sum(axis=2)
    nearest = distance.argmin(axis=1)
    del difference, distance
    assert str(lf.explain(nearest)).count("kernel 0:") == 1
    assert "kernel 1:" not in str(lf.explain(nearest))


def test_values_that_are_kept_stay_whole() -> None:
    def run(xp: Any, x: Any) -> Any:
        squares = x * x
        length = squares.sum(axis=1)
        return squares, length, squares.min(axis=0), xp.sqrt(length)

    check(run, drawn("i4", (SIZE, 3)))
    check(run, drawn("i4", (3, SIZE)).T)
    check(run, drawn("i4", (SIZE, 6))[:, ::2])
    check(run, drawn("i4", (2 * SIZE, 3))[::-2, ::-1])


def test_lengths_have_plans_of_their_own() -> None:
    for length in (2, 3, 2, ONE_BY_ONE, ONE_BY_ONE + 1, 17, 3):
        check(lambda xp, x: (x * 0.5 + x).sum(axis=1), np.abs(drawn("i4", (SIZE, length))) + 0.1)


def test_zeros_have_numpys_signs() -> None:
    x = np.full((SIZE, 3), -0.0)
    check(lambda xp, x: (x * 1.0).sum(axis=1), x)
    check(lambda xp, x: (x * 1.0).prod(axis=1), x)


# other layouts are met with strided operands
@pytest.mark.parametrize("order", first(1, ["C", "F"]))
def test_vectors_of_three(order: Any) -> None:
    place = np.array(np.random.default_rng(3).standard_normal((3, 90)), order=order)

    def run(xp: Any, place: Any) -> Any:
        difference = place[:, None, :] - place[:, :, None]
        squared = (difference * difference).sum(axis=0) + 0.0025
        pull = 1.0 / (squared * xp.sqrt(squared))
        return (difference * pull).sum(axis=2), squared.max(axis=1)

    for _ in range(3):
        check(run, place)


def test_transposed_values_and_loops() -> None:
    x = drawn("i8", (4, 200, 60))

    def run(xp: Any, x: Any) -> Any:
        state = xp.array(x)
        for _ in range(4):
            moved = state.transpose(2, 1, 0) * 2
            best = moved.max(axis=2)
            state[1] = best.T - state[1]
        return state, (state.transpose(1, 0, 2) + 1).sum(axis=1)

    check(run, x)


def test_warnings_name_the_reduction() -> None:
    x = np.full((SIZE, 3), 1e308)
    for xp, given in ((np, x), (lf, lf.array(x))):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            np.asarray((given * 0.9).sum(axis=1))
        assert [str(each.message) for each in caught] == ["overflow encountered in reduce"], xp


def test_strided_operands() -> None:
    """They are taken together before they are computed with."""
    x = drawn("f4", (2 * SIZE + 1, 3))
    x = np.nan_to_num(x).astype("f8")

    def run(xp: Any, x: Any) -> Any:
        a, b, c = x[1::2, 0], x[:-1:2, 1], x[::-2, 2][:-1]
        made = a * b - c * 0.5 + a
        return made, made.sum(), (a - c).max(), made > b

    with config.options(threads=1):
        check(run, x)
    with config.options(threads=2, threads_above=0):
        check(run, x)
    flags = x > 0

    def masks(xp: Any, x: Any) -> Any:
        return (x[:, 0] & x[:, 1]) | (x[:, 2] ^ x[:, 1]), (x[:, 0] & ~x[:, 1] | x[:, 2]).sum()

    check(masks, flags)


def test_strided_operands_in_place() -> None:
    x = np.nan_to_num(drawn("f8", (SIZE, 2)), posinf=2.0)

    def run(xp: Any, x: Any) -> Any:
        state = xp.array(x)
        column = state[:, 0]
        column += column * 0.5 - state[:, 1] * column
        state[1:, 1] = state[:-1, 1] * 2.0 + state[1:, 1] - state[:-1, 0]
        return state

    check(run, x)


def test_on_a_device_with_memory_of_its_own() -> None:
    rng = np.random.default_rng(5)
    data, centres = rng.standard_normal((SIZE, 2)), rng.standard_normal((3, 2))

    def run(xp: Any, data: Any, centres: Any) -> Any:
        moved = data * 2.0
        if xp is lf:
            lf.evaluate(moved)  # lies there alone
        difference = moved[:, None, :] - centres[None, :, :]
        distance = xp.sum(difference * difference, axis=2)
        return xp.argmin(distance, axis=1), (moved + 1.0).sum(axis=1)

    with in_use():
        check(run, data, centres)


# each size and each axis once: where a window lies hangs on the axis, who computes on the size
@pytest.mark.parametrize("window", first(2, [(SIZE, 1), (200, 0), (SIZE, 0), (200, 1)]))
def test_windows_of_memory_in_a_run_that_is_repeated(window: tuple[int, int]) -> None:
    """Each place along the axis lies elsewhere in its window, in a replay as well."""
    rows, axis = window

    def run(xp: Any, x: Any) -> Any:
        if axis:
            steps = (x[:, 1:] + x[:, :-1]) / 2.0
            reverse = x[::-1, ::-1][:, 2:7] * 3.0
        else:
            steps = (x[1:] + x[:-1]) / 2.0
            reverse = x[::-1, ::-1][2:7] * 3.0
        return steps.sum(axis=axis), reverse.max(axis=axis)

    for seed in range(6):
        x = drawn("f8", (rows, 8) if axis else (8, rows), seed)
        with config.options(eager_below=100):
            mine = lf.array(x)
            for found, wanted in zip(run(lf, mine), run(np, x), strict=True):
                equal(found, wanted)


@pytest.mark.parametrize("dtype", first(1, ["f8", "i4"]))
def test_what_one_operation_makes_of_small_arrays_is_made_twice(dtype: str) -> None:
    """Differences of all pairs: their squares are added up, and they are used once more."""
    places = drawn(dtype, (3, 90), 4)
    places[~np.isfinite(places)] = 1

    def run(xp: Any, x: Any) -> Any:
        difference = x[:, None, :] - x[:, :, None]
        squared = (difference * difference).sum(axis=0) + 1
        return (difference * squared).sum(axis=2), difference, difference.max(axis=0)

    for values in (places, places * 2, places[:, ::-1].copy()):
        check(run, values)
    x = lf.array(places)
    with config.options(eager_below=0):
        x = x * 1
        difference = x[:, None, :] - x[:, :, None]
        squared = (difference * difference).sum(axis=0) + 1
        total = (difference * squared).sum(axis=2)
        text = str(lf.explain(total))
    assert "over [90, 90]" in text
    assert not re.search(r"add.reduce -> \w+\[90, 90\]", text)  # it is written out
