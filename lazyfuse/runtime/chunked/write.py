"""Values in chunks, written where they are computed: to files, and to arrays of the program."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import numpy as np

from lazyfuse.codegen.graph.node import Node, topological
from lazyfuse.devices.dask import device as scheduler
from lazyfuse.errors import message
from lazyfuse.io import plain_targets
from lazyfuse.runtime.chunked import graph, run, tasks
from lazyfuse.runtime.chunked.demand import Unchunkable
from lazyfuse.runtime.chunked.geometry import Grid
from lazyfuse.runtime.chunked.recipe import Recipe
from lazyfuse.runtime.chunked.stages import Plan
from lazyfuse.runtime.chunked.told import told
from lazyfuse.runtime.chunked.values import Chunked, slices_of
from lazyfuse.runtime.scheduling import evaluate


def save(node: Node, target: Any) -> None:
    """Compute a value chunk by chunk, and write each where it was computed.

    A target that one process at a time may write to gets the blocks of a cluster one by one.
    """
    run.open_chunks()
    if target.overwrites and os.path.realpath(target.overwrites) in _files_of(node):
        what = message("save_chunks", f"{target.description} is read by what is to be written")
        raise ValueError(f"{what}; write to another place, and move it when it is complete")
    grid = Grid(target.chunks)
    with evaluate.held():
        copy = run.copy_of(node)
        run.host_steps([copy])
        here = scheduler.client() is None
        targets = {id(copy): target} if here or not target.serial else {}
        try:
            plan = Plan([copy], run.grid_of, run.default_grid, lambda _: False, {id(copy): grid})
            made, recorded = graph.build(plan, run.chunked_of, targets)
        except Unchunkable as error:
            run.refuse(node, str(error))
    value = made[id(copy)]
    target.prepare()
    try:
        with told(node):
            run.unlocked(_run_all, value, None if targets else target)
        target.finish()
    except BaseException:
        target.abandon()
        if targets:  # tasks that go on may write until here
            with contextlib.suppress(Exception):  # of a cluster that is gone
                run.unlocked(scheduler.on_workers, target.settle)
            target.abandon()
        raise
    with evaluate.held():
        run.take_notes(recorded)


def _files_of(node: Node) -> set[str]:
    """The files that the tasks of a value read."""
    found: set[str] = set()
    for each in topological([node]):
        value = run.chunked_of(each)
        if value is None:
            continue
        sources = [] if value.source is None else [value.source]
        for layer in value.layers.values():
            for key, task in layer.items():
                if isinstance(recipe := getattr(task, "value", None), Recipe):
                    sources += recipe.sources
                elif getattr(task, "func", None) is tasks.read_block:
                    sources.append(task.args[0])
                elif not str(key[0]).startswith("recipe-"):
                    break  # the recipe comes first; a layer of reads has no other tasks
        found |= {os.path.realpath(each.path) for each in sources if hasattr(each, "path")}
    return found


def saves(node: Node, out: Any) -> bool:
    """Whether a large value in chunks has been written to an array of the program, as `out=`.

    False: it is small, the shape or dtype does not fit, or it reads the file that is written.
    """
    if not (isinstance(out, np.ndarray) and run.is_large(node) and out.shape == node.shape):
        return False
    if not np.can_cast(node.dtype, out.dtype, "same_kind") or not out.flags.writeable:
        return False
    target = plain_targets.mapped(out)
    if target.overwrites and os.path.realpath(target.overwrites) in _files_of(node):
        return False
    save(node, target)
    return True


def _run_all(value: Chunked, target: Any) -> None:
    """Run the tasks of all chunks; `target` gets their blocks, a few at a time."""
    keys = run.keys_of(value)
    program = scheduler.culled(value.layers, keys, value.needs)
    if target is None:
        scheduler.compute(program, keys)
        return
    boxes = value.grid.boxes()
    for at, block in scheduler.in_turn(program, keys):
        target.write(slices_of(boxes, at), block if value.part is None else block[value.part])
