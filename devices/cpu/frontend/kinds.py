"""The scalar types of text of language "numba", by dtype code, and numba's rules for mixing them.

Owns which type an operation on two types has. `tests/devices/cpu/test_frontend.py` asks numba the
same for every pair.
"""

from __future__ import annotations

from ...base import DeviceError

CODES = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "c8", "c16")

TYPES = {
    "boolean": "b1",
    "int8": "i1",
    "int16": "i2",
    "int32": "i4",
    "int64": "i8",
    "uint8": "u1",
    "uint16": "u2",
    "uint32": "u4",
    "uint64": "u8",
    "float32": "f4",
    "float64": "f8",
    "complex64": "c8",
    "complex128": "c16",
}
"""The names of numba's types."""
NAMES = TYPES | {"bool": "b1", "int": "i8", "float": "f8"}
"""The names that texts use for types, Python's own among them."""


class Unsupported(DeviceError):
    """A text that this front end does not translate."""


def size(code: str) -> int:
    """Bytes of a value."""
    return int(code[1:])


def part(code: str) -> str:
    """The type of the real and imaginary parts of a complex type; other types are their own."""
    return code if code[0] != "c" else f"f{size(code) // 2}"


def common(first: str, second: str) -> str:
    """The type of a variable, or a choice, that has values of both types."""
    if first == second or second == "b1":
        return first
    if first == "b1":
        return second
    if first[0] in "fc" or second[0] in "fc":
        return _inexact(first, second, 2)
    if first[0] == second[0]:
        return max(first, second)
    signed, unsigned = (first, second) if first[0] == "i" else (second, first)
    wide = max(size(signed), 2 * size(unsigned))
    return f"i{wide}" if wide <= 8 else "f8"


def compared(first: str, second: str) -> str:
    """The type in which two values are compared."""
    if first[0] in "fc" or second[0] in "fc":
        return _inexact(first, second, 1)
    return common(first, second)


def arithmetic(first: str, second: str) -> tuple[str, str, str]:
    """For `+ - *`: the result's type, and those that the operands are converted to."""
    if first[0] in "fc" or second[0] in "fc":
        both = _inexact(first, second, 1)
        return both, both, both
    left, right = word(first), word(second)
    return ("u8" if left == right == "u8" else "i8"), left, right


def word(code: str) -> str:
    """The machine integer that holds a truth value or an integer."""
    return "u8" if code[0] == "u" else "i8"


def _inexact(first: str, second: str, unsigned: int) -> str:
    """The float or complex type of two types, one of which is inexact.

    Integers of few bits go with single precision; `unsigned`: the most bytes of unsigned ones.
    """
    is_complex = "c" in (first[0], second[0])
    double = any(
        size(part(each)) == 8
        if each[0] in "fc"
        else size(each) > (unsigned if each[0] == "u" else 2)
        for each in (first, second)
    )
    return ("c16" if double else "c8") if is_complex else ("f8" if double else "f4")
