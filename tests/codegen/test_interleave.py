"""Long loop bodies run several iterations side by side, and choices are selects: the same bits."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse.codegen.lowering import interleave
from lazyfuse.codegen.lowering.kernel import Instruction, Kernel, Store
from lazyfuse.codegen.numba import expressions

LENGTHS = (1, 7, 8, 9, 31, 32, 33, 63, 64, 65, 95, 127, 129, 1000)
DTYPES = ("b1", "i1", "u1", "i2", "u4", "i8", "u8", "f4", "f8", "c8", "c16")


@pytest.fixture(autouse=True)
def compiled() -> Iterator[None]:
    with lf.options(eager_below=0, compile_after=0, compile_ahead=False):
        yield


def chain(length: int, inputs: int, dtype: str = "f8") -> Kernel:
    """Every input is needed at the first and at the last step; the steps wait for each other."""
    body = []
    at = 0
    for step in range(length):
        body.append(Instruction("add", (at, step % inputs), (dtype, dtype), dtype))
        at = inputs + step
    for k in range(inputs):
        body.append(Instruction("add", (at, k), (dtype, dtype), dtype))
        at += 1
    return Kernel(1, (dtype,) * inputs, (), tuple(body), (Store(at, dtype),))


def test_long_bodies_are_interleaved_as_registers_allow() -> None:
    assert interleave.interleaved(chain(2, 2)) == 1
    assert interleave.interleaved(chain(40, 3)) == 4
    assert interleave.interleaved(chain(40, 12)) == 2
    assert interleave.interleaved(chain(40, 30)) == 1
    assert interleave.interleaved(chain(40, 6)) > interleave.interleaved(chain(40, 12, "c16"))


def test_masks_and_numbers_take_no_vector() -> None:
    bare = chain(20, 2)
    number = Instruction("less", (0, 2), ("f8", "f8"), "b1")
    shifted = tuple(
        Instruction(x.op, tuple(a if a < 2 else a + 2 for a in x.args), x.ins, x.out)
        for x in bare.body
    )
    last = Instruction("where", (3, len(shifted) + 3, 0), ("b1", "f8", "f8"), "f8")
    kernel = Kernel(
        1, bare.inputs, ("f8",), (number, *shifted, last), (Store(len(shifted) + 4, "f8"),)
    )
    assert interleave.live(kernel) <= interleave.live(bare) + 1


def test_choices_between_operands_are_selects() -> None:
    where = expressions.expression("where", ("b1", "f8", "f8"), "f8", ("v1", "v2", "v3"))
    assert where == "float64(select(v1, v2, v3))"
    assert "select(" in expressions.expression("maximum", ("f4", "f4"), "f4", ("v1", "v2"))
    assert "select(" in expressions.converted("v1", "b1", "f8")
    assert "select(" not in expressions.expression("left_shift", ("i8", "i8"), "i8", ("a", "b"))


def special(dtype: str, length: int, seed: int) -> Any:
    generator = np.random.default_rng(seed)
    if dtype[0] in "fc":
        parts = [0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan, 3e38, 1e-30]
        pool = np.array(parts, dtype)
        if dtype[0] == "c":
            pool.imag = np.roll(pool.real, 3)
    elif dtype == "b1":
        pool = np.array([True, False])
    else:
        limits = np.iinfo(dtype)
        pool = np.array([limits.min, limits.max, 0, 1, 3, 100], dtype)
    return generator.choice(pool, length).astype(dtype)


def same(found: Any, expected: Any) -> None:
    found = np.asarray(found)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_selections_have_the_bits_of_numpy(dtype: str) -> None:
    def work(xp: Any, mask: Any, a: Any, b: Any) -> Any:
        found = xp.where(mask, a, b), xp.where(~mask, b, xp.where(mask, b, a))
        if dtype[0] != "c":
            found += xp.maximum(a, b), xp.minimum(a, b)
        return found

    for length in LENGTHS:
        a, b = special(dtype, length, 1), special(dtype, length, 2)
        mask = np.random.default_rng(3).random(length) < 0.5
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = work(np, mask, a, b)
            found = work(lf, *(lf.array(each) for each in (mask, a, b)))
            for one, other in zip(found, expected, strict=True):
                same(one, other)
            if dtype[0] != "c":  # of zeros of both signs NumPy takes one by its place in the array
                for name in ("fmax", "fmin"):
                    chosen = getattr(np, name)(a, b)
                    ours = np.asarray(getattr(lf, name)(lf.array(a), lf.array(b)))
                    same(ours + chosen.dtype.type(0), chosen + chosen.dtype.type(0))


@pytest.mark.parametrize("target", ["f4", "f8", "c8", "c16", "i4"])
def test_truth_values_as_numbers(target: str) -> None:
    for length in LENGTHS:
        x = np.random.default_rng(4).normal(size=length)
        same((lf.array(x) > 0).astype(target) * 2, (x > 0).astype(target) * 2)
        count = lf.array(x).astype("f4") + (lf.array(x) > 0.5)
        same(count, x.astype("f4") + (x > 0.5))


def escape(xp: Any, x: Any, y: Any, turns: int) -> Any:
    a, b, count = x * 0.0, y * 0.0, x * 0.0
    for _ in range(turns):
        aa, bb = a * a, b * b
        inside = aa + bb <= 4.0
        a, b = xp.where(inside, aa - bb + x, a), xp.where(inside, 2.0 * a * b + y, b)
        count = count + inside
    return count, a, b


@pytest.mark.parametrize("threads", [1, 2])
def test_long_chains_of_selections(threads: int) -> None:
    generator = np.random.default_rng(5)
    with lf.options(threads=threads):
        for length in (*LENGTHS, 40_001):
            x, y = generator.uniform(-2, 2, (2, length))
            expected = escape(np, x, y, 10)
            for found, other in zip(
                escape(lf, lf.array(x), lf.array(y), 10), expected, strict=True
            ):
                same(found, other)


def test_conditions_of_what_is_not_chosen_are_told_as_by_numpy() -> None:
    x = np.linspace(-1.0, 1.0, 4097)

    def work(xp: Any, x: Any) -> Any:
        for _ in range(12):
            x = xp.where(x > 0, x * 1.5 + 0.1, x)
        return xp.where(x > -2, x, x / (x - x))

    def told(xp: Any, value: Any) -> tuple[Any, list[str]]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = np.asarray(work(xp, value))
        return found, sorted({str(each.message) for each in caught})

    found, ours = told(lf, lf.array(x))
    expected, theirs = told(np, x)
    same(found, expected)
    assert ours == theirs
