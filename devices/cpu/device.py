"""The CPU: compiled text ("numba") and text over NumPy ("numpy"), on a pool of threads.

Owns the programs, threads and buffers of one device. Importing it loads neither llvmlite nor
llvmlite, nor does a program found on disk where elf_linker.py links it; elsewhere it loads
llvmlite.
"""

from __future__ import annotations

import importlib.util
import linecache
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from .. import settings
from ..base import ALONE, Device, DeviceError, DeviceOptions, Pooled, Program, Source, Traits
from ..late_imports import module
from ..pools import environment, object_code
from ..pools.buffers import BufferPool, for_device
from ..pools.compile_worker import Worker
from ..pools.disk_cache import DiskCache
from ..pools.programs import Builder, ProgramPool, disk_of_environment
from ..thread_pool import ThreadPool, available
from . import (
    compile_after_exit,
    launch,
    loop_symbols,
    matmul_blas,
    matmul_loops,
    native_threads,
    tile_loop,
)
from .launch import ChunkRunner, NumbaProgram, NumpyProgram
from .vector_loops import VectorLoops

THREADS_ABOVE = 1 << 17  # additions' worth of work above which waking threads pays


def make() -> CPU:
    """The device with the settings of the environment variables."""
    return CPU(
        threads=settings.number("LAZYFUSE_NUM_THREADS", 0),
        threads_above=settings.number("LAZYFUSE_THREADS_ABOVE", THREADS_ABOVE),
        pool_limit=settings.number("LAZYFUSE_POOL_LIMIT", -1),
        disk=disk_of_environment(),
        ahead=settings.flag("LAZYFUSE_COMPILE_AHEAD", True),
        after_exit=settings.flag("LAZYFUSE_COMPILE_AFTER_EXIT", True),
    )


class CPU(Device):
    """See `base.Device`. Settings may be changed at any time with the `set_` methods."""

    programs: ProgramPool
    buffers: BufferPool

    def __init__(
        self,
        threads: int = 0,
        threads_above: int = THREADS_ABOVE,
        pool_limit: int = -1,
        disk: DiskCache | None = None,
        ahead: bool = False,
        after_exit: bool = False,
    ) -> None:
        self.buffers = for_device(pool_limit)
        self.threads = ThreadPool(threads or available())
        self._loops: object_code.Loaded | None = None
        self.work = ChunkRunner(self.threads, threads_above, self._load_loop)
        self._vector_loops = VectorLoops(self._load_vector_loop)
        builders: dict[str, Builder] = {"numpy": NumpyBuilder(self.work, self._vector_loops)}
        notes: tuple[str, ...] = ()
        if importlib.util.find_spec("llvmlite") is not None:
            builders = {"numba": NumbaBuilder(self.work), **builders}
        else:
            notes = ("llvmlite is not installed: kernels run as blocked NumPy",)
        self._builders = builders
        self.programs = ProgramPool(
            builders, disk or DiskCache("", 0, enabled=False), environment.digest
        )
        self._worker = Worker(self._arrived, self.programs.lost, self._leave)
        self.set_compile_ahead(ahead)
        self._after_exit = after_exit  # whether another process finishes the worker's sources
        self.traits = Traits("cpu", "cpu", self.threads.threads, tuple(builders), notes)

    def soon(self, source: Source) -> Program | None:
        """As `base.Device.soon`: in memory or on disk, else compiled.

        With a worker process the caller never waits: NumPy computes the same bits meanwhile, and a
        later call finds the program. Without a worker (switched off, a forked child, no Python to
        start) the source is compiled at once.
        """
        return self.programs.soon(source)

    def why_never(self, source: Source) -> str:
        """As `base.Device.why_never`."""
        return self.programs.why_never(source)

    def compiles_ahead(self) -> bool:
        """As `base.Device.compiles_ahead`."""
        return self.programs.worker is not None and not self._worker.why_not()

    def lost_worker(self) -> str:
        """As `base.Device.lost_worker`."""
        return self._worker.trouble if self.programs.worker is not None else ""

    def finish(self, seconds: float | None = None) -> bool:
        """As `base.Device.finish`."""
        return self.programs.wait(None, seconds)

    def info(self) -> dict[str, Any]:
        """Counters of programs, buffers and threads."""
        return {
            "programs": self.programs.info(),
            "buffers": self.buffers.info(),
            "threads": self.threads.threads,
            "threads_above": self.work.threads_above,
        }

    def clear(self, disk: bool = False) -> None:
        """Forget programs (on disk too, if asked) and free buffers."""
        self.programs.clear(disk)
        self.buffers.clear()

    def product(self, code: str, library: bool, turned: bool) -> object_code.Loaded:
        """Products of matrices for one dtype ("f8", ...), by NumPy's library or lazyfuse's loops.

        `turned`: rows of the second matrix need not be dense.
        """
        cpu, features = object_code.target()
        text = matmul_blas.text(code) if library else matmul_loops.text(code, features, turned)
        name = f"{'blas' if library else 'matmul'}_{code}"
        source = Source("llvm", name, text, 0, (), ())
        return self.programs.code(
            source, lambda text: object_code.emit(text, cpu, features), object_code.ENTRY
        )

    def prepare_loops(self) -> None:
        """Let compiled loops call the C library, and NumPy's BLAS where it is known."""
        loop_symbols.supply()

    def configure(self, options: DeviceOptions) -> None:
        """As `base.Device.configure`."""
        self.set_threads(options.threads)
        self.set_threads_above(options.threads_above)
        self.set_pool_limit(options.pool_limit)
        self.set_compile_ahead(options.compile_ahead)
        self._after_exit = options.compile_after_exit
        self.programs.configure(options)

    def set_threads(self, threads: int) -> None:
        """Threads per launch; 0: one per core that this process may use."""
        self.threads.resize(threads or available())
        self.work.native.resize()
        self.traits.threads = self.threads.threads

    def set_threads_above(self, elements: int) -> None:
        """Additions' worth of work from which several threads are used."""
        self.work.threads_above = elements

    def set_pool_limit(self, limit: int) -> None:
        """Bytes of free buffers to keep; -1: the default."""
        self.buffers.set_limit(limit)

    def set_compile_ahead(self, ahead: bool) -> None:
        """Whether `soon` asks a worker process; else it compiles at once."""
        self.programs.worker = self._worker if ahead and "numba" in self._builders else None

    def _arrived(self, source: Source, code: bytes | None, why: str, seconds: float) -> None:
        """In the worker's thread: the loops that the program needs first, then the program."""
        if source.name != ALONE:  # preparing takes a thread beside a busy one a second and more
            with suppress(DeviceError):
                self.work.prepare()
        self.programs.arrived(source, code, why, seconds)

    def _leave(self) -> None:
        """At the end of the program."""
        if self._after_exit:
            compile_after_exit.leave(self.programs.uncompiled(), self.programs.disk)

    def _load_vector_loop(self, source: Source, emit: Callable[[str], bytes]) -> object_code.Loaded:
        return self.programs.code(source, emit, object_code.ENTRY)

    def _load_loop(self, entry: str) -> object_code.Loaded:
        """One of the loops over chunks or tiles, or of worker threads."""
        if self._loops is None:
            source = Source("llvm", "loops", _loops_text(), 0, (), ())
            self._loops = self.programs.code(source, _emit_loops, launch.CHUNKS_ENTRY)
        return self._loops.at(entry)


def _loops_text() -> str:
    """All loops that are independent of programs, as one module, emitted and loaded once."""
    threads = [native_threads.TEXT] if native_threads.AVAILABLE else []
    return "\n".join([launch.CHUNKS_TEXT, tile_loop.TILES_TEXT, *threads])


def _emit_loops(text: str) -> bytes:
    # a quarter of the time, for which a first result waits; the loops only call the real work
    return object_code.emit(text, optimise=0)


class NumbaBuilder:
    """Programs of language "numba": text -> object code -> machine code in memory."""

    def __init__(self, work: ChunkRunner) -> None:
        self.work = work

    def build(self, source: Source) -> tuple[Pooled, bytes | None]:
        """Compile the text. When the interpreter ends, NumPy is quicker."""
        if sys.is_finalizing():
            raise DeviceError("[compile] the interpreter is ending")
        code: bytes = module(f"{__package__}.llvm_compiler").compile_source(source)
        return self.load(source, code, fresh=True), code

    def load(self, source: Source, code: bytes, fresh: bool = False) -> Pooled:
        """Link object code."""
        return NumbaProgram(source, object_code.load(code, object_code.ENTRY, fresh), self.work)


class NumpyBuilder:
    """Programs of language "numpy": text that the interpreter runs; none are kept on disk."""

    def __init__(self, work: ChunkRunner, loops: VectorLoops) -> None:
        self.work = work
        self.loops = loops

    def build(self, source: Source) -> tuple[Pooled, bytes | None]:
        """Execute the text."""
        filename = f"<lazyfuse {source.name}>"
        linecache.cache[filename] = (len(source.text), None, source.text.splitlines(True), filename)
        names: dict[str, Any] = {"np": np}
        if not source.exact:
            names.update(self.loops.names(source.text))
        try:
            exec(compile(source.text, filename, "exec"), names)
            function = names[source.name]
        except Exception as error:
            raise DeviceError(f"[compile] {source.name}: {error!r}") from error
        return NumpyProgram(source, function, self.work), None

    def load(self, source: Source, code: bytes, fresh: bool = False) -> Pooled:
        """Never called: the disk has no such programs."""
        raise DeviceError("[load] numpy text is not kept on disk")
