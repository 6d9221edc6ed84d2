"""Replays of runs that copy a part of a block because views need it packed, or run in boxes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse import config
from lazyfuse.runtime.capture import conditions
from lazyfuse.runtime.events import counters, decisions
from tests import campaign

SHAPE = (260, 270)  # more elements than elision.LARGE


@pytest.fixture(autouse=True)
def planned_at_once() -> Iterator[None]:
    with config.options(plan_after=0):
        yield


def _rotated(xp: Any, y: Any) -> Any:
    """Each turn writes over what it reads, in two boxes: one of them is a row."""
    for _ in range(4):
        z = xp.maximum(y, y)
        y = z * (z > 3) * 3 + xp.concatenate([z[1:], z[:1]]) * 2
    return y


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "rows of a part": lambda xp, y: (lambda w: (w[2:] - w[:-2]).sum())(y[:, 1:] * 2),
    "turned rows": lambda xp, y: (lambda w: xp.vstack([w[2:], w[:2]]).mean())(xp.diff(y)),
    "joined squares": lambda xp, y: (lambda w: xp.concatenate([w[1:], w[:1]]).mean())(
        (y[:, 1:] * 1.5) ** 2
    ),
    "rotated rows": _rotated,
    "every other row": lambda xp, y: (y[:, :-3] + 1)[::2].sum(axis=0) * 2,
}


@pytest.mark.skipif(conditions.native is None, reason="C replays")
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dtype", ["i4", "f8"])
def test_they_are_replayed(name: str, dtype: str) -> None:
    y = (np.arange(SHAPE[0] * SHAPE[1]).reshape(SHAPE) % 1000).astype(dtype)
    x = lf.array(y)
    expected = np.asarray(PROGRAMS[name](np, y)).tobytes()
    for _ in range(20):
        assert np.asarray(PROGRAMS[name](lf, x)).tobytes() == expected
    counters.reset()
    for _ in range(5):
        assert np.asarray(PROGRAMS[name](lf, x)).tobytes() == expected
    assert counters.totals().decisions[decisions.REPLAYED] >= 4


def _statement(xp: Any, y: Any, draw: np.random.Generator) -> Any:
    """A value of parts of a part; the offsets differ from call to call."""
    first = int(draw.integers(1, 5))
    w = y[:, first:] * 3
    if draw.random() < 0.5:
        w = w + y[:, first:]
    low, other = (int(each) for each in draw.integers(0, 6, 2))
    rows = SHAPE[0] - 6
    kind = draw.integers(4)
    if kind == 0:
        return w[low : low + rows] - w[other : other + rows]
    if kind == 1:
        return xp.concatenate([w[low:], w[:low]]).sum(axis=1)
    if kind == 2:
        return (w[low:][::2] * 2).sum()
    return w.T[1:, low:] + w.T[:-1, low:]


@campaign.rounds(12)
def test_parts_at_other_offsets_are_numpys(seeds: range) -> None:
    for seed in seeds:
        y = np.random.default_rng(seed).integers(-900, 900, SHAPE)
        x = lf.array(y)
        for turn in range(24):
            mine, theirs = (np.random.default_rng((seed, turn)) for _ in range(2))
            found, expected = _statement(lf, x, mine), _statement(np, y, theirs)
            assert np.asarray(found).tobytes() == np.asarray(expected).tobytes(), (seed, turn)


def test_an_array_of_no_axes_takes_a_part_of_itself() -> None:
    with config.options(eager_below=0):
        for value in (0.5 + 0.5j, 1.5):
            for _ in range(4):
                c = lf.array(value)
                c[...] = 1e300
                later = c + lf.array(np.ones((2, 2)))
                c[...] = c[None]
                assert np.asarray(c).tolist() == 1e300
                assert np.asarray(later).tolist() == [[1e300] * 2] * 2
