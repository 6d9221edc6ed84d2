"""Calls that NumPy would do, on a device by its libraries: which, with what result, and when not.

Test names end with the feature rows that they show.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy
import pytest

import lazyfuse as np
from lazyfuse.devices.opencl.failures import faults
from lazyfuse.errors import ConfigurationError
from lazyfuse.runtime.events import counters
from lazyfuse.runtime.events.tracing import Single, collect
from lazyfuse.runtime.placement import devices

N = 30_000
VALUES = numpy.random.default_rng(1).normal(size=N)
MODES = ("shared", "discrete")
NUMBERS = numpy.random.default_rng(2).integers(-(2**40), 2**40, N)


# What a call does depends on where memory lies in its copies alone: where the libraries compute
# for a test's own sake one mode is enough, and each of the two has its share.
def only(usual: str) -> pytest.MarkDecorator:
    """The other mode of memory is `long`."""
    marks = [() if each == usual else pytest.mark.long for each in MODES]
    modes = [pytest.param(each, marks=mark) for each, mark in zip(MODES, marks, strict=True)]
    return pytest.mark.parametrize("name", modes, indirect=True)


@pytest.fixture(params=MODES)
def name(request: pytest.FixtureRequest) -> Iterator[str]:
    pytest.importorskip("mako", reason="pyopencl.scan needs it")
    with np.options(device="opencl", opencl_share=request.param == "shared", opencl_library="on"):
        if devices.current() is devices.cpu():
            pytest.skip("no OpenCL device builds programs here")
        counters.reset()
        yield devices.current().traits.name
    faults.clear()


def ran() -> int:
    return counters.totals().languages["library"]


def gathered() -> int:
    return sum(count for key, count in counters.totals().copies.items() if key[0] == "gather")


@only("shared")
def test_sorts_of_expressions_U3(name: str) -> None:
    with collect(Single) as events:
        found = np.sort(np.array(VALUES) * 2).to_numpy()
    numpy.testing.assert_array_equal(found, numpy.sort(VALUES * 2))
    assert ran() == 1
    assert [(each.operation.name, each.device) for each in events] == [("sort", name)]


@only("discrete")
def test_results_stay_on_the_device_C8(name: str) -> None:
    x = np.array(NUMBERS) + 1
    y = np.cumsum(x) * 2
    z = np.sort(np.cumsum(y))
    np.evaluate(z)
    assert ran() == 3
    assert gathered() == 0
    numpy.testing.assert_array_equal(
        z.to_numpy(), numpy.sort(numpy.cumsum(numpy.cumsum(NUMBERS + 1) * 2))
    )


@only("shared")
def test_masks_as_keys_E4(name: str) -> None:
    x = np.array(VALUES) * 2
    y = x[x > 0.5]
    assert ran() == 1
    numpy.testing.assert_array_equal((y + 1).to_numpy(), (VALUES * 2)[VALUES * 2 > 0.5] + 1)


def test_the_host_knows_the_length_alone_C8(name: str) -> None:
    x = np.array(VALUES) * 2
    y = x[x > 0.5]
    assert y.shape == ((VALUES > 0.25).sum(),)
    purposes = [key[2] for key in counters.totals().copies if key[0] == "gather"]
    assert purposes == ["length of the result"]


@only("discrete")
def test_places_of_true_elements(name: str) -> None:
    found = np.flatnonzero(np.array(VALUES) * 2 > 0.5)
    assert ran() == 1
    numpy.testing.assert_array_equal(found.to_numpy(), numpy.flatnonzero(VALUES * 2 > 0.5))


@only("shared")
def test_stable_places_only(name: str) -> None:
    x = np.array(NUMBERS) % 7
    numpy.testing.assert_array_equal(np.argsort(x).to_numpy(), numpy.argsort(NUMBERS % 7))
    assert ran() == 0
    numpy.testing.assert_array_equal(
        np.argsort(x + 0, stable=True).to_numpy(), numpy.argsort(NUMBERS % 7, stable=True)
    )
    assert ran() == 1


def test_sums_that_round_stay_on_the_host(name: str) -> None:
    found = np.cumsum(np.array(VALUES) * 2).to_numpy()
    numpy.testing.assert_array_equal(found, numpy.cumsum(VALUES * 2))
    assert ran() == 0


def test_what_has_no_rule_stays_on_the_host(name: str) -> None:
    a = VALUES.reshape(300, 100)
    found = np.sort(np.array(a) * 2, axis=0).to_numpy()
    numpy.testing.assert_array_equal(found, numpy.sort(a * 2, axis=0))
    assert ran() == 0


@pytest.mark.parametrize("choice", ["auto", "off"])
def test_on_the_hosts_own_cores_numpy_does_it(name: str, choice: str) -> None:
    with np.options(opencl_library=choice):
        x = np.sort(np.array(VALUES) * 2)
        assert "by a library" not in str(np.explain(x))
        x.to_numpy()
        y = x[x > 0.5]
    assert ran() == 0
    expected = numpy.sort(VALUES * 2)
    numpy.testing.assert_array_equal(y.to_numpy(), expected[expected > 0.5])


def test_an_explanation_says_where_a_call_will_run_U3(name: str) -> None:
    text = str(np.explain(np.sort(np.array(VALUES) * 2)))
    assert "by a library of the device: sort -> float64" in text
    assert "in NumPy" not in text


@pytest.mark.parametrize("call", ["sort", "mask"])
def test_what_a_library_cannot_do_numpy_does_C12(name: str, call: str) -> None:
    x = np.array(VALUES) * 2
    np.evaluate(x, x > 0)
    mask = x > 0
    np.evaluate(mask)
    faults.plan("build", "BUILD_PROGRAM_FAILURE", times=9)
    faults.plan("allocate", "MEM_OBJECT_ALLOCATION_FAILURE", times=9)
    faults.plan("launch", "OUT_OF_RESOURCES", times=9)
    found = (np.sort(x) if call == "sort" else x[mask]).to_numpy()
    faults.clear()
    expected = VALUES * 2
    numpy.testing.assert_array_equal(
        found, numpy.sort(expected) if call == "sort" else expected[expected > 0]
    )
    assert ran() == 0
    # in memory that is shared the host has x and the mask already, and asks no library
    asked = call == "sort" or devices.current().memory is not None
    assert bool(counters.totals().fallbacks) is asked


def test_a_lost_device_is_made_up_for_C12() -> None:
    pytest.importorskip("mako", reason="pyopencl.scan needs it")
    with np.options(device="opencl", opencl_share=False, opencl_library="on"):
        x = np.array(VALUES) * 2
        y = x[x > 0.5]
        devices.lose(devices.current(), "a test says so")
        numpy.testing.assert_array_equal(y.to_numpy(), (VALUES * 2)[VALUES * 2 > 0.5])


@only("discrete")
def test_without_the_libraries_products_and_transforms_are_numpys_C12(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("pyclblast", "pyvkfft", "pyvkfft.opencl"):
        monkeypatch.setitem(sys.modules, module, None)
    a = VALUES.reshape(300, 100)
    x = np.array(a) * 2
    numpy.testing.assert_allclose((x @ (x + 1).T).to_numpy(), (a * 2) @ (a * 2 + 1).T, atol=1e-9)
    numpy.testing.assert_array_equal(np.fft.fft(x + 0).to_numpy(), numpy.fft.fft(a * 2))
    assert ran() == 0
    assert any("pyvkfft" in reason for reason in counters.totals().fallbacks)


def test_products_and_transforms(name: str) -> None:
    pytest.importorskip("pyclblast")
    pytest.importorskip("pyvkfft")
    a = VALUES.reshape(300, 100)
    x, y = np.array(a) * 2, np.array(a.T) + 0
    exact = (a * 2) @ a.T
    bound = 100 * numpy.finfo("f8").eps * (numpy.abs(a * 2) @ numpy.abs(a.T))
    assert (numpy.abs((x @ y).to_numpy() - exact) <= bound).all()
    for ours, theirs in ((np.fft.fft, numpy.fft.fft), (np.fft.ifft2, numpy.fft.ifft2)):
        expected = theirs(a * 2)
        found = ours(x + 0).to_numpy()
        error = numpy.linalg.norm(found - expected)
        assert error <= 10 * numpy.finfo("f8").eps * numpy.linalg.norm(expected)
    assert ran() >= 2


TRANSFORMS = {
    "fft": [{}, {"axis": 0}, {"n": 100, "norm": "ortho"}],
    "ifft": [{}, {"axis": -2, "norm": "backward"}],
    "fft2": [{}, {"axes": (1, 0), "norm": "ortho"}],
    "ifft2": [{}, {"axes": (0,)}],
    "fftn": [{}, {"axes": (-1,)}],
    "ifftn": [{}, {"norm": "ortho"}],
}


@pytest.mark.parametrize("name", ["shared"], indirect=True)
@pytest.mark.parametrize("function", list(TRANSFORMS))
def test_a_library_is_told_what_to_transform(
    function: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def transform(x: Any, axes: tuple[int, ...], inverse: bool, norm: str) -> Any:
        return (numpy.fft.ifftn if inverse else numpy.fft.fftn)(x, axes=axes, norm=norm)

    monkeypatch.setattr(devices.current().library, "transform", transform)
    a = VALUES.reshape(300, 100)
    x = np.array(a) + 0
    for named in TRANSFORMS[function]:
        before = ran()
        found = getattr(np.fft, function)(x, **named)
        assert ran() == before + 1
        numpy.testing.assert_allclose(
            found.to_numpy(), getattr(numpy.fft, function)(a, **named), atol=1e-9
        )
    for named in ({"norm": "forward"}, {"out": np.empty((300, 100), complex)}):
        getattr(np.fft, function)(x, **named)
    assert ran() == before + 1


def test_the_option_is_one_of_three() -> None:
    with pytest.raises(ConfigurationError, match="auto or on or off"):
        np.options(opencl_library="perhaps")
