"""What else a sink evaluates: small results of the same data, which one pass over it gives too.

`(d * d).sum()`, `d.min()` and `d.max()` are asked for one after the other, each by a sink of its
own. The first one evaluates them all: their operands are read once, and what they share is computed
once and never stored. Owns the choice; evaluate.py calls it. Knows nodes, not arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from weakref import ref

import numpy as np

from lazyfuse import config
from lazyfuse.codegen import ops
from lazyfuse.codegen.graph import Memory, Node
from lazyfuse.codegen.shapes import size_of

# Results of at most so many elements are small, and operands of at least so many large. Results
# may also be that much smaller than the least of the operands that they share.
SMALL = 64
LARGE = 1 << 14
SMALLER = 64
# Pending operations that are looked at.
MOST = 128


def siblings(
    wanted: Sequence[Node], recorded: Sequence[ref[Node]], frontier: Callable[[], list[Node]]
) -> list[Node]:
    """Pending small results over large operands that the evaluation of `wanted` reads anyway.

    `frontier` gives the pending nodes that no other pending node reads.
    """
    if len(recorded) < 2 or len(recorded) > MOST or not config.options.fusion:
        return []
    if not all(_is_small(node) for node in wanted) or _is_watched():
        return []
    read: set[int] = set()
    for node in wanted:
        operands = _operands(node)
        if operands is None:
            return []
        read |= operands
    if not read:
        return []
    chosen = {id(node) for node in wanted}
    found: list[Node] = []
    for node in frontier():
        if id(node) in chosen or not _is_small(node):
            continue
        operands = _operands(node)
        if operands and not operands.isdisjoint(read):
            found.append(node)
    return found


def _is_small(node: Node) -> bool:
    """Whether a result takes next to no memory beside what it is computed from."""
    if node.resident is not None:  # computed already, on a device: it reads nothing any more
        return False
    size = size_of(node.shape)
    return size <= SMALL or (
        node.op.kind == "reduce" and SMALLER * size <= size_of(node.src[0].shape)
    )


def _is_watched() -> bool:
    """Whether conditions are handled where they arise: then nothing is computed before its turn."""
    return not {"warn", "ignore"}.issuperset(np.geterr().values())


def _operands(node: Node) -> set[int] | None:
    """The large operands and pending values below a node; None if there is more than arithmetic."""
    found: set[int] = set()
    stack, seen = [node], {id(node)}
    while stack:
        each = stack.pop()
        if each.value is not None or each.resident is not None:
            if size_of(each.shape) >= LARGE:
                found.add(id(each.arg) if isinstance(each.arg, Memory) else id(each))
            continue
        if each is not node and size_of(each.shape) >= LARGE:  # computed once, and never stored
            found.add(id(each))
        if each.op.kind not in ("map", "reduce") and each.op is not ops.VIEW:
            return None
        for source in each.src:
            if id(source) not in seen:
                if len(seen) > MOST:
                    return None
                seen.add(id(source))
                stack.append(source)
    return found
