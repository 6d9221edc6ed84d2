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
"""Elements of a chunk: what functions compute in between stays in the cache."""


@cached(256)
def loop_of(
    op: Op, ins: tuple[np.dtype[Any], ...], out: np.dtype[Any]
) -> Callable[..., int] | None:
    """`(target, *operands) -> IEEE flags` of a map, for flat arrays that lie in C order; None:
    there is no such loop.
    """
    kind = out.str[1:]
    if kind not in ("f4", "f8") or any(each != out for each in ins):
        return None
    call = functions.CALL.fullmatch(op.expression("numba", (kind,) * len(ins), kind) or "")
    loop = vector_loops.ready(call[1] if call else f"{functions.prefix(kind)}_log1p")
    if loop is None:
        return None
    if call:
        order = [int(each) for each in re.findall(r"\d", call[2])]
        return lambda target, *given: loop(target, _scratch, *[given[at] for at in order])
    own: Callable[..., int] | None = getattr(functions, op.name, None)
    return own and (lambda *arrays: _in_chunks(own, loop, *arrays))


def _scratch(name: object, shape: tuple[int, ...], dtype: str) -> Array:
    return np.empty(shape, dtype)


def _in_chunks(own: Callable[..., int], log1p: Callable[..., int], *arrays: Array) -> int:
    flags = 0
    for at in range(0, arrays[0].size, BLOCK):
        target, *given = [each[at : at + BLOCK] for each in arrays]
        flags |= own(target, log1p, _scratch, *given)
    return flags


def run(loop: Callable[..., int], target: Array, values: Sequence[Array]) -> int:
    """Compute into `target` from operands that are broadcast; the IEEE flags that were raised."""
    shape, dtype = target.shape, target.dtype
    whole = [np.broadcast_to(np.asarray(each, dtype), shape).ravel() for each in values]
    return loop(target.reshape(-1), *whole)
