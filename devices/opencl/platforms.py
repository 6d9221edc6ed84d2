"""The OpenCL devices of the machine: their traits, and their names on disk.

Owns the order and the names of devices ("opencl:0", ...), their traits, and the digest of
everything that decides a program's machine code, except its text. Finding devices imports
pyopencl and opens none of them.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Iterable
from typing import Any

from lazyfuse.devices.dataclass import dataclass

from .. import late_imports, settings
from ..base import DeviceError, Traits
from ..pools import environment
from . import probe

MISSING = "pyopencl is not installed: pip install lazyfuse[opencl]"
NONE = "no OpenCL platform found: install a driver, or pip install pocl-binary-distribution"
NO_FP64 = "no fp64: programs with float64 run on the CPU"
NARROWS = "no fp64: float64 is kept and computed in float32, as single_precision asks"

# The package of devices/ whose modules decide what a text compiles to.
_RUNTIME = "opencl"


@dataclass(frozen=True)
class Found:
    """An OpenCL device: its number over all platforms, and pyopencl's object."""

    index: int
    device: Any

    @property
    def name(self) -> str:
        """The name by which a user selects it."""
        return f"opencl:{self.index}"


def missing() -> str:
    """Why there can be no OpenCL device; "" if there may be one."""
    return MISSING if importlib.util.find_spec("pyopencl") is None else ""


def find() -> list[Found]:
    """Every device, by number; raises `DeviceError` if there is none."""
    reason = missing()
    if reason:
        raise DeviceError(f"[device] {reason}")
    try:
        devices = probe.devices()
    except ImportError as error:  # a part of pyopencl is missing
        raise DeviceError(f"[device] pyopencl cannot be imported: {error}") from error
    if not devices:
        raise DeviceError(f"[device] {NONE}")
    return [Found(index, device) for index, device in enumerate(devices)]


def choose(name: str, found: list[Found]) -> list[Found]:
    """The devices that match a name ("opencl", "opencl:1", "opencl:nvidia"), best first."""
    _, _, wanted = name.partition(":")
    best = sorted(found, key=lambda each: (_rank(each.device), each.index))
    if not wanted:
        return best
    if wanted.isdigit():
        return [each for each in found if each.index == int(wanted)]
    return [each for each in best if wanted.lower() in _label(each.device).lower()]


def traits(found: Found) -> Traits:
    """The traits that the driver reports without opening the device."""
    cl = late_imports.module("pyopencl")
    device = found.device
    kind = "cpu" if device.type & cl.device_type.CPU else "gpu"
    fp64 = "cl_khr_fp64" in device.extensions and settings.flag("LAZYFUSE_OPENCL_FP64", True)
    narrows = not fp64 and settings.flag("LAZYFUSE_SINGLE_PRECISION", False)
    grid = kind == "gpu" or settings.flag("LAZYFUSE_OPENCL_GRID", False)
    return Traits(
        found.name,
        kind,
        device.max_compute_units,
        ("opencl-grid", "opencl") if grid else ("opencl",),
        () if fp64 else (NARROWS if narrows else NO_FP64,),
        model=device.name.strip(),
        platform=device.platform.name.strip(),
        driver=device.driver_version.strip(),
        fp64=fp64,
        narrows=narrows,
        shares_memory=may_share(device) and not narrows,
        local_bytes=device.local_mem_size,
    )


def may_share(device: Any) -> bool:
    """Whether programs may work on host arrays; the self-test shows whether they can."""
    unified = bool(device.host_unified_memory)
    return unified and settings.flag("LAZYFUSE_OPENCL_SHARE", True)


def digest(found: Found, more: Iterable[str] = ()) -> str:
    """A short name of a device's environment."""
    return hashlib.sha256("\0".join([*facts(found), *more]).encode()).hexdigest()[:24]


def facts(found: Found) -> list[str]:
    """Everything that the digest covers, as readable text."""
    device, platform = found.device, found.device.platform
    return [
        f"pyopencl {late_imports.module('pyopencl').VERSION_TEXT}",
        f"platform {platform.name} {platform.version}",
        f"device {device.name} {device.version} {device.opencl_c_version}",
        f"driver {device.driver_version}",
        f"extensions {device.extensions}",
        f"cpu {_cpu_flags()}",
        f"options {os.environ.get('PYOPENCL_BUILD_OPTIONS', '')}",
        f"runtime {environment.runtime(_RUNTIME)}",
    ]


def _label(device: Any) -> str:
    return f"{device.name} {device.platform.name} {device.vendor}"


def _rank(device: Any) -> int:
    """GPUs before accelerators before CPUs."""
    types = late_imports.module("pyopencl").device_type
    if device.type & types.GPU:
        return 0
    return 1 if device.type & types.ACCELERATOR else 2


def _cpu_flags() -> str:
    """The CPU's extensions: in these, machines that share a folder of programs may differ."""
    known = environment.described_processor()
    return known.get("flags", known.get("Features", ""))
