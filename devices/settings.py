"""The environment variables that devices read: numbers, sizes, the folder of compiled programs."""

from __future__ import annotations

import os

from .base import DeviceError

_UNITS = {"kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "tb": 1 << 40}
_OFF = ("0", "off", "false", "no")


def number(variable: str, default: int) -> int:
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


def cache_enabled() -> bool:
    """Whether compiled programs are kept on disk (LAZYFUSE_CACHE)."""
    return os.environ.get("LAZYFUSE_CACHE", "").strip().lower() not in _OFF


def cache_directory() -> str:
    """Where programs are kept on disk (LAZYFUSE_CACHE_DIR, else the user's cache); "": nowhere."""
    named = os.environ.get("LAZYFUSE_CACHE_DIR")
    if named:
        return os.path.join(os.path.expanduser(named), "programs")
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(caches, "lazyfuse", "programs") if os.path.isabs(caches) else ""
