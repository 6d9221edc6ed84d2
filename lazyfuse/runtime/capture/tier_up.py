"""Tier-up of replays: compiles small kernels that turn out to be hot.

A kernel of few elements runs as blocked NumPy, since loading a program would take longer than the
kernel does. In a long loop blocked NumPy costs some 30 us of Python per iteration, and compiled
text 1 us. Owns when to ask for compiled text. Exact kernels only: the bits of others follow from
their sizes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyfuse import config
from lazyfuse.runtime.execution import program_tiers

if TYPE_CHECKING:
    from lazyfuse.runtime.capture.replay import Replay, ReplayCache

TURNS = 32
"""Runs of a replay before its small kernels are compiled, and between further attempts."""

MOST = 8 * TURNS  # then the attempts end: no program has come


def is_due(replay: Replay) -> bool:
    """Whether to compile small kernels now; counts the runs of replays that have such kernels."""
    turns = replay.turns
    if not replay.small or turns[0] >= MOST:
        return False
    turns[0] += 1
    return not turns[0] % TURNS and turns[0] > config.options.compile_after


def is_awaited(replay: Replay) -> bool:
    """Whether the runs of a replay are still counted."""
    return bool(replay.small) and replay.turns[0] < MOST


def compile_small(kept: ReplayCache, replay: Replay) -> None:
    """Ask for the programs of small kernels; once one exists, the run is captured anew."""
    found = [
        program_tiers.has_tiered_up(step, lowered, replay.device) for step, lowered in replay.small
    ]
    if any(found):
        kept.found.clear()
        kept.turns = 0
