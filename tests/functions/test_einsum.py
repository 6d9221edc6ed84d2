"""einsum: recorded, contracted in the cheapest order, with NumPy's shapes, orders and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyfuse
from tests.pairwise import pairwise

CASES = [
    ("ij,jk->ik", (110, 120), (120, 130)),
    ("ij,jk", (110, 120), (120, 130)),
    ("ij,jk->ki", (110, 120), (120, 130)),
    ("ij,kj->ik", (110, 120), (130, 120)),
    ("ij,jk,kl->il", (40, 50), (50, 60), (60, 70)),
    ("bij,bjk->bik", (9, 50, 60), (9, 60, 70)),
    ("...ij,...jk->...ik", (3, 70, 80), (3, 80, 90)),
    ("...ij,jk->...ik", (3, 70, 80), (80, 90)),
    ("ij,ij->i", (300, 300), (300, 300)),
    ("ij,ij->", (300, 300), (300, 300)),
    ("i,j->ij", (300,), (400,)),
    ("ij,j->i", (300, 400), (400,)),
    ("ijk,jil->kl", (30, 40, 50), (40, 30, 60)),
    ("ij,ik,il->jkl", (60, 20), (60, 30), (60, 40)),
    ("ii,ij->j", (200, 200), (200, 300)),
]


FORMS = ["...ij,jk", "ij,ij", "i...,i...->...", "ij->", "i,i", "ij,jk,kl->li", "bij,bj->bi"]


@pairwise("case, optimize, order", range(len(CASES) + len(FORMS)), [False, True], ["C", "F"])
def test_class_and_layout_are_numpys(case: int, optimize: bool, order: str) -> None:
    """A number or an array without axes, and how a contraction by pairs lies in memory."""
    if case < len(CASES):
        subscripts, *shapes = CASES[case]
    else:
        subscripts = FORMS[case - len(CASES)]
        letters = [term.replace("...", "") for term in subscripts.split("->")[0].split(",")]
        shapes = [(110,) * len(each) for each in letters]
    arrays = operands(shapes, "i8", order)
    expected = np.einsum(subscripts, *arrays, optimize=optimize)
    for _ in range(2):
        found = lazyfuse.einsum(
            subscripts, *[lazyfuse.array(each) for each in arrays], optimize=optimize
        )
        assert (type(found) is lazyfuse.ndarray) == (type(expected) is np.ndarray)
        assert np.asarray(found).strides == expected.strides
        assert np.array_equal(found, expected)


def operands(shapes: Any, dtype: str, order: str) -> list[Any]:
    generator = np.random.default_rng(5)
    arrays = [(generator.normal(size=shape) * 9).astype(dtype) for shape in shapes]
    return [np.array(array, order=order) for array in arrays]  # type: ignore[call-overload]


# which way is taken hangs on the case and the dtype, how operands lie on the order: each two
# are met
@pairwise("case, dtype, order", CASES, ["i8", "i2", "f4", "f8", "c16"], ["C", "F"])
def test_sums_are_numpys_within_the_bound(case: Any, dtype: str, order: str) -> None:
    subscripts, *shapes = case
    arrays = operands(shapes, dtype, order)
    expected = np.einsum(subscripts, *arrays)
    found = lazyfuse.einsum(subscripts, *[lazyfuse.array(array) for array in arrays])
    assert type(found) is (lazyfuse.ndarray if expected.ndim else type(found))
    real = np.asarray(found)
    assert (real.dtype, real.shape, real.strides) == (
        expected.dtype,
        expected.shape,
        expected.strides,
    )
    if dtype[0] == "i":
        assert np.array_equal(real, expected)
        return
    products = np.einsum(subscripts, *[np.abs(array).astype("f8") for array in arrays])
    terms = max(size for shape in shapes for size in shape)
    bound = len(arrays) * terms * np.finfo(dtype).eps * products
    assert (np.abs(real - expected) <= bound).all()


def test_one_structure_gives_the_same_bits_at_every_call() -> None:
    arrays = [lazyfuse.array(array) for array in operands([(300, 310), (310, 320)], "f8", "C")]
    first = np.asarray(lazyfuse.einsum("ij,jk->ik", *arrays))
    for _ in range(3):
        assert np.array_equal(np.asarray(lazyfuse.einsum("ij,jk->ik", *arrays)), first)


def test_operands_keep_the_values_that_they_had() -> None:
    first, second = operands([(200, 300), (300, 400)], "i8", "C")
    ours = lazyfuse.array(first)
    found = lazyfuse.einsum("ij,jk->ik", ours * 1, lazyfuse.array(second))
    ours[...] = 0
    assert np.array_equal(np.asarray(found), first @ second)


@pytest.mark.parametrize(
    "arguments",
    [
        ("ij,jk->ik", (200, 300), (301, 400)),
        ("ij,jk->iq", (200, 300), (300, 400)),
        ("ijk,jk->ik", (200, 300), (300, 400)),
        ("ij,jk,kl->il", (200, 300), (300, 400)),
    ],
)
def test_mistakes_are_numpys(arguments: Any) -> None:
    subscripts, *shapes = arguments
    arrays = operands(shapes, "f8", "C")
    with pytest.raises(ValueError) as theirs:  # noqa: PT011  # the text is compared
        np.einsum(subscripts, *arrays)
    with pytest.raises(ValueError) as ours:  # noqa: PT011
        lazyfuse.einsum(subscripts, *[lazyfuse.array(array) for array in arrays])
    assert str(ours.value) == str(theirs.value)


def test_products_of_what_is_there_with_a_small_result_are_over_at_once() -> None:
    matrix, vector = operands([(300, 310), (310,)], "f8", "C")
    ours, small = lazyfuse.array(matrix), lazyfuse.array(vector)
    for found, expected in (
        (ours @ small, matrix @ vector),
        (lazyfuse.dot(ours, small), np.dot(matrix, vector)),
        (lazyfuse.inner(small, ours), np.inner(vector, matrix)),
        (lazyfuse.vdot(ours, ours), np.vdot(matrix, matrix)),
    ):
        assert "waits" not in str(lazyfuse.explain(found))
        assert np.array_equal(np.asarray(found), expected)
