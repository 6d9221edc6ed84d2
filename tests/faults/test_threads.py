"""Threads with programs of their own and arrays in common, while the main one is interrupted.

What threads do to parts of one array is in tests/arrays/memory/test_threads_on_one_array.py. Here
all of them read arrays that are evaluated at some moment by whoever is first, and run random
programs with errors; meanwhile signals raise in the main thread, at any line.
"""

from __future__ import annotations

import gc
import itertools
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import pytest

import lazyfuse
from lazyfuse import config
from lazyfuse.runtime.scheduling import evaluate
from tests import campaign
from tests.faults import statements
from tests.faults.test_interrupts import Sender, is_free
from tests.programs.compare import Difference, Pair
from tests.programs.grammar import SMALL, Grammar

pytestmark = [
    pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="no such signals"),
    campaign.TIMEOUT,
]
THREADS = 2
SIZE = 40_000


class Common:
    """Arrays that every thread reads, pending again and again, with what NumPy has there."""

    def __init__(self) -> None:
        self.plain = numpy.arange(SIZE) % 1009 * 0.5
        self.renew(0)

    def renew(self, number: int) -> None:
        """Others, which nobody has looked at."""
        x = lazyfuse.array(self.plain)
        y, want = x * 2.0 + number, self.plain * 2.0 + number
        self.pairs: list[tuple[Any, Any]] = [
            (y, want), (y[::-1] - x, want[::-1] - self.plain), (y[5:].sum(), want[5:].sum()),
        ]  # fmt: skip

    def look(self, turn: int) -> None:
        """One of them is as it should be."""
        found, want = self.pairs[turn % 3]
        assert numpy.array_equal(numpy.asarray(found), want)


class Worker(threading.Thread):
    """Random programs with errors, and looks at what all have in common, until told to end."""

    def __init__(self, common: Common, seeds: range, ended: threading.Event) -> None:
        super().__init__()
        self.common, self.seeds, self.ended = common, seeds, ended
        self.programs = 0
        self.trouble: list[BaseException] = []

    def run(self) -> None:
        try:
            for seed in itertools.cycle(self.seeds):
                if self.ended.is_set():
                    return
                self.program(seed)
                self.programs += 1
        except BaseException as error:
            self.trouble.append(error)

    def program(self, seed: int) -> None:
        program = Grammar(seed, SMALL, wrong=True).program()
        if any("errstate" in each.text or "warnings" in each.text for each in program.statements):
            return  # before Python 3.14 filters of warnings are those of all threads
        pair = Pair(program)
        for turn, statement in enumerate(program.statements):
            try:
                pair.step(statement)
            except Difference as found:
                raise AssertionError(f"seed {seed}: {found}\n{program}") from found
            if turn % 4 == 0:
                self.common.look(turn)
        pair.finish()


@contextmanager
def often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@campaign.rounds(20, 10**5)
def test_threads_beside_an_interrupted_one(seeds: range) -> None:
    common, ended, sender = Common(), threading.Event(), Sender()
    workers = [
        Worker(common, range(seeds.start + k * 1000, seeds.stop + k * 1000), ended)
        for k in range(THREADS)
    ]
    with warnings.catch_warnings(), config.options(eager_below=500), often():
        warnings.simplefilter("ignore")
        for worker in workers:
            worker.start()
        try:
            with statements.signals(sender, 2e-3):
                met = 0
                for seed in seeds:
                    met += statements.disturbed(seed, sender.interrupts)
                    common.renew(seed % 7)
                    common.look(seed)
        finally:
            ended.set()
            for worker in workers:
                worker.join()
    assert [worker.trouble for worker in workers] == [[]] * THREADS
    assert met
    assert all(worker.programs for worker in workers)
    assert is_free(evaluate.lock)
    assert gc.isenabled()
