"""The only module that runs recorded work: sinks -> plan cache -> device.

Owns the plan cache and the choice between running a plan (executor.py) and one operation in NumPy.
Never imports the array type: it handles nodes and numpy arrays.
"""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from lazyfuse import bootstrap, config, late_modules
from lazyfuse.codegen.graph import references
from lazyfuse.codegen.graph.linearize import Recording, linearize, use
from lazyfuse.codegen.graph.node import Node, source_line, topological
from lazyfuse.codegen.plan import cluster
from lazyfuse.codegen.plan import plan as plans
from lazyfuse.codegen.table.op import Op
from lazyfuse.devices import critical, interpreter, settings
from lazyfuse.devices.caches import register
from lazyfuse.devices.cpu import bound_launch, vector_loops
from lazyfuse.devices.pools import buffers
from lazyfuse.errors import EvaluationError
from lazyfuse.late_modules import when_run
from lazyfuse.runtime.capture import (
    capture,
    conditions,
    evaluations,
    native_replay,
    replay,
)
from lazyfuse.runtime.events import counters as report
from lazyfuse.runtime.events import decisions, spans, tracing
from lazyfuse.runtime.events.decisions import Rule
from lazyfuse.runtime.execution import concurrency, discrete_run, executor, run_values
from lazyfuse.runtime.numerics import errstate, fp_flags
from lazyfuse.runtime.placement import devices as hardware
from lazyfuse.runtime.placement import offload, pending_launches, residency
from lazyfuse.runtime.scheduling import (
    co_evaluation,
    compound_calls,
    elision,
    flush,
    fresh,
    plan_tables,
    recompute,
    stand_ins,
)
from lazyfuse.runtime.scheduling.flush import REDUCING, ROUNDS, TOGETHER, VAST, Pending

if TYPE_CHECKING:
    from lazyfuse.codegen.plan.plan import Plan
    from lazyfuse.devices.base import Device


Array = np.ndarray[Any, np.dtype[Any]]
_Apart = concurrency.ConcurrentEvaluation | None

lock = concurrency.lock
# C counts references, too
if (_native := bootstrap.machine_code(trouble=references.trouble)) is not None:
    critical.use(_native)
late_modules.use(critical.section(late_modules.lock))
errstate.use(critical.section(errstate.lock), critical.begin_quietly)
late_modules.follow(settings, hardware)  # which applies the user's options to them
quiet = critical.section(lock)
begin_quietly, IS_MAIN = critical.begin_quietly, interpreter.IS_MAIN
_plans: OrderedDict[Any, Plan] = OrderedDict()
epoch = 0  # raised when plans are forgotten: a caller that kept a plan asks for it anew


UNSOUGHT: Any = object()
"""Instead of what C has found out about an evaluation: it was not asked."""

chunked: Callable[[Sequence[Node], Rule, bool], bool] | None = None
"""`runtime.chunked.run.evaluated`, once there has been an array in chunks."""
in_chunks: Callable[[Node], bool] | None = None
"""Whether a node is for `chunked`: nothing else may evaluate it, or all of it would be fetched."""


def held() -> AbstractContextManager[Any]:
    """The lock; no user code runs under it. While there are listeners, their events wait, too."""
    return tracing.Watched(quiet) if tracing.listeners else quiet


def in_full(nodes: Sequence[Node], rule: Rule, found: Any = UNSOUGHT) -> None:
    """Give every node a value (a NumPy array). `rule` says why. `found`: what C has found out about
    the evaluation, which it has not done (again.c).
    """
    if len(nodes) == 1 and nodes[0].value is not None:
        return
    if stand_ins.active:
        stand_ins.refuse(nodes)
    if chunked is not None and chunked(nodes, rule, True):
        return
    apart = _concurrent_evaluation() if concurrency.busy or concurrency.share else None
    with tracing.Watched(quiet) if tracing.listeners else quiet:  # `held`, without a call
        if apart is not None and concurrency.under_way:
            concurrency.wait_for(nodes)
        pending = [node for node in nodes if node.value is None]
        if pending:
            recorded = here.recorded
            if found is UNSOUGHT:
                found = None
                if apart is None and not recorded.overdue and conditions.native is not None:
                    found = conditions.native.replay_again(
                        pending, recorded.nodes, recorded, rule, True
                    )
                    if isinstance(found, list):
                        fp_flags.warn_for_all(found)
                        return
            more: list[Node] = []
            alone = len(recorded.nodes) <= 1 and not recorded.overdue
            along = None if alone else together(pending, rule)
            if found is not None and len(found) == 3:
                key, pins, order = found
                co_evaluation.keep(key, pins, order, along)
                found = order = None
            if along and not (concurrency.under_way and concurrency.meets(along[1])):
                report.totals().decisions[along[0]] += 1
                more = along[1]
            if not more or not _done_together(pending, more, rule, apart):
                _evaluate_concurrently(pending, rule, pending, apart, found)
            for node in pending:
                if node.value is None:
                    _gather(pending, rule)
                    break


def _done_together(pending: list[Node], more: list[Node], rule: Rule, apart: _Apart) -> bool:
    """Evaluate pending nodes with what they bring along; whether nothing of them is left to do.

    What is brought along raises nothing here: it stays pending, for the sink that asks for it.
    """
    try:
        _evaluate_concurrently([*pending, *more], rule, pending, apart)
        return True
    except Exception:
        if _is_done(more):  # the error is one of `pending`, or of a warning
            raise
    here.recorded.forget(topological(more))
    return _is_done(pending)


def _is_done(nodes: Sequence[Node]) -> bool:
    return all(node.value is not None or node.resident is not None for node in nodes)


def _set_up() -> None:
    """Tell C how evaluations are done again: import alone needs none of this."""
    rules = {decisions.LOOP: evaluations.LOOP, decisions.EXPORT: evaluations.EXPORT}
    conditions.native.replay_setup(
        (
            vars(conditions), vars(concurrency), vars(spans), report.totals, vars(stand_ins),
            globals(), vars(offload), evaluations.kept, elision.watched, fresh.by_key,
            _go_on, rules, hardware.innermost, hardware.AT_HOME, _state,
            decisions.FRESH, decisions.CHEAP, co_evaluation.choices, elision.chosen, _note_elided,
            fp_flags.warn_for_all,
        )
    )  # fmt: skip


def _first(seconds: float) -> Rule | None:
    """Whether C may try NumPy's loops on an evaluation before anything is set up (native/player/
    look.c), and the rule that counts it. `seconds`: what such evaluations have taken so far.

    The modules of plans take some 30 ms to import: a script that is done earlier does without.
    """
    options = config.options
    if concurrency.busy or concurrency.share or chunked is not None:
        return None
    if seconds * 1e3 >= options.plan_after or not options.fusion or options.fusion_max_length:
        return None
    if not conditions.may_capture() or hardware.names_another():
        return None
    if not late_modules.is_late(stand_ins) and stand_ins.active:
        return None
    return None if options.report else decisions.FRESH


def _go_on(*run: Any) -> conditions.Raised:
    return native_replay.go_on(*run)  # its modules are for plans: fresh structures do without


def _state() -> int:
    """The number of the devices' state; -1: the user named another device than the CPU."""
    return -1 if hardware.names_another() else hardware.state_number()


def together(pending: list[Node], rule: Rule) -> tuple[Rule, list[Node]] | None:
    """The co-evaluated outputs of an evaluation of pending nodes, and their rule."""
    found = co_evaluation.together(pending, rule, here.recorded)
    if found is None or in_chunks is None:
        return found
    own = [node for node in found[1] if not in_chunks(node)]
    return (found[0], own) if own else None


def _concurrent_evaluation() -> _Apart:
    """The permission to run concurrently with other threads' evaluations; None: run alone."""
    if concurrency.is_owned():  # other threads would see the unfinished work of an outer frame
        return None
    if not concurrency.notice(bool(concurrency.busy)):
        return None
    return (
        concurrency.ConcurrentEvaluation()
        if conditions.may_capture() and hardware.is_default_cpu()
        else None
    )


def _evaluate_concurrently(
    nodes: Sequence[Node],
    rule: Rule,
    wanted: Sequence[Node],
    apart: _Apart,
    missed: evaluations.Missed | None = None,
) -> None:
    """Evaluate so that other threads notice it; concurrently with them where that is allowed.

    `missed`: the key of the evaluation, if it was looked for and not found.
    """
    if missed is None and apart is None and conditions.native is not None:
        roots = [node for node in nodes if node.value is None and node.resident is None]
        again = conditions.native.replay_again
        found = again(roots, None, here.recorded, rule, bool(wanted)) if roots else None
        if isinstance(found, list):
            fp_flags.warn_for_all(found)
            return
        missed = found
    span = spans.begin() if spans.on else None
    concurrency.busy += 1
    try:
        raised = _evaluate(nodes, rule, wanted, apart, missed)
    finally:
        concurrency.busy -= 1
        spans.evaluated(span, rule.name)
        if apart is not None:
            apart.end()
    fp_flags.warn_for_all(raised)


def ahead(nodes: list[Node], rule: Rule) -> None:
    """Evaluate before the lock is taken for longer, so that other threads can evaluate, too."""
    if nodes[0].value is None and not concurrency.is_owned():
        evaluate(nodes, rule)


def compute(nodes: Sequence[Node], rule: Rule) -> None:
    """Evaluate every node. Results on a device with its own memory stay there."""
    if stand_ins.active:
        stand_ins.refuse(nodes)
    if chunked is not None and chunked(nodes, rule, False):
        return
    apart = _concurrent_evaluation() if concurrency.busy or concurrency.share else None
    with held():
        if apart is not None and concurrency.under_way:
            concurrency.wait_for(nodes)
        _evaluate_concurrently(nodes, rule, (), apart)


def _gather(nodes: list[Node], rule: Rule) -> None:
    """Fetch values from the memory of devices, and warn of the exceptions that arose there."""
    away = [node for node in nodes if node.value is None]
    if not away:
        return
    devices = {node.resident.device for node in away}
    found = [each for device in devices for each in pending_launches.wait(device)]
    for node in away:
        residency.gather(node, rule.name)
    fp_flags.warn_for_all(found)


def wait_and_warn(devices: Sequence[Device]) -> None:
    """Wait for devices, and warn of the floating-point exceptions that arose on them."""
    with held():
        found = [each for device in devices for each in pending_launches.wait(device)]
    fp_flags.warn_for_all(found)


def _flush(nodes: Sequence[Node], rule: Rule) -> None:
    """Evaluate what no sink has asked for. What fails stays pending, for the sink that asks."""
    try:
        compute(nodes, rule)
        nodes = ()
    except Exception:
        if _is_done(nodes):  # the error is that of a warning
            raise
    if len(nodes) == 1:
        here.recorded.forget(topological(nodes))
    for node in nodes if len(nodes) > 1 else ():
        _flush([node], rule)


def _allocate(node: Node) -> None:
    """Raise NumPy's error if there is no memory, or address space, for the result of a node."""
    if node.op.kind not in ("view", "update") and not (in_chunks is not None and in_chunks(node)):
        np.empty(node.shape, node.dtype)  # touches none of it


here = flush.Thread(compute, _flush, _allocate)


def activity() -> tuple[int, int, int]:
    """Numbers of which one changes with each operation that is recorded or evaluated."""
    totals = report.totals()
    return len(here.recorded.nodes), totals.kernels, totals.singles


def _note(node: Node) -> None:
    here.recorded.note(node)


note_recorded: Callable[[Node], None] = _note


evaluate: Callable[[Sequence[Node], Rule], None] = in_full
"""The same. With the native extension, C does again what was done before."""


def use_native(native: Any) -> None:
    """Walk, note, launch and replay by the native extension."""
    global note_recorded, evaluate
    native.bind("evaluate_in_full", in_full)
    native.bind("evaluations_begin", _set_up)
    native.bind("evaluations_first", _first)
    evaluate = native.evaluate
    use(native)
    conditions.native = flush.native = native
    when_run(bound_launch, lambda: bound_launch.use(native))
    when_run(buffers, lambda: buffers.use(native))
    when_run(vector_loops, lambda: vector_loops.use(native))
    names = vars(warnings), vars(compound_calls), vars(flush)
    limits = ROUNDS, REDUCING, TOGETHER, VAST
    note_recorded = native.notes(Pending, lambda: here.recorded, *names, *limits)


if _native is not None:
    use_native(_native)
tracing.on_change(flush.listen)


def settled(left: list[Node]) -> None:
    """After an evaluation elsewhere: what it left pending is no unfinished work."""
    here.recorded.forget(left)
    here.recorded.reset()


def recorded() -> list[ref[Node]]:
    """The operations that this thread has recorded and that have not run."""
    return list(here.recorded.nodes)


def finish(before: Sequence[ref[Node]], rule: Rule, everyone: bool = False) -> None:
    """Evaluate what this thread (or everyone) recorded since `recorded()` gave `before`."""
    known = {id(each) for each in before}
    for each in [each for each, _ in flush.threads] if everyone else [here.recorded]:
        if frontier := each.frontier(before=known):
            _flush(frontier, rule)


errstate.on_handling(functools.partial(finish, (), decisions.ERRSTATE, True))


def _evaluate(
    nodes: Sequence[Node],
    rule: Rule,
    wanted: Sequence[Node],
    apart: _Apart,
    missed: evaluations.Missed | None,
) -> conditions.Raised:
    """Give every node a value; the exceptions that arose, with the operations that raised them."""
    pending = [node for node in nodes if node.value is None and node.resident is None]
    if not pending:
        return []
    usual = conditions.may_capture() and not hardware.names_another()
    if usual:
        report.totals().evaluations += 1
    else:
        _device(pending[0], rule)
    recording = plan = None
    elided = elision.NOTHING
    if usual:
        recording = linearize(pending)
        elided, plan = elision.elide(recording, pending, known, rule is not decisions.LOOP)
        if plan is not None and plan.costly:
            plan = recompute.by_size(plan, recording)
    undecided = apart is None and elided.rule is None
    if recording is not None and undecided and fresh.is_numpys(recording, plan is not None):
        report.totals().flushes[rule] += 1
        if missed is not None and not elided.watched:
            fresh.remember(missed[0], recording)
        try:
            return fresh.run(recording)
        finally:
            here.recorded.reset()
    if (
        recording is not None
        and plan is not None
        and plan.replays
        and hardware.stays_on_cpu(plan, recording, wanted)
    ):
        if apart is not None:
            apart.begin(recording.nodes, plan)
        decided = elided is elision.NEVER or (
            elided.choice is not None and not concurrency.writes(plan)
        )
        repeats = missed is not None and decided
        replayed = _replayed(plan, recording, hardware.cpu(), rule)
        if replayed is not None:
            report.totals().plan_hits += 1
            raised, kept = replayed
            if kept.awaited:
                fresh.go_on(recording)
            if missed is not None and repeats:
                choice = None if elided.choice is None else (elided.state, elided.choice)
                evaluations.keep(missed, plan, kept, recording, choice)
            del recording  # nodes that only it kept are not pending any more
            _note_elided(elided, raised)
            return raised
    if recording is None:
        recording = linearize(pending)
        elided, _ = elision.elide(recording, pending, waits=rule is not decisions.LOOP)
    told: conditions.Raised = []
    try:
        plan = plan_for(recording)
        if apart is not None:
            apart.begin(recording.nodes, plan)
        told = run_plan(plan, recording, rule, wanted)
    finally:
        del recording
        _note_elided(elided, told)
    return told


def known(recording: Recording) -> Plan | None:
    """The plan of a structure that has run before."""
    options = config.options
    return _plans.get((recording.key, options.fusion, options.fusion_max_length))


def _note_elided(elided: elision.Elision, raised: conditions.Raised) -> None:
    """After an evaluation: what it elided stays pending, and is no unfinished work."""
    if elided is not elision.NOTHING and elided is not elision.NEVER:
        here.recorded.forget(elided.pending)
        elision.conclude(elided, bool(raised))
        if raised and elided.rematerialised:  # rematerialised later, they would report them again
            again = linearize(elided.rematerialised)
            run_plan(plan_for(again), again, decisions.CONDITIONS)
    here.recorded.reset()


def _replayed(
    plan: Plan, recording: Recording, device: Device, rule: Rule
) -> tuple[conditions.Raised, replay.Replay] | None:
    """Replay a plan, and the replay; None: this geometry has none."""
    kept = plan.replays
    if not isinstance(kept, replay.ReplayCache) or not kept.found or not conditions.may_capture():
        return None
    played = native_replay.run(plan, kept, recording, device)
    if played is not None:
        report.flushed(rule, plan, recording, decisions.REPLAYED)
    return played


def _device(node: Node, rule: Rule) -> Device:
    """The device in use; if it runs nothing, an error that names the node and the rule."""
    device = hardware.current()
    if not device.traits.languages:
        where = source_line(node.location)
        what = f"evaluation is switched off (LAZYFUSE_DEVICE={device.traits.name}): {rule}"
        raise EvaluationError(
            what, op=node.op.name, file=where[0], line=where[1], function=where[2]
        )
    report.totals().evaluations += 1
    return device


def run_plan(
    plan: Plan, recording: Recording, rule: Rule, wanted: Sequence[Node] | None = None
) -> list[tuple[int, list[tuple[Op, Node]]]]:
    """Run a plan for a recording while the lock is held; the exceptions, with their operations.

    `wanted`: the nodes whose values the host is waiting for (None: all results).
    """
    device = hardware.for_plan(plan, recording, wanted)
    if device.memory is not None:
        run: executor.Run = discrete_run.DiscreteRun(plan, recording, device)
    else:
        replayed = _replayed(plan, recording, device, rule)
        if replayed is not None:
            return replayed[0]
        run = capture.run_of(plan, recording, device)
    report.flushed(rule, plan, recording)
    try:
        run.execute()
    except run_values.Abandoned as error:
        report.fell_back([], str(error), device.traits.name, "cpu")
        raised = run.raised
        del run  # it would count as a reader of its values
        return raised + _resume(plan, recording)
    return run.raised


def _resume(plan: Plan, recording: Recording) -> list[tuple[int, list[tuple[Op, Node]]]]:
    """Run on the CPU the work that a failed device did not finish."""
    origins = {plan.graph.values[index].origin for index in plan.outputs}
    left = [recording.nodes[at] for at in origins]
    left = [node for node in left if node.value is None and node.resident is None]
    rest = linearize(left)
    run = executor.Run(plan_for(rest), rest, hardware.cpu())
    run.execute()
    return run.raised


def run_again(
    plan: Plan, recording: Recording, rule: Rule
) -> list[tuple[int, list[tuple[Op, Node]]]]:
    """Run a plan for a recording that was made before, on the device in use now."""
    _device(recording.nodes[-1], rule)
    return run_plan(plan, recording, rule)


def plan_for(recording: Recording) -> Plan:
    """The plan of a recording, from the cache if its structure is known."""
    options = config.options
    key = (recording.key, options.fusion, options.fusion_max_length)
    plan = _plans.get(key) if options.plan_limit else None
    if plan is not None:
        report.totals().plan_hits += 1
        if not options.program_limit:
            plan.forget()
        report.planned(plan, True)
        return recompute.by_size(plan, recording) if plan.costly else plan
    report.totals().plan_misses += 1
    plan = plans.make_plan(
        recording.graph(), cluster.Limits(options.fusion, options.fusion_max_length)
    )
    plan.sizes = recording.sizes
    _plans[key] = plan
    while len(_plans) > options.plan_limit:
        _plans.popitem(last=False)
    report.planned(plan, False)
    return recompute.by_size(plan, recording) if plan.costly else plan


def plan_cache_info() -> dict[str, int]:
    """Entries, limit and counters of the plan cache."""
    totals = report.totals()
    return {
        "entries": len(_plans), "limit": config.options.plan_limit, "plan hits": totals.plan_hits,
        "plan misses": totals.plan_misses, "evaluations": totals.evaluations,
    }  # fmt: skip


def clear_plans() -> None:
    """Forget every plan."""
    global epoch
    with quiet:
        _plans.clear()
        elision.forget()
        evaluations.forget()
        epoch += 1


register(
    "runtime.scheduling.evaluate.plans",
    _plans.__len__,
    lambda: config.options.plan_limit,
    clear_plans,
)
plan_tables.enter(_plans)
