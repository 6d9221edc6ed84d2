"""NumPy's arrays and others' in one expression with ours; memory handed over without a copy."""

from __future__ import annotations

import operator
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import lazyfuse
from lazyfuse.arrays.ndarray import ndarray
from tests.helpers.compare import MODES, mode

OPERATORS = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.floordiv,
    operator.mod,
    operator.pow,
    operator.lt,
    operator.eq,
    operator.matmul,
]


@pytest.fixture(params=[(20_000, MODES[0]), (6, MODES[0]), (6, MODES[1])], ids=str, autouse=True)
def size(request: pytest.FixtureRequest) -> Any:
    length, below = request.param
    with mode(below):
        yield length


def real(size: int) -> Any:
    return np.arange(1.0, size + 1)


@pytest.mark.parametrize("function", OPERATORS)
def test_numpys_arrays_on_either_side(function: Any, size: int) -> None:
    first, second = real(size) % 7 + 1, real(size) % 3 + 1
    wanted = function(first, second)
    left = function(lazyfuse.array(first), second)
    right = function(first, lazyfuse.array(second))
    for found in (left, right):
        assert type(found) is (ndarray if np.ndim(wanted) else type(found))
        np.testing.assert_array_equal(np.asarray(found), wanted)


def test_in_place_out_and_indices(size: int) -> None:
    theirs, ours = real(size), lazyfuse.array(real(size))
    theirs += ours
    assert type(theirs) in (np.ndarray, ndarray)
    np.testing.assert_array_equal(np.asarray(theirs), 2 * real(size))
    ours *= real(size)
    np.testing.assert_array_equal(np.asarray(ours), real(size) ** 2)
    target = np.empty(size)
    assert np.add(ours, 1, out=target) is target
    np.testing.assert_array_equal(target, real(size) ** 2 + 1)
    mask = real(size) > 3
    places = np.array([2, 0])
    assert np.asarray(ours[mask]).sum() == (real(size)[3:] ** 2).sum()
    assert np.asarray(real(size)[lazyfuse.array(places)]).tolist() == [3, 1]
    assert real(size)[lazyfuse.array(mask)].sum() == real(size)[3:].sum()
    ours[places] = real(2)
    ours[mask] = 0
    assert np.asarray(ours[:4]).tolist() == [2, 4, 1, 0]
    plain = real(size)
    plain[lazyfuse.array(mask)] = lazyfuse.zeros(size - 3)
    plain[:2] = lazyfuse.ones(2)
    assert plain[:4].tolist() == [1, 1, 3, 0]


class Prior:
    """A class that only has a priority."""

    __array_priority__ = 5

    def __radd__(self, other: Any) -> str:
        return "prior"

    __rmatmul__ = __rgt__ = __lt__ = __radd__


class Later(Prior):
    __array_priority__ = -5
    __array__ = None


class Refusing:
    """A class that wants nothing to do with ufuncs."""

    __array_ufunc__ = None

    def __radd__(self, other: Any) -> str:
        return "refusing"

    __rmatmul__ = __radd__


def test_priorities_and_refusals(size: int) -> None:
    x = lazyfuse.array(real(size))
    assert x.__array_priority__ == 0
    assert x + Prior() == "prior"
    assert x + Refusing() == "refusing"
    assert x @ Refusing() == "refusing"
    with pytest.raises(TypeError, match="does not support ufuncs"):
        lazyfuse.add(x, Refusing())


def test_dlpack_without_a_copy(size: int) -> None:
    x = lazyfuse.array(real(size)) * 2
    outside = np.from_dlpack(x)
    x[0] = 70
    outside = outside.view()
    assert outside[0] == 70
    owner = real(size)
    inside = lazyfuse.from_dlpack(owner)
    owner[1] = 80
    assert float(inside[1]) == 80
    assert np.shares_memory(np.asarray(inside), owner)
    copied = lazyfuse.from_dlpack(x, copy=True)
    x[0] = 1
    assert float(copied[0]) == 70
    assert not np.shares_memory(np.from_dlpack(x, copy=True), np.asarray(x))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_of_numpys_arrays_and_ours(protocol: int, size: int) -> None:
    x = lazyfuse.array(real(size))
    again = pickle.loads(pickle.dumps([x, real(size), x], protocol))
    assert [type(each) for each in again] == [ndarray, np.ndarray, ndarray]
    assert again[0] is again[2]
    np.testing.assert_array_equal(np.asarray(again[0]), again[1])


def test_out_of_band_pickles_share_the_memory(size: int) -> None:
    x = lazyfuse.array(real(size))
    buffers: list[pickle.PickleBuffer] = []
    text = pickle.dumps(x, 5, buffer_callback=buffers.append)
    assert len(text) < 600
    assert len(buffers) == 1
    again = pickle.loads(text, buffers=[bytearray(buffers[0].raw())])
    np.testing.assert_array_equal(np.asarray(again), real(size))
    again[0] = 3.0
    assert (float(again[0]), float(x[0])) == (3, 1)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="PEP 688 came with Python 3.12")
def test_buffers_are_declared(size: int) -> None:
    from collections.abc import Buffer  # type: ignore[attr-defined,unused-ignore]

    x = lazyfuse.array(real(size))
    assert isinstance(x, Buffer)
    assert memoryview(x).shape == (size,)


def test_a_plain_process_reads_what_was_sent_as_numpys(size: int) -> None:
    text = pickle.dumps(np.asarray(lazyfuse.array(real(size)) + 1))
    program = (
        "import pickle, sys\nx = pickle.load(sys.stdin.buffer)\n"
        "print(type(x).__module__, x.sum(), 'lazyfuse' in sys.modules)"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, input=text, capture_output=True, check=True)
    assert done.stdout.decode() == f"numpy {real(size).sum() + size} False\n"
