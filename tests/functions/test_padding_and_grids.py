"""`numpy.pad` followed step by step, dense grids in one pass, and new memory from the pool."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy
import pytest

import lazyfuse as np
from lazyfuse.runtime.placement import devices

MODES = ("constant", "edge", "reflect", "symmetric", "wrap", "linear_ramp", "maximum", "mean")
WIDTHS: tuple[Any, ...] = (2, (1, 3), ((0, 4), (2, 0)), 0)
with suppress(TypeError):  # NumPy takes them from 2.4 on
    numpy.pad([[1]], {0: 1})
    WIDTHS += ({0: 1},)


@pytest.fixture(autouse=True)
def all_recorded() -> Iterator[None]:
    with np.options(eager_below=0):
        yield


def _padded(xp: Any, values: Any, *args: Any) -> tuple[Any, Any, list[str]]:
    """The result of `pad` on something pending, its strides, and the warnings."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = numpy.asarray(xp.pad(xp.array(values) + xp.array(values), *args))
    return found, found.strides, [str(each.message) for each in told]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["f8", "u1", "?", "c16"])
def test_padding_is_numpys(mode: str, dtype: str) -> None:
    generator = numpy.random.default_rng(1)
    for width in WIDTHS:
        for values in (generator.normal(size=(5, 3)) * 9, generator.normal(size=(3, 4)).T):
            with numpy.errstate(all="ignore"):
                kept = values.astype(dtype)
            theirs, ours = (_padded(xp, kept, width, mode) for xp in (numpy, np))
            assert ours[0].dtype == theirs[0].dtype
            assert ours[1:] == theirs[1:]
            numpy.testing.assert_array_equal(ours[0], theirs[0])


def test_padding_is_recorded() -> None:
    x = np.ones((300, 300)) * 2.0
    padded = np.pad(x + 1.0, 1, "edge")
    assert padded._eager is None
    assert padded._node is None or padded._node.value is None
    assert float(padded.sum()) == 3.0 * 302 * 302


def test_a_wrong_mode_is_numpys_error() -> None:
    with pytest.raises(ValueError, match="mode 'round' is not supported"):
        np.pad(np.ones((3, 3)) + 1.0, 1, "round")


GRIDS: tuple[tuple[slice, ...], ...] = (
    (slice(0, 300), slice(0, 200)),
    (slice(-1, 1, 0.01), slice(0, 300)),
    (slice(None, 400), slice(9, -300, -1)),
    (slice(0, 40), slice(0, 41), slice(0, 42)),
    (slice(-1, 1, 300j), slice(0, 300)),
    (slice(0, 100000),),
    (slice(0, 0), slice(0, 100000)),
)


@pytest.mark.parametrize("key", GRIDS)
def test_grids_are_numpys(key: tuple[slice, ...]) -> None:
    ours, theirs = numpy.asarray(np.mgrid[key]), numpy.mgrid[key]
    assert ours.dtype == theirs.dtype
    numpy.testing.assert_array_equal(ours, theirs, strict=True)


def test_a_grid_that_goes_the_wrong_way_is_numpys_error() -> None:
    with pytest.raises(ValueError, match="negative dimensions"):
        np.mgrid[0:10000, 5:10000:-1]


@pytest.mark.parametrize("dtype", ["f8", "i4", "O", "U4"])
def test_large_new_memory_may_be_used_memory(dtype: str) -> None:
    first = np.empty((300, 300), dtype)
    like = np.empty_like(first)
    assert first.shape == like.shape == (300, 300)
    assert like.dtype == first.dtype == dtype
    first[...] = 0
    like[...] = 1
    assert not numpy.asarray(first == like).any()


def test_a_block_serves_what_is_a_little_smaller() -> None:
    pool = devices.cpu().buffers
    pool.clear()
    block = pool.empty((520, 512), numpy.dtype("f8"))
    place = block.__array_interface__["data"][0]
    del block
    other = pool.empty((512, 512), numpy.dtype("f8"))
    assert other.__array_interface__["data"][0] == place
    far = pool.empty((100, 100), numpy.dtype("f8"))
    assert not numpy.may_share_memory(other, far)
