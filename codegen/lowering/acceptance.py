"""Whether a specialised program text gives the results of the general one.

Owns the trial: what both run on, and what counts as equal. The caller passes the device to run on;
imports no compiler.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from lazyfuse.codegen.graph.shapes import contiguous_strides
from lazyfuse.codegen.lowering.kernel import Kernel, is_exact
from lazyfuse.codegen.lowering.lower import Lowered, lower
from lazyfuse.codegen.lowering.registered_kernels import Specialisation
from lazyfuse.codegen.lowering.variant import KernelVariant
from lazyfuse.codegen.table import ops
from lazyfuse.codegen.table.op import Verdict
from lazyfuse.devices.base import Device, DeviceError, Source

Array = np.ndarray[Any, np.dtype[Any]]
Shape = tuple[int, ...]

# Sizes along one axis: below, at and between the widths of vectors, blocks and chunks.
SIZES = (1, 7, 64, 1027, 40_000, 300_001)
# Hardware differs in when it reports underflow.
REPORTED = 1 | 2 | 8


def check(specialisation: Specialisation, device: Device) -> Verdict:
    """Run both texts on random operands; from now on variants that agreed use the specialisation.

    A specialisation that differs anywhere is not used at all.
    """
    specialisation.passed.clear()
    if specialisation.language not in device.traits.languages:
        name, language = device.traits.name, specialisation.language
        specialisation.failure = f"it was not checked: device {name} does not run {language}"
        return Verdict(False, specialisation.failure)
    rng = np.random.default_rng(0)
    passed: set[KernelVariant] = set()
    try:
        for case in _cases(specialisation.kernel, rng):
            why = case.difference(specialisation, device)
            if why:
                specialisation.failure = why
                return Verdict(False, why)
            if why is not None:
                passed.add(case.lowered.variant)
    except DeviceError as error:
        specialisation.failure = f"it does not build or run: {error}"
        return Verdict(False, specialisation.failure)
    specialisation.failure = "" if passed else "it serves none of the forms that were tried"
    specialisation.passed |= passed
    return Verdict(bool(passed), specialisation.failure)


class _Case:
    """One set of operands, and how the kernel runs on them."""

    def __init__(
        self, kernel: Kernel, shape: Shape, inputs: list[Array], scalars: tuple[Any, ...]
    ) -> None:
        self.kernel = kernel
        self.shape = shape
        self.inputs = inputs
        self.scalars = scalars
        strides = [_steps(array) for array in inputs]
        self.lowered: Lowered = lower(kernel, shape, strides, self.output_strides())

    def kept(self) -> Shape:
        flags = self.kernel.reduced
        return tuple(size for size, flag in zip(self.shape, flags, strict=True) if not flag)

    def outputs(self) -> list[Array]:
        """New arrays for the results, filled with values that a run must overwrite."""
        made = [np.empty(self.shape, store.dtype) for store in self.kernel.stores]
        if self.kernel.reductions:
            made += [np.empty(self.kept(), each.dtype) for each in self.kernel.reductions]
        for array in made:
            array.view(np.uint8 if array.ndim else array.dtype)[...] = 1
        return made

    def output_strides(self) -> list[Shape]:
        stores = [_packed(self.shape)] * len(self.kernel.stores)
        if not self.kernel.reductions:
            return stores
        steps = iter(_packed(self.kept()))
        totals = tuple([0 if flag else next(steps) for flag in self.kernel.reduced])
        return stores + [totals] * len(self.kernel.reductions)

    def difference(self, specialisation: Specialisation, device: Device) -> str | None:
        """How the two texts differ here; empty if they agree, None if there is no text."""
        general = self.lowered.source(specialisation.language)
        special = specialisation.source(general, self.lowered.variant)
        if special is None:
            return None
        for in_place in (False, True) if self.may_overwrite() else (False,):
            wanted, flags = self.run(general, device, in_place)
            found, raised = self.run(special, device, in_place)
            place = f"shape {self.shape}, strides {[_steps(array) for array in self.inputs]}"
            for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
                exact = is_exact(self.kernel)
                signs = number < len(self.kernel.stores)
                if not _agree(one, other, 0 if exact else _ulps(self.kernel), signs):
                    return f"output {number} differs from the general text's for {place}"
            if (flags ^ raised) & REPORTED:
                return f"it reports conditions {raised} where the general text has {flags}: {place}"
        return ""

    def may_overwrite(self) -> bool:
        """Whether the first result may take the memory of the first operand."""
        stores, inputs = self.kernel.stores, self.inputs
        if not stores or not inputs or stores[0].dtype != self.kernel.inputs[0]:
            return False
        return _steps(inputs[0]) == _packed(self.shape)

    def run(self, source: Source, device: Device, in_place: bool) -> tuple[list[Array], int]:
        """The results of one text, and the exceptions that it reports."""
        inputs, outputs = list(self.inputs), self.outputs()
        if in_place:
            inputs[0] = outputs[0]
            outputs[0][...] = self.inputs[0]
        temporaries = [np.empty(shape, dtype) for shape, dtype in self.lowered.temporaries]
        memory = device.memory
        arrays = [*inputs, *outputs, *temporaries]
        if memory is None:
            flags = _launched(self.lowered, source, device, arrays, self.scalars)
        else:
            there = {id(array): memory.upload(_block(array)) for array in arrays}
            stand_ins = [_seen_as(there[id(array)], array) for array in arrays]
            flags = _launched(self.lowered, source, device, stand_ins, self.scalars)
            for array in (*outputs, *temporaries):
                array[...] = memory.gather(there[id(array)]).reshape(array.shape)
        with np.errstate(all="ignore"):
            self.lowered.finish(arrays)
        return outputs, flags


def _launched(
    lowered: Lowered, source: Source, device: Device, arrays: Sequence[Array], scalars: Any
) -> int:
    launch = lowered.launch(source.language, arrays, scalars)
    outcome = device.compile(source).launch(launch)
    return outcome if isinstance(outcome, int) else outcome.flags()


def _block(array: Array) -> Array:
    """The whole block that a trial operand lies in."""
    return array if array.base is None else array.base


def _seen_as(block: Array, array: Array) -> Array:
    """The part of the meta array `block` that corresponds to `array` in its own block."""
    own = _block(array)
    start = array.__array_interface__["data"][0] - own.__array_interface__["data"][0]
    return np.ndarray(array.shape, array.dtype, block, start, array.strides)


# ------------------------------------------------------------------------------------ operands


def _cases(kernel: Kernel, rng: np.random.Generator) -> Iterator[_Case]:
    """Operands of several sizes and layouts, with and without values that are special."""
    for shape, layout, special in itertools.product(
        _shapes(max(kernel.rank, 1)), ("dense", "strided", "backwards", "turned"), (False, True)
    ):
        if layout == "turned" and len(shape) < 2:
            continue
        inputs = [_laid_out(_values(rng, shape, d, special), layout) for d in kernel.inputs]
        scalars = tuple(_values(rng, (1,), dtype, special)[0] for dtype in kernel.scalars)
        yield _Case(kernel, shape, inputs, scalars)


def _shapes(rank: int) -> list[Shape]:
    if rank == 1:
        return [(size,) for size in SIZES]
    rest = rank - 1
    long = [(2,) * (rest - 1) + (3, size) for size in SIZES[:5]]
    return [*long, (1200, *(3,) * rest), (70,) * min(rank, 2) + (5,) * (rank - min(rank, 2))]


def _values(rng: np.random.Generator, shape: Shape, dtype: str, special: bool) -> Array:
    kind = dtype[0]
    if kind == "b":
        return np.asarray(rng.random(shape) < (0.999 if special else 0.5))
    if kind in "iu":
        limits = np.iinfo(dtype)
        odd = np.array([0, 1, limits.min, limits.max], dtype)
        low, high = (limits.min, limits.max) if special else (max(limits.min, -50), 50)
        found = rng.integers(low, high, shape, dtype=dtype, endpoint=True)
        return _mixed(rng, found, odd) if special else found
    values: Any = rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)
    if kind == "c":
        values = values + 1j * rng.standard_normal(shape)
    found = np.asarray(values, dtype)
    largest = np.finfo(dtype).max
    odd = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, largest], dtype)
    return _mixed(rng, found, odd) if special else found


def _mixed(rng: np.random.Generator, values: Array, odd: Array) -> Array:
    """The values with every fiftieth (at least one) replaced by a special value."""
    places = rng.integers(0, values.size, max(1, values.size // 50))
    values.reshape(-1)[places] = odd[rng.integers(0, len(odd), len(places))]
    return values


def _laid_out(values: Array, layout: str) -> Array:
    """The same values in another memory layout."""
    if layout == "dense":
        return values
    if layout == "turned":
        memory = np.empty(values.shape[::-1], values.dtype).transpose()
    else:
        times = 2 if layout == "strided" else 1
        memory = np.empty((*values.shape[:-1], times * values.shape[-1]), values.dtype)
        memory = memory[..., ::2] if layout == "strided" else memory[..., ::-1]
    memory[...] = values
    return memory


def _steps(array: Array) -> Shape:
    return tuple(
        0 if size == 1 else stride // array.itemsize
        for size, stride in zip(array.shape, array.strides, strict=True)
    )


def _packed(shape: Shape) -> Shape:
    steps = zip(contiguous_strides(shape), shape, strict=True)
    return tuple([step if size > 1 else 0 for step, size in steps])


def _ulps(kernel: Kernel) -> int:
    """The error allowed to all operations of a kernel together."""
    return sum(ops.TABLE[each.op].ulps for each in kernel.body)


def _agree(found: Array, wanted: Array, ulps: int, signs: bool) -> bool:
    """Equal values up to `ulps`; with `signs`, zeros of different sign are not equal.

    NaNs are equal to each other. Extremes may pick a zero of either sign.
    """
    if found.dtype.kind not in "fc":
        return bool(np.array_equal(found, wanted))
    if found.dtype.kind == "c":
        parts = ((found.real, wanted.real), (found.imag, wanted.imag))
        return all(_agree(one, other, ulps, signs) for one, other in parts)
    if signs and not np.array_equal(*(np.signbit(x) & (x == 0) for x in (found, wanted))):
        return False
    limit = ulps * np.finfo(found.dtype).eps
    return bool(np.allclose(found, wanted, rtol=limit, atol=0.0, equal_nan=True))
