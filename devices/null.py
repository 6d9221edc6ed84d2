"""A device that records requests and computes nothing: for tests of what would run."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Array, Device, Launch, Program, Source, Traits


def make() -> Null:
    """A new recorder."""
    return Null()


class NullProgram(Program):
    """A program whose launches are only recorded."""

    __slots__ = ("_device", "source")

    def __init__(self, source: Source, device: Null) -> None:
        self.source = source
        self._device = device

    def launch(self, launch: Launch) -> int:
        """Record the launch; output arrays stay unchanged."""
        self._device.launches.append((self.source, launch))
        return 0


class Null(Device):
    """`sources`: every source compiled, once. `launches`: every launch with its source."""

    def __init__(self) -> None:
        self.traits = Traits("null", "none", 1, ("numba", "numpy"), ("results are not computed",))
        self.sources: dict[tuple[str, str], NullProgram] = {}
        self.launches: list[tuple[Source, Launch]] = []

    def compile(self, source: Source) -> NullProgram:
        """As `base.Device.compile`."""
        key = (source.language, source.text)
        if key not in self.sources:
            self.sources[key] = NullProgram(source, self)
        return self.sources[key]

    def cached(self, source: Source) -> bool:
        """As `base.Device.cached`."""
        return (source.language, source.text) in self.sources

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Zeros, so that results that were not computed are the same every time."""
        return np.zeros(shape, dtype)

    def clear(self) -> None:
        """Forget what was recorded."""
        self.sources.clear()
        self.launches.clear()
