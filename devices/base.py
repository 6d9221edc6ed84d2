"""The contract between the compiler and the hardware.

A device gets source text, sizes and buffers. It never sees a graph, a kernel form or an op.
This module imports nothing of lazyfuse.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Source:
    """A program as text. `language` and `text` are its identity; `name` is its entry point.

    `arrays`: dtype of each array argument ("f8", ...); `scalars`: dtype of each scalar argument;
    `rank`: number of loops whose sizes are arguments. `exact`: no operation in it depends on the
    device's mathematical library.
    """

    language: str  # "numba", "numpy", later "opencl"
    name: str
    text: str
    rank: int
    arrays: tuple[str, ...]
    scalars: tuple[str, ...]
    exact: bool = True


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


@dataclass(slots=True)
class Traits:
    """What a device is, as far as the compiler needs to know."""

    name: str
    kind: str  # "cpu", "gpu", "none"
    threads: int
    languages: tuple[str, ...]
    notes: tuple[str, ...] = field(default=())


class Program(Protocol):
    """A compiled source."""

    source: Source

    def launch(self, launch: Launch) -> int:
        """Run every chunk; the IEEE flags raised (1 divide, 2 over, 4 under, 8 invalid)."""


class Device(Protocol):
    """A place where programs run."""

    traits: Traits

    def compile(self, source: Source) -> Program:
        """Build a program or raise `DeviceError`; pooled, so asking twice costs a lookup."""

    def cached(self, source: Source) -> bool:
        """Whether `compile` would find the program in memory or on disk."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """A C-contiguous, uninitialised host array from the device's buffer pool."""


class DeviceError(RuntimeError):
    """A build, launch or allocation that a device could not do; the caller takes the next tier."""
