"""Maps for groups of work-items: layouts, vectors, any number of groups, width of indices."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from lazyfuse.codegen.lowering.kernel import Instruction, Kernel, Store
from lazyfuse.codegen.opencl import grid_lowered
from tests.campaign import TIMEOUT
from tests.codegen import opencl_tools
from tests.codegen.grid_tools import (
    LANGUAGE,
    SMALL,
    lowered,
    prepare,
    run,
    run_with_flags,
    sizes,
    sources,
)
from tests.codegen.kernel_tools import (
    Array,
    Shape,
    apply,
    assert_same,
    assert_same_bits,
    empty_outputs,
    expected,
    some_layout,
    some_rounds,
    some_values,
)
from tests.codegen.test_lower import random_case, random_kernel

pytestmark = TIMEOUT


def joined(dtype: str, rank: int = 1) -> Kernel:
    body = apply("bitwise_xor" if dtype[0] in "biu" else "add", (0, 1), dtype)
    return Kernel(rank, (dtype, dtype), (), (body,), (Store(2, dtype),))


def check_cases(seeds: Sequence[int]) -> None:
    for few in opencl_tools.batches(seeds):
        cases = [(seed, *random_case(seed)) for seed in few]
        lows = [lowered(*case[1:4], case[5], case[4]) for case in cases]
        opencl_tools.prepare([text for low in lows for text in sources(low)])
        for seed, kernel, shape, inputs, order, outputs in cases:
            chooser = random.Random(seed)
            with np.errstate(all="ignore"):
                want = expected(kernel, shape, inputs, (), order)
                groups, on_host = chooser.choice((1, 2, 7)), chooser.random() < 0.3
                got = run(kernel, shape, inputs, (), order, outputs, groups, on_host)
            for result, wanted in zip(got, want, strict=True):
                assert_same(result, wanted, f"seed {seed}")


@some_rounds(8, 15)
def test_random_kernels(seeds: Sequence[int]) -> None:
    check_cases(seeds)


@some_rounds(8, 15, 1000)
def test_random_kernels_in_small_groups_and_many_stretches(seeds: Sequence[int]) -> None:
    with sizes(group=64, **SMALL):
        check_cases(seeds)


@some_rounds(3, 5, 2000)
def test_random_kernels_with_indices_of_64_bits(
    seeds: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid_lowered, "NARROW", 1)
    check_cases(seeds)


@some_rounds(3, 5)
def test_random_kernels_of_four_axes(seeds: Sequence[int]) -> None:
    for few in opencl_tools.batches(seeds):
        cases = [(seed, *four_axes(seed)) for seed in few]
        opencl_tools.prepare(
            [
                text
                for _, kernel, shape, inputs in cases
                for text in sources(lowered(kernel, shape, inputs, empty_outputs(kernel, shape)))
            ]
        )
        for seed, kernel, shape, inputs in cases:
            with np.errstate(all="ignore"):
                want = expected(kernel, shape, inputs)
                got = run(kernel, shape, inputs, groups=3)
            for result, wanted in zip(got, want, strict=True):
                assert_same(result, wanted, f"seed {seed}")


def four_axes(seed: int) -> tuple[Kernel, Shape, list[Array]]:
    chooser, rng = random.Random(seed), np.random.default_rng(seed)
    shape = tuple(chooser.choice((1, 2, 5, 16, 33)) for _ in range(4))
    kernel = random_kernel(chooser, 4)
    inputs = []
    for dtype in kernel.inputs:
        own = tuple(1 if chooser.random() < 0.3 else n for n in shape)
        inputs.append(some_layout(chooser, some_values(rng, own, dtype)))
    return kernel, shape, inputs


def test_dense_maps_from_any_first_element() -> None:
    cases = []
    for dtype in ("f8", "f4", "u1", "b1", "c8"):
        rng = np.random.default_rng(0)
        memory = some_values(rng, (2200,), dtype), some_values(rng, (2200,), dtype)
        for size in (1, 2, 31, 32, 33, 255, 256, 257, 1023, 2049):
            for start, other in ((0, 0), (1, 1), (0, 1), (16, 3)):
                inputs = [memory[0][start : start + size], memory[1][other : other + size]]
                cases.append((joined(dtype), inputs))
    prepare(cases)
    for kernel, inputs in cases:
        (got,) = run(kernel, inputs[0].shape, inputs, groups=3)
        assert_same_bits(got, *expected(kernel, inputs[0].shape, inputs), str(kernel))


@pytest.mark.parametrize(("dtype", "vector"), [("f8", 2), ("f4", 4), ("u1", 8), ("c16", 1)])
def test_a_work_item_loads_sixteen_bytes(dtype: str, vector: int) -> None:
    value = np.zeros((64, 256), dtype)
    low = lowered(joined(dtype, 2), value.shape, [value, value], [value])
    assert low.grid.vector == vector
    row = lowered(joined(dtype, 2), value.shape, [value, value[:1]], [value])
    assert row.grid.vector == vector
    strided = lowered(
        joined(dtype, 2), (64, 128), [value[:, ::2], value[:, :128]], [value[:, 128:]]
    )
    assert strided.grid.vector == 1


def test_tasks_follow_the_number_of_elements() -> None:
    value = np.zeros(1_000_000, "f4")
    low = lowered(joined("f4"), value.shape, [value, value], [value])
    assert low.launch(LANGUAGE, (value, value, value), ()).tasks == -(-1_000_000 // 1024)
    assert low.source(LANGUAGE).group == 256


@pytest.mark.parametrize("groups", [1, 2, 7, 64])
def test_any_number_of_groups_covers_a_large_domain(groups: int) -> None:
    rng = np.random.default_rng(1)
    left, right = rng.random(1_000_003), rng.random(1_000_003)
    (got,) = run(joined("f8"), left.shape, [left, right], groups=groups)
    assert_same_bits(got, left + right)


@pytest.mark.parametrize("shape", [(16, 16), (100, 130), (257, 33), (512, 512)])
def test_transpositions(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(2)
    left, right = rng.random(shape[::-1]).T, rng.random(shape)
    low = lowered(joined("f8", 2), shape, [left, right], [np.empty(shape)])
    assert low.grid.loops == 4
    (got,) = run(joined("f8", 2), shape, [left, right], groups=5)
    assert_same_bits(got, left + right)


@pytest.mark.parametrize("size", [64, 1000])
def test_a_map_may_write_where_it_reads(size: int) -> None:
    value, other = np.arange(size, dtype="f4"), np.ones(size, "f4")
    want = value + other
    run(joined("f4"), (size,), [value, other], outputs=[value])
    assert_same_bits(value, want)


def test_one_text_serves_all_sizes_and_strides_of_a_class() -> None:
    texts = set()
    for size in (100, 5000):
        value = np.zeros((size, 300))
        low = lowered(
            joined("f8", 2), (size, 100), [value[:, :100], value[:, 100:200]], [value[:, 200:]]
        )
        texts.add(low.source(LANGUAGE).text)
    assert len(texts) == 1


def test_conditions_are_those_of_the_values() -> None:
    divide = Instruction("divide", (0, 1), ("f8", "f8"), "f8")
    kernel = Kernel(1, ("f8", "f8"), (), (divide,), (Store(2, "f8"),))
    ones, divisors = np.ones(1000), np.full(1000, 2.0)
    assert run_with_flags(kernel, (1000,), [ones, divisors])[1] == 0
    divisors[777] = 0
    assert run_with_flags(kernel, (1000,), [ones, divisors])[1] == 1


def test_scalars_of_every_kind() -> None:
    dtypes = ("f8", "i4", "b1", "c16", "u2")
    rng = np.random.default_rng(3)
    scalars: tuple[Any, ...] = (1.5, -3, True, 1 - 2j, 7)
    cases = []
    for dtype in dtypes:
        equal = apply("equal", (0, 1), dtype, "b1")
        kernel = Kernel(1, (dtype,), (dtype,), (equal,), (Store(2, "b1"),))
        cases.append((kernel, [some_values(rng, (500,), dtype)]))
    prepare(cases)
    for (kernel, [array]), dtype, scalar in zip(cases, dtypes, scalars, strict=True):
        array[3] = scalar
        (got,) = run(kernel, (500,), [array], (scalar,))
        assert_same_bits(got, array == np.asarray(scalar, dtype))
