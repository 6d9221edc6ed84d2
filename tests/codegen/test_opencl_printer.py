"""Text of language "opencl" on a CPU device: kernels per group, widths, tails, conditions."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from lazyfuse.codegen.lowering import chunks, lower
from lazyfuse.codegen.lowering.kernel import Instruction, Kernel, Reduce, Store, is_exact
from lazyfuse.codegen.lowering.lower import Lowered
from tests.campaign import TIMEOUT
from tests.codegen import opencl_tools
from tests.codegen.kernel_tools import (
    Array,
    apply,
    assert_same,
    assert_same_bits,
    empty_outputs,
    expected,
    lowered,
    prepare,
    reduction,
    run,
    some_layout,
    some_rounds,
    some_values,
)
from tests.codegen.opencl_tools import WIDTHS, batches, compiled
from tests.codegen.test_lower import random_case

pytestmark = TIMEOUT
EVERY_WIDTH = pytest.mark.parametrize("width", WIDTHS)
# Around the number of lanes, of four vectors, of a block and of a leaf of the pairwise tree.
SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 67, 127, 129, 1000, 1023, 1024, 1025, 3001)


def launch(
    low: Lowered,
    inputs: list[Array],
    outputs: list[Array],
    width: int,
    scalars: tuple[Any, ...] = (),
) -> int:
    """Run a lowered kernel with vectors of `width` bytes; the conditions raised."""
    temporaries = [np.empty(shape, dtype) for shape, dtype in low.temporaries]
    arrays = (*inputs, *outputs, *temporaries)
    for each in temporaries:
        np.frombuffer(each.data, np.uint8)[...] = 1  # what is not written must show
    program = compiled(low.source("opencl"), width)
    raised = program.launch(low.launch("opencl", arrays, scalars))
    low.finish(arrays)
    return raised


def evaluate(kernel: Kernel, inputs: list[Array], width: int = 32) -> list[Array]:
    """The outputs over the shape of the first input."""
    shape = inputs[0].shape
    outputs = empty_outputs(kernel, shape)
    launch(lowered(kernel, shape, inputs, outputs), inputs, outputs, width)
    return outputs


def check_cases(seeds: Sequence[int]) -> None:
    for few in batches(seeds):
        cases = [(each, random.Random(each).choice(WIDTHS), *random_case(each)) for each in few]
        lows = [lowered(*case[2:5], case[6], case[5]) for case in cases]
        for width in WIDTHS:
            mine = [low for low, case in zip(lows, cases, strict=True) if case[1] == width]
            opencl_tools.prepare([low.source("opencl") for low in mine], width)
        for low, case in zip(lows, cases, strict=True):
            seed, width, kernel, shape, inputs, order, outputs = case
            with np.errstate(all="ignore"):
                want = expected(kernel, shape, inputs, (), order)
            launch(low, inputs, outputs, width)
            for result, wanted in zip(outputs, want, strict=True):
                assert_same(result, wanted, f"seed {seed}")


@some_rounds(8, 15, 5000)
def test_U4_random_kernels_equal_numpy(seeds: Sequence[int]) -> None:
    check_cases(seeds)


@some_rounds(8, 15, 7000)
def test_U4_random_kernels_in_many_chunks_equal_numpy(
    seeds: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("CHUNK", 3000), ("SMALLEST_CHUNK", 1000), ("STRETCH", 1500)):
        monkeypatch.setattr(lower, name, value)
    monkeypatch.setattr(lower, "SHORTEST_CUT", 32)
    monkeypatch.setattr(chunks, "SHORTEST_CUT", 32)
    check_cases(seeds)


def test_U3_a_chain_of_ten_operations_is_one_opencl_kernel() -> None:
    body = [apply("add", (0, 1), "f8")]
    for at in range(9):
        op = ("multiply", "subtract", "maximum")[at % 3]
        body.append(apply(op, (2 + at, at % 2), "f8"))
    kernel = Kernel(1, ("f8", "f8"), (), tuple(body), (Store(11, "f8"),))
    inputs = [some_values(np.random.default_rng(k), (1000,), "f8") for k in range(2)]
    outputs = empty_outputs(kernel, (1000,))
    low = lowered(kernel, (1000,), inputs, outputs)
    assert low.source("opencl").text.count("__kernel") == 1
    assert low.temporaries == ()
    launch(low, inputs, outputs, 32)
    assert_same_bits(outputs[0], expected(kernel, (1000,), inputs)[0])


def test_U3_maps_and_reductions_share_one_opencl_kernel() -> None:
    body = (apply("multiply", (0, 0), "f8"), apply("add", (1, 0), "f8"))
    reductions = (
        Reduce("add", 2, "f8", "f8"),
        Reduce("maximum", 1, "f8", "f8"),
        Reduce("argmin", 2, "f8", "i8"),
    )
    kernel = Kernel(2, ("f8",), (), body, (Store(2, "f8"),), reductions, (False, True))
    values = some_values(np.random.default_rng(0), (40, 3000), "f8")
    outputs = empty_outputs(kernel, values.shape)
    low = lowered(kernel, values.shape, [values], outputs)
    assert low.source("opencl").text.count("__kernel") == 1
    launch(low, [values], outputs, 32)
    for got, want in zip(outputs, expected(kernel, values.shape, [values]), strict=True):
        assert_same(got, want)


def test_C5_the_text_depends_on_layout_classes_alone() -> None:
    kernel = Kernel(2, ("f8", "f8"), (), (apply("add", (0, 1), "f8"),), (Store(2, "f8"),))
    sources = [
        lower.lower(kernel, (20 + n, 100), ((700, 2 + n), (0, 1)), ((900, 1),)).source("opencl")
        for n in range(4)
    ]
    assert all(each is sources[0] for each in sources)
    assert sources[0].group == 0


# One, two, four and eight lanes.
SUMMED = [("f8", 8), ("f8", 16), ("f4", 16), ("f4", 32)]


@pytest.mark.parametrize(
    ("dtype", "width"),
    [
        pytest.param(*row, marks=() if row in SUMMED else pytest.mark.long)
        for row in itertools.product(("f4", "f8"), WIDTHS)
    ],
)
def test_C5_sums_have_numpys_bits_at_every_vector_width(dtype: str, width: int) -> None:
    squares = Kernel(
        1,
        (dtype,),
        (),
        (apply("square", (0,), dtype),),
        (),
        (Reduce("add", 1, dtype, dtype),),
        (True,),
    )
    values = some_values(np.random.default_rng(1), (200_000,), dtype)
    sums, parts = reduction("add", dtype), [values[:n] for n in (*SIZES, 70_000, 200_000)]
    prepare([(each, x.shape, [x]) for each in (sums, squares) for x in parts], width=width)
    for part in parts:
        assert_same_bits(evaluate(sums, [part], width)[0], np.asarray(part.sum()))
        want = np.asarray(np.add.reduce(part * part))
        assert_same_bits(evaluate(squares, [part], width)[0], want)


# The text counts the lanes, whatever the dtype: each width and each dtype is met.
FOLDED = [("u8", 8), ("f4", 16), ("f4", 32), ("i1", 32)]


@pytest.mark.parametrize(
    ("dtype", "width"),
    [
        pytest.param(*row, marks=() if row in FOLDED else pytest.mark.long)
        for row in itertools.product(("i1", "u8", "f4"), WIDTHS)
    ],
)
def test_C5_folds_of_every_length(dtype: str, width: int) -> None:
    parts = {}
    values = some_values(np.random.default_rng(2), (3001,), dtype)
    for op in ("minimum", "argmax"):
        parts[reduction(op, dtype)] = [values[:size] for size in SIZES]
    prepare([(each, x.shape, [x]) for each, rows in parts.items() for x in rows], width=width)
    for kernel, rows in parts.items():
        for part in rows:
            op = kernel.reductions[0].op
            want = np.minimum.reduce(part) if op == "minimum" else np.argmax(part)
            assert_same(evaluate(kernel, [part], width)[0], np.asarray(want), str(kernel))


LANES = [("f8", 32, "backwards"), ("f4", 32, "apart")]
INEXACT = ("exp", "sin", "cos", "tan", "log1p", "tanh", "arctan", "cbrt")


# Four and eight lanes, which the text counts; one and two are met with sums, above. Elements apart
# and backwards are brought together alike, before anything is computed.
@pytest.mark.parametrize(
    ("dtype", "width", "layout"),
    [
        pytest.param(*row, marks=() if row in LANES else pytest.mark.long)
        for row in itertools.product(("f4", "f8"), WIDTHS, ("apart", "backwards"))
    ],
)
def test_C5_an_elements_bits_do_not_depend_on_its_place(
    dtype: str, width: int, layout: str
) -> None:
    rng = np.random.default_rng(3)
    values = np.abs(rng.standard_normal(203) * 10.0 ** rng.integers(-3, 6, 203)).astype(dtype)
    values[[20, 90, 150]] = np.inf, np.nan, 3e38
    count = len(INEXACT)
    body = tuple(apply(op, (0,), dtype) for op in INEXACT)
    kernel = Kernel(1, (dtype,), (), body, tuple(Store(1 + k, dtype) for k in range(count)))
    assert not is_exact(kernel)
    other = np.repeat(values, 2)[::2] if layout == "apart" else values[::-1].copy()[::-1]
    prepare([(kernel, x.shape, [x]) for x in (values, other)], width=width)
    whole = evaluate(kernel, [values], width)
    for first in (0, 1, 3, 8):
        for stop in (203, 198 - first, first + 1):
            for memory in (values, other):
                parts = evaluate(kernel, [memory[first:stop]], width)
                for got, want in zip(parts, whole, strict=True):
                    assert_same_bits(got, want[first:stop])


@pytest.mark.parametrize("each", [1, pytest.param(6, marks=pytest.mark.long)])
def test_C5_copies_between_all_layouts(each: int) -> None:
    """A text names the dtype of an element and the class of a layout in places of their own."""
    cases = []
    for k, dtype in enumerate(("b1", "i1", "u2", "i4", "i8", "u8", "f4", "f8", "c8", "c16")):
        kernel = Kernel(2, (dtype,), (), (), (Store(0, dtype),))
        for seed in [(k + turn) % 6 for turn in range(each)]:
            chooser, rng = random.Random(seed), np.random.default_rng(seed)
            values = some_layout(chooser, some_values(rng, (13, 37), dtype))
            output = some_layout(chooser, np.zeros((13, 37), dtype))
            low = lowered(kernel, (13, 37), [values], [output])
            cases.append((low, WIDTHS[seed % len(WIDTHS)], values, output))
    for width in WIDTHS:
        opencl_tools.prepare(
            [low.source("opencl") for low, own, *_ in cases if own == width], width
        )
    for low, width, values, output in cases:
        launch(low, [values], [output], width)
        assert_same(output, values)


def test_C5_complex_arrays_need_no_more_than_the_alignment_of_their_parts() -> None:
    memory = np.zeros(16 * 101 + 8, np.uint8)
    shifted = memory[8 - memory.ctypes.data % 16 % 8 :][: 16 * 100]
    values = shifted.view(np.complex128)
    if values.ctypes.data % 16 == 0:
        values = memory[8:][: 16 * 100].view(np.complex128)
    values[...] = some_values(np.random.default_rng(4), (100,), "c16")
    body = (apply("add", (0, 0), "c16"),)
    kernel = Kernel(
        1, ("c16",), (), body, (Store(1, "c16"),), (Reduce("add", 1, "c16", "c16"),), (True,)
    )
    doubled, total = evaluate(kernel, [values])
    assert_same(doubled, values + values)
    assert_same_bits(total, np.asarray(np.add.reduce(values + values)))


def divide_kernel(dtype: str) -> Kernel:
    return Kernel(1, (dtype,) * 2, (), (apply("divide", (0, 1), dtype),), (Store(2, dtype),))


@EVERY_WIDTH
@pytest.mark.parametrize("place", [0, 5, 96, 100])
def test_A11_conditions_are_found_in_vectors_and_tails(place: int, width: int) -> None:
    for top, bottom, raised in ((1.0, 0.0, 1), (0.0, 0.0, 8), (1e300, 1e-300, 2), (1.0, np.nan, 0)):
        above, below, result = np.ones(101), np.ones(101), np.empty(101)
        above[place], below[place] = top, bottom
        low = lower.lower(divide_kernel("f8"), (101,), ((1,), (1,)), ((1,),))
        assert launch(low, [above, below], [result], width) == raised


@pytest.mark.parametrize("reduced", [(True, True), (False, True), (True, False)])
def test_A11_sums_tell_what_their_additions_raise(reduced: tuple[bool, bool]) -> None:
    each = Reduce("add", 0, "f8", "f8")
    kernel = Kernel(2, ("f8",), (), (), (), (each,), reduced)
    values = np.ones((50, 70))
    inf, big = np.inf, 1.7e308
    for first, second, raised in (
        (1.0, 1.0, 0), (inf, inf, 0), (np.nan, inf, 0), (big, big, 2), (inf, -inf, 8),
    ):  # fmt: skip
        values[20, 30] = first
        values[20, 31] = values[21, 30] = second
        outputs = empty_outputs(kernel, values.shape)
        low = lowered(kernel, values.shape, [values], outputs)
        assert launch(low, [values], outputs, 32) == raised


def test_A11_kernels_that_raise_nothing_have_no_code_for_it() -> None:
    kernel = Kernel(1, ("f8", "f8"), (), (apply("maximum", (0, 1), "f8"),), (Store(2, "f8"),))
    source = lower.lower(kernel, (9,), ((1,), (1,)), ((1,),)).source("opencl")
    assert "raised_here" not in source.text
    assert_same(
        run(kernel, (3,), [np.array([1, np.nan, 2])] * 2, language="opencl")[0],
        np.array([1, np.nan, 2]),
    )


def test_C5_values_without_vector_form_are_computed_one_by_one() -> None:
    body = (
        Instruction("floor_divide", (0, 1), ("i8", "i8"), "i8"),
        Instruction("cast", (2,), ("i8",), "c16"),
    )
    reductions = (Reduce("add", 2, "i8", "i8"), Reduce("argmax", 2, "i8", "i8"))
    kernel = Kernel(2, ("i8", "i8"), (), body, (Store(3, "c16"),), reductions, (False, True))
    inputs = [some_values(np.random.default_rng(k), (5, 1500), "i8") + 300 * k for k in range(2)]
    outputs = evaluate(kernel, inputs)
    for got, want in zip(outputs, expected(kernel, (5, 1500), inputs), strict=True):
        assert_same(got, want)
