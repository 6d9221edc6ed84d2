"""Functions that lazyfuse adds to NumPy's names: what they take and what they refuse."""

from __future__ import annotations

import pickle
from typing import Any

import numpy
import pytest

import lazyfuse as np


def test_evaluate_takes_what_is_computed_already() -> None:
    x = np.ones(50_000) + 1.0
    np.evaluate(x, numpy.ones(3), numpy.float64(2.0), 3, True, 2.5j, np.array_api.ones(3))
    np.evaluate()
    assert np.explain(x).kernels == []
    assert float(x[0]) == 2.0


@pytest.mark.parametrize("value", [[1.0], (1,), "text", None, {}])
def test_evaluate_refuses_what_is_no_array(value: Any) -> None:
    with pytest.raises(TypeError, match=r"\[evaluate\] arrays: expected arrays"):
        np.evaluate(np.ones(3), value)


def test_classes_are_named_as_users_know_them() -> None:
    assert repr(np.ndarray) == "<class 'lazyfuse.ndarray'>"
    assert pickle.loads(pickle.dumps(np.ndarray)) is np.ndarray
