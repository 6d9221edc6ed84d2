"""OpenCL programs: building text, keeping binaries, launching.

Owns the order of a program's arguments: the table of chunks and their number, for each array its
block and byte offset, the scalars, the words for floating-point exceptions.
"""

from __future__ import annotations

import struct
import weakref
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from .. import late_imports
from ..base import Array, DeviceError, Launch, Pooled, Source
from ..caches import Group
from .failures import faults
from .queue import Queue, QueuedLaunch, zeros

Find = Callable[[Array], tuple[Any, int]]
"""From an array to the buffer that holds it and the byte offset of its first element."""

_WAVES = 8  # most work-groups per compute unit in a grid
_FORMATS = {"f8": "d", "f4": "f", "f2": "e", "c16": "dd", "c8": "ff", "b1": "B"}
_FORMATS |= {"i1": "b", "i2": "h", "i4": "i", "i8": "q", "u1": "B", "u2": "H", "u4": "I", "u8": "Q"}
_DOUBLES = ("f8", "c16")
_RAW, _PACKED = b"r", b"z"  # raw or compressed: the first byte of a kept binary
_WORTH = 0.75  # of its size: a binary that compresses less is kept raw
_LINES = 3  # of a build log in a message


_tables: Group[Tables] = Group(
    "devices.opencl.programs.tables", len, None, None, "each goes with the array it comes from"
)


class Tables:
    """Chunk tables in the device's memory; each lives as long as the `Launch.sizes` it is from."""

    def __init__(self, queue: Queue) -> None:
        cl = late_imports.module("pyopencl")
        self._buffer = cl.Buffer
        self._context = queue.context
        self._how = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
        self._kept: dict[tuple[int, int], tuple[Any, Any, Any, Any]] = {}
        _tables.add(self)

    def of(self, launch: Launch) -> Any:
        """The table of a launch. The caller holds the queue's lock."""
        sizes, strides, offsets = launch.sizes, launch.strides, launch.offsets
        key = (id(sizes), id(strides))
        found = self._kept.get(key)
        if found is not None and found[0]() is sizes and found[2]() is offsets:
            return found[3]
        rows = np.concatenate([sizes, offsets], axis=1, dtype=np.int64)
        head = np.array(strides, dtype=np.int64)
        table = np.concatenate([head.ravel(), rows.ravel()])
        made = self._buffer(self._context, self._how, 0, table)
        forget = weakref.ref(sizes, lambda _: self._kept.pop(key, None))
        self._kept[key] = (forget, strides, weakref.ref(offsets), made)
        return made

    def __len__(self) -> int:
        return len(self._kept)


class OpenCLProgram(Pooled):
    """See `base.Program`. A kernel object holds one set of arguments, so launches take a lock."""

    __slots__ = ("_find", "_formats", "_kernel", "_most", "_queue", "_tables", "source")

    def __init__(
        self, source: Source, kernel: Any, queue: Queue, tables: Tables, find: Find
    ) -> None:
        self.source = source
        self.used = 0
        self._kernel = kernel
        self._queue = queue
        self._tables = tables
        self._find = find
        first = 2 + 2 * len(source.arrays)
        self._formats = tuple(
            (first + k, struct.Struct("=" + _FORMATS[code]).pack, code[0])
            for k, code in enumerate(source.scalars)
        )
        self._most = _WAVES * queue.device.max_compute_units

    def launch(self, launch: Launch) -> int | QueuedLaunch:
        """As `base.Program.launch`: enqueue and return."""
        chunks = len(launch.sizes)
        if not chunks:
            return 0
        self._queue.check()
        operands = [self._find(array) for array in launch.arrays]
        with self._queue.lock:
            table = self._tables.of(launch)
            grid = self._grid(chunks, launch.tasks)
            return self._start(table, chunks, operands, launch.scalars, grid, launch.arrays)

    def rehearse(self) -> None:
        """Make an empty launch: some drivers finish compiling at the first launch."""
        nothing = zeros(self._queue.context, 4096)
        operands, scalars = [(nothing, 0)] * len(self.source.arrays), [0] * len(self._formats)
        with self._queue.lock:
            pending = self._start(nothing, 0, operands, scalars, self._grid(1, 1), None)
            self._queue.launches -= 1
        pending.flags()

    def _start(
        self,
        table: Any,
        chunks: int,
        operands: Sequence[tuple[Any, int]],
        scalars: Sequence[Any],
        grid: tuple[tuple[int, ...], tuple[int, ...]],
        alive: Any,
    ) -> QueuedLaunch:
        """Set the arguments and enqueue. The caller holds the queue's lock."""
        numbers: list[Any] = [1, _whole(chunks)]
        buffers: list[Any] = [0, table]
        for at, (buffer, start) in enumerate(operands):
            buffers += (2 + 2 * at, buffer)
            numbers += (3 + 2 * at, _whole(start))
        for (position, pack, kind), value in zip(self._formats, scalars, strict=True):
            numbers += (position, _bytes(pack, kind, value))
        slot, word = self._queue.word()
        buffers += (2 + 2 * len(operands) + len(self._formats), word)
        self._kernel._set_arg_multi(tuple(buffers))
        self._kernel._set_arg_buf_multi(tuple(numbers))
        return self._queue.start(self._kernel, grid, slot, (table, operands, alive))

    def _grid(self, chunks: int, tasks: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Global and local size."""
        group = self.source.group
        if not group:
            return (chunks,), (1,)
        return (group * max(1, min(tasks, self._most)),), (group,)


_whole = struct.Struct("=q").pack


def _bytes(pack: Callable[..., bytes], kind: str, value: Any) -> bytes:
    """The bytes of a scalar argument."""
    if kind not in "fc":
        return pack(int(value))
    parts = (value,) if kind == "f" else (value.real, value.imag)
    try:
        return pack(*parts)
    except OverflowError:  # the program takes a smaller float: infinity
        with np.errstate(over="ignore"):
            return pack(*[np.float32(x) for x in parts])


class OpenCLBuilder:
    """See `pools.programs.Builder`: text -> program -> binary."""

    def __init__(
        self, queue: Queue, options: Iterable[str], fp64: bool, tables: Tables, find: Find
    ) -> None:
        self.queue = queue
        self.options = list(options)
        self.fp64 = fp64
        self._tables = tables
        self._find = find

    def build(self, source: Source) -> tuple[Pooled, bytes | None]:
        """Compile text to a program and its binary."""
        self._check(source)
        cl = late_imports.module("pyopencl")
        program = cl.Program(self.queue.context, source.text)
        self._compile(program, source, "build")
        made = self._program(source, program)
        if not source.group:
            made.rehearse()
        return made, self._binary(program)

    def load(self, source: Source, code: bytes, fresh: bool = False) -> Pooled:
        """The program from a binary that `build` returned, in this or another process."""
        self._check(source)
        cl = late_imports.module("pyopencl")
        queue = self.queue
        try:
            program = cl.Program(queue.context, [queue.device], [_unpacked(code)])
        except queue.errors as error:
            raise DeviceError(f"[load] {source.name}: {_first_lines(str(error))}") from error
        self._compile(program, source, "load")
        return self._program(source, program)

    def _check(self, source: Source) -> None:
        self.queue.check()
        if not self.fp64 and any(code in _DOUBLES for code in (*source.arrays, *source.scalars)):
            raise DeviceError(
                f"[compile] {source.name}: the device has no fp64; float64 runs on the CPU"
            )

    def _compile(self, program: Any, source: Source, doing: str) -> None:
        queue = self.queue
        try:
            faults.strike(doing)
            queue.build(program, self.options)
        except queue.errors as error:
            queue.failure(error, doing)
            queue.check()
            raise DeviceError(f"[{doing}] {source.name}: {_first_lines(str(error))}") from error

    def _program(self, source: Source, program: Any) -> OpenCLProgram:
        cl = late_imports.module("pyopencl")
        queue = self.queue
        try:
            kernel = cl.Kernel(program, source.name)
            most = kernel.get_work_group_info(
                cl.kernel_work_group_info.WORK_GROUP_SIZE, queue.device
            )
        except queue.errors as error:
            raise DeviceError(f"[build] {source.name}: {_first_lines(str(error))}") from error
        if source.group > most:
            raise DeviceError(
                f"[build] {source.name}: work-group: expected at most {most}, got {source.group}"
            )
        return OpenCLProgram(source, kernel, queue, self._tables, self._find)

    def _binary(self, program: Any) -> bytes | None:
        """The bytes to keep on disk, or None where the driver gives no binaries."""
        cl = late_imports.module("pyopencl")
        try:
            (binary,) = program.get_info(cl.program_info.BINARIES)
        except self.queue.errors:
            return None
        if not binary:
            return None
        return _packed(binary)


def _packed(binary: bytes) -> bytes:
    """The bytes that are kept of a binary: compressed where that saves much."""
    packed = zlib.compress(binary, 1)
    return _PACKED + packed if len(packed) < _WORTH * len(binary) else _RAW + binary


def _unpacked(code: bytes) -> bytes:
    try:
        return zlib.decompress(code[1:]) if code[:1] == _PACKED else code[1:]
    except zlib.error as error:
        raise DeviceError(f"[load] {error}") from error


def _first_lines(text: str) -> str:
    """The first lines of a log that mention errors, else its first lines."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # NVIDIA's assembler calls them fatal
    errors = [line for line in lines if any(word in line.lower() for word in ("error", "fatal"))]
    return " | ".join((errors or lines)[:_LINES]) or "the compiler gave no reason"
