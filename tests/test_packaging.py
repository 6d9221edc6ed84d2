"""What source distributions and wheels hold: C sources for building, none of them installed."""

from __future__ import annotations

import tomllib
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parent.parent


def c_sources() -> list[str]:
    """The files that machine code is made from (see setup.py)."""
    found = [path for path in (ROOT / "lazyfuse").rglob("*.[ch]") if "build" not in path.parts]
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def test_source_distributions_hold_what_is_compiled() -> None:
    patterns = []
    for line in (ROOT / "MANIFEST.in").read_text().splitlines():
        command, *rest = line.split()
        assert command == "include"
        patterns += rest
    missing = [name for name in c_sources() if not any(fnmatch(name, each) for each in patterns)]
    assert len(c_sources()) > 2
    assert not missing, "MANIFEST.in leaves these out: who builds from it gets no machine code"


def test_setup_knows_every_source() -> None:
    text = (ROOT / "setup.py").read_text()
    for name in c_sources():
        folder = Path(name).parent.relative_to("lazyfuse")
        assert name in text or f'glob("{folder.as_posix()}/*.[ch]")' in text, name


def test_wheels_hold_no_sources_in_c() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert settings["include-package-data"] is False
    assert settings["package-data"] == {"lazyfuse": ["py.typed"]}
