"""Writes the stubs that editors and type checkers read: `python scripts/write_stubs.py`.

`lazyfuse/__init__.pyi` passes NumPy's own names on and adds the signatures of ours, from their
sources; array_api_stub.py has those of the array API standard; the other stubs pass on NumPy's
modules. `--check` writes nothing and fails where a
committed stub is not what this script writes. Names that only some NumPys publish stay in
`__all__`, so the result is the same with each of them.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import sys
import textwrap
from pathlib import Path

import array_api_stub
import numpy as np

from lazyfuse.namespace import assemble, numpy_modules

PACKAGE = Path(__file__).parents[1] / "lazyfuse"
NOTE = "# Written by scripts/write_stubs.py. Edit that.\n"
HEAD = """
import builtins
from collections.abc import Callable
from typing import Any, TypeVar

from numpy import *
from numpy import (
{passed}
)

from lazyfuse import array_api as array_api

_F = TypeVar("_F", bound=Callable[..., Any])

"""
KNOWN = {"Any", "Callable", "F", *dir(builtins)}
"""Names that a signature in the stub may use; other classes of ours are Any there."""

VALUES = {
    "devices": "Callable[[], list[Any]]",
    "fallbacks": "Callable[[], dict[tuple[str, str, int], int]]",
    "lazyfuse_version": "str",
    "options": "Any",
    "tracing": "Any",
}
"""What is no plain function."""

RESULTS = {"Report": "tools.report"}
"""Classes of what functions give, which have no public name: `_Report` in the stub."""


class _Plain(ast.NodeTransformer):
    """Replaces the names that the stub does not know by Any, and Python's that NumPy has too."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id == "F" or node.id in RESULTS:
            return ast.Name(f"_{node.id}")
        if node.id in np.__all__ and hasattr(builtins, node.id):  # numpy.bool
            return ast.Name(f"builtins.{node.id}")
        return node if node.id in KNOWN else ast.Name("Any")

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return ast.Name("Any")


def signature(name: str) -> str:
    """The definition of a function or class of ours without its body."""
    home = RESULTS.get(name) or assemble._FUNCTIONS.get(name, "namespace.assemble")
    source = inspect.getsource(importlib.import_module(f"lazyfuse.{home}"))
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return _function(node) if isinstance(node, ast.FunctionDef) else _class(node)
    raise LookupError(f"{name} is neither a function nor a class of lazyfuse.{home}")


def _function(node: ast.FunctionDef, indent: str = "") -> str:
    for each in ast.walk(node.args):
        if isinstance(each, ast.arg) and each.annotation is not None:
            each.annotation = _Plain().visit(each.annotation)
    returns = ast.unparse(_Plain().visit(node.returns)) if node.returns else "Any"
    return f"{indent}def {node.name}({ast.unparse(node.args)}) -> {returns}: ...\n"


def _class(node: ast.ClassDef) -> str:
    methods = [
        _function(each, "    ")
        for each in node.body
        if isinstance(each, ast.FunctionDef)
        and (each.name in ("__init__", "__enter__", "__exit__", "__call__") or each.name[0] != "_")
    ]
    fields = [
        f"    {ast.unparse(each.target)}: {ast.unparse(_Plain().visit(each.annotation))}\n"
        for each in node.body
        if isinstance(each, ast.AnnAssign) and node.name in RESULTS
    ]
    name = f"_{node.name}" if node.name in RESULTS else node.name
    return f"class {name}:\n{''.join([*fields, *methods])}"


def committed() -> tuple[list[str], list[str]]:
    """The names of NumPy's that the committed stub publishes, and those that it imports singly."""
    known: list[str] = []
    passed: list[str] = []
    for node in ast.parse((PACKAGE / "__init__.pyi").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            known = ast.literal_eval(node.value)
        if isinstance(node, ast.ImportFrom) and node.module == "numpy":
            passed += [each.name for each in node.names if each.name != "*"]
    return known, passed


def published() -> list[str]:
    """NumPy's list of names, with those of other NumPys that the committed stub has."""
    return sorted({*committed()[0], *np.__all__})


def passed_on() -> str:
    """The names that every NumPy has. Jedi passes no others on; `*` brings the rest to checkers."""
    names = sorted(set(committed()[1]) & set(np.__all__))
    return "\n".join(f"    {name} as {name}," for name in names)


def main_stub() -> str:
    """The text of `lazyfuse/__init__.pyi`."""
    quoted = textwrap.fill(
        ", ".join(f'"{name}"' for name in published()),
        96,
        initial_indent="    ",
        subsequent_indent="    ",
    )
    head = HEAD.format(passed=passed_on())
    values = [f"{name}: {kind}\n" for name, kind in VALUES.items()]
    functions = [signature(name) for name in (*RESULTS, *assemble.ADDED) if name not in VALUES]
    return f"{NOTE}{head}__all__ = [\n{quoted},\n]\n\n{''.join(values)}\n{''.join(functions)}"


def stubs() -> dict[Path, str]:
    """Every stub's text by its path."""
    found = {PACKAGE / "__init__.pyi": main_stub()}
    paths = ["linalg", "fft", "random", *numpy_modules.MODULES]
    for path in paths:
        is_package = any(each.startswith(f"{path}.") for each in paths)
        file = path.replace(".", "/") + ("/__init__.pyi" if is_package else ".pyi")
        found[PACKAGE / file] = f"{NOTE}from {numpy_modules.their_path(path)} import *\n"
    return found | array_api_stub.stubs(PACKAGE, NOTE)


def stale() -> list[Path]:
    """The stubs that are not what this script writes, or that it does not write."""
    wanted = stubs()
    others = [path for path in PACKAGE.rglob("*.pyi") if path not in wanted]
    differ = [path for path, text in wanted.items() if not _has(path, text)]
    return sorted({*others, *differ})


def _has(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text() == text


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit("".join(f"{path}: run scripts/write_stubs.py\n" for path in stale()) or 0)
    for path, text in stubs().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
