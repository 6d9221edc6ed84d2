"""A loop's body in Python that begins at any of its statements.

Owns the second text of a body that a compiled loop has left: the same statements, each under a
guard. `.at` is the number of the statement (meaning.numbered) at which Python goes on, 0 after it.
Loops around that statement go on with what is left of them. Names that begin with a dot cannot be
the program's.
"""

from __future__ import annotations

import ast
from typing import Any

from lazyfuse.loops.text import numbered

AT, EXIT = ".at", ".exit"
"""The statement to go on with; the `Exit` that says where the compiled loop is."""


def guarded(unit: ast.For | ast.While) -> list[ast.stmt]:
    """The body of one turn of a loop, from statement `.at` on."""
    numbers = numbered(unit)
    return [made for each in unit.body for made in _statement(each, numbers)]


def _statement(node: ast.stmt, numbers: dict[ast.stmt, tuple[int, int, int]]) -> list[ast.stmt]:
    first, inner, last = numbers[node]
    at = ast.Name(AT, ast.Load())
    arrive: ast.stmt = ast.If(
        _compare(at, ast.Eq(), first),
        [_assign(AT, method(ast.Name(EXIT, ast.Load()), "arrive"))],
        [],
    )
    if not isinstance(node, (ast.If, ast.For, ast.While)):
        return [_placed(node, ast.If(_compare(at, ast.LtE(), first), [arrive, copied(node)], []))]
    within = _compare(ast.Name(AT, ast.Load()), ast.Gt(), first)
    before_else = _compare(at, ast.LtE(), inner)
    body = [made for each in node.body for made in _statement(each, numbers)]
    orelse = [made for each in node.orelse for made in _statement(each, numbers)]
    made: ast.stmt
    if isinstance(node, ast.If):
        chosen = ast.IfExp(within, before_else, copied(node.test))
        made = ast.If(chosen, body, orelse)
    elif isinstance(node, ast.While):
        made = ast.While(ast.IfExp(within, before_else, copied(node.test)), body, orelse)
    else:
        is_range = isinstance(node.iter, ast.Call) and ast.unparse(node.iter.func) == "range"
        given = [ast.Constant(first), _loaded(node.target)]
        if not is_range:
            given.append(copied(node.iter))
        left = method(ast.Name(EXIT, ast.Load()), "rest", *given)
        rest = ast.IfExp(before_else, left, ast.Tuple([], ast.Load()))
        made = ast.For(
            copied(node.target),
            ast.IfExp(within, rest, copied(node.iter)),
            body,
            orelse,
        )
    return [_placed(node, ast.If(_compare(at, ast.LtE(), last), [arrive, made], []))]


def _loaded(target: ast.expr) -> ast.expr:
    """The values that the names of a target have."""
    made: ast.expr = copied(target)
    for each in ast.walk(made):
        if isinstance(each, (ast.Name, ast.Tuple, ast.List, ast.Starred)):
            each.ctx = ast.Load()
    return made


def copied(tree: Any) -> Any:
    """A copy of a tree, without what other tools note in it (IPython: the parents of nodes)."""
    if isinstance(tree, list):
        return [copied(each) for each in tree]
    if not isinstance(tree, ast.AST):
        return tree
    names = [name for name in (*tree._fields, *tree._attributes) if hasattr(tree, name)]
    return type(tree)(**{name: copied(getattr(tree, name)) for name in names})


def _compare(left: ast.expr, operator: ast.cmpop, number: int) -> ast.expr:
    return ast.Compare(left, [operator], [ast.Constant(number)])


def _assign(name: str, value: ast.expr) -> ast.stmt:
    return ast.Assign([ast.Name(name, ast.Store())], value)


def method(owner: ast.expr, name: str, *arguments: ast.expr) -> ast.Call:
    """A call of a method."""
    return ast.Call(ast.Attribute(owner, name, ast.Load()), list(arguments), [])


def _placed(like: ast.AST, made: Any) -> Any:
    """Give a new statement, and what is new in it, the place of another."""
    return ast.fix_missing_locations(ast.copy_location(made, like))
