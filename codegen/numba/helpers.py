"""Helper functions that expressions of language "numba" call, as source text.

Owns HELPERS (name -> text of one function without a decorator) and the closure over it. The printer
decorates them with the device's `njit`, whose error model must be "numpy". The texts use the names
`np`, `math`, numba's type names as casts, and the device's `vm_*` and `vmf_*`.

Two rules of numba shape the texts. Mixed arithmetic of int64 and uint64 becomes float64, so each
uint64 literal is spelled `uint64(1)`. A float literal is float64, so f4 code spells `float32(1.0)`.

Integer division by zero must raise the hardware's divide flag, as NumPy reports it, in a way that
LLVM cannot drop. The 64-bit functions compare `abs(1.0 / b)` with 1. The `_small` functions divide
as doubles, which is exact up to 32 bits and vectorises; a quotient that is not finite shows the
zero. They divide 1 by zero, since 0 / 0 would raise invalid. Where vectors of 64-bit integers
become doubles and back (`CONVERTS_WIDE`), the `_wide` functions multiply by a reciprocal that is
too small by more than all roundings together, so each quotient falls short. The remainder is at
most |b| + 2**14. A second quotient reduces it below 2 |b|, since its own rounding is then below 1
or below |b|. Products wrap, differences do not.

LLVM computes both ways of a branch, and of a choice whose condition is that of one around it: an
exception is raised by an operand that is chosen (`hypot_f8`, `nextafter_f8`, `ldexp_f8`).

The one quotient that is too large raises overflow, by a product that is too large only then (no
branch can guard it: LLVM computes what follows a branch before it). A
float that no integer can hold raises invalid, by zero times infinity. The least integer itself
raises invalid, too: the reference interpreter checks before a warning is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from lazyfuse.codegen.lowering.printing import with_needed

_INTEGERS = """
def floor_divide_signed(a, b):
    if CONVERTS_WIDE:
        return floor_divide_signed_wide(a, b)
    if abs(1.0 / float64(b)) > 1.0:
        return int64(0)
    scale = 1e300 if (b == -1) & (a == -a) & (a != 0) else 1.0
    is_too_large = abs(float64(a) * scale) > 1e200
    if b == -1:
        return a if is_too_large else -a
    return a // b


def divided_signed(a, b):
    inverse = 1.0 / float64(b)
    is_known = abs(inverse) <= 1.0
    near = inverse * 0.9999999999999991 if is_known else 0.0
    quotient = int64(float64(a) * near)
    rest = a - quotient * b
    further = int64(float64(rest) * near)
    quotient = quotient + further
    rest = rest - further * b
    less = rest - (b if (a ^ b) >= 0 else -b)
    is_large = less >= 0 if rest >= 0 else less <= 0
    step = int64(1) if (a ^ b) >= 0 else int64(-1)
    quotient = quotient + step if is_large else quotient
    rest = less if is_large else rest
    return (quotient if is_known else int64(0)), (rest if is_known else int64(0))


def floor_divide_signed_wide(a, b):
    quotient, rest = divided_signed(a, b)
    quotient = quotient - 1 if (rest != 0) & ((rest ^ b) < 0) else quotient
    scale = 1e300 if (b == -1) & (a == -a) & (a != 0) else 1.0
    return a if abs(float64(a) * scale) > 1e200 else quotient


def floor_divide_unsigned(a, b):
    if CONVERTS_WIDE:
        return floor_divide_unsigned_wide(a, b)
    if abs(1.0 / float64(b)) > 1.0:
        return uint64(0)
    return a // b


def divided_unsigned(a, b):
    inverse = 1.0 / float64(b)
    is_known = abs(inverse) <= 1.0
    near = inverse * 0.9999999999999991 if is_known else 0.0
    quotient = uint64(float64(a) * near)
    rest = a - quotient * b
    further = uint64(float64(rest) * near)
    quotient = quotient + further
    rest = rest - further * b
    quotient = quotient + uint64(1) if rest >= b else quotient
    rest = rest - b if rest >= b else rest
    return (quotient if is_known else uint64(0)), (rest if is_known else uint64(0))


def floor_divide_unsigned_wide(a, b):
    quotient, _ = divided_unsigned(a, b)
    return quotient


def floor_divide_small(a, b):
    quotient = np.floor((1.0 if b == 0.0 else a) / b)
    return int64(quotient if abs(quotient) < 1e10 else 0.0)


def floor_divide_narrow(a, b, limit):
    quotient = np.floor((1.0 if b == 0.0 else a) / b)
    scaled = (quotient + limit) * (1.7976931348623157e308 / (2.0 * limit - 0.5))
    return int64(quotient if (abs(quotient) < 1e10) & (scaled > -1.0) else 0.0)


def remainder_small(a, b):
    quotient = np.floor((1.0 if b == 0.0 else a) / b)
    return int64(a - quotient * b if abs(quotient) < 1e10 else 0.0)


def fmod_small(a, b):
    quotient = np.trunc((1.0 if b == 0.0 else a) / b)
    return int64(a - quotient * b if abs(quotient) < 1e10 else 0.0)


def remainder_signed(a, b):
    if CONVERTS_WIDE:
        return remainder_signed_wide(a, b)
    if abs(1.0 / float64(b)) > 1.0 or b == -1:
        return int64(0)
    return a % b


def remainder_signed_wide(a, b):
    rest = fmod_signed_wide(a, b)
    return rest + b if (rest != 0) & ((rest ^ b) < 0) else rest


def remainder_unsigned(a, b):
    if CONVERTS_WIDE:
        return remainder_unsigned_wide(a, b)
    if abs(1.0 / float64(b)) > 1.0:
        return uint64(0)
    return a % b


def remainder_unsigned_wide(a, b):
    _, rest = divided_unsigned(a, b)
    return rest


def fmod_signed(a, b):
    if CONVERTS_WIDE:
        return fmod_signed_wide(a, b)
    remainder = remainder_signed(a, b)
    if remainder != 0 and (a ^ b) < 0:
        return remainder - b
    return remainder


def fmod_signed_wide(a, b):
    _, rest = divided_signed(a, b)
    return rest


def power_signed(base, exponent):
    result = int64(1)
    while exponent > 0:
        if exponent & 1:
            result = result * base
        base = base * base
        exponent = exponent >> 1
    return result


def power_unsigned(base, exponent):
    result = uint64(1)
    while exponent != uint64(0):
        if exponent & uint64(1) != uint64(0):
            result = result * base
        base = base * base
        exponent = exponent >> uint64(1)
    return result


def magnitude(a):
    return uint64(a if a >= 0 else -a)


def gcd_unsigned(a, b):
    while b != uint64(0):
        a, b = b, a % b
    return a


def lcm_unsigned(a, b):
    common = gcd_unsigned(a, b)
    if common == uint64(0):
        return uint64(0)
    return a // common * b


def gcd_signed(a, b):
    return int64(gcd_unsigned(magnitude(a), magnitude(b)))


def lcm_signed(a, b):
    return int64(lcm_unsigned(magnitude(a), magnitude(b)))


def count_bits(x):
    x = x - ((x >> uint64(1)) & uint64(0x5555555555555555))
    x = (x & uint64(0x3333333333333333)) + ((x >> uint64(2)) & uint64(0x3333333333333333))
    x = (x + (x >> uint64(4))) & uint64(0x0F0F0F0F0F0F0F0F)
    return (x * uint64(0x0101010101010101)) >> uint64(56)


def is_below(x, limit):
    room = limit - abs(x)
    return (room + abs(room)) * np.inf > 0.0


def truncate_i4(x):
    return int32(x) if is_below(float64(x), 2147483648.0) else int32(-2147483648)


def truncate_i8(x):
    inside = is_below(float64(x), 9223372036854775808.0)
    return int64(x) if inside else int64(-9223372036854775808)


def truncate_half(x):
    inside = (x >= -9223372036854775808.0) & (x < 9223372036854775808.0)
    return int64(x) if inside else int64(-9223372036854775808)


def truncate_u8(x):
    if x >= 9223372036854775808.0:
        return uint64(truncate_half(x - 9223372036854775808.0)) ^ uint64(0x8000000000000000)
    return uint64(truncate_half(x))
"""

# Written for f8; replacing the type names makes the f4 versions.
_FLOATS = """
def floor_divide_f8(a, b):
    if b == float64(0.0):
        return a / b
    remainder = np.fmod(a, b)
    quotient = (a - remainder) / b
    if remainder != 0 and (b < 0) != (remainder < 0):
        quotient = quotient - float64(1.0)
    if quotient == 0:
        return np.copysign(float64(0.0), a / b)
    whole = np.floor(quotient)
    if quotient - whole > float64(0.5):
        whole = whole + float64(1.0)
    return whole


def remainder_f8(a, b):
    remainder = np.fmod(a, b)
    if b == 0 or remainder != remainder:
        return remainder
    if remainder == 0:
        return np.copysign(float64(0.0), b)
    if (bits_f8(b) ^ bits_f8(remainder)) < 0:  # in bits: "<" raises "invalid" for NaN in vectors
        return remainder + b
    return remainder


def modf_fraction_f8(x):
    finite = float64(0.0) if abs(x) == float64(np.inf) else x
    return np.copysign(finite - np.trunc(finite), x)


def nextafter_f8(x, y):
    if x != x or y != y:
        return x if x != x else y
    if x == y:
        return y
    if x == 0:
        return np.copysign(from_bits_f8(int64(1)), y)
    before = from_bits_f8(int64(bits_f8(x) - 1))
    beyond = from_bits_f8(int64(bits_f8(x) + 1))
    is_outward = (x < y) == (x > 0)
    is_other = (bits_f8(x) != bits_f8(y)) & (bits_f8(abs(y)) <= bits_f8(float64(np.inf)))
    is_over = is_outward & is_other & (abs(beyond) == float64(np.inf))
    found = x if is_over else beyond if is_outward else before
    return found + (x - before if is_over else float64(-0.0))  # a sum, whose overflow is to be told


def hypot_f8(x, y):
    a, b = abs(x), abs(y)
    is_turned = bits_f8(b) > bits_f8(a)  # in bits: NaN is the largest
    large, small = b if is_turned else a, a if is_turned else b
    far = bits_f8(float64(1e9)) - bits_f8(float64(1.0))
    least = bits_f8(float64(2.0)) - bits_f8(float64(1.0))  # of numbers that are not subnormal
    power = max(bits_f8(large) & bits_f8(float64(np.inf)), least)
    is_edge = power == bits_f8(float64(np.inf))
    is_alone = is_edge | (bits_f8(large) - bits_f8(small) > far)
    unit = from_bits_f8(int64(bits_f8(float64(1.0)) if is_edge else power))
    first, second = large / unit, (float64(0.0) if is_alone else small) / unit
    size = np.sqrt(first * first + second * second) * unit
    return small if small == float64(np.inf) else size


def spacing_f8(x):
    if x != x or abs(x) == float64(np.inf):
        return float64(np.nan)
    if x == 0:
        return from_bits_f8(int64(1))
    beyond = x + (x - from_bits_f8(int64(bits_f8(x) - 1)))
    if abs(beyond) == float64(np.inf):  # x is the largest number: its overflow is to be told
        return beyond
    return from_bits_f8(int64(bits_f8(x) + 1)) - x


def heaviside_f8(x, at_zero):
    if x != x:
        return x
    if x == 0:
        return at_zero
    return float64(0.0) if x < 0 else float64(1.0)


def arccosh_f8(x):
    is_edge = (x != x) | (x == float64(np.inf))
    more = (float64(1.0) if is_edge else x) - float64(1.0)
    is_large = bits_f8(x) > bits_f8(float64(1e9))
    is_outside = bits_f8(x) < bits_f8(float64(1.0))  # the root of what is negative is told
    root = np.sqrt(more if is_large | is_outside else more + more + more * more)
    found = vm_log1p(more if is_large else more + root)
    found = found + (float64(0.693147180559945309417232121458176568) if is_large else float64(0.0))
    return x if is_edge else found


def arctanh_f8(x):
    size = abs(x) if bits_f8(abs(x)) <= bits_f8(float64(np.inf)) else float64(0.0)
    quotient = (size + size) / (float64(1.0) - size)
    is_one = bits_f8(size) == bits_f8(float64(1.0))
    found = float64(0.5) * vm_log1p(float64(0.0) if is_one else quotient)
    return np.copysign(quotient if is_one else found, x) if x == x else x


def logaddexp_f8(x, y):
    if x == y:
        return x + float64(0.693147180559945309417232121458176568)
    difference = x - y
    if difference > 0:
        return x + vm_log1p(vm_exp(-difference))
    if difference <= 0:
        return y + vm_log1p(vm_exp(difference))
    return difference


def logaddexp2_f8(x, y):
    if x == y:
        return x + float64(1.0)
    difference = x - y
    if difference > 0:
        power = vm_exp2(-difference)
        return x + float64(1.442695040888963407359924681001892137) * vm_log1p(power)
    if difference <= 0:
        power = vm_exp2(difference)
        return y + float64(1.442695040888963407359924681001892137) * vm_log1p(power)
    return difference


def bits_f8(x):
    return np.float64(x).view(np.int64)


def from_bits_f8(bits):
    return np.int64(bits).view(np.float64)
"""

_SCALING = """
def frexp_mantissa_f8(x):
    if x == 0 or not abs(x) < np.inf:
        return x
    is_small = (bits_f8(x) >> 52) & 0x7FF == 0
    bits = bits_f8(x * (18014398509481984.0 if is_small else 1.0))
    return from_bits_f8((bits & -9218868437227405313) | 4602678819172646912)


def frexp_exponent_f8(x):
    if x == 0 or not abs(x) < np.inf:
        return int64(0)
    biased = (bits_f8(x) >> 52) & 0x7FF
    scaled = x * (18014398509481984.0 if biased == 0 else 1.0)
    return ((bits_f8(scaled) >> 52) & 0x7FF) - (1076 if biased == 0 else 1022)


def ldexp_f8(x, exponent):
    is_small = (bits_f8(x) >> 52) & 0x7FF == 0
    bits = bits_f8(x * (18014398509481984.0 if is_small else 1.0))
    biased = ((bits >> 52) & 0x7FF) - (54 if is_small else 0)
    moved = biased + min(max(exponent, int64(-5000)), int64(5000))
    moved = moved if (x != 0) & (abs(x) < np.inf) else int64(1023)
    within = min(max(moved, int64(1)), int64(2046))
    beyond = min(max(moved - within, int64(-99)), int64(99))
    found = from_bits_f8(int64((bits & -9218868437227405313) | (within << 52)))
    found = found * from_bits_f8(int64((beyond + 1023) << 52))
    body = bits_f8(abs(x))
    return found if (body > 0) & (body < bits_f8(float64(np.inf))) else x
"""

# LLVM computes both ways of a branch in a vector: quotients of either way would raise flags that
# the reference interpreter has to look into. So operands are chosen, and divided once.
_COMPLEX = """
def divide_c16(a, b):
    is_real = abs(b.real) >= abs(b.imag)
    is_zero = (b.real == 0) & (b.imag == 0)
    large, small = b.real if is_real else b.imag, b.imag if is_real else b.real
    first, second = a.real if is_real else a.imag, a.imag if is_real else a.real
    ratio = small / (float64(1.0) if is_zero else large)
    scale = float64(1.0) / (float64(1.0) if is_zero else large + small * ratio)
    crossed = second - first * ratio if is_real else first * ratio - second
    size = abs(b.real) if is_zero else float64(1.0)
    real = a.real if is_zero else (first + second * ratio) * scale
    imag = a.imag if is_zero else crossed * scale
    return complex(real / size, imag / size)


def reciprocal_c16(a):
    is_imaginary = abs(a.real) <= abs(a.imag)
    large, small = a.imag if is_imaginary else a.real, a.real if is_imaginary else a.imag
    ratio = small / large
    divisor = large + small * ratio
    one, rest = float64(1.0) / divisor, ratio / divisor
    return complex(rest, -one) if is_imaginary else complex(one, -rest)


def sign_c16(a):
    size = hypot_f8(a.real, a.imag)
    if size != size:
        return complex(float64(np.nan), float64(np.nan))
    if size == float64(np.inf):
        if abs(a.real) == size and abs(a.imag) == size:
            return complex(float64(np.nan), float64(np.nan))
        if abs(a.real) == size:
            return complex(np.copysign(float64(1.0), a.real), float64(0.0))
        return complex(float64(0.0), np.copysign(float64(1.0), a.imag))
    if size == 0:
        return complex(float64(0.0), float64(0.0))
    return complex(a.real / size, a.imag / size)
"""

_ORDERING = """
def greater_complex(a, b):
    first = (a.real > b.real) & (a.imag == a.imag) & (b.imag == b.imag)
    return first | ((a.real == b.real) & (a.imag > b.imag))


def greater_equal_complex(a, b):
    first = (a.real > b.real) & (a.imag == a.imag) & (b.imag == b.imag)
    return first | ((a.real == b.real) & (a.imag >= b.imag))


def is_nan_complex(a):
    return (a.real != a.real) | (a.imag != a.imag)


def maximum_complex(a, b):
    return a if is_nan_complex(a) or greater_equal_complex(a, b) else b


def minimum_complex(a, b):
    return a if is_nan_complex(a) or greater_equal_complex(b, a) else b


def fmax_complex(a, b):
    return a if is_nan_complex(b) or greater_equal_complex(a, b) else b


def fmin_complex(a, b):
    return a if is_nan_complex(b) or greater_equal_complex(b, a) else b


def clip_integer(x, low, high):
    raised = x if x > low else low
    return raised if raised < high else high


def clip_float(x, low, high):
    raised = low if (x < low) | (low != low) else x
    return high if (raised > high) | (high != high) else raised


def clip_float_each(x, low, high):
    raised = x if (x != x) | (x > low) else low
    return raised if (raised != raised) | (raised < high) else high
"""

_SINGLE = (
    ("f8", "f4"),
    ("c16", "c8"),
    ("float64", "float32"),
    ("int64", "int32"),
    ("vm_", "vmf_"),
)
_NAME = re.compile(r"[A-Za-z_]\w*")


def _functions(text: str) -> dict[str, str]:
    parts = [part.strip() + "\n" for part in text.split("\n\n\n")]
    return {part[len("def ") : part.index("(")]: part for part in parts}


def _single(text: str) -> str:
    for double, single in _SINGLE:
        text = text.replace(double, single)
    return text


HELPERS: dict[str, str] = {}
for _text in (
    _INTEGERS,
    _FLOATS,
    _single(_FLOATS),
    _SCALING,
    _COMPLEX,
    _single(_COMPLEX),
    _ORDERING,
):
    HELPERS.update(_functions(_text))


def names_in(text: str) -> list[str]:
    """The helpers that an expression (or a helper's text) calls."""
    return [name for name in dict.fromkeys(_NAME.findall(text)) if name in HELPERS]


def source(names: Iterable[str], decorator: str = "@njit") -> str:
    """The text of the helpers `names` and all that they call, to be put above a kernel."""
    needed = with_needed(names, lambda name: names_in(HELPERS[name]))
    return "\n\n".join(f"{decorator}\n{HELPERS[name]}" for name in needed)
