"""Makes the package whole when it is imported straight from a checkout.

`codegen/` and `devices/` stand beside `lazyfuse/` in the repository and inside it once installed.
Python started in the repository's root finds the checkout's `lazyfuse/` before the installed one;
without this, `lazyfuse.codegen` would be missing there. `lazyfuse/__init__.py` imports it first.
"""

from __future__ import annotations

import sys
from pathlib import Path


def complete(package: str = "lazyfuse") -> None:
    """Let `package` find the storeys below it in the folder above, if that is where they are."""
    here = Path(__file__).parent
    if not (here / "codegen").is_dir() and (here.parent / "codegen" / "graph.py").is_file():
        sys.modules[package].__path__.append(str(here.parent))


complete()
