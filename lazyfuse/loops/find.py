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
_TAKEN = re.compile(r"((items|call)\d+|dot)__")
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
        names = sorted({each.id for each in ast.walk(node) if isinstance(each, ast.Name)})
        stored = sorted(
            {
                each.id
                for each in ast.walk(node)
                if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
            }
        )
        _found[mark] = take_over.Loop(original, names, stored, self.path)
        guarded = leaving.guarded(original)
        self.statements(node.body, False)
        loop = ast.Constant(mark)
        source = copied(node.iter) if isinstance(node, ast.For) else node.test
        own = f".part{number}"  # loops in this one have others
        between = _between(loop, own, names, stored, guarded)
        part = ast.Name(own, ast.Load())
        is_on = ast.Attribute(loop, "on", ast.Load())
        asked: ast.expr = ast.BoolOp(ast.And(), [is_on, method(loop, "tick")])
        has_inner = any(_has(each, (ast.For, ast.While)) for each in original.body)
        made: list[ast.stmt]
        if isinstance(node, ast.For):
            parts = method(loop, "parts", _items(loop, node.iter))
            if has_inner:
                alone = ast.Tuple([source], ast.Load())
                parts = ast.IfExp(asked, parts, alone)
            inner: ast.stmt = ast.For(node.target, part, node.body, [*between, ast.Continue()])
            made = [ast.For(ast.Name(own, ast.Store()), parts, [inner, ast.Break()], node.orelse)]
        else:
            parts = method(loop, "parts")
            if has_inner:
                parts = ast.IfExp(asked, parts, ast.Attribute(loop, "forever", ast.Load()))
            ended = [ast.Assign([ast.Name(own, ast.Store())], ast.Constant(None)), ast.Break()]
            test = ast.If(ast.UnaryOp(ast.Not(), node.test), ended, [])
            inner = ast.For(
                ast.Name(TURN, ast.Store()), part, [test, *node.body], [*between, ast.Continue()]
            )
            made = [ast.For(ast.Name(own, ast.Store()), parts, [inner, ast.Break()], [])]
            if node.orelse:
                is_ended = ast.Compare(part, [ast.Is()], [ast.Constant(None)])
                made.append(ast.If(is_ended, node.orelse, []))
        made.append(ast.Assign([ast.Name(own, ast.Store())], ast.Constant(None)))
        if not has_inner:  # one more text of its body: nothing but the question stands around it
            made = [ast.If(asked, made, [copied(original)])]
        for each in made:
            for inside in ast.walk(each):
                if "lineno" in inside._attributes and not hasattr(inside, "lineno"):
                    inside.lineno = inside.end_lineno = node.lineno  # type: ignore[attr-defined]
                    inside.col_offset = inside.end_col_offset = node.col_offset  # type: ignore[attr-defined]
        return made


def _between(
    loop: ast.expr, own: str, names: list[str], stored: list[str], guarded: list[ast.stmt]
) -> list[ast.stmt]:
    """Run the compiled loop after a part, and go on where it has stopped."""
    part, out = ast.Name(own, ast.Load()), ast.Name(EXIT, ast.Load())
    load: list[ast.expr] = [ast.Name(each, ast.Load()) for each in names]
    values = ast.Tuple(load, ast.Load())
    given = ".values"
    one_by_one: list[ast.stmt] = [
        ast.Assign([ast.Name(given, ast.Store())], ast.List([], ast.Load()))
    ]
    for each in names:
        add = ast.Expr(method(ast.Name(given, ast.Load()), "append", ast.Name(each, ast.Load())))
        none = ast.Expr(
            method(
                ast.Name(given, ast.Load()), "append", ast.Attribute(loop, "unbound", ast.Load())
            )
        )
        handler = ast.ExceptHandler(ast.Attribute(loop, "no_name", ast.Load()), None, [none])
        one_by_one.append(ast.Try([add], [handler], [], []))
    gather: ast.stmt = ast.Try(
        [ast.Assign([ast.Name(given, ast.Store())], values)],
        [ast.ExceptHandler(ast.Attribute(loop, "no_name", ast.Load()), None, one_by_one)],
        [],
        [],
    )
    run = ast.Assign(
        [ast.Name(EXIT, ast.Store())], method(part, "run", ast.Name(given, ast.Load()))
    )
    back: list[ast.stmt] = []
    for k, each in enumerate(stored):
        value = ast.Subscript(ast.Attribute(out, "values", ast.Load()), ast.Constant(k), ast.Load())
        is_set = ast.Compare(
            copied(value), [ast.IsNot()], [ast.Attribute(loop, "unbound", ast.Load())]
        )
        back.append(ast.If(is_set, [ast.Assign([ast.Name(each, ast.Store())], value)], []))
    drop = ast.Assign([ast.Name(given, ast.Store())], ast.Constant(None))
    back.append(ast.Expr(method(out, "drop")))
    at = ast.Assign([ast.Name(AT, ast.Store())], ast.Attribute(out, "at", ast.Load()))
    broke = ast.If(ast.Attribute(out, "broke", ast.Load()), [_ended(own), ast.Break()], [])
    turn = ast.For(
        ast.Name(TURN, ast.Store()),
        ast.Attribute(out, "turns", ast.Load()),
        guarded,
        [broke, ast.Continue()],
    )
    wants = ast.BoolOp(
        ast.And(),
        [
            ast.Compare(
                ast.Attribute(part, "__class__", ast.Load()),
                [ast.Is()],
                [ast.Attribute(loop, "kind", ast.Load())],
            ),
            method(part, "wants"),
        ],
    )
    work = [gather, run, drop, ast.If(out, [*back, at, turn, ast.Break()], [])]
    return [ast.If(wants, work, [])]


def _items(loop: ast.expr, node: ast.expr) -> ast.expr:
    """What a loop goes over, by index where it can be (items.py)."""
    named = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords
    if not named or node.func.id not in NAMES:  # type: ignore[attr-defined]
        return node
    assert isinstance(node, ast.Call)
    if any(isinstance(each, ast.Starred) for each in node.args):
        return node
    return method(loop, "items", node.func, *[_items(loop, each) for each in node.args])


def _ended(own: str) -> ast.stmt:
    """Note whether a `while` has come to its end: its `else` runs then."""
    ended = ast.IfExp(
        ast.Attribute(ast.Name(EXIT, ast.Load()), "finished", ast.Load()),
        ast.Constant(None),
        ast.Name(own, ast.Load()),
    )
    return ast.Assign([ast.Name(own, ast.Store())], ended)


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
    if any(isinstance(each, ast.ExceptHandler) and each.name is not None for each in nodes):
        return False  # such a name ends with its handler
    if any(isinstance(each, ast.Name) and _TAKEN.match(each.id) for each in nodes):
        return False
    computes = (ast.BinOp, ast.AugAssign, ast.Subscript, ast.Compare, ast.Call)
    return any(isinstance(each, computes) for each in nodes)


def _has(node: ast.AST, kinds: tuple[type[ast.AST], ...]) -> bool:
    return any(isinstance(each, kinds) for each in ast.walk(node))
