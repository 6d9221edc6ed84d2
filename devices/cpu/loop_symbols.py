"""The functions of libraries that compiled loops call (frontend/loop_functions.py).

They are the very functions that Python's `math` and NumPy call, so the bits are theirs.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress

from ..base import C_FUNCTIONS, DeviceError
from ..caches import CONSTANT, cached
from ..pools import object_code, vector_math
from . import matmul_blas
from .frontend import loop_functions


@cached(1, CONSTANT, clears=False)
def supply() -> None:
    """Register them with the linker, once."""
    library = vector_math.libm()
    for name in (*C_FUNCTIONS, *loop_functions.OF_TWO):
        object_code.supply(f"lf_libm_{name}", vector_math.address(library, name))
    with suppress(DeviceError, AttributeError):
        library = matmul_blas.library()
        for name in loop_functions.DOTS.values():
            found = getattr(library, f"scipy_cblas_{name[3:]}64_")
            address = ctypes.cast(found, ctypes.c_void_p).value
            if address is not None:
                object_code.supply(name, address)
