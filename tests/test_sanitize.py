"""scripts/sanitize finds what is wrong in C, whichever process it is in, and runs what it names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.helpers import scripts

LIBRARY = "libasan.so"


def has_sanitizers() -> bool:
    """Whether there is a gcc with its libraries, and what an extension needs."""
    if shutil.which("gcc") is None or not sys.platform.startswith("linux"):
        return False
    if not Path(sysconfig.get_paths()["include"], "Python.h").exists():
        return False
    command = ["gcc", f"-print-file-name={LIBRARY}"]
    return "/" in subprocess.run(command, capture_output=True, text=True, check=False).stdout


needs_gcc = pytest.mark.skipif(not has_sanitizers(), reason="needs gcc with libasan, and headers")


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    with scripts.script("sanitize") as module:
        yield module


def run(root: Path, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, str(root / "scripts" / "sanitize"), *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


def test_what_is_named_is_there(script: ModuleType) -> None:
    named = [
        *script.CORE,
        *script.SUPPRESSED,
        *(each for run in script.SETS.values() for each in run),
    ]
    files = [each.partition("::")[0] for each in named if each.startswith("tests")]
    assert files
    assert [each for each in files if not (scripts.ROOT / each).exists()] == []


def test_each_fault_is_told_once(script: ModuleType, tmp_path: Path) -> None:
    over = (
        "lazyfuse/native/graph/order.c:31:5: runtime error: shift exponent 40 is large\n    #0 x\n"
    )
    other = over.replace("order.c:31", "nodes.c:7")
    freed = (
        "=====\n==7==ERROR: AddressSanitizer: heap-use-after-free\n  #1 native/arrays/array.c:4\n"
    )
    (tmp_path / "ubsan.1").write_text(over + other)
    (tmp_path / "ubsan.2").write_text(over)
    (tmp_path / "asan.3").write_text(freed)
    found = script.reported(tmp_path)
    assert len(found) == 3
    assert sum("order.c:31" in each for each in found) == 1
    assert found[0].startswith("asan.3:\n")


def test_lines_that_are_not_reached_are_joined_over_lines_without_code(script: ModuleType) -> None:
    counts = dict.fromkeys((3, 4, 7, 9, 12, 13, 20), 0) | {8: 5, 12: 1}
    missed = [line for line, count in counts.items() if not count]
    assert list(script.stretches(counts, missed)) == ["3-7", "9", "13-20"]
    assert list(script.stretches({1: 2}, [])) == []


FAULTS = {
    "shift": "volatile int by = 40; if ((1 << by) == 3) return NULL;",
    "read": "volatile char *block = malloc(8); if (block[8] == 3) return NULL;",
}
PLACE = "return PyLong_FromLong(expressions_run);"
CHILD = """
import os
from lazyfuse.bootstrap import machine_code

def test_a_child_that_nobody_looks_at():
    child = os.fork()
    if child == 0:
        machine_code().expressions_ran()
        os._exit(0)
    os.waitpid(child, 0)
"""


@needs_gcc
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    left_out = shutil.ignore_patterns(".git", ".venv", "__pycache__", "*.so", ".*_cache")
    shutil.copytree(scripts.ROOT, root, ignore=left_out)
    file = root / "lazyfuse" / "native" / "expressions.c"
    text = file.read_text()
    assert text.count(PLACE) == 1
    file.write_text(text.replace(PLACE, f"{FAULTS[name]} {PLACE}"))
    (root / "tests" / "test_child.py").write_text(CHILD)
    code, said = run(root, "--", "-n", "0", "tests/test_child.py")
    assert code == 1, said
    assert "1 passed" in said
    assert "native/player/expressions.c:" in said
    assert "sanitizers: 1 reports; 0 of 1 runs of tests failed" in said


@needs_gcc
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ["smoke", "programs", "faults"])
def test_sanitizers_find_nothing(name: str) -> None:
    code, said = run(scripts.ROOT, name)
    print(said)
    assert code == 0, said


@needs_gcc
@pytest.mark.long
@pytest.mark.timeout(900)
def test_what_no_test_reaches_is_listed() -> None:
    test = os.path.join("tests", "arrays", "test_array.py")
    code, said = run(scripts.ROOT, "--coverage", "--", "-n", "0", test)
    assert code == 0, said
    share = {line.partition(":")[0]: line for line in said.splitlines() if "not reached" in line}
    files = {each.relative_to(scripts.ROOT).as_posix()
             for each in scripts.ROOT.glob("lazyfuse/native/**/*.c")}  # fmt: skip
    assert files <= set(share)
    assert "of " in share["lazyfuse/native/arrays/array.c"]
    assert "not reached: -" not in share["lazyfuse/native/arrays/array.c"]
