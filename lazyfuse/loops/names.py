"""Names of a loop: which attributes can be names, and which names need no value at entry."""

from __future__ import annotations

import ast

DOTTED = "dot__{}__{}"
"""What the text calls an attribute of an object."""


def stored(tree: ast.AST) -> set[str]:
    """The names that a tree assigns."""
    return {
        each.id
        for each in ast.walk(tree)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }


def attributes(unit: ast.AST) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Names and attributes of theirs: those that a loop may keep in variables, and those of them
    that it assigns. An attribute that it assigns belongs to one name: others may be its object.
    """
    read: set[tuple[str, str]] = set()
    written: dict[str, bool] = {}
    names = stored(unit)
    for each in ast.walk(unit):
        if isinstance(each, ast.Attribute):
            is_known = isinstance(each.value, ast.Name) and each.value.id not in names
            is_known = is_known and "__" not in each.value.id + "." + each.attr  # type: ignore[attr-defined]
            if is_known:
                read.add((each.value.id, each.attr))  # type: ignore[attr-defined]
            if not isinstance(each.ctx, ast.Load):
                written[each.attr] = is_known and written.get(each.attr, True)
    owners = [attribute for _, attribute in read]
    kept = sorted(
        (name, attribute)
        for name, attribute in read
        if attribute not in written or (written[attribute] and owners.count(attribute) == 1)
    )
    return kept, [each for each in kept if each[1] in written]


def temporaries(unit: ast.For | ast.While) -> set[str]:
    """Names that each turn assigns before it reads them: what they held does not matter."""
    found: set[str] = set()
    seen: set[str] = set()

    def reads(node: ast.AST) -> None:
        seen.update(each.id for each in ast.walk(node) if isinstance(each, ast.Name))

    def assigns(target: ast.expr, is_sure: bool) -> None:
        for each in ast.walk(target):
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                if is_sure and each.id not in seen:
                    found.add(each.id)
                seen.add(each.id)

    def walk(statements: list[ast.stmt], is_sure: bool) -> None:
        for each in statements:
            if isinstance(each, ast.Assign):
                reads(each.value)
                for target in each.targets:
                    for part in ast.walk(target):
                        if isinstance(part, ast.Subscript):
                            reads(part)
                    assigns(target, is_sure)
            elif isinstance(each, (ast.For, ast.While, ast.If)):
                if isinstance(each, ast.For):
                    reads(each.iter)
                    assigns(each.target, is_sure)
                else:
                    reads(each.test)
                walk(each.body, is_sure and not isinstance(each, ast.If))
                walk(each.orelse, False)
            else:
                reads(each)

    walk([unit], is_sure=True)
    return found
