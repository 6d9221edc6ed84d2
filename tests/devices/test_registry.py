"""Devices by name, their settings from the environment, and the devices for tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lazyfuse.devices import registry, settings
from lazyfuse.devices.base import DeviceError
from lazyfuse.devices.cpu.device import CPU
from lazyfuse.devices.null import Null
from lazyfuse.devices.pools.buffers import default_limit
from lazyfuse.devices.raise_device import EvaluationOff, Raise
from tests.devices.sources import launch_of, map_source


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(registry, "_made", {})
    monkeypatch.delenv("LAZYFUSE_DEVICE", raising=False)
    monkeypatch.setenv("LAZYFUSE_CACHE_DIR", str(tmp_path))


def test_one_object_per_name(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = registry.device()
    assert isinstance(cpu, CPU)
    assert registry.device("cpu") is cpu
    assert registry.device("") is cpu
    monkeypatch.setenv("LAZYFUSE_DEVICE", "null")
    assert isinstance(registry.device(), Null)
    assert isinstance(registry.device("raise"), Raise)


def test_refusals_have_reasons() -> None:
    with pytest.raises(DeviceError, match='or "raise" or "opencl", got \'tpu\''):
        registry.device("tpu")
    entries = {entry.name: entry for entry in registry.devices()}
    assert entries["cpu"].available
    assert {name.partition(":")[0] for name in entries} == {
        "cpu", "dask", "null", "raise", "opencl",
    }  # fmt: skip
    assert all(entry.reason for entry in entries.values())
    assert entries["cpu"].traits is None, "not made yet"
    registry.device("cpu")
    assert registry.devices()[0].traits == registry.device("cpu").traits  # type: ignore[union-attr]


def test_settings_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LAZYFUSE_NUM_THREADS", "3")
    monkeypatch.setenv("LAZYFUSE_THREADS_ABOVE", "1234")
    monkeypatch.setenv("LAZYFUSE_POOL_LIMIT", "64MB")
    monkeypatch.setenv("LAZYFUSE_CACHE_LIMIT", "1000")
    info = registry.device().info()  # type: ignore[attr-defined]
    assert (info["threads"], info["threads_above"]) == (3, 1234)
    assert info["buffers"]["limit"] == 64 << 20
    disk = info["programs"]["disk"]
    assert (disk["limit"], disk["enabled"]) == (1000, True)
    assert disk["directory"] == str(tmp_path / "programs")


def test_a_setting_that_is_no_number_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("many", "-1"):
        monkeypatch.setenv("LAZYFUSE_NUM_THREADS", text)
        with pytest.raises(DeviceError, match=r"LAZYFUSE_NUM_THREADS.*whole number"):
            registry.device()


def test_the_cache_can_be_switched_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LAZYFUSE_CACHE", "0")
    cpu = registry.device()
    cpu.compile(map_source("a1[i] = a0[i]", ("f8", "f8")))
    assert list(tmp_path.iterdir()) == []


def test_the_default_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAZYFUSE_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/somewhere")
    assert settings.cache_directory() == "/somewhere/.cache/lazyfuse/programs"
    monkeypatch.setenv("XDG_CACHE_HOME", "/else")
    assert settings.cache_directory() == "/else/lazyfuse/programs"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert settings.cache_directory() == ""


def test_setters() -> None:
    cpu = CPU(threads=2)
    cpu.set_threads(5)
    assert cpu.traits.threads == cpu.info()["threads"] == 5
    cpu.set_threads(0)
    assert cpu.traits.threads >= 1
    cpu.set_pool_limit(7)
    assert cpu.info()["buffers"]["limit"] == 7
    cpu.set_pool_limit(-1)
    assert cpu.info()["buffers"]["limit"] == default_limit()


def test_the_null_device_records() -> None:
    null = Null()
    source = map_source("a1[i] = a0[i]", ("f8", "f8"))
    assert not null.cached(source)
    program = null.compile(source)
    assert null.compile(source) is program
    assert null.cached(source)
    launch = launch_of((np.ones(3), np.zeros(3)))
    assert program.launch(launch) == 0
    assert null.launches == [(source, launch)]
    assert not launch.arrays[1].any()
    assert not null.empty((2, 3), np.dtype("i4")).any()
    null.clear()
    assert null.launches == []


def test_the_raising_device_raises() -> None:
    device = Raise()
    source = map_source("a1[i] = a0[i]", ("f8", "f8"))
    assert device.traits.languages == ()
    assert not device.cached(source)
    with pytest.raises(EvaluationOff, match="LAZYFUSE_DEVICE=raise"):
        device.compile(source)
    with pytest.raises(DeviceError, match="switched off"):
        device.empty((3,), np.dtype("f8"))


def test_without_llvmlite_there_is_blocked_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    genuine = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "llvmlite" else genuine(name)
    )
    cpu = CPU(threads=1)
    assert cpu.traits.languages == ("numpy",)
    assert "not installed" in cpu.traits.notes[0]
    with pytest.raises(DeviceError, match="expected one of numpy"):
        cpu.compile(map_source("a1[i] = a0[i]", ("f8", "f8")))


def test_importing_devices_loads_nothing_heavy() -> None:
    script = """
import sys
import lazyfuse.devices.registry as registry
assert "lazyfuse.devices.cpu.device" not in sys.modules
registry.device("cpu")
assert not {"numba", "llvmlite"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=Path(__file__).parents[2])
