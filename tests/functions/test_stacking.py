"""`stack` of arrays that are not evaluated yet: a new block whose parts they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse import config


@pytest.fixture(autouse=True)
def _recorded() -> Iterator[None]:
    with config.options(eager_below=1):
        yield


def _parts(xp: Any, seed: int) -> tuple[list[Any], int]:
    """Arrays of one shape, most of them pending, in one or several memory orders; an axis."""
    generator = np.random.default_rng(seed)
    shape = [(6, 5), (7,), (3, 4, 2), (1, 5), (4, 4)][generator.integers(5)]
    base = generator.integers(-9, 9, (4, *shape)).astype(["f8", "i4", "c16"][seed % 3])
    whole = xp.array(base) + base.dtype.type(1)
    parts = []
    for _ in range(int(generator.integers(1, 5))):
        kind = generator.integers(7)
        x = whole[int(generator.integers(4))]
        if kind == 0:
            x = x * 2
        elif kind == 1:
            x = (x.T * 3).T
        elif kind == 2:
            np.asarray(x + 1)
        elif kind == 3:
            x = xp.array(base[0])
        elif kind == 4:
            x = x[::-1]
        elif kind == 5 and base.dtype.kind == "c":
            x = x.real
        parts.append(x)
    return parts, int(generator.integers(-len(shape) - 2, len(shape) + 2))


@pytest.mark.parametrize("part", range(10))
def test_values_orders_and_errors_are_numpys(part: int) -> None:
    for seed in range(part * 50, part * 50 + 50):
        parts, axis = _parts(np, seed)
        try:
            expected = np.stack(parts, axis=axis)
        except ValueError as error:
            with pytest.raises(type(error)):
                lf.stack(_parts(lf, seed)[0], axis)
            continue
        for _ in range(2):
            found = np.asarray(lf.stack(tuple(_parts(lf, seed)[0]), axis))
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape), seed
            long = np.array(expected.shape) > 1
            assert np.array_equal(found, expected), seed
            strides = np.array(found.strides)[long], np.array(expected.strides)[long]
            assert np.array_equal(*strides), seed


def test_what_is_written_afterwards_changes_nothing() -> None:
    for turn in range(12):
        x = lf.array(np.arange(40.0)) + turn
        y = x[::-1]
        both = lf.stack([x, y])
        x[3] = 100.0
        both[0, 5] = -1.0
        plain = np.arange(40.0) + turn
        assert np.array_equal(np.asarray(both[1]), plain[::-1])
        assert float(both[0, 3]) == plain[3]
        assert float(x[5]) == plain[5]


def test_one_array_twice_and_other_arguments() -> None:
    real = np.arange(12.0).reshape(3, 4)
    x = lf.array(real) * 1.0
    assert np.array_equal(np.asarray(lf.stack([x, x, x], axis=-1)), np.stack([real] * 3, axis=-1))
    out = lf.empty((2, 3, 4))
    assert lf.stack([x, x], out=out) is out
    assert np.array_equal(np.asarray(out), np.stack([real, real]))
    assert lf.stack([x, x], dtype="f4").dtype == np.float32
    assert np.array_equal(np.asarray(lf.stack([x, real])), np.stack([real, real]))
    with pytest.raises(ValueError, match="same shape"):
        lf.stack([x, x[1:]])
    with pytest.raises(ValueError, match="at least one"):
        lf.stack([])
