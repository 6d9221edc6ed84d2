"""Operators and NumPy's scalar functions on values, as LLVM instructions.

Owns the meaning of each operator for each type, which is numba's (error model "numpy": nothing
raises). Floating-point arithmetic is as written: no contraction, no reassociation.
"""

from __future__ import annotations

import ast
from typing import Any

from ...late_imports import module as heavy
from . import kinds
from .kinds import Unsupported
from .values import Value, constant, convert, llvm_type, real_and_imaginary, truth

_SIGNS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
ROUNDING = ("floor", "trunc", "ceil", "rint", "sqrt")
"""Functions of one float that NumPy and LLVM call by the same name."""


def binary(builder: Any, operator: ast.operator, left: Value, right: Value) -> Value:
    """`left operator right`."""
    for each in (left, right):
        if each.kind not in kinds.CODES:
            raise Unsupported(f"[translate] arithmetic with {each.kind}")
    if isinstance(operator, (ast.BitAnd, ast.BitOr, ast.BitXor)):
        return _bitwise(builder, operator, left, right)
    if isinstance(operator, (ast.LShift, ast.RShift)):
        return _shift(builder, operator, left, right)
    if isinstance(operator, (ast.FloorDiv, ast.Mod)):
        return _whole_division(builder, operator, left, right)
    if isinstance(operator, ast.Div):
        return _division(builder, left, right)
    names = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul"}
    name = names.get(type(operator))
    if name is None:
        raise Unsupported(f"[translate] operator {type(operator).__name__}")
    result, first, second = kinds.arithmetic(left.kind, right.kind)
    a, b = convert(builder, left, first), convert(builder, right, second)
    if result[0] == "c" and name == "mul":
        return _complex_product(builder, result, a.parts, b.parts)
    put = getattr(builder, ("f" if result[0] in "fc" else "") + name)
    return Value(result, tuple([put(*parts) for parts in zip(a.parts, b.parts, strict=True)]))


def _complex_product(builder: Any, kind: str, first: Any, second: Any) -> Value:
    (a, b), (c, d) = first, second
    real = builder.fsub(builder.fmul(a, c), builder.fmul(b, d))
    return Value(kind, (real, builder.fadd(builder.fmul(a, d), builder.fmul(b, c))))


def _bitwise(builder: Any, operator: ast.operator, left: Value, right: Value) -> Value:
    kind = "b1"
    if left.kind != "b1" or right.kind != "b1":
        kind = kinds.arithmetic(left.kind, right.kind)[0]
    if kind[0] not in "biu":
        raise Unsupported("[translate] bits of a float")
    a, b = convert(builder, left, kind).ir, convert(builder, right, kind).ir
    put = {ast.BitAnd: builder.and_, ast.BitOr: builder.or_, ast.BitXor: builder.xor}
    return Value(kind, (put[type(operator)](a, b),))


def _shift(builder: Any, operator: ast.operator, left: Value, right: Value) -> Value:
    if left.kind[0] not in "biu" or right.kind[0] not in "biu":
        raise Unsupported("[translate] bits of a float")
    kind = kinds.word(left.kind)
    a, b = convert(builder, left, kind).ir, convert(builder, right, kind).ir
    if isinstance(operator, ast.LShift):
        return Value(kind, (builder.shl(a, b),))
    return Value(kind, (builder.ashr(a, b) if kind == "i8" else builder.lshr(a, b),))


def _division(builder: Any, left: Value, right: Value) -> Value:
    result, first, second = kinds.arithmetic(left.kind, right.kind)
    if result[0] == "c":
        raise Unsupported("[translate] complex division")
    a, b = convert(builder, left, first), convert(builder, right, second)
    kind = result if result[0] == "f" else "f8"
    first_float, second_float = convert(builder, a, kind), convert(builder, b, kind)
    return Value(kind, (builder.fdiv(first_float.ir, second_float.ir),))


def _whole_division(builder: Any, operator: ast.operator, left: Value, right: Value) -> Value:
    """Quotient or remainder of integers, as Python rounds; 0 where the divisor is 0."""
    result, first, second = kinds.arithmetic(left.kind, right.kind)
    if result[0] not in "iu" or first != second:
        raise Unsupported("[translate] whole division of floats, or of signed by unsigned")
    a, b = convert(builder, left, first).ir, convert(builder, right, second)
    zero, one = b.ir.type(0), b.ir.type(1)
    is_quotient = isinstance(operator, ast.FloorDiv)
    positive = b.literal is not None and b.literal > 0
    divisor = b.ir if positive else builder.select(builder.icmp_signed("==", b.ir, zero), one, b.ir)
    if result == "u8":
        found = builder.udiv(a, divisor) if is_quotient else builder.urem(a, divisor)
    else:
        quotient = builder.sdiv(a, divisor)
        rest = builder.sub(a, builder.mul(quotient, divisor))
        unequal = builder.icmp_signed("!=", rest, zero)
        differ = builder.icmp_signed("<", builder.xor(rest, divisor), zero)
        below = builder.and_(unequal, differ)
        if is_quotient:
            found = builder.sub(quotient, builder.zext(below, quotient.type))
        else:
            found = builder.add(rest, builder.select(below, divisor, zero))
    if not positive:  # numba's answer to a zero
        found = builder.select(builder.icmp_signed("==", b.ir, zero), zero, found)
    return Value(result, (found,))


def compare(builder: Any, operator: ast.cmpop, left: Value, right: Value) -> Value:
    """`left operator right` as a truth value; as IEEE 754 says where one is NaN."""
    sign = _SIGNS.get(type(operator))
    if sign is None or left.kind not in kinds.CODES or right.kind not in kinds.CODES:
        raise Unsupported(f"[translate] {left.kind} {type(operator).__name__} {right.kind}")
    kind = kinds.compared(left.kind, right.kind)
    a, b = convert(builder, left, kind), convert(builder, right, kind)
    if kind[0] == "c" and sign not in ("==", "!="):
        raise Unsupported("[translate] the order of complex numbers")
    if kind[0] in "fc":
        put = builder.fcmp_unordered if sign == "!=" else builder.fcmp_ordered
    else:
        put = builder.icmp_signed if kind[0] == "i" else builder.icmp_unsigned
    join = builder.or_ if sign == "!=" else builder.and_
    found = [put(sign, *parts) for parts in zip(a.parts, b.parts, strict=True)]
    return Value("b1", (found[0] if len(found) == 1 else join(*found),))


def unary(builder: Any, operator: ast.unaryop, value: Value) -> Value:
    """`-value`, `+value`, `~value`, `not value`."""
    if isinstance(operator, ast.Not):
        if value.kind == "b1" and value.literal is not None:
            return constant(not value.literal, "b1")
        return Value("b1", (builder.not_(truth(builder, value).ir),))
    if value.kind not in kinds.CODES:
        raise Unsupported(f"[translate] {type(operator).__name__} of {value.kind}")
    if value.kind[0] in "fc":
        if isinstance(operator, ast.Invert):
            raise Unsupported("[translate] bits of a float")
        if isinstance(operator, ast.UAdd):
            return value
        if value.literal is not None:
            return constant(-value.literal, value.kind)
        return Value(value.kind, tuple([builder.fneg(each) for each in value.parts]))
    if value.kind == "b1":
        if not isinstance(operator, ast.Invert):
            raise Unsupported("[translate] the sign of a truth value")
        return Value("b1", (builder.not_(value.ir),))
    if isinstance(operator, ast.USub) and value.literal is not None and value.kind == "i8":
        return constant(-value.literal, "i8")
    if not isinstance(operator, ast.UAdd):  # before it becomes wider, for unsigned numbers
        put = builder.not_ if isinstance(operator, ast.Invert) else builder.neg
        value = Value(value.kind, (put(value.ir),))
    return convert(builder, value, kinds.word(value.kind))


def magnitude(builder: Any, value: Value) -> Value:
    """`abs(value)`."""
    kind = value.kind
    if kind[0] == "f":
        return Value(kind, (_intrinsic(builder, "fabs", value.ir),))
    if kind[0] == "u":
        return value
    if kind[0] != "i":
        raise Unsupported(f"[translate] abs of {kind}")
    below = builder.icmp_signed("<", value.ir, value.ir.type(0))
    return Value(kind, (builder.select(below, builder.neg(value.ir), value.ir),))


def least(builder: Any, values: list[Value], sign: str) -> Value:
    """`min` (sign "<") or `max` (">") as Python has them: the first of equal values."""
    best = values[0]
    for each in values[1:]:
        kind = kinds.common(best.kind, each.kind)
        if kind[0] not in "iuf":
            raise Unsupported(f"[translate] min or max of {kind}")
        a, b = convert(builder, best, kind).ir, convert(builder, each, kind).ir
        names = {"i": builder.icmp_signed, "u": builder.icmp_unsigned, "f": builder.fcmp_ordered}
        best = Value(kind, (builder.select(names[kind[0]](sign, b, a), b, a),))
    return best


def extreme(builder: Any, name: str, first: Value, second: Value) -> Value:
    """LLVM's `maximum` or `minimum` of two floats: it vectorises loops of these."""
    if first.kind[0] != "f" or second.kind[0] not in "biuf":
        raise Unsupported(f"[translate] {name} of {first.kind} and {second.kind}")
    other = convert(builder, second, first.kind)
    return Value(first.kind, (_intrinsic(builder, name, first.ir, other.ir),))


def rounded(builder: Any, name: str, value: Value) -> Value:
    """A function of `ROUNDING` of a float."""
    if value.kind[0] != "f":
        raise Unsupported(f"[translate] np.{name} of {value.kind}")
    return Value(value.kind, (_intrinsic(builder, name, value.ir),))


def of_two_floats(builder: Any, name: str, first: Value, second: Value) -> Value:
    """`np.fmod` or `np.copysign`."""
    if first.kind != second.kind or first.kind[0] != "f":
        raise Unsupported(f"[translate] np.{name} of {first.kind} and {second.kind}")
    if name == "fmod":
        return Value(first.kind, (builder.frem(first.ir, second.ir),))
    return Value(first.kind, (_intrinsic(builder, "copysign", first.ir, second.ir),))


def conjugate(builder: Any, value: Value) -> Value:
    """The complex conjugate."""
    if value.kind[0] != "c":
        return value
    return Value(value.kind, (value.parts[0], builder.fneg(value.parts[1])))


def made_complex(builder: Any, first: Value, second: Value) -> Value:
    """`complex(first, second)`."""
    kind = "c8" if first.kind == second.kind == "f4" else "c16"
    if first.kind[0] not in "biuf" or second.kind[0] not in "biuf":
        raise Unsupported("[translate] complex() of complex numbers")
    inner = kinds.part(kind)
    parts = [convert(builder, each, inner).ir for each in (first, second)]
    return Value(kind, tuple(parts))


def part_of(value: Value, name: str) -> Value:
    """`value.real` or `value.imag`."""
    return real_and_imaginary(value)[name == "imag"]


def same_bits(builder: Any, value: Value, kind: str) -> Value:
    """`value.view(kind)`."""
    if kinds.size(value.kind) != kinds.size(kind) or "c" in (value.kind[0], kind[0]):
        raise Unsupported(f"[translate] {value.kind} viewed as {kind}")
    return Value(kind, (builder.bitcast(value.ir, llvm_type(kind)),))


def _intrinsic(builder: Any, name: str, *args: Any) -> Any:
    ir, kind = heavy("llvmlite.ir"), args[0].type
    full = f"llvm.{name}.{'f64' if isinstance(kind, ir.DoubleType) else 'f32'}"
    typed = ir.FunctionType(kind, [kind] * len(args))
    function = builder.module.globals.get(full) or ir.Function(builder.module, typed, full)
    return builder.call(function, args)
