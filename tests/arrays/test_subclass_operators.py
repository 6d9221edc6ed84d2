"""Operators between our arrays and subclasses of NumPy's: who is asked, and what comes out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyfuse
from tests.helpers.compare import MODES, both, mode


@pytest.fixture(params=MODES, ids=["default", "recorded"], autouse=True)
def _mode(request: pytest.FixtureRequest) -> Any:
    with mode(request.param):
        yield


class Reversed(np.ndarray):
    """Has a say in additions and comparisons with an array on its left."""

    def __radd__(self, other: Any) -> Any:
        return "radd"

    def __rmatmul__(self, other: Any) -> Any:
        return "rmatmul"

    def __rdivmod__(self, other: Any) -> Any:
        return "rdivmod"

    def __gt__(self, other: Any) -> Any:
        return "gt"

    __array_priority__ = 2


class Quiet(np.ndarray):
    """A subclass that changes nothing."""


def test_a_subclass_that_overrides_is_asked_first() -> None:
    def operations(xp: Any, x: Any) -> Any:
        other = np.ones(3).view(Reversed)
        kinds = [type(x - other).__name__, type(x >= other).__name__]
        return [x + other, x < other, x @ other, divmod(x, other), *kinds]

    both(operations, np.arange(3.0))


class Aloof:
    """Wants nothing to do with ufuncs; does its own operators."""

    __array_ufunc__ = None

    def __radd__(self, other: Any) -> Any:
        return "radd", type(other).__name__

    __rmatmul__ = __rdivmod__ = __lt__ = __radd__


def test_objects_without_ufuncs_do_their_own_operators() -> None:
    def operations(xp: Any, x: Any) -> Any:
        other = Aloof()
        return [x + other, x @ other, divmod(x, other), x > other]

    both(operations, np.arange(3.0))


@pytest.mark.parametrize("dtype", ["f8", "M8[s]", "U2"])
def test_comparisons_keep_the_subclass(dtype: str) -> None:
    def kinds(xp: Any, x: Any) -> Any:
        other = np.zeros(3).view(Quiet)
        return [type(each).__name__ for each in (x == other, other == x, x != other)]

    both(kinds, np.zeros(3, dtype))


def test_products_with_matrices_are_those_of_matrices() -> None:
    def products(xp: Any, x: Any) -> Any:
        matrix = np.matrix([[1.0, 2.0, 3.0]])
        return [x @ matrix.T, x * matrix.T, x + matrix, x == matrix]

    both(products, np.arange(3.0))


class Recorder:
    """Tells how it was called instead of computing."""

    shape = (2, 2)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return [ufunc.__name__, method, kwargs["axes"], kwargs["out"][0] is inputs[0]]


@pytest.mark.parametrize("shape", [(2, 2), (2,)])
def test_products_in_place_ask_whoever_overrides(shape: tuple[int, ...]) -> None:
    def product(xp: Any, x: Any) -> Any:
        x @= Recorder()
        return x

    both(product, np.ones(shape))


def test_products_in_place_write_to_the_array() -> None:
    x = lazyfuse.ones((2, 2))
    same = x
    x @= lazyfuse.array([[1.0, 2.0], [3.0, 4.0]])
    x @= [[1, 0], [0, 1]]
    assert x is same
    assert x.tolist() == [[4, 6], [4, 6]]


class Signal(lazyfuse.ndarray):
    """A subclass of our array, which is NumPy's."""


def test_plain_arrays_that_a_subclass_hands_out_are_ours() -> None:
    signal = lazyfuse.arange(5).view(Signal)
    assert type(signal.base) is lazyfuse.ndarray
    assert signal.base is signal.base
    assert signal[:3].base is signal
    assert type(signal[[0, 1]].base) is lazyfuse.ndarray
    assert [type(x) for x in signal.nonzero()] == [lazyfuse.ndarray]
    assert signal.nonzero()[0].tolist() == [1, 2, 3, 4]
    assert Signal((2,)).base is None


class Keeper(lazyfuse.ndarray):
    """Looks at its base as soon as it is made."""

    seen: Any

    def __array_finalize__(self, parent: Any) -> None:
        self.seen = self.base


def test_the_base_of_a_subclass_is_the_array_that_was_viewed() -> None:
    x = lazyfuse.arange(5)
    part = x[1:]
    keeper, second = x.view(Keeper), part.view(Keeper)
    assert keeper.base is keeper.seen is x
    assert second.base is part
    assert lazyfuse.array(1).view(Keeper).seen.tolist() == 1
    x[1] = 7
    assert keeper[1] == second[0] == 7
    del keeper, second, part
    x.resize(2, refcheck=False)
    assert x.tolist() == [0, 7]


class Overriding(Reversed):
    """Has a say in ufuncs as well: that is asked for by whoever calls the method itself."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return ["ufunc", ufunc.__name__]


@pytest.mark.parametrize("name", ["__add__", "__matmul__", "__divmod__"])
def test_methods_called_by_name_go_by_the_ufunc(name: str) -> None:
    both(lambda xp, x: getattr(x, name)(np.ones(3).view(Overriding)), np.arange(3.0))
