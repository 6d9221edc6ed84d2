"""The tasks of a plan's stages, as layers of a Dask graph.

Owns `build`. One task for each chunk of a stage, whatever the number of operations; reductions are
combined in a tree. Imports Dask when the first graph is built.
"""

from __future__ import annotations

import functools
import itertools
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from lazyfuse.codegen.graph.node import Node
from lazyfuse.runtime.chunked import tasks
from lazyfuse.runtime.chunked.demand import Instance, Unchunkable, trace
from lazyfuse.runtime.chunked.geometry import Boxes, Grid, broadcast_box
from lazyfuse.runtime.chunked.recipe import Partial, Recipe, variants_of
from lazyfuse.runtime.chunked.stages import LITERAL, End, Plan, is_pending, kernel_name
from lazyfuse.runtime.chunked.values import Chunked, Key, box_of, pieces, slices_of

# Parts that one task combines, and pairs of blocks that one task multiplies.
TOGETHER = 8

Made = dict[int, Chunked]  # by id of node


def build(
    plan: Plan,
    known: Callable[[Node], Chunked | None],
    targets: Mapping[int, Any] = MappingProxyType({}),
) -> tuple[Made, dict[str, Recorded]]:
    """The chunked values of a plan's ends, and by token which operations its recipes have.

    `targets`: where the tasks of some ends write their blocks, by id of node.
    """
    made: Made = {}
    recorded: dict[str, Recorded] = {}

    def value_of(node: Node) -> Chunked | None:
        return made.get(id(node)) or known(node)

    for stage in plan.stages():
        if stage[0].node.op.kind == "contract":
            made[id(stage[0].node)] = _product(stage[0], value_of, recorded)
        else:
            _Stage(plan, stage, value_of, made, recorded, targets).build()
    return made, recorded


Recorded = list[Node]
"""The operation of each instance of a recipe."""


def new_name(text: str) -> str:
    """A name for a layer: the kernel's, and a number of its own."""
    return f"{text}-{uuid.uuid4().hex[:16]}"


class _Stage:
    """Builds the tasks of the ends that share a grid."""

    def __init__(
        self,
        plan: Plan,
        ends: list[End],
        value_of: Callable[[Node], Chunked | None],
        made: Made,
        recorded: dict[str, Recorded],
        targets: Mapping[int, Any],
    ) -> None:
        self.targets = targets
        self.plan = plan
        self.ends = ends
        self.grid = ends[0].grid
        self.value_of = value_of
        self.made = made
        self.recorded = recorded

    def build(self) -> None:
        from dask._task_spec import DataNode, Task, TaskRef

        boxes = self.grid.boxes()
        outputs = [(end.node.src[0] if end.partial else end.node, boxes) for end in self.ends]
        is_input = self._inputs([node for node, _ in outputs])
        order = self._reached([node for node, _ in outputs], is_input)
        instances, results = trace(order, outputs, is_input)
        inputs, literals, recipe = self._recipe(instances)
        recipe.partial = [end.partial for end in self.ends]
        recipe.variants, which = variants_of(instances, results, inputs, literals, recipe.partial)
        body = [each.node for each in reversed(instances) if not each.is_input]
        ends = [end.node for end in self.ends if end.partial]
        name = new_name(kernel_name([*body, *ends]))
        recipe.name = name.rpartition("-")[0]
        recipe.token = name
        self.recorded[name] = [each.node for each in instances]
        layer: dict[Key, Any] = {}
        program = (f"recipe-{name}",)
        layer[program] = DataNode(program, recipe)
        value = Chunked(self.grid, outputs[0][0].dtype, name)
        value.layers[name] = layer
        readers = []
        for each in [instances[at] for at in inputs]:  # in the order of their numbers
            found = self.value_of(each.node)
            readers.append(_Reader(each, found, self.grid, boxes, recipe))
            if found is not None:
                value.adopt(found)
            if each.node.value is not None:
                value.holds = (*value.holds, each.node)
        for place, end in enumerate(self.ends):
            if id(end.node) in self.targets:
                recipe.targets[place] = self.targets[id(end.node)]
        extreme = any(partial is not None and partial.is_extreme for partial in recipe.partial)
        lows = boxes.low.tolist() if extreme or recipe.targets else None
        nothing = ((),) * len(self.ends)
        for task, (index, variant) in enumerate(
            zip(self.grid.indices(), which.tolist(), strict=True)
        ):
            given = _Given()
            read = recipe.variants[variant].inputs
            specs = tuple(
                [
                    reader.spec(task, index, given) if number in read else None
                    for number, reader in enumerate(readers)
                ]
            )
            low = nothing if lows is None else (lows[task],) * len(self.ends)
            key = (name, *index)
            layer[key] = Task(
                key, tasks.run_block, TaskRef(program), variant, specs, low, *given.values
            )
        self._finish(value)

    def _inputs(self, roots: Sequence[Node]) -> Callable[[Node], bool]:
        mine = {id(node) for node in roots}
        ends = self.plan.ends

        def is_input(node: Node) -> bool:
            if not is_pending(node):
                return True
            return id(node) in ends and (id(node) not in mine or id(node) in self.made)

        return is_input

    def _reached(self, roots: Sequence[Node], is_input: Callable[[Node], bool]) -> list[Node]:
        """The nodes of the stage, sources first."""
        seen: set[int] = set()
        stack = list(roots)
        while stack:
            node = stack.pop()
            if id(node) not in seen:
                seen.add(id(node))
                if not is_input(node):
                    stack += node.src
        return [node for node in self.plan.order if id(node) in seen]

    def _recipe(
        self, instances: Sequence[Instance]
    ) -> tuple[dict[int, int], dict[int, int], Recipe]:
        """Which instances are inputs, which are small arrays that the recipe holds."""
        inputs: dict[int, int] = {}
        literals: dict[int, int] = {}
        recipe = Recipe("", [], [], [])
        for at, each in enumerate(instances):
            if not each.is_input:
                continue
            value = each.node.value
            if value is not None and value.nbytes <= LITERAL and self.value_of(each.node) is None:
                literals[at] = len(recipe.literals)
                recipe.literals.append(np.array(value, order="K"))
            else:
                inputs[at] = len(inputs)
        return inputs, literals, recipe

    def _finish(self, value: Chunked) -> None:
        """The values of the ends, from the results of the tasks."""
        several = len(self.ends) > 1
        trees: dict[tuple[tuple[int, ...], bool], list[int]] = {}
        for place, end in enumerate(self.ends):
            if end.partial is not None:
                key = end.partial.arg.axes, end.partial.arg.keepdims
                trees.setdefault(key, []).append(place)
                continue
            own = Chunked(self.grid, end.node.dtype, value.name)
            own.part = place if several else None
            own.adopt(value)
            own.needs = dict(value.needs)
            self.made[id(end.node)] = own
        for (axes, stays), places in trees.items():
            self._tree(value, axes, stays, places, several)

    def _tree(
        self,
        value: Chunked,
        axes: tuple[int, ...],
        stays: bool,
        places: list[int],
        several: bool,
    ) -> None:
        """Combine the parts of reductions along the same axes, which stay with one element."""
        from dask._task_spec import Task, TaskRef

        ends = [self.ends[place] for place in places]
        reduced = tuple([(end.partial, end.node.dtype) for end in ends])
        name = new_name("combine-" + value.name.rpartition("-")[0])
        self.recorded[name] = [end.node for end in ends]
        layer: dict[Key, Any] = {}
        counts = self.grid.counts
        kept = [axis for axis in range(len(counts)) if axis not in axes]
        for index in itertools.product(*[range(counts[axis]) for axis in kept]):
            final = [0] * len(counts) if stays else list(index)
            if stays:
                for axis, at in zip(kept, index, strict=True):
                    final[axis] = at
            parts: list[Key] = []
            for along in itertools.product(*[range(counts[axis]) for axis in axes]):
                whole = [0] * len(counts)
                for axis, at in (*zip(kept, index, strict=True), *zip(axes, along, strict=True)):
                    whole[axis] = at
                parts.append((value.name, *whole))
            own: Sequence[int | None] = places if several else [None]
            level = 0
            while True:
                last = len(parts) <= TOGETHER
                above: list[Key] = []
                for number, some in enumerate(_several(parts)):
                    key: Key = (name, *final) if last else (f"{name}-{level}", *index, number)
                    layer[key] = Task(
                        key, tasks.combine_parts, name, tuple(own), reduced, last,
                        *[TaskRef(part) for part in some],
                    )  # fmt: skip
                    above.append(key)
                if last:
                    break
                parts, level = above, level + 1
                own = list(range(len(ends))) if len(ends) > 1 else [None]
        sizes = self.grid.chunks
        chunks = (
            tuple([(1,) if axis in axes else each for axis, each in enumerate(sizes)])
            if stays
            else tuple([sizes[axis] for axis in kept])
        )
        for at, end in enumerate(ends):
            own_value = Chunked(Grid(chunks), end.node.dtype, name)
            own_value.part = at if len(ends) > 1 else None
            own_value.layers[name] = layer
            own_value.adopt(value)
            self.made[id(end.node)] = own_value


def _several(parts: list[Key]) -> Iterable[list[Key]]:
    for begin in range(0, len(parts), TOGETHER):
        yield parts[begin : begin + TOGETHER]


class _Given:
    """The results of other tasks that a task is given, each once, and pieces of host arrays."""

    __slots__ = ("keys", "values")

    def __init__(self) -> None:
        self.keys: dict[Key, int] = {}
        self.values: list[Any] = []

    def key(self, key: Key) -> int:
        at = self.keys.get(key)
        if at is None:
            from dask._task_spec import TaskRef

            at = self.keys[key] = len(self.values)
            self.values.append(TaskRef(key))
        return at

    def value(self, value: Any) -> int:
        self.values.append(value)
        return len(self.values) - 1


class _Reader:
    """How the tasks of a stage get one of its inputs."""

    def __init__(
        self, each: Instance, value: Chunked | None, grid: Grid, boxes: Boxes, recipe: Recipe
    ) -> None:
        self.boxes = each.boxes
        self.node = each.node
        self.value = value
        self.number = -1 if value is None else source_number(value, recipe)
        same = value is not None and value.grid.chunks == grid.chunks
        self.same = same and each.boxes.same(boxes)

    def spec(self, task: int, index: tuple[int, ...], given: _Given) -> tasks.Spec:
        """How one task makes its block."""
        value = self.value
        if value is not None and self.same and value.source is None:
            return ("all", given.key(value.key(index)), value.part)
        if value is None:
            assert self.node.value is not None
            return ("given", given.value(self.node.value[slices_of(self.boxes, task)]))
        return block_spec(value, self.number, *box_of(self.boxes, task), given)


def source_number(value: Chunked, recipe: Recipe) -> int:
    """The number of a value's source among those that travel with a recipe; -1: it has tasks."""
    if value.source is None:
        return -1
    recipe.sources.append(value.source)
    return len(recipe.sources) - 1


def block_spec(
    value: Chunked, number: int, low: tuple[int, ...], high: tuple[int, ...], given: _Given
) -> tasks.Spec:
    """How a block is read from the source of that number, or put together of chunks."""
    if value.source is not None:
        return ("read", number, tuple(map(slice, low, high)))
    found = pieces(value, low, high)
    shape = tuple([b - a for a, b in zip(low, high, strict=True)])
    if len(found) == 1:
        key, part, _, _ = found[0]
        index = key[1:]
        chunk = tuple([value.grid.chunks[axis][at] for axis, at in enumerate(index)])
        if chunk == shape:
            return ("all", given.key(key), part)
    return (
        "pieces",
        shape,
        tuple([(given.key(key), part, there, here) for key, part, there, here in found]),
    )


# -------------------------------------------------------------------------------------- products


def _product(
    end: End, value_of: Callable[[Node], Chunked | None], recorded: dict[str, Recorded]
) -> Chunked:
    """A product, block by block, and in parts of the summed axis."""
    from dask._task_spec import DataNode, Task, TaskRef

    node = end.node
    if node.op.name != "matmul":
        raise Unchunkable(f"{node.op.name} has no blocked form")
    operands = [value_of(each) or chunked_host(each) for each in node.src]
    inner = _inner(*operands)
    name = new_name("matmul")
    recorded[name] = [node]
    recipe = Recipe("matmul", [], [], [], token=name)
    numbers = [source_number(each, recipe) for each in operands]
    value = Chunked(end.grid, node.dtype, name)
    program = (f"recipe-{name}",)
    layer: dict[Key, Any] = {program: DataNode(program, recipe)}
    value.layers[name] = layer
    for each in operands:
        value.adopt(each)
    boxes = end.grid.boxes()
    spans = list(itertools.pairwise(inner))
    groups = [spans[at : at + TOGETHER] for at in range(0, len(spans), TOGETHER)]
    work = functools.partial(tasks.product, node.arg, node.op.ufunc)
    for task, index in enumerate(end.grid.indices()):
        parts: list[Key] = []
        for number, group in enumerate(groups):
            given = _Given()
            pairs = tuple(
                [
                    tuple(
                        [
                            block_spec(
                                each, numbers[at], *_operand_box(node, at, boxes, task, span), given
                            )
                            for at, each in enumerate(operands)
                        ]
                    )
                    for span in group
                ]
            )
            key: Key = (name, *index) if len(groups) == 1 else (f"{name}-part", *index, number)
            layer[key] = Task(key, work, TaskRef(program), pairs, *given.values)
            parts.append(key)
        if len(groups) > 1:
            key = (name, *index)
            layer[key] = Task(key, tasks.add_parts, name, *[TaskRef(part) for part in parts])
    return value


def _inner(first: Chunked, second: Chunked) -> list[int]:
    """The ends of the parts of the summed axis: the cuts of the operand with more of them."""
    left = first.grid.bounds[-1].tolist()
    right = second.grid.bounds[-2 if len(second.grid.counts) > 1 else -1].tolist()
    found: list[int] = max(left, right, key=len)
    return found


def _operand_box(
    node: Node, which: int, boxes: Boxes, task: int, span: tuple[int, int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The box of an operand for a block of the result and a part of the summed axis."""
    source = node.src[which]
    rows, columns = len(node.src[0].shape) > 1, len(node.src[1].shape) > 1
    one = Boxes(boxes.low[task : task + 1], boxes.high[task : task + 1])
    rank = len(node.shape)
    batch = Boxes(one.low[:, : rank - rows - columns], one.high[:, : rank - rows - columns])
    low, high = box_of(broadcast_box(batch, source.shape[:-2]), 0)
    if which == 0 and rows:
        axis = rank - (2 if columns else 1)
        low, high = (*low, int(one.low[0, axis])), (*high, int(one.high[0, axis]))
    low, high = (*low, span[0]), (*high, span[1])
    if which == 1 and columns:
        low, high = (*low, int(one.low[0, -1])), (*high, int(one.high[0, -1]))
    return low, high


def chunked_host(node: Node) -> Chunked:
    """A copy of a host array in one chunk."""
    assert node.value is not None
    grid = Grid(tuple([(size,) for size in node.shape]))
    return in_memory(Chunked(grid, node.dtype, new_name("array")), np.array(node.value))


def in_memory(value: Chunked, array: np.ndarray[Any, Any]) -> Chunked:
    """Give a value the chunks of an array in memory, as tasks that have run."""
    from dask._task_spec import DataNode

    boxes = value.grid.boxes()
    layer: dict[Key, Any] = {}
    for at, index in enumerate(value.grid.indices()):
        key = value.key(index)
        layer[key] = DataNode(key, array[slices_of(boxes, at)])
    value.layers[value.name] = layer
    value.needs[value.name] = set()
    value.stored = True
    return value


__all__ = ["Partial", "build", "chunked_host", "in_memory", "new_name"]
