"""The tests of the official suite that docs/array_api.md says must fail, and for which versions.

The tables there are read: a row names a module, the versions that it holds for, and the tests, with
`*` for anything.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

DOCUMENT = Path(__file__).parents[2] / "docs" / "array_api.md"
_ROW = re.compile(
    r"\| `(?P<module>[\w.]+)` \| (?P<versions>[^|]+) \| (?P<tests>[^|]+) \|(?P<why>.+)\|"
)


class Row(NamedTuple):
    """One line of a table of differences."""

    module: str
    versions: str  # "all", "before 2025.12"
    tests: tuple[str, ...]
    why: str

    def holds_for(self, version: str) -> bool:
        """Whether the row speaks of a version of the standard."""
        word, _, limit = self.versions.partition(" ")
        assert word in ("all", "before"), f"{self.versions!r} in {DOCUMENT}"
        return word == "all" or version < limit


def rows(text: str | None = None) -> list[Row]:
    """Every difference that the document lists."""
    found = _ROW.finditer(DOCUMENT.read_text() if text is None else text)
    return [
        Row(
            each["module"],
            each["versions"].strip(),
            tuple(re.findall(r"`([^`]+)`", each["tests"])),
            each["why"].strip(),
        )
        for each in found
    ]


def patterns(module: str, version: str) -> list[re.Pattern[str]]:
    """What the names of tests that may fail look like."""
    return [
        re.compile(re.escape(test).replace(r"\*", ".*"))
        for row in rows()
        if row.module == module and row.holds_for(version)
        for test in row.tests
    ]
