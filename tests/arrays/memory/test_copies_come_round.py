"""Copies that come round share values until one of both is written, and are lent with their own."""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy
import pytest

import lazyfuse
from lazyfuse import config
from lazyfuse.runtime.capture import conditions
from tests import campaign

N = 40_000
TURNS = 6


def _calls(run: Any) -> int:
    """How many functions of Python's `run` calls."""
    count = 0

    def note(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.skipif(conditions.native is None, reason="C follows calls")
def test_a_copy_is_made_and_lent_in_a_few_calls() -> None:
    x = lazyfuse.array(numpy.arange(float(N)))
    for _ in range(20):
        found = numpy.asarray(x.copy())
    # on a busy machine a worker may be late, and Python says anew who helps with the next launch
    assert min(_calls(lambda: numpy.asarray(x.copy())) for _ in range(3)) <= 8
    found[0] = -1
    assert numpy.asarray(x)[0] == 0


def _program(xp: Any, seed: int) -> list[Any]:
    """Statements drawn once and run some times: copies, writes, memory that other code writes."""
    draw = random.Random(seed)
    rng = numpy.random.default_rng(seed)
    shape = draw.choice([(N,), (N // 100, 100)])
    arrays = [xp.array(rng.random(shape)) for _ in range(3)]
    body = [
        (draw.randrange(11), draw.randrange(3), draw.randrange(3), draw.randrange(5))
        for _ in range(draw.randint(3, 9))
    ]
    lent: list[Any] = []
    sums: list[Any] = []
    for turn in range(TURNS):
        for kind, i, j, c in body:
            x, y = arrays[i], arrays[j]
            if kind < 3:
                arrays[i] = (y.copy(), y.copy("K"), xp.array(y))[kind]
            elif kind == 3:
                arrays[i] = (y + x) % 1.0
            elif kind == 4:
                x[c] = turn
            elif kind == 5:
                lent = [*lent[-3:], numpy.asarray(x)]
            elif kind == 6 and lent and lent[c % len(lent)].flags.writeable:
                lent[c % len(lent)][c] = turn + 0.5
            elif kind == 7:
                x[1:] += y[:-1] if i != j else 0.5
            elif kind == 8:
                arrays[i] = y.flatten().reshape(shape)
            elif kind == 9:
                numpy.asarray(y.copy())[c] = 7
            else:
                sums = [*sums[-9:], float(x.max())]
    return [numpy.array(each) for each in (*arrays, *lent, numpy.array(sums))]


@campaign.rounds(60)
@pytest.mark.parametrize("tape_after", [1, 3])
def test_writes_to_copies_reach_them_alone(seeds: range, tape_after: int) -> None:
    with config.options(plan_after=0, tape_after=tape_after):
        for seed in seeds:
            pairs = zip(_program(lazyfuse, seed), _program(numpy, seed), strict=True)
            assert all(found.tobytes() == wanted.tobytes() for found, wanted in pairs), seed
