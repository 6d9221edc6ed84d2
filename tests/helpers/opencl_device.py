"""An OpenCL device opened anew for a test, in the mode that it asks for. Holds no test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import lazyfuse as np
from lazyfuse.devices import registry
from lazyfuse.devices.base import DeviceError
from lazyfuse.devices.opencl.device import OpenCL
from lazyfuse.devices.opencl.failures import faults
from lazyfuse.runtime.events import counters
from lazyfuse.runtime.placement import devices, pending_launches


@contextmanager
def in_use(share: bool, grid: bool = False) -> Iterator[OpenCL]:
    """The first OpenCL device as the one in use, in a state of its own; a skip where none is.

    `share`: with memory that it shares with the host, or with memory of its own. `grid`: with the
    kernels made for GPUs.
    """
    pytest.importorskip("pyopencl", reason="pyopencl is not installed")
    with np.options(device="opencl", opencl_share=share, opencl_grid=grid):
        devices.reopen()
        np.synchronize()  # what tests before have left under way elsewhere
        try:
            found = registry.device("opencl")
        except DeviceError as error:
            pytest.skip(str(error))
        assert isinstance(found, OpenCL)
        if (found.memory is None) != share:
            pytest.skip(f"{found.traits.model} has memory of its own")
        counters.reset()
        try:
            yield found
        finally:
            faults.clear()
            pending_launches.wait(found)
            devices.reopen()  # it may be lost
