"""Rows of the op table: mathematical functions, rounding and floating-point predicates.

Owns no behaviour: each row is data. The device supplies `vm_*` (f8) and `vmf_*` (f4); in C
`NAME_T` are helpers around the device's library.
"""

from __future__ import annotations

from typing import Any

from lazyfuse.codegen.table.op import ANY, Op, elementwise

Interval = tuple[float, float]

# In vectors of floats PoCL gives wrong values if another element is huge or not finite.
_PERIODIC = ("sin", "cos", "tan")
# Of any operands, the library raises exceptions that NumPy does not: ours are helpers.
_OURS = ("arccosh", "arctanh", "hypot")
_EVERYWHERE: Interval = (-1e3, 1e3)
# The error of these is relative to the larger operand: results near zero would count as wrong.
_POSITIVE: tuple[Interval, Interval] = ((0.1, 50.0), (0.1, 50.0))


def _function(
    name: str,
    vector_name: str = "",
    cost: float = 15.0,
    domain: tuple[Interval, ...] = (_EVERYWHERE,),
    **fields: Any,
) -> Op:
    """A function that the device's vector library has, within 4 units in the last place."""
    vector_name = vector_name or name
    arguments = ", ".join(f"{{{index}}}" for index in range(len(domain)))
    texts = {"f8": f"vm_{vector_name}({arguments})", "f4": f"vmf_{vector_name}({arguments})"}
    if name in _OURS:
        texts = {size: f"{name}_{size}({arguments})" for size in ("f8", "f4")}
    in_c = {"f8": f"{vector_name}_T({arguments})", "f4": f"{vector_name}_T({arguments})"}
    if name in _PERIODIC:
        of_doubles = "tangent" if name == "tan" else name
        in_c["f8"] = f"{of_doubles}_T({arguments})"
        in_c["f4"] = f"to_F4({of_doubles}_f8(to_F8({arguments})))"
        fields["single"] = {"f4": f"{vector_name}_alone_T({arguments})"}
        fields["unit"] = "" if name == "tan" else "sine"
    fields["library"] = vector_name
    return elementwise(name, texts, in_c, cost=cost, domain=domain, ulps=4, **fields)


def _helper(name: str, nin: int) -> tuple[dict[str, str], dict[str, str]]:
    """The texts of a function of floats that is a helper in each language."""
    given = "({0})" if nin == 1 else "({0}, {1})"
    return {size: f"{name}_{size}{given}" for size in ("f8", "f4")}, {"f": f"{name}_T{given}"}


_RANGE = ("over", "under")

TRANSCENDENTAL: tuple[Op, ...] = (
    _function("exp", domain=((-80.0, 80.0),), flags=_RANGE),
    _function("exp2", domain=((-120.0, 120.0),), flags=_RANGE),
    _function("expm1", domain=((-80.0, 80.0),), flags=_RANGE, cost=20.0),
    _function("log", domain=((1e-30, 1e30),), flags=("divide", "invalid")),
    _function("log2", domain=((1e-30, 1e30),), flags=("divide", "invalid")),
    _function("log10", domain=((1e-30, 1e30),), flags=("divide", "invalid")),
    _function(
        "log1p",
        domain=((-0.99, 1e10),),
        flags=("divide", "invalid"),
        cost=20.0,
        passes_nonfinite=True,
    ),
    _function("sin", flags=("invalid",)),
    _function("cos", flags=("invalid",)),
    _function("tan", flags=("invalid",), cost=25.0, domain=((-1.5, 1.5),)),
    _function("arcsin", "asin", domain=((-1.0, 1.0),), flags=("invalid",), aliases=("asin",)),
    _function("arccos", "acos", domain=((-1.0, 1.0),), flags=("invalid",), aliases=("acos",)),
    _function("arctan", "atan", aliases=("atan",)),
    _function("sinh", domain=((-80.0, 80.0),), flags=_RANGE, cost=25.0, passes_nonfinite=True),
    _function("cosh", domain=((-80.0, 80.0),), flags=("over",), cost=25.0),
    _function("tanh", domain=((-20.0, 20.0),), cost=20.0),
    _function("arcsinh", "asinh", cost=25.0, aliases=("asinh",)),
    _function(
        "arccosh", "acosh", domain=((1.0, 1e10),), flags=("invalid",), cost=25.0, aliases=("acosh",)
    ),
    _function(
        "arctanh",
        "atanh",
        domain=((-0.99, 0.99),),
        flags=("divide", "invalid"),
        cost=25.0,
        aliases=("atanh",),
    ),
    _function("arctan2", "atan2", cost=30.0, domain=(_EVERYWHERE, _EVERYWHERE), aliases=("atan2",)),
    _function(
        "hypot", cost=12.0, domain=(_EVERYWHERE, _EVERYWHERE), flags=_RANGE, reorderable=True
    ),
    _function("cbrt", cost=20.0, passes_nonfinite=True),
    *(
        elementwise(
            name,
            *_helper(name, 2),
            cost=40.0,
            domain=_POSITIVE,
            ulps=8,
            unit="operand",
            flags=("invalid", "over", "under"),
            signals_nan=True,
            reorderable=True,
        )
        for name in ("logaddexp", "logaddexp2")
    ),
)


def _whole(name: str) -> Op:
    texts, in_c = {"biu": "{0}", "f": f"np.{name}({{0}})"}, {"f": f"{name}({{0}})"}
    return elementwise(name, texts, in_c, exact="biuf", passes_nonfinite=True)


ROUNDING: tuple[Op, ...] = (
    elementwise(
        "sqrt",
        "np.sqrt({0})",
        "sqrt({0})",
        kinds="f",
        exact="f",
        cost=5.0,
        flags=("invalid",),
        passes_nonfinite=True,
        safe_at_one=True,
    ),
    _whole("floor"),
    _whole("ceil"),
    _whole("trunc"),
    elementwise(
        "rint",
        {"f": "np.rint({0})", "c": "complex(np.rint({0}.real), np.rint({0}.imag))"},
        {"fc": "rint({0})"},
        exact="fc",
        misreported=ANY,
        passes_nonfinite=True,
    ),
)

_DEGREES = {"f8": "({0} * (180.0 / math.pi))", "f4": "({0} * (float32(180.0) / float32(math.pi)))"}
_RADIANS = {"f8": "({0} * (math.pi / 180.0))", "f4": "({0} * (float32(math.pi) / float32(180.0)))"}
_DEGREES_C = {"f": "({0} * ((T)(180.0) / (T)(3.141592653589793)))"}
_RADIANS_C = {"f": "({0} * ((T)(3.141592653589793) / (T)(180.0)))"}
_FALSE_C = "((T)(0) != (T)(0))"  # a mask of the right width
_TRUE_C = "((T)(0) == (T)(0))"


def _magnitude(name: str, sign: str, join: str, whole: str, whole_c: str) -> Op:
    """A comparison of the magnitude with infinity; `whole`: what integers are."""

    def parts(text: str, x: str, y: str) -> str:
        return f"({text.format(x)} {join} {text.format(y)})"

    real, real_c = f"(abs({{}}) {sign} np.inf)", f"(fabs({{}}) {sign} (P)(INFINITY))"
    return elementwise(
        name,
        {
            "biu": whole,
            "f8": real.format("{0}"),
            "f4": f"(abs({{0}}) {sign} float32(np.inf))",
            "c": parts(real, "{0}.real", "{0}.imag"),
        },
        {
            "biu": whole_c,
            "f": f"(fabs({{0}}) {sign} (T)(INFINITY))",
            "c": parts(real_c, "{0}.x", "{0}.y"),
        },
        exact="biufc",
        drops_nan=True,
    )


FLOATING: tuple[Op, ...] = (
    elementwise("degrees", _DEGREES, _DEGREES_C, exact="f", flags=_RANGE, passes_nonfinite=True),
    elementwise("rad2deg", _DEGREES, _DEGREES_C, exact="f", flags=_RANGE, passes_nonfinite=True),
    elementwise("radians", _RADIANS, _RADIANS_C, exact="f", flags=_RANGE, passes_nonfinite=True),
    elementwise("deg2rad", _RADIANS, _RADIANS_C, exact="f", flags=_RANGE, passes_nonfinite=True),
    elementwise(
        "isnan",
        {
            "biu": "False",
            "f": "({0} != {0})",
            "c": "(({0}.real != {0}.real) | ({0}.imag != {0}.imag))",
        },
        {"biu": _FALSE_C},
        exact="biufc",
        drops_nan=True,
    ),
    _magnitude("isinf", "==", "|", "False", _FALSE_C),
    _magnitude("isfinite", "<", "&", "True", _TRUE_C),
    elementwise(
        "signbit",
        {"f8": "(bits_f8({0}) < 0)", "f4": "(bits_f4({0}) < 0)"},
        {"f": "(as_I({0}) < (I)(0))"},
        exact="f",
    ),
    elementwise(
        "nextafter",
        *_helper("nextafter", 2),
        exact="f",
        cost=6.0,
        flags=_RANGE,
        misreported=ANY,
    ),
    elementwise(
        "spacing",
        *_helper("spacing", 1),
        exact="f",
        cost=6.0,
        flags=_RANGE,
        misreported=ANY,
        passes_nonfinite=True,
    ),
    elementwise(
        "heaviside",
        *_helper("heaviside", 2),
        exact="f",
        cost=3.0,
        drops_nan=True,
    ),
    elementwise(
        "ldexp",
        {
            "f8": "ldexp_f8({0}, int64({1}))",
            "f4": "float32(ldexp_f8(float64({0}), int64({1})))",
        },
        {
            "f8": "ldexp_T({0}, to_I8({1}))",
            "f4": "ldexp_f8(to_F8({0}), to_I8({1}))",
        },
        single={"f4": "ldexp_single_T({0}, to_I8({1}))"},
        exact="f",
        cost=10.0,
        flags=_RANGE,
    ),
)

ROWS: tuple[Op, ...] = TRANSCENDENTAL + ROUNDING + FLOATING
