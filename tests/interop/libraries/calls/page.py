"""The table of packages in docs/interoperation.md: `python -m tests.interop.libraries.calls.page`
writes it, test_calls.py compares it, and evaluates what it says.
"""

from __future__ import annotations

from pathlib import Path

from lazyfuse.interop.library_adapters import ON_REQUEST
from tests.interop.libraries.calls import arrays, compiled, results
from tests.interop.libraries.calls.package import Package

PACKAGES: list[Package] = sorted(
    (*compiled.PACKAGES, *arrays.PACKAGES, *results.PACKAGES), key=lambda each: each.title.lower()
)
PAGE = Path(__file__).parents[4] / "docs" / "interoperation.md"
BEGIN, END = "<!-- calls -->\n", "<!-- end of calls -->\n"


def row(package: Package) -> str:
    """The line of the table for a package."""
    total, wrong = len(package.calls), len(package.differs)
    said = f'`lazyfuse.adapt("{package.name}")` first' if package.name in ON_REQUEST else ""
    instead = "; ".join(f"`{call}`: `{cure}`" for call, cure in package.differs.items())
    return f"| {package.title} {package.tested} | {total - wrong} of {total} | {said} | {instead} |"


def table() -> str:
    """The whole table."""
    head = "| package | calls as with NumPy | with `import lazyfuse` | the rest: write instead |"
    return "\n".join([head, "|---|---|---|---|", *map(row, PACKAGES)]) + "\n"


def with_table(text: str) -> str:
    """The page's text with the table as it should be."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}{table()}{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
