"""Devices by name: which there are, which are refused and why.

A device is a module of this package with a function `make()`, imported when first asked for. The
face may change settings later, through the devices' own setters.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass

from .base import Device, DeviceError


@dataclass(frozen=True, slots=True)
class Entry:
    """A device's name, its module, and whether it can be used ("" for a module: it cannot)."""

    name: str
    module: str
    reason: str

    @property
    def available(self) -> bool:
        """Whether `device(name)` gives the device."""
        return bool(self.module)


ENTRIES = (
    Entry("cpu", "cpu", "compiled and blocked kernels on threads"),
    Entry("null", "null", "records launches, computes nothing"),
    Entry("raise", "raising", "fails on any evaluation"),
    Entry("opencl", "", "not part of this version: no OpenCL printer yet"),
)
_made: dict[str, Device] = {}


def device(name: str | None = None) -> Device:
    """The device of that name (None or "": LAZYFUSE_DEVICE, else "cpu"); one object per name."""
    wanted = name or os.environ.get("LAZYFUSE_DEVICE") or "cpu"
    found = _made.get(wanted)
    if found is None:
        found = _made.setdefault(wanted, _make(wanted))
    return found


def devices() -> list[Entry]:
    """Every known device, usable or not, with the reason."""
    return list(ENTRIES)


def _make(name: str) -> Device:
    known = " or ".join(f'"{entry.name}"' for entry in ENTRIES if entry.available)
    for entry in ENTRIES:
        if entry.name == name and entry.available:
            made: Device = importlib.import_module(f"{__package__}.{entry.module}").make()
            return made
        if entry.name == name:
            raise DeviceError(f"[device] expected {known}, got {name!r} ({entry.reason})")
    raise DeviceError(f"[device] expected {known}, got {name!r}")
