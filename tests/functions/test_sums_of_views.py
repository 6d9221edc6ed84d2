"""Sums of views and of copies of views: they follow what lies in memory, with NumPy's bits.

A view with gaps, a reversed one or one that repeats an axis is added in another order than a packed
array with the same elements, also where one kernel computes several sums.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse import config

DATA = np.random.default_rng(0).normal(size=(120, 130))

VIEWS: dict[str, Callable[[Any], Any]] = {
    "whole": lambda xp: xp.array(DATA) * 2.0,
    "window": lambda xp: (xp.array(DATA) * 2.0)[3:113, :110],
    "evaluated window": lambda xp: xp.array(DATA)[3:113, :110],
    "lent window": lambda xp: xp.asarray(DATA)[3:113, :110],
    "rows": lambda xp: (xp.array(DATA) * 2.0)[3:113],
    "turned": lambda xp: (xp.array(DATA) * 2.0).T[3:113, :90],
    "reversed": lambda xp: (xp.array(DATA) * 2.0)[::-1, :90],
    "all reversed": lambda xp: (xp.array(DATA) * 2.0)[::-1, ::-1],
    "every second": lambda xp: (xp.array(DATA) * 2.0)[:, ::2],
    "repeated": lambda xp: xp.broadcast_to((xp.array(DATA) * 2.0)[3:113, :1], (110, 110)),
    "with a new axis": lambda xp: (xp.array(DATA) * 2.0)[3:113, None, :80],
    "part of complex": lambda xp: (xp.array(DATA) * (2.0 + 1j))[3:113, :110].real,
    "long": lambda xp: (xp.array(DATA).ravel() * 2.0)[5:15_005],
    "long reversed": lambda xp: (xp.array(DATA).ravel() * 2.0)[15_005:5:-1],
}

SUMS: dict[str, Callable[[Any, Any], Any]] = {
    "view": lambda xp, v: v.sum(),
    "copy": lambda xp, v: v.copy().sum(),
    "copy in its order": lambda xp, v: v.copy(order="K").sum(),
    "same dtype": lambda xp, v: v.astype("f8").mean(),
    "array": lambda xp, v: xp.array(v).sum(),
    "packed": lambda xp, v: xp.ascontiguousarray(v).sum(),
    "positive": lambda xp, v: (+v).sum(),
    "twice negative": lambda xp, v: xp.negative(-v).sum(),
    "turned copy": lambda xp, v: v.copy().T.sum(),
    "window of a copy": lambda xp, v: v.copy()[..., :50].sum(),
    "assigned": lambda xp, v: _assigned(xp, v).sum(),
    "copy, view": lambda xp, v: xp.stack([v.copy().sum(), v.sum()]),
    "view, computed": lambda xp, v: xp.stack([v.sum(), (v * 2.0).sum(), v.max()]),
    "windows": lambda xp, v: xp.stack([v[1:].sum(), v[:-1].sum(), (v[1:] - v[:-1]).sum()]),
    "window, reversed": lambda xp, v: xp.stack([v[:-1].sum(), v[:-1][::-1].sum()]),
    "along": lambda xp, v: xp.concatenate([v.sum(0).ravel(), v.copy().sum(0).ravel()]),
}


def _assigned(xp: Any, v: Any) -> Any:
    x = xp.zeros(v.shape)
    x[...] = v
    return x


@pytest.mark.parametrize("view", VIEWS)
def test_sums_follow_the_memory_that_they_read_D1(view: str) -> None:
    for name, summed in SUMS.items():
        expected = np.asarray(summed(np, VIEWS[view](np)))
        for _ in range(2):
            with config.options(eager_below=0):
                found = np.asarray(summed(lf, VIEWS[view](lf)))
            assert found.tobytes() == expected.tobytes(), name


def test_a_copy_that_only_operations_read_is_no_operation_D1() -> None:
    with config.options(eager_below=0):
        x = lf.array(DATA) * 2.0
        copied = x[3:].copy() + x[:-3]
        made = [each.name for kernel in lf.explain(copied).kernels for each in kernel.operations]
        assert made == ["multiply", "add"]
