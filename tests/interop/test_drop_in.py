"""Programs written for NumPy's array: what asks for its type, its memory, its documentation."""

from __future__ import annotations

import ctypes
import inspect
import io
from typing import Any

import numpy as np
import pytest
from numpy import testing

import lazyfuse
from tests.helpers.compare import MODES, both, mode


@pytest.fixture(params=MODES, ids=["default", "recorded"], autouse=True)
def _mode(request: pytest.FixtureRequest) -> Any:
    with mode(request.param):
        yield


# ----------------------------------------------------------------------- numpy.testing


def test_assertions_of_numpy_take_arrays() -> None:
    x = lazyfuse.arange(4.0) * 2
    testing.assert_equal(x, [0, 2, 4, 6])
    testing.assert_equal([0, 2, 4, 6], x)
    testing.assert_equal(x, np.array([0, 2, 4, 6]))
    testing.assert_equal({"x": x, "pair": (x, 1)}, {"x": x + 0, "pair": (x, 1)})
    testing.assert_equal(x * 0, 0)
    testing.assert_equal(x * np.nan, np.nan)
    testing.assert_equal(lazyfuse.array(3), 3)
    testing.assert_equal(x[:0], [])
    testing.assert_almost_equal(x + 1e-9, x)
    testing.assert_array_less(x, x + 1)
    testing.assert_allclose(x, x * (1 + 1e-12))


@pytest.mark.parametrize(
    ("actual", "desired"),
    [([1, 2, 3], [1, 2, 4]), ([1, 2, 3], [1, 2]), ([1, 1], 2), ([], [1]), ([1.0, np.nan], 1.0)],
)
@pytest.mark.parametrize("name", ["assert_equal", "assert_almost_equal"])
def test_failed_assertions_have_the_text_of_numpy(name: str, actual: Any, desired: Any) -> None:
    check = getattr(testing, name)
    both(lambda xp, x: check(x, desired), np.array(actual))
    both(lambda xp, x: check(desired, x), np.array(actual))


def test_strict_assertions() -> None:
    x = lazyfuse.ones(3)
    testing.assert_equal(x, 1)
    with pytest.raises(AssertionError, match=r"\(shapes \(3,\), \(\) mismatch\)"):
        testing.assert_equal(x, 1, strict=True)
    with pytest.raises(AssertionError, match=r"dtypes float64, float32 mismatch"):
        testing.assert_equal(x, np.ones(3, "f4"), strict=True)


def test_arrays_pass_for_those_of_numpy_in_its_own_code_only() -> None:
    x = lazyfuse.ones(3)
    assert not isinstance(x, np.ndarray)
    assert x.__class__ is lazyfuse.ndarray
    assert isinstance(x, lazyfuse.ndarray)
    assert not isinstance(x, (list, np.generic))


def test_pointer_types_check_arrays() -> None:
    kind = np.ctypeslib.ndpointer(dtype="f8", ndim=1, flags="C_CONTIGUOUS")
    x = lazyfuse.arange(3.0) + 1
    pointer = ctypes.cast(kind.from_param(x), ctypes.POINTER(ctypes.c_double))
    assert pointer[2] == 3
    with pytest.raises(TypeError, match="array must have data type float64"):
        kind.from_param(lazyfuse.ones(3, "f4"))
    with pytest.raises(TypeError, match="array must have 1 dimension"):
        kind.from_param(lazyfuse.ones((3, 1)))


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_code_of_numpy_that_asks_for_the_type() -> None:
    x = lazyfuse.arange(6.0).reshape(2, 3)
    assert np.ma.filled(x) is x
    assert np.ma.masked_where(x > 3, x).sum() == 6
    matrix = np.matrix(x)
    assert (matrix * matrix.T).tolist() == [[5, 14], [14, 50]]
    file = io.BytesIO()
    np.lib.format.write_array(file, x.T)
    file.seek(0)
    assert np.lib.format.read_array(file).tolist() == x.T.tolist()
    assert np.rec.array(x.astype("f8,i8")).f1[1].tolist() == [3, 4, 5]


# ------------------------------------------------------------------------------ memory

PADDED = np.dtype({"names": ["a", "b"], "formats": ["i1", "f8"], "offsets": [0, 8], "itemsize": 16})
SHUFFLED = np.dtype(
    {"names": ["b", "a"], "formats": ["i4", "i2"], "offsets": [4, 0], "itemsize": 8}
)
TITLED = np.dtype([(("a title", "a"), "i4")])
MARKED = np.dtype("O", metadata={"vlen": str})
MARKED_FIELD = np.dtype([("a", np.dtype("f8", metadata={"unit": "m"}))])


NESTED = [("a", [("b", "f4")], (2,)), ("c", "i2", (2, 3)), ("d", "U2")]


@pytest.mark.parametrize(
    "dtype", ["?", "f2", ">i4", "G", "O", "U3", "S2", "i4,f8", "O,i8", PADDED, NESTED]
)
def test_buffers_of_every_dtype_that_a_format_can_tell(dtype: Any) -> None:
    theirs = np.zeros(3, dtype)
    ours, real = memoryview(lazyfuse.array(theirs)), memoryview(theirs)
    assert (ours.format, ours.shape, ours.strides) == (real.format, real.shape, real.strides)
    assert np.asarray(ours).dtype == theirs.dtype


@pytest.mark.parametrize(
    "dtype",
    ["V4", "S0", "M8[s]", "T", [("a", "M8[s]")], PADDED, SHUFFLED, TITLED, MARKED, MARKED_FIELD],
)
def test_numpy_reads_dtypes_that_buffers_cannot_tell(dtype: Any) -> None:
    theirs = np.zeros(3, dtype)
    outside = np.asarray(lazyfuse.asarray(theirs))
    assert outside.dtype == theirs.dtype
    assert outside.dtype.metadata == theirs.dtype.metadata
    assert outside.dtype.fields == theirs.dtype.fields
    assert str((outside.dtype.fields or {}).get("a")) == str((theirs.dtype.fields or {}).get("a"))
    assert outside.tolist() == theirs.tolist()


@pytest.mark.parametrize("dtype", ["f8", "V4", "S0", "U2", "i4,f8", "M8[s]", PADDED, TITLED])
def test_array_interface_of_dtypes(dtype: Any) -> None:
    theirs = np.zeros(3, dtype)
    ours = lazyfuse.array(theirs).__array_interface__
    expected = theirs.__array_interface__
    assert {**ours, "data": 0} == {**expected, "data": 0}


# ----------------------------------------------------------------------- introspection


@pytest.mark.parametrize("kind", ["flatiter", "broadcast"])
def test_iterators_are_documented_as_those_of_numpy(kind: str) -> None:
    ours, theirs = getattr(lazyfuse, kind), getattr(np, kind)
    names = [name for name in dir(theirs) if not name.startswith("_")]
    assert {name: getattr(ours, name).__doc__ for name in names} == {
        name: getattr(theirs, name).__doc__ for name in names
    }


def signature(function: Any) -> Any:
    """None where there is none: NumPy tells those of its functions in C from 2.4 on."""
    try:
        return inspect.signature(function)
    except ValueError:
        return None


def kinds(function: Any) -> list[tuple[str, Any]] | None:
    found = signature(function)
    return found and [(each.name, each.kind) for each in found.parameters.values()]


@pytest.mark.parametrize("name", ["flatiter.copy", "flatiter.__array__", "broadcast.reset"])
def test_methods_of_iterators_take_self_by_place(name: str) -> None:
    kind, method = name.split(".")
    ours, theirs = getattr(lazyfuse, kind), getattr(np, kind)
    if kinds(getattr(theirs, method)) is not None:
        assert kinds(getattr(ours, method)) == kinds(getattr(theirs, method))


def test_signature_of_broadcast() -> None:
    if signature(np.broadcast) is not None:
        assert inspect.signature(lazyfuse.broadcast) == inspect.signature(np.broadcast)


def test_ufuncs_keep_what_describes_them() -> None:
    add = lazyfuse.add
    if signature(np.add) is not None:
        assert signature(add) == signature(np.add)
    assert vars(add) == vars(np.add)
    text = add.__doc__
    add.__doc__ = "sums"
    assert vars(add)["__doc__"] == add.__doc__ == "sums"
    del add.__doc__
    assert add.__doc__ == text


class Measured:
    """An array with a unit, in the manner of before `__array_ufunc__`, written with lazyfuse."""

    def __init__(self, values: Any, context: Any = None) -> None:
        self.values = values
        self.context = context

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.values

    def __array_wrap__(self, values: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return Measured(values, context)


def test_array_wrap_sees_objects_of_ours() -> None:
    x = Measured(lazyfuse.arange(3.0))
    found = lazyfuse.minimum(x, lazyfuse.ones(3))
    assert type(found.values) is lazyfuse.ndarray
    assert found.values.tolist() == [0, 1, 1]
    function, args, place = found.context
    assert function is lazyfuse.minimum
    assert args[0] is x
    assert type(args[1]) is lazyfuse.ndarray
    assert place == 0
