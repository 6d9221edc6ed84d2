"""Warnings of floating-point conditions: which operation they name, and where they are told."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse import config
from lazyfuse.runtime.execution.run_values import RunValues
from tests.helpers.compare import both
from tests.helpers.states import recording_all

VALUES = np.array([-2.5, 0.0, np.inf, -np.inf, 1e308, np.nan, 3.0])
INTEGERS = np.array([2**62, -(2**62), 0, 7])


@pytest.fixture
def recorded() -> Iterator[None]:
    with recording_all():
        yield


def told(function: Callable[[Any], Any], xp: Any) -> list[tuple[str, int]]:
    """The words and lines of every warning until the result was looked at."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        np.asarray(function(xp))
    return [(str(each.message), each.lineno) for each in found]


STEPS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "divmod": lambda xp, x, i: divmod(x, 0.0),
    "divmod of integers": lambda xp, x, i: divmod(i, 0),
    "ufunc divmod": lambda xp, x, i: xp.divmod(x, xp.zeros(7)),
    "ufunc divmod of integers": lambda xp, x, i: xp.divmod(i, 0),
    "scalar divmod": lambda xp, x, i: divmod(xp.max(i), 0),
    "scalar divide": lambda xp, x, i: xp.sum(x[:2]) / 0,
    "scalar floor_divide": lambda xp, x, i: xp.sum(x[:2]) // 0,
    "scalar remainder": lambda xp, x, i: xp.min(i) % 0,
    "scalar subtract": lambda xp, x, i: xp.max(x[:4]) - xp.max(x[:4]),
    "scalar multiply": lambda xp, x, i: x[:5].max() * x[4:5].max(),
    "reflected": lambda xp, x, i: 1.0 / xp.sum(x[1:2]),
    "big integers": lambda xp, x, i: [xp.max(i) + xp.max(i), xp.max(i) * 7, 3 * xp.min(i)],
    "integer power": lambda xp, x, i: xp.max(i) ** 3,
    "small integers": lambda xp, x, i: xp.max(i[3:].astype("i1")) * 100,
    "ufuncs of scalars": lambda xp, x, i: [xp.add(xp.max(i), xp.max(i)), xp.divide(xp.max(i), 0)],
    "arrays without axes": lambda xp, x, i: xp.array(xp.max(i)) * xp.array(7),
    "nanmean": lambda xp, x, i: xp.nanmean(x),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_names_are_those_of_numpy(name: str) -> None:
    def step(xp: Any, x: Any, i: Any) -> Any:
        found = STEPS[name](xp, x, i)
        return list(found) if isinstance(found, (list, tuple)) else found

    both(step, VALUES, INTEGERS)


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("function", [operator.floordiv, divmod])
def test_a_condition_is_told_once_for_each_call(function: Callable[[Any, Any], Any]) -> None:
    def quotient(xp: Any) -> Any:
        return function(xp.array([1, 2, 3]), 0)

    assert told(quotient, lf) == told(quotient, np)


def _spread(xp: Any) -> Any:
    x = xp.array(np.full(20_000, 600.0))
    small = x - 5.0
    big = xp.exp(x * 2.0)
    root = xp.sqrt(small - 600.0)
    return root + big


def test_a_kernel_tells_which_of_its_operations_it_was() -> None:
    expected = sorted(told(_spread, np))
    assert len({line for _, line in expected}) == 2
    for _ in range(3):  # blocked, compiled, and from the known culprits
        assert sorted(told(_spread, lf)) == expected


def test_new_conditions_are_told_however_often_a_kernel_has_run() -> None:
    def log(xp: Any, value: float) -> Any:
        return xp.log(xp.array(np.full(20_000, value)))

    for value in (1.0, -1.0, -1.0, -1.0, -1.0, -1.0, 0.0, 2.0, np.nan):
        expected = told(lambda xp, value=value: log(xp, value), np)
        assert told(lambda xp, value=value: log(xp, value), lf) == expected


@pytest.mark.usefixtures("recorded")
def test_what_filters_ignore_is_not_told_later() -> None:
    x = lf.array([0.0, 1.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = 1 / x
    assert y.tolist() == [np.inf, 1.0]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "divide by zero", RuntimeWarning)
        y = 2 / x
        z = x / x
    assert y.tolist() == [np.inf, 2.0]
    with pytest.warns(RuntimeWarning, match="invalid value encountered in divide"):
        assert np.isnan(z[0])


@pytest.mark.usefixtures("recorded")
def test_filters_of_other_kinds_of_warnings_change_nothing() -> None:
    x = lf.array([0.0, 1.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.filterwarnings("ignore", "overflow")
        warnings.filterwarnings("ignore", module="elsewhere")
        y = 1 / x
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        assert y.tolist() == [np.inf, 1.0]


@pytest.mark.usefixtures("recorded")
def test_what_was_recorded_before_an_error_state_is_told_within_it() -> None:
    y = 1 / lf.array([0.0, 1.0])
    with lf.errstate(all="ignore"):
        z = 2 / lf.array([0.0, 1.0])
        with pytest.warns(RuntimeWarning, match="divide by zero"):
            assert y.tolist() == [np.inf, 1.0]
    assert z.tolist() == [np.inf, 2.0]


N = 50_000


def _both(program: Callable[[Any], Any]) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """What lazyfuse and NumPy tell, kernels and all."""
    with config.options(plan_after=0):
        return sorted(told(program, lf)), sorted(told(program, np))


def test_an_ignored_exception_is_not_told_of_a_neighbour_in_the_kernel() -> None:
    def program(xp: Any) -> Any:
        x = xp.arange(4.0 * N)
        z = x[:N]
        for _ in range(30):
            z *= 0.5
            with xp.errstate(all="ignore"):
                u = z / 0
        return x.sum() + u[1]

    found, expected = _both(program)
    assert found == expected == []


def test_a_neighbour_that_ignores_takes_nothing_away() -> None:
    def program(xp: Any) -> Any:
        x = xp.arange(1.0 * N)
        kept = []
        for _ in range(12):
            with xp.errstate(divide="ignore"):
                u = 1 / x
            kept.append(u + 2 / x)
            kept.append(1 / x)  # as above: computed once
        return sum(each[1] for each in kept)

    found, expected = _both(program)
    assert found == expected
    assert len(found) == 24


def test_fused_functions_name_who_raised_cold_and_warm() -> None:
    def program(xp: Any) -> Any:
        numbers = xp.arange(N) * 1.0
        x = xp.nan_to_num(xp.divide(numbers, xp.arange(N) % 3)) % 7
        return xp.stack([x, xp.ones(N)], axis=1).max(axis=1)

    for _ in range(4):
        found, expected = _both(program)
        assert found == expected
        assert len(found) == 2


@pytest.mark.parametrize("dtype", ["f2", "f4"])
def test_a_number_that_overflows_is_told_each_time(dtype: str) -> None:
    def program(xp: Any) -> Any:
        x = xp.ones(N, dtype)
        return [(x + 1e300)[0], (x * 1e300)[0], (1e300 / x)[0]]

    for _ in range(3):
        found, expected = _both(lambda xp: np.array(program(xp)))
        assert found == expected
        assert len(found) == 3


def test_filters_hold_for_what_was_recorded_under_them() -> None:
    def program(xp: Any) -> Any:
        x = xp.arange(1.0 * N)
        first = 1 / x
        warnings.simplefilter("ignore")
        second = 2 / x
        warnings.filterwarnings("always", "invalid")
        third = x / x
        return first + second + third

    found, expected = _both(program)
    assert found == expected
    assert len(found) == 2


def test_once_per_line_counts_for_the_module() -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        for size in (10, N, 10, N):  # at once, recorded
            with config.options(plan_after=0):
                float((1 / lf.zeros(size))[0])
    assert len(found) == 1


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_a_power_of_one_half_is_a_root_and_named_a_power(dtype: str) -> None:
    values = np.resize(np.array([-np.inf, -0.0, 4.0, -1.0, np.nan], dtype), N)
    half = np.dtype(dtype).type(0.5)

    def program(xp: Any) -> Any:
        x = xp.array(values)
        y = x + 0
        y **= half
        found = [xp.power(x, 2.0), xp.power(x, 0.5), xp.power(x, half), x**half, x**0.5, y]
        return xp.stack(found)[:, :10]

    found, expected = _both(program)
    assert found == expected
    assert len(found) == 5
    with np.errstate(all="ignore"), config.options(plan_after=0):
        assert np.asarray(program(lf)).tobytes() == program(np).tobytes()


def test_a_power_of_one_half_is_a_root_after_powers_of_arrays() -> None:
    """What a call of arrays has found out holds for NumPy's numbers of that dtype not."""
    values, halves = np.full(N, -np.inf, "f4"), np.full(N, 0.5, "f4")
    with np.errstate(all="ignore"), config.options(plan_after=0):
        for _ in range(2):
            assert np.isposinf(np.asarray(lf.power(lf.array(values), lf.array(halves)))).all()
        assert np.isnan(np.asarray(lf.power(lf.array(values), np.float32(0.5)))).all()


def test_products_of_complex_numbers_warn_as_numpys_contracted_ones() -> None:
    parts = [0.0, 1.0, 1e200, 1e308, np.inf, np.nan]
    numbers = [complex(x, y) for x in parts for y in parts]

    def program(xp: Any, first: complex, second: complex) -> Any:
        x, y = (np.full(36_000, 1 + 1j) for _ in "xy")
        x[7], y[7] = first, second
        return xp.array(x) * xp.array(y)

    for first in numbers[::2]:
        for second in numbers[1::3]:
            found, expected = _both(lambda xp, a=first, b=second: program(xp, a, b))  # type: ignore
            assert found == expected


def test_comparisons_of_nan_are_not_interpreted_in_every_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []
    members = RunValues.members
    monkeypatch.setattr(
        RunValues, "members", lambda self, *a, **k: asked.append(1) or members(self, *a, **k)
    )
    x = lf.array(np.where(np.arange(200_000) % 1000 == 0, np.nan, 1.0))
    with config.options(plan_after=0), warnings.catch_warnings():
        warnings.simplefilter("default")
        for _ in range(100):
            np.asarray(lf.sqrt(x - 2) + lf.where(x > 0, x * 2, x + 1))
    assert 1 <= len(asked) <= 20


UNCHOSEN: dict[str, Callable[[Any, Any, Any], Any]] = {
    "divide": lambda xp, x, y: xp.where(x > 0, 1 / x, 0.0),
    "divide, second": lambda xp, x, y: xp.where(x <= 0, 0.0, 1 / x),
    "divide, summed": lambda xp, x, y: xp.where(x > 0, 1 / x, y).sum(),
    "invalid, summed": lambda xp, x, y: xp.where(x > 5, (x - y) / (x - y), y).sum(),
    "multiply": lambda xp, x, y: xp.where(x > 5, y * 1e308 * 1e3, x),
    "add": lambda xp, x, y: xp.where(x > 5, (y + 1e308) + 1.7e308, x).reshape(9, -1).max(1),
}  # fmt: skip


@pytest.mark.parametrize("name", UNCHOSEN)
@pytest.mark.usefixtures("recorded")
def test_what_is_not_chosen_is_computed_too(name: str) -> None:
    """In compiled kernels: LLVM would make arithmetic with masks, or branches, of the choices."""

    def step(xp: Any) -> Any:
        x, y = np.linspace(0.0, 1.0, 36_000), np.linspace(0.5, 1.5, 36_000)
        y[18_000:] = x[18_000:]
        return UNCHOSEN[name](xp, xp.array(x), xp.array(y))

    with np.errstate(all="ignore"), config.options(compile_ahead=False, compile_after=0):
        np.asarray(step(lf))  # compiled
    with config.options(compile_ahead=False, compile_after=0):
        assert (
            {words for words, _ in told(step, lf)}
            == {words for words, _ in told(step, np)}
            != set()
        )


def test_what_raises_now_did_not_raise_where_it_was_recorded() -> None:
    x = lf.array(np.full(40_000, 2.0))
    for kept in ("ignore", "default"):  # filters of its own, or the usual ones
        with warnings.catch_warnings():
            warnings.simplefilter(kept)  # type: ignore[arg-type]
            y = x / 0
            with np.errstate(all="raise"):  # lazyfuse is not told
                if kept == "ignore":
                    assert np.isinf(np.asarray(y)).all()
                else:
                    with pytest.warns(RuntimeWarning, match="divide by zero"):
                        np.asarray(y)


def test_an_error_state_that_is_entered_twice_stays_entered() -> None:
    for xp in (np, lf):
        state = xp.errstate(divide="ignore")
        before = xp.geterr()
        with state:
            with pytest.raises(TypeError), state:
                pass
            assert xp.geterr()["divide"] == "ignore"
        assert xp.geterr() == before
