"""NumPy's own BLAS on tiles: the library in its wheels (scipy-openblas), called directly.

A product is cut into blocks of BLOCK rows, by its size alone, and each block is one call of the
library on one thread; tiles begin where blocks begin. So an element has the same bits in every
tile and for every number of threads. They may differ from one call for the whole product:
the library treats rows at edges differently, and in NumPy it cuts by its number of threads.
Owns the library's functions, the code that calls them (its row of arguments is
matmul_loops.ROW), and its one global number of threads.
"""

from __future__ import annotations

import ctypes
import importlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .. import fork_safety
from ..base import DeviceError
from ..caches import CONSTANT, cached
from ..pools import object_code
from ..pools.object_code import ENTRY
from . import matmul_loops, matmul_packing
from .llvm_text import flag_text

# Rows of one call: enough for OpenBLAS's best speed, few enough to share among threads.
BLOCK = 128

_FUNCTIONS = {"f8": "scipy_cblas_dgemm64_", "f4": "scipy_cblas_sgemm64_"}
# Cores for which the library has no code with vectors of 512 bits.
_NARROW = ("Haswell", "Zen", "Sandybridge", "Excavator", "Nehalem", "Prescott")

_TEXT = """
declare void @{symbol}(i32, i32, i32, i64, i64, i64, {kind}, ptr, i64, ptr, i64, {kind}, ptr, i64)
{fenv}
define i32 @{entry}(ptr %row, ptr %scalars) {{
start:
{arguments}
  {clear}
  %a.dense = icmp eq i64 %a.column, 1
  %a.order = select i1 %a.dense, i32 111, i32 112
  %a.step = select i1 %a.dense, i64 %a.row, i64 %a.column
  %b.dense = icmp eq i64 %b.column, 1
  %b.order = select i1 %b.dense, i32 111, i32 112
  %b.step = select i1 %b.dense, i64 %b.row, i64 %b.column
  br label %each
{each}
  br label %blocks
blocks:
  %i = phi i64 [0, %each], [%i.next, %blocks]
  %left = sub i64 %m, %i
  %whole = icmp sge i64 %left, {block}
  %rows = select i1 %whole, i64 {block}, i64 %left
  %a.at = mul i64 %i, %a.row
  %A.i = getelementptr {kind}, ptr %A, i64 %a.at
  %c.at = mul i64 %i, %c.row
  %C.i = getelementptr {kind}, ptr %C, i64 %c.at
  call void @{symbol}(i32 101, i32 %a.order, i32 %b.order, i64 %rows, i64 %n, i64 %depth,
    {kind} 1.0, ptr %A.i, i64 %a.step, ptr %B, i64 %b.step, {kind} 0.0, ptr %C.i, i64 %c.row)
  %i.next = add i64 %i, {block}
  %more = icmp slt i64 %i.next, %m
  br i1 %more, label %blocks, label %item.end
item.end:
  %item.next = add i64 %item, 1
  %again = icmp slt i64 %item.next, %items
  br i1 %again, label %each, label %done
done:
{flags}
}}
"""


@cached(1, CONSTANT, clears=False)
def library() -> Any:
    """The library that NumPy uses; `DeviceError` if it is not the library of its wheels."""
    try:
        numpy = importlib.import_module("numpy._core._multiarray_umath")
        found = ctypes.CDLL(numpy.__file__)  # its symbols, and those of its dependencies
        for name in (*_FUNCTIONS.values(), "scipy_openblas_get_num_threads64_"):
            getattr(found, name)
        found.scipy_openblas_get_corename64_.restype = ctypes.c_char_p
        found.scipy_openblas_set_num_threads64_.restype = None
    except (ImportError, OSError, AttributeError) as error:
        raise DeviceError(f"[matmul] BLAS: {error}") from error
    return found


def is_narrow() -> bool:
    """Whether the library does not know this processor and uses half the width of its vectors."""
    core: bytes = library().scipy_openblas_get_corename64_()
    return core.decode() in _NARROW and "+avx512f" in object_code.target()[1].split(",")


def text(code: str) -> str:
    """The module that calls the library for one dtype; registers its symbol with the linker."""
    function = getattr(library(), _FUNCTIONS[code])
    symbol = f"lazyfuse_{_FUNCTIONS[code]}"
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    object_code.supply(symbol, address)
    clear, flags, fenv = flag_text()
    return _TEXT.format(
        symbol=symbol,
        entry=ENTRY,
        kind=matmul_packing.KINDS[code],
        block=BLOCK,
        each=matmul_loops.EACH.format(kind=matmul_packing.KINDS[code]),
        arguments=matmul_loops.arguments(),
        clear=clear,
        flags=flags,
        fenv=fenv,
    )


class _Threads:
    """The library's number of threads: 1 while any call from here runs, then the old number."""

    def __init__(self) -> None:
        self._using = self._before = 0
        self.after_fork()
        fork_safety.register(self)

    def after_fork(self) -> None:
        """Forget the parent's threads that were using the library."""
        self._lock = threading.Lock()
        if self._using:
            self._using = 0
            library().scipy_openblas_set_num_threads64_(self._before)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Let each call of the library use only the calling thread."""
        blas = library()
        with self._lock:
            self._using += 1
            if self._using == 1:
                self._before = blas.scipy_openblas_get_num_threads64_()
                blas.scipy_openblas_set_num_threads64_(1)
        try:
            yield
        finally:
            with self._lock:
                self._using -= 1
                if not self._using:
                    blas.scipy_openblas_set_num_threads64_(self._before)


_threads = _Threads()
alone = _threads.alone
