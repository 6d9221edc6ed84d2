"""The text of a loop while it is written: lines, ways out, and the kinds of the names.

Owns what a name's kind is where two ways meet, and at the beginning of a loop: the kinds of its
entry joined with those that the ends of its turns bring. A loop is written again until they hold.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from lazyfuse.loops import kinds
from lazyfuse.loops.kinds import OTHER, UNBOUND, ArrayKind
from lazyfuse.loops.names import DOTTED, attributes, stored
from lazyfuse.loops.values import Elements, Item, Number, Value, View

LARGE = 1 << 16
"""Elements on several axes up to which a statement is compiled into its loop: larger ones are
recorded, and run on all cores.
"""
PATIENCE = 1 << 20  # turns, with all statements in them, after which signals are looked at
LOOKED = 1 << 60  # as many turns: they have been looked at, and the loop is to be left


class Refused(Exception):
    """A loop that stays in Python, with the reason and the line."""

    def __init__(self, node: ast.AST, why: str) -> None:
        super().__init__(f"line {getattr(node, 'lineno', 0)}: {why}")


class Leaves(Exception):
    """A statement that Python has to do, always."""


class Again(Exception):
    """The kinds at the beginning of a loop were not known yet."""


Kinds = dict[str, Any]
"""What the names hold: the kind of a number, an `ArrayKind`, a `View`, an `Object`, `OTHER`; or
`UNBOUND`: what Python has there, if anything."""


class Maybe(NamedTuple):
    """The kind of a name that the loop may not have assigned yet."""

    kind: Any


class Routine:
    """A function that calls itself, for arguments of certain kinds."""

    def __init__(self, name: str, callee: Any) -> None:
        self.name, self.callee = name, callee
        self.results = ["int"]
        """The kinds of its results, as far as they are known."""
        self.guesses = ["f8", "bool", "float"]
        """What else its result may be, if it cannot be that."""
        self.is_tuple = self.is_known = self.is_union = False
        self.places: list[int] = []
        """Where its results are when it returns."""


class Meant(NamedTuple):
    """The text of a loop, and how to enter and leave it."""

    text: str
    enters: list[tuple[str, Any, int]]
    """Names, their kinds, and where their words begin."""
    leaves: dict[int, dict[str, Any]]
    """For each way out, the kinds of what the loop may have assigned."""
    slots: dict[tuple[str, Any], int]
    """Where the number of a name and kind is when the loop has been left."""
    flags: dict[str, int]
    """Of names that had no number at entry: where it is whether the loop has assigned them."""
    begins: dict[int, int]
    """For each way out, the statement with which Python goes on."""
    counters: dict[int, int]
    """For each `for`, by its number, where its counter, stop and step are."""
    words: int
    ends: set[int]
    """Statements that end the loop: `return`, `raise`."""
    reasons: dict[int, str]
    """Of statements that Python always has to do."""
    constants: list[tuple[Callable[..., Any], tuple[Any, ...], Any]]
    """Calls that must still have these results: names of functions, and what these contain."""
    functions: list[tuple[np.ufunc, int, int]]
    """Loops of NumPy's functions, and where their addresses are."""
    blocks: int
    """Arrays of working memory."""
    origins: list[str]
    """The names that hold arrays at entry."""
    logs: bool
    """Whether it needs memory for what functions overwrite."""
    appended: set[str]
    """Lists to which the loop appends: it does not go over them."""
    iterated: set[str]
    """Names of the sequences that it goes over."""
    grids: bool
    """Whether working memory has room for whole arrays."""
    recurses: bool
    """Whether it contains functions that call themselves."""
    makes: set[type] | None
    """Whose arrays the loop makes, beside those of its arrays; None: it makes none."""


FINISHED, BROKE, FIRST = 0, 1, 2
"""How a loop ends; a larger code is a way out."""
ASKED, CUR, STOP, STEP, SCRATCH, ROOM, ARENA, END, LOG, LOGS, OBJECTS, DEPTH = range(12)
HEAD = 12
LOGGED = 256, 1 << 14
"""Elements that functions may write during one statement; functions that call themselves."""
"""Words at the beginning: whom to ask for signals, the loop's counter, stop and step, working
memory and how many numbers a block of it holds, memory for arrays of the loop's own and its end,
for what functions have overwritten and how much that is, a table of Python's types (objects.py),
and how deep a function may call itself."""


def numbered(unit: ast.For | ast.While) -> dict[ast.stmt, tuple[int, int, int]]:
    """Statements of a loop's body in order: a number, the last one in its body, the last in it."""
    found: dict[ast.stmt, tuple[int, int, int]] = {}
    count = 0

    def walk(statements: list[ast.stmt]) -> None:
        nonlocal count
        for each in statements:
            count += 1
            number = count
            if isinstance(each, (ast.If, ast.For, ast.While)):
                walk(each.body)
                inner = count
                walk(each.orelse)
                found[each] = number, inner, count
            else:
                found[each] = number, number, number

    walk(unit.body)
    return found


class Memory:
    """What is known of a loop when its text is written again."""

    def __init__(self, unit: ast.AST) -> None:
        self.heads: dict[ast.AST, Kinds] = {}
        self.callees: dict[tuple[ast.AST, Any, frozenset[str]], Any] = {}
        self.recursive: set[Any] = set()
        """Functions that call themselves."""
        self.routines: dict[Any, Routine] = {}
        self.logs = False
        """Whether functions write into arrays: where a statement is left, this is undone."""
        self.forgotten: set[str] = set()
        """Names whose arrays at entry the loop does not use."""
        self.items: dict[str, str] = {}
        """Empty lists to which the loop appends, and the kinds of these numbers."""
        self.holds = False
        """Whether the loop looks at objects that it does not own."""
        self.wide: set[str] = set()
        """Names that get integers of more bits than those of a counter."""
        self.aliased: set[str] = set()
        """Names that may hold one array."""
        self.aliases(unit)

    def aliases(self, tree: ast.AST) -> None:
        """Note such names of a text."""
        for each in ast.walk(tree):
            if isinstance(each, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and each.value:
                names = _held(each.value)
                if names:
                    targets = each.targets if isinstance(each, ast.Assign) else [each.target]
                    self.aliased |= names.union(*map(_held, targets))


def _held(node: ast.expr) -> set[str]:
    """The names and attributes that an expression, or each part of a tuple, is."""
    if isinstance(node, (ast.Tuple, ast.List)):
        return set().union(*map(_held, node.elts))
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return {DOTTED.format(node.value.id, node.attr)}
    return {node.id} if isinstance(node, ast.Name) else set()


class Looped(NamedTuple):
    """A loop while it is written."""

    head: Kinds
    breaks: list[Kinds]
    goes_on: list[Kinds]
    broke: str
    """The variable that says whether it ended by `break`."""


def _is_known(kind: Any) -> bool:
    """Whether a loop may give a name a value of this kind."""
    return isinstance(kind, (str, View, ArrayKind, kinds.Sequence)) and kind != OTHER


def differ(first: Kinds, second: Kinds) -> bool:
    """Whether names have other kinds; `Literal` is one, though it is equal to "int"."""
    return first != second or any(type(first[name]) is not type(second[name]) for name in first)


class Text:
    """Writes the text of one loop."""

    # What modules above this one add, each its part of the class.
    assign: Callable[[ast.expr, Item], None]
    body: Callable[[list[ast.stmt]], None]
    index: Callable[[ast.expr], Number]
    is_array: Callable[[ast.expr], bool]
    kept_for_good: Callable[[], None]
    listed: Callable[..., Elements]
    number: Callable[..., Number]
    object: Callable[[ast.expr], Any]
    ufunc: Callable[[np.ufunc, Sequence[Value]], Value]
    value: Callable[..., Value]

    def __init__(
        self,
        unit: ast.For | ast.While,
        entry: Kinds,
        function_of: Callable[[Any], Any],
        memory: Memory,
    ) -> None:
        self.unit = unit
        self.numbers = numbered(unit)
        self.entry = entry
        self.function_of = function_of
        self.memory, self.heads = memory, memory.heads
        self.kinds: Kinds = dict(entry)
        self.lines: list[Any] = []  # texts, and lists of texts that are known later
        self.indent = 2
        self.temps = 0
        self.at = 0
        self.leaves: dict[int, dict[str, Any]] = {}
        self.stored = stored(unit)
        self.stored |= {DOTTED.format(*each) for each in attributes(unit)[1]} & set(entry)
        self.slots: dict[tuple[str, Any], int] = {}
        self.counters: dict[int, int] = {}
        self.taking: tuple[int, str, int] | None = None  # see `Turns.taking_item`
        self.begins: dict[int, int] = {}
        self.ways: dict[int, list[int]] = {}
        self.words = HEAD
        self.enters: list[tuple[str, Any, int]] = []
        self.constants: list[tuple[Callable[..., Any], tuple[Any, ...], Any]] = []
        self.pending: list[tuple[str, str, str]] = []  # operands and results
        self.covered: set[str] = set()
        self.loops: list[Looped] = []
        self.called: list[Any] = []
        self.routines: dict[Routine, list[Any]] = {}
        self.routine: Routine | None = None  # which is being written
        self.functions: list[tuple[np.ufunc, int, int]] = []
        self.blocks: dict[str, tuple[int, str]] = {}  # working memory, by name: which, and its type
        self.block = 0
        self.origins: list[str] = []
        self.own: set[str] = set()  # places of arrays of the loop's own
        self.zeros: list[str] = []  # variables that are zero at first
        self.appended: set[str] = set()
        self.iterated: set[str] = set()
        self.makes_grids = False
        self.makes: set[type] | None = None
        self.makers: set[type] = set()
        self.flags: dict[str, int] = {}
        self.flagged: set[str] = set()  # names with a flag, those of called functions among them
        self.dead = False
        self.why: tuple[int, str] = (0, "")
        self.reasons: dict[int, str] = {}

    def _take(self, count: int) -> int:
        self.words += count
        return self.words - count

    def _slot(self, name: str, kind: Any) -> int:
        found = self.slots.get((name, kind))
        if found is None:
            words = 2 + kind.rank if isinstance(kind, ArrayKind) else 2
            if isinstance(kind, View):
                words = len(self.words_of(name, kind))
            elif type(kind) is str:
                words += "|" in kind  # its tag is the last
            found = self.slots[name, kind] = self._take(words)
        return found

    def words_of(self, name: str, view: View) -> list[str]:
        """The variables of a name that holds a view: the indices that make it, and its lengths."""
        rank = self.entry[view.base].rank
        own = "_".join([name, "of", view.base, *map(str, view.axes)])
        return [f"{own}_k{k}" for k in range(rank)] + [f"{own}_n{k}" for k in view.axes]

    def named(self, node: ast.expr) -> ast.expr:
        """An attribute that was read at entry is a name."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = DOTTED.format(node.value.id, node.attr)
            if name in self.entry:
                return ast.Name(name, ast.Load())
        return node

    def is_variable(self, name: str) -> bool:
        """Whether the loop, or a function that it calls, assigns the name."""
        return name in self.stored or name in self.flagged

    def array_words(self, name: str, kind: ArrayKind) -> list[str]:
        """The variables of a name that holds an array: pointer, sizes, steps; of a name that the
        loop assigns, whose array it is.
        """
        if self.is_variable(name):
            name = f"{name}_{kind.code}{kind.rank}{kind.unit:d}{kind.writes:d}"
        sizes = [f"{name}_{letter}{k}" for letter in "ns" for k in range(kind.rank)]
        return [f"{name}_p", *sizes, f"{name}_o"]

    def put(self, line: str) -> None:
        self.lines.append("  " * self.indent + line)

    def open(self, line: str) -> None:
        self.put(line)
        self.indent += 1

    def close(self) -> None:
        self.indent -= 1

    @contextmanager
    def under(self, line: str) -> Iterator[None]:
        """What is written inside of that line."""
        self.open(line)
        yield
        self.close()

    @contextmanager
    def each(self, count: str, is_alone: bool = True) -> Iterator[str]:
        """A loop over elements. `is_alone`: no turn needs what another has written."""
        self.temps += 1
        q = f"q{self.temps}"
        with self.under(f"for {q} in range({count}):"):
            if is_alone:
                self.put("independent()")
            yield q

    def temp(self, text: str) -> str:
        self.temps += 1
        name = f"t{self.temps}"
        self.put(f"{name} = {text}")
        return name

    def variable(self, name: str, kind: str) -> str:
        return f"{name}_{kind.replace('|', '_or_')}"

    def hold(self, variable: str, value: Number) -> Number:
        """Keep a number in a variable."""
        if not value.tag:
            self.put(f"{variable} = {value.text}")
            return value._replace(text=variable)
        held = self.temp(value.text)
        self.put(f"{variable}_tag = {value.tag}")
        self.put(f"{variable} = {held}")
        return value._replace(text=variable, tag=f"{variable}_tag")

    @staticmethod
    def word(kind: str, at: int) -> str:
        """The text of a number of this kind that is in the words at `at`."""
        form = {"i8": "meta[{}]", "b1": "meta[{}] != 0", "f8": "scalars[{}]"}
        form["c16"] = "complex(scalars[{}], scalars[{}])"
        return form[kinds.register(kind)].format(at, at + 1)

    def put_word(self, value: Number, at: int) -> None:
        """Write a number to the words at `at`; the tag of a union is the third."""
        if value.tag:
            self.put(f"meta[{at + 2}] = int64(1 if {value.tag} else 0)")
        register, text = kinds.register(value.kind), value.text
        if register == "c16":
            self.put(f"scalars[{at}] = {text}.real")
            self.put(f"scalars[{at + 1}] = {text}.imag")
        elif register == "f8":
            self.put(f"scalars[{at}] = {text}")
        else:
            self.put(f"meta[{at}] = int64({text})")

    def as_union(self, value: Number, kind: str) -> Number:
        """A number as one of several types; its tag says whether it is of the second."""
        if value.kind == kind:
            return value
        text = value.text
        if kinds.register(value.kind) != kinds.register(kind):
            if value.bits > 53:
                raise Leaves("an integer that may be large beside a float")
            text = f"float64({text})"
        return Number(text, kind, value.bits, str(value.kind == kinds.numpys(kind)))

    def later(self) -> list[str]:
        """A place in the text for lines that are known later; they get its indentation."""
        place: list[str] = []
        self.lines.append(place)
        return place

    def edge(self, before: Kinds, after: Kinds, indent: int) -> list[str]:
        """What makes unions of the numbers of names, on a way from kinds to kinds."""
        made = []
        for name, kind in after.items():
            new = kind.kind if isinstance(kind, Maybe) else kind
            old = before.get(name)
            old = old.kind if isinstance(old, Maybe) else old
            if (
                isinstance(new, str)
                and "|" in new
                and isinstance(old, str)
                and old not in (new, OTHER)
            ):
                target, held = self.variable(name, new), self.variable(name, old)
                if kinds.register(old) != kinds.register(new):
                    held = f"float64({held})"
                made.append(f"{target} = {held}")
                made.append(f"{target}_tag = {old == kinds.numpys(new)}")
        return ["  " * indent + each for each in made]

    def leave(self, condition: str = "") -> None:
        """Let Python do this statement, where a condition holds."""
        if condition:
            self.open(f"if {condition}:")
        if self.taking is not None:
            number, now, begins = self.taking
            with self.under(f"if {now} == 0:"):
                self.put(f"leave({begins})")
            self.put(f"step_{number} = 0")
            self.put(f"cur_{number} = {now} - 1")
        self.put(self.out(self.at))
        if condition:
            self.close()

    def out(self, at: int) -> str:
        """What lets Python go on at a statement."""
        return f"leave({self.way(at)})" if self.routine is None else "return int32(1)"

    def way(self, at: int) -> int:
        """The way out at a statement: its code. Where names have other kinds, it is another one."""
        here = self._here()
        codes = self.ways.setdefault(at, [])
        for code in codes:
            known = self.leaves[code]
            if all(known.get(name, kind) == kind for name, kind in here.items()):
                known.update(here)
                return code
        codes.append(FIRST + at if not codes else FIRST + 2 * len(self.numbers) + len(self.leaves))
        self.leaves[codes[-1]] = here
        self.begins[codes[-1]] = at
        return codes[-1]

    def note(self, code: int) -> None:
        """Remember the kinds of the names where the loop ends."""
        self.leaves.setdefault(code, {}).update(self._here())

    def _here(self) -> Kinds:
        """The kinds of the names that the loop may have assigned."""
        here = {}
        for name in sorted(self.stored):  # the text is the same in every process
            kind = self.kinds.get(name)
            kind = kind.kind if isinstance(kind, Maybe) else kind
            if _is_known(kind):
                self._slot(name, kind)
                here[name] = kind
        return here

    def patience(self, turns: str) -> None:
        """Look at signals now and then, at the beginning of a turn."""
        first = self.at + (not self.called)
        self.put(f"patience = patience + {turns}")
        self.open(f"if patience > {PATIENCE}:")
        was_asked = self.temp(f"patience >= {LOOKED}")
        self.put("patience = int64(0)")
        asked = f"{was_asked} | (asked(meta[0]) != 0)"
        with self.under("if True:" if self.memory.holds else f"if {asked}:"):
            self.put(self.out(first))
        self.close()

    def join(self, first: Kinds, second: Kinds, node: ast.AST) -> Kinds:
        """The kinds after either of two ways."""
        made = dict(first)
        for name in dict.fromkeys((*first, *second)):
            one, other = first.get(name, OTHER), second.get(name, OTHER)
            made[name] = self.both(one, other)
            is_known = any(_is_known(x) or isinstance(x, Maybe) for x in (one, other))
            if made[name] == OTHER and is_known:
                if (
                    isinstance(self.entry.get(name), ArrayKind)
                    and name not in self.memory.forgotten
                ):
                    self.memory.forgotten.add(name)
                    self.heads.clear()
                    raise Again
                raise Refused(node, f"{name} is a number of several types")
        return made

    @staticmethod
    def both(one: Any, other: Any) -> Any:
        if one == other:
            return one if type(one) is type(other) else str(one)
        for a, b in ((one, other), (other, one)):
            if a is UNBOUND and b != OTHER:
                return b if isinstance(b, Maybe) else Maybe(b)
            if isinstance(a, Maybe) and a.kind == b:
                return a
        plain = [each.kind if isinstance(each, Maybe) else each for each in (one, other)]
        if all(isinstance(each, str) and each != OTHER for each in plain):
            found = kinds.union(*plain)
            is_exact = not any(x == "int" and type(x) is str for x in plain)
            if found is not None and (is_exact or kinds.register(found) == "i8"):
                return Maybe(found) if isinstance(one, Maybe) or isinstance(other, Maybe) else found
        return OTHER

    @contextmanager
    def loop_of(self, node: ast.AST) -> Iterator[Callable[[], None]]:
        """A loop: the kinds at its beginning are those of its entry and of each turn's end."""
        known = self.heads.get(node)
        if known is not None:
            entry = self.join(known, self.kinds, node)
            if differ(entry, known):
                self.heads[node] = entry
                raise Again
            self.lines += self.edge(self.kinds, known, self.indent)
            self.kinds = dict(known)
        else:
            self.heads[node] = dict(self.kinds)
        head = dict(self.heads[node])
        self.temps += 1
        looped = Looped(head, [], [], f"broke{self.temps}")
        _, breaks, goes_on, broke = looped
        self.put(f"{broke} = False")
        self.loops.append(looped)

        def again() -> None:
            # what a `break` brings is joined, too: one way out has one kind for a name
            ends = [*goes_on, *breaks, *([] if self.dead else [self.kinds])]
            found = head
            for each in ends:
                found = self.join(found, each, node)
            if differ(found, head):
                self.heads[node] = found
                raise Again
            if not self.dead:
                self.lines += self.edge(self.kinds, head, self.indent)
            self.dead = False

        yield again
        self.loops.pop()
        self.kinds = dict(head)
        self.dead = False
