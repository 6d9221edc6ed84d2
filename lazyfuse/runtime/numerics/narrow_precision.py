"""How a device that lacks double precision runs the kernels of a plan.

Owns `fitted`: the kernel that a device runs instead of a kernel of the plan. With the option
`single_precision` such a device computes float64 in float32 (`Traits.narrows`); otherwise it
refuses, and the CPU runs the kernel. Knows kernels and traits, no devices and no values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lazyfuse.codegen.lowering.kernel import Kernel, uses_doubles
from lazyfuse.codegen.lowering.narrow import narrow, single
from lazyfuse.devices.base import DeviceError, Traits

Array = np.ndarray[Any, np.dtype[Any]]

LACKS = "the device lacks float64; with the option single_precision it would compute in float32"
NARROWED = "float64 in float32: the device lacks float64 and single_precision is on"


def why_not(kernel: Kernel, traits: Traits) -> str:
    """Why a device without double precision cannot run a kernel; empty if it can."""
    lacks = not traits.fp64 and not traits.narrows and uses_doubles(kernel)
    return LACKS if lacks else ""


def lacks(dtype: np.dtype[Any], traits: Traits) -> bool:
    """Whether a device has no programs for values of a dtype."""
    return not traits.fp64 and not traits.narrows and dtype.str[1:] in ("f8", "c16")


def is_narrowed(kernel: Kernel, traits: Traits) -> bool:
    """Whether a device computes a float64 kernel in float32."""
    return traits.narrows and uses_doubles(kernel)


def fitted(kernel: Kernel, traits: Traits) -> Kernel:
    """The kernel as a device runs it; raises `DeviceError` if it cannot."""
    if traits.fp64:
        return kernel
    why = why_not(kernel, traits)
    if why:
        raise DeviceError(f"[lower] {why}")
    return single(kernel)


def kept(array: Array, traits: Traits) -> Array:
    """Values as a device's memory would return them: rounded to float32 where it narrows."""
    dtype = array.dtype
    if not traits.narrows or dtype.str[1:] not in ("f8", "c16"):
        return array
    with np.errstate(all="ignore"):
        return array.astype(narrow(dtype.str[1:])).astype(dtype)
