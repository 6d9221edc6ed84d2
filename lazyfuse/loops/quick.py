"""A second text of an innermost loop, which looks once at what the other looks at in every turn.

Owns what is asked before such a loop begins: whether the indices of all turns lie inside of their
arrays, and what it writes, which is kept. It notes whether a turn would have left, and counts none:
then the compiler finds a loop of nothing but arithmetic, for vectors where the turns are apart. If
one would have left, what was there before is put back, and the usual text runs from the first turn.
So the two have one meaning, and the quick one needs no ways out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from lazyfuse.loops import kinds
from lazyfuse.loops.calls import Calls
from lazyfuse.loops.kinds import OTHER
from lazyfuse.loops.names import DOTTED, attributes, stored
from lazyfuse.loops.text import LOOKED, PATIENCE, ROOM, Kinds, Leaves, Maybe, differ
from lazyfuse.loops.values import ZERO, Array, Number, Place, times, total

LEAST = 8
"""Turns for which it pays to ask beforehand."""
MOST = 1024
"""Turns that are kept until it is known that none would have left: they lie in the first cache."""
_MISSES = 4
"""Chunks that one execution of a compiled loop puts back before it tries no more of them."""
_FACTOR = 1024
"""The largest factor of a counter in an index."""
_STATEMENTS = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.If, ast.Pass)
_OVERFLOWS = re.compile(r"(add|sub)_overflows\((\w+), (\w+)\)")
_HARMLESS = re.compile(r"\((\w+) < -?\d+\) \| \(\1 > \d{3,}\)|\w+ == 0\.0")
"""Conditions that may hold in a turn which goes on: nothing follows from them but wrong numbers.
Not those on how far a number is shifted: the compiler takes them for granted afterwards.
"""
_ASSIGNED = re.compile(r"(?m)^ *(?!t\d+ |bad )([A-Za-z_]\w*) = ")
_KEPT = "loop__kept_"
_INTEGERS = ("int", kinds.LONG, *[each for each in kinds.SCALARS if each[0] in "iu"])


class _Unfit(Exception):
    """There is no quick text of this loop."""


class Span(NamedTuple):
    """The turns of a loop: its counter, variables where the rest begins and ends, and its step."""

    now: str
    at: str
    stop: str
    by: int


class _Pass:
    """What is known while a quick text is written."""

    def __init__(self, node: ast.For, span: Span, may_run: str) -> None:
        self.span, self.may_run = span, may_run
        inside = {name for each in node.body for name in stored(each)}
        inside |= {DOTTED.format(*each) for each in attributes(node)[1]}
        self.assigned = inside | stored(node.target)
        self.inside = inside
        self.counters: dict[str, str] = {}
        """Names that are the loop's counter and a number: nothing else assigns them."""
        self.is_serial = _is_serial(node)
        """Whether turns need what earlier ones have written: no vectors."""
        self.sums = _sums(node)
        """Names to which turns only add, or which they multiply."""
        self.is_small: dict[str, bool] = {}
        """Of these: whether what is added is so small that none leaves 64 bits."""
        self.results: set[str] = set()
        """Of these: those that are not finite after the last turn if they were not before."""
        self.before: dict[str, str] = {}
        """Numbers that are the same in all turns, and their names."""
        self.tests: list[str] = []
        self.saved: dict[tuple[str, str], str] = {}
        """What is written: pointer and place, by counter, and the type."""
        self.is_array = False
        """Whether the index that is written is of an array."""


class Quick(Calls):
    """Writes such loops."""

    quick: _Pass | None = None

    def quickly(
        self,
        node: ast.For,
        mark: int,
        span: Span,
        item: Callable[[str], Any],
        may_run: str = "True",
    ) -> None:
        """Put the quick text of a loop before its usual one, which begins at line `mark`."""
        fits = span.by and not self.called and self.routine is None and not self.memory.logs
        statements = [each for each in _inside(node) if isinstance(each, ast.stmt)]
        if not fits or not all(isinstance(each, _STATEMENTS) for each in statements):
            return
        usual, before = self.lines[mark:], (self.indent, self.kinds, dict(self.blocks))
        del self.lines[mark:]
        self.quick = _Pass(node, span, may_run)
        self.kinds = dict(self.loops[-1].head)
        try:
            self._write_quickly(self.quick, node, item)
        except (_Unfit, Leaves):
            del self.lines[mark:]
            self.blocks = before[2]
        finally:
            self.quick = None
            self.pending.clear()
            self.covered.clear()
        self.indent, self.kinds, self.dead = before[0], before[1], False
        self.lines += usual

    def _write_quickly(self, quick: _Pass, node: ast.For, item: Callable[[str], Any]) -> None:
        mark, head = len(self.lines), self.loops[-1].head
        now, at, stop, by = quick.span
        end = f"end{now}"
        self.indent += 3
        with self.under(f"for {now} in range({at}, {end}, {by}):"):
            value = item(now)
            self.assign(node.target, value)
            quick.counters |= _counters(node.target, value, now, quick.inside)
            self.body(node.body)
            if self.dead or differ(self.join(head, self.kinds, node), head):
                raise _Unfit
            if not all(isinstance(_plain(self.kinds.get(x)), str) for x in quick.assigned):
                raise _Unfit
            self.lines += self.edge(self.kinds, head, self.indent)
        loop = self.lines[mark:]
        text = "\n".join(x for each in loop for x in ([each] if type(each) is str else each))
        asks = "bad = " in text or bool(quick.results)
        names = sorted(self._live(head) & set(_ASSIGNED.findall(text))) if asks else []
        if not asks:
            quick.saved.clear()  # no turn leaves
        del self.lines[mark:]
        self.indent -= 3
        size, step = (f"{stop} - {at}", by) if by > 0 else (f"{at} - {stop}", -by)
        size = size if step == 1 else f"({size} + {step - 1}) // {step}"
        misses, goes_on, turns = [f"{each}{now}" for each in ("misses", "goes_on", "turns")]
        self.zeros.append(misses)
        most = str(MOST)
        if any("{}" in place for _, place in quick.saved):
            most = f"({most} if meta[{ROOM}] > {most} else meta[{ROOM}])"
        self.put(f"{goes_on} = {quick.may_run}")
        with self.under(f"while {goes_on}:"):
            self.put(f"{goes_on} = False")
            self.put(f"{turns} = {size}")
            self.put(f"{turns} = {most} if {turns} > {most} else {turns}")
            with self.under(f"if ({turns} >= {LEAST}) & ({misses} < {_MISSES}):"):
                self.put(f"{end} = {at} + {turns} * {by}")
                for number, name in quick.before.items():
                    self.put(f"{name} = {number}")
                with self.under(f"if {' & '.join(dict.fromkeys(quick.tests)) or 'True'}:"):
                    back = self._keep(quick, turns)
                    for name in names:
                        self.put(f"{_KEPT}{name} = {name}")
                    self.put("bad = False")
                    self.lines += loop
                    for each in sorted(quick.results):
                        held = self.variable(each, _plain(head[each]))
                        self.put(f"bad = bad | ({held} - {held} != 0.0)")
                    with self.under("if bad:"):
                        self.put(f"{misses} = {misses} + 1")
                        for each in [*[f"{name} = {_KEPT}{name}" for name in names], *back]:
                            self.put(each)
                    with self.under("else:"):
                        self.put(f"patience = patience + {turns}")
                        self.put(f"{at} = {end}")
                        self.put(f"{goes_on} = True")
                        self._look_at_signals(goes_on)

    def _look_at_signals(self, goes_on: str) -> None:
        """Where the loop is to be left, the usual text does it, in its next turn."""
        with self.under(f"if patience > {PATIENCE}:"):
            if self.memory.holds:
                self.put(f"{goes_on} = False")
                return
            self.put("patience = int64(0)")
            with self.under("if asked(meta[0]) != 0:"):
                self.put(f"patience = int64({LOOKED})")
                self.put(f"{goes_on} = False")

    def _live(self, head: Kinds) -> set[str]:
        """The variables of names and numbers that one turn has of the one before."""
        found = {f"{name}_set" for name in self.flagged}
        for name, kind in head.items():
            if isinstance(_plain(kind), str) and kind != OTHER:
                held = self.variable(name, _plain(kind))
                found |= {held, f"{held}_tag"}
        return found

    def _keep(self, quick: _Pass, turns: str) -> list[str]:
        """Keep what the loop writes; the lines that put it back."""
        back: list[str] = []
        for block, ((pointer, place), code) in enumerate(quick.saved.items()):
            if "{}" not in place:
                held = self.temp(f"{pointer}[{place}]")
                back.append(f"{pointer}[{place}] = {held}")
                continue
            memory = f"scratch{block}_{code}"
            self.blocks[memory] = block, code
            self.temps += 1
            k = f"q{self.temps}"
            at = place.replace("{}", f"({quick.span.at} + {k} * {quick.span.by})")
            with self.under(f"for {k} in range({turns}):"):
                self.put(f"{memory}[{k}] = {pointer}[{at}]")
            back += [f"for {k} in range({turns}):", f"  {pointer}[{at}] = {memory}[{k}]"]
        return back

    def _affine(self, quick: _Pass, node: ast.expr) -> tuple[int, str] | None:
        """An index as `factor * counter + rest`, where the rest is one number in all turns; None if
        it is not known to be one.
        """
        node = self.named(node)
        limit = 1 << kinds.SMALL
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return (0, f"int64({node.value})") if abs(node.value) < limit else None
        if isinstance(node, ast.Name):
            if node.id in quick.counters:
                return 1, quick.counters[node.id]
            kind = self.kinds.get(node.id)
            if node.id in quick.assigned or kind not in _INTEGERS:
                return None
            name = self.variable(node.id, kind)
            quick.tests.append(f"({name} < {limit}) & ({name} > {-limit})")
            return 0, name
        if not isinstance(node, ast.BinOp):
            return None
        first, second = self._affine(quick, node.left), self._affine(quick, node.right)
        if first is None or second is None:
            return None
        (factor, rest), (other, beside) = first, second
        if isinstance(node.op, ast.Add):
            return factor + other, total((rest, beside))
        if isinstance(node.op, ast.Sub):
            return factor - other, rest if beside == ZERO else f"{rest} - ({beside})"
        if isinstance(node.op, ast.Mult) and isinstance(node.left, ast.Constant):
            by = int(node.left.value)  # type: ignore[arg-type]
            return (by * other, f"{rest} * ({beside})") if abs(by) <= _FACTOR else None
        if isinstance(node.op, ast.Mult) and not factor and not other:
            for text in (rest, beside):
                quick.tests.append(f"({text} < {1 << 30}) & ({text} > {-(1 << 30)})")
            return 0, f"({rest}) * ({beside})"
        return None

    def _along(self, quick: _Pass, node: ast.expr, size: str) -> str | None:
        """An index along an axis, by counter; one that is outside in some turn fails the tests."""
        found = self._affine(quick, node)
        if found is None:
            return None
        factor, rest = found
        if abs(factor) > _FACTOR:  # its products might not fit
            return None
        if not factor:
            held = self._same(quick, f"{rest} + ({size} if {rest} < 0 else 0)")
            quick.tests.append(f"({held} >= 0) & ({held} < {size})")
            return held
        held = rest if rest == ZERO else self._same(quick, rest)
        place = total((f"{factor} * {{}}" if factor != 1 else "{}", held))
        end = f"(end{quick.span.now} - ({quick.span.by}))"
        for turn in (quick.span.at, end):
            at = place.replace("{}", turn)
            quick.tests.append(f"({at} >= 0) & ({at} < {size})")
        return f"({place})"

    def _same(self, quick: _Pass, text: str) -> str:
        """The name of a number that is computed before the first turn."""
        if text not in quick.before:
            self.temps += 1
            quick.before[text] = f"t{self.temps}"
        return quick.before[text]

    # what the usual text asks in every turn

    def leave(self, condition: str = "") -> None:
        if self.quick is None:
            super().leave(condition)
            return
        if not condition or self.called:
            raise _Unfit
        wraps = _OVERFLOWS.fullmatch(condition)
        if wraps:
            name, a, b = wraps.groups()
            sign, beyond = ("+", "<") if name == "add" else ("-", ">")
            condition = f"({a} {sign} {b} {beyond} {a}) != ({b} < 0)"
        if _HARMLESS.fullmatch(condition) or (wraps and not self.quick.is_serial):
            self.put(f"bad = bad | ({condition})")
            return
        with self.under(f"if {condition}:"):
            self.put("bad = True")
            self.put("break")

    def settle(self) -> None:
        if self.quick is None:
            super().settle()
            return
        for _, _, result in self.pending:
            if result not in self.covered:
                self.put(f"bad = bad | ({result} - {result} != 0.0)")
        self.pending.clear()
        self.covered.clear()

    def patience(self, turns: str) -> None:
        if self.quick is None:
            super().patience(turns)

    def changed(self, name: str, op: ast.operator, before: Number, value: Number) -> Number:
        """What `op=` makes of a name's number."""
        quick = self.quick
        if quick is None or name not in quick.sums:
            return self.binary(op, before, value)
        is_small = before.kind == value.kind == "int" and value.bits <= kinds.SMALL
        is_small = is_small and not isinstance(op, ast.Mult)
        if quick.is_small.setdefault(name, is_small) != is_small:
            raise _Unfit  # what is asked for in one statement may leave no room for the other
        if is_small:
            limit, sign = 1 << 61, "+" if isinstance(op, ast.Add) else "-"
            quick.tests.append(f"({before.text} < {limit}) & ({before.text} > {-limit})")
            return Number(self.temp(f"{before.text} {sign} {value.text}"), "int")
        found = self.binary(op, before, value)
        if any(found.text == result for _, _, result in self.pending):
            self.covered.add(found.text)
            quick.results.add(name)
        return found

    def way(self, at: int) -> int:
        if self.quick is not None:
            raise _Unfit
        return super().way(at)

    def array(self, node: ast.expr) -> Array:
        quick = self.quick
        if (
            quick is not None
            and self.names(self.named(node)) & quick.assigned - quick.counters.keys()
        ):
            raise _Unfit
        return super().array(node)

    def _offset(self, array: Array, keys: list[ast.expr]) -> tuple[str, tuple[str, ...]]:
        if self.quick is None:
            return super()._offset(array, keys)
        self.quick.is_array = True
        found = super()._offset(array, keys)
        self.quick.is_array = False
        return found

    def inside(self, node: ast.expr, size: str) -> str:
        quick = self.quick
        if quick is not None and quick.is_array:
            quick.is_array = False  # an index in an index may be of a list
            found = self._along(quick, node, size)
            found = (
                super().inside(node, size) if found is None else found.replace("{}", quick.span.now)
            )
            quick.is_array = True
            return found
        return super().inside(node, size)

    def place(self, node: ast.Subscript) -> Place:
        found, quick = super().place(node), self.quick
        if quick is None or not isinstance(node.ctx, ast.Store):
            return found
        array, terms = self.array(node.value), []  # type: Array, list[str]
        if not isinstance(self.named(node.value), ast.Name) or self.called:
            raise _Unfit
        for axis, size, key in zip(array.axes, array.sizes, self._keys(node), strict=True):
            at = self._along(quick, key, size)
            if at is None:
                raise _Unfit
            terms.append(times(at, self.stride(array.name, array.kind, axis)))
        quick.saved[found.pointer, total((array.first, *terms))] = found.code
        return found

    @contextmanager
    def each(self, count: str, is_alone: bool = True) -> Iterator[str]:
        if self.quick is not None:
            raise _Unfit
        with super().each(count, is_alone) as found:
            yield found

    def of_function(self, *given: Any, **named: Any) -> Any:
        if self.quick is not None:
            raise _Unfit
        return super().of_function(*given, **named)


def _counters(target: ast.expr, value: Any, now: str, barred: set[str]) -> dict[str, str]:
    """The names that a turn gives `now` and a number, and this number."""
    if isinstance(target, ast.Tuple) and type(value) is tuple:
        several = [
            _counters(x, each, now, barred) for x, each in zip(target.elts, value, strict=True)
        ]
        return {name: number for each in several for name, number in each.items()}
    if not isinstance(target, ast.Name) or not isinstance(value, Number) or target.id in barred:
        return {}
    found = re.fullmatch(rf"{now}|\({now} \+ (\w+)\)", value.text)
    return {} if found is None else {target.id: found[1] or ZERO}


def _plain(kind: Any) -> Any:
    return kind.kind if isinstance(kind, Maybe) else kind


def _inside(node: ast.For) -> list[ast.AST]:
    """The nodes of a loop's body."""
    return [each for statement in node.body for each in ast.walk(statement)]


def _is_serial(node: ast.For) -> bool:
    """Whether a turn reads an array at another place than where it, or another turn, writes."""
    written, read = dict[str, set[str]](), dict[str, set[str]]()
    for each in _inside(node):
        if isinstance(each, ast.Subscript) and isinstance(each.value, ast.Name):
            places = written if isinstance(each.ctx, ast.Store) else read
            places.setdefault(each.value.id, set()).add(ast.unparse(each.slice))
    return any(len(places | read.get(name, set())) > 1 for name, places in written.items())


def _sums(node: ast.For) -> set[str]:
    """The names that a loop's body assigns by `+=`, `-=` and `*=` alone."""
    inside = _inside(node)
    changed = [
        each.target
        for each in inside
        if isinstance(each, ast.AugAssign) and isinstance(each.op, (ast.Add, ast.Sub, ast.Mult))
    ]
    others = {
        each.id
        for each in inside
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store) and each not in changed
    }
    return {each.id for each in changed if isinstance(each, ast.Name)} - others
