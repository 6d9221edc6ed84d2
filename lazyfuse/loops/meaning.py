"""Loops of Python, statement by statement, as text that frontend/ compiles.

Owns what each statement means for values of known kinds: Python's and NumPy's results, bit for bit.
Where a statement could raise, warn, or leave 64 bits, the text leaves before anything of it is
stored: Python does that statement itself (leaving.py). So each statement first computes, then asks
what would have gone wrong, then stores.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import FunctionType
from typing import Any

from lazyfuse.loops import kinds
from lazyfuse.loops.kinds import OTHER, UNBOUND, ArrayKind
from lazyfuse.loops.names import stored
from lazyfuse.loops.objects import Held, Letter
from lazyfuse.loops.quick import Span
from lazyfuse.loops.text import (
    ARENA,
    FINISHED,
    LOG,
    LOGS,
    ROOM,
    SCRATCH,
    Again,
    Kinds,
    Leaves,
    Meant,
    Memory,
    Refused,
)  # fmt: skip
from lazyfuse.loops.turns import Turns
from lazyfuse.loops.values import Elements, Handle, Item, Number, Place, View

_PASSES = 20  # over a loop's text, until the kinds at its beginning are known


def meaning(unit: ast.For | ast.While, entry: Kinds, function_of: Callable[[Any], Any]) -> Meant:
    """The text of a loop for names of these kinds; raises `Refused`."""
    memory = Memory(unit)
    for _ in range(_PASSES):
        known = len(memory.wide)
        try:
            made = Writer(unit, entry, function_of, memory).write()
        except Again:
            continue
        if len(memory.wide) == known:
            return made
    raise Refused(unit, "kinds that change and change")


class Writer(Turns):
    """Writes the text of one loop."""

    def write(self) -> Meant:
        begin = self._enter()
        try:
            self._unit()
        except Leaves as why:
            raise Refused(self.unit, str(why)) from why
        self.put("leave(0)")
        body = self.lines
        self.lines, self.indent = [], 1
        self.put("code = left()")
        if self.memory.logs:
            with self.under(f"while meta[{LOGS}] > 0:"):
                self.put(f"meta[{LOGS}] = meta[{LOGS}] - 1")
                word = f"pointer_i8(meta[{LOG}] + 24 * meta[{LOGS}])"
                with self.under(f"if {word}[2] == 8:"):
                    self.put(f"pointer_i8({word}[0])[0] = {word}[1]")
                with self.under("else:"):
                    self.put(f"pointer_u1({word}[0])[0] = uint8({word}[1])")
        for (name, kind), slot in self.slots.items():
            if isinstance(kind, View):
                for k, part in enumerate(self.words_of(name, kind)):
                    self.put(f"meta[{slot + k}] = {part}")
                continue
            if isinstance(kind, kinds.Sequence):
                self.put(f"meta[{slot}] = {name}_object")
                continue
            if isinstance(kind, ArrayKind):
                pointer, *sizes, origin = self.array_words(name, kind)
                place = f"address_of({pointer}, 0)"
                for k, word in enumerate((origin, place, *sizes[: kind.rank])):
                    self.put(f"meta[{slot + k}] = {word}")
                continue
            self.put_word(self.held(name, kind), slot)
        for name, slot in self.flags.items():
            self.put(f"meta[{slot}] = {name}_set")
        self.put("meta[1] = cur")
        for number, slot in self.counters.items():
            for k, part in enumerate(("cur", "stop", "step")):
                self.put(f"meta[{slot + k}] = {part}_{number}")
        self.put("return int32(code)")
        entered = {(name, kind) for name, kind, _ in self.enters}
        for name, kind in self.slots:
            if isinstance(kind, View):
                begin += [f"  {part} = int64(0)" for part in self.words_of(name, kind)]
            elif isinstance(kind, ArrayKind):
                if (name, kind) not in entered:
                    pointer, *words = self.array_words(name, kind)
                    begin.append(f"  {pointer} = pointer_{kind.code}(0)")
                    begin += [f"  {each} = int64(0)" for each in words]
            elif isinstance(kind, kinds.Sequence):
                begin.append(f"  {name}_object = int64(0)")
            elif (name, kind) not in entered:
                zeros = {"f8": "0.0", "i8": "int64(0)", "b1": "False", "c16": "complex(0.0, 0.0)"}
                zero = zeros[kinds.register(kind)]
                begin.append(f"  {self.variable(name, kind)} = {zero}")
                if "|" in kind:
                    begin.append(f"  {self.variable(name, kind)}_tag = False")
        begin += [f"  {each} = int64(0)" for each in sorted(self.own)]
        begin += [f"  {each}_size = int64(0)" for each in sorted(self.own)]
        begin += [f"  {each} = int64(0)" for each in self.zeros]
        begin += [f"  arena = meta[{ARENA}]", "  depth = int64(0)"]
        for name, (block, code) in self.blocks.items():
            room = f"{16 * block} * meta[{ROOM}]"
            begin.append(f"  {name} = pointer_{code}(meta[{SCRATCH}] + {room})")
        parts = ["def loop(meta, scalars):", *begin, "  if begins():", *body, *self.lines]
        parts += [line for lines in self.routines.values() for line in lines]
        text = "\n".join([x for each in parts for x in ([each] if type(each) is str else each)])
        exits = (ast.Return, ast.Raise)
        ends = {k for each, (k, _, _) in self.numbers.items() if isinstance(each, exits)}
        return Meant(
            text + "\n", self.enters, self.leaves, self.slots, self.flags, self.begins,
            self.counters, self.words, ends, self.reasons, self.constants, self.functions,
            1 + max((block for block, _ in self.blocks.values()), default=-1), self.origins,
            self.memory.logs, self.appended - {""}, self.iterated - {""}, self.makes_grids,
            bool(self.routines),
            None if self.makes is None else self.makers,
        )  # fmt: skip

    def _enter(self) -> list[str]:
        """Read what the loop begins with."""
        self.indent = 1
        for name, kind in sorted(self.entry.items()):
            if name == "*":
                continue
            if kind == kinds.RANGE:
                at = self._take(3)
                self.enters.append((name, kind, at))
                for k, word in enumerate(("start", "step", "count")):
                    self.put(f"{name}_{word} = meta[{at + k}]")
            elif name in self.stored and (
                kind == OTHER
                or name in self.memory.forgotten
                or not isinstance(kind, (str, ArrayKind))
            ):
                self.enters.append((name, UNBOUND, 0))
                self.kinds[name] = UNBOUND
                self.flags[name] = self._take(1)
                self.flagged.add(name)
                self.put(f"{name}_set = 0")
            elif isinstance(kind, ArrayKind):
                at = self._take(1 + 2 * kind.rank)
                self.enters.append((name, kind, at))
                self.read_array(name, kind, at)
                if name in self.stored:
                    self.put(f"{self.array_words(name, kind)[-1]} = {len(self.origins)}")
                self.origins.append(name)
            elif isinstance(kind, kinds.Sequence):
                at = self._take(1)
                self.enters.append((name, kind, at))
                self.put(f"{name}_object = meta[{at}]")
                if name in self.memory.items:
                    self.kinds[name] = kind._replace(item=self.memory.items[name])
            elif isinstance(kind, str) and kind != OTHER:
                at = self._slot(name, kind)
                self.enters.append((name, kind, at))
                if name in self.stored and type(kind) is str:  # other integers are small
                    self.memory.wide.add(name)
                self.put(f"{self.variable(name, kind)} = {self.word(kind, at)}")
        for number in [x for each, (x, _, _) in self.numbers.items() if isinstance(each, ast.For)]:
            self.counters[number] = self._take(3)
            self.put(f"cur_{number} = 0")
            self.put(f"stop_{number} = 0")
            self.put(f"step_{number} = 0")
        self.put("patience = int64(0)")
        self.put("cur = meta[1]")
        begin, self.lines, self.indent = self.lines, [], 2
        return begin

    def _unit(self) -> None:
        unit = self.unit
        if isinstance(unit, ast.While):
            self.on_while(unit)
            return
        self.put("stop = meta[2]")
        self.put("step = meta[3]")
        item: Callable[[str], Any] = lambda now: Number(now, "int", kinds.SMALL)
        with self.loop_of(unit) as again:
            if "*" in self.entry:
                item = self.items(ast.parse(self.entry["*"], mode="eval").body)[1]
            mark = len(self.lines)
            self.open("while (cur < stop) if step > 0 else (cur > stop):")
            self.assign(unit.target, item("cur"))
            self.patience("1")
            self.body(unit.body)
            self.useful(unit)
            again()
            self.put("cur = cur + step")
            self.close()
            self.quickly(unit, mark, Span("now", "cur", "stop", 1), item, "step == 1")
        self.note(FINISHED)  # `break` has left, with its own code

    def body(self, statements: list[ast.stmt]) -> None:
        if not statements:
            self.put("pass")
        for each in statements:
            if self.dead:
                return
            self.statement(each)

    def statement(self, node: ast.stmt) -> None:
        if not self.called:
            self.at, self.block = self.numbers[node][0], 0
            self.kept_for_good()
        walk = getattr(self, "on_" + type(node).__name__.lower(), None)
        before = len(self.lines), self.indent, dict(self.kinds), len(self.loops)
        try:
            if walk is None:
                raise Leaves(type(node).__name__)
            walk(node)
            self.settle()
            if not self.called and not self.dead:
                self.kept_for_good()
        except Leaves as why:
            self.why = node.lineno, str(why)
            if self.called:
                raise
            del self.lines[before[0] :]
            del self.loops[before[3] :]
            self.indent, self.kinds = before[1], before[2]
            self.pending.clear()
            self.at = self.numbers[node][0]
            self.leave()
            self.reasons[self.at] = f" ({why})"
            self.dead = True

    def kept_for_good(self) -> None:
        """What functions have written stays written."""
        if self.memory.logs:
            self.put(f"meta[{LOGS}] = 0")

    def on_pass(self, node: ast.Pass) -> None:
        self.put("pass")

    def on_expr(self, node: ast.Expr) -> None:
        called = node.value.func if isinstance(node.value, ast.Call) else None
        if isinstance(called, ast.Attribute) and called.attr == "append":
            self.append(called.value, node.value)  # type: ignore[arg-type]
        elif isinstance(node.value, ast.Call) and isinstance(self.object(called), FunctionType):  # type: ignore[arg-type]
            self.of_function(self.object(called), node.value, is_statement=True)  # type: ignore[arg-type]
        elif not isinstance(node.value, ast.Constant):
            raise Leaves("an expression")

    def on_assert(self, node: ast.Assert) -> None:
        test = self.truth(node.test)
        self.settle()
        self.leave(f"not ({test})")

    def on_annassign(self, node: ast.AnnAssign) -> None:
        if node.value is None or not isinstance(node.target, ast.Name):
            raise Leaves("an annotation")
        self.on_assign(ast.Assign([node.target], node.value))

    def on_assign(self, node: ast.Assign) -> None:
        node = ast.Assign([self.owned(each) for each in node.targets], node.value)
        target = node.targets[0]
        if len(node.targets) == 1 and isinstance(target, ast.Subscript):
            self._store(target, node.value)
            return
        parts = target if len(node.targets) == 1 and isinstance(target, ast.Tuple) else None
        found = (None if parts else self.handle(node.value)) or self.item(node.value)
        if parts is not None:
            if isinstance(found, Elements):
                found = self.unpacked(found, len(parts.elts))
            if type(found) is tuple:
                self._unpack(parts, found)
                return
        made = isinstance(found, Elements) and (found.part is None or found.part.view is None)
        several = len(node.targets) > 1
        if (any(not isinstance(x, ast.Name) for x in node.targets) and several) or (
            made and several
        ):
            raise Leaves("several targets")
        self.settle()
        for each in node.targets:
            self.assign(each, found)

    def _unpack(self, target: ast.Tuple, values: tuple[Any, ...]) -> None:
        if len(values) != len(target.elts):
            raise Leaves("a tuple of another length")
        bound = stored(target)
        places: list[Place | None] = []
        for place, value in zip(target.elts, values, strict=True):
            if not isinstance(place, ast.Subscript):
                places.append(None)
                continue
            reads = any(isinstance(each, ast.Subscript) for each in ast.walk(place.slice))
            if reads or bound & self.names(place) or not isinstance(value, Number):
                raise Leaves("a target that depends on another")
            places.append(self.place(place))
        self.settle()
        kept = [
            "" if found is None else self.converted(found, value)
            for found, value in zip(places, values, strict=True)
        ]
        self.settle()
        for each, found, value, text in zip(target.elts, places, values, kept, strict=True):
            if found is None:
                self.assign(each, value)
            else:
                self.store_element(found, text)

    def owned(self, target: ast.expr) -> ast.expr:
        """An attribute that the loop assigns is a name; not one that a function assigns."""
        made = self.named(target)
        if made is not target and (self.called or made.id not in self.stored):  # type: ignore[attr-defined]
            raise Leaves("a function that assigns attributes")
        return made

    def assign(self, target: ast.expr, value: Item) -> None:
        """Give a value, or the values of a tuple, to names."""
        target = self.owned(target)
        if isinstance(target, ast.Tuple) and isinstance(value, Elements):
            value = self.unpacked(value, len(target.elts))
        if isinstance(target, ast.Tuple) and type(value) is tuple:
            if len(value) != len(target.elts):
                raise Leaves("a tuple of another length")
            for each, one in zip(target.elts, value, strict=True):
                self.assign(each, one)
        elif not isinstance(target, ast.Name):
            raise Leaves("a target")
        elif isinstance(value, Handle):
            self.store_handle(target.id, value)
        elif isinstance(value, Elements):
            self.store_view(target.id, value)
        elif isinstance(value, Number):
            self.store_name(target.id, value)
        elif isinstance(value, Held):
            self.store_sequence(target.id, value)
        elif isinstance(value, Letter):
            self.store_name(target.id, Number(value.text, kinds.LETTER))
        else:
            raise Leaves("a tuple")

    def on_augassign(self, node: ast.AugAssign) -> None:
        node = ast.AugAssign(self.owned(node.target), node.op, node.value)  # type: ignore[arg-type]
        if isinstance(node.target, ast.Name):
            before = self.of_name(ast.Name(node.target.id, ast.Load()))
            if isinstance(before, Elements):
                made = self.of_arrays(node.op, before, self.value(node.value))
                whole = ast.Subscript(
                    ast.Name(node.target.id, ast.Load()), ast.Slice(), ast.Store()
                )
                self.store_part(whole, made, in_place=True)
                return
            if not isinstance(before, Number):
                raise Leaves("an array")
            value = self.changed(node.target.id, node.op, before, self.number(node.value))
            self.settle()
            self.store_name(node.target.id, value)
            return
        if not isinstance(node.target, ast.Subscript):
            raise Leaves("a target")
        picks = self.sequence_kind(node.target.value) is None and self.picks(node.target.slice)
        if picks or self.is_part(node.target):
            part = self.subscript(node.target)
            made = self.of_arrays(node.op, part, self.value(node.value))
            (self.scatter if picks else self.store_part)(node.target, made, in_place=True)
            return
        place = self.place(node.target)
        place = place._replace(at=self.temp(place.at))
        value = self.binary(node.op, self.element(place), self.number(node.value))
        kept = self.converted(place, value)
        self.settle()
        self.store_element(place, kept)

    def _store(self, target: ast.Subscript, node: ast.expr) -> None:
        is_item = self.sequence_kind(target.value) is not None
        picks = not is_item and self.picks(target.slice)
        if picks or self.is_part(target):
            is_list = isinstance(node, (ast.Tuple, ast.List))
            found = self.listed(node.elts) if is_list else self.value(node)  # type: ignore[attr-defined]
            (self.scatter if picks else self.store_part)(target, found)
            return
        value = self.number(node, "" if is_item else self.array(target.value).kind.code)
        value = value._replace(text=self.temp(value.text))
        place = self.place(target)
        kept = self.converted(place, value)
        self.settle()
        self.store_element(place, kept)

    def store_name(self, name: str, value: Number) -> None:
        """Assign a number to a name."""
        self.hold(self.variable(name, value.kind), value)
        if value.kind == "int" and value.bits > kinds.SMALL + 1:
            self.memory.wide.add(name)
        is_literal = value.kind == "int" and value.text.startswith("int64(") and value.bits <= 53
        is_literal = is_literal and value.text[6:-1].lstrip("-").isdigit()
        self.assigned(name, kinds.Literal("int") if is_literal else value.kind)

    def store_view(self, name: str, found: Elements) -> None:
        """Assign a view of an array to a name."""
        part = found.part
        self.settle()
        if part is None or found.is_new():
            self.store_array(name, found)
            return
        if part.view is None:
            raise Leaves("a part of an array")
        words = self.words_of(name, part.view)
        for word, text in zip(words, [*part.keys, *found.sizes], strict=True):
            self.put(f"{word} = {text}")
        self.assigned(name, part.view)
