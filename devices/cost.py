"""The cost of work on the devices of this machine: measured once, kept on disk.

Owns the figures, their measurement, and their file. Knows neither graphs nor kernels: the caller
passes probe programs with their launches, and describes work by bytes and additions.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
import time
import timeit
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, field
from typing import Any

import numpy as np

from lazyfuse.devices.dataclass import dataclass

from .base import Array, Device, DeviceError, DeviceMemory, Launch, Program, Source, Traits
from .caches import cached
from .pools import vector_math
from .pools.disk_cache import DiskCache
from .thread_pool import available

VERSION = 2  # of the file: figures of another version are measured again
FILE_LIMIT = 1 << 20  # bytes of the folder: a few machines that share it, a kilobyte each
ROUNDS = 3  # through all probes of a device: a disturbance may be over in the next round
SECONDS = 0.015  # to time one probe in a round: the shortest of many runs, at least `TURNS`
TURNS = 3
QUEUED = 10  # launches in a row, to separate the cost of a launch from that of a wait
POOLED = 50e-6  # a faster `compile` found the program in memory, and measures nothing
LEAST_PART = 0.1  # least share of work in a run: by noise, overheads can exceed whole runs
SMALLEST = 1e-9  # least figure: figures are divisors, and the clock resolves no less
COPIED = 16 << 20  # bytes of the copy that measures the rate; half a millisecond on any bus

Curve = tuple[tuple[float, float], ...]  # bytes moved, bytes per second at that size


@dataclass(frozen=True)
class Tier:
    """Figures for the programs of one language on one device.

    Rates of programs that only move memory depend on the bytes they move, since small operands
    stay in caches. `functions` counts exp, sin, ... in additions as the op table does.
    """

    launch: float  # seconds to start a program while others are pending
    wait: float  # further seconds until the host knows that the last one is done
    map_rates: Curve
    reduce_rates: Curve
    arithmetic: float  # additions per second
    functions: float  # additions' worth of mathematical functions per second
    compile: float  # seconds to build a program
    load: float  # seconds to load a built one from disk

    def seconds(self, moved: float, additions: float, functions: float, reduces: bool) -> float:
        """Seconds without the launch: the slower of memory and arithmetic, which overlap."""
        rate = rate_at(self.reduce_rates if reduces else self.map_rates, moved)
        return max(moved / rate, additions / self.arithmetic + functions / self.functions)


@dataclass(frozen=True)
class Link:
    """Copying between the host and a device: seconds per copy, bytes per second."""

    latency: float
    rate: float

    def seconds(self, moved: float) -> float:
        """Seconds of a copy of `moved` bytes."""
        return self.latency + moved / self.rate


@dataclass(frozen=True)
class Costs:
    """The figures of one device. `environment` shows whether they still apply to it."""

    device: str
    environment: str
    fp64: bool
    shares_memory: bool
    opening: float  # seconds until the device can be used in a new process
    upload: Link
    download: Link
    tiers: Mapping[str, Tier] = field(default_factory=dict)


@dataclass(frozen=True)
class Probe:
    """A program to time. `arrays` are host arrays, the inputs first; `launch` gets them or, on a
    device with its own memory, their meta arrays.

    `kind`: "empty" (next to no work), "map" and "reduce" (memory traffic), "arithmetic" and
    "functions" (`work` additions, little traffic).
    """

    kind: str
    source: Source
    arrays: tuple[Array, ...]
    inputs: int
    launch: Callable[[Sequence[Array]], Launch]
    moved: int
    work: float


# Used where a figure cannot be measured. Each errs to the device's disadvantage, except for the
# CPU's compiled tier, which every other tier has to beat.
COMPILED = Tier(
    launch=10e-6,
    wait=0.0,
    map_rates=((1e6, 20e9), (1e8, 20e9)),  # two cores of a server with all of its memory busy
    reduce_rates=((1e6, 20e9), (1e8, 20e9)),
    arithmetic=4e9,
    functions=4e9,
    compile=0.4,
    load=5e-3,
)
INTERPRETED = Tier(
    launch=30e-6,  # without the ufunc call per operation and block
    wait=0.0,
    map_rates=((1e6, 10e9), (1e8, 10e9)),
    reduce_rates=((1e6, 10e9), (1e8, 10e9)),
    arithmetic=1e9,
    functions=0.3e9,
    compile=1e-3,
    load=1e-3,
)
OFFLOADED = Tier(
    launch=20e-6,
    wait=100e-6,
    map_rates=((1e6, 5e9), (1e8, 10e9)),
    reduce_rates=((1e6, 5e9), (1e8, 10e9)),
    arithmetic=1e9,
    functions=1e9,
    compile=0.3,
    load=20e-3,
)
DEFAULTS = {
    "numba": COMPILED,
    "numpy": INTERPRETED,
    "opencl": OFFLOADED,
    "opencl-grid": OFFLOADED,
}
SHARED = Link(0.0, math.inf)


def rate_at(curve: Curve, moved: float) -> float:
    """Bytes per second for `moved` bytes, interpolated by their logarithm between the points."""
    before = curve[0]
    if moved <= before[0]:
        return before[1]
    for point in curve[1:]:
        if moved <= point[0]:
            part = math.log(moved / before[0]) / math.log(point[0] / before[0])
            return before[1] * math.pow(point[1] / before[1], part)
        before = point
    return before[1]


def environment(traits: Traits) -> str:
    """What the figures depend on: hardware, driver, threads, kind of memory."""
    facts = (traits.kind, traits.model, traits.platform, traits.driver, str(traits.threads))
    text = "\0".join((*facts, *traits.languages, str(traits.shares_memory)))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


# Measuring


def measure(
    device: Device, probes: Iterable[Probe], opening: float = 0.0, known: Costs | None = None
) -> Costs:
    """Time the probes, language by language. `known` supplies figures that cannot be measured
    again, such as the time to build programs that are in the cache now. A language whose probes
    fail is left out; without any, the device has no tiers and is no candidate.
    """
    by_language: dict[str, list[Probe]] = {}
    for probe in probes:
        by_language.setdefault(probe.source.language, []).append(probe)
    tiers: dict[str, Tier] = {}
    for language, group in by_language.items():
        guess = known.tiers.get(language) if known else None
        try:
            tiers[language] = _measure_tier(
                device, group, guess or DEFAULTS.get(language, OFFLOADED)
            )
        except DeviceError:
            continue
    upload, download = _measure_links(device)
    if known is not None and known.opening:
        opening = min(opening, known.opening) or known.opening  # the first opening takes longer
    traits = device.traits
    facts = traits.name, environment(traits), traits.fp64, traits.shares_memory
    return Costs(*facts, opening, upload, download, tiers)


def _measure_tier(device: Device, probes: Sequence[Probe], guess: Tier) -> Tier:
    built: list[float] = []
    loaded: list[float] = []
    ready = [_build(device, probe, built, loaded) for probe in probes]
    shortest = [math.inf] * len(probes)
    launch = wait = math.inf
    for _ in range(ROUNDS):
        for number, (program, given) in enumerate(ready):
            shortest[number] = min(shortest[number], _shortest(program, given))
            if probes[number].kind == "empty":
                launch, wait = min((launch, wait), _overhead(program, given, shortest[number]))
    if launch == math.inf:
        launch, wait = guess.launch, guess.wait
    points = [
        (probe, max(best - launch - wait, LEAST_PART * best))
        for probe, best in zip(probes, shortest, strict=True)
    ]
    return Tier(
        launch,
        wait,
        _curve(points, "map") or guess.map_rates,
        _curve(points, "reduce") or guess.reduce_rates,
        _work_rate(points, "arithmetic") or guess.arithmetic,
        _work_rate(points, "functions") or guess.functions,
        float(np.median(built)) if built else guess.compile,
        float(np.median(loaded)) if loaded else guess.load,
    )


def _build(
    device: Device, probe: Probe, built: list[float], loaded: list[float]
) -> tuple[Program, Launch]:
    """The program of a probe and its launch; appends the time of building or loading it."""
    given = probe.launch(_placed(device, probe))
    known = device.cached(probe.source)
    start = time.perf_counter()
    program = device.compile(probe.source)
    found = time.perf_counter() - start
    _flags(program.launch(given))  # some drivers finish building here
    first = time.perf_counter() - start
    if found > POOLED:
        again = time.perf_counter()
        _flags(program.launch(given))
        run = time.perf_counter() - again
        (loaded if known else built).append(max(first - run, found))
    return program, given


def _placed(device: Device, probe: Probe) -> list[Array]:
    """The arrays of a probe where the device can reach them."""
    memory = device.memory
    if memory is None:
        return list(probe.arrays)
    inputs = [memory.upload(array) for array in probe.arrays[: probe.inputs]]
    return inputs + [memory.empty(a.shape, a.dtype) for a in probe.arrays[probe.inputs :]]


def _flags(outcome: Any) -> int:
    """Wait for a launch and return its flags."""
    return outcome if isinstance(outcome, int) else int(outcome.flags())


def _overhead(program: Program, launch: Launch, one: float) -> tuple[float, float]:
    """Seconds per launch, and of the wait for the last one, where a single run takes `one`."""
    shortest = math.inf
    for _ in range(TURNS):
        start = time.perf_counter()
        outcomes = [program.launch(launch) for _ in range(QUEUED)]
        for outcome in outcomes:
            _flags(outcome)
        shortest = min(shortest, time.perf_counter() - start)
    each = min(max((shortest - one) / (QUEUED - 1), SMALLEST), one)
    return each, one - each


def _shortest(program: Program, launch: Launch) -> float:
    """Seconds of the fastest of several runs: disturbances only make runs longer."""
    shortest, turns = math.inf, 0
    end = time.perf_counter() + SECONDS
    while turns < TURNS or time.perf_counter() < end:
        start = time.perf_counter()
        _flags(program.launch(launch))
        shortest = min(shortest, time.perf_counter() - start)
        turns += 1
    return shortest


def _curve(points: Sequence[tuple[Probe, float]], kind: str) -> Curve:
    return tuple(
        (float(probe.moved), probe.moved / seconds)
        for probe, seconds in sorted(points, key=lambda point: point[0].moved)
        if probe.kind == kind
    )


def _work_rate(points: Sequence[tuple[Probe, float]], kind: str) -> float:
    return max((probe.work / seconds for probe, seconds in points if probe.kind == kind), default=0)


def _measure_links(device: Device) -> tuple[Link, Link]:
    """Measure copies to a device that has its own memory, and back."""
    memory = device.memory
    if memory is None:
        return SHARED, SHARED
    small, large = device.empty((8,), _BYTE), device.empty((COPIED,), _BYTE)
    small[...] = large[...] = 1
    times = [_copy_times(device, memory, array) for array in (small, large)]
    (up_small, down_small), (up_large, down_large) = times
    return _link(up_small, up_large), _link(down_small, down_large)


_BYTE: Any = np.dtype("u1")


def _copy_times(device: Device, memory: DeviceMemory, array: Array) -> tuple[float, float]:
    """Seconds of the shortest of several copies to the device, and back."""

    def upload() -> None:
        memory.upload(array)
        device.wait()

    placed = memory.upload(array)
    return _fastest(upload), _fastest(lambda: memory.gather(placed))


def _fastest(copy: Callable[[], object]) -> float:
    return min(timeit.repeat(copy, timer=time.perf_counter, number=1, repeat=TURNS))


def _link(small: float, large: float) -> Link:
    return Link(small, COPIED / max(large - small, SMALLEST))


# On disk


@cached(1)
def machine() -> str:
    """A short name of this machine: its processor, its usable cores, and its host name."""
    node = os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")
    facts = (sys.platform, vector_math.machine(), node, str(available()), _processor())
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:24]


def _processor() -> str:
    """The model of the processor; reads only the beginning of a long list."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            lines = file.read(2048).splitlines()
    except OSError:
        return os.environ.get("PROCESSOR_IDENTIFIER", "")
    return next((line for line in lines if line.startswith("model name")), "")


class CostFile:
    """The figures of this machine on disk, where a damaged file counts as none (`DiskCache`).

    Figures that cannot be written stay in the caller's memory.
    """

    def __init__(self, disk: DiskCache) -> None:
        self.disk = disk

    @property
    def name(self) -> str:
        """The entry of this machine."""
        return f"costs-{machine()}"

    def read(self) -> dict[str, Costs]:
        """Costs by device; empty if there are none of this version and machine."""
        data = self.disk.get(self.name)
        content = json.loads(data) if data else {}
        if (content.get("version"), content.get("machine")) != (VERSION, machine()):
            return {}
        return {each["device"]: _costs(each) for each in content["devices"]}

    def write(self, costs: Mapping[str, Costs]) -> bool:
        """Write the entry; whether it worked."""
        content = {
            "version": VERSION,
            "machine": machine(),
            "devices": [asdict(each) for each in costs.values()],
        }
        return self.disk.put(self.name, json.dumps(content, indent=1).encode())


def _costs(plain: dict[str, Any]) -> Costs:
    """What `asdict` made plain."""
    links = {name: Link(**plain[name]) for name in ("upload", "download")}
    tiers = {language: _tier(**each) for language, each in plain["tiers"].items()}
    return Costs(**plain | links | {"tiers": tiers})


def _tier(map_rates: list[list[float]], reduce_rates: list[list[float]], **figures: float) -> Tier:
    maps, reductions = (tuple((x, y) for x, y in curve) for curve in (map_rates, reduce_rates))
    return Tier(map_rates=maps, reduce_rates=reductions, **figures)
