"""Inexact elementwise operations by the loops of compiled programs, which have their bits: for
structures that are fresh, one operation at a time. Blocked text (vector_printer.py) calls the same.

Owns which operations there are loops for that need no compiler. Knows no nodes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lazyfuse.codegen.blocked import functions
from lazyfuse.codegen.table.op import Op
from lazyfuse.devices.caches import cached
from lazyfuse.devices.cpu import vector_loops

Array = np.ndarray[Any, np.dtype[Any]]
BLOCK = 1 << 12
_CALL = re.compile(r"(vmf?_\w+)\(((?:\{\d\}(?:, )?)+)\)")


@cached(256)
def loop_of(
    op: Op, ins: tuple[np.dtype[Any], ...], out: np.dtype[Any]
) -> Callable[..., int] | None:
    """`(target, *operands) -> IEEE flags`, where `target` lies in C order and operands have its
    shape; None: there is no such loop.
    """
    kind = out.str[1:]
    if op.kind != "map" or kind not in ("f4", "f8") or any(each != out for each in ins):
        return None
    call = _CALL.fullmatch(op.expression("numba", (kind,) * len(ins), kind) or "")
    loop = vector_loops.ready(call[1] if call else "vm_log1p" if kind == "f8" else "vmf_log1p")
    if loop is None:
        return None
    if call:
        order = [int(each) for each in re.findall(r"\d", call[2])]
        return lambda target, *given: loop(target, _scratch, *[given[at] for at in order])
    own: Callable[..., int] | None = getattr(functions, op.name, None)
    return own and (lambda target, *given: own(target, loop, _scratch, *given))


def _scratch(name: object, shape: tuple[int, ...], dtype: str) -> Array:
    return np.empty(shape, dtype)


def run(loop: Callable[..., int], target: Array, values: Sequence[Array]) -> int:
    """Compute into `target` from operands that are broadcast; the IEEE flags that were raised."""
    shape, dtype, flags = target.shape, target.dtype, 0
    whole = [np.broadcast_to(np.asarray(each, dtype), shape).ravel() for each in values]
    out = target.reshape(-1)
    for at in range(0, out.size, BLOCK):  # what functions compute in between stays in the cache
        part = slice(at, at + BLOCK)
        flags |= loop(out[part], *[each[part] for each in whole])
    return flags
