"""Figures of this processor: defaults, their file, merging, and what they may change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

import lazyfuse as np
from lazyfuse.devices import cpu_figures
from lazyfuse.devices.pools.disk_cache import DiskCache
from lazyfuse.runtime.placement import calibrate, calibrate_cpu, devices
from lazyfuse.runtime.placement.calibrate_cpu import File, figures, merged, threads_above


@pytest.fixture
def file(tmp_path: Path) -> File:
    return File(DiskCache(str(tmp_path), 1 << 20))


@pytest.fixture
def _kept() -> Iterator[None]:
    """The figures in use come back."""
    before = cpu_figures.tuning()
    yield
    cpu_figures.use(before)


def times(**changes: Any) -> dict[str, Any]:
    found = {
        "rounds": 1,
        "alone": {1 << 14: 10e-6, 1 << 16: 30e-6, 1 << 18: 120e-6},
        "shared": {1 << 14: 12e-6, 1 << 16: 20e-6, 1 << 18: 70e-6},
        "stored": 0.0,
    }
    return found | changes


def test_defaults_follow_from_the_caches() -> None:
    found = cpu_figures.defaults()
    assert 4 << 10 <= found.l1_bytes <= found.l2_bytes <= found.l3_bytes
    assert found.l1_bytes <= found.tile_bytes <= 1 << 20
    assert not found.measured
    assert devices.tuning() == cpu_figures.tuning()


def test_sizes_as_linux_writes_them(tmp_path: Path) -> None:
    for number, (level, kind, size) in enumerate(
        (("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2M"))
    ):
        folder = tmp_path / f"index{number}"
        folder.mkdir()
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(f"{text}\n")
    assert cpu_figures._caches(str(tmp_path)) == {1: 48 << 10, 2: 2 << 20}
    assert cpu_figures._caches(str(tmp_path / "nowhere")) == {}


def test_threads_pay_from_where_they_always_do() -> None:
    found = times()
    assert threads_above(found["alone"], found["shared"], 1 << 17) == 1 << 16
    busy = dict.fromkeys(found["alone"], 1.0)
    assert threads_above(found["alone"], busy, 1 << 17) == 1 << 17
    assert threads_above({}, {}, 1 << 17) == 1 << 17


def test_figures_of_times() -> None:
    found = figures(times(stored=11.0))
    assert found.measured
    assert found.threads_above == 1 << 16
    assert found.stored == 11.0
    assert "threads from 65,536 additions; one thread does 11" in calibrate_cpu.described(found)
    assert figures({}) == cpu_figures.defaults()
    assert "(not measured)" in calibrate_cpu.described(figures({}))


def test_the_best_of_several_measurements_counts() -> None:
    slow = times(shared=dict.fromkeys(times()["shared"], 1.0), stored=5.0)
    found = merged(slow, times())
    assert found["rounds"] == 2
    assert found["shared"] == times()["shared"]
    assert found["stored"] == 5.0
    assert merged({}, times()) == times()


def test_the_file_comes_back_and_damage_is_nothing(file: File) -> None:
    assert file.read() == {}
    file.write(times())
    assert file.read()["alone"] == times()["alone"]
    assert figures(file.read()) == figures(times())
    file.disk.put(file.name, b'{"version": 1}')
    assert file.read() == {}
    for path in Path(file.disk.directory).iterdir():
        path.write_bytes(b"nothing that was written by us")
    assert file.read() == {}


@pytest.mark.usefixtures("_kept")
def test_measuring_gives_times_for_every_size() -> None:
    pytest.importorskip("llvmlite")
    device = devices.cpu()
    before = device.work.threads_above  # type: ignore[attr-defined]
    found = calibrate_cpu.measure(device, 0.0, full=False)
    assert set(found["alone"]) == set(found["shared"]) == set(calibrate_cpu.SIZES)
    assert all(each > 0.0 for each in found["alone"].values())
    assert device.work.threads_above == before  # type: ignore[attr-defined]


def test_the_measured_addition_adds() -> None:
    pytest.importorskip("llvmlite")
    device: Any = devices.cpu()
    add = calibrate_cpu._program(device, calibrate_cpu.ENTRY, calibrate_cpu.ADDITION)
    a, b, c = (numpy.random.default_rng(k).normal(size=4096) for k in range(3))
    add.launch(calibrate_cpu._launch((a, b, c), 4096, 8))
    assert (c == a + b).all()


@pytest.mark.usefixtures("_kept")
@pytest.mark.parametrize("above", [1, 1 << 14, 1 << 40])
@pytest.mark.parametrize("tile", [32 << 10, 1 << 20])
def test_bits_do_not_depend_on_figures(above: int, tile: int) -> None:
    x = numpy.random.default_rng(3).normal(size=(300, 500))

    def compute() -> list[Any]:
        a = np.array(x)
        e = np.exp(a - a.max(axis=1, keepdims=True))
        soft = e / e.sum(axis=1, keepdims=True)
        return [soft.to_numpy().tobytes(), float((a * a).sum()), float(a.std())]

    expected = compute()
    found = cpu_figures.defaults()
    cpu_figures.use(calibrate_cpu.replace(found, threads_above=above, tile_bytes=tile))
    with np.options(threads=2, threads_above=above):
        assert compute() == expected


def test_small_programs_measure_nothing(file: File) -> None:
    registered: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibrate_cpu.atexit, "register", registered.append)
        calibrate_cpu.at_exit(devices.cpu(), lambda: file, lambda: 3)
    registered[0]()
    assert file.read() == {}


def test_calibrating_prints_the_figures_of_the_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("llvmlite")
    monkeypatch.setattr(calibrate_cpu, "FULL", 0.0)
    before = cpu_figures.tuning()
    try:
        with np.options(cache_dir=str(tmp_path)):
            found = calibrate.tune()
            assert figures(calibrate._tuning_file().read()) == found
    finally:
        cpu_figures.use(before)
    assert found.measured
    assert found.stored > 0.0


def test_explain_says_how_kernels_are_run() -> None:
    x = np.array(numpy.linspace(0.0, 1.0, 600_000))
    with np.options(device="cpu", threads=2, threads_above=1000):
        text = str(np.explain(x * x + x))
        assert "compiled: 1,200,000 additions' worth of work, 32,768 or more" in text
        assert "chunks on 2 threads" in text
    with np.options(device="cpu", threads=2, threads_above=1 << 30):
        assert "on one thread (below 1,073,741,824 additions)" in str(np.explain(x * x + x))
    with np.options(device="cpu", threads=1):
        assert "on the only thread" in str(np.explain(x * x + x))
    with np.options(device="cpu", eager_below=0):
        small = np.array(numpy.linspace(0.0, 1.0, 100))
        text = str(np.explain(small * small + small))
        assert "blocked NumPy: 200 additions' worth of work, below 32,768" in text
    assert "processor: L1" in text


def test_explain_says_what_is_written_in_place() -> None:
    u = np.array(numpy.zeros((400, 400)))
    with np.options(device="cpu"):
        u[1:-1, 1:-1] += 2.0 * u[:-2, 1:-1]
        text = str(np.explain(u))
        assert "written" in text
        u.to_numpy()
