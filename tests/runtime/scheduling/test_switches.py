"""Marks and switches: what they keep from happening, and that results stay the same.

Test names end with the feature rows that they show.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest

import lazyfuse as np
from lazyfuse.devices import base
from lazyfuse.runtime.events import counters, tracing
from lazyfuse.runtime.events.tracing import Compile, KernelEnd
from lazyfuse.runtime.execution import program_tiers
from lazyfuse.runtime.placement import devices
from lazyfuse.runtime.scheduling import evaluate
from tests.pairwise import first

N = 50_000


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    counters.reset()
    np.cache_clear()
    yield
    np.cache_clear()


def operands() -> tuple[Any, Any]:
    rng = numpy.random.default_rng(1)
    return rng.uniform(1, 2, N), rng.uniform(1, 2, N)


def kernels(*arrays: Any) -> list[list[str]]:
    return [[each.name for each in kernel.operations] for kernel in np.explain(*arrays).kernels]


# -------------------------------------------------------------------------------------- marks


def test_a_marked_operation_is_a_kernel_of_its_own_A9() -> None:
    real, other = operands()
    a, b = np.array(real), np.array(other)

    def program(mark: Any) -> Any:
        return numpy.sqrt(mark(a * 2.0) + b) - 1.0

    assert kernels(program(lambda x: x)) == [["multiply", "add", "sqrt", "subtract"]]
    y = program(np.unfused)
    assert kernels(y) == [["multiply"], ["add", "sqrt", "subtract"]]
    assert "multiply" in np.explain(y).refusals[0]
    assert "marked by lazyfuse.unfused" in str(np.explain(y))
    with tracing.collect(KernelEnd) as events:
        found = y.to_numpy()
    numpy.testing.assert_array_equal(found, numpy.sqrt(real * 2.0 + other) - 1.0)
    assert [event.stages for event in events] == [1, 3]
    assert kernels(program(lambda x: x)) == [["multiply", "add", "sqrt", "subtract"]]


def test_a_mark_holds_on_every_side_A9() -> None:
    real, other = operands()
    a, b = np.array(real), np.array(other)
    first = a + b
    middle = np.unfused(first * a)
    last = middle - b
    assert kernels(last) == [["add"], ["multiply"], ["subtract"]]
    numpy.testing.assert_array_equal(last.to_numpy(), (real + other) * real - other)


def test_reductions_and_what_they_read_can_be_marked_A9() -> None:
    real, _ = operands()
    a = np.array(real)
    total, low = np.unfused((a * 3.0).sum()), (a * 3.0).min()
    assert sorted(kernels(total, low)) == [["add.reduce"], ["multiply", "minimum.reduce"]]
    assert float(total) == (real * 3.0).sum()
    assert float(low) == (real * 3.0).min()
    product = np.unfused(a * 5.0)
    total = product.sum()
    assert kernels(total) == [["multiply"], ["add.reduce"]]
    assert float(total) == (real * 5.0).sum()


def test_marked_operations_are_not_simplified_away_A9() -> None:
    real, _ = operands()
    a = np.array(real)
    inner = -a
    outer = np.unfused(-inner)
    y = outer + 1.0
    del inner, outer
    assert ["negative"] in kernels(y)
    numpy.testing.assert_array_equal(y.to_numpy(), real + 1.0)


def test_equal_marks_are_one_structure_and_others_are_not_C6_A9() -> None:
    real, _ = operands()
    a = np.array(real)
    before = evaluate.plan_cache_info()["plan misses"]
    for _ in range(3):
        (np.unfused(a / 3.0) + 1.0).to_numpy()
    assert evaluate.plan_cache_info()["plan misses"] == before + 1
    (a / 3.0 + 1.0).to_numpy()
    assert evaluate.plan_cache_info()["plan misses"] == before + 2


def test_marks_hand_back_what_they_get_A9() -> None:
    real, other = operands()
    a, b = np.array(real), np.array(other)
    x, y = a + 1.0, b + 1.0
    assert np.unfused(x) is x
    assert [id(each) for each in np.unfused(x, y)] == [id(x), id(y)]
    done = np.arange(5.0)
    assert np.unfused(done) is done
    assert np.unfused(3.5) == 3.5
    numpy.testing.assert_array_equal(np.unfused(x[::2]).to_numpy(), (real + 1.0)[::2])


# ----------------------------------------------------------------------------------- switches


def test_without_fusion_every_operation_is_a_kernel_A9_B10() -> None:
    real, _ = operands()
    a = np.array(real)
    with np.options(fusion=False):
        y = a * 2.0 + 1.0 - 3.0  # so cheap that it would be computed again rather than stored
        assert kernels(y) == [["multiply"], ["add"], ["subtract"]]
        numpy.testing.assert_array_equal(y.to_numpy(), real * 2.0 + 1.0 - 3.0)
    assert counters.totals().kernels == 3


def test_the_longest_kernel_is_as_long_as_the_option_says_A2_A9() -> None:
    real, _ = operands()
    a = np.array(real)
    with np.options(fusion_max_length=2):
        y = a * 2.0 + 1.0 - 3.0 + 4.0 - 5.0
        assert [len(names) for names in kernels(y)] == [2, 2, 1]
        numpy.testing.assert_array_equal(y.to_numpy(), real * 2.0 + 1.0 - 3.0 + 4.0 - 5.0)


def programs_of(value: Any) -> tuple[Any, list[str]]:
    """The value as NumPy's, and where the programs were found that made it."""
    with tracing.collect(Compile) as events:
        found = value.to_numpy()
    return found, [event.found for event in events]


def expression(a: Any, b: Any) -> Any:
    return a * 7.0 - b / 3.0


def test_plans_can_be_forgotten_at_once_C6_C11() -> None:
    real, other = operands()
    a, b = np.array(real), np.array(other)
    expected = expression(real, other)
    before = evaluate.plan_cache_info()
    with np.options(plan_limit=0):
        for _ in range(3):
            numpy.testing.assert_array_equal(expression(a, b).to_numpy(), expected)
        now = evaluate.plan_cache_info()
        assert now["plan hits"] == before["plan hits"]
        assert now["plan misses"] == before["plan misses"] + 3
        assert (now["entries"], now["limit"]) == (0, 0)
    for _ in range(2):
        numpy.testing.assert_array_equal(expression(a, b).to_numpy(), expected)
    assert evaluate.plan_cache_info()["plan hits"] == before["plan hits"] + 1


def test_plans_are_dropped_beyond_their_limit() -> None:
    real, other = operands()
    a, b = np.array(real), np.array(other)
    with np.options(plan_limit=2):
        for factor in (a * 2.0 - b, a / 2.0 * b, a - b * b, a + b * 2.0):
            factor.to_numpy()
        assert evaluate.plan_cache_info()["entries"] == 2


def test_programs_can_be_forgotten_at_once_C10_C11() -> None:
    real, other = operands()
    a, b = np.array(real), np.array(other)
    expected = expression(real, other)
    with np.options(compile_after=0, cache=False):
        for limit, wanted in ((512, [["built"], [], []]), (0, [["built"]] * 3)):
            np.cache_clear()
            with np.options(program_limit=limit):
                seen = []
                for _ in range(3):
                    found, where = programs_of(expression(a, b))
                    numpy.testing.assert_array_equal(found, expected)
                    seen.append(where)
                held = devices.current().programs.info()["programs"]  # type: ignore[attr-defined]
            assert seen == wanted
            assert (held == 0) == (limit == 0)


def test_programs_on_disk_can_be_switched_off_C10(tmp_path: Path) -> None:
    real, other = operands()
    a, b = np.array(real), np.array(other)
    with np.options(compile_after=0, cache_dir=str(tmp_path)):
        for cache, wanted in ((False, "built"), (True, "built"), (True, "disk"), (False, "built")):
            np.cache_clear()
            with np.options(cache=cache):
                found, where = programs_of(expression(a, b))
            numpy.testing.assert_array_equal(found, expression(real, other))
            assert where == [wanted]
            assert bool(list(tmp_path.rglob("*.bin"))) >= cache


def test_a_kernel_stays_prepared_for_so_many_sizes_B2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_tiers, "MOST_SIZES", 2)
    real, other = operands()
    a, b = np.array(real), np.array(other)
    for size in (N, 40_000, N, 36_000, 44_000):
        y = expression(a[:size], b[:size])
        numpy.testing.assert_array_equal(y.to_numpy(), expression(real[:size], other[:size]))
        for plan in evaluate._plans.values():
            assert all(len(step.selected) <= 2 for step in plan.kernels)


def test_buffers_can_be_given_back_at_once() -> None:
    real, other = operands()
    a, b = np.array(real), np.array(other)
    for limit in ("64MB", 0):
        with np.options(pool_limit=limit):
            pool = devices.current().buffers  # type: ignore[attr-defined]
            pool.clear()
            before = pool.info()["reused"]
            for _ in range(3):
                y = expression(a, b).to_numpy()
                numpy.testing.assert_array_equal(y, expression(real, other))
                del y
            assert (pool.info()["reused"] > before) == (limit != 0)


class Later:
    """A launch that says when somebody waits for it."""

    def __init__(self, bits: int, log: list[str]) -> None:
        self.bits = bits
        self.log = log

    def flags(self) -> int:
        self.log.append("wait")
        return self.bits


class Program(base.Program):
    """A program of the CPU's behind launches that seem to go on."""

    def __init__(self, program: Any, log: list[str]) -> None:
        self.source = program.source
        self.program = program
        self.log = log

    def launch(self, launch: Any) -> Later:
        self.log.append("launch")
        return Later(self.program.launch(launch), self.log)


class Asynchronous(base.Asynchronous):
    """The CPU as a device that works on its own, over host memory."""

    memory = None

    def __init__(self) -> None:
        self.cpu = devices.named("cpu")
        self.empty, self.cached = self.cpu.empty, self.cpu.cached
        self.traits = replace(self.cpu.traits, name="other", kind="gpu", languages=("numba",))
        self.log: list[str] = []

    def compile(self, source: Any) -> Program:
        return Program(self.cpu.compile(source), self.log)

    def wait(self) -> None:
        self.log.append("wait for all")


def test_without_pipelining_every_launch_is_waited_for_B10_C11(monkeypatch: Any) -> None:
    real, other = operands()
    a, b = np.array(real), np.array(other)
    device = Asynchronous()
    monkeypatch.setattr(devices, "user_selected", lambda: device)
    logs = {}
    for pipelining in (True, False):
        device.log.clear()
        with np.options(pipelining=pipelining), tracing.collect(KernelEnd) as events:
            y = np.unfused(a * b) - 1.0
            numpy.testing.assert_array_equal(y.to_numpy(), real * other - 1.0)
        logs[pipelining] = [each for each in device.log if each != "wait for all"]
        assert [(event.device, event.under_way) for event in events] == [("other", True)] * 2
    assert logs[True] == ["launch", "launch", "wait", "wait"]
    assert logs[False] == ["launch", "wait", "launch", "wait"]
    assert counters.totals().launches == {"other": 4}


OFF: dict[str, Any] = {
    "fusion": False,
    "pipelining": False,
    "cache": False,
    "plan_limit": 0,
    "program_limit": 0,
    "pool_limit": 0,
}


# All at once; each by itself has a test of its own above.
@pytest.mark.parametrize("changes", first(2, [{}, OFF, *({name: OFF[name]} for name in OFF)]))
def test_everything_switched_off_gives_the_same_results_A9_B10_C11(changes: Any) -> None:
    real, other = operands()

    def program(xp: Any) -> Any:
        a, b = xp.array(real), xp.array(other)
        for _ in range(4):
            a = xp.sqrt(a * b + 1.0) - b / (1.0 + a * a)
            b[10:] = a[:-10] * 0.5
        return xp.array([a.sum(), b.min(), (a - b).mean(), a[17], b[17]])

    expected = program(numpy)
    with np.options(**changes):
        numpy.testing.assert_array_equal(numpy.asarray(program(np)), expected)


# -------------------------------------------------------------------------------------- warming


def test_warming_up_compiles_what_a_call_needs_and_runs_nothing_C10() -> None:
    real, other = operands()
    a, b = np.array(real), np.array(other)

    def function(x: Any, y: Any) -> Any:
        return {"map": np.sqrt(x) * 3.0 - y, "sum": [(x * 2.0 + y).sum()]}

    with np.options(cache=False):
        names = np.warm_up(function, a, y=b)
        assert names
        assert counters.totals().kernels == 0
        found = function(a, b)
        with tracing.collect(Compile, KernelEnd) as events:
            np.evaluate(found["map"], found["sum"][0])
        programs = [event for event in events if type(event) is Compile]
        assert {event.found for event in programs} == {"memory"}
        assert {event.program for event in events} == set(names)
    numpy.testing.assert_array_equal(found["map"].to_numpy(), numpy.sqrt(real) * 3.0 - other)
    assert float(found["sum"][0]) == (real * 2.0 + other).sum()


def test_warming_up_takes_arrays_and_skips_what_needs_no_program_C10() -> None:
    real, other = operands()
    a, b = np.array(real), np.array(other)
    y = a * b - 0.5
    assert len(np.warm_up(y)) == 1
    assert np.warm_up(np.arange(3.0), 5) == []
    y.to_numpy()
    assert np.warm_up(y) == []
    assert np.warm_up(lambda: None) == []


def opencl() -> Any:
    """The OpenCL device in use, or a skip where there is none."""
    pytest.importorskip("pyopencl")
    device = devices.named("opencl")
    if not device.traits.name.startswith("opencl"):
        pytest.skip(f"no OpenCL device: {dict(counters.totals().fallbacks)}")
    return device


@pytest.mark.parametrize(
    ("name", "looks"),
    [
        ("opencl_share", lambda device: device.memory is None),
        ("opencl_grid", lambda device: "opencl-grid" in device.traits.languages),
        ("opencl_fp64", lambda device: device.traits.fp64),
    ],
)
def test_switches_of_opencl_devices_open_them_anew_C7_C8_C11(name: str, looks: Any) -> None:
    before = opencl()
    value = not getattr(np.options, name)
    if looks(before) == value:
        pytest.skip(f"{before.traits.model} is so by itself")
    real, other = operands()
    with np.options(device="opencl"):
        a, b = np.array(real), np.array(other)
        kept = expression(a, b)
        np.evaluate(kept)
        with np.options(**{name: value}):
            device = opencl()
            assert looks(device) == value
            assert device is devices.current()
            assert device is not before
            found = (kept + a * 2.0).to_numpy()  # what lies on the one is known to the other
            numpy.testing.assert_array_equal(found, expression(real, other) + real * 2.0)
        assert looks(opencl()) != value
        found = (kept - a * 2.0).to_numpy()
        numpy.testing.assert_array_equal(found, expression(real, other) - real * 2.0)
