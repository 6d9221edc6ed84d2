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
    where = {each: getattr(node, each) for each in node._attributes}

    def new(kind: Any, *fields: Any) -> Any:
        return kind(*fields, **where)

    def asked(operator: ast.cmpop, number: int) -> ast.expr:
        at = new(ast.Name, AT, ast.Load())
        return new(ast.Compare, at, [operator], [new(ast.Constant, number)])  # type: ignore[no-any-return]

    def of_exit(name: str, *given: ast.expr) -> ast.expr:
        function = new(ast.Attribute, new(ast.Name, EXIT, ast.Load()), name, ast.Load())
        return new(ast.Call, function, list(given), [])  # type: ignore[no-any-return]

    arrive = new(ast.Assign, [new(ast.Name, AT, ast.Store())], of_exit("arrive"))
    arrive = new(ast.If, asked(ast.Eq(), first), [arrive], [])
    if not isinstance(node, (ast.If, ast.For, ast.While)):
        return [new(ast.If, asked(ast.LtE(), first), [arrive, node], [])]
    within, before_else = asked(ast.Gt(), first), asked(ast.LtE(), inner)
    body = [made for each in node.body for made in _statement(each, numbers)]
    orelse = [made for each in node.orelse for made in _statement(each, numbers)]
    if isinstance(node, ast.For):
        is_range = isinstance(node.iter, ast.Call) and getattr(node.iter.func, "id", "") == "range"
        given = [new(ast.Constant, first), _loaded(node.target), node.iter]
        left = of_exit("rest", *given[: 2 if is_range else 3])
        rest = new(ast.IfExp, before_else, left, new(ast.Tuple, [], ast.Load()))
        chosen = new(ast.IfExp, within, rest, node.iter)
        made = new(ast.For, node.target, chosen, body, orelse)
    else:
        made = new(type(node), new(ast.IfExp, within, before_else, node.test), body, orelse)
    return [new(ast.If, asked(ast.LtE(), last), [arrive, made], [])]


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
    names = (*tree._fields, *tree._attributes)
    parts = {name: getattr(tree, name) for name in names if hasattr(tree, name)}
    return type(tree)(
        **{
            name: copied(part) if isinstance(part, (list, ast.AST)) else part
            for name, part in parts.items()
        }
    )


def method(owner: ast.expr, name: str, *arguments: ast.expr) -> ast.Call:
    """A call of a method."""
    return ast.Call(ast.Attribute(owner, name, ast.Load()), list(arguments), [])
