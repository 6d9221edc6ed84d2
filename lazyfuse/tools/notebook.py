"""The IPython extension: `%load_ext lazyfuse`.

From then on, cells and the user's own modules get lazyfuse where they import numpy, as programs do
under `lazyfuse script.py`. Owns the magics `%%lazyfuse.report`, `%lazyfuse.timeit`
and `%lazyfuse.explain`. IPython calls this module and hands its shell in; it is not imported here.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from types import CodeType, ModuleType
from typing import Any

from lazyfuse import config
from lazyfuse.arrays.ndarray import ndarray
from lazyfuse.interop import import_hook
from lazyfuse.loops import find
from lazyfuse.loops.leaving import copied
from lazyfuse.namespace import assemble
from lazyfuse.runtime.events import counters, numpy_calls, spans
from lazyfuse.runtime.events.counters import Totals
from lazyfuse.runtime.placement import pending_launches
from lazyfuse.runtime.scheduling import evaluate
from lazyfuse.tools.explain import Explanation
from lazyfuse.tools.notebook_names import in_cells
from lazyfuse.tools.warm_up import parts

PREFIX = "lazyfuse."
_DIFFERENCE = "each run computes its results; %timeit would time their recording alone"
_TIMED = "<magic-timeit>"
"""The file name of what `%timeit` runs: a function with a loop around the statement."""
_OPTIONS = re.compile(r"\s*(?:-(?:[nrpv]\s*\S+|[tcqo]+)(?:\s+|$))*")
"""The options of `%timeit` in front of its statement."""


class _Imports:
    """A transformer of syntax trees, as IPython takes them."""

    def visit(self, tree: ast.Module) -> ast.Module:
        import_hook.rewrite(tree)
        return tree


def _compiler_of_loops(kind: type) -> type:
    """A shell's class of compilers, for code whose loops are prepared."""

    class Compiler(kind):  # type: ignore[misc]
        def __call__(self, source: Any, filename: str, *more: Any, **named: Any) -> CodeType:
            if isinstance(source, (ast.Module, ast.Interactive)):
                source = copied(source)  # `%timeit` compiles a tree twice
                loops = (each for each in ast.walk(source) if isinstance(each, ast.For))
                whole = next(loops, source) if filename == _TIMED else source
                module = ast.Module(whole.body, [])
                find.rewrite(module, filename)
                whole.body = module.body
            return find.insert(super().__call__(source, filename, *more, **named))

    return Compiler


class _Extension:
    """What one shell was given, so that it can be taken back."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.imports = _Imports()
        self.installs = not import_hook.is_installed()  # a kernel may run under the launcher
        if self.installs:
            import_hook.install(texts=False)
        shell.ast_transformers.append(self.imports)
        self.compiler = type(shell.compile)
        shell.compile.__class__ = _compiler_of_loops(self.compiler)
        shell.events.register("post_run_cell", self.drop_names)
        self.magics = {
            "report": (self.report, ("cell",)),
            "timeit": (self.timeit, ("line", "cell")),
            "explain": (self.explain, ("line", "cell")),
        }
        for name, (function, kinds) in self.magics.items():
            for kind in kinds:
                shell.register_magic_function(function, kind, PREFIX + name)

    def remove(self) -> None:
        """Give the shell's cells NumPy again; names that are bound stay."""
        if self.imports in self.shell.ast_transformers:
            self.shell.ast_transformers.remove(self.imports)
        self.shell.compile.__class__ = self.compiler
        self.shell.events.unregister("post_run_cell", self.drop_names)
        if self.installs:
            import_hook.remove()
        for name, (_, kinds) in self.magics.items():
            for kind in kinds:
                self.shell.magics_manager.magics[kind].pop(PREFIX + name, None)

    def drop_names(self, result: Any = None) -> None:
        """Take the names of loops out of the user's: those that begin with a dot."""
        for name in [name for name in self.shell.user_ns if name.startswith(".")]:
            del self.shell.user_ns[name]

    # Magics. Their docstrings are what `%lazyfuse.timeit?` shows.

    def report(self, line: str, cell: str) -> None:
        """Run the cell, then show what ran in it, where and why.

        The counters of the whole program go on meanwhile: `lazyfuse.report()` has the cell's work.
        """
        _no_line(line, "report")
        with _counted():
            value = self._run(cell, shown=True)
            del value
            made: Any = assemble.look_up("report")()
        self._show(made)

    def timeit(self, line: str, cell: str | None = None) -> Any:
        """Time a statement, its results included: as `%timeit`, with the same options.

        `%timeit` would time the recording of lazy arrays and not their computation. In a cell, the
        line is the setup.
        """
        found = _OPTIONS.match(line)
        assert found is not None, "an empty match is one, too"
        options, statement = found.group(), line[found.end() :]
        setup, timed = ("", statement) if cell is None else (statement, cell)
        if not timed.strip():
            raise ValueError("[timeit] statement: expected one, got none")
        names, ours = self.shell.user_ns, {_EVALUATE: _compute, _LOCALS: locals}
        names.update(ours)
        try:
            if "q" not in options:
                print(_DIFFERENCE)
            first = " ".join([options, self._computing(setup)]) if setup else options
            return self.shell.run_cell_magic("timeit", first, self._computing(timed))
        finally:
            for name in ours:
                names.pop(name, None)

    def explain(self, line: str, cell: str | None = None) -> Explanation | None:
        """Show what would run for an expression, and why, without running it.

        In a cell, the statements run, and what is explained is the cell's last expression; without
        one, what the cell has assigned. Sums and other numbers stay lazy meanwhile.
        """
        if cell is not None:
            _no_line(line, "explain")
        text = line if cell is None else cell
        numbers, config.options.lazy_numbers = config.options.lazy_numbers, True
        try:
            found = self._run(text, shown=False)
        finally:
            config.options.lazy_numbers = numbers
        if found is None:
            names = dict.fromkeys(_assigned(ast.parse(self.shell.transform_cell(text))))
            found = [self.shell.user_ns.get(name) for name in names]
        arrays = _arrays(found)
        if not arrays:
            print("nothing to explain: there is no array of lazyfuse")
            return None
        explained: Explanation = assemble.explain(*arrays)
        return explained

    # How they run a cell

    def _computing(self, text: str) -> str:
        tree = ast.parse(self.shell.transform_cell(text))
        return ast.unparse(ast.fix_missing_locations(_Computing().visit(tree)))

    def _run(self, text: str, shown: bool) -> Any:
        """Run a cell's text in the user's namespace; the value of its last expression."""
        shell = self.shell
        text = shell.transform_cell(text)
        result = getattr(shell.displayhook, "exec_result", None)
        number = getattr(result, "execution_count", None) or shell.execution_count
        file = shell.compile.cache(text, number, text)
        tree = shell.transform_ast(ast.parse(text, file))
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(shell.compile(tree, file, "exec"), shell.user_ns)
        if last is None:
            return None
        whole = ast.Expression(last.value)
        value = eval(shell.compile(whole, file, "eval"), shell.user_ns)
        if shown:
            shell.displayhook(value)
        return value

    def _show(self, made: Any) -> None:
        display: Any = importlib.import_module("IPython.display").display
        display(_InCells(made))


class _InCells:
    """What shows itself as text, and perhaps as HTML, with the cells' files named as cells."""

    def __init__(self, made: Any) -> None:
        self.made = made

    def __repr__(self) -> str:
        return in_cells(str(self.made))

    def _repr_html_(self) -> str:
        html = getattr(self.made, "_repr_html_", None)
        return in_cells(html()) if html is not None else f"<pre>{escape(repr(self))}</pre>"


_loaded: list[_Extension] = []


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext lazyfuse`: later cells get lazyfuse where they import numpy."""
    if any(each.shell is shell for each in _loaded):
        return
    extension = _Extension(shell)
    _loaded.append(extension)
    _rewrite_running_cell(extension.imports)
    for line in _left(shell.user_ns):
        print(line)


def _rewrite_running_cell(imports: _Imports) -> None:
    """Rewrite the statements behind `%load_ext` in its own cell, which IPython has parsed already.

    IPython compiles a cell's statements one after the other, as it comes to them.
    """
    frame = sys._getframe().f_back
    while frame is not None:
        nodes = frame.f_locals.get("nodelist")
        if frame.f_code.co_name == "run_ast_nodes" and isinstance(nodes, list):
            imports.visit(ast.Module(nodes, []))  # changes the statements in place
            return
        frame = frame.f_back


def unload_ipython_extension(shell: Any) -> None:
    """`%unload_ext lazyfuse`: later cells get NumPy where they import numpy."""
    for each in [each for each in _loaded if each.shell is shell]:
        each.remove()
        _loaded.remove(each)


def _left(names: dict[str, Any]) -> Iterator[str]:
    """Sentences about names and modules that have NumPy from before."""
    bound = [
        name
        for name, value in names.items()
        if isinstance(value, ModuleType) and not name.startswith("_") and _is_numpys(value)
    ]
    if bound:
        yield f"NumPy from before: {', '.join(bound)}. Run its import again to get lazyfuse."
    modules = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if name != "__main__" and file.endswith(".py") and _is_the_users(file):
            values = list(vars(module).values())
            if any(isinstance(value, ModuleType) and _is_numpys(value) for value in values):
                modules.append(name)
    if modules:
        yield f"modules with NumPy from before: {', '.join(modules)}. Reload them to get lazyfuse."


def _is_the_users(file: str) -> bool:
    return import_hook.owner_of(file) is import_hook.Owner.USER


def _is_numpys(module: ModuleType) -> bool:
    return module.__name__.partition(".")[0] == "numpy"


def _no_line(line: str, magic: str) -> None:
    if line.strip():
        text = f"[{magic}] line: expected nothing behind %%lazyfuse.{magic}, got {line.strip()!r}"
        raise ValueError(text)


# ---------------------------------------------------------------------- counters of one cell


@contextmanager
def _counted() -> Iterator[None]:
    """Count a block's work alone and line by line; then add it to the counters of the program."""
    whole, calls = counters.exchange(Totals()), dict(numpy_calls.table)
    measured, config.options.report = config.options.report, True
    numpy_calls.table.clear()
    try:
        with spans.apart():
            yield
    finally:
        config.options.report = measured
        spans.sum_up(whole, counters.exchange(whole))
        for call, count in calls.items():
            numpy_calls.table[call] = numpy_calls.table.get(call, 0) + count


# ----------------------------------------------------------------------- results, computed

_EVALUATE = "_lazyfuse_compute"
_LOCALS = "_lazyfuse_locals"
"""Under this name, `locals` lets loops beside it be prepared."""


class _Computing(ast.NodeTransformer):
    """Computes the values of expression statements, and what a statement has assigned at its end.

    Code of functions and classes that a statement defines stays as it is.
    """

    def visit_Module(self, node: ast.Module) -> ast.Module:
        written = [_read(each) for each in _written(node)]
        self.generic_visit(node)
        everything = [_call(_LOCALS), *written]
        node.body.append(ast.Expr(_call(_EVALUATE, *everything)))
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.Expr:
        node.value = _call(_EVALUATE, node.value)
        return node

    def _stays(self, node: ast.AST) -> ast.AST:
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _stays  # noqa: N815


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def _read(name: str) -> ast.expr:
    return ast.Name(name, ast.Load())


def _stores(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(getattr(node, "ctx", None), ast.Store):
            yield node  # type: ignore[misc]


def _assigned(tree: ast.AST) -> Iterator[str]:
    """The names that statements bind, or whose elements they write."""
    for node in _stores(tree):
        if isinstance(node, ast.Name):
            yield node.id
    yield from _written(tree)


def _written(tree: ast.AST) -> Iterator[str]:
    """The names whose elements statements write: `x` of `x[1] = 2`."""
    for node in _stores(tree):
        inner: ast.AST = node
        while isinstance(inner, (ast.Subscript, ast.Attribute)):
            inner = inner.value
        if inner is not node and isinstance(inner, ast.Name):
            yield inner.id


def _compute(*values: Any) -> None:
    """Compute the arrays among the values; devices have done their work then."""
    assemble.evaluate(*_arrays(values))
    if under_way := pending_launches.devices():
        evaluate.wait_and_warn(under_way)


def _arrays(value: Any) -> list[Any]:
    """The arrays of ours in a value, and in the tuples, lists and dictionaries in it."""
    return [x for x in parts(value) if isinstance(x, ndarray) or hasattr(type(x), "_array")]
