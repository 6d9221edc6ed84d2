"""Values while a text is translated, and conversions between their types.

Owns what LLVM value stands for a value of each type: an integer or float of its size, one bit for a
truth value, two floats for a complex number.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...caches import DTYPES, cached
from ...late_imports import module as heavy
from . import kinds
from .kinds import Unsupported


class Value(NamedTuple):
    """A value of a text: its type (a dtype code, or "*f8" for a pointer to f8) and LLVM values."""

    kind: str
    parts: tuple[Any, ...]
    literal: int | float | None = None  # what is known while translating

    @property
    def ir(self) -> Any:
        """The one LLVM value of anything but a complex number."""
        (only,) = self.parts
        return only

    @property
    def target(self) -> str:
        """What a pointer points at."""
        if self.kind[0] != "*":
            raise Unsupported(f"[translate] {self.kind} is no pointer")
        return self.kind[1:]


@cached(why=DTYPES, clears=False)
def llvm_type(kind: str) -> Any:
    """The LLVM type of one part of a value."""
    ir = heavy("llvmlite.ir")
    if kind[0] == "*":
        return element_type(kind[1:]).as_pointer()
    if kind[0] in "fc":
        return ir.FloatType() if kind in ("f4", "c8") else ir.DoubleType()
    return ir.IntType(1 if kind == "b1" else 8 * kinds.size(kind))


@cached(why=DTYPES, clears=False)
def element_type(code: str) -> Any:
    """The LLVM type of an element in memory."""
    ir = heavy("llvmlite.ir")
    if code[0] == "c":
        return ir.LiteralStructType([llvm_type(code)] * 2)
    return ir.IntType(8) if code == "b1" else llvm_type(code)


def constant(number: Any, kind: str) -> Value:
    """A number of a type."""
    ir, kept = heavy("llvmlite.ir"), llvm_type(kind)
    if kind[0] == "c":
        return Value(kind, (ir.Constant(kept, number.real), ir.Constant(kept, number.imag)))
    exact = float(number) if kind[0] == "f" else int(number)
    return Value(kind, (ir.Constant(kept, exact),), exact)


def convert(builder: Any, value: Value, kind: str) -> Value:
    """A value as another scalar type, as numba converts it."""
    if value.kind == kind:
        return value
    if "*" in (value.kind[0], kind[0]):
        raise Unsupported(f"[translate] {value.kind} as {kind}")
    if value.literal is not None and value.kind[0] in "iu" and kind[0] in "iuf":
        if kind[0] == "f":
            return constant(float(value.literal), kind)
        return constant(_wrapped(int(value.literal), kind), kind)
    if kind == "b1":
        return truth(builder, value)
    if kind[0] == "c":
        inner = kinds.part(kind)
        parts = [convert(builder, each, inner).ir for each in real_and_imaginary(value)]
        return Value(kind, tuple(parts))
    if value.kind[0] == "c":
        raise Unsupported("[translate] a complex number as a real one")
    return Value(kind, (_convert_real(builder, value, kind),))


def _convert_real(builder: Any, value: Value, kind: str) -> Any:
    old, new, ir, to = value.kind, kind, value.ir, llvm_type(kind)
    if old[0] == "f" and new[0] == "f":
        return builder.fpext(ir, to) if kinds.size(new) == 8 else builder.fptrunc(ir, to)
    if old[0] == "f":
        return builder.fptosi(ir, to) if new[0] == "i" else builder.fptoui(ir, to)
    if new[0] == "f":
        return builder.sitofp(ir, to) if old[0] == "i" else builder.uitofp(ir, to)
    if old == "b1":
        return builder.zext(ir, to)
    if kinds.size(old) == kinds.size(new):
        return ir
    if kinds.size(old) > kinds.size(new):
        return builder.trunc(ir, to)
    return builder.sext(ir, to) if old[0] == "i" else builder.zext(ir, to)


def _wrapped(number: int, kind: str) -> int:
    bits = 8 * kinds.size(kind)
    number &= (1 << bits) - 1
    return number - (1 << bits) if kind[0] == "i" and number >> (bits - 1) else number


def truth(builder: Any, value: Value) -> Value:
    """Whether a value is not zero; NaN is not."""
    if value.kind == "b1":
        return value
    if value.kind[0] == "*":
        raise Unsupported("[translate] the truth of a pointer")
    zero = llvm_type(value.kind)(0)
    if value.kind[0] in "iu":
        return Value("b1", (builder.icmp_unsigned("!=", value.ir, zero),))
    found = [builder.fcmp_unordered("!=", each, zero) for each in value.parts]
    return Value("b1", (found[0] if len(found) == 1 else builder.or_(*found),))


def real_and_imaginary(value: Value) -> tuple[Value, Value]:
    """The two parts of a number."""
    if value.kind[0] == "c":
        inner = kinds.part(value.kind)
        return Value(inner, value.parts[:1]), Value(inner, value.parts[1:])
    if value.kind[0] not in "biuf":
        raise Unsupported(f"[translate] parts of {value.kind}")
    return value, constant(0, "i8" if value.kind[0] != "f" else value.kind)
