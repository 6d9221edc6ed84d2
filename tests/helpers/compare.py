"""One call, made with NumPy and with lazyfuse: values, dtypes, shapes, warnings and errors.

`both(function, ...)` calls `function(xp, ...)` with xp = numpy and xp = lazyfuse on equal arguments
(arrays made by `xp.array`) and compares what comes out to the bit, exceptions by type and text.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import lazyfuse
from lazyfuse import config

MODES = (None, 0)
"""Options for `eager_below`: the default, and everything recorded."""


@contextlib.contextmanager
def mode(eager_below: int | None) -> Iterator[None]:
    """The default threshold for recording, or another one."""
    if eager_below is None:
        yield
    else:
        with config.options(eager_below=eager_below):
            yield


def outcome(function: Callable[..., Any], xp: Any, values: tuple[Any, ...]) -> tuple[Any, Any]:
    """What a call gives, and the warnings on the way (until every result was looked at)."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            args = [xp.array(value) if type(value) is np.ndarray else value for value in values]
            result = real(function(xp, *args))
        except Exception as error:
            result = error
    return result, sorted({(each.category, str(each.message)) for each in caught}, key=str)


def real(value: Any) -> Any:
    """A result with numpy arrays and scalars in the place of ours."""
    if isinstance(value, (list, tuple)):
        return [real(item) for item in value]
    if isinstance(value, dict):
        return {key: real(item) for key, item in value.items()}
    if hasattr(type(value), "_eager") and not isinstance(value, np.generic):
        return np.asarray(value)
    return np.asarray(value)[()] if isinstance(value, np.generic) else value


def same(ours: Any, theirs: Any, ulps: int = 0) -> None:
    """Equal in type, dtype, shape and bits (NaNs of any kind are equal)."""
    if isinstance(theirs, Exception):
        assert isinstance(ours, Exception), f"NumPy raised {theirs!r}, lazyfuse gave {ours!r}"
        assert (type(ours), str(ours)) == (type(theirs), str(theirs))
    elif isinstance(theirs, list):
        assert isinstance(ours, list)
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            same(one, other, ulps)
    elif isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for key, other in theirs.items():
            same(ours[key], other, ulps)
    elif isinstance(theirs, (np.ndarray, np.generic)):
        assert not isinstance(ours, Exception), f"lazyfuse raised {ours!r}"
        assert np.asarray(ours).dtype == theirs.dtype
        assert np.shape(ours) == theirs.shape
        if ulps and theirs.dtype.kind in "fc":
            tolerance = ulps * np.finfo(theirs.dtype).eps
            np.testing.assert_allclose(np.asarray(ours), theirs, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))
    elif callable(theirs):
        assert callable(ours)
    else:
        assert not isinstance(ours, Exception), f"lazyfuse raised {ours!r}"
        assert ours == theirs or (ours != ours and theirs != theirs)  # NaN


def both(function: Callable[..., Any], *values: Any, ulps: int = 0, warned: bool = True) -> None:
    """Call with NumPy and, in both modes, with lazyfuse; everything must be equal."""
    theirs, their_warnings = outcome(function, np, values)
    for eager_below in MODES:
        with mode(eager_below):
            ours, our_warnings = outcome(function, lazyfuse, values)
            same(ours, theirs, ulps)
            if warned:
                assert our_warnings == their_warnings
