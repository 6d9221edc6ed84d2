"""What lower modules call of higher ones without an import: each is here, with who fills it.

Seen are variables of modules, attributes of their objects, objects that are filled as a whole, and
variables that a function sets to its argument (`use(native)`). The list is to get shorter: who adds
one gives a reason in its commit, who takes one away takes its line.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator

from tests.test_layers import FILES, origin_of

BOUND = {
    "arrays.assignment.assign_foreign": "interop.fallback",
    "arrays.base.HOOKS": "arrays.scalars",
    "arrays.operators._matmul": "functions.products",
    "io.sources.empty": "runtime.chunked.tasks",
    "runtime.placement.offload._opener": "runtime.placement.devices",
    "runtime.scheduling.evaluate.chunked": "runtime.chunked.run",
    "runtime.scheduling.evaluate.in_chunks": "runtime.chunked.run",
}
"""Variable, and the module that fills it."""

MOST = 12

GIVEN = {
    "bootstrap.WHY_PYTHON": "runtime.scheduling.evaluate",
    "codegen.graph.linearize._walk": "runtime.scheduling.evaluate",
    "codegen.lowering.lower._stream_above": "runtime.placement.devices",
    "devices.cpu.bound_launch.native": "runtime.scheduling.evaluate",
    "devices.cpu.vector_loops.native": "runtime.scheduling.evaluate",
    "devices.pools.buffers._clock": "runtime.scheduling.evaluate",
    "devices.cpu_figures._in_use": "runtime.placement.calibrate",
    "devices.thread_pool.callers": "runtime.execution.concurrency",
    "late_modules._section": "runtime.scheduling.evaluate",
    "runtime.capture.conditions.native": "runtime.scheduling.evaluate",
    "runtime.numerics.errstate._quiet": "runtime.scheduling.evaluate",
    "runtime.scheduling.flush.native": "runtime.scheduling.evaluate",
}
"""Figures, texts, and modules in C: nothing of ours that stands higher is called by them."""

STATE = ("options", "totals", "busy", "clock")
"""Objects and counters that are there to be written to."""

FILLING = "fill"
"""The method that fills an object as a whole."""


def test_module_variables_that_others_fill_are_known() -> None:
    found = dict(assigned_elsewhere())
    known = BOUND | GIVEN
    assert {name: who for name, who in found.items() if known.get(name) != who} == {}, "new ones"
    assert [name for name in known if name not in found] == [], "gone: take their lines"
    assert len(BOUND) <= MOST


def assigned_elsewhere() -> Iterator[tuple[str, str]]:
    """What a module fills of another one."""
    for module in FILES:
        nodes = _nodes(module)
        names = dict(_imported(module))
        for node in nodes:
            for name in (*_assigned(node, names), *_called(node, names)):
                yield name.removeprefix("lazyfuse."), module.removeprefix("lazyfuse.")


@functools.cache
def _nodes(module: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(FILES[module].read_text())))


def _imported(module: str) -> Iterator[tuple[str, str]]:
    """The names that a module has for modules of ours, and for what is in them."""
    for node in _nodes(module):
        if isinstance(node, ast.ImportFrom):
            origin = origin_of(node, module)
            for alias in node.names:
                whole = f"{origin}.{alias.name}"
                if whole in FILES or (origin in FILES and alias.name not in _classes(origin)):
                    yield alias.asname or alias.name, whole


def _assigned(node: ast.AST, names: dict[str, str]) -> Iterator[str]:
    """Variables, and attributes of objects, that an assignment sets in other modules."""
    for target in _targets(node):
        first, *rest = _dotted(target)
        if rest and first in names and not {names[first].rpartition(".")[2], *rest} & {*STATE}:
            yield ".".join([names[first], *rest])


def _called(node: ast.AST, names: dict[str, str]) -> Iterator[str]:
    """Objects that a call fills, and variables that a called function sets to its argument."""
    if not isinstance(node, ast.Call):
        return
    first, *rest = _dotted(node.func)
    if first not in names:
        return
    *path, last = [names[first], *rest]
    whole = ".".join([*path, last])
    if last == FILLING and path:
        yield ".".join(path)
    owner, _, function = whole.rpartition(".")
    if owner in FILES:
        yield from (f"{owner}.{each}" for each in _setters(owner).get(function, ()))


@functools.cache
def _classes(module: str) -> set[str]:
    """Classes are completed by other modules: their methods are found by the class."""
    return {node.name for node in _nodes(module) if isinstance(node, ast.ClassDef)}


@functools.cache
def _setters(module: str) -> dict[str, list[str]]:
    """Functions that set variables of their module to what they were given."""
    found: dict[str, list[str]] = {}
    for function in _nodes(module):
        if isinstance(function, ast.FunctionDef):
            inside = list(ast.walk(function))
            given = {each.arg for each in function.args.args}
            ours = {name for each in inside if isinstance(each, ast.Global) for name in each.names}
            found[function.name] = [
                target.id
                for each in inside
                if isinstance(each, ast.Assign) and given & _names(each.value)
                for target in each.targets
                if isinstance(target, ast.Name) and target.id in ours
            ]
    return found


def _names(value: ast.expr) -> set[str]:
    """What a plain value is: a name, or one of several."""
    parts = value.values if isinstance(value, ast.BoolOp) else [value]
    if isinstance(value, ast.IfExp):
        parts = [value.body, value.orelse]
    return {_dotted(part)[0] for part in parts}


def _targets(node: ast.AST) -> list[ast.expr]:
    """What a statement assigns to."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        targets = [node.target]
    return [each for t in targets for each in (t.elts if isinstance(t, ast.Tuple) else [t])]


def _dotted(target: ast.expr) -> list[str]:
    """The names of `a.b.c`; those behind the last thing that is no name, of others."""
    names: list[str] = []
    while isinstance(target, ast.Attribute):
        names.append(target.attr)
        target = target.value
    return [*([target.id] if isinstance(target, ast.Name) else [""]), *reversed(names)]
