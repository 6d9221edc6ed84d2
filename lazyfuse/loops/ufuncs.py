"""NumPy's functions of numbers and rows: NumPy's own loops, called by their addresses.

Owns the call: the words that such a loop is given, and where NumPy keeps its loops. A function
gives the bits that it gives in Python, since it is the same machine code on the same layout.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from lazyfuse.loops import kinds
from lazyfuse.loops.rows import Rows
from lazyfuse.loops.text import Leaves
from lazyfuse.loops.values import BITS, Flat, Number, Part, Row, Value

_NUMPYS = {
    each
    for each in vars(np._core.umath).values()  # type: ignore[attr-defined]
    if isinstance(each, np.ufunc) and each.signature is None
}
"""Functions whose loops raise nothing. Those of other packages may."""
TRUTHS = {
    np.less: "<", np.less_equal: "<=", np.greater: ">", np.greater_equal: ">=", np.equal: "==",
    np.not_equal: "!=", np.logical_and: "&", np.logical_or: "|", np.bitwise_and: "&",
    np.bitwise_or: "|",
}  # fmt: skip
"""Functions whose results are truth values, as operators: they need no loop of NumPy's."""
_WEAK: dict[str, Any] = {"int": int, "float": float, "bool": np.dtype(bool), "complex": complex}


class _Ufunc(ctypes.Structure):
    """The beginning of `PyUFuncObject`, as NumPy's headers have it."""

    _fields_ = (
        ("head", ctypes.c_byte * object.__basicsize__),
        ("nin", ctypes.c_int),
        ("nout", ctypes.c_int),
        ("nargs", ctypes.c_int),
        ("identity", ctypes.c_int),
        ("functions", ctypes.POINTER(ctypes.c_void_p)),
        ("data", ctypes.POINTER(ctypes.c_void_p)),
        ("ntypes", ctypes.c_int),
        ("reserved", ctypes.c_int),
        ("name", ctypes.c_char_p),
    )


def addresses(function: np.ufunc, index: int) -> tuple[int, int]:
    """The address of one of a function's loops, and of what it is given beside arrays."""
    found = _Ufunc.from_address(id(function))
    return found.functions[index] or 0, (found.data[index] or 0) if found.data else 0


def _is_known(function: np.ufunc) -> bool:
    """Whether the function lies in memory as the headers say."""
    found = _Ufunc.from_address(id(function))
    counts = (found.nin, found.nout, found.nargs, found.ntypes)
    told = (function.nin, function.nout, function.nargs, function.ntypes)
    return counts == told and found.name == function.__name__.encode()


def _chosen(function: np.ufunc, codes: Sequence[str]) -> tuple[int, list[str], str]:
    """Which loop NumPy takes for operands of these kinds: its place, and its dtypes."""
    found = set()
    for plain in product(*[code.split("|") for code in codes]):
        given = [_WEAK.get(each) or np.dtype(each) for each in plain]
        try:
            dtypes = function.resolve_dtypes((*given, None))
        except TypeError:
            raise Leaves("a function of this type") from None
        found.add(tuple(each.char for each in dtypes))
    if len(found) != 1:
        raise Leaves("a function of a number of several types")
    (chars,) = found
    names = [kinds.DTYPES.get(np.dtype(each), "") for each in chars]
    text = "".join(chars[:-1]) + "->" + chars[-1]
    if "" in names or text not in function.types or not _is_known(function):
        raise Leaves("a function of this type")
    return function.types.index(text), names[:-1], names[-1]


class Ufuncs(Rows):
    """Writes calls of NumPy's loops."""

    def ufunc(self, function: np.ufunc, values: Sequence[Flat]) -> Flat:
        """`function(*values)`; leaves where NumPy would warn."""
        if function.nout != 1 or function.nin != len(values) or function not in _NUMPYS:
            raise Leaves("a function of NumPy's with other arguments")
        self.settle()
        codes = [each.kind for each in values]
        if function in TRUTHS and self.are_truths(TRUTHS[function], values):
            return self.truths(TRUTHS[function], *values)
        index, ins, out = _chosen(function, codes)
        if function is np.power and out[0] in "iu":
            raise Leaves("a power of integers")  # its loop raises
        rows = [each for each in values if isinstance(each, Row)]
        count = self.alike_long(*rows) if rows else "1"
        at = self._take(3 + 2 * (len(values) + 1))
        self.functions.append((function, index, at))
        places, steps = [], []
        for value, code in zip(values, ins, strict=True):
            if isinstance(value, Row):
                part = self._operand(value, code)
                places.append(f"address_of({part.pointer}, {part.first})")
                steps.append(f"{part.step} * {code[1:]}")
            else:
                slot = self.slot_of(code)
                self.put(f"{slot}[0] = {self.as_element(value, code)}")
                places.append(f"address_of({slot}, 0)")
                steps.append("0")
        result = self.room(count, out) if rows else self.slot_of(out)
        places.append(f"address_of({result}, 0)")
        steps.append(out[1:])
        self.put(f"meta[{at + 2}] = {count}")
        for k, word in enumerate([*places, *steps]):
            self.put(f"meta[{at + 3 + k}] = {word}")
        self.put("clear_flags()")
        self.put(f"call_loop(meta, {at}, {len(places)})")
        self.leave("(test_flags() & 11) != 0")
        if rows:
            self.put(f"patience = patience + {count}")
            return self.whole(Part(result, "int64(0)", count, "int64(1)", out))
        return Number(self.temp(self.loaded(result, "0", out)), out, BITS.get(out, 63))

    @staticmethod
    def are_truths(sign: str, values: Sequence[Value]) -> bool:
        """Whether it is a comparison, or truth values together, of arrays."""
        given = {each.kind for each in values}
        if sign in "&|":
            return given == {"b1"} and not any(isinstance(each, Number) for each in values)
        if {"b1", "bool"} & given or any(map(kinds.is_complex, given)):
            return False
        return any(not isinstance(each, Number) for each in values)

    def truths(self, sign: str, left: Flat, right: Flat) -> Row:
        """A comparison, or truth values together, element by element."""
        code = "b1" if sign in "&|" else self.common(left, right)
        count = self.alike_long(left, right)
        a, b = [self.as_code(each, code) for each in (left, right)]
        return Row("b1", count, lambda q: f"({a(q)} {sign} {b(q)})")

    def _operand(self, row: Row, code: str) -> Part:
        if row.kind != code:
            raise Leaves("a function that converts its operands")
        if row.part is not None:
            return row.part
        return self.computed(row)
