"""Updates of parts of blocks: done at once or recorded, what is read later is what NumPy has."""

from __future__ import annotations

import operator
import random
import warnings
from typing import Any

import numpy as np
import pytest

import lazyfuse
from lazyfuse.runtime.placement import devices

KEYS = [
    np.s_[1:, 2:], np.s_[:, 0], np.s_[0], np.s_[1:-1, 1:-1], np.s_[:, ::-1], np.s_[::2, 1::2],
    np.s_[...], np.s_[2:, None, 1], np.s_[-1, :], np.s_[:0], np.s_[3, 2],
]  # fmt: skip
WAYS = [operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ipow]
DTYPES = ["f8", "f4", "i8", "c16", "u1"]


def _program(xp: Any, seed: int) -> list[Any]:
    """A random run of reads and writes of parts; every array that was met, and every refusal."""
    pick = random.Random(seed)
    side = pick.choice([3, 5, 7, 9])
    dtype = pick.choice(DTYPES)
    start = np.arange(1, side * (side + 1) + 1).reshape(side, side + 1) % 7 + 1
    a = xp.array(start.astype(dtype))
    if pick.random() < 0.6:
        a = a + a
    if pick.random() < 0.2:
        a = a.T
    met: list[Any] = [a]
    told: list[str] = []
    held: list[Any] = []
    for _ in range(pick.randint(4, 14)):
        target = pick.choice(met)
        key = pick.choice(KEYS)
        what = pick.random()
        try:
            if what < 0.45:
                other = pick.choice([2, 1.5, None, None, [1], np.float64(3), 1j])
                if other is None:
                    other = pick.choice(met)[pick.choice(KEYS)]
                part = target[key]
                target[key] = pick.choice(WAYS)(part, other)
            elif what < 0.6:
                part = target[key]
                if hasattr(part, "ndim") and part.ndim:
                    met.append(part)
                    pick.choice(WAYS)(part, pick.choice([2, 1, target[key]]))
            elif what < 0.7:
                met.append(target * 2)
            elif what < 0.78:
                target[key] = pick.choice([0, 5, 2.5])
            elif what < 0.84:
                target[key] = target[key]
            elif what < 0.88:
                held.append(np.asarray(target))
            elif what < 0.92:
                target.flags.writeable = pick.random() < 0.5
            elif what < 0.96:
                met.append(target.real)
            else:
                float(np.asarray(target).real.sum())
        except (ValueError, IndexError, TypeError, ZeroDivisionError) as error:
            told.append(type(error).__name__)
    return [*[np.array(x) for x in (*met, *held)], told]


@pytest.mark.parametrize("eager_below", [0, 8, 30, 1000])
@pytest.mark.parametrize("first", range(0, 240, 60))
def test_random_updates(eager_below: int, first: int) -> None:
    """Values, dtypes and refusals are NumPy's, however much runs at once.

    Powers are inexact: other devices than the CPU compute few of them, too, by their own functions.
    """
    units = 16 if devices.current().asynchronous else 0
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for seed in range(first, first + 60):
            wanted = _program(np, seed)
            with lazyfuse.options(eager_below=eager_below):
                found = _program(lazyfuse, seed)
            assert wanted.pop() == found.pop(), seed
            for one, other in zip(wanted, found, strict=True):
                assert one.dtype == other.dtype, seed
                near = units * np.finfo(one.dtype).eps if one.dtype.kind in "fc" else 0
                np.testing.assert_allclose(other, one, near, err_msg=str(seed), strict=True)


def test_a_row_and_a_column_update_the_rest() -> None:
    """Elimination in place, on a block that is recorded and one that is updated at once."""
    start = np.random.default_rng(3).normal(size=(220, 220)) + 220 * np.eye(220)

    def eliminated(xp: Any) -> Any:
        a = xp.array(start)
        for k in range(60):
            a[k + 1 :, k] /= a[k, k]
            a[k + 1 :, k + 1 :] -= a[k + 1 :, k, None] * a[None, k, k + 1 :]
        return np.asarray(a)

    np.testing.assert_array_equal(eliminated(lazyfuse), eliminated(np))


def test_a_pending_reader_keeps_the_old_values() -> None:
    """An update at once may not change what recorded work has yet to read."""
    a = lazyfuse.array(np.arange(40_000.0).reshape(200, 200))
    float(a.sum())
    later = a[1:, 1:] * 2.0
    a[1:, 1:] += 1.0
    a[0] += a[1]
    real = np.arange(40_000.0).reshape(200, 200)
    np.testing.assert_array_equal(np.asarray(later), real[1:, 1:] * 2.0)
    real[1:, 1:] += 1.0
    real[0] += real[1]
    np.testing.assert_array_equal(np.asarray(a), real)


def test_self_assignment_is_refused_by_read_only_memory() -> None:
    """`x[key] = x[key]` writes nothing, but it may not be asked of read-only arrays."""
    a = lazyfuse.array(np.arange(40_000.0).reshape(200, 200)) * 1.0
    a[1:] = a[1:]
    a.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        a[1:] = a[1:]
