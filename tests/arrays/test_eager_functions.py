"""Functions on small arrays: what NumPy gives, in type, memory, identity, warnings and words."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf

A = np.array([[3.0, 1.0, 2.0], [0.5, -1.0, 7.0], [2.0, 2.0, 1.0]])
I = np.array([2, 0, 1])  # noqa: E741  # integers


def outcome(call: Callable[[Any], Any], xp: Any) -> tuple[Any, list[str]]:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            found = call(xp)
        except Exception as error:
            found = error
    return found, [f"{each.category.__name__}: {each.message}" for each in seen]


def same(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, Exception):
        assert (type(ours), str(ours)) == (type(theirs), str(theirs))
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs)
        assert isinstance(ours, list if isinstance(theirs, list) else tuple)
        for one, other in zip(ours, theirs, strict=True):
            same(one, other)
    elif isinstance(theirs, np.ndarray):
        assert type(ours) is lf.ndarray
        np.testing.assert_array_equal(ours.to_numpy(), theirs, strict=True)
        assert ours.strides == theirs.strides
    else:
        assert type(ours) is type(theirs)
        np.testing.assert_array_equal(ours, theirs)


CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "axis": lambda xp, a, i: [xp.sum(a, 0), xp.mean(a, axis=1), xp.max(a, axis=(0, 1))],
    "keepdims": lambda xp, a, i: [xp.std(a, axis=0, keepdims=True), xp.all(a, keepdims=True)],
    "dtype": lambda xp, a, i: [xp.sum(a, dtype="f4"), xp.cumsum(a, dtype=np.float32)],
    "ddof": lambda xp, a, i: [xp.var(a, ddof=1), xp.std(a, ddof=5)],
    "initial": lambda xp, a, i: [xp.sum(a, initial=2.0), xp.max(a, initial=9.0)],
    "where": lambda xp, a, i: [xp.sum(a, where=a > 1), xp.mean(a, where=a > 1)],
    "out": lambda xp, a, i: [xp.sum(a, 0, out=xp.zeros(3)), xp.clip(a, 0, 1, xp.zeros((3, 3)))],
    "wrong axis": lambda xp, a, i: xp.sum(a, axis=7),
    "wrong keyword": lambda xp, a, i: xp.where(a > 1, a, side=2),
    "too few": lambda xp, a, i: xp.swapaxes(a),
    "too many": lambda xp, a, i: xp.ravel(a, "C", 3),
    "wrong shape": lambda xp, a, i: xp.reshape(a, (2, 2)),
    "empty": lambda xp, a, i: [xp.mean(a[:0]), xp.sum(a[:0]), xp.nonzero(a[:0])],
    "empty maximum": lambda xp, a, i: xp.max(a[:0]),
    "bare": lambda xp, a, i: [xp.sum(xp.array(2.0)), xp.ravel(xp.array(3))],
    "objects": lambda xp, a, i: [xp.sum(a.astype(object)), xp.sort(i.astype(object))],
    "dates": lambda xp, a, i: [xp.sort(i.astype("M8[D]")), xp.diff(i.astype("M8[D]"))],
    "warned": lambda xp, a, i: [xp.mean(a[:0]), xp.average(a, 0)],
    "warned and refused": lambda xp, a, i: xp.mean(i[:0].astype("M8[D]")),
    "sequences": lambda xp, a, i: [xp.concatenate([a, a]), xp.stack((a, a), 1), xp.vstack([a, i])],
    "mixed": lambda xp, a, i: [xp.hstack((i, [7, 8])), xp.append(i, 1.5)],
    "nested": lambda xp, a, i: xp.stack([[i, i], [i, i]]),
    "joined badly": lambda xp, a, i: xp.concatenate([a, i]),
    "split": lambda xp, a, i: [xp.split(i, 3), xp.array_split(a, 2)],
    "masks": lambda xp, a, i: [xp.where(a > 1), xp.where(a > 1, a, 0.0), xp.nonzero(i)],
    "search": lambda xp, a, i: [xp.searchsorted(i, [1, 2]), xp.searchsorted([1, 2], i)],
    "take": lambda xp, a, i: [xp.take(a, i), xp.take(a, i, 0), xp.take([5, 6, 7], i)],
    "linear algebra": lambda xp, a, i: [xp.linalg.norm(a), xp.linalg.inv(a), xp.linalg.det(a)],
    "named results": lambda xp, a, i: [xp.linalg.eigh(a + a.T), xp.linalg.slogdet(a)],
    "singular": lambda xp, a, i: xp.linalg.inv(a * 0),
    "made": lambda xp, a, i: [xp.zeros(3), xp.ones((2, 1), "i4"), xp.full((2,), 7), xp.eye(2)],
    "made alike": lambda xp, a, i: [xp.zeros_like(a), xp.full_like(i, 7), xp.ones_like(a, int)],
    "made badly": lambda xp, a, i: xp.zeros(-1),
    "counted": lambda xp, a, i: [xp.arange(3), xp.arange(1.0, 3), xp.arange(0), xp.arange(3, 1)],
    "listed": lambda xp, a, i: [xp.array([1, 2.0]), xp.array([]), xp.array([True, 2])],
    "a lot from little": lambda xp, a, i: xp.tile(a, 9000).sum(axis=1),
    "asked": lambda xp, a, i: [xp.shape(a), xp.size(a), xp.ndim(a), xp.size(a, 1)],
    "flags": lambda xp, a, i: [xp.histogram(a), xp.unique(a, return_counts=True), xp.median(a)],
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_as_numpy(name: str) -> None:
    call = CALLS[name]
    for a, i in ((A, I), (np.asfortranarray(A), I.astype("u1")), (A.astype("f4"), I)):
        ours, told = outcome(lambda xp: call(xp, lf.array(a), lf.array(i)), lf)  # noqa: B023
        theirs, expected = outcome(lambda xp: call(xp, a.copy("K"), i.copy()), np)  # noqa: B023
        same(ours, theirs)
        assert told == expected


VIEWS: dict[str, Callable[[Any, Any], Any]] = {
    "transpose": lambda xp, a: xp.transpose(a),
    "swapaxes": lambda xp, a: xp.swapaxes(a, 0, 1),
    "ravel": lambda xp, a: xp.ravel(a),
    "reshape": lambda xp, a: xp.reshape(a, (9,)),
    "squeeze": lambda xp, a: xp.squeeze(a),
    "expand_dims": lambda xp, a: xp.expand_dims(a, 0),
    "flip": lambda xp, a: xp.flip(a),
    "diag": lambda xp, a: xp.diagonal(a),
    "broadcast_to": lambda xp, a: xp.broadcast_to(a, (2, 3, 3)),
    "split": lambda xp, a: xp.split(a, 3)[1],
    "real": lambda xp, a: xp.real(a),
    "atleast_2d": lambda xp, a: xp.atleast_2d(a),
    "moveaxis": lambda xp, a: xp.moveaxis(a, 0, 1),
    "copy": lambda xp, a: xp.copy(a),
    "sort": lambda xp, a: xp.sort(a),
    "roll": lambda xp, a: xp.roll(a, 1),
    "diff of nothing": lambda xp, a: xp.diff(a, n=0),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_and_copies(name: str) -> None:
    a, x = A.copy(), lf.array(A)
    theirs, ours = VIEWS[name](np, a), VIEWS[name](lf, x)
    assert (ours is x) == (theirs is a)
    assert np.shares_memory(ours.to_numpy(), x.to_numpy()) == np.shares_memory(theirs, a)
    if theirs.base is not None and np.shares_memory(theirs, a) and theirs is not a:
        assert ours.base is x
    assert ours.flags.writeable == theirs.flags.writeable
    a[1, 1] = x[1, 1] = 77.0
    np.testing.assert_array_equal(ours.to_numpy(), theirs)
    if theirs.flags.writeable:
        theirs[...] = 5.0
        ours[...] = 5.0
        np.testing.assert_array_equal(x.to_numpy(), a)


class Stubborn(np.ndarray[Any, Any]):
    """Has its own idea of a sum."""

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return f"{function.__name__} of a subclass"


def test_who_overrides_functions_is_asked() -> None:
    own = A.view(Stubborn)
    assert np.concatenate([own, A]) == "concatenate of a subclass"
    assert lf.concatenate([lf.array(A), own]) == "concatenate of a subclass"
    assert lf.where(lf.array(A) > 1, own, 0.0) == "where of a subclass"


def test_what_is_recorded_is_recorded() -> None:
    with lf.options(eager_below=0):
        x = lf.array([1.0, 2.0, 3.0])
        assert x._eager is None
        assert lf.zeros(3)._eager is None
        np.testing.assert_array_equal(lf.sort(x).to_numpy(), [1.0, 2.0, 3.0])
        np.testing.assert_array_equal(lf.concatenate([x, x]).to_numpy(), [1, 2, 3, 1, 2, 3])


LOOKS = """
import inspect
import numpy as np
import lazyfuse as lf
from lazyfuse.namespace import eager_table as table
from lazyfuse.registry import EAGER
names = {*table.BY_METHOD, *table.ARRAYS, *table.VIEWS, *table.BROADCAST, *table.CREATED}
assert len(EAGER) > 25
names |= {theirs.__name__ for theirs in EAGER}
for name in sorted(names):
    theirs, ours = getattr(np, name), getattr(lf, name)
    assert ours.__name__ == theirs.__name__
    assert ours.__doc__ == theirs.__doc__
    assert callable(inspect.unwrap(ours))
"""


def test_functions_look_like_numpys() -> None:
    # by itself: scipy.special writes another text into the documentation of numpy.sinc
    done = subprocess.run([sys.executable, "-c", LOOKS], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
