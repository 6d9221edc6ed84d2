"""scripts/kernels notes every text, the same ones each time, and tells a tree's from a commit's."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.helpers import scripts

TREE = (
    "lazyfuse", "codegen", "devices", "benchmarks", "scripts/kernels", "tests/codegen",
    "tests/helpers",
)  # fmt: skip
PRINTER = "codegen/numba/printer.py"

git = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    with scripts.script("kernels") as module:
        yield module


def run_git(tree: Path, *arguments: str) -> None:
    name = ["-c", "user.name=Nobody", "-c", "user.email=nobody@nowhere", "-c", "commit.gpgsign=no"]
    subprocess.run(["git", "-C", str(tree), *name, *arguments], check=True, capture_output=True)


def commit(tree: Path, message: str) -> None:
    run_git(tree, "add", "-A")
    run_git(tree, "commit", "-q", "-m", message, "--allow-empty")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with a commit."""
    folder = tmp_path_factory.mktemp("tree").resolve()
    left_out = shutil.ignore_patterns("__pycache__", "*.so", "compiled.txt", "results")
    for name in TREE:
        source, target = scripts.ROOT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=left_out)
        else:
            shutil.copy(source, target)
    run_git(folder, "init", "-q", "-b", "main")
    commit(folder, "first")
    return folder


def run(tree: Path, *arguments: str) -> tuple[int, str]:
    only = ["--only", "^(graph [0-9]|01_.* 2000)$"]
    done = subprocess.run(
        [sys.executable, str(tree / "scripts" / "kernels"), *only, *arguments],
        capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def figures(text: str) -> dict[str, tuple[int, int]]:
    """How many kernels there are, and how many differ, by device and language."""
    found = re.findall(r"^(.*): (\d+) kernels, (\d+) differ$", text, re.MULTILINE)
    return {where: (int(count), int(differ)) for where, count, differ in found}


@git
def test_a_changed_printer_shows_in_its_language_alone(tree: Path) -> None:
    code, text = run(tree, "HEAD", "--same")
    same = figures(text)
    assert code == 0, text
    assert set(same) == {
        "cpu, numba", "cpu, blocked", "shared memory, opencl", "shared memory, opencl grid",
        "own memory, opencl", "own memory, opencl grid",
    }  # fmt: skip
    assert all(count > 5 and not differ for count, differ in same.values())
    printer = tree / PRINTER
    before = printer.read_text()
    changed = before.replace('"def NAME(meta, scalars):', '"# other\\ndef NAME(meta, scalars):')
    changed = changed.replace("\\n\\ndef NAME(meta", "\\n# other\\ndef NAME(meta")
    assert changed != before
    printer.write_text(changed)
    try:
        code, text = run(tree, "HEAD", "--same", "--diff", "1")
    finally:
        printer.write_text(before)
    found = figures(text)
    assert code == 1
    assert found.pop("cpu, numba")[1] >= same.pop("cpu, numba")[0]
    assert found == same
    assert text.count("\n+# other") == 1


@git
def test_the_base_is_main_or_what_is_before_it(script: ModuleType, tmp_path: Path) -> None:
    run_git(tmp_path, "init", "-q", "-b", "main")
    with pytest.raises(LookupError):
        script.base(tmp_path)
    file = tmp_path / "codegen" / "module.py"
    file.parent.mkdir()
    file.write_text("first")
    commit(tmp_path, "first")
    assert script.base(tmp_path).endswith("~1")
    file.write_text("second")
    assert re.fullmatch("[0-9a-f]{40}", script.base(tmp_path))


@git
def test_without_history_it_says_so(tree: Path, tmp_path: Path) -> None:
    code, text = run(tree, "--main", "--repository", str(tmp_path))
    assert code == 0
    assert "no commit to compare with: there is no main" in text
    code, text = run(tree, "--main")  # main is this tree, and has no parent
    assert code == 0
    assert "no commit to compare with: " in text
    assert run(tree, "nowhere")[0] == 1


def test_texts_of_one_program_are_paired_in_order(script: ModuleType) -> None:
    old = {"a": {"cpu: numba": ["x", "y"]}, "gone": {"cpu: numba": ["z"]}}
    new = {"a": {"cpu: numba": ["y", "w", "v"]}}
    found = script.differences(old, new)
    assert found == [
        ("a", "cpu: numba", "x", "w"), ("a", "cpu: numba", "", "v"),
        ("gone", "cpu: numba", "z", ""),
    ]  # fmt: skip
    assert list(script.counts(new, found)) == [
        "cpu, numba: 3 kernels, 3 differ",
        "programs that differ: a, gone",
    ]
    assert script.diff(found[0]).splitlines()[-2:] == ["-x", "+w"]
