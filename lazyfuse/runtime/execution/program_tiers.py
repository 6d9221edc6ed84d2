"""Which program runs a kernel: its geometry, its language, and the record of earlier choices.

Owns the rules of the tiers: on the CPU compiled text or blocked NumPy, by size and use; on other
devices their own languages in order. Knows steps and devices, no values.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from lazyfuse import config
from lazyfuse.codegen.graph.shapes import size_of
from lazyfuse.codegen.lowering.kernel import Instruction, Kernel, KernelError, Store
from lazyfuse.codegen.lowering.languages import VECTOR, lowering
from lazyfuse.codegen.lowering.lower import Lowered
from lazyfuse.codegen.plan.plan import KernelStep
from lazyfuse.codegen.table.ops import COPY
from lazyfuse.devices.base import (
    Device,
    DeviceError,
    DeviceLost,
    Later,
    Launch,
    Program,
    Source,
)
from lazyfuse.devices.dataclass import dataclass
from lazyfuse.runtime.events import counters
from lazyfuse.runtime.execution.moved import Others
from lazyfuse.runtime.layout.strides import strides_kept, strides_over
from lazyfuse.runtime.numerics import narrow_precision

Array = np.ndarray[Any, np.dtype[Any]]
Selected = tuple[Lowered, Program | None]

# Below this many element operations a kernel runs as blocked NumPy: it is done before a compiled
# program is loaded. For inexact kernels this is the whole rule, so that runs repeat bitwise.
COMPILE_ELEMENTS = 32768
# From this many element operations on, a kernel goes to the compiler's process on its first use: as
# blocked NumPy it takes so long that a second use gains by it.
AHEAD_ELEMENTS = 1 << 18

# Most sizes and strides for which a kernel or a chain stays bound: one entry per shape and layout.
MOST_SIZES = 64


@dataclass
class Refused(Program):
    """A placeholder for a program that a device refused to build, so that it is not asked again."""

    source: Source
    reason: str

    def launch(self, launch: Launch) -> int | Later:
        """Raise `DeviceError`."""
        raise DeviceError(self.reason)


@dataclass
class Both:
    """The pending outcome of two launches."""

    first: Later | int
    second: Later | int

    def flags(self) -> int:
        """The IEEE flags of both launches, as from `base.Later.flags`."""
        both = self.first, self.second
        bits = [each if isinstance(each, int) else each.flags() for each in both]
        return bits[0] | bits[1]


def select_program(
    step: KernelStep,
    shape: tuple[int, ...],
    inputs: list[Array],
    outputs: list[Array],
    order: tuple[int, ...] | None,
    device: Device,
    refused: Callable[[KernelStep, str], None],
    others: Others = (),
    whole: int = 0,
) -> tuple[Lowered, Program]:
    """A kernel lowered to these sizes and strides, and its program on a device.

    `whole`: the elements of a kernel that runs box by box; they decide the tier of each box.
    `refused` is called with the reason where the CPU's compiler refuses a kernel. Then blocked
    NumPy runs it.
    """
    key = size_key(step, device, shape, inputs, outputs, others, whole)
    whole = max(whole, size_of(shape))
    found: Selected | None = step.selected.get(key)
    if found is None:
        kernel = narrow_precision.fitted(step.kernel, device.traits)
        decide = partial(_lowered, kernel, shape, inputs, outputs, order, others)
        if "numpy" in device.traits.languages:
            found = decide("numpy"), None
        else:
            found = _first(decide, lambda source: compiled(step, source, device), device)
        if len(step.selected) >= MOST_SIZES:
            step.selected.clear()
        step.selected[key] = found
    lowered, program = found
    if program is None:
        program = _program(step, lowered, whole, device)
        if isinstance(program, Refused) and program.source.language == "numba":
            refused(step, program.reason)
            key_of_program = device, program.source
            program = _blocked(step, lowered, device)
            program = program or compiled(step, lowered.source("numpy"), device)
            step.programs[key_of_program] = program
        if _is_final(program, lowered, step, whole) and key in step.selected:
            step.selected[key] = lowered, program
    return lowered, program


def size_key(
    step: KernelStep,
    device: Device,
    shape: tuple[int, ...],
    inputs: list[Array],
    outputs: list[Array],
    others: Others = (),
    whole: int = 0,
) -> tuple[Any, ...]:
    """The key of what a kernel keeps per geometry (`KernelStep.selected`)."""
    return (
        device,
        shape,
        tuple([(array.shape, array.strides) for array in inputs]),
        tuple([array.strides for array in outputs]),
        step.domain_elements,
        others,
        whole,
    )


def _lowered(
    kernel: Kernel,
    shape: tuple[int, ...],
    inputs: list[Array],
    outputs: list[Array],
    order: tuple[int, ...] | None,
    others: Others,
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
    named = {"others": others} if others else {}
    lowered: Lowered = lowering(language)(kernel, shape, in_strides, out_strides, order, **named)
    return lowered


def _is_final(program: Program, lowered: Lowered, step: KernelStep, elements: int) -> bool:
    """Whether the choice of the program will be the same the next time."""
    source = program.source
    if source.language == "numba" or (source.exact and not lowered.source("numba").exact):
        return True
    # a small kernel is not compiled, unless it has been for other sizes already
    return source.language == "numpy" and _work(step, lowered, elements) < COMPILE_ELEMENTS


def awaited(program: Program, lowered: Lowered, device: Device) -> Source | None:
    """The compiled text that takes a program's place once the compiler's process has it."""
    pool = device.programs
    if program.source.language != "numpy" or pool is None:
        return None
    source = lowered.source("numba")
    return source if pool.awaits(source) else None


def _work(step: KernelStep, lowered: Lowered, elements: int) -> float:
    """The work in additions by which the program of a kernel is chosen."""
    # the inexact kernels of a chain share one tier: it may run by tiles, with the same bits
    exact = lowered.source("numba").exact
    return (elements if exact else max(elements, step.domain_elements)) * max(step.cost, 1.0)


def _program(step: KernelStep, lowered: Lowered, elements: int, device: Device) -> Program:
    """The program of a kernel in one of the CPU's languages."""
    languages = device.traits.languages
    if len(languages) == 1:
        return compiled(step, lowered.source(languages[0]), device)
    return _tier(step, lowered, elements, device)


def _first(
    decide: Callable[[str], Lowered], build: Callable[[Source], Program], device: Device
) -> tuple[Lowered, Program]:
    """A kernel and its program in the first language of a device that can express it."""
    reasons = []
    for language in device.traits.languages:
        try:
            lowered = decide(language)
            program = build(lowered.source(language))
        except KernelError as error:
            reasons.append(f"{language}: {error}")
            continue
        if not isinstance(program, Refused):
            return lowered, program
        reasons.append(f"{language}: {program.reason}")
    nothing = Source(device.traits.languages[0], "", "", 0, (), ())
    return decide("numpy"), Refused(nothing, "; ".join(reasons))


def compiled(step: KernelStep, source: Source, device: Device) -> Program:
    """The program of a source on a device; a refusal is kept as a `Refused`."""
    key = device, source
    program: Program | None = step.programs.get(key)
    if program is None:
        try:
            program = counters.compiled(device, source)
        except DeviceLost:
            raise
        except DeviceError as error:
            program = Refused(source, str(error))
        step.programs[key] = program
    return program


def _tier(step: KernelStep, lowered: Lowered, elements: int, device: Device) -> Program:
    """Compiled text or blocked NumPy on the CPU: the one that finishes first.

    The bits of inexact kernels depend on their sizes alone: NumPy's below `COMPILE_ELEMENTS`, those
    of compiled text from there on. Blocked text over the same functions has the latter, too.
    """
    source = lowered.source("numba")
    work = _work(step, lowered, elements)
    small = work < COMPILE_ELEMENTS
    if (device, source) in step.programs and (source.exact or not small):
        return compiled(step, source, device)
    if small:
        return compiled(step, lowered.source("numpy"), device)
    step.uses += 1
    often = step.uses > config.options.compile_after
    if not device.compiles_ahead():
        _report_lost_worker(device)
        wanted = often or not source.exact or device.cached(source)
        return compiled(step, source if wanted else lowered.source("numpy"), device)
    wanted = often or work >= AHEAD_ELEMENTS or device.cached(source)
    if wanted and not counters.awaited(device, source):
        return compiled(step, source, device)
    return _blocked(step, lowered, device) or compiled(step, source, device)


def is_exact(lowered: Lowered) -> bool:
    """Whether compiled text has the bits of blocked NumPy."""
    return bool(lowered.source("numpy").exact and lowered.source("numba").exact)


def has_tiered_up(step: KernelStep, lowered: Lowered, device: Device) -> bool:
    """Whether a small, hot, exact kernel has compiled text from now on: no bit depends on it.

    Asks the compiler's process for it; without that process such kernels stay with blocked NumPy.
    """
    source = lowered.source("numba")
    if not source.exact or not device.compiles_ahead() or counters.awaited(device, source):
        return False
    if isinstance(compiled(step, source, device), Refused):
        return False
    step.selected.clear()
    return True


_reported: set[str] = set()  # lost workers that have been reported


def _report_lost_worker(device: Device) -> None:
    """Report once that this process compiles from now on, since the compiler's process is lost."""
    why = device.lost_worker()
    if why and why not in _reported:
        _reported.add(why)
        counters.fell_back([], why, "the compiler's process", "this one")


def _blocked(step: KernelStep, lowered: Lowered, device: Device) -> Program | None:
    """Blocked NumPy with the bits of compiled text; None if it cannot express an operation."""
    if lowered.source("numba").exact:
        return compiled(step, lowered.source("numpy"), device)
    with suppress(KernelError):
        program = compiled(step, lowered.source(VECTOR), device)
        if not isinstance(program, Refused):
            return program
    return None


def copying(
    array: Array, shape: tuple[int, ...], into: Array, device: Device
) -> tuple[Lowered, Program]:
    """Lowered kernel and program that copy `array`, which broadcasts to `shape`, into `into`."""
    dtype = into.dtype.str[1:]
    body = (Instruction(COPY.name, (0,), (dtype,), dtype),)
    kernel = Kernel(len(shape), (dtype,), (), body, (Store(1, dtype),))
    kernel = narrow_precision.fitted(kernel, device.traits)
    decide = partial(_lowered, kernel, shape, [array], [into], None, ())
    lowered, program = _first(decide, partial(counters.compiled, device), device)
    if isinstance(program, Refused):
        raise DeviceError(f"[print] copy: {program.reason}")
    return lowered, program
