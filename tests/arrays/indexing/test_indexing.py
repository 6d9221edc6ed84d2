"""Reads and writes with every kind of key, in every state, against NumPy."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse.arrays.ndarray import gather, node_of, wrap
from lazyfuse.codegen.table import ops
from tests.arrays.test_array import outcome, plain
from tests.helpers.states import STATES, Make, recording_all, state

VALUE = np.arange(24.0).reshape(2, 3, 4)

KEYS: dict[str, Any] = {
    "int": 1,
    "negative": -1,
    "numpy int": np.int64(1),
    "out of range": 5,
    "slice": slice(None, None, -1),
    "empty": slice(3, 1),
    "ellipsis": ...,
    "none": None,
    "nothing": (),
    "ints": (1, 2, 3),
    "ints and ellipsis": (1, 2, 3, ...),
    "too many": (0, 0, 0, 0),
    "two ellipses": (..., 0, ...),
    "mixed": (slice(1), None, 2, slice(None, None, 2)),
    "column": (slice(None), slice(None), 0),
    "list": [1, 0, 1],
    "list of lists": [[0, 1], [1, 0]],
    "array": np.array([0, 1, 1]),
    "array out of range": np.array([0, 7]),
    "arrays": (np.array([0, 1]), np.array([[2], [1]])),
    "array and slice": (slice(None), np.array([2, 0])),
    "zero-d array": np.array(1),
    "mask": VALUE > 10,
    "mask of rows": np.array([True, False]),
    "mask of planes": VALUE.sum(axis=2) > 30,
    "mask of wrong length": np.array([True, False, True]),
    "true": True,
    "false": False,
    "float": 1.0,
    "text": "a",
    "slice of floats": slice(0.5, 2),
    "tuple of lists": ([0, 1], [1, 2]),
}
VALUES: dict[str, Any] = {
    "number": 7,
    "float": 0.5,
    "one": np.array([5.0]),
    "row": np.arange(4.0),
    "list": [1, 2, 3, 4],
    "whole": -VALUE,
    "integers": np.arange(24).reshape(2, 3, 4),
    "complex": np.array(1j),
    "python complex": 1j,
    "text": "3.5",
    "wrong text": "three",
    "none": None,
    "too long": np.arange(5.0),
    "leading ones": np.ones((1, 1, 2, 3, 4)),
    "flat": np.arange(30.0),
}


@pytest.fixture(params=list(STATES))
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    with state(request.param) as maker:
        yield maker


@pytest.mark.smoke
@pytest.mark.parametrize("name", list(KEYS))
def test_reads(make: Make, name: str) -> None:
    key = KEYS[name]
    x = make(VALUE)
    assert outcome(operator.getitem, x, key) == outcome(operator.getitem, VALUE, key)
    if isinstance(key, np.ndarray):
        own = wrap(key.copy())
        assert outcome(operator.getitem, x, own) == outcome(operator.getitem, VALUE, key)


@pytest.mark.parametrize("name", list(KEYS))
def test_types_of_what_is_read(make: Make, name: str) -> None:
    x = make(VALUE)
    try:
        wanted = VALUE[KEYS[name]]
    except (IndexError, TypeError):
        return
    found = x[KEYS[name]]
    assert isinstance(found, lf.ndarray) == isinstance(wanted, np.ndarray)
    if isinstance(wanted, np.ndarray):
        found[...] = 1  # through a view, or into a copy
        value = VALUE.copy()
        value[KEYS[name]][...] = 1
        assert plain(x) == plain(value)


@pytest.mark.parametrize("what", list(VALUES))
def test_writes(make: Make, what: str) -> None:
    new = VALUES[what]
    for name, key in KEYS.items():
        value = VALUE.copy()
        x = make(VALUE)
        wanted = outcome(operator.setitem, value, key, new)
        assert outcome(operator.setitem, x, key, new) == wanted, name
        assert plain(x) == plain(value), name
        if isinstance(new, np.ndarray):
            y = make(VALUE)
            own = wrap(new.copy())
            assert outcome(operator.setitem, y, key, own) == wanted, name
            assert plain(y) == plain(value), name


@pytest.mark.parametrize("what", ["number", "float", "complex", "integers", "python complex"])
@pytest.mark.parametrize("dtype", ["?", "i1", "u4", "f4", "c8"])
def test_writes_convert(make: Make, dtype: str, what: str) -> None:
    value = np.zeros((2, 3, 4), dtype)
    x = make(value)
    new = VALUES[what]
    for key in (..., 0, (0, 0, 0)):
        wanted = outcome(operator.setitem, value, key, new)
        assert outcome(operator.setitem, x, key, new) == wanted
    assert plain(x) == plain(value)


def test_numbers_that_do_not_fit(make: Make) -> None:
    x = make(np.zeros(3, "i1"))
    with pytest.raises(OverflowError, match="Python integer 300 out of bounds for int8"):
        x[0] = 300
    with pytest.raises(ValueError, match="cannot convert float NaN to integer"):
        x[1:] = float("nan")


def test_swaps_and_shifts(make: Make) -> None:
    value = np.arange(6.0)
    x = make(value)
    for each in (value, x):
        each[0], each[5] = each[5], each[0]
        each[1:] = each[:-1]
        each[::2] = each[::-2]
        each[1:4] += each[2:5]
    assert plain(x) == plain(value)


def test_writes_of_masks_keep_what_is_not_chosen() -> None:
    with recording_all():
        x = wrap(np.array([1.0, np.nan, 3.0]))
        x[np.isnan(x)] = 0
        assert gather(x).tolist() == [1, 0, 3]


def test_a_mask_is_recorded_as_a_selection() -> None:
    with recording_all():
        x = wrap(np.arange(6.0)) + 1
        x[x > 3] = 0
        assert node_of(x).op is ops.TABLE["where"]
        assert node_of(x).value is None


def test_a_part_assigned_to_itself_costs_nothing() -> None:
    with recording_all():
        x = wrap(np.arange(6.0))
        x[1:3] += 1
        update = node_of(x)
        assert update.op is ops.UPDATE
        assert update.src[0].op is ops.LEAF


def test_picks_of_pending_arrays_end_lazy_ones_after_a_few() -> None:
    with recording_all():
        x = wrap(np.arange(6.0)) * 2
        first = x[1]
        assert node_of(first).value is None
        assert sum(float(x[i]) for i in range(6)) == 30
        assert float(first) == 2


def test_small_writes_in_a_loop_are_done_at_once() -> None:
    x = lf.zeros(40000)
    for i in range(100):
        x[i] = i
    assert node_of(x).op is not ops.UPDATE
    y = x + 1
    for i in range(40):
        y[i] = 0
    assert node_of(y).value is not None
    assert float(y.sum()) == float((np.arange(40, 100) + 1).sum() + 39900)


def test_old_values_stay_with_whoever_recorded_them() -> None:
    x = lf.arange(40000.0)
    old = x * 2
    x[5] = -1
    x[10:20] = 0
    assert float(old[5]) == 10
    assert float(old[15]) == 30
    assert float(x[5]) == -1


def test_iteration_sees_writes() -> None:
    x = lf.arange(40000.0) + 0
    seen = []
    for i, each in enumerate(x):
        if i == 2:
            x[4] = 99
            x[5:] = x[5:] * 2
        seen.append(float(each))
        if i == 6:
            break
    assert seen == [0, 1, 2, 3, 99, 10, 12]
