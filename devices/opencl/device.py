"""An OpenCL device: programs, memory and launches through pyopencl.

Owns the queue, memory and programs of one device; `make(found)` opens it. Launches are enqueued in
order; only `wait` and `Later.flags` wait for them.
"""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np

from .. import late_imports, settings
from ..base import (
    Array,
    Asynchronous,
    DeviceError,
    DeviceLost,
    DeviceOptions,
    Program,
    Source,
    Traits,
)
from ..pools.buffers import BufferPool
from ..pools.disk_cache import DiskCache
from ..pools.programs import ProgramPool, disk_of_environment
from . import platforms, selftest
from .failures import faults
from .library import Library
from .memory import Blocks, HostBuffers
from .platforms import Found
from .programs import Find, OpenCLBuilder, Tables
from .queue import Queue

__all__ = ["DeviceLost", "OpenCL", "faults", "make"]

LANGUAGES = ("opencl", "opencl-grid")
BUILD_OPTIONS = ["-cl-std=CL1.2", "-w"]  # for every device; the tests add an option


def make(found: Found) -> OpenCL:
    """Open the device as the environment variables set it; `DeviceError` if it fails its test."""
    return OpenCL(
        found,
        pool_limit=settings.number("LAZYFUSE_POOL_LIMIT", -1),
        disk=disk_of_environment(),
    )


class OpenCL(Asynchronous):
    """See `base.Asynchronous`. Settings may be changed at any time with the `set_` methods."""

    programs: ProgramPool
    buffers: BufferPool
    memory: Blocks | None
    library: Library

    def __init__(self, found: Found, pool_limit: int = -1, disk: DiskCache | None = None) -> None:
        self.traits: Traits = platforms.traits(found)
        self.buffers = BufferPool(pool_limit)
        self.queue = Queue(found.device)
        disk = disk or DiskCache("", 0, enabled=False)
        self._found = found
        traits = self.traits
        # first: this trial runs in a child process, which a broken runtime may end
        self.width = self._find_width(disk)
        asked = f"self-test {traits.fp64} {traits.shares_memory}"
        verdict = selftest.verdict(
            self.queue, disk, self._name(asked), traits.fp64, traits.shares_memory
        )
        if verdict.reason:
            raise DeviceError(f"[device] {found.name}: {verdict.reason}")
        traits.shares_memory = verdict.shares
        self.queue.share_words(verdict.shares)
        self.memory = None
        find = HostBuffers(self.queue).of
        if not verdict.shares:
            self.memory = Blocks(self.queue, self.buffers, pool_limit, self.traits.narrows)
            find = self.memory.find
        self.tables = Tables(self.queue)
        self.options = self._build_options()
        builder = OpenCLBuilder(self.queue, self.options, self.traits.fp64, self.tables, find)
        empty = self.buffers.empty if self.memory is None else self.memory.empty
        plain = find if traits.fp64 else _plain(find)
        self.library = Library(self.queue, plain, empty, verdict.shares, traits.name)
        environment = platforms.digest(found, self.options)
        self.programs = ProgramPool(
            dict.fromkeys(LANGUAGES, builder), disk, lambda: environment, parallel=True
        )

    def compile(self, source: Source) -> Program:
        """As `base.Device.compile`."""
        self.queue.check()
        return super().compile(source)

    def wait(self) -> None:
        """As `base.Asynchronous.wait`."""
        self.queue.wait()

    def info(self) -> dict[str, Any]:
        """Counters of programs, buffers, transfers and launches."""
        memory = self.memory
        return {
            "programs": self.programs.info(),
            "buffers": self.buffers.info(),
            "blocks": memory.info() if memory is not None else {},
            "transfers": memory.transfers.info() if memory is not None else {},
            "launches": self.queue.launches,
            "tables": len(self.tables),
            "vector_bytes": self.width,
            "lost": self.queue.lost,
        }

    def clear(self, disk: bool = False) -> None:
        """Forget programs (with `disk` also on disk) and free unused buffers."""
        self.programs.clear(disk)
        self.buffers.clear()
        if self.memory is not None:
            self.memory.clear()

    def configure(self, options: DeviceOptions) -> None:
        """As `base.Device.configure`."""
        self.set_pool_limit(options.pool_limit)
        self.programs.configure(options)

    def set_pool_limit(self, limit: int) -> None:
        """Limit the bytes of free buffers on the host and on the device; -1: the default."""
        self.buffers.set_limit(limit)
        if self.memory is not None:
            self.memory.set_limit(limit)

    def _find_width(self, disk: DiskCache) -> int:
        found = self._found
        # PoCL links programs with the system's linker, and aborts the process without one
        name = self._name(f"width {shutil.which('ld') is not None}")
        width = selftest.width(self.queue, disk, name, found.index, self.traits.kind)
        if not width:
            raise DeviceError(f"[device] {found.name}: {selftest.DIES}")
        return width

    def _build_options(self) -> list[str]:
        cl = late_imports.module("pyopencl")
        device = self._found.device
        options = [*BUILD_OPTIONS, f"-DLF_BYTES={self.width}"]
        if not self.traits.fp64:
            options.append("-cl-single-precision-constant")
        if device.single_fp_config & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT:
            options.append("-cl-fp32-correctly-rounded-divide-sqrt")
        return options

    def _name(self, asked: str) -> str:
        """The name on disk of an examination of this device."""
        return f"device-{platforms.digest(self._found, [asked])}"


def _plain(find: Find) -> Find:
    """`find` for programs of libraries, which compute in the dtype that an array states."""

    def checked(array: Array) -> tuple[Any, int]:
        if array.dtype in (np.float64, np.complex128):
            raise DeviceError(f"[library] {array.dtype}: the device lacks float64; NumPy does it")
        return find(array)

    return checked
