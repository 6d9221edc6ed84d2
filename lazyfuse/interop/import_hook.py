"""Gives a program's own code lazyfuse where its source names numpy.

Owns the rewriting of import statements, and the two ways by which Python comes to code: loaders of
source files (`import`, `python -m`), and `compile`, which debuggers, profilers, test runners and
prompts call for the program that they run. Where a file lies decides: installed packages, the
standard library and lazyfuse keep NumPy; `sys.modules` stays unchanged. Only the syntax tree
changes, so line numbers, tracebacks and debuggers stay correct.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import enum
import os
import re
import sys
import sysconfig
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeGuard, TypeVar

from lazyfuse.bootstrap import HERE
from lazyfuse.devices.caches import CONSTANT, cached
from lazyfuse.loops import find
from lazyfuse.loops.leaving import copied

Node = TypeVar("Node", bound=ast.AST)

_IMPORTERS = ("import_module", "__import__")
_EXECUTORS = ("exec", "eval")
_MENTIONS = re.compile(rf"\b(?:numpy|__array__|{'|'.join(_EXECUTORS)})\b")
_INHERITED = 0
"""The compiler flags that code passes on to what it compiles: its future statements."""
for _name in __future__.all_feature_names:
    _INHERITED |= getattr(__future__, _name).compiler_flag


class Seen:
    """What was met in this process so far."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        """The program's own files, by their paths."""
        self.imports = 0
        """Imports of NumPy that were replaced."""


seen = Seen()


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


# -------------------------------------------------------------------------------- whose code


class Owner(enum.Enum):
    """Who wrote a piece of code."""

    USER = enum.auto()
    PYTHON = enum.auto()
    """The standard library: it runs code of others, and names numpy nowhere."""
    PACKAGE = enum.auto()
    LAZYFUSE = enum.auto()
    UNKNOWN = enum.auto()
    """The code lies in no file."""


_INSTALLED = frozenset(("site-packages", "dist-packages"))
_LAUNCHER = os.path.abspath(HERE / "__main__.py")
"""The module that calls the program: what it calls has been named by the user."""
_TYPED = re.compile(r"<(?:stdin|console|timeit-src|doctest .*|i?python-input-.*)>")
"""The file names of text that a person has typed or written for a tool of these names."""


def _under(*folders: str | os.PathLike[str]) -> tuple[str, ...]:
    return tuple(os.path.normcase(os.path.realpath(each)) + os.sep for each in folders)


@cached(1, CONSTANT, clears=False)
def _homes() -> list[tuple[Owner, tuple[str, ...]]]:
    """The folders of each owner. A folder in the list decides before those after it."""
    path = sysconfig.get_path
    parts = [] if (HERE / "codegen").is_dir() else ["codegen", "devices"]  # beside it in a checkout
    return [
        (Owner.LAZYFUSE, _under(HERE, *(HERE.parent / part for part in parts))),
        (Owner.PACKAGE, _under(path("purelib"), path("platlib"))),
        (Owner.PYTHON, _under(path("stdlib"), path("platstdlib"))),
    ]


@cached(1024)
def _owner_of_folder(folder: str) -> Owner:
    real = os.path.realpath(folder)
    place = os.path.normcase(real) + os.sep
    found = next((owner for owner, folders in _homes() if place.startswith(folders)), Owner.USER)
    if found in (Owner.PYTHON, Owner.USER) and _INSTALLED.intersection(Path(real).parts):
        return Owner.PACKAGE
    return found


def owner_of(file: str) -> Owner:
    """Who wrote the code of that file name."""
    if file.startswith("<"):
        return Owner.PYTHON if file.startswith("<frozen ") else Owner.UNKNOWN
    path = os.path.abspath(file)
    return Owner.USER if path == _LAUNCHER else _owner_of_folder(os.path.dirname(path))


def _is_the_users(file: str, caller: FrameType) -> bool:
    """Whether code is the program's own: by its file, else by who compiles it.

    The standard library compiles text for those who call it.
    """
    owner = Owner.USER if _TYPED.fullmatch(file) else owner_of(file)
    frame: FrameType | None = caller
    while owner in (Owner.UNKNOWN, Owner.PYTHON) and file.startswith("<") and frame is not None:
        owner = owner_of(frame.f_code.co_filename)
        frame = frame.f_back
    return owner is Owner.USER


# --------------------------------------------------------------------------------- rewriting


class _Rewriter:
    """Replaces imports of numpy by imports of lazyfuse that bind the same names.

    Each method changes a node in its place.
    """

    def __init__(self) -> None:
        self.changed = False

    def _ours(self, name: str) -> str | None:
        ours = our_module(name)
        if ours:
            self.changed = True
            seen.imports += 1
        return ours

    def visit_Import(self, node: ast.Import) -> None:
        """`import numpy.fft` binds `numpy`: import the module, then bind the package over it."""
        names: list[ast.alias] = []
        for alias in node.names:
            ours = self._ours(alias.name)
            bound = alias.asname or "numpy"
            names.append(_alias(alias, ours, bound) if ours else alias)
            if alias.name.startswith("numpy.") and not alias.asname:
                names.append(_alias(alias, self._ours("numpy") or "numpy", bound))
        node.names = names

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """`from numpy.linalg import norm`; relative imports stay the program's own."""
        if node.level == 0 and node.module:
            node.module = self._ours(node.module) or node.module

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Decorate a class's `__array__`: NumPy's C code takes only its own array from it."""
        for item in node.body:
            if isinstance(item, ast.FunctionDef) and item.name == "__array__":
                decorator = _function_of_ours("arguments", "answering")
                item.decorator_list.insert(0, _at(item, decorator))
                self.changed = True

    def visit_Call(self, node: ast.Call) -> None:
        """`import_module("numpy")`, `__import__("numpy")`; text for `exec` and `eval`."""
        called = node.func
        name = getattr(called, "attr", None) or getattr(called, "id", None)
        first = node.args[0] if node.args else None
        if name in _IMPORTERS and isinstance(first, ast.Constant) and isinstance(first.value, str):
            first.value = self._ours(first.value) or first.value
        elif isinstance(called, ast.Name) and called.id in _EXECUTORS and _is_one(first):
            text = ast.Call(
                _function_of_ours("import_hook", "executed"), [ast.Name(called.id, ast.Load())], []
            )
            node.args[0] = _at(first, text)
            text.args.append(first)
            self.changed = True


def _is_one(argument: ast.expr | None) -> TypeGuard[ast.expr]:
    return argument is not None and not isinstance(argument, ast.Starred)


def _alias(like: ast.alias, name: str, bound: str) -> ast.alias:
    return ast.copy_location(ast.alias(name, bound), like)


def _at(like: ast.AST, made: Node) -> Node:
    """Give a new tree the place of a node. All else keeps its place, or has none, as it came."""
    for node in ast.walk(made):
        ast.copy_location(node, like)
    return made


def _function_of_ours(module: str, name: str) -> ast.expr:
    """An expression for a function, in code that has imported nothing of ours."""
    text = f"__import__('lazyfuse.interop.{module}').interop.{module}.{name}"
    return ast.parse(text, mode="eval").body


def _may_name_numpy(source: Any) -> bool:
    """Whether a text or a syntax tree may have something to replace."""
    if isinstance(source, ast.AST):
        fields = (value for node in ast.walk(source) for _, value in ast.iter_fields(node))
        return any(isinstance(value, str) and _MENTIONS.search(value) for value in fields)
    try:
        text = source if isinstance(source, str) else str(source, "latin-1")
    except TypeError:
        return False
    return _MENTIONS.search(text) is not None


def rewrite(tree: ast.AST) -> bool:
    """Replace NumPy in a program's syntax tree; whether there was something to replace."""
    rewriter = _Rewriter()
    for node in ast.walk(tree):  # expressions may be nested deeper than Python's calls
        visit = getattr(rewriter, f"visit_{type(node).__name__}", None)
        if visit is not None:
            visit(node)
    return rewriter.changed


def _replaced_code(
    source: Any, path: str, mode: str = "exec", flags: int = 0, optimize: int = -1
) -> CodeType | None:
    """The code of a text or a syntax tree with NumPy replaced; None if it names no NumPy.

    None, too, for what Python refuses to compile: Python says why when it is asked itself.
    """
    if not _may_name_numpy(source):
        return None
    try:
        if isinstance(source, ast.AST):
            tree = copied(source)
        else:
            tree = _compile(source, path, mode, flags | ast.PyCF_ONLY_AST, True, optimize)
    except (SyntaxError, ValueError, RecursionError):
        return None
    if not rewrite(tree):
        return None
    has_loops = find.rewrite(tree, path)
    try:
        code: CodeType = _compile(tree, path, mode, flags, True, optimize)
    except (SyntaxError, RecursionError):
        return None
    return find.insert(code) if has_loops else code


def compile_rewritten(source: bytes | str, path: str) -> CodeType:
    """Compile a program's source with NumPy replaced."""
    seen.files.add(path)
    code = _replaced_code(source, path)
    return code or _compile(source, path, "exec", 0, True)


def executed(function: Any, text: Any) -> Any:
    """What the program's `exec(text)` and `eval(text)` are given: code with NumPy replaced."""
    if not isinstance(text, str) or function not in (builtins.exec, builtins.eval):
        return text
    mode = function.__name__
    flags = sys._getframe(1).f_code.co_flags & _INHERITED
    return (
        _replaced_code(text.lstrip(" \t") if mode == "eval" else text, "<string>", mode, flags)
        or text
    )


# ------------------------------------------------------------------------- the ways to code

_compile: Any = builtins.compile
_get_code = SourceFileLoader.get_code  # of a base class


def _compile_as_asked(
    source: Any,
    filename: Any,
    mode: str,
    flags: int = 0,
    dont_inherit: bool = False,
    optimize: int = -1,
    **more: Any,
) -> Any:
    """As `compile`, with NumPy replaced in the program's own code."""
    __tracebackhide__ = True
    caller = sys._getframe(1)
    if not dont_inherit:
        flags |= caller.f_code.co_flags & _INHERITED
    if not flags & ast.PyCF_ONLY_AST and isinstance(filename, (str, bytes, os.PathLike)):
        file = os.fsdecode(filename)
        if _is_the_users(file, caller):
            seen.files.add(file)
            code = _replaced_code(source, file, mode, flags, optimize)
            if code is not None:
                return code
    return _compile(source, filename, mode, flags, True, optimize, **more)


def _code_of_file(self: SourceFileLoader, fullname: str) -> CodeType | None:
    """The rewritten code. Not cached on disk: that cache belongs to the original source."""
    path = self.get_filename(fullname)
    if owner_of(path) is Owner.USER and fullname.partition(".")[0] != "numpy":
        seen.files.add(path)
        source = self.get_data(path)
        if type(self).source_to_code is SourceFileLoader.source_to_code:
            code = _replaced_code(source, path)
            if code is not None:
                return code
        elif _may_name_numpy(source):  # another package changes the source, and calls `compile`
            return self.source_to_code(source, path)
    return _get_code(self, fullname)


_compile_as_asked.__name__ = _compile_as_asked.__qualname__ = "compile"
_compile_as_asked.__module__ = "builtins"
# Python leaves frames of this name out of tracebacks of imports
_code_of_file.__code__ = _code_of_file.__code__.replace(co_filename=_get_code.__code__.co_filename)


def is_installed() -> bool:
    """Whether this process replaces NumPy in the program's own code."""
    return SourceFileLoader.get_code is _code_of_file


def install(texts: bool = True) -> None:
    """Replace NumPy in the program's own code that Python compiles from now on.

    Without `texts` in files that are imported only, not in what `compile` is called for.
    """
    _homes()  # imports modules, which `_code_of_file` could not do
    if texts:
        # what Python's import system compiles goes to the disk
        vars(sys.modules[SourceFileLoader.__module__])["compile"] = _compile
        vars(builtins)["compile"] = _compile_as_asked
    SourceFileLoader.get_code = _code_of_file  # type: ignore[method-assign,assignment]


def remove() -> None:
    """Let the program's own code that Python compiles from now on keep NumPy."""
    if is_installed():
        del SourceFileLoader.get_code
    if builtins.compile is _compile_as_asked:
        vars(builtins)["compile"] = _compile


# ----------------------------------------------------------------------------------- finding
