"""Calls in loops: functions of Python, `math` and NumPy, and the program's own.

Owns the table of known functions. A function of the program's whose statements only compute is
written where it is called: leaving it, Python calls it again from the beginning.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from lazyfuse.arrays.ndarray import ndarray
from lazyfuse.devices.base import C_FUNCTIONS
from lazyfuse.loops import kinds
from lazyfuse.loops.callees import Callees
from lazyfuse.loops.objects import Letter
from lazyfuse.loops.text import Leaves
from lazyfuse.loops.values import BITS, Elements, Item, Number, Value
from lazyfuse.registry import THEIRS


class Calls(Callees):
    """Writes calls."""

    def of_call(self, node: ast.Call, wanted: str = "") -> Item:
        if isinstance(node.func, ast.Attribute) and not node.args and not node.keywords:
            owner = None if self.object(node.func) is not None else self.value(node.func.value)
            name = node.func.attr
            if isinstance(owner, Number) and name == "conjugate" and kinds.is_complex(owner.kind):
                return owner._replace(text=f"{self.temp(owner.text)}.conjugate()")
            if isinstance(owner, Elements):
                return owner._replace(part=None) if name == "copy" else self.reduced(name, owner)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "outer":
            function = self.object(node.func.value)
            if len(node.args) == 2 and not node.keywords and _hashes(function):
                return self.outer(THEIRS.get(function, function), [*map(self.value, node.args)])
        function = self.object(node.func)
        axis = _axis(node, 0 if function is None else 1)
        if axis is not None and function is None:
            return self.along(node.func.attr, self._array(node.func.value), axis)  # type: ignore[attr-defined]
        if function is None or any(isinstance(each, ast.Starred) for each in node.args):
            raise Leaves("a call")
        original = function
        function = THEIRS.get(function, function) if _hashes(function) else function
        if axis is not None and _hashes(function) and function in _REDUCTIONS:
            return self.along(_REDUCTIONS[function], self._array(node.args[0]), axis)
        if axis is not None and function is np.linalg.norm:
            found = self._array(node.args[0])
            if found.kind != "f8":  # NumPy makes floats of integers first
                raise Leaves("the norm of an array of this type")
            squares = self.of_arrays(ast.Mult(), found, found)
            return self.ufunc(np.sqrt, [self.along("sum", squares, axis)])  # type: ignore[arg-type]
        if _hashes(function) and function in _FILLED:
            self.note_maker(original)
            return self._filled(node, _FILLED[function])
        if function is np.full and len(node.args) == 2 and not node.keywords:
            self.note_maker(original)
            return self._full(*node.args)
        if original is function and type(function) is FunctionType:
            return self.of_function(function, node)
        if node.keywords:
            raise Leaves("a call with names")
        first = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
        if function is float and first in ("inf", "-inf", "nan"):
            return self.of_constant(ast.Constant(float(first)))
        if function is divmod and len(node.args) == 2:
            a, b = [self.number(each) for each in node.args]
            a, b = a._replace(text=self.temp(a.text)), b._replace(text=self.temp(b.text))
            return tuple([self.kept(self.binary(op, a, b)) for op in (ast.FloorDiv(), ast.Mod())])
        if function in (min, max) and len(node.args) >= 2:
            return self._least(node.args, function is max, wanted)
        if function is len and len(node.args) == 1:
            held = self.sequence(node.args[0])
            if held is not None:
                return Number(self.size(held), "int", kinds.SMALL)
            return Number(self.array(node.args[0]).sizes[0], "int", kinds.SMALL)
        if function is np.dot and len(node.args) == 2:
            return self.dot(self.value(node.args[0]), self.value(node.args[1]), by_matmul=False)
        if function is np.flip and len(node.args) == 1:
            return self.flipped(self.value(node.args[0]))
        if len(node.args) == 1 and _hashes(function) and function in _REDUCTIONS:
            row, name = self.value(node.args[0]), _REDUCTIONS[function]
            if isinstance(row, Elements):
                return self.reduced(name, row)
        items = [self.item(each) for each in node.args]
        if len(items) == 1 and isinstance(items[0], Letter):
            return self._of_letter(function, items[0])
        given = [self.known(each) for each in items]
        if function is np.where and len(given) == 3:
            return self.choice(*given)
        if function is np.linalg.norm and len(given) == 1 and isinstance(given[0], Elements):
            squares = self.dot(given[0], given[0], by_matmul=False)
            return _sqrt(True)(self, [squares])
        if function in kinds.TYPES and len(given) == 1 and isinstance(given[0], Number):
            return self._cast(given[0], kinds.TYPES[function])
        simple, count = _SIMPLE.get(function, (None, 0)) if _hashes(function) else (None, 0)
        is_complex = any(isinstance(x, Number) and kinds.is_complex(x.kind) for x in given)
        if is_complex and function not in (abs, complex):
            simple = None
        is_call = len(given) in ((1, 2) if function is complex else (count,))
        if simple is not None and is_call and all(isinstance(each, Number) for each in given):
            return simple(self, given)
        if function is np.round and not all(each.kind[0] == "f" for each in given):
            raise Leaves("integers that are rounded")
        function = _BY_UFUNC.get(function, function) if _hashes(function) else function
        if isinstance(function, np.ufunc):
            self.note_maker(original)
            return self.ufunc(function, given)
        raise Leaves("a function")

    def _array(self, node: ast.expr) -> Elements:
        found = self.value(node)
        if not isinstance(found, Elements):
            raise Leaves("a number")
        return found

    def _of_letter(self, function: Any, letter: Letter) -> Number:
        """`ord(letter)`, or `int(letter)` of a digit."""
        if function is ord:
            return Number(letter.text, "int", 21)
        if function is not int:
            raise Leaves("a function of a string")
        self.leave(f"({letter.text} < 48) | ({letter.text} > 57)")
        return Number(f"({letter.text} - 48)", "int", 4)

    def _cast(self, value: Number, code: str) -> Number:
        """`np.int16(value)`: leaves where the number is out of range."""
        if code == "b1":
            return Number(self.as_truth(value), code)
        text = self.as_element(value, code)
        if code in kinds.WIDE:
            return Number(text, code)
        return Number(f"{'float64' if code == 'f4' else 'int64'}({text})", code, BITS.get(code, 63))

    def note_maker(self, function: Any) -> None:
        """Arrays that this function makes are of this type."""
        if function is not abs:
            is_ours = THEIRS.get(function, function) is not function
            self.makers.add(ndarray if is_ours else np.ndarray)

    def _filled(self, node: ast.Call, value: int | str | None) -> Value:
        """`np.zeros(n)`, `np.zeros_like(x)` and so on."""
        dtypes = [*node.args[1:], *[each.value for each in node.keywords if each.arg == "dtype"]]
        if (
            len(dtypes) > 1
            or len(node.keywords) + len(node.args) > len(dtypes) + 1
            or not node.args
        ):
            raise Leaves("an array of this kind")
        if isinstance(node.args[0], (ast.List, ast.Tuple)) and value is None:
            return self.listed(node.args[0].elts, dtypes)
        if value is None or isinstance(value, str):
            like = self.value(node.args[0])
            if isinstance(like, Number) or dtypes:
                raise Leaves("an array of this kind")
            if value is None:
                return like._replace(part=None)
            zero = {"b1": "False", "c16": "complex(0.0, 0.0)"}.get(like.kind, "int64(0)")
            zero = "0.0" if like.kind[0] == "f" else zero
            return like._replace(element=lambda places: zero, part=None)
        code = self._dtype(dtypes[0]) if dtypes else "f8"
        number = float(value) if code[0] == "f" else value
        text = f"{number}" if code != "b1" else str(bool(value))
        return self.elements(code, self._counts(node.args[0]), lambda places: text)

    def _counts(self, node: ast.expr) -> tuple[str, ...]:
        """How many elements an array is to have along each axis."""
        sizes = node.elts if isinstance(node, ast.Tuple) and node.elts else [node]
        counts = [self.temp(self.index(each).text) for each in sizes]
        most = 1 << (kinds.SMALL if len(sizes) == 1 else kinds.SMALL // 2)
        for each in counts:
            self.leave(f"({each} < 0) | ({each} > {most})")
        return tuple(counts)

    def _full(self, count: ast.expr, value: ast.expr) -> Value:
        """`np.full(count, value)`."""
        number = self.number(value)
        if number.tag:
            raise Leaves("an array of this type")
        code = kinds.PYTHON.get(number.kind, number.kind)
        text = self.temp(number.text)
        return self.elements(code, self._counts(count), lambda places: text)

    def _dtype(self, node: ast.expr) -> str:
        named = {bool: "b1", int: "i8", float: "f8"}
        found = self.object(node)
        code = named.get(found) or kinds.TYPES.get(found) if isinstance(found, type) else None
        if code is None:
            raise Leaves("an array of this type")
        return code

    def listed(self, nodes: list[ast.expr], dtypes: Sequence[ast.expr] = ()) -> Elements:
        """`np.array([x, y, z])`."""
        values = [self.number(each) for each in nodes]
        codes = {kinds.PYTHON.get(each.kind) or kinds.numpys(each.kind) for each in values}
        if codes - {"f8", "i8"} or not values:
            raise Leaves("an array of this type")
        code = self._dtype(dtypes[0]) if dtypes else max(codes, key="i8 f8".index)
        if code not in ("f8", "i8") or (code == "i8" and "f8" in codes):
            raise Leaves("an array of this type")
        self.settle()
        held = self.room(str(len(values)), code)
        for k, each in enumerate(values):
            self.put(f"{held}[{k}] = {self.as_element(each, code)}")
        self.settle()
        return self.whole(self.in_memory(held, (f"int64({len(values)})",), code))

    def _least(self, nodes: list[ast.expr], is_max: bool, wanted: str) -> Value:
        values = [self.number(each) for each in nodes]
        given = {each.kind for each in values}
        kind = given.pop() if len(given) == 1 else kinds.union(*given)
        if kind is None:
            is_mixed = len({kinds.is_float(each.kind) for each in values}) > 1
            if not wanted or is_mixed or "f4" in given:  # beside it, floats are rounded
                raise Leaves("`min` or `max` of several types")
            values = [Number(self.alike(each, wanted), wanted, each.bits) for each in values]
            kind = wanted
        if kinds.is_bool(kind) or kinds.is_complex(kind):
            raise Leaves("`min` or `max` of truth values")
        if "|" in kind:
            values = [self.as_union(each, kind) for each in values]
        result = self.temp(values[0].text)
        tag = self.temp(values[0].tag) if "|" in kind else ""
        for each in values[1:]:
            held = self.temp(each.text)
            better = self.temp(f"{held} {'>' if is_max else '<'} {result}")
            if tag:
                self.put(f"{tag} = {each.tag} if {better} else {tag}")
            self.put(f"{result} = {held} if {better} else {result}")
        return Number(result, kind, max(each.bits for each in values), tag)


def _axis(node: ast.Call, first: int) -> int | None:
    """The axis that a reduction is told, behind so many arguments; None if there is none."""
    given = [*node.args[first:], *[each.value for each in node.keywords if each.arg == "axis"]]
    if len(given) != 1 or len(node.args) + len(node.keywords) != first + 1:
        return None
    if not isinstance(node.func, ast.Attribute):
        return None
    try:
        axis = ast.literal_eval(given[0])
    except ValueError:
        return None
    return axis if type(axis) is int else None


def _hashes(function: Any) -> bool:
    try:
        hash(function)
    except TypeError:
        return False
    return True


def _abs(walk: Calls, given: list[Number]) -> Number:
    (value,) = given
    if kinds.is_float(value.kind):
        return value._replace(text=f"abs({value.text})")
    if kinds.is_complex(value.kind):
        held = walk.temp(value.text)
        found = walk.temp(f"libm_hypot({held}.real, {held}.imag)")
        walk.leave(f"not ({found} < np.inf)")
        kind = {"complex": "float", "c16": "f8"}.get(value.kind, "float|f8")
        return Number(found, kind, tag=value.tag)
    if value.kind not in ("int", "i8", "int|i8"):
        raise Leaves("abs")
    if value.bits > 62:
        walk.leave(f"{value.text} == {-(1 << 63)}")
    return value._replace(text=f"abs({value.text})")


def _int(walk: Calls, given: list[Number]) -> Number:
    (value,) = given
    if kinds.is_float(value.kind):
        held = walk.temp(value.text)
        walk.leave(f"not (abs({held}) < {float(1 << 62)})")
        return Number(f"int64({held})", "int", 62)
    return Number(walk.widened(value), "int", value.bits)


def _complex(walk: Calls, given: list[Number]) -> Number:
    if len(given) == 1 and given[0].kind in ("complex", "c16"):
        return given[0]._replace(kind="complex")
    if len(given) != 2 or any(kinds.is_complex(each.kind) for each in given):
        raise Leaves("complex")
    parts = [f"float64({walk.widened(each)})" for each in given]
    return Number(f"complex({', '.join(parts)})", "complex")


def _float(walk: Calls, given: list[Number]) -> Number:
    (value,) = given
    return Number(f"float64({walk.widened(value)})", "float")


def _bool(walk: Calls, given: list[Number]) -> Number:
    return Number(walk.as_truth(given[0]), "bool")


def _sqrt(is_numpy: bool) -> Callable[[Calls, list[Number]], Value]:
    def call(walk: Calls, given: list[Number]) -> Value:
        (value,) = given
        if is_numpy and value.kind not in ("f8", "float", "float|f8"):
            return walk.ufunc(np.sqrt, given)
        held = walk.temp(f"float64({walk.widened(value)})")
        walk.leave(f"{held} < 0.0" if is_numpy else f"not ({held} >= 0.0)")
        return Number(walk.temp(f"np.sqrt({held})"), "f8" if is_numpy else "float")

    return call


def _math(name: str) -> Callable[[Calls, list[Number]], Number]:
    """A function of `math`: where its result is not finite, Python decides what that means."""

    def call(walk: Calls, given: list[Number]) -> Number:
        held = [walk.temp(f"float64({walk.widened(each)})") for each in given]
        for each in held:
            walk.leave(f"not (abs({each}) < np.inf)")
        found = walk.temp(f"libm_{name}({', '.join(held)})")
        walk.leave(f"not (abs({found}) < np.inf)")
        return Number(found, "float")

    return call


def _rounded(name: str) -> Callable[[Calls, list[Number]], Number]:
    """A float as Python's integer."""

    def call(walk: Calls, given: list[Number]) -> Number:
        (value,) = given
        if value.kind == "int":
            return value
        if value.kind not in ("float", "f8", "float|f8"):
            raise Leaves(name)
        held = walk.temp(value.text)
        walk.leave(f"not (abs({held}) < {float(1 << 62)})")
        return Number(f"int64(np.{name}({held}))", "int", 62)

    return call


def _is(test: str) -> Callable[[Calls, list[Number]], Number]:
    def call(walk: Calls, given: list[Number]) -> Number:
        held = walk.temp(f"float64({walk.widened(given[0])})")
        return Number(f"({test.format(held)})", "bool")

    return call


def _scaled(factor: float) -> Callable[[Calls, list[Number]], Number]:
    def call(walk: Calls, given: list[Number]) -> Number:
        return Number(f"(float64({walk.widened(given[0])}) * {factor!r})", "float")

    return call


def _fabs(walk: Calls, given: list[Number]) -> Number:
    return Number(f"abs(float64({walk.widened(given[0])}))", "float")


def _gcd(walk: Calls, given: list[Number]) -> Number:
    if any(kinds.register(each.kind) != "i8" for each in given):
        raise Leaves("gcd")
    a, b = [walk.temp(each.text) for each in given]
    for each in (a, b):
        walk.leave(f"{each} == {-(1 << 63)}")
        walk.put(f"{each} = abs({each})")
    rest = walk.temp("int64(0)")
    with walk.under(f"while {b} != 0:"):
        for target, text in ((rest, f"{a} % {b}"), (a, b), (b, rest)):
            walk.put(f"{target} = {text}")
    return Number(a, "int")


def _isqrt(walk: Calls, given: list[Number]) -> Number:
    """The largest integer whose square is not larger; leaves beyond what a float holds."""
    if kinds.register(given[0].kind) != "i8":
        raise Leaves("isqrt")
    held = walk.temp(given[0].text)
    walk.leave(f"({held} < 0) | ({held} > {1 << 52})")
    return Number(walk.temp(f"int64(np.sqrt(float64({held})))"), "int", 26)


_REDUCTIONS: dict[Any, str] = {
    np.sum: "sum",
    np.max: "max",
    np.min: "min",
    np.amax: "max",
    np.amin: "min",
    np.mean: "mean",
    np.argmax: "argmax",
    np.argmin: "argmin",
    np.any: "any",
    np.all: "all",
    np.count_nonzero: "count_nonzero",
}
_FILLED: dict[Any, int | str | None] = {
    np.zeros_like: "like",
    np.empty_like: "like",
    np.zeros: 0,
    np.empty: 0,
    np.ones: 1,
    np.array: None,
    np.copy: None,
}
"""What makes arrays, and the value of their elements; None: that of others."""
_CLIP: Any = np._core.umath.clip  # type: ignore[attr-defined]
_BY_UFUNC: dict[Any, np.ufunc] = {abs: np.absolute, np.round: np.rint, np.clip: _CLIP}
"""Functions that are a ufunc if they are called without names."""
_SIMPLE: dict[Any, tuple[Callable[[Calls, list[Any]], Value], int]] = {
    **{
        function: (call, 1)
        for function, call in {
            abs: _abs,
            int: _int,
            float: _float,
            bool: _bool,
            complex: _complex,
            round: _rounded("rint"),
            math.radians: _scaled(math.pi / 180.0),
            math.degrees: _scaled(180.0 / math.pi),
            math.isnan: _is("{0} != {0}"),
            math.isinf: _is("abs({0}) == np.inf"),
            math.isfinite: _is("abs({0}) < np.inf"),
            math.sqrt: _sqrt(False),
            math.fabs: _fabs,
            math.floor: _rounded("floor"),
            math.isqrt: _isqrt,
            math.ceil: _rounded("ceil"),
            np.sqrt: _sqrt(True),
            **{getattr(math, name): _math(name) for name in C_FUNCTIONS},
        }.items()
    },
    math.gcd: (_gcd, 2),
    math.atan2: (_math("atan2"), 2),
    math.copysign: (_math("copysign"), 2),
}
"""Functions of numbers, and how many they take."""
