"""Finds the loops of a program's text, and lets each be taken over while it runs.

Owns the text around a loop. The loop itself runs part by part; between two parts the compiled loop
runs, if there is one:

    for .part in (LOOP.parts(ITEMS) if LOOP.on and LOOP.tick() else (ITEMS,)):
        for TARGET in .part:
            BODY
        else:
            if .part.__class__ is LOOP.kind and .part.wants():
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
import itertools
import re
from types import CodeType
from typing import Any

from lazyfuse import config
from lazyfuse.devices.caches import register
from lazyfuse.loops import leaving, take_over
from lazyfuse.loops.items import NAMES
from lazyfuse.loops.leaving import AT, EXIT, copied, method
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
_MOST = 400
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
    finder.scope(tree.body)
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

    def scope(self, body: list[ast.stmt]) -> None:
        """The loops of a function or a module."""
        is_seen = any(
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in _SEES_NAMES
            for each in body
            for node in ast.walk(each)
        )
        self.statements(body, is_seen)

    def statements(self, body: list[ast.stmt], is_seen: bool) -> None:
        for at, node in enumerate(body):
            name = getattr(getattr(node, "target", node), "id", "")
            if name.startswith(".") or any(map(_is_compiler, getattr(node, "decorator_list", ()))):
                continue  # taken already, or another compiler's
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                if node.name in self.compiled:
                    continue
                if isinstance(node, ast.FunctionDef) and not _has(node, _NOT_EXPANDED):
                    kept = copied(node) if _has(node, (ast.For, ast.While)) else node
                    _functions[self.path, node.lineno, node.name] = kept
                self.scope(node.body)
                continue
            if isinstance(node, ast.ClassDef):
                self.statements(node.body, True)
                continue
            if isinstance(node, (ast.For, ast.While)) and not is_seen and _is_candidate(node):
                body[at : at + 1] = self.taken(node)
                continue
            for name in ("body", "orelse", "finalbody"):
                inner = getattr(node, name, None)
                if isinstance(inner, list):
                    self.statements(inner, is_seen)
            for handler in getattr(node, "handlers", ()):
                self.statements(handler.body, is_seen)

    def taken(self, node: ast.For | ast.While) -> list[ast.stmt]:
        """A loop with what lets it be taken over."""
        self.count += 1
        number, mark = self.count, f"{_MARK}{next(_NUMBERS)}"
        original = copied(node)
        found = [each for each in ast.walk(node) if isinstance(each, ast.Name)]
        names = sorted({each.id for each in found})
        stored = sorted({each.id for each in found if isinstance(each.ctx, ast.Store)})
        _found[mark] = take_over.Loop(original, names, stored, self.path)
        self.statements(node.body, False)
        asked = f"{_LOOP}.on and {_LOOP}.tick()"
        has_inner = any(_has(each, (ast.For, ast.While)) for each in original.body)
        loop = ast.copy_location(ast.Constant(mark), node)
        given: dict[str, Any] = {
            _LOOP: loop,
            _PART: f".part{number}",  # loops in this one have others
            _EXIT: EXIT,
            _AT: AT,
            _TURN: TURN,
            _GIVEN: ".values",
            "loop__body": node.body,
            "loop__orelse": node.orelse,
            "loop__guarded": leaving.guarded(original),
        }
        if isinstance(node, ast.For):
            parts, other = f"{_LOOP}.parts(loop__items)", "(loop__source,)"
            given |= {"loop__source": copied(node.iter), "loop__items": _items(loop, node.iter)}
            given["loop__target"] = node.target
            begin, end = "loop__target", f"    break\nelse:\n    loop__orelse\n{_PART} = None"
        else:
            parts, other = f"{_LOOP}.parts()", f"{_LOOP}.forever"
            given["loop__test"] = node.test
            begin, end = f"{_TURN}", "    break"
            if node.orelse:
                end += f"\nif {_PART} is None:\n    loop__orelse"
            end += f"\n{_PART} = None"
        if has_inner:
            parts = f"{parts} if {asked} else {other}"
        text = f"for {_PART} in {parts}:\n    for {begin} in {_PART}:\n"
        if isinstance(node, ast.While):
            text += f"        if not loop__test:\n            {_PART} = None\n            break\n"
        text += f"        loop__body\n    else:\n{_between(names, stored)}        continue\n{end}"
        made = _filled(text, given, node)
        if not has_inner:  # one more text of its body: nothing but the question stands around it
            given |= {"loop__made": made, "loop__original": [original]}
            text = f"if {asked}:\n    loop__made\nelse:\n    loop__original"
            made = _filled(text, given, node)
        return made


_LOOP, _PART, _EXIT, _AT, _TURN, _GIVEN = [
    f"loop__{each}" for each in ("loop", "part", "exit", "at", "turn", "given")
]
"""What stands in texts below for the loop's object and for names that begin with a dot."""


def _between(names: list[str], stored: list[str]) -> str:
    """Run the compiled loop after a part, and go on where it has stopped."""
    back = "".join(
        f"""
                if {_EXIT}.values[{k}] is not {_LOOP}.unbound: {name} = {_EXIT}.values[{k}]"""
        for k, name in enumerate(stored)
    )
    return f"""\
        if {_PART}.__class__ is {_LOOP}.kind and {_PART}.wants():
            try:
                {_GIVEN} = [{", ".join(names)}]
            except {_LOOP}.no_name:
                {_GIVEN} = None
            {_EXIT} = {_PART}.run({_GIVEN})
            {_GIVEN} = None
            if {_EXIT}:{back}
                {_EXIT}.drop()
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


def _filled(text: str, given: dict[str, Any], place: ast.stmt) -> list[ast.stmt]:
    """The statements of a text, at the place of another."""
    where = place.lineno, place.col_offset, place.lineno, place.col_offset

    def fill(node: ast.AST) -> ast.AST:
        if isinstance(node, ast.Name):
            part = given.get(node.id, node.id)
            if not isinstance(part, str):
                return part  # type: ignore[no-any-return]
            node.id = part
        if node._attributes:
            node.lineno, node.col_offset, node.end_lineno, node.end_col_offset = where  # type: ignore[attr-defined]
        for name in node._fields:
            value = getattr(node, name)
            if isinstance(value, ast.AST):
                setattr(node, name, fill(value))
            elif isinstance(value, list):
                setattr(node, name, [x for each in value for x in several(each)])
        return node

    def several(node: Any) -> list[Any]:
        part = given.get(node.value.id) if _is_name(node) else None
        if isinstance(part, list):
            return part
        return [fill(node) if isinstance(node, ast.AST) else node]

    made: list[ast.stmt] = fill(ast.parse(text)).body  # type: ignore[attr-defined]
    return made


def _is_name(node: Any) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Name)


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
