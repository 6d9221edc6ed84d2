"""A recorded operation that NumPy runs, without a plan."""

from __future__ import annotations

from typing import Any

import numpy as np

from lazyfuse.codegen.graph import interpret
from lazyfuse.codegen.graph.node import Node
from lazyfuse.codegen.table import ops
from lazyfuse.runtime.events import counters, spans
from lazyfuse.runtime.execution import concurrency, matmul, routine, run_values
from lazyfuse.runtime.numerics import fp_flags
from lazyfuse.runtime.placement import devices as hardware

Array = np.ndarray[Any, np.dtype[Any]]


def run_node(node: Node, spent: Array | None = None) -> int:
    """Give a node its value; the exceptions that arose.

    `spent`: memory of the result's shape and dtype, perhaps an operand's that nothing else reads.
    """
    op = node.op
    values = [source.value for source in node.src if source.value is not None]
    plain = op.kind == "map" and op.ufunc is not None and node.perm is None
    span = spans.begin() if spans.on else None
    for value, dtype in zip(values, node.arg.ins if plain else (), strict=False):
        plain = plain and value.dtype is dtype
    try:
        with fp_flags.collecting() as flags:
            if plain:
                out = hardware.empty(node.shape, node.dtype) if spent is None else spent
                found = concurrency.call_unlocked(op.ufunc, *values, out=out)
            else:
                perms = [source.perm for source in node.src]
                arg = node.arg if op is not ops.HOST else routine.native_kernel(node.arg)
                product = op.kind == "contract"  # elsewhere its module is of no use
                found = concurrency.numpys(op, arg)(
                    matmul.run_node if product else interpret.run_node,
                    op, arg, node.shape, node.dtype, node.perm, values, perms,
                )  # fmt: skip
    except Exception as error:
        run_values.explain_failure(error, [node])
        raise
    if node.value is None:  # else another thread was quicker
        node.value = found
    node.src = ()
    counters.ran_single(node, span=span)
    return flags.bits
