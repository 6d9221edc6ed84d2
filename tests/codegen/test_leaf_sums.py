"""Sums of computed values, leaf by leaf of NumPy's tree (leaf_sums.py): NumPy's bits."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from lazyfuse.codegen.lowering.kernel import Instruction, Kernel, Reduce, Store
from lazyfuse.codegen.numba import leaf_sums
from tests.codegen import kernel_tools as tools

SUM = Reduce("add", 3, "f8", "f8")
LOW, HIGH = Reduce("minimum", 2, "f8", "f8"), Reduce("fmax", 3, "f8", "f8")
BODY = (
    Instruction("subtract", (0, 1), ("f8", "f8"), "f8"),
    Instruction("multiply", (2, 0), ("f8", "f8"), "f8"),
)
KERNEL = Kernel(2, ("f8", "f8"), (), BODY, (), (SUM, LOW, HIGH, Reduce("add", 0, "f8", "f8")),
                (False, True))  # fmt: skip
STORING = Kernel(2, ("f8", "f8"), (), BODY, (Store(2, "f8"),), (SUM,), (False, True))
ALL = Kernel(2, ("f8", "f8"), (), BODY, (), (SUM,), (True, True))
LENGTHS = (
    1,
    2,
    7,
    8,
    9,
    15,
    64,
    120,
    127,
    128,
    129,
    136,
    143,
    255,
    257,
    500,
    1000,
    1023,
    1025,
    5000,
)


def values(shape: tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
    generator = np.random.default_rng(seed)
    return generator.normal(size=shape) * 10.0 ** generator.integers(-8, 8, shape)


def check(kernel: Kernel, *inputs: np.ndarray[Any, Any]) -> None:
    shape = np.broadcast_shapes(*[each.shape for each in inputs])
    form = tools.lowered(kernel, shape, inputs, tools.empty_outputs(kernel, shape)).variant
    assert leaf_sums.suits(kernel, form) or form.ragged or form.core != "row" or shape[1] < 8
    with np.errstate(all="ignore"):
        wanted = tools.expected(kernel, shape, inputs)
    for got, want in zip(tools.run(kernel, shape, inputs), wanted, strict=True):
        tools.assert_same(got, want)
        numbers = ~np.isnan(want) & (want != 0)
        assert got[numbers].tobytes() == want[numbers].tobytes()


# What is stored does not change how rows are read: each is met with one of the kernels.
@pytest.mark.parametrize(
    "swapped", [False, pytest.param(True, marks=pytest.mark.long)], ids=["usual", "swapped"]
)
@pytest.mark.parametrize("length", LENGTHS)
def test_rows_of_any_length_B4(length: int, swapped: bool) -> None:
    first, second = (STORING, KERNEL) if swapped else (KERNEL, STORING)
    for turn in range(2):
        check(first, values((5, length), turn), values((5, length), 9 + turn))
        check(second, values((5, length), turn), values((5, 1), 9 + turn))


@pytest.mark.parametrize("length", [130, 40_000, 150_001])
def test_everything_at_once_B4(length: int) -> None:
    check(ALL, values((3, length), 0), values((3, length), 1))


# Each layout with one of the kernels, for the same reason.
@pytest.mark.parametrize(
    ("layout", "kernel"),
    [
        ("gaps", STORING),
        ("windows", KERNEL),
        pytest.param("gaps", KERNEL, marks=pytest.mark.long),
        pytest.param("backwards", KERNEL, marks=pytest.mark.long),
        ("backwards", STORING),
        pytest.param("windows", STORING, marks=pytest.mark.long),
    ],
)
def test_strided_rows_and_windows_B4(layout: str, kernel: Kernel) -> None:
    wide = values((6, 1200), 2)
    first, second = {
        "gaps": (wide[:, ::2], wide[:, 1::2]),
        "backwards": (wide[::-1, 5:505], wide[:, 500:0:-1]),
        "windows": (wide[:, 3:403], wide[:, 4:404]),
    }[layout]
    check(kernel, first, second)


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf, -0.0, 5e-324, 1e308])
def test_special_values_in_every_place_B4(special: float) -> None:
    for place in (0, 7, 8, 119, 120, 127, 128, 200, 255):
        first = values((3, 256), 3)
        first[1, place] = special
        check(KERNEL, first, np.zeros((3, 256)))
    check(KERNEL, np.full((3, 131), -0.0), np.zeros((3, 131)))


def test_what_is_not_exact_or_not_of_doubles_keeps_its_buffers_B4() -> None:
    form = tools.lowered(
        STORING, (4, 300), [values((4, 300), 0)] * 2, tools.empty_outputs(STORING, (4, 300))
    ).variant
    assert leaf_sums.suits(STORING, form)
    exp = Instruction("exp", (2,), ("f8",), "f8")
    assert not leaf_sums.suits(dataclasses.replace(STORING, body=(*BODY, exp)), form)
    floats = dataclasses.replace(STORING, inputs=("f4", "f8"))
    assert not leaf_sums.suits(floats, form)
