"""Text of language "numba" -> object code, by whichever compiler takes it.

llvm_compiler.py translates nearly every text of ours itself, in a fraction of numba's time and
without importing it. numba compiles what that one does not know.
"""

from __future__ import annotations

from ..base import Source
from . import llvm_compiler, numba_compiler
from .frontend.kinds import Unsupported


def compile_source(source: Source) -> bytes:
    """The object code of a source; raises `DeviceError` with the compiler's message."""
    try:
        return llvm_compiler.compile_source(source)
    except Unsupported:
        return numba_compiler.compile_source(source)


def assembly(source: Source) -> str:
    """The machine code of a source as text, for users and tests."""
    try:
        return llvm_compiler.assembly(source)
    except Unsupported:
        return numba_compiler.assembly(source)
