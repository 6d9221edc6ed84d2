"""Arrays in chunks, as users make, keep and leave them.

Owns `lazyfuse.from_dask`, `lazyfuse.persist` and the meaning of `x.to_dask()`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lazyfuse.arrays.ndarray import alone, ndarray, node_of
from lazyfuse.arrays.storage import CANONICAL
from lazyfuse.errors import message
from lazyfuse.runtime.chunked import graph, run, tasks
from lazyfuse.runtime.chunked.geometry import Grid
from lazyfuse.runtime.chunked.values import Chunked
from lazyfuse.runtime.events import decisions
from lazyfuse.runtime.placement import residency
from lazyfuse.runtime.scheduling import evaluate


def from_dask(array: Any) -> Any:
    """The array of a dask array: the same tasks, nothing is computed."""
    if array.dtype not in CANONICAL:
        what = message("from_chunks", "dtype", "a dtype of numbers", array.dtype, "cast it first")
        raise TypeError(what)
    if any(np.isnan(size) for sizes in array.chunks for size in sizes):
        array = array.compute_chunk_sizes()
    chunks = tuple([tuple([int(size) for size in sizes]) for sizes in array.chunks])
    value = Chunked(Grid(chunks), CANONICAL[array.dtype], array.name)
    value.layers = dict(array.dask.layers)
    value.needs = {name: set(needs) for name, needs in array.dask.dependencies.items()}
    return wrap_chunked(value)


def wrap_chunked(value: Chunked) -> Any:
    """An array whose value is in chunks."""
    with evaluate.quiet:
        return alone(run.leaf_of(value))


def to_dask(x: ndarray) -> Any:
    """The dask array of an array: its tasks, with nothing computed; host values in one chunk."""
    import dask.array
    from dask._task_spec import Task, TaskRef
    from dask.highlevelgraph import HighLevelGraph

    run.open_chunks()
    value = lazily(x)
    value = run.with_tasks(value)
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
    return dask.array.Array(HighLevelGraph(layers, needs), name, value.grid.chunks, value.dtype)


def lazily(x: ndarray) -> Chunked:
    """The value of an array in chunks, without computing it."""
    node = node_of(x)
    evaluate.compute([node], decisions.EXPORT)
    found = run.chunked_of(node)
    if found is not None:
        return found
    if node.value is None:
        residency.gather(node, "to_dask")
    return graph.chunked_host(node)


def persist(x: ndarray) -> ndarray:
    """Compute an array in chunks now and keep its chunks, here or on the cluster; returns `x`."""
    node = node_of(x)
    evaluate.compute([node], decisions.EXPORT)
    run.store(node)
    return x
