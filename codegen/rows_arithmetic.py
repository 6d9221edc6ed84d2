"""Rows of the op table: arithmetic, comparisons, logic and bits.

Owns no behaviour: each row is data. Expressions rely on their argument types (see `op.Op`).
"""

from __future__ import annotations

from lazyfuse.codegen.op import Op, elementwise

_ARITHMETIC = ("over", "invalid")
_SCALING = ("over", "under", "invalid")
_DIVISION = ("divide", "over", "under", "invalid")


def _operator(name: str) -> tuple[str, str, str]:
    return (f"__{name}__", f"__r{name}__", f"__i{name}__")


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

# NumPy's vector loops fuse the additions (FMA) where the CPU can; its scalar loops do not
_PRODUCT = (
    "complex({0}.real * {1}.real - {0}.imag * {1}.imag, {0}.real * {1}.imag + {0}.imag * {1}.real)"
)

ARITHMETIC: tuple[Op, ...] = (
    elementwise(
        "add",
        {"b": "({0} | {1})", "iufc": "({0} + {1})"},
        exact="biufc",
        flags=_ARITHMETIC,
        dunders=_operator("add"),
    ),
    elementwise(
        "subtract", "({0} - {1})", exact="iufc", flags=_ARITHMETIC, dunders=_operator("sub")
    ),
    elementwise(
        "multiply",
        {"b": "({0} & {1})", "iuf": "({0} * {1})", "c": _PRODUCT},
        exact="biuf",
        flags=_SCALING,
        dunders=_operator("mul"),
        ulps=2,
    ),
    elementwise(
        "divide",
        {"f": "({0} / {1})", "c16": "divide_c16({0}, {1})", "c8": "divide_c8({0}, {1})"},
        exact="fc",
        cost=4.0,
        flags=_DIVISION,
        dunders=_operator("truediv"),
        aliases=("true_divide",),
    ),
    elementwise(
        "floor_divide",
        {
            "iu": "floor_divide_small(float64({0}), float64({1}))",
            "i8": "floor_divide_signed({0}, {1})",
            "u8": "floor_divide_unsigned({0}, {1})",
            "f8": "floor_divide_f8({0}, {1})",
            "f4": "floor_divide_f4({0}, {1})",
        },
        exact="iuf",
        cost=12.0,
        flags=_DIVISION,
        integer_flags=("divide", "over"),
        dunders=_operator("floordiv"),
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
        exact="iuf",
        cost=12.0,
        flags=("invalid",),
        integer_flags=("divide",),
        dunders=_operator("mod"),
        aliases=("mod",),
    ),
    elementwise(
        "fmod",
        {
            "iu": "fmod_small(float64({0}), float64({1}))",
            "i8": "fmod_signed({0}, {1})",
            "u8": "remainder_unsigned({0}, {1})",
            "f": "np.fmod({0}, {1})",
        },
        exact="iuf",
        cost=12.0,
        flags=("invalid",),
        integer_flags=("divide",),
    ),
    elementwise(
        "power",
        {
            "u": "power_unsigned(uint64({0}), uint64({1}))",
            "f8": "vm_pow({0}, {1})",
            "f4": "vmf_pow({0}, {1})",
        },
        exact="iu",
        cost=30.0,
        flags=_DIVISION,
        dunders=_operator("pow"),
        aliases=("pow",),
        domain=((0.0, 50.0), (-5.0, 5.0)),
        ulps=4,
    ),
    elementwise(
        "float_power",
        {"f8": "vm_pow({0}, {1})"},
        cost=30.0,
        flags=_DIVISION,
        domain=((0.0, 50.0), (-5.0, 5.0)),
        ulps=4,
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
        exact="biuf",
        dunders=("__abs__",),
        aliases=("abs",),
        ulps=4,
    ),
    elementwise("fabs", "abs({0})", kinds="f", exact="f"),
    elementwise("negative", "(-{0})", exact="iufc", dunders=("__neg__",)),
    elementwise("positive", "{0}", exact="iufc", dunders=("__pos__",)),
    elementwise(
        "conjugate", {"iuf": "{0}", "c": "{0}.conjugate()"}, exact="iufc", aliases=("conj",)
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
        exact="iuf",
        cost=2.0,
        ulps=4,
    ),
    elementwise(
        "square",
        {"iuf": "({0} * {0})", "c": _PRODUCT.format("{0}", "{0}")},
        exact="iuf",
        flags=_SCALING,
        ulps=2,
    ),
    elementwise(
        "reciprocal",
        {
            # of zero: the divide flag, and what NumPy's own conversion of infinity gives on x86
            "i": "truncate_i4(1.0 / float64({0}))",
            "i8": "truncate_i8(1.0 / float64({0}))",
            "u": "truncate_u8(1.0 / float64({0}))",
            "f8": "(1.0 / {0})",
            "f4": "(float32(1.0) / {0})",
            "c16": "reciprocal_c16({0})",
            "c8": "reciprocal_c8({0})",
        },
        exact="iufc",
        cost=4.0,
        flags=_DIVISION,
        integer_flags=("divide",),
    ),
    elementwise("copysign", "np.copysign({0}, {1})", kinds="f", exact="f"),
    elementwise(
        "gcd",
        {
            "i": "gcd_signed(int64({0}), int64({1}))",
            "u": "gcd_unsigned(uint64({0}), uint64({1}))",
        },
        exact="iu",
        cost=60.0,
    ),
    elementwise(
        "lcm",
        {
            "i": "lcm_signed(int64({0}), int64({1}))",
            "u": "lcm_unsigned(uint64({0}), uint64({1}))",
        },
        exact="iu",
        cost=70.0,
    ),
)

EXTREMES: tuple[Op, ...] = (
    elementwise(
        "maximum",
        {
            "b": "({0} | {1})",
            "iu": "({0} if {0} > {1} else {1})",
            "f": "({0} if ({0} > {1}) | ({0} != {0}) else {1})",
            "c": "maximum_complex({0}, {1})",
        },
        exact="biufc",
    ),
    elementwise(
        "minimum",
        {
            "b": "({0} & {1})",
            "iu": "({0} if {0} < {1} else {1})",
            "f": "({0} if ({0} < {1}) | ({0} != {0}) else {1})",
            "c": "minimum_complex({0}, {1})",
        },
        exact="biufc",
    ),
    elementwise(
        "fmax",
        {
            "b": "({0} | {1})",
            "iu": "({0} if {0} > {1} else {1})",
            "f": "({0} if ({0} > {1}) | ({1} != {1}) else {1})",
            "c": "fmax_complex({0}, {1})",
        },
        exact="biufc",
    ),
    elementwise(
        "fmin",
        {
            "b": "({0} & {1})",
            "iu": "({0} if {0} < {1} else {1})",
            "f": "({0} if ({0} < {1}) | ({1} != {1}) else {1})",
            "c": "fmin_complex({0}, {1})",
        },
        exact="biufc",
    ),
)


# numba compares int64 with uint64 as floats: the sign is looked at first
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
    texts = {
        "b": boolean,
        "iuf": f"({{0}} {sign} {{1}})",
        "c": complex_text,
        "i8,u8": _MIXED[sign],
        "u8,i8": _MIXED[_MIRROR[sign]].format("{1}", "{0}"),
    }
    # an unordered operand raises the hardware's invalid flag, which NumPy does not report
    return elementwise(name, texts, exact="biufc", dunders=(f"__{method}__",))


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


def _truths(template: str) -> dict[str, str]:
    first = {key: text.replace("%d", "0") for key, text in _TRUE.items()}
    second = {key: text.replace("%d", "1") for key, text in _TRUE.items()}
    return {key: template.format(first[key], second[key]) for key in _TRUE}


LOGIC: tuple[Op, ...] = (
    elementwise("logical_and", _truths("({0} & {1})"), exact="biufc"),
    elementwise("logical_or", _truths("({0} | {1})"), exact="biufc"),
    elementwise("logical_xor", _truths("({0} != {1})"), exact="biufc"),
    elementwise("logical_not", _truths("(not {0})"), exact="biufc"),
    elementwise("bitwise_and", "({0} & {1})", kinds="biu", exact="biu", dunders=_operator("and")),
    elementwise("bitwise_or", "({0} | {1})", kinds="biu", exact="biu", dunders=_operator("or")),
    elementwise(
        "bitwise_xor",
        {"b": "({0} != {1})", "iu": "({0} ^ {1})"},
        exact="biu",
        dunders=_operator("xor"),
    ),
    elementwise(
        "invert",
        {"b": "(not {0})", "iu": "(~{0})"},
        exact="biu",
        dunders=("__invert__",),
        aliases=("bitwise_not", "bitwise_invert"),
    ),
    elementwise(
        "left_shift",
        _LEFT,
        exact="iu",
        dunders=_operator("lshift"),
        aliases=("bitwise_left_shift",),
    ),
    elementwise(
        "right_shift",
        _RIGHT,
        exact="iu",
        dunders=_operator("rshift"),
        aliases=("bitwise_right_shift",),
    ),
    elementwise(
        "bitwise_count",
        {
            "i": "count_bits(magnitude(int64({0})))",
            "u": "count_bits(uint64({0}))",
        },
        exact="iu",
        cost=8.0,
    ),
)

ROWS: tuple[Op, ...] = ARITHMETIC + EXTREMES + COMPARISONS + LOGIC
