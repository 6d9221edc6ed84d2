"""Kernels for devices that lack double precision.

Owns `single`: a kernel as such a device can run it. Its texts do without doubles everywhere, and
what was float64 or complex128 is float32 or complex64 in it. Whether that may be is not asked here.
"""

from __future__ import annotations

from dataclasses import replace

from lazyfuse.codegen.lowering.kernel import Instruction, Kernel, Reduce, Store

_NARROW = {"f8": "f4", "c16": "c8"}


def single(kernel: Kernel) -> Kernel:
    """The kernel without double precision; its integers and truth values stay what they are."""
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
    """The dtype in which such a device keeps numbers of this one."""
    return _NARROW.get(dtype, dtype)


def _all(dtypes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(narrow(dtype) for dtype in dtypes)


def _instruction(each: Instruction) -> Instruction:
    return Instruction(each.op, each.args, _all(each.ins), narrow(each.out))


def _reduction(each: Reduce) -> Reduce:
    return Reduce(each.op, each.value, narrow(each.accumulator), narrow(each.dtype))
