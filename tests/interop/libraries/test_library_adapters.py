"""Functions of other libraries that insist on NumPy's array get one; all else is as it was."""

from __future__ import annotations

import inspect
import pickle
from types import CellType, FunctionType
from typing import Any

import numpy as np
import pytest

import lazyfuse
from lazyfuse.arrays.conversion import EXPORT, to_numpy
from lazyfuse.interop import arguments
from tests.helpers.compare import MODES, mode

pandas = pytest.importorskip("pandas", reason="pandas is not installed")


@pytest.fixture(params=MODES, ids=["default", "recorded"], autouse=True)
def _mode(request: pytest.FixtureRequest) -> Any:
    with mode(request.param):
        yield


def keys() -> Any:
    return lazyfuse.arange(6) % 2


def test_what_leaves_is_numpys() -> None:
    x = lazyfuse.arange(3.0)
    left = to_numpy({"a": [x, (x.sum(), 1)], "b": slice(x[1], None), "c": lazyfuse.add}, EXPORT)
    assert type(left["a"][0]) is np.ndarray
    assert type(left["a"][1][0]) is np.float64
    assert type(left["b"].start) is np.float64
    assert left["c"] is np.add
    assert np.shares_memory(left["a"][0], np.asarray(x))
    same = ["a", 1, (2.0,)]
    assert to_numpy(same, EXPORT) is same


def test_keys_and_masks_of_pandas() -> None:
    table = pandas.DataFrame({"x": np.arange(6.0)})
    assert table.groupby(keys()).x.sum().tolist() == [6, 9]
    assert table[keys() == 1].x.tolist() == [1, 3, 5]
    assert table.x.iloc[keys() == 1].tolist() == [1, 3, 5]
    table.loc[keys() == 0, "x"] = lazyfuse.arange(3.0) * 10
    assert table.x.tolist() == [0, 1, 10, 3, 20, 5]
    assert table.x.iat[lazyfuse.asarray(table.x).argmax()] == 20
    assert pandas.factorize(keys())[1].tolist() == [0, 1]


def test_the_users_functions_may_answer_with_our_arrays() -> None:
    series = pandas.Series(np.arange(6.0))
    doubled = series.groupby(keys()).transform(lambda g: lazyfuse.asarray(g) * 2)
    assert doubled.tolist() == [0, 2, 4, 6, 8, 10]


def test_the_memory_of_a_table_is_shared_only_on_request() -> None:
    x = lazyfuse.arange(6.0)
    copied, shared = pandas.Series(x), pandas.Series(x, copy=False)
    x[0] = 50
    assert (copied.iloc[0], shared.iloc[0]) == (0, 50)


def test_libraries_look_as_they_did() -> None:
    signature = inspect.signature(pandas.DataFrame.groupby)
    assert "as_index" in signature.parameters
    assert pandas.DataFrame.groupby.__name__ == "groupby"
    table = pandas.DataFrame({"x": np.arange(6.0)})
    limit = 2
    assert table.query("x > @limit").x.tolist() == [3, 4, 5]
    assert limit == 2
    with pytest.warns(UserWarning, match="dayfirst") as told:
        pandas.to_datetime(["13/01/2020"])
    assert told[0].filename == __file__  # the library finds its user's line


def test_ufuncs_of_classes_that_know_numpy_alone() -> None:
    series = pandas.Series(np.arange(6.0))
    x = lazyfuse.arange(6.0)
    assert type(lazyfuse.logical_and(x, series > 1)) is pandas.Series
    x += series
    assert list(x) == [0, 2, 4, 6, 8, 10]
    dates = pandas.Series(np.arange(3).astype("M8[s]"))
    with pytest.raises(TypeError, match="cannot perform the numpy op logical_or"):
        lazyfuse.logical_or(lazyfuse.ones(3, dtype=bool), dates)


def test_sparse_matrices_multiply_from_the_right() -> None:
    sparse = pytest.importorskip("scipy.sparse", reason="scipy is not installed")
    matrix = sparse.csr_array(np.arange(6.0).reshape(2, 3))
    assert (lazyfuse.ones(2) @ matrix).tolist() == [3, 5, 7]
    assert (matrix @ lazyfuse.ones(3)).tolist() == [3, 12]
    assert type(lazyfuse.ones((2, 2)) @ np.ma.ones((2, 2))) is np.ma.MaskedArray


def test_gradients_for_compiled_optimizers() -> None:
    optimize = pytest.importorskip("scipy.optimize", reason="scipy is not installed")
    found = optimize.minimize(
        lambda x: ((x - 2) ** 2).sum(), np.zeros(3), jac=gradient, method="L-BFGS-B"
    )
    assert found.x == pytest.approx([2, 2, 2])
    again = pickle.loads(pickle.dumps(arguments.answering(gradient)))  # for workers of SciPy's
    assert type(again(np.zeros(3))) is np.ndarray


def gradient(x: Any) -> Any:
    return 2 * (lazyfuse.array(x) - 2)


def test_containers_that_hold_themselves_or_are_deep() -> None:
    circle: list[Any] = [1]
    circle.append(circle)
    assert to_numpy(circle, EXPORT) is circle
    wide: list[Any] = [lazyfuse.arange(3)]
    for _ in range(50):
        wide = [wide, wide]  # 2**50 ways to its end
    left = to_numpy(wide, EXPORT)
    for _ in range(50):
        left = left[1]
    assert type(left[0]) is np.ndarray
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    assert to_numpy(deep, EXPORT) is deep
    same = {"a": [1, (2,)]}
    assert to_numpy(same, EXPORT) is same


class _Forbids(type):
    def __hash__(cls) -> int:
        raise RuntimeError("no hashes here")


def test_classes_that_may_not_be_looked_up() -> None:
    odd = _Forbids("Odd", (), {})()
    for value in (odd, [odd], [odd] * 20, {"a": odd}, slice(odd)):
        assert arguments.argument(value) is value
    assert type(arguments.argument([odd, lazyfuse.arange(3)])[1]) is np.ndarray


def test_numbers_of_ours_in_ufuncs_of_numpys_that_ask_others_first() -> None:
    class Meters:
        """Leaves what it does not know to NumPy, as subclasses of its array do."""

        def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
            if any(type(x) not in (np.ndarray, Meters) for x in inputs):
                return NotImplemented
            return "meters", getattr(ufunc, method)(
                *[np.ones(3) if type(x) is Meters else x for x in inputs]
            ).tolist()

    Meters.__array_ufunc__ = FunctionType(  # as if its module did not know lazyfuse
        Meters.__array_ufunc__.__code__,
        {"np": np, "any": any, "type": type, "getattr": getattr},
        closure=(CellType(Meters),),
    )
    x = lazyfuse.arange(3.0)
    assert np.add(Meters(), x) == ("meters", [1, 2, 3])
    assert np.add(x, Meters()) == ("meters", [1, 2, 3])
    assert lazyfuse.add(x, Meters()) == ("meters", [1, 2, 3])
