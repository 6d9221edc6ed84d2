"""Evaluations that were done before: one look-up leads from the roots to a captured run.

An evaluation asks what else is to be computed, orders the graph, finds its plan, asks what it may
leave out, and finds the replay for these sizes and strides. All that follows from the structure,
the sizes and strides, and which operands die. `find` makes one key of these
(native/capture/bind.c), and `keep` stores under it what was found the slow way. Only evaluations
without anything else to decide are kept: no other recorded work is pending, nothing is elided.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import ref

from lazyfuse import config
from lazyfuse.codegen.graph.node import Node
from lazyfuse.devices.caches import memo, register
from lazyfuse.runtime.capture import conditions, native_replay, tier_up
from lazyfuse.runtime.capture.governor import Watch
from lazyfuse.runtime.execution import concurrency

if TYPE_CHECKING:
    from lazyfuse.codegen.graph.linearize import Recording
    from lazyfuse.codegen.plan.plan import Plan
    from lazyfuse.runtime.capture.conditions import Raised
    from lazyfuse.runtime.capture.replay import Replay, ReplayCache

LIMIT = 1024
"""Keys kept; then all are dropped."""
UNMET = 8
"""Keys kept of one plan while none of them is met again: sizes that never repeat, for example."""

LOOP, EXPORT, WAITS, BITS = 1, 2, 4, 3
"""Bits of the mode of `find`: a loop's own flush; the program may write to the roots; a caller
waits for them. The number of the devices' state follows."""

Missed = tuple[bytes, list[Any]]
"""The key of an evaluation that is not kept, and what the key names by address."""
Kept = tuple[
    Any, int, tuple[Any, ...], "Plan", "ReplayCache", "Replay", list[int], list[Any], Watch | None
]
"""A program, how many values the plan has and which are operands; the plan, its replays, the
replay, its sizes; what the key names by address; what the governor knows."""
Found = tuple[Kept, list[Node], list[Any], tuple[list[Any], list[int]]]
"""What is kept; the nodes in order, the plan's values, the blocks and their addresses."""

OFTEN = 8
"""Turns of an evaluation after which it is planned, however small it is: a replay is cheap."""

_kept: dict[bytes, Kept] = {}
_turns: dict[bytes, int] = memo("runtime.capture.evaluations.turns", LIMIT)


def find(
    roots: list[Node], recorded: Sequence[ref[Node]] | None, watched: dict[int, Any], mode: int
) -> Found | Missed | None:
    """What is kept of the evaluation of `roots`, or its key; None if more has to be looked at.

    `recorded`: if any other of these operations is pending, more has to be looked at. `watched`:
    the ids of nodes and arrays that it must not read.
    """
    found: Found | Missed | None = conditions.native.replay_find(
        roots, _kept, recorded, watched, mode
    )
    return found


def play(found: Found) -> Raised | None:
    """Run what was found; the exceptions that arose. None if memory is short, or if the plan's
    runs have to keep their operands.
    """
    kept, nodes, env, (roots, addresses) = found
    _, _, _, plan, cache, replay, sizes, _, _ = kept
    if plan.keeping:
        return None
    cache.unmet = 0
    return native_replay.play(replay, cache, plan, nodes, sizes, env, roots, addresses)


def keep(
    missed: Missed, plan: Plan, replay: Replay, recording: Recording, watch: Watch | None
) -> None:
    """Keep an evaluation that was a replay and nothing else."""
    cache: ReplayCache = plan.replays
    if not replay.program or cache.unmet >= UNMET:
        return
    if replay.awaited or tier_up.is_awaited(replay):  # its programs will be others
        return
    if concurrency.current is not None:
        return
    cache.unmet += 1
    if len(_kept) >= LIMIT:
        _kept.clear()
    key, pins = missed
    program, sizes = replay.program[0], recording.sizes
    _kept[key] = program, cache.size, cache.operands, plan, cache, replay, sizes, pins, watch


def comes_round(missed: Missed) -> bool:
    """Whether an evaluation that is not kept has come round often; counts its turns."""
    key = missed[0]
    turns = _turns.get(key, 0)
    if turns < OFTEN:
        _turns[key] = turns + 1
    return turns >= OFTEN


def forget(value: object = None) -> None:
    """Forget every evaluation."""
    _kept.clear()
    _turns.clear()


config.on_any_change(forget)
register("runtime.capture.evaluations", _kept.__len__, LIMIT, forget)
