"""Memory planning: lifetimes, and which updates may happen in place.

Level 1 decides what the structure allows; `overlap` helps level 2 with concrete addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyfuse.codegen.graph import shapes
from lazyfuse.codegen.graph.linearize import Graph
from lazyfuse.codegen.graph.node import Memory
from lazyfuse.codegen.table import ops
from lazyfuse.devices.dataclass import dataclass

if TYPE_CHECKING:
    from lazyfuse.codegen.plan.plan import Step


@dataclass(frozen=True)
class Lifetimes:
    """For each step, the values that no later step reads, nor any view of their memory.

    If a run fails, what it has reached is kept, and a view alone would not keep what it shows.
    """

    last: tuple[tuple[int, ...], ...]


def lifetimes(graph: Graph, steps: Sequence[Step], outputs: Sequence[int]) -> Lifetimes:
    """When each value can be dropped; outputs never can."""
    final: dict[int, int] = {}
    for at, step in enumerate(steps):
        for index in (*step.reads, *step.writes):
            final[index] = at
            value = graph.values[index]
            if value.op is ops.UPDATE:
                final[value.src[0]] = at
    kept = set(outputs)
    for index in range(len(graph.values) - 1, -1, -1):
        value = graph.values[index]
        if value.op in ops.PLACES and index in final:
            for source in value.src:
                final[source] = max(final.get(source, 0), final[index])
                if index in kept:
                    kept.add(source)
    last: list[list[int]] = [[] for _ in steps]
    for index, at in final.items():
        if index not in kept:
            last[at].append(index)
    return Lifetimes(tuple(tuple(sorted(indices)) for indices in last))


def update_hazards(graph: Graph, steps: Sequence[Step]) -> set[int]:
    """Updates that must not happen in place: an older value of their memory is needed later.

    Values over one block of memory form a class; a value's version is the number of updates below
    it. An update to version k is a hazard if a later step, or the user, reads a version below k.
    A hazard gets its own memory, which may remove later hazards. Where two updates change the same
    version, as of an array and of a copy that shares its memory, one gets its own memory.
    """
    hazards = _forks(graph, steps)
    for _ in range(_HAZARD_ROUNDS):
        root, version = _versions(graph, hazards)
        found = _scan(graph, steps, root, version) - hazards
        if not found:
            return hazards
        first = {root[index]: version[index] for index in found}
        for index in found:
            first[root[index]] = min(first[root[index]], version[index])
        hazards |= {index for index in found if version[index] == first[root[index]]}
    return {index for index, value in enumerate(graph.values) if value.op is ops.UPDATE}


# Each round resolves the first hazard of every block; a block with more than this many is copied.
_HAZARD_ROUNDS = 8


def _scan(
    graph: Graph, steps: Sequence[Step], root: Sequence[Any], version: Sequence[int]
) -> set[int]:
    oldest: dict[Any, int] = {}  # per class, the lowest version read after the present step
    found: set[int] = set()

    def read(index: int) -> None:
        if graph.values[index].op is ops.INDEX:  # read where its kernel runs
            for source in graph.values[index].src:
                read(source)
            return
        at = root[index]
        oldest[at] = min(oldest.get(at, version[index]), version[index])

    for index, value in enumerate(graph.values):
        if value.output:
            read(index)
    for step in reversed(steps):
        for index in step.writes:
            is_update = graph.values[index].op is ops.UPDATE
            if is_update and oldest.get(root[index], version[index]) < version[index]:
                found.add(index)
        for index in (*step.reads, *step.writes):
            read(index)
            if graph.values[index].op is ops.UPDATE and index in step.writes:
                read(graph.values[index].src[0])
    return found


def _forks(graph: Graph, steps: Sequence[Step]) -> set[int]:
    """Updates of a version that other updates change, too: all except one that runs after the rest.

    Whether that one is a hazard follows from the rest, which read the version to copy it.
    """
    root, _ = _versions(graph, set())
    newest: list[Any] = []  # below each value: the last update, or the block
    changing: dict[Any, list[int]] = {}
    for index, value in enumerate(graph.values):
        below = newest[value.src[0]] if value.op in (ops.VIEW, ops.UPDATE) else root[index]
        if value.op is ops.UPDATE:
            changing.setdefault(below, []).append(index)
            below = index
        newest.append(below)
    forked = [updates for updates in changing.values() if len(updates) > 1]
    if not forked:
        return set()
    done = {index: at for at, step in enumerate(steps) for index in step.writes}
    found: set[int] = set()
    for updates in forked:
        *others, last = sorted(updates, key=lambda index: done.get(index, -1))
        found.update(others)
        if done.get(others[-1], -1) == done.get(last, -1):
            found.add(last)
    return found


def _versions(graph: Graph, fresh: set[int]) -> tuple[list[Any], list[int]]:
    """Block and version of each value; each update in `fresh` starts its own block."""
    root: list[Any] = []
    version: list[int] = []
    for index, value in enumerate(graph.values):
        if value.op in (ops.VIEW, ops.UPDATE) and index not in fresh:
            source = value.src[0]
            root.append(root[source])
            version.append(version[source] + (value.op is ops.UPDATE))
            continue
        leaf = value.op is ops.LEAF and isinstance(value.arg, Memory)
        root.append(("memory", id(value.arg)) if leaf else index)
        version.append(0)
    return root, version


def newest_versions(graph: Graph) -> tuple[list[Any], list[int], dict[Any, int]]:
    """Block and version of each value, and the last version of every block."""
    root, version = _versions(graph, set())
    newest: dict[Any, int] = {}
    for at, number in zip(root, version, strict=True):
        newest[at] = max(newest.get(at, 0), number)
    return root, version, newest


def overlap(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> bool:
    """Whether two arrays may share an element without being the same view."""
    if not shares(first, second):
        return False
    return not _same_view(first, second) or crosses_itself(first)


def shares(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> bool:
    """Whether two arrays may share an element."""
    return bool(_share_memory(first, second, max_work=_OVERLAP_WORK))


_share_memory: Any = np.may_share_memory  # NumPy's annotation lacks the number of steps
# Steps that NumPy may take to find out whether two views of one block share an element; half a
# microsecond. Bounds cannot separate a column from the columns right of it.
_OVERLAP_WORK = 64


def safe_source(target: np.ndarray[Any, Any], source: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The source of an assignment; a copy where NumPy would read what it has just written.

    Along one axis NumPy goes forwards or backwards, which is right only for equal steps.
    """
    if target.ndim != 1 or source.ndim != 1 or target.strides == source.strides:
        return source
    return source.copy() if shares(target, source) else source


def crosses_itself(array: np.ndarray[Any, Any]) -> bool:
    """Whether two indices of an array may be one element, as in sliding windows."""
    return shapes.crosses_itself(array.shape, array.strides)


def _same_view(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> bool:
    return (
        first.shape == second.shape
        and first.strides == second.strides
        and first.itemsize == second.itemsize
        and first.__array_interface__["data"][0] == second.__array_interface__["data"][0]
    )
