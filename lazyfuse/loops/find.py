"""Finds the loops of a program's text, and lets each be taken over while it runs.

Owns the text around a loop. The loop itself runs part by part; between two parts the compiled loop
runs, if there is one:

    for .part in (LOOP.parts(ITEMS) if LOOP.on and LOOP.tick() else (ITEMS,)):
        for TARGET in .part:
            BODY
        else:
            if .part.__class__ in LOOP.kinds and .part.wants():
                .exit = .part.run((names...)); names... = .exit.values; .at = .exit.at
                for .turn in .exit.turns:
                    GUARDED BODY (leaving.py)
                else:
                    if .exit.broke: break
                    continue
                break
            continue
        break
    else:
        ELSE

A loop with others in it that is not hot pays for `tick` and one tuple. An innermost one has its own
text beside this, under the same question. `LOOP` is an object among the
code's constants: a program's names are its own.
"""

from __future__ import annotations

import ast
import copy
import itertools
import operator
import re
import textwrap
from collections.abc import Callable
from types import CodeType
from typing import Any

from lazyfuse import config
from lazyfuse.devices.caches import cached, register
from lazyfuse.loops import leaving, take_over
from lazyfuse.loops.items import NAMES
from lazyfuse.loops.leaving import AT, EXIT, method
from lazyfuse.loops.names import temporaries
from lazyfuse.runtime.scheduling import evaluate

TURN = ".turn"
_MARK = "\0lazyfuse loop "
_BARRED = (
    ast.Yield, ast.YieldFrom, ast.Await, ast.AsyncFor, ast.AsyncWith, ast.FunctionDef,
    ast.AsyncFunctionDef, ast.ClassDef, ast.Global, ast.Nonlocal, ast.Delete, ast.Import,
    ast.ImportFrom, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp,
    ast.Match,
)  # fmt: skip
"""What no compiled loop contains: its names may mean anything afterwards."""
_TAKEN = re.compile(r"((items|call)\d+|dot|loop)__")
"""Names that texts of compiled loops use."""
_NOT_EXPANDED = (ast.Yield, ast.YieldFrom, ast.Await)
"""What no function has that is expanded where a loop calls it."""
_SEES_NAMES = frozenset(("locals", "vars", "exec", "eval", "dir", "globals"))
_COMPILERS = re.compile("jit|vectorize|stencil|cfunc|overload|compile")
"""Names of what compiles a function or a class from its code (numba's, torch's): that stays."""
_NUMBERS = itertools.count()
_MOST = 1200
"""Nodes of a loop that is looked at."""

_functions: dict[tuple[str, int, str], ast.FunctionDef] = {}
register("loops.find.functions", _functions.__len__, None, None, "of texts being compiled")
_found: dict[str, take_over.Loop] = {}
register("loops.find.found", _found.__len__, None, None, "loops of texts that are being compiled")


def rewrite(tree: ast.AST, path: str) -> bool:
    """Prepare the loops of a syntax tree; whether there are any."""
    if not isinstance(tree, ast.Module) or not config.options.loops:
        return False
    if take_over.is_watched() or not evaluate.IS_MAIN:
        return False
    finder = _Finder(path, tree)
    tree.body = finder.scope(tree.body)
    return bool(finder.count or _functions)


def insert(code: CodeType) -> CodeType:
    """Put the loops into compiled code, where their marks are; note whose code is a function's."""
    function = _functions.pop((code.co_filename, code.co_firstlineno, code.co_name), None)
    constants = tuple(
        insert(each)
        if isinstance(each, CodeType)
        else _found.pop(each, each)
        if isinstance(each, str) and each.startswith(_MARK)
        else each
        for each in code.co_consts
    )
    same = all(a is b for a, b in zip(constants, code.co_consts, strict=True))
    made = code if same else code.replace(co_consts=constants)
    if function is not None:
        take_over.functions[made] = function
    return made


class _Finder:
    """Walks over the scopes of a text."""

    def __init__(self, path: str, tree: ast.Module) -> None:
        self.path = path
        self.compiled = {
            name.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and _is_compiler(node.func)
            for name in node.args
            if isinstance(name, ast.Name)
        }
        self.count = 0

    def scope(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """The statements of a function or a module, with their loops prepared."""
        is_seen = any(
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in _SEES_NAMES
            for each in body
            for node in ast.walk(each)
        )
        return self.statements(body, is_seen)

    def statements(self, body: list[ast.stmt], is_seen: bool) -> list[ast.stmt]:
        """New statements; those that are given stay as they are, and lend their parts."""
        return [made for each in body for made in self.statement(each, is_seen)]

    def statement(self, node: ast.stmt, is_seen: bool) -> list[ast.stmt]:
        name = getattr(getattr(node, "target", node), "id", "")
        if name.startswith(".") or any(map(_is_compiler, getattr(node, "decorator_list", ()))):
            return [node]  # taken already, or another compiler's
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if node.name in self.compiled:
                return [node]
            if isinstance(node, ast.FunctionDef) and not _has(node, _NOT_EXPANDED):
                _functions[self.path, node.lineno, node.name] = node
            return [_with(node, body=self.scope(node.body))]
        if isinstance(node, ast.ClassDef):
            return [_with(node, body=self.statements(node.body, True))]
        if isinstance(node, (ast.For, ast.While)) and not is_seen and _is_candidate(node):
            return self.taken(node)
        fields: dict[str, list[Any]] = {
            name: self.statements(inner, is_seen)
            for name in ("body", "orelse", "finalbody")
            if isinstance(inner := getattr(node, name, None), list)
        }
        if isinstance(node, ast.Try):
            fields["handlers"] = [
                _with(each, body=self.statements(each.body, is_seen)) for each in node.handlers
            ]
        return [_with(node, **fields)]

    def taken(self, node: ast.For | ast.While) -> list[ast.stmt]:
        """A loop with what lets it be taken over."""
        self.count += 1
        number, mark = self.count, f"{_MARK}{next(_NUMBERS)}"
        found = [each for each in ast.walk(node) if isinstance(each, ast.Name)]
        names = sorted({each.id for each in found} - temporaries(node))
        stored = sorted({each.id for each in found if isinstance(each.ctx, ast.Store)})
        _found[mark] = take_over.Loop(node, names, stored, self.path)
        has_inner = any(_has(each, (ast.For, ast.While)) for each in node.body)
        new = _maker(node)
        loop = new(ast.Constant, mark)
        given: dict[str, Any] = {
            _LOOP: loop,
            _PART: f".part{number}",  # loops in this one have others
            _EXIT: EXIT,
            _AT: AT,
            _TURN: TURN,
            _GIVEN: ".values",
            "loop__values": new(
                ast.List, [new(ast.Name, each, ast.Load()) for each in names], ast.Load()
            ),
            "loop__back": [
                _filled(
                    _BACK,
                    {_EXIT: EXIT, _LOOP: loop, "loop__k": new(ast.Constant, k), "loop__name": each},
                    node,
                )[0]
                for k, each in enumerate(stored)
            ],
            "loop__body": self.statements(node.body, False),
            "loop__orelse": node.orelse,
            "loop__guarded": leaving.guarded(node),
            "loop__plain": [node],
        }
        if isinstance(node, ast.For):
            given |= {"loop__source": node.iter, "loop__items": _items(loop, node.iter)}
            given["loop__target"] = node.target
        else:
            given["loop__test"] = node.test
        return _filled(_text(type(node), has_inner, bool(node.orelse)), given, node)


_LOOP, _PART, _EXIT, _AT, _TURN, _GIVEN = [
    f"loop__{each}" for each in ("loop", "part", "exit", "at", "turn", "given")
]
"""What stands in texts below for the loop's object and for names that begin with a dot."""


_BACK = f"if {_EXIT}.values[loop__k] is not {_LOOP}.unbound: loop__name = {_EXIT}.values[loop__k]"
_BETWEEN = f"""\
        if {_PART}.__class__ in {_LOOP}.kinds and {_PART}.wants():
            try:
                {_GIVEN} = loop__values
            except {_LOOP}.no_name:
                {_GIVEN} = None
            {_EXIT} = {_PART}.run({_GIVEN})
            {_GIVEN} = None
            if {_EXIT}:
                loop__back
                {_EXIT}.values = None
                {_AT} = {_EXIT}.at
                for {_TURN} in {_EXIT}.turns:
                    loop__guarded
                else:
                    if {_EXIT}.broke:
                        {_PART} = None if {_EXIT}.finished else {_PART}
                        break
                    continue
                break
"""
"""Run the compiled loop after a part, and go on where it has stopped."""


def _text(kind: type[ast.stmt], has_inner: bool, has_else: bool) -> str:
    """The text around a loop."""
    asked = f"{_LOOP}.on and {_LOOP}.tick()"
    if kind is ast.For:
        parts, other, target = f"{_LOOP}.parts(loop__items)", "(loop__source,)", "loop__target"
        test, end = "", "else:\n    loop__orelse\n"
    else:
        parts, other, target = f"{_LOOP}.parts()", f"{_LOOP}.forever", _TURN
        test = f"        if not loop__test:\n            {_PART} = None\n            break\n"
        end = f"if {_PART} is None:\n    loop__orelse\n" if has_else else ""
    if has_inner:
        parts = f"{parts} if {asked} else {other}"
    text = f"""\
for {_PART} in {parts}:
    for {target} in {_PART}:
{test}        loop__body
    else:
{_BETWEEN}        continue
    break
{end}{_PART} = None
"""
    if has_inner:
        return text
    # one more text of its body: nothing but the question stands around it
    return f"if {asked}:\n{textwrap.indent(text, '    ')}else:\n    loop__plain\n"


@cached(16)
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


def _filled(text: str, given: dict[str, Any], place: ast.stmt) -> list[ast.stmt]:
    """The statements of a text, at the place of another."""
    new = _maker(place)

    def fill(node: ast.AST) -> Any:
        if isinstance(node, ast.Name):
            part = given.get(node.id, node.id)
            return new(ast.Name, part, node.ctx) if isinstance(part, str) else part
        fields = [several(getattr(node, name)) for name in node._fields]
        return new(type(node), *fields) if node._attributes else type(node)(*fields)

    def several(value: Any) -> Any:
        if not isinstance(value, list):
            return fill(value) if isinstance(value, ast.AST) else value
        made = []
        for each in value:
            is_name = isinstance(each, ast.Expr) and isinstance(each.value, ast.Name)
            part = given.get(each.value.id) if is_name else None
            made += part if isinstance(part, list) else [several(each)]
        return made

    return several(_parsed(text).body)  # type: ignore[no-any-return]


def _maker(place: ast.stmt) -> Callable[..., Any]:
    """What makes nodes where another begins."""
    line, column = place.lineno, place.col_offset
    where = {
        "lineno": line, "col_offset": column, "end_lineno": line, "end_col_offset": column,
    }  # fmt: skip
    return lambda kind, *fields: kind(*fields, **where)


def _with(node: Any, **fields: list[Any]) -> Any:
    """A node with other parts; itself if they are the same."""
    olds = [getattr(node, name) for name in fields]
    if all(map(_same, olds, fields.values())):
        return node
    made = copy.copy(node)
    for name, new in fields.items():
        setattr(made, name, new)
    return made


def _same(first: list[Any], second: list[Any]) -> bool:
    return len(first) == len(second) and all(map(operator.is_, first, second))


def _items(loop: ast.expr, node: ast.expr) -> ast.expr:
    """What a loop goes over, by index where it can be (items.py)."""
    if not isinstance(node, ast.Call) or getattr(node.func, "id", "") not in NAMES:
        return node
    if any(isinstance(each, ast.Starred) for each in node.args):
        return node
    made = method(loop, "items", node.func, *[_items(loop, each) for each in node.args])
    made.keywords = node.keywords
    return ast.fix_missing_locations(ast.copy_location(made, node))


def _is_compiler(node: ast.expr) -> bool:
    """Whether a decorator, or what is called, is another compiler."""
    names = (getattr(each, "attr", getattr(each, "id", "")) for each in ast.walk(node))
    return any(_COMPILERS.search(name) for name in names)


def _is_candidate(node: ast.For | ast.While) -> bool:
    known = (ast.Name, ast.Attribute, ast.Subscript, ast.Call)
    if isinstance(node, ast.For) and not isinstance(node.iter, known):
        return False
    nodes = list(itertools.islice(ast.walk(node), _MOST + 2))
    if len(nodes) > _MOST + 1 or any(isinstance(each, _BARRED) for each in nodes):
        return False
    for each in nodes:
        if isinstance(each, ast.ExceptHandler) and each.name is not None:
            return False  # such a name ends with its handler
        if isinstance(each, ast.Name) and _TAKEN.match(each.id):
            return False
    computes = (ast.BinOp, ast.AugAssign, ast.Subscript, ast.Compare, ast.Call)
    return any(isinstance(each, computes) for each in nodes)


def _has(node: ast.AST, kinds: tuple[type[ast.AST], ...]) -> bool:
    return any(isinstance(each, kinds) for each in ast.walk(node))
