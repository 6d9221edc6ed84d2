"""Functions and attributes that ask for geometry: NumPy's answers, and nothing is computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyfuse
from tests.helpers.compare import MODES, both, mode


def is_pending(x: Any) -> bool:
    """Whether the values of a recorded array have not been computed."""
    node = x._node if x._node is not None else x._storage.node
    return node.value is None


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "can_cast": lambda xp, x: [xp.can_cast(x, "f4"), xp.can_cast(x, "c16", "safe")],
    "common_type": lambda xp, x: xp.common_type(x, np.ones(2, "f4")),
    "diag_indices_from": lambda xp, x: xp.diag_indices_from(x),
    "iscomplexobj": lambda xp, x: [xp.iscomplexobj(x), xp.iscomplexobj(x + 1j)],
    "isfortran": lambda xp, x: [xp.isfortran(x), xp.isfortran(x.T)],
    "isrealobj": lambda xp, x: xp.isrealobj(x),
    "isscalar": lambda xp, x: xp.isscalar(x),
    "iter": lambda xp, x: iter(x) is not None,
    "iterable": lambda xp, x: xp.iterable(x),
    "ndim": lambda xp, x: [xp.ndim(x), xp.ndim(a=x[0])],
    "ravel": lambda xp, x: [xp.ravel(x), xp.ravel(x[1:], "F")],
    "reshape": lambda xp, x: [xp.reshape(x, 9), xp.reshape(x, (-1, 1), "F")],
    "result_type": lambda xp, x: [xp.result_type(x, "f4", 1), xp.result_type(x, 1j)],
    "shape": lambda xp, x: [xp.shape(x), xp.shape(x[1:].T), xp.shape([1, 2])],
    "size": lambda xp, x: [xp.size(x), xp.size(x, 0), xp.size(x[:, :2], axis=1)],
    "tril_indices_from": lambda xp, x: xp.tril_indices_from(x, k=1),
    "triu_indices_from": lambda xp, x: xp.triu_indices_from(x),
}


@pytest.mark.parametrize("option", MODES, ids=["default", "recorded"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_answers_of_numpy(name: str, option: Any) -> None:
    with mode(option):
        both(FUNCTIONS[name], np.arange(9.0).reshape(3, 3))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_questions_compute_nothing(name: str) -> None:
    with mode(0):
        x = lazyfuse.arange(9.0).reshape(3, 3) * 2
        FUNCTIONS[name](lazyfuse, x)
        FUNCTIONS[name](np, x)
        assert is_pending(x)


def test_questions_about_numbers_that_are_not_computed_yet() -> None:
    with mode(0):
        total = (lazyfuse.arange(9.0) * 2).sum()
        assert lazyfuse.isscalar(total)
        assert (lazyfuse.shape(total), lazyfuse.ndim(total), lazyfuse.size(total)) == ((), 0, 1)
        assert lazyfuse.result_type(total, lazyfuse.float32(1)) == "f8"
        assert not lazyfuse.iterable(total)
        assert is_pending(total)
        assert total == 72


def test_an_iterator_computes_when_its_first_element_is_asked_for() -> None:
    with mode(0):
        for x in (lazyfuse.arange(4.0) * 2, lazyfuse.arange(8.0).reshape(4, 2) * 2):
            steps = iter(x)
            assert is_pending(x)
            x[0] = 5
            assert np.all(next(steps) == 5)
