"""The kinds of values for which a loop is compiled: numbers by type, arrays by dtype and layout.

Owns what a name's value is for a compiled loop, at its entry. Numbers are Python's ("int", "float",
"bool") or NumPy's scalars, by dtype code ("i4", "f8", "b1"). In a compiled loop all of them are
int64, float64 or a truth value.
"""

from __future__ import annotations

from itertools import product
from types import BuiltinFunctionType, FunctionType, MemberDescriptorType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from lazyfuse.arrays.ndarray import geometry, ndarray
from lazyfuse.arrays.scalars import scalar, value_of
from lazyfuse.registry import OURS

PYTHON = {"int": "i8", "float": "f8", "bool": "b1", "complex": "c16"}
"""Python's numbers, by their kind, and the dtype that NumPy gives them."""
SCALARS = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "f4", "f8", "c16")
"""The dtypes of elements and NumPy scalars that loops compute with."""
TYPES = {np.dtype(code).type: code for code in SCALARS if code != "b1"} | {np.bool_: "b1"}
DTYPES = {np.dtype(kind): code for kind, code in TYPES.items()}
MAKERS: dict[str, Any] = {code: kind for kind, code in TYPES.items()} | {
    "int": int,
    "float": float,
    "bool": bool,
    "complex": complex,
    "letter": chr,
}
"""What makes a number of each kind."""
CASTS = {
    code: {"b": "uint", "i": "int", "u": "uint", "f": "float", "c": "complex"}[code[0]]
    + str(8 * int(code[1:]))
    for code in SCALARS
}
"""What makes an element of each dtype in the text."""
WIDE = ("f8", "i8", "c16")
"""The dtypes whose elements are as the numbers of the text."""
SMALL = 40
"""Python integers at entry have at most so many bits: sums and products of a few do not overflow.
Larger ones have the kind "big"."""


class ArrayKind(NamedTuple):
    """An array at entry."""

    code: str
    rank: int
    unit: bool
    """Whether elements along its last axis lie side by side."""
    writes: bool
    """Whether the program may write to it."""


class Sequence(NamedTuple):
    """One of Python's sequences at entry."""

    type: str
    item: Any
    """The kind of its first item: all may have it. Empty if there is none."""


SEQUENCES = {each: each.__name__ for each in (list, tuple, bytes, bytearray, str)}


class Unbound:
    """The value of a name that has none."""

    def __repr__(self) -> str:
        return "<unbound>"


UNBOUND = Unbound()


class Object(NamedTuple):
    """A value that is known by its identity: a function, a module, a type."""

    value: Any

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Object) and other.value is self.value


RANGE = "range"
"""The kind of a range that a loop goes over."""
LETTER = "letter"
"""The kind of a string of one character; others are sequences."""
LONG = "long"
"""The kind of an integer of more than SMALL bits that a loop does not assign."""
OTHER = "other"
"""The kind of a value that a compiled loop cannot use."""


class Literal(str):
    """The kind of a name whose number is written out in the text: an integer that a float holds."""

    __slots__ = ()


def union(*several: str) -> str | None:
    """The kind of a number that is one or another, as the turn decides: Python's or NumPy's
    ("float|f8", "int|i4"), or an integer or a float ("int|f8"); None for kinds that do not go
    together so.
    """
    found = {part for kind in several for part in kind.split("|")}
    if len(found) != 2:
        return None
    first, second = sorted(found, key=lambda each: (each not in PYTHON, each != "int"))
    is_pair = second not in (*PYTHON, "f4", LETTER) and first in PYTHON
    is_pair = is_pair and register(first) == register(second)
    return f"{first}|{second}" if is_pair or (first, second) in _MIXED else None


_MIXED = (("int", "float"), ("int", "f8"))


def numpys(kind: str) -> str:
    """The second kind of a union; other kinds are their own."""
    return kind.rpartition("|")[2]


def register(kind: str) -> str:
    """The type of a variable that holds such a number: "i8", "f8", "b1" or "c16"."""
    code = "i8" if kind == LONG else PYTHON.get(kind, numpys(kind))
    if code[0] == "c":
        return code
    return "b1" if code == "b1" else "f8" if code[0] == "f" else "i8"


def is_float(kind: str) -> bool:
    """Whether numbers of this kind are floats."""
    return kind == "float" or numpys(kind) in ("f4", "f8")


def is_complex(kind: str) -> bool:
    """Whether numbers of this kind are complex."""
    return kind == "complex" or numpys(kind) == "c16"


def is_bool(kind: str) -> bool:
    """Whether they are truth values."""
    return numpys(kind) in ("bool", "b1")


def promoted(*given: str) -> str | None:
    """NumPy's type for numbers and arrays of these kinds (NEP 50); None if it is none of ours, or
    not always the same.
    """
    weak: dict[str, Any] = {"int": 0, "float": 0.0, "complex": 0j, "bool": np.dtype(bool)}
    found = {
        np.result_type(
            *[weak.get(each) or weak.get(each, np.dtype(PYTHON.get(each, each))) for each in one]
        )
        for one in product(*[each.split("|") for each in given])
    }
    return DTYPES.get(found.pop()) if len(found) == 1 else None


def limits(code: str) -> tuple[int, int]:
    """The least and the largest integer of a dtype."""
    high = (1 << (8 * int(code[1:]) - (code[0] == "i"))) - 1
    return (-high - 1 if code[0] == "i" else 0), high


def of_array(real: Any) -> ArrayKind | str:
    """The kind of one of NumPy's arrays."""
    code = DTYPES.get(real.dtype)
    strides = real.strides
    if code is None or not 1 <= len(strides) <= 4:
        return OTHER
    size = int(code[1:])
    for step in strides:
        if step % size:
            return OTHER
    flags = real.flags
    return (
        ArrayKind(code, len(strides), strides[-1] == size, flags.writeable)
        if flags.aligned
        else OTHER
    )


def of_value(value: Any, is_assigned: bool = False) -> tuple[Any, Any]:
    """The kind of a name's value, and the value as the loop takes it. `is_assigned`: the loop
    assigns the name.
    """
    kind = type(value)
    if kind is int:
        bits = value.bit_length()
        if bits <= SMALL:
            return (Literal("int") if is_assigned else "int"), value
        return ("int" if bits <= 63 and is_assigned else LONG if bits <= 63 else OTHER), value
    if kind is float or kind is bool or kind is complex:
        return kind.__name__, value
    if kind is ndarray:
        return of_array(geometry(value)), value
    if kind is np.ndarray:
        return of_array(value), value
    code = TYPES.get(kind)
    if code is not None:
        return code, value
    if kind is scalar:
        return of_value(value_of(value))
    if value is UNBOUND:
        return UNBOUND, value
    if kind is str and len(value) == 1:
        return LETTER, ord(value)
    if kind in SEQUENCES:
        return Sequence(SEQUENCES[kind], _item(value)), value
    if kind in _OBJECTS or isinstance(value, (type, ModuleType)):
        return Object(value), value
    return OTHER, value


def _item(value: Any, depth: int = 3) -> Any:
    """The kind of a sequence's first item."""
    first = value[:1]  # another thread may empty a list
    if not first or type(value) in (bytes, bytearray, str):
        return ""
    kind = type(first[0])
    if kind in SEQUENCES:
        return Sequence(SEQUENCES[kind], _item(first[0], depth - 1)) if depth else OTHER
    return kind.__name__ if kind in (int, float, bool, complex) else TYPES.get(kind, OTHER)


def attribute(owner: Any, name: str, is_written: bool) -> Any:
    """The attribute of an object that only keeps it; `UNBOUND` for others."""
    kind = type(owner)
    if is_written and getattr(kind, "__setattr__", None) is not object.__setattr__:
        return UNBOUND
    plain = getattr(kind, "__getattribute__", None) is object.__getattribute__
    if not plain or hasattr(kind, "__getattr__"):
        return UNBOUND
    of_class = next((vars(x)[name] for x in kind.__mro__ if name in vars(x)), UNBOUND)
    if type(of_class) is MemberDescriptorType:
        return getattr(owner, name, UNBOUND)
    if hasattr(of_class, "__get__") or hasattr(of_class, "__set__"):
        return UNBOUND
    return getattr(owner, "__dict__", {}).get(name, of_class)


UFUNCS = (np.ufunc, OURS[np.ufunc])
"""The types of NumPy's functions by element, and of ours."""
_OBJECTS = {FunctionType, BuiltinFunctionType, *UFUNCS}
"""What is known by its identity, beside modules and types."""
