"""What is asked of one package: a table of calls with arrays."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

NOTHING: Mapping[str, str] = MappingProxyType({})


class Package(NamedTuple):
    """Calls of a package; `np` is NumPy or lazyfuse in them."""

    name: str
    """The name that Python imports."""
    title: str
    tested: str
    """The version that was met last."""
    setup: str
    """Statements in front of the calls."""
    lines: str
    """One call a line; later ones see what earlier ones have written."""
    differs: Mapping[str, str] = NOTHING
    """Calls that do not give what they give with NumPy's arrays, and what to write instead."""

    @property
    def calls(self) -> list[str]:
        return self.lines.strip().splitlines()
