"""Text of language "numba" -> object code, by whichever compiler takes it.

llvm_compiler.py translates nearly every text of ours itself, in a fraction of numba's time and
without importing it. numba compiles what that one does not know.
"""

from __future__ import annotations

from typing import Any

from ..base import Source
from ..late_imports import module as heavy
from . import llvm_compiler
from .frontend.kinds import Unsupported


def compile_source(source: Source) -> bytes:
    """The object code of a source; raises `DeviceError` with the compiler's message."""
    try:
        return llvm_compiler.compile_source(source)
    except Unsupported:
        code: bytes = _numba_compiler().compile_source(source)
        return code


def _numba_compiler() -> Any:
    """The other compiler, which imports NumPy: the compiler's process starts without."""
    return heavy(f"{__package__}.numba_compiler")


def assembly(source: Source) -> str:
    """The machine code of a source as text, for users and tests."""
    try:
        return llvm_compiler.assembly(source)
    except Unsupported:
        return str(_numba_compiler().assembly(source))
