"""The house keeps its order: imports point down, stand at the top, and make no circle."""

from __future__ import annotations

import ast
import collections
import functools
import graphlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from lazyfuse.bootstrap import PACKAGES

ROOT = Path(__file__).parents[1]
FLOORS = {"lazyfuse": "lazyfuse", "codegen": "lazyfuse.codegen", "devices": "lazyfuse.devices"}
TOOLS = {"lazyfuse.devices.dataclass"}
CONTRACT = {"lazyfuse.devices.base", "lazyfuse.devices.caches"} | TOOLS
"""What everybody may see of devices: it imports nothing of ours but tools."""

LAYERS: dict[str, tuple[tuple[str, ...], ...]] = {
    "lazyfuse": (
        ("",), ("io",), ("runtime.layout",), ("runtime.numerics",), ("runtime.events",),
        ("runtime.placement",), ("runtime.execution",), ("runtime.capture",),
        ("runtime.scheduling",), ("runtime.chunked",), ("kernels",), ("arrays",), ("loops",),
        ("interop",), ("functions",), ("namespace",), ("tools",), ("array_api",), ("all",),
    ),
    "lazyfuse.codegen": (
        ("table",), ("graph",), ("lowering",), ("numba", "blocked", "opencl"), ("rewrite",),
        ("plan",),
    ),
    "lazyfuse.devices": (
        ("",),
        ("pools",),
        ("cpu.intrinsics",),
        ("cpu.frontend",),
        ("cpu", "opencl", "dask"),
        ("all",),
    ),
}  # fmt: skip
"""The packages of each part, from low to high. Those of one layer do not see each other."""

ELSEWHERE = {
    "lazyfuse": "all", "lazyfuse.__main__": "all", "lazyfuse.linalg": "namespace",
    "lazyfuse.fft": "namespace", "lazyfuse.random": "namespace", "lazyfuse.devices.registry": "all",
    "lazyfuse.devices.cost": "all",
}  # fmt: skip
"""Modules that belong to another layer than that of their folder."""

SEES_DEVICES = {
    "lazyfuse.runtime.placement", "lazyfuse.runtime.execution", "lazyfuse.runtime.scheduling",
    "lazyfuse.runtime.chunked", "lazyfuse.tools",
}  # fmt: skip
"""The only packages of the frontend that may import more of devices than its contract."""

MOST_FILES = 25  # in a folder

LATE = {"numba", "llvmlite", "pyopencl", "dask", "distributed", "zarr", "h5py", "mlx"}
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


NATIVE = ROOT / "lazyfuse" / "native"
IN_C = sorted(NATIVE.rglob("*.[ch]"))
FLOORS_IN_C = ("base", "graph", "player", "tape", "arrays", "entering", "native")
"""Folders of C, from the ground up; `native` itself has the module's table alone."""


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
def origin_of(node: ast.ImportFrom, module: str) -> str:
    """The full name of what `from ... import` in a module imports from."""
    if not node.level:
        return node.module or ""
    package = module if FILES[module].name == "__init__.py" else module.rpartition(".")[0]
    above = package.rsplit(".", node.level - 1)[0]
    return f"{above}.{node.module or ''}".rstrip(".")


@functools.cache
def imports(module: str) -> list[Import]:
    """What a module imports, by full name; `from package import module` counts as the module."""
    found = []
    for node, late in walk(ast.parse(FILES[module].read_text())):
        if isinstance(node, ast.Import):
            found += [Import(alias.name, node.lineno, late) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = origin_of(node, module)
            for alias in node.names:
                whole = f"{origin}.{alias.name}"
                found.append(Import(whole if whole in FILES else origin, node.lineno, late))
    return found


def floor(name: str) -> str:
    if name in TOOLS:
        return "tools"
    if name in CONTRACT:
        return "contract"
    for package in ("lazyfuse.codegen", "lazyfuse.devices", "lazyfuse"):
        if name == package or name.startswith(package + "."):
            return package
    return "outside"


def may_see(module: str) -> set[str]:
    """The floors that a module may import from."""
    if module in TOOLS:
        return {"outside"}
    if module in CONTRACT:
        return {"outside", "tools"}
    if floor(module) == "lazyfuse.devices":
        return {"outside", "tools", "contract", "lazyfuse.devices"}
    if floor(module) == "lazyfuse.codegen":
        return {"outside", "tools", "contract", "lazyfuse.codegen"}
    above = {"outside", "tools", "contract", "lazyfuse.codegen", "lazyfuse"}
    return above | {"lazyfuse.devices"} if module.rpartition(".")[0] in SEES_DEVICES else above


def layer(module: str) -> tuple[int, str]:
    """How high a module stands in its part, and its package there."""
    part = floor(module)
    package = module if FILES[module].name == "__init__.py" else module.rpartition(".")[0]
    name = ELSEWHERE.get(module, package[len(part) + 1 :])
    if package == part != "lazyfuse" and FILES[module].name == "__init__.py":
        name = "all"
    return next((at, name) for at, names in enumerate(LAYERS[part]) if name in names)


@every_module
def test_imports_point_down(module: str) -> None:
    wrong = [item for item in imports(module) if floor(item.name) not in may_see(module)]
    assert not wrong, f"{module} must not import these"


@every_module
def test_packages_are_layers(module: str) -> None:
    """A package imports what stands before it in `LAYERS`, and itself."""
    if module in CONTRACT or not imports(module):
        return
    height, own = layer(module)
    wrong = []
    for item in imports(module):
        if item.name in FILES and item.name not in CONTRACT and floor(item.name) == floor(module):
            found, package = layer(item.name)
            if found > height or (found == height and package != own):
                wrong.append(item)
    assert not wrong, f"{module} must not import these"


def test_every_folder_is_a_package_that_is_known() -> None:
    """Frames of ours are told from the user's by their package, and wheels hold what is listed."""
    found = {
        module if path.name == "__init__.py" else module.rpartition(".")[0]
        for module, path in FILES.items()
    }
    assert found == PACKAGES
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert set(settings["packages"]) == PACKAGES


def test_folders_are_small() -> None:
    tests = (ROOT / "tests").rglob("*.py")
    sizes = collections.Counter(path.parent for path in (*FILES.values(), *tests, *IN_C))
    assert not [folder for folder, size in sizes.items() if size > MOST_FILES]


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


def test_files_in_c_are_short() -> None:
    assert IN_C
    long = [path.name for path in IN_C if len(path.read_text().splitlines()) > LONGEST]
    assert not long


def test_includes_in_c_point_down() -> None:
    assert {path.parent.name for path in IN_C} == set(FLOORS_IN_C)
    up = [
        f"{path.relative_to(NATIVE)}: {name}"
        for path in IN_C
        for name in re.findall(r'#include "(?!internal/)(.+)"', path.read_text())  # of Python
        if not (path.parent / name).exists()
        or FLOORS_IN_C.index((path.parent / name).resolve().parent.name)
        > FLOORS_IN_C.index(path.parent.name)
    ]
    assert not up


def code_of(path: Path) -> str:
    """A file in C without comments, macros and types, and without what stands in braces."""
    text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
    text = re.sub(r"^ *#(?:.*\\\n)*.*\n", "", text, flags=re.MULTILINE)
    while text != (text := re.sub(r"\{[^{}]*\}", "", text)):
        pass
    return re.sub(r"^(?:typedef|enum)\b[^;]*;", "", text, flags=re.MULTILINE)


def test_calls_in_c_point_down() -> None:
    """A header declares what its folder defines, and nothing else is declared."""
    for folder in FLOORS_IN_C[:-1]:
        headers = [code_of(path) for path in (NATIVE / folder).glob("*.h")]
        declared = [
            name
            for each in "".join(headers).split(";")
            if not each.lstrip().startswith(("static", "NAMES"))  # NAMES: a macro's own
            for name in re.findall(r"(\w+)\s*(?:$|[,(\[])", re.sub(r"(?s)\(.*", "(", each))
        ]
        assert len(declared) > 3
        code = "".join(code_of(path) for path in (NATIVE / folder).glob("*.c"))
        missing = [
            name
            for name in declared
            if not re.search(rf"^(?!static\b|extern\b)\w.*\b{name}\b(?!.*\);)", code, re.MULTILINE)
        ]
        assert not missing, folder
    for path in IN_C:
        if path.suffix == ".c":
            apart = re.findall(r"(?m)^(?!static\b)\w.*\([^()]*\);|^extern\b.*", code_of(path))
            assert not apart, path


def test_one_file_of_each_language_asks_for_counts_of_references() -> None:
    """What counts mean changes with the interpreter: one place to change, and to read."""
    asking = {
        str(path.relative_to(ROOT))
        for path in (*FILES.values(), *IN_C)
        if re.search(r"\b(getrefcount|Py_REFCNT)\b", path.read_text())
    }
    assert asking == {"codegen/graph/references.py", "lazyfuse/native/base/base.h"}


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
