"""`x[mask]` and `x[mask] = value` on values that exist: C looks at eight truth values at once."""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy
import pytest

import lazyfuse
from tests import campaign

DTYPES = ("?", "i1", "u2", "i4", "f4", "i8", "f8", "c8", "c16", "g", ">f8", "M8[s]", "O")
NUMBERS: tuple[Any, ...] = (
    0, 1, -3, 200, 2**40, 2**80, 1.5, float("nan"), 1e300, 1j, True, numpy.float64(0.25),
    numpy.float32(3.5), numpy.int8(-7), numpy.complex64(1 + 2j), "3", None,
)  # fmt: skip


def drawn(draw: random.Random, shape: tuple[int, ...], dtype: str) -> Any:
    """An array of random bytes' worth of small numbers, in some order in memory."""
    size = int(numpy.prod(shape))
    values = numpy.array([draw.randrange(100) for _ in range(size)], "i8")
    found = values.astype(dtype).reshape(shape)
    kind = draw.randrange(8)
    if kind == 0:
        found = numpy.asfortranarray(found)
    elif kind == 1:
        found = numpy.repeat(found, 2, axis=0)[::2]
    elif kind == 2:
        found.flags.writeable = False
    return found


def masked(draw: random.Random, shape: tuple[int, ...]) -> Any:
    """A mask of some density, perhaps of some axes alone, or of bytes that are neither 0 nor 1."""
    shape = shape[: draw.choice((len(shape), len(shape), 1))]
    size = int(numpy.prod(shape))
    density = draw.choice((0.0, 0.02, 0.5, 0.9, 1.0))
    mask = numpy.array([draw.random() < density for _ in range(size)], "?").reshape(shape)
    if draw.random() < 0.15:
        mask = (mask.view("u1") * draw.choice((2, 3, 128, 255))).astype("u1").view("?")
    if draw.random() < 0.1:
        mask = numpy.asfortranarray(mask)
    return mask


def outcome(statement: str, names: dict[str, Any]) -> tuple[Any, ...]:
    """What a statement does: its result, warnings and error, and the array afterwards."""
    with warnings.catch_warnings(record=True) as met:
        warnings.simplefilter("always")
        error = None
        try:
            exec(statement, names)
        except Exception as found:  # compared below
            error = type(found), str(found)
    told = [(each.category, str(each.message)) for each in met]
    kept = [numpy.array(names.get(name)) for name in ("x", "y")]
    return error, told, kept


def check(draw: random.Random, large: bool) -> None:
    rows = draw.choice((0, 1, 7, 8, 9, 40, 129)) if not large else draw.randrange(9_000, 30_000)
    shape = draw.choice(((rows,), (rows, 3), (rows, 1), (rows, 2, 2)))
    x, mask = drawn(draw, shape, draw.choice(DTYPES)), masked(draw, shape)
    if mask.dtype == x.dtype and mask.shape == x.shape and draw.random() < 0.3:
        mask = x  # a write changes the mask
    kept = int(numpy.count_nonzero(mask))
    value: Any = draw.choice(NUMBERS)
    if draw.random() < 0.5:
        count = draw.choice((kept, kept, kept, 1, kept + 1))
        dtype = x.dtype if draw.random() < 0.7 else draw.choice(("i8", "f8", "c16"))
        value = numpy.arange(count).astype(dtype)
    statement = draw.choice(("y = x[mask]", "x[mask] = value", "y = x.copy(); y[mask] = value"))
    ours = {"x": lazyfuse.array(x), "value": value}
    ours["mask"] = ours["x"] if mask is x else lazyfuse.array(mask)
    if isinstance(value, numpy.ndarray):
        ours["value"] = lazyfuse.array(value)
    theirs = {"x": numpy.array(x), "value": value}
    theirs["mask"] = theirs["x"] if mask is x else mask
    for names in (ours, theirs):
        if not x.flags.writeable:
            names["x"].flags.writeable = False
    found, wanted = outcome(statement, ours), outcome(statement, theirs)
    assert found[0] == wanted[0], (statement, x.dtype, shape, value)
    assert found[1] == wanted[1], (statement, x.dtype, shape, value)
    for ours_now, theirs_now in zip(found[2], wanted[2], strict=True):
        assert ours_now.dtype == theirs_now.dtype
        if ours_now.dtype.kind == "O":  # a NaN of objects is equal to none
            assert repr(ours_now.tolist()) == repr(theirs_now.tolist())
        else:
            numpy.testing.assert_array_equal(ours_now, theirs_now)


@campaign.rounds(400)
@pytest.mark.parametrize("large", [False, True])
def test_reads_and_writes_are_numpys(seeds: range, large: bool) -> None:
    for seed in seeds[: len(seeds) // 20 if large else None]:
        check(random.Random(seed), large)


def test_a_part_that_shares_the_masks_memory() -> None:
    found = []
    for np in (numpy, lazyfuse):
        block = np.array([True, False, True, True, False, True, True, True, False, True] * 3)
        block[1:][block[:-1]] = False
        found.append(numpy.array(block))
    numpy.testing.assert_array_equal(*found)
