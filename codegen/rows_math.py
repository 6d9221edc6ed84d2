"""Rows of the op table: mathematical functions, rounding and floating-point predicates.

Owns no behaviour: each row is data. `vm_*` (f8) and `vmf_*` (f4) are supplied by the device.
"""

from __future__ import annotations

from typing import Any

from lazyfuse.codegen.op import Op, elementwise

Interval = tuple[float, float]

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
    return elementwise(name, texts, cost=cost, domain=domain, ulps=4, **fields)


_RANGE = ("over", "under")

TRANSCENDENTAL: tuple[Op, ...] = (
    _function("exp", domain=((-80.0, 80.0),), flags=_RANGE),
    _function("exp2", domain=((-120.0, 120.0),), flags=_RANGE),
    _function("expm1", domain=((-80.0, 80.0),), flags=_RANGE, cost=20.0),
    _function("log", domain=((1e-30, 1e30),), flags=("divide", "invalid")),
    _function("log2", domain=((1e-30, 1e30),), flags=("divide", "invalid")),
    _function("log10", domain=((1e-30, 1e30),), flags=("divide", "invalid")),
    _function("log1p", domain=((-0.99, 1e10),), flags=("divide", "invalid"), cost=20.0),
    _function("sin", flags=("invalid",)),
    _function("cos", flags=("invalid",)),
    _function("tan", flags=("invalid",), cost=25.0, domain=((-1.5, 1.5),)),
    _function("arcsin", "asin", domain=((-1.0, 1.0),), flags=("invalid",), aliases=("asin",)),
    _function("arccos", "acos", domain=((-1.0, 1.0),), flags=("invalid",), aliases=("acos",)),
    _function("arctan", "atan", aliases=("atan",)),
    _function("sinh", domain=((-80.0, 80.0),), flags=_RANGE, cost=25.0),
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
    _function("hypot", cost=12.0, domain=(_EVERYWHERE, _EVERYWHERE), flags=_RANGE),
    _function("cbrt", cost=20.0),
    elementwise(
        "logaddexp",
        {"f8": "logaddexp_f8({0}, {1})", "f4": "logaddexp_f4({0}, {1})"},
        cost=40.0,
        domain=_POSITIVE,
        ulps=8,
        flags=("invalid", "over", "under"),
    ),
    elementwise(
        "logaddexp2",
        {"f8": "logaddexp2_f8({0}, {1})", "f4": "logaddexp2_f4({0}, {1})"},
        cost=40.0,
        domain=_POSITIVE,
        ulps=8,
        flags=("invalid", "over", "under"),
    ),
)

ROUNDING: tuple[Op, ...] = (
    elementwise("sqrt", "np.sqrt({0})", kinds="f", exact="f", cost=5.0, flags=("invalid",)),
    elementwise("floor", {"biu": "{0}", "f": "np.floor({0})"}, exact="biuf"),
    elementwise("ceil", {"biu": "{0}", "f": "np.ceil({0})"}, exact="biuf"),
    elementwise("trunc", {"biu": "{0}", "f": "np.trunc({0})"}, exact="biuf"),
    elementwise(
        "rint",
        {"f": "np.rint({0})", "c": "complex(np.rint({0}.real), np.rint({0}.imag))"},
        exact="fc",
    ),
)

_DEGREES = {"f8": "({0} * (180.0 / math.pi))", "f4": "({0} * (float32(180.0) / float32(math.pi)))"}
_RADIANS = {"f8": "({0} * (math.pi / 180.0))", "f4": "({0} * (float32(math.pi) / float32(180.0)))"}

FLOATING: tuple[Op, ...] = (
    elementwise("degrees", _DEGREES, exact="f", flags=_RANGE),
    elementwise("rad2deg", _DEGREES, exact="f", flags=_RANGE),
    elementwise("radians", _RADIANS, exact="f", flags=_RANGE),
    elementwise("deg2rad", _RADIANS, exact="f", flags=_RANGE),
    elementwise(
        "isnan",
        {
            "biu": "False",
            "f": "({0} != {0})",
            "c": "(({0}.real != {0}.real) | ({0}.imag != {0}.imag))",
        },
        exact="biufc",
    ),
    elementwise(
        "isinf",
        {
            "biu": "False",
            "f8": "(abs({0}) == np.inf)",
            "f4": "(abs({0}) == float32(np.inf))",
            "c": "((abs({0}.real) == np.inf) | (abs({0}.imag) == np.inf))",
        },
        exact="biufc",
    ),
    elementwise(
        "isfinite",
        {
            "biu": "True",
            "f8": "(abs({0}) < np.inf)",
            "f4": "(abs({0}) < float32(np.inf))",
            "c": "((abs({0}.real) < np.inf) & (abs({0}.imag) < np.inf))",
        },
        exact="biufc",
    ),
    elementwise(
        "signbit",
        {"f8": "(bits_f8({0}) < 0)", "f4": "(bits_f4({0}) < 0)"},
        exact="f",
    ),
    elementwise(
        "nextafter",
        {"f8": "nextafter_f8({0}, {1})", "f4": "nextafter_f4({0}, {1})"},
        exact="f",
        cost=6.0,
        flags=_RANGE,
    ),
    elementwise(
        "spacing",
        {"f8": "spacing_f8({0})", "f4": "spacing_f4({0})"},
        exact="f",
        cost=6.0,
        flags=_RANGE,
    ),
    elementwise(
        "heaviside",
        {"f8": "heaviside_f8({0}, {1})", "f4": "heaviside_f4({0}, {1})"},
        exact="f",
        cost=3.0,
    ),
    elementwise(
        "ldexp",
        {
            "f8": "ldexp_f8({0}, int64({1}))",
            "f4": "float32(ldexp_f8(float64({0}), int64({1})))",
        },
        exact="f",
        cost=10.0,
        flags=_RANGE,
    ),
)

ROWS: tuple[Op, ...] = TRANSCENDENTAL + ROUNDING + FLOATING
