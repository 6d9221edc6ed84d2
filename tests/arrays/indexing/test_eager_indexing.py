"""Work of middling size that NumPy does at once: updates of a block, and arrays of single bytes."""

import numpy as np
import pytest

import lazyfuse as lf
from tests.pairwise import first

SIDE = 200  # 40,000 elements: more than `eager_below`, less than eight times as many


def block(xp, dtype=float):
    numbers = np.random.default_rng(7).integers(1, 100, (SIDE, SIDE))
    return xp.array(numbers.astype(dtype))


def eliminate(xp):
    a = block(xp)
    for k in range(40):
        a[k + 1 :, k] /= a[k, k] + 1000.0
        a[k + 1 :, k + 1 :] -= a[k + 1 :, k, None] * a[None, k, k + 1 :]
    return a


def shortest(xp):
    d = block(xp)
    for k in range(40):
        assert xp.minimum(d, d[:, k, None] + d[None, k, :], out=d) is d
    return d


def old_values(xp):
    """What was recorded, copied or taken before an update keeps the values of its time."""
    a = block(xp)
    row = a[3]
    twice = a * 2.0
    copied = a.copy()
    step = a[:, 5, None] * a[None, 7, :]
    part = a[1:, 2:]
    part -= step[1:, 2:]
    after = a + 1.0
    a[:, :] += step
    return row, twice, copied, step, part, after, a


def overlapping(xp):
    a = block(xp)
    a[0, 0] = 3.0
    below = a[1:]
    below += a[:-1]
    a.T[...] += a
    xp.add(a[:, 1:], a[:, :-1], out=a[:, 1:])
    xp.multiply(a, 0.5, out=a)
    return a


def whole_numbers(xp):
    a = block(xp, np.int64)
    for k in range(5):
        a[k:, k:] -= a[k:, k, None] * a[None, k, k:]
    a[1:] //= abs(a[:-1]) + 1
    return a


def of_bytes(xp):
    board = block(xp, np.uint8)
    rows = board + xp.roll(board, 1, axis=0)
    rows[3:7] += board[1:5]
    alive = (rows == 3) | (board & 1 == 1)
    count = xp.where(alive, block(xp), -1.0)
    alive[2:5] = False
    return rows, alive, count, board * 0.5 + block(xp), board.sum(axis=0), rows.astype(np.int32)


# every program at sizes where NumPy may take part. Where all is recorded: a loop, old values and
# bytes; other loops and overlaps that are recorded are met in test_rolls_and_joins and
# test_rank_one_updates
PROGRAMS = [eliminate, old_values, of_bytes, shortest, overlapping, whole_numbers]
CASES = [(program, below) for program in PROGRAMS for below in (30_000, 32_768, 1 << 20)]
CASES += [(program, below) for below in (1, 0) for program in PROGRAMS]


@pytest.mark.parametrize("case", first(3 * len(PROGRAMS) + 3, CASES))
def test_as_numpy(case):
    program, below = case
    expected = program(np)
    with lf.options(eager_below=below):
        found = program(lf)
        if not isinstance(expected, tuple):
            expected, found = (expected,), (found,)
        for theirs, ours in zip(expected, found, strict=True):
            ours = np.asarray(ours)
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(ours, theirs, strict=True)


def test_updates_that_numpy_refuses():
    a = block(lf, np.int64)
    step = np.asarray(block(np, float))
    rows = a[1:]
    with pytest.raises(TypeError, match="same_kind"):
        rows += lf.array(step[1:])
    with pytest.raises(ValueError, match="broadcast"):
        rows += lf.array(block(np, np.int64))
    np.testing.assert_array_equal(np.asarray(a), block(np, np.int64))


def test_bits_do_not_depend_on_what_was_computed_before():
    """Inexact operations take the way that sizes decide, whether values are there or not."""
    numbers = np.random.default_rng(3).integers(0, 200, 60_000)
    pending = lf.array(numbers.astype(np.float64)).astype(np.uint8)
    there = lf.array(numbers.astype(np.uint8))
    for function in (lambda x: x**2.3, lambda x: np.arctan2(x, 0.7), lambda x: np.power(2.3, x)):
        first, second = np.asarray(function(pending * 1)), np.asarray(function(there))
        assert first.dtype == second.dtype
        np.testing.assert_array_equal(first, second)


def test_powers_in_place():
    expected, found = block(np), block(lf)
    rows = found[2:]
    expected[2:] **= 2
    rows **= 2
    np.testing.assert_array_equal(np.asarray(found), expected)
    expected[2:] **= -1
    rows **= -1
    np.testing.assert_array_equal(np.asarray(found), expected)
