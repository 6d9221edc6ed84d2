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
# A loop is one when a line has come round this often since somebody last looked: short inner loops
# (Horner's rule, three components) fuse as a whole, long ones keep one structure per iteration.
ROUNDS = 8
# How often the bytes held by recorded work are counted, in recorded operations.
COUNT_BYTES_EVERY = 64

LOOP = "loop: the line came round again"
NODES = "nodes: the recorded graph reached its limit"
BYTES = "bytes: recorded work holds more memory than the budget"


class Pending:
    """The operations recorded since the last flush."""

    __slots__ = ("elements", "evaluate", "lines", "looping", "nodes", "rounds")

    def __init__(self, evaluate: Callable[[Sequence[Node], str], None]) -> None:
        self.evaluate = evaluate
        self.nodes: list[weakref.ref[Node]] = []
        self.lines: set[Where] = set()  # that came since the last evaluation
        self.rounds: dict[Where, int] = {}  # how often each came since the last sink
        self.looping = False  # while a loop's own flush runs
        self.elements = 0

    def note(self, node: Node) -> None:
        """Called once for each recorded node; may evaluate what was recorded before it."""
        where = node.where
        count = len(self.nodes)
        if where is not None:
            self.rounds[where] = rounds = self.rounds.get(where, 0) + 1
            if rounds > ROUNDS and where in self.lines and self.elements >= WORTH_A_LAUNCH:
                self.flush_loop(node)
                count = 0
            self.lines.add(where)
        if count and count % COUNT_BYTES_EVERY == 0:
            self.check_limits(node, count)
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

    def flush_loop(self, newest: Node) -> None:
        """A loop came round: its rounds go on being counted."""
        self.looping = True
        try:
            self.flush(newest, LOOP)
        finally:
            self.looping = False

    def settle(self) -> None:
        """Called after an evaluation: what it did is no longer pending work."""
        self.nodes = [ref for ref in self.nodes if _is_pending(ref())]
        self.elements = 0
        self.lines.clear()
        if not self.looping:
            self.rounds.clear()

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
