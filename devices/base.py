"""The contract between the compiler and the hardware.

A device gets source text, sizes and buffers. It never sees a graph, a kernel form or an op.
This module imports nothing of lazyfuse.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

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


class Program(Protocol):
    """A compiled source."""

    source: Source

    def launch(self, launch: Launch) -> int | Later:
        """Run every chunk; the IEEE flags raised (1 divide, 2 over, 4 under, 8 invalid).

        A device that works on its own returns a `Later`; launches of one device run in order.
        """


class DeviceMemory(Protocol):
    """Memory that the host cannot read, behind stand-ins.

    A stand-in is a numpy array with true shape, strides and dtype at an address where there is no
    memory: views of it, and questions whether two overlap, are NumPy's own; touching an element of
    it crashes. Every view of a stand-in leads back to its block on the device. A device that
    `narrows` keeps what was made as float64 or complex128 as float32 or complex64 there: uploads
    round, and `gather` gives the dtype of the stand-in.
    """

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """A stand-in for a new, uninitialised C-contiguous block."""

    def holds(self, array: Array) -> bool:
        """Whether an array is a stand-in of this memory."""

    def upload(self, array: Array) -> Array:
        """A stand-in with the shape, strides and contents of a packed host array (any order)."""

    def gather(self, array: Array) -> Array:
        """A host array with the contents of a stand-in, packed in the same order of axes."""

    def copy(self, source: Array, target: Array) -> None:
        """Copy between two packed stand-ins of equal size and order."""


class Device(Protocol):
    """A place where programs run."""

    traits: Traits

    def compile(self, source: Source) -> Program:
        """Build a program or raise `DeviceError`; pooled, so asking twice costs a lookup."""

    def cached(self, source: Source) -> bool:
        """Whether `compile` would find the program in memory or on disk."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """A C-contiguous, uninitialised host array from the device's buffer pool."""


class Asynchronous(Device, Protocol):
    """A device whose launches return before they have run."""

    memory: DeviceMemory | None  # None: programs work on host arrays

    def settle(self) -> None:
        """Wait for everything under way; `DeviceError` if something failed since the last time."""


class DeviceError(RuntimeError):
    """A build, launch or allocation that a device could not do; the caller takes the next tier."""


class OutOfMemory(DeviceError, MemoryError):
    """Memory that is not to be had: where no tier is left, programs catch NumPy's error."""


class DeviceLost(DeviceError):
    """A device that does nothing any more; what lay in its memory is gone."""
