"""Reductions for groups of work-items: NumPy's bits, shapes of work, the second pass."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from lazyfuse.codegen.lowering.kernel import Kernel, Reduce, Store
from tests.codegen.grid_tools import SMALL, lowered, prepare, run, run_with_flags, sizes
from tests.codegen.kernel_tools import (
    Array,
    apply,
    assert_same,
    assert_same_bits,
    empty_outputs,
    expected,
    reduction,
    some_values,
)

SOME_SIZES = [*range(1, 20), 63, 64, 65, 127, 128, 129, 135, 143, 4999]
INTEGERS = ("bitwise_and", "bitwise_or", "bitwise_xor")
LONG = pytest.mark.long


def axes_kernel(op: str, dtype: str, reduced: tuple[bool, ...]) -> Kernel:
    return Kernel(len(reduced), (dtype,), (), (), (), reduction(op, dtype).reductions, reduced)


def second_passes(kernel: Kernel, value: Array) -> bool:
    low = lowered(kernel, value.shape, [value], empty_outputs(kernel, value.shape))
    return low.second() is not None


def check(kernel: Kernel, value: Array, **how: Any) -> None:
    with np.errstate(all="ignore"):
        want = expected(kernel, value.shape, [value])
        got = run(kernel, value.shape, [value], **how)
    for result, wanted in zip(got, want, strict=True):
        assert_same_bits(result, wanted)


# The tree is the same for floats and complex numbers, and so is its cutting into stretches: floats
# have every size here, complex numbers the stretches of the next test.
@pytest.mark.parametrize("dtype", ["f8", pytest.param("c8", marks=LONG)])
def test_sums_have_numpys_bits_for_every_size(dtype: str) -> None:
    values = some_values(np.random.default_rng(0), (5000,), dtype)
    prepare([(reduction("add", dtype), [values[:size]]) for size in SOME_SIZES])
    for size in SOME_SIZES:
        check(reduction("add", dtype), values[:size])


@pytest.mark.parametrize("dtype", [pytest.param("f8", marks=LONG), "c8"])
def test_sums_of_many_stretches_have_numpys_bits(dtype: str) -> None:
    values = some_values(np.random.default_rng(1), (70_000,), dtype)
    several = (1000, 4096, 4999, 65_536, 70_000)
    with sizes(group=64, **SMALL):
        prepare([(reduction("add", dtype), [values[:size]]) for size in several])
        for size in several:
            for groups in (1, 7):
                check(reduction("add", dtype), values[:size], groups=groups)
                check(reduction("add", dtype), values[:size], groups=groups, on_host=True)


@pytest.mark.parametrize("dtype", ["f4", pytest.param("f8", marks=LONG), "c16"])
def test_large_sums_of_computed_values_have_numpys_bits(dtype: str) -> None:
    doubled = apply("add", (0, 0), dtype)
    kernel = Kernel(1, (dtype,), (), (doubled,), (), (Reduce("add", 1, dtype, dtype),), (True,))
    both = [some_values(np.random.default_rng(2), (n,), dtype) for n in (1 << 20, 1_000_003)]
    prepare([(kernel, [values]) for values in both])
    for values in both:
        (got,) = run(kernel, values.shape, [values], groups=5)
        assert_same_bits(got, np.asarray(np.add.reduce(values + values)))


def test_a_converting_sum_follows_numpys_buffers() -> None:
    kernel = Kernel(1, ("i4",), (), (), (), (Reduce("add", 0, "f8", "f8"),), (True,))
    values = np.random.default_rng(3).integers(-(10**9), 10**9, 100_003).astype("i4")
    several = (8192, 8193, 20_000, 100_003)
    prepare([(kernel, [values[:size]]) for size in several])
    for size in several:
        (got,) = run(kernel, (size,), [values[:size]])
        assert_same_bits(got, np.asarray(np.add.reduce(values[:size], dtype="f8")))


# Axes and layout choose the loops, the op what is done in them.
@pytest.mark.parametrize(
    ("op", "is_turned"),
    [
        ("add", False),
        pytest.param("add", True, marks=LONG),
        pytest.param("multiply", False, marks=LONG),
        ("multiply", True),
        ("maximum", False),
        pytest.param("maximum", True, marks=LONG),
    ],
)
def test_axes_of_floats(op: str, is_turned: bool) -> None:
    value = np.random.default_rng(4).uniform(0.9, 1.1, (7, 20, 300))
    turned = value.transpose(1, 2, 0).copy().transpose(2, 0, 1)
    axes = [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)]
    kernels = [axes_kernel(op, "f8", tuple(axis in each for axis in range(3))) for each in axes]
    memory = turned if is_turned else value
    prepare([(kernel, [memory]) for kernel in kernels])
    for kernel in kernels:
        check(kernel, memory)


FREE = ("minimum", "fmax", "logical_and", "argmin", "argmax", *INTEGERS)


# The op is a text of its own wherever axes put it; positions and the others are combined apart.
USUAL = {(op, (False, True)) for op in FREE}
USUAL |= {(op, (True, each)) for op in ("fmax", "argmin") for each in (False, True)}


@pytest.mark.parametrize("usual", [True, pytest.param(False, marks=pytest.mark.long)])
def test_free_reductions_in_many_stretches(usual: bool) -> None:
    cases = []
    for op, reduced in itertools.product(FREE, ((False, True), (True, True), (True, False))):
        if ((op, reduced) in USUAL) != usual:
            continue
        dtype = "i4" if op in INTEGERS else "f8"
        kernel = axes_kernel(op, dtype, reduced)
        value = some_values(np.random.default_rng(5), (3, 5000), dtype)
        if dtype == "f8":
            value[1, 4321] = np.nan
        if op == "logical_and":
            kernel = Kernel(2, (dtype,), (), (), (), (Reduce(op, 0, "b1", "b1"),), reduced)
            value = np.abs(value) + 1
            value[1, 4000] = 0
        cases.append((kernel, value))
    with sizes(group=64, **SMALL):
        prepare([(kernel, [value]) for kernel, value in cases])
        for kernel, value in cases:
            for on_host in (False, True):
                assert second_passes(kernel, value) or not kernel.reduced[1]
                check(kernel, value, groups=5, on_host=on_host)


def test_ties_and_nans_of_positions_go_to_the_first() -> None:
    several = (np.zeros(100_000), np.full(50_000, np.nan), np.arange(70_000) % 1000 * -1.0)
    cases = [(reduction("argmax", "f8"), value) for value in several]
    cases += [(reduction("argmin", "f8"), value[::-1]) for value in several]
    prepare([(kernel, [value]) for kernel, value in cases])
    for kernel, value in cases:
        check(kernel, value)


# Long and short rows, many and few of them; the others are such again.
@pytest.mark.parametrize(
    "shapes",
    [
        ((100_000, 3), (3, 100_000)),
        pytest.param(((2000, 40), (5, 70_000)), marks=LONG),
    ],
    ids=["usual", "others"],
)
def test_sums_of_rows_and_columns(shapes: tuple[tuple[int, int], ...]) -> None:
    several = [some_values(np.random.default_rng(6), shape, "f4") for shape in shapes]
    kernels = [axes_kernel("add", "f4", each) for each in ((False, True), (True, False))]
    prepare([(kernel, [value]) for kernel in kernels for value in several])
    for value in several:
        for kernel in kernels:
            check(kernel, value, groups=7)


def test_rows_apart_in_memory_are_added_in_order() -> None:
    value = some_values(np.random.default_rng(7), (40, 3, 9001), "f8")[:, :, :9000]
    kernels = [axes_kernel("add", "f8", (True, each, True)) for each in (False, True)]
    prepare([(kernel, [value]) for kernel in kernels])
    for kernel in kernels:
        check(kernel, value, groups=3)


def test_several_reductions_and_stores_share_a_pass() -> None:
    rng = np.random.default_rng(8)
    value = rng.standard_normal((6, 30_000))
    body = (apply("multiply", (0, 0), "f8"), apply("add", (1, 0), "f8"))
    reductions = (
        Reduce("add", 1, "f8", "f8"),
        Reduce("add", 0, "f8", "f8"),
        Reduce("maximum", 2, "f8", "f8"),
        Reduce("argmin", 0, "f8", "i8"),
    )
    kernel = Kernel(2, ("f8",), (), body, (Store(2, "f8"),), reductions, (True, True))
    assert second_passes(kernel, value)
    check(kernel, value, groups=4)


@pytest.mark.parametrize("limit", [1 << 30, 16])
def test_the_size_that_asks_for_a_second_pass_can_be_set(limit: int) -> None:
    """C5: work-group tiles, two passes above a threshold, sizes configurable."""
    value = np.random.default_rng(9).random(100_000)
    kernel = reduction("maximum", "f8")
    with sizes(stretch=limit):
        assert second_passes(kernel, value) == (limit == 16)
        check(kernel, value)


def test_launches_follow_the_amount_of_work() -> None:
    """E5: sizes from element counts."""
    for count, least in ((1000, 1), (100_000, 16), (10_000_000, 500)):
        kernel = reduction("add", "f8")
        value = np.broadcast_to(np.zeros(1), (count,)).copy() if count < 10**6 else np.zeros(count)
        low = lowered(kernel, value.shape, [value], empty_outputs(kernel, value.shape))
        assert least <= low.tasks <= 2 * 1024


@pytest.mark.parametrize("places", [(12_345, 12_353), (5, 29_999)])
def test_a_sum_tells_what_its_additions_raise(places: tuple[int, int]) -> None:
    """A11: an infinity among the elements raises nothing, two of different signs do."""
    value = np.ones(30_000)
    inf, big = np.inf, 1.7e308
    for first, second, raised in (
        (1.0, 1.0, 0), (inf, inf, 0), (np.nan, inf, 0), (big, big, 2), (inf, -inf, 8),
    ):  # fmt: skip
        value[list(places)] = first, second
        assert run_with_flags(reduction("add", "f8"), value.shape, [value])[1] == raised


# Each dtype, and each op on integers and otherwise.
KEPT = {("u1", "add"), ("i8", "multiply"), ("b1", "add"), ("f4", "multiply")}


@pytest.mark.parametrize("usual", [True, pytest.param(False, marks=LONG)])
def test_products_and_sums_of_other_kinds(usual: bool) -> None:
    cases = []
    for dtype, kept in (("u1", "u8"), ("i8", "i8"), ("b1", "i8"), ("f4", "f4")):
        value = some_values(np.random.default_rng(10), (50_000,), dtype)
        ops = [op for op in ("add", "multiply") if ((dtype, op) in KEPT) == usual]
        cases += [(reduction(op, dtype, accumulator=kept), value) for op in ops]
    prepare([(kernel, [value]) for kernel, value in cases])
    for kernel, value in cases:
        check(kernel, value)


def test_repeated_operands_are_reduced_too() -> None:
    rows = np.random.default_rng(11).random((1, 4000))
    kernel = axes_kernel("add", "f8", (True, True))
    value = np.broadcast_to(rows, (30, 4000))
    with np.errstate(all="ignore"):
        want = np.asarray(np.add.reduce(value, axis=(0, 1)))
    (got,) = run(kernel, value.shape, [rows])
    assert_same(got, want)
