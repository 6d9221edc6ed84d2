"""What a device that lacks double precision does with the kernels of a plan.

Owns `fitted`: the kernel that a device runs in the place of one of the plan. With the option
`single_precision` such a device computes float64 in float32 (`Traits.narrows`); otherwise it
refuses, and the CPU takes over. Knows kernels and traits, no device and no values.
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
    """Why a device cannot run a kernel for want of double precision; empty if it can."""
    lacks = not traits.fp64 and not traits.narrows and uses_doubles(kernel)
    return LACKS if lacks else ""


def lacks(dtype: np.dtype[Any], traits: Traits) -> bool:
    """Whether no program of a device can touch values of a dtype."""
    return not traits.fp64 and not traits.narrows and dtype.str[1:] in ("f8", "c16")


def is_narrowed(kernel: Kernel, traits: Traits) -> bool:
    """Whether a device computes a kernel in float32 that says float64."""
    return traits.narrows and uses_doubles(kernel)


def fitted(kernel: Kernel, traits: Traits) -> Kernel:
    """The kernel as a device runs it. `DeviceError` if it cannot."""
    if traits.fp64:
        return kernel
    why = why_not(kernel, traits)
    if why:
        raise DeviceError(f"[lower] {why}")
    return single(kernel)


def kept(array: Array, traits: Traits) -> Array:
    """Values as they come back from a device's memory."""
    dtype = array.dtype
    if not traits.narrows or dtype.str[1:] not in ("f8", "c16"):
        return array
    with np.errstate(all="ignore"):
        return array.astype(narrow(dtype.str[1:])).astype(dtype)
