"""Which other pending values an evaluation computes as well: co-evaluated outputs.

A program asks for `(d * d).sum()`, `d.min()` and `d.max()` one after the other, each by its own
sink. The first sink evaluates all three: one pass reads their operands, and values that they share
are computed once and never stored. A reduction with a large result (`d.argmin(axis=1)`) brings
along the reductions of the same computed value, which would otherwise have to be stored for them.
An exported value brings along its readers, which would otherwise need a copy of it. Owns the
choice; evaluate.py calls it. Knows nodes, not arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any
from weakref import ref

import numpy as np

from lazyfuse import config
from lazyfuse.codegen.graph import references
from lazyfuse.codegen.graph.node import Memory, Node
from lazyfuse.codegen.table import ops
from lazyfuse.devices.caches import memo
from lazyfuse.runtime.events import decisions
from lazyfuse.runtime.events.decisions import Rule
from lazyfuse.runtime.scheduling.flush import Pending

# Results of at most `SMALL` elements are small, operands of at least `LARGE` elements are large.
# A reduction's result is also small if it has `SMALLER` times fewer elements than its operand.
SMALL = 64
LARGE = 1 << 14
SMALLER = 64
# Pending readers of an exported value that are evaluated to save a copy of it, at most.
READERS = 2
# Pending operations that are searched, at most.
MOST = 128

_ARITHMETIC = ("map", "reduce")


def together(pending: list[Node], rule: Rule, recorded: Pending) -> tuple[Rule, list[Node]] | None:
    """What a thread has recorded and an evaluation of pending nodes brings along, and why."""
    if recorded.overdue and (more := recorded.overdue_outputs(pending)):
        return decisions.OVERDUE, more
    if len(recorded.nodes) > 1:
        if more := small_outputs(pending, recorded.nodes, recorded.frontier):
            return decisions.SMALL_OUTPUTS, more
        if rule is decisions.EXPORT and _are_read(pending):
            more = reading_outputs(pending, recorded.nodes, recorded.frontier)
            return (decisions.READING_OUTPUTS, more) if more else None
    return None


choices: dict[bytes, tuple[Rule | None, tuple[int, ...], list[Any]]] = memo(
    "runtime.scheduling.co_evaluation.choices", 1024
)
"""By the key of all that is pending (native/player/find.c): why and which of its nodes are brought
along, and what the key names by address."""
config.on_any_change(lambda _: choices.clear())


def keep(
    key: bytes, pins: list[Any], nodes: list[Node], along: tuple[Rule, list[Node]] | None
) -> None:
    """Keep what was decided, for C. `nodes`: those that the key describes; empty afterwards, since
    an evaluation counts who holds its operands.
    """
    rule, more = along or (None, [])
    places = {id(node): at for at, node in enumerate(nodes)}
    if all(id(node) in places for node in more):
        choices[key] = rule, tuple([places[id(node)] for node in more]), pins
    nodes.clear()


def _are_read(nodes: list[Node]) -> bool:
    """Whether a node has an owner besides a storage, two lists and two callers."""
    return any(count > 3 for count in references.of_each(nodes))


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
    below: set[int] = set()  # everything that the evaluation computes and reads
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
    """Pending results that read a large value which is about to be exported.

    The program may write to exported memory, so readers that stay pending would need a copy of the
    value. Empty if more than `READERS` results of at most its size read it: they would be stored
    for nothing if their own readers could fuse with them.
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
    """Whether a result takes far less memory than the operands it is computed from."""
    if node.resident is not None:  # a device has computed it: it reads no operands any more
        return False
    size = prod(node.shape)
    return size <= SMALL or (node.op.kind == "reduce" and SMALLER * size <= prod(node.src[0].shape))


def _is_alike(node: Node, large: int) -> bool:
    """Whether a node is a reduction with a result no larger than a wanted one."""
    return node.op.kind == "reduce" and node.resident is None and prod(node.shape) <= large


def is_watched() -> bool:
    """Whether the program handles floating-point exceptions: then nothing is computed early."""
    return not {"warn", "ignore"}.issuperset(np.geterr().values())


def _walk(
    root: Node, stored: bool, found: set[int], seen: set[int], known: set[int] | None
) -> bool:
    """Add the large pending values below a node to `found`, and `stored` ones that it reads.

    False if operations other than arithmetic are among them. Nodes in `known` were walked before.
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
        if each is not root and prod(each.shape) >= LARGE:  # computed once and never stored
            found.add(id(each))
        if known is not None and id(each) in known:
            continue
        op = each.op
        if op.kind not in _ARITHMETIC and op not in ops.PLACES:
            return False
        for source in each.src:
            key = id(source)
            if key not in seen:
                if len(seen) > MOST:
                    return False
                seen.add(key)
                stack.append(source)
    return True
