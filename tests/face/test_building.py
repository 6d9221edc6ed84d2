"""The record path as machine code and as Python: which of both runs, and that sources win."""

from __future__ import annotations

import subprocess
import sys
import zlib
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import lazyfuse
from lazyfuse import _source_tree, core

SUFFIX = EXTENSION_SUFFIXES[0]


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a source, the machine code that was made from it, and the code they share."""
    monkeypatch.delenv("LAZYFUSE_COMPILED", raising=False)
    (tmp_path / "core.py").write_text("made_from = 'source'\n")
    (tmp_path / f"core{SUFFIX}").write_bytes(b"machine code")
    (tmp_path / f"native__mypyc{SUFFIX}").write_bytes(b"machine code")
    checksum = zlib.crc32((tmp_path / "core.py").read_bytes())
    (tmp_path / _source_tree.RECORD).write_text(f"core {checksum}\n")
    return tmp_path


def test_build_info_says_what_runs() -> None:
    found = lazyfuse.build_info()
    assert found["record path"].startswith("compiled" if core.COMPILED else "pure Python (")
    assert found["lazyfuse"] == lazyfuse.lazyfuse_version


def test_version_on_the_command_line() -> None:
    command = [sys.executable, "-m", "lazyfuse", "--version"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for name, value in lazyfuse.build_info().items():
        assert f"{name:<12} {value}" in shown


def test_machine_code_of_these_sources_is_used(built: Path) -> None:
    assert _source_tree.compiled(built) == ["core"]
    assert _source_tree.why_not(built) == ""


def test_machine_code_of_other_sources_is_not(built: Path) -> None:
    (built / "core.py").write_text("made_from = 'newer source'\n")
    assert "core.py has changed" in _source_tree.why_not(built)


def test_machine_code_of_unknown_sources_is_not(built: Path) -> None:
    (built / _source_tree.RECORD).unlink()
    assert "nothing says" in _source_tree.why_not(built)


def test_machine_code_can_be_switched_off(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAZYFUSE_COMPILED", "0")
    assert _source_tree.why_not(built) == "LAZYFUSE_COMPILED=0"


def test_sources_are_found_beside_machine_code(built: Path) -> None:
    finder = _source_tree.Sources(built, ["core"])
    spec = finder.find_spec("lazyfuse.core")
    assert spec is not None
    assert spec.origin == str(built / "core.py")
    assert finder.find_spec("lazyfuse.array") is None


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
