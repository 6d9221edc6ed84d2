"""Arrays of several axes in loops: slices of them, expressions, sums, and where they go.

Owns broadcasting. An axis of length one that is written out (`x[:, None]`, `np.add.outer`) is
repeated; where lengths differ otherwise, the loop is left. As with rows, a statement computes all
elements in working memory, side by side, before it stores one.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from lazyfuse.loops import kinds
from lazyfuse.loops.rows import SIGNED, UFUNCS
from lazyfuse.loops.text import Leaves
from lazyfuse.loops.ufuncs import TRUTHS, Ufuncs
from lazyfuse.loops.values import (
    Array,
    Flat,
    Grid,
    GridPart,
    Number,
    Part,
    Row,
    Value,
    side_by_side,
    sizes_of,
)  # fmt: skip

ONE = "int64(1)"
_OUTER = {UFUNCS[kind]: kind for kind in SIGNED if kind in UFUNCS}
"""Functions that are an operator, and which."""
_EXACT = {
    np.sqrt, np.square, np.absolute, np.fabs, np.negative, np.sign, np.floor, np.ceil, np.trunc,
    np.rint, np.isnan, np.isinf, np.isfinite, np.signbit, np.copysign, *TRUTHS, *_OUTER,
}  # fmt: skip
"""Functions of floats whose bits do not depend on where their operands lie."""
_EXTREMES = (np.minimum, np.maximum)
"""Of floats, they may give the one zero or the other."""


class Grids(Ufuncs):
    """Writes what reads and writes several axes."""

    def is_grid(self, node: ast.expr) -> bool:
        """Whether a subscript is a part of an array along several axes."""
        if not isinstance(node, ast.Subscript) or self.sequence_kind(node.value) is not None:
            return False
        keys = self._keys(node)
        if not all(_is_kept(each) or isinstance(each, _INDICES) for each in keys):
            return False
        rank = len(self.array(node.value).sizes)
        return rank + sum(map(_is_new, keys)) - sum(not _is_kept(each) for each in keys) > 1

    def grid(self, array: Array, keys: Sequence[ast.expr]) -> Grid:
        """The part of an array that these keys select, along several axes."""
        own = [each for each in keys if not _is_new(each)]
        rest = len(array.sizes) - len(own)
        if rest < 0:
            raise Leaves("too many indices")
        offset = self._offset(array, own)[0]
        keys = [*keys, *[ast.Slice()] * rest]
        axes = iter(zip(array.axes, array.sizes, strict=True))
        terms, sizes, steps = [offset], [], []  # type: list[str], list[str], list[str]
        for key in keys:
            if _is_new(key):
                sizes.append(ONE)
                steps.append("int64(0)")
                continue
            axis, size = next(axes)
            if not isinstance(key, ast.Slice):
                continue
            at, count, by = self.bounds(key, size)
            stride = self.stride(array.name, array.kind, axis)
            if by == "-1":
                raise Leaves("several axes, backwards")
            if at != "int64(0)":
                terms.append(at if stride == ONE else f"{at} * {stride}")
            sizes.append(count if count == size else self.temp(count))
            steps.append(stride if by == "1" else self.temp(f"{stride} * {by}"))
        strides = [self.stride(array.name, array.kind, axis) for axis in array.axes]
        for outer, inner in itertools.pairwise(strides):
            self.leave(f"{outer} < {inner}")  # what NumPy makes of it would lie otherwise
        first = self.temp(" + ".join(terms))
        pointer, code = f"{array.name}_p", array.kind.code

        def element(places: Sequence[str]) -> str:
            at = _sum([first, *map(_times, places, steps)])
            return self.loaded(pointer, at, code)

        part = GridPart(pointer, first, tuple(steps))
        return Grid(code, tuple(sizes), self._total(sizes), element, part)

    def _total(self, sizes: Sequence[str]) -> str:
        return self.temp(" * ".join(sizes))

    def broadcast(self, values: Sequence[Value]) -> tuple[str, ...]:
        """The lengths of the axes of what is computed from values."""
        shapes = [sizes_of(each) for each in values if not isinstance(each, Number)]
        made = []
        for back in range(1, 1 + max(map(len, shapes))):
            lengths = [sizes[-back] for sizes in shapes if len(sizes) >= back]
            first = next((each for each in lengths if each != ONE), ONE)
            for each in dict.fromkeys(lengths):
                if each not in (first, ONE):
                    self.leave(f"{each} != {first}")
            made.append(first)
        return tuple(reversed(made))

    def _spread(self, value: Value, sizes: tuple[str, ...], total: str) -> Flat:
        """A value as rows are taken, its elements by several indices: broadcast to these sizes."""
        if isinstance(value, Number):
            return value
        own, element = sizes_of(value), value.element

        def one(places: Any) -> str:
            last = places[len(sizes) - len(own) :]
            at = ["int64(0)" if n == ONE else q for n, q in zip(own, last, strict=True)]
            return element(at[0] if isinstance(value, Row) else at)  # type: ignore[arg-type]

        return Row(value.kind, total, one)

    def of_grids(self, op: ast.operator, left: Value, right: Value) -> Value:
        """An operator on arrays of several axes, or on rows."""
        if not (isinstance(left, Grid) or isinstance(right, Grid)):
            return self.of_rows(op, left, right)
        given, function = [left, right], UFUNCS.get(type(op))
        if type(op) in SIGNED and not any(kinds.is_complex(each.kind) for each in given):
            return self._by_element(given, lambda rows: self.of_rows(op, *rows))
        if isinstance(op, ast.Pow) and isinstance(right, Number):
            function, given = self.power_of(right), [left]
        if function is None:
            raise Leaves("an operator of arrays")
        return self.grid_ufunc(function, given)

    def _by_element(self, given: Sequence[Value], make: Callable[[list[Any]], Row]) -> Grid:
        """What is computed element by element, as from rows."""
        sizes = self.broadcast(given)
        total = self._total(sizes)
        made = make([self._spread(each, sizes, total) for each in given])
        return Grid(made.kind, sizes, total, made.element)  # type: ignore[arg-type]

    def grid_ufunc(self, function: np.ufunc, given: Sequence[Value]) -> Value:
        """A function of NumPy's: its loop runs once, over all elements side by side."""
        flat = [each for each in given if not isinstance(each, Grid)]
        if len(flat) == len(given):
            return self.ufunc(function, flat)
        codes = {each.kind for each in given}
        is_extreme = function in _EXTREMES and codes <= {"f8", "float"}
        of_floats = any(kinds.is_float(each) or kinds.is_complex(each) for each in codes)
        is_exact = function in _EXACT or not of_floats
        if not (is_exact or is_extreme) and any(isinstance(x, Grid) and x.part for x in given):
            raise Leaves("a function of a part of several axes")
        if function in TRUTHS and self.are_truths(TRUTHS[function], given):
            return self._by_element(given, lambda rows: self.truths(TRUTHS[function], *rows))
        if is_extreme:
            return self._extreme("<" if function is np.minimum else ">", given)
        sizes = self.broadcast(given)
        total = self._total(sizes)
        rows = [
            each if isinstance(each, Number) else self.whole(self.flat(each, sizes, total))
            for each in given
        ]
        made = self.ufunc(function, rows)
        assert isinstance(made, Row)
        assert made.part is not None
        return self._shaped(made.part, sizes, total)

    def _extreme(self, sign: str, given: Sequence[Value]) -> Grid:
        """`np.minimum` or `np.maximum` of floats; leaves where zeros of both signs meet: which one
        is the result depends on where they lie.
        """
        sizes = self.broadcast(given)
        total = self._total(sizes)
        a, b = [self.as_code(self._spread(each, sizes, total), "f8") for each in given]
        memory, odd = self.room(total), self.temp("int64(0)")
        self.put(f"patience = patience + {total}")
        self.put("clear_flags()")
        with self.places(sizes, is_alone=False) as (places, at):
            x, y = self.temp(a(places)), self.temp(b(places))  # type: ignore[arg-type]
            differ = f"({x} == {y}) & ({x}.view(np.int64) != {y}.view(np.int64))"
            self.put(f"{odd} = 1 if {differ} else {odd}")
            self.put(f"{memory}[{at}] = {x} if ({x} {sign} {y}) | ({x} != {x}) else {y}")
        self.leave(f"({odd} != 0) | ((test_flags() & 11) != 0)")
        return self._shaped(Part(memory, "int64(0)", total, ONE, "f8"), sizes, total)

    def _shaped(self, part: Part, sizes: tuple[str, ...], total: str) -> Grid:
        """Elements in working memory, as an array of these sizes."""
        one = self.whole(part).element
        steps = side_by_side(sizes)

        def element(places: Sequence[str]) -> str:
            return one(_sum([*map(_times, places, steps)]))

        return Grid(part.code, sizes, total, element, held=part)

    def outer(self, function: Any, given: Sequence[Value]) -> Value:
        """`function.outer(a, b)` of two rows."""
        a, b = given
        if not (isinstance(a, Row) and isinstance(b, Row)) or function not in _OUTER:
            raise Leaves("an outer product")
        row, element = a, a.element
        left = Grid(row.kind, (row.length, ONE), row.length, lambda places: element(places[0]))
        return self.of_grids(_OUTER[function](), left, b)

    def choice(self, test: Value, first: Value, second: Value) -> Value:
        """`np.where`."""
        given = [test, first, second]
        flat = [each for each in given if not isinstance(each, Grid)]
        if len(flat) == len(given):
            return self.where(*flat)
        return self._by_element(given, lambda rows: self.where(*rows))

    @contextmanager
    def places(
        self, sizes: Sequence[str], is_alone: bool = True
    ) -> Iterator[tuple[list[str], str]]:
        """A loop over elements: their indices, and where they are side by side."""
        self.makes_grids = True
        with ExitStack() as stack:
            found: list[str] = []
            for k, size in enumerate(sizes):
                is_last = k == len(sizes) - 1
                found.append(stack.enter_context(self.each(size, is_alone and is_last)))
            steps = side_by_side(sizes)
            yield found, _sum([*map(_times, found, steps)])

    def flat(self, value: Value, sizes: tuple[str, ...], total: str, code: str = "") -> Part:
        """The elements of an array, side by side in working memory, broadcast to these sizes."""
        held = value.held if isinstance(value, Grid) and value.sizes == sizes else None
        if held is not None and code in ("", held.code):
            return held
        row = self._spread(value, sizes, total)
        assert isinstance(row, Row)
        return self.computed(row, code, lambda: self.places(sizes))

    def flattened(self, name: str, grid: Grid) -> Row:
        """What a reduction goes over; leaves where NumPy does not add side by side."""
        if grid.part is not None and name in ("sum", "mean"):
            for step, whole in zip(grid.part.steps, side_by_side(grid.sizes), strict=True):
                self.leave(f"{step} != {whole}")
        return self.whole(self.flat(grid, grid.sizes, grid.length))

    def keep_grid(self, name: str, grid: Grid) -> None:
        """Give a name an array of its own."""
        if grid.part is not None:
            raise Leaves("a view of several axes")
        self.keep(name, self.flat(grid, grid.sizes, grid.length), grid.sizes)

    def filled(self, code: str, sizes: Sequence[str], text: str) -> Value:
        """An array with the same number everywhere."""
        if len(sizes) == 1:
            return Row(code, sizes[0], lambda q: text)
        return Grid(code, tuple(sizes), self._total(sizes), lambda places: text)

    def store_grid(self, target: ast.Subscript, found: Value, in_place: bool = False) -> None:
        """Write a part of an array along several axes."""
        self.settle()
        array = self.array(target.value)
        if self.called and not self.is_local(target.value):
            raise Leaves("a function that writes rows")
        self.written(array.kind)
        part = self.grid(array, self._keys(target))
        assert part.part is not None
        for step, size in zip(part.part.steps, part.sizes, strict=True):
            if step != ONE:
                self.leave(f"({step} == 0) & ({size} > 1)")
        pointer, first, steps = part.part
        code = array.kind.code

        def stored(places: Sequence[str]) -> str:
            return f"{pointer}[{_sum([first, *map(_times, places, steps)])}]"

        if isinstance(found, Number):
            value = self.temp(self.as_element(found, code))
            self.settle()
            with self.places(part.sizes) as (places, _):
                self.put(f"{stored(places)} = {value}")
            return
        self.check_stored(code, found.kind, in_place)
        own = sizes_of(found)
        if len(own) > len(part.sizes):
            raise Leaves("an assignment of more axes")
        for have, want in zip(own, part.sizes[len(part.sizes) - len(own) :], strict=True):
            if have not in (want, ONE):
                self.leave(f"{have} != {want}")
        held = self.flat(found, part.sizes, part.length, code)
        with self.places(part.sizes) as (places, at):
            element = f"{held.pointer}[{at}]"
            if code not in kinds.WIDE:
                element = f"{kinds.CASTS[code]}({element})"
            self.put(f"{stored(places)} = {element}")


_INDICES = (ast.Constant, ast.Name, ast.BinOp, ast.UnaryOp, ast.Call)


def _is_new(key: ast.expr) -> bool:
    """Whether a key makes an axis of length one."""
    is_name = isinstance(key, ast.Attribute) and key.attr == "newaxis"
    return is_name or (isinstance(key, ast.Constant) and key.value is None)


def _is_kept(key: ast.expr) -> bool:
    """Whether a key leaves an axis."""
    return isinstance(key, ast.Slice) or _is_new(key)


def _times(place: str, step: str) -> str:
    if "int64(0)" in (place, step):
        return ""
    return place if step == ONE else f"{place} * ({step})"


def _sum(terms: Sequence[str]) -> str:
    return " + ".join(each for each in terms if each and each != "int64(0)") or "int64(0)"
