"""Operations whose results are always looked at alone: NumPy does them where it is quicker."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import lazyfuse
from lazyfuse.runtime.capture import conditions
from lazyfuse.runtime.events import numpy_calls
from tests import campaign

pytestmark = pytest.mark.skipif(conditions.native is None, reason="C predicts what is looked at")

N = 40_000


def values() -> Any:
    return numpy.random.default_rng(3).standard_normal(N)


def runs(name: str, turn: Callable[[Any], Any], turns: int) -> int:
    """How often NumPy's function runs for that many turns on an array of ours."""
    x = lazyfuse.array(values())
    expected = turn(values())
    before = numpy_calls.by_name().get(name, 0)
    for _ in range(turns):
        numpy.testing.assert_array_equal(turn(x), expected)
    return numpy_calls.by_name().get(name, 0) - before


def test_numpy_is_tried_where_nothing_else_reads_a_result() -> None:
    assert runs("floor", lambda x: numpy.asarray(numpy_or_ours(x).floor(x)), 20) >= 2


def numpy_or_ours(x: Any) -> Any:
    return lazyfuse if isinstance(x, lazyfuse.ndarray) else numpy


def test_what_another_operation_reads_stays_recorded() -> None:
    assert runs("ceil", lambda x: numpy.asarray(numpy_or_ours(x).ceil(x) * 2 + 1), 40) == 0


def test_inexact_operations_stay_ours() -> None:
    x = lazyfuse.array(values())
    before = numpy_calls.by_name().get("exp", 0)
    for _ in range(40):
        numpy.asarray(lazyfuse.exp(x))
    assert numpy_calls.by_name().get("exp", 0) == before


def test_an_instruction_is_recorded_again_once_others_read_what_it_gives() -> None:
    x = lazyfuse.array(values())

    def truncated() -> Any:
        return lazyfuse.trunc(x)

    for _ in range(200):
        numpy.asarray(truncated())
    for _ in range(200):
        numpy.asarray(truncated() * 2 + 1)
    before = numpy_calls.by_name().get("trunc", 0)
    for _ in range(200):
        numpy.testing.assert_array_equal(truncated() * 2 + 1, numpy.trunc(values()) * 2 + 1)
    assert numpy_calls.by_name().get("trunc", 0) == before


@pytest.mark.parametrize("filters", ["always", "error"])
def test_numpy_warns_as_recorded_operations_do(filters: Any) -> None:
    def told(x: Any) -> list[list[str]]:
        found = []
        for _ in range(20):
            with warnings.catch_warnings(record=True) as met:
                warnings.simplefilter(filters)
                try:
                    numpy.asarray(x / 0.0)
                    found.append([f"{each.lineno} {each.message}" for each in met])
                except RuntimeWarning as error:
                    found.append([str(error)])
        return found

    before = numpy_calls.by_name().get("divide", 0)
    assert told(lazyfuse.array(values())) == told(values())
    assert (numpy_calls.by_name().get("divide", 0) > before) is (filters == "always")


def _program(xp: Any, seed: int) -> list[Any]:
    """Instructions that come round, and what becomes of their results each time."""
    draw = random.Random(seed)
    x, y = (xp.array(numpy.arange(float(N)) % k) for k in (97, 89))
    kept: list[Any] = []
    shown: list[Any] = []
    changes = draw.choice([0.02, 0.2, 0.6])
    which, fate = draw.randrange(6), draw.randrange(7)
    for turn in range(40):
        if draw.random() < changes:
            which, fate = draw.randrange(6), draw.randrange(7)
        if which == 0:
            z = x + y
        elif which == 1:
            z = xp.minimum(x, 40.0)
        elif which == 2:
            z = x[1:] - x[:-1]
        elif which == 3:
            z = -y
        elif which == 4:
            z = x.reshape(200, -1) * y.reshape(200, -1)[:1]
        else:
            z = xp.floor(x[::2])
        if fate == 0:
            shown.append(numpy.asarray(z).copy())
        elif fate == 1:
            lent = numpy.asarray(z)
            lent[..., :5] = turn
            shown.append(numpy.asarray(z * 2).copy())
        elif fate == 2:
            z += 1
            shown.append(numpy.asarray(z).copy())
        elif fate == 3:
            kept.append(z)
        elif fate == 4:
            x[: z.size // 2] = z.reshape(-1)[: z.size // 2] % 50
            shown.append(numpy.asarray(z).copy())
        elif fate == 5:
            shown.append(float(z.max()))
        else:
            before = numpy.asarray(z).copy()
            x[3:9] += turn
            y[:] = y[::-1].copy()
            shown += [before, numpy.asarray(z).copy()]
    return [*shown, *[numpy.asarray(each) for each in kept], numpy.asarray(x), numpy.asarray(y)]


@campaign.rounds(60)
def test_what_becomes_of_results_changes_no_value(seeds: range) -> None:
    for seed in seeds:
        for ours, theirs in zip(_program(lazyfuse, seed), _program(numpy, seed), strict=True):
            assert numpy.array_equal(ours, theirs), seed
