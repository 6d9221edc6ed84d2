"""What the tasks of a stage read: from the boxes of its outputs down to the boxes of its inputs.

An *instance* is a node computed on one box in each task. Demands of several consumers share an
instance where their boxes lie close together, as the five windows of a stencil do; where they do
not, the node is computed for each. Owns `trace`. Nothing here computes an element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from lazyfuse.codegen.graph.moves import AxisMap, axis_maps
from lazyfuse.codegen.graph.node import Layout, Node, Reduction, Shape
from lazyfuse.codegen.graph.shapes import size_of
from lazyfuse.devices.dataclass import dataclass
from lazyfuse.runtime.chunked.geometry import (
    Boxes,
    Run,
    broadcast_box,
    reshape_runs,
    through_maps,
)

# Boxes share an instance if the box around both has at most this many times the elements of one.
_CLOSE = 1.25


class Unchunkable(Exception):
    """An operation that has no meaning chunk by chunk; the text says why."""


@dataclass
class Instance:
    """A node on one box in each task. `reads` are its sources: instance and the boxes it wants."""

    node: Node
    boxes: Boxes
    reads: list[tuple[int, Boxes]]
    # of an update: the part of the window that lies in the boxes, behind an axis that is empty
    # where there is none, since a window may have no axes of its own
    window: Boxes | None = None
    is_input: bool = False


class Demand(NamedTuple):
    """Boxes that are wanted of a node, and who wants them."""

    boxes: Boxes
    reader: int  # index of the reading instance; below 0: an output of the stage
    place: int  # among its sources, or among the outputs


def trace(
    order: Sequence[Node], outputs: Sequence[tuple[Node, Boxes]], is_input: Callable[[Node], bool]
) -> tuple[list[Instance], list[tuple[int, Boxes]]]:
    """The instances of a stage, readers first, and where its outputs are among them.

    `order`: nodes, sources before readers; all that the outputs reach through nodes that are not
    inputs.
    """
    wanted: dict[int, list[Demand]] = {}
    for place, (node, boxes) in enumerate(outputs):
        wanted.setdefault(id(node), []).append(Demand(boxes, -1, place))
    instances: list[Instance] = []
    found: list[tuple[int, Boxes]] = [(-1, boxes) for _, boxes in outputs]
    for node in reversed(order):
        for wish, readers in _shared(wanted.pop(id(node), [])):
            at = len(instances)
            boxes = wish if is_input(node) else _computed(node, wish)
            made = Instance(node, boxes, [], None, is_input(node))
            instances.append(made)
            for demand in readers:
                if demand.reader < 0:
                    found[demand.place] = (at, demand.boxes)
                else:
                    instances[demand.reader].reads[demand.place] = (at, demand.boxes)
            if not made.is_input:
                for place, (source, below) in enumerate(_sources(made)):
                    made.reads.append((-1, below))
                    wanted.setdefault(id(source), []).append(Demand(below, at, place))
    return instances, found


def _computed(node: Node, wish: Boxes) -> Boxes:
    """The boxes that are computed of a node where these are wanted: some need whole rows."""
    if node.op.kind == "host":
        return along_axis(node, wish)
    if node.op.kind == "view" and is_whole(node):
        heads = {run.head for run in runs_of(node)}
        return _whole(wish, node.shape, [at for at in range(len(node.shape)) if at not in heads])
    return wish


def _whole(boxes: Boxes, shape: Shape, axes: Sequence[int]) -> Boxes:
    low, high = boxes.low.copy(), boxes.high.copy()
    for axis in axes:
        low[:, axis], high[:, axis] = 0, shape[axis]
    return Boxes(low, high)


def _shared(demands: list[Demand]) -> list[tuple[Boxes, list[Demand]]]:
    """Demands of one node, those with close boxes together."""
    groups: list[tuple[Boxes, list[Demand]]] = []
    for demand in demands:
        for at, (boxes, readers) in enumerate(groups):
            if boxes is demand.boxes or boxes.same(demand.boxes):
                readers.append(demand)
                break
            hull = _hull(boxes, demand.boxes)
            if hull.volume() <= _CLOSE * max(boxes.volume(), demand.boxes.volume()):
                groups[at] = hull, [*readers, demand]
                break
        else:
            groups.append((demand.boxes, [demand]))
    return groups


def _hull(first: Boxes, second: Boxes) -> Boxes:
    """The boxes around both; an empty box counts for nothing."""
    neither = (first.shapes <= 0).any(axis=1, keepdims=True)
    other = (second.shapes <= 0).any(axis=1, keepdims=True)
    low = np.where(other, first.low, np.minimum(first.low, second.low))
    high = np.where(other, first.high, np.maximum(first.high, second.high))
    return Boxes(np.where(neither, second.low, low), np.where(neither, second.high, high))


def _sources(made: Instance) -> list[tuple[Node, Boxes]]:
    """The sources of an instance with the boxes that it reads."""
    node, boxes = made.node, made.boxes
    kind = node.op.kind
    if kind in ("map", "source"):
        return [(each, _same_or_broadcast(boxes, node, each)) for each in node.src]
    if kind == "view":
        if is_whole(node):
            return [(node.src[0], reshape_boxes(node, boxes))]
        return [(node.src[0], through_maps(view_maps(node), boxes))]
    if kind == "reduce":
        return [(node.src[0], reduced_boxes(node, boxes))]
    if kind == "update":
        old, value = node.src
        made.window, covered = window_boxes(node, boxes)
        low = np.where(covered[:, None], boxes.high, boxes.low)  # nothing of what is written over
        return [(old, Boxes(low, boxes.high)), (value, _value_boxes(made.window, value))]
    if kind == "host":
        return [(node.src[0], along_axis(node, boxes))]
    raise Unchunkable(f"{node.op.name} has no meaning in chunks")


def _same_or_broadcast(boxes: Boxes, node: Node, source: Node) -> Boxes:
    return boxes if source.shape == node.shape else broadcast_box(boxes, source.shape)


def has_chunks(node: Node) -> bool:
    """Whether an operation other than a host call has a meaning chunk by chunk."""
    if node.op.kind == "view":
        source = node.src[0]
        return (
            axis_maps(node.arg, source.shape, source.perm) is not None
            or reshape_runs(node.arg, source.shape, source.perm) is not None
        )
    if node.op.kind == "update":
        try:
            window_maps(node)
        except Unchunkable:
            return False
    if node.op.kind == "contract":  # sums of nothing are zeros that no task adds
        return node.op.name == "matmul" and all(size_of(each.shape) for each in node.src)
    # a move is one of arrays on the host, recorded before there were chunks
    return node.op.kind != "index"


def view_maps(node: Node) -> tuple[AxisMap, ...]:
    """The index maps of a view."""
    source = node.src[0]
    maps = axis_maps(node.arg, source.shape, source.perm)
    if maps is None:
        raise Unchunkable("the view is not made of slices and transposes")
    return maps


def is_whole(node: Node) -> bool:
    """Whether a view is a reshape that no slices and transposes describe."""
    source = node.src[0]
    if axis_maps(node.arg, source.shape, source.perm) is not None:
        return False
    return reshape_runs(node.arg, source.shape, source.perm) is not None


def runs_of(node: Node) -> tuple[Run, ...]:
    """The runs of axes of a reshape."""
    source = node.src[0]
    runs = reshape_runs(node.arg, source.shape, source.perm)
    assert runs is not None, "the view is a reshape"
    return runs


def reshape_boxes(node: Node, boxes: Boxes) -> Boxes:
    """The boxes of the base of a reshape: whole rows. `boxes` are cut along first axes only."""
    shape = node.src[0].shape
    tasks = len(boxes.low)
    low = np.zeros((tasks, len(shape)), np.int64)
    high = np.broadcast_to(np.array(shape, np.int64), low.shape).copy()
    for run in runs_of(node):
        begin = boxes.low[:, run.head] * run.width if run.head >= 0 else 0
        end = boxes.high[:, run.head] * run.width if run.head >= 0 else 1
        low[:, run.lead] = (run.start + begin) // run.row
        high[:, run.lead] = -(-(run.start + end) // run.row)
    return Boxes(low, high)


def reduced_boxes(node: Node, boxes: Boxes) -> Boxes:
    """The boxes of the operand of a reduction: whole along the axes."""
    arg: Reduction = node.arg
    shape = node.src[0].shape
    tasks = len(boxes.low)
    low = np.zeros((tasks, len(shape)), np.int64)
    high = np.broadcast_to(np.array(shape, np.int64), low.shape).copy()
    at = 0
    for axis in range(len(shape)):
        if axis not in arg.axes:
            low[:, axis], high[:, axis] = boxes.low[:, at], boxes.high[:, at]
        at += axis not in arg.axes or arg.keepdims
    return Boxes(low, high)


def along_axis(node: Node, boxes: Boxes) -> Boxes:
    """The boxes that a function along an axis reads: whole along it."""
    return _whole(boxes, node.src[0].shape, [axis_of(node)])


def axis_of(node: Node) -> int:
    """The axis along which a host call works."""
    named: dict[str, Any] = node.arg.function.keywords
    rank = len(node.src[0].shape)
    axis = named.get("axis", -1)
    return 0 if axis is None else int(axis) % rank


def window_maps(node: Node) -> tuple[AxisMap, ...]:
    """The index maps of an update: on each axis at most one axis of the window."""
    old = node.src[0]
    layout: Layout = node.arg
    if not size_of(layout.shape):
        return (AxisMap(0, ()),) * len(old.shape)  # nothing is written
    maps = axis_maps(layout, old.shape, old.perm)
    if maps is None or any(len(each.steps) > 1 for each in maps):
        raise Unchunkable("the part that is written is not made of slices and transposes")
    mapped = {axis for each in maps for axis, _ in each.steps}
    if any(n > 1 and axis not in mapped for axis, n in enumerate(layout.shape)):
        raise Unchunkable("the part that is written overlaps itself")
    return maps


def window_boxes(node: Node, boxes: Boxes) -> tuple[Boxes, np.ndarray[Any, Any]]:
    """The parts of the window of an update that lie in boxes; and which boxes they cover.

    In front of the window's axes there is one of one index, of none where the box is missed.
    """
    layout: Layout = node.arg
    tasks = len(boxes.low)
    low = np.zeros((tasks, 1 + len(layout.shape)), np.int64)
    high = np.broadcast_to(np.array((1, *layout.shape), np.int64), low.shape).copy()
    missed = np.zeros(tasks, bool)
    for axis, (start, steps) in enumerate(window_maps(node)):
        first, end = boxes.low[:, axis], boxes.high[:, axis]
        if not steps:
            missed |= (start < first) | (start >= end)
            continue
        (place, step), length = steps[0], layout.shape[steps[0][0]]
        if step > 0:
            begin, stop = -((start - first) // step), (end - 1 - start) // step + 1
        else:
            begin, stop = -((end - 1 - start) // -step), (start - first) // -step + 1
        # a diagonal goes along several axes
        low[:, 1 + place] = np.maximum(low[:, 1 + place], np.clip(begin, 0, length))
        high[:, 1 + place] = np.minimum(high[:, 1 + place], np.clip(stop, 0, length))
    missed |= (high <= low).any(axis=1)
    high[missed] = low[missed]
    inside = Boxes(low, high)
    covered = inside.shapes.prod(axis=1) == boxes.shapes.prod(axis=1)
    return inside, covered & ~missed


def _value_boxes(window: Boxes, value: Node) -> Boxes:
    found = broadcast_box(window, value.shape)
    empty = (window.shapes <= 0).any(axis=1)
    if value.shape:
        found.high[empty] = found.low[empty]
    return found
