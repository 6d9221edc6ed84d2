"""Uniform numbers by a loop of ours: NumPy's stream, and the state that NumPy leaves behind."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse import config
from lazyfuse.kernels import pcg64

SIZES = [
    pcg64.FEWEST,
    pcg64.CHUNK,
    pcg64.CHUNK + 1,
    2 * pcg64.CHUNK + pcg64.LANES - 1,
    3 * pcg64.CHUNK - 1,
    (130, 257),
    (3, 0, 5),
    (),
    7,
]


def both(seed: Any = 11) -> tuple[Any, Any]:
    return np.random.default_rng(seed), lf.random.default_rng(seed)


def agree(theirs: Any, ours: Any) -> None:
    given, found = theirs[0], theirs[1]
    assert type(ours[1]) in (lf.ndarray, type(found)) or np.ndim(found) == 0
    assert np.array_equal(np.asarray(ours[1]), found)
    assert np.shape(ours[1]) == np.shape(found)
    assert ours[0].bit_generator.state == given.bit_generator.state


@pytest.mark.parametrize("size", SIZES)
def test_the_numbers_and_the_state_are_numpys(size: Any) -> None:
    theirs, ours = both()
    for draw in (theirs, ours):  # half of a word is left over, and stays
        draw.integers(0, 10, dtype=np.uint32)
    for _ in range(3):
        agree((theirs, theirs.random(size)), (ours, ours.random(size)))
        agree((theirs, theirs.uniform(-2.5, 7, size)), (ours, ours.uniform(-2.5, 7, size)))
        agree((theirs, theirs.uniform(size=size)), (ours, ours.uniform(size=size)))
    assert theirs.integers(0, 10, dtype=np.uint32) == ours.integers(0, 10, dtype=np.uint32)


@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1, 2**127 + 12345])
def test_extreme_states(seed: int) -> None:
    theirs, ours = both()
    state = theirs.bit_generator.state
    state["state"] = {"state": seed, "inc": state["state"]["inc"] | (1 << 127)}
    theirs.bit_generator.state = state
    ours.bit_generator.state = state
    agree((theirs, theirs.random(40000)), (ours, ours.random(40000)))


@pytest.mark.parametrize("maker", [np.random.PCG64, lf.random.PCG64])
def test_other_ways_to_the_same_generator(maker: Any) -> None:
    theirs = np.random.Generator(np.random.PCG64(5))
    ours = lf.random.Generator(maker(5))
    agree((theirs, theirs.random(50000)), (ours, ours.random(50000)))
    again = pickle.loads(pickle.dumps(ours))
    agree((theirs, theirs.random(50000)), (again, again.random(50000)))


@pytest.mark.parametrize("name", ["MT19937", "PCG64DXSM", "Philox", "SFC64"])
def test_other_bit_generators_are_numpys(name: str) -> None:
    theirs = np.random.Generator(getattr(np.random, name)(3))
    ours = lf.random.Generator(getattr(lf.random, name)(3))
    assert np.array_equal(np.asarray(ours.random(40000)), theirs.random(40000))


def test_what_numpy_alone_knows() -> None:
    theirs, ours = both()
    n = 40000
    for call in (
        lambda g: g.random(n, dtype=np.float32),
        lambda g: g.random(n, np.float64),
        lambda g: g.random(np.int64(n)),
        lambda g: g.random([n]),
        lambda g: g.random(out=np.empty(n)),
        lambda g: g.uniform(np.zeros(n), 2.0),
        lambda g: g.uniform(3.0, 3.0, n),
    ):
        found, wanted = call(ours), call(theirs)
        assert np.array_equal(np.asarray(found), wanted)
        assert found.dtype == wanted.dtype
    for wrong in (
        lambda g: g.random(-1),
        lambda g: g.random("x"),
        lambda g: g.random(n, unknown=1),
        lambda g: g.uniform(2.0, 1.0, n),
        lambda g: g.uniform(2.0, 1.0, 0),
        lambda g: g.uniform(0.0, np.inf, n),
        lambda g: g.uniform(0, 10**400, n),
        lambda g: g.uniform(-1.7e308, 1.7e308, n),
    ):
        with pytest.raises(Exception) as wanted_error:  # noqa: PT011
            wrong(theirs)
        with pytest.raises(wanted_error.type) as error:
            wrong(ours)
        assert str(error.value) == str(wanted_error.value)
    agree((theirs, theirs.random(n)), (ours, ours.random(n)))


def test_any_number_of_threads_and_switched_off() -> None:
    wanted = np.random.default_rng(2).random(300000)
    for options in ({"threads": 1}, {"threads": 2}, {"routines": False}):
        with config.options(**options):
            found = lf.random.default_rng(2).random(300000)
        assert np.array_equal(np.asarray(found), wanted)
