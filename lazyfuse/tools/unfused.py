"""`lazyfuse.unfused(x)`: runs operations as separate kernels, for inspection.

Owns the fusion barrier: a marked node has the barrier definition of its op
(`ops.as_fusion_barrier`). So marked graphs have other structural keys, and graphs without marks
have no cost.
"""

from __future__ import annotations

from typing import Any

from lazyfuse.arrays.ndarray import ndarray, node_of
from lazyfuse.codegen.table import ops
from lazyfuse.runtime.scheduling import evaluate


def unfused(*arrays: Any) -> Any:
    """Keep the last recorded operation of each array out of fusion. Returns the arrays.

    The operation becomes a separate kernel, with its own time in traces, its own text in `explain`
    and its result in a buffer. Arrays that are evaluated already, and views, stay unchanged.
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
