"""Blocked NumPy text whose inexact operations give the bits of compiled text.

Kernels with mathematical functions run as this text while their program is being compiled. Exact
operations are NumPy's. Functions are the device's loops over the SIMD versions that compiled text
calls too (devices/cpu/vector_loops.py). Complex products are spelled as in compiled text.
"""

from __future__ import annotations

from lazyfuse.codegen.blocked import functions
from lazyfuse.codegen.blocked.printer import Printer
from lazyfuse.codegen.blocked.printer import print_source as print_with
from lazyfuse.codegen.lowering.kernel import (
    Instruction,
    Kernel,
    KernelError,
    Reduce,
    combines_exactly,
)
from lazyfuse.codegen.lowering.variant import KernelVariant
from lazyfuse.codegen.table import ops
from lazyfuse.devices.base import Source
from lazyfuse.devices.dataclass import replace

# The power, the factor of its log1p, and the summand where both operands are equal.
_LOGADDEXP = {
    "logaddexp": ("exp", "", "0.693147180559945309417232121458176568"),
    "logaddexp2": ("exp2", "1.442695040888963407359924681001892137", "1.0"),
}
_SCALARS = {"f4": "float32", "f8": "float64"}


def print_source(kernel: Kernel, form: KernelVariant) -> Source:
    """The program text of a kernel variant; `KernelError` where an operation has no text."""
    return replace(print_with(kernel, form, _Printer), exact=False)


class _Printer(Printer):
    """The NumPy printer, except for operations that NumPy computes with other bits."""

    def entry(self) -> None:
        self.line("flags = 0")
        super().entry()
        self.line("return flags")

    def instruction(self, at: int, each: Instruction) -> None:
        row = ops.TABLE[each.op]
        if not each.ins or each.ins[0][0] in row.exact:
            super().instruction(at, each)
            return
        args = [self.argument(v, d) for v, d in zip(each.args, each.ins, strict=True)]
        text = row.expression("numba", each.ins, each.out) or ""
        if call := functions.CALL.fullmatch(text):
            self.line(f"flags |= {call[1]}(v{at}, scratch, {call[2].format(*args)})")
        elif hasattr(functions, each.op):
            log1p = f"lambda *given: {functions.prefix(each.out)}_log1p(*given)"
            given = ", ".join(f"np.asarray({x}, {each.out!r})" for x in args)
            self.line(f"flags |= functions.{each.op}(v{at}, {log1p}, scratch, {given})")
        elif row.parts == "product" and each.out[0] == "c":
            self.product(at, args[0], args[-1], f"f{int(each.out[1:]) // 2}")
        elif each.op in _LOGADDEXP:
            self.logaddexp(at, args[0], args[1], each.out, *_LOGADDEXP[each.op])
        else:
            raise KernelError(f"[print] {each.op}: no blocked text with compiled bits")

    def reduction(self, r: int, each: Reduce) -> None:
        if not combines_exactly(each):
            raise KernelError(f"[print] reduce:{each.op}: no blocked text with compiled bits")
        super().reduction(r, each)

    def product(self, at: int, a: str, b: str, part: str) -> None:
        """(a.real b.real - a.imag b.imag, a.real b.imag + a.imag b.real), rounded at each step."""
        for k in range(3):
            self.line(f"z{k} = scratch('z{k}', shape, {part!r})")
        char = {"f4": "f", "f8": "d"}[part]
        how = f"signature='{char}{char}->{char}', casting='unsafe'"
        self.line(f"np.multiply({a}.real, {b}.real, out=z0, {how})")
        self.line(f"np.multiply({a}.imag, {b}.imag, out=z1, {how})")
        self.line("np.subtract(z0, z1, out=z0)")
        self.line(f"np.multiply({a}.real, {b}.imag, out=z1, {how})")
        self.line(f"np.multiply({a}.imag, {b}.real, out=z2, {how})")
        self.line(f"np.copyto(v{at}.real, z0)")
        self.line(f"np.add(z1, z2, out=v{at}.imag)")

    def logaddexp(
        self, at: int, a: str, b: str, dtype: str, power: str, factor: str, excess: str
    ) -> None:
        """The larger operand + log1p(power(-|a - b|)), like the compiled helper of that name."""
        prefix = functions.prefix(dtype)
        for k in range(5):
            self.line(f"z{k} = scratch('z{k}', shape, {dtype!r})")
        self.line(f"np.copyto(z0, {a}, casting='unsafe')")
        self.line(f"np.copyto(z1, {b}, casting='unsafe')")
        self.line("np.subtract(z0, z1, out=z2)")
        self.line("flags |= 8 if np.isnan(z2).any() else 0  # ordered comparisons raise invalid")
        self.line("np.absolute(z2, out=z3)")
        self.line("np.negative(z3, out=z3)")
        self.line(f"flags |= {prefix}_{power}(z3, scratch, z3)")
        self.line(f"flags |= {prefix}_log1p(z3, scratch, z3)")
        if factor:
            self.line(f"np.multiply(z3, np.{_SCALARS[dtype]}({factor}), out=z3)")
        self.line("np.copyto(z4, z1)")
        self.line("np.copyto(z4, z0, where=z2 > 0)")
        self.line("np.add(z4, z3, out=z3)")
        self.line(f"np.add(z0, np.{_SCALARS[dtype]}({excess}), out=z4)")
        self.line("np.copyto(z3, z4, where=z0 == z1)")
        self.line(f"np.copyto(v{at}, z3)")
