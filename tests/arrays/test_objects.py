"""Arrays of objects: they hold our arrays themselves, as NumPy's hold NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from tests.helpers.compare import MODES, mode

SIZES = (3, 30000)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("eager_below", MODES)
def test_an_element_is_the_array_that_was_put_in(size: int, eager_below: int | None) -> None:
    with mode(eager_below):
        x = lf.arange(size) * 2.0
        objects = lf.empty(2, dtype=object)
        objects[0] = x
        objects[np.int64(1)] = x
        assert objects[0] is x
        assert objects[1] is x
        assert objects.tolist()[0] is x
        assert list(objects)[1] is x
        assert objects.copy()[0] is x
        assert lf.concatenate([objects, objects])[3] is x
        assert lf.array([x, None], dtype=object)[0] is x
        objects[:] = [x, 5]
        assert objects[0] is x


@pytest.mark.parametrize("make", ["setitem", "array"])
@pytest.mark.parametrize("eager_below", MODES)
def test_writing_through_an_element(make: str, eager_below: int | None) -> None:
    with mode(eager_below):
        x = lf.arange(30000) * 2.0
        later = x + 1
        objects = lf.empty(2, dtype=object)
        if make == "setitem":
            objects[0] = x
        else:
            objects = lf.array([x, None], dtype=object)
        objects[0][0] = 100
        assert x[0] == 100
        assert later[0] == 1
        x[1] = 7
        assert objects[0][1] == 7


def test_containers_in_arrays_of_objects_stay_as_they_are() -> None:
    x = lf.arange(3)
    inner: dict[str, Any] = {"k": x}
    assert lf.array([inner, None])[0] is inner
    assert inner["k"] is x
    assert lf.array([lf.sin, lf.cos], dtype=object)[0] is lf.sin
    deep: list[Any] = [1.5]
    assert lf.array([[deep, None], [2, [3, 4]]], dtype=object)[0, 0] is deep


def test_lazy_scalars_go_in_as_numbers() -> None:
    total = lf.arange(30000.0).sum()
    held = lf.array([total, "x"], dtype=object)[0]
    assert type(held) is np.float64
    objects = lf.empty(1, dtype=object)
    objects[0] = total
    assert type(objects[0]) is np.float64


def test_a_list_that_contains_itself() -> None:
    loop: list[Any] = []
    loop.append(loop)
    for xp in (np, lf):
        assert xp.array([loop], dtype=object).ndim == np.array([loop], dtype=object).ndim
