"""Devices by name: the known ones, and why some are refused.

A device is a module with a function `make`, imported on first use: a line in `MODULES`. OpenCL
devices are searched only when the user asks for one, or for the list. The user's options reach a
device later, through its `configure`.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from types import ModuleType
from typing import Any

from lazyfuse.devices.dataclass import dataclass

from . import critical, fork_safety
from .base import Device, DeviceError, Traits


@dataclass(frozen=True)
class Entry:
    """A device's name, whether `device(name)` gives it, and its traits.

    `reason`: what it is, or why it is refused. `traits`: None where they cost too much to find.
    """

    name: str
    available: bool
    reason: str
    traits: Traits | None = None


MODULES = {
    "cpu": (".cpu.device", "compiled and blocked kernels on threads"),
    "dask": (".dask.device", "arrays in chunks: larger than memory, or on a cluster"),
    "null": (".null", "records launches, computes nothing"),
    "raise": (".raise_device", "fails on any evaluation"),
}
"""Devices by name: the module whose `make()` makes the device, and a description."""

_NEEDS = {"dask": "dask"}  # packages that a device needs

_FAMILY = "opencl"  # "opencl", "opencl:1", "opencl:part of a name"
_made: dict[str, Device] = {}
_refused: dict[str, str] = {}  # OpenCL devices that failed when they were opened
# Opening imports modules. A signal handler that interrupts an import and asks for the same device
# would find half a module, so handlers wait.
_opening = critical.section(fork_safety.fork_lock)


def device(name: str | None = None) -> Device:
    """The device of that name (None or "": LAZYFUSE_DEVICE, else "cpu"); one object per device."""
    wanted = name or os.environ.get("LAZYFUSE_DEVICE") or "cpu"
    found = _made.get(wanted)
    if found is None:
        with _opening:
            found = _made.get(wanted)  # another thread may have opened it meanwhile
            if found is None:
                found = _made[wanted] = _make(wanted)
    return found


def reopen() -> None:
    """Forget open OpenCL devices; the next request opens them with the switches of that time."""
    for name in [name for name in _made if name.partition(":")[0] == _FAMILY]:
        del _made[name]
    _refused.clear()


def devices() -> list[Entry]:
    """Every known device, usable or refused, with the reason. Opens none."""
    entries = []
    for name, (_, what) in MODULES.items():
        made = _made.get(name)
        missing = name in _NEEDS and importlib.util.find_spec(_NEEDS[name]) is None
        if missing:
            what = f"{_NEEDS[name]} is not installed: pip install 'lazyfuse[{name}]'"
        entries.append(Entry(name, not missing, what, made.traits if made else None))
    return entries + _opencl_entries()


def _make(name: str) -> Device:
    if name in MODULES:
        return _new(MODULES[name][0])
    if name.partition(":")[0] == _FAMILY:
        return _open(name)
    known = [f'"{known}"' for known in (*MODULES, _FAMILY)]
    raise DeviceError(f"[device] expected {' or '.join(known)}, got {name!r}")


def _new(module: str, *arguments: Any) -> Device:
    made: Device = _module(module).make(*arguments)
    return made


def _module(name: str) -> ModuleType:
    return importlib.import_module(name, __package__)


def _open(name: str) -> Device:
    """The first OpenCL device that matches a name and passes its test."""
    platforms = _module(".opencl.platforms")
    found = platforms.find()
    chosen = platforms.choose(name, found)
    if not chosen:
        there = ", ".join(f"{each.name} ({each.device.name.strip()})" for each in found)
        raise DeviceError(f"[device] expected one of {there}, got {name!r}")
    problems = []
    for each in chosen:
        made = _made.get(each.name)
        if made is not None:
            return made
        try:
            made = _new(".opencl.device", each)
        except DeviceError as error:
            _refused[each.name] = str(error)
            problems.append(str(error))
            continue
        _refused.pop(each.name, None)
        return _made.setdefault(each.name, made)
    raise DeviceError("; ".join(problems))


def _opencl_entries() -> list[Entry]:
    platforms = _module(".opencl.platforms")
    try:
        found = platforms.find()
    except DeviceError as error:
        return [Entry(_FAMILY, False, str(error).removeprefix("[device] "))]
    return [_opencl_entry(platforms, each) for each in found]


def _opencl_entry(platforms: Any, found: Any) -> Entry:
    """The entry of an open device, or of one that only its driver describes."""
    name = found.name
    made: Any = _made.get(name)
    traits = made.traits if made is not None else platforms.traits(found)
    refused = made.queue.lost if made is not None else _refused.get(name, "")
    what = f"{traits.model}, {traits.platform}"
    return Entry(name, not refused, refused or "; ".join((what, *traits.notes)), traits)
