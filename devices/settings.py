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


chosen: dict[str, bool] = {}
"""Switches that the frontend has changed since the start, by variable; they take precedence."""


def flag(variable: str, default: bool) -> bool:
    """A switch from the environment: "0", "off", "false" and "no" are off, other words on."""
    if variable in chosen:
        return chosen[variable]
    text = os.environ.get(variable, "").strip().lower()
    return text not in _OFF if text else default


def cache_enabled() -> bool:
    """Whether compiled programs are kept on disk (LAZYFUSE_CACHE)."""
    return flag("LAZYFUSE_CACHE", True)


def cache_directory() -> str:
    """The folder of programs on disk (LAZYFUSE_CACHE_DIR, else the user's cache); "": none."""
    named = os.environ.get("LAZYFUSE_CACHE_DIR")
    if named:
        return os.path.join(os.path.expanduser(named), "programs")
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(caches, "lazyfuse", "programs") if os.path.isabs(caches) else ""
