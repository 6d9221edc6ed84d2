"""Structures that come round again with other values, slices, numbers and sizes: NumPy's bits.

The suite runs some hundred programs of `turns`, the same ones each time; `campaign.py` says how to
run more and others.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from lazyfuse import config
from lazyfuse.runtime.events import tracing
from lazyfuse.runtime.execution import program_tiers
from lazyfuse.runtime.scheduling import evaluate, flush
from tests import campaign, reached
from tests.campaign import rounds
from tests.programs.deep import difference, reduced
from tests.programs.loop_programs import LARGE, MIDDLE, SMALL, Turns

pytestmark = campaign.TIMEOUT

RECORDED: dict[str, Any] = {"eager_below": 0, "tape_after": 1}
THREADS: dict[str, Any] = {"eager_below": 0, "threads": 2, "threads_above": 1, "tape_after": 1}
SMALL_LIMITS: dict[str, Any] = {
    "plan_limit": 1, "program_limit": 1, "pool_limit": 0, "flush_nodes": 7,
}  # fmt: skip
WITHOUT: dict[str, Any] = {
    "pipelining": False, "dynamic_sizes": False, "routines": False,
}  # fmt: skip

# sizes from which a way of doing things is worth it: here it is taken at once
WORTH: dict[str, dict[str, int]] = {
    "kernels.compact": {"FEW": 1},
    "functions.histograms": {"_WORTH": 1},
    "arrays.mask_selection": {"WORTH": 1},
    "kernels.gather": {"_FEWEST": 1, "_WORTH": 1},
    "runtime.scheduling.elision": {"LARGE": 4, "SMALLER": 1},
    "runtime.execution.update_hazards": {"SWAP_BYTES": 0},
    "runtime.execution.routine": {"FEWEST": 1},
    "runtime.scheduling.co_evaluation": {"LARGE": 16},
    "runtime.execution.tiles": {"SHORTEST": 1},
}


def explore(seeds: range, sizes: Sequence[int] = SMALL, moves: int = 0, **options: Any) -> None:
    """Run programs; fail with the first that differs, reduced. `moves`: as of `Turns`."""
    with config.options(**options):
        for seed in seeds:
            program = Turns(seed, sizes, moves).program()
            with reached.program(seed):
                what = difference(program)
                if what:
                    small = reduced(program)
                    found = f"seed {seed}: {difference(small) or what}"
                    pytest.fail(f"{found}\n{options}\n{small}", pytrace=False)


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run for every turn of a loop, however small."""
    monkeypatch.setattr(flush, "WORTH_A_LAUNCH", 1)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machine code from the first use on."""
    monkeypatch.setattr(program_tiers, "COMPILE_ELEMENTS", 0)


@pytest.fixture
def early(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every way of doing things is worth it for small arrays, too."""
    for module, limits in WORTH.items():
        for name, value in limits.items():
            monkeypatch.setattr(importlib.import_module(f"lazyfuse.{module}"), name, value)
    evaluate.clear_plans()  # which remember what is worth it
    yield
    evaluate.clear_plans()


@rounds(30)
def test_recorded_A6(seeds: range) -> None:
    explore(seeds, **RECORDED)


@rounds(30)
@pytest.mark.usefixtures("often")
def test_a_run_for_every_turn_A6(seeds: range) -> None:
    explore(seeds, **RECORDED)


@rounds(15)
@pytest.mark.usefixtures("often")
def test_two_threads_A6(seeds: range) -> None:
    explore(seeds, MIDDLE, **THREADS)


@rounds(2)
@pytest.mark.usefixtures("compiled")
def test_compiled_at_once_A6(seeds: range) -> None:
    explore(seeds, MIDDLE, compile_after=0, **THREADS)


@rounds(2)
@pytest.mark.usefixtures("often", "compiled")
def test_compiled_at_once_in_turns_A6(seeds: range) -> None:
    explore(seeds, compile_after=0, **RECORDED)


@rounds(15)
@pytest.mark.usefixtures("often")
def test_mixed_with_arrays_at_once_A6(seeds: range) -> None:
    explore(seeds, MIDDLE, eager_below=1000)


@rounds(2)
def test_large_A6(seeds: range) -> None:
    explore(seeds, LARGE)


@rounds(20)
def test_small_A6(seeds: range) -> None:
    explore(seeds)


@rounds(10)
def test_without_fusion_A6(seeds: range) -> None:
    explore(seeds, fusion=False, **RECORDED)


@rounds(8)
def test_validated_A6(seeds: range) -> None:
    explore(seeds, validate=True, **RECORDED)


@rounds(10)
@pytest.mark.usefixtures("often")
def test_nothing_kept_ready_A6(seeds: range) -> None:
    explore(seeds, capture=False, **RECORDED)


@rounds(10)
@pytest.mark.usefixtures("often")
def test_little_kept_A6(seeds: range) -> None:
    explore(seeds, **SMALL_LIMITS, **RECORDED)


@rounds(10)
def test_without_tiles_selections_routines_A6(seeds: range) -> None:
    explore(seeds, **WITHOUT, **THREADS)


@rounds(8)
def test_while_somebody_listens_A6(seeds: range) -> None:
    with tracing.collect() as told:
        explore(seeds, **RECORDED)
        assert told


@rounds(12)
@pytest.mark.usefixtures("early")
def test_everything_is_worth_it_A6(seeds: range) -> None:
    explore(seeds, MIDDLE, **THREADS)


@rounds(15)
@pytest.mark.usefixtures("early")
def test_everything_is_worth_it_in_middling_arrays_A6(seeds: range) -> None:
    explore(seeds, MIDDLE, eager_below=150)


@rounds(15)
@pytest.mark.usefixtures("often")
def test_middling_arrays_A6(seeds: range) -> None:
    explore(seeds, MIDDLE, eager_below=150)


# Moves (rolls, pads, joins, tiles, views): their forms are drawn as often as all others together.


@rounds(60, 40_000)
def test_moves_A6(seeds: range) -> None:
    explore(seeds, moves=3, plan_after=0, **RECORDED)


@rounds(30, 50_000)
@pytest.mark.usefixtures("often")
def test_moves_in_turns_A6(seeds: range) -> None:
    explore(seeds, moves=3, plan_after=0, **RECORDED)


@rounds(4, 60_000)
@pytest.mark.usefixtures("compiled")
def test_moves_compiled_at_once_A6(seeds: range) -> None:
    explore(seeds, MIDDLE, moves=3, compile_after=0, plan_after=0, **THREADS)


@rounds(4, 70_000)
def test_large_moves_A6(seeds: range) -> None:
    explore(seeds, LARGE, moves=3, plan_after=0)
