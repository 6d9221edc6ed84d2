"""Creation functions that NumPy computes at once: `arange`, `eye`, `linspace`, `fftfreq`.

Owns what they have beyond NumPy's: `device=` for every device that arrays can lie on, and `dtype`
of the frequencies (array API).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lazyfuse.arrays import device_api
from lazyfuse.arrays.ndarray import ndarray
from lazyfuse.interop import fallback
from lazyfuse.registry import extends, implements


def _placed(theirs: Any) -> None:
    """NumPy's function, whose `device` may be any of ours."""
    name = theirs.__name__

    @implements(theirs)
    def create(*args: Any, **kwargs: Any) -> Any:
        device = kwargs.get("device")
        if device is not None and device_api.is_elsewhere(device):
            del kwargs["device"]
            return device_api.placed(create, device, *args, **kwargs)
        return fallback.run(theirs, name, args, kwargs)


for _theirs in (np.arange, np.eye, np.linspace):
    _placed(_theirs)


@implements(np.from_dlpack)
def from_dlpack(x: Any, /, *, device: Any = None, copy: Any = None) -> Any:
    """As `numpy.from_dlpack`; an array of ours stays on its device if none is named."""
    if device is None and type(x) is ndarray and device_api.place_of(x) != device_api.HOST:
        device = device_api.place_of(x)
    if device is not None and device_api.is_elsewhere(device):
        return device_api.placed(from_dlpack, device, x, device=device_api.HOST, copy=copy)
    return fallback.run(np.from_dlpack, "from_dlpack", (x,), {"device": device, "copy": copy})


@implements(np.astype)
def astype(x: Any, dtype: Any, /, *, copy: Any = True, device: Any = None) -> Any:
    """As `numpy.astype`; recorded arrays are converted by their own method."""
    if device is not None and device_api.is_elsewhere(device):
        return device_api.placed(astype, device, x, dtype, copy=copy)
    if type(x) is ndarray and x._small is None and device in (None, device_api.HOST):
        return x.astype(dtype, copy=copy)  # type: ignore[attr-defined]
    return fallback.run(np.astype, "astype", (x, dtype), {"copy": copy, "device": device})


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


@extends(np.fft.fftfreq)
def fftfreq(n: Any, d: Any = 1.0, device: Any = None, *, dtype: Any = None) -> Any:
    """As `numpy.fft.fftfreq`, in any real floating-point dtype."""
    return _frequencies(np.fft.fftfreq, n, d, device, dtype)


@extends(np.fft.rfftfreq)
def rfftfreq(n: Any, d: Any = 1.0, device: Any = None, *, dtype: Any = None) -> Any:
    """As `numpy.fft.rfftfreq`, in any real floating-point dtype."""
    return _frequencies(np.fft.rfftfreq, n, d, device, dtype)
