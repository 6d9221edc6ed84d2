"""Where a program's report goes when it ends: to the standard error stream, or to a file."""

from __future__ import annotations

import atexit
import sys
from pathlib import Path
from typing import TextIO

from lazyfuse.tools import report

FORMATS = (".html", ".json", ".txt")

_asked = False


def at_exit(to: str = "") -> None:
    """Give the report when the program ends: "text" and "json" print it, other names are files.

    Without `to` it is printed as text, unless something else was asked for before. A ValueError
    says that a file's name ends in none of `FORMATS`; a file that cannot be written is an OSError.
    """
    global _asked
    if not to and _asked:
        return
    _asked = True
    if to in ("", "text", "json"):
        atexit.register(_give, ".json" if to == "json" else ".txt", None)
        return
    ending = Path(to).suffix.lower()
    if ending not in FORMATS:
        expected = f"json, or a file that ends in {', '.join(FORMATS)}"
        raise ValueError(f"--report: expected {expected}, got {to!r}")
    atexit.register(_give, ending, open(to, "w", encoding="utf-8"))  # noqa: SIM115  # it fails now


def _give(ending: str, file: TextIO | None) -> None:
    found = report.report()
    texts = {".html": found.to_html, ".json": found.to_json, ".txt": found.__str__}
    print(texts[ending](), file=file or sys.stderr)
    if file is not None:
        file.close()
