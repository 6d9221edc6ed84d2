"""The house keeps its order: imports point down, stand at the top, and make no circle."""

from __future__ import annotations

import ast
import functools
import graphlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
FLOORS = {"lazyfuse": "lazyfuse", "codegen": "lazyfuse.codegen", "devices": "lazyfuse.devices"}
CONTRACT = "lazyfuse.devices.base"

SEES_DEVICES = {
    "lazyfuse.runtime.placement.calibrate",
    "lazyfuse.runtime.placement.calibrate_cpu",
    "lazyfuse.runtime.scheduling.evaluate",
    "lazyfuse.runtime.execution.executor",
    "lazyfuse.runtime.placement.devices",
    "lazyfuse.runtime.execution.matmul",
    "lazyfuse.runtime.placement.offload",
    "lazyfuse.runtime.execution.tiled_run",
    "lazyfuse.tools.explain",
    "lazyfuse.runtime.events.counters",
    "lazyfuse.tools.describe_kernel",
}
"""The only modules of the face that may import more of devices than its contract."""

LATE = {"numba", "llvmlite", "pyopencl", "dask", "mlx"}
"""Heavy or optional packages that are imported inside functions, and nowhere else."""

LONGEST = 600
"""Lines of a file. One that needs more has become two things."""


class Import(NamedTuple):
    name: str
    line: int
    late: bool  # inside a function


FILES = {
    ".".join([package, *path.relative_to(ROOT / folder).with_suffix("").parts]).removesuffix(
        ".__init__"
    ): path
    for folder, package in FLOORS.items()
    for path in sorted((ROOT / folder).rglob("*.py"))
}


def every_module(check: Callable[[str], None]) -> Callable[[], None]:
    """A test that asks each module; all that fail are told."""

    def test() -> None:
        wrong = []
        for module in sorted(FILES):
            try:
                check(module)
            except AssertionError as error:
                wrong.append(f"{module}: {error}")
        assert not wrong, "\n".join(wrong)

    test.__name__ = check.__name__
    return test


def walk(node: ast.AST, late: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """Every node but those for type checkers only, and whether it stands inside a function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        yield child, late
        inside = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        yield from walk(child, late or inside)


@functools.cache
def imports(module: str) -> list[Import]:
    """What a module imports, by full name; `from package import module` counts as the module."""
    found = []
    path = FILES[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node, late in walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [Import(alias.name, node.lineno, late) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if node.level:
                above = package.rsplit(".", node.level - 1)[0]
                origin = f"{above}.{origin}".rstrip(".")
            for alias in node.names:
                whole = f"{origin}.{alias.name}"
                found.append(Import(whole if whole in FILES else origin, node.lineno, late))
    return found


def floor(name: str) -> str:
    if name == CONTRACT:
        return "contract"
    for package in ("lazyfuse.codegen", "lazyfuse.devices", "lazyfuse"):
        if name == package or name.startswith(package + "."):
            return package
    return "outside"


def may_see(module: str) -> set[str]:
    """The floors that a module may import from."""
    if module == CONTRACT:
        return {"outside"}
    if floor(module) == "lazyfuse.devices":
        return {"outside", "contract", "lazyfuse.devices"}
    if floor(module) == "lazyfuse.codegen":
        return {"outside", "contract", "lazyfuse.codegen"}
    above = {"outside", "contract", "lazyfuse.codegen", "lazyfuse"}
    return above | {"lazyfuse.devices"} if module in SEES_DEVICES else above


@every_module
def test_imports_point_down(module: str) -> None:
    wrong = [item for item in imports(module) if floor(item.name) not in may_see(module)]
    assert not wrong, f"{module} must not import these"


@every_module
def test_imports_stand_at_the_top(module: str) -> None:
    wrong = [item for item in imports(module) if item.late and item.name.split(".")[0] not in LATE]
    assert not wrong, f"{module}: only {sorted(LATE)} may be imported inside functions"


@every_module
def test_heavy_packages_are_imported_late(module: str) -> None:
    wrong = [item for item in imports(module) if not item.late and item.name.split(".")[0] in LATE]
    assert not wrong, f"{module}: import these inside the functions that need them"


def test_imports_make_no_circle() -> None:
    graph = {
        module: {item.name for item in imports(module) if item.name in FILES and not item.late}
        for module in FILES
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(reversed(error.args[1])))


@every_module
def test_files_are_short(module: str) -> None:
    assert len(FILES[module].read_text().splitlines()) <= LONGEST


def test_import_is_light() -> None:
    """`import lazyfuse` touches no compiler and no device."""
    heavy = sorted(LATE | {"pandas", "scipy", "matplotlib", "unittest", "asyncio"})
    program = (
        "import sys, numpy; before = set(sys.modules); import lazyfuse;"
        f"print([name for name in {heavy} if name in sys.modules and name not in before])"
    )
    command = [sys.executable, "-W", "error", "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
