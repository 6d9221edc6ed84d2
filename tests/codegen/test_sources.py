"""Compiled text against NumPy: bits of sums, layouts, aliasing, special values, flags."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lazyfuse.codegen import lower
from lazyfuse.codegen.kernel import Instruction, Kernel, Reduce, Store
from lazyfuse.devices.cpu import CPU
from tests.codegen.kernel_tools import (
    LANGUAGES,
    Array,
    apply,
    assert_same,
    assert_same_bits,
    compiled,
    empty_outputs,
    expected,
    lowered,
    reduction,
    run,
    some_values,
)
from tests.codegen.test_lower import check_case

EACH = pytest.mark.parametrize("language", LANGUAGES)
SIZES = [*range(1, 140), 255, 256, 257, 1000, 1023, 1024, 1025, 2049, 4999, 5000]


@pytest.mark.parametrize("seed", range(1000, 1070))
def test_random_kernels_compiled(seed: int) -> None:
    check_case(seed, "numba")


@EACH
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
def test_sums_have_numpys_bits_for_every_size(dtype: str, language: str) -> None:
    kernel = reduction("add", dtype)
    values = some_values(np.random.default_rng(0), (5000,), dtype)
    for size in SIZES:
        (got,) = run(kernel, (size,), [values[:size]], language=language)
        assert_same_bits(got, np.asarray(np.add.reduce(values[:size])))


@EACH
@pytest.mark.parametrize("dtype", ["f4", "c16"])
def test_large_sums_of_computed_values_have_numpys_bits(dtype: str, language: str) -> None:
    doubled = apply("add", (0, 0), dtype)
    kernel = Kernel(1, (dtype,), (), (doubled,), (), (Reduce("add", 1, dtype, dtype),), (True,))
    values = some_values(np.random.default_rng(1), (1_000_003,), dtype)
    for size in (70_000, 131_073, 1_000_003):
        (got,) = run(kernel, (size,), [values[:size]], language=language)
        part = values[:size]
        assert_same_bits(got, np.asarray(np.add.reduce(part + part)))


@EACH
@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)])
def test_sums_over_axes_have_numpys_bits(axes: tuple[int, ...], language: str) -> None:
    value = some_values(np.random.default_rng(2), (9, 40, 300), "f8")
    kept = tuple(axis in axes for axis in range(3))
    each = Reduce("add", 2, "f8", "f8")
    body = (apply("multiply", (0, 1), "f8"),)
    kernel = Kernel(3, ("f8", "f8"), (), body, (), (each,), kept)
    row = some_values(np.random.default_rng(3), (40, 1), "f8")
    for order in (None, (2, 1, 0), (1, 2, 0)):
        inputs = [value, row]
        want = expected(kernel, value.shape, inputs, (), order)[0]
        (got,) = run(kernel, value.shape, inputs, (), order, language)
        assert_same_bits(got, want)


@EACH
@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[:, ::2],
        lambda a: a[::-1],
        lambda a: a[:, ::-1],
        lambda a: a.T,
        lambda a: a[:, :100],
        lambda a: np.broadcast_to(a[:, :1], a.shape),
    ],
    ids=["gaps", "backwards", "rows backwards", "transposed", "cut", "broadcast"],
)
def test_sums_of_views_have_numpys_bits(view: Any, language: str) -> None:
    value = view(some_values(np.random.default_rng(4), (300, 250), "f8"))
    (got,) = run(reduction("add", "f8", rank=2), value.shape, [value], language=language)
    assert_same_bits(got, np.asarray(np.add.reduce(value, axis=None)))


@EACH
def test_converted_sums_have_numpys_bits(language: str) -> None:
    value = np.random.default_rng(5).integers(-(10**9), 10**9, 100_003)
    kernel = reduction("add", "i8", accumulator="f8")
    (got,) = run(kernel, value.shape, [value], language=language)
    assert_same_bits(got, np.asarray(np.add.reduce(value, dtype="f8")))


@EACH
def test_products_of_floats_have_numpys_bits(language: str) -> None:
    value = 1 + some_values(np.random.default_rng(6), (300, 30), "f8") * 1e-5
    for reduced in ((True, True), (True, False), (False, True)):
        each = Reduce("multiply", 0, "f8", "f8")
        kernel = Kernel(2, ("f8",), (), (), (), (each,), reduced)
        (got,) = run(kernel, value.shape, [value], language=language)
        assert_same_bits(got, expected(kernel, value.shape, [value])[0])


@EACH
@pytest.mark.parametrize("dtype", ["f8", "c8"])
def test_sums_of_negative_zeros_are_positive(dtype: str, language: str) -> None:
    for shape in ((1, 1), (3, 1), (1, 5), (40, 3), (3, 40), (2, 9000)):
        value = -np.zeros(shape, dtype)
        for reduced, axis in (((True, True), None), ((True, False), 0), ((False, True), 1)):
            each = Reduce("add", 0, dtype, dtype)
            kernel = Kernel(2, (dtype,), (), (), (), (each,), reduced)
            (got,) = run(kernel, shape, [value], language=language)
            assert_same_bits(got, np.asarray(np.add.reduce(value, axis=axis)))


@EACH
@pytest.mark.parametrize("op", ["minimum", "maximum", "fmin", "fmax", "argmin", "argmax"])
@pytest.mark.parametrize("dtype", ["f8", "c8"])
def test_nans_in_extremes(op: str, dtype: str, language: str) -> None:
    value = some_values(np.random.default_rng(7), (5000,), dtype)
    function = getattr(np, op).reduce if not op.startswith("arg") else getattr(np, op)
    kernel = reduction(op, dtype)
    for places in ([], [4000], [17, 3000], range(5000)):
        value[list(places)] = np.nan
        (got,) = run(kernel, value.shape, [value], language=language)
        with np.errstate(invalid="ignore"):
            assert_same(got, np.asarray(function(value)))


@EACH
@pytest.mark.parametrize("dtype", ["b1", "i1", "u8", "f4"])
def test_the_first_of_equal_extremes_is_found(dtype: str, language: str) -> None:
    value = (np.arange(6000).reshape(60, 100) % 7 == 3).astype(dtype)
    for op in ("argmin", "argmax"):
        for reduced, axis in (((True, True), None), ((True, False), 0), ((False, True), 1)):
            each = Reduce(op, 0, dtype, "i8")
            kernel = Kernel(2, (dtype,), (), (), (), (each,), reduced)
            for memory in (value, np.asfortranarray(value), value[::-1], value[:, ::-1]):
                (got,) = run(kernel, value.shape, [memory], language=language)
                assert_same(got, np.asarray(getattr(np, op)(memory, axis=axis)))


@EACH
def test_infinite_extremes_have_positions(language: str) -> None:
    value = np.full((2000,), -np.inf)
    (got,) = run(reduction("argmax", "f8"), value.shape, [value], language=language)
    assert got == 0


def swap_kernel() -> Kernel:
    return Kernel(1, ("f8", "f8"), (), (), (Store(1, "f8"), Store(0, "f8")))


@EACH
def test_outputs_may_be_inputs(language: str) -> None:
    first, second = np.arange(5000.0), -np.arange(5000.0)
    wanted = second.copy(), first.copy()
    run(swap_kernel(), (5000,), [first, second], language=language, outputs=[first, second])
    assert_same(first, wanted[0])
    assert_same(second, wanted[1])


@EACH
@pytest.mark.parametrize("size", [100, 3000, 100_000])
def test_a_sum_reads_its_input_before_a_store_replaces_it(size: int, language: str) -> None:
    squared = apply("square", (0,), "f8")
    total = Reduce("add", 0, "f8", "f8")
    kernel = Kernel(1, ("f8",), (), (squared,), (Store(1, "f8"),), (total,), (True,))
    values = np.arange(size) + 2.0
    wanted = values.sum()
    outputs = [values, np.empty(())]
    run(kernel, (size,), [values], language=language, outputs=outputs)
    assert outputs[1] == wanted
    assert_same_bits(values, (np.arange(size) + 2.0) ** 2)


@EACH
def test_two_stores_over_one_input(language: str) -> None:
    body = (apply("add", (0, 1), "f8"), apply("multiply", (0, 1), "f8"))
    kernel = Kernel(1, ("f8", "f8"), (), body, (Store(2, "f8"), Store(3, "f8")))
    first, second = np.arange(3000.0), np.arange(3000.0)[::-1].copy()
    wanted = first + second, first * second
    run(kernel, (3000,), [first, second], language=language, outputs=[second, first])
    assert_same(second, wanted[0])
    assert_same(first, wanted[1])


@EACH
def test_slices_are_updated_in_place(language: str) -> None:
    memory = np.arange(4000.0).reshape(40, 100)
    wanted = memory.copy()
    wanted[::2, 1::3] *= 2.5
    part = memory[::2, 1::3]
    kernel = Kernel(2, ("f8",), ("f8",), (apply("multiply", (0, 1), "f8"),), (Store(2, "f8"),))
    run(kernel, part.shape, [part], (2.5,), language=language, outputs=[part])
    assert_same(memory, wanted)


@EACH
@pytest.mark.parametrize("dtype", ["b1", "i1", "u2", "i4", "u8", "f4", "f8", "c8", "c16"])
def test_scalars_of_every_dtype(dtype: str, language: str) -> None:
    kernel = Kernel(
        1, (dtype,), (dtype,), (apply("equal", (0, 1), dtype, "b1"),), (Store(2, "b1"),)
    )
    values = some_values(np.random.default_rng(8), (100,), dtype)
    (got,) = run(kernel, (100,), [values], (values[50],), language=language)
    assert_same(got, values == values[50])


def test_threads_do_not_change_bits() -> None:
    value = some_values(np.random.default_rng(9), (700_001,), "f8")
    body = (apply("sin", (0,), "f8"),)
    reductions = (Reduce("add", 1, "f8", "f8"), Reduce("argmax", 1, "f8", "i8"))
    kernel = Kernel(1, ("f8",), (), body, (Store(1, "f8"),), reductions, (True,))
    results = []
    for threads in (1, 2, 3):
        device = CPU(threads=threads, threads_above=0)
        outputs = empty_outputs(kernel, value.shape)
        low = lowered(kernel, value.shape, [value], outputs)
        extra = [np.empty(shape, dtype) for shape, dtype in low.temporaries]
        arrays: tuple[Array, ...] = (value, *outputs, *extra)
        device.compile(low.source("numba")).launch(low.launch("numba", arrays, ()))
        low.finish(arrays)
        results.append([each.tobytes() for each in outputs])
    assert results[0] == results[1] == results[2]
    np.testing.assert_allclose(outputs[0], np.sin(value), rtol=1e-15, atol=1e-300)


@EACH
def test_flags_tell_what_happened(language: str) -> None:
    kernel = Kernel(1, ("f8", "f8"), (), (apply("divide", (0, 1), "f8"),), (Store(2, "f8"),))
    low = lower.lower(kernel, (100,), ((1,), (1,)), ((1,),))
    program = compiled(low.source(language), language)
    ones, result = np.ones(100), np.empty(100)
    for divisor, flags in ((1.0, 0), (0.0, 1), (np.nan, 0)):
        other = np.ones(100)
        other[60] = divisor
        assert program.launch(low.launch(language, (ones, other, result), ())) == flags


def test_inexact_text_says_so() -> None:
    exact = Kernel(1, ("f8",), (), (apply("sqrt", (0,), "f8"),), (Store(1, "f8"),))
    inexact = Kernel(1, ("f8",), (), (apply("exp", (0,), "f8"),), (Store(1, "f8"),))
    for kernel, truth in ((exact, True), (inexact, False)):
        assert lower.lower(kernel, (9,), ((1,),), ((1,),)).source("numba").exact is truth
    total = lower.lower(reduction("add", "f8"), (9,), ((1,),), ((0,),)).source("numba")
    assert total.exact


@EACH
def test_operations_without_a_ufunc(language: str) -> None:
    body = (
        Instruction("clip", (0, 1, 2), ("f8",) * 3, "f8"),
        Instruction("where", (3, 0, 1), ("b1", "f8", "f8"), "f8"),
        Instruction("cast", (4,), ("f8",), "i4"),
    )
    stores = (Store(3, "f8"), Store(4, "f8"), Store(5, "i4"))
    kernel = Kernel(1, ("f8",), ("f8", "f8"), body, stores)
    values = some_values(np.random.default_rng(10), (1000,), "f8")
    want = expected(kernel, (1000,), [values], (-0.5, 2.5))
    for got, wanted in zip(
        run(kernel, (1000,), [values], (-0.5, 2.5), language=language), want, strict=True
    ):
        assert_same(got, wanted)
