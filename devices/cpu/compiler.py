"""Text of language "numba" -> object code, by whichever compiler takes it.

llvm_compiler.py translates nearly every text of ours itself, in a fraction of numba's time and
without importing it. numba compiles what that one does not know.
"""

from __future__ import annotations

from ..base import Source
from ..late_imports import module as heavy
from . import llvm_compiler
from .frontend.kinds import Unsupported


def compile_source(source: Source) -> bytes:
    """The object code of a source; raises `DeviceError` with the compiler's message."""
    try:
        return llvm_compiler.compile_source(source)
    except Unsupported:
        # it imports NumPy: the compiler's process starts without
        numba_compiler = heavy(f"{__package__}.numba_compiler")
        code: bytes = numba_compiler.compile_source(source)
        return code
