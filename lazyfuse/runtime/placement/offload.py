"""Which device a plan should run on, by costs measured on this machine.

Owns the estimate and the choice. Plans run on the device that the user names. Otherwise they run on
the CPU, unless the figures kept by `lazyfuse.calibrate()` say that another device is clearly
faster; reading them opens no driver and imports nothing. Knows figures (calibrate.py) and plans;
measures and runs neither.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import field
from typing import TYPE_CHECKING, Any

from lazyfuse import config
from lazyfuse.codegen.graph.linearize import Recording
from lazyfuse.codegen.graph.node import Node
from lazyfuse.codegen.lowering import kernel as kernels
from lazyfuse.codegen.plan import plan as plans
from lazyfuse.codegen.table import ops
from lazyfuse.devices import cost, registry
from lazyfuse.devices.base import Device, DeviceError
from lazyfuse.devices.dataclass import dataclass
from lazyfuse.late_modules import when_run
from lazyfuse.runtime.placement import calibrate, plan_sizes

if TYPE_CHECKING:
    from lazyfuse.codegen.lowering.kernel import Kernel
    from lazyfuse.codegen.plan.plan import KernelStep, Plan, SingleStep
    from lazyfuse.devices.cost import Costs, Tier
    from lazyfuse.runtime.placement.plan_sizes import SizedPlan

CPU = "cpu"
# How much faster another device must be: the figures are accurate to 10 or 20 %.
MARGIN = 1.2
# Work of a plan, in additions, below which no estimate is made: the CPU finishes it in the time
# that starting any other device takes.
LEAST_WORK = 100_000
CHOICES_LIMIT = 64  # per plan: classes of sizes and of operands' devices

SWITCHED_OFF = "offload is switched off"
SMALL = f"less work than {LEAST_WORK:,} additions"
NOT_MEASURED = "costs have not been measured: lazyfuse.calibrate() does"
STALE = "costs were measured with other threads or compilers: lazyfuse.calibrate() again"
ALONE = "no other usable device was found when costs were measured"


@dataclass(frozen=True)
class Estimate:
    """The expected time of a plan on one device, in seconds."""

    device: str
    kernels: float  # without launches and copies
    launches: float
    copies: float

    @property
    def seconds(self) -> float:
        """Time of one run with its launches and copies, once its programs are built."""
        return self.kernels + self.launches + self.copies

    def __str__(self) -> str:
        copies = f" (copies {_time(self.copies)})" if self.copies else ""
        return f"{self.device} {_time(self.seconds)}{copies}"


@dataclass
class Choice:
    """A device, why it was chosen, and the estimates for it and for the others."""

    device: str
    reason: str
    estimates: tuple[Estimate, ...] = ()
    # A device that is faster once it is open and its programs are built. Each run on the CPU loses
    # `gain` seconds. When that sums to `need`, the other device's cost of starting, the plan moves.
    better: str = ""
    opening: bool = False  # whether `need` is for opening it; otherwise for its programs
    gain: float = 0.0
    need: float = 0.0
    missed: float = 0.0
    made_for: object = None  # the state of the figures; a new state needs a new choice

    def __str__(self) -> str:
        figures = "; ".join(map(str, self.estimates))
        return f"{self.device}: {self.reason}" + (f" [{figures}]" if figures else "")


def _time(seconds: float) -> str:
    for unit, name in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds * 1e6:.3g} us"


# Estimates


def _estimate(
    geometry: SizedPlan, costs: Costs, wanted: Collection[Node] | None, link: Costs
) -> Estimate:
    """The expected time of a plan. `link`: costs of copies from where resident operands are."""
    tier = next(iter(costs.tiers.values()))
    steps = geometry.plan.kernels
    launches = len(steps) * tier.launch + (tier.wait if steps else 0.0)
    if costs.shares_memory:
        copies = _gathers(geometry, link)
    else:
        copies = _Copies(geometry, costs).total(wanted)
    return Estimate(
        costs.device, sum(_seconds(geometry, step, tier) for step in steps), launches, copies
    )


def _seconds(geometry: SizedPlan, step: KernelStep, tier: Tier) -> float:
    """The expected time of one kernel, without its launch and copies."""
    elements = geometry.size(step.domain_of)
    moved = sum(map(geometry.nbytes, (*step.inputs, *step.stores, *step.reductions)))
    additions, functions = work(step.kernel)
    return tier.seconds(moved, elements * additions, elements * functions, not step.stores)


def work(kernel: Kernel) -> tuple[float, float]:
    """Work per element of the domain, in additions: exact operations, mathematical functions."""
    exact = functions = 0.0
    for each in kernel.body:
        row = ops.TABLE[each.op]
        if not each.ins or each.ins[0][0] in row.exact:
            exact += row.cost
        else:
            functions += row.cost
    exact += sum(ops.TABLE[f"reduce:{each.op}"].cost for each in kernel.reductions)
    return exact, functions


def _building(geometry: SizedPlan, device: Device, costs: Costs) -> float:
    """Seconds to load the programs of a plan from disk or build them."""
    language, tier = next(iter(costs.tiers.items()))
    total = 0.0
    for step in geometry.plan.kernels:
        with suppress(
            kernels.KernelError, DeviceError
        ):  # this kernel runs on the CPU with any device
            source = geometry.source(step, language, device.traits)
            total += tier.load if device.cached(source) else tier.compile
    return total


# Copies


def _gathers(geometry: SizedPlan, link: Costs) -> float:
    """Seconds to fetch operands that only another device holds."""
    total = 0.0
    for index in geometry.plan.bound:
        node = geometry.nodes[geometry.values[index].origin]
        if node.value is None and node.resident is not None:
            total += link.download.seconds(geometry.nbytes(index))
    return total


class _Copies:
    """Goes through a plan and adds up the copies to a device and back."""

    def __init__(self, geometry: SizedPlan, costs: Costs) -> None:
        self.geometry = geometry
        self.costs = costs
        self.here: set[int] = set()  # values that the host holds
        self.there: set[int] = set()
        self.seconds = 0.0
        for index in geometry.plan.bound:
            node = geometry.nodes[geometry.values[index].origin]
            if node.value is not None:
                self.here.add(index)
            if node.resident is not None:
                self.there.add(index)

    def total(self, wanted: Collection[Node] | None) -> float:
        """Seconds of all copies, including those of the wanted results to the host."""
        for step in self.geometry.plan.steps:
            if isinstance(step, plans.KernelStep):
                for index in step.inputs:
                    self.bring(index, self.there, self.costs.upload)
                self.there.update(step.writes)
            else:
                self.follow_single(step)
        for index in self.geometry.plan.outputs:
            node = self.geometry.nodes[self.geometry.values[index].origin]
            if wanted is None or node in wanted:
                self.bring(index, self.here, self.costs.download)
        return self.seconds

    def follow_single(self, step: SingleStep) -> None:
        """A view stays on the device of its memory; every other single step runs on the host."""
        sources = self.geometry.values[step.index].src
        if self.geometry.values[step.index].op in ops.PLACES:
            for place in (self.here, self.there):
                if place.issuperset(sources):
                    place.add(step.index)
            return
        for index in sources:
            self.bring(index, self.here, self.costs.download)
        self.here.add(step.index)

    def bring(self, index: int, place: set[int], link: cost.Link) -> None:
        """Copy a value to where it is needed, unless it is there already."""
        if index in place:
            return
        place.add(index)
        self.seconds += link.seconds(self.geometry.nbytes(index))


# The choice


@dataclass
class _State:
    """What a choice depends on apart from the plan. Each change makes a new state."""

    fixed: Choice | None  # the same device for every plan
    may_measure: bool = False  # device "auto": spend a few seconds on measuring now
    costs: dict[str, Costs] = field(default_factory=dict)  # empty: the file was not read yet
    copies: bool = False  # whether some device has memory of its own
    number: int = field(default_factory=itertools.count().__next__)


def choose(plan: Plan, recording: Recording, wanted: Collection[Node] | None = None) -> Choice:
    """The device for this run of a plan; decided once per plan and class of sizes.

    `wanted`: the nodes whose values the host is waiting for (None: all results).
    """
    state = _state or _begin()
    if state.fixed is not None:
        return state.fixed
    key = _key(plan, recording, wanted, state)
    found: Choice | None = plan.choices.get(key)
    if found is None or found.made_for is not state:
        found = preview(plan, recording, wanted)
        if len(plan.choices) >= CHOICES_LIMIT:
            plan.choices.clear()
        plan.choices[key] = found
    if found.better:
        found.missed += found.gain
        if found.missed >= found.need:
            found = plan.choices[key] = _move(plan, recording, found, state)
    return found


def state_number() -> int:
    """Another number whenever choices may differ from earlier ones for reasons outside a plan."""
    return (_state or _begin()).number


def stays_on_cpu(plan: Plan, recording: Recording, wanted: Collection[Node] | None = None) -> bool:
    """Whether runs of a plan are the CPU's at sizes of this class until the state changes."""
    choice = choose(plan, recording, wanted)
    return choice.device == CPU and not choice.better


def always_cpu() -> bool:
    """Whether every plan runs on the CPU."""
    fixed = (_state or _begin()).fixed
    return fixed is not None and fixed.device == CPU


def preview(plan: Plan, recording: Recording, wanted: Collection[Node] | None = None) -> Choice:
    """What `choose` would return, without counting as a run."""
    state = _state or _begin()
    if state.fixed is not None:
        return state.fixed
    found: Choice | None = plan.choices.get(_key(plan, recording, wanted, state))
    if found is not None and found.made_for is state:
        return found
    geometry = plan_sizes.SizedPlan(plan, recording)
    if _work_of(geometry) < LEAST_WORK:
        return Choice(CPU, SMALL, made_for=state)
    if not state.costs:
        state = _read_figures(state)
    return state.fixed or _compare(geometry, wanted, state)


def _key(
    plan: Plan, recording: Recording, wanted: Collection[Node] | None, state: _State
) -> tuple[Any, ...]:
    """Sizes by powers of two; where copies count, also the operands' devices and wanted results."""
    classes = tuple([size.bit_length() for size in recording.sizes])
    if not state.copies:
        return classes
    nodes, values = recording.nodes, plan.graph.values
    places = tuple([_residence(nodes[values[index].origin]) for index in plan.bound])
    return classes, places, wanted is None or bool(wanted)


def _residence(node: Node) -> int:
    return (node.value is not None) + 2 * (node.resident is not None)


def _work_of(geometry: SizedPlan) -> float:
    """Work in the kernels of a plan, in additions."""
    return sum(geometry.size(s.domain_of) * max(s.cost, 1.0) for s in geometry.plan.kernels)


def _compare(geometry: SizedPlan, wanted: Collection[Node] | None, state: _State) -> Choice:
    """The fastest device, if it is faster than the CPU by the margin; else the CPU."""
    costs = state.costs
    others = [each for each in costs.values() if each.device != CPU]
    link = next((each for each in others if not each.shares_memory), costs[CPU])
    home = _estimate(geometry, costs[CPU], wanted, link)
    found = [
        _estimate(geometry, each, wanted, link)
        for each in others
        if each.fp64 or config.options.single_precision or not _needs_fp64(geometry.plan)
    ]
    if not found:
        return Choice(CPU, "the other devices lack float64", (home,), made_for=state)
    best = min(found, key=lambda each: each.seconds)
    waiting = Choice(CPU, "", (home, *found), best.device, made_for=state)
    if home.seconds < MARGIN * best.seconds:
        waiting.better = ""
        waiting.reason = f"no other device is expected to be {MARGIN} times faster"
        return waiting
    waiting.gain = home.seconds - best.seconds
    if best.device in _opened:
        return _when_built(geometry, waiting, state)
    waiting.opening, waiting.need = True, costs[best.device].opening
    waiting.reason = f"{_promise(waiting)}, but is not open yet"
    return waiting


def _move(plan: Plan, recording: Recording, waiting: Choice, state: _State) -> Choice:
    """The choice once runs on the CPU have lost as much time as starting `better` costs."""
    if not waiting.opening:
        return _decided(waiting)
    if waiting.better not in _opened:
        _open(waiting.better, state)
    if waiting.better not in _opened:
        return preview(plan, recording)
    waiting.missed -= waiting.need
    waiting.opening = False
    return _when_built(plan_sizes.SizedPlan(plan, recording), waiting, state)


def _when_built(geometry: SizedPlan, waiting: Choice, state: _State) -> Choice:
    """The better device once enough runs have paid for building its programs."""
    costs = state.costs[waiting.better]
    waiting.need = _building(geometry, _opened[waiting.better], costs)
    waiting.reason = f"{_promise(waiting)}, but its programs are not built yet"
    return _decided(waiting) if waiting.missed >= waiting.need else waiting


def _decided(waiting: Choice) -> Choice:
    """The better device from now on."""
    reason = f"expected to be {_ratio(waiting):.3g} times faster than {CPU}"
    return Choice(waiting.better, reason, waiting.estimates, made_for=waiting.made_for)


def _promise(waiting: Choice) -> str:
    return f"{waiting.better} is expected to be {_ratio(waiting):.3g} times faster"


def _ratio(waiting: Choice) -> float:
    home, *others = waiting.estimates
    return home.seconds / next(e.seconds for e in others if e.device == waiting.better)


def _needs_fp64(plan: Plan) -> bool:
    """Whether some kernel computes in double precision."""
    return any(kernels.uses_doubles(step.kernel) for step in plan.kernels)


# State

_opened: dict[str, Device] = {}  # devices found to be the ones that were measured
_refused: dict[str, str] = {}


def refuse(device: str, reason: str) -> None:
    """Stop choosing this device: it was lost, or gives wrong values."""
    _refused[device] = reason
    _opened.pop(device, None)
    renew()


def readmit() -> None:
    """Allow every device again: the refused ones have been opened again."""
    _refused.clear()
    renew()


def _open(name: str, state: _State) -> None:
    """Open a device, if it is still the one that was measured."""
    try:
        device = _opener(name)
    except DeviceError as error:
        refuse(name, str(error))
        return
    if cost.environment(device.traits) != state.costs[name].environment:
        refuse(name, "it is not the one that was measured: lazyfuse.calibrate() again")
        return
    _opened[name] = device


def open_with(opener: Callable[[str], Device]) -> None:
    """Set the function that opens a device by name (devices.py: with the options applied)."""
    global _opener
    _opener = opener


_opener: Callable[[str], Device] = registry.device


def renew(_: Any = None) -> None:
    """Start choosing again: options, figures or devices have changed."""
    global _state
    _state = None


def _close(_: Any) -> None:
    """Forget the opened devices: those opened next may differ from the measured ones."""
    _opened.clear()
    renew()


def _begin() -> _State:
    """The state that follows from the options."""
    global _state
    options = config.options
    name = options.device
    if name not in ("", "auto"):
        _state = _State(Choice(name, selected_by(name)))
    elif not options.offload:
        _state = _State(Choice(CPU, SWITCHED_OFF))
    else:
        _state = _State(None, name == "auto")
    return _state


def selected_by(option: str) -> str:
    """How the user named a device: by the option of that value, or by a block if it is empty."""
    if not option:
        return "pinned by lazyfuse.device(...)"
    if os.environ.get("LAZYFUSE_DEVICE", "") == option:
        return "pinned by LAZYFUSE_DEVICE"
    return f"pinned by lazyfuse.options(device={option!r})"


def _read_figures(state: _State) -> _State:
    """Read the kept figures once; if no other device is usable, the CPU is fixed."""
    figures = calibrate.figures()
    if not figures and state.may_measure:
        figures = calibrate.calibrate()
        state = _begin()
    usable = {name: each for name, each in figures.items() if name not in _refused and each.tiers}
    state.costs = usable
    state.copies = any(not each.shares_memory for each in usable.values())
    why = _why_alone(usable)
    if why:
        state.fixed = Choice(CPU, why)
    return state


def _why_alone(usable: dict[str, Costs]) -> str:
    """Why only the CPU can be chosen; empty if there is a choice."""
    if CPU not in usable:
        return NOT_MEASURED
    if len(usable) == 1:
        return "; ".join(f"{name}: {why}" for name, why in _refused.items()) or ALONE
    if cost.environment(registry.device(CPU).traits) != usable[CPU].environment:
        return STALE
    return ""


def refused() -> dict[str, str]:
    """Devices that this process no longer chooses, and why."""
    return dict(_refused)


_state: _State | None = None
for _name in ("device", "offload", "cache", "cache_dir", "threads"):
    config.on_change(_name, renew)
for _name in ("opencl_share", "opencl_grid", "opencl_fp64", "single_precision"):
    config.on_change(_name, _close)
when_run(calibrate, lambda: calibrate.on_change(renew))
