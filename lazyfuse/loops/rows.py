"""Rows in loops: expressions of rows and columns, what is made of them, and where they go.

Owns the statements that write a part of an array. Such a statement first computes all elements in
working memory, then asks the flags of the processor whether NumPy would have warned, and then
stores; so operands may overlap what is written.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np

from lazyfuse.loops import kinds
from lazyfuse.loops.kinds import ArrayKind
from lazyfuse.loops.objects import Held, Letter, Objects
from lazyfuse.loops.text import END, ROOM, Leaves, Maybe
from lazyfuse.loops.values import BITS, Array, Flat, Number, Part, Row, Value, View, side_by_side

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
SIGNED = tuple(_SIGNS)
_POWERS = {"int64(2)": np.square, "2.0": np.square, "0.5": np.sqrt}
_PLACES = ("argmax", "argmin")
Every = Callable[[], AbstractContextManager[tuple[Any, str]]]
"""A loop over elements: their indices, and where they are side by side."""


class Rows(Objects):
    """Writes what reads and writes rows."""

    def of_subscript(self, node: ast.Subscript) -> Value | Held | Letter:
        if isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
            sizes = self.array(node.value.value).sizes
            axis = node.slice.value if isinstance(node.slice, ast.Constant) else None
            if type(axis) is int and -len(sizes) <= axis < len(sizes):
                return Number(sizes[axis], "int", kinds.SMALL)
            raise Leaves("a shape")
        held = self.sequence(node.value)
        if held is not None:
            return self.item_at(held, self.inside(node.slice, self.size(held)))
        return self.subscript(node)

    def subscript(self, node: ast.Subscript) -> Value:
        if isinstance(node.slice, (ast.Name, ast.Compare, ast.Call)):
            kind = self.kinds.get(node.slice.id) if isinstance(node.slice, ast.Name) else None
            kind = kind.kind if isinstance(kind, Maybe) else kind
            if isinstance(kind, (View, ArrayKind)) or self._compares_rows(node.slice):
                return self.gathered(self.array(node.value), self.value(node.slice))
        if self.is_grid(node):
            return self.grid(self.array(node.value), self._keys(node))
        if self.is_row(node):
            return self.whole(self.part(node))
        return self.element(self.place(node))

    def _compares_rows(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Compare) and any(
            isinstance(self.kinds.get(name), (View, ArrayKind)) for name in self.names(node)
        )

    def gathered(self, array: Array, places: Value) -> Row:
        """`array[places]`: a new array."""
        if isinstance(places, Row) and places.kind == "b1" and len(array.sizes) == 1:
            return self._selected(array, places)
        if not isinstance(places, Row) or places.kind[0] not in "iu" or len(array.sizes) != 1:
            raise Leaves("an index of this type")
        size, bad = array.sizes[0], self.temp("0")
        with self.each(places.length, is_alone=False) as q:
            at = places.element(q)
            self.put(f"{bad} = 1 if ({at} < -{size}) | ({at} >= {size}) else {bad}")
        self.leave(f"{bad} != 0")
        part = self.part_of(array, [ast.Slice()])
        one = self.whole(part).element

        def element(q: str) -> str:
            at = places.element(q)
            return one(f"({at} + {size} if {at} < 0 else {at})")

        return Row(array.kind.code, places.length, element)

    def _selected(self, array: Array, mask: Row) -> Row:
        """`array[mask]`: a new array."""
        part = self.part_of(array, [ast.Slice()])
        self.leave(f"{mask.length} != {part.length}")
        held = self.room(mask.length, part.code)
        count = self.temp("int64(0)")
        self.put(f"patience = patience + {mask.length}")
        at = mask.part or self.computed(mask)
        if part.step == at.step == "int64(1)":
            given = [f"shifted({each.pointer}, {each.first})" for each in (part, at)]
            sizes = f"{mask.length}, {mask.length}"
            self.put(f"{count} = compact_{part.code[1:]}({held}, {', '.join(given)}, {sizes})")
            return self.whole(Part(held, "int64(0)", count, "int64(1)", part.code))
        with self.each(mask.length, is_alone=False) as q, self.under(f"if {mask.element(q)}:"):
            self.put(f"{held}[{count}] = {part.pointer}[{part.at(q)}]")
            self.put(f"{count} = {count} + 1")
        return self.whole(Part(held, "int64(0)", count, "int64(1)", part.code))

    def where(self, test: Flat, first: Flat, second: Flat) -> Row:
        """`np.where` of rows."""
        if not isinstance(test, Row) or test.kind != "b1":
            raise Leaves("`where` of other than truth values")
        code = self.common(first, second)
        self.alike_long(test, first, second)
        a, b = [self.as_code(each, code) for each in (first, second)]
        return Row(code, test.length, lambda q: f"({a(q)} if {test.element(q)} else {b(q)})")

    def alike_long(self, *values: Flat) -> str:
        """The length of rows; leaves where they differ: one element would be repeated."""
        first, *others = [each.length for each in values if isinstance(each, Row)]
        for each in others:
            if each != first:
                self.leave(f"{each} != {first}")
        return first

    def unpacked(self, row: Row, count: int) -> tuple[Number, ...]:
        """The elements of a row; leaves where there are more or less."""
        self.leave(f"{row.length} != {count}")
        if row.part is None:
            row = self.whole(self.computed(row))
        code, bits = row.kind, BITS.get(row.kind, 63)
        return tuple([Number(self.temp(row.element(str(k))), code, bits) for k in range(count)])

    def store_array(self, name: str, row: Row) -> None:
        """Give a name an array of its own."""
        held = row.part
        if held is None or (held.first, held.step) != ("int64(0)", "int64(1)"):
            held = self.computed(row)
        self.keep(name, held, (row.length,))

    def keep(self, name: str, held: Part, sizes: tuple[str, ...]) -> None:
        """Give a name an array of these sizes, with elements that lie side by side."""
        if not self.is_variable(name) or self.routine is not None:
            raise Leaves("an array of its own")
        self.makes = self.makes or set()
        kind = ArrayKind(held.code, len(sizes), True, True)
        pointer, *words, origin = self.array_words(name, kind)
        size = self.temp(f"({held.length} * {held.code[1:]} + 63) // 64 * 64")
        is_shared = name in self.memory.aliased
        block = self.temp("arena") if is_shared else f"{pointer}lace"
        with self.under("if True:" if is_shared else f"if {size} > {block}_size:"):
            self.leave(f"arena + {size} > meta[{END}]")
            self.put(f"{block} = arena")
            self.put(f"arena = arena + {size}")
            if not is_shared:
                self.own.add(block)
                self.put(f"{block}_size = {size}")
        self.put(f"{pointer} = pointer_{held.code}({block})")
        self.copied(held, Part(pointer, "int64(0)", held.length, "int64(1)", held.code))
        steps = side_by_side(sizes)
        for word, text in zip([*words, origin], [*sizes, *steps, "int64(-1)"], strict=True):
            self.put(f"{word} = {text}")
        self.assigned(name, kind)

    def copied(self, source: Part, target: Part) -> None:
        """Write elements that are in working memory."""
        with self.each(target.length) as q:
            element = f"{source.pointer}[{source.at(q)}]"
            if target.code not in kinds.WIDE:
                element = f"{kinds.CASTS[target.code]}({element})"
            self.put(f"{target.pointer}[{target.at(q)}] = {element}")

    def _flipped(self, found: Value) -> Row:
        if not isinstance(found, Row) or found.part is None:
            raise Leaves("flip")
        part = found.part
        last = self.temp(
            f"{part.first} + ({part.length} - 1) * {part.step} if {part.length} > 0 else 0"
        )
        return self.whole(part._replace(first=last, step=f"(-{part.step})", view=None))

    def of_rows(self, op: ast.operator, left: Flat, right: Flat) -> Row:
        """An operator on arrays, element by element."""
        sign = _SIGNS.get(type(op))
        if sign is None or any(kinds.is_complex(each.kind) for each in (left, right)):
            return self._by_ufunc(op, left, right)
        code = self.common(left, right)
        if code[0] != "f" and sign == "/":
            code = "f8"
        if code[0] == "f" and sign not in "+-*/":
            raise Leaves("an operator of arrays of floats")
        count = self.alike_long(left, right)
        a, b = [self.as_code(each, code) for each in (left, right)]
        return Row(code, count, lambda q: self.fitted(f"({a(q)} {sign} {b(q)})", code))

    def _by_ufunc(self, op: ast.operator, left: Flat, right: Flat) -> Row:
        given, function = [left, right], UFUNCS.get(type(op))
        if isinstance(op, ast.Pow) and isinstance(right, Number):
            function, given = self.power_of(right), [left]
        if function is None or (isinstance(left, Row) and left.kind == "f4"):
            raise Leaves("an operator of arrays")
        return self.ufunc(function, given)  # type: ignore[return-value]

    @staticmethod
    def power_of(exponent: Number) -> np.ufunc | None:
        """What NumPy computes instead of a power: it looks at the exponent."""
        return _POWERS.get(exponent.text)

    @staticmethod
    def common(*values: Flat) -> str:
        """NumPy's type for rows, or rows and numbers."""
        given = [each.kind for each in values]
        code = kinds.promoted(*given)
        if (
            code is None
            or {"b1", "bool"} & set(given)
            or not any(isinstance(x, Row) for x in values)
        ):
            raise Leaves("arrays of these types")
        return code

    @staticmethod
    def fitted(text: str, code: str) -> str:
        """A result as an element of that type: integers wrap, as in NumPy."""
        if code in kinds.WIDE:
            return text
        if code == "f4":
            return f"float64(float32({text}))"
        return f"int64({kinds.CASTS[code]}({text}))"

    def as_code(self, value: Flat, code: str) -> Callable[[str], str]:
        if isinstance(value, Row):
            element = value.element
            if code[0] == "f" and value.kind[0] != "f":
                return lambda q: self.fitted(f"float64({element(q)})", code)
            return element
        text = self.widened(value)
        if code[0] == "f":
            held = self.temp(self.fitted(f"float64({text})", code))
            if code == "f4":
                self.leave(f"abs({held}) == np.inf")
        else:
            held = self.temp(text)
            if value.kind == "int" and code != "i8":  # Python's integer has to fit
                self.leave(f"int64({kinds.CASTS[code]}({held})) != {held}")
        return lambda q: held

    def room(self, count: str, code: str = "f8") -> str:
        """Working memory for so many elements of a type, until the statement ends."""
        if self.routine is not None:
            raise Leaves("rows in a function that calls itself")
        self.leave(f"{count} > meta[{ROOM}]")
        name = f"scratch{self.block}_{code}"
        self.blocks[name] = self.block, code
        self.block += 1
        return name

    def _one_by_one(self, count: str) -> Every:
        @contextmanager
        def every() -> Iterator[tuple[Any, str]]:
            with self.each(count) as q:
                yield q, q

        return every

    def computed(self, row: Row, code: str = "", every: Every | None = None) -> Part:
        """The elements of an expression in working memory, as that type; leaves where NumPy would
        warn. `every`: the loop over them, if they have several indices.
        """
        code = code or row.kind
        memory = self.room(row.length, code)
        self.put(f"patience = patience + {row.length}")
        self.put("clear_flags()")
        # nothing else lies in working memory
        with (every or self._one_by_one(row.length))() as (q, at):
            element = row.element(q)
            if code != row.kind:
                element = self.fitted(f"float64({element})" if code[0] == "f" else element, code)
            if code not in kinds.WIDE:
                element = f"{kinds.CASTS[code]}({element})"
            self.put(f"{memory}[{at}] = {element}")
        if code[0] in "fc" or row.kind[0] == "f":
            self.leave("(test_flags() & 11) != 0")
        return Part(memory, "int64(0)", row.length, "int64(1)", code)

    @staticmethod
    def check_stored(code: str, kind: str, in_place: bool) -> None:
        """Whether elements of one type may be stored as those of another."""
        if {"b1", "c16"} & {code, kind} and code != kind:
            raise Leaves("an assignment between types")
        if code[0] != "f" and kind[0] == "f":
            raise Leaves("an assignment of floats to integers")
        if in_place and not np.can_cast(kind, code, "same_kind"):
            raise Leaves("an operator in place between types")

    def store_row(self, target: ast.Subscript, found: Flat, in_place: bool = False) -> None:
        self.settle()
        part = self.part(ast.Subscript(target.value, target.slice, ast.Store()))
        if part.step != "int64(1)":
            self.leave(f"({part.step} == 0) & ({part.length} > 1)")
        if isinstance(found, Row):
            self.check_stored(part.code, found.kind, in_place)
            if found.length != part.length:
                self.leave(f"{found.length} != {part.length}")
            self.copied(self.computed(found, part.code), part)
            return
        value = self.temp(self.as_element(found, part.code))
        self.settle()
        with self.each(part.length) as q:
            self.put(f"{part.pointer}[{part.at(q)}] = {value}")

    def reduced(self, name: str, row: Row) -> Number:
        """`row.sum()` and others; leaves where the row is empty, and where zeros or NaN decide."""
        if row.kind == "b1" and name in ("any", "all", "sum"):
            return self._counted(name, row)
        if row.kind in ("b1", "f4", "c16") or name not in ("sum", "mean", "max", "min", *_PLACES):
            raise Leaves(f"{name} of an array of this type")
        if name == "sum" and row.kind[0] == "u":
            raise Leaves("a sum of uint64")
        is_float = row.kind[0] == "f"
        if name != "sum":
            self.leave(f"{row.length} == 0")
        if name == "mean" and not is_float:
            raise Leaves("mean of integers")
        held = self.computed(row)
        one = self.whole(held).element
        if name in ("sum", "mean"):
            total = self.temp("0.0" if is_float else "int64(0)")
            if is_float:
                with self.under(f"if {row.length} > 0:"):
                    self.put(f"{total} = pairwise_f8({held.pointer}, {row.length})")
                self.leave(f"{total} - {total} != 0.0")
            else:
                with self.each(row.length, is_alone=False) as q:
                    self.put(f"{total} = {total} + {one(q)}")
            if name == "mean":
                total = self.temp(f"{total} / float64({row.length})")
            return Number(total, "f8" if is_float else "i8")
        sign = ">" if name.endswith("max") else "<"
        best, place = self.temp(one("0")), self.temp("int64(0)")
        odd = self.temp("int64(0)")
        with self.each(row.length, is_alone=False) as q:
            element = one(q)
            if is_float:
                self.put(f"{odd} = 1 if {element} != {element} else {odd}")
            with self.under(f"if {element} {sign} {best}:"):
                self.put(f"{best} = {element}")
                self.put(f"{place} = {q}")
        if is_float:
            self.leave(f"{odd} != 0")
        if name in _PLACES:
            return Number(place, "i8", kinds.SMALL)
        if is_float:
            self.leave(f"{best} == 0.0")  # NumPy may find the other zero
        return Number(best, row.kind)

    def _counted(self, name: str, row: Row) -> Number:
        """How many truth values hold, or whether any, or all do."""
        count = self.temp("int64(0)")
        self.put(f"patience = patience + {row.length}")
        with self.each(row.length, is_alone=False) as q:
            self.put(f"{count} = {count} + (1 if {row.element(q)} else 0)")
        if name == "sum":
            return Number(count, "i8", kinds.SMALL)
        return Number(f"({count} {'> 0' if name == 'any' else f'== {row.length}'})", "b1")

    def dot(self, left: Value, right: Value, by_matmul: bool) -> Number:
        """The product of two rows, by NumPy's BLAS."""
        if not (isinstance(left, Row) and isinstance(right, Row)):
            raise Leaves("a product of other than rows")
        code = left.kind
        if code not in ("f4", "f8") or right.kind != code:
            raise Leaves("a product of this type")
        count = self.temp(self.alike_long(left, right))
        texts, firsts = [], []
        for each in (left, right):
            part = each.part or self.computed(each)
            if part.step[:2] == "(-" and by_matmul:
                raise Leaves("a product of what runs backwards")
            if part.step[:2] == "(-":
                memory = Part(self.room(count, code), "int64(0)", count, "int64(1)", code)
                self.copied(part, memory)  # so does NumPy
                part = memory
            step, start = self.temp(part.step), self.temp(part.first)
            if part.step != "int64(1)":
                self.leave(f"({step} <= 0) & ({count} > 1)")
            texts.append(f"shifted({part.pointer}, {start}), {step}")
            firsts.append(f"{part.pointer}[{start}]")
        self.put(f"patience = patience + {count}")
        product = f"float64(blas_dot({count}, {texts[0]}, {texts[1]}))"
        if not by_matmul:  # `dot` takes one element for a number: zero keeps its sign
            one = f"float64({firsts[0]} * {firsts[1]})"
            product = f"({product} if {count} > 1 else {one})"
        held = self.temp(f"{product} if {count} > 0 else 0.0")
        # NumPy warns of what it raises
        self.leave(f"{held} - {held} != 0.0")
        return Number(held, code)
