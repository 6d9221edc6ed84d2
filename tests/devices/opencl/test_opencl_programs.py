"""C8: OpenCL programs in memory and on disk: hits, misses and why, damage, building ahead."""

from __future__ import annotations

import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from lazyfuse.devices.base import DeviceError, Source
from lazyfuse.devices.opencl import platforms, programs
from lazyfuse.devices.opencl.device import OpenCL
from lazyfuse.devices.opencl.failures import faults
from lazyfuse.devices.pools.disk_cache import DiskCache
from tests.devices.opencl.opencl_sources import (
    first_device,
    kind_of,
    new_device,
    opencl_source,
    ramp,
    run,
)

TWICE = opencl_source("a0 = a0 * 2;", ("f8",), name="twice")
ROOT = Path(__file__).parents[3]


@pytest.fixture
def no_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Widths are tried out in a test of their own."""
    monkeypatch.setattr("lazyfuse.devices.opencl.probe.best_width", lambda index: 32)


@pytest.fixture
def disk(tmp_path: Path, no_probe: None) -> DiskCache:
    return DiskCache(str(tmp_path), 1 << 30)


def runs(device: OpenCL, source: Source = TWICE) -> bool:
    x = ramp(7)
    run(device, source, (x,))
    return np.array_equal(x, ramp(7) * 2)


def test_C8_a_program_is_built_once_and_then_found(disk: DiskCache) -> None:
    device = new_device(disk=disk)
    assert not device.cached(TWICE)
    assert runs(device)
    assert device.why_missed(TWICE) == "first seen"
    program = device.compile(TWICE)
    assert device.compile(TWICE) is program
    info = device.info()["programs"]
    assert (info["built"], info["loaded"], info["hits"]) == (1, 0, 2)
    assert device.cached(TWICE)


def test_C8_another_device_object_finds_it_on_disk(disk: DiskCache) -> None:
    assert runs(new_device(disk=disk))
    other = new_device(disk=disk)
    assert other.cached(TWICE)
    assert runs(other)
    info = other.info()["programs"]
    assert (info["built"], info["loaded"]) == (0, 1)
    assert other.why_missed(TWICE) == ""


def test_C8_another_process_finds_it_on_disk(disk: DiskCache) -> None:
    """Built once, over two processes that know nothing of each other."""
    assert runs(new_device(disk=disk))
    script = """
import sys
from tests.devices.opencl import opencl_sources, test_opencl_programs as here
from lazyfuse.devices.pools.disk_cache import DiskCache
device = opencl_sources.new_device(disk=DiskCache(sys.argv[1], 1 << 30))
assert here.runs(device)
info = device.info()["programs"]
assert (info["built"], info["loaded"]) == (0, 1), info
"""
    command = [sys.executable, "-c", script, disk.directory]
    subprocess.run(command, check=True, cwd=ROOT, timeout=100)


@pytest.mark.parametrize("content", [b"", b"z", b"znot compressed", b"rnot a program", b"?"])
def test_C8_a_damaged_binary_is_built_again(disk: DiskCache, content: bytes) -> None:
    """Damage that the disk cache's own sum does not show: a file of another format or driver."""
    device = new_device(disk=disk)
    assert runs(device)
    (name,) = (name for name in disk.names() if not name.startswith("device"))
    disk.put(name, content)
    device.programs._programs.clear()
    assert runs(device)
    assert device.why_missed(TWICE) == "damaged"
    assert device.info()["programs"]["built"] == 2
    assert len(disk.get(name) or b"") > (1000 if kind_of(first_device()) == "cpu" else 600)


def test_C8_a_file_that_changed_on_disk_is_built_again(disk: DiskCache) -> None:
    device = new_device(disk=disk)
    assert runs(device)
    for path in Path(disk.directory).glob("*.bin"):
        path.write_bytes(path.read_bytes()[:-3] + b"abc")
    device.programs._programs.clear()
    assert runs(device)
    assert device.why_missed(TWICE) == "damaged"


def test_C8_clearing(disk: DiskCache) -> None:
    device = new_device(disk=disk)
    assert runs(device)
    device.clear()
    assert device.cached(TWICE)
    device.clear(disk=True)
    assert not device.cached(TWICE)
    assert runs(device)
    assert device.why_missed(TWICE) == "cleared"


def test_C8_other_options_are_other_binaries(
    disk: DiskCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert runs(new_device(disk=disk))
    monkeypatch.setattr("lazyfuse.devices.opencl.selftest.width", lambda *_: 8)
    device = new_device(disk=disk)
    assert "-DLF_BYTES=8" in device.options
    assert not device.cached(TWICE)
    assert runs(device)
    assert device.why_missed(TWICE) == "other versions"


def test_C8_another_driver_is_another_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    found = first_device()
    before = platforms.digest(found)
    assert before == platforms.digest(found)
    assert before != platforms.digest(found, ["-DX"])
    genuine = platforms.facts(found)
    for text in (found.device.driver_version, found.device.name, found.device.platform.version):
        assert any(text in fact for fact in genuine)
    monkeypatch.setattr(platforms, "facts", lambda _: [*genuine[:-1], "another"])
    assert before != platforms.digest(found)


def test_C8_without_a_disk_nothing_is_written(tmp_path: Path) -> None:
    device = new_device(disk=DiskCache(str(tmp_path), 1 << 30, enabled=False))
    assert runs(device)
    assert device.why_missed(TWICE) == "disabled"
    assert list(tmp_path.iterdir()) == []


def test_C8_a_driver_without_binaries_still_runs(
    disk: DiskCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs.OpenCLBuilder, "_binary", lambda *_: None)
    device = new_device(disk=disk)
    assert runs(device)
    assert not [name for name in disk.names() if not name.startswith("device")]


def test_C8_a_load_that_fails_is_a_build(disk: DiskCache) -> None:
    assert runs(new_device(disk=disk))
    device = new_device(disk=disk)
    faults.plan("load", "INVALID_BINARY")
    assert runs(device)
    assert device.why_missed(TWICE) == "damaged"


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("length", [1, 1000])
def test_binaries_are_kept_small_and_come_back(seed: int | None, length: int) -> None:
    """Of zeros, and of what cannot be compressed."""
    binary = bytes(length) if seed is None else random.Random(seed).randbytes(length)
    kept = programs._packed(binary)
    assert len(kept) <= len(binary) + 1
    assert programs._unpacked(kept) == binary


def built_at_once(device: OpenCL, sources: list[Source]) -> list[DeviceError]:
    """Build programs in several threads; the failures."""

    def built(source: Source) -> DeviceError | None:
        try:
            device.compile(source)
        except DeviceError as error:
            return error
        return None

    with ThreadPoolExecutor(4) as pool:
        return [problem for problem in pool.map(built, sources) if problem is not None]


def test_C8_threads_build_side_by_side() -> None:
    device = new_device()
    sources = [opencl_source(f"a0 = a0 + {k};", ("f8",), name=f"add{k}") for k in range(5)]
    broken = opencl_source("a0 = ;", ("f8",), name="broken")
    (problem,) = built_at_once(device, [*sources, broken])
    assert isinstance(problem, DeviceError)
    assert "broken" in str(problem)
    assert all(device.cached(source) for source in sources)
    built = device.info()["programs"]["built"]
    assert built == 5
    x = np.zeros(1)
    for source in sources:
        run(device, source, (x,))
    assert x[0] == 10
    assert device.info()["programs"]["built"] == built


def test_C8_threads_that_want_one_program_build_it_once() -> None:
    device = new_device()
    assert built_at_once(device, [TWICE] * 8) == []
    assert device.info()["programs"]["built"] == 1


def test_C7_preparing_does_not_compute() -> None:
    """Building leaves no launch behind, though some drivers finish building at a first launch."""
    device = new_device()
    device.compile(opencl_source("a0 = x0;", ("f8",), ("f8",)))
    assert device.info()["launches"] == 0
    device.wait()
