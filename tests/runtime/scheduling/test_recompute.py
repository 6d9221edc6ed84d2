"""Recompute or store: decided by sizes and measured figures, on which no bit depends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy
import pytest

import lazyfuse as np
from lazyfuse.devices import cpu_figures
from lazyfuse.runtime.placement import devices
from lazyfuse.runtime.scheduling import evaluate

N = 1 << 17


def dear(xp: Any, x: Any) -> Any:
    y = xp.sqrt(x * x + 1.0) / x  # 11 additions' worth
    return y * (1.0 / y.max())


def dearer(xp: Any, x: Any) -> Any:
    y = xp.sqrt(xp.sqrt(xp.sqrt(xp.sqrt(x * x + 1.0))))  # 22
    return y * (1.0 / y.max())


def inexact(xp: Any, x: Any) -> Any:
    y = xp.exp(x)
    return y * (1.0 / y.max())


def by_rows(xp: Any, x: Any) -> Any:
    y = xp.sqrt(x * x + 1.0) / x
    return y / y.max(axis=1, keepdims=True)


def twice(xp: Any, x: Any) -> Any:
    y = x * x + x * 2.0 + x / 3.0  # 8, for sums in two orders
    return y.sum(axis=0)[None, :] * 0.5 + y.sum(axis=1)[:, None]


@pytest.fixture(autouse=True)
def _figures() -> Iterator[None]:
    """No plans from elsewhere, and the figures in use come back."""
    devices.cpu()  # and with it the figures that were measured
    before = cpu_figures.tuning()
    evaluate.clear_plans()
    yield
    cpu_figures.use(before)
    evaluate.clear_plans()


def use(l3: int, rate: float = 10e9, work: float = 1e-10) -> None:
    """A machine with such a cache, memory and arithmetic."""
    cpu_figures.use(replace(cpu_figures.defaults(), l3_bytes=l3, stored=48 / rate / work))
    evaluate.clear_plans()


def explained(program: Callable[..., Any], x: Any) -> list[str]:
    found: list[str] = np.explain(program(np, x)).stored
    return found


def operand(rank: int = 1) -> Any:
    x = numpy.random.default_rng(0).random(N) + 0.5
    return x if rank == 1 else x.reshape(512, -1)


def test_cheap_values_of_large_arrays_are_computed_again_F2() -> None:
    x = np.array(operand())
    use(l3=1 << 16)
    (line,) = explained(dear, x)
    assert "divide (line 21) is computed again, not stored: 11 additions" in line
    kernels = np.explain(dear(np, x)).kernels
    assert [kernel.outputs for kernel in kernels] == [1, 1]  # nothing but the results


def test_what_a_cache_holds_is_stored() -> None:
    use(l3=1 << 30)
    x = np.array(operand())
    (line,) = explained(dear, x)
    assert "is stored, not computed again: 11 additions, a cache holds it" in line
    assert np.explain(dear(np, x)).kernels[0].outputs == 2


def test_the_limit_follows_from_what_was_measured() -> None:
    x = np.array(operand())
    use(l3=1 << 16, rate=1e12)  # memory as fast as this would be
    (line,) = explained(dear, x)
    assert "is stored, not computed again: 11 additions, up to" in line
    assert "cost less than memory" in line
    slow = replace(cpu_figures.defaults(), stored=48.0)
    fast = replace(slow, stored=480.0)
    assert fast.recompute_limit(2) > slow.recompute_limit(2)
    assert slow.recompute_limit(2) > slow.recompute_limit(1)
    unknown = replace(slow, stored=0.0)
    assert unknown.recompute_limit(2) == cpu_figures.RECOMPUTE


@pytest.mark.parametrize("program", [dearer, inexact])
def test_dear_and_inexact_values_are_stored_whatever_memory_costs(program: Any) -> None:
    use(l3=1 << 16, rate=1e6)
    assert explained(program, np.array(operand())) == []


def test_what_stays_in_a_tile_is_not_computed_again() -> None:
    use(l3=1 << 16, rate=1e6)
    assert explained(by_rows, np.array(operand(2))) == []


def test_sizes_choose_the_form_of_one_plan_C6() -> None:
    use(l3=1 << 19)
    large, small = operand(), operand()[: N // 8]
    before = evaluate.plan_cache_info()["plan misses"]
    for x in (large, small, large, small, large):
        again = "is computed again" in explained(dear, np.array(x))[0]
        assert again == (x is large)
        numpy.testing.assert_array_equal(numpy.asarray(dear(np, np.array(x))), dear(numpy, x))
    assert evaluate.plan_cache_info()["plan misses"] == before + 1


PROGRAMS = [dear, dearer, inexact, by_rows, twice]
# Computed again, stored as inexact, summed in two orders; the others are stored as `inexact` is.
USUAL = [(dear, "f8"), (inexact, "f4"), (twice, "i8")]


# Each dtype: what is decided follows from work and bytes, whatever they are of.
@pytest.mark.parametrize(
    ("program", "dtype"),
    [
        pytest.param(program, dtype, marks=[] if (program, dtype) in USUAL else [pytest.mark.long])
        for program in PROGRAMS
        for dtype in ("f8", "f4", "i8")
    ],
)
def test_no_bit_depends_on_the_decision_F7(program: Any, dtype: str) -> None:
    rank = 2 if program in (by_rows, twice) else 1
    values = (operand(rank) * 7).astype(dtype) + numpy.dtype(dtype).type(1)
    found = []
    for l3, work in ((1 << 30, 1e-10), (1 << 14, 1e-10), (1 << 14, 1e-6)):
        use(l3, rate=1e9, work=work)
        for factor in (1, 2, 1):  # a second and a third run are replayed
            x = values * values.dtype.type(factor)
            found.append(numpy.asarray(program(np, np.array(x))))
            if program is not inexact:
                numpy.testing.assert_array_equal(found[-1], program(numpy, x))
    for at in range(3):
        for other in (3, 6):
            assert found[at].tobytes() == found[other + at].tobytes()


def test_conditions_are_told_once_more_or_less_alike() -> None:
    use(l3=1 << 14)
    values = operand()
    values[7] = -1e200
    x = np.array(values)
    with pytest.warns(RuntimeWarning, match="overflow encountered in multiply") as told:
        numpy.asarray(dear(np, x))
    assert len(told) <= 2


def test_a_value_whose_operand_is_written_over_is_stored() -> None:
    use(l3=1 << 14)
    values = operand()
    for _ in range(3):
        x, y = np.array(values), values.copy()
        total, wanted = dear(np, x), dear(numpy, y)
        x[: N // 2] += 1.0
        y[: N // 2] += 1.0
        numpy.testing.assert_array_equal(numpy.asarray(total), wanted)
        numpy.testing.assert_array_equal(numpy.asarray(x), y)


def test_what_would_be_read_with_gaps_again_is_stored() -> None:
    use(l3=1 << 14)
    x = np.array(operand(2))
    for part in (x.T, x[:, ::2], x[1:, :]):
        assert explained(dear, part) == []
    assert len(explained(dear, np.array(operand(2).T, order="K"))) == 1
