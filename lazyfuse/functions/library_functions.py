"""Functions that run at once, in NumPy or by a device's libraries: `flatnonzero`.

Those of `numpy.fft` are in transforms.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lazyfuse.arrays import library_indexing
from lazyfuse.arrays.ndarray import cast_node, node_of
from lazyfuse.arrays.operators import dtype_of, shape_of
from lazyfuse.arrays.storage import CANONICAL
from lazyfuse.codegen.graph.node import HostCall
from lazyfuse.functions import indexing
from lazyfuse.registry import implements


@implements(np.flatnonzero, eager="arrays")
def flatnonzero(a: Any) -> Any:
    """As `numpy.flatnonzero`."""
    device = library_indexing.device_for(a)
    if device is not None and dtype_of(a) in CANONICAL and len(shape_of(a)):
        truth = cast_node(node_of(a), np.dtype(bool))
        found = library_indexing.computed(device, HostCall("flatnonzero", np.flatnonzero), truth)
        if found is not None:
            return found
    return indexing.flatnonzero(a)
