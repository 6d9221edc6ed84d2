"""The device in use, with the options of the face applied to it.

Owns the choice of device and what happens when the one asked for cannot be had. Together with
evaluate.py the only module that sees the devices.
"""

from __future__ import annotations

import os
from typing import Any

from lazyfuse import config, report
from lazyfuse.devices import registry, settings
from lazyfuse.devices.base import Device
from lazyfuse.devices.disk_cache import DiskCache

_current: Device | None = None


def current() -> Device:
    """The device that kernels run on now."""
    return _current or _choose()


def _choose() -> Device:
    """The device asked for, or the CPU with the reason in the report if it is refused."""
    global _current
    name = config.options.device or "cpu"
    refused = [e for e in registry.devices() if e.name == name and not e.available]
    if refused:
        report.totals.fallbacks[f"device {name}: {refused[0].reason}"] += 1
        name = "cpu"
    _current = device = registry.device(name)
    _apply(device)
    return device


def _apply(device: Any) -> None:
    """Hand the options to a device that has the setters."""
    if not hasattr(device, "set_threads"):
        return
    options = config.options
    device.set_threads(options.threads)
    device.set_threads_above(options.threads_above)
    device.set_pool_limit(options.pool_limit)
    folder = options.cache_dir
    folder = os.path.join(os.path.expanduser(folder), "programs") if folder else ""
    device.set_disk(
        DiskCache(folder or settings.cache_directory(), options.cache_limit, options.cache)
    )


def _forget(_: Any) -> None:
    global _current
    _current = None


# The device is asked for again, and gets the options anew, when one of these changes.
for _name in (
    "device", "threads", "threads_above", "pool_limit", "cache_dir", "cache_limit", "cache"
):  # fmt: skip
    config.on_change(_name, _forget)
