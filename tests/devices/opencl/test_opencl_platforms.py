"""E2 E4: OpenCL devices by name, refusals with reasons, the trial of vectors, two devices."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lazyfuse.devices import registry
from lazyfuse.devices.base import DeviceError
from lazyfuse.devices.opencl import platforms, probe, selftest
from lazyfuse.devices.opencl.device import OpenCL
from lazyfuse.devices.opencl.failures import faults
from lazyfuse.devices.pools.disk_cache import DiskCache
from tests.devices.opencl.opencl_sources import child_environment, first_device, kind_of, new_device

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(registry, "_made", {})
    monkeypatch.setattr(registry, "_refused", {})
    monkeypatch.delenv("LAZYFUSE_DEVICE", raising=False)
    monkeypatch.setenv("LAZYFUSE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(probe, "best_width", lambda index: 32)


def test_names_mean_one_device() -> None:
    found = first_device()
    device = registry.device(found.name)
    assert isinstance(device, OpenCL)
    assert device.traits.name == found.name
    part = found.device.name.strip()[:8].upper()
    assert registry.device(f"opencl:{part}") is device
    platform = found.device.platform.name.lower()[3:12]
    assert registry.device(f"opencl:{platform}") is device
    assert registry.device("opencl").traits.name.startswith("opencl:")


def test_unknown_names_list_what_there_is() -> None:
    found = first_device()
    for name in ("opencl:99", "opencl:no such maker"):
        with pytest.raises(DeviceError, match=r"expected one of opencl:0 \(.+\), got") as caught:
            registry.device(name)
        assert found.device.name.strip() in str(caught.value)
    with pytest.raises(DeviceError, match="\"opencl\", got 'openc'"):
        registry.device("openc")


def test_the_list_tells_what_each_device_is() -> None:
    found = first_device()
    entry = {entry.name: entry for entry in registry.devices()}[found.name]
    assert entry.available
    assert entry.traits is not None
    assert entry.traits.model in entry.reason
    assert entry.traits.kind == kind_of(found)
    assert registry._made == {}, "listing opens nothing"


def test_C12_a_refused_device_is_listed_with_its_reason() -> None:
    found = first_device()
    faults.plan("self-test")
    with pytest.raises(DeviceError, match="failed the self-test"):
        registry.device(found.name)
    entry = {entry.name: entry for entry in registry.devices()}[found.name]
    assert not entry.available
    assert "failed the self-test: wrong values" in entry.reason
    registry.device(found.name)
    entry = {entry.name: entry for entry in registry.devices()}[found.name]
    assert entry.available, "it passed the second time"


def test_C12_a_lost_device_is_listed_with_its_reason() -> None:
    device: Any = registry.device(first_device().name)
    device.queue.lost = "[launch] OpenCL: DEVICE_NOT_AVAILABLE"
    entry = {entry.name: entry for entry in registry.devices()}[device.traits.name]
    assert not entry.available
    assert "DEVICE_NOT_AVAILABLE" in entry.reason


def test_C12_without_pyopencl_the_reason_is_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(platforms, "missing", lambda: platforms.MISSING)
    with pytest.raises(DeviceError, match=r"pip install lazyfuse\[opencl\]"):
        registry.device("opencl")
    entry = registry.devices()[-1]
    assert (entry.name, entry.available) == ("opencl", False)
    assert entry.reason == platforms.MISSING


def test_C12_without_a_platform_the_reason_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyopencl", reason="pyopencl is not installed")
    monkeypatch.setattr(probe, "devices", list)
    with pytest.raises(DeviceError, match="no OpenCL platform found"):
        registry.device("opencl")
    assert "no OpenCL platform found" in registry.devices()[-1].reason


def test_C12_a_broken_pyopencl_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyopencl", reason="pyopencl is not installed")

    def fail() -> list[Any]:
        raise ImportError("libOpenCL.so.1")

    monkeypatch.setattr(probe, "devices", fail)
    with pytest.raises(DeviceError, match=r"cannot be imported: libOpenCL\.so\.1"):
        registry.device("opencl")


def test_C12_an_unwritable_home_is_a_reason_and_has_a_remedy() -> None:
    first_device()
    script = """
import sys
from lazyfuse.devices import registry
from lazyfuse.devices.base import DeviceError
try:
    registry.device("opencl")
except DeviceError as error:
    print(error)
"""
    command = [sys.executable, "-c", script]
    found = []
    for remedy in ({}, {"PYOPENCL_NO_CACHE": 1}):
        environment = child_environment(XDG_CACHE_HOME="/proc/nowhere", LAZYFUSE_CACHE=0, **remedy)
        environment.setdefault("POCL_CACHE_DIR", str(Path.home() / ".cache" / "pocl"))
        child = subprocess.run(
            command, check=True, cwd=ROOT, timeout=100, env=environment,
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        found.append(child.stdout.strip())
    assert "set PYOPENCL_NO_CACHE=1" in found[0]
    assert found[1] == ""


def test_gpus_come_before_accelerators_before_cpus() -> None:
    types = pytest.importorskip("pyopencl", reason="pyopencl is not installed").device_type

    class Device:
        def __init__(self, name: str, kind: int) -> None:
            self.name, self.type, self.vendor, self.platform = name, kind, "maker", self

    names = {"a cpu": types.CPU, "a gpu": types.GPU, "a card": types.ACCELERATOR}
    found = [
        platforms.Found(index, Device(name, kind))
        for index, (name, kind) in enumerate(names.items())
    ]
    choose = platforms.choose
    assert [each.device.name for each in choose("opencl", found)] == ["a gpu", "a card", "a cpu"]
    assert [each.device.name for each in choose("opencl:A C", found)] == ["a card", "a cpu"]
    assert [each.index for each in choose("opencl:1", found)] == [1]
    assert choose("opencl:7", found) == []


def test_the_cpu_needs_no_pyopencl() -> None:
    script = """
import sys
import lazyfuse.devices.registry as registry
registry.device("cpu")
assert "pyopencl" not in sys.modules
assert not [name for name in sys.modules if name.startswith("lazyfuse.devices.opencl.device")]
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT, timeout=100)


def test_C12_widths_are_tried_in_a_process_of_their_own() -> None:
    """Whatever the widest vectors do to the child, an answer comes back."""
    found = first_device()
    times = {width: probe._ask(found.index, width) for width in (32, 16)}
    assert times[16] is not None, "vectors of two doubles work everywhere"
    assert times[16] > 0


ENDLESS = """
import runpy
names = runpy.run_path({!r})["_set_limits"].__globals__
names["_PATIENCE"] = 1
names["_set_limits"]()
while True:
    pass
"""

LONG = """
import time
while time.process_time() < 1.5:
    pass
print(0.25)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system does not say")
def test_a_child_that_goes_on_computing_may_take_its_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "long.py"
    path.write_text(LONG)
    monkeypatch.setattr(probe, "__file__", str(path))
    monkeypatch.setattr(probe, "_PATIENCE", 0.6)
    monkeypatch.setattr(probe, "_NOTHING", 1e-9)
    assert probe._ask(0, 64) == 0.25


def test_C12_a_child_that_crashes_or_hangs_is_an_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    scripts = {
        "crash": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
        "hang": "import time; time.sleep(60)",
        "talk": "print('half a second')",
        "wrong": "raise AssertionError",
        "crash after all": "print(1.0, flush=True); import os; os.abort()",
        "compute": ENDLESS.format(probe.__file__),
    }
    monkeypatch.setattr(probe, "_PATIENCE", 0.5)
    for name, script in scripts.items():
        path = tmp_path / f"{name}.py"
        path.write_text(script)
        monkeypatch.setattr(probe, "__file__", str(path))
        assert probe._ask(0, 64) is None, name
    monkeypatch.setattr(probe.sys, "executable", "")
    assert probe._ask(0, 64) is None


@pytest.mark.parametrize(
    ("times", "best"),
    [
        ({32: 1.0, 16: 2.0}, 32), ({32: 2.0, 16: 1.0}, 16), ({16: 1.0}, 16), ({}, 0),
    ],
)  # fmt: skip
def test_the_fastest_width_that_survives_is_taken(
    monkeypatch: pytest.MonkeyPatch, times: dict[int, float], best: int
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(probe, "_ask", lambda index, width: times.get(width))
    assert probe.best_width(0) == best


def test_E4_examinations_are_remembered_on_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[str] = []
    genuine = selftest.examine

    def examine(*arguments: Any) -> selftest.Verdict:
        asked.append("self-test")
        return genuine(*arguments)

    def width(index: int) -> int:
        asked.append("width")
        return 16

    monkeypatch.setattr(selftest, "examine", examine)
    monkeypatch.setattr(probe, "best_width", width)
    disk = DiskCache(str(tmp_path), 1 << 20)
    for _ in range(3):
        assert new_device(disk=disk).width == 16
    found = first_device()
    widths = ["width"] if kind_of(found) == "cpu" else []
    assert asked == [*widths, "self-test"]
    for name in disk.names("device-"):
        disk.put(name, b"{}")
    assert new_device(disk=disk).width == 16
    assert asked == [*widths, "self-test"] * 2
    kept = [json.loads(disk.get(name) or b"") for name in disk.names("device-")]
    expected = [
        {"shares": bool(found.device.host_unified_memory)},
        *[{each: 16} for each in widths],
    ]
    assert sorted(kept, key=str) == sorted(expected, key=str)


def test_E4_where_nothing_can_be_remembered_nothing_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(index: int) -> int:
        raise AssertionError("a child was started")

    monkeypatch.setattr(probe, "best_width", fail)
    assert new_device().width in (16, 32)
    assert new_device(disk=DiskCache("/proc/no such folder", 1 << 20)).width in (16, 32)


def test_E2_two_devices_work_side_by_side(tmp_path: Path) -> None:
    """The same program, twice, each with its own memory and launches."""
    if "Portable Computing" not in first_device().device.platform.name:
        pytest.skip("only PoCL can be told to show two devices")
    script = """
import numpy as np
from lazyfuse.devices import registry
from tests.devices.opencl.opencl_sources import opencl_source
from tests.devices.sources import launch_of
names = [entry.name for entry in registry.devices() if entry.name.startswith("opencl")]
assert names == ["opencl:0", "opencl:1"], names
one, two = (registry.device(name) for name in names)
assert one is not two and registry.device("opencl:pthread") is one
source = opencl_source("a0 = a0 + x0;", ("f8",), ("f8",))
x, y = np.zeros(5), np.zeros(5)
for value in (1.0, 2.0):
    one.compile(source).launch(launch_of((x,), (value,)))
    two.compile(source).launch(launch_of((y,), (10 * value,)))
one.wait(), two.wait()
assert (x == 3).all() and (y == 30).all()
assert one.info()["launches"] == two.info()["launches"] == 2
"""
    environment = child_environment(POCL_DEVICES="pthread pthread", LAZYFUSE_CACHE="0")
    command = [sys.executable, "-c", script]
    subprocess.run(command, check=True, cwd=ROOT, timeout=100, env=environment)


def test_the_self_test_looks_at_every_kind_of_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each computation of the self-test, were it wrong, would be named."""
    device = new_device()
    text = selftest._TEXT
    spoilt = {
        "float32": ("/ 3.0f", "/ 3.5f"),
        "float64": ("(real)0.5", "(real)0.25"),
        "int64": (">> 33", ">> 32"),
    }
    for name, (right, wrong) in spoilt.items():
        monkeypatch.setattr(selftest, "_TEXT", text.replace(right, wrong))
        verdict = selftest.examine(device.queue, True, True)
        assert verdict.reason == f"failed the self-test: wrong values of {name}"
    monkeypatch.setattr(selftest, "_TEXT", text.replace("x[k] += 1;", "x[k] += 2;"))
    assert selftest.examine(device.queue, True, True) == selftest.Verdict("", False)
    assert np.isfinite(device.width)
