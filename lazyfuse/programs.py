"""Which program runs a kernel: its geometry, its language, and what is remembered of both.

Owns the rules of the tiers: on the CPU compiled text or blocked NumPy, by size and use; on other
devices their own languages in order. Knows steps and devices, no values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from lazyfuse import config, precision, report
from lazyfuse.codegen.kernel import Instruction, Kernel, KernelError, Store
from lazyfuse.codegen.languages import lowering
from lazyfuse.codegen.lower import Lowered
from lazyfuse.codegen.ops import COPY
from lazyfuse.codegen.plan import KernelStep
from lazyfuse.codegen.shapes import size_of
from lazyfuse.devices.base import (
    Device,
    DeviceError,
    DeviceLost,
    Later,
    Launch,
    Program,
    Source,
)
from lazyfuse.windows import strides_kept, strides_over

Array = np.ndarray[Any, np.dtype[Any]]
Ready = tuple[Lowered, Program | None]

# Below this many element operations a kernel runs as blocked NumPy: it is done before a compiled
# program would be loaded. For inexact kernels this is the whole rule, so that runs repeat bitwise.
COMPILE_ELEMENTS = 32768


@dataclass(slots=True)
class Refused:
    """Stands for a program that a device would not build, so that it is not asked again."""

    source: Source
    reason: str

    def launch(self, launch: Launch) -> int | Later:
        """Never."""
        raise DeviceError(self.reason)


class Both:
    """The outcome of two launches."""

    __slots__ = ("first", "second")

    def __init__(self, first: Later | int, second: Later | int) -> None:
        self.first = first
        self.second = second

    def flags(self) -> int:
        """As `base.Later.flags`."""
        bits = [each if isinstance(each, int) else each.flags() for each in self]
        return bits[0] | bits[1]

    def __iter__(self) -> Iterator[Later | int]:
        yield self.first
        yield self.second


def ready(
    step: KernelStep,
    shape: tuple[int, ...],
    inputs: list[Array],
    outputs: list[Array],
    order: tuple[int, ...] | None,
    device: Device,
    refused: Callable[[KernelStep, str], None],
) -> tuple[Lowered, Program]:
    """A kernel lowered to these sizes and strides, and its program on a device.

    `refused` is told why where the CPU's compiler refuses a kernel and the interpreter takes over.
    """
    key = (
        device,
        shape,
        tuple([(array.shape, array.strides) for array in inputs]),
        tuple([array.strides for array in outputs]),
    )
    found: Ready | None = step.ready.get(key)
    if found is None:
        kernel = precision.fitted(step.kernel, device.traits)
        decide = partial(_lowered, kernel, shape, inputs, outputs, order)
        if "numpy" in device.traits.languages:
            found = decide("numpy"), None
        else:
            found = _first(step, decide, device)
        limit = config.options.ready_limit
        if len(step.ready) >= limit:
            step.ready.clear()
        if limit:
            step.ready[key] = found
    lowered, program = found
    if program is None:
        program = _program(step, lowered, shape, device)
        if isinstance(program, Refused) and program.source.language == "numba":
            refused(step, program.reason)
            key_of_program = device, program.source
            program = compiled(step, lowered.source("numpy"), device)
            step.programs[key_of_program] = program
        if _is_final(program, lowered) and key in step.ready:
            step.ready[key] = lowered, program
    return lowered, program


def _lowered(
    kernel: Kernel,
    shape: tuple[int, ...],
    inputs: list[Array],
    outputs: list[Array],
    order: tuple[int, ...] | None,
    language: str,
) -> Lowered:
    rank = len(shape)
    for array in inputs:
        if any(stride % array.itemsize for stride in array.strides):
            raise DeviceError("[launch] strides: expected whole elements")
    in_strides = tuple([strides_over(array, shape, rank) for array in inputs])
    stores = len(kernel.stores)
    out_strides = tuple(
        [strides_over(array, shape, rank) for array in outputs[:stores]]
        + [strides_kept(array, kernel.reduced, rank) for array in outputs[stores:]]
    )
    lowered: Lowered = lowering(language)(kernel, shape, in_strides, out_strides, order)
    return lowered


def _is_final(program: Program, lowered: Lowered) -> bool:
    """Whether the choice of the program would be the same the next time."""
    return program.source.language == "numba" or not lowered.source("numba").exact


def _program(step: KernelStep, lowered: Lowered, shape: tuple[int, ...], device: Device) -> Program:
    """The program of a kernel in one of the CPU's languages."""
    languages = device.traits.languages
    if len(languages) == 1:
        return compiled(step, lowered.source(languages[0]), device)
    return compiled(step, _tier(step, lowered, shape, device), device)


def _first(
    step: KernelStep, decide: Callable[[str], Lowered], device: Device
) -> tuple[Lowered, Program]:
    """A kernel and its program in the first language of a device that can say it."""
    reasons = []
    for language in device.traits.languages:
        try:
            lowered = decide(language)
            program = compiled(step, lowered.source(language), device)
        except KernelError as error:
            reasons.append(f"{language}: {error}")
            continue
        if not isinstance(program, Refused):
            return lowered, program
        reasons.append(f"{language}: {program.reason}")
    nothing = Source(device.traits.languages[0], "", "", 0, (), ())
    return decide("numpy"), Refused(nothing, "; ".join(reasons))


def compiled(step: KernelStep, source: Source, device: Device) -> Program:
    """The program of a source on a device; a refusal is remembered as such."""
    key = device, source
    program: Program | None = step.programs.get(key)
    if program is None:
        try:
            program = report.compiled(device, source)
        except DeviceLost:
            raise
        except DeviceError as error:
            program = Refused(source, str(error))
        step.programs[key] = program
    return program


def _tier(step: KernelStep, lowered: Lowered, shape: tuple[int, ...], device: Device) -> Source:
    """Compiled text or blocked NumPy on the CPU: what is done first."""
    large = size_of(shape) * max(step.cost, 1.0) >= COMPILE_ELEMENTS
    source = lowered.source("numba")
    if not source.exact:
        return source if large else lowered.source("numpy")
    if (device, source) in step.programs:
        return source
    if not large:
        return lowered.source("numpy")
    step.uses += 1
    if step.uses > config.options.compile_after or device.cached(source):
        return source
    return lowered.source("numpy")


def copying(
    array: Array, shape: tuple[int, ...], into: Array, device: Device
) -> tuple[Lowered, Program]:
    """Lowered kernel and program that copy `array`, which broadcasts to `shape`, into `into`."""
    rank = len(shape)
    dtype = into.dtype.str[1:]
    body = (Instruction(COPY.name, (0,), (dtype,), dtype),)
    kernel = Kernel(rank, (dtype,), (), body, (Store(1, dtype),))
    kernel = precision.fitted(kernel, device.traits)
    strides = (strides_over(array, shape, rank),), (strides_over(into, shape, rank),)
    reasons = []
    for language in device.traits.languages:
        try:
            lowered = lowering(language)(kernel, shape, *strides)
            return lowered, report.compiled(device, lowered.source(language))
        except KernelError as error:
            reasons.append(f"{language}: {error}")
    raise DeviceError(f"[print] copy: {'; '.join(reasons)}")
