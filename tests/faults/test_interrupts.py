"""Ctrl-C at any moment: every statement has been done, or has not been; nothing is half done."""

from __future__ import annotations

import _thread
import gc
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy
import pytest

import lazyfuse
from lazyfuse.devices import critical
from lazyfuse.devices.pools.buffers import BufferPool
from lazyfuse.runtime.numerics import errstate
from lazyfuse.runtime.scheduling import evaluate
from tests import campaign
from tests.faults import statements

pytestmark = [
    campaign.TIMEOUT,
    pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="no such signals"),
]


@pytest.fixture(autouse=True)
def no_callbacks() -> Iterator[None]:
    """Without the collector's callbacks: Hypothesis has one, in which an interrupt is dropped."""
    kept = gc.callbacks[:]
    gc.callbacks.clear()
    yield
    gc.callbacks[:] = kept


class Interrupt(BaseException):
    """What the handler raises, as Ctrl-C does."""


@contextmanager
def handled(number: int, handler: Callable[[int, Any], Any]) -> Iterator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


class Sender:
    """Raises from the handler while a statement runs."""

    def __init__(self) -> None:
        self.armed = False

    def __call__(self, number: int, frame: Any) -> None:
        if self.armed:
            self.armed = False
            raise Interrupt

    def interrupts(self, line: str, names: dict[str, Any]) -> bool:
        """Do a statement; whether it was interrupted."""
        try:
            self.armed = True
            exec(line, names)
            return False
        except Interrupt:
            return True
        finally:
            self.armed = False
            with suppress(Interrupt), evaluate.quiet:
                pass  # one that was kept in a finaliser comes here, if not within the statement


def interrupt(number: int, frame: Any) -> None:
    raise Interrupt


# the callbacks of the standard library's weak dictionaries are Python, which prints what is raised
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@campaign.rounds(40)
def test_statements_are_done_or_not(seeds: range) -> None:
    sender = Sender()
    with statements.signals(sender, 1e-3):
        met = sum([statements.disturbed(seed, sender.interrupts) for seed in seeds])
    assert met
    assert is_free(evaluate.lock)
    assert gc.isenabled()
    assert critical.waiting == []


def is_free(lock: Any) -> bool:
    """Whether another thread gets a lock."""
    found = []

    def take() -> None:
        found.append(lock.acquire(timeout=10))
        if found[0]:
            lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return bool(found[0])


def _interrupt(delay: float, sent: _thread.LockType) -> None:
    time.sleep(delay)
    signal.raise_signal(signal.SIGINT)
    sent.release()


def _wait_for(sent: _thread.LockType) -> None:
    """Until the signal is sent, and its handler has had its chance."""
    while sent.locked():
        time.sleep(1e-4)
    for _ in range(100):
        pass


@campaign.rounds(40, 10_000)
def test_by_the_interpreters_own_handler(seeds: range) -> None:
    """SIGINT as `signal.default_int_handler` takes it: evaluations that overwrite nothing end."""
    met = 0
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for seed in seeds:
            ours, theirs = statements.arrays(lazyfuse), statements.arrays(numpy)
            for line in statements.program(seed):
                exec(line, theirs)
                exec(line, ours)
            want = statements.values(theirs)
            delay = random.Random(seed).random() * 0.004
            sent = _thread.allocate_lock()  # an interrupt would break the locks of `threading`
            sent.acquire()
            try:
                _thread.start_new_thread(_interrupt, (delay, sent))
                for name in statements.NAMES:
                    float(ours[name].sum())
                _wait_for(sent)
            except KeyboardInterrupt:
                met += 1
            _wait_for(sent)
            assert statements.equal(statements.values(ours), want), seed
    finally:
        signal.signal(signal.SIGINT, before)
    assert met


# ---------------------------------------------------------------------------------- sections


SECTION = critical.section(threading.RLock())
OTHER = critical.Section(threading.RLock())  # in Python, also where there is machine code


def test_handlers_wait_in_order_and_come_back() -> None:
    calls: list[Any] = []

    def note(number: int, frame: Any) -> None:
        calls.append(number)

    with handled(signal.SIGUSR1, note), handled(signal.SIGUSR2, note):
        with SECTION:
            signal.raise_signal(signal.SIGUSR2)
            with OTHER, SECTION:
                signal.raise_signal(signal.SIGUSR1)
            signal.raise_signal(signal.SIGUSR2)
            assert calls == []
        assert calls == [signal.SIGUSR2, signal.SIGUSR1, signal.SIGUSR2]
        assert signal.getsignal(signal.SIGUSR1) is note
        assert signal.getsignal(signal.SIGUSR2) is note


def raise_both() -> None:
    with OTHER, SECTION:
        signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGUSR2)


def test_a_handler_that_raises_does_not_silence_the_others() -> None:
    calls: list[Any] = []

    with handled(signal.SIGUSR1, interrupt), handled(signal.SIGUSR2, lambda *_: calls.append(1)):
        with pytest.raises(Interrupt):
            raise_both()
        assert calls == [1]
        assert critical.waiting == []


def fail_inside() -> None:
    with SECTION:
        signal.raise_signal(signal.SIGUSR1)
        raise ValueError("inside")


def test_what_fails_inside_is_the_context_of_what_a_handler_raises() -> None:
    with handled(signal.SIGUSR1, interrupt):
        with pytest.raises(Interrupt) as found:
            fail_inside()
        assert isinstance(found.value.__context__, ValueError)
        assert is_free(SECTION.lock)


def test_a_thread_that_has_not_entered_cannot_leave() -> None:
    with pytest.raises((RuntimeError, KeyError)):
        SECTION.release()
    assert gc.isenabled()
    assert is_free(SECTION.lock)


def test_a_handler_that_is_set_meanwhile_stays() -> None:
    def another(number: int, frame: Any) -> None: ...

    with handled(signal.SIGUSR1, interrupt):
        with SECTION:
            signal.signal(signal.SIGUSR1, another)
        assert signal.getsignal(signal.SIGUSR1) is another


def test_what_is_raised_while_memory_goes_back_is_raised_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def raises(number: int, frame: Any) -> None:
        raise Interrupt

    def interrupted(pool: Any, now: float) -> None:
        signal.raise_signal(signal.SIGUSR1)

    pool = BufferPool()
    pool.limit = 0  # so that the block is given back to the system
    array = pool.empty((100_000,), numpy.dtype("f8"))
    x = lazyfuse.arange(50_000) * 2.0  # before it: modules are loaded in a section, too
    with handled(signal.SIGUSR1, raises):
        with monkeypatch.context() as patch:
            patch.setattr(BufferPool, "_trim", interrupted)
            del array
        with pytest.raises(Interrupt):
            x.sum().item()
    assert x.sum().item() == 49_999 * 50_000


def test_other_threads_leave_handlers_alone() -> None:
    found = []

    def inside() -> None:
        with SECTION:
            found.append(signal.getsignal(signal.SIGUSR1))

    with handled(signal.SIGUSR1, interrupt):
        thread = threading.Thread(target=inside)
        thread.start()
        thread.join()
    assert found == [interrupt]


class Once(Sender):
    """Raises once in a statement."""

    def __call__(self, number: int, frame: Any) -> None:
        if self.armed:
            self.armed = False
            raise Interrupt


def _in_a_state(x: Any) -> Any:
    with lazyfuse.errstate(divide="ignore", invalid="ignore"):
        return x + 1


def test_an_error_state_ends_with_its_block() -> None:
    """Interrupted once at any moment, `errstate` leaves the state as it was."""
    sender = Once()
    before = numpy.geterr()
    x = numpy.ones(3)
    met = 0
    with statements.signals(sender, 2e-4):
        ended = time.perf_counter() + 1.0
        while time.perf_counter() < ended:
            met += sender.interrupts("f(x)", {"f": _in_a_state, "x": x})
            assert numpy.geterr() == before
            assert errstate.plain
    assert met
    assert errstate._entered == []
