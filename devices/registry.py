"""Devices by name: which there are, which are refused and why. Reads the environment variables.

Importing this loads no device. The face may change settings later through the devices' own setters.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from .base import Device, DeviceError

DISK_LIMIT = 256 << 20  # bytes of compiled programs kept on disk
_UNITS = {"kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "tb": 1 << 40}
_OFF = ("0", "off", "false", "no")


@dataclass(frozen=True, slots=True)
class Entry:
    """A device's name, whether it can be used, and why not."""

    name: str
    available: bool
    reason: str


def device(name: str | None = None) -> Device:
    """The device of that name (None or "": LAZYFUSE_DEVICE, else "cpu"); one object per name."""
    wanted = name or os.environ.get("LAZYFUSE_DEVICE") or "cpu"
    found = _made.get(wanted)
    if found is None:
        if wanted not in _MAKERS:
            raise DeviceError(f"[device] expected {_known()}, got {wanted!r}{_why_not(wanted)}")
        found = _made.setdefault(wanted, _MAKERS[wanted]())
    return found


def devices() -> list[Entry]:
    """Every known device, usable or not, with the reason."""
    usable = [Entry(name, True, _ABOUT[name]) for name in _MAKERS]
    return usable + [Entry(name, False, reason) for name, reason in _REFUSED.items()]


def cache_directory() -> str:
    """Where programs are kept on disk (LAZYFUSE_CACHE_DIR, else the user's cache); "": nowhere."""
    named = os.environ.get("LAZYFUSE_CACHE_DIR")
    if named:
        return os.path.join(os.path.expanduser(named), "programs")
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(caches, "lazyfuse", "programs") if os.path.isabs(caches) else ""


def _cpu() -> Device:
    from .cpu import CPU, THREADS_ABOVE
    from .disk_cache import DiskCache

    enabled = os.environ.get("LAZYFUSE_CACHE", "").strip().lower() not in _OFF
    return CPU(
        threads=_number("LAZYFUSE_NUM_THREADS", 0),
        threads_above=_number("LAZYFUSE_THREADS_ABOVE", THREADS_ABOVE),
        pool_limit=_number("LAZYFUSE_POOL_LIMIT", -1),
        disk=DiskCache(cache_directory(), _number("LAZYFUSE_CACHE_LIMIT", DISK_LIMIT), enabled),
    )


def _null() -> Device:
    from .null import Null

    return Null()


def _raise() -> Device:
    from .raising import Raise

    return Raise()


_MAKERS: dict[str, Callable[[], Device]] = {"cpu": _cpu, "null": _null, "raise": _raise}
_ABOUT = {
    "cpu": "compiled and blocked kernels on threads",
    "null": "records launches, computes nothing",
    "raise": "fails on any evaluation",
}
_REFUSED = {"opencl": "not part of this version: no OpenCL printer yet"}
_made: dict[str, Device] = {}


def _known() -> str:
    return " or ".join(f'"{name}"' for name in _MAKERS)


def _why_not(name: str) -> str:
    return f" ({_REFUSED[name]})" if name in _REFUSED else ""


def _number(variable: str, default: int) -> int:
    """A whole number >= 0 from the environment, perhaps with a unit of bytes ("256MB")."""
    text = os.environ.get(variable, "").strip().lower()
    if not text:
        return default
    try:
        value = int(float(text[:-2]) * _UNITS[text[-2:]]) if text[-2:] in _UNITS else int(text)
        if value < 0:
            raise ValueError(text)
    except ValueError as error:
        raise DeviceError(f"[{variable}] expected a whole number >= 0, got {text!r}") from error
    return value
