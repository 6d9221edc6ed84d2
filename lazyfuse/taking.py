"""As NumPy's `take`: compiled reads for big arrays of indices."""

from __future__ import annotations

from typing import Any

import numpy as np

from lazyfuse import fallback, gathers, routines
from lazyfuse.array import gather, ndarray, settle, wrap
from lazyfuse.codegen.shapes import normalize_axis
from lazyfuse.operators import dtype_of
from lazyfuse.recording import shape_of
from lazyfuse.registry import implements
from lazyfuse.storage import CANONICAL

Array = np.ndarray[Any, np.dtype[Any]]


@implements(np.take)
def take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: Any = "raise") -> Any:
    """As `numpy.take`."""
    if type(a) is ndarray and type(indices) is ndarray and out is None and mode == "raise":
        found = _taken(a, indices, axis)
        if found is not None:
            return wrap(found)
    named = {"mode": mode} if mode != "raise" else {}
    return fallback.run(np.take, "take", (a, indices, axis), {**fallback.given(out=out), **named})


def _taken(a: ndarray, indices: ndarray, axis: Any) -> Array | None:
    if dtype_of(a) not in CANONICAL or dtype_of(indices).kind not in "iu":
        return None
    shape = shape_of(a)
    if settle(indices) is not None or not shape:
        return None
    if axis is not None:
        try:
            place = normalize_axis(axis, len(shape))
        except (TypeError, ValueError):
            return None
        if place != 0:
            return None
    real = gather(a)
    real = real.reshape(-1) if axis is None and real.flags.c_contiguous else real
    if axis is None and real.ndim != 1:
        return None
    return routines.attempt(gathers.read, real, gather(indices))
