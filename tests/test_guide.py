"""The blocks of Python in the pages and in the README run as they stand, a page in one process."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def program(page: Path) -> str:
    """All blocks of a page, each at the line where the page has it."""
    text = page.read_text()
    lines = [""] * (text.count("\n") + 1)
    for block in BLOCK.finditer(text):
        first = text.count("\n", 0, block.start(1))
        own = block[1].splitlines()
        lines[first : first + len(own)] = own
    return "\n".join(lines)


FOUND = sorted([*DOCS.rglob("*.md"), ROOT / "README.md"])
PAGES = [page for page in FOUND if BLOCK.search(page.read_text())]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_blocks_of_a_page_run_one_after_the_other(page: Path, tmp_path: Path) -> None:
    if "import pandas" in page.read_text():
        pytest.importorskip("pandas")
    script = tmp_path / page.with_suffix(".py").name  # a traceback's line is the page's
    script.write_text(program(page))
    command = [sys.executable, "-W", "error", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr


def test_pages_have_blocks_to_run() -> None:
    held = {page.relative_to(ROOT).as_posix() for page in PAGES}
    assert {"README.md", "docs/options.md", "docs/programs.md"} <= held
    assert len([page for page in PAGES if page.parent.name == "guide"]) >= 5
