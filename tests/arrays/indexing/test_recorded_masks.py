"""`where`, masked writes, parts of complex numbers recorded in C: Python's nodes, NumPy values."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse import config
from tests import campaign
from tests.arrays.indexing.test_recorded_parts import _structure, recorded_twice


@pytest.fixture(autouse=True)
def _recorded() -> Iterator[None]:
    with config.options(eager_below=0, tape_after=1):
        yield


def _numbers(xp: Any, generator: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    """A block, alone or with views on it, pending or evaluated."""
    values = generator.integers(-5, 6, shape) + 1j * generator.integers(-5, 6, shape)
    values = (values if dtype.startswith("c") else values.real).astype(dtype)
    x = xp.array(values) + xp.array(values)
    if generator.random() < 0.5:
        x[:1]
    if generator.random() < 0.3:
        np.asarray(x)
    return x


def _statement(xp: Any, seed: int) -> list[Any]:
    """One random statement (a loop would be flushed now and then); the arrays that it leaves."""
    generator = np.random.default_rng(seed)
    shape = [(6, 7), (5,), (3, 4, 2), (1, 8), (4, 1)][seed % 5]
    dtype = ["c16", "f8", "c8", "i4"][seed % 4]
    x, y = (_numbers(xp, generator, shape, dtype) for _ in range(2))
    found = []
    part = [x, x[::-1], x[..., 1:], x[...], x.T, x[..., None]][generator.integers(6)]
    mask = xp.abs(x) > generator.integers(0, 9)
    kind = generator.integers(8)
    try:
        if kind == 0:
            found.append(part.real * part.imag)
        elif kind == 1:
            found.append(part.imag - part.real[..., ::-1])
        elif kind == 2:
            found.append(xp.where(mask, x, [y, y[:1], 3, 2.5, x][generator.integers(5)]))
        elif kind == 3:
            found.append(xp.where(x.real > 1, x.imag, x.real))
        elif kind < 6:
            x[mask] = [7, 0, -2.0, 1e3][generator.integers(4)]
        elif kind == 6:
            part[xp.abs(part) > 3] = int(generator.integers(9))
        else:
            y[...] = x
            y.real[...] = part.imag if part.shape == y.shape else 1
            found.append(y.real + 1)
    except (IndexError, ValueError, TypeError) as error:
        found.append(type(error).__name__)
    return [*found, x, y]


@campaign.rounds(240)
def test_the_nodes_are_those_of_the_python_text(seeds: range) -> None:
    for seed in seeds:
        found, expected = recorded_twice(_statement, seed)
        for ours, theirs in zip(found, expected, strict=True):
            if isinstance(ours, str):
                assert ours == theirs
            else:
                assert _structure(ours) == _structure(theirs), seed


@campaign.rounds(240)
def test_values_and_orders_are_numpys(seeds: range) -> None:
    for seed in seeds:
        expected = _statement(np, seed)
        for _ in range(2):
            for ours, theirs in zip(_statement(lf, seed), expected, strict=True):
                if isinstance(theirs, str):
                    assert ours == theirs
                    continue
                real = np.asarray(ours)
                assert (real.dtype, real.shape) == (theirs.dtype, theirs.shape), seed
                assert real.strides == theirs.strides or not real.size or 1 in real.shape
                assert np.array_equal(real, theirs), seed


def test_masked_writes_leave_what_was_read_before() -> None:
    for start in (np.zeros(40), np.arange(40.0)):
        x = lf.array(start) + 1
        before, mask = x * 2, x > 3
        x[mask] = 9
        second = x + 0
        x[mask] = -1
        expected = np.where(start + 1 > 3, 9, start + 1)
        np.testing.assert_array_equal(np.asarray(before), (start + 1) * 2)
        np.testing.assert_array_equal(np.asarray(second), expected)
        np.testing.assert_array_equal(np.asarray(x), np.where(start + 1 > 3, -1, start + 1))


def test_parts_see_later_writes_to_their_numbers() -> None:
    z = lf.array(np.arange(12.0)) + 1j
    z.imag  # noqa: B018  # on a storage from here on
    real, imag = z.real, z.imag
    first = real + imag
    z *= 2j
    second = real + imag
    np.testing.assert_array_equal(np.asarray(first), np.arange(12.0) + 1)
    np.testing.assert_array_equal(np.asarray(second), -2 + 2 * np.arange(12.0))
    assert real.base is z
    imag[...] = real
    np.testing.assert_array_equal(np.asarray(z), np.full(12, -2 - 2j))


def test_errors_of_masked_writes_are_numpys() -> None:
    for value in (3.5j, 2**70, float("nan")):
        for dtype in ("i4", "f8"):
            x, real = lf.ones(9, dtype) + lf.ones(9, dtype), np.ones(9, dtype) * 2
            shown = []
            for each in (x, real):
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore", RuntimeWarning)
                        each[each > 1] = value
                    shown.append("")
                except (TypeError, ValueError, OverflowError) as error:
                    shown.append(type(error).__name__)
            assert shown[0] == shown[1], (value, dtype)
            if not shown[0]:
                np.testing.assert_array_equal(np.asarray(x), real)
