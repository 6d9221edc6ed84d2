"""Loops of elementwise work: several turns run as one kernel, with NumPy's values, in one plan."""

from __future__ import annotations

import weakref
from typing import Any

import numpy
import pytest

import lazyfuse as np
from lazyfuse.runtime.events import counters
from lazyfuse.runtime.scheduling import evaluate, flush

N = 200_000


def escape(xp: Any, x: Any, y: Any, turns: int) -> Any:
    """Steps of the Mandelbrot set."""
    a, b, count = x * 0.0, y * 0.0, x * 0.0
    for _ in range(turns):
        aa, bb = a * a, b * b
        inside = aa + bb <= 4.0
        a, b = xp.where(inside, aa - bb + x, a), xp.where(inside, 2.0 * a * b + y, b)
        count = count + inside
    return count


@pytest.mark.parametrize("turns", [1, 8, 9, 17, 30])
def test_turns_have_numpys_values(turns: int) -> None:
    generator = numpy.random.default_rng(turns)
    x, y = generator.uniform(-2.0, 1.0, N), generator.uniform(-1.2, 1.2, N)
    found = escape(np, np.array(x), np.array(y), turns).to_numpy()
    assert found.tobytes() == escape(numpy, x, y, turns).tobytes()


def test_elementwise_turns_share_an_evaluation() -> None:
    a = np.array(numpy.linspace(0.0, 1.0, N))
    counters.reset()
    for _ in range(200):
        a = (a * 0.5 + 1.0) * 0.5 - a * 0.25
    a.to_numpy()
    assert 4 <= counters.totals().flushes.total() <= 6


def test_long_turns_do_not_pile_up() -> None:
    a = np.array(numpy.linspace(0.0, 1.0, N))
    counters.reset()
    evaluate.clear_plans()
    for _ in range(30):
        for _ in range(40):
            a = a * 0.5 + 1.0
        a = a * 0.25
    a.to_numpy()
    assert counters.totals().flushes.total() >= 10


def test_turns_that_write_run_one_by_one() -> None:
    u = np.array(numpy.linspace(0.0, 1.0, N))
    expected = numpy.linspace(0.0, 1.0, N)
    counters.reset()
    for _ in range(24):
        u[1:-1] = 0.5 * (u[:-2] + u[2:])
        expected[1:-1] = 0.5 * (expected[:-2] + expected[2:])
    assert u.to_numpy().tobytes() == expected.tobytes()
    assert counters.totals().flushes.total() > 12


def test_a_node_that_another_thread_drops_is_no_round() -> None:
    x = np.array(numpy.linspace(0.0, 1.0, N)) + 1.0
    left = [weakref.ref(x._node)]
    pending = flush.Pending(*[lambda *_: None] * 3)
    pending.keep_rounds(left)
    assert list(pending.rounds.values()) == [1]
    del x
    assert left[0]() is None
    pending.keep_rounds(left)
    assert not pending.rounds
