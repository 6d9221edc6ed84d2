"""Stand-ins: numpy arrays with the shapes and dtypes of operands, for NumPy to raise its errors on.

Nothing big is allocated: every element of a stand-in is the same one. NumPy checks shapes, dtypes
and flags before it touches elements, and stand-ins are used only where it is going to refuse.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from lazyfuse.arrays.ndarray import OURS
from lazyfuse.runtime.layout.meta_arrays import Array


def standin(x: Any, shape: tuple[int, ...]) -> Any:
    """Something that NumPy refuses exactly as it would refuse `x` in that shape."""
    if type(x) in OURS:
        small = x._small
        node = x._node
        storage = x._storage
        known = node if node is not None else small
        found = known if known is not None else x if storage is None else x._view
        result = blank(shape, found.dtype)
        if storage is not None and not x._view.flags.writeable:
            result.flags.writeable = False
        return result
    if type(x) is np.ndarray:
        return blank(shape, x.dtype)
    return x


def blank(shape: tuple[int, ...], dtype: Any) -> Array:
    """An array of ones that takes one element of memory."""
    return as_strided(np.ones(1, dtype), shape, (0,) * len(shape))
