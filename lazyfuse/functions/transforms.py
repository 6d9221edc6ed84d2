"""As `numpy.fft`: the complex transforms, and the frequencies, which take `dtype` too (array API).

Transforms run at once: in NumPy, or by a device's libraries. NumPy imports `numpy.fft` when it is
first asked for, which takes 1 ms; so does this module (numpy_modules.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from lazyfuse.arrays import library_indexing
from lazyfuse.arrays.ndarray import cast_node, node_of
from lazyfuse.arrays.operators import dtype_of, shape_of
from lazyfuse.arrays.storage import CANONICAL
from lazyfuse.codegen.graph.node import HostCall
from lazyfuse.codegen.graph.shapes import normalize_axis
from lazyfuse.interop import device_api, fallback
from lazyfuse.interop.fallback import records
from lazyfuse.registry import implements

_NORMS = (None, "backward", "ortho")


def _transformed(
    theirs: Callable[..., Any], a: Any, sizes: Any, axes: Any, norm: Any, out: Any
) -> Any:
    """A transform by a device's library; None if NumPy must do it, or raise."""
    device = library_indexing.device_for(a) if norm in _NORMS and out is None else None
    if device is None or dtype_of(a).char not in "fdFD":
        return None
    shape = shape_of(a)
    try:
        chosen = range(len(shape)) if axes is None else axes
        places = tuple([normalize_axis(axis, len(shape)) for axis in chosen])
    except (TypeError, ValueError):
        return None
    if not places or (sizes is not None and sizes != tuple([shape[place] for place in places])):
        return None
    source = cast_node(node_of(a), CANONICAL[np.result_type(dtype_of(a), np.complex64)])
    along: dict[str, Any] = {"axis": places[0]} if theirs in _LINES else {"axes": places}
    call = HostCall(theirs.__name__, functools.partial(theirs, **along, norm=norm))
    return library_indexing.computed(device, call, source)


_LINES = (np.fft.fft, np.fft.ifft)


def _line(theirs: Callable[..., Any]) -> Any:
    @records(theirs)
    def transform(a: Any, n: Any = None, axis: Any = -1, norm: Any = None, out: Any = None) -> Any:
        return _transformed(theirs, a, None if n is None else (n,), (axis,), norm, out)

    return transform


def _several(theirs: Callable[..., Any], default: Any) -> Any:
    @records(theirs)
    def transform(
        a: Any, s: Any = None, axes: Any = default, norm: Any = None, out: Any = None
    ) -> Any:
        return _transformed(theirs, a, None, axes, norm, out) if s is None else None

    return transform


fft = _line(np.fft.fft)
ifft = _line(np.fft.ifft)
fft2 = _several(np.fft.fft2, (-2, -1))
ifft2 = _several(np.fft.ifft2, (-2, -1))
fftn = _several(np.fft.fftn, None)
ifftn = _several(np.fft.ifftn, None)


def _frequencies(theirs: Callable[..., Any], n: Any, d: Any, device: Any, dtype: Any) -> Any:
    if device is not None and device_api.is_elsewhere(device):
        return device_api.moved(_frequencies(theirs, n, d, None, dtype), device, None)
    found = fallback.run(theirs, theirs.__name__, (n, d), fallback.given(device=device))
    if dtype is None:
        return found
    if np.dtype(dtype).kind != "f":
        what = f"[{theirs.__name__}] dtype: expected a real floating-point dtype, got {dtype}"
        raise ValueError(f"{what}; convert the result with astype")
    return found.astype(dtype)


@implements(np.fft.fftfreq)
def fftfreq(n: Any, d: Any = 1.0, device: Any = None, *, dtype: Any = None) -> Any:
    """As `numpy.fft.fftfreq`, in any real floating-point dtype."""
    return _frequencies(np.fft.fftfreq, n, d, device, dtype)


@implements(np.fft.rfftfreq)
def rfftfreq(n: Any, d: Any = 1.0, device: Any = None, *, dtype: Any = None) -> Any:
    """As `numpy.fft.rfftfreq`, in any real floating-point dtype."""
    return _frequencies(np.fft.rfftfreq, n, d, device, dtype)
