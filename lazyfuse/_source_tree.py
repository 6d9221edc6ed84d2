"""Makes the package whole when it is imported straight from a checkout, and keeps it up to date.

`codegen/` and `devices/` stand beside `lazyfuse/` in the repository and inside it once installed.
Python started in the repository's root finds the checkout's `lazyfuse/` before the installed one;
without this, `lazyfuse.codegen` would be missing there. Machine code (setup.py) lies beside the
sources that it was made from, and Python would prefer it to newer ones: where a source has changed
since, all of them are imported as sources. `lazyfuse/__init__.py` imports this module first.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import zlib
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).parent
RECORD = "compiled.txt"
"""The file that says which sources machine code was made from: a name and a checksum per line."""


def complete(package: str = "lazyfuse") -> None:
    """Let `package` find the storeys below it in the folder above, if that is where they are."""
    if not (HERE / "codegen").is_dir() and (HERE.parent / "codegen" / "graph.py").is_file():
        sys.modules[package].__path__.append(str(HERE.parent))


class Sources:
    """A finder that finds the sources of modules whose machine code is not to be used."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.files = {f"lazyfuse.{name}": folder / f"{name}.py" for name in names}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As `importlib.abc.MetaPathFinder.find_spec`."""
        file = self.files.get(name)
        return None if file is None else importlib.util.spec_from_file_location(name, file)


def compiled(folder: Path) -> list[str]:
    """The modules in `folder` that machine code lies beside."""
    found = {
        file.name.partition(".")[0] for end in EXTENSION_SUFFIXES for file in folder.glob(f"*{end}")
    }
    return sorted(name for name in found if (folder / f"{name}.py").is_file())


def why_not(folder: Path) -> str:
    """Why the machine code in `folder` is not to be used; empty if it is."""
    if os.environ.get("LAZYFUSE_COMPILED") == "0":
        return "LAZYFUSE_COMPILED=0"
    record = folder / RECORD
    if not record.is_file():
        return "nothing says what the machine code was made from"
    for line in record.read_text().splitlines():
        name, checksum = line.split()
        if str(zlib.crc32((folder / f"{name}.py").read_bytes())) != checksum:
            return f"{name}.py has changed since it was compiled"
    return ""


def check() -> str:
    """Leave machine code alone that is not to be used; why the record path is Python, if it is."""
    names = compiled(HERE)
    if not names:
        return "installed without machine code"
    reason = why_not(HERE)
    if reason:
        sys.meta_path.insert(0, Sources(HERE, names))
    return reason


complete()
WHY_PYTHON = check()
