"""Arrays in loops: broadcasting, working memory, and where elements are stored.

Owns the statements that write a part of an array. Such a statement first computes all elements in
working memory, then asks the flags of the processor whether NumPy would have warned, and then
stores; so operands may overlap what is written. An axis of length one that is written out
(`x[:, None]`, `np.add.outer`) is repeated; where lengths differ otherwise, the loop is left.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np

from lazyfuse.loops import kinds
from lazyfuse.loops.kinds import ArrayKind
from lazyfuse.loops.objects import Objects
from lazyfuse.loops.text import END, LARGE, ROOM, Leaves
from lazyfuse.loops.values import ONE, ZERO, Elements, Number, Part, Value, side_by_side


class Arrays(Objects):
    """Writes what computes and stores elements."""

    def elements(
        self,
        code: str,
        sizes: tuple[str, ...],
        element: Callable[[Sequence[str]], str],
        warns: bool = False,
    ) -> Elements:
        """What is computed from arrays."""
        return Elements(code, sizes, self.size_of(sizes), element, warns=warns)

    def broadcast(self, values: Sequence[Value]) -> tuple[str, ...]:
        """The lengths of the axes of what is computed from values; none for numbers alone."""
        shapes = [each.sizes for each in values if isinstance(each, Elements)]
        made = []
        for back in range(1, 1 + max(map(len, shapes), default=0)):
            lengths = [sizes[-back] for sizes in shapes if len(sizes) >= back]
            first = next((each for each in lengths if each != ONE), ONE)
            for each in dict.fromkeys(lengths):
                if each not in (first, ONE):
                    self.leave(f"{each} != {first}")
            made.append(first)
        return tuple(reversed(made))

    def spread(self, value: Elements, sizes: tuple[str, ...]) -> Elements:
        """A value, broadcast to these sizes."""
        own, element = value.sizes, value.element
        if own == sizes or (len(own) == len(sizes) and ONE not in own):  # as long, by other names
            return value

        def one(places: Sequence[str]) -> str:
            last = places[len(sizes) - len(own) :]
            return element([ZERO if n == ONE else q for n, q in zip(own, last, strict=True)])

        return self.elements(value.kind, sizes, one, value.warns)

    @staticmethod
    def common(*values: Value) -> str:
        """NumPy's type for arrays, or arrays and numbers."""
        given = [each.kind for each in values]
        code = kinds.promoted(*given)
        are_numbers = not any(isinstance(each, Elements) for each in values)
        if code is None or {"b1", "bool"} & set(given) or are_numbers:
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

    def as_code(
        self, value: Value, code: str, sizes: tuple[str, ...]
    ) -> Callable[[Sequence[str]], str]:
        """The elements of a value as those of a type, broadcast to these sizes."""
        if isinstance(value, Elements):
            element = self.spread(value, sizes).element
            if code[0] == "f" and value.kind[0] != "f":
                return lambda places: self.fitted(f"float64({element(places)})", code)
            return element
        text = self.widened(value)
        if code[0] == "f":
            # LLVM knows what a constant is as another type, and raises no flags for it
            held = self.temp(f"kept({self.fitted(f'float64({text})', code)})")
            if code == "f4":
                self.leave(f"abs({held}) == np.inf")
        else:
            held = self.temp(text)
            if value.kind == "int" and code != "i8":  # Python's integer has to fit
                self.leave(f"int64({kinds.CASTS[code]}({held})) != {held}")
        return lambda places: held

    def by_element(
        self,
        code: str,
        operands: str,
        given: Sequence[Value],
        form: str,
        test: Elements | None = None,
        warns: bool = False,
    ) -> Elements:
        """An array of type `code`: what the form makes of two operands of type `operands`, and of
        the element of a test.
        """
        tests = [] if test is None else [test]
        sizes = self.broadcast([*tests, *given])
        makers = [self.as_code(each, operands, sizes) for each in given]
        makers += [self.spread(each, sizes).element for each in tests]
        warns = warns or any(isinstance(x, Elements) and x.warns for x in (*tests, *given))
        return self.elements(
            code, sizes, lambda places: form.format(*[each(places) for each in makers]), warns
        )

    @contextmanager
    def watching(self, warns: bool) -> Iterator[None]:
        """Where elements are computed; leaves where NumPy would warn."""
        if warns:
            self.put("clear_flags()")
        yield
        if warns:
            self.leave("(test_flags() & 11) != 0")

    def room(self, count: str, code: str = "f8") -> str:
        """Working memory for so many elements of a type, until the statement ends."""
        if self.routine is not None:
            raise Leaves("rows in a function that calls itself")
        self.leave(f"{count} > meta[{ROOM}]")
        name = f"scratch{self.block}_{code}"
        self.blocks[name] = self.block, code
        self.block += 1
        return name

    @contextmanager
    def places(
        self, sizes: Sequence[str], is_alone: bool = True
    ) -> Iterator[tuple[list[str], str]]:
        """A loop over elements: their indices, and where they are side by side."""
        if len(sizes) > 1:
            self.makes_grids = True
            self.reasons.setdefault(self.at, f" (on more than {LARGE} elements, it is recorded)")
        with ExitStack() as stack:
            found: list[str] = []
            for k, size in enumerate(sizes):
                is_last = k == len(sizes) - 1
                found.append(stack.enter_context(self.each(size, is_alone and is_last)))
            yield found, self.in_memory("", tuple(sizes), "").at(found)

    @staticmethod
    def in_memory(pointer: str, sizes: tuple[str, ...], code: str) -> Part:
        """Elements that lie side by side in working memory."""
        return Part(pointer, ZERO, sizes, side_by_side(sizes), code)

    def computed(self, row: Elements, code: str = "") -> Part:
        """The elements of an expression in working memory, side by side, as that type; leaves where
        NumPy would warn.
        """
        code = code or row.kind
        memory = self.room(row.size, code)
        self.put(f"patience = patience + {row.size}")
        warns = row.warns or code != row.kind
        # nothing else lies in working memory
        with self.watching(warns), self.places(row.sizes) as (places, at):
            element = row.element(places)
            if row.kind == "b1" != code:
                element = f"int64(1 if {element} else 0)"
            if code != row.kind:
                element = self.fitted(f"float64({element})" if code[0] == "f" else element, code)
            self.put(f"{memory}[{at}] = {self.cast(element, code)}")
        return self.in_memory(memory, row.sizes, code)

    @staticmethod
    def cast(text: str, code: str) -> str:
        """A number as it is stored in an array of that type."""
        return text if code in kinds.WIDE else f"{kinds.CASTS[code]}({text})"

    def copied(self, source: Part, target: Part) -> None:
        """Write elements that are in working memory."""
        with self.places(target.sizes) as (places, _):
            self.put(f"{target.pointer}[{target.at(places)}] = {self.as_stored(source, places)}")

    def as_stored(self, source: Part, places: Sequence[str]) -> str:
        """An element that is in working memory, as it is stored in an array of its type."""
        return self.cast(f"{source.pointer}[{source.at(places)}]", source.code)

    def source(
        self, found: Value, code: str, sizes: tuple[str, ...], in_place: bool
    ) -> Callable[[Sequence[str]], str]:
        """What is stored in a part of these sizes, by its indices; leaves where it does not fit."""
        if isinstance(found, Number):
            value = self.temp(self.as_element(found, code))
            self.settle()
            return lambda places: value
        self.check_stored(code, found.kind, in_place)
        own = found.sizes
        if len(own) > len(sizes):
            raise Leaves("an assignment of more axes")
        for have, want in zip(own, sizes[len(sizes) - len(own) :], strict=True):
            if have not in (want, ONE):
                self.leave(f"{have} != {want}")
        held = self.flat(self.spread(found, sizes), code)
        return lambda places: self.as_stored(held, places)

    def flat(self, value: Elements, code: str = "") -> Part:
        """Elements side by side in working memory: where they are there already, no copy."""
        part = value.part
        if part is not None and part.is_ours() and part.is_flat() and code in ("", part.code):
            return part
        return self.computed(value, code)

    def store_array(self, name: str, found: Elements) -> None:
        """Give a name an array of its own."""
        held, sizes = self.flat(found), found.sizes
        if not self.is_variable(name) or self.routine is not None:
            raise Leaves("an array of its own")
        self.makes = self.makes or set()
        kind = ArrayKind(held.code, len(sizes), True, True)
        pointer, *words, origin = self.array_words(name, kind)
        size = self.temp(f"({found.size} * {held.code[1:]} + 63) // 64 * 64")
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
        here, there = [self.in_memory(x, (found.size,), held.code) for x in (held.pointer, pointer)]
        self.copied(here, there)
        for word, text in zip(
            [*words, origin], [*sizes, *side_by_side(sizes), "int64(-1)"], strict=True
        ):
            self.put(f"{word} = {text}")
        self.assigned(name, kind)

    @staticmethod
    def check_stored(code: str, kind: str, in_place: bool) -> None:
        """Whether elements of one type may be stored as those of another."""
        if code != kind and (code == "b1" or "c16" in (code, kind)):
            raise Leaves("an assignment between types")
        if code[0] != "f" and kind[0] == "f":
            raise Leaves("an assignment of floats to integers")
        if in_place and not np.can_cast(kind, code, "same_kind"):
            raise Leaves("an operator in place between types")

    def store_part(self, target: ast.Subscript, found: Value, in_place: bool = False) -> None:
        """Write a part of an array."""
        self.settle()
        part = self.part(ast.Subscript(target.value, target.slice, ast.Store()))
        for step, size in zip(part.steps, part.sizes, strict=True):
            if step != ONE:
                self.leave(f"({step} == 0) & ({size} > 1)")
        source = self.source(found, part.code, part.sizes, in_place)
        with self.places(part.sizes) as (places, _):
            self.put(f"{part.pointer}[{part.at(places)}] = {source(places)}")
