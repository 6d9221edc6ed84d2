"""Scalars that nobody has looked at where NumPy wants an array to write to: NumPy's errors."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

import lazyfuse
from lazyfuse import config

CALLS = (
    "np.copyto(x.sum(), 1)",
    "np.copyto(x.any(), x.max() > 0, where=x.any())",
    "np.put(x.sum(), 0, 1)",
    "np.place(x.sum(), True, 1)",
    "np.putmask(x.sum(), True, 1)",
    "np.fill_diagonal(x.sum(), 0)",
    "np.put_along_axis(x.sum(), x.argmax(), 0, None)",
    "np.add.at(x.sum(), 0, 1)",
    "np.cumsum(x, out=x.sum())",
    "np.take(x, 0, out=x.sum())",
    "np.sum(x, out=x.sum())",
    "np.clip(x, 0, 1, out=x.sum())",
    "np.dot(x, x, out=x.sum())",
    "np.einsum('i->', x, out=x.sum())",
)


def answer(module: Any, call: str) -> str:
    x = module.array(numpy.array([1.5, -2.0, 3.0]))
    try:
        return str(eval(call, {"np": module, "x": x}))
    except Exception as error:
        return f"{type(error).__name__}: {error}".replace("numpy.ndarray", "ndarray")


@pytest.mark.parametrize("below", [0, 100])
@pytest.mark.parametrize("call", CALLS)
def test_scalars_are_refused_in_numpys_words_A2(call: str, below: int) -> None:
    with config.options(eager_below=below):
        assert answer(lazyfuse, call) == answer(numpy, call)
