"""The kernel form: what the verifier refuses, and what a kernel says about itself."""

from __future__ import annotations

import dataclasses

import pytest

from lazyfuse.codegen.lowering.kernel import (
    Instruction,
    Kernel,
    KernelError,
    Reduce,
    Store,
    conflict,
    cost,
    is_exact,
    raises_flags,
    value_dtypes,
    verify,
)
from tests.codegen.kernel_tools import apply, reduction

GOOD = Kernel(
    2,
    ("f8", "f4"),
    ("f8",),
    (
        Instruction("cast", (1,), ("f4",), "f8"),
        apply("multiply", (0, 3), "f8"),
        apply("add", (4, 2), "f8"),
    ),
    (Store(5, "f8"),),
    (Reduce("add", 5, "f8", "f8"),),
    (True, False),
)


def test_a_good_kernel_passes() -> None:
    verify(GOOD)
    assert value_dtypes(GOOD) == ("f8", "f4", "f8", "f8", "f8", "f8")


@pytest.mark.parametrize(
    "change",
    [
        {"inputs": ("f8", "f2")},
        {"scalars": ("M8",)},
        {"body": (apply("no such op", (0,), "f8"),)},
        {"body": (apply("add", (0,), "f8"),)},
        {"body": (apply("negative", (3,), "f8"),)},
        {"body": (apply("add.reduce", (0,), "f8"),)},
        {"stores": (Store(9, "f8"),)},
        {"stores": (), "reductions": (), "reduced": ()},
        {"reductions": ()},
        {"reduced": (True,)},
        {"reduced": (False, False)},
        {"reductions": (Reduce("subtract", 5, "f8", "f8"),)},
        {"reductions": (Reduce("add", 5, "f8", "f4"),)},
        {"reductions": (Reduce("argmax", 5, "f8", "f8"),)},
        {"reductions": (Reduce("add", 6, "f8", "f8"),)},
    ],
)
def test_a_bad_kernel_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(KernelError, match=r"^\[verify\]"):
        verify(dataclasses.replace(GOOD, **change))  # type: ignore[arg-type]


def test_positions_need_one_axis_or_all() -> None:
    wide = Kernel(3, ("f8",), (), (), (), (Reduce("argmin", 0, "f8", "i8"),), (True, True, False))
    with pytest.raises(KernelError, match="one axis"):
        verify(wide)


def test_sums_that_numpy_cuts_differently_do_not_share_a_kernel() -> None:
    real, product = Reduce("add", 0, "f8", "f8"), Reduce("multiply", 0, "f8", "f8")
    complex_sum = Reduce("add", 1, "c16", "c16")
    assert conflict((real, complex_sum), ("f8", "c16"))
    assert conflict((real, product), ("f8", "f8"))
    assert conflict((real, real), ("f8", "f4"))
    assert not conflict((real, real, Reduce("maximum", 1, "c16", "c16")), ("f8", "f8", "c16"))


def test_cost_counts_dear_operations_more() -> None:
    plain = Kernel(1, ("f8",), (), (apply("negative", (0,), "f8"),), (Store(1, "f8"),))
    dear = dataclasses.replace(plain, body=(apply("exp", (0,), "f8"),))
    assert 0 < cost(plain) < cost(dear)
    assert cost(reduction("add", "f8")) > 0


def test_exactness_and_flags_follow_the_rows() -> None:
    assert is_exact(GOOD)
    assert raises_flags(GOOD)
    exp = Kernel(1, ("f8",), (), (apply("exp", (0,), "f8"),), (Store(1, "f8"),))
    assert not is_exact(exp)
    ints = Kernel(1, ("i8",), (), (apply("add", (0, 0), "i8"),), (Store(1, "i8"),))
    assert not raises_flags(ints)
    divided = dataclasses.replace(ints, body=(apply("floor_divide", (0, 0), "i8"),))
    assert raises_flags(divided)
