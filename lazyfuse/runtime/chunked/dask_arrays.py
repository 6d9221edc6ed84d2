"""Dask's own arrays: ours as theirs and theirs as ours, with the same tasks."""

from __future__ import annotations

from typing import Any

import numpy as np

from lazyfuse.codegen.graph.node import Node
from lazyfuse.errors import UnsupportedError, message
from lazyfuse.runtime.chunked import graph, run, tasks
from lazyfuse.runtime.chunked.geometry import Grid
from lazyfuse.runtime.chunked.values import Chunked
from lazyfuse.runtime.events import decisions
from lazyfuse.runtime.placement import residency
from lazyfuse.runtime.scheduling import evaluate


def chunked(array: Any) -> Chunked:
    """The value of a dask array. Sizes of chunks that are not known are computed."""
    dtype = np.dtype(array.dtype.newbyteorder("=").str)  # the one spelling that nodes use
    if dtype.kind not in "biufc":
        what = f"a dask array of {array.dtype}"
        raise UnsupportedError(message("from_chunks", what, instead="cast it to numbers first"))
    if any(np.isnan(size) for sizes in array.chunks for size in sizes):
        array = array.compute_chunk_sizes()
    chunks = tuple([tuple([int(size) for size in sizes if size]) or (0,) for sizes in array.chunks])
    if chunks != array.chunks:  # empty chunks have no largest element
        array = array.rechunk(chunks)
    value = Chunked(Grid(chunks), dtype, array.name)
    value.layers = dict(array.dask.layers)
    value.needs = {name: set(needs) for name, needs in array.dask.dependencies.items()}
    return value


def of_node(node: Node) -> Any:
    """The dask array of a node's value, in chunks or on the host, without computing what is not."""
    import dask.array
    from dask._task_spec import Task, TaskRef
    from dask.highlevelgraph import HighLevelGraph

    run.open_chunks()
    value = run.with_tasks(_lazily(node))
    name = value.name
    layers, needs = dict(value.layers), {key: set(at) for key, at in value.needs.items()}
    if value.part is not None:
        name = graph.new_name("pick")
        layers[name] = {
            (name, *index): Task((name, *index), tasks.pick, TaskRef(value.key(index)), value.part)
            for index in value.grid.indices()
        }
        needs[name] = {value.name}
    for each in layers:
        needs.setdefault(each, set())
    make: Any = dask.array.Array
    by_layer: Any = layers
    return make(HighLevelGraph(by_layer, needs), name, value.grid.chunks, value.dtype)


def _lazily(node: Node) -> Chunked:
    """The value of a node in chunks."""
    evaluate.compute([node], decisions.EXPORT)
    if isinstance(node.resident, run.Place):  # also where the host has the values, too
        return node.resident.chunked
    if node.value is None:
        residency.gather(node, "to_dask")
    return graph.chunked_host(node)


def picked(node: Node, key: Any) -> Chunked | None:
    """A part of a large array in chunks for a key with arrays; None where NumPy has to take it."""
    if not run.is_large(node):
        return None
    try:
        if not _is_along_one_axis(key, node.shape):
            return None
        return chunked(of_node(node)[key])
    except (NotImplementedError, TypeError, ValueError):
        return None


def _is_along_one_axis(key: Any, shape: tuple[int, ...]) -> bool:
    """Whether a key is slices and one vector of indices, or one mask; Dask differs in others."""
    parts = key if isinstance(key, tuple) else (key,)
    arrays = [axis for axis, part in enumerate(parts) if not isinstance(part, slice)]
    if len(arrays) != 1 or len(parts) > len(shape):
        return False
    part, length = parts[arrays[0]], shape[arrays[0]]
    if not isinstance(part, (list, np.ndarray)):
        return False
    index = np.asarray(part)
    if index.ndim != 1 or not index.size:
        return False
    if index.dtype.kind == "b":
        return index.size == length
    return index.dtype.kind in "iu" and -length <= index.min() and index.max() < length
