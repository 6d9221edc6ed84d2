"""Functions of one array that record several operations: a call like an earlier one is copied.

`std` records six operations, and decides for each about loop, shape and memory order. All of that
follows from the operand's dtype, shape and order, and from the other arguments. So the first call
leaves its nodes as a template, and a later one makes the same nodes on another operand. Owns the
templates; the functions stay as they are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from lazyfuse.arrays.ndarray import OURS, SELECTIONS, from_node, ndarray, node_of, options
from lazyfuse.arrays.nodes import caller
from lazyfuse.arrays.recording import may_record
from lazyfuse.arrays.scalars import deliver, numbers_stay, scalar
from lazyfuse.codegen.graph.node import Node, topological
from lazyfuse.codegen.graph.shapes import size_of
from lazyfuse.codegen.table import ops
from lazyfuse.devices.caches import memo
from lazyfuse.devices.dataclass import dataclass
from lazyfuse.runtime.scheduling.compound_calls import as_one

F = TypeVar("F", bound=Callable[..., Any])

MOST = 16
"""Operations of a template, at most."""

_PLAIN = frozenset({type(None), bool, int, str, type(np._NoValue), type})
_templates: dict[Any, Template] = memo("functions.compound.templates", 1024)


class _Step(NamedTuple):
    """One node: `src` are positions of earlier nodes, 0 the operand; negative ones of numbers."""

    op: Any
    src: tuple[int, ...]
    arg: Any
    shape: tuple[int, ...]
    dtype: Any
    perm: tuple[int, ...] | None
    placed: bool  # whether it has a source location


@dataclass(frozen=True)
class Template:
    """The nodes of one call, without the operand."""

    steps: tuple[_Step, ...]
    numbers: tuple[Node, ...]

    def applied(self, operand: Node) -> Any:
        """The result of the call on another operand of the same kind."""
        nodes = [*self.numbers, operand]
        first = len(self.numbers)
        where = caller()
        for op, src, arg, shape, dtype, perm, placed in self.steps:
            sources = tuple([nodes[first + at] for at in src])
            nodes.append(Node(op, sources, arg, shape, dtype, perm, where if placed else None))
        return from_node(nodes[-1])


def of_one_array(function: F) -> F:
    """Decorator of a function that records operations on its first argument alone, as one call."""
    recorded = as_one(function)

    @functools.wraps(function)
    def call(a: Any, *args: Any) -> Any:
        node = _whole(a) if type(a) is ndarray and not SELECTIONS else None
        if node is None or not _is_usual(node, args):
            return recorded(a, *args)
        key = function, node.dtype, node.shape, node.perm, args, *map(type, args)
        found = _templates.get(key)
        if found is not None:
            return found.applied(node) if may_record() else recorded(a, *args)
        with numbers_stay():
            result = recorded(a, *args)
        if type(result) in OURS and result._node is not None:
            made = _template(node, result._node)
            if made is not None:
                _templates[key] = made
        return deliver(result) if type(result) is scalar else result

    return call  # type: ignore[return-value]


def _whole(a: ndarray) -> Node | None:
    """The node of an array that has all values of its node, in their order."""
    storage = a._storage
    if a._node is not None or storage is None or storage.shared():
        return a._node
    node = node_of(a)
    return None if node.op is ops.VIEW else node


def _is_usual(node: Node, args: tuple[Any, ...]) -> bool:
    """Whether an array that owns its values is recorded on, and the arguments say all."""
    there = node.resident is None and node.value is not None
    if there and size_of(node.shape) < options.eager_below:
        return False
    for each in args:
        if type(each) not in _PLAIN and (type(each) is not tuple or set(map(type, each)) != {int}):
            return False
    return True


def _template(operand: Node, result: Node | None) -> Template | None:
    """What a call has recorded; None if that is more than operations on its operand and numbers."""
    if result is None or result is operand or result.value is not None:
        return None
    place = {id(operand): 0}
    numbers: list[Node] = []
    steps: list[_Step] = []
    for node in topological([result], [operand]):
        if node.op is ops.SCALAR:
            numbers.append(node)
            place[id(node)] = -len(numbers)
            continue
        where = node.location
        is_new = node.op.kind in ("map", "reduce") and node.value is None and node.resident is None
        if not is_new or type(where) not in (tuple, type(None)) or len(steps) == MOST:
            return None
        place[id(node)] = len(steps) + 1
        src = tuple([place[id(source)] for source in node.src])
        steps.append(
            _Step(node.op, src, node.arg, node.shape, node.dtype, node.perm, where is not None)
        )
    return Template(tuple(steps), tuple(numbers[::-1])) if steps else None
