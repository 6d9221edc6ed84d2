"""Compiled text against NumPy: bits of sums, layouts, aliasing, special values, flags."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from lazyfuse.codegen.lowering import lower
from lazyfuse.codegen.lowering.kernel import Instruction, Kernel, Reduce, Store
from lazyfuse.devices.cpu.device import CPU
from tests.campaign import TIMEOUT
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
    prepare,
    reduction,
    run,
    some_rounds,
    some_values,
)
from tests.codegen.test_lower import check_case

pytestmark = TIMEOUT
EACH = pytest.mark.parametrize("language", LANGUAGES)
LONG = pytest.mark.long


def unless(usual: bool) -> tuple[pytest.MarkDecorator, ...]:
    """The marks of a case."""
    return () if usual else (LONG,)


# Every rest of eight below four and above sixteen vectors of NumPy's leaf, and sizes of trees.
SIZES = [*range(1, 34), *range(120, 137), 255, 256, 257, 1000, 1023, 1024, 1025, 2049, 4999, 5000]
OTHER_SIZES = [*range(34, 120), *range(137, 140)]


AXES = (((True, True), None), ((True, False), 0), ((False, True), 1))


@some_rounds(5, 12, 1000)
def test_random_kernels_compiled(seeds: Sequence[int]) -> None:
    for seed in seeds:
        check_case(seed, "numba")


# The other dtypes are summed in numba by the test after this one, and in OpenCL by those of zeros
# and of vector widths.
SUMMED = {"numba": ("f8", "c8"), "opencl": ("f4", "c16"), "numpy": ("f4", "f8", "c8", "c16")}


@pytest.mark.parametrize(
    ("dtype", "language"),
    [
        pytest.param(dtype, language, marks=unless(dtype in SUMMED[language]))
        for dtype in SUMMED["numpy"]
        for language in LANGUAGES
    ],
)
@pytest.mark.parametrize(
    "sizes", [SIZES, pytest.param(OTHER_SIZES, marks=LONG)], ids=["some", "others"]
)
def test_sums_have_numpys_bits_for_every_size(sizes: list[int], dtype: str, language: str) -> None:
    kernel = reduction("add", dtype)
    values = some_values(np.random.default_rng(0), (5000,), dtype)
    prepare([(kernel, (size,), [values[:size]]) for size in sizes], language)
    for size in sizes:
        (got,) = run(kernel, (size,), [values[:size]], language=language)
        assert_same_bits(got, np.asarray(np.add.reduce(values[:size])))


# Computed floats are summed in OpenCL at every width (test_opencl_printer.py).
@pytest.mark.parametrize(
    ("dtype", "language"),
    [
        pytest.param(dtype, language, marks=unless((dtype, language) != ("f4", "opencl")))
        for dtype in ("f4", "c16")
        for language in LANGUAGES
    ],
)
def test_large_sums_of_computed_values_have_numpys_bits(dtype: str, language: str) -> None:
    doubled = apply("add", (0, 0), dtype)
    kernel = Kernel(1, (dtype,), (), (doubled,), (), (Reduce("add", 1, dtype, dtype),), (True,))
    values = some_values(np.random.default_rng(1), (1_000_003,), dtype)
    for size in (70_000, 131_073, 1_000_003):
        (got,) = run(kernel, (size,), [values[:size]], language=language)
        part = values[:size]
        assert_same_bits(got, np.asarray(np.add.reduce(part + part)))


SUMS = [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)]
ORDERS = [None, (2, 1, 0), (1, 2, 0)]
BUILT = {
    "numba": [((0,), None), ((2,), (2, 1, 0)), ((1, 2), None), ((0, 2), (1, 2, 0))],
    "opencl": [((1,), None), ((0, 1), (2, 1, 0)), ((0, 1, 2), (1, 2, 0))],
}


# Axes and order choose the form, whatever the language; the printers see the form alone. NumPy's,
# which nothing compiles, meets every form; the others share the axes, and each has every order.
@pytest.mark.parametrize(
    ("axes", "order", "language"),
    [
        pytest.param(*row, language, marks=unless(row in BUILT.get(language, [row])))
        for row in itertools.product(SUMS, ORDERS)
        for language in LANGUAGES
    ],
)
def test_sums_over_axes_have_numpys_bits(
    axes: tuple[int, ...], order: tuple[int, ...] | None, language: str
) -> None:
    value = some_values(np.random.default_rng(2), (9, 40, 300), "f8")
    kept = tuple(axis in axes for axis in range(3))
    each = Reduce("add", 2, "f8", "f8")
    body = (apply("multiply", (0, 1), "f8"),)
    kernel = Kernel(3, ("f8", "f8"), (), body, (), (each,), kept)
    row = some_values(np.random.default_rng(3), (40, 1), "f8")
    inputs = [value, row]
    want = expected(kernel, value.shape, inputs, (), order)[0]
    (got,) = run(kernel, value.shape, inputs, (), order, language)
    assert_same_bits(got, want)


# Rows backwards in memory are rows cut out of longer ones, at other distances; columns in order
# are met with extremes, below.
@EACH
@pytest.mark.parametrize(
    "names",
    [
        ("gaps", "rows backwards", "cut", "broadcast"),
        pytest.param(("backwards", "transposed"), marks=LONG),
    ],
    ids=["usual", "others"],
)
def test_sums_of_views_have_numpys_bits(names: tuple[str, ...], language: str) -> None:
    base = some_values(np.random.default_rng(4), (300, 250), "f8")
    views = {
        "gaps": base[:, ::2],
        "backwards": base[::-1],
        "rows backwards": base[:, ::-1],
        "transposed": base.T,
        "cut": base[:, :100],
        "broadcast": np.broadcast_to(base[:, :1], base.shape),
    }
    views = {name: views[name] for name in names}
    kernel = reduction("add", "f8", rank=2)
    prepare([(kernel, view.shape, [view]) for view in views.values()], language)
    for name, value in views.items():
        (got,) = run(kernel, value.shape, [value], language=language)
        assert_same_bits(got, np.asarray(np.add.reduce(value, axis=None)), name)


@EACH
def test_converted_sums_have_numpys_bits(language: str) -> None:
    value = np.random.default_rng(5).integers(-(10**9), 10**9, 100_003)
    kernel = reduction("add", "i8", accumulator="f8")
    (got,) = run(kernel, value.shape, [value], language=language)
    assert_same_bits(got, np.asarray(np.add.reduce(value, dtype="f8")))


@EACH
def test_products_of_floats_have_numpys_bits(language: str) -> None:
    value = 1 + some_values(np.random.default_rng(6), (300, 30), "f8") * 1e-5
    each = Reduce("multiply", 0, "f8", "f8")
    kernels = [Kernel(2, ("f8",), (), (), (), (each,), reduced) for reduced, _ in AXES]
    prepare([(kernel, value.shape, [value]) for kernel in kernels], language)
    for kernel in kernels:
        (got,) = run(kernel, value.shape, [value], language=language)
        assert_same_bits(got, expected(kernel, value.shape, [value])[0])


# In OpenCL complex numbers are added as floats are, part by part.
@pytest.mark.parametrize(
    ("dtype", "language"),
    [
        pytest.param(dtype, language, marks=unless((dtype, language) != ("f8", "opencl")))
        for dtype in ("f8", "c8")
        for language in LANGUAGES
    ],
)
def test_sums_of_negative_zeros_are_positive(dtype: str, language: str) -> None:
    cases = []
    for shape in ((1, 1), (3, 1), (1, 5), (40, 3), (3, 40), (2, 9000)):
        for reduced, axis in AXES:
            each = Reduce("add", 0, dtype, dtype)
            kernel = Kernel(2, (dtype,), (), (), (), (each,), reduced)
            cases.append((kernel, -np.zeros(shape, dtype), axis))
    prepare([(kernel, value.shape, [value]) for kernel, value, _ in cases], language)
    for kernel, value, axis in cases:
        (got,) = run(kernel, value.shape, [value], language=language)
        assert_same_bits(got, np.asarray(np.add.reduce(value, axis=axis)))


EXTREMES = {
    "numba": ["f8 minimum", "c8 maximum", "f8 fmax", "f8 argmin", "c8 argmax"],
    "opencl": ["f8 maximum", "c8 minimum", "c8 fmin", "c8 argmin", "f8 argmax"],
}


# Least and largest differ by the sign that compares; each language has each kind of extreme, both
# dtypes and both signs, and NumPy's has all.
@pytest.mark.parametrize(
    ("dtype", "op", "language"),
    [
        pytest.param(
            dtype, op, language, marks=unless(f"{dtype} {op}" in EXTREMES.get(language, [row]))
        )
        for dtype in ("f8", "c8")
        for op in ("minimum", "maximum", "fmin", "fmax", "argmin", "argmax")
        for language in LANGUAGES
        for row in [f"{dtype} {op}"]
    ],
)
def test_nans_in_extremes(dtype: str, op: str, language: str) -> None:
    value = some_values(np.random.default_rng(7), (5000,), dtype)
    function = getattr(np, op).reduce if not op.startswith("arg") else getattr(np, op)
    kernel = reduction(op, dtype)
    for places in ([], [4000], [17, 3000], range(5000)):
        value[list(places)] = np.nan
        (got,) = run(kernel, value.shape, [value], language=language)
        with np.errstate(invalid="ignore"):
            assert_same(got, np.asarray(function(value)))


def layouts(value: Array) -> list[Array]:
    """In memory order, in Fortran's, and backwards along either axis."""
    return [value, np.asfortranarray(value), value[::-1], value[:, ::-1]]


# The text joins loops by axes and layout, and comparisons by op and dtype (truth values are read as
# bytes, floats may be NaN). All axes, each axis, each layout and each dtype is met; a column of
# rows is the row of Fortran's columns, so not all layouts meet all axes.
FIRSTS = (("f4", "b1", "i1", "u8"), ("argmin", "argmax"), AXES, range(4))
USUAL = [(0, 0, 0, 0), (0, 0, 0, 1), (0, 1, 1, 0), (0, 0, 2, 2), (0, 1, 1, 3)]
USUAL += [(1, 1, 1, 0), (2, 1, 2, 0), (3, 0, 0, 0)]


@EACH
@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(USUAL, id="usual"),
        pytest.param(
            [x for x in itertools.product(*(range(len(y)) for y in FIRSTS)) if x not in USUAL],
            id="others",
            marks=pytest.mark.long,
        ),
    ],
)
def test_the_first_of_equal_extremes_is_found(rows: list[tuple[int, ...]], language: str) -> None:
    cases = []
    for row in rows:
        dtype, op, (reduced, axis), layout = (x[k] for x, k in zip(FIRSTS, row, strict=True))
        each = Reduce(op, 0, dtype, "i8")
        value = (np.arange(6000).reshape(60, 100) % 7 == 3).astype(dtype)
        kernel = Kernel(2, (dtype,), (), (), (), (each,), reduced)
        cases.append((kernel, layouts(value)[layout], getattr(np, op), axis))
    prepare([(kernel, memory.shape, [memory]) for kernel, memory, *_ in cases], language)
    for kernel, memory, function, axis in cases:
        (got,) = run(kernel, memory.shape, [memory], language=language)
        assert_same(got, np.asarray(function(memory, axis=axis)), str(kernel))


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


@pytest.mark.smoke
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
def test_scalars_of_every_dtype(language: str) -> None:
    dtypes = ("b1", "i1", "u2", "i4", "u8", "f4", "f8", "c8", "c16")
    count = len(dtypes)
    body = tuple(apply("equal", (k, count + k), x, "b1") for k, x in enumerate(dtypes))
    stores = tuple(Store(2 * count + k, "b1") for k in range(count))
    kernel = Kernel(1, dtypes, dtypes, body, stores)
    inputs = [some_values(np.random.default_rng(8), (100,), x) for x in dtypes]
    scalars = tuple(each[50] for each in inputs)
    found = run(kernel, (100,), inputs, scalars, language=language)
    for got, each, scalar in zip(found, inputs, scalars, strict=True):
        assert_same(got, each == scalar)


def test_threads_do_not_change_bits() -> None:
    value = some_values(np.random.default_rng(9), (700_001,), "f8")
    body = (apply("sin", (0,), "f8"),)
    reductions = (Reduce("add", 1, "f8", "f8"), Reduce("argmax", 1, "f8", "i8"))
    kernel = Kernel(1, ("f8",), (), body, (Store(1, "f8"),), reductions, (True,))
    results = []
    device = CPU(threads=1, threads_above=0)
    for threads in (1, 2, 3):
        device.set_threads(threads)
        outputs = empty_outputs(kernel, value.shape)
        low = lowered(kernel, value.shape, [value], outputs)
        extra = [np.empty(shape, dtype) for shape, dtype in low.temporaries]
        arrays: tuple[Array, ...] = (value, *outputs, *extra)
        device.compile(low.source("numba")).launch(low.launch("numba", arrays, ()))
        low.finish(arrays)
        results.append([each.tobytes() for each in outputs])
    assert results[0] == results[1] == results[2]
    np.testing.assert_allclose(outputs[0], np.sin(value), rtol=1e-15, atol=1e-300)


@pytest.mark.smoke
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
