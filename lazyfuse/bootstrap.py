"""Completes the package when it is imported from a checkout, and keeps it up to date.

In the repository, `codegen/` and `devices/` are next to `lazyfuse/`; in an installation they are in
it. Python started in the repository's root finds the checkout's `lazyfuse/` before the installed
one, and would not find `lazyfuse.codegen` there. The native extension (setup.py) is used only with
the sources that it was built from. `lazyfuse/__init__.py` imports this module first.
"""

from __future__ import annotations

import importlib
import os
import sys
import zlib
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).parent
_ROOMS = """
arrays functions interop namespace tools kernels loops array_api io
runtime runtime.layout runtime.numerics runtime.chunked
runtime.events runtime.placement runtime.execution runtime.capture runtime.scheduling
codegen codegen.table codegen.graph codegen.rewrite codegen.plan codegen.lowering codegen.numba
codegen.blocked codegen.opencl devices devices.dask devices.pools devices.cpu devices.cpu.frontend
devices.cpu.intrinsics devices.opencl
"""
PACKAGES = frozenset(("lazyfuse", *(f"lazyfuse.{name}" for name in _ROOMS.split())))
"""Every package of lazyfuse: a frame in one of them is not the user's."""
RECORD = "compiled.txt"
"""The file that names the native extension's sources: a file and its checksum per line."""


def complete(package: str = "lazyfuse") -> None:
    """Let `package` find the layers below it in the parent folder, if they are there."""
    if not (HERE / "codegen").is_dir() and (HERE.parent / "codegen" / "graph").is_dir():
        sys.modules[package].__path__.append(str(HERE.parent))


def why_not(folder: Path) -> str:
    """Why the native extension in `folder` must not be used; empty if it may be."""
    if os.environ.get("LAZYFUSE_COMPILED") == "0":
        return "LAZYFUSE_COMPILED=0"
    lines = _read(f"{folder}/{RECORD}")
    if lines is None:
        return "installed without machine code"
    for line in lines.decode().splitlines():
        name, checksum = line.split()
        found = _read(f"{folder}/{name}")  # only Python sources are installed
        if found is None and name.startswith(("codegen/", "devices/")):
            found = _read(f"{folder.parent}/{name}")  # in a checkout
        if found is not None and str(zlib.crc32(found)) != checksum:
            return f"{name} has changed since it was compiled"
    return ""


def _read(path: str) -> bytes | None:
    """What a file holds; None if there is none. Without `pathlib`, which took half of the time."""
    try:
        with open(path, "rb", 0) as file:
            return file.read()
    except OSError:
        return None


def machine_code(name: str = "_native", trouble: str = "") -> ModuleType | None:
    """The native module of that name; None if Python does its work: `trouble` says why."""
    global WHY_PYTHON
    WHY_PYTHON = WHY_PYTHON or trouble
    if WHY_PYTHON:
        return None
    try:
        return importlib.import_module(f"lazyfuse.{name}")
    except ImportError as error:  # built for another Python or an older NumPy
        WHY_PYTHON = f"{name}: {error}"
        return None


complete()
WHY_PYTHON = why_not(HERE)
