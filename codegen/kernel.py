"""The one kernel form: what a fused group computes, before any language or device is chosen.

Owns `Kernel` and its verifier. Dtypes are spelled as NumPy's `dtype.str[1:]` ("f8", "i4", "b1", "c16").
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Instruction:
    """One scalar operation of the body, in single-assignment form.

    Values are numbered: the array inputs first, then the scalar arguments, then the instructions
    in order. `op` names a map row of the op table; each argument is converted to its dtype in
    `ins` (an implicit cast, as NumPy's ufunc loops do) and the result has dtype `out`.
    """

    op: str
    args: tuple[int, ...]
    ins: tuple[str, ...]
    out: str


@dataclass(frozen=True, slots=True)
class Store:
    """Write value number `value` to an output array over the whole domain."""

    value: int
    dtype: str


@dataclass(frozen=True, slots=True)
class Reduce:
    """Combine value number `value` over the reduced axes of the domain with reduce row `op`.

    `accumulator` is the dtype in which values are combined, `dtype` that of the result (they differ
    for argmin and argmax only). Ops: add multiply minimum maximum fmin fmax logical_and logical_or
    bitwise_and bitwise_or bitwise_xor argmin argmax.
    """

    op: str
    value: int
    accumulator: str
    dtype: str


@dataclass(frozen=True, slots=True)
class Kernel:
    """A fused group over one iteration domain of `rank` axes.

    The outputs are the stores, in order, then the reductions, in order. All reductions of a kernel
    reduce the same axes (`reduced`, one flag per axis of the domain).
    """

    rank: int
    inputs: tuple[str, ...]
    scalars: tuple[str, ...]
    body: tuple[Instruction, ...]
    stores: tuple[Store, ...]
    reductions: tuple[Reduce, ...] = ()
    reduced: tuple[bool, ...] = ()
