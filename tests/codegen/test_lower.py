"""Level 2: loop order, classes, chunks and NumPy's order of summation. Nothing is compiled here."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from lazyfuse.codegen.lowering import chunks, lower
from lazyfuse.codegen.lowering.kernel import Kernel, Reduce, Store
from lazyfuse.codegen.lowering.lower import Lowered
from lazyfuse.codegen.lowering.summation import leaves, left_half, summation
from tests.codegen.kernel_tools import (
    Array,
    Shape,
    apply,
    assert_same,
    empty_outputs,
    expected,
    lowered,
    random_body,
    run,
    some_layout,
    some_values,
)

ADD = Kernel(2, ("f8", "f8"), (), (apply("add", (0, 1), "f8"),), (Store(2, "f8"),))


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut small domains as if they were large."""
    monkeypatch.setattr(lower, "CHUNK", 3000)
    monkeypatch.setattr(lower, "SMALLEST_CHUNK", 1000)
    monkeypatch.setattr(lower, "NUMPY_CHUNK", 1500)
    monkeypatch.setattr(lower, "STRETCH", 1500)
    monkeypatch.setattr(lower, "SHORTEST_CUT", 32)
    monkeypatch.setattr(chunks, "SHORTEST_CUT", 32)


def dense(shape: Shape) -> Shape:
    return tuple(stride // 8 for stride in np.empty(shape).strides)


def of(shape: Shape, first: Shape, second: Shape, out: Shape) -> Lowered:
    return lower.lower(ADD, shape, (first, second), (out,))


def test_contiguous_axes_become_one_loop() -> None:
    low = of((20, 30), dense((20, 30)), dense((20, 30)), dense((20, 30)))
    assert (low.variant.loops, low.variant.classes) == (1, "111")
    fortran = of((20, 30), (1, 20), (1, 20), (1, 20))
    assert fortran.variant == low.variant


@pytest.mark.smoke
def test_the_text_depends_on_classes_alone() -> None:
    sources = {
        of((20 + n, 100), (700, 2 + n), (0, 1), (900, 1)).source("numba").text for n in range(4)
    }
    assert len(sources) == 1
    first = of((20, 100), (700, 3), (0, 1), (900, 1)).source("numba")
    assert of((30, 200), (800, 4), (0, 1), (900, 1)).source("numba") is first


def test_loops_follow_the_output() -> None:
    low = of((50, 60), dense((50, 60)), dense((50, 60)), (1, 50))
    assert low.variant.classes[2] == "1"


def test_negative_strides_of_the_output_are_turned_round() -> None:
    low = of((5, 40), (-40, -1), (-40, -1), (-40, -1))
    assert low.variant.classes == "111"
    assert low.table("numba").offsets.tolist() == [[-199, -199, -199]]


def test_a_short_innermost_loop_is_exchanged() -> None:
    low = of((100_000, 3), (3, 1), (0, 1), (3, 1))
    assert low.table("numba").sizes[0, -1] > 100


def test_a_transposition_is_tiled() -> None:
    low = of((600, 700), (700, 1), (1, 600), (700, 1))
    assert low.variant.loops == 4
    assert low.table("numba").sizes[:, -1].max() <= 64


def test_one_long_row_is_cut_along_itself() -> None:
    low = of((3, 1_000_000), (1_000_000, 1), (0, 1), (1_000_000, 1))
    sizes = low.table("numba").sizes
    assert len(sizes) >= 20
    assert sizes.sum(axis=0)[-1] * 1 == 3 * 1_000_000


def test_a_launch_is_made_of_ready_tables() -> None:
    low = of((300, 1000), dense((300, 1000)), dense((300, 1000)), dense((300, 1000)))
    arrays = (np.empty(1), np.empty(1), np.empty(1))
    first, second = (low.launch("numba", arrays, ()) for _ in range(2))
    assert first.sizes is second.sizes
    assert first.elements == 300_000
    assert len(first.sizes) > 1


def visited(low: Lowered, array: int) -> Counter[int]:
    """How often each element of an array is visited by all chunks together."""
    table = low.table("numpy")
    found: Counter[int] = Counter()
    for size, offset in zip(table.sizes, table.offsets, strict=True):
        places = np.array([offset[array]])
        for count, stride in zip(size, table.strides[array], strict=True):
            places = np.add.outer(places, np.arange(count) * stride).ravel()
        found.update(places.tolist())
    return found


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("seed", range(40))
def test_chunks_cover_the_domain_once(seed: int) -> None:
    chooser = random.Random(seed)
    shape = tuple(chooser.choice((1, 2, 3, 17, 40, 100, 130)) for _ in range(3))
    arrays = [some_layout(chooser, np.zeros(shape)) for _ in range(3)]
    kernel = Kernel(3, ("f8",) * 2, (), ADD.body, ADD.stores)
    low = lowered(kernel, shape, arrays[:2], arrays[2:])
    found = visited(low, 2)
    size = int(np.prod(shape))
    assert len(found) == size
    assert set(found.values()) == {1}


def test_halves_are_multiples_of_eight() -> None:
    assert left_half(1000, False) == 496
    assert left_half(1000, True) == 500
    assert left_half(2008, False) == 1000
    assert left_half(2008, True) == 1004
    assert sum(leaves(10_000_019, 1 << 16, False)) == 10_000_019
    assert max(leaves(10_000_019, 1 << 16, False)) <= 1 << 16


def pairwise(values: Array) -> Any:
    """NumPy's pairwise sum in Python."""
    complex_values = values.dtype.kind == "c"
    lanes = 4 if complex_values else 8
    count = len(values)
    total: Any
    if count < lanes:
        total = values.dtype.type(-0.0) if not complex_values else values.dtype.type(-0.0 - 0.0j)
        for value in values:
            total = total + value
        return total
    if count > 16 * lanes:
        half = left_half(count, complex_values)
        return pairwise(values[:half]) + pairwise(values[half:])
    whole = count - count % lanes
    sums = list(np.add.accumulate(values[:whole].reshape(-1, lanes), axis=0)[-1])
    while len(sums) > 1:
        sums = [a + b for a, b in zip(sums[::2], sums[1::2], strict=True)]
    total = sums[0]
    for value in values[whole:]:
        total = total + value
    return total


def predicted(value: Array, reduced: tuple[bool, ...], dtype: str) -> Array:
    """A sum by `summation`'s account of NumPy's order."""
    strides = tuple(stride // value.itemsize for stride in value.strides)
    how = summation(value.shape, strides, reduced, value.dtype != dtype)
    kept = [axis for axis, flag in enumerate(reduced) if not flag]
    slow = [axis for axis in how.order if reduced[axis]]
    slow += [axis for axis, flag in enumerate(reduced) if flag and axis not in slow]
    rows = value.transpose(*kept, *slow).astype(dtype, order="C")
    rows = rows.reshape([value.shape[axis] for axis in kept] + [-1])
    run_axes = how.order[len(how.order) - how.run :]
    length = int(np.prod([value.shape[axis] for axis in run_axes], dtype=int))
    block = how.block or length
    result = np.empty(rows.shape[:-1], dtype)
    for place in np.ndindex(*result.shape):
        row = rows[place]
        parts = []
        for start in range(0, len(row), length):
            stop = start + length
            cuts = range(start, stop, block)
            parts += [pairwise(row[cut : min(cut + block, stop)]) for cut in cuts]
        result[place] = np.add.accumulate(np.array(parts, dtype))[-1]
    return result


@pytest.mark.parametrize("seed", range(120))
def test_summation_describes_what_numpy_does(seed: int) -> None:
    chooser, rng = random.Random(seed), np.random.default_rng(seed)
    while True:
        sizes = (1, 2, 3, 7, 8, 9, 20, 130, 9000)
        shape = tuple(chooser.choice(sizes) for _ in range(chooser.randint(1, 3)))
        if np.prod(shape) < 20_000:
            break
    source, dtype = chooser.choice((("f8", "f8"), ("f4", "f4"), ("c8", "c8"), ("i4", "f8")))
    value = some_layout(chooser, some_values(rng, shape, source))
    if chooser.random() < 0.2:
        value = np.broadcast_to(value[:1], shape)
    reduced = tuple(chooser.random() < 0.6 for _ in shape)
    if not any(reduced):
        reduced = (True,) * len(shape)
    axes = tuple(axis for axis, flag in enumerate(reduced) if flag)
    want = np.asarray(np.add.reduce(value, axis=axes, dtype=dtype))
    assert predicted(value, reduced, dtype).tobytes() == want.tobytes()


REDUCTIONS = (
    "add multiply minimum maximum fmin fmax logical_and logical_or argmin argmax bitwise_xor"
).split()


def random_kernel(chooser: random.Random, rank: int) -> Kernel:
    """Inputs of mixed dtypes, a few exact operations, stores and reductions."""
    inputs = tuple(chooser.choice(("f8", "f8", "f4", "i8", "i4", "b1")) for _ in range(2))
    body = random_body(chooser, inputs, chooser.randint(0, 3))
    dtypes = [*inputs, *(each.out for each in body)]
    values = range(len(dtypes))
    stored = [chooser.choice(values) for _ in range(chooser.randint(0, 2))]
    stores = tuple(Store(value, dtypes[value]) for value in stored)
    reductions: tuple[Reduce, ...] = ()
    reduced: tuple[bool, ...] = ()
    if rank and (not stores or chooser.random() < 0.6):
        count = chooser.randint(1, rank)
        axes = set(chooser.sample(range(rank), count))
        reduced = tuple(axis in axes for axis in range(rank))
        value = chooser.choice(values)
        op = chooser.choice(REDUCTIONS)
        if op.startswith("arg") and count not in (1, rank):
            op = "add"
        if op == "bitwise_xor" and dtypes[value][0] not in "iub":
            op = "add"
        reductions = (_reduction(op, value, dtypes[value]),)
    if not stores and not reductions:
        stores = (Store(0, dtypes[0]),)
    return Kernel(rank, inputs, (), body, stores, reductions, reduced)


def _reduction(op: str, value: int, dtype: str) -> Reduce:
    kept = dtype
    if op in ("add", "multiply") and dtype[0] in "iub":
        kept = "u8" if dtype[0] == "u" else "i8"
    elif op.startswith("logical"):
        kept = "b1"
    return Reduce(op, value, kept, "i8" if op.startswith("arg") else kept)


def random_case(seed: int) -> tuple[Kernel, Shape, list[Array], Shape | None, list[Array]]:
    """A kernel, operands in random layouts, the values' memory order, outputs in random layouts."""
    chooser, rng = random.Random(seed), np.random.default_rng(seed)
    rank = chooser.randint(0, 3)
    while True:
        shape = tuple(chooser.choice((1, 2, 3, 8, 17, 100, 300, 1000)) for _ in range(rank))
        if np.prod(shape) < 200_000:
            break
    kernel = random_kernel(chooser, rank)
    inputs = []
    for dtype in kernel.inputs:
        sizes = tuple(1 if chooser.random() < 0.15 else n for n in shape)
        inputs.append(some_layout(chooser, some_values(rng, sizes, dtype)))
    order = tuple(chooser.sample(range(rank), rank)) if chooser.random() < 0.3 else None
    outputs = [some_layout(chooser, np.zeros_like(x)) for x in empty_outputs(kernel, shape)]
    return kernel, shape, inputs, order, outputs


def check_case(seed: int, language: str) -> None:
    kernel, shape, inputs, order, outputs = random_case(seed)
    with np.errstate(all="ignore"):
        want = expected(kernel, shape, inputs, (), order)
        got = run(kernel, shape, inputs, (), order, language, outputs)
    for result, wanted in zip(got, want, strict=True):
        assert_same(result, wanted)


@pytest.mark.parametrize("seed", range(150))
def test_random_kernels_as_blocked_numpy(seed: int) -> None:
    check_case(seed, "numpy")


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("seed", range(150, 300))
def test_random_kernels_as_blocked_numpy_in_many_chunks(seed: int) -> None:
    check_case(seed, "numpy")
