"""Ufuncs with `where` and `out` on small arrays: all elements and a selection, or NumPy's way."""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np
import pytest

import lazyfuse
from tests import campaign

Array = np.ndarray[Any, np.dtype[Any]]
ONE = "negative absolute sqrt floor square sign logical_not exp reciprocal".split()
TWO = "add subtract multiply divide maximum fmin less logical_and bitwise_xor arctan2".split()
DTYPES = "? i4 i8 u1 f4 f8 c16".split()


def mask_of(draw: random.Random, shape: tuple[int, ...]) -> Array:
    """A mask that changes often or seldom; any byte but 0 is true."""
    share = draw.choice([0.0, 0.02, 0.5, 0.5, 0.5, 0.98, 1.0])
    made = np.random.default_rng(draw.randrange(2**32))
    mask = made.random(shape) < share
    if mask.size and draw.random() < 0.2:
        mask.view("u1")[mask] = made.integers(1, 256, mask.sum())
    return mask


def values_of(draw: random.Random, shape: tuple[int, ...], dtype: str) -> Array:
    made = np.random.default_rng(draw.randrange(2**32)).normal(size=shape) * 5
    if dtype[0] == "f" and made.size and draw.random() < 0.3:
        made.flat[draw.randrange(made.size)] = draw.choice([np.nan, np.inf, 0.0, -0.0])
    return (made > 0 if dtype == "?" else np.abs(made) if dtype == "u1" else made).astype(dtype)


def outcome(xp: Any, call: tuple[Any, ...], arrays: list[Any]) -> Any:
    """What a call gives, raises, warns of, and leaves in its operands."""
    name, places, named = call
    args = [arrays[each] if type(each) is int else each[0] for each in places]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            found = getattr(xp, name)(*args, **{key: arrays[at] for key, at in named.items()})
        except (TypeError, ValueError) as error:
            found = type(error), str(error)
    assert found is arrays[named["out"]] or type(found) is tuple
    return found, [str(each.message) for each in told], [np.asarray(each) for each in arrays]


def check(draw: random.Random) -> None:
    shape = draw.choice([(0,), (1,), (7,), (40,), (700,), (5, 9), (30, 41), (2, 3, 4), (3000,)])
    dtype = draw.choice(DTYPES)
    arrays = [values_of(draw, shape, dtype) for _ in range(3)]
    arrays += [values_of(draw, shape, draw.choice(DTYPES)), mask_of(draw, shape)]
    name = draw.choice(ONE + TWO)
    places: list[Any] = [draw.choice([0, 1, 2, 0, 1, 3]) for _ in range(1 + (name in TWO))]
    if name in TWO and draw.random() < 0.3:
        places[draw.randrange(2)] = (draw.choice([2, 0.5, True]),)
    named = {"out": draw.choice([0, 1, 2, 2, 3]), "where": 4}
    if draw.random() < 0.3:
        named = dict(reversed(named.items()))
    if dtype == "?" and draw.random() < 0.2:
        named["where"] = named["out"]  # the mask itself is written
    ours = [lazyfuse.array(each) for each in arrays]
    if len(shape) == 2 and draw.random() < 0.3:
        arrays = [each.T for each in arrays]
        ours = [each.T for each in ours]
    call = name, places, named
    expected, found = outcome(np, call, arrays), outcome(lazyfuse, call, ours)
    assert found[1] == expected[1], call
    if type(expected[0]) is tuple:
        assert found[0] == expected[0], call
    for one, other in zip(found[2], expected[2], strict=True):
        np.testing.assert_array_equal(one, other, strict=True)


@campaign.rounds(3000)
def test_random_calls(seeds: range) -> None:
    for seed in seeds:
        check(random.Random(seed))


@pytest.mark.parametrize("where", ["front", "all over"])
def test_a_mask_is_judged_by_its_beginning(where: str) -> None:
    mask = np.random.default_rng(1).random(20_000) < 0.5
    mask[: 3000 if where == "front" else 0] = False
    theirs = np.linspace(-1, 1, mask.size)
    ours, given = lazyfuse.array(theirs), lazyfuse.array(mask)
    lazyfuse.negative(ours, out=ours, where=given)
    np.negative(theirs, out=theirs, where=mask)
    np.testing.assert_array_equal(np.asarray(ours), theirs)
    assert ours.flags.c_contiguous
