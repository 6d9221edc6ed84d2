"""Rows in loops: what is picked from arrays, and what becomes of all elements of one."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import numpy as np

from lazyfuse.loops import kinds
from lazyfuse.loops.objects import Held, Letter
from lazyfuse.loops.text import Leaves
from lazyfuse.loops.ufuncs import Ufuncs
from lazyfuse.loops.values import (
    BITS,
    ONE,
    ZERO,
    Array,
    Elements,
    Number,
    Part,
    Value,
    side_by_side,
)

_PLACES = ("argmax", "argmin")
_SUMS = ("sum", "mean", "count_nonzero")
_COUNT = str(kinds.of_value(np.count_nonzero(()))[0])
"""The kind of a count; NumPy's versions differ."""


class Rows(Ufuncs):
    """Writes what picks and reduces elements."""

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
        if isinstance(node.value, (ast.Call, ast.BinOp)):
            return self._element_of(self.value(node.value), node.slice)
        if self.picks(node.slice):
            return self._gathered(self.array(node.value), self._picked(node))
        if self.is_part(node):
            return self.whole(self.part(node))
        return self.element(self.place(node))

    def _element_of(self, found: Value, key: ast.expr) -> Number:
        """An element of what has been computed."""
        if not isinstance(found, Elements) or not found.is_row() or self.picks(key):
            raise Leaves("a part of an expression")
        code, row = found.kind, self.whole(self.flat(found))
        text = self.temp(row.element((self.inside(key, found.size),)))
        return Number(text, code, BITS.get(code, 63))

    def picks(self, key: ast.expr) -> bool:
        """Whether an index is an array."""
        if isinstance(key, (ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call)):
            if isinstance(key, ast.Call) and type(self.object(key.func)) not in kinds.UFUNCS:
                return False
            return any(self.picks(each) for each in ast.iter_child_nodes(key))  # type: ignore[arg-type]
        if isinstance(key, ast.Subscript):
            return self.sequence_kind(key.value) is None and self.is_part(key)
        return isinstance(key, ast.List) or self.is_array(key)

    def _picked(self, node: ast.Subscript) -> Elements:
        key = node.slice
        found = self.listed(key.elts) if isinstance(key, ast.List) else self.value(key)
        if not isinstance(found, Elements) or not found.is_row() or found.kind[0] not in "biu":
            raise Leaves("an index of this type")
        return found

    def _inside_all(self, places: Elements, size: str) -> None:
        """Leave where one of several indices is out of range."""
        bad = self.temp("int64(0)")
        with self.each(places.size, is_alone=False) as q:
            at = places.element((q,))
            self.put(f"{bad} = 1 if ({at} < -{size}) | ({at} >= {size}) else {bad}")
        self.leave(f"{bad} != 0")

    def _gathered(self, array: Array, places: Elements) -> Elements:
        """`array[places]`: a new array."""
        part = self.part_of(array, [])
        if places.kind == "b1":
            return self._selected(part, places)
        size, one, index = array.sizes[0], self.whole(part).element, places.element
        self._inside_all(places, size)

        def element(found: Sequence[str]) -> str:
            return one([_from_end(index(found[:1]), size), *found[1:]])

        return self.elements(part.code, (*places.sizes, *part.sizes[1:]), element)

    def scatter(self, target: ast.Subscript, found: Value, in_place: bool = False) -> None:
        """`array[places] = found`: elements, or rows."""
        places = self._picked(target)
        part = self.part(ast.Subscript(target.value, ast.Slice(), ast.Store()))
        index = self.whole(self.flat(places))
        count, rest, size = places.size, part.sizes[1:], part.sizes[0]
        if places.kind == "b1":
            if rest:
                raise Leaves("a mask of rows")
            self.leave(f"{count} != {size}")
            count = self._counted("sum", index).text
        else:
            self._inside_all(index, size)
        source = self.source(found, part.code, (count, *rest), in_place)
        self.settle()
        last = self.temp("int64(0)")
        with self.places((places.size, *rest), is_alone=False) as ((q, *more), _):
            at = index.element((q,))
            if places.kind != "b1":
                at = self.temp(_from_end(at, size))
                self.put(f"{part.pointer}[{part.at((at, *more))}] = {source((q, *more))}")
                return
            with self.under(f"if {at}:"):
                self.put(f"{part.pointer}[{part.at((q,))}] = {source((last,))}")
                self.put(f"{last} = {last} + 1")

    def _selected(self, part: Part, mask: Elements) -> Elements:
        """`array[mask]`: a new array."""
        if len(part.sizes) > 1:
            raise Leaves("a mask of rows")
        size = part.sizes[0]
        self.leave(f"{mask.size} != {size}")
        held = self.room(mask.size, part.code)
        count = self.temp("int64(0)")
        self.put(f"patience = patience + {mask.size}")
        at = mask.part or self.computed(mask)
        if part.is_flat() and at.is_flat():
            given = [f"shifted({each.pointer}, {each.first})" for each in (part, at)]
            sizes = f"{size}, {size}"
            self.put(f"{count} = compact_{part.code[1:]}({held}, {', '.join(given)}, {sizes})")
        else:
            with self.each(size, is_alone=False) as q, self.under(f"if {mask.element((q,))}:"):
                self.put(f"{held}[{count}] = {part.pointer}[{part.at((q,))}]")
                self.put(f"{count} = {count} + 1")
        return self.whole(self.in_memory(held, (count,), part.code))

    def unpacked(self, row: Elements, count: int) -> tuple[Number, ...]:
        """The elements of a row; leaves where there are more or less."""
        if not row.is_row():
            raise Leaves("a tuple of rows")
        self.leave(f"{row.size} != {count}")
        if row.part is None:
            row = self.whole(self.computed(row))
        code, bits = row.kind, BITS.get(row.kind, 63)
        found = [self.temp(row.element((str(k),))) for k in range(count)]
        return tuple([Number(each, code, bits) for each in found])

    def flipped(self, found: Value) -> Elements:
        """`np.flip` of a row."""
        if not isinstance(found, Elements) or found.part is None or not found.is_row():
            raise Leaves("flip")
        part, count = found.part, found.size
        last = self.temp(f"{part.first} + ({count} - 1) * {part.steps[0]} if {count} > 0 else 0")
        return self.whole(part._replace(first=last, steps=(f"(-{part.steps[0]})",), view=None))

    def reduced(self, name: str, row: Elements) -> Number:
        """`row.sum()` and others; leaves where the row is empty, and where zeros or NaN decide."""
        if not row.is_row():
            row = self._flattened(name, row)
        if row.kind == "b1" and name in ("any", "all", "sum", "count_nonzero"):
            return self._counted(name, row)
        if row.kind in ("b1", "f4", "c16") or name not in ("sum", "mean", "max", "min", *_PLACES):
            raise Leaves(f"{name} of an array of this type")
        if name == "sum" and row.kind[0] == "u":
            raise Leaves("a sum of uint64")
        is_float = row.kind[0] == "f"
        if name != "sum":
            self.leave(f"{row.size} == 0")
        if name == "mean" and not is_float:
            raise Leaves("mean of integers")
        held = self.flat(row)
        one = self.whole(held).element
        if name in ("sum", "mean"):
            total = self.temp("0.0" if is_float else "int64(0)")
            if is_float:
                with self.under(f"if {row.size} > 0:"):
                    self.put(f"{total} = pairwise_f8({held.pointer}, {row.size})")
                self.leave(f"{total} - {total} != 0.0")
            else:
                with self.each(row.size, is_alone=False) as q:
                    self.put(f"{total} = {total} + {one((q,))}")
            if name == "mean":
                total = self.temp(f"{total} / float64({row.size})")
            return Number(total, "f8" if is_float else "i8")
        sign = ">" if name.endswith("max") else "<"
        best, place = self.temp(one(("0",))), self.temp("int64(0)")
        odd = self.temp("int64(0)")
        with self.each(row.size, is_alone=False) as q:
            element = one((q,))
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

    def along(self, name: str, grid: Elements, axis: int) -> Elements:
        """`grid.sum(axis=1)` and others, of two axes; leaves where NaN or zeros of both signs
        decide.
        """
        kind, is_sum = grid.kind, name in _SUMS
        known = {"sum": ("f8", "i8", "b1"), "mean": ("f8",), "count_nonzero": ("b1",)}
        known |= dict.fromkeys(("max", "min"), ("f8", *[x for x in kinds.SCALARS if x[0] in "iu"]))
        if len(grid.sizes) != 2 or not -2 <= axis < 2 or kind not in known.get(name, ()):
            raise Leaves("a reduction along an axis")
        of_rows = axis % 2 == 1
        one = self.whole(self.flat(grid))
        assert one.part is not None
        (n, m), pointer = grid.sizes, one.part.pointer
        kept, gone = (n, m) if of_rows else (m, n)
        self.leave(f"{gone} == 0")
        code = "i8" if kind == "b1" else kind
        out = self.in_memory(self.room(kept, code), (kept,), code)
        in_pairs = is_sum and code == "f8"
        if in_pairs and not of_rows:
            self.leave(f"{m} == 1")  # what lies side by side is added in pairs
        with self.watching(in_pairs):
            with self.each(kept, is_alone=False) as k:
                start = "0.0" if code == "f8" else ZERO
                if in_pairs and of_rows:
                    start = f"0.0 + pairwise_f8(shifted({pointer}, {k} * {m}), {m})"
                elif not is_sum:
                    start = self.as_stored(one.part, (k, ZERO) if of_rows else (ZERO, k))
                self.put(f"{out.pointer}[{k}] = {start}")
            if not (in_pairs and of_rows):
                self._combined(name, out, one, of_rows)
            if name == "mean":
                with self.each(kept) as k:
                    self.put(f"{out.pointer}[{k}] = {out.pointer}[{k}] / float64({gone})")
        return self.whole(out)

    def _combined(self, name: str, out: Part, one: Elements, of_rows: bool) -> None:
        """Add the elements, or find the extremes, of each row or column."""
        odd, load = self.temp("int64(0)"), self.whole(out).element
        with self.places(one.sizes, is_alone=False) as (places, _):
            k = places[0] if of_rows else places[1]
            x, best = self.temp(one.element(places)), self.temp(load((k,)))
            if name in _SUMS:
                x = f"int64(1 if {x} else 0)" if one.kind == "b1" else x
                self.put(f"{out.pointer}[{k}] = {best} + {x}")
                return
            if one.kind == "f8":
                zeros = f"({x} == 0.0) & ({best} == 0.0)"
                differ = f"{zeros} & ({x}.view(np.int64) != {best}.view(np.int64))"
                self.put(f"{odd} = 1 if ({x} != {x}) | ({best} != {best}) | ({differ}) else {odd}")
            held = self.temp(f"{x} if {x} {'>' if name == 'max' else '<'} {best} else {best}")
            self.put(f"{out.pointer}[{k}] = {self.cast(held, out.code)}")
        self.leave(f"{odd} != 0")

    def _flattened(self, name: str, grid: Elements) -> Elements:
        """What a reduction goes over; leaves where NumPy does not add side by side."""
        part = grid.part
        is_float = grid.kind[0] == "f"
        if part is not None and is_float and name in ("sum", "mean") and not part.is_flat():
            for step, whole in zip(part.steps, side_by_side(part.sizes), strict=True):
                self.leave(f"{step} != {whole}")
        held = self.flat(grid)
        return self.whole(self.in_memory(held.pointer, (grid.size,), held.code))

    def _counted(self, name: str, row: Elements) -> Number:
        """How many truth values hold, or whether any, or all do."""
        count = self.temp("int64(0)")
        self.put(f"patience = patience + {row.size}")
        with self.watching(row.warns), self.each(row.size, is_alone=False) as q:
            self.put(f"{count} = {count} + (1 if {row.element((q,))} else 0)")
        if name in _SUMS:
            return Number(count, "i8" if name == "sum" else _COUNT, kinds.SMALL)
        return Number(f"({count} {'> 0' if name == 'any' else f'== {row.size}'})", "b1")

    def dot(self, left: Value, right: Value, by_matmul: bool) -> Number:
        """The product of two rows, by NumPy's BLAS."""
        for each in (left, right):
            if not isinstance(each, Elements) or not each.is_row():
                raise Leaves("a product of other than rows")
        assert isinstance(left, Elements)
        assert isinstance(right, Elements)
        code = left.kind
        if code not in ("f4", "f8") or right.kind != code:
            raise Leaves("a product of this type")
        sizes = self.broadcast((left, right))
        if left.sizes != right.sizes and ONE in (*left.sizes, *right.sizes):
            raise Leaves("a product of other than rows")
        count = self.temp(sizes[0])
        texts, firsts = [], []
        for each in (left, right):
            part = each.part or self.computed(each)
            if part.steps[0][:2] == "(-":
                if by_matmul:
                    raise Leaves("a product of what runs backwards")
                memory = self.in_memory(self.room(count, code), part.sizes, code)
                self.copied(part, memory)  # so does NumPy
                part = memory
            step, start = self.temp(part.steps[0]), self.temp(part.first)
            if part.steps[0] != ONE:
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


def _from_end(at: str, size: str) -> str:
    """An index that is in range, counted from the beginning."""
    return f"({at} + {size} if {at} < 0 else {at})"
