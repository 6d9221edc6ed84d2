"""Replays as programs of native/player/replay.c: one call in C replays a run.

Owns the encoding of events as numbers, and when C hands work back: NumPy calls, exceptions to
report, the end of reductions that C does not know (replay.py does it). Without the native extension
nothing is captured. Knows nodes and numpy arrays, never the array type.
"""

from __future__ import annotations

import itertools
import math
from array import array
from collections import Counter
from time import perf_counter
from typing import Any

import numpy as np

from lazyfuse.codegen.graph.linearize import Recording
from lazyfuse.codegen.graph.node import Node
from lazyfuse.codegen.plan.plan import Plan
from lazyfuse.devices.base import Device
from lazyfuse.runtime.capture import conditions, tier_up
from lazyfuse.runtime.capture import replay as replays
from lazyfuse.runtime.capture.conditions import Raised
from lazyfuse.runtime.capture.replay import (
    Allocation,
    Call,
    ChainEvent,
    Event,
    LaunchEvent,
    Replay,
    ReplayCache,
    Window,
)
from lazyfuse.runtime.events import counters, spans
from lazyfuse.runtime.execution import concurrency
from lazyfuse.runtime.execution.executor import Run
from lazyfuse.runtime.layout.copies import BlockPart, Copy

LAUNCH, BLOCK, COPY, WINDOW, NUMBER, BY_PYTHON = range(6)
NOT_BEGUN = -2
_BOOL = np.dtype(np.bool_)
_HOW = {
    ("add", False): 0,
    ("maximum", False): 1,
    ("minimum", False): 2,
    ("logical_or", True): 1,
    ("logical_and", True): 2,
}
"""How C combines partial results, by operation and whether they are truth values."""

_NOWHERE = (0, 0, -1)  # block, offset and type of a scalar that is no element of a block
MOST_PARTIAL = 256


class ReplayedRun(Run):
    """The state that Python needs of a run that C replays."""

    __slots__ = ()

    def __init__(
        self, plan: Plan, nodes: list[Node], sizes: list[int], device: Device, env: list[Any]
    ) -> None:
        self.plan = plan
        self.recording = Recording(nodes, (), [], {}, sizes)
        self.nodes = nodes
        self.assigned_device = self.device = device
        self.off_cpu = self.overwrites = self.spoilt = self.careful = False
        self.raised, self.waiting, self.made, self.spares = [], [], [], []
        self.moved, self.free = set(), set()
        self.env = env
        same = sizes == plan.sizes
        self.resized = None if same else dict(zip(plan.sizes, sizes, strict=True))


def run(
    plan: Plan, kept: ReplayCache, recording: Recording, device: Device
) -> tuple[Raised, Replay] | None:
    """Replay a run of this plan at the same geometry; None if `Run` has to run it."""
    if plan.keeping:
        return None
    native = conditions.native
    bound = replays.bind(kept, recording, bool(plan.in_place))
    if bound is None:
        return None
    key, env = bound
    found = kept.look_up(key)
    if found is None or found.device is not device:
        return None
    if concurrency.current is not None:  # another thread may be quicker during a call
        return None
    program = found.program[0] if found.program else _program(found, plan)
    begun = native.replay_begin(program, env)
    if begun is None:
        return None
    kept.learnt = 0
    start = perf_counter()
    raised: Raised | None = native.replay_run(
        program, found, plan, recording.sizes, recording.nodes, env, *begun, go_on
    )
    if raised is None:  # memory is short
        return None
    if found.awaited:
        counters.waited(len(found.awaited), perf_counter() - start)
    counters.ran_replay(found)
    if spans.on:
        nodes = recording.nodes
        spans.replayed(found, plan, nodes, device.traits.name, replays.launched)
    if tier_up.is_due(found):
        tier_up.compile_small(kept, found)
    return raised, found


def go_on(
    replay: Replay,
    plan: Plan,
    sizes: list[int],
    nodes: list[Node],
    env: list[Any],
    roots: list[Any],
    addresses: list[int],
    stop: tuple[int, int] | list[int] | None,
) -> Raised:
    """Do what C leaves of a replay, and the rest; the exceptions that arose. For C.

    `stop`: an event and its IEEE flags; results that are parts of blocks, after the last event;
    None after a failure.
    """
    native = conditions.native
    again: ReplayedRun | None = None
    at = 0
    try:
        while type(stop) is tuple:
            at, bits = stop
            if again is None:
                again = ReplayedRun(plan, nodes, sizes, replay.device, env)
            by_us = _by_python(replay.events[at], bits, again, roots, addresses)
            counters.totals().singles -= by_us  # it has counted itself
            for root in replay.dead[at]:
                roots[root] = None
            at += 1
            program, pool = replay.program[0], replay.device.buffers
            stop = native.replay_play(program, at, roots, addresses, env, nodes, pool)
            if stop is None:
                stop = native.replay_commit(program, roots, nodes) or []
    except BaseException:
        replays.keep_updates(replay, plan, nodes, roots, max(at, addresses[-1]))
        raise
    if stop is None:
        replays.keep_updates(replay, plan, nodes, roots, addresses[-1])
        return []
    for each in stop:
        index, part = replay.results[each]
        replays.commit(plan, nodes, index, part.of(roots[part.root]))
    return again.raised if again is not None else []


def _by_python(event: Event, bits: int, run: Run, roots: list[Any], addresses: list[int]) -> int:
    """Do one event, or the end of a launch; how many numbers C would have computed in it."""
    if type(event) is LaunchEvent:
        if bits == NOT_BEGUN:
            replays.start(event, run, addresses)
        else:
            replays.end(event, run, addresses, bits)
    elif type(event) is Call:
        replays.call(event, run, roots, addresses)
        return 1 if _number(event, run.plan) is not None else 0
    elif type(event) is ChainEvent:
        replays.run_chain(event, run, roots, addresses)
    elif type(event) is Copy:
        event.play(addresses)
    else:
        raise AssertionError("C allocates blocks and slides windows")
    return 0


# -------------------------------------------------------------------------------------- as numbers


def _program(replay: Replay, plan: Plan) -> Any:
    """The program of a replay, stored there with its counts for the report."""
    events = tuple(
        [_event(event, dead, plan) for event, dead in zip(replay.events, replay.dead, strict=True)]
    )
    values = plan.graph.values
    results = tuple(
        [
            (values[index].origin, part.root, part.offset, part.shape, part.strides, part.dtype)
            for index, part in replay.results
        ]
    )
    made = conditions.native.replay_program(
        replay.size + 1, replay.leaves, tuple(replay.written), replay.given, events, results,
        replay.device.buffers, replay.blocks,
    )  # fmt: skip
    launched: Counter[str] = Counter()
    operations = 0
    for event in replay.events:
        if type(event) is LaunchEvent:
            launched[event.language] += 1
            operations += event.operations
    numbers = sum(each[0] == NUMBER for each in events)
    replay.program.extend((made, (operations, tuple(launched.items())), numbers))
    return made


def _event(event: Event, dead: tuple[int, ...], plan: Plan) -> tuple[Any, ...]:
    python = BY_PYTHON, dead
    if type(event) is LaunchEvent:
        return _launch(event, dead)
    if type(event) is Allocation:
        return BLOCK, dead, event.root, event.shape, event.dtype
    if type(event) is Window:
        value = plan.graph.values[event.index]
        source = event.source
        steps = array("q", itertools.chain(*event.steps)).tobytes()
        return WINDOW, dead, event.root, value.origin, source.root, source.offset, steps
    if type(event) is Call:
        number = _number(event, plan)
        return python if number is None else (NUMBER, dead, event.root, event.index, *number)
    if type(event) is ChainEvent:
        return python
    assert type(event) is Copy, "all kinds are named"
    if not event.how:
        return python
    target, source = event.target, event.source
    return COPY, dead, target.root, target.offset, source.root, source.offset, event.how


def _launch(event: LaunchEvent, dead: tuple[int, ...]) -> tuple[Any, ...]:
    """A launch for C, which leaves programs that it cannot launch to Python."""
    if event.bound is None:
        return BY_PYTHON, dead
    arrays = [event.arrays[slot] for slot in event.lowered.slots]
    places = tuple([(part.root, part.offset) for part in arrays])
    scalars = [
        (each, *_NOWHERE) if type(each) is int else _element(each)  # type: ignore[arg-type]
        for each in event.scalars
    ]
    return LAUNCH, dead, *event.bound, places, tuple(scalars), _combining(event)


def _element(part: BlockPart) -> tuple[int, int, int, int]:
    kind = part.dtype.num if part.dtype.isnative else -1
    return -1, part.root, part.offset, kind


def _combining(event: LaunchEvent) -> Any:
    """How partial results are combined: steps for C, True (by Python), or None (not at all)."""
    if not event.lowered.is_partial:
        return None
    found = event.lowered.combining()
    if found is None:
        return True
    steps = []
    for output, partial, op, joins in found:
        to, start = event.arrays[output], event.arrays[partial]
        parts, width = start.shape[0], math.prod(start.shape[1:])
        how = _HOW.get((op, to.dtype == _BOOL)) if to.dtype.isnative else None
        if how is None or to.dtype != start.dtype or parts > MOST_PARTIAL:
            return True
        joined = bytes(joins) if joins else bytes(parts)
        if len(joined) != parts:
            return True
        places = start.root, start.offset, to.root, to.offset
        steps.append((how, *places, joined, to.dtype.num, width))
    return tuple(steps)


_FLOATS = np.dtype("f8"), np.dtype("f4")
"""Dtypes to which C converts numbers."""


def _number(event: Call, plan: Plan) -> tuple[Any, ...] | None:
    """An exact operation on numbers in memory, for one step of NumPy's own loop, or a conversion;
    else None.
    """
    values = plan.graph.values
    value = values[event.index]
    op = value.op
    converts = op.name == "cast"
    if op.kind != "map" or not (converts or type(op.ufunc) is np.ufunc) or value.shape != ():
        return None
    kind = value.dtype if converts else value.arg.ins[0]
    if converts and kind not in _FLOATS:
        return None
    parts = dict(event.sources)
    operands = []
    for index, wanted in zip(value.src, value.arg.ins, strict=True):
        source = values[index]
        fits = source.dtype == kind or (kind in _FLOATS and source.dtype.kind in "biuf")
        if source.shape != () or not fits or not kind.isnative:
            return None
        if not converts and wanted != kind:
            return None
        part = parts.get(index)
        if part is not None and part.offset % part.dtype.itemsize:
            return None
        operands.append((index, *_NOWHERE) if part is None else _element(part))
    return None if converts else op.ufunc, kind.num, value.dtype.num, tuple(operands)
