"""Helper functions that expressions of language "opencl" call, and how templates are filled in.

Owns HELPERS (name -> template of one function) and the closure over it. Templates,
like the op table's expressions, are written once for all dtypes and for scalars and vectors alike,
with these names for types:

    F8 F4 I1 .. U8 B1 C16 C8   a dtype        T  the first input's dtype    R  the result's
    I  signed, of T's width    U  unsigned    M  signed, of R's width       P  the part of complex T
    N  unsigned, in which T's arithmetic wraps around (C itself widens small integers to int)
    V  a vector of T, in scalar text too

`to_X(..)` converts to a type, `as_X(..)` reads the same bits, `name_T(..)` calls a helper for T.
The scalar function is called `name_f8`, the vector one `name_f8_v`. A comparison is 0 or 1 between
scalars and a mask of 0 and -1 between vectors (as wide as its operands): templates use it with
`?:`, `!`, `&` and `|` only, and branch nowhere but in helpers of SCALAR_ONLY. `?:` takes the mask
of the width of its values.
"""

from __future__ import annotations

import re

from lazyfuse.codegen.lowering.printing import with_needed
from lazyfuse.codegen.opencl.tangent import TANGENT
from lazyfuse.codegen.table.ops import ROWS

C_TYPES = {
    "b1": "uchar",
    "i1": "char",
    "i2": "short",
    "i4": "int",
    "i8": "long",
    "u1": "uchar",
    "u2": "ushort",
    "u4": "uint",
    "u8": "ulong",
    "f4": "float",
    "f8": "double",
    "c8": "float2",
    "c16": "double2",
}

HELPERS: dict[str, str] = {}

# Helpers without a vector version: they branch, loop, divide integers or hold complex numbers.
SCALAR_ONLY: set[str] = set()


def _define(text: str, scalar_only: bool = False) -> None:
    for part in text.strip().split("\n\n"):
        name = part[: part.index("_T(")].split()[-1]
        HELPERS[name] = part.strip() + "\n"
        if scalar_only:
            SCALAR_ONLY.add(name)


# The `_small` helpers divide as doubles, which is exact up to 32 bits and works on vectors.
_define("""
I4 floor_divide_small_T(T a, T b) {
    T quotient = floor(a / b);
    quotient = fabs(quotient) < 1e10 ? quotient : (T)(0.0);
    return to_I4(quotient > 2147483647.0 ? (T)(-2147483648.0) : quotient);
}

U4 floor_divide_whole_T(T a, T b) {
    T quotient = floor(a / b);
    return to_U4(quotient < 1e10 ? quotient : (T)(0.0));
}

I4 remainder_small_T(T a, T b) {
    T quotient = floor(a / b);
    return to_I4(fabs(quotient) < 1e10 ? a - quotient * b : (T)(0.0));
}

U4 remainder_whole_T(T a, T b) {
    T quotient = floor(a / b);
    return to_U4(quotient < 1e10 ? a - quotient * b : (T)(0.0));
}

I4 fmod_small_T(T a, T b) {
    T quotient = trunc(a / b);
    return to_I4(fabs(quotient) < 1e10 ? a - quotient * b : (T)(0.0));
}

T clip_integer_T(T x, T low, T high) {
    T raised = x > low ? x : low;
    return raised < high ? raised : high;
}

T clip_float_T(T x, T low, T high) {
    T raised = ((x < low) | (low != low)) ? low : x;
    return ((raised > high) | (high != high)) ? high : raised;
}

T clip_float_each_T(T x, T low, T high) {
    T raised = ((x != x) | (x > low)) ? x : low;
    return ((raised != raised) | (raised < high)) ? raised : high;
}

I4 truncate_i4_T(T x) {
    return to_I4(((x >= -2147483648.0) & (x < 2147483648.0)) ? x : (T)(-2147483648.0));
}

I8 truncate_i8_T(T x) {
    return to_I8(((x >= -9223372036854775808.0) & (x < 9223372036854775808.0))
                 ? x : (T)(-9223372036854775808.0));
}

U8 truncate_u8_T(T x) {
    T limit = (T)(9223372036854775808.0);
    U8 upper = as_U8(truncate_i8_T(x - limit)) ^ (U8)(0x8000000000000000UL);
    U8 lower = as_U8(truncate_i8_T(x));
    return to_I8(x >= limit) ? upper : lower;
}
""")

_define(
    """
T floor_divide_T(T a, T b) {
    if (b == 0)
        return 0;
    if (((T)(-1) < (T)(1)) & (b == (T)(-1)))
        return (T)(-(N)a);
    T quotient = a / b;
    return (a % b != 0 && (a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

T remainder_T(T a, T b) {
    if ((b == 0) | (((T)(-1) < (T)(1)) & (b == (T)(-1))))
        return 0;
    T rest = a % b;
    return (rest != 0 && (a < 0) != (b < 0)) ? rest + b : rest;
}

T fmod_T(T a, T b) {
    return ((b == 0) | (((T)(-1) < (T)(1)) & (b == (T)(-1)))) ? 0 : a % b;
}

T power_integer_T(T base, T exponent) {
    N result = 1, factor = (N)base;
    for (U rest = (U)exponent; rest != 0; rest >>= 1) {
        if (rest & 1)
            result *= factor;
        factor *= factor;
    }
    return (T)result;
}

T gcd_unsigned_T(T a, T b) {
    while (b != 0) {
        T rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

U8 magnitude_T(T a) {
    return a < 0 ? -(U8)a : (U8)a;
}

U8 gcd_T(T a, T b) {
    return gcd_unsigned_u8(magnitude_T(a), magnitude_T(b));
}

U8 lcm_T(T a, T b) {
    U8 common = gcd_T(a, b);
    return common == 0 ? 0 : magnitude_T(a) / common * magnitude_T(b);
}
""",
    scalar_only=True,
)

_define("""
T floor_divide_float_T(T a, T b) {
    T rest = fmod(a, b);
    T quotient = (a - rest) / b;
    quotient = ((rest != 0) & ((b < 0) != (rest < 0))) ? quotient - (T)(1.0) : quotient;
    T whole = floor(quotient);
    whole = quotient - whole > (T)(0.5) ? whole + (T)(1.0) : whole;
    whole = quotient == 0 ? copysign((T)(0.0), a / b) : whole;
    return b == 0 ? a / b : whole;
}

T remainder_float_T(T a, T b) {
    T rest = fmod(a, b);
    T moved = ((b < 0) != (rest < 0)) ? rest + b : rest;
    moved = rest == 0 ? copysign((T)(0.0), b) : moved;
    return ((b == 0) | (rest != rest)) ? rest : moved;
}

T modf_fraction_T(T x) {
    T finite = fabs(x) == (T)(INFINITY) ? (T)(0.0) : x;
    return copysign(finite - trunc(finite), x);
}

T nextafter_T(T x, T y) {
    I bits = as_I(x);
    bits = ((x < y) == (x > 0)) ? bits + (I)(1) : bits - (I)(1);
    T next = x == 0 ? copysign(as_T((I)(1)), y) : as_T(bits);
    next = x == y ? y : next;
    return ((x != x) | (y != y)) ? x + y : next;
}

T spacing_T(T x) {
    T gap = as_T(as_I(x) + (I)(1)) - x;
    gap = x == 0 ? as_T((I)(1)) : gap;
    return fabs(x) < (T)(INFINITY) ? gap : (T)(NAN);
}

T heaviside_T(T x, T at_zero) {
    T step = x < 0 ? (T)(0.0) : (T)(1.0);
    step = x == 0 ? at_zero : step;
    return x != x ? x : step;
}

T logaddexp_T(T x, T y) {
    T difference = x - y;
    T power = exp_T(-fabs(difference));
    T sum = (difference > 0 ? x : y) + log1p_T(power);
    sum = difference != difference ? difference : sum;
    return x == y ? x + (T)(0.693147180559945309417232121458176568) : sum;
}

T logaddexp2_T(T x, T y) {
    T difference = x - y;
    T power = exp2_T(-fabs(difference));
    T sum = (difference > 0 ? x : y) + (T)(1.442695040888963407359924681001892137) * log1p_T(power);
    sum = difference != difference ? difference : sum;
    return x == y ? x + (T)(1.0) : sum;
}
""")

# Numbers are taken apart by their bits: doubles, and floats apart, since the helpers above convert
# them. DIGITS: of the mantissa. FIELD: a full exponent. FAR: an exponent beyond all numbers.
# GROWN, SHRUNK: factors that make a small number normal, and back; LIFT: what they add to exponents
_PARTS = """
T frexp_mantissa_T(T x) {
    I bits = as_I(x);
    bits = (bits & ((I)(FIELD) << (I)(DIGITS))) == (I)(0) ? as_I(x * GROWN) : bits;
    T mantissa = as_T((bits & (I)(WITHOUT_EXPONENT)) | (I)(EXPONENT_OF_HALF));
    return ((x == 0) | !(fabs(x) < (T)(INFINITY))) ? x : mantissa;
}

I frexp_exponent_T(T x) {
    I biased = (as_I(x) >> (I)(DIGITS)) & (I)(FIELD);
    I small = ((as_I(x * GROWN) >> (I)(DIGITS)) & (I)(FIELD)) - (I)(LIFT);
    biased = (biased == (I)(0) ? small : biased) - (I)(FIELD / 2 - 1);
    return ((x == 0) | !(fabs(x) < (T)(INFINITY))) ? (I)(0) : biased;
}

T ldexp_T(T x, I8 exponent) {
    exponent = exponent > (I8)(-FAR) ? exponent : (I8)(-FAR);
    exponent = exponent < (I8)(FAR) ? exponent : (I8)(FAR);
    I bits = as_I(x);
    I biased = (bits >> (I)(DIGITS)) & (I)(FIELD);
    I is_small = biased == (I)(0);
    bits = is_small ? as_I(x * GROWN) : bits;
    biased = is_small ? ((bits >> (I)(DIGITS)) & (I)(FIELD)) - (I)(LIFT) : biased;
    biased = biased + to_I(exponent);
    bits = bits & (I)(WITHOUT_EXPONENT);
    I inside = biased > (I)(0);
    I lifted = (inside ? biased : biased + (I)(LIFT)) & (I)(FIELD);
    T scaled = as_T(bits | (lifted << (I)(DIGITS)));
    scaled = inside ? scaled : scaled * SHRUNK;
    scaled = biased >= (I)(FIELD) ? copysign((T)(INFINITY), x) : scaled;
    scaled = biased <= (I)(-LIFT) ? copysign((T)(0.0), x) : scaled;
    return ((x == 0) | !(fabs(x) < (T)(INFINITY))) ? x : scaled;
}
"""
_NAMES = "DIGITS FIELD FAR GROWN SHRUNK LIFT WITHOUT_EXPONENT EXPONENT_OF_HALF _T(T".split()
_OF_DOUBLE = (
    "52 0x7FF 5000 18014398509481984.0 5.551115123125783e-17 54 "
    "-9218868437227405313L 4602678819172646912L _T(T"
)
_OF_FLOAT = "23 0xFF 600 33554432.0 2.98023223876953125e-08 25 -2139095041 0x3F000000 _single_T(T"
for _numbers in (_OF_DOUBLE, _OF_FLOAT):
    _text = _PARTS
    for _name, _number in zip(_NAMES, _numbers.split(), strict=True):
        _text = _text.replace(_name, _number)
    _define(_text)

_define(
    """
T divide_complex_T(T a, T b) {
    if (fabs(b.x) >= fabs(b.y)) {
        if (b.x == 0 && b.y == 0)
            return (T)(a.x / fabs(b.x), a.y / fabs(b.x));
        P ratio = b.y / b.x;
        P scale = (P)(1.0) / (b.x + b.y * ratio);
        return (T)((a.x + a.y * ratio) * scale, (a.y - a.x * ratio) * scale);
    }
    P ratio = b.x / b.y;
    P scale = (P)(1.0) / (b.y + b.x * ratio);
    return (T)((a.x * ratio + a.y) * scale, (a.y * ratio - a.x) * scale);
}

T reciprocal_complex_T(T a) {
    if (fabs(a.x) <= fabs(a.y)) {
        P ratio = a.x / a.y;
        P divisor = a.y + a.x * ratio;
        return (T)(ratio / divisor, (P)(-1.0) / divisor);
    }
    P ratio = a.y / a.x;
    P divisor = a.x + a.y * ratio;
    return (T)((P)(1.0) / divisor, -ratio / divisor);
}

T sign_complex_T(T a) {
    P size = hypot(a.x, a.y);
    if (size != size)
        return (T)(NAN, NAN);
    if (size == (P)(INFINITY)) {
        if (fabs(a.x) == size && fabs(a.y) == size)
            return (T)(NAN, NAN);
        if (fabs(a.x) == size)
            return (T)(copysign((P)(1.0), a.x), 0);
        return (T)(0, copysign((P)(1.0), a.y));
    }
    return size == 0 ? (T)(0, 0) : (T)(a.x / size, a.y / size);
}

int greater_complex_T(T a, T b) {
    return (a.x > b.x && a.y == a.y && b.y == b.y) || (a.x == b.x && a.y > b.y);
}

int greater_equal_complex_T(T a, T b) {
    return (a.x > b.x && a.y == a.y && b.y == b.y) || (a.x == b.x && a.y >= b.y);
}

int is_nan_complex_T(T a) {
    return a.x != a.x || a.y != a.y;
}

T maximum_complex_T(T a, T b) {
    return is_nan_complex_T(a) || greater_equal_complex_T(a, b) ? a : b;
}

T minimum_complex_T(T a, T b) {
    return is_nan_complex_T(a) || greater_equal_complex_T(b, a) ? a : b;
}

T fmax_complex_T(T a, T b) {
    return is_nan_complex_T(b) || greater_equal_complex_T(a, b) ? a : b;
}

T fmin_complex_T(T a, T b) {
    return is_nan_complex_T(b) || greater_equal_complex_T(b, a) ? a : b;
}
""",
    scalar_only=True,
)


# PoCL's function is infinite for the largest number with a finite result. The second constant is
# the exponential of the first to 1e-5 of its last place.
_define("""
T exp_T(T x) {
    T below = x > (T)(709.7) ? x - (T)(0x1.0000000909ap+0) : x;
    T result = ONE(exp((V)(below)));
    return x > (T)(709.7) ? result * (T)(0x1.5bf0a8bd8e017p+1) : result;
}
""")
# PoCL's function returns zeros, without their sign, for the smallest subnormal numbers.
_define("""
T log1p_T(T x) {
    T result = ONE(log1p((V)(x)));
    return fabs(x) < (T)(1e-30) ? x : result;
}
""")
# PoCL's vector functions go wrong for subnormal floats in one vector with large ones.
for _name, _eager in (("sin", "x"), ("cos", "(T)(1.0)"), ("tan", "x")):
    _define(f"""
T {_name}_T(T x) {{
    I is_small = fabs(x) < (T)(1e-30);
    T result = ONE({_name}((V)(is_small ? (T)(0.0) : x)));
    return is_small ? {_eager} : result;
}}
""")
    # scalar: no other element is in the vector; the others convert floats to doubles
    _define(f"T {_name}_alone_T(T x) {{\n    return {_name}_T(x);\n}}", scalar_only=True)

# The other functions of the device's library. One element is one lane of a vector: the library's
# vector versions are faster for a single element too.
for _name, _nin in {row.library: row.nin for row in ROWS if row.library}.items():
    if _name not in HELPERS:
        _given, _lanes = ("T x", "(V)(x)") if _nin == 1 else ("T x, T y", "(V)(x), (V)(y)")
        _define(f"T {_name}_T({_given}) {{\n    return ONE({_name}({_lanes}));\n}}")
_define(TANGENT)

_TOKEN = re.compile(r"\b(to_|as_)?([TRNIUMPV]|[FIUBC]\d+)\b")
_GENERIC = re.compile(r"(?<!\bto)(?<!\bas)_([TP])\b(?=\()")
_CALL = re.compile(r"\b([a-z]\w*)_([fiuc]\d+)(_v)?\b(?=\()")
_FLOAT = re.compile(r"(?<![\w.])(\d+\.\d*(?:e[-+]?\d+)?|\d+e[-+]?\d+)(?![\w.])")
_VECTOR_TYPE = re.compile(r"\b(?:TO_|AS_)?V([FIU])(\d)\b")
Call = tuple[str, str, str]  # name, dtype, "_v" or ""


def resolve(text: str, first: str, out: str, vector: bool) -> str:
    """A template filled in for a first input and a result of these dtypes."""
    binding = _binding(first, out)
    if first in ("f4", "c8"):
        text = _FLOAT.sub(r"\1f", text)
    text = _GENERIC.sub(lambda found: f"_{binding[found[1]].lower()}", text)
    if vector:
        text = _CALL.sub(_vector_call, text).replace("ONE(", "(")
    return _TOKEN.sub(lambda found: _spelled(found, binding, vector), text)


def resolve_types(text: str, vector: bool) -> str:
    """A text with the names of types, F8 to U1, filled in."""
    return _TOKEN.sub(lambda found: _spelled(found, {}, vector), text)


def _binding(first: str, out: str) -> dict[str, str]:
    """The meaning of each name of a type."""
    size = int(first[1:])
    known = {"T": first.upper(), "R": out.upper(), "M": "I4" if out[0] == "c" else f"I{out[1:]}"}
    if first[0] == "c":
        return known | {"P": f"F{size // 2}"}
    return known | {"V": first.upper(), "I": f"I{size}", "U": f"U{size}", "N": f"U{size}"}


def _vector_call(found: re.Match[str]) -> str:
    return f"{found[0]}_v" if found[1] in HELPERS and not found[3] else found[0]


def _spelled(found: re.Match[str], binding: dict[str, str], vector: bool) -> str:
    prefix, letter = found[1] or "", found[2]
    name = binding.get(letter, letter)
    lanes = "VI1" if name == "B1" else f"V{name}"
    if vector or letter == "V":
        return prefix.upper() + lanes
    if letter == "N" and name in ("U1", "U2"):
        name = "U4"
    scalar = C_TYPES[name.lower()]
    return f"({scalar})" if prefix == "to_" else prefix + scalar


def instance(name: str, dtype: str, suffix: str) -> str:
    """The text of one helper for one dtype."""
    text = resolve(HELPERS[name], dtype, dtype, bool(suffix))
    return f"static inline {text}"


def calls(text: str) -> list[Call]:
    """The helpers that a text calls."""
    found = (match.groups(default="") for match in _CALL.finditer(text))
    return [(n, d, v) for n, d, v in dict.fromkeys(found) if n in HELPERS]


def needed(text: str) -> list[Call]:
    """The helpers that a text calls, and theirs, each after those it calls."""
    return with_needed(calls(text), lambda call: calls(instance(*call)))


def are_vectors(text: str) -> bool:
    """Whether all helpers that a text calls have a vector version."""
    return not any(name in SCALAR_ONLY for name, _, _ in needed(text))


def source(text: str) -> str:
    """The text of the helpers that a text calls, and theirs, to be put above it."""
    return "\n".join(instance(*call) for call in needed(text))


def vector_types(text: str) -> list[str]:
    """The dtypes of the vectors that a text names."""
    return sorted({f"{kind}{size}".lower() for kind, size in _VECTOR_TYPE.findall(text)})


def largest_item(text: str) -> int:
    """The largest element, in bytes, of the vectors that a text and its helpers work with."""
    return max((int(dtype[1:]) for dtype in vector_types(text + source(text))), default=1)
