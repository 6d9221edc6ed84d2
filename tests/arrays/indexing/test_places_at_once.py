"""`x[places]` and `x[places] = value`, of small arrays and of small parts of large ones."""

from __future__ import annotations

import random
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from tests.campaign import rounds

DTYPES = ("f8", "f4", "i8", "i2", "u1", "c16", "?", "M8[s]")
PLACES = ("i8", "i4", "u4", "u8", "i2", "q", "?")


def world(xp: ModuleType, seed: int) -> tuple[dict[str, Any], str]:
    """Names, and a statement on them."""
    draw = random.Random(seed)
    numbers = np.random.default_rng(seed)
    size = draw.choice([1, 5, 60, 50_000])
    rows = draw.choice([(), (), (3,), (2, 2)])
    shape = (size, *rows)
    whole = numbers.integers(-100, 100, shape).astype(draw.choice(DTYPES))
    count = draw.choice([0, 1, 2, 7, 40])
    low, high = draw.choice([(-size, size), (0, size), (0, size), (-size - 1, size + 1)])
    places = numbers.integers(low, high, draw.choice([count, (count, 2)]))
    kind = draw.choice(PLACES)
    if kind == "?":
        places = numbers.random(size) > 0.5
    places = np.abs(places) if kind[0] == "u" else places
    places = places.astype(kind)
    values = numbers.integers(0, 9, (*places.shape, *rows)).astype(draw.choice([whole.dtype, "i8"]))
    names = {
        "x": xp.array(whole), "p": xp.array(places), "q": places, "v": xp.array(values),
        "w": places.tolist(), "k": draw.choice([2, 1.5, True, 3000]),
    }  # fmt: skip
    key = draw.choice("ppqw")
    view = draw.choice(["x", "x", "x[::-1]", "x[1:]", "x.T"])
    statement = draw.choice([
        f"y = {view}[{key}]", f"y = {view}[{key}]", f"{view}[{key}] = v", f"{view}[{key}] = k",
        f"{view}[{key}] = x[{key}]", f"{view}[{key}] += 1", f"y = {view}[{key}, ...]",
    ])  # fmt: skip
    return names, statement


def outcome(xp: ModuleType, seed: int) -> Any:
    names, statement = world(xp, seed)
    try:
        exec(statement, names)
    except (IndexError, ValueError, TypeError, OverflowError) as error:
        return type(error), str(error)
    x, y = np.asarray(names["x"]), names.get("y")
    y = np.asarray(y) if y is not None else x
    return y.dtype, y.shape, y.flags.c_contiguous, y.tobytes(), x.tobytes()


@rounds(600)
def test_random_places(seeds: range) -> None:
    with np.errstate(all="ignore"):
        for seed in seeds:
            expected, found = outcome(np, seed), outcome(lf, seed)
            assert found == expected, f"seed {seed}: {world(np, seed)[1]}"


def test_nothing_is_written_where_a_place_is_out_of_bounds() -> None:
    x = lf.array(np.arange(10.0))
    with pytest.raises(IndexError, match="index 10 is out of bounds for axis 0 with size 10"):
        x[np.array([0, 1, 10])] = 5.0
    assert x.tolist() == np.arange(10.0).tolist()


def test_the_last_of_equal_places_counts() -> None:
    x = lf.array(np.zeros(4))
    x[lf.array([1, 1, 2])] = lf.array([5.0, 6.0, 7.0])
    assert x.tolist() == [0.0, 6.0, 7.0, 0.0]
