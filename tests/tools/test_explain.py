"""What `explain` says: programs, devices, places, reasons. It never evaluates.

Test names end with the feature rows that they show.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest

import lazyfuse as np
from lazyfuse.arrays.ndarray import node_of
from lazyfuse.devices import cost, registry
from lazyfuse.devices.base import Traits
from lazyfuse.devices.cost import SHARED, Costs, Tier
from lazyfuse.runtime.events import counters, decisions
from lazyfuse.runtime.placement import calibrate, offload
from lazyfuse.runtime.scheduling import evaluate

N = 500_000


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path) -> Iterator[None]:
    """The choice of the device is open, and nothing has been measured or planned."""
    with np.options(device="", offload=True, cache_dir=str(tmp_path)):
        value(20_000).to_numpy()  # a look: or its line will have come round too often
        calibrate.use(None)
        evaluate.clear_plans()
        counters.reset()
        yield
        assert counters.totals().kernels == 0, "explaining launches nothing"
    calibrate.use(None)


def value(size: int = N) -> Any:
    x = np.array(numpy.linspace(0, 1, size))
    return np.sin(x) * x + x


def tiers(language: str, rate: float) -> dict[str, Tier]:
    curve = ((1.0, rate),)
    return {language: Tier(1e-6, 0.0, curve, curve, 1e15, 1e15, 0.1, 0.01)}


def figures(home: float, away: float) -> None:
    """A CPU and an OpenCL device that move so many bytes per second."""
    traits = registry.device("cpu").traits
    other = Traits("opencl:0", "cpu", 2, ("opencl",))
    costs = [
        Costs(each.name, cost.environment(each), True, True, 0.3, SHARED, SHARED, figures)
        for each, figures in (
            (traits, tiers("numba", home)),
            (other, tiers("opencl", away)),
        )
    ]
    calibrate.use({each.device: each for each in costs})


@pytest.mark.smoke
def test_each_kernel_has_a_device_a_language_and_a_name_D6() -> None:
    why = np.explain(value())
    (kernel,) = why.kernels
    assert kernel.device == "cpu"
    assert kernel.language in registry.device("cpu").traits.languages
    assert kernel.name in kernel.source(kernel.language)
    assert f"on cpu as {kernel.language} program {kernel.name}" in str(why)


def test_texts_come_in_every_language_D6() -> None:
    (kernel,) = np.explain(value()).kernels
    assert "def " in kernel.source("numba")
    assert "np.sin" in kernel.source("numpy")
    for language in ("opencl", "opencl-grid"):
        assert "__kernel" in kernel.source(language)
        assert "sin(" in kernel.source(language)
    assert set(kernel.texts) == {"numba", "numpy", "opencl", "opencl-grid"}


def test_kernels_of_little_work_run_as_blocked_numpy() -> None:
    if registry.device("cpu").traits.languages[0] == "numpy":
        pytest.skip("there is no compiler here")
    with np.options(eager_below=0):
        x = np.array(numpy.ones(1000))
        (kernel,) = np.explain((x * 2.0 + x) / 3.0 - x * x + 1.0).kernels
    assert kernel.language == "numpy"


def test_without_figures_the_reason_says_how_to_get_them_C11_D6() -> None:
    assert f"device cpu: {offload.NOT_MEASURED}" in str(np.explain(value()))


def test_every_decision_shows_its_estimates_C11_D6() -> None:
    figures(1e9, 0.5e9)
    why = np.explain(value())
    assert why.choice is not None
    assert [each.device for each in why.choice.estimates] == ["cpu", "opencl:0"]
    line = "device cpu: no other device is expected to be 1.2 times faster"
    assert f"{line} [cpu 8 ms; opencl:0 16 ms]" in str(why)


def test_explaining_does_not_count_as_a_run_C11() -> None:
    figures(1e9, 1e12)
    y = value()
    reasons = {str(np.explain(y)).split("device ")[1].split(" [")[0] for _ in range(200)}
    assert reasons == {"cpu: opencl:0 is expected to be 889 times faster, but is not open yet"}


def test_a_device_that_is_named_is_said_to_be_D6() -> None:
    with np.options(device="cpu"):
        why = np.explain(value())
    assert "device cpu: pinned by lazyfuse.options(device='cpu')" in str(why)
    with np.options(device="null"):
        why = np.explain(value())
    assert (why.kernels[0].device, why.choice.device) == ("null", "null")
    with np.options(device="raise"):
        assert "no program" in str(np.explain(value()))


@pytest.mark.skipif(importlib.util.find_spec("pyopencl") is None, reason="pyopencl is not here")
def test_opencl_kernels_are_named_D6_U3() -> None:
    if not any(e.name.startswith("opencl:") and e.available for e in registry.devices()):
        pytest.skip("there is no OpenCL device here")
    with np.options(device="opencl"):
        why = np.explain(value())
        (kernel,) = why.kernels
        assert kernel.device.startswith("opencl:")
        assert kernel.language.startswith("opencl")
        assert f"__kernel void {kernel.name}(" in " ".join(kernel.source(kernel.language).split())
    assert f"device {kernel.device}: pinned by" in str(why)


def test_rules_are_told_U3() -> None:
    real = numpy.linspace(1.0, 2.0, N)
    x = np.array(real)
    assert np.explain(np.array(real[:9])).rules == (decisions.SMALL,)
    assert np.explain(np.array([1 + 2j], numpy.clongdouble)).rules == (decisions.SMALL,)
    assert np.explain(np.zeros(N, "M8[s]")).rules == (decisions.UNRECORDED_DTYPE,)
    held = numpy.asarray(x)
    assert np.explain(x).rules == (decisions.EXPORTED,)
    assert str(np.explain(x)).splitlines()[-1] == f"rule {decisions.EXPORTED}"
    del held
    assert np.explain(x).rules == ()
    assert decisions.SELECTION in np.explain(x[x > 1.5]).rules
    d = x * x - 3.0
    low, high = d.min(), d.max()
    assert np.explain(low).rules == (decisions.SMALL_OUTPUTS,)
    del d, low, high
    y = x + 1.0
    y[1:] -= 1.0
    assert decisions.UPDATE in np.explain(y).rules


def test_values_in_a_devices_memory_are_said_to_be_there_C8_D6() -> None:
    y = np.sin(np.array(numpy.linspace(0, 1, N)))
    node = node_of(y)
    place = SimpleNamespace(device=SimpleNamespace(traits=SimpleNamespace(name="opencl:7")))
    for each in (node, node.src[0]):
        each.resident = place
    try:
        assert str(np.explain(y)) == "nothing to do: the value is there, on opencl:7"
        node.resident = None
        (kernel,) = np.explain(y).kernels
        assert kernel.residency == ("host and opencl:7",)
        assert "operands in: host and opencl:7" in str(kernel)
    finally:
        for each in (node, node.src[0]):
            each.resident = None
    (kernel,) = np.explain(y).kernels
    assert kernel.residency == ("host",)
    assert "operands in" not in str(kernel)


def test_a_value_that_is_there_needs_nothing_D1() -> None:
    x = np.array(numpy.ones(N))
    assert str(np.explain(x)) == "nothing to do: the value is there"
