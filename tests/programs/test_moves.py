"""Random programs of moves (rolls, pads, joins, tiles, views) with writes: NumPy's bits, in loops.

The grammar is that of random loops, with `MOVES` drawn as often as all other forms together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from lazyfuse import config
from lazyfuse.runtime.execution import program_tiers
from lazyfuse.runtime.scheduling import flush
from tests import campaign, reached
from tests.campaign import rounds
from tests.programs.deep import difference, reduced
from tests.programs.loop_programs import LARGE, MIDDLE, SMALL, Turns

pytestmark = campaign.TIMEOUT

RECORDED: dict[str, Any] = {"eager_below": 0, "plan_after": 0}


def explore(seeds: range, sizes: Sequence[int] = SMALL, **options: Any) -> None:
    """Run programs; fail with the first that differs, reduced."""
    with config.options(**options):
        for seed in seeds:
            program = Turns(seed, sizes, moves=3).program()
            with reached.program(seed):
                what = difference(program)
                if what:
                    small = reduced(program)
                    found = f"seed {seed}: {difference(small) or what}"
                    pytest.fail(f"{found}\n{options}\n{small}", pytrace=False)


@rounds(60, 40_000)
def test_recorded(seeds: range) -> None:
    explore(seeds, **RECORDED)


@rounds(30, 50_000)
def test_a_run_for_every_turn(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flush, "WORTH_A_LAUNCH", 1)
    explore(seeds, **RECORDED)


@rounds(4, 60_000)
def test_compiled_at_once(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_tiers, "COMPILE_ELEMENTS", 0)
    explore(seeds, MIDDLE, compile_after=0, threads=2, threads_above=1, **RECORDED)


@rounds(4, 70_000)
def test_large(seeds: range) -> None:
    explore(seeds, LARGE, plan_after=0)
