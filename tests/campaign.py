"""How many random programs a test draws: few in every run, many in a campaign.

A test that draws programs asks for `seeds`, given by `rounds`: few by default, and ten times as
many others in a second test with the mark `long`. Two variables make a campaign of either:

    LAZYFUSE_CAMPAIGN=100 LAZYFUSE_CAMPAIGN_SEED=7 pytest tests/programs/test_random_loops.py

draws a hundred times as many, and others for each seed; with `-o faulthandler_timeout=0` no test is
ended for its length. Without the first variable a run draws a third, so that it stays short;
`.ci/run` draws all. Holds no test.
"""

from __future__ import annotations

import os

import pytest

FACTOR = float(os.environ.get("LAZYFUSE_CAMPAIGN", "1"))
"""How many times as many programs as usual."""
FEW = FACTOR if "LAZYFUSE_CAMPAIGN" in os.environ else 1 / 3
"""The same for tests without the mark `long`: a run that asks for nothing is to be short."""
SEED = int(os.environ.get("LAZYFUSE_CAMPAIGN_SEED", "0"))
"""Each has programs of its own."""

_LONG = 10  # times as many in a test with the mark `long`
_APART = 10**9  # between the first seeds of two campaigns
TIMEOUT = pytest.mark.timeout(900 * max(1.0, FACTOR))
"""For modules of random programs; on OpenCL every new structure is built, 0.2 s each."""


def count(usual: int) -> int:
    """A number of programs, or of rounds, in this run."""
    return max(1, round(usual * FEW))


def drawn(usual: int, start: int = 0) -> range:
    """The seeds of that many programs; `start` keeps two tests apart."""
    first = SEED * _APART + start
    return range(first, first + count(usual))


def rounds(usual: int, start: int = 0) -> pytest.MarkDecorator:
    """Runs a test with `seeds` of `usual` programs, and with `long` ones beyond them."""
    few = drawn(usual, start)
    many = range(few.stop, few.stop + _LONG * max(1, round(usual * FACTOR)))
    marked = pytest.param(many, id="long", marks=[pytest.mark.long, TIMEOUT])
    return pytest.mark.parametrize("seeds", [pytest.param(few, id="short"), marked])
