"""Random programs of moves, in NumPy and in lazyfuse: values, dtype, memory order, aliases, errors.

Everything is recorded and planned, or as users have it; `LAZYFUSE_DEVICE=opencl` and chunks of a
few elements run the same programs.
"""

from __future__ import annotations

import pytest

from lazyfuse import config
from lazyfuse.runtime.capture import tier_up
from tests import campaign, reached
from tests.campaign import rounds
from tests.programs import moves
from tests.programs.compare import beginning, complain, failure

pytestmark = campaign.TIMEOUT


def _check(seeds: range, turns: int = 1) -> None:
    for seed in seeds:
        drawn = moves.program(seed)
        with reached.program(seed):
            for turn in range(turns):
                what = failure(drawn)
                if what:
                    complain(drawn, f"seed {seed}, turn {turn}: {what}")


@rounds(300)
@pytest.mark.parametrize("below", [0, 20])
def test_moves_are_numpys(below: int, seeds: range) -> None:
    with config.options(eager_below=below, plan_after=0):
        _check(seeds)


@rounds(100, 10**6)
def test_moves_that_come_round(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tier_up, "MOST", 0)  # what runs in blocks is kept: no program will come
    with config.options(eager_below=0, plan_after=0, compile_after=10**6):
        _check(seeds, turns=5)


@rounds(100, 10**5)
def test_moves_as_users_have_them(seeds: range) -> None:
    _check(seeds)


@rounds(100, 10**4)
def test_moves_at_the_beginning_of_a_process(seeds: range) -> None:
    with beginning(), config.options(eager_below=0):
        _check(seeds)
