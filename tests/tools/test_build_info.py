"""The record path as machine code and as Python: which of both runs, and that sources win."""

from __future__ import annotations

import subprocess
import sys
import zlib
from pathlib import Path

import pytest

import lazyfuse
from lazyfuse import bootstrap
from lazyfuse.arrays import base


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with sources, and the note of what machine code there was made from."""
    monkeypatch.delenv("LAZYFUSE_COMPILED", raising=False)
    (tmp_path / "native").mkdir()
    lines = []
    for name in ("core.py", "native/array.c"):
        (tmp_path / name).write_text(f"the text of {name}\n")
        lines.append(f"{name} {zlib.crc32((tmp_path / name).read_bytes())}\n")
    (tmp_path / bootstrap.RECORD).write_text("".join(lines))
    return tmp_path


def test_build_info_says_what_runs() -> None:
    found = lazyfuse.build_info()
    assert found["record path"].startswith("compiled" if base.COMPILED else "pure Python (")
    assert found["lazyfuse"] == lazyfuse.lazyfuse_version


def test_version_on_the_command_line() -> None:
    command = [sys.executable, "-m", "lazyfuse", "--version"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for name, value in lazyfuse.build_info().items():
        assert f"{name:<12} {value}" in shown


def test_machine_code_of_these_sources_is_used(built: Path) -> None:
    assert bootstrap.why_not(built) == ""


def test_machine_code_is_used_where_its_sources_are_not_installed(built: Path) -> None:
    (built / "native" / "array.c").unlink()
    assert bootstrap.why_not(built) == ""


@pytest.mark.parametrize("name", ["core.py", "native/array.c"])
def test_machine_code_of_other_sources_is_not(built: Path, name: str) -> None:
    (built / name).write_text("newer text\n")
    assert f"{name} has changed" in bootstrap.why_not(built)


def test_a_checkout_has_two_packages_beside(built: Path) -> None:
    folder, beside = built / "package", built / "codegen"
    folder.mkdir()
    beside.mkdir()
    (beside / "linearize.py").write_text("text\n")
    checksum = zlib.crc32((beside / "linearize.py").read_bytes())
    (folder / bootstrap.RECORD).write_text(f"codegen/linearize.py {checksum}\n")
    assert bootstrap.why_not(folder) == ""
    (beside / "linearize.py").write_text("newer text\n")
    assert "codegen/linearize.py has changed" in bootstrap.why_not(folder)


def test_machine_code_of_unknown_sources_is_not(built: Path) -> None:
    (built / bootstrap.RECORD).unlink()
    assert bootstrap.why_not(built) == "installed without machine code"


def test_machine_code_can_be_switched_off(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAZYFUSE_COMPILED", "0")
    assert bootstrap.why_not(built) == "LAZYFUSE_COMPILED=0"


def test_machine_code_that_cannot_be_imported_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "WHY_PYTHON", "")
    assert bootstrap.machine_code("_nothing") is None
    assert "_nothing" in bootstrap.WHY_PYTHON


def test_python_can_be_asked_for() -> None:
    """The same program without machine code; where there is none, nothing changes."""
    program = "import lazyfuse as np; print(np.build_info()['record path']); print(np.ones(3) + 1)"
    command = [sys.executable, "-c", program]
    environment = {
        "LAZYFUSE_COMPILED": "0",
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": ":".join(sys.path),
    }
    result = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert result.stdout.startswith("pure Python (")
    assert result.stdout.endswith("[2. 2. 2.]\n")


def test_without_docstrings_it_is_imported_too() -> None:
    """`python -OO` takes them away, and with them the signatures of some of NumPy's classes."""
    code = "import lazyfuse as np; print(float((np.arange(50_000.0) * 2).sum()))"
    done = subprocess.run(
        [sys.executable, "-OO", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.stdout == f"{50_000.0 * 49_999}\n", done.stderr
