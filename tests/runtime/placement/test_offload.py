"""Which device a plan gets: by made-up figures, so that nothing here depends on time.

Test names end with the feature rows that they show.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy
import pytest

import lazyfuse as np
from lazyfuse import __main__, config
from lazyfuse.arrays.ndarray import node_of
from lazyfuse.codegen.graph.linearize import Recording, linearize
from lazyfuse.codegen.plan.plan import Plan
from lazyfuse.devices import cost, registry
from lazyfuse.devices.base import DeviceError, Source, Traits
from lazyfuse.devices.cost import SHARED, Costs, Link, Tier
from lazyfuse.runtime.events import counters
from lazyfuse.runtime.placement import calibrate, devices, offload
from lazyfuse.runtime.placement.plan_sizes import SizedPlan
from lazyfuse.runtime.scheduling import evaluate
from tests.pairwise import first

N = 1_000_000


def tier(rate: float, **changes: Any) -> Tier:
    """Moves `rate` bytes per second at any size, and computes for nothing."""
    made = Tier(1e-6, 0.0, ((1.0, rate),), ((1.0, rate),), 1e15, 1e15, 0.1, 0.01)
    return replace(made, **changes)


def away_traits(**changes: Any) -> Traits:
    return replace(Traits("opencl:0", "gpu", 64, ("opencl",), driver="1.0"), **changes)


def home(rate: float) -> Costs:
    traits = registry.device("cpu").traits
    return Costs("cpu", cost.environment(traits), True, True, 0.0, SHARED, SHARED,
                 {"numba": tier(rate)})  # fmt: skip


def away(rate: float, name: str = "opencl:0", **changes: Any) -> Costs:
    environment = cost.environment(away_traits())
    made = Costs(name, environment, True, True, 0.3, SHARED, SHARED, {"opencl": tier(rate)})
    return replace(made, **changes)


@dataclass
class Away:
    """A device that can be asked for its programs, and does nothing else."""

    traits: Traits
    known: bool = False

    def cached(self, source: Source) -> bool:
        assert source.language == "opencl"
        return self.known


@dataclass
class Opener:
    """Stands for the registry: which devices were opened."""

    device: Any = None
    error: str = ""

    def __post_init__(self) -> None:
        self.opened: list[str] = []

    def __call__(self, name: str) -> Any:
        self.opened.append(name)
        if self.error:
            raise DeviceError(self.error)
        return self.device


@pytest.fixture(autouse=True)
def opener(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Opener]:
    """Nothing is measured, refused or opened before a test, nor after it."""
    made = Opener(Away(away_traits()))
    monkeypatch.setattr(offload, "_opener", made)
    monkeypatch.setattr(offload, "_opened", {})
    monkeypatch.setattr(offload, "_refused", {})
    with np.options(device="", offload=True, cache=True, cache_dir=str(tmp_path)):
        small().to_numpy()  # a look: or recorded lines will have come round too often
        chain(20_000).to_numpy()
        calibrate.use(None)
        evaluate.clear_plans()
        yield made
    calibrate.use(None)


def figures(*costs: Costs) -> None:
    calibrate.use({each.device: each for each in costs})


def planned(value: Any) -> tuple[Plan, Recording]:
    recording = linearize([node_of(value)])
    return evaluate.plan_for(recording), recording


def chain(size: int = N, dtype: str = "f8") -> Any:
    """Reads and writes an array of `size` elements each."""
    x = np.array(numpy.linspace(0, 1, size, dtype=dtype))
    return np.sin(x) * x + x


def small() -> Any:
    """So little work that no device other than the CPU could be faster."""
    x = np.array(numpy.ones(20_000))
    return x * 2.0 + x


def chosen(value: Any) -> offload.Choice:
    return offload.choose(*planned(value))


def test_a_device_that_the_user_names_is_obeyed_C11(monkeypatch: pytest.MonkeyPatch) -> None:
    figures(home(1e9), away(1e15))
    with np.options(device="cpu"):
        choice = chosen(chain())
        assert (choice.device, choice.estimates) == ("cpu", ())
        assert choice.reason == "pinned by lazyfuse.options(device='cpu')"
        monkeypatch.setenv("LAZYFUSE_DEVICE", "cpu")
        offload.renew()
        assert chosen(chain()).reason == "pinned by LAZYFUSE_DEVICE"
    figures(home(1e15), away(1e9))
    with np.options(device="opencl:0"):
        assert chosen(chain()).device == "opencl:0"
    assert chosen(chain()).device == "cpu", "the name holds for the block"


def test_offload_can_be_switched_off_C11_A9() -> None:
    figures(home(1e9), away(1e15))
    with np.options(offload=False):
        choice = chosen(chain())
    assert (choice.device, choice.reason) == ("cpu", offload.SWITCHED_OFF)


def test_without_figures_plans_run_on_the_cpu_and_nothing_is_opened_F2(opener: Opener) -> None:
    choice = chosen(chain())
    assert (choice.device, choice.reason) == ("cpu", offload.NOT_MEASURED)
    assert opener.opened == []


def test_small_plans_do_not_even_look_at_the_file_F2_A7(monkeypatch: pytest.MonkeyPatch) -> None:
    def read() -> dict[str, Costs]:
        raise AssertionError("the file was looked at")

    monkeypatch.setattr(calibrate, "figures", read)
    choice = chosen(small())
    assert (choice.device, choice.reason) == ("cpu", offload.SMALL)
    with pytest.raises(AssertionError, match="looked at"):
        chosen(chain(200_000))


def test_slower_devices_are_not_opened_F2(opener: Opener) -> None:
    figures(home(1e10), away(1e9))
    for _ in range(20):
        choice = chosen(chain())
    assert choice.device == "cpu"
    assert [each.device for each in choice.estimates] == ["cpu", "opencl:0"]
    assert choice.estimates[0].kernels == pytest.approx(2 * 8 * N / 1e10)
    assert choice.estimates[1].kernels == pytest.approx(2 * 8 * N / 1e9)
    assert opener.opened == []


@pytest.mark.parametrize(("factor", "moves"), [(1.05, False), (1.15, False), (1.3, True)])
def test_a_device_has_to_be_faster_by_a_margin_C11(factor: float, moves: bool) -> None:
    figures(home(1e10), away(factor * 1e10, opening=1e-9, tiers={"opencl": free(factor * 1e10)}))
    choices = [chosen(chain()) for _ in range(4)]
    assert (choices[-1].device == "opencl:0") is moves
    if not moves:
        assert f"{offload.MARGIN} times" in choices[-1].reason


def free(rate: float) -> Tier:
    """Programs that are built in no time."""
    return tier(rate, compile=1e-9, load=1e-9)


def runs_until_it_moves(limit: int = 10_000) -> int:
    value = chain()
    plan, recording = planned(value)
    for number in range(limit):
        if offload.choose(plan, recording).device != "cpu":
            return number
    raise AssertionError("it never moved")


def test_opening_and_building_have_to_pay_first_F2_C11(opener: Opener) -> None:
    # 16 ms per run here, 1 ms there: 15 ms are lost per run at home
    figures(home(1e9), away(16e9))
    gain = 2 * 8 * N / 1e9 - 2 * 8 * N / 16e9
    runs = runs_until_it_moves()
    assert opener.opened == ["opencl:0"]
    # 0.3 s for opening and 0.1 s for building
    assert runs == pytest.approx(math.ceil(0.4 / gain), abs=1)


def test_programs_on_disk_are_moved_to_earlier_C11(opener: Opener) -> None:
    figures(home(1e9), away(16e9))
    cold = runs_until_it_moves()
    evaluate.clear_plans()
    offload.renew()
    opener.device.known = True
    assert runs_until_it_moves() < cold / 2, "it is open, and loading is fast"
    assert opener.opened == ["opencl:0"], "opened once"


def test_reasons_name_what_is_waited_for_D6(opener: Opener) -> None:
    figures(home(1e9), away(16e9))
    plan, recording = planned(chain())
    reasons = [offload.choose(plan, recording).reason for _ in range(40)]
    assert list(dict.fromkeys(reasons)) == [
        "opencl:0 is expected to be 16 times faster, but is not open yet",
        "opencl:0 is expected to be 16 times faster, but its programs are not built yet",
        "expected to be 16 times faster than cpu",
    ]


@pytest.mark.parametrize("how", ["error", "driver"])
def test_a_device_that_cannot_be_had_is_not_asked_for_again_C12(opener: Opener, how: str) -> None:
    if how == "error":
        opener.error = "[device] the driver is gone"
    else:
        opener.device = Away(away_traits(driver="2.0"))
    figures(home(1e9), away(16e9))
    plan, recording = planned(chain())
    for _ in range(100):
        choice = offload.choose(plan, recording)
    assert choice.device == "cpu"
    assert opener.opened == ["opencl:0"]
    assert list(offload.refused()) == ["opencl:0"]
    assert ("driver is gone" if how == "error" else "not the one") in choice.reason


def test_a_lost_device_is_chosen_no_more_C12() -> None:
    figures(home(1e9), away(1e15, opening=1e-9, tiers={"opencl": free(1e15)}))
    plan, recording = planned(chain())
    assert {offload.choose(plan, recording).device for _ in range(3)} >= {"opencl:0"}
    offload.refuse("opencl:0", "it was lost")
    choice = offload.choose(plan, recording)
    assert (choice.device, choice.reason) == ("cpu", "opencl:0: it was lost")


def test_figures_of_other_threads_are_not_trusted_C11() -> None:
    figures(replace(home(1e9), environment="taken with more threads"), away(1e15))
    assert chosen(chain()).reason == offload.STALE


def test_float64_stays_where_it_exists_C7() -> None:
    figures(home(1e9), away(1e15, fp64=False))
    assert chosen(chain()).reason == "the other devices lack float64"
    assert "is not open yet" in chosen(chain(dtype="f4")).reason
    with np.options(single_precision=True):
        assert "is not open yet" in chosen(chain()).reason


def discrete(rate: float, link: Link) -> Costs:
    return away(rate, shares_memory=False, upload=link, download=link, opening=1e-9,
                tiers={"opencl": free(rate)})  # fmt: skip


class There:
    """Says that a value is in a device's memory."""


def test_copies_are_part_of_the_estimate_F2_C8() -> None:
    figures(home(1e10), discrete(1e12, Link(1e-5, 2e9)))
    x = np.array(numpy.ones(N))
    value = np.sin(x) * x + x
    plan, recording = planned(value)
    choice = offload.preview(plan, recording)
    copies = choice.estimates[1].copies
    assert choice.device == "cpu"
    assert not choice.better, "moving two arrays over the bus costs more than computing here"
    assert copies == pytest.approx(2 * (1e-5 + 8 * N / 2e9))

    resident = offload.preview(plan, recording, wanted=())
    assert resident.estimates[1].copies == pytest.approx(copies / 2), "nobody waits for the result"
    node_of(x).resident = There()
    try:
        resident = offload.preview(plan, recording, wanted=())
    finally:
        node_of(x).resident = None
    assert resident.estimates[1].copies == 0.0, "nothing is uploaded twice"
    assert resident.better == "opencl:0"


def test_operands_places_are_told_apart_C8() -> None:
    figures(home(1e10), discrete(1e12, Link(1e-5, 2e9)))
    x = np.array(numpy.ones(N))
    value = np.sin(x) * x + x
    plan, recording = planned(value)
    assert offload.choose(plan, recording).device == "cpu"
    node_of(x).resident = There()
    try:
        found = [offload.choose(plan, recording, ()).device for _ in range(4)]
        assert found[-1] == "opencl:0"
    finally:
        node_of(x).resident = None
    assert offload.choose(plan, recording).device == "cpu"


def test_operands_that_only_a_device_has_are_fetched_for_the_cpu_C8() -> None:
    figures(home(1e10), discrete(1e10, Link(0.5, 1e9)))
    x = np.array(numpy.ones(N))
    value = np.sin(x) * x + x
    plan, recording = planned(value)
    node, array = node_of(x), node_of(x).value
    node.resident, node.value = There(), None
    try:
        choice = offload.preview(plan, recording, wanted=())
    finally:
        node.resident, node.value = None, array
    assert choice.estimates[0].copies == pytest.approx(0.5 + 8 * N / 1e9)
    assert choice.better == "opencl:0", "staying where the operands are saves copies"


def test_singles_between_kernels_run_on_the_host_and_cost_copies_C8() -> None:
    figures(home(1e10), discrete(1e12, Link(1e-5, 2e9)))
    x = np.array(numpy.ones((1000, 1000)))
    value = np.sort(np.sin(x) + x) * 2.0
    choice = offload.preview(*planned(value))
    # up for the first kernel, down for the sort, up for the second kernel, down for the host
    assert choice.estimates[1].copies == pytest.approx(4 * (1e-5 + 8 * N / 2e9), rel=0.3)


def test_one_decision_per_plan_and_class_of_sizes_C11(monkeypatch: pytest.MonkeyPatch) -> None:
    figures(home(1e10), away(1e9))
    decided: list[object] = []
    before = offload.preview

    def counted(*arguments: Any) -> offload.Choice:
        decided.append(arguments)
        return before(*arguments)

    monkeypatch.setattr(offload, "preview", counted)
    for size in (600_000, 700_000, 1_000_000):
        chosen(chain(size))
    assert len(decided) == 1
    chosen(chain(3_000_000))
    assert len(decided) == 2
    with np.options(threads=config.options.threads):
        chosen(chain(3_000_000))
    assert len(decided) == 3, "options that matter have been set"


def test_looking_ahead_changes_nothing_D1() -> None:
    figures(home(1e9), away(16e9))
    plan, recording = planned(chain())
    first = offload.choose(plan, recording)
    missed = first.missed
    for _ in range(50):
        offload.preview(plan, recording)
    assert first.missed == missed
    assert list(plan.choices.values()) == [first]


def test_steps_are_estimated_by_bytes_elements_and_work_A7() -> None:
    traits = registry.device("cpu").traits
    made = Costs("cpu", cost.environment(traits), True, True, 0.0, SHARED, SHARED,
                 {"numba": tier(1e9, arithmetic=1e9, functions=1e8, launch=3e-6)})  # fmt: skip
    plan, recording = planned(chain())
    found = offload._estimate(SizedPlan(plan, recording), made, None, made)
    additions, functions = offload.work(plan.kernels[0].kernel)
    assert additions == 2.0
    assert functions == 15.0
    assert found.kernels == pytest.approx(N * (additions / 1e9 + functions / 1e8))
    assert found.launches == 3e-6
    assert found.copies == 0.0
    assert found.seconds == pytest.approx(found.kernels + 3e-6)


def test_auto_measures_when_there_are_no_figures_C11(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def measure() -> dict[str, Costs]:
        calls.append(1)
        found = {"cpu": home(1e9)}
        calibrate.use(found)
        return found

    monkeypatch.setattr(calibrate, "calibrate", measure)
    with np.options(device="auto"):
        assert chosen(small()).reason == offload.SMALL
        assert not calls
        assert [chosen(chain()).reason for _ in range(3)] == [offload.ALONE] * 3
    assert calls == [1]


def test_values_do_not_depend_on_who_was_chosen_C11() -> None:
    figures(home(1e9), away(16e9))
    x = numpy.linspace(0, 1, N)
    numpy.testing.assert_array_equal((np.array(x) * 2.0 + x).to_numpy(), x * 2.0 + x)


# Measuring


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probes of few elements, run a few times, on the CPU only."""
    monkeypatch.setattr(calibrate, "SIZES", {})
    monkeypatch.setattr(calibrate, "CPU_SIZES", (1 << 10, 1 << 11, 1 << 12))
    monkeypatch.setattr(cost, "SECONDS", 0.0)
    usual = [entry for entry in registry.devices() if not entry.name.startswith("opencl")]
    monkeypatch.setattr(registry, "devices", lambda: usual)


@pytest.mark.usefixtures("quick")
def test_figures_are_kept_beside_the_programs_C11(tmp_path: Path) -> None:
    found = np.calibrate()
    assert set(found) == {"cpu"}, "devices that compute nothing have no figures"
    assert set(found["cpu"].tiers) == set(registry.device("cpu").traits.languages)
    assert [path.parent.name for path in tmp_path.rglob("costs-*")] == ["costs"]
    calibrate.use(None)
    assert calibrate.figures() == found
    assert chosen(chain()).reason == offload.ALONE


@pytest.mark.usefixtures("quick")
# Switched off nothing is tried; a folder that refuses is the harder of the two.
@pytest.mark.parametrize("obstacle", first(1, ["folder", "switch"]))
def test_figures_that_cannot_be_kept_serve_this_process_C11(tmp_path: Path, obstacle: str) -> None:
    (tmp_path / "costs").write_text("in the way")
    with np.options(cache=obstacle != "switch"):
        found = np.calibrate()
        assert calibrate.figures() is found
        assert chosen(chain()).reason == offload.ALONE
        calibrate.use(None)
        assert calibrate.figures() == {}


@pytest.mark.usefixtures("quick")
def test_figures_are_shown_C11(capsys: pytest.CaptureFixture[str]) -> None:
    calibrate.show({"cpu": home(2e9), "opencl:0": discrete(3e9, Link(1e-5, 4e9))})
    text = capsys.readouterr().out
    for part in ("cpu", "numba", "opencl:0", "shared", "4.0", "build ms"):
        assert part in text


@pytest.mark.usefixtures("quick")
def test_the_command_line_measures_and_shows_C11(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        __main__.main(["--calibrate"])
    assert stop.value.code == 0
    assert "numpy" in capsys.readouterr().out
    assert set(calibrate.figures()) == {"cpu"}


def _opencl() -> str:
    """The name of an OpenCL device that can be used; empty if there is none."""
    if importlib.util.find_spec("pyopencl") is None:
        return ""
    try:
        return registry.device("opencl").traits.name
    except DeviceError:
        return ""


def test_plans_move_to_a_device_that_is_faster_C11_F2(monkeypatch: pytest.MonkeyPatch) -> None:
    name = _opencl()
    if not name:
        pytest.skip("there is no OpenCL device here")
    monkeypatch.setattr(offload, "_opener", devices.named)
    traits = devices.named(name).traits
    made = away(1e15, name, opening=1e-9, tiers={traits.languages[0]: free(1e15)})
    figures(home(1e9), replace(made, environment=cost.environment(traits)))
    counters.reset()
    x = numpy.linspace(0, 1, N)
    for _ in range(4):
        numpy.testing.assert_array_equal(
            ((np.array(x) + 1.0) * x - 2.0).to_numpy(), (x + 1) * x - 2
        )
    languages = counters.totals().languages
    assert languages[traits.languages[0]] >= 2
    assert sum(languages.values()) == 4
    y = (np.array(x) + 1.0) * x - 3.0  # not in the assertion, which would hold its parts
    assert "times faster than cpu" in np.explain(y).choice.reason
