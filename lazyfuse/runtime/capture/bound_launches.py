"""Bound launches: plans that have run before at the same sizes, with nothing left to decide.

Owns the shortcut from a plan cache hit to its kernels, for plans of kernels alone on the CPU. `Run`
(executor.py) decides everything once; this module keeps the decisions that follow from sizes and
strides. Other cases go back to `Run`: operands that nothing reads again (their buffers may be
donated to results), other devices, listeners, failures. Knows nodes and numpy arrays, never the
array type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lazyfuse import config
from lazyfuse.codegen.graph import references
from lazyfuse.codegen.graph.linearize import Recording
from lazyfuse.codegen.graph.node import Node
from lazyfuse.codegen.lowering.lower import Lowered
from lazyfuse.codegen.plan.plan import KernelStep, Plan
from lazyfuse.codegen.table import ops
from lazyfuse.codegen.table.op import Op
from lazyfuse.devices.base import Device, DeviceError, Program
from lazyfuse.runtime.events import counters, decisions, tracing
from lazyfuse.runtime.events.decisions import Rule
from lazyfuse.runtime.execution import program_tiers, tiled_run
from lazyfuse.runtime.execution.executor import Run
from lazyfuse.runtime.layout.meta_arrays import meta_array
from lazyfuse.runtime.numerics import fp_flags

Array = np.ndarray[Any, np.dtype[Any]]
DType = np.dtype[Any]
Raised = list[tuple[int, list[tuple[Op, Node]]]]
Start = Callable[[list[Array], tuple[Any, ...]], int]

# Geometries kept per plan: loops over sizes that never repeat must not fill the memory.
LIMIT = 32


@dataclass(frozen=True, slots=True)
class Output:
    """One array that a kernel makes, and the buffer that it uses."""

    index: int
    shape: tuple[int, ...]  # as it is allocated, in C order
    dtype: DType
    back: tuple[int, ...] | None  # from that order of axes to the result's order
    donated: int  # a value of this plan that dies here and donates its buffer; -1: a new buffer


@dataclass(frozen=True, slots=True)
class BoundLaunch:
    """One kernel, bound to arrays of known geometry."""

    step: KernelStep
    start: Start
    language: str
    operations: int
    inputs: tuple[int, ...]
    scalars: tuple[int, ...]
    made: tuple[Output, ...]
    lowered: Lowered | None  # where there are temporaries, or partial results to combine
    last: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BoundPlan:
    """A plan at one geometry, on one device."""

    device: Device
    launches: tuple[BoundLaunch, ...]


def suits(plan: Plan) -> bool:
    """Whether a plan consists of kernels that make new arrays, or of a single chain."""
    if plan.in_place or plan.chains:
        return not plan.in_place and tiled_run.is_one_chain(plan)
    return all(type(step) is KernelStep and not step.targets for step in plan.steps)


_switches: dict[str, bool] = {}
_may_bind = False


def may_bind() -> bool:
    """Whether launches may be kept and repeated: no listener or check looks at their kernels."""
    return _may_bind and not tracing.listeners


def _watch(name: str, wanted: bool) -> None:
    def look(value: object) -> None:
        global _may_bind
        _switches[name] = bool(value) is wanted
        _may_bind = all(_switches.values())

    config.on_change(name, look)


for _name in ("capture", "program_limit", "plan_limit"):
    _watch(_name, True)
for _name in ("validate", "debug", "report"):
    _watch(_name, False)


native: Any = None
"""The native extension that native_replay.py replays by; None: Python replays."""


def use(module: Any) -> None:
    """Replay by the native extension from now on; None: by the Python code of replay.py."""
    global native
    native = module


class BoundPlans(dict[Any, "BoundPlan | tiled_run.BoundChain"]):
    """The bound launches of a plan, by geometry, and the data that all geometries share."""

    __slots__ = ("operands", "results", "size")

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        values = plan.graph.values
        self.size = len(values)
        # of each operand: its index among the nodes, its number, whether it may donate its buffer
        self.operands = tuple(
            [
                (values[i].origin, i, values[i].op is ops.LEAF and values[i].shape != ())
                for i in plan.bound
            ]
        )
        self.results = tuple([(values[i].origin, i) for i in plan.outputs])


def _bind(kept: BoundPlans, recording: Recording) -> tuple[Any, list[Any]] | None:
    """Sizes and strides of the operands of a run, and its values.

    None if an operand is not in host memory, or if one dies in this run, so that a result may take
    its buffer.
    """
    nodes = recording.nodes
    edges = recording.edges
    if native is not None:
        return _bind_in_c(kept, recording, edges)
    env: list[Any] = [None] * kept.size
    key: list[Any] = recording.sizes.copy()
    counts = references.of_each([nodes[origin] for origin, _, _ in kept.operands])
    for (origin, index, is_array), count in zip(kept.operands, counts, strict=True):
        node = nodes[origin]
        value = node.value
        if value is None or node.resident is not None:
            return None
        if is_array and count <= edges.get(id(node), 0) + 2:  # 2: the recording's list and ours
            return None
        key.append(value.strides)
        env[index] = value
    return tuple(key), env


def _bind_in_c(
    kept: BoundPlans, recording: Recording, edges: dict[int, int]
) -> tuple[Any, list[Any]] | None:
    found: tuple[Any, list[Any]] | None = native.replay_bind(
        kept.size, kept.operands, (), False, None, recording.nodes, edges, recording.sizes
    )
    return found


def run(plan: Plan, recording: Recording, device: Device, rule: Rule) -> Raised | None:
    """Run the bound launches of a plan; None if `Run` has to run it."""
    kept = plan.bound_plans
    if type(kept) is not BoundPlans or not may_bind():
        return None
    bound = _bind(kept, recording)
    if bound is None:
        return None
    found = kept.get(bound[0])
    if found is None or found.device is not device:
        return None
    try:
        if type(found) is tiled_run.BoundChain:
            raised = _tiled(found, kept, plan, recording, bound[1])
        else:
            raised = _launch(found, kept, plan, recording, bound[1])  # type: ignore[arg-type]
    except DeviceError:
        return None  # only new arrays have been written
    if raised is None:
        return None
    counters.flushed(rule, plan, recording, decisions.BOUND)
    return raised


def _launch(
    prepared: BoundPlan, kept: BoundPlans, plan: Plan, recording: Recording, env: list[Any]
) -> Raised:
    nodes = recording.nodes
    raised: Raised = []
    device = prepared.device
    empty = device.empty
    for launch in prepared.launches:
        arrays = [env[index] for index in launch.inputs]
        outputs = []
        for made in launch.made:
            if made.donated < 0:
                array = empty(made.shape, made.dtype)
                if made.back is not None:
                    array = array.transpose(made.back)
            else:
                array = env[made.donated]
            outputs.append(array)
        arrays += outputs
        scalars = tuple([env[index][()] for index in launch.scalars]) if launch.scalars else ()
        if launch.lowered is None:
            bits = launch.start(arrays, scalars)
        else:
            bits = _with_temporaries(launch, launch.lowered, arrays, scalars, empty)
        if bits and fp_flags.is_wanted(bits):
            raised += _as_reported(launch, Run(plan, recording, device), env, bits, outputs)
        for made, array in zip(launch.made, outputs, strict=True):
            env[made.index] = array
        for index in launch.last:
            env[index] = None
        counters.ran_again(device, launch.language, launch.operations)
    _commit(kept, nodes, env)
    return raised


def _commit(kept: BoundPlans, nodes: list[Node], env: list[Any]) -> None:
    for origin, index in kept.results:
        node = nodes[origin]
        node.value = env[index]
        node.src = ()


def _tiled(
    chain: tiled_run.BoundChain, kept: BoundPlans, plan: Plan, recording: Recording, env: list[Any]
) -> Raised | None:
    flags = chain.start(env)
    if flags is None:
        return None
    raised: Raised = []
    if any(flags):
        run = Run(plan, recording, chain.device)
        run.env[:] = env
        if not chain.report_exceptions(run, flags):
            return None
        raised = run.raised
    _commit(kept, recording.nodes, env)
    return raised


def _with_temporaries(
    launch: BoundLaunch,
    lowered: Lowered,
    arrays: list[Array],
    scalars: tuple[Any, ...],
    empty: Callable[[tuple[int, ...], DType], Array],
) -> int:
    arrays += [empty(shape, dtype) for shape, dtype in lowered.temporaries]
    bits = launch.start(arrays, scalars)
    if lowered.is_partial:
        with fp_flags.collecting() as found:
            lowered.finish(arrays)
        bits |= found.bits
    return bits


def _as_reported(
    launch: BoundLaunch, run: Run, env: list[Any], bits: int, outputs: list[Array]
) -> Raised:
    """The exceptions of a kernel, as `Run` reports them."""
    run.env[:] = env
    spoiled = any(made.donated >= 0 for made in launch.made)
    sources = None if spoiled else run.sources_of(launch.step)
    run.note_exceptions(launch.step, bits, sources, outputs)
    return run.raised


# -------------------------------------------------------------------------------------- binding


def _key(kept: BoundPlans, recording: Recording) -> Any:
    """The key of `_bind`, also where operands die; None if one is not in host memory."""
    if native is not None:
        bound = _bind_in_c(kept, recording, {})  # without edges, every reader counts as an owner
        return bound and bound[0]
    found: list[Any] = recording.sizes.copy()
    for origin, _, _ in kept.operands:
        node = recording.nodes[origin]
        if node.value is None or node.resident is not None:
            return None
        found.append(node.value.strides)
    return tuple(found)


def learn(plan: Plan, recording: Recording, run: Run) -> None:
    """After a run: keep its decisions, if the next run at these sizes would decide the same."""
    kept = plan.bound_plans
    if kept is None or run.off_cpu or not may_bind():
        return
    if not kept and not suits(plan):
        plan.bound_plans = None
        return
    if type(kept) is not BoundPlans:
        kept = plan.bound_plans = BoundPlans(plan)
    key = _key(kept, recording)
    if key is None or key in kept:
        return
    env: dict[int, Array] = {}
    for origin, index, _ in kept.operands:
        value = recording.nodes[origin].value
        assert value is not None, "a key was made of it"
        env[index] = value
    if plan.chains:
        tiled = tiled_run.bind(run, env)
        if tiled is not None:
            _keep(kept, key, tiled)
        return
    launches = []
    for step, last in zip(plan.steps, plan.lifetimes.last, strict=True):
        assert type(step) is KernelStep, "the plan suits"
        launch = _bound_launch(step, tuple(last), plan, run, env)
        if launch is None:
            return
        launches.append(launch)
    _keep(kept, key, BoundPlan(run.device, tuple(launches)))


def _keep(kept: BoundPlans, key: Any, found: BoundPlan | tiled_run.BoundChain) -> None:
    if len(kept) >= LIMIT:
        kept.clear()
    kept[key] = found


def _bound_launch(
    step: KernelStep, last: tuple[int, ...], plan: Plan, run: Run, env: dict[int, Array]
) -> BoundLaunch | None:
    """A bound launch of a step; None if the next run may decide otherwise."""
    made = _made(step, last, plan, run, env)
    inputs = [env[index] for index in step.inputs]
    outputs = [env[each.index] for each in made]
    shape = run.shape(step.domain_of)
    found = step.selected.get(program_tiers.size_key(run.device, shape, inputs, outputs))
    if found is None:
        return None
    lowered, program = found
    if program is None:
        return None
    whole = not lowered.temporaries and not lowered.is_partial
    arrays = inputs + outputs
    arrays += [meta_array(size, dtype, None) for size, dtype in lowered.temporaries]
    return BoundLaunch(
        step,
        _start(lowered, program, arrays, len(step.scalars)),
        program.source.language,
        len(step.members) + len(step.reductions),
        step.inputs,
        step.scalars,
        made,
        None if whole else lowered,
        last,
    )


def _start(lowered: Lowered, program: Program, arrays: list[Array], scalars: int) -> Start:
    language = program.source.language
    start = program.prepare(lowered.launch(language, arrays, (0,) * scalars))
    if start is not None:
        slots = lowered.slots
        if slots == tuple(range(len(arrays))):
            return start
        return lambda arrays, scalars: start([arrays[slot] for slot in slots], scalars)

    def launch(arrays: list[Array], scalars: tuple[Any, ...]) -> int:
        flags = program.launch(lowered.launch(language, arrays, scalars))
        assert isinstance(flags, int), "the CPU's launches are over when they return"
        return flags

    return launch


def _made(
    step: KernelStep, last: tuple[int, ...], plan: Plan, run: Run, env: dict[int, Array]
) -> tuple[Output, ...]:
    """The arrays that a kernel makes. Puts meta arrays of them into `env`."""
    values = plan.graph.values
    shape = run.shape(step.domain_of)
    dying = [
        index
        for index in step.inputs
        if step.may_reuse and index in last and values[index].op not in (ops.LEAF, ops.VIEW)
        and env[index].shape == shape and env[index].flags.c_contiguous
    ]  # fmt: skip
    found = []
    for index in (*step.stores, *step.reductions):
        value = values[index]
        size = shape if index in step.stores else run.shape(index)
        donor = -1
        if value.perm is None and index in step.stores:
            donor = next((each for each in dying if values[each].dtype == value.dtype), -1)
            if donor >= 0:
                dying.remove(donor)
        back = None if value.perm is None else tuple(np.argsort(value.perm).tolist())
        dense = size if value.perm is None else tuple([size[axis] for axis in value.perm])
        found.append(Output(index, dense, value.dtype, back, donor))
        env[index] = meta_array(size, value.dtype, value.perm)
    return tuple(found)
