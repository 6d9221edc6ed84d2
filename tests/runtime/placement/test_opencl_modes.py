"""The other ways of an OpenCL device, forced on the one that is here: memory of its own, GPU texts.

The programs of test_aliasing.py, test_expressions.py and test_random_graphs.py, fewer of them: each
new kernel costs a build. Test names end with the feature rows that they show.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest

import lazyfuse as np
from lazyfuse import config
from lazyfuse.devices.opencl.device import OpenCL
from lazyfuse.runtime.execution.executor import Run
from tests import campaign
from tests.arrays.memory import test_aliasing as aliasing
from tests.helpers.opencl_device import in_use
from tests.pairwise import first as usual
from tests.programs import test_random_graphs as graphs
from tests.programs.compare import complain, failure
from tests.programs.grammar import MIDDLE, Grammar

N = 50_000
MODES = {"discrete": (False, False), "grid": (True, True), "discrete grid": (False, True)}


@pytest.fixture(params=MODES)
def device(request: pytest.FixtureRequest) -> Iterator[OpenCL]:
    share, grid = MODES[request.param]
    with in_use(share, grid) as found:
        yield found


@pytest.fixture
def discrete() -> Iterator[OpenCL]:
    with in_use(share=False) as found:
        yield found


def only(mode: str) -> pytest.MarkDecorator:
    """The other modes are `long`: new kernels are the cost, and memory and text do not meet in one
    test more than in another. Together the tests meet all modes."""
    modes = [pytest.param(each, marks=() if each == mode else pytest.mark.long) for each in MODES]
    return pytest.mark.parametrize("device", modes, indirect=True)


def values(seed: int = 1) -> Any:
    return numpy.random.default_rng(seed).uniform(1, 2, N)


# ------------------------------------------------------------------------------ random programs


@only("discrete")
@campaign.rounds(2, start=100_000)
def test_views_and_writes_equal_numpy_B9_C8(device: OpenCL, seeds: range) -> None:
    for seed in seeds:
        aliasing.play(seed, 0)
    assert device.queue.launches


def test_maps_of_maps_are_copied_after_the_kernels_below(monkeypatch: pytest.MonkeyPatch) -> None:
    """A map whose axes are divided is copied for the map above it: once kernels have run."""
    under_way: list[int] = []
    move = Run.move

    def watched(run: Run, temporary: Any, part: Any) -> None:
        under_way.append(len(run.waiting))
        move(run, temporary, part)

    monkeypatch.setattr(Run, "move", watched)
    a = values()
    slope = numpy.gradient(a)
    with in_use(share=True), config.options(eager_below=0, plan_after=0):
        ours = np.gradient(np.array(a))
        found = np.append(np.repeat(ours, 2), ours)
        numpy.testing.assert_array_equal(found, numpy.append(numpy.repeat(slope, 2), slope))
    assert under_way
    assert not any(under_way)


@campaign.rounds(2, start=100_000)
def test_uploads_are_never_out_of_date_C8(discrete: OpenCL, seeds: range) -> None:
    with config.options(validate=True):
        for seed in seeds:
            aliasing.play(seed, 0)
    assert discrete.memory is not None
    assert discrete.memory.transfers.uploads


# Functions have one text in all modes: "discrete grid" finds the kernels of "grid".
@pytest.mark.parametrize(
    ("device", "inexact"),
    [
        ("discrete", False), pytest.param("discrete", True, marks=pytest.mark.long),
        pytest.param("grid", False, marks=pytest.mark.long),
        pytest.param("grid", True, marks=pytest.mark.long),
        pytest.param("discrete grid", False, marks=pytest.mark.long), ("discrete grid", True),
    ],
    indirect=["device"],
)  # fmt: skip
@campaign.rounds(1, start=7 * 10**6)
def test_expressions_equal_numpy_A6_C5(device: OpenCL, inexact: bool, seeds: range) -> None:
    with config.options(eager_below=0):
        for seed in seeds:
            program = Grammar(seed, MIDDLE, inexact).program()
            what = failure(program)
            if what:
                complain(program, f"seed {seed}: {what}")


@only("grid")
@campaign.rounds(2, start=100_000)
def test_graphs_equal_the_oracle_A6_B9(device: OpenCL, seeds: range) -> None:
    for seed in seeds:
        graphs.check(seed, seed % 2 == 0)


# -------------------------------------------------------------------------------- conditions


def heard(calculate: Callable[[], Any]) -> tuple[Any, set[str]]:
    """A result, and the conditions of which it warned."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        result = calculate()
    return result, {str(each.message).split(" encountered")[0] for each in found}


# Each dtype, each axis and each mode; the texts are compared in tests/codegen.
@pytest.mark.parametrize(
    ("mode", "dtype", "axis"),
    [
        pytest.param("discrete", "f8", None, marks=pytest.mark.long),
        pytest.param("discrete", "f8", 0, marks=pytest.mark.long), ("discrete", "f8", 1),
        ("discrete", "f4", None), pytest.param("discrete", "c16", 1, marks=pytest.mark.long),
        ("grid", "f8", None), ("discrete grid", "c16", 0),
    ],
)  # fmt: skip
def test_sums_warn_where_numpy_does_A11(mode: str, dtype: str, axis: int | None) -> None:
    with in_use(*MODES[mode]):
        check_sums(numpy.ones((130, 140), dtype), axis)


def check_sums(ones: Any, axis: int | None) -> None:
    big = numpy.finfo(ones.dtype).max
    for first, second, warns in (
        (numpy.inf, numpy.inf, set()),
        (numpy.nan, -numpy.inf, set()),
        (big, big, {"overflow"}),
        (numpy.inf, -numpy.inf, {"invalid value"}),
    ):
        a = ones.copy()
        a[20, 30] = first
        a[20, 38] = a[28, 30] = second
        wanted, expected = heard(lambda a=a: a.sum(axis))
        found, told = heard(lambda a=a: np.array(a).sum(axis).to_numpy())
        numpy.testing.assert_array_equal(found, wanted)
        assert told == expected == warns, (first, second)


# ------------------------------------------------------------------------------------ order


@pytest.mark.parametrize("share", usual(1, [False, True]))
def test_a_number_from_one_kernel_is_there_for_the_next_C5(share: bool) -> None:
    a = values()[:4_000]

    def scaled(m: Any, x: Any, factor: float) -> Any:
        y = m.fmod(m.fmod(m.fmod(x * 1e300, 7.1) * 1e300, 5.3) * 1e300, 3.7)  # takes its time
        return x / (y * factor).max()  # which is passed to the second kernel by value

    with in_use(share) as device, config.options(eager_below=0):
        x = np.array(a)
        for factor in range(2, 12):
            found = scaled(np, x, factor).to_numpy()
            numpy.testing.assert_array_equal(found, scaled(numpy, a, factor))
        assert device.queue.launches >= 20


# ------------------------------------------------------------------------------------ copies


def test_ten_statements_copy_nothing_back_C8_E4(discrete: OpenCL) -> None:
    a, b = values(1), values(2)
    x, y = np.array(a), np.array(b)
    expected = a
    z = x
    for _ in range(10):
        z = z * y + 1.0
        np.evaluate(z)
        expected = expected * b + 1.0
    found = discrete.info()["transfers"]
    assert (found["uploads"], found["gathers"]) == (2, 0)
    assert found["uploaded_bytes"] == 2 * a.nbytes
    numpy.testing.assert_array_equal(z.to_numpy(), expected)
    found = discrete.info()["transfers"]
    assert (found["uploads"], found["gathers"], found["gathered_bytes"]) == (2, 1, a.nbytes)


def test_nothing_is_uploaded_or_gathered_twice_C8_E4(discrete: OpenCL) -> None:
    a = values()
    x = np.array(a)
    for factor in (2.0, 3.0, 4.0):
        y = x * factor
        numpy.testing.assert_array_equal(y.to_numpy(), a * factor)
        numpy.testing.assert_array_equal(y.to_numpy(), a * factor)
        assert y[3] == a[3] * factor
    found = discrete.info()["transfers"]
    assert (found["uploads"], found["gathers"]) == (1, 3)


def test_a_loop_that_writes_in_place_stays_on_the_device_C8_E4(discrete: OpenCL) -> None:
    a = values()
    x = np.array(a)
    for _ in range(6):
        x[1:-1] = x[1:-1] * 0.5 + (x[2:] + x[:-2]) * 0.25
        np.evaluate(x)
        a[1:-1] = a[1:-1] * 0.5 + (a[2:] + a[:-2]) * 0.25
    found = discrete.info()["transfers"]
    assert (found["uploads"], found["gathers"]) == (1, 0)
    numpy.testing.assert_array_equal(x.to_numpy(), a)
