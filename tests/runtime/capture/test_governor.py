"""Places where recording does not pay run at once: what is measured, decided, told, and undone."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse.runtime.capture import conditions, evaluations, governor
from lazyfuse.runtime.events import counters, decisions
from lazyfuse.runtime.scheduling import evaluate

N = 50_000

pytestmark = [
    pytest.mark.usefixtures("on_cpu"),
    pytest.mark.skipif(conditions.native is None, reason="places are kept in C"),
]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    evaluate.clear_plans()
    governor.forget()
    yield
    governor.forget()
    evaluate.clear_plans()


def times(monkeypatch: pytest.MonkeyPatch, theirs: float, ours: float) -> None:
    """Evaluations take `ours` seconds from now on, and each place `theirs` with NumPy."""
    measured = governor.Watch.measured
    note = governor.Watch.note

    def told(self: governor.Watch) -> float | None:
        return None if measured(self) is None else theirs * len(self.places)

    monkeypatch.setattr(governor.Watch, "measured", told)
    monkeypatch.setattr(governor.Watch, "note", lambda self, *measured: note(self, ours, ours))


def kernels(function: Callable[[], Any], turns: int) -> int:
    """How many kernels so many calls launch."""
    before = counters.totals.kernels
    for _ in range(turns):
        function()
    return counters.totals.kernels - before


def operands() -> tuple[Any, Any, Any, Any]:
    random = np.random.default_rng(3)
    a, b = random.normal(size=N), random.normal(size=N)
    x, y = lf.array(a), lf.array(b)
    lf.evaluate(x * 1.0, y * 1.0)
    return a, b, x, y


def statement() -> tuple[Callable[[], Any], Any]:
    """A statement that comes round, and its result."""
    a, b, x, y = operands()
    return lambda: (x * y - x).to_numpy(), a * b - a


def settled(function: Callable[[], Any]) -> None:
    """Call a function until its kernels are compiled, and its evaluations are kept."""
    for _ in range(4):
        function()
    for _ in range(governor.FIRST + governor.TRIAL + 40):
        function()


def test_a_place_that_numpy_does_faster_runs_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    times(monkeypatch, theirs=1e-6, ours=50e-6)
    turn, expected = statement()
    before = counters.totals.decisions[decisions.GOVERNED]
    settled(turn)
    assert counters.totals.decisions[decisions.GOVERNED] > before
    assert kernels(turn, 20) == 0
    np.testing.assert_array_equal(turn(), expected)
    assert "us recorded" in str(lf.report())
    x = lf.ones(3)
    assert "at once: line " in str(lf.explain(x))


def test_a_place_that_kernels_do_faster_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    times(monkeypatch, theirs=100e-6, ours=10e-6)
    turn, expected = statement()
    settled(turn)
    assert kernels(turn, 20) == 20
    np.testing.assert_array_equal(turn(), expected)


@pytest.mark.parametrize(("unread", "recorded"), [(9, True), (0, False)])
def test_results_that_nobody_reads_cost_no_evaluation(
    unread: int, recorded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    times(monkeypatch, theirs=20e-6, ours=100e-6)
    _, _, x, y = operands()

    def turn() -> Any:
        for _ in range(1 + unread):
            z = x * y - x
        return z.to_numpy()

    settled(turn)
    assert (kernels(turn, 20) >= 20) is recorded


def test_trials_come_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    times(monkeypatch, theirs=100e-6, ours=10e-6)
    turn, _ = statement()
    settled(turn)
    watches = [kept[-2] for kept in evaluations.kept.values() if kept[-2] is not None]
    assert [each.wait for each in watches] == [16 * governor.FIRST]
    launched = kernels(turn, 4 * governor.FIRST)
    assert launched >= 4 * governor.FIRST - 2 * governor.TRIAL


def test_what_runs_at_once_is_measured_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    times(monkeypatch, theirs=1e-6, ours=50e-6)
    monkeypatch.setattr(governor, "VISITS", 40)
    monkeypatch.setattr(governor, "MOST_VISITS", 40)
    turn, _ = statement()
    settled(turn)
    launched = kernels(turn, 200)
    assert 0 < launched < 120


def test_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    times(monkeypatch, theirs=1e-6, ours=50e-6)
    turn, _ = statement()
    settled(turn)
    assert kernels(turn, 10) == 0
    with lf.options(governor=False):
        assert kernels(turn, 200) >= 199


@pytest.mark.parametrize(
    "name",
    ["mean", "std", "var", "ptp", "clip", "where", "sum", "max", "in place", "into", "number"],
)
def test_functions_and_updates_are_governed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    times(monkeypatch, theirs=1e-6, ours=50e-6)
    a, b, x, y = operands()
    a, b = a.reshape(100, 500), b.reshape(100, 500)
    x, y = lf.array(a), lf.array(b)

    def call(xp: Any, first: Any, second: Any) -> Any:
        if name == "clip":
            return xp.clip(first, -0.5, 0.5)
        if name == "where":
            return xp.where(first > second, first, second)
        if name == "in place":
            first -= second
            return first
        if name == "number":
            first *= 0.5
            return first
        if name == "into":
            return xp.multiply(first, second, out=first)
        return getattr(xp, name)(first, axis=0)

    def turn() -> Any:
        return np.asarray(call(lf, x, y))

    before = counters.totals.decisions[decisions.GOVERNED]
    for _ in range(200):
        x[...], y[...] = a, b  # updates would overflow in the end
        settled(turn)
        if counters.totals.decisions[decisions.GOVERNED] > before:
            break
        time.sleep(0.02)  # for the compiler
    assert kernels(turn, 10) == 0
    x, y = lf.array(a), lf.array(b)
    lf.evaluate(x * 1.0, y * 1.0)
    for _ in range(3):
        np.testing.assert_array_equal(turn(), call(np, a, b), strict=True)


def test_an_update_at_once_leaves_readers_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    times(monkeypatch, theirs=1e-6, ours=50e-6)
    a, b, x, y = operands()

    def turn(first: Any, second: Any) -> Any:
        first -= second
        return np.asarray(first)

    for _ in range(4 * governor.FIRST):
        turn(x, y)
        turn(a, b)
    view, copy, before = x[10:], x.copy(), a.copy()
    read = x * 2.0
    turn(x, y)
    turn(a, b)
    np.testing.assert_array_equal(np.asarray(copy), before)
    np.testing.assert_array_equal(np.asarray(read), before * 2.0)
    np.testing.assert_array_equal(np.asarray(view), a[10:])


def test_inexact_operations_are_never_governed(monkeypatch: pytest.MonkeyPatch) -> None:
    times(monkeypatch, theirs=1e-9, ours=1.0)
    _, _, x, y = operands()
    expected = (np.exp(x) * y).to_numpy()

    def turn() -> Any:
        return (np.exp(x) * y).to_numpy()

    settled(turn)
    assert not [kept for kept in evaluations.kept.values() if kept[-2] is not None]
    np.testing.assert_array_equal(turn(), expected)


@pytest.mark.parametrize("seed", range(6))
def test_values_and_warnings_are_numpys_in_any_mode(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statements of two lines, at once, recorded and in trials, on changing and shared arrays."""
    times(monkeypatch, theirs=1e-6, ours=50e-6)
    monkeypatch.setattr(governor, "FIRST", 20)
    monkeypatch.setattr(governor, "VISITS", 15)
    monkeypatch.setattr(governor, "MEASURED", 3)
    random = np.random.default_rng(seed)
    dtype = random.choice(["f8", "f4", "i4", "u1", "c16"])
    base = random.integers(0, 9, (250, 200)).astype(dtype)

    def program(xp: Any, turns: int) -> list[Any]:
        x, y = xp.array(base), xp.array(base[::-1].copy())
        found = []
        for k in range(turns):
            z = (x + y) * x
            w = x[1:] - y[:-1] if dtype != "u1" else x[1:] | y[:-1]
            found.append(xp.asarray(z).sum() if dtype == "i4" else z[k % 250, 3])
            found.append(bool((z == w[0]).any()))
            found.append((x == y).max())
            if k % 7 == 3:
                x[k % 250] = k % 5
            if k % 11 == 5:
                y = z * 0 + x
        return [np.asarray(each) for each in (*found, x, y, z, w)]

    with warnings.catch_warnings(record=True) as ours:
        warnings.simplefilter("always")
        got = program(lf, 150)
    with warnings.catch_warnings(record=True) as theirs:
        warnings.simplefilter("always")
        expected = program(np, 150)
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_array_equal(one, other, strict=True)
    assert {str(each.message) for each in ours} == {str(each.message) for each in theirs}
