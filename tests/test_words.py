"""Words that the product does not use: prose names who acts, and a thing has one name.

docs/design/README.md has the words in use.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]

UNNAMED = "anybody everybody nobody somebody someone whoever".split()
"""Say who it is: the user, the caller, the graph, a view, another thread."""

FORMER = [
    *"culprit ghost ghosts loop_elision rematerialise.py recorded.c standin standins".split(),
    *"_deferred _thin vain".split(),
]
"""Names of things that have others now."""


def test_prose_names_who_acts() -> None:
    words = "|".join(map(re.escape, UNNAMED + FORMER))
    unwanted = re.compile(rf"(?<![\w.])({words})(?![\w.])", re.IGNORECASE)
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted(sources())
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if unwanted.search(line)
    ]
    assert not found


def sources() -> set[Path]:
    tops = [ROOT / top for top in ("lazyfuse", "codegen", "devices")]
    code = {path for top in tops for path in top.rglob("*.*") if path.suffix in (".py", ".c", ".h")}
    return code | {*(ROOT / "docs").rglob("*.md")} | {ROOT / "README.md"}
