"""The CPU that programs are compiled for: its name and its features, as LLVM spells them.

Imports neither NumPy nor numba: the compiler's process starts with it.
"""

from __future__ import annotations

import os

from ..base import DeviceError
from ..caches import CONSTANT, cached
from .object_code import linker

# Settings of numba that change its machine code.
SETTINGS = (
    "CPU_NAME CPU_FEATURES OPT ENABLE_AVX LOOP_VECTORIZE SLP_VECTORIZE BOUNDSCHECK DEBUGINFO "
    "FULL_TRACEBACKS LLVM_PASS_TIMINGS"
)
# CPUs with AVX that numba does not use (numba.core.config), and old settings.
_ODD = ("corei7-avx", "core-avx-i", "sandybridge", "ivybridge", "nocona")


@cached(1, CONSTANT, clears=False)
def target() -> tuple[str, str]:
    """The CPU and features that numba compiles for; `DeviceError` where that is uncertain."""
    odd = [name for name in SETTINGS.split() if os.environ.get("NUMBA_" + name)]
    if odd:
        raise DeviceError(f"[target] numba is set up in its own way: NUMBA_{odd[0]}")
    llvm = linker()
    name = llvm.get_host_cpu_name()
    if name in _ODD:
        raise DeviceError(f"[target] numba uses no AVX on {name}")
    try:
        return name, llvm.get_host_cpu_features().flatten()
    except RuntimeError:
        return name, ""
