"""How kernels for OpenCL are built in tests, and in the processes that tests start. Holds no test.

PoCL takes 0.6 s to optimise a kernel and 0.1 s to translate it. The suite has kernels translated
only; LAZYFUSE_TEST_OPENCL=optimised has them built as users' are. Importing this module sees to it.

So are the kernels of pyopencl's scans and sorts. Only they are: what pyopencl builds to look at the
layout of a struct ends the process where it is not optimised. pyopencl is imported by who uses it.
"""

from __future__ import annotations

import functools
import os
from types import SimpleNamespace
from typing import Any

from lazyfuse.devices.opencl import device, library

OPTIMISED = os.environ.get("LAZYFUSE_TEST_OPENCL") == "optimised"

_OPTION = "-cl-opt-disable"
_KERNELS = {"pyopencl.scan": "GenericScanKernel", "pyopencl.algorithm": "RadixSort"}
_real = library._module


def _module(name: str) -> Any:
    """As that of `opencl_library`; the kernels of pyopencl's are built with our option."""
    found = _real(name)
    kernel = _KERNELS.get(name)
    if kernel is None:
        return found
    made = functools.partial(getattr(found, kernel), options=[_OPTION])
    return SimpleNamespace(**{kernel: made})


if not OPTIMISED:
    device.BUILD_OPTIONS.append(_OPTION)
    library._module = _module
