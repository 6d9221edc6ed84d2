"""Sections: the collector waits in the thread that is in one, and nowhere else."""

from __future__ import annotations

import gc
import random
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy
import pytest

import lazyfuse
from lazyfuse.devices import critical
from tests import campaign, reached
from tests.faults import statements
from tests.programs.test_threads import at_once


@pytest.fixture(params=["native", "python"])
def section(request: pytest.FixtureRequest) -> Any:
    if request.param == "python":
        return critical.Section(threading.RLock())
    return critical.section(threading.RLock())


@pytest.fixture(autouse=True)
def no_callbacks() -> Iterator[None]:
    """Without callbacks of others: Hypothesis has one."""
    kept = gc.callbacks[:]
    gc.callbacks.clear()
    yield
    gc.callbacks[:] = kept


pytestmark = campaign.TIMEOUT


class Cycle:
    """Garbage for the collector; `died` holds the threads in which it was found."""

    def __init__(self, died: list[int]) -> None:
        self.me, self.died = self, died

    def __del__(self) -> None:
        self.died.append(threading.get_ident())


def elsewhere(work: Any) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_the_collectors_switch_is_the_programs(section: Any) -> None:
    with section:
        assert gc.isenabled()
        elsewhere(gc.disable)
        assert not gc.isenabled()
    assert not gc.isenabled()
    with section:
        elsewhere(gc.enable)
    assert gc.isenabled()


@pytest.mark.parametrize("generation", [0, 1, 2])
def test_what_is_due_in_a_section_is_collected_after_it(section: Any, generation: int) -> None:
    died: list[int] = []
    gc.collect()
    with section, section:
        Cycle(died)
        gc.collect(generation)
        assert not died
    if generation != 1:  # of the middle one, what was held is found by a later collection
        assert died == [threading.get_ident()]
    gc.collect()
    assert died == [threading.get_ident()]


def test_a_collection_that_the_program_has_switched_off_is_not_done_after_it(section: Any) -> None:
    died: list[int] = []
    with section:
        Cycle(died)
        gc.collect()
        gc.disable()
    try:
        assert not died
    finally:
        gc.enable()
    gc.collect()
    assert died


def test_other_threads_collect_meanwhile(section: Any) -> None:
    died: list[int] = []
    with section:
        Cycle(died)
        elsewhere(gc.collect)
        assert len(died) == 1
        assert died[0] != threading.get_ident()


def test_callbacks_of_the_collector_wait_too(section: Any) -> None:
    phases: list[str] = []

    def note(phase: str, info: dict[str, int]) -> None:
        phases.append(phase)

    with section:
        gc.callbacks.append(note)
        gc.collect()
        assert not phases
    assert phases == ["start", "stop"]
    assert gc.callbacks.count(note) == 1
    with section:
        gc.callbacks.clear()  # as programs do that want theirs alone
    seen = weakref.ref(cycle := Cycle([]))
    with section:
        del cycle
        gc.collect()
        assert seen() is not None
    gc.collect()
    assert seen() is None


def test_what_other_threads_build_is_not_held(section: Any) -> None:
    """Python resizes no tuple that somebody else holds: `tuple` of a generator would fail."""
    before = sys.getswitchinterval()
    failed: list[SystemError] = []
    done = threading.Event()

    def build() -> None:
        while not done.is_set():
            try:
                tuple(x for x in range(400))
            except SystemError as error:
                failed.append(error)

    threads = [threading.Thread(target=build) for _ in range(3)]
    try:
        sys.setswitchinterval(1e-6)
        for each in threads:
            each.start()
        for _ in range(6):
            with section:
                gc.collect()
    finally:
        sys.setswitchinterval(before)
        done.set()
        for each in threads:
            each.join()
    assert not failed


@campaign.rounds(12, 5 * 10**6)
def test_finalisers_of_several_threads_change_nothing(seeds: range) -> None:
    """Cycles everywhere, whose finalisers look at arrays in whatever thread finds them."""
    wrong: list[Any] = []
    before = gc.get_threshold()
    shared = lazyfuse.arange(40_000) * 2.0

    class Looks(Cycle):
        def __del__(self) -> None:
            try:
                if float((shared * 3.0)[7]) != 42.0:
                    wrong.append(self.died)
            except BaseException as error:
                wrong.append(error)

    def program(seed: int) -> None:
        ours, theirs = statements.arrays(lazyfuse), statements.arrays(numpy)
        for line in statements.program(seed):
            Looks([seed])
            exec(line, theirs)
            exec(line, ours)
        assert statements.equal(statements.values(ours), statements.values(theirs)), seed

    try:
        for seed in seeds:
            gc.set_threshold(random.Random(seed).choice([5, 20, 100, 700]))
            with reached.program(seed):
                at_once(lambda number, seed=seed: program(4 * seed + number), 3)  # type: ignore[misc]
            assert gc.isenabled()
    finally:
        gc.set_threshold(*before)
        gc.collect()
    assert not wrong
