"""The contract between the compiler and the hardware.

A device gets source text, sizes and buffers. It never sees a graph, a kernel form or an op.
This module imports nothing of lazyfuse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

WORDS = 32
"""Integers of 32 bits in which a launch of an asynchronous device tells of IEEE conditions."""


@dataclass(frozen=True, slots=True)
class Source:
    """A program as text. `language` and `text` are its identity; `name` is its entry point.

    `arrays`: dtype of each array argument ("f8", ...); `scalars`: dtype of each scalar argument;
    `rank`: number of loops whose sizes are arguments. `exact`: no operation in it depends on the
    device's mathematical library. `group`: work-items that must share a work-group; 0 means that
    each chunk of a launch is one work-item's job.
    """

    language: str  # "numba", "numpy", "opencl" or "opencl-grid"
    name: str
    text: str
    rank: int
    arrays: tuple[str, ...]
    scalars: tuple[str, ...]
    exact: bool = True
    group: int = 0


@dataclass(slots=True)
class Launch:
    """One use of a program: its arguments, cut into chunks that may run at the same time.

    Chunk `c` runs loops of `sizes[c]` iterations over array `a` starting `offsets[c, a]` elements
    after the array's first element, moving by `strides[a][d]` elements along loop `d`.
    The cutting depends on the sizes alone, never on the number of threads.
    """

    arrays: tuple[Array, ...]
    strides: tuple[tuple[int, ...], ...]
    scalars: tuple[Any, ...]
    sizes: Array  # int64 (chunks, rank)
    offsets: Array  # int64 (chunks, arrays)
    elements: int  # of the whole domain, for the choice of threads
    tasks: int = 0  # work-groups that the work can keep busy, where the source has a group


@dataclass(slots=True)
class Traits:
    """What a device is, as far as the compiler needs to know."""

    name: str  # "cpu", "opencl:0", ...: what a user writes to get it
    kind: str  # "cpu", "gpu", "none"
    threads: int  # threads or compute units
    languages: tuple[str, ...]
    notes: tuple[str, ...] = field(default=())
    model: str = ""  # the hardware's own name
    platform: str = ""
    driver: str = ""
    fp64: bool = True
    fp16: bool = False
    narrows: bool = False  # without fp64 its memory keeps float64 as float32: programs say "f4"
    shares_memory: bool = True  # programs work on host arrays themselves
    local_bytes: int = 0  # memory of a work-group
    memory_bytes: int = 0


class Later(Protocol):
    """The outcome of a launch that may still be under way."""

    def flags(self) -> int:
        """Wait for it; its IEEE flags. `DeviceError` if it failed after all.

        They are the lowest four bits; those above are what the program says beside them.
        """


BoundRun = Callable[[list[Any], tuple[Any, ...]], int]
"""A launch whose geometry is known: arrays (or their addresses) and scalars to the IEEE flags."""


class Bound(NamedTuple):
    """A launch whose geometry is known, over addresses in the place of arrays.

    `rows`: the same as an object that C calls (lazyfuse/_walk.c), where the device has one.
    `threads()` says who shares the chunks of it; None if there is one chunk.
    """

    run: BoundRun
    rows: object = None
    threads: Callable[[], tuple[int, int, int, int] | None] | None = None


class Program:
    """A compiled source. What a program does not say has the answers below."""

    __slots__ = ()
    source: Source

    def launch(self, launch: Launch) -> int | Later:
        """Run every chunk; the IEEE flags raised (1 divide, 2 over, 4 under, 8 invalid).

        A device that works on its own returns a `Later`; launches of one device run in order.
        """
        raise NotImplementedError

    def prepare(self, launch: Launch) -> BoundRun | None:
        """Runs over other arrays of the same strides and dtypes; None: `launch` does them."""
        return None

    def prepare_addresses(self, launch: Launch) -> Bound | None:
        """As `prepare`, for runs over addresses in the place of arrays; None if it cannot."""
        return None


class Pooled(Program):
    """A program that remembers when it was last asked for: `pools.programs` drops old ones."""

    __slots__ = ("used",)
    used: int


class RowProgram(Program):
    """A program whose chunks may also be given as integers, without arrays."""

    __slots__ = ()

    def pieces(self, elements: int) -> int:
        """Into how many rows so many elements are best cut."""
        raise NotImplementedError

    def launch_rows(self, rows: list[list[int]], scalars: tuple[Any, ...], elements: int) -> int:
        """Run chunks given by their sizes, then the address and the strides of each array."""
        raise NotImplementedError


class DeviceMemory(Protocol):
    """Memory that the host cannot read, behind meta arrays.

    A meta array is a numpy array with true shape, strides and dtype at an address where there is no
    memory: views of it, and questions whether two overlap, are NumPy's own; touching an element of
    it crashes. Every view of a meta array leads back to its block on the device. A device that
    `narrows` keeps what was made as float64 or complex128 as float32 or complex64 there: uploads
    round, and `gather` gives the dtype of the meta array.
    """

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """A meta array for a new, uninitialised C-contiguous block."""

    def holds(self, array: Array) -> bool:
        """Whether an array is a meta array of this memory."""

    def upload(self, array: Array) -> Array:
        """A meta array with the shape, strides and contents of a packed host array (any order)."""

    def gather(self, array: Array) -> Array:
        """A host array with the contents of a meta array, packed in the same order of axes."""

    def copy(self, source: Array, target: Array) -> None:
        """Copy between two packed meta arrays of equal size and order."""


class Library(Protocol):
    """What a device does without programs of ours. Refusals and failures are `DeviceError`."""

    name: str

    def accumulate(self, name: str, array: Array, dtype: np.dtype[Any]) -> Array:
        """Running sums ("add") or products ("multiply")."""

    def compact(self, array: Array, mask: Array) -> Array:
        """The elements where a mask of the same shape is true."""

    def positions(self, mask: Array) -> Array:
        """Where the elements of a mask are true, as `numpy.flatnonzero`."""

    def sort(self, array: Array) -> Array:
        """Sorted along the only axis."""

    def argsort(self, array: Array) -> Array:
        """The stable order along the only axis."""

    def product(self, first: Array, second: Array) -> Array:
        """The product of two matrices."""

    def transform(self, array: Array, axes: tuple[int, ...], inverse: bool, norm: str) -> Array:
        """A discrete Fourier transform."""


class Store(Protocol):
    """What a device keeps in memory between runs, within a limit."""

    def info(self) -> dict[str, Any]:
        """Counters."""

    def clear(self) -> None:
        """Let go of what is not in use."""


class Programs(Store, Protocol):
    """The programs that a device has built or found on disk, and how many were of which kind."""

    built: int
    loaded: int

    def awaits(self, source: Source) -> bool:
        """Whether a program is being compiled."""


class Buffers(Store, Protocol):
    """Host memory that is used again."""

    def classes(self, blocks: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        """Blocks of so many bytes, and how many of each, as `reserve` takes them."""

    def reserve(self, classes: Sequence[tuple[int, int]]) -> bool:
        """Have so many blocks of each class ready until `release`; whether they are to be had."""

    def release(self) -> None:
        """End a reservation."""


@dataclass(frozen=True, slots=True)
class DeviceOptions:
    """What the user may choose of a device. `folder` is where programs are kept ("": nowhere)."""

    threads: int
    threads_above: int
    pool_limit: int
    program_limit: int
    compile_ahead: bool
    compile_after_exit: bool
    folder: str
    folder_limit: int
    folder_used: bool


class Device:
    """A place where programs run. What a device does not say has the answers below.

    A device has `traits`, `compile`, `cached` and `empty`; with these it is the host, computes at
    once, and has nothing else.
    """

    traits: Traits
    asynchronous = False
    """Whether launches may be under way when they return: see `Asynchronous`."""
    memory: DeviceMemory | None = None
    """Its own, which the host cannot read; None: programs work on host arrays."""
    library: Library | None = None
    programs: Programs | None = None
    buffers: Buffers | None = None

    def compile(self, source: Source) -> Program:
        """Build a program or raise `DeviceError`; pooled, so asking twice costs a lookup."""
        raise NotImplementedError

    def cached(self, source: Source) -> bool:
        """Whether `compile` would find the program in memory or on disk."""
        raise NotImplementedError

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """A C-contiguous, uninitialised host array from the device's buffer pool."""
        raise NotImplementedError

    def wait(self) -> None:
        """Wait for everything under way; `DeviceError` if something failed since the last time."""

    def configure(self, options: DeviceOptions) -> None:
        """Take the user's options, as far as they mean something here."""

    def compiles_ahead(self) -> bool:
        """Whether `soon` asks a worker process, so that the caller need not wait."""
        return False

    def soon(self, source: Source) -> Program | None:
        """The program if it is there; else None, and it is being compiled. Never raises."""
        try:
            return self.compile(source)
        except DeviceError:
            return None

    def may_hold(self, source: Source) -> bool:
        """Whether the program may be in memory or on disk, by a quick look."""
        return self.cached(source)

    def why_never(self, source: Source) -> str:
        """Why `soon` will not give a program, however long one waits; empty if it may."""
        return ""

    def why_missed(self, source: Source) -> str:
        """Why `compile` last had to load or build the program."""
        return ""

    def lost_worker(self) -> str:
        """Why there will be no worker process any more; empty while there may be one."""
        return ""

    def finish(self, seconds: float | None = None) -> bool:
        """Wait until all that `soon` has asked for has arrived; False if it has not in time."""
        return True


class Asynchronous(Device):
    """A device whose launches return before they have run; it has a `settle`."""

    asynchronous = True

    def wait(self) -> None:
        """As `Device.wait`."""
        raise NotImplementedError


class DeviceError(RuntimeError):
    """A build, launch or allocation that a device could not do; the caller takes the next tier."""


class OutOfMemory(DeviceError, MemoryError):
    """Memory that is not to be had: where no tier is left, programs catch NumPy's error."""


class DeviceLost(DeviceError):
    """A device that does nothing any more; what lay in its memory is gone."""
