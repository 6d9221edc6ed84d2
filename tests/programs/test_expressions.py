"""Random programs in NumPy and in lazyfuse: the same bits, dtypes, shapes, strides, exceptions.

`campaign.py` says how many, and how to run more.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from lazyfuse import config
from lazyfuse.runtime.execution import program_tiers
from tests import campaign, reached
from tests.campaign import rounds
from tests.programs.compare import complain, failure
from tests.programs.grammar import LARGE, MIDDLE, SMALL, Grammar, Sizes

pytestmark = campaign.TIMEOUT


def check(seeds: Iterable[int], sizes: Sizes, inexact: bool) -> None:
    """Random programs."""
    for seed in seeds:
        program = Grammar(seed, sizes, inexact).program()
        with reached.program(seed):
            what = failure(program)
            if what:
                complain(program, f"seed {seed}: {what}")


@rounds(300)
@pytest.mark.smoke
def test_everything_recorded_A1_A6(seeds: range) -> None:
    with config.options(eager_below=0):
        check(seeds, SMALL, False)


@rounds(25)
def test_inexact_functions_recorded_A1_A6(seeds: range) -> None:
    with config.options(eager_below=0):
        check(seeds, SMALL, True)


@rounds(300, 10**6)
def test_recorded_and_immediate_mixed_A6(seeds: range) -> None:
    with config.options(eager_below=30):
        check(seeds, MIDDLE, False)


@rounds(50, 10**6)
def test_inexact_functions_recorded_and_immediate_A6(seeds: range) -> None:
    with config.options(eager_below=30):
        check(seeds, MIDDLE, True)


@rounds(75, 2 * 10**6)
def test_default_options_A6(seeds: range) -> None:
    check(seeds, LARGE, False)


@rounds(2, 2 * 10**6)
def test_inexact_functions_with_default_options_A6(seeds: range) -> None:
    # inexact kernels of this size are compiled at once: a tenth of a second each
    check(seeds, LARGE, True)


@rounds(75, 3 * 10**6)
def test_small_arrays_at_once_A6(seeds: range) -> None:
    check(seeds, SMALL, False)


@rounds(75, 4 * 10**6)
def test_without_fusion_A6(seeds: range) -> None:
    with config.options(eager_below=0, fusion=False):
        check(seeds, SMALL, False)


@rounds(50, 5 * 10**6)
def test_validated_A6(seeds: range) -> None:
    with config.options(eager_below=0, validate=True):
        check(seeds[::2], SMALL, False)
        check(seeds[1::2], SMALL, True)


@rounds(3, 6 * 10**6)
@pytest.mark.parametrize("inexact", [False, True])
def test_compiled_A6(seeds: range, inexact: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_tiers, "COMPILE_ELEMENTS", 0)
    with config.options(eager_below=0, compile_after=0):
        check(seeds, SMALL, inexact)
