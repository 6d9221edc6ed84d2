"""Running kernels in all languages, and what NumPy says they compute."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from lazyfuse.codegen.lowering.kernel import Instruction, Kernel, Reduce, Store, verify
from lazyfuse.codegen.lowering.lower import Lowered, lower
from lazyfuse.codegen.table import ops
from lazyfuse.devices.base import Program, Source
from lazyfuse.devices.cpu.device import CPU
from tests.campaign import TIMEOUT, drawn, rounds
from tests.codegen import opencl_tools

Array = np.ndarray[Any, np.dtype[Any]]
Shape = tuple[int, ...]
LANGUAGES = ("numba", "numpy", "opencl")


@lru_cache(maxsize=1)
def cpu() -> CPU:
    """A device of two threads that keeps nothing on disk."""
    return CPU(threads=2, threads_above=0)


def compiled(source: Source, language: str) -> Program:
    """A program of one of LANGUAGES."""
    return opencl_tools.compiled(source) if language == "opencl" else cpu().compile(source)


def domain_strides(array: Array, shape: Shape) -> tuple[int, ...]:
    """Strides of an input over the domain, in elements."""
    view = np.broadcast_to(array, shape)
    return tuple(stride // array.itemsize for stride in view.strides)


def output_strides(kernel: Kernel, output: Array, is_reduction: bool) -> tuple[int, ...]:
    strides = [stride // output.itemsize for stride in output.strides]
    if not is_reduction:
        return tuple(strides)
    kept = iter(strides)
    return tuple(0 if flag else next(kept) for flag in kernel.reduced)


def empty_outputs(kernel: Kernel, shape: Shape) -> list[Array]:
    kept = tuple(n for n, flag in zip(shape, kernel.reduced, strict=False) if not flag)
    stores = [np.empty(shape, store.dtype) for store in kernel.stores]
    return stores + [np.empty(kept, each.dtype) for each in kernel.reductions]


def lowered(
    kernel: Kernel,
    shape: Shape,
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    order: Shape | None = None,
) -> Lowered:
    strides = [
        output_strides(kernel, output, k >= len(kernel.stores)) for k, output in enumerate(outputs)
    ]
    return lower(kernel, shape, [domain_strides(a, shape) for a in inputs], strides, order)


def prepare(
    cases: Iterable[tuple[Kernel, Shape, Sequence[Array]]],
    language: str = "opencl",
    width: int = 32,
    order: Shape | None = None,
) -> None:
    """Build at once what `run` will ask for, where that takes less time: in language "opencl"."""
    if language == "opencl":
        lows = [lowered(k, shape, ins, empty_outputs(k, shape), order) for k, shape, ins in cases]
        opencl_tools.prepare([low.source(language) for low in lows], width)


def run(
    kernel: Kernel,
    shape: Shape,
    inputs: Sequence[Array],
    scalars: tuple[Any, ...] = (),
    order: Shape | None = None,
    language: str = "numba",
    outputs: Sequence[Array] | None = None,
) -> list[Array]:
    """Run a kernel over the whole domain; its outputs."""
    verify(kernel)
    results = list(outputs) if outputs is not None else empty_outputs(kernel, shape)
    low = lowered(kernel, shape, inputs, results, order)
    temporaries = [np.empty(size, dtype) for size, dtype in low.temporaries]
    for each in (*temporaries, *(results if outputs is None else ())):
        np.frombuffer(each.data, np.uint8)[...] = 1  # what is not written must show
    arrays = (*inputs, *results, *temporaries)
    program = compiled(low.source(language), language)
    program.launch(low.launch(language, arrays, scalars))
    low.finish(arrays)
    return results


def expected(
    kernel: Kernel,
    shape: Shape,
    inputs: Sequence[Array],
    scalars: tuple[Any, ...] = (),
    order: Shape | None = None,
) -> list[Array]:
    """The outputs by NumPy, operation by operation; computed values lie in memory order `order`."""
    names = (*inputs, *(np.asarray(s, d) for s, d in zip(scalars, kernel.scalars, strict=True)))
    values: list[Array] = list(names)
    axes = tuple(range(len(shape))) if order is None else order
    inverse = sorted(range(len(axes)), key=axes.__getitem__)
    for each in kernel.body:
        args = [values[v].astype(d) for v, d in zip(each.args, each.ins, strict=True)]
        row = ops.TABLE[each.op]
        if row.ufunc is not None:
            chars = "".join(np.dtype(d).char for d in each.ins)
            result = row.ufunc(*args, signature=f"{chars}->{np.dtype(each.out).char}")
        else:
            result = np.asarray(row.reference(*args)).astype(each.out)  # type: ignore[misc]
        packed = np.empty([shape[a] for a in axes], each.out).transpose(*inverse)
        packed[...] = result
        values.append(packed)
    results = [np.broadcast_to(values[s.value], shape).astype(s.dtype) for s in kernel.stores]
    reduced = tuple(at for at, flag in enumerate(kernel.reduced) if flag)
    for reduction in kernel.reductions:
        value = values[reduction.value]
        if value.shape != shape:
            value = np.broadcast_to(value, shape)
        row = ops.TABLE[f"reduce:{reduction.op}"]
        if row.ufunc is not None:
            results.append(
                np.asarray(row.ufunc.reduce(value, axis=reduced, dtype=reduction.accumulator))
            )
        else:
            axis = reduced[0] if len(reduced) == 1 else None
            value = value.astype(reduction.accumulator)
            results.append(np.asarray(row.reference(value, axis=axis)))  # type: ignore[misc]
    return results


def assert_same(got: Array, want: Array, note: str = "") -> None:
    """Equal bits, except that NaNs are equal to each other and so are zeros."""
    assert got.dtype == want.dtype, note
    assert got.shape == want.shape, note
    np.testing.assert_array_equal(got, want, note)


def assert_same_bits(got: Array, want: Array, note: str = "") -> None:
    assert got.dtype == want.dtype, note
    assert got.shape == want.shape, note
    if got.tobytes() != np.ascontiguousarray(want).tobytes():
        np.testing.assert_array_equal(got, want, note)
        raise AssertionError(f"zeros or NaNs of different sign {note}")


def apply(op: str, args: tuple[int, ...], dtype: str, out: str | None = None) -> Instruction:
    """An instruction whose arguments all have one dtype."""
    return Instruction(op, args, (dtype,) * len(args), out or dtype)


def reduction(
    op: str,
    dtype: str,
    value: int = 0,
    accumulator: str | None = None,
    inputs: int = 1,
    rank: int = 1,
) -> Kernel:
    """A kernel of one reduction over all axes of its first input."""
    kept = accumulator or dtype
    out = "i8" if op.startswith("arg") else kept
    each = Reduce(op, value, kept, out)
    return Kernel(rank, (dtype,) * inputs, (), (), (), (each,), (True,) * rank)


def some_values(rng: np.random.Generator, shape: Shape, dtype: str) -> Array:
    """Values that show differences in order, sign and width."""
    kind = dtype[0]
    if kind == "b":
        return np.asarray(rng.random(shape) < 0.5)
    if kind in "iu":
        return np.asarray(rng.integers(0, 200, shape) - 100 * (kind == "i")).astype(dtype)
    values: Any = rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)
    if kind == "c":
        values = values + 1j * rng.standard_normal(shape)
    return np.asarray(values.astype(dtype))


def some_layout(chooser: random.Random, value: Array) -> Array:
    """The same values in memory of another order, with gaps or backwards."""
    rank = value.ndim
    axes = list(range(rank))
    if chooser.random() < 0.4:
        chooser.shuffle(axes)
    steps = [chooser.choice((1, 1, 1, 2, -1)) for _ in range(rank)]
    sizes = [n * abs(step) for n, step in zip(value.shape, steps, strict=True)]
    memory = np.empty([sizes[a] for a in axes], value.dtype)
    memory = memory.transpose(sorted(range(rank), key=axes.__getitem__))
    window: tuple[Any, ...] = (*(slice(None, None, step) for step in steps), ...)
    view: Array = memory[window]
    view[...] = value
    return view


UNARY = ("negative", "square", "positive", "absolute")
BINARY = ("add", "subtract", "multiply", "maximum", "minimum")
COMPARE = ("less", "equal", "greater_equal")


def random_body(
    chooser: random.Random, dtypes: Sequence[str], length: int
) -> tuple[Instruction, ...]:
    """Exact operations over values of these dtypes."""
    known = list(dtypes)
    body = []
    for _ in range(length):
        dtype = chooser.choice(("f8", "f8", "f4", "i8", "i4", "u2"))
        values = range(len(known))
        kind = chooser.random()
        args: tuple[int, ...]
        if kind < 0.5:
            args = (chooser.choice(values), chooser.choice(values))
            each = apply(chooser.choice(BINARY), args, dtype)
        elif kind < 0.7:
            each = apply(chooser.choice(UNARY), (chooser.choice(values),), dtype)
        elif kind < 0.8:
            args = (chooser.choice(values), chooser.choice(values))
            each = apply(chooser.choice(COMPARE), args, dtype, "b1")
        elif kind < 0.9:
            args = tuple(chooser.choice(values) for _ in range(3))
            each = Instruction("where", args, ("b1", dtype, dtype), dtype)
        else:
            source = chooser.choice(values)
            each = Instruction("cast", (source,), (known[source],), dtype)
        body.append(each)
        known.append(each.out)
    return tuple(body)


def some_rounds(few: int, usual: int, start: int = 0) -> pytest.MarkDecorator:
    """The programs of `rounds(usual, start)`, of which all but the first `few` are `long`."""
    (long,) = rounds(usual, start).args[1][1].values
    now = drawn(few, start)
    later = pytest.param(range(now.stop, long.stop), id="long", marks=[pytest.mark.long, TIMEOUT])
    return pytest.mark.parametrize("seeds", [pytest.param(now, id="short"), later])


def store(value: int, dtype: str) -> Store:
    return Store(value, dtype)
