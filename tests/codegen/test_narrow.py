"""Kernels for devices without double precision: no text of theirs says `double`.

Values are compared with NumPy's where such texts differ from the usual ones.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from lazyfuse.codegen.lowering.kernel import Instruction, Kernel, KernelError, Reduce, Store, verify
from lazyfuse.codegen.lowering.lower import lower
from lazyfuse.codegen.lowering.narrow import narrow, single
from lazyfuse.codegen.opencl.expressions import LANGUAGE, SINGLE, has_vector_form
from lazyfuse.codegen.opencl.grid_maps import lower_grid
from lazyfuse.codegen.table import ops
from lazyfuse.codegen.table.promotion import spell
from tests.codegen.test_ops import GROUPS, Case, left_out
from tests.pairwise import pairwise

pytest.importorskip("pyopencl", reason="needs pyopencl")
from tests.codegen.test_opencl_expressions import (
    KINDS,
    VECTOR,
    check_groups,
    compute,
    kernel_of,
    of_kind,
    queue,
    spelled,
)

__all__ = ["queue"]

LOWERINGS = {"opencl": lower, "opencl-grid": lower_grid}
# Of doubles: their names, and numbers without the `f` of floats, which are double constants in C
# (zero apart: such devices are told to read them as floats, which changes nothing about it).
NUMBER = r"(?<![\w.])(?!0\.0\b)(?:\d+\.\d*(?:e[-+]?\d+)?|\d+e[-+]?\d+)(?!\w)"
DOUBLE = re.compile(rf"double|fp64|\bV?F8\b|{NUMBER}")
FREE = "add multiply minimum maximum fmin fmax argmin argmax".split()


def mixed() -> Kernel:
    """Casts, constants of all kinds, and sums of doubles."""
    body = (
        Instruction("multiply", (0, 2), ("f8", "f8"), "f8"),
        Instruction("cast", (1,), ("i4",), "f8"),
        Instruction("add", (3, 4), ("f8", "f8"), "f8"),
        Instruction("cast", (5,), ("f8",), "i8"),
        Instruction("cast", (5,), ("f8",), "c16"),
    )
    return Kernel(1, ("f8", "i4"), ("f8",), body, (Store(5, "f8"), Store(6, "i8"), Store(7, "c16")))


def test_only_floats_get_narrower_C7() -> None:
    kernel = single(mixed())
    verify(kernel)
    assert kernel.inputs == ("f4", "i4")
    assert kernel.scalars == ("f4",)
    assert [each.out for each in kernel.body] == ["f4", "f4", "f4", "i8", "c8"]
    assert [each.dtype for each in kernel.stores] == ["f4", "i8", "c8"]
    assert single(kernel) == kernel
    sums = Kernel(1, ("f8",), (), (), (), (Reduce("add", 0, "f8", "f8"),), (True,))
    assert single(sums).reductions == (Reduce("add", 0, "f4", "f4"),)
    places = Kernel(1, ("f8",), (), (), (), (Reduce("argmax", 0, "f8", "i8"),), (True,))
    assert single(places).reductions == (Reduce("argmax", 0, "f4", "i8"),)


def test_the_verifier_wants_no_doubles_in_them_C7() -> None:
    kernel = Kernel(1, ("f8",), (), (), (Store(0, "f8"),), single=True)
    with pytest.raises(KernelError, match="single: expected no float64"):
        verify(kernel)


def every_case() -> list[Case]:
    return [case for cases in GROUPS.values() for case in cases]


def narrowed(case: Case) -> tuple[str, tuple[str, ...], str]:
    name, ins, out = spelled(case)
    return name, tuple(narrow(each) for each in ins), narrow(out)


def test_every_operation_can_be_said_without_doubles_C7() -> None:
    cases = [narrowed(case) for case in every_case()]
    assert [x for x in cases if ops.TABLE[x[0]].expression(SINGLE, *x[1:]) is None] == []


def is_long(ins: tuple[str, ...]) -> bool:
    """Groups whose texts name other types alone; of those with doubles none is left out."""
    return left_out(ins) and not {"f8", "c16"} & {*ins}


@pytest.mark.parametrize("language", LOWERINGS)
@pytest.mark.parametrize(
    "ins",
    [pytest.param(x, marks=pytest.mark.long) if is_long(x) else x for x in GROUPS],
    ids=",".join,
)
def test_no_text_of_a_map_says_double_C7(ins: tuple[str, ...], language: str) -> None:
    for case in GROUPS[ins]:
        kernel = single(kernel_of([case]))
        verify(kernel)
        strides = [(1,)] * len(ins)
        source = LOWERINGS[language](kernel, (1000,), strides, [(1,)]).source(language)
        assert DOUBLE.search(source.text) is None, source.text
        assert not {"f8", "c16"} & {*source.arrays, *source.scalars}


# A language prints the loops of the axes and the values of the dtype, each by itself.
@pairwise(
    "reduced, dtype, language",
    [(True, True), (True, False), (False, True)],
    ["f8", "c16", "f4", "i4", "u8", "b1"],
    list(LOWERINGS),
)
def test_no_text_of_a_reduction_says_double_C7(
    reduced: tuple[bool, ...], dtype: str, language: str
) -> None:
    for op in FREE:
        result = "i8" if op.startswith("arg") else dtype
        reductions = (Reduce(op, 0, dtype, result),)
        kernel = single(Kernel(2, (dtype,), (), (), (), reductions, reduced))
        verify(kernel)
        for shape in ((700, 400), (3, 100_000)):
            strides = [(shape[1], 1)], [tuple(0 if flag else 1 for flag in reduced)]
            source = LOWERINGS[language](kernel, shape, *strides).source(language)
            assert DOUBLE.search(source.text) is None, source.text


# Values


def differs(case: Case) -> bool:
    """Whether the text of an operation on smaller numbers does with doubles otherwise."""
    name, ins, out = spelled(case)
    if {"f8", "c16"} & {*ins, out}:
        return False
    row = ops.TABLE[name]
    return row.expression(LANGUAGE, ins, out) != row.expression(SINGLE, ins, out)


OTHERS = {ins: [x for x in cases if differs(x)] for ins, cases in GROUPS.items()}


def test_what_goes_through_doubles_elsewhere_is_known_C7() -> None:
    names = {row.name for cases in OTHERS.values() for row, _ in cases}
    division = {"floor_divide", "remainder", "fmod"}
    assert names == {"sin", "cos", "tan", "ldexp", "frexp_mantissa", "frexp_exponent"} | division


@KINDS
def test_values_without_doubles_are_numpys_C7(kind: str, queue: Any) -> None:
    groups = of_kind(kind, OTHERS)
    check_groups(queue, groups, [], lambda cases: [single_kernel_of(cases)])
    vectors = [[x for x in cases if has_vector_form(*spelled(x), True)] for cases in groups]
    vectors = [cases for cases in vectors if cases]
    check_groups(queue, vectors, VECTOR, lambda cases: [single_kernel_of(cases)])


def single_kernel_of(cases: list[Case]) -> Kernel:
    return single(kernel_of(cases))


def test_scaling_by_powers_of_two_rounds_once_C7(queue: Any) -> None:
    exponents = np.array([-400, -151, -150, -149, -127, -25, 0, 1, 24, 127, 128, 150, 400], "i4")
    numbers = np.array([1.5, 1.0, 0.75, 1e-40, -3e-45, 3e38, 1 + 2**-23, -0.0, np.inf], "f4")
    x, e = (each.ravel() for each in np.meshgrid(numbers, exponents))
    (case,) = [
        x for x in every_case()
        if x[0].name == "ldexp" and [spell(d) for d in x[1].ins] == ["f4", "i4"]
    ]  # fmt: skip
    for options in ([], VECTOR):
        (got,), _ = compute(queue, [single_kernel_of([case])], [x, e], options)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(got, np.ldexp(x, e))


def test_angles_are_computed_apart_C7(queue: Any) -> None:
    angles = np.array([1e-40, 1e30, 1e5, 0.0, -1e-45, 1.0, 3e38, np.inf, np.nan, -2.5], "f4")
    names = ("sin", "cos", "tan")
    body = tuple(Instruction(name, (0,), ("f4",), "f4") for name in names)
    kernel = single(Kernel(1, ("f4",), (), body, tuple(Store(k, "f4") for k in (1, 2, 3))))
    results, _ = compute(queue, [kernel], [angles], [])
    with np.errstate(all="ignore"):
        for name, got in zip(names, results, strict=True):
            np.testing.assert_allclose(got, getattr(np, name)(angles), 4 * np.finfo("f4").eps)
