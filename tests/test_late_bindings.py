"""Module variables that other modules fill: each is written down here, with who fills it.

Such a variable lets a lower module call a higher one, which imports do not show. The list is to get
shorter: who adds one gives a reason in its commit, who takes one away takes its line.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.test_layers import FILES, origin_of

BOUND = {
    "arrays.assignment.assign_foreign": "interop.fallback",
    "arrays.base.SLOW.get_item": "arrays.indexing",
    "arrays.base.SLOW.matmul": "arrays.eager_operators",
    "arrays.base.SLOW.power": "arrays.eager_operators",
    "arrays.base.SLOW.scalar": "arrays.scalars",
    "arrays.base.SLOW.set_item": "arrays.indexing",
    "arrays.base.SLOW.value_node": "arrays.assignment",
    "arrays.exported_memory.count": "interop.fallback",
    "arrays.instance_checks.share": "namespace.protocols",
    "arrays.ndarray.make_scalar": "arrays.scalars",
    "arrays.ndarray.resolve": "arrays.mask_selection",
    "arrays.operators.deferred_binary": "arrays.mask_selection",
    "arrays.operators.deferred_inplace": "arrays.mask_selection",
    "arrays.operators.deferred_shape": "arrays.mask_selection",
    "arrays.operators.deferred_unary": "arrays.mask_selection",
    "arrays.recording.deferred_shape": "arrays.mask_selection",
    "array_api.array_object.namespace": "array_api.build",
    "bootstrap.WHY_PYTHON": "runtime.scheduling.evaluate",
    "functions.ufunc.reduction": "functions.reductions",
    "namespace.numpy_modules.quicken": "namespace.eager_table",
    "registry.ufunc_of": "functions.ufunc",
    "runtime.capture.bound_launches.native": "runtime.scheduling.evaluate",
    "runtime.execution.concurrency.busy": "runtime.scheduling.evaluate",
    "runtime.layout.copies.native": "runtime.scheduling.evaluate",
    "runtime.scheduling.flush.native": "runtime.scheduling.evaluate",
}
"""Variable, and the module that fills it."""

STATE = ("options", "totals")
"""Objects that are there to be written to: settings, counters."""


def test_module_variables_that_others_fill_are_known() -> None:
    found = dict(assigned_elsewhere())
    assert {name: who for name, who in found.items() if BOUND.get(name) != who} == {}, "new ones"
    assert [name for name in BOUND if name not in found] == [], "gone: take their lines"


def assigned_elsewhere() -> Iterator[tuple[str, str]]:
    """Variables of modules, and attributes of their objects, that another module assigns to."""
    for module, path in FILES.items():
        nodes = list(ast.walk(ast.parse(path.read_text())))
        names = dict(_modules(module, nodes))
        for node in nodes:
            for target in _targets(node):
                first, *rest = _dotted(target)
                if rest and first in names and rest[0] not in STATE:
                    name = ".".join([names[first], *rest])
                    yield name.removeprefix("lazyfuse."), module.removeprefix("lazyfuse.")


def _modules(module: str, nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    """The names that a module has for modules of ours."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            origin = origin_of(node, module)
            for alias in node.names:
                if f"{origin}.{alias.name}" in FILES:
                    yield alias.asname or alias.name, f"{origin}.{alias.name}"


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
