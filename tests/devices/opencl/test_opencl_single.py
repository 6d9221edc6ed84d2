"""Devices without fp64 that keep float64 as float32: what goes in, what comes back, what fits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from lazyfuse.devices.base import Array, DeviceError
from lazyfuse.devices.opencl.device import OpenCL
from lazyfuse.devices.opencl.memory import Blocks
from tests.devices.opencl.opencl_sources import flags_of, new_device, opencl_source, ramp
from tests.devices.opencl.test_opencl_memory import LAYOUTS
from tests.devices.sources import launch_of

TWICE = opencl_source("a0 = a0 * 2;", ("f4",), name="twice")


@pytest.fixture(scope="module")
def device() -> Iterator[OpenCL]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAZYFUSE_SINGLE_PRECISION", "1")
        made = new_device(FP64="0")
    yield made
    made.wait()


@pytest.fixture
def memory(device: OpenCL) -> Blocks:
    assert device.memory is not None
    return device.memory


def numbers(shape: tuple[int, ...], dtype: Any) -> Array:
    """Values that float32 can hold, in any dtype of numbers."""
    found = np.random.default_rng(3).integers(-99, 99, shape)
    return ((found + 0.5j * found[::-1]) if np.dtype(dtype).kind == "c" else found).astype(dtype)


def test_the_device_says_what_it_does_C7(device: OpenCL) -> None:
    traits = device.traits
    assert (traits.fp64, traits.narrows, traits.shares_memory) == (False, True, False)
    assert traits.notes == (
        "no fp64: float64 is kept and computed in float32, as single_precision asks",
    )
    with pytest.raises(DeviceError, match="no fp64"):
        device.compile(opencl_source("", ("f8",)))


def test_the_switch_does_nothing_where_there_is_fp64_C7(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAZYFUSE_SINGLE_PRECISION", "1")
    traits = new_device().traits
    assert traits.fp64
    assert not traits.narrows


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["f8", "c16", "f4", "c8", "i8", "?", "M8[ns]", "f2"])
def test_values_of_float32_come_back_as_they_were_C7(
    memory: Blocks, layout: str, dtype: str
) -> None:
    host = LAYOUTS[layout](numbers((3, 4, 5), "i8").astype(dtype))
    stand_in = memory.upload(host)
    assert (stand_in.shape, stand_in.strides) == (host.shape, host.strides)
    back = memory.gather(stand_in)
    assert (back.dtype, back.strides) == (host.dtype, host.strides)
    assert back.tobytes() == host.tobytes()


def test_other_values_are_rounded_and_too_large_ones_infinite_C7(memory: Blocks) -> None:
    host = np.array([0.1, -1e300, 1e-300, np.nan, np.inf, -0.0, 3.4e38])
    with np.errstate(all="ignore"):
        expected = host.astype("f4").astype("f8")
    np.testing.assert_array_equal(memory.gather(memory.upload(host)), expected)


def test_float64_takes_half_the_memory_there_C7(memory: Blocks) -> None:
    before = memory.transfers.uploaded_bytes, memory.transfers.gathered_bytes
    stand_in = memory.upload(ramp(1000))
    memory.gather(stand_in)
    after = memory.transfers.uploaded_bytes, memory.transfers.gathered_bytes
    assert (after[0] - before[0], after[1] - before[1]) == (4000, 4000)


def test_parts_and_bytes_of_a_stand_in_C7(memory: Blocks) -> None:
    """Whatever a view of the memory is taken for, the host gets the bytes of its float64."""
    host = ramp(40) - 7.5
    stand_in = memory.upload(host)
    np.testing.assert_array_equal(memory.gather(stand_in[5:33]), host[5:33])
    for low, high in ((0, 320), (3, 17), (16, 24), (9, 10)):
        found = memory.gather(stand_in.view("u1")[low:high])
        np.testing.assert_array_equal(found, host.view("u1")[low:high])
    np.testing.assert_array_equal(memory.gather(stand_in.view("i8")), host.view("i8"))
    np.testing.assert_array_equal(memory.gather(stand_in.view("c16")), host.view("c16"))


def test_programs_read_float64_as_float32_C7(device: OpenCL, memory: Blocks) -> None:
    stand_in, expected = memory.upload(ramp(30)), ramp(30)
    for part in (slice(10, 20), slice(None, None, -3)):
        flags_of(device.compile(TWICE).launch(launch_of((stand_in[part],))))
        expected[part] *= 2
    np.testing.assert_array_equal(memory.gather(stand_in), expected)
    complex_numbers = memory.upload(ramp(6) + 3j)
    flags_of(device.compile(TWICE).launch(launch_of((complex_numbers.imag,))))
    np.testing.assert_array_equal(memory.gather(complex_numbers), ramp(6) + 6j)


def test_programs_meet_no_other_bits_C7(device: OpenCL, memory: Blocks) -> None:
    program = device.compile(opencl_source("a0 = a0 + 1;", ("i8",), name="next"))
    whole = memory.upload(np.arange(8))
    flags_of(program.launch(launch_of((whole,))))
    np.testing.assert_array_equal(memory.gather(whole), np.arange(8) + 1)
    for strange in (memory.upload(ramp(8)).view("i8"), whole.view("f8")):
        with pytest.raises(DeviceError, match="keeps float64 as float32, which has other bits"):
            program.launch(launch_of((strange,)))


def test_libraries_which_compute_in_float64_are_not_asked_C7(
    device: OpenCL, memory: Blocks
) -> None:
    mask = memory.upload(ramp(8) > 3)
    with pytest.raises(DeviceError, match="float64: the device lacks float64; NumPy does it"):
        device.library.compact(memory.upload(ramp(8)), mask)
    found = device.library.compact(memory.upload(np.arange(8)), mask)
    np.testing.assert_array_equal(memory.gather(found), np.arange(4, 8))


def test_copies_within_the_device_C7(memory: Blocks) -> None:
    source, target = memory.upload(ramp(50)), memory.upload(ramp(80) * 0)
    memory.copy(source[10:30], target[40:60])
    expected = ramp(80) * 0
    expected[40:60] = ramp(50)[10:30]
    np.testing.assert_array_equal(memory.gather(target), expected)


@pytest.mark.parametrize("value", [2.5, 1e300, -1e300, np.nan, np.float64(0.1)])
def test_numbers_are_rounded_C7(device: OpenCL, memory: Blocks, value: Any) -> None:
    program = device.compile(opencl_source("a0 = x0 + x1.y;", ("f4",), ("f4", "c8"), name="sum"))
    stand_in = memory.empty((3,), np.dtype("f8"))
    flags_of(program.launch(launch_of((stand_in,), (value, complex(1e300, value)))))
    with np.errstate(all="ignore"):
        expected = np.float32(value) + np.float32(value)
    np.testing.assert_array_equal(memory.gather(stand_in), np.full(3, expected))
