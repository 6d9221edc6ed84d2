"""Devices that fail: every result is right, the reason is told, and no state is lost.

Test names end with the feature rows that they show.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy
import pytest

import lazyfuse as np
from lazyfuse.devices.base import DeviceError, DeviceLost
from lazyfuse.errors import EvaluationError
from lazyfuse.runtime.events import counters
from lazyfuse.runtime.placement import devices
from tests.helpers.discrete_device import NAME, FarAway, fails, in_use
from tests.programs import test_random_graphs as graphs

N = 50_000
POINTS = ("build", "launch", "allocate", "upload", "finish", "gather")


@pytest.fixture(params=[False, True], ids=["discrete", "sharing"])
def device(request: pytest.FixtureRequest) -> Iterator[FarAway]:
    with in_use(shares=request.param) as found:
        yield found


@pytest.fixture
def faraway() -> Iterator[FarAway]:
    with in_use() as found:
        yield found


def values(seed: int = 1) -> Any:
    return numpy.random.default_rng(seed).uniform(1, 2, N)


def told() -> str:
    return "\n".join(counters.totals().fallbacks)


@pytest.mark.parametrize("kind", [DeviceError, DeviceLost])
@pytest.mark.parametrize("point", [*POINTS, "wait"])
def test_a_failure_ends_in_the_right_values_and_a_reason_C12_E2(
    device: FarAway, point: str, kind: Any
) -> None:
    a, b = values(1), values(2)
    x, y = np.array(a), np.array(b)
    z = x * y + 1.0
    total = (z - y).sum()
    z[100:40_000] = y[100:40_000]
    device.faults[point] = fails(1, kind)
    expected = a * b + 1.0
    assert float(total) == (expected - b).sum()
    expected[100:40_000] = b[100:40_000]
    numpy.testing.assert_array_equal(z.to_numpy(), expected)
    numpy.testing.assert_array_equal((z * 2.0 - x).to_numpy(), expected * 2.0 - a)
    if not device.faults[point]:
        assert "planned" in told()
        assert devices.is_lost(device) or kind is DeviceError or point == "gather"


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("after", [0, 1, 2, 5])
def test_random_graphs_equal_the_oracle_whatever_fails_C12_E2(point: str, after: int) -> None:
    for seed in range(80_000, 80_012):
        for shares in (False, True):
            with in_use(shares) as device:
                device.faults[point] = [None] * after + fails(2)
                graphs.check(seed, seed % 2 == 0)


def test_a_lost_device_gives_its_place_to_the_cpu_C12(device: FarAway) -> None:
    a = values()
    x = np.array(a)
    device.faults["launch"] = fails(1, DeviceLost)
    numpy.testing.assert_array_equal((x * 2.0).to_numpy(), a * 2.0)
    assert devices.current() is devices.cpu()
    launches = device.launches
    numpy.testing.assert_array_equal((x * 3.0).to_numpy(), a * 3.0)
    assert device.launches == launches
    assert f"device {NAME}: planned; the CPU goes on" in str(np.report())


def test_values_on_a_lost_device_are_computed_again_E2(faraway: FarAway) -> None:
    a = values()
    x = np.array(a)
    y = x * 2.0
    np.evaluate(y)
    z = y + x
    np.evaluate(z)
    faraway.faults["gather"] = fails(1, DeviceLost)
    numpy.testing.assert_array_equal(z.to_numpy(), a * 2.0 + a)
    numpy.testing.assert_array_equal(y.to_numpy(), a * 2.0)


def test_values_from_temporaries_survive_a_lost_device_E2(faraway: FarAway) -> None:
    a = values()
    y = np.array(a) * 2.0
    np.evaluate(y)
    y[5:30_000] = 1.0
    np.evaluate(y)
    faraway.faults["gather"] = fails(1, DeviceLost)
    expected = a * 2.0
    expected[5:30_000] = 1.0
    numpy.testing.assert_array_equal(y.to_numpy(), expected)


def test_values_that_cannot_be_had_again_are_an_error_that_names_the_line_E2(
    faraway: FarAway,
) -> None:
    x = np.array(values())
    y = x * 2.0
    np.evaluate(y)
    x[3] = 0.0  # what y was computed from is gone
    faraway.faults["gather"] = fails(1, DeviceLost)
    with pytest.raises(EvaluationError, match="which is lost") as caught:
        y.to_numpy()
    assert caught.value.file == __file__
    assert caught.value.op == "multiply"
    assert float((x + 1.0)[3]) == 1.0, "everything else goes on"


def test_out_of_memory_costs_one_kernel_its_device_C12(faraway: FarAway) -> None:
    a = values()
    x = np.array(a)
    faraway.faults["allocate"] = fails(1)
    y = x * 2.0
    np.evaluate(y)
    assert "planned" in told()
    numpy.testing.assert_array_equal((y + 1.0).to_numpy(), a * 2.0 + 1.0)
    assert faraway.launches == 1, "the device goes on"


def test_a_refused_program_is_not_built_again_C12(device: FarAway) -> None:
    a = values()
    device.faults["build"] = fails(1)
    for _ in range(3):
        numpy.testing.assert_array_equal((np.array(a) * 5.25).to_numpy(), a * 5.25)
    assert device.programs_made == 0


def test_a_failing_host_step_leaves_what_was_computed_E2(device: FarAway) -> None:
    a = values()
    x = np.array(a)
    y = x * 2.0
    with pytest.raises(numpy.linalg.LinAlgError):
        np.linalg.inv((x[:40_000] + y[:40_000]).reshape(200, 200) * 0.0)
    numpy.testing.assert_array_equal(y.to_numpy(), a * 2.0)


def test_a_device_that_fails_while_it_writes_over_its_operands_says_so_E2() -> None:
    a = values()
    with in_use(shares=True) as device:
        x = np.array(a) * 1.0
        np.evaluate(x)
        x += 1.0
        device.faults["finish"] = fails(1)
        with contextlib.suppress(EvaluationError):
            numpy.testing.assert_array_equal(x.to_numpy(), a + 1.0)
            return
        assert not device.faults["finish"]


def test_what_the_cpu_does_instead_warns_as_numpy_does_A11_C12(device: FarAway) -> None:
    a = values()
    a[::3] = numpy.nan
    x = np.array(a)
    device.faults["launch"] = fails(9)
    with np.options(compile_after=0):  # vectors of compiled code call a comparison of NaN invalid
        found = np.where(x < 1.5, x * 2.0, np.floor(x)).to_numpy()
    numpy.testing.assert_array_equal(found, numpy.where(a < 1.5, a * 2.0, numpy.floor(a)))
    assert "planned" in told()
