"""The documents name files, modules and attributes that are there; their links lead somewhere."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
DESIGN = sorted((DOCS / "design").glob("*.md"))
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md"])
TOPS = ("lazyfuse", "codegen", "devices", "tests", "benchmarks", "examples", "scripts", "docs")
OTHERS = {"script.py", "main.py", "program.py", "config.py", "run_numpy_suite.py"}
"""Files of users, of other packages, of the judges that lie elsewhere."""

FOREIGN = {"skip_file_prefixes", "vload4"}
"""Names of Python's and OpenCL's that the product has no use for."""

LONGEST = 200
"""Lines of a page about a folder. One that needs more tells of two things."""


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def quoted(page: Path) -> Iterator[str]:
    """What stands between backticks, listings aside."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    yield from re.findall(r"`([^`]+)`", text)


@functools.cache
def sources() -> dict[Path, str]:
    """The text of every file that may own a name."""
    found = (path for top in TOPS[:-1] for path in (ROOT / top).rglob("*"))
    return {
        path: path.read_text()
        for path in found
        if path.is_file() and (path.suffix in (".py", ".c", ".h") or path.parent.name == "scripts")
    }


@functools.cache
def words() -> set[str]:
    return {word for text in sources().values() for word in re.findall(r"\w+", text)}


def owners(name: str) -> list[str]:
    """The texts of the modules of this name, and of those that define a class of this name."""
    defines = re.compile(rf"^\s*class {name}\b", re.MULTILINE)
    return [
        text
        for path, text in sources().items()
        if path.suffix == ".py" and (path.stem == name or defines.search(text))
    ]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_that_a_page_names_are_there(page: Path) -> None:
    inside = (path for top in TOPS for path in (ROOT / top).rglob("*.*"))
    known = {path.relative_to(ROOT).as_posix() for path in (*inside, *ROOT.glob("*.*"))}
    ends = tuple(f"/{name}" for name in known)
    missing = []
    for name in re.findall(r"[\w/]*\w\.(?:py|c|h)\b", page.read_text()):
        there = name in known or any(end.endswith(f"/{name}") for end in ends)
        if not there and name not in OTHERS:
            missing.append(name)
    for name in quoted(page):
        if re.fullmatch(rf"(?:{'|'.join(TOPS)})/[\w./*-]*", name):
            missing += [name] if not list(ROOT.glob(name.rstrip("/"))) else []
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_of_a_page_lead_to_files(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)\)", page.read_text())
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", [*DESIGN, DOCS / "start.md"], ids=name_of)
def test_names_that_a_page_quotes_are_there(page: Path) -> None:
    """Each word of a dotted name, and its second part in the module or class of the first."""
    missing = []
    for name in quoted(page):
        if not re.fullmatch(r"[A-Za-z_]\w*(\.\w+)*", name) or name.endswith((".py", ".c", ".txt")):
            continue
        first, *rest = name.split(".")
        gone = [word for word in (first, *rest) if word not in words() | FOREIGN]
        if rest and first not in {"lazyfuse", "numpy", "np", "x", *sys.stdlib_module_names}:
            own = owners(first)
            foreign = not own and first[0].isupper()  # a class of another package's
            if not foreign and not any(re.search(rf"\b{rest[0]}\b", text) for text in own):
                gone.append(name)
        if gone:
            missing.append(name)
    assert not missing


@pytest.mark.parametrize("page", DESIGN, ids=name_of)
def test_a_page_about_a_folder_is_short(page: Path) -> None:
    lines = page.read_text().splitlines()
    assert len(lines) <= LONGEST
    assert [line for line in lines if len(line) > 100 and not line.startswith("|")] == []


def test_the_index_of_the_design_names_each_page() -> None:
    links = re.findall(r"\]\((\w+\.md)\)", (DOCS / "design" / "README.md").read_text())
    assert sorted({page.name for page in DESIGN} - {"README.md"}) == sorted(links)


def test_the_start_page_is_short() -> None:
    lines = (DOCS / "start.md").read_text().splitlines()
    assert len(lines) <= 100
    assert max(map(len, lines)) <= 100
