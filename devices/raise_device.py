"""A device that refuses to compute: for tests that nothing is evaluated before its time.

It has no languages, so callers can see that before they plan.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from .base import Device, DeviceError, Source, Traits

MESSAGE = "evaluation is switched off (LAZYFUSE_DEVICE=raise)"


def make() -> Raise:
    """The device."""
    return Raise()


class EvaluationOff(DeviceError):
    """Raised by every attempt to compute; callers must not try another tier."""


class Raise(Device):
    """Every method that would lead to a computation raises `EvaluationOff`."""

    def __init__(self) -> None:
        self.traits = Traits("raise", "none", 1, (), (MESSAGE,))

    def compile(self, source: Source) -> NoReturn:
        """Raise."""
        raise EvaluationOff(f"[compile] {source.name}: {MESSAGE}")

    def cached(self, source: Source) -> bool:
        """False: nothing is cached."""
        return False

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NoReturn:
        """Raise."""
        raise EvaluationOff(f"[empty] {shape} {dtype}: {MESSAGE}")
