"""`convolve` and `correlate` with a few known weights: NumPy's bits, at the ends too."""

from __future__ import annotations

import numpy
import pytest

import lazyfuse
from lazyfuse import config
from tests.campaign import TIMEOUT, rounds

pytestmark = TIMEOUT


@rounds(120)
@pytest.mark.parametrize("name", ["convolve", "correlate"])
def test_rows_with_few_weights(name: str, seeds: range) -> None:
    for seed in seeds:
        draw = numpy.random.default_rng(seed)
        dtype = draw.choice(["f8", "f8", "f4", "i8", "i4", "u1", "i2"])
        row = (draw.normal(size=draw.integers(3, 60)) * 100).astype(dtype)
        row[draw.integers(0, len(row), 3)] *= 0
        if dtype[0] == "f":
            row[draw.integers(0, len(row), 2)] = draw.choice([numpy.nan, -0.0, numpy.inf], 2)
        weights = (draw.normal(size=draw.integers(1, 13)) * 9).astype(draw.choice([dtype, "f8"]))
        given = weights.tolist() if seed % 2 else weights
        modes = [{}, {"mode": "full"}, {"mode": "same"}, {"mode": "valid"}]
        for mode in modes:
            with config.options(eager_below=0, plan_after=0), numpy.errstate(all="ignore"):
                wanted = getattr(numpy, name)(row, given, **mode)
                x = lazyfuse.array(row) + row.dtype.type(0)
                found = numpy.asarray(getattr(lazyfuse, name)(x, given, **mode))
            what = (seed, dtype, len(row), given, mode)
            assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), what
            numpy.testing.assert_array_equal(found, wanted, err_msg=str(what))
            numbers = wanted == wanted
            assert (numpy.signbit(found) == numpy.signbit(wanted))[numbers].all(), what


@pytest.mark.usefixtures("on_cpu")
def test_the_middle_is_one_kernel() -> None:
    x = lazyfuse.array(numpy.arange(90_000.0))
    told = lazyfuse.explain(lazyfuse.convolve(x * 0.5, [1.0, 2.0, 1.0], "valid") * 3.0)
    assert len(told.kernels) == 1
    assert not told.alone


def test_nothing_is_told_as_numpy_tells_nothing() -> None:
    """Infinities and overflows of a convolution are silent in NumPy; here a warning is an error."""
    row = numpy.linspace(0.0, 1.0, 50_000)
    row[[5, 9]] = numpy.inf, 1e308
    found = lazyfuse.convolve(lazyfuse.array(row) * 1.0, [10.0, -1.0, 1.0])
    numpy.testing.assert_array_equal(found, numpy.convolve(row, [10.0, -1.0, 1.0]))
