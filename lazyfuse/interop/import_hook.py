"""Gives a program's own modules lazyfuse where their source names numpy.

Owns the rewriting of import statements and the finder that applies it to files under one folder.
Installed packages, the standard library and lazyfuse keep NumPy; `sys.modules` stays unchanged.
Only the syntax tree changes, so line numbers, tracebacks and debuggers stay correct. Code outside
files keeps NumPy: strings, and spawned processes.
"""

from __future__ import annotations

import ast
import sys
import sysconfig
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import decode_source, find_spec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from lazyfuse.bootstrap import HERE
from lazyfuse.devices.caches import cached

_INSTALLED = ("site-packages", "dist-packages")
_SCHEME = ("stdlib", "platstdlib", "purelib", "platlib")
_IMPORTERS = ("import_module", "__import__")


@cached(1024)
def our_module(name: str) -> str | None:
    """The lazyfuse module that replaces NumPy's module `name`; None if there is none."""
    if name != "numpy" and not name.startswith("numpy."):
        return None
    ours = "lazyfuse" + name[len("numpy") :]
    try:
        found = ours in sys.modules or find_spec(ours) is not None
    except (ImportError, ValueError):
        found = False
    return ours if found else None


class _Rewriter(ast.NodeTransformer):
    """Replaces imports of numpy by imports of lazyfuse that bind the same names."""

    def visit_Import(self, node: ast.Import) -> ast.Import:
        """`import numpy.fft` binds `numpy`: import the module, then bind the package over it."""
        names: list[ast.alias] = []
        for alias in node.names:
            ours = our_module(alias.name)
            bound = alias.asname or "numpy"
            names.append(_alias(alias, ours, bound) if ours else alias)
            if alias.name.startswith("numpy.") and not alias.asname:
                names.append(_alias(alias, "lazyfuse", bound))
        node.names = names
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom:
        """`from numpy.linalg import norm`; relative imports stay the program's own."""
        if node.level == 0 and node.module:
            node.module = our_module(node.module) or node.module
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Decorate a class's `__array__`: NumPy's C code takes only its own array from it."""
        self.generic_visit(node)
        for item in node.body:
            if isinstance(item, ast.FunctionDef) and item.name == "__array__":
                item.decorator_list.insert(0, ast.copy_location(_answering(), item))
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """`importlib.import_module("numpy")` and `__import__("numpy")`, with literal names."""
        self.generic_visit(node)
        called = node.func
        name = getattr(called, "attr", None) or getattr(called, "id", None)
        if name in _IMPORTERS and node.args and isinstance(node.args[0], ast.Constant):
            module = node.args[0].value
            if isinstance(module, str):
                node.args[0].value = our_module(module) or module
        return node


def _alias(like: ast.alias, name: str, bound: str) -> ast.alias:
    return ast.copy_location(ast.alias(name, bound), like)


def _answering() -> ast.expr:
    """The decorator that converts a method's results to NumPy's arrays."""
    return ast.parse(
        "__import__('lazyfuse.interop.arguments').interop.arguments.answering", mode="eval"
    ).body


def rewritten(tree: ast.Module) -> ast.Module:
    """A program's syntax tree with NumPy replaced."""
    found: ast.Module = ast.fix_missing_locations(_Rewriter().visit(tree))
    return found


def compile_rewritten(source: bytes | str, path: str) -> CodeType:
    """Compile a program's source with NumPy replaced."""
    tree = rewritten(ast.parse(source, path))
    code: CodeType = compile(tree, path, "exec", dont_inherit=True)
    return code


class RewritingLoader(SourceFileLoader):
    """Loads a source file with NumPy replaced; files that do not name NumPy load as usual."""

    def get_code(self, fullname: str) -> CodeType | None:
        """The rewritten code. Not cached on disk: that cache belongs to the original source."""
        path = self.get_filename(fullname)
        source = self.get_data(path)
        if b"numpy" not in source:
            return super().get_code(fullname)
        return compile_rewritten(decode_source(source), path)


def found_behind(
    finder: Any, name: str, path: Sequence[str] | None, target: ModuleType | None
) -> ModuleSpec | None:
    """What the finders after `finder` in `sys.meta_path` find, called as Python calls them."""
    finders = list(sys.meta_path)
    for other in finders[finders.index(finder) + 1 if finder in finders else 0 :]:
        if other is not finder and hasattr(other, "find_spec"):
            spec = other.find_spec(name, path, target)
            if spec is not None:
                return spec
    return None


class OwnModules:
    """A finder for `sys.meta_path`: files below `root` are loaded with NumPy replaced."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        installed = [sysconfig.get_path(name) for name in _SCHEME]
        self.outside = {HERE, *(Path(path).resolve() for path in installed)}

    def owns(self, path: str) -> bool:
        """Whether a file is the program's own: below the root, and not an installed package."""
        file = Path(path).resolve()
        if not file.is_relative_to(self.root) or any(part in _INSTALLED for part in file.parts):
            return False
        return not any(file.is_relative_to(folder) for folder in self.outside)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As `PathFinder.find_spec`, but with our loader for the program's own files."""
        if name.partition(".")[0] in ("lazyfuse", "numpy"):
            return None
        spec = found_behind(self, name, path, target)
        if spec and type(spec.loader) is SourceFileLoader and self.owns(spec.loader.path):
            spec.loader = RewritingLoader(name, spec.loader.path)
        return spec


def install(root: Path) -> OwnModules:
    """Replace NumPy in modules below `root` that are imported from now on."""
    finder = OwnModules(root)
    place = sys.meta_path.index(PathFinder) if PathFinder in sys.meta_path else len(sys.meta_path)
    sys.meta_path.insert(place, finder)
    return finder
