"""What else a sink evaluates: small results of the same data, which one pass over it gives too.

`(d * d).sum()`, `d.min()` and `d.max()` are asked for one after the other, each by a sink of its
own. The first one evaluates them all: their operands are read once, and what they share is computed
once and never stored. Reductions with large results (`d.argmin(axis=1)`) bring along those of the
same computed value, which would have to be stored for them. A value that is handed out brings along
what reads it, for which it would have to be copied. Owns the choice; evaluate.py calls it. Knows
nodes, not arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from weakref import ref

import numpy as np

from lazyfuse import config
from lazyfuse.codegen.graph.node import Memory, Node
from lazyfuse.codegen.table import ops

# Results of at most so many elements are small, and operands of at least so many large. Results
# may also be that much smaller than the least of the operands that they share.
SMALL = 64
LARGE = 1 << 14
SMALLER = 64
# Pending results that are evaluated rather than what they read is copied.
READERS = 2
# Pending operations that are looked at.
MOST = 128

_ARITHMETIC = ("map", "reduce")


def small_outputs(
    wanted: Sequence[Node], recorded: Sequence[ref[Node]], frontier: Callable[[], list[Node]]
) -> list[Node]:
    """Pending small results over large operands that the evaluation of `wanted` reads anyway.

    `frontier` gives the pending nodes that no other pending node reads.
    """
    if len(recorded) < 2 or len(recorded) > MOST or not config.options.fusion:
        return []
    large = 0
    for node in wanted:
        if not _is_small(node):
            if node.op.kind != "reduce":
                return []
            large = max(large, prod(node.shape))
    if is_watched():
        return []
    read: set[int] = set()
    below: set[int] = set()  # all that the evaluation computes and reads
    for node in wanted:
        if not _walk(node, not large, read, below, None):
            return []
    if not read:
        return []
    found: list[Node] = []
    for node in frontier():
        if id(node) not in below and (_is_small(node) or _is_alike(node, large)):
            operands: set[int] = set()
            own: set[int] = set()
            if _walk(node, not large, operands, own, below) and not operands.isdisjoint(read):
                found.append(node)
    return found


def reading_outputs(
    wanted: Sequence[Node], recorded: Sequence[ref[Node]], frontier: Callable[[], list[Node]]
) -> list[Node]:
    """Pending results that read a large value which is about to be handed out.

    Whoever gets its memory may write to it, so the value would be copied for them. At most
    `READERS` of its size: more would be stored for nothing if what reads them could fuse with them.
    """
    if not 2 <= len(recorded) <= MOST or not config.options.fusion or is_watched():
        return []
    size = max([prod(node.shape) for node in wanted])
    if size < LARGE:
        return []
    ids = {id(node) for node in wanted}
    found = []
    for node in frontier():
        if id(node) in ids or prod(node.shape) > size:
            continue
        seen: set[int] = set()
        if _walk(node, True, set(), seen, None) and not ids.isdisjoint(seen):
            found.append(node)
    return found if len(found) <= READERS else []


def _is_small(node: Node) -> bool:
    """Whether a result takes next to no memory beside what it is computed from."""
    if node.resident is not None:  # computed already, on a device: it reads nothing any more
        return False
    size = prod(node.shape)
    return size <= SMALL or (node.op.kind == "reduce" and SMALLER * size <= prod(node.src[0].shape))


def _is_alike(node: Node, large: int) -> bool:
    """Whether a node is a reduction with a result no larger than one that is wanted."""
    return node.op.kind == "reduce" and node.resident is None and prod(node.shape) <= large


def is_watched() -> bool:
    """Whether conditions are handled where they arise: then nothing is computed before its turn."""
    return not {"warn", "ignore"}.issuperset(np.geterr().values())


def _walk(
    root: Node, stored: bool, found: set[int], seen: set[int], known: set[int] | None
) -> bool:
    """Add the large pending values below a node to `found`, and `stored` ones that it reads.

    False if there is more than arithmetic. What is `known` has been walked through before.
    """
    if id(root) in seen:
        return True
    stack = [root]
    seen.add(id(root))
    while stack:
        each = stack.pop()
        if each.value is not None or each.resident is not None:
            if stored and prod(each.shape) >= LARGE:
                found.add(id(each.arg) if isinstance(each.arg, Memory) else id(each))
            continue
        if each is not root and prod(each.shape) >= LARGE:  # computed once, and never stored
            found.add(id(each))
        if known is not None and id(each) in known:
            continue
        op = each.op
        if op.kind not in _ARITHMETIC and op is not ops.VIEW:
            return False
        for source in each.src:
            key = id(source)
            if key not in seen:
                if len(seen) > MOST:
                    return False
                seen.add(key)
                stack.append(source)
    return True
