"""The functions of libraries that compiled loops call (frontend/loop_functions.py).

They are the very functions that Python's `math` and NumPy call, so the bits are theirs.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import Any

import numpy as np

from ..base import C_FUNCTIONS, DeviceError
from ..caches import CONSTANT, cached
from ..pools import object_code, vector_math
from . import matmul_blas
from .frontend import loop_functions

_PYTHONS = {
    "append": ctypes.pythonapi.PyList_Append,
    "bool": ctypes.pythonapi.PyBool_FromLong,
    "complex": ctypes.pythonapi.PyComplex_FromDoubles,
    "float": ctypes.pythonapi.PyFloat_FromDouble,
    "int": ctypes.pythonapi.PyLong_FromLongLong,
    "letter": ctypes.pythonapi.PyUnicode_ReadChar,
    "number": ctypes.pythonapi.PyLong_AsLongLongAndOverflow,
    "release": ctypes.pythonapi.Py_DecRef,
    "set": ctypes.pythonapi.PyList_SetItem,
}
_POINTER = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_SCALAR = 60
"""The place of `PyArray_Scalar` among the functions that NumPy's headers list."""


@cached(1, CONSTANT, clears=False)
def supply() -> None:
    """Register them with the linker, once."""
    library = vector_math.libm()
    for name in (*C_FUNCTIONS, *loop_functions.OF_TWO):
        object_code.supply(f"lf_libm_{name}", vector_math.address(library, name))
    for name, function in _PYTHONS.items():
        object_code.supply(f"lf_py_{name}", ctypes.cast(function, ctypes.c_void_p).value or 0)
    numpys: Any = np._core._multiarray_umath._ARRAY_API  # type: ignore[attr-defined]
    table = _POINTER(numpys, None)
    object_code.supply("lf_py_scalar", ctypes.c_size_t.from_address(table + 8 * _SCALAR).value)
    with suppress(DeviceError, AttributeError):
        library = matmul_blas.library()
        for name in loop_functions.DOTS.values():
            found = getattr(library, f"scipy_cblas_{name[3:]}64_")
            address = ctypes.cast(found, ctypes.c_void_p).value
            if address is not None:
                object_code.supply(name, address)
