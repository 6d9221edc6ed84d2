"""Values that are looked at or handed out: nothing is copied that nobody else wants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse.runtime.events import counters
from lazyfuse.runtime.placement import devices

N = 90_000
x = np.linspace(0.5, 2.0, N)
Array = Any


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Bytes of each copy that is made of a value."""
    found: list[int] = []
    real = devices.copied

    def copied(value: Array) -> Array:
        found.append(value.nbytes)
        return real(value)

    monkeypatch.setattr(devices, "copied", copied)
    with lf.options(eager_below=1024):
        yield found


LOOKS: dict[str, Callable[[Any], Any]] = {
    "slice": lambda a: a[1:],
    "row": lambda a: a[3],
    "column": lambda a: a[:, 2],
    "reversed": lambda a: a[::-1],
    "ellipsis": lambda a: a[...],
    "new axis": lambda a: a[None],
    "element": lambda a: a[5, 7],
    "iteration": lambda a: list(a)[1],
    "transpose": lambda a: a.T,
    "reshape": lambda a: a.reshape(-1)[9:],
    "mask": lambda a: a[a > 1.0],
    "array": np.asarray,
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_the_first_look_at_a_computed_array_copies_nothing_B5(
    copies: list[int], look: Callable[[Any], Any]
) -> None:
    expected = look(x.reshape(300, 300) * 2.0 + 1.0)
    a = lf.array(x).reshape(300, 300) * 2.0 + 1.0
    assert float(a.max()) == 5.0
    a += 0.0  # computed, then written: still ours alone
    copies.clear()
    np.testing.assert_array_equal(np.asarray(look(a)), expected)
    assert copies == []
    a[0, 0] = -1.0
    assert float(a[0, 0]) == -1.0


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_a_result_of_an_expression_alike(copies: list[int], look: Callable[[Any], Any]) -> None:
    a = lf.array(x).reshape(300, 300) * 2.0 + 1.0
    float(a.sum())
    copies.clear()
    expected = look(x.reshape(300, 300) * 2.0 + 1.0)
    np.testing.assert_array_equal(np.asarray(look(a)), expected)
    assert copies == []


def test_what_reads_a_value_is_evaluated_with_it_B2(copies: list[int]) -> None:
    def both(xp: Any, data: Any) -> tuple[Any, Any]:
        shared = xp.sqrt(data) + 1.0
        first = data * shared - 2.0
        return first, first - shared * data

    first, second = both(lf, lf.array(x))
    counters.reset()
    given = first.to_numpy()
    assert counters.totals().kernels == 1
    np.testing.assert_array_equal(given, both(np, x)[0])
    given[:] = 0.0  # whoever was given the memory may write to it
    np.testing.assert_array_equal(np.asarray(second), both(np, x)[1])
    assert counters.totals().kernels == 1
    assert copies == []
    np.testing.assert_array_equal(np.asarray(first), np.zeros(N))


def test_many_readers_get_a_copy(copies: list[int]) -> None:
    first = lf.array(x) * 3.0
    readers = [first + float(k) for k in range(4)]
    given = first.to_numpy()
    given[:] = 0.0
    for k, each in enumerate(readers):
        np.testing.assert_array_equal(np.asarray(each), x * 3.0 + float(k))
    assert first.nbytes in copies


@pytest.mark.parametrize("fusion", [True, False])
def test_updates_and_views_between_read_what_they_should(copies: list[int], fusion: bool) -> None:
    def program(xp: Any) -> list[Any]:
        a = xp.array(x) * 2.0
        b = a + 1.0
        c = a[::-1] * b
        seen = np.asarray(a)
        a[10:] += 5.0
        d = a - b
        total = float((seen * 1.0).sum())
        b[:] = 0.5
        return [a, b, c, d, total]

    with lf.options(fusion=fusion):
        ours = [np.asarray(each) for each in program(lf)]
    for mine, theirs in zip(ours, program(np), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_reader_warns_once_and_where_it_was_recorded() -> None:
    with lf.options(eager_below=1024):
        first = lf.array(x) - x
        second = 1.0 / first
        with pytest.warns(RuntimeWarning, match="divide by zero") as told:
            np.stack([first.to_numpy(), second.to_numpy()])
    assert len(told) == 1
    assert told[0].filename == __file__


def test_readers_wait_where_conditions_are_errors() -> None:
    with lf.options(eager_below=1024):
        first = lf.array(x) - x
        second = 1.0 / first
        with np.errstate(all="raise"):
            np.testing.assert_array_equal(first.to_numpy(), np.zeros(N))
        with pytest.warns(RuntimeWarning, match="divide by zero"):
            second.to_numpy()
