"""Products of memory that somebody outside holds, and pairs of `einsum` by our matrix products."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy
import pytest

import lazyfuse as np
from lazyfuse.functions import products
from lazyfuse.runtime.execution import matmul


@pytest.fixture(autouse=True)
def all_recorded() -> Iterator[None]:
    with np.options(eager_below=0, compile_after=0):
        yield


@pytest.mark.parametrize("name", ["matmul", "dot", "inner"])
def test_a_product_of_lent_memory_copies_nothing(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = numpy.arange(60.0).reshape(12, 5)
    weights = np.array(numpy.arange(5.0)) + 1.0  # pending
    x = np.asarray(data)

    def refuse(*_: Any) -> Any:
        raise AssertionError("copied")

    monkeypatch.setattr(sys.modules["lazyfuse.arrays.ndarray"], "snapshot", refuse)
    found = getattr(np, name)(x, weights)
    monkeypatch.undo()
    data[:] = -1.0  # whoever holds the memory may write to it: the product has been found
    expected = numpy.arange(60.0).reshape(12, 5) @ (numpy.arange(5.0) + 1.0)
    numpy.testing.assert_array_equal(numpy.asarray(found), expected)


def test_a_loop_over_lent_memory_is_numpys() -> None:
    generator = numpy.random.default_rng(2)
    data, target = generator.normal(size=(400, 6)), generator.normal(size=400)
    results = []
    for xp, given in ((numpy, (data, target)), (np, (np.asarray(data), np.asarray(target)))):
        weights = xp.zeros(6)
        for turn in range(5):
            weights -= 0.1 * (given[0].T @ (given[0] @ weights - given[1])) / 400
            if turn == 2:
                data *= 1.5
        data /= 1.5
        results.append(numpy.asarray(weights))
    numpy.testing.assert_allclose(results[1], results[0], rtol=1e-12)


PAIRS = (
    ("bij,bjk->bik", (6, 130, 70), (6, 70, 160)),
    ("bhid,bhjd->bhij", (2, 3, 130, 70), (2, 3, 160, 70)),
    ("ij,jk->ki", (300, 200), (200, 250)),
    ("ijk,kjl->il", (200, 30, 10), (10, 30, 250)),
    ("iij,jk->ik", (120, 120, 300), (300, 240)),
)


@pytest.mark.parametrize(("subscripts", "first", "second"), PAIRS)
@pytest.mark.parametrize("dtype", ["f8", "f4", "i8"])
def test_pairs_are_within_the_bound_of_products(
    subscripts: str, first: tuple[int, ...], second: tuple[int, ...], dtype: str
) -> None:
    generator = numpy.random.default_rng(3)
    a, b = ((generator.normal(size=shape) * 99).astype(dtype) for shape in (first, second))
    found = {}
    for threads in (1, 2):
        with np.options(threads=threads):
            found[threads] = numpy.asarray(np.einsum(subscripts, np.array(a), np.array(b)))
    numpy.testing.assert_array_equal(found[1], found[2], strict=True)
    exact = numpy.einsum(subscripts, a.astype("f8"), b.astype("f8"))
    scale = numpy.einsum(subscripts, abs(a.astype("f8")), abs(b.astype("f8")))
    allowed = 0.0 if dtype == "i8" else 600 * float(numpy.finfo(dtype).eps) * scale
    assert found[1].dtype == dtype
    assert found[1].shape == exact.shape
    assert (abs(found[1] - exact) <= allowed).all()


def test_a_large_pair_is_one_of_our_products(monkeypatch: pytest.MonkeyPatch) -> None:
    if products._by_pairs()[0] is None:
        pytest.skip("this NumPy multiplies pairs by tensordot")
    asked = []
    product = matmul.matmul
    monkeypatch.setattr(matmul, "matmul", lambda *given: asked.append(given) or product(*given))
    a = np.ones((8, 128, 128)) + 1.0
    assert float(np.einsum("bij,bjk->bik", a, a).sum()) == 4.0 * 128 * 8 * 128 * 128
    assert len(asked) == 1


def test_infinities_in_a_pair_are_told_by_nobody_as_in_numpy() -> None:
    a = numpy.ones((300, 300))
    a[7, 9] = numpy.inf
    b = numpy.ones((300, 300))
    b[9] = 0.0
    found = numpy.asarray(np.einsum("ij,jk->ik", np.array(a), np.array(b)))
    numpy.testing.assert_array_equal(found, numpy.einsum("ij,jk->ik", a, b))
