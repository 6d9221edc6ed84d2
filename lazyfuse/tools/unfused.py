"""`lazyfuse.unfused(x)`: operations that run as kernels of their own, to be looked at.

Owns the mark: a marked node has the barrier row of its op (`ops.as_fusion_barrier`). So the
structural key tells marked graphs from others, and a graph without marks pays nothing for them.
"""

from __future__ import annotations

from typing import Any

from lazyfuse.arrays.ndarray import ndarray, node_of
from lazyfuse.codegen.table import ops
from lazyfuse.runtime.scheduling import evaluate


def unfused(*arrays: Any) -> Any:
    """Keep the last recorded operation of each array out of fusion; hands the arrays back.

    It becomes a kernel of its own: with its own time in traces, its own text in `explain` and its
    result in a buffer. An array that is evaluated already, or that only looks at another one's
    memory, stays as it is.
    """
    for x in arrays:
        if isinstance(x, ndarray):
            _mark(x)
    return arrays[0] if len(arrays) == 1 else arrays


def _mark(x: Any) -> None:
    node = node_of(x)
    with evaluate.quiet:
        if node.value is None and node.resident is None and node.op.kind in ("map", "reduce"):
            node.op = ops.as_fusion_barrier(node.op)
