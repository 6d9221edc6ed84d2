"""Figures of devices: how they are taken, what is computed from them, how they are kept.

No test measures time: where times matter the clock is the tests' own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lazyfuse.devices import base, cost
from lazyfuse.devices.base import Array, DeviceError, Launch, Source, Traits
from lazyfuse.devices.cost import CostFile, Costs, Link, Probe, Tier
from lazyfuse.devices.cpu.device import CPU
from lazyfuse.devices.pools.disk_cache import DiskCache
from tests.devices.sources import launch_of, map_source, numpy_source

TIER = Tier(1e-6, 5e-6, ((1e3, 1e9), (1e5, 1e11)), ((1e3, 2e9),), 1e9, 5e8, 0.1, 0.01)
SHARED = Costs("cpu", "e", True, True, 0.0, cost.SHARED, cost.SHARED, {"numba": TIER})
DISCRETE = Costs("opencl:0", "f", False, False, 0.3, Link(1e-5, 1e10), Link(2e-5, 5e9), {"o": TIER})


class Clock:
    """A clock that only moves when something says how long it took."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1e-9  # so that loops over a length of time end
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    made = Clock()
    monkeypatch.setattr(cost.time, "perf_counter", made)
    return made


class Finished:
    """A launch; that it has ended shows at a certain time."""

    def __init__(self, clock: Clock, visible: float) -> None:
        self.clock, self.visible = clock, visible

    def flags(self) -> int:
        self.clock.now = max(self.clock.now, self.visible)
        return 0


class Memory:
    """The memory of a device, with a bus of 1 GB/s there and 0.5 GB/s back."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.uploads: list[int] = []

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        return np.empty(shape, dtype)

    def upload(self, array: Array) -> Array:
        self.uploads.append(array.nbytes)
        self.clock.now += 1e-4 + array.nbytes / 1e9
        return array.copy()

    def gather(self, array: Array) -> Array:
        self.clock.now += 2e-4 + array.nbytes / 5e8
        return array.copy()


class Device(base.Asynchronous):
    """A device whose programs take the seconds that their text says; a launch takes 3 us of the
    host's time, waiting 40 us, building 100 ms, and 60 ms more at the first launch."""

    def __init__(self, clock: Clock, discrete: bool = False, known: Sequence[str] = ()) -> None:
        self.clock = clock
        self.memory = Memory(clock) if discrete else None
        self.traits = Traits(
            "opencl:0", "gpu", 8, ("opencl",), driver="1.0", shares_memory=not discrete
        )
        self.known = set(known)
        self.free = 0.0

    def cached(self, source: Source) -> bool:
        return source.text in self.known

    def compile(self, source: Source) -> Program:
        if source.text == "broken":
            raise DeviceError("[compile] broken")
        first = 0.0 if source.text in self.known else 0.06
        self.clock.now += 0.005 if source.text in self.known else 0.1
        return Program(self, source, first)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        return np.empty(shape, dtype)

    def wait(self) -> None:
        self.clock.now = max(self.clock.now, self.free)


class Program(base.Program):
    def __init__(self, device: Device, source: Source, first: float) -> None:
        self.device, self.source, self.first = device, source, first

    def launch(self, launch: Launch) -> Finished:
        device = self.device
        device.clock.now += 3e-6
        start = max(device.clock.now, device.free)
        device.free = start + float(self.source.text) + self.first
        self.first = 0.0
        return Finished(device.clock, device.free + 40e-6)


def probe(kind: str, seconds: str, moved: int = 8, work: float = 1.0) -> Probe:
    source = Source("opencl", "k", seconds, 1, ("f8",), ())
    arrays = (np.ones(1), np.ones(1))
    return Probe(kind, source, arrays, 1, lambda a: launch_of(tuple(a)), moved, work)


PROBES = [
    probe("empty", "0"),
    probe("map", "1e-3", moved=10**6),
    probe("map", "1e-4", moved=10**4),
    probe("reduce", "2e-3", moved=10**6),
    probe("arithmetic", "1e-2", work=1e8),
    probe("functions", "1e-1", work=1e8),
]


def test_probes_become_figures_C11(clock: Clock) -> None:
    found = cost.measure(Device(clock), PROBES, opening=0.25)  # type: ignore[arg-type]
    tier = found.tiers["opencl"]
    assert found.device == "opencl:0"
    assert found.opening == 0.25
    assert tier.launch == pytest.approx(3e-6, rel=0.01)
    assert tier.wait == pytest.approx(40e-6, rel=0.01)
    assert [moved for moved, _ in tier.map_rates] == [1e4, 1e6]
    assert [rate for _, rate in tier.map_rates] == pytest.approx([1e8, 1e9], rel=0.01)
    assert tier.reduce_rates[0][1] == pytest.approx(5e8, rel=0.01)
    assert tier.arithmetic == pytest.approx(1e10, rel=0.01)
    assert tier.functions == pytest.approx(1e9, rel=0.01)
    assert tier.compile == pytest.approx(0.16, rel=0.1)
    assert (found.upload, found.download) == (cost.SHARED, cost.SHARED)


def test_copies_of_a_device_with_memory_of_its_own_are_measured_C11(clock: Clock) -> None:
    device = Device(clock, discrete=True)
    found = cost.measure(device, PROBES)  # type: ignore[arg-type]
    assert found.upload.latency == pytest.approx(1e-4, rel=0.01)
    assert found.upload.rate == pytest.approx(1e9, rel=0.01)
    assert found.download.latency == pytest.approx(2e-4, rel=0.01)
    assert found.download.rate == pytest.approx(5e8, rel=0.01)
    assert device.memory is not None
    assert device.memory.uploads[: len(PROBES)] == [8] * len(PROBES), "inputs go to the device"


def test_what_cannot_be_seen_again_is_taken_over(clock: Clock) -> None:
    first = cost.measure(Device(clock), PROBES, 0.5)  # type: ignore[arg-type]
    warm = Device(clock, known=[each.source.text for each in PROBES])
    again = cost.measure(warm, PROBES, 0.1, first)  # type: ignore[arg-type]
    assert again.tiers["opencl"].compile == first.tiers["opencl"].compile
    assert again.tiers["opencl"].load == pytest.approx(0.005, rel=0.1)
    assert again.opening == 0.1, "opening a device the very first time takes longer"


def test_a_language_that_does_not_build_is_left_out_F2(clock: Clock) -> None:
    found = cost.measure(Device(clock), [probe("empty", "broken")])  # type: ignore[arg-type]
    assert found.tiers == {}


def test_the_cpu_itself_can_be_measured_C11(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "SECONDS", 0.0)
    source = numpy_source("np.add(a0, 1.0, out=a1)", ("f8", "f8"))
    compiled = map_source("a1[i * s1] = a0[i * s0] + 1.0", ("f8", "f8"))
    arrays = (np.ones(1000), np.empty(1000))
    probes = [
        Probe(kind, text, arrays, 1, lambda a: launch_of(tuple(a)), 16000, 1000.0)
        for text in (source, compiled)
        for kind in ("map", "reduce", "arithmetic", "functions", "empty")
    ]
    found = cost.measure(CPU(threads=1), probes)
    assert set(found.tiers) == {"numba", "numpy"}
    for tier in found.tiers.values():
        for figure in (tier.launch, tier.arithmetic, tier.compile, tier.map_rates[0][1]):
            assert 0 < figure < math.inf
    np.testing.assert_array_equal(arrays[1], 2.0)


def test_rates_lie_on_the_curve() -> None:
    curve = ((1e3, 1e9), (1e5, 1e11))
    assert cost.rate_at(curve, 1.0) == 1e9
    assert cost.rate_at(curve, 1e3) == 1e9
    assert cost.rate_at(curve, 1e4) == pytest.approx(1e10)
    assert cost.rate_at(curve, 1e5) == pytest.approx(1e11)
    assert cost.rate_at(curve, 1e9) == 1e11
    assert cost.rate_at(((1e3, 5.0),), 1e9) == 5.0


def test_memory_and_arithmetic_overlap() -> None:
    assert TIER.seconds(1e3, 0, 0, reduces=False) == pytest.approx(1e-6)
    assert TIER.seconds(1e3, 0, 0, reduces=True) == pytest.approx(0.5e-6)
    assert TIER.seconds(1e3, 1e6, 1e6, reduces=False) == pytest.approx(1e-3 + 2e-3)


def test_defaults_favour_the_compiled_cpu_F2() -> None:
    home, away = cost.DEFAULTS["numba"], cost.DEFAULTS["opencl"]
    for moved in (1e3, 1e6, 1e9):
        for work in (0.0, 1e9):
            assert home.seconds(moved, work, work, False) <= away.seconds(moved, work, work, False)


def test_figures_hold_for_one_driver_and_number_of_threads() -> None:
    traits = Traits("opencl:0", "gpu", 8, ("opencl",), model="m", driver="1.0")
    same = replace(traits, name="opencl:1", notes=("other",))
    assert cost.environment(same) == cost.environment(traits)
    for changes in ({"driver": "1.1"}, {"threads": 4}, {"model": "n"}, {"shares_memory": False}):
        assert cost.environment(replace(traits, **changes)) != cost.environment(traits)  # type: ignore[arg-type]


# On disk


def file_in(folder: Path, enabled: bool = True) -> CostFile:
    return CostFile(DiskCache(str(folder), cost.FILE_LIMIT, enabled))


def test_figures_are_kept_C11(tmp_path: Path) -> None:
    costs = {"cpu": SHARED, "opencl:0": DISCRETE}
    assert file_in(tmp_path / "costs").write(costs)
    assert file_in(tmp_path / "costs").read() == costs


def test_no_file_no_figures(tmp_path: Path) -> None:
    assert file_in(tmp_path / "nowhere").read() == {}
    assert not (tmp_path / "nowhere").exists(), "reading makes no folder"


def test_a_damaged_file_counts_as_none(tmp_path: Path) -> None:
    file_in(tmp_path).write({"cpu": SHARED})
    (path,) = tmp_path.glob("costs-*")
    path.write_bytes(b"nothing that was written by us")
    assert file_in(tmp_path).read() == {}


@pytest.mark.parametrize("name", ["version", "machine"])
def test_foreign_figures_count_as_none(tmp_path: Path, name: str) -> None:
    file = file_in(tmp_path)
    file.write({"cpu": SHARED, "opencl:0": DISCRETE})
    data = file.disk.get(file.name)
    assert data is not None
    content = json.loads(data)
    for value, names in ((content[name], {"cpu", "opencl:0"}), ("another", set())):
        file.disk.put(file.name, json.dumps(content | {name: value}).encode())
        assert file_in(tmp_path).read().keys() == names


def test_what_cannot_be_written_hurts_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way of a folder")
    file = file_in(tmp_path / "file" / "costs")
    assert not file.write({"cpu": SHARED})
    assert file.read() == {}
    assert not file_in(tmp_path / "off", enabled=False).write({"cpu": SHARED})
    assert not (tmp_path / "off").exists()
