"""How others see our arrays: NumPy's protocols, pickles, copies, buffers, classes, duck arrays."""

from __future__ import annotations

import array as arrays
import copy
import ctypes
import hashlib
import pickle
import tracemalloc
from typing import Any

import numpy as np
import pytest

import lazyfuse
from lazyfuse.arrays.ndarray import ndarray
from lazyfuse.arrays.scalars import scalar
from tests.helpers.compare import MODES, both, mode


@pytest.fixture(params=MODES, ids=["default", "recorded"], autouse=True)
def _mode(request: pytest.FixtureRequest) -> Any:
    with mode(request.param):
        yield


def pending(size: int = 6) -> Any:
    return lazyfuse.arange(float(size)) + 1


# ------------------------------------------------------------------------------ __array__


def test_asarray_shares_memory() -> None:
    x = pending()
    outside = np.asarray(x)
    assert type(outside) is np.ndarray
    later = x * 2
    outside[0] = 50
    assert (float(x[0]), float(later[0])) == (50, 2)
    x[1] = 60
    assert outside[1] == 60
    back = lazyfuse.asarray(outside)
    outside[2] = 70
    assert float(back[2]) == float(x[2]) == 70


@pytest.mark.parametrize("dtype", ["?", "i2", "f2", "f8", "c8", "U3", "S2", "M8[D]", "O", "i4,f8"])
def test_asarray_keeps_dtypes(dtype: str) -> None:
    theirs = np.zeros(3, dtype)
    outside = np.asarray(lazyfuse.array(theirs))
    assert outside.dtype == theirs.dtype
    assert outside.tolist() == theirs.tolist()


def test_array_method() -> None:
    x = pending()
    assert x.__array__().dtype == "f8"
    assert x.__array__("f4").dtype == "f4"
    assert not np.shares_memory(x.__array__(copy=True), x.__array__())
    assert np.array(x, copy=None).tolist() == [1, 2, 3, 4, 5, 6]
    assert np.array([x, x]).shape == (2, 6)
    assert np.array([x.sum(), 1]).tolist() == [21, 1]


def test_array_interface_and_buffer() -> None:
    x = pending()
    interface = x.__array_interface__
    assert (interface["shape"], interface["typestr"]) == ((6,), "<f8")
    view = memoryview(x)
    assert (view.shape, view.format, view.tolist()) == ((6,), "d", [1, 2, 3, 4, 5, 6])
    assert bytes(x) == np.arange(1.0, 7.0).tobytes()
    assert hashlib.sha256(x).digest() == hashlib.sha256(bytes(x)).digest()
    assert arrays.array("d", bytes(x)).tolist() == view.tolist()
    view[0] = 9
    assert float(x[0]) == 9
    pointer = x.ctypes.data_as(ctypes.POINTER(ctypes.c_double))
    assert pointer[0] == 9


def test_dlpack() -> None:
    x = pending()
    assert x.__dlpack_device__() == np.zeros(1).__dlpack_device__()
    outside = np.from_dlpack(x)
    assert outside.tolist() == x.tolist()
    inside = lazyfuse.from_dlpack(np.arange(3.0))
    assert type(inside) is ndarray
    both(lambda xp: xp.from_dlpack(xp.arange(3)) + 1)
    both(lambda xp: xp.arange(3).__dlpack__(stream=1))


def test_array_namespace() -> None:
    x = pending()
    assert x.__array_namespace__() is lazyfuse
    assert x.__array_namespace__(api_version="2023.12") is lazyfuse
    both(lambda xp: xp.ones(1).__array_namespace__(api_version="1066"))
    assert lazyfuse.__array_api_version__ >= np.__array_api_version__
    both(lambda xp: xp.__array_namespace_info__().default_dtypes()["real floating"].str)
    assert x.to_device("cpu") is x
    both(lambda xp: xp.ones(1).to_device("gpu"))


# ------------------------------------------------------------------------------ pickles, copies


def test_buffers_of_a_pickle_are_the_memory_itself() -> None:
    with mode(0):
        x = lazyfuse.arange(5.0) * 2
        buffers: list[pickle.PickleBuffer] = []
        text = pickle.dumps(x, protocol=5, buffer_callback=buffers.append)
        again = pickle.loads(text, buffers=buffers)
        x[1] = -1
        assert again[1] == -1


def test_only_memory_of_its_own_is_owned() -> None:
    with mode(0):
        for x in (lazyfuse.arange(3.0), lazyfuse.array(2), lazyfuse.ones((1, 1))):
            assert x.flags.owndata
            assert x.copy().flags.owndata
            again = lazyfuse.asarray(memoryview(x))
            assert not again.flags.owndata
            assert not again.flags["OWNDATA"]


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickles(protocol: int) -> None:
    for x in (pending(), pending().reshape(2, 3).T, lazyfuse.array(["a", None], dtype=object)):
        again = pickle.loads(pickle.dumps(x, protocol))
        assert type(again) is ndarray
        assert (again.dtype, again.shape) == (x.dtype, x.shape)
        assert again.tolist() == x.tolist()
    number = pickle.loads(pickle.dumps(pending().sum(), protocol))
    assert type(number) is np.float64


@pytest.mark.parametrize("take", [np.asarray, memoryview, lambda x: x.to_numpy()])
def test_handing_out_copies_nothing(take: Any) -> None:
    size = 2_000_000
    start = lazyfuse.arange(float(size))
    for _ in range(3):  # a program, and a buffer that comes back to its pool
        take(start + 1)
    tracemalloc.start()
    try:
        handed = take(start + 1)
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(handed) == size
    assert taken < 8 * size / 2


def test_copies() -> None:
    x = pending()
    for again in (copy.copy(x), copy.deepcopy(x), x.copy(), lazyfuse.copy(x)):
        again[0] = 100
        assert float(x[0]) == 1
    assert copy.deepcopy([x, x])[0].tolist() == x.tolist()


def test_states_restore() -> None:
    x = lazyfuse.zeros(3)
    x.__setstate__((1, (2,), np.dtype("i4"), False, np.array([7, 8], "i4").tobytes()))
    assert x.tolist() == [7, 8]


# ------------------------------------------------------------------------------ classes


def test_instances() -> None:
    assert isinstance(pending(), lazyfuse.ndarray)
    assert not isinstance(pending(), np.ndarray)  # compiled code would take it at its word
    assert type(pending()) is ndarray
    assert type(pending().view(pending().__class__)) is ndarray
    assert isinstance(np.ones(2), lazyfuse.ndarray)
    assert not isinstance(pending().sum(), lazyfuse.ndarray)
    assert not isinstance([1], lazyfuse.ndarray)
    assert issubclass(np.ndarray, lazyfuse.ndarray)
    assert issubclass(lazyfuse.ndarray, lazyfuse.ndarray)
    assert not issubclass(int, lazyfuse.ndarray)
    total = lazyfuse.ones(1 << 16).sum()
    assert isinstance(total, float)
    assert type(total) is np.float64
    with lazyfuse.options(lazy_numbers=True):
        total = lazyfuse.ones(1 << 16).sum()
    assert isinstance(total, float)
    assert isinstance(total, np.float64)
    assert type(total) is scalar


class Signal(lazyfuse.ndarray):  # type: ignore[misc]
    """A subclass as NumPy's documentation teaches it."""

    rate: int | None

    def __new__(cls, values: Any, rate: int | None = None) -> Any:
        made = lazyfuse.asarray(values).view(cls)
        made.rate = rate
        return made

    def __array_finalize__(self, parent: Any) -> None:
        self.rate = getattr(parent, "rate", None)


def test_subclasses_are_numpys() -> None:
    signal = Signal([1.0, 2.0, 3.0], 44)
    assert isinstance(signal, np.ndarray)
    assert isinstance(signal, lazyfuse.ndarray)
    for derived in (signal + 1, signal[1:], lazyfuse.sin(signal), lazyfuse.ones(3) * signal,
                    signal.copy(), lazyfuse.sort(signal), signal.reshape(1, 3)):  # fmt: skip
        assert type(derived) is Signal
        assert derived.rate == 44
    assert type(signal.view(lazyfuse.ndarray)) is ndarray
    assert type(lazyfuse.asarray(signal)) is ndarray
    assert lazyfuse.asanyarray(signal) is signal
    assert type(lazyfuse.zeros_like(signal)) is Signal
    assert pickle.loads(pickle.dumps(signal)).tolist() == [1, 2, 3]


class Logged(lazyfuse.ndarray):  # type: ignore[misc]
    """A subclass with an `__array_ufunc__` of its own."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        plain = [x.view(lazyfuse.ndarray) if isinstance(x, Logged) else x for x in inputs]
        result = super().__array_ufunc__(ufunc, method, *plain, **kwargs)
        return ufunc, lazyfuse.asarray(result)


def test_subclasses_that_override_ufuncs() -> None:
    logged = lazyfuse.array([1.0, 4.0]).view(Logged)
    ufunc, result = lazyfuse.sqrt(logged)
    assert ufunc is lazyfuse.sqrt
    assert result.tolist() == [1, 2]
    ufunc, result = lazyfuse.ones(2) + logged
    assert ufunc == np.add
    assert result.tolist() == [2, 5]


# ------------------------------------------------------------------------------ NEP 18


HANDLED: dict[Any, Any] = {}


class Duck:
    """An array-like that implements NumPy's functions, registered by our names."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return HANDLED[func](*args, **kwargs) if func in HANDLED else NotImplemented


HANDLED[lazyfuse.sum] = lambda a, axis=None: ("sum", a.value, axis)
HANDLED[lazyfuse.concatenate] = lambda parts, axis=0: ("concatenate", len(parts))
HANDLED[lazyfuse.zeros] = lambda *args, **kwargs: "zeros"
HANDLED[lazyfuse.linalg.norm] = lambda a: "norm"


def test_duck_arrays() -> None:
    duck = Duck(3)
    assert lazyfuse.sum(duck, axis=1) == ("sum", 3, 1)
    assert lazyfuse.concatenate([pending(), duck]) == ("concatenate", 2)
    assert lazyfuse.linalg.norm(duck) == "norm"
    assert lazyfuse.zeros(3, like=duck) == "zeros"
    assert type(lazyfuse.zeros(3, like=pending())) is ndarray
    with pytest.raises(TypeError, match=r"no implementation found for 'numpy\.mean'"):
        lazyfuse.mean(duck)


def test_numpy_functions_come_to_ours() -> None:
    x = pending()
    for result in (np.sum(x.reshape(2, 3), axis=1), np.concatenate([x, x]), np.where(x > 2, x, 0),
                   np.sort(x), np.fft.fft(x), np.add(x, 1), np.multiply.outer(x, x)):  # fmt: skip
        assert type(result) is ndarray
    out = np.zeros(6)
    assert np.add(x, 1, out=out) is out
    assert out.tolist() == [2, 3, 4, 5, 6, 7]
    target = lazyfuse.zeros(6)
    assert np.add(np.ones(6), 1, out=target) is target
    assert target.tolist() == [2] * 6
    assert np.result_type(x, np.float32(1)) == "f8"
    mixed = np.ones(6) + x
    assert type(mixed) is ndarray
    inplace = np.ones(6)
    inplace += x
    assert type(inplace) is np.ndarray
    assert inplace.tolist() == [2, 3, 4, 5, 6, 7]


def test_masked_arrays_and_matrices() -> None:
    both(lambda xp, x: (xp.ma.array(x, mask=[0, 1, 0]) + x).tolist(), np.arange(3.0))
    both(lambda xp, x: (x + xp.ma.array(x, mask=[0, 1, 0])).tolist(), np.arange(3.0))
    both(lambda xp, x: xp.ma.masked_where(x > 1, x).mean(), np.arange(3.0))


def test_nditer_and_broadcast() -> None:
    def call(xp: Any, x: Any) -> Any:
        with xp.nditer(x, op_flags=["readwrite"]) as iterator:
            for element in iterator:
                element[...] = 2 * element
        pairs = xp.broadcast(x, xp.ones((2, 1)))
        return x, pairs.shape, pairs.size, [float(a * b) for a, b in pairs]

    both(call, np.arange(3.0))
