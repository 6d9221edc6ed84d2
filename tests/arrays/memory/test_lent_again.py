"""Arrays that NumPy gets again: memory that was lent before, and blocks whose values are known."""

from __future__ import annotations

import gc
import random
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from tests.campaign import rounds

SHAPES = {1: (60,), 2: (6, 10)}


@pytest.fixture(autouse=True)
def _recorded() -> Any:
    """All arrays are recorded, whatever their size."""
    with lf.options(eager_below=0):
        yield


def test_memory_is_lent_again_while_it_is_held_and_after() -> None:
    x = lf.array(np.arange(60.0))
    first = np.asarray(x)
    second = np.asarray(x[::2])
    assert np.shares_memory(first, second)
    first[0] = 7.0
    assert (float(x[0]), second[0]) == (7.0, 7.0)
    del first, second
    gc.collect()
    third = np.asarray(x[3:])
    third[0] = -1.0
    assert float(x[3]) == -1.0
    assert third.base is not None


def test_what_reads_the_old_values_keeps_them() -> None:
    x = lf.array(np.arange(60.0))
    np.asarray(x)[1] = 5.0
    y = x * 2.0
    copied = x.copy()
    lent = np.asarray(x)
    lent[:] = 0.0
    np.testing.assert_array_equal(np.asarray(y)[:3], [0.0, 10.0, 4.0])
    np.testing.assert_array_equal(np.asarray(copied)[:3], [0.0, 5.0, 2.0])
    np.asarray(copied)[0] = 9.0
    assert float(x[0]) == 0.0


def test_turned_blocks_are_lent_as_they_lie() -> None:
    x = lf.array(np.asfortranarray(np.arange(60.0).reshape(6, 10)))
    for _ in range(3):
        found = np.asarray(x)
        np.testing.assert_array_equal(found, np.arange(60.0).reshape(6, 10))
        np.asarray(x.T)[0, 0] = 0.0
    real = lf.array(np.arange(60.0) + 1j)
    np.asarray(real.imag)[2] = 4.0
    assert complex(real[2]) == 2 + 4j


def test_memory_that_may_not_be_written_is_lent_so() -> None:
    a = np.arange(60.0)
    a.flags.writeable = False
    x = lf.asarray(a)
    for _ in range(3):
        assert not np.asarray(x).flags.writeable


def _step(draw: random.Random, names: dict[str, Any], kept: list[Any], xp: Any) -> None:
    """One statement on arrays, copies, parts, and NumPy's views of them."""
    x, name = names[draw.choice("abc")], draw.choice("abc")
    kind = draw.randrange(9)
    if kind == 0:
        names[name] = x.copy()
    elif kind == 1:
        names[name] = x * 0.5 + 1.0
    elif kind == 2:
        names[name] = x[::-1]
    elif kind == 3:
        kept.append(np.asarray(x))
    elif kind == 4:
        kept.append(np.asarray(x[1:-1]))
    elif kind == 5 and kept:
        kept[draw.randrange(len(kept))][1] = draw.randrange(9)
    elif kind == 6:
        x[2:5] = draw.randrange(9)
    elif kind == 7 and kept:
        del kept[draw.randrange(len(kept))]
    else:
        x += 1.0


@rounds(150)
def test_random_loans(seeds: range) -> None:
    for seed in seeds:
        found = []
        for xp in (np, lf):
            draw = random.Random(seed)
            shape = SHAPES[draw.choice([1, 2])]
            names = {
                each: xp.array(np.arange(60.0).reshape(shape) + at) for at, each in enumerate("abc")
            }
            kept: list[Any] = []
            for _ in range(25):
                _step(draw, names, kept, xp)
            found.append([np.array(each) for each in (*names.values(), *kept)])
        for mine, theirs in zip(*found, strict=True):
            np.testing.assert_array_equal(mine, theirs, err_msg=f"seed {seed}")
