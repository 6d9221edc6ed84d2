"""NumPy's functions and operators of arrays: by element, or NumPy's own loops by their addresses.

Owns the call: the words that such a loop is given, and where NumPy keeps its loops. A function
gives the bits that it gives in Python, since it is the same machine code on the same layout.
"""

from __future__ import annotations

import ast
import ctypes
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from lazyfuse.loops import kinds
from lazyfuse.loops.arrays import Arrays
from lazyfuse.loops.text import Leaves
from lazyfuse.loops.values import BITS, ONE, Elements, Number, Part, Value

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
_SIGNS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
}
UFUNCS: dict[type[ast.AST], np.ufunc] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.true_divide,
    ast.FloorDiv: np.floor_divide,
    ast.Mod: np.remainder,
    ast.Pow: np.power,
    ast.LShift: np.left_shift,
    ast.RShift: np.right_shift,
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
    ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
    ast.Invert: np.invert,
    ast.USub: np.negative,
}
_OUTER = {UFUNCS[kind]: kind for kind in _SIGNS if kind in UFUNCS}
"""Functions that are an operator, and which."""
_POWERS = {"int64(2)": np.square, "2.0": np.square, "0.5": np.sqrt}
"""What NumPy computes instead of a power: it looks at the exponent."""
_EXACT = {
    np.sqrt, np.square, np.absolute, np.fabs, np.negative, np.sign, np.floor, np.ceil, np.trunc,
    np.rint, np.isnan, np.isinf, np.isfinite, np.signbit, np.copysign, *TRUTHS, *_OUTER,
}  # fmt: skip
"""Functions of floats whose bits do not depend on where their operands lie."""
_EXTREMES = (np.minimum, np.maximum)
"""Of floats, they may give the one zero or the other."""
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


class Ufuncs(Arrays):
    """Writes operators and functions of arrays."""

    def of_arrays(self, op: ast.operator, left: Value, right: Value) -> Value:
        """An operator on arrays, element by element."""
        given, sign, function = [left, right], _SIGNS.get(type(op)), UFUNCS.get(type(op))
        if sign is None or any(kinds.is_complex(each.kind) for each in given):
            if isinstance(op, ast.Pow) and isinstance(right, Number):
                function, given = _POWERS.get(right.text), [left]
            if function is None or (isinstance(left, Elements) and left.kind == "f4"):
                raise Leaves("an operator of arrays")
            return self.ufunc(function, given)
        if {left.kind, right.kind} == {"b1"} and sign in "&|^":
            return self.by_element("b1", "b1", given, f"({{}} {sign.replace('^', '!=')} {{}})")
        code = self.common(left, right)
        if code[0] != "f" and sign == "/":
            code = "f8"
        if code[0] == "f" and sign not in "+-*/":
            raise Leaves("an operator of arrays of floats")
        form = self.fitted(f"({{}} {sign} {{}})", code)
        return self.by_element(code, code, given, form, warns=code[0] == "f")

    def negative(self, value: Elements) -> Value:
        """`-value`."""
        if value.kind[0] != "f":
            return self.ufunc(np.negative, [value])
        element = value.element
        return value._replace(element=lambda places: f"(-{element(places)})", part=None)

    def choice(self, test: Value, first: Value, second: Value) -> Elements:
        """`np.where`."""
        if not isinstance(test, Elements) or test.kind != "b1":
            raise Leaves("`where` of other than truth values")
        code = self.common(first, second)
        return self.by_element(code, code, [first, second], "({0} if {2} else {1})", test)

    def outer(self, function: Any, given: Sequence[Value]) -> Value:
        """`function.outer(a, b)` of two rows."""
        a, b = given
        are_rows = all(isinstance(each, Elements) and each.is_row() for each in given)
        if not are_rows or function not in _OUTER:
            raise Leaves("an outer product")
        assert isinstance(a, Elements)
        element = a.element
        left = a._replace(
            sizes=(a.size, ONE), element=lambda places: element(places[:1]), part=None
        )
        return self.of_arrays(_OUTER[function](), left, b)

    def ufunc(self, function: np.ufunc, values: Sequence[Value]) -> Value:
        """`function(*values)`; leaves where NumPy would warn."""
        if function.nout != 1 or function.nin != len(values) or function not in _NUMPYS:
            raise Leaves("a function of NumPy's with other arguments")
        self.settle()
        codes = [each.kind for each in values]
        if function in TRUTHS and self._are_truths(TRUTHS[function], values):
            code = "b1" if TRUTHS[function] in "&|" else self.common(*values)
            return self.by_element("b1", code, values, f"({{}} {TRUTHS[function]} {{}})")
        index, ins, out = _chosen(function, codes)
        if function is np.power and out[0] in "iu":
            raise Leaves("a power of integers")  # its loop raises
        sizes = self.broadcast(values)
        if len(sizes) > 1 and function not in _EXACT and {"f", "c"} & {each[0] for each in ins}:
            if function in _EXTREMES and set(ins) == {"f8"}:
                return self._extreme("<" if function is np.minimum else ">", values, sizes)
            parts = [each.part for each in values if isinstance(each, Elements)]
            if not all(each is None or (each.is_ours() and each.is_flat()) for each in parts):
                raise Leaves("a function of a part of several axes")
        count = self.size_of(sizes) if sizes else "1"
        at = self._take(3 + 2 * (len(values) + 1))
        self.functions.append((function, index, at))
        places, steps = [], []
        for value, code in zip(values, ins, strict=True):
            if isinstance(value, Elements):
                part = self._operand(self.spread(value, sizes), code)
                places.append(f"address_of({part.pointer}, {part.first})")
                steps.append(f"{part.steps[-1]} * {code[1:]}")
            else:
                slot = self.slot_of(code)
                self.put(f"{slot}[0] = {self.as_element(value, code)}")
                places.append(f"address_of({slot}, 0)")
                steps.append("0")
        result = self.room(count, out) if sizes else self.slot_of(out)
        places.append(f"address_of({result}, 0)")
        steps.append(out[1:])
        self.put(f"meta[{at + 2}] = {count}")
        for k, word in enumerate([*places, *steps]):
            self.put(f"meta[{at + 3 + k}] = {word}")
        with self.watching(True):
            self.put(f"call_loop(meta, {at}, {len(places)})")
        if sizes:
            self.put(f"patience = patience + {count}")
            return self.whole(self.in_memory(result, sizes, out))
        return Number(self.temp(self.loaded(result, "0", out)), out, BITS.get(out, 63))

    def _extreme(self, sign: str, given: Sequence[Value], sizes: tuple[str, ...]) -> Elements:
        """`np.minimum` or `np.maximum` of floats; leaves where zeros of both signs meet: which one
        is the result depends on where they lie.
        """
        a, b = [self.as_code(each, "f8", sizes) for each in given]
        count = self.size_of(sizes)
        memory, odd = self.room(count), self.temp("int64(0)")
        self.put(f"patience = patience + {count}")
        with self.watching(True), self.places(sizes, is_alone=False) as (places, at):
            x, y = self.temp(a(places)), self.temp(b(places))
            differ = f"({x} == {y}) & ({x}.view(np.int64) != {y}.view(np.int64))"
            self.put(f"{odd} = 1 if {differ} else {odd}")
            self.put(f"{memory}[{at}] = {x} if ({x} {sign} {y}) | ({x} != {x}) else {y}")
        self.leave(f"{odd} != 0")
        return self.whole(self.in_memory(memory, sizes, "f8"))

    @staticmethod
    def _are_truths(sign: str, values: Sequence[Value]) -> bool:
        """Whether it is a comparison, or truth values together, of arrays."""
        given = {each.kind for each in values}
        are_numbers = [isinstance(each, Number) for each in values]
        if sign in "&|":
            return given == {"b1"} and not any(are_numbers)
        if {"b1", "bool"} & given or any(map(kinds.is_complex, given)):
            return False
        return not all(are_numbers)

    def _operand(self, value: Elements, code: str) -> Part:
        if value.kind != code:
            raise Leaves("a function that converts its operands")
        return value.part if value.is_row() and value.part is not None else self.flat(value)
