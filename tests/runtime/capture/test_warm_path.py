"""The short way of an evaluation whose plan has run before: when it is taken, and when not."""

from __future__ import annotations

import copy
import gc
import threading
import warnings
import weakref
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse import config
from lazyfuse.arrays import storage
from lazyfuse.errors import EvaluationError
from lazyfuse.runtime.capture import conditions
from lazyfuse.runtime.events import counters, decisions
from lazyfuse.runtime.placement import devices, offload
from lazyfuse.runtime.scheduling import co_evaluation, evaluate, flush

N = 50_000


def chain(a: Any, b: Any) -> Any:
    return (a * b + b) * a - b / 3.0


@pytest.fixture
def warm() -> tuple[Any, Any, Any]:
    """Operands, and what `chain` gives of them, its plan being kept."""
    generator = np.random.default_rng(5)
    first, second = generator.random(N), generator.random(N)
    a, b = lf.array(first), lf.array(second)
    for _ in range(4):
        chain(a, b).to_numpy()
    return a, b, chain(first, second)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The evaluations that took the long way."""
    found: list[str] = []
    run = evaluate.run_plan

    def watched(plan: Any, recording: Any, reason: str, *rest: Any) -> Any:
        found.append(reason)
        return run(plan, recording, reason, *rest)

    monkeypatch.setattr(evaluate, "run_plan", watched)
    return found


@pytest.mark.skipif(conditions.native is None, reason="C replays")
@pytest.mark.usefixtures("at_home")
def test_what_ran_before_is_not_decided_again(warm: tuple[Any, Any, Any], slow: list[str]) -> None:
    a, b, wanted = warm
    before = copy.copy(counters.totals())
    assert np.array_equal(chain(a, b).to_numpy(), wanted)
    assert not slow
    assert counters.totals().plan_hits == before.plan_hits + 1
    assert counters.totals().evaluations == before.evaluations + 1
    assert counters.totals().plan_misses == before.plan_misses


def test_other_sizes_and_strides_take_the_long_way_once(
    warm: tuple[Any, Any, Any], slow: list[str]
) -> None:
    a, b, wanted = warm
    for _ in range(3):
        found = chain(a[100:40_100], b[100:40_100])
        assert np.array_equal(found.to_numpy(), wanted[100:40_100])
    assert np.array_equal(chain(a, b).to_numpy(), wanted)


@pytest.mark.parametrize(
    "options", [{"capture": False}, {"validate": True}, {"debug": 1}, {"plan_limit": 0}]
)
def test_whoever_wants_to_look_gets_the_long_way(
    warm: tuple[Any, Any, Any], slow: list[str], options: dict[str, Any]
) -> None:
    a, b, wanted = warm
    with config.options(**options):
        assert not conditions.may_capture()
        assert np.array_equal(chain(a, b).to_numpy(), wanted)
    assert len(slow) == 1
    assert conditions.may_capture()
    assert np.array_equal(chain(a, b).to_numpy(), wanted)


def test_listeners_hear_of_kernels(warm: tuple[Any, Any, Any]) -> None:
    a, b, wanted = warm
    heard: list[Any] = []
    listener = lf.tracing.add(heard.append, lf.tracing.KernelEnd)
    try:
        assert np.array_equal(chain(a, b).to_numpy(), wanted)
    finally:
        listener.remove()
    assert heard


@pytest.mark.usefixtures("at_home")
def test_a_device_that_runs_nothing_is_obeyed(warm: tuple[Any, Any, Any]) -> None:
    a, b, wanted = warm
    assert devices.is_default_cpu()
    with lf.device("raise"):
        assert not devices.is_default_cpu()
    with config.options(device="raise"), pytest.raises(EvaluationError):
        chain(a, b).to_numpy()
    assert np.array_equal(chain(a, b).to_numpy(), wanted)


def test_where_devices_can_be_chosen_the_choice_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload, "_state", offload._State(None))
    assert not devices.is_default_cpu()
    monkeypatch.setattr(offload, "_state", offload._State(offload.Choice("opencl", "")))
    assert not devices.is_default_cpu()


def test_conditions_of_a_warm_run_are_told() -> None:
    a = lf.full(N, 2.0)
    b = lf.ones(N)
    for _ in range(4):
        ((a / b) * a + b).to_numpy()
    b = lf.array(np.r_[np.zeros(1), np.ones(N - 1)])
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        found = ((a / b) * a + b).to_numpy()
    assert np.isposinf(found[0])


def test_operands_that_die_are_left_to_the_long_way(warm: tuple[Any, Any, Any]) -> None:
    _, b, _ = warm
    for turn in range(5):
        fresh = np.arange(float(N)) + turn
        found = chain(lf.array(fresh), b)
        assert np.array_equal(found.to_numpy(), chain(fresh, b.to_numpy()))


def test_intermediate_results_of_a_sink_are_no_work_left_undone() -> None:
    gc.collect()
    evaluate.here.recorded.steady.clear()  # lines of other tests' loops, which a process keeps
    evaluate.here.recorded.rounds.clear()
    a = lf.array(np.full(N, 0.5))
    for _ in range(3):
        value = a
        for _ in range(20):
            value = value * a + 1.0
        value.to_numpy()
        del value
        assert not evaluate.here.recorded.rounds
        assert not evaluate.here.recorded.steady
        assert not evaluate.recorded()


def test_threads_evaluate_at_once(warm: tuple[Any, Any, Any]) -> None:
    a, b, wanted = warm
    wrong: list[int] = []

    def work(number: int) -> None:
        found = [(chain(a, b) + number).to_numpy() for _ in range(30)]
        wrong.extend(number for each in found if not np.array_equal(each, wanted + number))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("reducing", [False, True])
def test_turns_that_reduce_run_after_fewer(reducing: bool) -> None:
    real = np.random.default_rng(2).random(300_000)
    x = lf.array(real)
    before = counters.totals().flushes[decisions.LOOP]
    for _ in range(2 * flush.REDUCING):
        x = x - ((x * x).sum() if reducing else 3.0) * 1e-9
        real = real - ((real * real).sum() if reducing else 3.0) * 1e-9
    assert (counters.totals().flushes[decisions.LOOP] > before) is reducing
    assert np.array_equal(x.to_numpy(), real)


# ------------------------------------------------------------------------- handing the memory out


def test_what_is_handed_out_is_the_array_itself(warm: tuple[Any, Any, Any]) -> None:
    a, b, wanted = warm
    x = chain(a, b)
    outside = x.to_numpy()
    assert outside.flags.writeable
    assert outside.shape == (N,)
    again = x.to_numpy()
    assert again is not outside
    assert np.shares_memory(outside, again)
    outside[3] = 7.0
    assert x[3] == 7.0
    assert (x * 1.0).to_numpy()[3] == 7.0
    x[4] = 8.0
    assert outside[4] == 8.0
    ours = lf.asarray(outside)
    ours[5] = 9.0
    assert x[5] == 9.0
    assert storage.lender(outside.base) is x._storage
    with warnings.catch_warnings():  # NumPy 2.5 would rather see a view
        warnings.simplefilter("ignore", DeprecationWarning)
        again.shape = (N // 2, 2)
    assert x.to_numpy().shape == (N,)
    del wanted


def test_what_others_still_read_is_not_handed_out(warm: tuple[Any, Any, Any]) -> None:
    a, b, wanted = warm
    x = chain(a, b)
    later = x + 1.0
    outside = x.to_numpy()
    outside[:] = 0.0
    assert np.array_equal(later.to_numpy(), wanted + 1.0)
    assert np.array_equal(x.to_numpy(), np.zeros(N))


def test_readers_are_looked_for_where_somebody_reads(
    warm: tuple[Any, Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(co_evaluation, "reading_outputs", lambda *args: asked.append(1) or [])
    a, b, wanted = warm
    for hand_out in (lf.ndarray.to_numpy, np.asarray):
        assert np.array_equal(hand_out(chain(a, b)), wanted)
    assert not asked
    x = chain(a, b)
    y = x * 2.0
    assert np.array_equal(x.to_numpy(), wanted)
    assert asked == [1]
    assert np.array_equal(y.to_numpy(), wanted * 2.0)


@pytest.mark.parametrize("order", ["transposed", "fortran", "plain"])
def test_orders_of_what_is_handed_out(order: str) -> None:
    real = np.arange(60_000.0).reshape(200, 300)
    real = {"transposed": real.T, "fortran": np.asfortranarray(real), "plain": real}[order]
    x = lf.array(real) * 2.0 + real * real
    outside = x.to_numpy()
    wanted = real * 2.0 + real * real
    assert np.array_equal(outside, wanted)
    assert outside.strides == wanted.strides


def test_memory_lives_as_long_as_somebody_looks(warm: tuple[Any, Any, Any]) -> None:
    a, b, wanted = warm
    x = chain(a, b)
    outside = x.to_numpy()
    kept = weakref.ref(x._storage)
    del x
    gc.collect()
    assert kept() is None
    assert storage.lender(outside.base) is None
    for _ in range(5):
        chain(b, a).to_numpy()
    assert np.array_equal(outside, wanted)
