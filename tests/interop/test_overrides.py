"""Objects that override NumPy's functions, or that give our arrays from `__array__`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from tests.helpers.compare import MODES, mode


class Recorder:
    """Answers every function with what it was called with."""

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return function, args, kwargs


CALLS: dict[str, Any] = {
    "concatenate": lambda xp, x: xp.concatenate([x, xp.ones(2)]),
    "concatenate along": lambda xp, x: xp.concatenate([x], 1),
    "fft": lambda xp, x: xp.fft.fft(x),
    "fft along": lambda xp, x: xp.fft.fft(x, axis=2),
    "fft of a length": lambda xp, x: xp.fft.fft(x, 5),
    "where": lambda xp, x: xp.where(x),
    "where of three": lambda xp, x: xp.where(x, 1, 2),
    "sort": lambda xp, x: xp.sort(x),
    "stable sort": lambda xp, x: xp.sort(x, kind="stable"),
    "searchsorted": lambda xp, x: xp.searchsorted(x, 3, "right"),
    "interp": lambda xp, x: xp.interp(x, 1, 2),
    "array like": lambda xp, x: xp.array(1, like=x),
    "zeros like": lambda xp, x: xp.zeros(3, like=x),
    "full like": lambda xp, x: xp.full(3, 7, like=x),
    "ones like": lambda xp, x: xp.ones(3, dtype=int, like=x),
    "copyto": lambda xp, x: xp.copyto(x, 2),
    "masked copyto": lambda xp, x: xp.copyto(x, 2, where=False),
}


@pytest.mark.parametrize("name", CALLS)
def test_functions_are_overridden_as_they_were_called(name: str) -> None:
    x = Recorder()
    theirs, args, kwargs = CALLS[name](np, x)
    if name in ("concatenate", "array like", "zeros like") and not np.zeros.__text_signature__:
        pytest.skip("NumPy 2.3 tells no defaults of functions in C: whoever overrides sees them")
    ours, our_args, our_kwargs = CALLS[name](lf, x)
    assert ours in (theirs, lf.linalg.norm) or ours.__name__ == theirs.__name__
    assert len(our_args) == len(args)
    assert our_kwargs.keys() == kwargs.keys()
    for one, other in zip(our_args, args, strict=True):
        assert type(one) is type(other)
        assert isinstance(one, list) or one is other or one == other


def test_a_function_that_writes_is_ours_to_whom_it_asks() -> None:
    function, _args, _kwargs = lf.copyto(Recorder(), 2)
    assert function is lf.copyto
    assert lf.copyto(lf.zeros(3), 1) is None


class Holder:
    """An object whose `__array__` gives an array of ours."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return lf.asarray(self.value, dtype=dtype)


@pytest.mark.parametrize("eager_below", MODES)
def test_operators_take_objects_that_give_our_arrays(eager_below: int | None) -> None:
    with mode(eager_below):
        x = lf.ones(3)
        holder = Holder(lf.arange(3))
        for result, expected in (
            (x + holder, [1, 2, 3]),
            (x - holder, [1, 0, -1]),
            (holder + x, [1, 2, 3]),
            (x * holder, [0, 1, 2]),
            (x == holder, [False, True, False]),
        ):
            assert type(result) is lf.ndarray
            assert result.tolist() == expected


@pytest.mark.parametrize("eager_below", MODES)
def test_items_may_be_set_to_objects_that_give_our_arrays(eager_below: int | None) -> None:
    with mode(eager_below):
        x = lf.zeros(4)
        x[:] = Holder(lf.arange(4))
        assert x.tolist() == [0, 1, 2, 3]
        objects = lf.empty(1, dtype=object)
        for inner in (lf.array(0.0), lf.arange(4)):
            holder = Holder(inner)
            objects[:] = [holder]
            assert objects[0] is holder
        single = Holder(lf.array(1.0))
        assert lf.array([single], dtype=object)[0] is single
