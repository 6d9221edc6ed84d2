"""Rows of the op table: arithmetic, comparisons, logic and bits.

Owns no behaviour: each row is data. Expressions rely on their argument types (see `op.Op`). A row
has a text for OpenCL where its text for numba is not valid C.
"""

from __future__ import annotations

from typing import Any

from lazyfuse.codegen.table.op import ANY, Op, elementwise

_ARITHMETIC = ("over", "invalid")
_SCALING = ("over", "under", "invalid")
_DIVISION = ("divide", "over", "under", "invalid")


def _operator(name: str, sign: str) -> dict[str, Any]:
    """The columns of a Python operator: its methods and its sign."""
    return {"dunders": (f"__{name}__", f"__r{name}__", f"__i{name}__"), "sign": sign}


def _shift(signed: str, unsigned: str) -> dict[str, str]:
    texts = {}
    for size in (1, 2, 4, 8):
        names = {"bits": 8 * size, "mask": 8 * size - 1}
        texts[f"i{size}"] = signed.format("{0}", "{1}", **names)
        texts[f"u{size}"] = unsigned.format("{0}", "{1}", **names)
    return texts


_LEFT = _shift(
    "(({0} << ({1} & {mask})) if ({1} >= 0) & ({1} < {bits}) else 0)",
    "((uint64({0}) << (uint64({1}) & uint64({mask}))) if {1} < {bits} else uint64(0))",
)
_RIGHT = _shift(
    "({0} >> ({1} if ({1} >= 0) & ({1} < {bits}) else {mask}))",
    "((uint64({0}) >> (uint64({1}) & uint64({mask}))) if {1} < {bits} else uint64(0))",
)

_LEFT_C = {
    "i": "((({1} >= (T)(0)) & ({1} < (T)(BITS))) ? to_T(to_N({0}) << to_N({1} & (T)(BITS - 1)))"
    " : (T)(0))",
    "u": "(({1} < (T)(BITS)) ? to_T(to_N({0}) << to_N({1} & (T)(BITS - 1))) : (T)(0))",
}
_RIGHT_C = {
    "i": "({0} >> ((({1} >= (T)(0)) & ({1} < (T)(BITS))) ? {1} : (T)(BITS - 1)))",
    "u": "(({1} < (T)(BITS)) ? to_T({0} >> ({1} & (T)(BITS - 1))) : (T)(0))",
}


def _by_width(texts: dict[str, str]) -> dict[str, str]:
    """A text per integer dtype, with its number of bits."""
    return {
        f"{kind}{size}": text.replace("BITS - 1", str(8 * size - 1)).replace("BITS", str(8 * size))
        for kind, text in texts.items()
        for size in (1, 2, 4, 8)
    }


def _integer_division(name: str) -> dict[str, str]:
    """Up to 32 bits as doubles, which vectorises; 64 bits as integers."""
    remainder = "remainder" if name == "fmod" else name  # the same for unsigned numbers
    return {
        "i": f"{name}_small_f8(to_F8({{0}}), to_F8({{1}}))",
        "u": f"{remainder}_whole_f8(to_F8({{0}}), to_F8({{1}}))",
        "i8": f"{name}_T({{0}}, {{1}})",
        "u8": f"{name}_T({{0}}, {{1}})",
    }


def _whole_division(name: str) -> dict[str, str]:
    """As integers, for devices without doubles."""
    return {"iu": f"{name}_T({{0}}, {{1}})"}


def _wrapping(sign: str) -> dict[str, str]:
    """Integer arithmetic that wraps around: in C, signed arithmetic must not overflow."""
    return {"iu": f"(to_N({{0}}) {sign} to_N({{1}}))"}


def _common(name: str, **fields: Any) -> Op:
    """The greatest common divisor, or the least common multiple."""
    signed, unsigned = f"{name}_signed(int64({{0}}), int64({{1}}))", f"{name}_unsigned"
    texts = {"i": signed, "u": f"{unsigned}(uint64({{0}}), uint64({{1}}))"}
    in_c = {"iu": f"{name}_T({{0}}, {{1}})"}
    return elementwise(name, texts, in_c, exact="iu", weak_scalars=False, **fields)


# NumPy's vector loops fuse the additions (FMA) where the CPU can; its scalar loops do not
_PRODUCT = (
    "complex({0}.real * {1}.real - {0}.imag * {1}.imag, {0}.real * {1}.imag + {0}.imag * {1}.real)"
)
_RECIPROCAL_C = "({0} == (T)(1) ? {0} : {0} == (T)(-1) ? {0} : {0} == (T)(0) ? (T)(ZERO) : (T)(0))"
_PRODUCT_C = "(T)({0}.x * {1}.x - {0}.y * {1}.y, {0}.x * {1}.y + {0}.y * {1}.x)"

ARITHMETIC: tuple[Op, ...] = (
    elementwise(
        "add",
        {"b": "({0} | {1})", "iufc": "({0} + {1})"},
        _wrapping("+"),
        exact="biufc",
        flags=_ARITHMETIC,
        **_operator("add", "+"),
        scalar_overflow=True,
        passes_nonfinite=True,
        safe_at_one=True,
        parts="sum",
        start="zero",
        ordered=True,
    ),
    elementwise(
        "subtract",
        "({0} - {1})",
        _wrapping("-"),
        exact="iufc",
        flags=_ARITHMETIC,
        **_operator("sub", "-"),
        scalar_overflow=True,
        passes_nonfinite=True,
        safe_at_one=True,
        parts="sum",
    ),
    elementwise(
        "multiply",
        {"b": "({0} & {1})", "iuf": "({0} * {1})", "c": _PRODUCT},
        _wrapping("*") | {"c": _PRODUCT_C},
        exact="biuf",
        flags=_SCALING,
        **_operator("mul", "*"),
        ulps=2,
        misreported="c",  # NumPy contracts it: an infinity of a part may never arise
        scalar_overflow=True,
        passes_nonfinite=True,
        safe_at_one=True,
        parts="product",
        start="one",
        ordered=True,
    ),
    elementwise(
        "divide",
        {"f": "({0} / {1})", "c16": "divide_c16({0}, {1})", "c8": "divide_c8({0}, {1})"},
        {"c": "divide_complex_T({0}, {1})"},
        exact="fc",
        cost=4.0,
        flags=_DIVISION,
        **_operator("truediv", "/"),
        aliases=("true_divide",),
        misreported="c",
        pole=1,
    ),
    elementwise(
        "floor_divide",
        {
            "i1": "floor_divide_narrow(float64({0}), float64({1}), 128.0)",
            "i2": "floor_divide_narrow(float64({0}), float64({1}), 32768.0)",
            "i4": "floor_divide_narrow(float64({0}), float64({1}), 2147483648.0)",
            "u": "floor_divide_small(float64({0}), float64({1}))",
            "i8": "floor_divide_signed({0}, {1})",
            "u8": "floor_divide_unsigned({0}, {1})",
            "f8": "floor_divide_f8({0}, {1})",
            "f4": "floor_divide_f4({0}, {1})",
        },
        _integer_division("floor_divide") | {"f": "floor_divide_float_T({0}, {1})"},
        single=_whole_division("floor_divide"),
        exact="iuf",
        cost=12.0,
        flags=_DIVISION,
        integer_flags=("divide", "over"),
        **_operator("floordiv", "//"),
        misreported=ANY,
        pole=1,
    ),
    elementwise(
        "remainder",
        {
            "iu": "remainder_small(float64({0}), float64({1}))",
            "i8": "remainder_signed({0}, {1})",
            "u8": "remainder_unsigned({0}, {1})",
            "f8": "remainder_f8({0}, {1})",
            "f4": "remainder_f4({0}, {1})",
        },
        _integer_division("remainder") | {"f": "remainder_float_T({0}, {1})"},
        single=_whole_division("remainder"),
        exact="iuf",
        cost=12.0,
        flags=("invalid",),
        integer_flags=("divide",),
        **_operator("mod", "%"),
        aliases=("mod",),
        misreported=ANY,
    ),
    elementwise(
        "fmod",
        {
            "iu": "fmod_small(float64({0}), float64({1}))",
            "i8": "fmod_signed({0}, {1})",
            "u8": "remainder_unsigned({0}, {1})",
            "f": "np.fmod({0}, {1})",
        },
        _integer_division("fmod") | {"f": "fmod({0}, {1})"},
        single=_whole_division("fmod"),
        exact="iuf",
        cost=12.0,
        flags=("invalid",),
        integer_flags=("divide",),
        misreported=ANY,
    ),
    elementwise(
        "power",
        {
            "u": "power_unsigned(uint64({0}), uint64({1}))",
            "f8": "vm_pow({0}, {1})",
            "f4": "vmf_pow({0}, {1})",
        },
        {"u": "power_integer_T({0}, {1})", "f": "pow_T({0}, {1})"},
        exact="iu",
        cost=30.0,
        flags=_DIVISION,
        **_operator("pow", "**"),
        aliases=("pow",),
        domain=((0.0, 50.0), (-5.0, 5.0)),
        ulps=4,
        refused="i",
        scalar_overflow=True,
        misreported=ANY,
        pole=0,
        library="pow",
    ),
    elementwise(
        "float_power",
        {"f8": "vm_pow({0}, {1})"},
        {"f8": "pow_T({0}, {1})"},
        single={"f4": "pow_T({0}, {1})"},
        cost=30.0,
        flags=_DIVISION,
        domain=((0.0, 50.0), (-5.0, 5.0)),
        ulps=4,
        pole=0,
        library="pow",
    ),
    elementwise(
        "absolute",
        {
            "bu": "{0}",
            "i": "({0} if {0} >= 0 else -{0})",
            "f": "abs({0})",
            "c16": "vm_hypot({0}.real, {0}.imag)",
            "c8": "vmf_hypot({0}.real, {0}.imag)",
        },
        {
            "i": "({0} >= (T)(0) ? {0} : to_T((N)(0) - to_N({0})))",
            "f": "fabs({0})",
            "c": "hypot_P({0}.x, {0}.y)",
        },
        exact="biuf",
        dunders=("__abs__",),
        aliases=("abs",),
        ulps=4,
        scalar_overflow=True,
        passes_nonfinite=True,
    ),
    elementwise("fabs", "abs({0})", "fabs({0})", kinds="f", exact="f", passes_nonfinite=True),
    elementwise(
        "negative",
        "(-{0})",
        {"iu": "((N)(0) - to_N({0}))"},
        exact="iufc",
        dunders=("__neg__",),
        scalar_overflow=True,
        passes_nonfinite=True,
        algebra="involution",
    ),
    elementwise(
        "positive",
        "{0}",
        exact="iufc",
        dunders=("__pos__",),
        passes_nonfinite=True,
        algebra="identity",
    ),
    elementwise(
        "conjugate",
        {"iuf": "{0}", "c": "{0}.conjugate()"},
        {"c": "(T)({0}.x, -{0}.y)"},
        exact="iufc",
        aliases=("conj",),
        passes_nonfinite=True,
        algebra="involution",
    ),
    elementwise(
        "sign",
        {
            "i": "(int64({0} > 0) - int64({0} < 0))",
            "u": "int64({0} != 0)",
            "f8": "({0} if {0} != {0} else float64(int64({0} > 0) - int64({0} < 0)))",
            "f4": "({0} if {0} != {0} else float32(int32({0} > 0) - int32({0} < 0)))",
            "c16": "sign_c16({0})",
            "c8": "sign_c8({0})",
        },
        {
            "i": "({0} > (T)(0) ? (T)(1) : {0} < (T)(0) ? (T)(-1) : (T)(0))",
            "u": "({0} != (T)(0) ? (T)(1) : (T)(0))",
            "f": "({0} > 0 ? (T)(1) : {0} < 0 ? (T)(-1) : {0} == 0 ? (T)(0) : {0})",
            "c": "sign_complex_T({0})",
        },
        exact="iuf",
        cost=2.0,
        ulps=4,
        drops_nan=True,
    ),
    elementwise(
        "square",
        {"iuf": "({0} * {0})", "c": _PRODUCT.format("{0}", "{0}")},
        {"iu": "(to_N({0}) * to_N({0}))", "c": _PRODUCT_C.format("{0}", "{0}")},
        exact="iuf",
        flags=_SCALING,
        ulps=2,
        misreported="c",
        passes_nonfinite=True,
        safe_at_one=True,
        parts="product",
    ),
    elementwise(
        "reciprocal",
        {
            # of zero: the divide flag, and the result of NumPy's conversion of infinity on x86
            "i": "truncate_i4(1.0 / float64({0}))",
            "i8": "truncate_i8(1.0 / float64({0}))",
            "u": "truncate_u8(1.0 / float64({0}))",
            "f8": "(1.0 / {0})",
            "f4": "(float32(1.0) / {0})",
            "c16": "reciprocal_c16({0})",
            "c8": "reciprocal_c8({0})",
        },
        {
            "u": "({0} == (T)(1) ? {0} : (T)(0))",
            "i": _RECIPROCAL_C.replace("ZERO", "0"),
            "i4": _RECIPROCAL_C.replace("ZERO", "-2147483647 - 1"),
            "i8": _RECIPROCAL_C.replace("ZERO", "-9223372036854775807L - 1"),
            "f": "((T)(1) / {0})",
            "c": "reciprocal_complex_T({0})",
        },
        exact="iufc",
        cost=4.0,
        flags=_DIVISION,
        integer_flags=_DIVISION,  # the conversion of infinity is invalid
        misreported="ciu",
        pole=0,
    ),
    elementwise(
        "copysign",
        "np.copysign({0}, {1})",
        "copysign({0}, {1})",
        kinds="f",
        exact="f",
        misreported=ANY,
    ),
    _common("gcd", cost=60.0, reorderable=True),
    _common("lcm", cost=70.0),
)


def _extreme(name: str, boolean: str, sign: str, **fields: Any) -> Op:
    """The larger or smaller operand: an operand that is NaN, or for `fmax` and `fmin` the other."""
    nan = "{1}" if name in ("fmax", "fmin") else "{0}"
    return elementwise(
        name,
        {
            "b": f"({{0}} {boolean} {{1}})",
            "iu": f"({{0}} if {{0}} {sign} {{1}} else {{1}})",
            "f": f"({{0}} if ({{0}} {sign} {{1}}) | ({nan} != {nan}) else {{1}})",
            "c": f"{name}_complex({{0}}, {{1}})",
        },
        {"c": f"{name}_complex_T({{0}}, {{1}})"},
        exact="biufc",
        drops_nan=True,
        **fields,
    )


EXTREMES: tuple[Op, ...] = (
    _extreme("maximum", "|", ">", start="least"),
    _extreme("minimum", "&", "<", start="greatest"),
    _extreme("fmax", "|", ">", start="least", skips_nan=True),
    _extreme("fmin", "&", "<", start="greatest", skips_nan=True),
)


# numba compares int64 with uint64 as floats, so the text checks the sign first
_MIXED = {
    "==": "(({0} >= 0) & (uint64({0}) == {1}))",
    "!=": "(({0} < 0) | (uint64({0}) != {1}))",
    "<": "(({0} < 0) | (uint64({0}) < {1}))",
    "<=": "(({0} < 0) | (uint64({0}) <= {1}))",
    ">": "(({0} >= 0) & (uint64({0}) > {1}))",
    ">=": "(({0} >= 0) & (uint64({0}) >= {1}))",
}
_MIRROR = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _comparison(name: str, sign: str, method: str, boolean: str, complex_text: str) -> Op:
    mixed = {"i8,u8": _MIXED[sign], "u8,i8": _MIXED[_MIRROR[sign]].format("{1}", "{0}")}
    texts = {"b": boolean, "iuf": f"({{0}} {sign} {{1}})", "c": complex_text, **mixed}
    in_c = {key: text.replace("uint64(", "to_U8(") for key, text in mixed.items()}
    if "complex(" in complex_text:
        in_c["c"] = complex_text.replace("complex(", "complex_T(")
    # an unordered operand raises the hardware's invalid flag, which NumPy does not report
    dunders, orders = (f"__{method}__",), sign not in ("==", "!=")
    return elementwise(
        name, texts, in_c, exact="biufc", dunders=dunders, sign=sign, drops_nan=orders
    )


_EQUAL = "(({0}.real == {1}.real) & ({0}.imag == {1}.imag))"

COMPARISONS: tuple[Op, ...] = (
    _comparison("equal", "==", "eq", "({0} == {1})", _EQUAL),
    _comparison("not_equal", "!=", "ne", "({0} != {1})", f"(not {_EQUAL})"),
    _comparison("less", "<", "lt", "((not {0}) & {1})", "greater_complex({1}, {0})"),
    _comparison("less_equal", "<=", "le", "((not {0}) | {1})", "greater_equal_complex({1}, {0})"),
    _comparison("greater", ">", "gt", "({0} & (not {1}))", "greater_complex({0}, {1})"),
    _comparison(
        "greater_equal", ">=", "ge", "({0} | (not {1}))", "greater_equal_complex({0}, {1})"
    ),
)

_TRUE = {"b": "{%d}", "iuf": "({%d} != 0)", "c": "(({%d}.real != 0) | ({%d}.imag != 0))"}


_TRUE_C = {"iuf": "({%d} != (T)(0))", "c": "(({%d}.x != 0) | ({%d}.y != 0))"}


def _truths(template: str, truth: dict[str, str]) -> dict[str, str]:
    first = {key: text.replace("%d", "0") for key, text in truth.items()}
    second = {key: text.replace("%d", "1") for key, text in truth.items()}
    return {key: template.format(first[key], second[key]) for key in truth}


def _logical(name: str, template: str, **fields: Any) -> Op:
    in_c = _truths(template.replace("not ", "!"), _TRUE_C)
    return elementwise(name, _truths(template, _TRUE), in_c, exact="biufc", **fields)


def _shift_row(
    name: str, method: str, sign: str, texts: dict[str, str], in_c: dict[str, str]
) -> Op:
    aliases = (f"bitwise_{name}",)
    return elementwise(
        name, texts, _by_width(in_c), exact="iu", **_operator(method, sign), aliases=aliases
    )


LOGIC: tuple[Op, ...] = (
    _logical("logical_and", "({0} & {1})", start="one"),
    _logical("logical_or", "({0} | {1})", start="zero"),
    _logical("logical_xor", "({0} != {1})", reorderable=True),
    _logical("logical_not", "(not {0})", algebra="involution"),
    elementwise(
        "bitwise_and",
        "({0} & {1})",
        kinds="biu",
        exact="biu",
        **_operator("and", "&"),
        start="bits",
    ),
    elementwise(
        "bitwise_or", "({0} | {1})", kinds="biu", exact="biu", **_operator("or", "|"), start="zero"
    ),
    elementwise(
        "bitwise_xor",
        {"b": "({0} != {1})", "iu": "({0} ^ {1})"},
        exact="biu",
        **_operator("xor", "^"),
        start="zero",
    ),
    elementwise(
        "invert",
        {"b": "(not {0})", "iu": "(~{0})"},
        exact="biu",
        dunders=("__invert__",),
        aliases=("bitwise_not", "bitwise_invert"),
        algebra="involution",
    ),
    _shift_row("left_shift", "lshift", "<<", _LEFT, _LEFT_C),
    _shift_row("right_shift", "rshift", ">>", _RIGHT, _RIGHT_C),
    elementwise(
        "bitwise_count",
        {
            "i": "count_bits(magnitude(int64({0})))",
            "u": "count_bits(uint64({0}))",
        },
        {
            "i": "popcount(to_U({0} >= (T)(0) ? {0} : to_T((N)(0) - to_N({0}))))",
            "u": "popcount({0})",
        },
        exact="iu",
        cost=8.0,
    ),
)

ROWS: tuple[Op, ...] = ARITHMETIC + EXTREMES + COMPARISONS + LOGIC
