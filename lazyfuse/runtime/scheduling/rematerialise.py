"""Values that somebody holds and that an evaluation need not write: they are cheap to make again.

A name in the user's program holds what it was bound to until it is bound anew, so the differences
of all pairs, their squares and whatever else a statement of its own computed would be written as a
whole by the sink that needs only their sums. What is made from arrays that are much smaller stays
pending instead: made again, it costs less than writing and reading it would, and what it keeps
alive is small. It is left once; an evaluation that meets it again writes it.

Owns the choice; evaluate.py asks. Conditions that arose are told by the run that left a value, so
then it is written at once, and nothing is heard twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from weakref import WeakSet

from lazyfuse import config
from lazyfuse.codegen.graph.linearize import Recording
from lazyfuse.codegen.graph.node import Node
from lazyfuse.codegen.plan.plan import Plan
from lazyfuse.codegen.table import ops
from lazyfuse.runtime.events import counters
from lazyfuse.runtime.scheduling.co_evaluation import is_watched

# Values of fewer elements are written: that costs next to nothing.
LARGE = 1 << 16
# All that a value is made from is so many times smaller.
SMALLER = 4
# Additions per element that making a value again may cost: about what writing and reading it does.
MOST_COST = 48.0
# Pending operations that are looked at.
MOST = 64
# Sizes per plan at which nothing can be made again.
KEPT = 8

Left = tuple[Sequence[Node], Sequence[Node]]

NOTHING: Left = ((), ())
_left: WeakSet[Node] = WeakSet()


def leave(
    recording: Recording, roots: Sequence[Node], plan: Plan | None = None, only_look: bool = False
) -> Left:
    """Mark held values of a recording as not to be written: those, and the operands below them.

    Whoever calls keeps both until the plan has run, so that nobody takes the operands' memory for a
    result: they will be read again. `plan`: that of the recording, if it has been seen before: it
    keeps at which sizes nothing can be made again. `only_look`: nothing is going to run.
    """
    held = recording.held
    if sum(held) <= len(roots) or len(held) > MOST:
        return NOTHING
    sizes = (LARGE, *recording.sizes)
    if plan is not None and sizes in plan.vain:
        return NOTHING
    options = config.options
    if not (options.remake and options.fusion) or options.fusion_max_length or is_watched():
        return NOTHING
    ids = {id(node) for node in roots}
    left: dict[int, Node] = {}
    operands: dict[int, Node] = {}
    for at, node in enumerate(recording.nodes):
        if held[at] and id(node) not in ids and prod(node.shape) >= LARGE:
            found = _operands(node) if node not in _left else None
            if found is not None:
                left[at] = node
                operands.update(found)
    if not left:
        if plan is not None and len(plan.vain) < KEPT and _is_vain(recording):
            plan.vain.add(sizes)
        return NOTHING
    key = list(recording.key)
    for at in left:
        held[at] = False
        key[at] = (*key[at][:-1], False)
    recording.key = tuple(key)
    if not only_look:
        _left.update(left.values())
        counters.totals.remade += len(left)
    return list(left.values()), list(operands.values())


def _is_vain(recording: Recording) -> bool:
    """Whether nothing of it can be made again, whoever asks: key and sizes say it the next time."""
    if any(node.resident is not None for node in recording.nodes):
        return False
    held = zip(recording.nodes, recording.held, strict=True)
    large = [node for node, is_held in held if is_held and prod(node.shape) >= LARGE]
    return all(_operands(node) is None for node in large)


def _operands(root: Node) -> dict[int, Node] | None:
    """The values below a node if they are small and it is cheap to make; else None."""
    if root.op.kind != "map" or root.op.apart:
        return None
    size = prod(root.shape)
    small = root.dtype.itemsize * size // SMALLER
    cost = 0.0
    found: dict[int, Node] = {}
    seen = {id(root)}
    stack = [root]
    while stack:
        node = stack.pop()
        if node.value is not None or node.resident is not None:
            if node.resident is not None:
                return None
            small -= node.dtype.itemsize * prod(node.shape)
            found[id(node)] = node
        elif node.op is ops.FULL or node.op is ops.VIEW or node.op.kind in ("map", "reduce"):
            if not repeats(node):
                return None
            if node.op is not ops.VIEW:
                shape = node.src[0].shape if node.op.kind == "reduce" else node.shape
                cost += node.op.cost * prod(shape)
            for source in node.src:
                if id(source) not in seen:
                    seen.add(id(source))
                    stack.append(source)
        else:
            return None
        if small < 0 or cost > MOST_COST * size or len(seen) > MOST:
            return None
    return found


def repeats(node: Node) -> bool:
    """Whether a node made again has the same bits: those of functions may hang on the kernel."""
    exact = node.op.kind != "map" or node.op.is_exact(node.arg.ins[0])
    return exact and node.op.pure
