"""Places in loops: arrays that names hold, their elements, rows, columns and slices.

Owns indices, counted from the end, too, and what is kept of elements that functions overwrite.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Sequence
from typing import Any

from lazyfuse.loops import kinds
from lazyfuse.loops.kinds import ArrayKind
from lazyfuse.loops.numbers import Numbers
from lazyfuse.loops.text import LOG, LOGGED, LOGS, Again, Leaves, Maybe
from lazyfuse.loops.values import (
    BITS,
    ONE,
    ZERO,
    Array,
    Elements,
    Handle,
    Known,
    Number,
    Part,
    Place,
    View,
    times,
    total,
)


class Places(Numbers):
    """Writes where elements are."""

    def array(self, node: ast.expr) -> Array:
        """The array, or the view, that a name holds."""
        node = self.named(node)
        if isinstance(node, ast.Subscript):
            return self._inner(self.array(node.value), self._keys(node))
        if not isinstance(node, ast.Name):
            raise Leaves("what is no array")
        name, kind = node.id, self.kinds.get(node.id)
        if isinstance(kind, Maybe) and isinstance(kind.kind, (View, ArrayKind)):
            self.leave(f"{name}_set == 0")
            kind = kind.kind
        if isinstance(kind, ArrayKind):
            axes = tuple(range(kind.rank))
            words = self.array_words(name, kind)
            return Array(words[0][:-2], kind, axes, "", tuple(words[1 : 1 + kind.rank]), ())
        if isinstance(kind, View):
            base, known = self.entry[kind.base], tuple(self.words_of(name, kind))
            keys, lengths = known[: base.rank], known[base.rank :]
            steps = [self.stride(kind.base, base, k) for k in range(base.rank)]
            return Array(kind.base, base, kind.axes, total(map(times, keys, steps)), lengths, keys)
        raise Leaves("what is no array")

    def _inner(self, array: Array, keys: list[ast.expr]) -> Array:
        """`array[i]` of an array with more axes."""
        count = len(keys)
        if count >= len(array.sizes) or any(isinstance(each, ast.Slice) for each in keys):
            raise Leaves("a part of an array in parts")
        offset, made = self._offset(array, keys)
        rest = array.axes[count:], array.sizes[count:]
        return array._replace(axes=rest[0], first=self.temp(offset), sizes=rest[1], keys=made)

    def _offset(self, array: Array, keys: list[ast.expr]) -> tuple[str, tuple[str, ...]]:
        """The offset of an element, and the indices that make it; slices count as zero."""
        terms, made = [array.first] * bool(array.first), list(array.keys)
        made = made or [""] * array.kind.rank
        for axis, size, key in zip(array.axes, array.sizes, keys, strict=False):
            if isinstance(key, ast.Slice):
                continue
            at = self.inside(key, size)
            made[axis] = self.temp(f"{made[axis]} + {at}") if made[axis] else at
            stride = self.stride(array.name, array.kind, axis)
            if at != "int64(0)":
                terms.append(at if stride == "int64(1)" else f"{at} * {stride}")
        return " + ".join(terms) or "int64(0)", tuple(made)

    def stride(self, name: str, kind: ArrayKind, axis: int) -> str:
        return "int64(1)" if kind.unit and axis == kind.rank - 1 else f"{name}_s{axis}"

    @staticmethod
    def _keys(node: ast.Subscript) -> list[ast.expr]:
        return list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]

    def is_part(self, node: ast.Subscript) -> bool:
        """Whether a subscript is more than an element."""
        keys = self._keys(node)
        own = [each for each in keys if not _is_new(each)]
        rank = len(self.array(node.value).sizes)
        return len(own) < max(rank, len(keys)) or any(isinstance(x, ast.Slice) for x in own)

    @staticmethod
    def names(node: ast.AST) -> set[str]:
        """The names in an expression."""
        return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}

    def loaded(self, pointer: str, at: str, code: str) -> str:
        element = f"{pointer}[{at}]"
        if code == "b1":
            return f"({element} != 0)"
        if code == "f4":
            return f"float64({element})"
        return element if code in kinds.WIDE else f"int64({element})"

    def inside(self, node: ast.expr, size: str) -> str:
        """An index along an axis, counted from its beginning; leaves where there is none."""
        if isinstance(node, Known):
            return node.number.text
        found = self.index(node)
        if found.text.startswith("int64(") and found.text[6:-1].isdigit():
            self.leave(f"{found.text} >= {size}")
            return found.text
        held = self.temp(found.text)
        wrapped = self.temp(f"{held} + {size} if {held} < 0 else {held}")
        self.leave(f"({wrapped} < 0) | ({wrapped} >= {size})")
        return wrapped

    def place(self, node: ast.Subscript) -> Place:
        """Where an element of an array is."""
        array = self.array(node.value)
        keys = self._keys(node)
        if len(keys) != len(array.sizes) or any(isinstance(each, ast.Slice) for each in keys):
            raise Leaves("a part of an array")
        if isinstance(node.ctx, ast.Store):
            self.written(array.kind)
        offset = self._offset(array, keys)[0]
        return Place(node.value, f"{array.name}_p", offset, array.kind.code)

    def element(self, place: Place) -> Number:
        """What is there."""
        pointer, at, code = place[1:]
        return Number(self.temp(self.loaded(pointer, at, code)), code, BITS.get(code, 63))

    def converted(self, place: Place, value: Number) -> str:
        """A number as it is stored there."""
        return self.as_element(value, place.code)

    def is_local(self, node: ast.expr) -> bool:
        """Whether a name holds an array that only the function which is called knows."""
        is_own = isinstance(node, ast.Name) and node.id in self.called[-1][0].locals
        name = node.id if isinstance(node, ast.Name) else ""
        is_array = isinstance(self.kinds.get(name), ArrayKind)
        return is_own and is_array and name not in self.memory.aliased

    def written(self, kind: ArrayKind) -> None:
        """An array is about to be written."""
        if not kind.writes:
            raise Leaves("an array that is read-only")

    def store_element(self, place: Place, text: str) -> None:
        """Store an element; what a function overwrites is kept until its caller goes on."""
        owner, pointer, at, code = place
        if self.called and not self.is_local(owner):
            if code[1:] not in ("1", "8"):
                raise Leaves("a function that writes elements of this type")
            if not self.memory.logs:
                self.memory.logs = True
                raise Again
            self.leave(f"meta[{LOGS}] >= {LOGGED[self.routine is not None]}")
            word = self.temp(f"meta[{LOG}] + 24 * meta[{LOGS}]")
            wide = {"f8": "pointer_i8", "i8": "pointer_i8"}.get(code, "pointer_u1")
            held = self.temp(f"address_of({pointer}, {at})")
            old = f"int64({wide}({held})[0])"
            for k, value in enumerate((held, old, f"int64({int(code[1:])})")):
                self.put(f"pointer_i8({word})[{k}] = {value}")
            self.put(f"meta[{LOGS}] = meta[{LOGS}] + 1")
        self.put(f"{pointer}[{at}] = {text}")

    def part(self, node: ast.Subscript) -> Part:
        """The part of an array that a subscript selects."""
        array = self.array(node.value)
        if isinstance(node.ctx, ast.Store):
            if self.called and not self.is_local(node.value):
                raise Leaves("a function that writes rows")
            self.written(array.kind)
        return self.part_of(array, self._keys(node))

    def part_of(self, array: Array, keys: list[ast.expr]) -> Part:
        """The part of an array that these keys select; leaves where NumPy would make another layout
        of what is computed from it.
        """
        own = [each for each in keys if not _is_new(each)]
        rest = len(array.sizes) - len(own)
        if rest < 0:
            raise Leaves("too many indices")
        keys = [*keys, *[ast.Slice()] * rest]
        offset, made = self._offset(array, own)
        terms, indices, sizes, steps = [offset], list(made), [], []  # type: list[str], list[str], list[str], list[str]
        view = View(array.name, ()) if array.name in self.entry else None
        axes = iter(zip(array.axes, array.sizes, strict=True))
        for key in keys:
            if _is_new(key):
                sizes.append(ONE)
                steps.append(ZERO)
                view = None
                continue
            axis, size = next(axes)
            if not isinstance(key, ast.Slice):
                continue
            at, count, by = self.bounds(key, size)
            stride = step = self.stride(array.name, array.kind, axis)
            if by != "1":
                step = f"(-{stride})" if by == "-1" else self.temp(f"{stride} * {by}")
                view = None
            view = view and View(view.base, (*view.axes, axis))
            indices[axis] = self.temp(f"{indices[axis]} + {at}") if indices[axis] else at
            if at != ZERO:
                terms.append(at if stride == ONE else f"{at} * {stride}")
            sizes.append(count)
            steps.append(step)
        if len(sizes) != 1:
            if any(each[:2] == "(-" for each in steps):
                raise Leaves("several axes, backwards")
            strides = [self.stride(array.name, array.kind, axis) for axis in array.axes]
            for outer, inner in itertools.pairwise(strides):
                self.leave(f"{outer} < {inner}")
        offset = total(terms)
        first = offset if offset == ZERO else self.temp(offset)
        pointer = f"{array.name}_p"
        return Part(
            pointer, first, tuple(sizes), tuple(steps), array.kind.code, view, tuple(indices)
        )

    def size_of(self, sizes: Sequence[str]) -> str:
        """How many elements there are."""
        return sizes[0] if len(sizes) == 1 else self.temp(" * ".join(sizes))

    def bounds(self, node: ast.Slice, size: str) -> tuple[str, str, str]:
        """Where a slice begins, how many elements it has, and its step."""
        if node.step is not None:
            whole = node.lower is None and node.upper is None
            if isinstance(node.step, ast.UnaryOp) and ast.unparse(node.step) == "-1" and whole:
                return f"({size} - 1 if {size} > 0 else 0)", size, "-1"
        by = "1" if node.step is None else self.temp(self.index(node.step).text)
        if by != "1":
            self.leave(f"({by} <= 0) | ({by} > {1 << kinds.SMALL})")
        ends = []
        for each, other in ((node.lower, "int64(0)"), (node.upper, size)):
            if each is None or (isinstance(each, ast.Constant) and each.value is None):
                ends.append(other)
                continue
            held = self.temp(self.index(each).text)
            held = self.temp(f"{held} + {size} if {held} < 0 else {held}")
            held = self.temp(f"{held} if {held} > 0 else 0")
            ends.append(self.temp(f"{held} if {held} < {size} else {size}"))
        if ends[0] == "int64(0)" and by == "1":
            return ends[0], ends[1], by
        count = f"{ends[1]} - {ends[0]}"
        if by != "1":
            count = f"({count} + {by} - 1) // {by}"
        return ends[0], self.temp(f"{count} if {ends[1]} > {ends[0]} else 0"), by

    def whole(self, part: Part) -> Elements:
        """The elements of a view."""
        pointer, code = part.pointer, part.code
        return Elements(
            code,
            part.sizes,
            self.size_of(part.sizes),
            lambda places: self.loaded(pointer, part.at(places), code),
            part,
        )

    def handle(self, node: ast.expr) -> Handle | None:
        """The array that a name holds."""
        node = self.named(node)
        kind = self.kinds.get(node.id) if isinstance(node, ast.Name) else None
        if isinstance(kind, Maybe) and isinstance(kind.kind, ArrayKind):
            self.array(node)
            kind = kind.kind
        if not isinstance(kind, ArrayKind):
            return None
        *words, origin = self.array_words(node.id, kind)  # type: ignore[attr-defined]
        if not self.is_variable(node.id):  # type: ignore[attr-defined]
            origin = str(self.origins.index(node.id))  # type: ignore[attr-defined]
        return Handle(kind, tuple([self.temp(each) for each in (*words, f"int64({origin})")]))

    def read_array(self, name: str, kind: ArrayKind, at: int) -> None:
        """Read the words of an array that is there at entry."""
        pointer, *sizes, _ = self.array_words(name, kind)
        self.put(f"{pointer} = pointer_{kind.code}(meta[{at}])")
        for k, word in enumerate(sizes):
            self.put(f"{word} = meta[{at + 1 + k}]")

    def store_handle(self, name: str, found: Handle) -> None:
        """Give a name an array that another name holds."""
        for word, text in zip(self.array_words(name, found.kind), found.words, strict=True):
            self.put(f"{word} = {text}")
        self.assigned(name, found.kind)

    def assigned(self, name: str, kind: Any) -> None:
        """A name has a value of this kind."""
        if name in self.flagged:
            self.put(f"{name}_set = 1")
        self.kinds[name] = kind


def _is_new(key: ast.expr) -> bool:
    """Whether a key makes an axis of length one."""
    is_name = isinstance(key, ast.Attribute) and key.attr == "newaxis"
    return is_name or (isinstance(key, ast.Constant) and key.value is None)
