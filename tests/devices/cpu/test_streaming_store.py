"""Results that go past the caches are the same results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse.codegen.lowering import lower
from lazyfuse.codegen.lowering.kernel import Instruction, Kernel, Store
from lazyfuse.runtime.scheduling import evaluate
from tests.pairwise import first

N = 60_011


@pytest.fixture(autouse=True)
def streaming() -> Iterator[None]:
    """Every map of rows that are long enough, on the CPU, the device that streams."""
    evaluate.clear_plans()
    with lf.options(
        device="cpu",
        eager_below=0,
        compile_after=0,
        compile_ahead=False,
        stream_above=1,
        threads_above=1000,
    ):
        yield
    evaluate.clear_plans()


def data(dtype: str, shape: Any = N) -> Any:
    values = np.random.default_rng(5).integers(-100, 100, shape)
    return (values > 0) if dtype == "?" else values.astype(dtype)


def test_it_happens_and_is_told() -> None:
    a = lf.asarray(data("f8"))
    assert "past the caches" in str(lf.explain(a * 2.0 + 1.0))
    with lf.options(stream_above=0):
        evaluate.clear_plans()
        assert "past the caches" not in str(lf.explain(a * 2.0 + 1.0))


# Each size once: stores past the caches ask for no more than it.
@pytest.mark.parametrize("dtype", first(5, ["i8", "f4", "i2", "?", "c16", "f8", "u1", "c8"]))
def test_every_size_of_element(dtype: str) -> None:
    a, b = data(dtype), data(dtype)[::-1].copy()
    x, y = lf.asarray(a), lf.asarray(b)
    found = (x == y) if dtype == "?" else (x + y + x)
    expected = (a == b) if dtype == "?" else (a + b + a)
    np.testing.assert_array_equal(found.to_numpy(), expected)
    assert found.to_numpy().dtype == expected.dtype


@pytest.mark.parametrize("start", [0, 1, 3, 7, 8, 13])
@pytest.mark.parametrize("stop", [N, N - 1, N - 5])
def test_targets_at_any_place(start: int, stop: int) -> None:
    a = data("f8")
    base, expected = lf.zeros(N), np.zeros(N)
    x = lf.asarray(a)
    base[start:stop] = x[start:stop] * 3.0 - x[: stop - start]
    expected[start:stop] = a[start:stop] * 3.0 - a[: stop - start]
    np.testing.assert_array_equal(base.to_numpy(), expected)


def test_several_results_of_one_kernel_some_strided() -> None:
    a, b = data("f8"), data("f4")
    x, y = lf.asarray(a), lf.asarray(b)
    pair = lf.zeros((N, 2))
    pair[:, 0] = x + y
    first, second = x * y, (x > y)
    other = second & (first > 3.0)
    for found, expected in (
        (first, a * b), (second, a > b), (other, (a > b) & (a * b > 3.0)), (pair[:, 0], a + b),
    ):  # fmt: skip
        np.testing.assert_array_equal(found.to_numpy(), expected)


def test_in_place_overlapping_and_out() -> None:
    a = data("f8")
    x = lf.array(a)
    for _ in range(3):
        x *= 1.5
        x[1:] += x[:-1]
        x[::-1] -= x * 0.5
    expected = a.copy()
    for _ in range(3):
        expected *= 1.5
        expected[1:] += expected[:-1]
        expected[::-1] -= expected * 0.5
    np.testing.assert_array_equal(x.to_numpy(), expected)
    out = lf.empty(N)
    lf.multiply(x, 2.0, out=out)
    lf.add(out, x, out=x)
    np.testing.assert_array_equal(x.to_numpy(), expected * 2.0 + expected)


def test_rows_and_broadcast_operands() -> None:
    a, row, column = data("f8", (70, 803)), data("f8", 803), data("f8", (70, 1))
    x = lf.asarray(a)
    found = x[1:, 2:-1] * lf.asarray(row)[2:-1] + lf.asarray(column)[1:]
    np.testing.assert_array_equal(found.to_numpy(), a[1:, 2:-1] * row[2:-1] + column[1:])
    np.testing.assert_array_equal((x.T + x.T * 2.0).to_numpy(), a.T + a.T * 2.0)
    np.testing.assert_array_equal((x[:, ::-1] + 1.0).to_numpy(), a[:, ::-1] + 1.0)


def test_conditions_and_one_thread() -> None:
    a = lf.asarray(data("f8"))
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        two = (1.0 / a).to_numpy()
    with lf.options(threads=1), lf.errstate(all="ignore"):
        np.testing.assert_array_equal((1.0 / a).to_numpy(), two)


def test_short_rows_and_small_kernels_do_not() -> None:
    double = Instruction("add", (0, 0), ("f8", "f8"), "f8")
    kernel = Kernel(2, ("f8",), (), (double,), (Store(1, "f8"),))

    def streams(rows: int, columns: int) -> bool:
        strides = (columns + 1, 1), (columns, 1)
        return lower.lower(kernel, (rows, columns), strides[:1], strides[1:]).variant.stream

    assert streams(400, 300)
    assert not streams(400, 100)
    lower.stream_above(4_000_000)  # windows of one array are not several arrays
    five = Kernel(2, ("f8",) * 5, (), (double,), (Store(5, "f8"),))
    windows = [(1002, 1)] * 5
    assert not lower.lower(five, (240, 1000), windows, [(1000, 1)]).variant.stream
    assert lower.lower(five, (260, 1000), windows, [(1000, 1)]).variant.stream
    a = lf.asarray(data("f8"))
    with lf.options(stream_above=lower.STREAM_ABOVE):
        np.testing.assert_array_equal((a * 2.0).to_numpy(), data("f8") * 2.0)
        assert not streams(400, 300)
