"""Memory orders, and what depends on how NumPy walks through memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from tests.helpers.states import recording_all


@pytest.fixture(autouse=True)
def recorded() -> Iterator[None]:
    with recording_all():
        yield


def order(x: Any) -> tuple[int, ...]:
    """Strides, as far as they say anything."""
    return tuple(step for step, length in zip(x.strides, x.shape, strict=True) if length != 1)


PARTS: dict[str, Callable[[Any, tuple[int, ...]], Any]] = {
    "packed": lambda xp, shape: xp.ones(shape),
    "Fortran": lambda xp, shape: xp.ones(shape, order="F"),
    "real": lambda xp, shape: np.ones(shape, order="F"),
    "turned": lambda xp, shape: xp.ones((shape[1], shape[2], shape[0])).transpose(2, 0, 1)[::-1],
    "rows": lambda xp, shape: xp.broadcast_to(xp.ones(shape[-1]), shape),
    "columns": lambda xp, shape: xp.broadcast_to(xp.ones((shape[0], 1, 1)), shape),
    "layers": lambda xp, shape: xp.broadcast_to(xp.ones((1, *shape[1:])), shape),
}


@pytest.mark.parametrize("names", list(product(PARTS, PARTS)), ids="-".join)
def test_joined_arrays_lie_as_those_of_numpy(names: tuple[str, str]) -> None:
    for axis in range(3):
        shape = tuple(np.roll((4, 3, 2), axis))
        found = []
        for xp in (np, lf):
            parts = [PARTS[name](xp, shape) for name in names]
            found.append([order(xp.concatenate(parts, axis)), order(xp.stack(parts, axis))])
        assert found[0] == found[1], (axis, shape)


SHAPES = ((), (1,), (1, 1), (3,), (3, 1), (1, 3))


@pytest.mark.parametrize("shapes", list(product(SHAPES, repeat=3)), ids=str)
def test_clip_gives_zeros_the_sign_that_numpy_gives_them(
    shapes: tuple[tuple[int, ...], ...],
) -> None:
    signs = []
    for xp in (np, lf):
        x, low, high = (
            xp.full(shape, value) for shape, value in zip(shapes, (-0.0, 0.0, 1.0), strict=True)
        )
        signs.append(np.signbit(np.asarray(xp.clip(x, low, high))).tolist())
    assert signs[0] == signs[1]
