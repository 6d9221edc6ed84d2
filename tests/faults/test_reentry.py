"""A signal handler or a finaliser that looks at arrays, or writes to them, at any moment."""

from __future__ import annotations

import gc
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import pytest

import lazyfuse
from tests import campaign, reached
from tests.faults import statements


class Visitor:
    """Does something with one of the arrays that changes no value."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.names: dict[str, Any] = {}
        self.inside = False
        self.visits = 0
        self.errors: list[BaseException] = []

    def __call__(self, *_: Any) -> None:
        if self.inside or not self.names:
            return
        self.inside = True
        self.visits += 1
        try:
            x = self.names[self.draw.choice(statements.NAMES)]
            way = self.draw.randrange(6)
            if way == 0:
                float(x.sum())
            elif way == 1:
                x[5:10] = x[5:10] * 1.0
            elif way == 2:
                x += 0.0
            elif way == 3:
                (x * 2).sum()
            elif way == 4:
                numpy.asarray(x)[0]
            else:
                x[7] = float(x[7])
        except BaseException as error:
            self.errors.append(error)
        finally:
            self.inside = False


@contextmanager
def by_signals(visit: Visitor) -> Iterator[None]:
    with statements.signals(visit, 3e-4):
        yield


@contextmanager
def by_finalisers(visit: Visitor) -> Iterator[None]:
    class Cycle:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            if going:
                Cycle()  # there is always another one
            visit()

    going = True
    before = gc.get_threshold()
    gc.set_threshold(visit.draw.choice([2, 3, 7, 20]))
    Cycle()
    try:
        yield
    finally:
        going = False
        gc.set_threshold(*before)
        gc.collect()


@pytest.mark.parametrize("way", [by_signals, by_finalisers])
@campaign.rounds(30)
def test_visits_change_nothing(seeds: range, way: Callable[..., Any]) -> None:
    if way is by_signals and not hasattr(signal, "SIGUSR1"):
        pytest.skip("no such signals")
    visit = Visitor(seeds[0])
    with way(visit):
        for seed in seeds:
            check(seed, visit)
    assert visit.visits


def check(seed: int, visit: Visitor) -> None:
    """A program among visits does what it does in NumPy."""
    ours, theirs = statements.arrays(lazyfuse), statements.arrays(numpy)
    lines = statements.program(seed)
    for line in lines:
        exec(line, theirs)
    visit.names = ours
    with reached.program():
        for line in lines:
            exec(line, ours)
    gc.collect()  # Python 3.14 collects rarely by itself
    visit.names = {}
    assert visit.errors == [], seed
    assert statements.equal(statements.values(ours), statements.values(theirs)), seed
