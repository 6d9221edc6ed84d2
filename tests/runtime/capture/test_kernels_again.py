"""Plans that have run before at the same sizes: the same bits as the first run, and when not."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse.runtime.capture import capture, conditions, evaluations
from lazyfuse.runtime.events import counters, decisions
from lazyfuse.runtime.scheduling import evaluate

N = 50_000
PROGRAMS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "chain": lambda xp, a, b: (a * 2.0 + b) * a - b / 3.0,
    "two results": lambda xp, a, b: (a + b) * (a - b),
    "sum": lambda xp, a, b: (a * b + 1.0).sum(),
    "rows": lambda xp, a, b: (a * b - a.max(axis=1, keepdims=True)).sum(axis=1),
    "columns": lambda xp, a, b: (a - b).min(axis=0) * 2.0,
    "transposed": lambda xp, a, b: (a.T * 2.0 + b.T) - 1.0,
    "integers": lambda xp, a, b: (a * 100.0).astype(np.int32) // 7 + 1,
    "mask": lambda xp, a, b: xp.where(a > b, a, -b) + (a == b),
}


def operands(seed: int = 0) -> tuple[Any, Any]:
    generator = np.random.default_rng(seed)
    return generator.random((200, N // 200)), generator.random((200, N // 200))


@pytest.fixture
def hits(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each evaluation was a replay."""
    found: list[bool] = []
    compute = evaluate._evaluate_concurrently

    def watched(*args: Any) -> None:
        before = counters.totals().decisions[decisions.REPLAYED]
        compute(*args)
        found.append(counters.totals().decisions[decisions.REPLAYED] > before)

    monkeypatch.setattr(evaluations, "keep", lambda *_: None)
    monkeypatch.setattr(evaluate, "_evaluate_concurrently", watched)
    return found


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("name", PROGRAMS)
def test_later_runs_have_the_same_bits(name: str, hits: list[bool]) -> None:
    program = PROGRAMS[name]
    for seed in range(5):
        a, b = operands(seed)
        x, y = lf.array(a), lf.array(b)
        expected = program(np, a, b)
        np.testing.assert_array_equal(np.asarray(program(lf, x, y)), expected, strict=True)
    if name in ("chain", "integers", "mask", "sum"):  # others have views, or chains of kernels
        assert any(hits) == (conditions.native is not None)


def test_another_geometry_is_another_launch() -> None:
    a, b = operands()
    for shape in ((200, 250), (100, 500), (50_000,), (250, 200), (200, 250)):
        for _ in range(3):
            x, y = lf.array(a.reshape(shape)), lf.array(b.reshape(shape))
            expected = a.reshape(shape) * 2.0 + b.reshape(shape) - 1.0
            np.testing.assert_array_equal((x * 2.0 + y - 1.0).to_numpy(), expected)


def test_conditions_are_told_each_time() -> None:
    a, b = operands()
    b[3, 3] = 0.0
    x, y = lf.array(a), lf.array(b)
    for _ in range(4):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            ((x + 1.0) / y - 2.0).to_numpy()
        assert [str(each.message) for each in seen] == ["divide by zero encountered in divide"]


def test_operands_that_die_give_their_buffers() -> None:
    a, _ = operands()
    x = lf.array(a)
    expected = a.copy()
    for _ in range(8):
        x = x * 0.5 + 1.0
        lf.evaluate(x)
        expected = expected * 0.5 + 1.0
    np.testing.assert_array_equal(x.to_numpy(), expected)


def test_operands_that_live_stay_as_they_are() -> None:
    a, b = operands()
    x, y = lf.array(a), lf.array(b)
    results = [(x * y + 1.0, k)[0] for k in range(4)]
    for each in results:
        np.testing.assert_array_equal(each.to_numpy(), a * b + 1.0)
    np.testing.assert_array_equal(x.to_numpy(), a)
    np.testing.assert_array_equal(y.to_numpy(), b)


def test_numbers_and_offsets_are_arguments(hits: list[bool]) -> None:
    a, _ = operands()
    flat = a.reshape(-1)
    x = lf.array(np.concatenate([flat, flat]))
    twice = np.concatenate([flat, flat])
    for k in range(6):
        found = (x[k : k + N] * (k + 0.5) + 2.0 * k).to_numpy()
        np.testing.assert_array_equal(found, twice[k : k + N] * (k + 0.5) + 2.0 * k)


@pytest.mark.skipif(conditions.native is None, reason="C replays")
@pytest.mark.usefixtures("on_cpu")
def test_the_switch_and_the_curious(hits: list[bool]) -> None:
    a, b = operands()
    x, y = lf.array(a), lf.array(b)

    def compute() -> Any:
        return (x * y - 3.0).to_numpy()

    for _ in range(3):
        compute()
    assert hits[-1]
    for off in ({"capture": False}, {"validate": True}, {"debug": 1}):
        hits.clear()
        with lf.options(**off):
            np.testing.assert_array_equal(compute(), a * b - 3.0)
        assert not any(hits)
        for _ in range(3):  # what was prepared may have been dropped
            compute()
    seen: list[Any] = []
    with lf.tracing(seen.append):
        compute()
    assert seen


def test_few_geometries_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "LIMIT", 3)
    before = set(map(id, evaluate._plans.values()))
    for extra in range(12):
        x = lf.array(np.arange(40_000.0 + extra))
        for _ in range(3):
            (x * 3.0 - 1.5).to_numpy()
    plans = [plan for plan in evaluate._plans.values() if id(plan) not in before]
    assert all(len(getattr(plan.replays, "found", ())) <= 3 for plan in plans)


@pytest.mark.usefixtures("on_cpu")
def test_operands_that_shared_memory_do_not_later() -> None:
    """A run on one array in two places is not what a run on two arrays repeats."""
    a, b = operands()

    def polynomial(x: Any, y: Any) -> Any:
        z = x * 2.0 + y
        return (z * z / (y + 3.0) + x) * 0.5

    program = lf.freeze(polynomial, x=a, y=b)
    for _ in range(4):
        np.testing.assert_array_equal(np.asarray(program(x=a, y=a)), polynomial(a, a))
    for first, second in ((a, b), (b, a), (a, a), (a[:], a[:]), (b, b), (a, b)):
        found = np.asarray(program(x=first, y=second))
        np.testing.assert_array_equal(found, polynomial(first, second))
