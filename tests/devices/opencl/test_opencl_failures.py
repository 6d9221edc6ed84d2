"""C12: whatever fails on an OpenCL device ends in a `DeviceError` with its reason."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import numpy as np
import pytest

from lazyfuse.devices.base import DeviceError, DeviceLost, Later
from lazyfuse.devices.opencl import selftest
from lazyfuse.devices.opencl.device import OpenCL
from lazyfuse.devices.opencl.failures import POINTS, Faults, faults
from tests.devices.opencl.opencl_sources import (
    first_device,
    flags_of,
    kind_of,
    new_device,
    opencl_source,
    ramp,
)
from tests.devices.sources import launch_of

TWICE = opencl_source("a0 = a0 * 2;", ("f8",), name="twice")


@pytest.fixture(autouse=True)
def no_plans() -> Iterator[None]:
    yield
    faults.clear()


@pytest.fixture(params=["shared", "discrete"])
def device(request: pytest.FixtureRequest) -> OpenCL:
    return new_device(share=request.param == "shared")


@pytest.fixture
def discrete() -> OpenCL:
    return new_device(share=False)


def put(device: OpenCL, count: int = 4) -> np.ndarray:
    x = ramp(count)
    return x if device.memory is None else device.memory.upload(x)


def launched(device: OpenCL) -> Later:
    later = device.compile(TWICE).launch(launch_of((put(device),)))
    assert not isinstance(later, int)
    return later


def test_C12_a_build_error_tells_what_the_compiler_said(device: OpenCL) -> None:
    source = opencl_source("a0 = nonsense(a0);", ("f8",), name="broken")
    word = "error" if kind_of(first_device()) == "cpu" else "(error|fatal)"
    with pytest.raises(DeviceError, match=rf"\[build\] broken: .*{word}.*nonsense"):
        device.compile(source)
    assert flags_of(launched(device)) == 0


def test_C12_a_missing_entry_point_is_a_build_error(device: OpenCL) -> None:
    source = opencl_source("a0 = 1;", ("f8",))
    object.__setattr__(source, "name", "other")
    with pytest.raises(DeviceError, match=r"\[build\] other: "):
        device.compile(source)


def test_C12_a_build_that_fails_can_be_tried_again(device: OpenCL) -> None:
    faults.plan("build", "OUT_OF_HOST_MEMORY")
    with pytest.raises(DeviceError, match=r"\[build\] twice: OUT_OF_HOST_MEMORY"):
        device.compile(TWICE)
    assert flags_of(launched(device)) == 0


def test_C12_a_launch_that_is_refused_leaves_the_device_in_order(device: OpenCL) -> None:
    program = device.compile(TWICE)
    x = put(device)
    for _ in range(200):  # more than there are words for conditions
        faults.plan("launch", "OUT_OF_RESOURCES")
        with pytest.raises(DeviceError, match=r"\[launch\] OpenCL: OUT_OF_RESOURCES") as caught:
            program.launch(launch_of((x,)))
        assert not isinstance(caught.value, DeviceLost)
    assert flags_of(program.launch(launch_of((x,)))) == 0
    device.wait()


def test_C12_a_launch_that_dies_loses_the_device(device: OpenCL) -> None:
    first, second = launched(device), launched(device)
    faults.plan("finish", "OUT_OF_RESOURCES")
    with pytest.raises(DeviceLost, match=r"\[finish\] OpenCL: OUT_OF_RESOURCES"):
        second.flags()
    with pytest.raises(DeviceLost, match="OUT_OF_RESOURCES"):
        first.flags()
    assert "OUT_OF_RESOURCES" in device.info()["lost"]
    for action in (
        lambda: device.compile(TWICE),
        device.wait,
        lambda: launched(device),
    ):
        with pytest.raises(DeviceLost, match=r"lost: \[finish\]"):
            action()


def test_C12_settle_tells_once_what_nobody_asked_for(device: OpenCL) -> None:
    later = launched(device)
    faults.plan("finish", "OUT_OF_HOST_MEMORY")
    with pytest.raises(DeviceError, match=r"\[finish\] OpenCL: OUT_OF_HOST_MEMORY"):
        device.wait()
    with pytest.raises(DeviceError, match="OUT_OF_HOST_MEMORY"):
        later.flags()
    device.wait()
    assert device.info()["lost"] == ""
    assert flags_of(launched(device)) == 0


def test_C12_a_device_that_is_gone_is_lost_at_once(device: OpenCL) -> None:
    program = device.compile(TWICE)
    x = put(device)
    faults.plan("launch", "DEVICE_NOT_AVAILABLE")
    with pytest.raises(DeviceLost, match="DEVICE_NOT_AVAILABLE"):
        program.launch(launch_of((x,)))
    with pytest.raises(DeviceLost):
        program.launch(launch_of((x,)))


def test_C12_memory_is_freed_before_giving_up(discrete: OpenCL) -> None:
    memory = discrete.memory
    assert memory is not None
    memory.empty((1000,), np.dtype("f8"))
    assert memory.info()["free_blocks"] == 1
    faults.plan("allocate", "MEM_OBJECT_ALLOCATION_FAILURE")
    x = memory.upload(ramp(5))
    assert memory.info()["free_blocks"] == 0
    np.testing.assert_array_equal(memory.gather(x), ramp(5))


def test_C12_out_of_memory_names_the_size(discrete: OpenCL) -> None:
    memory = discrete.memory
    assert memory is not None
    faults.plan("allocate", "MEM_OBJECT_ALLOCATION_FAILURE", times=2)
    with pytest.raises(DeviceError, match=r"\[allocate\] .*ALLOCATION_FAILURE.* 800 bytes"):
        memory.empty((100,), np.dtype("f8"))
    with pytest.raises(DeviceError, match=r"\[allocate\]"):  # in earnest
        memory.empty((1 << 45,), np.dtype("f8"))
    assert memory.empty((100,), np.dtype("f8")).shape == (100,)


@pytest.mark.parametrize("doing", ["upload", "gather", "copy"])
def test_C12_a_transfer_that_fails_says_so(discrete: OpenCL, doing: str) -> None:
    memory = discrete.memory
    assert memory is not None
    x, y = memory.upload(ramp(5)), memory.empty((5,), np.dtype("f8"))
    actions = {
        "upload": lambda: memory.upload(ramp(5)),
        "gather": lambda: memory.gather(x),
        "copy": lambda: memory.copy(x, y),
    }
    before = memory.transfers.info()
    faults.plan(doing, "OUT_OF_HOST_MEMORY")
    with pytest.raises(DeviceError, match=rf"\[{doing}\] OpenCL: OUT_OF_HOST_MEMORY"):
        actions[doing]()
    assert memory.transfers.info() == before
    actions[doing]()
    faults.plan(doing, "DEVICE_NOT_AVAILABLE")
    with pytest.raises(DeviceLost, match="DEVICE_NOT_AVAILABLE"):
        actions[doing]()
    with pytest.raises(DeviceLost, match=f"lost: .{doing}"):
        memory.upload(ramp(5))


def test_C12_wrong_values_in_the_self_test_refuse_the_device() -> None:
    faults.plan("self-test")
    with pytest.raises(DeviceError, match="failed the self-test: wrong values of float32"):
        new_device()
    unified = bool(first_device().device.host_unified_memory)
    assert new_device().traits.shares_memory == unified


def test_C12_a_device_that_cannot_be_opened_says_so() -> None:
    faults.plan("open", "DEVICE_NOT_AVAILABLE")
    with pytest.raises(DeviceError, match=r"\[open\] OpenCL: DEVICE_NOT_AVAILABLE"):
        new_device()


def test_C12_memory_that_is_not_seen_to_be_shared_is_not_taken_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(selftest, "_shares", lambda *_: False)
    device = new_device()
    assert not device.traits.shares_memory
    assert device.memory is not None


def test_faults_come_when_they_are_planned() -> None:
    mine = Faults()
    mine.plan("launch", "OUT_OF_RESOURCES", after=2, times=2)
    struck = []
    for visit in range(6):
        try:
            mine.strike("launch")
        except Exception:
            struck.append(visit)
    assert struck == [2, 3]
    with pytest.raises(ValueError, match="expected one of"):
        mine.plan("lunch")
    assert "launch" in POINTS


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_C12_a_forked_child_refuses_the_parents_device(device: OpenCL) -> None:
    """The driver's threads are not there in the child: it would wait for ever."""
    program = device.compile(TWICE)
    x = put(device)
    later = program.launch(launch_of((x,)))
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            for action in (
                lambda: program.launch(launch_of((x,))),
                later.flags,
                device.wait,
                lambda: device.compile(TWICE),
            ):
                with pytest.raises(DeviceLost, match="before this process was forked"):
                    action()
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert flags_of(later) == 0
    assert flags_of(program.launch(launch_of((x,)))) == 0
