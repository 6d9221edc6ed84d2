"""What `__array_namespace_info__()` tells, in both namespaces.

Owns the class for the main namespace, which has NumPy's (devices come as a list), and the one for
the standard's (as a tuple). The devices are the places where arrays can lie; listing them asks the
OpenCL drivers, nothing else here does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lazyfuse.interop import device_api

_Theirs: Any = np.__array_namespace_info__


class Information(_Theirs):  # type: ignore[misc]  # NumPy's stubs hide that it is a class
    """As `numpy.__array_namespace_info__`, for every device that arrays can lie on."""

    __module__ = "lazyfuse"

    def default_dtypes(self, *, device: Any = None) -> Any:
        """The dtypes that functions give where none is named: the same on every device."""
        return super().default_dtypes(device=self._checked(device))

    def dtypes(self, *, device: Any = None, kind: Any = None) -> Any:
        """The dtypes of the standard, by name, of a kind or of all: the same on every device."""
        return super().dtypes(device=self._checked(device), kind=kind)

    def devices(self) -> Any:
        """The names of the devices that arrays can lie on, as a list."""
        return device_api.names()

    def _checked(self, device: Any) -> Any:
        """The host, if `device` is one of ours; else what NumPy will refuse."""
        return None if device_api.is_elsewhere(device) else device


class StandardInformation(Information):
    """The same as array API 2025.12 has it."""

    __module__ = "lazyfuse.array_api"

    def capabilities(self) -> Any:
        """What the standard leaves open; NumPy 2.3 does not tell of dimensions."""
        return {**super().capabilities(), "max dimensions": 64}

    def devices(self) -> Any:
        """The names of the devices that arrays can lie on, as a tuple."""
        return tuple(device_api.names())
