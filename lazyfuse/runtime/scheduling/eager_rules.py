"""What NumPy does at once, as far as sizes and nodes tell: for modules that know no arrays, too.

Owns the limits. Each function answers one question: with the rule by which NumPy does the work at
once, or with None for work that is recorded, or planned. arrays/eager_policy.py asks about arrays.
"""

from __future__ import annotations

from typing import Any

from lazyfuse.codegen.graph.node import Node, topological
from lazyfuse.codegen.graph.shapes import size_of
from lazyfuse.codegen.table import ops
from lazyfuse.config import options
from lazyfuse.runtime.events.decisions import FEW, LONE_CALL, SINGLE_BYTES, SMALL, Rule

MIDDLING = 8
"""Up to so many times `eager_below` elements NumPy may do at once what is not worth recording."""

# So few operations, one of them with many elements but fewer than this, are over in NumPy before a
# plan would have been looked up.
DIRECT_NODES = 4
HEAVY_ELEMENTS = 2048
DIRECT_ELEMENTS = 1 << 16
LONE_ELEMENTS = 1 << 18  # of a call of NumPy's that becomes no kernel


def small(size: int) -> Rule | None:
    """Whether NumPy does at once what has so many elements."""
    return SMALL if size < options.eager_below else None


def small_array(value: Any) -> Rule | None:
    """Whether NumPy works on a real array at once: it moves single bytes fastest."""
    size = value.size
    large = options.eager_below
    if size < large:
        return SMALL
    return SINGLE_BYTES if value.itemsize == 1 and size <= MIDDLING * large and large > 1 else None


def pending_nodes(pending: list[Node], on_cpu: bool) -> tuple[Rule, list[Node]] | None:
    """Whether NumPy does what an evaluation asks for, one operation after the other; and these.

    So it is where they are few and exact and only one of them has many elements: fusing would save
    nothing, and the bits are those of every tier. Or where one call of NumPy's is all there is.
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
        if size < 0 or size * each.op.cost >= DIRECT_ELEMENTS:
            return None
        heavy += size >= HEAVY_ELEMENTS
        for source in each.src:
            if source.value is None:
                if source.resident is not None:
                    return None
                found.append(source)
        if heavy > 1 or len(found) > DIRECT_NODES:
            return None
    return FEW, found if len(found) == 1 else topological(found[:1])


def _elements(node: Node) -> int:
    """Elements that an exact map or reduction reads; -1 for every other node."""
    op = node.op
    if op.kind == "map":
        return size_of(node.shape) if op.is_exact(node.arg.ins[0]) else -1
    if op.kind == "reduce":
        source = node.src[0]
        return size_of(source.shape) if op.is_exact(source.dtype) else -1
    return -1
