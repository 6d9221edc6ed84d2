"""Small kernels of replays that come round again and again: compiled after all.

A kernel of few elements runs as blocked NumPy, since loading a program would take longer than it
does. In a loop of many turns it costs some 30 us of Python each time, and compiled text one. Owns
when that is asked for. Exact kernels only: the bits of others follow from their sizes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyfuse import config
from lazyfuse.runtime.execution import program_tiers

if TYPE_CHECKING:
    from lazyfuse.runtime.capture.replay import Replay, ReplayCache

TURNS = 32
"""How often a replay has to run before its small kernels are compiled, and before it asks again."""

MOST = 8 * TURNS  # then nobody asks any more: no program has come


def is_due(replay: Replay) -> bool:
    """Whether it is time to look: counts the turns of replays that have small kernels."""
    turns = replay.turns
    if not replay.small or turns[0] >= MOST:
        return False
    turns[0] += 1
    return not turns[0] % TURNS and turns[0] > config.options.compile_after


def compile_small(kept: ReplayCache, replay: Replay) -> None:
    """Ask for the programs of small kernels; once they are there the run is observed anew."""
    found = [
        program_tiers.has_tiered_up(step, lowered, replay.device) for step, lowered in replay.small
    ]
    if any(found):
        kept.found.clear()
        kept.turns = 0
