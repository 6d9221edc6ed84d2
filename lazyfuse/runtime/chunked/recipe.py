"""What one task of a stage computes: operations on the blocks that it is given.

A recipe travels to workers as operations by name with their dtypes, never as machine code: each
worker plans it once per variant and takes the kernels from its own pool. Tasks whose boxes differ
only by where they lie are one *variant*; a grid has few (the inside, edges, corners).

Owns `Recipe` and how it runs. Inputs are read and never written.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import field
from typing import Any, NamedTuple

import numpy as np

from lazyfuse.codegen.graph.linearize import linearize
from lazyfuse.codegen.graph.node import Layout, Memory, Node, Reduction, Shape
from lazyfuse.codegen.graph.shapes import contiguous_strides, reduced_shape
from lazyfuse.codegen.table import ops
from lazyfuse.codegen.table.op import Op
from lazyfuse.devices.dataclass import dataclass
from lazyfuse.runtime.chunked.demand import Instance, is_whole, runs_of, view_maps, window_maps
from lazyfuse.runtime.chunked.geometry import Boxes, Ints
from lazyfuse.runtime.events import decisions
from lazyfuse.runtime.numerics import fp_flags
from lazyfuse.runtime.placement import devices
from lazyfuse.runtime.scheduling import evaluate

Array = np.ndarray[Any, np.dtype[Any]]


class Step(NamedTuple):
    """One operation on blocks. `src`: positions of earlier steps; `arg` as a node has it.

    Besides the kinds of ops there are "input" (`arg`: its number), "literal" (a part of a small
    array, `arg`: number and slices), "empty" and "same".
    """

    kind: str
    op: Op | None
    src: tuple[int, ...]
    arg: Any
    shape: Shape
    dtype: np.dtype[Any]
    at: int  # the instance, for reports


class Variant(NamedTuple):
    """The steps of the tasks with one geometry, and which of them are results."""

    steps: tuple[Step, ...]
    results: tuple[int, ...]
    inputs: frozenset[int]  # numbers of the inputs that are read


class Extreme(NamedTuple):
    """The result of `argmin` or `argmax` in a part: combined with those of others by `combine`."""

    value: Array
    place: Array  # in the whole array


class Partial(NamedTuple):
    """A reduction that tasks begin on their blocks: the axes stay, with one element each."""

    op: Op
    arg: Reduction
    shape: Shape  # of the whole operand

    @property
    def is_extreme(self) -> bool:
        """Whether it is an `argmin` or `argmax`."""
        return self.op.ufunc is None


@dataclass
class Recipe:
    """A stage's program: its variants, the small arrays that it holds, and its reductions.

    `partial`: for each result the reduction that the tasks begin and others finish, or None.
    A result with a target is written by its task, and nothing is left of it.
    """

    name: str
    variants: list[Variant]
    literals: list[Array]
    partial: list[Partial | None]
    sources: list[Any] = field(default_factory=list)
    targets: dict[int, Any] = field(default_factory=dict)  # by result: where it is written
    token: str = ""


def variants_of(
    instances: Sequence[Instance],
    results: Sequence[tuple[int, Boxes]],
    inputs: dict[int, int],
    literals: dict[int, int],
    partial: Sequence[Partial | None],
) -> tuple[list[Variant], np.ndarray[Any, Any]]:
    """The variants of a stage, and which one each task is.

    `inputs`, `literals`: instance -> number of the input, or of the small array.
    """
    rows: dict[tuple[str, int, int], Ints] = {}

    def add(what: str, first: object, second: object, row: Ints) -> None:
        rows.setdefault((what, id(first), id(second)), row)

    for each in instances:
        add("shape", each.boxes, None, each.boxes.shapes)
        for at, below in each.reads:
            base = instances[at].boxes
            if at in literals:
                add("literal", below, None, below.low)
            elif below is not base:
                add("part", below, base, _if_any(below, below.low - base.low))
            if each.node.op is ops.VIEW:
                add("view", each, None, _origin(each, base))
        if each.window is not None:
            add("shape", each.window, None, each.window.shapes)
            add("target", each, None, _if_any(each.window, _target(each)))
    for at, below in results:
        base = instances[at].boxes
        if at in literals:
            add("literal", below, None, np.concatenate([below.low, below.shapes], axis=1))
        elif below is not base:
            row = np.concatenate([below.low - base.low, below.shapes], axis=1)
            add("result", below, base, row)
    table = np.concatenate(list(rows.values()), axis=1)
    _, first, which = np.unique(table, axis=0, return_index=True, return_inverse=True)
    made = [
        _Variant(instances, inputs, literals, int(task)).build(results, partial) for task in first
    ]
    return made, which.reshape(-1)


def _if_any(boxes: Boxes, row: Ints) -> Ints:
    """A row of numbers; 0 where the box is empty, so that nothing hangs on them."""
    return np.where((boxes.shapes <= 0).any(axis=1, keepdims=True), 0, row)


def _origin(each: Instance, base: Boxes) -> Ints:
    """Where a view begins in the block of its base."""
    if is_whole(each.node):
        row = np.zeros((len(base.low), 1), np.int64)
        for run in runs_of(each.node):
            begin = each.boxes.low[:, run.head] * run.width if run.head >= 0 else 0
            row = np.column_stack([row, begin - base.low[:, run.lead] * run.row])
        return row
    begin = -base.low
    for axis, (start, steps) in enumerate(view_maps(each.node)):
        begin[:, axis] += start
        for place, step in steps:
            begin[:, axis] += step * each.boxes.low[:, place]
    return _if_any(each.boxes, begin)


def _target(each: Instance) -> Ints:
    """Where the part of a window begins in the block of its base."""
    assert each.window is not None
    begin = np.empty_like(each.boxes.low)
    for axis, (start, steps) in enumerate(window_maps(each.node)):
        begin[:, axis] = start - each.boxes.low[:, axis]
        for place, step in steps:
            begin[:, axis] += step * each.window.low[:, 1 + place]
    return begin


class _Variant:
    """Makes the steps of one representative task."""

    def __init__(
        self,
        instances: Sequence[Instance],
        inputs: dict[int, int],
        literals: dict[int, int],
        task: int,
    ) -> None:
        self.instances = instances
        self.inputs = inputs
        self.literals = literals
        self.task = task
        self.steps: list[Step] = []
        self.done: dict[int, int] = {}  # instance -> its step
        self.read: set[int] = set()

    def build(
        self, results: Sequence[tuple[int, Boxes]], partial: Sequence[Partial | None]
    ) -> Variant:
        found = []
        for (at, boxes), begun in zip(results, partial, strict=True):
            step = self.part(self.step(at), self.instances[at].boxes, boxes)
            if begun is not None and not begun.is_extreme:
                shape = self.steps[step].shape
                arg = Reduction(begun.arg.axes, True, begun.arg.accumulator)
                like = reduced_shape(shape, arg.axes, True), begun.arg.accumulator
                step = self.add("reduce", begun.op, (step,), arg, like, at)
            found.append(step)
        return Variant(tuple(self.steps), tuple(found), frozenset(self.read))

    def add(
        self, kind: str, op: Op | None, src: Sequence[int], arg: Any, like: Any, at: int
    ) -> int:
        shape, dtype = like
        self.steps.append(Step(kind, op, tuple(src), arg, shape, dtype, at))
        return len(self.steps) - 1

    def box(self, boxes: Boxes) -> tuple[tuple[int, ...], tuple[int, ...]]:
        low, high = boxes.low[self.task].tolist(), boxes.high[self.task].tolist()
        return tuple(low), tuple([b - a for a, b in zip(low, high, strict=True)])

    def step(self, root: int) -> int:
        """The step of an instance, after those of what it reads; without recursion."""
        stack = [root]
        while stack:
            at = stack[-1]
            if at in self.done:
                stack.pop()
                continue
            waiting = [below for below in self.needed(at) if below not in self.done]
            if waiting:
                stack += waiting
                continue
            stack.pop()
            self.done[at] = self.make(at)
        return self.done[root]

    def needed(self, at: int) -> list[int]:
        """The instances that this task reads for an instance: not what is written over."""
        each = self.instances[at]
        if at in self.literals or each.is_input:
            return []
        if each.node.op is ops.UPDATE:
            assert each.window is not None
            touched = min(self.box(each.window)[1], default=1) > 0
            covered = min(self.box(each.reads[0][1])[1], default=1) <= 0
            old, value = each.reads[0][0], each.reads[1][0]
            return [old] if not touched else [value] if covered else [old, value]
        return [below for below, _ in each.reads]

    def make(self, at: int) -> int:
        each = self.instances[at]
        node = each.node
        low, shape = self.box(each.boxes)
        like = shape, node.dtype
        if at in self.literals:
            part = tuple([slice(a, a + n) for a, n in zip(low, shape, strict=True)])
            return self.add("literal", None, (), (self.literals[at], part), like, at)
        if each.is_input:
            self.read.add(self.inputs[at])
            return self.add("input", None, (), self.inputs[at], like, at)
        if node.op is ops.UPDATE:
            return self.updated(at, like)
        if node.op is ops.VIEW:
            below = each.reads[0][0]
            source = self.instances[below]
            if is_whole(node):
                layout = self.reshaped(node, low, shape, source.boxes)
            else:
                layout = self.layout(view_maps(node), low, shape, source.boxes)
            return self.window(self.done[below], layout, like, at)
        src = [
            self.part(self.done[below], self.instances[below].boxes, boxes)
            for below, boxes in each.reads
        ]
        kind = {"map": "map", "source": "full", "reduce": "reduce", "host": "host"}[node.op.kind]
        arg = node.arg.function if kind == "host" else node.arg
        return self.add(kind, node.op, src, arg, like, at)

    def layout(self, maps: Any, low: Sequence[int], shape: Shape, base: Boxes) -> Layout:
        """A view of a block: the box of a window with these maps, in the block of its base."""
        first, extent = self.box(base)
        strides = contiguous_strides(extent)
        offset = 0
        steps = [0] * len(shape)
        for axis, (start, along) in enumerate(maps):
            index = start - first[axis]
            for window_axis, step in along:
                index += step * low[window_axis]
                steps[window_axis] += step * strides[axis]
            offset += index * strides[axis]
        return Layout(offset, shape, tuple(steps))

    def reshaped(self, node: Node, low: Sequence[int], shape: Shape, base: Boxes) -> Layout:
        """A reshape of whole rows of a block."""
        first, extent = self.box(base)
        strides = contiguous_strides(extent)
        steps = [0] * len(shape)
        offset = 0
        for run in runs_of(node):
            unit = inner = strides[run.ours[-1]]
            for axis in reversed(run.theirs):
                steps[axis] = inner
                inner *= node.shape[axis]
            begin = low[run.head] * run.width if run.head >= 0 else 0
            offset += (run.start + begin - first[run.lead] * run.row) * unit
        return Layout(offset, shape, tuple(steps))

    def part(self, step: int, have: Boxes, want: Boxes) -> int:
        """The part of a block that a reader wants; the block itself if that is all."""
        if have is want:
            return step
        first, extent = self.box(have)
        low, shape = self.box(want)
        if shape == extent:
            return step
        strides = contiguous_strides(extent)
        offset = sum([(b - a) * stride for a, b, stride in zip(first, low, strides, strict=True)])
        before = self.steps[step]
        return self.window(step, Layout(offset, shape, strides), (shape, before.dtype), before.at)

    def window(self, step: int, layout: Layout, like: Any, at: int) -> int:
        extent = self.steps[step].shape
        if layout == Layout(0, extent, contiguous_strides(extent)):
            return step
        return self.add("view", ops.VIEW, (step,), layout, like, at)

    def updated(self, at: int, like: Any) -> int:
        """A block of an updated array."""
        each = self.instances[at]
        old, value = each.reads[0][0], each.reads[1][0]
        assert each.window is not None
        low, extent = self.box(each.window)
        if min(extent, default=1) <= 0:
            return self.part(self.done[old], self.instances[old].boxes, each.boxes)
        layout = self.layout(window_maps(each.node), low[1:], extent[1:], each.boxes)
        written = self.part(self.done[value], self.instances[value].boxes, each.reads[1][1])
        if value in self.done and min(self.box(each.reads[0][1])[1], default=1) <= 0:
            given = self.steps[written].shape
            whole = layout == Layout(0, like[0], contiguous_strides(like[0]))
            if whole and given == like[0]:
                return written
            base = self.add("empty", None, (), None, like, at)
        else:
            base = self.part(self.done[old], self.instances[old].boxes, each.boxes)
        return self.add("update", ops.UPDATE, (base, written), layout, like, at)


# ------------------------------------------------------------------------------------ on a worker


class _Borrowed(Memory):
    """The memory of a block that others may read, too: it is never written."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(False)


def _leaf(value: Array) -> Node:
    node = Node(ops.LEAF, (), _Borrowed(), value.shape, value.dtype, None, None)
    node.value = value
    return node


Raised = list[tuple[int, int]]
"""Floating-point exceptions: (instance, bits)."""


def run(
    recipe: Recipe, variant: int, blocks: Sequence[Array | None], low: Sequence[Sequence[int]]
) -> tuple[list[Array | Extreme], Raised]:
    """The results of one task, and its floating-point exceptions.

    `blocks`: the inputs, packed in C order; None for one that the variant does not read. `low`:
    where the block of each result begins, for `argmin` and `argmax`.
    """
    program = recipe.variants[variant]
    left = [0] * len(program.steps)  # readers of each step that are not made yet
    for at in (*itertools.chain(*[step.src for step in program.steps]), *program.results):
        left[at] += 1
    nodes: dict[int, Node] = {}  # by step, until the last reader is made
    names: dict[int, int] = {}  # id of a node -> its instance
    raised: Raised = []
    for number, step in enumerate(program.steps):
        src = tuple([nodes[at] for at in step.src])
        node = nodes[number] = _node(step, src, recipe, blocks, names, raised)
        names[id(node)] = step.at
        # a kernel stores the values of nodes that others than their readers hold
        for at in step.src:
            left[at] -= 1
            if not left[at]:
                del nodes[at]
        del src, node
    wanted = [nodes[at] for at in program.results]
    nodes.clear()
    found = _values(wanted, names, raised)
    results: list[Array | Extreme] = []
    for value, partial, begin in zip(found, recipe.partial, low, strict=True):
        extreme = partial is not None and partial.is_extreme
        results.append(_extreme(partial, value, begin) if extreme and partial else value)
    return results, raised


def _node(
    step: Step,
    src: tuple[Node, ...],
    recipe: Recipe,
    blocks: Sequence[Array | None],
    names: dict[int, int],
    raised: Raised,
) -> Node:
    if step.kind == "input":
        block = blocks[step.arg]
        assert block is not None, "an input that the variant reads"
        return _leaf(block) if step.shape else _number(block)
    if step.kind == "literal":
        number, part = step.arg
        value = recipe.literals[number]
        return _leaf(np.ascontiguousarray(value[part])) if step.shape else _number(value)
    if step.kind == "empty":
        return _leaf(devices.empty(step.shape, step.dtype))
    if step.kind == "host":
        values = _values(src, names, raised)
        with fp_flags.collecting() as flags:
            found = np.ascontiguousarray(step.arg(*values), step.dtype)
        raised += [(step.at, flags.bits)] if flags.bits else []
        return _leaf(found)
    assert step.op is not None
    return Node(step.op, src, step.arg, step.shape, step.dtype, None, None)


def _number(value: Array) -> Node:
    node = Node(ops.SCALAR, (), None, (), value.dtype, None, None)
    node.value = value.reshape(())
    return node


def _values(nodes: Sequence[Node], names: dict[int, int], raised: Raised) -> list[Array]:
    """The values of nodes, computed together on the CPU."""
    pending = [node for node in nodes if node.value is None]
    if pending:
        with devices.within("cpu"), evaluate.held():
            recording = linearize(pending)
            plan = evaluate.plan_for(recording)
            told = evaluate.run_plan(plan, recording, decisions.CHUNK, pending)
        raised += [(names[id(node)], bits) for bits, many in told for _, node in many]
    return [node.value for node in nodes if node.value is not None]


def _extreme(partial: Partial, value: Array, begin: Sequence[int]) -> Extreme:
    """The extreme elements of a block along the axes, with their indices in the whole array."""
    axes = partial.arg.axes
    find = np.argmin if partial.op.combine == "minimum" else np.argmax
    if len(axes) == 1:
        axis = axes[0]
        index = np.asarray(find(value, axis=axis, keepdims=True))
        return Extreme(np.take_along_axis(value, index, axis), index + begin[axis])
    ones = (1,) * value.ndim
    place = np.unravel_index(int(find(value)), value.shape)
    whole = tuple([int(a) + b for a, b in zip(place, begin, strict=True)])
    flat = np.ravel_multi_index(whole, partial.shape)
    return Extreme(value[place].reshape(ones), np.full(ones, flat, np.int64))


def combine(partial: Partial, parts: Sequence[Array | Extreme]) -> Array | Extreme:
    """The reduction of several parts, in their order."""
    first = parts[0]
    if not partial.is_extreme:
        for other in parts[1:]:
            first = partial.op.ufunc(first, other, dtype=partial.arg.accumulator)
        return first
    assert isinstance(first, Extreme)
    value, index = first.value, first.place
    for other in parts[1:]:
        assert isinstance(other, Extreme)
        wins = _wins(partial.op.combine == "minimum", value, index, other)
        value = np.where(wins, other.value, value)
        index = np.where(wins, other.place, index)
    return Extreme(value, index)


def _wins(least: bool, value: Array, index: Array, other: Extreme) -> Any:
    """Where another extreme element stands before ours: NaN first, then by value, then by index."""
    sooner = other.place < index
    if value.dtype.kind == "c":
        ours, theirs = (value.real, value.imag), (other.value.real, other.value.imag)
        less = theirs[0] < ours[0] if least else theirs[0] > ours[0]
        less |= (theirs[0] == ours[0]) & ((theirs[1] < ours[1]) if least else (theirs[1] > ours[1]))
    else:
        less = other.value < value if least else other.value > value
    nan, theirs_nan = value != value, other.value != other.value
    same = (value == other.value) | (nan & theirs_nan)
    return (theirs_nan & ~nan) | (~nan & ~theirs_nan & less) | (same & sooner)
