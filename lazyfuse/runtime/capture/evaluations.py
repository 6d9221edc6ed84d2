"""Evaluations that were done before: one look-up leads from the roots to a captured run.

An evaluation asks what else is to be computed, orders the graph, finds its plan, asks what it may
leave out, and finds the replay for these sizes and strides. All that follows from the structure,
the sizes and strides, and which operands die. native/player/find.c makes one key of these, `keep`
stores under it what was found the slow way, and native/player/again.c plays that the next time.
Only evaluations without anything else to decide are kept: no other recorded work is pending, and
nothing is elided, or dead temporaries of which that is decided.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyfuse import config
from lazyfuse.devices.caches import register
from lazyfuse.runtime.capture import tier_up
from lazyfuse.runtime.execution import concurrency

if TYPE_CHECKING:
    from lazyfuse.codegen.graph.linearize import Recording
    from lazyfuse.codegen.plan.plan import Plan
    from lazyfuse.runtime.capture.replay import Replay, ReplayCache

LIMIT = 1024
"""Keys kept; then all are dropped."""
UNMET = 8
"""Keys kept of one plan while none of them is met again: sizes that never repeat, for example."""

LOOP, EXPORT, WAITS, BITS = 1, 2, 4, 3
"""Bits of an evaluation's mode: a loop's own flush; the program may write to the roots; a caller
waits for them. The number of the devices' state follows."""

Missed = tuple[bytes, list[Any]]
"""The key of an evaluation that is not kept, and what the key names by address."""
Kept = tuple[
    Any, int, tuple[Any, ...], "Plan", "ReplayCache", "Replay", list[int], list[Any],
    tuple[Any, Any] | None,
]  # fmt: skip
"""A program, how many values the plan has and which are operands; the plan, its replays, the
replay, its sizes; what the key names by address; what is elided: the state and the choice of
elision.py."""

kept: dict[bytes, Kept] = {}


def keep(
    missed: Missed,
    plan: Plan,
    replay: Replay,
    recording: Recording,
    elided: tuple[Any, Any] | None,
) -> None:
    """Keep an evaluation that was a replay, and elided the same as the last time."""
    cache: ReplayCache = plan.replays
    if not replay.program or cache.unmet >= UNMET:
        return
    if replay.awaited or tier_up.is_awaited(replay):  # its programs will be others
        return
    if concurrency.current is not None:
        return
    cache.unmet += 1
    if len(kept) >= LIMIT:
        kept.clear()
    key, pins = missed
    program, sizes = replay.program[0], recording.sizes
    found = plan, cache, replay, sizes, pins, elided
    kept[key] = program, cache.size, cache.operands, *found


def forget(value: object = None) -> None:
    """Forget every evaluation."""
    kept.clear()


config.on_any_change(forget)
register("runtime.capture.evaluations", kept.__len__, LIMIT, forget)
