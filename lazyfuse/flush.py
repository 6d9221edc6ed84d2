"""When recorded work runs although nobody looks at it, and why.

Owns the rules and their reason codes. Knows nodes, not arrays; what runs them is handed in.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence

from lazyfuse import config
from lazyfuse.codegen.graph import Node, Where, topological

# A launch costs some ten microseconds: that many element operations are worth one.
WORTH_A_LAUNCH = 1 << 18
# How often the bytes held by recorded work are counted, in recorded operations.
COUNT_BYTES_EVERY = 64

LOOP = "loop: the line came round again"
NODES = "nodes: the recorded graph reached its limit"
BYTES = "bytes: recorded work holds more memory than the budget"


class Pending:
    """The operations recorded since the last flush."""

    __slots__ = ("elements", "evaluate", "lines", "nodes")

    def __init__(self, evaluate: Callable[[Sequence[Node], str], None]) -> None:
        self.evaluate = evaluate
        self.nodes: list[weakref.ref[Node]] = []
        self.lines: set[Where] = set()
        self.elements = 0

    def note(self, node: Node) -> None:
        """Called once for each recorded node; may evaluate what was recorded before it."""
        where = node.where
        count = len(self.nodes)
        if where in self.lines and self.elements >= WORTH_A_LAUNCH:
            self.flush(node, LOOP)
        elif count and count % COUNT_BYTES_EVERY == 0:
            self.check_limits(node, count)
        if where is not None:
            self.lines.add(where)
        self.nodes.append(weakref.ref(node))
        size = 1
        for length in node.shape:
            size *= length
        self.elements += size

    def check_limits(self, node: Node, count: int) -> None:
        options = config.options
        if 0 < options.flush_nodes <= count:
            self.flush(node, NODES)
        elif 0 < options.flush_bytes < held_bytes(self.frontier(node)):
            self.flush(node, BYTES)

    def flush(self, newest: Node, reason: str) -> None:
        """Evaluate every array that is still wanted and was recorded before `newest`."""
        frontier = self.frontier(newest)
        if frontier:
            self.evaluate(frontier, reason)
        else:
            self.settle()

    def settle(self) -> None:
        """Called after an evaluation: what it did is no longer pending work."""
        self.nodes = [ref for ref in self.nodes if _is_pending(ref())]
        self.lines.clear()
        self.elements = 0

    def frontier(self, newest: Node) -> list[Node]:
        """Pending nodes that are alive and not merely operands of other pending nodes."""
        alive = [node for ref in self.nodes if (node := ref()) is not None and node.value is None]
        used = {id(source) for node in alive for source in node.src}
        return [node for node in alive if id(node) not in used and node is not newest]


def _is_pending(node: Node | None) -> bool:
    return node is not None and node.value is None


def held_bytes(roots: Sequence[Node]) -> int:
    """Bytes of evaluated arrays that only recorded work keeps alive."""
    total = 0
    for node in topological(roots):
        value = node.value
        # the node's slot, the local name and getrefcount's argument: nobody else
        if value is not None and sys.getrefcount(value) <= 3:
            total += value.nbytes
    return total
