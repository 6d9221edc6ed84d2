"""Promotion rules: which loop an op runs for given operand dtypes, decided by NumPy and remembered.

Owns `Loop` and the caches of resolved loops. Must not import the graph or anything above it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lazyfuse.codegen.table.ops import TABLE, Op
from lazyfuse.devices.caches import DTYPES, memo, register

DType = np.dtype[Any]
Operand = DType | type  # a dtype, or int, float or complex for a weak Python scalar (NEP 50)


class Loop:
    """The dtypes that an op reads and writes. Interned: compare with `is`."""

    __slots__ = ("ins", "number", "out")

    def __init__(self, ins: tuple[DType, ...], out: DType, number: int) -> None:
        self.ins = ins
        self.out = out
        self.number = number

    def __repr__(self) -> str:
        return f"<loop {','.join(spell(dtype) for dtype in self.ins)}->{spell(self.out)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return (intern_loop, (self.ins, self.out))


# (op, operand, ...) -> Loop. Hot paths read it directly; a miss goes through `resolve`.
LOOPS: dict[tuple[Any, ...], Loop] = memo("codegen.table.promotion.loops", 1 << 14)
_INTERNED: dict[tuple[tuple[str, ...], str], Loop] = {}
register("codegen.table.promotion.interned", _INTERNED.__len__, None, None, DTYPES)


def spell(dtype: DType) -> str:
    """The short spelling used in kernels: "f8", "i4", "b1", "c16"."""
    return dtype.str[1:]


def intern_loop(ins: tuple[DType, ...], out: DType) -> Loop:
    """The one `Loop` with these dtypes."""
    key = (tuple(dtype.str for dtype in ins), out.str)
    loop = _INTERNED.get(key)
    if loop is None:
        loop = Loop(tuple(_canonical(dtype) for dtype in ins), _canonical(out), len(_INTERNED))
        loop = _INTERNED.setdefault(key, loop)
    return loop


def resolve(op: Op, dtypes: tuple[Operand, ...]) -> Loop:
    """The loop NumPy would choose; raises NumPy's own exception where there is none."""
    key = (op, *dtypes)
    loop = LOOPS.get(key)
    if loop is None:
        loop = LOOPS[key] = _resolve(op, dtypes)
    return loop


def resolve_with(
    op: Op,
    dtypes: tuple[Operand, ...],
    signature: tuple[DType | None, ...] | None = None,
    casting: str = "same_kind",
) -> Loop:
    """`resolve` with an explicit signature (inputs and output) or casting rule; not cached."""
    padded = (*dtypes, *[None] * (op.ufunc.nout))
    chosen = op.ufunc.resolve_dtypes(padded, signature=signature, casting=casting)
    return intern_loop(chosen[: op.nin], chosen[op.nin])


def _resolve(op: Op, dtypes: tuple[Operand, ...]) -> Loop:
    if op.rule is not None:
        ins, out = op.rule(dtypes)
        return intern_loop(ins, out)
    if op.ufunc is None:
        raise TypeError(f"[{op.name}] resolve: the op has no dtype rule")
    chosen = op.ufunc.resolve_dtypes((*dtypes, *[None] * op.ufunc.nout))
    return intern_loop(chosen[: op.nin], chosen[op.nin])


def _canonical(dtype: DType) -> DType:
    # long and longlong are equal dtypes with different characters: keep one of them
    return np.dtype(dtype.str) if dtype.kind in "biufc" else dtype


def cast_loop(source: DType, target: DType) -> Loop:
    """The loop of the `cast` row from one dtype to another."""
    key = (TABLE["cast"], source, target)
    loop = LOOPS.get(key)
    if loop is None:
        loop = LOOPS[key] = intern_loop((source,), target)
    return loop


_REDUCE_CACHE: dict[tuple[Op, DType, DType | None], tuple[DType, DType]] = memo(
    "codegen.table.promotion.reductions", 1 << 12
)


def resolve_reduce(op: Op, dtype: DType, requested: DType | None = None) -> tuple[DType, DType]:
    """The dtypes in which a reduce row combines and returns its result."""
    key = (op, dtype, requested)
    pair = _REDUCE_CACHE.get(key)
    if pair is None:
        pair = _REDUCE_CACHE[key] = _resolve_reduce(op, dtype, requested)
    return pair


def _resolve_reduce(op: Op, dtype: DType, requested: DType | None) -> tuple[DType, DType]:
    if op.ufunc is None:  # argmin, argmax
        return _canonical(dtype), np.dtype(np.intp)
    signature = None
    if requested is not None:
        signature = (requested, None, None)
    elif op.combine in ("add", "multiply") and dtype.kind in "biu" and dtype.itemsize < 8:
        requested = np.dtype(np.uint64 if dtype.kind == "u" else np.int64)
        signature = (requested, None, None)
    chosen = op.ufunc.resolve_dtypes(
        (None, dtype, None),
        signature=signature or (None, None, None),
        reduction=True,
        casting="unsafe",
    )
    return _canonical(chosen[0]), _canonical(chosen[2])
