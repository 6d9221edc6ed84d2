"""What evaluating arrays in chunks would run: stages, tasks and chunks, as lines of text."""

from __future__ import annotations

from collections.abc import Sequence

from lazyfuse import config
from lazyfuse.codegen.graph.node import Node
from lazyfuse.codegen.graph.shapes import size_of
from lazyfuse.devices.dask import device as scheduler
from lazyfuse.runtime.chunked import graph, run
from lazyfuse.runtime.chunked.demand import Unchunkable
from lazyfuse.runtime.chunked.geometry import Grid
from lazyfuse.runtime.chunked.stages import End, Plan, is_pending
from lazyfuse.runtime.chunked.values import Chunked


def described(nodes: Sequence[Node]) -> list[str]:
    """The stages in their order, each with its kernel, tasks and chunks; nothing runs."""
    pending = [node for node in nodes if is_pending(node)]
    if not pending:
        return [_there(node) for node in nodes if run.chunked_of(node) is not None]
    try:
        plan = Plan(pending, run.grid_of, run.default_grid, lambda _: False)
        made, _ = graph.build(plan, run.chunked_of)
    except Unchunkable as error:
        return [f"on the host: {error}"]
    lines = []
    tasks = 0
    for number, stage in enumerate(plan.stages()):
        found = made[id(stage[0].node)]
        count, name = _tasks(found, stage)
        tasks += count
        lines.append(
            f"stage {number}: {count} tasks {name}, {chunks(stage[0].grid, stage[0].node)}"
        )
        lines += [f"    {_result(end)}" for end in stage]
    owner = scheduler.client()
    where = "threads of this process" if owner is None else f"{owner!r}"
    return [f"{tasks} tasks of Dask on {where}", *lines]


def _tasks(found: Chunked, stage: Sequence[End]) -> tuple[int, str]:
    """The tasks of a stage with those that combine its reductions; the kernel's name."""
    own = found.layers[found.name]
    count = sum(1 for key in own if not str(key[0]).startswith("recipe-"))
    name = found.name.rpartition("-")[0]
    if stage[0].partial is not None:
        count += len(stage[0].grid)
        name = name.removeprefix("combine-")
    return count, name


def _result(end: End) -> str:
    size = f"{end.node.dtype}{list(end.node.shape)}"
    if end.partial is not None:
        some = graph.TOGETHER
        return f"{end.node.op.name} of each chunk, combined {some} by {some}: {size}"
    return f"{end.node.op.name}: {size}"


def chunks(grid: Grid, node: Node) -> str:
    """The chunks of an array in words."""
    largest = [max(sizes, default=0) for sizes in grid.chunks]
    count = len(grid)
    size = node.dtype.itemsize * size_of(tuple(largest))
    return f"{count} chunk{'s' * (count != 1)} of {largest}, {size / 1e6:.3g} MB"


def _there(node: Node) -> str:
    found = run.chunked_of(node)
    assert found is not None
    read = "read when needed" if found.source is not None else "not computed yet"
    state = "stored" if found.stored else read
    limit = config.options.gather_limit / 1e9
    return f"in {chunks(found.grid, node)}, {state}; gather_limit {limit:.3g} GB"
