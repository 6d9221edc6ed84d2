"""Random numbers: seeds that are our arrays, pickles, and whose instances the classes know."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf

BIT_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")


@pytest.mark.parametrize("name", BIT_GENERATORS)
def test_arrays_as_seeds(name: str) -> None:
    ours = getattr(lf.random, name)(lf.array([1, 2]))
    theirs = getattr(np.random, name)(np.array([1, 2]))
    assert ours.random_raw(3).tolist() == theirs.random_raw(3).tolist()
    again = pickle.loads(pickle.dumps(ours))
    assert type(again) is type(ours)
    assert again.random_raw() == ours.random_raw()
    assert isinstance(theirs, getattr(lf.random, name))
    assert isinstance(ours, np.random.BitGenerator)


def test_seed_sequences() -> None:
    ours = lf.random.SeedSequence(lf.arange(3)).generate_state(2).tolist()
    assert ours == np.random.SeedSequence(np.arange(3)).generate_state(2).tolist()


def test_generators_of_numpys_classes_are_instances() -> None:
    assert isinstance(np.random.default_rng(1), lf.random.Generator)
    assert isinstance(np.random.RandomState(1), lf.random.RandomState)
    assert not isinstance(np.random.RandomState(1), lf.random.Generator)

    class Own(lf.random.Generator):  # type: ignore[misc, name-defined]
        pass

    assert not isinstance(lf.random.default_rng(1), Own)
    assert isinstance(Own(lf.random.PCG64(1)), lf.random.Generator)


@pytest.mark.parametrize("make", [lf.random.default_rng, lf.random.RandomState])
def test_pickles_go_on_where_they_were(make: Any) -> None:
    generator = make(3)
    generator.standard_normal(5)
    again = pickle.loads(pickle.dumps(generator))
    assert type(again) is type(generator)
    assert again.standard_normal() == generator.standard_normal()


def test_old_pickles_name_the_bit_generator() -> None:
    maker, (bits,), _ = lf.random.Generator(lf.random.PCG64DXSM(0)).__reduce__()
    made = maker("PCG64DXSM")
    made.bit_generator.state = bits.state
    assert made.bit_generator.state == bits.state
    maker, _, state = lf.random.RandomState(lf.random.MT19937(0)).__reduce__()
    made = maker("MT19937")
    made.set_state(state)
    assert made.rand() == np.random.RandomState(np.random.MT19937(0)).rand()


def test_a_generator_of_numpys_gives_our_arrays() -> None:
    generator = lf.random.default_rng(np.random.default_rng(1))
    assert type(generator.random(3)) is lf.ndarray
