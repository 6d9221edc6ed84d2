"""Expressions of loops: names, constants, operators, comparisons, choices.

Owns the order of evaluation: what comes after `and`, `or`, `if` and a comparison that fails is not
computed, so it cannot leave.
"""

from __future__ import annotations

import ast
import math
from types import ModuleType
from typing import Any

import numpy as np

from lazyfuse.loops import kinds
from lazyfuse.loops.kinds import OTHER, ArrayKind, Object
from lazyfuse.loops.numbers import SIGNS
from lazyfuse.loops.objects import Letter
from lazyfuse.loops.rows import Rows
from lazyfuse.loops.text import Leaves, Maybe
from lazyfuse.loops.ufuncs import UFUNCS
from lazyfuse.loops.values import Elements, Item, Known, Number, Value, View
from lazyfuse.registry import THEIRS

_LIMITS = (np.iinfo, np.finfo)
_NUMBERS = (int, float, np.number)


class Expressions(Rows):
    """Writes expressions."""

    def item(self, node: ast.expr, wanted: str = "") -> Any:
        """What an expression stands for: a value, or the values of a tuple. `wanted`: the dtype of
        the element that it will be.
        """
        node = self.named(node)
        walk = getattr(self, "of_" + type(node).__name__.lower(), None)
        if walk is None:
            raise Leaves(type(node).__name__)
        chooses = wanted and isinstance(node, (ast.Call, ast.IfExp))
        return walk(node, wanted) if chooses else walk(node)

    def value(self, node: ast.expr, wanted: str = "") -> Value:
        return self.known(self.item(node, wanted))

    @staticmethod
    def known(found: Item) -> Value:
        """What an expression stands for, which has to be a number or an array."""
        if not isinstance(found, (Number, Elements)):
            raise Leaves("a tuple")
        return found

    def number(self, node: ast.expr, wanted: str = "") -> Number:
        found = self.value(node, wanted)
        if not isinstance(found, Number):
            raise Leaves("an array")
        return found

    def index(self, node: ast.expr) -> Number:
        """An integer that indexes, or counts."""
        found = self.number(node)
        if kinds.register(found.kind) != "i8":
            raise Leaves("an index that is no integer")
        return found._replace(kind="int")

    def truth(self, node: ast.expr) -> str:
        """Whether an expression holds, as a truth value of the text."""
        if isinstance(node, ast.BoolOp):
            result = self.temp(self.truth(node.values[0]))
            opened = 0
            for each in node.values[1:]:
                self.settle()
                self.open(f"if {result}:" if isinstance(node.op, ast.And) else f"if not {result}:")
                opened += 1
                self.put(f"{result} = {self.truth(each)}")
                self.settle()
            for _ in range(opened):
                self.close()
            return result
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return f"(not {self.truth(node.operand)})"
        if isinstance(node, ast.Compare):
            found = self.of_compare(node, is_test=True)
            if not isinstance(found, Number):
                raise Leaves("the truth of an array")
            return found.text
        return self.as_truth(self.number(node))

    def of_constant(self, node: ast.Constant) -> Value | Letter:
        number = node.value
        if number is True or number is False:
            return Number(str(number), "bool")
        if type(number) is int and abs(number) < 1 << 63:
            return Number(f"int64({number})", "int", max(1, number.bit_length()))
        if type(number) is str and len(number) == 1:
            return Letter(f"int64({ord(number)})")
        if type(number) is float:
            return Number(self.float(number), "float")
        if type(number) is complex:
            parts = f"{self.float(number.real)}, {self.float(number.imag)}"
            return Number(f"complex({parts})", "complex")
        raise Leaves("a constant")

    @staticmethod
    def float(number: float) -> str:
        if math.isinf(number) or math.isnan(number):
            return {"inf": "np.inf", "-inf": "(-np.inf)"}.get(str(number), "np.nan")
        return repr(number)

    def of_name(self, node: ast.Name) -> Any:
        kind = self.kinds.get(node.id, OTHER)
        if isinstance(kind, Maybe):
            self.leave(f"{node.id}_set == 0")  # asked again by later reads: this one may be skipped
            kind = kind.kind
        if kind == kinds.LETTER:
            return Letter(self.variable(node.id, kind))
        if isinstance(kind, kinds.Sequence):
            return self.sequence(node)
        if isinstance(kind, str) and kind != OTHER:
            if kind == kinds.LONG:
                return Number(self.variable(node.id, kind), "int")
            is_small = kind == "int" and node.id not in self.memory.wide
            return self.held(node.id, kind, kinds.SMALL + 1 if is_small else 63)
        if isinstance(kind, (ArrayKind, View)):
            return self.whole(self.part_of(self.array(node), []))
        if isinstance(kind, Object) and type(kind.value) in (float, int, bool):
            return self.of_constant(ast.Constant(kind.value))
        raise Leaves(node.id)

    def held(self, name: str, kind: str, bits: int = 63) -> Number:
        """The number that a variable holds."""
        held = self.variable(name, kind)
        return Number(held, kind, bits, f"{held}_tag" if "|" in kind else "")

    def of_known(self, node: Known) -> Value:
        return node.number

    def of_tuple(self, node: ast.Tuple) -> Item:
        return tuple([self.handle(x) or self.kept(self.item(x)) for x in node.elts])

    def kept(self, value: Item) -> Item:
        """A value that stays while names are assigned."""
        if isinstance(value, Number):
            tag = self.temp(value.tag) if value.tag else ""
            return value._replace(text=self.temp(value.text), tag=tag)
        if isinstance(value, Elements) and value.part is not None and value.part.view is not None:
            keys = tuple([self.temp(each) for each in value.part.keys])
            part = value.part._replace(sizes=tuple(map(self.temp, value.sizes)), keys=keys)
            return self.whole(part)
        raise Leaves("a tuple of other than numbers and views")

    def of_binop(self, node: ast.BinOp) -> Value:
        left = self.value(node.left)
        right = self.value(node.right)
        if isinstance(node.op, ast.MatMult):
            return self.dot(left, right, by_matmul=True)
        if isinstance(left, Number) and isinstance(right, Number):
            return self.binary(node.op, left, right)
        return self.of_arrays(node.op, left, right)

    def of_unaryop(self, node: ast.UnaryOp) -> Value:
        if isinstance(node.op, ast.Not):
            return Number(f"(not {self.truth(node.operand)})", "bool")
        constant = node.operand.value if isinstance(node.operand, ast.Constant) else None
        if (
            isinstance(node.op, ast.USub)
            and isinstance(constant, (int, float))
            and constant is not True
        ):
            return self.number(ast.Constant(-constant))
        found = self.value(node.operand)
        if isinstance(found, Elements):
            if isinstance(node.op, ast.USub):
                return self.negative(found)
            if not isinstance(node.op, ast.Invert):
                raise Leaves("an operator of an array")
            return self.ufunc(np.invert, [found])
        kind, text = found.kind, found.text
        if isinstance(node.op, ast.USub):
            if kind in ("int|f8", "int|float"):
                raise Leaves("the negative of an integer or a float")  # zero has no sign, or has
            if kinds.is_float(kind) or kinds.is_complex(kind):
                return found._replace(text=f"(-{text})")
            if kind == "bool":
                return Number(f"(-int64(1 if {text} else 0))", "int", 2)
            if kind in ("int", "i8", "int|i8"):
                if found.bits > 62:
                    self.leave(f"{text} == {-(1 << 63)}")
                return found._replace(text=f"(-{text})")
        if isinstance(node.op, ast.Invert) and kind in ("int", "i8", "i4", "i2", "i1"):
            return found._replace(text=f"(~{text})", bits=min(63, found.bits + 1))
        if isinstance(node.op, ast.UAdd) and kind in ("int", "float", "f8", "float|f8", "int|i8"):
            return found
        raise Leaves("an operator")

    def of_compare(self, node: ast.Compare, is_test: bool = False) -> Number:
        """A comparison. `is_test`: its type does not matter."""
        left = self.item(node.left)
        if isinstance(left, Letter):
            return self._letters(left, node)
        if not isinstance(left, (Number, Elements)):
            raise Leaves("a comparison")
        is_array = isinstance(left, Elements)
        if is_array or (len(node.ops) == 1 and self.is_array(node.comparators[0])):
            right = self.value(node.comparators[0])
            function = UFUNCS.get(type(node.ops[0]))
            if function is None or len(node.ops) > 1:
                raise Leaves("a comparison of arrays")
            return self.ufunc(function, [left, right])  # type: ignore[return-value]
        assert isinstance(left, Number)
        first = left
        result = ""
        opened = 0
        kind = "bool"
        for operator, each in zip(node.ops, node.comparators, strict=True):
            if result:
                self.settle()
                self.open(f"if {result}:")
                opened += 1
            second = self.number(each)
            if not is_test and (first.tag or second.tag):
                raise Leaves("a comparison of a number of several types")
            found, kind_now = self.compared(operator, first, second)
            if result:
                if kind_now != kind and not is_test:
                    raise Leaves("a comparison of several types")
                self.put(f"{result} = {found}")
            else:
                result, kind = self.temp(found) if len(node.ops) > 1 else found, kind_now
            first = second
            self.settle()
        for _ in range(opened):
            self.close()
        return Number(f"({result})", kind)

    def _letters(self, first: Letter, node: ast.Compare) -> Number:
        """Comparisons of strings of one character."""
        found = []
        for operator, each in zip(node.ops, node.comparators, strict=True):
            text = each.value if isinstance(each, ast.Constant) else None
            is_last = each is node.comparators[-1]
            if isinstance(operator, (ast.In, ast.NotIn)) and type(text) is str and is_last:
                among = " | ".join(f"({first.text} == {ord(x)})" for x in text) or "False"
                found.append(f"(not ({among}))" if isinstance(operator, ast.NotIn) else among)
                continue
            second = self.item(each)  # it has no effects
            if not isinstance(second, Letter) or type(operator) not in SIGNS:
                raise Leaves("a comparison of strings")
            found.append(f"{first.text} {SIGNS[type(operator)]} {second.text}")
            first = second
        return Number(self.temp(" & ".join(f"({x})" for x in found)), "bool")

    def is_array(self, node: ast.expr) -> bool:
        """Whether an expression is the name of an array."""
        node = self.named(node)
        kind = self.kinds.get(node.id) if isinstance(node, ast.Name) else None
        kind = kind.kind if isinstance(kind, Maybe) else kind
        return isinstance(kind, (ArrayKind, View))

    def of_boolop(self, node: ast.BoolOp) -> Value:
        found = self.number(node.values[0])
        if found.tag:
            raise Leaves("a number of several types")
        result = self.temp(found.text)
        opened = 0
        for each in node.values[1:]:
            self.settle()
            test = self.as_truth(found._replace(text=result))
            self.open(f"if {test}:" if isinstance(node.op, ast.And) else f"if not {test}:")
            opened += 1
            further = self.number(each)
            if further.kind != found.kind:
                raise Leaves("`and` or `or` of several types")
            self.put(f"{result} = {further.text}")
            self.settle()
        for _ in range(opened):
            self.close()
        return Number(result, found.kind)

    def of_ifexp(self, node: ast.IfExp, wanted: str = "") -> Value:
        test = self.truth(node.test)
        self.settle()
        self.open(f"if {test}:")
        first = self.number(node.body, wanted)
        indent = self.indent
        self.temps += 1
        result = f"t{self.temps}"
        self.settle()
        at = len(self.lines)
        self.put(f"{result} = {first.text}")
        self.close()
        self.open("else:")
        second = self.number(node.orelse, wanted)
        both = kinds.union(first.kind, second.kind)
        if both is not None and not wanted:
            self.settle()
            one, other = self.as_union(first, both), self.as_union(second, both)
            self.lines[at : at + 1] = [
                "  " * indent + f"{result} = {one.text}",
                "  " * indent + f"{result}_tag = {one.tag}",
            ]
            self.put(f"{result} = {other.text}")
            self.put(f"{result}_tag = {other.tag}")
            self.close()
            return Number(result, both, max(first.bits, second.bits), f"{result}_tag")
        if second.kind != first.kind:
            if not wanted:
                raise Leaves("a choice between several types")
            self.settle()
            self.put(f"{result} = {self.alike(second, wanted)}")
            self.lines[at] = "  " * indent + f"{result} = {self.alike(first, wanted)}"
            self.close()
            return Number(result, wanted)
        self.settle()
        self.put(f"{result} = {second.text}")
        self.close()
        return Number(result, first.kind, max(first.bits, second.bits))

    def of_attribute(self, node: ast.Attribute) -> Value:
        found = self.object(node)
        if type(found) in (float, int):
            return self.number(ast.Constant(found))
        if type(found) is np.float64:
            return Number(self.float(float(found)), "f8")
        if isinstance(node.value, ast.Name) and node.attr == "size":
            sizes = " * ".join(self.array(node.value).sizes)
            return Number(f"({sizes})", "int", kinds.SMALL)
        if node.attr in ("real", "imag"):
            value = self.number(node.value)
            if kinds.is_complex(value.kind):
                kind = {"complex": "float", "c16": "f8"}.get(value.kind, "float|f8")
                return Number(f"{self.temp(value.text)}.{node.attr}", kind, tag=value.tag)
        raise Leaves(f"attribute {node.attr}")

    def object(self, node: ast.expr) -> Any:
        """The function, module or number of a module that an expression names; None if none."""
        node = self.named(node)
        if isinstance(node, ast.Name):
            kind = self.kinds.get(node.id)
            return kind.value if isinstance(kind, Object) else None
        if isinstance(node, ast.Attribute):
            owner = self.object(node.value)
            if isinstance(owner, ModuleType):
                found = getattr(owner, node.attr, None)
                if vars(owner).get(node.attr) is found:  # the program may put another there
                    self.constants.append((vars(owner).get, (node.attr,), found))
                return found
            if type(owner) in _LIMITS:
                return getattr(owner, node.attr, None)
        if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
            function, kind = self.object(node.func), self.object(node.args[0])
            known = isinstance(kind, type) and isinstance(function, type)
            if known and THEIRS.get(function, function) in _LIMITS and issubclass(kind, _NUMBERS):
                return function(kind)
        return None
