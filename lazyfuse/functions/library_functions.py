"""Functions that NumPy does at once, and a device by its libraries: `flatnonzero`, transforms.

Owns `flatnonzero` and the complex transforms of `numpy.fft`. Transforms differ from NumPy's by
rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lazyfuse.arrays.library_indexing import computed, device_for
from lazyfuse.arrays.ndarray import cast_node, ndarray, node_of
from lazyfuse.arrays.operators import dtype_of, shape_of
from lazyfuse.arrays.storage import CANONICAL
from lazyfuse.codegen.graph.node import HostCall
from lazyfuse.codegen.graph.shapes import normalize_axis
from lazyfuse.functions import indexing
from lazyfuse.interop import fallback
from lazyfuse.registry import implements
from lazyfuse.runtime.events import counters

Array = np.ndarray[Any, np.dtype[Any]]

_NORMS = (None, "backward", "ortho")


def _positions(library: Any, operands: list[Array]) -> Array:
    found: Array = library.positions(*operands)
    counters.copied("gather", 4, library.name, "length of the result")
    return found


@implements(np.flatnonzero, eager="arrays")
def flatnonzero(a: Any) -> Any:
    """As `numpy.flatnonzero`."""
    device = device_for(a)
    if device is not None and dtype_of(a) in CANONICAL and len(shape_of(a)):
        truth = cast_node(node_of(a), np.dtype(bool))
        found = computed(device, HostCall("flatnonzero", np.flatnonzero), [truth], _positions)
        if found is not None:
            return found
    return indexing.flatnonzero(a)


# ----------------------------------------------------------------------------------- transforms


def _transformed(
    theirs: Callable[..., Any], inverse: bool, a: Any, sizes: Any, axes: Sequence[int], norm: Any
) -> Any:
    """A transform by a library; None if NumPy has to do it, or to refuse it."""
    device = device_for(a) if norm in _NORMS else None
    if device is None or dtype_of(a).char not in "fdFD" or not axes:
        return None
    shape = shape_of(a)
    try:
        places = tuple([normalize_axis(axis, len(shape)) for axis in axes])
    except (TypeError, ValueError):
        return None
    if sizes is not None and tuple(sizes) != tuple([shape[place] for place in places]):
        return None
    source = cast_node(node_of(a), CANONICAL[np.result_type(dtype_of(a), np.complex64)])
    named = (
        {"axes": places, "norm": norm}
        if theirs not in _LINES
        else {"axis": places[0], "norm": norm}
    )
    return computed(
        device,
        HostCall(theirs.__name__, lambda values: theirs(values, **named)),
        [source],
        lambda library, operands: library.transform(
            operands[0], places, inverse, norm or "backward"
        ),
    )


_LINES = (np.fft.fft, np.fft.ifft)


def _line(theirs: Callable[..., Any], inverse: bool) -> Callable[..., Any]:
    @implements(theirs)
    def transform(a: Any, n: Any = None, axis: Any = -1, norm: Any = None, out: Any = None) -> Any:
        found = None
        if out is None:
            sizes = None if n is None else (n,)
            found = _transformed(theirs, inverse, a, sizes, (axis,), norm)
        if found is not None:
            return found
        return fallback.run(theirs, theirs.__name__, (a, n, axis, norm), fallback.given(out=out))

    return transform


def _several(theirs: Callable[..., Any], inverse: bool, default: Any) -> Callable[..., Any]:
    @implements(theirs)
    def transform(
        a: Any, s: Any = None, axes: Any = default, norm: Any = None, out: Any = None
    ) -> Any:
        found = None
        if out is None and s is None and type(a) is ndarray:
            chosen = range(len(shape_of(a))) if axes is None else axes
            found = _transformed(theirs, inverse, a, None, tuple(chosen), norm)
        if found is not None:
            return found
        return fallback.run(theirs, theirs.__name__, (a, s, axes, norm), fallback.given(out=out))

    return transform


fft = _line(np.fft.fft, False)
ifft = _line(np.fft.ifft, True)
fft2 = _several(np.fft.fft2, False, (-2, -1))
ifft2 = _several(np.fft.ifft2, True, (-2, -1))
fftn = _several(np.fft.fftn, False, None)
ifftn = _several(np.fft.ifftn, True, None)
