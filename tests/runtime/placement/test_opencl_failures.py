"""An OpenCL device whose driver fails: right values from the next tier, and the reason is told.

As test_failures.py, with the real device and failures where a driver could fail. Test names end
with the feature rows that they show.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy
import pytest

import lazyfuse as np
from lazyfuse import config
from lazyfuse.devices.opencl.device import OpenCL, faults
from lazyfuse.errors import EvaluationError
from lazyfuse.runtime.events import counters
from lazyfuse.runtime.placement import devices, residency
from tests.helpers.opencl_device import in_use
from tests.pairwise import pairwise

N = 50_000
LOST = "DEVICE_NOT_AVAILABLE"
PASSING = "OUT_OF_RESOURCES"


@pytest.fixture(params=[True, False], ids=["shared", "discrete"])
def device(request: pytest.FixtureRequest) -> Iterator[OpenCL]:
    with in_use(share=request.param) as found:
        yield found


@pytest.fixture
def discrete() -> Iterator[OpenCL]:
    with in_use(share=False) as found:
        yield found


def values(seed: int = 1) -> Any:
    return numpy.random.default_rng(seed).uniform(1, 2, N)


def told() -> str:
    return "\n".join(counters.totals().fallbacks)


def is_struck(point: str) -> bool:
    """Whether the planned failure has come."""
    return not faults._planned.get(point)


POINTS = ["build", "load", "launch", "finish", "allocate", "upload", "gather", "copy"]


# What follows from a point depends on the status; on where memory lies and on how often it was
# passed before, each by itself.
@pairwise(
    "device, after, planned",
    [True, False],
    [0, 1],
    [(point, status) for point in POINTS for status in (PASSING, LOST)],
).with_args(indirect=["device"])
def test_a_failure_ends_in_the_right_values_and_a_reason_C12_E2(
    device: OpenCL, after: int, planned: tuple[str, str]
) -> None:
    point, status = planned
    a, b = values(1), values(2)
    x, y = np.array(a), np.array(b)
    faults.plan(point, status, after=after, times=2)
    z = x * y + 1.0
    total = (z - y).sum()
    z[100:40_000] = y[100:40_000]
    kept = z * 1.0
    expected = a * b + 1.0
    assert float(total) == (expected - b).sum()
    expected[100:40_000] = b[100:40_000]
    numpy.testing.assert_array_equal(kept.to_numpy(), expected)
    numpy.testing.assert_array_equal((z * 2.0 - x).to_numpy(), expected * 2.0 - a)
    numpy.testing.assert_array_equal(z.to_numpy(), expected)
    if is_struck(point):
        assert status in told() + device.programs.disk.trouble  # what does not load is built
        assert devices.is_lost(device) or status != LOST or point in ("build", "load")


@pytest.mark.parametrize("limit", [0, 1 << 20])
@pytest.mark.parametrize("point", ["launch", "finish", "gather", "wait"])
def test_a_lost_device_leaves_what_can_be_computed_again_E2(
    discrete: OpenCL, point: str, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = values()
    monkeypatch.setattr(residency, "LINEAGE_BYTES", limit)
    x = np.array(a)
    held = x * 2.0  # from what the user holds
    np.evaluate(held)
    chain = held + x
    np.evaluate(chain)
    free = np.array(a) * 3.0  # from what nobody but the lineage holds
    np.evaluate(free)
    # what was accepted and fails afterwards is the device's end, whatever the driver says
    status = PASSING if point in ("finish", "wait") else LOST
    faults.plan("finish" if point == "wait" else point, status)
    if point == "launch":
        last = x - 1.0
        numpy.testing.assert_array_equal(last.to_numpy(), a - 1.0)
    elif point == "wait":
        np.synchronize()
    numpy.testing.assert_array_equal(chain.to_numpy(), a * 2.0 + a)
    numpy.testing.assert_array_equal(held.to_numpy(), a * 2.0)
    assert devices.is_lost(discrete)
    assert status in told()
    if limit:
        numpy.testing.assert_array_equal(free.to_numpy(), a * 3.0)
    else:
        with pytest.raises(EvaluationError, match="which is lost") as caught:
            free.to_numpy()
        assert (caught.value.file, caught.value.op) == (__file__, "multiply")
    numpy.testing.assert_array_equal((x + 1.0).to_numpy(), a + 1.0)


def test_what_was_overwritten_is_an_error_and_the_rest_goes_on_E2(discrete: OpenCL) -> None:
    a = values()
    x = np.array(a)
    y = x * 2.0
    np.evaluate(y)
    x[3] = 0.0  # what y was computed from is gone
    faults.plan("gather", LOST)
    with pytest.raises(EvaluationError, match="which is lost"):
        y.to_numpy()
    assert float((x + 1.0)[3]) == 1.0


@pytest.mark.parametrize("point", ["build", "launch", "allocate", "upload"])
def test_one_failure_costs_one_kernel_its_device_C12(discrete: OpenCL, point: str) -> None:
    a = values()
    x = np.array(a)
    faults.plan(point, "OUT_OF_HOST_MEMORY", times=2 if point == "allocate" else 1)
    with config.options(cache=False):  # what is on disk is not built
        y = x * 2.0 + 0.125
        np.evaluate(y)
    assert "OUT_OF_HOST_MEMORY" in told()
    before = discrete.queue.launches
    numpy.testing.assert_array_equal((y + 1.0).to_numpy(), a * 2.0 + 0.125 + 1.0)
    assert discrete.queue.launches == before + 1, "the device goes on"


def test_a_refused_program_is_not_built_again_C12(device: OpenCL) -> None:
    a = values()
    faults.plan("build", "BUILD_PROGRAM_FAILURE")
    with config.options(cache=False):
        for _ in range(3):
            numpy.testing.assert_array_equal((np.array(a) * 5.375).to_numpy(), a * 5.375)
    assert device.queue.launches == 0
    assert "BUILD_PROGRAM_FAILURE" in told()
