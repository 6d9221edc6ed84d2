"""What NumPy does at once, as far as sizes and nodes decide: also for modules that know no arrays.

Owns the limits. Each function answers one question: with the rule by which NumPy does the work at
once, or with None for work that is recorded or planned. arrays/eager_policy.py asks about arrays.
"""

from __future__ import annotations

from typing import Any

from lazyfuse.codegen.graph.node import Node, topological
from lazyfuse.codegen.graph.shapes import size_of
from lazyfuse.codegen.table import ops
from lazyfuse.config import options
from lazyfuse.runtime.events.decisions import FEW, LONE_CALL, SINGLE_BYTES, SMALL, Rule

MIDDLING = 8
"""Work not worth recording may be NumPy's at once up to `MIDDLING` times `eager_below` elements."""

# NumPy finishes at most `EAGER_NODES` operations before a plan is looked up, if at most one of
# them has `HEAVY_ELEMENTS` or more, and all of them fewer than `EAGER_ELEMENTS`.
EAGER_NODES = 4
HEAVY_ELEMENTS = 2048
EAGER_ELEMENTS = 1 << 16
LONE_ELEMENTS = 1 << 18  # of a NumPy call that becomes no kernel
# Up to this many truth values one thread in C is as fast as a compiled loop with several.
MASKED_ELEMENTS = 1 << 19


def small(size: int) -> Rule | None:
    """Whether NumPy does work on `size` elements at once."""
    return SMALL if size < options.eager_below else None


def small_array(value: Any) -> Rule | None:
    """Whether NumPy works on a NumPy array at once: it is the fastest at moving single bytes."""
    size = value.size
    large = options.eager_below
    if size < large:
        return SMALL
    return SINGLE_BYTES if value.itemsize == 1 and size <= MIDDLING * large and large > 1 else None


def pending_nodes(pending: list[Node], on_cpu: bool) -> tuple[Rule, list[Node]] | None:
    """Whether NumPy evaluates pending nodes one operation after the other; and those operations.

    It does if they are few and exact and only one of them has many elements: fusion would save
    nothing, and every tier gives the same bits. It also does if the work is a single NumPy call.
    """
    if len(pending) > 1 or not on_cpu or options.validate:
        return None
    node = pending[0]
    if node.op is ops.HOST:
        there = all(each.value is not None and each.value.size < LONE_ELEMENTS for each in node.src)
        return (LONE_CALL, pending) if there else None
    if not options.fusion:
        return None
    found = [node]
    heavy = 0
    for each in found:
        size = _elements(each)
        if size < 0 or size * each.op.cost >= EAGER_ELEMENTS:
            return None
        heavy += size >= HEAVY_ELEMENTS
        for source in each.src:
            if source.value is None:
                if source.resident is not None:
                    return None
                found.append(source)
        if heavy > 1 or len(found) > EAGER_NODES:
            return None
    return FEW, found if len(found) == 1 else topological(found[:1])


def _elements(node: Node) -> int:
    """Elements that an exact map or reduction reads; -1 for any other node."""
    op = node.op
    if op.kind == "map":
        return size_of(node.shape) if op.is_exact(node.arg.ins[0]) else -1
    if op.kind == "reduce":
        source = node.src[0]
        return size_of(source.shape) if op.is_exact(source.dtype) else -1
    return -1
