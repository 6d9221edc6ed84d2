"""What an evaluation brings along is decided once; C does the same again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse.runtime.capture import conditions
from lazyfuse.runtime.events import counters, decisions
from lazyfuse.runtime.scheduling import co_evaluation, evaluate
from tests.campaign import rounds

COUNT = 40_000
needs_native = pytest.mark.skipif(conditions.native is None, reason="C keeps choices")


@pytest.fixture(autouse=True)
def _planned() -> Iterator[None]:
    """Structures are planned at once, and numbers stay pending."""
    evaluate.clear_plans()
    with lf.options(plan_after=0, lazy_numbers=True):
        yield


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many nodes each decision of Python's has brought along."""
    found: list[int] = []
    together = co_evaluation.together

    def watched(*given: Any) -> Any:
        along = together(*given)
        found.append(0 if along is None else len(along[1]))
        return along

    monkeypatch.setattr(co_evaluation, "together", watched)
    return found


@needs_native
def test_reductions_of_one_value_go_on_together(decided: list[int]) -> None:
    data = np.random.default_rng(0).normal(size=COUNT)
    for turn in range(12):
        d = lf.array(data) - turn
        sinks = d.min(), d.max(), (d * d).max()
        before = counters.totals().decisions[decisions.SMALL_OUTPUTS]
        kernels = counters.totals().kernels
        found = [float(each) for each in sinks]
        e = data - turn
        assert found == [e.min(), e.max(), (e * e).max()]
        assert counters.totals().decisions[decisions.SMALL_OUTPUTS] == before + 1
        assert counters.totals().kernels == kernels + 1
    assert len(decided) < 12
    assert set(decided) == {2}


@needs_native
def test_readers_of_what_is_exported_go_on_with_it(decided: list[int]) -> None:
    data = np.random.default_rng(1).normal(size=COUNT)
    for turn in range(12):
        x = lf.array(data) * 2.0
        y = x + turn
        before = counters.totals().decisions[decisions.READING_OUTPUTS]
        lent = np.asarray(x)
        assert counters.totals().decisions[decisions.READING_OUTPUTS] == before + 1
        lent[:] = 0.0
        np.testing.assert_array_equal(np.asarray(y), data * 2.0 + turn)
    assert len(decided) < 12


@needs_native
def test_a_copy_that_was_not_recorded_is_evaluated_beside_one_operation() -> None:
    data = np.asfortranarray(np.random.default_rng(3).normal(size=(40, 900)))
    x = lf.array(data, order="F")
    for _ in range(4):
        largest = x.max()  # all that was recorded
        found = np.convolve(x.ravel(), [1, 2, 1])
        np.testing.assert_array_equal(found, np.convolve(data.ravel(), [1, 2, 1]))
        assert float(largest) == data.max()


@needs_native
def test_another_error_state_is_another_choice() -> None:
    data = np.random.default_rng(2).normal(size=COUNT)

    def both() -> None:
        d = lf.array(data) * 3.0
        low, high = d.min(), d.max()
        assert (float(low), float(high)) == ((data * 3.0).min(), (data * 3.0).max())

    for _ in range(6):
        both()
    with np.errstate(over="raise"):
        before = counters.totals().decisions[decisions.SMALL_OUTPUTS]
        both()
        assert counters.totals().decisions[decisions.SMALL_OUTPUTS] == before


def _program(draw: random.Random, xp: Any, data: list[Any]) -> list[Any]:
    """Values that are pending together, looked at in some order; some are dropped or written."""
    values = [xp.array(each) for each in data]
    found: list[Any] = []
    for _ in range(draw.randint(3, 8)):
        x, y = draw.choice(values), draw.choice(values)
        way = draw.randrange(6)
        if way == 0:
            values.append(x + y)
        elif way == 1:
            values.append(x * 2.0)
        elif way == 2:
            values.append(xp.maximum(x, y))
        elif way == 3:
            found.append(x.max())
        elif way == 4:
            found.append(x.min())
        else:
            values.append(x[::-1] - y)
    if draw.random() < 0.3:
        values.pop(draw.randrange(len(values)))
    if draw.random() < 0.3:
        values[0][5:] += 1.0
    looked = [*found, *values]
    draw.shuffle(looked)
    shown = []
    for each in looked:
        shown.append(np.asarray(each))
        if draw.random() < 0.2 and shown[-1].ndim:
            shown[-1][:3] = 7.0
    return [np.array(each) for each in shown]


@rounds(60)
def test_random_values_that_are_pending_together(seeds: range) -> None:
    for seed in seeds:
        made = np.random.default_rng(seed)
        for turn in range(4):
            data = [made.normal(size=COUNT) for _ in range(2)]
            expected = _program(random.Random(seed), np, data)
            found = _program(random.Random(seed), lf, data)
            for mine, theirs in zip(found, expected, strict=True):
                assert mine.tobytes() == theirs.tobytes(), f"seed {seed}, turn {turn}"
