"""`x[mask]` of arrays in chunks: counted first, since the sizes of chunks are part of an array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lazyfuse.codegen.graph.node import Node
from lazyfuse.devices.dask import device as scheduler
from lazyfuse.runtime.chunked import graph, run, tasks
from lazyfuse.runtime.chunked.demand import Unchunkable
from lazyfuse.runtime.chunked.geometry import Grid
from lazyfuse.runtime.chunked.stages import Plan
from lazyfuse.runtime.chunked.told import told
from lazyfuse.runtime.chunked.values import Chunked, Key
from lazyfuse.runtime.scheduling import evaluate


def select(value: Node, mask: Node) -> Chunked | None:
    """The elements that a mask of the same shape keeps, in C order; None: neither is in chunks.

    The mask is counted first, chunk by chunk, since the sizes of chunks are part of an array.
    """
    from dask._task_spec import Task, TaskRef

    with evaluate.held():
        if not (run.is_ours(value) or run.is_ours(mask)):
            return None
        rank = len(mask.shape)
        grid = run.grid_for(value if run.is_ours(value) else mask).whole(range(1, rank))
        both, recorded = _on_grid([value, mask], grid)
    name = graph.new_name("select")
    found = Chunked(Grid(((0,),)), value.dtype, name)
    for each in both:
        found.adopt(each)
    counts: dict[Key, Any] = {}
    parts = []
    for at, index in enumerate(grid.indices()):
        ends = [(TaskRef(each.key(index)), each.part) for each in both]
        (block, part), (truth, place) = ends
        counts[f"count-{name}", at] = Task((f"count-{name}", at), tasks.count, truth, place)
        parts.append((tasks.select, block, part, truth, place))
    with told(value):
        sizes = run.unlocked(_results, {**found.layers, "count": counts}, list(counts))
    kept = [at for at, size in enumerate(sizes) if size] or [0]  # no empty chunks
    found.grid = Grid((tuple([int(sizes[at]) for at in kept]),))
    found.layers[name] = {
        (name, place): Task((name, place), *parts[at]) for place, at in enumerate(kept)
    }
    with evaluate.held():
        run.take_notes(recorded)
    return found


def _on_grid(nodes: Sequence[Node], grid: Grid) -> tuple[list[Chunked], dict[str, graph.Recorded]]:
    """Values on the same chunks."""
    there = {id(node): found for node in nodes if (found := run.chunked_of(node)) is not None}
    copies = {}
    for node in nodes:
        known = there.get(id(node))
        if known is None or known.source is not None or known.grid.chunks != grid.chunks:
            copies[id(node)] = run.copy_of(node)
    run.host_steps(list(copies.values()))
    forced = {id(copy): grid for copy in copies.values()}
    try:
        plan = Plan(list(copies.values()), run.grid_of, run.default_grid, lambda _: False, forced)
        made, recorded = graph.build(plan, run.chunked_of)
    except Unchunkable as error:
        run.refuse(nodes[0], str(error))
    both = [made[id(copies[id(node)])] if id(node) in copies else there[id(node)] for node in nodes]
    return both, recorded


def _results(layers: dict[str, Any], keys: Sequence[Key]) -> list[Any]:
    found: list[Any] = scheduler.compute(scheduler.culled(layers, keys), keys)
    return found
