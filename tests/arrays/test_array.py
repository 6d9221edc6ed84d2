"""Attributes, methods, operators and conversions of arrays, in every state, against NumPy."""

from __future__ import annotations

import copy
import gc
import itertools
import operator
import re
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse.arrays.ndarray import export, gather, node_of, wrap, wrap_shared
from lazyfuse.runtime.placement import devices
from tests.helpers.states import STATES, Make, recording_all, state

VALUES = {
    "matrix": np.arange(12.0).reshape(3, 4),
    "fortran": np.asfortranarray(np.arange(12, dtype="i4").reshape(3, 4)),
    "vector": np.array([3, 1, 2], "u1"),
    "booleans": np.array([True, False, True]),
    "complex": np.array([1 + 2j, 3 - 1j]),
    "cube": np.arange(24, dtype="f4").reshape(2, 3, 4).transpose(1, 2, 0).copy(order="K"),
    "one": np.array([7.5]),
}


@pytest.fixture(params=list(STATES))
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    with state(request.param) as maker:
        yield maker


@pytest.fixture(params=list(VALUES))
def value(request: pytest.FixtureRequest) -> Any:
    return VALUES[request.param].copy(order="K")


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a call gives, errors included, in a form that can be compared."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            result = plain(function(*arguments))
        except Exception as error:
            result = (type(error), str(error).replace("numpy.ndarray", "ndarray"))
    return result, [(each.category, str(each.message)) for each in seen]


def plain(result: Any) -> Any:
    if isinstance(result, tuple):
        return tuple(plain(each) for each in result)
    if type(result).__module__.startswith("lazyfuse"):
        result = gather(result) if hasattr(result, "_node") else np.array(result)
    if isinstance(result, (np.ndarray, np.generic)):
        return ("array", result.dtype.str, result.shape, repr(result.tolist()))
    return result


def agree(function: Any, found: Any, wanted: Any) -> bool:
    """Whether two outcomes are equal; powers of floats may err by 4 units on other devices."""
    if function not in (operator.pow, operator.ipow) or devices.current() is devices.cpu():
        return bool(found == wanted)
    if found[0] != "array" or found[:3] != wanted[:3] or found[1][1] not in "fc":
        return bool(found == wanted)
    names = {"inf": np.inf, "nan": np.nan, "infj": np.inf * 1j, "nanj": np.nan * 1j}
    one, other = (np.array(eval(each[3], names), each[1]) for each in (found, wanted))
    return bool(np.allclose(one, other, 4 * np.finfo(one.dtype).eps, 0, equal_nan=True))


@pytest.mark.smoke
def test_every_name_of_numpy_exists() -> None:
    missing = [name for name in dir(np.ndarray) if not hasattr(lf.ndarray, name)]
    assert [name for name in missing if name != "__buffer__"] == []


@pytest.mark.parametrize(
    "name", ["shape", "dtype", "ndim", "size", "nbytes", "itemsize", "strides", "T", "device"]
)
def test_attributes(make: Make, value: Any, name: str) -> None:
    x = make(value)
    assert plain(getattr(x, name)) == plain(getattr(value, name))


def test_flags(make: Make, value: Any) -> None:
    x = make(value)
    if x.base is not None:
        value = value[...]
    for name in ("c_contiguous", "f_contiguous", "writeable", "aligned", "owndata", "fnc", "forc"):
        assert getattr(x.flags, name) == getattr(value.flags, name), name
    assert x.flags["C"] == value.flags["C"]
    assert repr(x.flags) == repr(value.flags)


def test_making_read_only(make: Make) -> None:
    x = make(np.arange(4.0))
    x.flags.writeable = False
    with pytest.raises(ValueError, match="assignment destination is read-only"):
        x[0] = 1
    with pytest.raises(ValueError, match="output array is read-only"):
        x += 1
    assert not x[1:].flags.writeable
    x.setflags(write=True)
    x[0] = 5
    assert gather(x).tolist() == [5, 1, 2, 3]


METHODS: dict[str, Callable[[Any], Any]] = {
    "reshape": lambda x: x.reshape(-1),
    "reshape tuple": lambda x: x.reshape((x.size, 1)),
    "reshape fortran": lambda x: x.reshape(-1, order="F"),
    "reshape wrong": lambda x: x.reshape(7, 5),
    "ravel": lambda x: x.ravel(),
    "ravel k": lambda x: x.ravel("K"),
    "flatten": lambda x: x.flatten("F"),
    "transpose": lambda x: x.transpose(),
    "transpose wrong": lambda x: x.transpose(0, 0, 0, 0),
    "swapaxes": lambda x: x.swapaxes(0, -1),
    "swapaxes wrong": lambda x: x.swapaxes(0, 9),
    "squeeze": lambda x: x.squeeze(),
    "squeeze wrong": lambda x: x.squeeze(0),
    "diagonal": lambda x: x.diagonal(),
    "copy": lambda x: x.copy(),
    "copy f": lambda x: x.copy("F"),
    "copy wrong": lambda x: x.copy("Q"),
    "astype": lambda x: x.astype("f4"),
    "astype int": lambda x: x.astype(np.int16),
    "astype text": lambda x: x.astype("U5"),
    "astype wrong": lambda x: x.astype("i1", casting="safe"),
    "astype unknown": lambda x: x.astype("strange"),
    "byteswap": lambda x: x.byteswap().byteswap(),
    "tolist": lambda x: x.tolist(),
    "tobytes": lambda x: x.tobytes(),
    "item": lambda x: x.item(0),
    "item wrong": lambda x: x.item(),
    "view": lambda x: x.view(),
    "view bytes": lambda x: x.reshape(-1).view("u1"),
    "real": lambda x: x.real,
    "imag": lambda x: x.imag,
    "flat": lambda x: list(x.flat),
    "flat slice": lambda x: x.flat[1:3],
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean(axis=0),
    "max": lambda x: x.max(),
    "argsort": lambda x: x.argsort(axis=-1),
    "cumsum": lambda x: x.cumsum(),
    "nonzero": lambda x: x.nonzero(),
    "take": lambda x: x.take([0, 0]),
    "repeat": lambda x: x.repeat(2),
    "clip": lambda x: x.clip(1, 2),
    "round": lambda x: x.round(),
    "dot": lambda x: x.dot(x.T),
    "trace": lambda x: x.trace(),
    "searchsorted": lambda x: x.searchsorted(2),
    "any": lambda x: x.any(),
    "all": lambda x: x.all(axis=0),
    "std": lambda x: x.std(),
    "prod": lambda x: x.prod(axis=-1),
    "conj": lambda x: x.conj(),
    "len": len,
    "iterate": lambda x: [plain(each) for each in x],
    "bool": bool,
    "int": int,
    "float": float,
    "complex": complex,
    "index": operator.index,
    "repr": repr,
    "str": str,
    "format": lambda x: f"{x}",
    "contains": lambda x: 2 in x,
    "contains not": lambda x: 99 in x,
    "hash": hash,
    "deepcopy": copy.deepcopy,
    "shallow copy": copy.copy,
    "neg": operator.neg,
    "abs": abs,
    "invert": operator.invert,
    "divmod": lambda x: divmod(x, 2),
    "round builtin": round,
    "del": lambda x: operator.delitem(x, 0),
    "matmul": lambda x: x @ x.T,
    "matmul number": lambda x: x @ 2,
}


@pytest.mark.parametrize("name", list(METHODS))
def test_methods(make: Make, name: str) -> None:
    method = METHODS[name]
    for kind, value in VALUES.items():
        assert outcome(method, make(value.copy("K"))) == outcome(method, value.copy("K")), kind


BINARY = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod,
    operator.pow, operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift,
    operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge,
]  # fmt: skip
OPERANDS: dict[str, Any] = {
    "int": 2,
    "zero": 0,
    "float": 0.5,
    "complex": 1j,
    "bool": True,
    "big int": 300,
    "huge int": 10**30,
    "negative": -1,
    "f4": np.float32(1.5),
    "i8": np.int64(3),
    "list": [2],
    "array": np.array([2], "i2"),
    "none": None,
    "text": "a",
    "column": np.array([[1], [2]], "i4"),
    "wrong": np.ones(9),
    "objects": np.array([2], object),
    "date": np.datetime64("2020-01-01"),
}


@pytest.mark.parametrize("name", ["matrix", "fortran", "vector", "booleans", "complex"])
def test_operators(make: Make, name: str) -> None:
    value = VALUES[name]
    for operand, other in OPERANDS.items():
        x = make(value)
        for function in BINARY:
            found, wanted = outcome(function, x, other), outcome(function, value, other)
            assert agree(function, found[0], wanted[0]), (function, operand)
            assert found[1] == wanted[1], (function, operand)
            if not isinstance(other, np.ndarray):
                found, wanted = outcome(function, other, x), outcome(function, other, value)
                assert agree(function, found[0], wanted[0]), (function, operand)
                assert found[1] == wanted[1], (function, operand)


IN_PLACE = [
    operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv,
    operator.imod, operator.ipow, operator.iand, operator.ilshift,
]  # fmt: skip


@pytest.mark.parametrize("name", ["matrix", "fortran", "vector", "booleans", "complex"])
def test_in_place_operators(make: Make, name: str) -> None:
    for (operand, other), function in itertools.product(OPERANDS.items(), IN_PLACE):
        value = VALUES[name].copy(order="K")
        x = make(value)
        wanted = outcome(function, value, other)
        # a warning may come at another line, and name another operation of the same kernel
        assert agree(function, outcome(function, x, other)[0], wanted[0]), (function, operand)
        assert agree(function, plain(x), plain(value)), (function, operand)


@pytest.mark.parametrize("name", ["matrix", "vector", "booleans", "complex"])
def test_divmod(make: Make, name: str) -> None:
    value = VALUES[name]
    for operand, other in OPERANDS.items():
        x = make(value)
        # recorded, it is two operations, and warnings name those
        assert outcome(divmod, x, other)[0] == outcome(divmod, value, other)[0], operand
        if not isinstance(other, np.ndarray):
            assert outcome(divmod, other, x)[0] == outcome(divmod, other, value)[0], operand


def test_in_place_returns_the_same_object(make: Make) -> None:
    x = first = make(np.arange(4.0))
    x += 1
    x *= x
    x **= 2
    assert x is first
    assert gather(x).tolist() == [1, 16, 81, 256]


def test_bases(make: Make) -> None:
    x = make(np.arange(6.0)).copy()
    assert x[1:].base is x
    assert x[1:][1:].base is x
    assert x.reshape(2, 3).T.base is x
    assert (x + 1).base is None
    assert x.copy().base is None


@contextmanager
def warning_of_setting(name: str) -> Iterator[None]:
    """What is done within warns of setting an attribute where this NumPy does."""
    one = np.zeros(1)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        setattr(one, name, getattr(one, name))
    expected = [str(each.message) for each in told]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        yield
    assert [str(each.message) for each in told] == expected


def test_setting_shape(make: Make) -> None:
    x = make(np.arange(6.0))
    with warning_of_setting("shape"):
        x.shape = (2, 3)
    assert x.shape == (2, 3)
    x[1, 1] = 9
    assert gather(x).tolist() == [[0, 1, 2], [3, 9, 5]]
    with (
        warning_of_setting("shape"),
        pytest.raises(ValueError, match="cannot reshape array of size 6 into shape"),
    ):
        x.shape = (4, 4)


@pytest.mark.parametrize("name", ["shape", "dtype"])
def test_a_warning_as_error_leaves_an_attribute_as_it_was(make: Make, name: str) -> None:
    x = make(np.arange(6.0))
    value = {"shape": (2, 3), "dtype": "i8"}[name]
    outcomes = []
    for array in (np.arange(6.0), x):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                setattr(array, name, value)
            except DeprecationWarning as error:
                outcomes.append(str(error))
            outcomes.append(array.tolist())
    assert outcomes[: len(outcomes) // 2] == outcomes[len(outcomes) // 2 :]


@pytest.mark.skipif(not hasattr(np.ndarray, "_set_shape"), reason="it came with NumPy 2.5")
def test_setting_shape_and_dtype_unwarned(make: Make) -> None:
    x: Any = make(np.arange(6.0))
    x._set_shape((2, 3))
    assert x.shape == (2, 3)
    x._set_dtype("i8")
    assert gather(x).tolist() == np.arange(6.0).view("i8").reshape(2, 3).tolist()
    with pytest.raises(ValueError, match="cannot reshape array of size 6 into shape"):
        x._set_shape((4, 4))


@pytest.mark.smoke
def test_setting_real_imag_flat(make: Make) -> None:
    x = make(np.array([1 + 2j, 3 + 4j]))
    half = x.imag
    x.real = [5, 6]
    x.imag[0] = 7
    half *= 2
    assert gather(x).tolist() == [5 + 14j, 6 + 8j]
    x.flat = 1
    assert gather(x).tolist() == [1, 1]
    y = make(np.arange(3.0))
    with pytest.raises(TypeError) as refused:
        np.arange(3.0).imag = 1
    with pytest.raises(TypeError, match=re.escape(str(refused.value))):
        y.imag = 1


@pytest.mark.parametrize("dtype", ["i2", "f4", "c8"])
def test_numbers_as_parts(make: Make, dtype: str) -> None:
    """NumPy 2.5 refuses what is out of bounds or complex, older ones convert it."""
    numbers: tuple[Any, ...] = (2.5, 2 + 1j, np.int32(70000), 70000, np.float64(7e4), np.int64(5))
    for number in (*numbers, np.array([70000, 1]), [70000, 1], np.array(70000), "a"):
        for name in ("real", "imag"):
            outcomes = []
            for array in (np.zeros(2, dtype), make(np.zeros(2, dtype))):
                with warnings.catch_warnings(record=True) as told:
                    warnings.simplefilter("always")
                    try:
                        setattr(array, name, number)
                        outcome: Any = array.tolist()
                    except Exception as error:
                        outcome = (type(error), str(error))
                outcomes.append((outcome, [str(each.message) for each in told]))
            assert outcomes[0] == outcomes[1], (name, number)


def test_view_of_another_dtype_shares_memory(make: Make) -> None:
    x = make(np.array([1.0, 2.0]))
    bits = x.view(np.int64)
    bits[0] = 0
    assert gather(x).tolist() == [0, 2]
    x[1] = 0
    assert gather(bits).tolist() == [0, 0]
    assert (x + 1).tolist() == [1, 1]


@pytest.mark.smoke
def test_writing_methods(make: Make) -> None:
    x = make(np.array([3.0, 1.0, 2.0]))
    tail = x[1:]
    x.sort()
    assert gather(tail).tolist() == [2, 3]
    tail.fill(7)
    x.put([0], [9])
    assert gather(x).tolist() == [9, 7, 7]
    x.partition(1)
    assert gather(x).tolist()[0] == 7


def test_resize() -> None:
    x = lf.array([1.0, 2.0])
    x.resize(3)
    assert x.tolist() == [1, 2, 0]
    other = x
    with pytest.raises(ValueError, match="cannot resize an array that references"):
        other.resize(4)
    with pytest.raises(ValueError, match="does not own its data"):
        x[1:].resize(5)


def test_buffers_and_pointers(make: Make) -> None:
    x = make(np.arange(3.0))
    assert bytes(x.data) == np.arange(3.0).tobytes()
    assert x.__array_interface__["shape"] == (3,)
    pointer = x.ctypes
    pointer.data_as(pointer._ctypes.POINTER(pointer._ctypes.c_double))[0] = 8.0
    assert gather(x)[0] == 8


# ------------------------------------------------------------------------------ memory outside


def test_exported_memory_is_shared_both_ways() -> None:
    with recording_all():
        x = wrap(np.arange(4.0))
        early = x * 10  # recorded before the export: keeps the values of then
        outside = export(x)
        outside[0] = 99
        late = x + 0  # recorded with the outsider's value
        outside[0] = 5
        x[1] = 42
        assert outside[1] == 42
        assert gather(early).tolist() == [0, 10, 20, 30]
        assert gather(late).tolist() == [99, 1, 2, 3]
        assert gather(x).tolist() == [5, 42, 2, 3]
        assert wrap_shared(outside)[1:].tolist() == [42, 2, 3]


def test_memory_is_ours_again_when_the_outsider_is_gone() -> None:
    with recording_all():
        x = wrap(np.arange(4.0))
        outside = export(x)
        view = outside[1:]
        del outside
        assert x._storage is not None
        assert x._storage.shared()
        view[0] = 7
        assert gather(x).tolist() == [0, 7, 2, 3]
        del view
        assert not x._storage.shared()
        assert node_of(x) is node_of(x)


def test_foreign_memory_is_read_when_it_is_recorded() -> None:
    value = np.arange(40000.0)
    y = lf.asarray(value)
    z = y * 2 + 1
    value[0] = 99
    assert float(z[0]) == 1
    assert float(y[0]) == 99
    y[1] = -1
    assert value[1] == -1
    assert np.shares_memory(np.asarray(y), value)


def test_foreign_memory_without_another_owner_is_private() -> None:
    y = lf.asarray(np.arange(40000.0))
    assert y._storage is None or not y._storage.shared()


def test_a_view_of_memory_that_was_handed_out_is_ours() -> None:
    with recording_all():
        x = wrap(np.arange(6.0))
        again = wrap_shared(gather(x).reshape(2, 3)[1])
        again[0] = 50
        assert gather(x).tolist() == [0, 1, 2, 50, 4, 5]


def test_arrays_are_freed_without_the_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        x = lf.asarray(np.arange(40000.0))
        y = x + 1
        part = y[5:]
        part += 1
        alive = [weakref.ref(gather(each)) for each in (x, y)]
        watched = [weakref.ref(each) for each in (x, y, part)]
        del x, y, part
        assert [ref() for ref in watched] == [None] * 3
        assert [ref() for ref in alive] == [None] * 2
    finally:
        gc.enable()


def test_reading_many_times_keeps_nothing() -> None:
    with recording_all():
        x = wrap(np.arange(6.0))
        part = x[2:]
        assert x._storage is not None
        before = sys.getrefcount(x._storage.node)
        for _ in range(5):
            gather(part + 1)
        after = sys.getrefcount(x._storage.node)
        assert after == before


def test_small_operands_that_broadcast_to_big_results_are_recorded() -> None:
    column = lf.arange(300.0)[:, None]
    big = column - lf.arange(300.0)
    assert big._eager is None
    assert big.shape == (300, 300)
    assert big[2, 1] == 1


def test_subclasses_and_unknown_operands() -> None:
    class Unwilling:
        __array_ufunc__ = None

        def __radd__(self, other: Any) -> str:
            return "mine"

    class Urgent:
        __array_priority__ = 1e6

        def __rmul__(self, other: Any) -> str:
            return "urgent"

    x = lf.arange(3.0)
    assert x + Unwilling() == "mine"
    assert x * Urgent() == "urgent"
    masked = x + np.ma.array([1.0, 2.0, 3.0], mask=[0, 1, 0])
    assert isinstance(masked, np.ma.MaskedArray)
