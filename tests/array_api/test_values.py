"""Values, dtypes and shapes of every function of the standard, beside array_api_strict's."""

from __future__ import annotations

import warnings
from typing import Any

import array_api_strict as strict
import numpy
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.extra import array_api

import lazyfuse
import lazyfuse.array_api as xp
from tests.array_api import calls
from tests.array_api.comparing import as_numpy, check_same

DRAWN = array_api.make_strategies_namespace(strict, api_version="2024.12")
EXAMPLES = settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
_REAL = {"min_value": -8, "max_value": 8, "allow_nan": False, "allow_infinity": False}


def elements(dtype: str, finite: bool) -> Any:
    """What arrays of a dtype hold: anything, or numbers of which few results are too large."""
    if not finite or dtype == "bool":
        return None
    if dtype.startswith("complex"):
        part = DRAWN.from_dtype("float32", **_REAL)
        return st.builds(complex, part, part)
    if "int" in dtype:
        return {"min_value": 0 if dtype.startswith("u") else -8, "max_value": 8}
    return _REAL


@st.composite
def operands(draw: Any, group: calls.Group) -> tuple[Any, Any]:
    """Two arrays of one dtype and shape, as NumPy's."""
    dtype = draw(st.sampled_from(group.dtypes))
    low, high = group.axes
    shapes = DRAWN.array_shapes(min_dims=low, max_dims=high, min_side=group.smallest, max_side=4)
    shape = draw(shapes)
    if group is calls.FACTORS:
        shape = (shape[0], shape[0])
    some = DRAWN.arrays(dtype, shape, elements=elements(dtype, group.finite))
    first, second = numpy.asarray(draw(some)).copy(), numpy.asarray(draw(some)).copy()
    return first, second


def positive_definite(x: Any) -> Any:
    """A matrix that every factorization takes."""
    return (x @ x.T + 65 * numpy.eye(len(x))).astype(x.dtype)


def result(namespace: Any, call: str, x: Any, y: Any) -> Any:
    names = {"xp": namespace, "x": namespace.asarray(x, copy=True), "y": namespace.asarray(y)}
    if "(a" in call:
        names["a"] = namespace.asarray(positive_definite(x))
    with numpy.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of empty slices, by NumPy
        return as_numpy(eval(call, names))


@pytest.mark.parametrize("group", calls.GROUPS)
@EXAMPLES
@given(data=st.data())
def test_calls(group: str, data: st.DataObject) -> None:
    chosen = calls.GROUPS[group]
    x, y = data.draw(operands(chosen))
    for call in chosen.calls:
        try:
            want = result(strict, call, x, y)
        except (TypeError, ValueError, IndexError, numpy.linalg.LinAlgError):
            continue  # the standard leaves it open for this dtype or shape
        for namespace in (xp, lazyfuse):
            what = f"{namespace.__name__}: {call} of {x!r}, {y!r}"
            check_same(result(namespace, call, x, y), want, what, atol=1e-4)


@pytest.mark.smoke
@pytest.mark.parametrize("call", calls.CREATION)
def test_creation(call: str) -> None:
    want = as_numpy(eval(call, {"xp": strict}))
    for namespace in (xp, lazyfuse):
        check_same(as_numpy(eval(call, {"xp": namespace})), want, f"{namespace.__name__}: {call}")
