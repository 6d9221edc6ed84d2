"""Kernels for devices that lack double precision.

Owns `single`, which converts a kernel for such a device. Its texts use no doubles, and values of
float64 or complex128 become float32 or complex64. The caller decides whether this is allowed.
"""

from __future__ import annotations

from lazyfuse.codegen.lowering.kernel import Instruction, Kernel, Reduce, Store
from lazyfuse.devices.dataclass import replace

_NARROW = {"f8": "f4", "c16": "c8"}


def single(kernel: Kernel) -> Kernel:
    """The kernel without double precision; integers and truth values stay as they are."""
    return replace(
        kernel,
        inputs=_all(kernel.inputs),
        scalars=_all(kernel.scalars),
        body=tuple(_instruction(each) for each in kernel.body),
        stores=tuple(Store(each.value, narrow(each.dtype)) for each in kernel.stores),
        reductions=tuple(_reduction(each) for each in kernel.reductions),
        single=True,
    )


def narrow(dtype: str) -> str:
    """The dtype in which such a device keeps numbers of `dtype`."""
    return _NARROW.get(dtype, dtype)


def _all(dtypes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(narrow(dtype) for dtype in dtypes)


def _instruction(each: Instruction) -> Instruction:
    return Instruction(each.op, each.args, _all(each.ins), narrow(each.out))


def _reduction(each: Reduce) -> Reduce:
    return Reduce(each.op, each.value, narrow(each.accumulator), narrow(each.dtype))
