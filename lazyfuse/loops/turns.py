"""Loops inside of a loop, and the loop's own turns: what they go over, `break`, `continue`, `else`.

Owns how turns are counted, so that Python can go on with what is left of a loop (leaving.py).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lazyfuse.loops import kinds
from lazyfuse.loops.kinds import ArrayKind
from lazyfuse.loops.names import stored
from lazyfuse.loops.quick import Quick, Span
from lazyfuse.loops.text import BROKE, FINISHED, Leaves, Refused
from lazyfuse.loops.values import BITS, Elements, Known, Number, View


class Turns(Quick):
    """Writes loops."""

    def on_break(self, node: ast.Break) -> None:
        head, breaks, _, broke = self.loops[-1]
        breaks.append(dict(self.kinds))
        self.lines += self.edge(self.kinds, head, self.indent)
        if len(self.loops) == 1:
            self.kinds = self.join(head, self.kinds, node)
            self.note(BROKE)
            self.put("leave(1)")
        else:
            self.put(f"{broke} = True")
            self.put("break")
        self.dead = True

    def on_continue(self, node: ast.Continue) -> None:
        head, _, goes_on, _ = self.loops[-1]
        goes_on.append(dict(self.kinds))
        self.lines += self.edge(self.kinds, head, self.indent)
        if len(self.loops) == 1 and isinstance(self.unit, ast.For):
            self.put("cur = cur + step")
        self.put("continue")
        self.dead = True

    def on_while(self, node: ast.While) -> None:
        at, is_unit = self.at, node is self.unit
        with self.loop_of(node) as again:
            _, breaks, _, broke = self.loops[-1]
            self.open("while True:")
            self.at = at
            test = self.truth(node.test)
            self.settle()
            test = self._tested(test)
            if is_unit:
                self.put("cur = cur + 1")  # its turns
            self.open(f"if not ({test}):")
            if is_unit:
                self.note(FINISHED)
                self.put("leave(0)")
            else:
                self.put("break")
            self.close()
            self._turn(node)
            self.body(node.body)
            if is_unit:
                self.useful(node)
            again()
            self.close()
        if isinstance(node.test, ast.Constant) and node.test.value and not breaks:
            self.dead = not is_unit  # nothing comes after it
        elif node.orelse and not is_unit:
            self._choice(f"not {broke}", node, node.orelse, [])

    def _tested(self, test: str) -> str:
        """A test, behind which what functions have written stays written."""
        if self.memory.logs and not self.called:
            test = self.temp(test)
            self.kept_for_good()
        return test

    def _turn(self, node: ast.For | ast.While) -> None:
        """The beginning of a turn."""
        if not self.called:
            self.at = self.numbers[node.body[0]][0] - 1
        self.patience("1")

    def useful(self, unit: ast.For | ast.While) -> None:
        """Refuse a loop that is left in every turn."""
        _, breaks, goes_on, _ = self.loops[-1]
        if self.dead and not breaks and not goes_on:
            raise Refused(
                unit, f"Python has to do line {self.why[0]} in every turn ({self.why[1]})"
            )

    def on_for(self, node: ast.For) -> None:
        is_range = isinstance(node.iter, ast.Call) and self.object(node.iter.func) is range
        item: Callable[[str], Any] = lambda now: Number(now, "int", kinds.SMALL + 1)
        by = 1
        if is_range:
            start, stop, step, by = self.range(node.iter)
            begin, count = start, stop
        else:
            # Python takes what is left of it from the same expression
            assigned = {name for each in (node.target, *node.body) for name in stored(each)}
            if assigned & self.names(node.iter):
                raise Leaves("a loop over what it assigns")
            count, item = self.items(node.iter)
            start, stop, step = begin, _, _ = "int64(0)", count, "1"
        if not by:  # its step is known while it runs
            count, item = self._steps(start, stop, step)
            begin = "int64(0)"
        self.settle()
        number = 0 if self.called else self.at
        begins = self.way(number) if number else 0
        self.temps += 1
        now, begin, last = f"now{self.temps}", self.temp(begin), self.temp(count)
        if number:
            for name, text in (("stop", stop), ("step", step), ("cur", start)):
                self.put(f"{name}_{number} = {text}")
        with self.loop_of(node) as again:
            broke, mark = self.loops[-1].broke, len(self.lines)
            span = Span(now, begin, last, by or 1)
            self.open(f"for {now} in range({begin}, {last}, {by or 1}):")
            if number:
                self.put(f"cur_{number} = {now if by else item(now).text}")
            with self.taking_item(node, now, number, begins):
                self.assign(node.target, item(now))
            self._turn(node)
            self.body(node.body)
            again()
            self.close()
            self.quickly(node, mark, span, item)
        if node.orelse:
            self._choice(f"not {broke}", node, node.orelse, [])

    @contextmanager
    def taking_item(self, node: ast.For, now: str, number: int, begins: int) -> Iterator[None]:
        """Where the item of a turn is taken: Python begins there if it is not what it should be.
        In the first turn it begins with the loop, by the way out `begins`; later with this turn
        (`Exit.rest`).
        """
        if not number:
            yield
            return
        before, self.at = self.at, number + len(self.numbers)  # a way out of its own
        self.taking = number, now, begins
        try:
            yield
        finally:
            self.taking = None
        for code in self.ways.get(self.at, ()):
            self.begins[code] = self.numbers[node.body[0]][0]
        self.at = before

    def items(self, node: ast.expr) -> tuple[str, Callable[[str], Any]]:
        """How many turns a loop over a range, arrays, `enumerate` and so on has, and the item of
        turn k.
        """
        function = self.object(node.func) if isinstance(node, ast.Call) else None
        if isinstance(node, (ast.Tuple, ast.List)) and node.elts:
            return self._written_out(node.elts)
        if function is None:
            return self._elements(node)
        assert isinstance(node, ast.Call)
        given = [*node.args, *[each.value for each in node.keywords if each.arg == "start"]]
        if (node.keywords and function is not enumerate) or not node.args:
            raise Leaves("a loop over the result of a call")
        if function is range:
            start, stop, step, _ = self.range(node)
            return self._steps(start, stop, step)
        if function is enumerate and len(node.args) + len(node.keywords) == len(given) <= 2:
            count, one = self.items(given[0])
            first = self.index(given[1]) if len(given) == 2 else Number("int64(0)", "int")
            base = self.temp(first.text)
            self.leave(f"({base} > {1 << kinds.SMALL}) | ({base} < -{1 << kinds.SMALL})")
            return count, lambda now: (
                Number(f"({now} + {base})", "int", kinds.SMALL + 1),
                one(now),
            )
        if function is zip:
            each = [self.items(x) for x in node.args]
            count = self.temp(each[0][0])
            for other, _ in each[1:]:
                self.put(f"{count} = {other} if {other} < {count} else {count}")
            return count, lambda now: tuple([one(now) for _, one in each])
        if function is reversed and len(node.args) == 1:
            inner = node.args[0]
            count, one = self.items(inner)
            if isinstance(inner, ast.Call) and self.object(inner.func) is not range:
                raise Leaves("a loop over the result of a call")
            return count, lambda now: one(f"({count} - 1 - {now})")
        raise Leaves("a loop over the result of a call")

    def _written_out(self, nodes: list[ast.expr]) -> tuple[str, Callable[[str], Any]]:
        """The items of a tuple of numbers, or of tuples of them, that is written out."""
        rows = [each.elts if isinstance(each, ast.Tuple) else [each] for each in nodes]
        is_tuple = isinstance(nodes[0], ast.Tuple)
        allowed = (ast.Constant, ast.UnaryOp, ast.Name)
        if not all(
            isinstance(x, allowed) and len(each) == len(rows[0]) for each in rows for x in each
        ):
            raise Leaves("a loop over what may change")
        values = [[self.number(x) for x in each] for each in rows]
        columns = [
            [x._replace(text=self.temp(x.text)) for x in each] for each in zip(*values, strict=True)
        ]
        if any(len({x.kind for x in each}) > 1 or each[0].tag for each in columns):
            raise Leaves("a loop over items of several types")

        def item(now: str) -> Any:
            made = []
            for column in columns:
                text = column[-1].text
                for k in reversed(range(len(column) - 1)):
                    text = f"({column[k].text} if {now} == {k} else {text})"
                made.append(Number(self.temp(text), column[0].kind))
            return tuple(made) if is_tuple else made[0]

        return str(len(nodes)), item

    def _steps(self, start: str, stop: str, step: str) -> tuple[str, Callable[[str], Any]]:
        """How many numbers a range has, and number k of it."""
        size = self.temp(f"-(({start} - {stop}) // {step})")
        count = self.temp(f"{size} if {size} > 0 else 0")
        return count, lambda now: Number(f"({start} + {now} * {step})", "int", kinds.SMALL + 1)

    def _elements(self, node: ast.expr) -> tuple[str, Callable[[str], Any]]:
        """The elements of an array, or its rows."""
        held = self.sequence(node)
        if held is not None:
            is_known = isinstance(node, ast.Name) and node.id not in self.stored
            if self.appended and ("" in self.appended or not is_known):
                raise Leaves("a loop over a list beside `append`")
            self.iterated.add(node.id if is_known else "")  # type: ignore[attr-defined]
            size = self.size(held)
            return size, lambda now: self.item_at(held, now)
        kind = self.kinds.get(node.id) if isinstance(node, ast.Name) else None
        if kind == kinds.RANGE:
            name = node.id  # type: ignore[attr-defined]
            return f"{name}_count", lambda now: Number(
                f"({name}_start + {now} * {name}_step)", "int", kinds.SMALL + 1
            )
        array = self.array(node) if isinstance(kind, (ArrayKind, View)) else None
        if array is not None and len(array.sizes) > 1:
            return array.sizes[0], lambda now: self.whole(
                self.part_of(array, [Known(Number(now, "int", kinds.SMALL))])
            )
        if any(isinstance(x, ast.Subscript) for x in ast.walk(node) if x is not node):
            raise Leaves("a loop over what may change")
        row = self.value(node)
        if not isinstance(row, Elements) or not row.is_row() or row.is_new():
            raise Leaves("a loop over other than an array")
        code = row.kind
        return row.size, lambda now: Number(
            self.temp(row.element((now,))), code, BITS.get(code, 63)
        )

    def range(self, node: ast.expr) -> tuple[str, str, str, int]:
        """Start, stop and step of a range, and its step if that is known already."""
        if not isinstance(node, ast.Call) or node.keywords or not 1 <= len(node.args) <= 3:
            raise Leaves("a loop over more than a range")
        given = [self.index(each) for each in node.args]
        texts = [self.temp(each.text) for each in given]
        for text, each in zip(texts, given, strict=True):
            if each.bits > kinds.SMALL:
                limit = 1 << kinds.SMALL
                self.leave(f"({text} > {limit}) | ({text} < -{limit})")
        start, stop = ["int64(0)", *texts][-2:] if len(texts) == 1 else texts[:2]
        if len(texts) < 3:
            return start, stop, "1", 1
        self.leave(f"{texts[2]} == 0")
        try:
            known = int(ast.literal_eval(node.args[2]))
        except ValueError:
            known = 0
        return start, stop, texts[2], known if abs(known) < 1 << 20 else 0

    def on_if(self, node: ast.If) -> None:
        self._choice(self.truth(node.test), node, node.body, node.orelse)

    def _choice(
        self, test: str, node: ast.stmt, body: list[ast.stmt], orelse: list[ast.stmt]
    ) -> None:
        self.settle()
        test = self._tested(test)
        before = dict(self.kinds)
        self.open(f"if {test}:")
        self.body(body)
        place, indent = self.later(), self.indent
        self.close()
        then, then_dead = self.kinds, self.dead
        self.kinds, self.dead = before, False
        self.open("else:")
        self.body(orelse)
        other = self.later()
        self.close()
        if self.dead:
            self.kinds, self.dead = then, then_dead
        elif not then_dead:
            both = self.join(then, self.kinds, node)
            place += self.edge(then, both, indent)
            other += self.edge(self.kinds, both, indent)
            self.kinds = both
