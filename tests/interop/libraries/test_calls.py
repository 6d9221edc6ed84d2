"""What packages give for our arrays: each call of `calls/` gives what it gives with NumPy's.

Each package is asked three times, in processes of their own: with NumPy, with `import lazyfuse as
np`, and as an unedited program under `python -m lazyfuse`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lazyfuse.interop.library_adapters import ON_REQUEST
from tests.interop.libraries.calls import page
from tests.interop.libraries.calls.package import Package

PROGRAM = str(Path(__file__).parent / "calls" / "evaluate.py")
COMPILING = ("numba", "pytensor")
"""Packages that compile each function; test_numba.py shows the same of numba in little time."""


def _parameters() -> list[Any]:
    found = []
    for package in page.PACKAGES:
        missing = importlib.util.find_spec(package.name) is None
        marks = [pytest.mark.skipif(missing, reason=f"{package.name} is not installed")]
        if package.name in COMPILING:
            marks.append(pytest.mark.long)
        found.append(pytest.param(package, marks=marks, id=package.name))
    return found


def _started(
    package: Package, *command: str, cures: bool, recorded: bool = False
) -> subprocess.Popen[str]:
    usual = {name: x for name, x in os.environ.items() if name != "LAZYFUSE_EAGER_BELOW"}
    if recorded:
        usual["LAZYFUSE_EAGER_BELOW"] = "1"
    started = subprocess.Popen(
        [sys.executable, *command],
        env=usual | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    calls = [*package.calls, *(package.differs.values() if cures else ())]
    assert started.stdin is not None
    started.stdin.write(json.dumps({"setup": package.setup, "calls": calls}))
    started.stdin.close()
    started.stdin = None
    return started


def _answers(started: subprocess.Popen[str]) -> list[str]:
    told, complaints = started.communicate(timeout=500)
    assert started.returncode == 0, complaints
    return [json.loads(line) for line in told.splitlines() if line.startswith('"')]


@pytest.mark.timeout(600)  # three processes import large packages
@pytest.mark.parametrize(
    "recorded", [False, pytest.param(True, marks=pytest.mark.long)], ids=["default", "recorded"]
)
@pytest.mark.parametrize("package", _parameters())
def test_calls_give_what_they_give_with_numpy(package: Package, recorded: bool) -> None:
    adapted = [package.name] if package.name in ON_REQUEST else []
    running = [
        _started(package, PROGRAM, "numpy", cures=False),
        _started(package, PROGRAM, "lazyfuse", *adapted, cures=True, recorded=recorded),
        _started(package, "-m", "lazyfuse", PROGRAM, "numpy", cures=True, recorded=recorded),
    ]
    wanted, *others = [_answers(each) for each in running]
    numpys = dict(zip(package.calls, wanted, strict=True))
    for way, answers in zip(("import", "launcher"), others, strict=True):
        ours = dict(zip(package.calls, answers, strict=False))
        wrong = {call: ours[call] for call in numpys if ours[call] != numpys[call]}
        assert list(wrong) == list(package.differs), (way, wrong)
        cured = answers[len(package.calls) :]
        assert cured == [numpys[call] for call in package.differs], way


def test_the_page_says_what_is_tested() -> None:
    text = page.PAGE.read_text()
    assert text == page.with_table(text), "write it: python -m tests.interop.libraries.calls.page"
