"""Our own vectors of exp, log and tanh: accuracy, special values, conditions, the same anywhere."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse.devices.pools import object_code, own_math

pytestmark = pytest.mark.skipif(
    not own_math.serves("exp", 8, object_code.target()[1]), reason="no AVX-512"
)

ULPS = {"exp": 1.3, "log": 1.8, "tanh": 3.0}
RANGES = {
    "exp": ((-745.2, 709.8), (-745.2, -700.0), (709.0, 709.8), (-1.0, 1.0), (-1e-3, 1e-3)),
    "log": ((0.5, 2.0), (0.9, 1.1), (0.999, 1.001), (0.0, 1e308), (0.0, 1e-307)),
    "tanh": ((-25.0, 25.0), (-1.0, 1.0), (-0.1, 0.1), (-1e-3, 1e-3), (-1e-308, 1e-308)),
}
SPECIAL = [
    0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 5e-324, -5e-324, 2.3e-308, 1e308, -1e308,
    709.782712893384, 709.7827128933841, -745.1332191019411, -745.1332191019412, 1000.0, -1000.0,
    1e16, -1e16, 20.0, 19.9, 22.0, np.finfo("f8").max, np.finfo("f8").tiny, 2.0**1023, 2.0**-1022,
]  # fmt: skip


@pytest.fixture(autouse=True)
def compiled() -> Iterator[None]:
    """Functions of our own are the CPU's; other devices have their libraries'."""
    with lf.options(device="cpu", eager_below=0, compile_after=0, compile_ahead=False):
        yield


def ours(name: str, x: Any) -> Any:
    with lf.errstate(all="ignore"):
        return getattr(lf, name)(lf.asarray(x)).to_numpy()


@pytest.mark.parametrize("name", own_math.NAMES)
def test_errors_are_as_documented(name: str) -> None:
    if np.finfo(np.longdouble).nmant < 63:
        pytest.skip("no longer doubles to compare with")
    generator = np.random.default_rng(3)
    for low, high in RANGES[name]:
        x = generator.uniform(low, high, 200_000)
        with np.errstate(all="ignore"):
            exact = getattr(np, name)(x.astype(np.longdouble))
            unit = np.spacing(np.abs(exact.astype("f8"))).astype(np.longdouble)
            error = np.abs(ours(name, x).astype(np.longdouble) - exact) / unit
        assert np.nanmax(error) <= ULPS[name], (low, high, x[np.nanargmax(error)])


@pytest.mark.parametrize("name", own_math.NAMES)
def test_special_values(name: str) -> None:
    x = np.array(SPECIAL * 700)
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(x)
    found = ours(name, x)
    np.testing.assert_array_max_ulp(found, expected, 4)
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found[known]), np.signbit(expected[known]))
    if name != "tanh":  # 0 and 1 are met exactly
        assert ours("exp", np.zeros(9)).tolist() == [1.0] * 9
        assert ours("log", np.ones(9)).tolist() == [0.0] * 9


@pytest.mark.parametrize("value", [1.0, 710.0, -746.0, 0.0, -1.0, np.nan, np.inf, -np.inf, 1e-310])
@pytest.mark.parametrize("name", own_math.NAMES)
def test_conditions_are_told_as_numpy_tells_them(name: str, value: float) -> None:
    told = []
    for xp in (np, lf):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            np.asarray(getattr(xp, name)(xp.asarray(np.full(20_000, value))))
        told.append(sorted(str(each.message) for each in seen))
    assert told[0] == told[1]


@pytest.mark.parametrize("name", own_math.NAMES)
def test_a_result_depends_on_its_argument_alone(name: str) -> None:
    x = np.random.default_rng(4).uniform(0.01, 30.0, 70_001)
    whole = ours(name, x)
    np.testing.assert_array_equal(ours(name, x[::-1].copy())[::-1], whole)
    np.testing.assert_array_equal(ours(name, x[5:]), whole[5:])
    np.testing.assert_array_equal(ours(name, x[:3]), whole[:3])
    with lf.options(threads=1):
        np.testing.assert_array_equal(ours(name, x), whole)
    with lf.errstate(all="ignore"):  # among other operations, strided
        y = lf.asarray(np.repeat(x, 2))
        np.testing.assert_array_equal((getattr(lf, name)(y[::2]) * 2.0).to_numpy(), whole * 2.0)


def test_only_doubles_on_machines_with_the_instructions() -> None:
    assert not own_math.serves("exp", 4, "+avx512f,+avx512dq")
    assert not own_math.serves("exp", 8, "+avx512f,+avx2")
    assert not own_math.serves("sin", 8, "+avx512f,+avx512dq")
