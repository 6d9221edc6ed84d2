"""Values on their way into NumPy and back: nested, once each, by the policy of the caller."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyfuse
from lazyfuse.arrays.conversion import (
    EXPORT,
    FOREIGN,
    Kept,
    from_numpy,
    to_numpy,
    wrap_maybe_shared,
)
from lazyfuse.arrays.ndarray import direct, ndarray
from tests.helpers.compare import MODES, both, mode


@pytest.fixture(params=MODES, ids=["default", "recorded"], autouse=True)
def _mode(request: pytest.FixtureRequest) -> Any:
    with mode(request.param):
        yield


def test_what_is_read_is_noted_and_what_is_exported_is_shared() -> None:
    x = lazyfuse.arange(4.0) + 1
    real = np.ones(2)
    kept: Kept = [], []
    found = to_numpy({"a": (x, [real, x.sum()])}, kept)
    assert [each is found["a"][0] or each is real for each in kept[0]] == [True, True]
    assert kept[1][0] is x
    assert kept[1][1] is None
    assert type(found["a"][1][1]) is np.float64
    given = to_numpy([x], EXPORT)[0]
    given[0] = 50
    assert x.tolist() == [50, 2, 3, 4]


def test_what_holds_nothing_of_ours_stays_the_object_that_it_is() -> None:
    for value in (
        [1, "a"],
        (None, 2.0),
        {"k": [1]},
        slice(1, None),
        [slice(1)] * 20,
        list(range(99)),
    ):
        assert to_numpy(value) is value
        assert to_numpy(value, EXPORT) is value
    circle: list[Any] = [1]
    circle.append(circle)
    assert to_numpy(circle) is circle
    circle[0] = lazyfuse.ones(1)
    assert type(to_numpy(circle)[0]) is np.ndarray


def test_classes_that_override_are_found_in_long_lists() -> None:
    class Overrides:
        def __array_function__(self, function: Any, types: Any, args: Any, named: Any) -> Any:
            return function.__name__, len(args[0])

    many = [Overrides()] * 20
    kept: Kept = [], []
    assert to_numpy(many, kept) is many
    assert all(each is FOREIGN for each in kept[1])
    assert lazyfuse.column_stack([Overrides()] * 20) == ("column_stack", 20)


def test_results_are_what_went_in_views_of_it_or_new() -> None:
    x = lazyfuse.arange(6.0) + 0
    y = lazyfuse.arange(6.0) * 2
    kept: Kept = [], []
    first, second = to_numpy((x, y), kept)
    same, view, new = from_numpy((second, first[2:], np.ones(3)), *kept)
    assert same is y
    view[0] = 70
    assert x.tolist() == [0, 1, 70, 3, 4, 5]
    assert type(new) is ndarray
    other = first[:3]
    assert from_numpy([second, other], [other, second], [None, y])[0] is y


def test_new_arrays_are_made_as_the_caller_says() -> None:
    memory = np.zeros(5)
    wrapped = from_numpy([memory[1:]], made=wrap_maybe_shared)[0]
    through = from_numpy({"a": (memory,)}, made=direct)["a"][0]
    memory[1] = 8
    assert wrapped[0] == 8
    through[4] = 9
    assert memory[4] == 9


def test_a_list_that_fills_booleans_is_its_truth() -> None:
    """`fill` takes one value: NumPy asks a list for its truth, and refuses it for numbers."""

    def filled(xp: Any, dtype: str, value: Any) -> Any:
        x = xp.zeros((200, 200), dtype)
        x.fill(value(xp))
        return x

    for dtype in ("?", "f8", "i4"):
        for value in (lambda xp: [], lambda xp: xp.array_split(xp.arange(400.0), 200),
                      lambda xp: 3, lambda xp: "1", lambda xp: float("nan")):  # fmt: skip
            both(lambda xp, dtype=dtype, value=value: filled(xp, dtype, value))


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.4.0", reason="NumPy 2.3 takes it")
@pytest.mark.parametrize("size", [3, 40_000])
def test_an_array_is_no_dtype(size: int) -> None:
    for call in (
        lambda xp, x: xp.dtype(x),
        lambda xp, x: xp.zeros(3, x),
        lambda xp, x: xp.finfo(x).eps,
        lambda xp, x: x.astype(x).dtype,
        lambda xp, x: xp.dtype(x.sum()),
    ):
        both(call, np.arange(size * 1.0))
    assert "__numpy_dtype__" not in dir(lazyfuse.arange(size))
