"""Functions that record several operations: a later call makes the nodes of the first one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse.codegen.graph.linearize import linearize
from lazyfuse.functions import compound

SHAPES = [(70_000,), (250, 300), (20, 50, 70)]
CALLS: dict[str, Callable[..., Any]] = {
    "mean": lambda xp, x, axis: xp.mean(x, axis=axis),
    "kept mean": lambda xp, x, axis: x.mean(axis=axis, keepdims=True),
    "typed mean": lambda xp, x, axis: xp.mean(
        x, axis=axis, dtype=np.complex64 if x.dtype.kind == "c" else np.float32
    ),
    "std": lambda xp, x, axis: xp.std(x, axis=axis),
    "var of a sample": lambda xp, x, axis: xp.var(x, axis=axis, ddof=1),
    "ptp": lambda xp, x, axis: xp.ptp(x, axis=axis),
    "round": lambda xp, x, axis: xp.round(x, 2),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "c16"])
def test_the_nodes_are_those_of_the_first_call(name: str, dtype: str) -> None:
    random = np.random.default_rng(5)
    for shape in SHAPES:
        for order in ("C", "F"):
            for axis in (None, 0, len(shape) - 1):
                given = [
                    np.asarray(random.normal(size=shape) * 9, order=order).astype(dtype)
                    for _ in range(3)
                ]
                keys = []
                for a in given:
                    x = lf.array(a) * 1
                    found = CALLS[name](lf, x, axis)
                    node = getattr(found, "_node", None)
                    keys.append(None if node is None else linearize([node]).key)
                    np.testing.assert_allclose(
                        np.asarray(found), CALLS[name](np, a * 1, axis), rtol=1e-4, atol=1e-6
                    )
                assert keys[0] == keys[1] == keys[2]


def test_arguments_of_other_types_are_other_calls() -> None:
    a = np.random.default_rng(1).normal(size=(300, 200))
    for turn in range(3):
        x = lf.array(a + turn) * 1.0
        for axis in (1, True, np.int64(1), (1,), (0, 1), (1, 0), -1):
            try:
                expected = np.mean(a + turn, axis=axis)
            except TypeError as error:
                with pytest.raises(TypeError, match=str(error)[:20]):
                    lf.mean(x, axis=axis)
                continue
            np.testing.assert_allclose(np.asarray(lf.mean(x, axis=axis)), expected)
        with pytest.raises(np.exceptions.AxisError):
            lf.mean(x, axis=2)


def test_error_states_and_lines_are_those_of_the_call() -> None:
    a = np.full((200, 300), 1e308)
    for _ in range(3):
        x = lf.array(a) * 1.0
        with np.errstate(over="ignore"):
            quiet = lf.mean(x)
            assert float(quiet) == np.inf
        with pytest.warns(RuntimeWarning, match="overflow"):
            assert float(lf.mean(x)) == np.inf
        with np.errstate(over="raise"), pytest.raises(FloatingPointError):
            float(lf.mean(lf.array(a)))


def test_small_arrays_and_parts_of_blocks_have_no_templates() -> None:
    compound._templates.clear()
    lf.mean(lf.arange(10.0))
    x = lf.array(np.random.default_rng(0).normal(size=(300, 300))) * 1.0
    for _ in range(2):
        np.testing.assert_allclose(float(lf.mean(x[1:-1])), np.asarray(x)[1:-1].mean())
    assert not compound._templates
