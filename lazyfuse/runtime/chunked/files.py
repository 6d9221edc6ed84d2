"""Files that are mapped into memory, as arrays in chunks: read where needed, never copied whole."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np

from lazyfuse.codegen.graph.node import Node
from lazyfuse.io import plain_files
from lazyfuse.runtime.chunked import graph, run
from lazyfuse.runtime.chunked.geometry import Grid
from lazyfuse.runtime.chunked.values import Chunked
from lazyfuse.runtime.layout.meta_arrays import Holder, terminal
from lazyfuse.runtime.placement import devices


def leaf_over(array: np.ndarray[Any, Any]) -> Node | None:
    """A node that reads a mapped file chunk by chunk; None for other arrays, and without Dask."""
    file = _mapped(array)
    if file is None or importlib.util.find_spec("dask") is None:
        return None
    found = plain_files.mapped(array, None, devices.chunk_bytes(), file)
    dtype = np.dtype(found.dtype.newbyteorder("=").str)
    if found.literal or dtype.kind not in "biufc":
        return None
    value = Chunked(Grid(found.chunks), dtype, graph.new_name("source"))
    source: Any = found
    value.source = source
    return run.leaf_of(value)


def _mapped(array: np.ndarray[Any, Any]) -> np.memmap[Any, Any] | None:
    """The memmap at the end of an array's bases, behind what we put between."""
    last: Any = terminal(array)
    while isinstance(last.base, Holder):
        last = last.base.keep
        if not isinstance(last, np.ndarray):
            return None
        last = terminal(last)
    for each in (last, last.base):
        if isinstance(each, np.memmap):
            return each
    return None
