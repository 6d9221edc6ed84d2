"""OpenCL devices without float64: the CPU takes such kernels over, or float32 does, if asked to.

The device is PoCL with its double precision switched off. Test names end with the feature rows.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest

import lazyfuse as np
from lazyfuse.devices import cost
from lazyfuse.runtime.events import counters
from lazyfuse.runtime.numerics import narrow_precision
from lazyfuse.runtime.placement import calibrate, devices
from lazyfuse.runtime.scheduling import evaluate
from tests import campaign
from tests.pairwise import first

N = 50_000
CLOSE = 1e-6  # a few units in the last place of float32


@contextlib.contextmanager
def opened(**switches: bool) -> Iterator[Any]:
    """The OpenCL device without fp64, in use."""
    pytest.importorskip("pyopencl")
    with np.options(device="opencl", opencl_fp64=False, eager_below=0, **switches):
        device: Any = devices.current()
        if not device.traits.name.startswith("opencl"):
            pytest.skip(f"no OpenCL device: {dict(counters.totals().fallbacks)}")
        evaluate.clear_plans()
        counters.reset()
        yield device
        device.wait()


@pytest.fixture(params=[False, True], ids=["chunks", "grid"])
def single(request: pytest.FixtureRequest) -> Iterator[Any]:
    """As the user has asked: float64 in float32."""
    with opened(single_precision=True, opencl_grid=request.param) as device:
        yield device


@pytest.fixture(params=[False, pytest.param(True, marks=pytest.mark.long)], ids=["chunks", "grid"])
def either_text(request: pytest.FixtureRequest) -> Iterator[Any]:
    """As `single`, for many kernels: the cases below meet both languages."""
    with opened(single_precision=True, opencl_grid=request.param) as device:
        yield device


@pytest.fixture
def chunks() -> Iterator[Any]:
    """For what does not depend on how kernels go through arrays."""
    with opened(single_precision=True) as device:
        yield device


@pytest.fixture(params=[True, False], ids=["shared", "discrete"])
def plain(request: pytest.FixtureRequest) -> Iterator[Any]:
    """As it is without being asked."""
    with opened(opencl_share=request.param) as device:
        yield device


def values(seed: int = 1, shape: Any = N) -> Any:
    return numpy.random.default_rng(seed).uniform(1, 2, shape)


def whole(seed: int = 1, shape: Any = N) -> Any:
    """Small whole numbers as float64: their sums and products are exact in float32."""
    return numpy.random.default_rng(seed).integers(-8, 9, shape).astype(float)


def same(found: Any, expected: Any) -> None:
    """The same dtype, and the same values as float32 has them."""
    found = found.to_numpy() if isinstance(found, np.ndarray) else found
    assert found.dtype == expected.dtype
    numpy.testing.assert_allclose(found, expected, CLOSE, CLOSE)


def all_there(device: Any) -> None:
    """Every kernel ran on the device, and was said to compute in float32."""
    totals = counters.totals()
    assert not totals.fallbacks
    assert set(totals.launches) == {device.traits.name}
    assert totals.narrowed[device.traits.name] == totals.kernels > 0


# ---------------------------------------------------------------------------------- not asked for


def test_float64_runs_on_the_cpu_and_the_report_says_why_C7_E5(plain: Any) -> None:
    a = values()
    x = np.array(a)
    numpy.testing.assert_array_equal((x * x + 0.1).to_numpy(), a * a + 0.1)
    numpy.testing.assert_array_equal((x[::2] - 1.0).sum(), (a[::2] - 1.0).sum())
    assert set(counters.totals().launches) == {"cpu"}
    reasons = list(counters.totals().fallbacks)
    assert reasons
    assert all(narrow_precision.LACKS in reason for reason in reasons)
    assert narrow_precision.LACKS in str(np.report())
    assert not counters.totals().copies, "nothing is moved for nothing"
    assert not counters.totals().narrowed


def test_explain_says_where_and_why_C7_E5(plain: Any) -> None:
    x = np.array(values())
    (kernel,) = np.explain(np.sqrt(x) * x).kernels
    assert kernel.device == "cpu"
    assert kernel.language in ("numba", "numpy")
    assert kernel.note == f"not on {plain.traits.name}: {narrow_precision.LACKS}"
    assert kernel.note in str(kernel)


@pytest.mark.parametrize("dtype", first(2, ["float32", "complex64", "int64", "int32", "uint8"]))
def test_smaller_numbers_run_there_without_a_note_C7(plain: Any, dtype: str) -> None:
    a = (whole(1) + 20).astype(dtype)
    x = np.array(a)
    y = x * x + x
    (kernel,) = np.explain(y).kernels
    assert (kernel.device, kernel.note) == (plain.traits.name, "")
    assert "double" not in kernel.source("opencl")
    numpy.testing.assert_array_equal(y.to_numpy(), a * a + a)
    if dtype != "complex64":
        numpy.testing.assert_array_equal((x // a.dtype.type(3)).to_numpy(), a // a.dtype.type(3))
    assert set(counters.totals().launches) == {plain.traits.name}
    assert not counters.totals().fallbacks
    assert not counters.totals().narrowed


def test_a_program_of_both_is_right_C7(plain: Any) -> None:
    a, b = values(1), values(2).astype("float32")
    x, y = np.array(a), np.array(b)
    for _ in range(3):
        z = y * y
        np.evaluate(z)  # on the device
        w = x * z + x.sum()  # float64 of both
        x[10:20] = w[:10]
        a, c = a.copy(), a * (b * b) + a.sum()
        a[10:20] = c[:10]
        numpy.testing.assert_array_equal(x.to_numpy(), a)
        numpy.testing.assert_array_equal(w.astype("float32").to_numpy(), c.astype("float32"))
    assert set(counters.totals().launches) == {"cpu", plain.traits.name}


def test_warming_up_builds_nothing_that_cannot_be_C7_C10(plain: Any) -> None:
    x = np.array(values())
    assert np.warm_up(x * x - 0.5) == []
    assert any(narrow_precision.LACKS in reason for reason in counters.totals().fallbacks)
    y = np.array(values().astype("float32"))
    assert len(np.warm_up(y * y)) == 1


def test_to_device_and_back_keeps_float64_C7_C8() -> None:
    with opened(opencl_share=False) as device:
        a = values()
        x = np.array(a).to_device(device.traits.name)
        numpy.testing.assert_array_equal((x + 0.1).to_numpy(), a + 0.1)
        numpy.testing.assert_array_equal(x.to_numpy(), a)


# -------------------------------------------------------------------------------------- asked for


def test_float64_is_computed_in_float32_and_said_aloud_C7_E5(single: Any) -> None:
    a = values()
    x = np.array(a)
    y = np.sin(x) * x + 0.1
    (kernel,) = np.explain(y).kernels
    assert kernel.device == single.traits.name
    assert kernel.note == narrow_precision.NARROWED
    assert narrow_precision.NARROWED in str(np.explain(y))
    assert "double" not in kernel.source(kernel.language)
    same(y, numpy.sin(a) * a + 0.1)
    all_there(single)
    lines = [line for line in str(np.report()).splitlines() if narrow_precision.NARROWED in line]
    assert lines == [
        f"single precision  1 kernels on {single.traits.name}: {narrow_precision.NARROWED}",
    ]


def test_smaller_numbers_are_not_said_to_be_narrowed_C7(chunks: Any) -> None:
    a = values().astype("float32")
    x = np.array(a) * np.array(a)
    assert [kernel.note for kernel in np.explain(x).kernels] == [""]
    numpy.testing.assert_array_equal(x.to_numpy(), a * a)
    assert not counters.totals().narrowed


def test_values_of_float32_survive_the_journey_C7(chunks: Any) -> None:
    a = values().astype("float32").astype("float64")
    z = a + 1j * a[::-1]
    for array in (a, z, a.reshape(200, 250).T, a[::-1]):
        x = np.array(array).to_device(chunks.traits.name)
        numpy.testing.assert_array_equal(x.to_numpy(), array)
        assert x.dtype == array.dtype


CASES: dict[str, Callable[[Any, Any], Any]] = {
    "functions": lambda xp, x: xp.exp(-x) * xp.log1p(x) / (xp.hypot(x, 2.0) + xp.tan(x / 4)),
    "float_power": lambda xp, x: xp.float_power(x, 1.5),
    "rounding": lambda xp, x: xp.floor(x * 10) + xp.rint(x * 3),
    "bits": lambda xp, x: xp.ldexp(x, 3) + xp.frexp(x)[0] + xp.frexp(x)[1],
    "scalars": lambda xp, x: (x * 0.7 - 0.125) / 3.0 + x % 0.5,
    "to int": lambda xp, x: (x * 100 + 0.5).astype("int64"),
    "to float32": lambda xp, x: (x * 3).astype("float32"),
    "from int": lambda xp, x: (x * 10).astype("int32") / 4,
    "truth": lambda xp, x: (x > 1.5) & (x < 1.75),
    "where": lambda xp, x: xp.where(x > 1.5, x, -x),
    "complex": lambda xp, x: (x + 2j * x) * (x - 1j),
    "parts": lambda xp, x: (x + 2j * x).imag + abs(x * 1j),
    "sum": lambda xp, x: x.sum(),
    "sum of an axis": lambda xp, x: x.reshape(50, -1).sum(axis=0),
    "sum of the last axis": lambda xp, x: (x * 2).reshape(100, -1).sum(axis=1),
    "complex sum": lambda xp, x: (x + 1j * x).sum(),
    "mean": lambda xp, x: (x * x).mean(),
    "std": lambda xp, x: x.std(),
    "extremes": lambda xp, x: x.max() - x.min(),
    "argmax": lambda xp, x: x.argmax(),
    "argmin of an axis": lambda xp, x: x.reshape(100, -1).argmin(axis=1),
    "strided": lambda xp, x: x[5::3] * x[: -5 - (N - 5) % 3 : 3][: len(x[5::3])],
    "reversed": lambda xp, x: x[::-1] + x,
    "transposed": lambda xp, x: x.reshape(200, 250).T * 2.0 + xp.arange(200.0),
    "broadcast": lambda xp, x: x[:200, None] * x[None, :250],
}


# Where kernels are made for GPUs, building one with reductions takes PoCL seconds.
ON_GRIDS = ("functions", "to int", "sum", "transposed")


# One of each kind: what a reduction, a layout or a cast adds is the same for its neighbours.
USUAL = (
    "functions", "rounding", "scalars", "to int", "to float32", "truth", "complex", "sum",
    "sum of an axis", "mean", "argmax", "transposed", "broadcast",
)  # fmt: skip


@pytest.mark.parametrize("usual", first(1, [True, False]), ids=["usual", "others"])
def test_values_have_the_accuracy_of_float32_C7(single: Any, usual: bool) -> None:
    """All cases are evaluated together, for few kernels."""
    a = values()
    a[[5, 77, 1000]] = 0.5, 3.0, 2.5  # extremes that no rounding can move
    a = a.astype("float32").astype("float64")
    x = np.array(a)
    if single.traits.languages[0] == "opencl-grid":
        names = ON_GRIDS if usual else ()
    else:
        names = USUAL if usual else tuple(name for name in CASES if name not in USUAL)
    if not names:
        pytest.skip("the usual cases are all")
    results = {name: CASES[name](np, x) for name in names}
    np.evaluate(*results.values())
    for name, found in results.items():
        expected = CASES[name](numpy, a)
        if name == "to int":  # what lies near a whole number may fall on either side of it
            assert numpy.abs(found.to_numpy() - expected).max() <= 1
            assert (found.to_numpy() == expected).mean() > 0.99
        else:
            same(found, numpy.asarray(expected)[()])
    all_there(single)


def test_updates_in_place_and_views_of_results_C7(either_text: Any) -> None:
    a = whole(1, (250, 200))
    x = np.array(a)
    part = x[10:20, ::2]
    for step in range(3):
        x[step::7] = x[step::7] * 2.0
        a[step::7] = a[step::7] * 2.0
        x += 1.0
        a += 1.0
        np.evaluate(x)
        numpy.testing.assert_array_equal((part + x.T[:100:10, :10].T.sum()).to_numpy(),
                                         a[10:20, ::2] + a.T[:100:10, :10].T.sum())  # fmt: skip
    numpy.testing.assert_array_equal(x.to_numpy(), a)
    all_there(either_text)


def test_what_looks_at_bits_sees_those_of_float64_C7(chunks: Any) -> None:
    a = whole() + 0.5
    x = np.array(a) * 2.0
    np.evaluate(x)
    numpy.testing.assert_array_equal(numpy.asarray(x.view("int64")), (a * 2.0).view("int64"))
    assert x.to_numpy().tobytes() == (a * 2.0).tobytes()
    assert (x * 1.0).nbytes == a.nbytes


def test_overflow_is_that_of_float32_C7(chunks: Any) -> None:
    x = np.array(numpy.full(N, 1e30))
    with pytest.warns(RuntimeWarning, match="overflow"):
        assert numpy.isinf((x * x).to_numpy()).all()
    x = np.array(numpy.full(N, 2.0))
    assert numpy.isinf((x * 1e300).to_numpy()).all()


def test_results_of_one_mode_are_known_to_the_other_C7_C8(chunks: Any) -> None:
    a = whole()
    x = np.array(a) * 3.0
    np.evaluate(x)
    with np.options(single_precision=False):
        numpy.testing.assert_array_equal((x + 0.1).to_numpy(), a * 3.0 + 0.1)
    same(x + 0.1, a * 3.0 + 0.1)


def test_checked_runs_do_not_compare_float32_with_float64_C7(chunks: Any) -> None:
    a = values()
    x = np.array(a)
    with np.options(validate=True):
        for factor in (0.1, 0.3):
            same(x * factor + 0.7, a * factor + 0.7)
    all_there(chunks)


# ------------------------------------------------------------------------------------ either way


AS_IT_IS = pytest.param(False, marks=pytest.mark.long)


# Where float32 may not stand for it the CPU computes float64, as in the tests of `plain`.
@pytest.fixture(params=[AS_IT_IS, True], ids=["as it is", "single"])
def either(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A device with memory of its own and no float64, whether float32 may stand for it or not."""
    with (
        opened(opencl_share=False, single_precision=request.param) as device,
        np.options(opencl_library="on"),
    ):
        yield device


@pytest.mark.parametrize("either", [False, True], ids=["as it is", "single"], indirect=True)
def test_values_that_were_moved_there_are_viewed_and_written_C7_C8(either: Any) -> None:
    def there(array: Any) -> Any:
        return np.array(array).to_device(either.traits.name)

    a = whole(1, (200, 100))
    for array in (a, a.T):
        for step in (1, 2):
            x = there(array)
            equal(x[::step].reshape(-1) + 0.5, array[::step].reshape(-1) + 0.5)
            equal(x.T[::step].reshape(-1), array.T[::step].reshape(-1))
    x, b = there(a), a.copy()
    x[3:5] = b[3:5] = 1.0
    equal(x, b)
    x[1:4], b[1:4] = x[0:3], b[0:3].copy()
    equal(x, b)
    part = x[:, ::2]
    part += 1.0
    b[:, ::2] += 1.0
    equal(x, b)
    y = x.astype("float32") + x
    equal(y.T.copy(), (b + b).T)
    z, c = there(a + 1j * a) * 2.0, (a + 1j * a) * 2.0
    np.evaluate(z)
    z.real[...] = c.real[...] = 5.0
    equal(z, c)
    equal(z.imag + 0.0, c.imag)


def test_functions_of_the_host_and_frozen_programs_C7(either: Any) -> None:
    a = whole(1, (200, 100))
    x = np.array(a) * 2.0
    np.evaluate(x)
    equal(np.sort(x, axis=0), numpy.sort(a * 2.0, axis=0))
    equal(np.sort(x, axis=None), numpy.sort(a * 2.0, axis=None))
    equal((x @ x.T)[:3], (a @ a.T)[:3] * 4.0)
    equal(x.cumsum(), (a * 2.0).cumsum())
    equal(x[x > 0] * 2.0, a[a > 0] * 4.0)
    out = np.zeros(100)
    np.add.reduce(x, axis=0, out=out)
    equal(out, a.sum(axis=0) * 2.0)
    frozen = np.freeze(lambda m, s: ((m * s + 1.0).sum(axis=0), m.T * s), m=a, s=2.0)
    for step in range(3):
        found = frozen(m=a + step, s=2.0 + step)
        equal(found[0], ((a + step) * (2.0 + step) + 1.0).sum(axis=0))
        equal(found[1], (a + step).T * (2.0 + step))


def equal(found: Any, expected: Any) -> None:
    found = found.to_numpy()
    assert found.dtype == expected.dtype
    numpy.testing.assert_array_equal(found, expected)


def test_such_devices_are_measured_in_float32_C7_C11(either: Any) -> None:
    probes = calibrate.probes(either, (1 << 10, 1 << 11, 1 << 12))
    assert {array.dtype for probe in probes for array in probe.arrays} == {numpy.dtype("f4")}
    costs = cost.measure(either, probes, 1e-6)
    assert set(costs.tiers) == {either.traits.languages[0]}
    assert not costs.fp64


# ------------------------------------------------------------------------------- random programs


STEPS: list[Callable[[Any, Any, Any], Any]] = [
    lambda xp, x, y: x + y,
    lambda xp, x, y: x - 2.0 * y,
    lambda xp, x, y: xp.maximum(x, y),
    lambda xp, x, y: xp.where(x > y, x, -y),
    lambda xp, x, y: abs(x) - xp.minimum(y, 3.0),
    lambda xp, x, y: x[::-1] + y,
    lambda xp, x, y: x.T + y,
    lambda xp, x, y: x + y[:1],
    lambda xp, x, y: x + y.max(axis=1),
    lambda xp, x, y: y + (x * 0.5).astype("int32"),
    lambda xp, x, y: x + (y == x).sum(axis=0),
    lambda xp, x, y: x + y.argmax(axis=0),
    lambda xp, x, y: (x + 1j * y).imag - x,
    lambda xp, x, y: operator.iadd(x.copy(), y),
]


def program(xp: Any, seed: int, a: Any, b: Any) -> Any:
    """Random steps on small whole numbers, some of them writing into views."""
    random = numpy.random.default_rng(seed)
    x, y = a, b
    for _ in range(6):
        x, y = STEPS[random.integers(len(STEPS))](xp, x, y), x
        if random.random() < 0.3:
            low = int(random.integers(1, 50))
            x[low::3, :low] = y[low::3, :low]
        if random.random() < 0.3 and xp is np:
            np.evaluate(x)
        x = xp.clip(x, -1000.0, 1000.0)
    return x, y


# Each program is a dozen kernels of its own; the cases above have the same steps one by one.
@pytest.mark.long
@campaign.rounds(1, start=1)
def test_random_programs_on_whole_numbers_are_exact_C7(either_text: Any, seeds: range) -> None:
    for seed in seeds:
        a, b = whole(2 * seed, (200, 200)), whole(2 * seed + 1, (200, 200))
        expected = program(numpy, seed, a.copy(), b.copy())
        found = program(np, seed, np.array(a), np.array(b))
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.dtype == theirs.dtype
            numpy.testing.assert_array_equal(ours.to_numpy(), theirs, f"seed {seed}")
    assert not counters.totals().fallbacks
