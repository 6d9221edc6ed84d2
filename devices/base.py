"""The contract between the compiler and the hardware.

A device gets source text, sizes and buffers. It never sees a graph, a kernel variant or an op.
This module imports nothing of lazyfuse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from lazyfuse.devices.dataclass import dataclass

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]
else:  # the compiler's process starts without NumPy
    Array = Any

WORDS = 32
"""32-bit integers in which a launch of an asynchronous device reports its IEEE flags."""

C_FUNCTIONS = (
    "cos", "sin", "tan", "exp", "log", "atan", "tanh", "acos", "asin", "cosh", "sinh", "log2",
    "log10", "log1p", "expm1", "acosh", "asinh", "atanh",
)  # fmt: skip
"""Functions of one number of the C library that hot loops of Python may call."""
ALONE = "loop"
"""The name of programs that run without chunks and threads: such loops."""


@dataclass(frozen=True)
class Source:
    """A program as text. `language` and `text` are its identity; `name` is its entry point.

    `arrays`: dtype of each array argument ("f8", ...); `scalars`: dtype of each scalar argument;
    `rank`: number of loops whose sizes are arguments. `exact`: no operation depends on the
    device's mathematical library. `group`: work-items that must share a work-group; 0: one
    work-item runs each chunk of a launch.
    """

    language: str  # "numba", "numpy", "opencl" or "opencl-grid"
    name: str
    text: str
    rank: int
    arrays: tuple[str, ...]
    scalars: tuple[str, ...]
    exact: bool = True
    group: int = 0


@dataclass
class Launch:
    """One use of a program: its arguments, divided into chunks that may run concurrently.

    Chunk `c` runs loops of `sizes[c]` iterations over array `a` starting `offsets[c, a]` elements
    after the array's first element, moving by `strides[a][d]` elements along loop `d`.
    The chunks depend on the sizes alone, never on the number of threads.
    """

    arrays: tuple[Array, ...]
    strides: tuple[tuple[int, ...], ...]
    scalars: tuple[Any, ...]
    sizes: Array  # int64 (chunks, rank)
    offsets: Array  # int64 (chunks, arrays)
    elements: int  # of the whole domain, to choose the number of threads
    tasks: int = 0  # work-groups that the work can keep busy, if the source has a group


@dataclass
class Traits:
    """The properties of a device that the compiler needs."""

    name: str  # "cpu", "opencl:0", ...: the name by which a user selects it
    kind: str  # "cpu", "gpu", "none"
    threads: int  # threads or compute units
    languages: tuple[str, ...]
    notes: tuple[str, ...] = field(default=())
    model: str = ""  # the hardware's own name
    platform: str = ""
    driver: str = ""
    fp64: bool = True
    narrows: bool = False  # without fp64 its memory holds float64 as float32: programs use "f4"
    shares_memory: bool = True  # programs work directly on host arrays
    local_bytes: int = 0  # memory of a work-group


class Later(Protocol):
    """The outcome of a launch that may still be pending."""

    def flags(self) -> int:
        """Wait for the launch and return its IEEE flags. `DeviceError` if it failed.

        The flags are the lowest four bits; the bits above are further reports of the program.
        """


Crew = tuple[int, int, int, int, object, int, float]
"""The address of the loop over chunks, of the code that shares it, of the team, its helpers, what
holds the team. It may be used again while a number is the same, whose address is here, and no
worker of the team is late, for so many seconds."""


class Bound(NamedTuple):
    """A launch of fixed geometry, for C (lazyfuse/native/player/replay.c), over other addresses.

    `threads`: who shares its chunks, or the function that gives it; None if there is one chunk.
    """

    rows: object
    threads: Crew | Callable[[], Crew | None] | None = None


class Program:
    """A compiled source, with the defaults of what a program may leave out."""

    __slots__ = ()
    source: Source

    def launch(self, launch: Launch) -> int | Later:
        """Run every chunk. Return the IEEE flags raised (1 divide, 2 over, 4 under, 8 invalid).

        An asynchronous device returns a `Later`; launches of one device run in order. Where there
        is no memory the launch fails before it has written anything.
        """
        raise NotImplementedError

    def reserve(self, launch: Launch) -> None:
        """Take the working memory of a launch that follows: it does not fail for want of it."""

    def bound(self, launch: Launch) -> Bound | None:
        """Bind the launch to its strides and dtypes; None: C cannot launch this program."""
        return None


class Pooled(Program):
    """A program with the time of its last request: `pools.programs` drops old ones."""

    __slots__ = ("used",)
    used: int


class RowProgram(Program):
    """A program whose code takes a chunk as integers, without arrays: C and tiles call it."""

    __slots__ = ()

    @property
    def entry(self) -> int:
        """The address of the code: `int32 NAME(int64 *row, double *scalars)`, which gives flags."""
        raise NotImplementedError


class DeviceMemory(Protocol):
    """Memory that the host cannot read, behind meta arrays.

    A meta array is a NumPy array with true shape, strides and dtype at an address without memory.
    NumPy makes its views and decides whether two overlap; reading an element crashes. Every view of
    a meta array leads back to its block on the device. A device that `narrows` holds float64 and
    complex128 as float32 and complex64: uploads round, and `gather` gives the dtype of the meta
    array.
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
    """Operations that a device's own libraries do. Refusals and failures are `DeviceError`."""

    name: str

    def accumulate(self, name: str, array: Array, dtype: np.dtype[Any]) -> Array:
        """Running sums ("add") or products ("multiply")."""

    def compact(self, array: Array, mask: Array) -> Array:
        """The elements where a mask of the same shape is true."""

    def positions(self, mask: Array) -> Array:
        """The indices of the true elements of a mask, as `numpy.flatnonzero`."""

    def sort(self, array: Array) -> Array:
        """The elements sorted along the only axis."""

    def argsort(self, array: Array) -> Array:
        """The stable order along the only axis."""

    def product(self, first: Array, second: Array) -> Array:
        """The product of two matrices."""

    def transform(self, array: Array, axes: tuple[int, ...], inverse: bool, norm: str) -> Array:
        """A discrete Fourier transform."""


class Store(Protocol):
    """A pool that a device keeps in memory between runs, within a limit."""

    def info(self) -> dict[str, Any]:
        """Counters."""

    def clear(self) -> None:
        """Release everything that is not in use."""


class Programs(Store, Protocol):
    """The programs that a device has built or found on disk, with counters."""

    built: int
    loaded: int

    def get(self, source: Source) -> Program:
        """As `Device.compile`."""

    def holds(self, source: Source) -> bool:
        """As `Device.cached`."""

    def why_missed(self, source: Source) -> str:
        """As `Device.why_missed`."""

    def awaits(self, source: Source) -> bool:
        """Whether a program is being compiled."""


class Buffers(Store, Protocol):
    """Host memory that is used again."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """As `Device.empty`."""

    def classes(self, blocks: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        """From pairs (bytes, count) of blocks to the pairs that `reserve` takes."""

    def reserve(self, classes: Sequence[tuple[int, int]]) -> bool:
        """Reserve blocks, a number per class, until `release`; whether memory suffices."""

    def release(self) -> None:
        """End a reservation."""


@dataclass(frozen=True)
class DeviceOptions:
    """The user's options for a device. `folder` is where programs are kept ("": nowhere)."""

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
    """Hardware that runs programs, with the defaults of what a device may leave out.

    A device must have `traits`, and `programs` and `buffers` or its own `compile`, `cached` and
    `empty`. With the defaults it is the host, computes at once, and has nothing else.
    """

    traits: Traits
    asynchronous = False
    """Whether launches may still be pending when they return: see `Asynchronous`."""
    graphs = False
    """Whether it runs graphs of tasks; then programs are the CPU's."""
    memory: DeviceMemory | None = None
    """The device's own memory, which the host cannot read; None: programs work on host arrays."""
    library: Library | None = None
    programs: Programs | None = None
    buffers: Buffers | None = None

    def compile(self, source: Source) -> Program:
        """Build a program or raise `DeviceError`; pooled, so a second call costs a lookup."""
        assert self.programs is not None
        return self.programs.get(source)

    def cached(self, source: Source) -> bool:
        """Whether `compile` would find the program in memory or on disk."""
        assert self.programs is not None
        return self.programs.holds(source)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """A C-contiguous, uninitialised host array from the device's buffer pool."""
        assert self.buffers is not None
        return self.buffers.empty(shape, dtype)

    def wait(self) -> None:
        """Wait for all pending launches; `DeviceError` if one failed since the last call."""

    def configure(self, options: DeviceOptions) -> None:
        """Apply the user's options that concern this device."""

    def compiles_ahead(self) -> bool:
        """Whether `soon` uses a worker process, so that the caller does not wait."""
        return False

    def soon(self, source: Source) -> Program | None:
        """The program if it is available; else None, and a worker compiles it. Never raises."""
        try:
            return self.compile(source)
        except DeviceError:
            return None

    def why_never(self, source: Source) -> str:
        """Why `soon` will never return a program; empty if it may."""
        return ""

    def why_missed(self, source: Source) -> str:
        """Why `compile` last had to load or build the program."""
        return "" if self.programs is None else self.programs.why_missed(source)

    def lost_worker(self) -> str:
        """Why the worker process is lost for good; empty while there may be one."""
        return ""

    def finish(self, seconds: float | None = None) -> bool:
        """Wait for all programs that `soon` requested; whether they arrived in time."""
        return True


class Asynchronous(Device):
    """A device whose launches return before they have run; it has to define `wait`."""

    asynchronous = True

    def wait(self) -> None:
        """As `Device.wait`."""
        raise NotImplementedError


class DeviceError(RuntimeError):
    """A failed build, launch or allocation of a device; the caller takes the next tier."""


class OutOfMemory(DeviceError, MemoryError):
    """A failed allocation. With no tier left, the program gets it as NumPy's `MemoryError`."""


class DeviceLost(DeviceError):
    """A device that refuses all further work; the contents of its memory are lost."""
