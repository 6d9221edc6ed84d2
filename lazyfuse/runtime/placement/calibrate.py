"""`lazyfuse.calibrate()`: what work costs on every usable device of this machine.

Owns the kernels that are timed and the figures in use. devices/cost.py takes the times and reads
and writes the file; offload.py decides with the figures.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lazyfuse import config
from lazyfuse.codegen.lowering.kernel import Instruction, Kernel, Reduce, Store, cost
from lazyfuse.codegen.lowering.languages import lowering
from lazyfuse.codegen.lowering.lower import Lowered
from lazyfuse.codegen.lowering.narrow import single
from lazyfuse.devices import cpu_figures, registry, settings
from lazyfuse.devices.base import Array, Device, DeviceError, Launch
from lazyfuse.devices.cost import FILE_LIMIT, CostFile, Costs, Probe, measure
from lazyfuse.devices.pools.disk_cache import DiskCache
from lazyfuse.runtime.placement import calibrate_cpu

# Operands in the L2 cache, in the L3 cache, in memory. Blocked NumPy only gets small kernels.
SIZES = {"numpy": (1 << 15, 1 << 17)}
CPU_SIZES = (1 << 17, 1 << 19, 1 << 22)
GPU_SIZES = (1 << 17, 1 << 20, 1 << 24)  # fewer elements do not fill a GPU
LINKS = 24  # dependent multiplications and additions: arithmetic takes longer than memory
_F8 = ("f8", "f8")

_in_use: dict[str, Costs] | None = None  # None: the file was not read yet


def calibrate(verbose: bool = False) -> dict[str, Costs]:
    """Measure every usable device and keep the figures; returns costs by device.

    Takes a few seconds per device. From then on, plans in this process and later ones choose
    between the devices, unless the user names one.
    """
    known = figures()
    found: dict[str, Costs] = {}
    for entry in registry.devices():
        costs = _measure(entry.name, known) if entry.available else None
        if costs is not None:
            found[costs.device] = costs
    use(found)
    _file().write(found)
    tune()
    if verbose:
        show(found)
        print(calibrate_cpu.described(cpu_figures.tuning()))
    return found


def tune() -> cpu_figures.Tuning:
    """Measure what schedules on the CPU need to know, and keep it. Takes less than a second."""
    device = registry.device("cpu")
    if "numba" in device.traits.languages:
        times = calibrate_cpu.measure(device, calibrate_cpu.FULL, full=True)
        _tuning_file().write(times)
        cpu_figures.use(calibrate_cpu.figures(times))
        _notify()
    return cpu_figures.tuning()


def tuned(device: Device, kernels: Callable[[], int]) -> cpu_figures.Tuning:
    """The figures kept for this machine, read once; measured at exit if few were kept.

    `kernels()` returns how many kernels have run.
    """
    global _tuned
    if not _tuned:
        _tuned = True
        file = _tuning_file()
        cpu_figures.use(calibrate_cpu.figures(file.read()))
        # a user who turns off compiling ahead wants each run to do the same: do not measure
        ahead = config.options.compile_ahead and "numba" in device.traits.languages
        if ahead and file.disk.enabled:
            calibrate_cpu.at_exit(device, _tuning_file, kernels)
    return cpu_figures.tuning()


_tuned = False


def _tuning_file() -> calibrate_cpu.File:
    return calibrate_cpu.File(_file().disk)


def figures() -> dict[str, Costs]:
    """The costs of this machine's devices: just measured, or else read from the file."""
    global _in_use
    if _in_use is None:
        _in_use = _file().read()
    return _in_use


def use(costs: dict[str, Costs] | None) -> None:
    """Use these figures in this process. None: read the file again when they are next needed."""
    global _in_use
    _in_use = costs
    _notify()


def on_change(callback: Callable[[], None]) -> None:
    """Call `callback()` whenever the figures may have changed."""
    _observers.append(callback)


_observers: list[Callable[[], None]] = []


def _notify() -> None:
    for callback in _observers:
        callback()


for _name in ("cache", "cache_dir"):
    config.on_change(_name, lambda _: use(None))


def _file() -> CostFile:
    """The file next to the folder of compiled programs."""
    options = config.options
    named = os.path.expanduser(options.cache_dir)
    programs = settings.cache_directory()
    above = named or (os.path.dirname(programs) if programs else "")
    folder = os.path.join(above, "costs") if above else ""
    return CostFile(DiskCache(folder, FILE_LIMIT, options.cache and settings.cache_enabled()))


def _measure(name: str, known: dict[str, Costs]) -> Costs | None:
    """Costs of a device, or None if it computes nothing or turns out to be unusable."""
    start = time.perf_counter()
    try:
        device = registry.device(name)
        opening = time.perf_counter() - start
        traits = device.traits
        if traits.kind == "none" or not traits.languages:
            return None
        before = known.get(traits.name)
        costs = measure(device, probes(device), max(opening, 1e-6), before)
    except DeviceError:
        return None
    return costs if costs.tiers else None


# Probes


def probes(device: Device, sizes: Sequence[int] = ()) -> list[Probe]:
    """The programs that are timed: in all languages of the CPU, in the first of another device.

    They compute in float64, or in float32 where the device lacks it.
    The few kernels that another device cannot run in its first language are estimated in it too.
    """
    sizes = sizes or (GPU_SIZES if device.traits.kind == "gpu" else CPU_SIZES)
    arrays = _Arrays(device)
    found = []
    languages = device.traits.languages
    for language in languages if "numpy" in languages else languages[:1]:
        for size in SIZES.get(language, sizes):
            found.append(_probe(device, arrays, "map", _ADD, language, size))
            found.append(_probe(device, arrays, "reduce", _SUM, language, size))
        size = SIZES.get(language, sizes)[1]
        found.append(_probe(device, arrays, "arithmetic", _CHAIN, language, size))
        found.append(_probe(device, arrays, "functions", _FUNCTIONS, language, size))
        # last: the addition's program is built by now, so building is no part of the overhead
        found.append(_probe(device, arrays, "empty", _ADD, language, 16))
    return found


class _Arrays:
    """Arrays for the probes, each shared by all probes that can use it."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._dtype = np.dtype("f8" if device.traits.fp64 else "f4")
        self._found: dict[Any, Array] = {}

    def __call__(self, role: Any, shape: tuple[int, ...]) -> Array:
        key = (role, shape)
        array = self._found.get(key)
        if array is None:
            array = self._found[key] = self._device.empty(shape, self._dtype)
            array[...] = 0.5
        return array


def _probe(
    device: Device, arrays: _Arrays, kind: str, kernel: Kernel, language: str, size: int
) -> Probe:
    kernel = kernel if device.traits.fp64 else single(kernel)
    operands = [arrays(k, (size,)) for k in range(len(kernel.inputs))]
    operands += [arrays("out", (size,)) for _ in kernel.stores]
    operands += [arrays("total", ()) for _ in kernel.reductions]
    strides = [(1,)] * (len(kernel.inputs) + len(kernel.stores)) + [(0,)] * len(kernel.reductions)
    split = len(kernel.inputs)
    lowered: Lowered = lowering(language)(kernel, (size,), strides[:split], strides[split:])
    operands += [arrays(k, shape) for k, (shape, _) in enumerate(lowered.temporaries, 100)]

    def launch(placed: Sequence[Array]) -> Launch:
        return lowered.launch(language, placed, ())

    moved = sum(array.nbytes for array in operands[: split + len(kernel.stores)])
    source = lowered.source(language)
    return Probe(kind, source, tuple(operands), split, launch, moved, size * cost(kernel))


def _map(count: int, *body: Instruction) -> Kernel:
    """A kernel that stores its last value."""
    return Kernel(1, ("f8",) * count, (), body, (Store(count + len(body) - 1, "f8"),))


_ADD = _map(2, Instruction("add", (0, 1), _F8, "f8"))
_SUM = Kernel(1, ("f8",), (), (), (), (Reduce("add", 0, "f8", "f8"),), (True,))
_CHAIN = _map(
    2,
    Instruction("multiply", (0, 1), _F8, "f8"),
    *(
        Instruction(("add", "multiply")[link % 2], (link + 2, link % 2), _F8, "f8")
        for link in range(LINKS - 1)
    ),
)
_FUNCTIONS = _map(
    1,
    Instruction("exp", (0,), ("f8",), "f8"),
    Instruction("sin", (0,), ("f8",), "f8"),
    Instruction("add", (1, 2), _F8, "f8"),
    Instruction("log", (0,), ("f8",), "f8"),
    Instruction("add", (3, 4), _F8, "f8"),
)


# Showing

_HEADER = (
    "device", "language", "launch us", "wait us", "map GB/s", "reduce GB/s", "sums G/s",
    "exp G/s", "build ms", "load ms", "to GB/s", "from GB/s",
)  # fmt: skip


def lines(costs: dict[str, Costs]) -> list[tuple[str, ...]]:
    """The figures as a table: a header, then a line per device and language."""
    found: list[tuple[str, ...]] = [_HEADER]
    for each in costs.values():
        links = [
            "shared" if each.shares_memory else f"{link.rate / 1e9:.1f}"
            for link in (each.upload, each.download)
        ]
        for language, tier in each.tiers.items():
            figures = (
                f"{tier.launch * 1e6:.1f}",
                f"{tier.wait * 1e6:.1f}",
                " ".join(f"{rate / 1e9:.0f}" for _, rate in tier.map_rates),
                " ".join(f"{rate / 1e9:.0f}" for _, rate in tier.reduce_rates),
                f"{tier.arithmetic / 1e9:.1f}",
                f"{tier.functions / 1e9:.1f}",
                f"{tier.compile * 1e3:.0f}",
                f"{tier.load * 1e3:.1f}",
            )
            found.append((each.device, language, *figures, *links))
    return found


def show(costs: dict[str, Costs]) -> None:
    """Print the table."""
    table = lines(costs)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        print("  ".join(map(str.rjust, line, widths)))
