"""Running compiled programs over chunks: argument memory, the chunk loop, threads.

Owns the byte layout of a launch. A chunk's row of int64: the loop sizes, then for each array its
byte address and its strides. Scalars take 16 bytes each. The chunk loop of machine code is itself
machine code, so a thread enters it once and does not return to Python between chunks.
"""

from __future__ import annotations

import ast
import ctypes
import functools
import itertools
import math
import operator
import re
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .. import fork_safety, progress, thread_pool
from ..base import Array, Bound, DeviceError, Launch, Pooled, RowProgram, Source
from ..caches import Group
from ..pools.object_code import Loaded
from ..thread_pool import ThreadPool
from . import bound_launch
from .native_threads import NativeThreads

CHUNKS_ENTRY = "lazyfuse_chunks"
TILES_ENTRY = "lazyfuse_tiles"  # tile_loop.py has its text
# Threads take chunk numbers from the shared word 0 until none remains; word 1 counts the finished
# chunks, word 2 unites the flags. Then the caller spins: it checks `spins` times whether all are
# finished, since sleeping and waking costs more than the wait for a chunk that is nearly done.
CHUNKS_TEXT = f"""
define i32 @{CHUNKS_ENTRY}(ptr %entry, ptr %meta, ptr %scalars, ptr %words, i64 %chunks,
                           i64 %width, i64 %spins) {{
start:
  %finished = getelementptr i64, ptr %words, i64 1
  %flags = getelementptr i64, ptr %words, i64 2
  br label %next
next:
  %chunk = atomicrmw add ptr %words, i64 1 seq_cst
  %more = icmp slt i64 %chunk, %chunks
  br i1 %more, label %body, label %look
body:
  %offset = mul i64 %chunk, %width
  %row = getelementptr i8, ptr %meta, i64 %offset
  %raised = call i32 %entry(ptr %row, ptr %scalars)
  %wide = sext i32 %raised to i64
  %old = atomicrmw or ptr %flags, i64 %wide seq_cst
  %count = atomicrmw add ptr %finished, i64 1 seq_cst
  br label %next
look:
  %turn = phi i64 [0, %next], [%following, %again]
  %done = load atomic i64, ptr %finished seq_cst, align 8
  %all = icmp eq i64 %done, %chunks
  br i1 %all, label %yes, label %again
again:
  %following = add i64 %turn, 1
  %patient = icmp slt i64 %turn, %spins
  br i1 %patient, label %look, label %no
yes:
  ret i32 1
no:
  ret i32 0
}}
"""

_Pointer, _Int64 = ctypes.c_void_p, ctypes.c_int64
_Entry = ctypes.CFUNCTYPE(ctypes.c_int32, _Pointer, _Pointer)
_LOOPS = {
    CHUNKS_ENTRY: ctypes.CFUNCTYPE(ctypes.c_int32, *[_Pointer] * 4, *[_Int64] * 3),
    TILES_ENTRY: ctypes.CFUNCTYPE(ctypes.c_int32, _Pointer, _Int64),
}
# Reading an array's address as the first field after the object head takes 110 ns;
# `array.ctypes.data` takes 770.
_HEAD = object.__basicsize__
_word_at = ctypes.c_size_t.from_address
_WORDS = 8  # shared words in front of the rows: a cache line of their own
_SPINS = 20_000  # 20 to 60 us
LONG = 1 << 22  # additions: two milliseconds, in which workers that come late still help
_SLOTS = {"b": "q8x", "i": "q8x", "u": "Q8x", "f": "d8x", "c": "dd"}


def _read_address(array: Array) -> int:
    return _word_at(id(array) + _HEAD).value


def _ask_address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def _address_reader() -> Callable[[Array], int]:
    """The fast reader if this interpreter lays out objects like CPython."""
    probe = np.empty(3)
    try:
        if all(_read_address(part) == _ask_address(part) for part in (probe, probe[1:])):
            return _read_address
    except (ValueError, TypeError):
        pass
    return _ask_address


address_of = _address_reader()


class ChunkRunner:
    """How a device runs chunks: its threads, the least work for them, and the chunk loop."""

    __slots__ = (
        "__weakref__", "_load", "_lock", "_loops", "native", "pool", "threads_above",
    )  # fmt: skip

    def __init__(
        self,
        pool: ThreadPool,
        threads_above: int,
        load: Callable[[str], Loaded],
    ) -> None:
        """`load(entry)` gives one of the loops of CHUNKS_TEXT, tile_loop.py, native_threads.py."""
        self.pool = pool
        self.native = NativeThreads(load)
        self.threads_above = threads_above
        self._load = load
        self._loops: dict[str, tuple[Loaded, Callable[..., int]]] = {}
        self.after_fork()
        fork_safety.register(self)

    def after_fork(self) -> None:
        """Make a new lock."""
        self._lock = threading.Lock()

    def helpers(self, work: float, chunks: int, native: bool = True) -> int:
        """How many threads should help with `work`, in additions.

        `native`: they are worker threads in machine code, which may be late.
        """
        most = self.pool.threads // thread_pool.callers
        if most < 2 or work < self.threads_above:  # waking a thread takes the caller's time
            return 0
        if work < LONG and native and self.native.are_late():
            return 0
        return min(most, chunks, int(2 * work / max(1, self.threads_above))) - 1

    def prepare(self) -> None:
        """Load the loops before they are needed."""
        for entry in _LOOPS:
            self.loop(entry)
        self.native.prepare()

    def loop(self, entry: str) -> tuple[int, Callable[..., int]]:
        """The address and the function of one of the two loops, loaded at first use."""
        if entry not in self._loops:
            with self._lock:  # a second loop would free the first, which may be running
                if entry not in self._loops:
                    loaded = self._load(entry)
                    self._loops[entry] = loaded, _LOOPS[entry](loaded.address)
        loaded, function = self._loops[entry]
        return loaded.address, function


class NumbaProgram(Pooled, RowProgram):
    """Machine code with the entry `int32 NAME(int64 *meta, double *scalars)`."""

    __slots__ = (
        "_call",
        "_itemsizes",
        "_loaded",
        "_slots",
        "_width",
        "_work",
        "source",
        "weight",
    )

    def __init__(self, source: Source, loaded: Loaded, work: ChunkRunner) -> None:
        self.source = source
        self.used = 0
        self._loaded = loaded
        self._work = work
        self._call = _Entry(loaded.address)
        self._width = source.rank + len(source.arrays) * (source.rank + 1)
        self._itemsizes = np.array([int(code[1:]) for code in source.arrays], dtype=np.int64)
        self._slots = struct.Struct("".join(_SLOTS[code[0]] for code in source.scalars))
        self.weight = weight(source.text)  # of one element, in additions

    def launch(self, launch: Launch) -> int:
        """Run every chunk; the union of the IEEE flags."""
        scalars = self.pack(launch.scalars)
        count = len(launch.sizes)
        if count == 0:
            return 0
        if count == 1:
            flags: int = self._call(self._one_row(launch), scalars)
        else:
            flags = self._many(launch, count, scalars)
        if flags < 0:
            raise DeviceError(f"[launch] {self.source.name}: the program raised an exception")
        return flags

    def bound(self, launch: Launch) -> Bound | None:
        """As `base.Program.bound`: a run fills in only what changes."""
        if bound_launch.native is None or address_of is not _read_address or not len(launch.sizes):
            return None
        kinds = "".join([code[0] for code in self.source.scalars])
        return bound_launch.in_c(
            launch, self.entry, self.weight, kinds, self._loaded, self._work, CHUNKS_ENTRY
        )

    @property
    def entry(self) -> int:
        """The address of the code."""
        return self._loaded.address

    def pack(self, scalars: tuple[Any, ...]) -> bytes:
        """The scalars in the layout that the code reads."""
        values: list[Any] = []
        for value, code in zip(scalars, self.source.scalars, strict=True):
            if code[0] == "c":
                values += (value.real, value.imag)
            else:
                values.append(value if code[0] == "f" else int(value))
        return self._slots.pack(*values)

    def _one_row(self, launch: Launch) -> bytes:
        row: list[int] = launch.sizes.tolist()[0]
        offsets = launch.offsets.tolist()[0]
        for array, offset, strides in zip(launch.arrays, offsets, launch.strides, strict=True):
            row.append(address_of(array) + offset * array.itemsize)
            row += strides
        return struct.pack(f"{len(row)}q", *row)

    def _many(self, launch: Launch, count: int, scalars: bytes) -> int:
        """Run all chunks through the chunk loop, with worker threads if the work pays for them."""
        width, rank = self._width, self.source.rank
        memory = np.empty(_WORDS + count * width, dtype=np.int64)
        memory[:_WORDS] = 0
        first = [0] * rank
        for array, strides in zip(launch.arrays, launch.strides, strict=True):
            first.append(address_of(array))
            first += strides
        rows = memory[_WORDS:].reshape(count, width)
        rows[...] = first
        rows[:, :rank] = launch.sizes
        rows[:, rank :: rank + 1] += launch.offsets * self._itemsizes
        return self._rows(memory, count, scalars, launch.elements)

    def _rows(self, memory: Array, count: int, scalars: bytes, elements: float) -> int:
        """Run the chunks of `memory`: shared words, then one row per chunk."""
        width = self._width
        start = address_of(memory)
        if progress.watchers:
            progress.divide(count, lambda: int(memory[1]))
        arguments = (
            self._loaded.address, start + 8 * _WORDS, scalars, start, count, 8 * width
        )  # fmt: skip
        helpers = self._work.helpers(elements * self.weight, count)
        address, loop = self._work.loop(CHUNKS_ENTRY)
        if helpers > 0 and self._work.native.run(address, arguments, helpers):
            return int(memory[2])

        def work() -> int:
            return loop(*arguments, _SPINS)

        def assist(alive: object = (self, memory)) -> None:
            """The caller does not wait for a late worker, which keeps code and rows alive."""
            loop(*arguments, 0)

        self._work.pool.run(work, assist, helpers)
        return int(memory[2])


# An addition of arrays is three memory accesses. One more step on registers takes an eighth of its
# time, except for steps that no processor can start in every cycle.
_STEP = r"(?m)^ *v\d+ = "
_SLOW = r"vmf?_|sqrt\(| / "
_LIGHT = 1 / 8


def weight(text: str) -> float:
    """Cost of one element relative to a plain addition, estimated from the steps in the text."""
    return 1.0 + len(re.findall(_SLOW, text)) + _LIGHT * len(re.findall(_STEP, text))


_scratches: Group[Scratch] = Group(
    "devices.cpu.launch.scratch",
    lambda each: each.size,
    None,
    None,
    "bytes: `Scratch.LIMIT` for each thread, which may be using them",
)


class Scratch(dict[Any, Array]):
    """Working memory of one thread: `scratch(slot, shape, dtype)` is an uninitialised array.

    The same arguments give the same array, in later chunks and launches too.
    """

    size: int
    LIMIT = 32 << 20  # bytes kept per thread; chunks should stay in the L2 cache

    def __init__(self) -> None:
        super().__init__()
        self.size = 0
        _scratches.add(self)

    def __call__(self, slot: Any, shape: tuple[int, ...], dtype: str) -> Array:
        key = slot, shape, dtype
        array = self.get(key)
        if array is None:
            array = np.empty(shape, dtype)
            if self.size + array.nbytes > self.LIMIT:
                self.clear()
                self.size = 0
            self.size += array.nbytes
            self[key] = array
        return array

    def reserve(self, keys: list[tuple[Any, tuple[int, ...], str]]) -> None:
        """Allocate all these arrays: calls that ask for them allocate nothing then."""
        for _ in range(2):  # the first turn may meet the limit, and drop what it has allocated
            if all(key in self for key in keys):
                return
            for key in keys:
                self(*key)


# A buffer over all memory: NumPy makes a view of it in 230 ns, `as_strided` takes 5 us.
_BASE = 16
_everything = (ctypes.c_char * (1 << 62)).from_address(_BASE)


# The interpreter's threads exchange its lock at every NumPy call, which takes 5 to 20 us and more
# beside the compiler's process, so blocks of shorter calls are faster on one thread (of 42 cases,
# before their programs came, 16 us gave 0.62 times NumPy's speed, 200 us 0.71). The first launches
# of a program measure it.
_LONG_CALL = 100e-6  # seconds
_TRIES = 3
_CALL = r"(?m)^ *(?:flags \|= )?(?:np|numpy_reductions|ops|vmf?_\w+)\b"
_SLOT = r"\bscratch\((\w+|'\w+'), shape, '(\w+)'\)"


class NumpyProgram(Pooled):
    """Text run by the interpreter: `NAME(arrays, scalars, scratch)` once per chunk."""

    __slots__ = (
        "_calls", "_dtypes", "_function", "_itemsizes", "_pace", "_ragged", "_slots", "_tries",
        "_weight", "_work", "source",
    )  # fmt: skip

    def __init__(self, source: Source, function: Callable[..., Any], work: ChunkRunner) -> None:
        self.source = source
        self.used = 0
        self._function = function
        self._work = work
        self._dtypes = [np.dtype(code) for code in source.arrays]
        self._itemsizes = np.array([dtype.itemsize for dtype in self._dtypes], dtype=np.int64)
        self._weight = weight(source.text)
        self._calls = max(1, len(re.findall(_CALL, source.text)))
        found = re.findall(_SLOT, source.text)
        self._ragged = "arrays[0][0]" in source.text or "a0.shape[1:]" in source.text
        self._slots = [(ast.literal_eval(slot), dtype) for slot, dtype in found]
        self._pace = math.inf  # seconds per element and call
        self._tries = _TRIES

    def reserve(self, launch: Launch) -> None:
        """As `base.Program.reserve`: for this thread, which takes the chunks that others cannot."""
        thread_scratch().reserve(self._needs(launch.sizes.tolist()))

    def launch(self, launch: Launch) -> int:
        """Run every chunk; the union of the IEEE flags."""
        scalars = launch.scalars
        addresses = [address_of(each) for each in launch.arrays]
        bases = np.array(addresses, dtype=np.int64) - _BASE
        starts = (launch.offsets * self._itemsizes + bases).tolist()
        steps = [
            tuple([stride * dtype.itemsize for stride in row])
            for row, dtype in zip(launch.strides, self._dtypes, strict=True)
        ]
        sizes = launch.sizes.tolist()
        needs = self._needs(sizes)
        coming = iter(starts)
        pending = zip(sizes, coming, strict=True)
        if progress.watchers:
            progress.divide(len(starts), lambda: len(starts) - operator.length_hint(coming))
        flags: list[int] = []
        without: list[MemoryError] = []

        def work() -> None:
            # A kernel may write over its operands: no chunk begins before all have their memory.
            try:
                thread_scratch().reserve(needs)
            except MemoryError as error:
                without.append(error)
            else:
                flags.append(self._run(pending, steps, scalars))

        helpers = self._work.helpers(launch.elements * self._weight, len(starts), native=False)
        if helpers > 0:
            thread_scratch().reserve(needs)
            each = launch.elements / len(starts)
            for _ in range(2 if self._tries else 0):  # the first run has cold memory
                begin = time.perf_counter()
                flags.append(self._run(itertools.islice(pending, 1), steps, scalars))
                seconds = time.perf_counter() - begin
                self._pace = min(self._pace, seconds / (each * self._calls))
            self._tries = max(0, self._tries - 1)
            if self._pace * each < _LONG_CALL:
                helpers = 0
        self._work.pool.run(work, work, helpers)
        if without and not flags:
            raise without[0]
        return functools.reduce(operator.or_, flags, 0)

    def _needs(self, sizes: list[list[int]]) -> list[tuple[Any, tuple[int, ...], str]]:
        """The arrays for which chunks of these sizes ask a thread's `Scratch`."""
        shapes = {tuple(size[1:] if self._ragged else size) for size in sizes}
        return [(slot, shape, dtype) for shape in shapes for slot, dtype in self._slots]

    def _run(self, pending: Iterator[Any], steps: list[Any], scalars: tuple[Any, ...]) -> int:
        """Take chunks until none remains; the IEEE flags that NumPy reported meanwhile."""
        function, dtypes, scratch = self._function, self._dtypes, thread_scratch()
        flags = 0

        def note(kind: str, flag: int) -> None:
            nonlocal flags
            flags |= flag

        try:
            with np.errstate(all="call", call=note):
                for shape, starts in pending:
                    views = [
                        _ndarray(shape, dtype, _everything, start, step)
                        for dtype, start, step in zip(dtypes, starts, steps, strict=True)
                    ]
                    raised = function(views, scalars, scratch)
                    flags |= raised or 0  # a separate statement: `note` has changed the flags
        finally:
            for _ in pending:  # after an error no thread takes another chunk
                pass
        return flags


_ndarray: Any = np.ndarray
_local = threading.local()


def thread_scratch() -> Scratch:
    """The working memory of this thread."""
    found: Scratch | None = getattr(_local, "scratch", None)
    if found is None:
        found = _local.scratch = Scratch()
    return found
