"""What source distributions and wheels hold: C sources for building, none of them installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

import lazyfuse
from lazyfuse import codegen, devices
from lazyfuse.devices.pools import environment

ROOT = Path(__file__).parent.parent


def c_sources() -> list[str]:
    """The files that machine code is made from (see setup.py)."""
    found = [path for path in (ROOT / "lazyfuse").rglob("*.[ch]") if "build" not in path.parts]
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def test_source_distributions_hold_what_is_compiled() -> None:
    patterns = []
    for line in (ROOT / "MANIFEST.in").read_text().splitlines():
        command, *rest = line.split()
        patterns += rest if command == "include" else []
    missing = set(c_sources()).difference(
        path.relative_to(ROOT).as_posix() for each in patterns for path in ROOT.glob(each)
    )
    assert len(c_sources()) > 2
    assert not missing, "MANIFEST.in leaves these out: who builds from it gets no machine code"


def test_source_distributions_hold_pages_examples_and_tests(tmp_path: Path) -> None:
    if find_spec("setuptools") is None or int(version("setuptools").partition(".")[0]) < 77:
        pytest.skip("no setuptools that reads our pyproject.toml")
    tracked = [
        path
        for top in ("docs", "examples", "tests", "scripts", "benchmarks")
        for path in (ROOT / top).rglob("*")
        if path.is_file() and path.suffix in (".md", ".py", ".json") and "build" not in path.parts
    ]
    copy = tmp_path / "checkout"  # making a distribution writes beside its sources
    leave = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__", "*.so")
    shutil.copytree(ROOT, copy, ignore=leave)
    command = [sys.executable, "setup.py", "-q", "sdist", "--dist-dir", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, cwd=copy)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        held = {name.partition("/")[2] for name in file.getnames()}
    assert {path.relative_to(ROOT).as_posix() for path in tracked} - held == set()
    assert set(c_sources()) <= held


def test_setup_knows_every_source() -> None:
    text = (ROOT / "setup.py").read_text()
    (pattern,) = re.findall(r'HERE.glob\("([^"]+)"\)', text)
    found = {path.relative_to(ROOT).as_posix() for path in (ROOT / "lazyfuse").glob(pattern)}
    assert found == set(c_sources())


@pytest.mark.skipif(sys.platform == "win32", reason="the compiler there is not named by CC")
@pytest.mark.skipif(
    sys.implementation.name != "cpython" or bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    reason="nothing is compiled here",
)
def test_a_build_that_fails_leaves_no_older_one(tmp_path: Path) -> None:
    if find_spec("setuptools") is None:  # importing it would change sys.path
        pytest.skip("no setuptools")
    shutil.copy(ROOT / "setup.py", tmp_path)
    shutil.copytree(ROOT / "lazyfuse" / "native", tmp_path / "lazyfuse" / "native")
    code = f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    platform = f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
    old = [tmp_path / "lazyfuse" / code, tmp_path / "build" / platform / "lazyfuse" / code]
    for each in old:
        each.parent.mkdir(parents=True, exist_ok=True)
        each.write_bytes(b"of an older source")
        os.utime(each, (0, 0))
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    variables = os.environ | {"CC": "false"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=variables)
    assert "is there a C compiler?" in done.stderr
    assert not [each for each in old if each.exists()]
    assert not (tmp_path / "lazyfuse" / "compiled.txt").exists()


def named_in_c() -> set[str]:
    """The modules of ours that comments of the C sources name: `module.py`, `module.function`."""
    files = {}
    for top in ("lazyfuse", "codegen", "devices"):
        for path in (ROOT / top).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix().removeprefix("lazyfuse/")
            files.setdefault(path.stem, []).append((name, path.read_text()))
    found = set()
    for source in c_sources():
        for comment in re.findall(r"/\*.*?\*/", (ROOT / source).read_text(), re.DOTALL):
            for module, what in re.findall(r"\b([a-z_]+)\.(\w+)\b", comment):
                definition = re.compile(rf"^(def |class )?{what}\b", re.MULTILINE)
                for name, text in files.get(module, ()):
                    if what == "py" or definition.search(text):
                        found.add(name)
    return found


def test_machine_code_is_used_beside_the_python_that_it_repeats_alone() -> None:
    text = (ROOT / "setup.py").read_text()
    twins = set(re.search(r'TWINS = """(.*?)"""', text, re.DOTALL)[1].split())  # type: ignore[index]
    others = {
        # named, and not repeated
        "interop/fallback.py", "runtime/events/tracing.py",
        # of the same name as one that is
        "functions/indexing.py", "devices/base.py",
    }  # fmt: skip
    assert named_in_c() - others <= twins
    assert twins <= named_in_c(), "no comment says so"


def test_constants_in_c_are_those_of_python() -> None:
    modules = [
        path for top in ("lazyfuse", "codegen", "devices") for path in (ROOT / top).rglob("*.py")
    ]
    found = 0
    for source in c_sources():
        text = (ROOT / source).read_text()
        for value, module, name in re.findall(r"= (\d+) }; /\* (\w+)\.(\w+) \*/", text):
            definition = re.compile(rf"^{name}(: Final)? = {value}\b", re.MULTILINE)
            named = [path.read_text() for path in modules if path.stem == module]
            assert any(map(definition.search, named)), f"{source}: {module}.{name}"
            found += 1
    assert found >= 4


def test_wheels_hold_no_sources_in_c() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert settings["include-package-data"] is False
    assert settings["package-data"] == {"lazyfuse": ["py.typed", "**/*.pyi"]}


FROM_A_ZIP = """
import numpy, lazyfuse as lf
assert lf.__file__.startswith({!r}), lf.__file__
with lf.options(compile_after=0):
    x = lf.arange(50_000) * 2.0
    assert float((x * x + 1.0).sum()) == float(((numpy.arange(50_000) * 2.0) ** 2 + 1.0).sum())
from lazyfuse.devices.pools import environment
print(environment.runtime("cpu", "opencl"))
"""


def test_programs_are_compiled_by_what_lies_in_a_zip(tmp_path: Path) -> None:
    archive = tmp_path / "everything.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for package in (lazyfuse, codegen, devices):
            folder = Path(package.__file__).parent
            for path in folder.rglob("*.py"):
                name = "/".join([*package.__name__.split("."), *path.relative_to(folder).parts])
                file.write(path, name)
    command = [sys.executable, "-c", FROM_A_ZIP.format(str(archive))]
    variables = os.environ | {"PYTHONPATH": str(archive), "LAZYFUSE_DEVICE": "cpu"}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=variables, check=False
    )
    assert done.stdout.strip() == environment.runtime("cpu", "opencl"), done.stderr


def test_it_runs_without_docstrings_and_assertions() -> None:
    program = "import lazyfuse as np; x = np.arange(50_000) * 2.0; print(float(x.sum()), np.sin)"
    done = subprocess.run(
        [sys.executable, "-OO", "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("2499950000.0 "), done.stderr
