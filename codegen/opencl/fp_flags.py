"""Floating-point exceptions inferred from a kernel's values, in text of language "opencl".

OpenCL has no flag register. What NumPy would have reported follows from an operation's operands and
its result: "invalid" is a NaN from operands without NaN, "divide" an infinity at a pole, "over" any
other infinity from finite operands. To keep the cost near zero, each iteration first asks whether
any value is not finite, and looks closer only then.
"""

from __future__ import annotations

from collections.abc import Sequence

from lazyfuse.codegen.lowering.flag_slots import NO_SLOT
from lazyfuse.codegen.opencl.helpers import resolve_types
from lazyfuse.codegen.opencl.raised_words import add_flags
from lazyfuse.codegen.table import ops
from lazyfuse.devices.dataclass import dataclass, replace

DIVIDE, OVER, INVALID = 1, 2, 8
_BITS = {"divide": DIVIDE, "over": OVER, "invalid": INVALID}

# The range of floats that can be cast to an integer, by target (lowest, and the bound above the
# greatest); casts to small integers go through "i4".
_RANGES = {
    "i4": ("-2147483648.0", "2147483648.0"),
    "i8": ("-9223372036854775808.0", "9223372036854775808.0"),
    "u8": ("-9223372036854775808.0", "18446744073709551616.0"),
}
_RANGES["u4"] = _RANGES["i8"]


@dataclass(frozen=True)
class Operation:
    """An operation as written: the texts of its result and of its operands, and their dtypes.

    `slot`: where it reports its exceptions (see flag_slots.py).
    """

    op: str
    result: str
    out: str
    args: tuple[str, ...]
    ins: tuple[str, ...]
    slot: int = NO_SLOT

    @property
    def row(self) -> ops.Op:
        """Its op definition."""
        return ops.TABLE[self.op]

    @property
    def bits(self) -> int:
        """The exceptions that it can raise, except "under"."""
        row = self.row
        kinds = self.ins[0][0]
        flags = row.flags if kinds in "fc" else row.integer_flags if kinds in "iu" else ()
        return sum(_BITS.get(flag, 0) for flag in flags)


Test = tuple[str, int]  # a mask in the types of templates, and its exceptions


def flag_statements(operations: Sequence[Operation], vector: bool) -> list[str]:
    """Statements that add the exceptions of these operations to `int raised_here[]`."""
    raising = [each for each in operations if each.bits and _can_fail(each)]
    floats = [each for each in raising if each.out[0] in "fc"]
    lines = []
    if floats:
        masks = [_any(mask, vector) for mask in _suspicions(operations, floats)]
        lines.append(f"if ({' || '.join(masks)}) {{")
        parts = (part for each in floats for part in _real_operations(each))
        lines += [
            _statement(test, x.slot, vector, "    ") for x in parts for test in _float_tests(x)
        ]
        lines.append("}")
    for each in raising:
        if each.out[0] in "iu":
            if each.op == "cast":
                lines += _cast_lines(each, vector)
            else:
                lines += [_statement(test, each.slot, vector) for test in _integer_tests(each)]
    return lines


def _any(mask: str, vector: bool) -> str:
    text = resolve_types(mask, vector)
    return f"ANY({text})" if vector else text


def _statement(test: Test, slot: int, vector: bool, indent: str = "") -> str:
    mask, bits = test
    return f"{indent}if ({_any(mask, vector)}) {add_flags(slot, bits)}"


def _suspicions(operations: Sequence[Operation], floats: Sequence[Operation]) -> list[str]:
    """Whether any result is not finite: subtracting such a number from itself gives NaN."""
    sums: dict[str, list[str]] = {}
    for each in floats:
        if not _passed_on(each, operations, floats):
            texts = [f"({part} - {part})" for part in _parts(each.result, each.out)]
            if each.row.signals_nan:
                gap = f"({each.args[0]} - {each.args[1]})"
                texts.append(f"({gap} - {gap})")
            sums.setdefault(_part_type(each.out), []).extend(texts)
    return [f"{' + '.join(texts)} != ({kind})(0)" for kind, texts in sums.items()]


def _passed_on(
    each: Operation, operations: Sequence[Operation], floats: Sequence[Operation]
) -> bool:
    """Whether a later result can be finite only if this one is: then its test is enough."""
    return any(
        each.result in other.args
        and other.row.passes_nonfinite
        and (other in floats or _passed_on(other, operations, floats))
        for other in operations
    )


def _can_fail(each: Operation) -> bool:
    """Whether a cast can fail: widening ones cannot."""
    if each.op != "cast":
        return True
    if each.out == "b1" or each.ins[0][0] not in "fc":
        return False
    return each.out[0] in "iu" or _part_type(each.out) < _part_type(each.ins[0])


def _part_type(dtype: str) -> str:
    """The template type of a number or of the parts of a complex one."""
    return f"F{int(dtype[1:]) // 2}" if dtype[0] == "c" else dtype.upper()


def _parts(text: str, dtype: str) -> list[str]:
    return [f"{text}.x", f"{text}.y"] if dtype[0] == "c" else [text]


def _real_operations(each: Operation) -> list[Operation]:
    """Complex sums and products as operations on their parts; the others as they are."""
    if each.out[0] != "c" or not each.row.parts:
        return [each]
    kind = _part_type(each.out).lower()
    (a, b), (c, d) = _parts(each.args[0], each.out), _parts(each.args[-1], each.out)
    x, y = _parts(each.result, each.out)

    def real(op: str, result: str, *args: str) -> Operation:
        return replace(each, op=op, result=result, out=kind, args=args, ins=(kind, kind))

    if each.row.parts == "sum":
        return [real(each.op, x, a, c), real(each.op, y, b, d)]
    pairs = ((a, c), (b, d), (a, d), (b, c))
    products = [real("multiply", f"({first} * {second})", first, second) for first, second in pairs]
    ac, bd, ad, bc = (each.result for each in products)
    return [*products, real("subtract", x, ac, bd), real("add", y, ad, bc)]


def _float_tests(each: Operation) -> list[Test]:
    """The exact exceptions of an operation with a result that is not finite."""
    kind = _part_type(each.ins[0])
    floating = [pair for pair in zip(each.args, each.ins, strict=True) if pair[1][0] in "fc"]
    operands = [part for text, dtype in floating for part in _parts(text, dtype)]
    widen = each.op == "cast"  # masks are as wide as the numbers compared
    results = [f"to_{kind}({x})" if widen else x for x in _parts(each.result, each.out)]
    infinite = " | ".join(f"(fabs({x}) == ({kind})(INFINITY))" for x in results)
    finite = " & ".join(f"(fabs({x}) < ({kind})(INFINITY))" for x in operands)
    if each.op == "nextafter":  # a number's neighbour is infinite only towards infinity
        finite = f"(fabs({operands[0]}) < ({kind})(INFINITY))"
    unbounded = f"({infinite}) & {finite}"
    if each.row.signals_nan:
        gap = f"(fabs({operands[0]} - {operands[1]}) == ({kind})(INFINITY))"
        unbounded = f"({infinite} | {gap}) & {finite}"
    tests = [(_is_invalid(each, results, operands), INVALID)] if each.bits & INVALID else []
    if not each.bits & DIVIDE:
        return [*tests, (unbounded, OVER)] if each.bits & OVER else tests
    divisor = each.row.pole
    if divisor is None:
        return [*tests, (unbounded, DIVIDE)]
    zeros = [f"({x} == ({kind})(0))" for x in _parts(each.args[divisor], each.ins[divisor])]
    pole = " & ".join(zeros)
    at_pole = f"({unbounded}) & {pole}"
    if each.op == "divide" and each.out[0] == "c":  # part by part
        finite = " | ".join(f"(isfinite({x}) & ({x} != 0))" for x in operands[:2])
        at_pole = f"({finite}) & {pole}"
    # NumPy's floor_divide subtracts an infinite quotient from itself
    over = OVER | INVALID if each.op == "floor_divide" else OVER
    return [*tests, (at_pole, DIVIDE), (f"{unbounded} & !({pole})", over)]


def _is_invalid(each: Operation, results: list[str], operands: list[str]) -> str:
    """Whether a result is NaN where no operand is, or where a NaN itself is invalid."""
    nan = " | ".join(f"({x} != {x})" for x in results)
    if each.row.signals_nan:
        return f"({nan})"
    known = " & ".join(f"({x} == {x})" for x in operands)
    if each.out[0] == "c" and each.row.pole is not None:
        x, y = operands[-2:]
        strange = [f"isinf({part})" for part in operands] + [f"({x} != {x})", f"({y} != {y})"]
        known = f"(({known}) | {' | '.join(strange)} | (({x} == 0) & ({y} == 0)))"
    return f"({nan}) & {known}"


def _cast_lines(each: Operation, vector: bool) -> list[str]:
    """Whether a number to be truncated is out of range: first roughly, then exactly."""
    low, high = _RANGES.get(each.out, _RANGES["i4"])
    kind = _part_type(each.ins[0])
    if kind == "F4":
        low, high = f"{low}f", f"{high}f"
    number = _parts(each.args[0], each.ins[0])[0]
    whole = f"trunc({number})"
    large = f"!(fabs({number}) < ({kind})({low.removeprefix('-')}))"
    outside = f"!(({whole} >= ({kind})({low})) & ({whole} < ({kind})({high})))"
    test = outside, INVALID
    return [f"if ({_any(large, vector)})", _statement(test, each.slot, vector, "    ")]


def _integer_tests(each: Operation) -> list[Test]:
    kind = each.ins[0].upper()
    is_zero = f"{each.args[-1]} == ({kind})(0)"
    if each.op == "reciprocal":  # NumPy converts the infinity
        return [(is_zero, DIVIDE | INVALID)]
    tests = [(is_zero, DIVIDE)]
    if each.bits & OVER and each.ins[0][0] == "i":
        least = f"{1 - 2 ** (8 * int(each.ins[0][1:]) - 1)}L - 1"
        text = f"({each.args[0]} == ({kind})({least})) & ({each.args[1]} == ({kind})(-1))"
        tests.append((text, OVER))
    return tests
