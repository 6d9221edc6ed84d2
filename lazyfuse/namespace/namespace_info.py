"""The result of `__array_namespace_info__()` in both namespaces.

Owns the class of the main namespace, which follows NumPy (devices are a list), and the class of the
standard's namespace (a tuple). The devices are those that can hold arrays. Only listing them asks
the OpenCL drivers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lazyfuse.interop import device_api

_Theirs: Any = np.__array_namespace_info__


class Information(_Theirs):  # type: ignore[misc]  # NumPy's stubs hide that it is a class
    """As `numpy.__array_namespace_info__`, for every device that can hold arrays."""

    __module__ = "lazyfuse"

    def default_dtypes(self, *, device: Any = None) -> Any:
        """The dtypes of results if the caller names none: the same on every device."""
        return super().default_dtypes(device=self._checked(device))

    def dtypes(self, *, device: Any = None, kind: Any = None) -> Any:
        """The dtypes of the standard by name, of one kind or all: the same on every device."""
        return super().dtypes(device=self._checked(device), kind=kind)

    def devices(self) -> Any:
        """The names of the devices that can hold arrays, as a list."""
        return device_api.names()

    def _checked(self, device: Any) -> Any:
        """The host, if `device` is a known device; else `device`, which NumPy will refuse."""
        return None if device_api.is_elsewhere(device) else device


class StandardInformation(Information):
    """The same for the array API 2025.12."""

    __module__ = "lazyfuse.array_api"

    def capabilities(self) -> Any:
        """What the standard leaves open. NumPy 2.3 does not report "max dimensions"."""
        return {**super().capabilities(), "max dimensions": 64}

    def devices(self) -> Any:
        """The names of the devices that can hold arrays, as a tuple."""
        return tuple(device_api.names())
