"""Ufuncs: every one of NumPy's on sampled operands, keywords, methods, overrides, errors."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import lazyfuse
from lazyfuse import config
from lazyfuse.arrays.ndarray import ndarray
from lazyfuse.codegen.table.ops import BY_UFUNC
from tests.helpers.compare import both

UFUNCS = sorted({name for name in dir(np) if isinstance(getattr(np, name), np.ufunc)})
DTYPES = ("?", "i1", "u1", "i4", "u8", "i8", "f2", "f4", "f8", "c8", "c16")
SLOPPY = 64  # units in the last place that vector math and products may differ by here


def sample(dtype: str, seed: int, shape: tuple[int, ...] = (3, 4)) -> Any:
    """Small positive and negative numbers with no zeros, so that most domains are met."""
    random = np.random.default_rng(seed)
    values = random.integers(1, 6, shape).astype(float) + (0.25 if dtype[0] in "fc" else 0)
    if dtype[0] in "ifc" and seed % 2:
        values[0] *= -1
    return values.astype(dtype) if dtype != "?" else values % 2 > 0.5


def ulps_of(name: str) -> int:
    row = BY_UFUNC.get(getattr(np, name))
    exact = row is None or all(kind in row.exact for kind in "fc")
    return 0 if exact else SLOPPY


@pytest.mark.smoke
@pytest.mark.parametrize("name", UFUNCS)
def test_every_ufunc(name: str) -> None:
    nin = getattr(np, name).nin
    for dtype in DTYPES:
        operands = [sample(dtype, seed) for seed in range(nin)]
        if "mat" in name or "vec" in name:
            operands = [sample(dtype, seed, (4, 4)) for seed in range(nin)]
        both(lambda xp, *x: getattr(xp, name)(*x), *operands, ulps=ulps_of(name), warned=False)


@pytest.mark.parametrize("name", ["add", "divide", "power", "less", "maximum", "logical_and"])
def test_mixed_operands(name: str) -> None:
    a, b = sample("f8", 0), sample("i4", 1)
    both(lambda xp, x, y: getattr(xp, name)(x, y), a, b, ulps=SLOPPY, warned=False)
    both(lambda xp, x: getattr(xp, name)(x, 2), a, ulps=SLOPPY)
    both(lambda xp, x: getattr(xp, name)(2.5, x), b, ulps=SLOPPY, warned=False)
    both(lambda xp, x: getattr(xp, name)(x, np.float32(3)), b, ulps=SLOPPY, warned=False)
    both(lambda xp, x: getattr(xp, name)(x, [1, 2, 3, 4]), a, ulps=SLOPPY, warned=False)
    both(lambda xp, x: getattr(xp, name)(x[:, :1], x[:1]), a, ulps=SLOPPY, warned=False)
    both(lambda xp, x: getattr(xp, name)(x.T, x[::-1].T), a, ulps=SLOPPY, warned=False)


KEYWORDS: list[dict[str, Any]] = [
    {"dtype": "f4"},
    {"dtype": float},
    {"casting": "unsafe"},
    {"casting": "no"},
    {"order": "F"},
    {"subok": False},
    {"signature": "ff->f"},
    {"sig": "dd->d"},
    {"dtype": "i4"},
    {"signature": ("d", None, None)},
    {"where": True},
    {"where": np.bool_(True)},
    {"nonsense": 1},
    {"out": None},
]


@pytest.mark.parametrize("kwargs", KEYWORDS, ids=str)
def test_keywords(kwargs: dict[str, Any]) -> None:
    both(lambda xp, x, y: xp.add(x, y, **kwargs), sample("f4", 0), sample("f4", 1))
    both(lambda xp, x, y: xp.multiply(x, y, **kwargs), sample("i8", 0), sample("f8", 1))


@pytest.mark.parametrize("target", ["f8", "f4", "i8", "c16", "?", "U3", "O"])
@pytest.mark.parametrize("casting", ["same_kind", "unsafe", "no"])
def test_out(target: str, casting: str) -> None:
    def call(xp: Any, x: Any, y: Any) -> Any:
        out = xp.zeros((3, 4), target)
        result = xp.add(x, y, out=out, casting=casting)
        assert result is out
        return out, xp.add(x, y, out) is out if target == "f8" else None

    both(call, sample("f8", 0), sample("f8", 1), warned=False)


def test_out_in_the_wrong_shape_or_kind() -> None:
    both(lambda xp, x: xp.add(x, x, out=xp.zeros((3, 5))), sample("f8", 0))
    both(lambda xp, x: xp.add(x, x, out=xp.zeros((2, 3, 4))), sample("f8", 0))
    both(lambda xp, x: xp.add(x, x, out="no"), sample("f8", 0))
    both(lambda xp, x: xp.add(x, x, out=(xp.zeros((3, 4)), None)), sample("f8", 0))
    both(lambda xp, x: xp.add(x, x, xp.zeros((3, 4)), out=x), sample("f8", 0))
    both(lambda xp, x: xp.divide(x, x, out=x), sample("i8", 0))


def test_where_and_out() -> None:
    def call(xp: Any, x: Any, y: Any) -> Any:
        return xp.divide(x, y, out=xp.full((3, 4), -1.0), where=y > 2)

    both(call, sample("f8", 0), sample("f8", 1))


def test_out_overlaps_an_operand() -> None:
    def call(xp: Any, x: Any) -> Any:
        xp.add(x[:, :-1], 1, out=x[:, 1:])
        return x, xp.multiply(x, x, out=x)

    both(call, sample("f8", 0))


def test_out_is_a_numpy_array() -> None:
    target = np.zeros((3, 4))
    x = lazyfuse.array(sample("f8", 0))
    with config.options(eager_below=0):
        result = lazyfuse.add(x, 1.0, out=target)
        assert isinstance(result, np.ndarray | ndarray)
        np.testing.assert_array_equal(target, sample("f8", 0) + 1)


@pytest.mark.parametrize("name", ["divmod", "modf", "frexp"])
def test_two_results(name: str) -> None:
    def call(xp: Any, x: Any) -> Any:
        function = getattr(xp, name)
        operands = (x, 2) if function.nin == 2 else (x,)
        first = function(*operands)
        assert type(first) is tuple
        out = xp.zeros((3, 4))
        return first, function(*operands, out=(out, None)), out

    both(call, sample("f8", 1))


@pytest.mark.parametrize("axis", [0, 1, -1, None, (0, 1), (), 2, 1.5])
@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "logical_or", "subtract"])
def test_reduce(name: str, axis: Any) -> None:
    a = sample("f8", 1)
    both(lambda xp, x: getattr(xp, name).reduce(x, axis), a)
    both(lambda xp, x: getattr(xp, name).reduce(x, axis=axis, keepdims=True), a)
    both(lambda xp, x: getattr(xp, name).reduce(x, axis, initial=3), a)
    both(lambda xp, x: getattr(xp, name).reduce(x, axis, dtype="f4"), a)
    both(lambda xp, x: getattr(xp, name).reduce(x, axis, out=xp.zeros(4)), a)


def test_reduce_without_axis() -> None:
    both(lambda xp, x: xp.add.reduce(x), sample("i4", 1))
    both(lambda xp, x: xp.add.reduce(x, where=x > 0), sample("i4", 1))
    both(lambda xp, x: xp.sin.reduce(x), sample("f8", 1))


def test_other_methods() -> None:
    a = sample("f8", 1)
    both(lambda xp, x: xp.add.accumulate(x, axis=1), a)
    both(lambda xp, x: xp.multiply.accumulate(x, 0, None, xp.zeros((3, 4))), a)
    both(lambda xp, x: xp.add.reduceat(x, [0, 2, 1], axis=1), a)
    both(lambda xp, x: xp.multiply.outer(x, x[0]), a)
    both(lambda xp, x: xp.subtract.outer([1, 2], x), a)
    both(lambda xp, x: xp.add.outer(x, 2), a)


def test_at() -> None:
    def call(xp: Any, x: Any) -> Any:
        view = x[1]
        assert xp.add.at(x, ([0, 1, 1], [2, 0, 0]), 10.0) is None
        xp.negative.at(view, xp.array([3, 3]))
        return x, view

    both(call, sample("f8", 1))


def test_attributes() -> None:
    for name in UFUNCS:
        ours, theirs = getattr(lazyfuse, name), getattr(np, name)
        assert isinstance(ours, lazyfuse.ufunc)
        assert repr(ours) == repr(theirs)
        for attribute in ("nin", "nout", "nargs", "ntypes", "types", "identity", "signature"):
            assert getattr(ours, attribute) == getattr(theirs, attribute)
        assert (ours.__name__, ours.__doc__) == (theirs.__name__, theirs.__doc__)
        assert ours == theirs
        assert hash(ours) == hash(theirs)
        assert pickle.loads(pickle.dumps(ours)) is ours
        assert copy.deepcopy(ours) is copy.copy(ours) is ours
    assert lazyfuse.abs is lazyfuse.absolute
    assert (
        lazyfuse.add.resolve_dtypes((np.dtype("i4"), np.dtype("f4"), None)) == (np.dtype("f8"),) * 3
    )


def test_results_are_ours() -> None:
    assert type(lazyfuse.add(np.ones(3), [1, 2, 3])) is ndarray
    assert type(lazyfuse.sin(1.0)) is np.float64
    assert type(lazyfuse.add(lazyfuse.array(1.0), 1)) is np.float64


def test_recorded_and_not_evaluated() -> None:
    x = lazyfuse.ones(1 << 16)
    for name in ("sin", "negative", "isnan", "sqrt"):
        result = getattr(lazyfuse, name)(x)
        assert result._node.value is None
    for result in (*lazyfuse.divmod(x, 2), lazyfuse.add(x, x, dtype="f4")):
        assert result._node.value is None
    out = lazyfuse.empty(1 << 16)
    assert lazyfuse.multiply(x, 3.0, out=out) is out
    assert out._node.value is None
    assert float(out[5]) == 3.0
    column, row = lazyfuse.ones((300, 1)), lazyfuse.ones((1, 300))
    assert lazyfuse.add(column, row)._node.value is None  # small operands, a big result


def test_made_by_frompyfunc_and_vectorize() -> None:
    def call(xp: Any, x: Any) -> Any:
        double = xp.frompyfunc(lambda value: value * 2, 1, 1)
        assert isinstance(double, xp.ufunc)
        clipped = xp.vectorize(lambda value, low: max(value, low))
        return double(x).astype(float), clipped(x, 0.0)

    both(call, sample("f8", 1))


def test_user_errors_keep_their_text() -> None:
    a = sample("f8", 0)
    both(lambda xp, x: xp.add(x), a)
    both(lambda xp, x: xp.add(x, x, x, x), a)
    both(lambda xp, x: xp.add(x, xp.zeros((2, 2))), a)
    both(lambda xp, x: xp.bitwise_and(x, x), a)
    both(lambda xp, x: xp.sin(xp.array(["a"])), a)
    both(lambda xp, x: xp.add(x, None), a)
    both(lambda xp, x: xp.power(x.astype(int), -1), a)
    both(lambda xp, x: xp.add(x.astype("u1"), 300), a)
    both(lambda xp, x: xp.less(x.astype("u1"), 300), a)


class Measure:
    """An array-like that overrides ufuncs."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return ufunc, method, inputs, kwargs


def test_overrides_get_our_objects() -> None:
    x, measure = lazyfuse.ones(3), Measure()
    ufunc, method, inputs, kwargs = lazyfuse.add(x, measure, dtype=float)
    assert ufunc is lazyfuse.add
    assert (method, kwargs) == ("__call__", {"dtype": float})
    assert inputs[0] is x
    ufunc, method, inputs, kwargs = lazyfuse.add.reduce(measure, 1, None, x)
    assert ufunc is lazyfuse.add
    assert (method, inputs, kwargs["axis"], kwargs["out"]) == ("reduce", (measure,), 1, (x,))
    assert (x + measure)[0] == np.add


def test_overrides_that_refuse() -> None:
    class Refuses:
        def __array_ufunc__(self, *args: Any, **kwargs: Any) -> Any:
            return NotImplemented

        def __repr__(self) -> str:
            return "Refuses()"

    class Closed:
        __array_ufunc__ = None

    both(lambda xp, x: xp.add(x, Refuses(), out=x), np.ones(2))
    both(lambda xp, x: xp.add(x, Closed()), np.ones(2))
