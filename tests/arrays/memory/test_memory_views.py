"""Conversions whose rule looks at the values; views of parts of elements; mapped files."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import lazyfuse as lf
from tests.helpers.compare import MODES, mode


def knows_same_value() -> bool:
    """NumPy has this rule of casting from 2.4 on."""
    try:
        np.ones(1).astype("i1", casting="same_value")
    except ValueError:
        return False
    return True


@pytest.mark.skipif(not knows_same_value(), reason="this NumPy has no such rule")
@pytest.mark.parametrize("eager_below", MODES)
@pytest.mark.parametrize("value", [1.5, float("nan"), 300.0])
def test_same_value_refuses_what_changes(value: float, eager_below: int | None) -> None:
    with mode(eager_below):
        x = lf.full(5, value)
        with pytest.raises(ValueError, match="same_value"):
            x.astype("i1", casting="same_value")
        assert lf.full(5, 3.0).astype("i1", casting="same_value").tolist() == [3] * 5


@pytest.mark.parametrize("eager_below", MODES)
@pytest.mark.parametrize("size", [8, 40000])
def test_strides_that_are_no_whole_elements(size: int, eager_below: int | None) -> None:
    with mode(eager_below):
        ours, theirs = lf.arange(size) + 1.0, np.arange(size) + 1.0
        before, expected_before = ours + 1, theirs + 1
        view = lf.lib.stride_tricks.as_strided(ours, (size - 4,), (4,))
        expected = as_strided(theirs, (size - 4,), (4,))
        assert view.strides == (4,)
        assert np.array_equal(view, expected)
        view[1] = 3.0
        expected[1] = 3.0
        assert np.array_equal(ours, theirs)
        ours[0] = 9.0
        theirs[0] = 9.0
        view[:2] = view[1:3]
        expected[:2] = expected[1:3]
        assert np.array_equal(view, expected)
        assert np.array_equal(ours, theirs)
        assert np.array_equal(before, expected_before)


def test_mapped_files(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    lf.save(path, lf.arange(30000.0))
    mapped = lf.load(path, mmap_mode="r+")
    mapped[3] = -1
    mapped.flush()
    assert isinstance(mapped, lf.memmap)
    read = lf.load(path, mmap_mode="r")
    assert type(read) is lf.ndarray
    assert read[:4].tolist() == [0, 1, 2, -1]
    assert lf.asarray(mapped).base is mapped


@pytest.mark.parametrize("eager_below", MODES)
def test_rules_that_numpy_refuses(eager_below: int | None) -> None:
    with mode(eager_below):
        x = lf.arange(10)
        with pytest.raises(ValueError, match="_CopyMode"):
            x.astype(float, copy=np._CopyMode.NEVER)
        with pytest.raises(TypeError, match="equiv"):
            lf.copyto(lf.arange(3, dtype="u1"), 3, casting="equiv")
        lf.copyto(x, 3, casting="equiv")
        assert x.tolist() == [3] * 10


@pytest.mark.parametrize("eager_below", [0, 32768])
def test_strides_reach_no_further_than_the_memory(eager_below: int) -> None:
    with lf.options(eager_below=eager_below):
        x = lf.lib.stride_tricks.as_strided(lf.arange(100_000), (10, 10), (0, 0))
        y = np.asarray(lf.arange(100_000) + 1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            for array, strides in ((x, (1 << 30, 1 << 20)), (y, (1 << 30,))):
                with pytest.raises(ValueError, match="not compatible with available memory"):
                    array.strides = strides
