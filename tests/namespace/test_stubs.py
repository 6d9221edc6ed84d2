"""What type checkers and editors see of lazyfuse: NumPy's types, and the names that we add."""

from __future__ import annotations

import ast
import inspect
import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyfuse
from lazyfuse.namespace import assemble

ROOT = Path(__file__).parents[2]

PROGRAM = """
import {package} as np
import {package}.typing as npt
from {package}.random import default_rng
from {package}.lib.stride_tricks import sliding_window_view

def norm(x: npt.NDArray[np.float64]) -> np.float64:
    return np.sqrt(np.sum(x * x))

def scaled(x: np.ndarray, by: float = 2.0) -> np.ndarray:
    return x * by

def first(x: npt.ArrayLike) -> np.ndarray:
    return np.asarray(x)[0]

a = np.zeros((3, 4))
b = np.arange(12, dtype=np.float64).reshape(3, 4)
reveal_type(a)
reveal_type(b)
reveal_type(a + b)
reveal_type(a @ b.T)
reveal_type(a < b)
reveal_type(-a)
reveal_type(a[0])
reveal_type(a[a > 0])
reveal_type(np.exp(a))
reveal_type(np.add(a, b))
reveal_type(np.where(a > b, a, b))
reveal_type(a.sum())
reveal_type(a.sum(axis=0))
reveal_type(a.astype(np.int32))
reveal_type(np.linalg.norm(b))
reveal_type(np.linalg.svd(b))
reveal_type(np.fft.rfft(b))
reveal_type(np.fft.fftfreq(8))
reveal_type(np.random.default_rng(1).normal(size=3))
reveal_type(default_rng(1).integers(3))
reveal_type(np.concatenate([a, b]))
reveal_type(np.unique(a, return_counts=True))
reveal_type(np.dtype("f8"))
reveal_type(np.float32(1))
reveal_type(np.pi)
reveal_type(np.ma.masked_array([1.0]))
reveal_type(np.polynomial.Polynomial([1.0]))
reveal_type(sliding_window_view(a, 2, axis=1))
reveal_type(norm(b))
with np.errstate(all="ignore"):
    b /= a

np.zeros("three")
a.summ()
np.expp(a)
norm("text")
a.reshape(3, 4, order="Q")
np.linalg.nrom(a)
np.fft.rfft(a, norm="big")
np.random.default_rng(1).normal(sice=3)
text: str = np.mean(a)
np.arrays
"""

OURS = """
import lazyfuse as np

@np.accelerate
def step(x: float) -> float:
    return x + 1.0

step("text")
with np.device("cpu") as name:
    reveal_type(name)
reveal_type(np.report())
np.synchronize(3)
reveal_type(np.calibrate(verbose=True))
"""


STANDARD = """
import lazyfuse as np
from lazyfuse import array_api as xp
from lazyfuse.array_api import linalg

x = xp.asarray([1.0, 2.0], dtype=xp.float64)
reveal_type(x + 2 * x)
reveal_type(xp.where(x > 0, xp.sin(x), 0.0))
reveal_type(xp.unique_all(x).counts)
reveal_type(linalg.svd(xp.eye(3)).S)
reveal_type(xp.meshgrid(x, x))
reveal_type(x.shape)
reveal_type(x.to_numpy())
reveal_type(float(xp.sum(x)))
reveal_type(xp.finfo(xp.float32).eps)
reveal_type(np.array_api.fft.fft(x))

xp.sine(x)
xp.sum(x, axes=0)
xp.concat(x, x)
linalg.qr(x, mode="r")
x.sum()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Users' files beside the stubs, which need nothing else of the package."""
    made: Path = tmp_path_factory.mktemp("users")
    for stub in (ROOT / "lazyfuse").rglob("*.pyi"):
        target = made / stub.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(stub, target)
    for package in ("numpy", "lazyfuse"):
        (made / f"with_{package}.py").write_text(PROGRAM.replace("{package}", package))
    (made / "ours.py").write_text(OURS)
    (made / "standard.py").write_text(STANDARD)
    return made


def told(text: str, file: str) -> list[str]:
    """What a checker says of a file, without its name."""
    return [line.partition(":")[2] for line in text.splitlines() if line.startswith(file)]


CHECKED = ("with_numpy", "with_lazyfuse", "ours", "standard")


@pytest.fixture(scope="module")
def mypy_says(folder: Path) -> str:
    api = pytest.importorskip("mypy.api")
    here, deepest = Path.cwd(), sys.getrecursionlimit()
    os.chdir(folder)
    try:
        found = api.run(["--strict", "--config-file=", *(f"{name}.py" for name in CHECKED)])
    finally:
        os.chdir(here)
        sys.setrecursionlimit(deepest)  # mypy raises it for good
    assert not found[1]
    return str(found[0])


def test_mypy_says_the_same_as_with_numpy(mypy_says: str) -> None:
    theirs = told(mypy_says, "with_numpy.py")
    ours = [line.replace("lazyfuse", "numpy") for line in told(mypy_says, "with_lazyfuse.py")]
    assert ours == theirs
    assert sum("Revealed type" in line for line in ours) == 29
    assert len({line.partition(":")[0] for line in ours if " error:" in line}) >= 10
    assert not [line for line in mypy_says.splitlines() if line.startswith("lazyfuse")]


def test_mypy_knows_what_lazyfuse_adds(mypy_says: str) -> None:
    lines = told(mypy_says, "ours.py")
    errors = [line.partition(":")[0] for line in lines if " error:" in line]
    assert errors == ["8", "12"]
    kinds = [line.partition('"')[2].rstrip('"') for line in lines if "Revealed" in line]
    assert [kind.replace("builtins.", "") for kind in kinds] == [
        "str",
        "lazyfuse._Report",
        "dict[str, Any]",
    ]


def test_mypy_knows_the_array_api(mypy_says: str) -> None:
    lines = told(mypy_says, "standard.py")
    kinds = [line.partition('"')[2].rstrip('"') for line in lines if "Revealed" in line]
    assert [kind.replace("builtins.", "").replace("lazyfuse.array_api.", "") for kind in kinds] == [
        *["_Array"] * 4,
        "tuple[_Array, ...]",
        "tuple[int, ...]",
        "numpy.ndarray[Any, numpy.dtype[Any]]",
        "float",
        "float",
        "_Array",
    ]
    errors = [line.partition(":")[0] for line in lines if " error:" in line]
    assert sorted(set(errors)) == ["18", "19", "20", "21", "22"]


def parameters_in(stub: Path) -> dict[str, list[tuple[str, bool]]]:
    """The functions of a stub: names of parameters, and whether they have a default."""
    found = {}
    for node in ast.parse(stub.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            scope: dict[str, Any] = {}
            for each in ast.walk(node.args):
                if isinstance(each, ast.arg):
                    each.annotation = None
            exec(f"def f({ast.unparse(node.args)}): pass", scope)
            found[node.name] = shown(scope["f"])
    return found


def shown(function: Any) -> list[tuple[str, bool]]:
    return [
        (f"{each.kind.name} {each.name}", each.default is not each.empty)
        for each in inspect.signature(function).parameters.values()
    ]


@pytest.mark.parametrize("name", ["__init__", "linalg", "fft"])
def test_stubs_of_the_array_api_have_its_functions(name: str) -> None:
    module = lazyfuse.array_api if name == "__init__" else getattr(lazyfuse.array_api, name)
    found = parameters_in(ROOT / "lazyfuse" / "array_api" / f"{name}.pyi")
    plain = {each for each in dir(module) if inspect.isfunction(getattr(module, each))}
    assert {each for each in found if not each.startswith("__")} == plain
    assert {each: found[each] for each in plain} == {
        each: shown(getattr(module, each)) for each in plain
    }


@pytest.mark.skipif(find_spec("jedi") is None, reason="jedi is not installed")
@pytest.mark.filterwarnings("ignore")  # jedi's own
def test_jedi_offers_numpys_names_and_ours(folder: Path) -> None:
    import jedi

    project = jedi.Project(folder)

    def offered(text: str) -> set[str]:
        return {each.name for each in jedi.Script(text, project=project).complete()}

    ours = offered("import lazyfuse as np\nnp.")
    theirs = offered("import numpy as np\nnp.") & set(np.__all__)
    missing = {name for name in theirs - ours if not name.startswith("__")}
    assert missing <= {"core", "f2py", "row_stack", "test"}  # no arrays; not in every NumPy
    assert set(assemble.ADDED) <= ours
    for each in ("np.zeros(3)", "np.linspace(0, 1)", "np.linalg", "np.float64(1)"):
        after = [offered(f"import {name} as np\nx = {each}\nx.") for name in ("lazyfuse", "numpy")]
        assert after[0] == after[1]
    assert {"norm", "svd"} <= offered("import lazyfuse as np\nnp.linalg.")


@pytest.mark.skipif(find_spec("basedpyright") is None, reason="basedpyright is not installed")
def test_pyright_says_the_same_as_with_numpy(folder: Path) -> None:
    (folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')
    files = ["with_numpy.py", "with_lazyfuse.py"]
    command = [sys.executable, "-m", "basedpyright", "--outputjson", *files]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    said: dict[str, list[tuple[int, str]]] = {file: [] for file in files}
    for each in json.loads(done.stdout)["generalDiagnostics"]:
        if each.get("rule") == "reportMissingModuleSource":  # NumPy's paths have no file of ours
            continue
        text = each["message"].replace("lazyfuse", "numpy")
        said[Path(each["file"]).name].append((each["range"]["start"]["line"], text))
    assert said["with_lazyfuse.py"] == said["with_numpy.py"]
    assert len(said["with_numpy.py"]) >= 39


def test_stubs_are_what_the_script_writes() -> None:
    command = [sys.executable, "scripts/write_stubs.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_dir_shows_numpys_names_and_ours() -> None:
    shown = set(dir(lazyfuse))
    assert set(dir(np)) | set(assemble.ADDED) <= shown
    beside = {name for name in shown - set(dir(np)) if not name.startswith("__")}
    assert beside == {*assemble.ADDED, "array_api"}


def test_star_import_gives_numpys_names() -> None:
    assert set(lazyfuse.__all__) == set(np.__all__)
