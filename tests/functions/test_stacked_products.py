"""Products of stacks of matrices: the stacks lie in memory as NumPy's do."""

from __future__ import annotations

import numpy as np
import pytest

import lazyfuse as lf
from tests.helpers.states import recording_all


@pytest.mark.parametrize("seed", range(6))
def test_strides_of_transposed_stacks(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(20):
        rank = int(rng.integers(4, 6))
        stack = [int(each) for each in rng.integers(2, 4, size=rank - 2)]
        rows, depth, columns = (int(each) for each in rng.integers(2, 5, size=3))
        found = []
        orders = [rng.permutation(rank) for _ in range(2)]
        shapes = ([*stack, rows, depth], [*stack, depth, columns])
        data = [
            rng.integers(0, 9, size=[shape[axis] for axis in order]).astype(float)
            for shape, order in zip(shapes, orders, strict=True)
        ]
        with recording_all():
            for xp in (np, lf):
                first, second = (
                    xp.array(each).transpose([int(axis) for axis in np.argsort(order)]) + 1
                    for each, order in zip(data, orders, strict=True)
                )
                product = first @ second
                found.append((product.strides, np.asarray(product).tolist()))
        assert found[0] == found[1]


def test_a_stack_and_its_transpose() -> None:
    found = []
    for xp in (np, lf):
        with recording_all():
            stack = xp.arange(8).reshape(1, 2, 2, 2) * 1.0
            product = xp.matmul(stack, stack.T)
            found.append((product.shape, product.strides[:2], np.asarray(product).tolist()))
    assert found[0] == found[1]
