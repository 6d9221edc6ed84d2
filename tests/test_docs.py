"""The documents name files that are there, and the start page stays one page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md"])
TOPS = ("lazyfuse", "codegen", "devices", "tests", "benchmarks", "examples", "scripts", "docs")
OTHERS = {"script.py", "main.py", "program.py", "config.py", "run_numpy_suite.py"}
"""Of users, of other packages, of the judges that lie elsewhere."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_a_page_names_are_there(page: Path) -> None:
    known = {
        path.relative_to(ROOT).as_posix() for top in TOPS for path in (ROOT / top).rglob("*.*")
    }
    ends = tuple(f"/{name}" for name in known)
    missing = []
    for name in re.findall(r"[\w/]*\w\.(?:py|c|h)\b", page.read_text()):
        there = name in known or any(end.endswith(f"/{name}") for end in ends)
        if not there and name not in OTHERS:
            missing.append(name)
    assert not missing


def test_the_start_page_is_short() -> None:
    lines = (ROOT / "docs" / "start.md").read_text().splitlines()
    assert len(lines) <= 100
    assert max(map(len, lines)) <= 100
