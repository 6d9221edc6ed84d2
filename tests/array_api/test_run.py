"""What `tests/array_api/run` says of outcomes; the suite itself is not needed."""

from __future__ import annotations

import importlib.util
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

PATH = Path(__file__).with_name("run")


@pytest.fixture(scope="module")
def runner() -> Any:
    loader = SourceFileLoader("array_api_run", str(PATH))
    spec = importlib.util.spec_from_loader("array_api_run", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def report(name: str, when: str, outcome: str, text: str = "", **more: Any) -> SimpleNamespace:
    longrepr = ("file", 1, f"Skipped: {text}") if outcome == "skipped" else text
    node = f"array_api_tests/test_fft.py::{name}"
    return SimpleNamespace(nodeid=node, when=when, outcome=outcome, longrepr=longrepr, **more)


def test_the_worst_outcome_counts(runner: Any) -> None:
    outcomes = runner.Outcomes()
    for each in (
        report("test_a", "call", "passed"),
        report("test_a", "teardown", "failed", "E  broke\nE  last line"),
        report("test_b", "setup", "skipped", "flaky"),
        report("test_c", "call", "skipped", "why", wasxfail="reason"),
        report("test_d", "setup", "passed"),
        report("test_d", "call", "passed"),
    ):
        outcomes.pytest_runtest_logreport(each)
    assert outcomes.found == {
        "test_fft::test_a": "failed",
        "test_fft::test_b": "skipped",
        "test_fft::test_c": "xfailed",
        "test_fft::test_d": "passed",
    }
    assert outcomes.notes["test_fft::test_a"] == "E  last line"
    assert outcomes.notes["test_fft::test_b"] == "flaky"


def test_only_what_is_documented_may_fail(runner: Any) -> None:
    found = {
        "test_linalg::test_eig": "failed",
        "test_fft::test_fft": "failed",
        "test_fft::test_hfft": "skipped",
        "test_fft::test_ifft": "skipped",
        "test_fft::test_rfft": "xfailed",
        "test_fft::test_irfft": "passed",
    }
    notes = {
        "test_fft::test_hfft": "fft not found in array module",
        "test_fft::test_ifft": "requires ARRAY_API_TESTS_VERSION >= 2025.12",
    }
    wrong = runner.judge("lazyfuse", "2025.12", found, notes)
    assert [line.split(": ")[1] for line in wrong] == [
        "test_fft::test_fft",
        "test_fft::test_hfft",
        "test_fft::test_rfft",
    ]
    assert len(runner.judge("lazyfuse.array_api", "2025.12", found, notes)) == 4


def test_older_versions_come_from_their_namespace(runner: Any) -> None:
    assert runner.the_module("lazyfuse", "2025.12") == "lazyfuse"
    text = runner.the_module("lazyfuse.array_api", "2022.12")
    assert text.startswith("exec('")
    assert text.endswith("')")
    scope: dict[str, Any] = {}
    exec(text[6:][:-2], scope)
    assert scope["xp"].__array_api_version__ == "2022.12"


def test_it_says_how_it_is_used(runner: Any, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.delenv("ARRAY_API_TESTS", raising=False)
    assert runner.main(["lazyfuse"]) == 2
    assert "ARRAY_API_TESTS=" in capsys.readouterr().out
