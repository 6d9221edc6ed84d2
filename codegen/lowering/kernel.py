"""The kernel: what a fused group computes, before any language or device is chosen.

Owns `Kernel`, its verifier and questions about it. Dtypes are spelled as NumPy's `dtype.str[1:]`
("f8", "i4", "b1", "c16").
"""

from __future__ import annotations

from lazyfuse.codegen.table import ops
from lazyfuse.devices.dataclass import dataclass


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class Store:
    """Write value number `value` to an output array over the whole domain."""

    value: int
    dtype: str


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class Kernel:
    """A fused group over one iteration domain of `rank` axes.

    The outputs are the stores, in order, then the reductions, in order. All reductions of a kernel
    reduce the same axes (`reduced`, one flag per axis of the domain). `single`: its text must not
    use double precision, inside operations on smaller numbers too.
    """

    rank: int
    inputs: tuple[str, ...]
    scalars: tuple[str, ...]
    body: tuple[Instruction, ...]
    stores: tuple[Store, ...]
    reductions: tuple[Reduce, ...] = ()
    reduced: tuple[bool, ...] = ()
    single: bool = False


class KernelError(ValueError):
    """A kernel that breaks its rules: a mistake of the compiler, never of the user."""


_ARGUMENTS = ("argmin", "argmax")
_DOUBLES = ("f8", "c16")


def verify(kernel: Kernel) -> None:
    """Raise `KernelError` unless the kernel is well formed and can be printed."""
    if not kernel.stores and not kernel.reductions:
        raise KernelError("[verify] outputs: expected at least one store or reduction, got none")
    for dtype in (*kernel.inputs, *kernel.scalars):
        _verify_dtype(dtype)
    dtypes = [*kernel.inputs, *kernel.scalars]
    for instruction in kernel.body:
        _verify_instruction(instruction, len(dtypes))
        dtypes.append(instruction.out)
    for store in kernel.stores:
        _verify_dtype(store.dtype)
        _verify_value(store.value, len(dtypes), "store")
    _verify_reductions(kernel, dtypes)
    if kernel.single and uses_doubles(kernel):
        raise KernelError("[verify] single: expected no float64 or complex128, got some")


def value_dtypes(kernel: Kernel) -> tuple[str, ...]:
    """The dtype of each numbered value."""
    return (*kernel.inputs, *kernel.scalars, *(each.out for each in kernel.body))


def memory_of(kernel: Kernel, value: int) -> int:
    """The value in whose memory `value` lies in NumPy; mostly `value` itself."""
    first = len(kernel.inputs) + len(kernel.scalars)
    while value >= first and kernel.body[value - first].op in ops.PIECES:
        value = kernel.body[value - first].args[0]
    return value


def uses_doubles(kernel: Kernel) -> bool:
    """Whether any of its values has double precision."""
    dtypes = (
        *value_dtypes(kernel),
        *(dtype for each in kernel.body for dtype in each.ins),
        *(each.dtype for each in kernel.stores),
        *(each.accumulator for each in kernel.reductions),
    )
    return any(dtype in _DOUBLES for dtype in dtypes)


def cost(kernel: Kernel) -> float:
    """Arithmetic per element of the domain, in additions."""
    rows = [ops.TABLE[each.op] for each in kernel.body]
    rows += [ops.TABLE[f"reduce:{each.op}"] for each in kernel.reductions]
    return sum(row.cost for row in rows)


def is_exact(kernel: Kernel) -> bool:
    """Whether every operation gives NumPy's bits on every device.

    Products of complex numbers do not: NumPy contracts some, depending on their array position.
    """
    if not all(combines_exactly(each) for each in kernel.reductions):
        return False
    return all(each.ins[0][0] in ops.TABLE[each.op].exact for each in kernel.body if each.ins)


def combines_exactly(reduction: Reduce) -> bool:
    """Whether one step of a reduction gives NumPy's bits on every device."""
    row = ops.TABLE[ops.TABLE[f"reduce:{reduction.op}"].combine]
    return reduction.accumulator[0] in row.exact


def raises_flags(kernel: Kernel) -> bool:
    """Whether some operation can raise a floating-point exception by itself."""
    for each in kernel.body:
        row = ops.TABLE[each.op]
        floating = any(dtype[0] in "fc" for dtype in (*each.ins, each.out))
        if row.integer_flags or (row.flags and floating):  # integers can be divided by zero
            return True
    return any(is_ordered(each) for each in kernel.reductions)


def is_ordered(reduction: Reduce) -> bool:
    """Whether the bits of the result depend on the order of summation."""
    return ops.TABLE[f"reduce:{reduction.op}"].ordered and reduction.accumulator[0] in "fc"


def is_argument(reduction: Reduce) -> bool:
    """Whether the result is the index of an element."""
    return reduction.op in _ARGUMENTS


def conflict(reductions: tuple[Reduce, ...], dtypes: tuple[str, ...]) -> str:
    """Why these reductions cannot share one kernel; empty if they can.

    `dtypes` are those of the reduced values. NumPy cuts sums of complex numbers, and sums that
    convert their operands, at other positions than plain sums: one loop order cannot serve both.
    """
    kinds = set()
    for each, dtype in zip(reductions, dtypes, strict=True):
        if is_ordered(each):
            kinds.add((each.op, each.accumulator[0] == "c", dtype != each.accumulator))
    different = "sums and products, real, complex and converted ones, run in different orders"
    return different if len(kinds) > 1 else ""


def _verify_dtype(dtype: str) -> None:
    if dtype not in ops.KERNEL_DTYPES:
        raise KernelError(f"[verify] dtype: expected one of KERNEL_DTYPES, got {dtype!r}")


def _verify_value(value: int, known: int, what: str) -> None:
    if not 0 <= value < known:
        raise KernelError(f"[verify] {what}: expected a value below {known}, got {value}")


def _verify_instruction(instruction: Instruction, known: int) -> None:
    row = ops.TABLE.get(instruction.op)
    if row is None or row.kind != "map":
        raise KernelError(f"[verify] op: expected a map row, got {instruction.op!r}")
    if not len(instruction.args) == len(instruction.ins) == row.nin:
        raise KernelError(f"[verify] {row.name}: expected {row.nin} arguments, got {instruction}")
    for value in instruction.args:
        _verify_value(value, known, row.name)
    for dtype in (*instruction.ins, instruction.out):
        _verify_dtype(dtype)


def _verify_reductions(kernel: Kernel, dtypes: list[str]) -> None:
    if not kernel.reductions:
        if kernel.reduced:
            raise KernelError("[verify] reduced: expected () without reductions")
        return
    if len(kernel.reduced) != kernel.rank or not any(kernel.reduced):
        raise KernelError(
            f"[verify] reduced: expected {kernel.rank} flags, one true, got {kernel.reduced}"
        )
    for each in kernel.reductions:
        row = ops.TABLE.get(f"reduce:{each.op}")
        if row is None or not row.start:
            raise KernelError(f"[verify] reduction: {each.op!r} is not a kernel reduction")
        _verify_value(each.value, len(dtypes), each.op)
        _verify_dtype(each.accumulator)
        if each.dtype != ("i8" if is_argument(each) else each.accumulator):
            raise KernelError(f"[verify] {each.op}: unexpected result dtype {each.dtype!r}")
        if is_argument(each) and not all(kernel.reduced) and sum(kernel.reduced) != 1:
            raise KernelError(f"[verify] {each.op}: expected one axis or all of them")
    why = conflict(kernel.reductions, tuple(dtypes[each.value] for each in kernel.reductions))
    if why:
        raise KernelError(f"[verify] reductions: {why}")
