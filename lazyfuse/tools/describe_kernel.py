"""How a kernel of a plan would run on the CPU, in words: tier, chunks, threads, tiles, in place.

Owns the sentences of `explain`. The decisions are those of lower.py, launch.py and lifetimes.py for
the present sizes. Runs nothing.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from lazyfuse.codegen.graph.shapes import size_of
from lazyfuse.codegen.lowering.kernel import KernelError
from lazyfuse.codegen.plan.chains import Chain, multiplies_rows
from lazyfuse.codegen.plan.plan import KernelStep
from lazyfuse.devices.base import Device, Source, Traits
from lazyfuse.devices.cpu.launch import weight
from lazyfuse.runtime.execution import program_tiers
from lazyfuse.runtime.execution.tiles import PRODUCT_ROWS
from lazyfuse.runtime.placement import devices
from lazyfuse.runtime.placement.plan_sizes import SizedPlan

if TYPE_CHECKING:
    from lazyfuse.devices.cpu.device import CPU


def of_kernel(geometry: SizedPlan, step: KernelStep, device: Device, language: str) -> list[str]:
    """Lines about one kernel; none if the device is not the CPU."""
    cpu = devices.cpu()
    if device is not cpu or language not in ("numba", "numpy"):
        return []
    elements = geometry.size(step.domain_of)
    if not elements:
        return []
    try:
        lowered = geometry.lowered(step, language)
        sizes = lowered.table(language).sizes
        each = weight(lowered.source(language).text) if language == "numba" else step.cost
    except KernelError:
        return []
    threads = _threads(cpu, elements * each, len(sizes), language == "numpy")
    lines = [f"{_tier(_additions(geometry, step), language)}; {threads}"]
    if lowered.variant.stream and language == "numba":
        lines.append("results go past the caches: with an operand they are larger than the last")
    lines += _in_place(geometry, step)
    return lines


def size(count: int) -> str:
    """A number of bytes in words."""
    for unit, scale in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} B"


def source_of(geometry: SizedPlan, step: KernelStep, traits: Traits) -> Source | None:
    """The text that the executor takes for a kernel on a device of these traits, once it may be
    compiled; None where no language of the device can express it.
    """
    languages = traits.languages
    if "numpy" in languages and _additions(geometry, step) < program_tiers.COMPILE_ELEMENTS:
        languages = ("numpy",)
    for language in languages:
        with suppress(KernelError):
            return geometry.source(step, language, traits)
    return None


def _additions(geometry: SizedPlan, step: KernelStep) -> float:
    """The work of a kernel, as a number of additions."""
    return geometry.size(step.domain_of) * max(step.cost, 1.0)


def _tier(additions: float, language: str) -> str:
    least = program_tiers.COMPILE_ELEMENTS
    if language == "numpy":
        if additions < least:
            return f"blocked NumPy: {additions:,.0f} additions' worth of work, below {least:,}"
        return "blocked NumPy"
    return f"compiled: {additions:,.0f} additions' worth of work, {least:,} or more"


def _threads(device: CPU, work: float, chunks: int, interpreted: bool) -> str:
    """The number of threads, and its reason."""
    text = f"{chunks:,} chunk{'s' * (chunks != 1)}"
    most = device.threads.threads
    used = device.work.helpers(work, chunks, native=False) + 1
    above = device.work.threads_above
    if most == 1:
        return f"{text} on the only thread"
    if used == 1:
        why = f"below {above:,} additions" if work < above else "nothing to share"
        return f"{text} on one thread ({why})"
    why = f"{work:,.0f} additions, at least {above:,}"
    if interpreted:  # measured when it runs, see `NumpyProgram` in launch.py
        return f"{text} on {used} threads ({why}), or one where NumPy's calls are short"
    return f"{text} on {used} threads ({why})"


def _in_place(geometry: SizedPlan, step: KernelStep) -> list[str]:
    """Which results are written into existing memory."""
    lines = []
    for update in step.targets.values():
        if update in geometry.plan.in_place:
            lines.append("written straight into the array that it updates: no reader is left")
        else:
            lines.append("written into a copy of the array that it updates: its old value is read")
    if step.may_reuse:
        lines.append("an operand without later readers may give its buffer to a result")
    return list(dict.fromkeys(lines))


def tiles(geometry: SizedPlan, chain: Chain) -> str:
    """The approximate size of a chain's tiles, and its reason."""
    least = min(_bytes_per_row(geometry, chain, which) for which in range(len(chain.tilings)))
    value, axis = chain.tilings[0].size_of
    rows = geometry.shape(value)[axis]
    if not rows or not least:
        return ""
    room = devices.tuning().tile_bytes
    fewest = PRODUCT_ROWS if multiplies_rows(chain, geometry.plan.graph) else 1
    count = min(rows, max(room // least, fewest))
    return (
        f"; tiles of at most {count:,} of {rows:,} rows, {least:,} bytes each: "
        f"{room >> 10} KB is half of the second cache"
    )


def _bytes_per_row(geometry: SizedPlan, chain: Chain, which: int) -> int:
    """Bytes of operands, results and scratch for one index of the tiled axis."""
    total = 0
    tiling = chain.tilings[which]
    for index in (*chain.loads, *chain.kept, *chain.inner):
        place = tiling.axis_of.get(index)
        if place is not None:
            shape = geometry.shape(index)
            each = size_of(shape) // max(shape[place], 1)
            total += each * geometry.values[index].dtype.itemsize
    return total
