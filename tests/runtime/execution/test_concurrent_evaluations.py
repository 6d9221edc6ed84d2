"""Evaluations of several threads at once: calls of NumPy's overlap, and no value can tell."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse.codegen.graph import interpret
from lazyfuse.runtime.events import counters, decisions
from lazyfuse.runtime.execution import concurrency
from lazyfuse.runtime.scheduling import evaluate

N = 40_000
LONG = 10.0  # seconds: only a fault waits for so long

Call = Callable[..., Any]


@pytest.fixture(autouse=True)
def _always(at_home: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if threads had met each other all the time."""
    monkeypatch.setattr(concurrency, "_LONG", 0)
    monkeypatch.setattr(concurrency, "notice", lambda met: True)
    monkeypatch.setattr(concurrency, "share", 1.0)
    yield
    assert concurrency.busy == concurrency.under_way == 0
    assert concurrency.current is None
    assert not concurrency._claimed
    assert not concurrency._unlocked_threads


class Gate:
    """Stops the calls that other threads than its maker's make with the lock open."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        self.calls: list[Call] = []
        self.owner = threading.get_ident()
        real = concurrency.ConcurrentEvaluation.run

        def stopped(call: Call, *args: Any, **named: Any) -> Any:
            self.calls.append(call)
            if threading.get_ident() != self.owner:
                self.reached.set()
                assert self.opened.wait(LONG)
            return call(*args, **named)

        def run(
            apart: concurrency.ConcurrentEvaluation, call: Call, *args: Any, **named: Any
        ) -> Any:
            return real(apart, stopped, call, *args, **named)

        monkeypatch.setattr(concurrency.ConcurrentEvaluation, "run", run)

    def inside(self, work: Call) -> Running:
        """A thread that does `work` and has come as far as its call."""
        running = Running(work)
        assert self.reached.wait(LONG)
        return running


class Running(threading.Thread):
    def __init__(self, work: Call) -> None:
        super().__init__()
        self.work = work
        self.found: Any = None
        self.start()

    def run(self) -> None:
        try:
            self.found = self.work()
        except BaseException as error:
            self.found = error

    def result(self) -> Any:
        self.join(LONG)
        assert not self.is_alive()
        return self.found


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


def numbers() -> Any:
    """Real numbers whose running sums are exact."""
    return (np.arange(N) * 7919 % 1000).astype(float)


def recorded(real: Any) -> Any:
    x = lf.array(real) + 0.0
    x.sum().item()
    return x


def call_of(x: Any) -> Any:
    """Recorded work that is a call of NumPy's."""
    return lf.cumprod(x)


def products(real: Any) -> Any:
    return np.cumprod(real)


def signs() -> Any:
    return np.where(np.arange(N) % 3 == 0, -1.0, 1.0)


def test_calls_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    meeting = threading.Barrier(2)
    real = concurrency.ConcurrentEvaluation.run

    def met(call: Call, *args: Any, **named: Any) -> Any:
        meeting.wait(LONG)
        return call(*args, **named)

    def run(apart: concurrency.ConcurrentEvaluation, call: Call, *args: Any, **named: Any) -> Any:
        return real(apart, met, call, *args, **named)

    monkeypatch.setattr(concurrency.ConcurrentEvaluation, "run", run)
    values = [signs(), -signs()]
    lazy = [call_of(recorded(each)) for each in values]
    before = counters.totals().decisions[decisions.CONCURRENT]
    threads = [Running(each.to_numpy) for each in lazy]
    for thread, each in zip(threads, values, strict=True):
        np.testing.assert_array_equal(thread.result(), products(each))
    assert counters.totals().decisions[decisions.CONCURRENT] == before + 2


def _element(x: Any) -> None:
    x[17] = 5.0


def _slice(x: Any) -> None:
    x[10:30_000] *= 3.0


def _whole(x: Any) -> None:
    x[...] = 2.0


def _fill(x: Any) -> None:
    x.fill(4.0)


def _outside(x: Any) -> None:
    np.asarray(x)[:100] = 9.0


def _masked(x: Any) -> None:
    x[x > 0] = 8.0


def _in_place(x: Any) -> None:
    x += 1.0


WRITES = [_element, _slice, _whole, _fill, _outside, _masked, _in_place]


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("evaluated", [True, False])
def test_writes_leave_what_is_being_read(gate: Gate, write: Call, evaluated: bool) -> None:
    real = signs()
    x = recorded(real)
    y = call_of(x)
    thread = gate.inside(y.to_numpy)
    changed = real.copy()
    write(changed)
    write(x)
    if evaluated:
        np.testing.assert_array_equal(x.to_numpy(), changed)
    gate.opened.set()
    np.testing.assert_array_equal(thread.result(), products(real))
    np.testing.assert_array_equal(x.to_numpy(), changed)
    np.testing.assert_array_equal(y.to_numpy(), products(real))


@pytest.mark.parametrize("write", WRITES)
def test_a_view_is_written_meanwhile(gate: Gate, write: Call) -> None:
    real = np.concatenate([signs(), signs()])
    x = recorded(real)
    part = x[N:]
    y = call_of(x)
    thread = gate.inside(y.to_numpy)
    changed = real.copy()
    write(changed[N:])
    write(part)
    gate.opened.set()
    np.testing.assert_array_equal(thread.result(), products(real))
    np.testing.assert_array_equal(x.to_numpy(), changed)
    np.testing.assert_array_equal(part.to_numpy(), changed[N:])


def test_what_is_claimed_is_waited_for(gate: Gate) -> None:
    real = signs()
    y = call_of(recorded(real))
    first = gate.inside(lambda: (y * 2.0).to_numpy())
    gate.owner = -1
    second = Running(lambda: (y + 1.0).to_numpy())
    second.join(0.05)
    assert second.is_alive()
    gate.opened.set()
    np.testing.assert_array_equal(first.result(), products(real) * 2.0)
    np.testing.assert_array_equal(second.result(), products(real) + 1.0)
    assert sum(type(call) is not np.ufunc for call in gate.calls) == 1


def test_with_the_lock_held_it_is_computed_twice(gate: Gate) -> None:
    """Who has taken the lock for longer cannot wait, and whoever is first counts."""
    real = signs()
    y = call_of(recorded(real))
    thread = gate.inside(y.to_numpy)
    with evaluate.held():
        kept = np.asarray(y)
        kept[3] = 77.0
    gate.opened.set()
    thread.result()
    expected = products(real)
    expected[3] = 77.0
    np.testing.assert_array_equal(y.to_numpy(), expected)
    np.testing.assert_array_equal(kept, expected)


def test_error_states_wait_for_what_came_before(gate: Gate) -> None:
    """What was recorded before is told under the state that it was recorded in, and once."""
    x = recorded(np.full(N, 1e300))
    y = call_of(x)

    def enter() -> None:
        with lf.errstate(over="raise"):
            pass

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        thread = gate.inside(y.to_numpy)
        entering = Running(enter)
        entering.join(0.05)
        assert entering.is_alive()
        gate.opened.set()
        assert np.isinf(thread.result()[-1])
        assert entering.result() is None
    assert ["overflow" in str(each.message) for each in told] == [True]


def test_the_report_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(counters.totals().decisions, decisions.CONCURRENT, 3)
    assert f"decisions         3 {decisions.CONCURRENT}" in str(lf.report())


def test_work_on_other_arrays_goes_on(gate: Gate) -> None:
    real = numbers()
    thread = gate.inside(call_of(recorded(signs())).to_numpy)
    x = recorded(real)
    np.testing.assert_array_equal((x * 2.0 - 1.0).to_numpy(), real * 2.0 - 1.0)
    x[5:] += 1.0
    real[5:] += 1.0
    assert float(x.sum()) == real.sum()
    assert float(x.max()) == real.max()
    gate.opened.set()
    np.testing.assert_array_equal(thread.result(), products(signs()))


def test_errors_reach_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> Any:
        raise ValueError("as NumPy would")

    y = call_of(recorded(signs()))
    with monkeypatch.context() as patch:
        patch.setattr(interpret, "run_node", fail)
        assert isinstance(Running(y.to_numpy).result(), ValueError)
        with pytest.raises(ValueError, match="as NumPy would"):
            y.to_numpy()
    assert not concurrency.is_owned()
    np.testing.assert_array_equal(y.to_numpy(), products(signs()))


def test_warnings_are_told_once() -> None:
    x = recorded(np.full(N, 1e300))
    with pytest.warns(RuntimeWarning, match="overflow encountered"):
        found = call_of(x).to_numpy()
    assert np.isinf(found[-1])


def test_off() -> None:
    before = counters.totals().decisions[decisions.CONCURRENT]
    with lf.options(concurrent_evaluations=False):
        monitored = concurrency.notice
        concurrency.notice = REAL
        try:
            call_of(recorded(signs())).to_numpy()
        finally:
            concurrency.notice = monitored
    assert counters.totals().decisions[decisions.CONCURRENT] == before


REAL = concurrency.notice


def test_threads_that_never_meet_have_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrency, "notice", REAL)
    for _ in range(100):
        assert concurrency.notice(True) in (True, False)
    assert concurrency.share > 0.9
    for _ in range(100):
        concurrency.notice(False)
    assert concurrency.share == 0.0
    assert concurrency.notice(False) is False


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_forgets_what_others_had_claimed(gate: Gate) -> None:
    real = signs()
    y = call_of(recorded(real))
    thread = gate.inside(y.to_numpy)
    child = os.fork()
    if not child:
        gate.owner = threading.get_ident()
        good = np.array_equal(y.to_numpy(), products(real)) and concurrency.under_way == 0
        os._exit(0 if good else 1)
    gate.opened.set()
    np.testing.assert_array_equal(thread.result(), products(real))
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("threads", [2, 4])
def test_many_threads(threads: int) -> None:
    """Threads with work of their own and over shared arrays, in place and out of place."""
    base = numbers()
    shared = recorded(base)

    def work(number: int) -> bool:
        x, real = shared + float(number), base + float(number)
        for turn in range(6):
            x[turn:] += shared[turn:]
            real[turn:] += base[turn:]
            y, expected = lf.cumsum(lf.sort(x)), np.cumsum(np.sort(real))
            x[turn] = 3.0
            real[turn] = 3.0
            if not np.array_equal(y.to_numpy(), expected):
                return False
        return bool(np.array_equal(x.to_numpy(), real))

    running = [Running(lambda number=number: work(number)) for number in range(threads)]
    assert [each.result() for each in running] == [True] * threads
    np.testing.assert_array_equal(shared.to_numpy(), base)
