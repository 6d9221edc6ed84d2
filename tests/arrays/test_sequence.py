"""Arrays are sequences to C code, whether the record path is compiled or not."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy
import pytest

import lazyfuse as np


@pytest.mark.parametrize("size", [5, 40_000])
def test_an_array_is_a_sequence(size: int) -> None:
    check: Any = ctypes.pythonapi.PySequence_Check
    check.argtypes = [ctypes.py_object]
    item: Any = ctypes.pythonapi.PySequence_GetItem
    item.argtypes, item.restype = [ctypes.py_object, ctypes.c_ssize_t], ctypes.py_object
    x = np.arange(size)
    assert check(x)
    assert item(x, 2) == 2
    assert item(x, -1) == size - 1
    with pytest.raises(IndexError):
        item(x, size)


def test_numpy_takes_a_shape_and_strides_of_ours() -> None:
    shape: Any = np.array([2, 3])
    strides: Any = np.array([-16])
    assert numpy.ones(shape).shape == (2, 3)
    values = numpy.arange(6)
    backwards = numpy.ndarray(3, values.dtype, values, 40, strides)
    assert backwards.tolist() == [5, 3, 1]
