"""The versions that are declared are those that scripts/versions tests, and it leaves none out."""

from __future__ import annotations

import importlib.util
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from lazyfuse import versions
from lazyfuse.tools import build_info, report
from tests.helpers import scripts

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    with scripts.script("versions") as module:
        yield module


def some_pythons(script: ModuleType, *minors: int) -> list[object]:
    return [script.Python(f"/bin/python3.{minor}", (3, minor, 1), True) for minor in minors]


def test_classifiers_are_what_pip_lets_in(script: ModuleType) -> None:
    pythons = script.declared_pythons()
    oldest, newest = pythons[0][1], pythons[-1][1]
    assert pythons == tuple((3, minor) for minor in range(oldest, newest + 1))
    assert (pythons[0], pythons[-1]) == versions.PYTHONS
    assert PROJECT["project"]["requires-python"] == f">=3.{oldest},<3.{newest + 1}"


def test_the_oldest_numpy_is_the_oldest_that_is_tested(script: ModuleType) -> None:
    numpys = script.declared_numpys()
    assert (numpys[0], numpys[-1]) == (versions.OLDEST, versions.NEWEST)
    assert list(numpys) == sorted(numpys, key=lambda each: tuple(map(int, each.split("."))))
    assert script.first_release("numpy").startswith(f"{versions.OLDEST}.")
    builds = [each for each in PROJECT["build-system"]["requires"] if each.startswith("numpy")]
    assert builds == [f"numpy>={script.first_release('numpy')}"]


def test_the_guide_names_the_same_versions(script: ModuleType) -> None:
    first, *_, last = script.declared_pythons()
    text = f"Python 3.{first[1]} to 3.{last[1]}, NumPy {versions.OLDEST} to {versions.NEWEST}"
    assert text in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("core", [False, True])
def test_a_plan_meets_each_python(script: ModuleType, core: bool) -> None:
    pythons = some_pythons(script, 11, 12, 13, 14)
    has = dict(zip(pythons, (["2.3", "2.4"], *[["2.3", "2.4", "2.5"]] * 3), strict=True))
    pairs = script.plan(has, core)
    assert [python for python, _ in pairs] == pythons
    assert [numpy for _, numpy in pairs] == ["2.3", "2.3", "2.4", "2.5"]


@pytest.mark.parametrize("core", [False, True])
def test_a_plan_for_one_python_meets_two_numpys(script: ModuleType, core: bool) -> None:
    (python,) = some_pythons(script, 13)
    pairs = script.plan({python: ["2.3", "2.4", "2.5"]}, core)
    assert pairs == [(python, each) for each in (["2.3", "2.5"] if core else ["2.3", "2.4", "2.5"])]


def test_a_python_without_a_fitting_numpy_is_left_out(script: ModuleType) -> None:
    old, new = some_pythons(script, 11, 13)
    assert script.plan({old: [], new: ["2.5"]}, True) == [(new, "2.5")]


def test_the_first_run_has_the_first_releases(script: ModuleType) -> None:
    (python,) = some_pythons(script, 12)
    oldest = script.run_of(python, versions.OLDEST, "", True)
    assert oldest.numpy == f"numpy=={script.first_release('numpy')}"
    assert oldest.numba == f"numba=={script.first_release('numba')}"
    newest = script.run_of(python, versions.NEWEST, "", False)
    assert (newest.numpy, newest.numba) == (f"numpy=={versions.NEWEST}.*", "numba")


@pytest.mark.skipif(importlib.util.find_spec("ensurepip") is None, reason="no ensurepip here")
def test_this_interpreter_is_found_by_its_path(script: ModuleType) -> None:
    (python,) = script.find([sys.executable])
    assert python.version == sys.version_info[:3]
    with pytest.raises(SystemExit, match="no Python of a declared version"):
        script.find(["/nowhere/python3"])


def test_arguments_are_told_apart(script: ModuleType) -> None:
    chosen = script.parsed(
        ["--core", "--numpy", "2.3", "3.12", "/usr/bin/python3.13", "-x", "-k a"]
    )
    assert chosen.pythons == ["3.12", "/usr/bin/python3.13"]
    assert chosen.pytest == ["-x", "-k a"]
    assert (chosen.numpy, chosen.core, chosen.only) == (["2.3"], True, "")


def test_what_core_runs_is_there(script: ModuleType) -> None:
    assert [each for each in script.CORE if not (ROOT / each).exists()] == []


@pytest.mark.parametrize("version", ["2.2.6", "2.6.0", "2.10.0.dev0+git", "3.0.0rc1"])
def test_other_numpys_are_named(version: str) -> None:
    assert versions.untested(version).startswith(f"{version} is not among")


@pytest.mark.parametrize("version", ["2.3.0", "2.4.6", "2.5.0rc1"])
def test_these_numpys_are_not(version: str) -> None:
    assert versions.untested(version) == ""


def test_reports_name_a_numpy_that_is_not_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "not among" not in str(report.report()) + build_info.text()
    monkeypatch.setattr(versions, "untested", lambda: "9.9 is not among those")
    assert "NumPy             9.9 is not among" in str(report.report())
    assert "not tested   NumPy 9.9 is not among" in build_info.text()
