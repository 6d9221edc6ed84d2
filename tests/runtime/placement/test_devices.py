"""Devices as users choose them: blocks, options, `to_device`, the list.

Test names end with the feature rows that they show.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy
import pytest

import lazyfuse as np
from lazyfuse.devices.base import DeviceError
from lazyfuse.errors import ConfigurationError
from lazyfuse.runtime.events import counters
from lazyfuse.runtime.placement import devices
from tests.helpers.discrete_device import NAME, in_use

N = 50_000
OTHER = "elsewhere"


def values(seed: int = 1) -> Any:
    return numpy.random.default_rng(seed).uniform(1, 2, N)


def test_a_block_names_the_device_C12_E5() -> None:
    a = values()
    with in_use() as device, np.options(device="cpu"):
        x = np.array(a)
        with np.device(NAME) as name:
            assert name == NAME
            y = x * 2.0
        assert device.launches == 1
        z = x * 3.0
        numpy.testing.assert_array_equal(z.to_numpy(), a * 3.0)
        assert device.launches == 1
        numpy.testing.assert_array_equal(y.to_numpy(), a * 2.0)


def test_a_block_is_of_one_thread_E5() -> None:
    with in_use() as device, np.options(device="cpu"):
        found: list[Any] = []
        with np.device(NAME):
            thread = threading.Thread(target=lambda: found.append(devices.current()))
            thread.start()
            thread.join()
            assert devices.current() is device
        assert found == [devices.cpu()]


def test_a_named_device_is_obeyed_for_small_work_C12() -> None:
    with in_use() as device, np.options(eager_below=0):
        x = np.array([1.0, 2.0]) + 1.0
        assert x.to_numpy().tolist() == [2.0, 3.0]
        assert device.launches == 1


def test_blocks_nest() -> None:
    with in_use() as first, in_use(name=OTHER) as second, np.options(device="cpu"):
        with np.device(NAME):
            with np.device(OTHER):
                assert devices.current() is second
            assert devices.current() is first
        assert devices.current() is devices.cpu()


def test_an_unknown_device_is_an_error_that_says_what_there_is() -> None:
    with pytest.raises(DeviceError, match="expected"), np.device("quantum"):
        pass
    with pytest.raises(ConfigurationError, match="text"):
        np.device(3)


def test_arrays_move_between_devices_E5() -> None:
    a = values()
    with in_use() as first, in_use(name=OTHER) as second, np.options(device=""):
        assert first.memory is not None
        assert second.memory is not None
        x = np.array(a)
        assert x.device == "cpu"
        there = x.to_device(NAME)
        assert (there.device, x.device) == (NAME, "cpu")
        assert there.to_device(NAME) is there
        y = there * 2.0
        np.evaluate(y)
        assert y.device == NAME, "work goes where its operands lie"
        assert first.memory.gathers == 0
        z = y.to_device(OTHER)
        assert z.device == OTHER
        assert (first.memory.gathers, second.memory.uploads) == (1, 1)
        w = z + y
        numpy.testing.assert_array_equal(w.to_numpy(), a * 2.0 + a * 2.0)
        back = z.to_device("cpu")
        assert back.device == "cpu"
        numpy.testing.assert_array_equal(back.to_numpy(), a * 2.0)


def test_a_moved_array_is_a_copy() -> None:
    a = values()
    with in_use(), np.options(device="cpu"):
        x = np.array(a)
        there = x.to_device(NAME)
        there[5:20_005] = 0.0
        x[7] = 3.0
        numpy.testing.assert_array_equal(there[20_005:].to_numpy(), a[20_005:])
        assert not there[5:20_005].any()
        assert float(x[7]) == 3.0


def test_memory_order_survives_the_journey() -> None:
    a = numpy.asfortranarray(values().reshape(250, 200))
    with in_use():
        x = np.array(a, order="F")
        there = x.to_device(NAME)
        assert there.strides == a.strides
        numpy.testing.assert_array_equal((there * 2.0).to_numpy(), a * 2.0)
        assert (there * 2.0).to_numpy().strides == a.strides


def test_to_device_refuses_what_numpy_refuses() -> None:
    x = np.array(values())
    with pytest.raises(ValueError, match="stream"):
        x.to_device("cpu", stream=1)
    with pytest.raises(ValueError, match="quantum"):
        x.to_device("quantum")
    with pytest.raises(ConfigurationError, match="not usable"):
        x.to_device("opencl:none")
    with pytest.raises(AttributeError):
        x.device = "cpu"
    assert x.to_device("cpu") is x


def test_devices_are_listed_with_reasons() -> None:
    entries = np.devices()
    assert [each.name for each in entries][:4] == ["cpu", "dask", "null", "raise"]
    assert all(each.reason for each in entries)


def test_a_sharing_device_leaves_arrays_on_the_host_E5() -> None:
    a = values()
    with in_use(shares=True, name=OTHER) as device:
        y = np.array(a) * 2.0
        assert y.to_device(OTHER).device == "cpu"
        numpy.testing.assert_array_equal(y.to_numpy(), a * 2.0)
        assert device.launches == 1
        assert OTHER not in [each.device for each in np.resident()]


def test_both_devices_keep_their_programs_E5() -> None:
    a = values()
    with in_use() as first, in_use(name=OTHER) as second:
        for _ in range(3):
            for name in (NAME, OTHER, "cpu"):
                with np.options(device=name):
                    numpy.testing.assert_array_equal((np.array(a) * 7.5).to_numpy(), a * 7.5)
        assert (first.programs_made, second.programs_made) == (1, 1)
        assert (first.launches, second.launches) == (3, 3)
        assert counters.totals().launches[NAME] == 3
