"""What a call gives, in a form that two namespaces can be compared by."""

from __future__ import annotations

from typing import Any

import numpy

ULPS = 32
"""Of the larger value: recorded work and NumPy may differ by a few in inexact functions."""


def as_numpy(value: Any) -> Any:
    """Arrays of any namespace as NumPy's, within tuples too; everything else unchanged."""
    if isinstance(value, (tuple, list)):
        return tuple([as_numpy(each) for each in value])
    if hasattr(value, "__array_namespace__") or isinstance(value, numpy.generic):
        return numpy.asarray(value)
    return value


def check_same(got: Any, want: Any, what: str, atol: float = 0.0) -> None:
    """Values, dtypes and shapes agree."""
    if isinstance(want, tuple):
        assert len(got) == len(want), what
        for one, other in zip(got, want, strict=True):
            check_same(one, other, what, atol)
    elif isinstance(want, numpy.ndarray):
        assert isinstance(got, numpy.ndarray), what
        assert (got.shape, got.dtype) == (want.shape, want.dtype), what
        exact = want.dtype.kind in "biu"
        rtol = 0.0 if exact else ULPS * float(numpy.finfo(want.dtype).eps)
        numpy.testing.assert_allclose(
            got, want, rtol=rtol, atol=0.0 if exact else atol, err_msg=what
        )
    else:
        assert got == want, what
