"""Replays by native/player/replay.c: the same decisions and bits as the text in Python."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import lazyfuse
from lazyfuse import config
from lazyfuse.arrays import base
from lazyfuse.devices.pools import buffers
from lazyfuse.runtime.capture import capture, native_replay, tier_up
from lazyfuse.runtime.capture.replay import LaunchEvent
from lazyfuse.runtime.events import counters, decisions
from lazyfuse.runtime.execution import program_tiers
from lazyfuse.runtime.layout.copies import Copy
from lazyfuse.runtime.scheduling import evaluate

pytestmark = [
    pytest.mark.skipif(not base.COMPILED, reason="the record path is pure Python"),
    pytest.mark.usefixtures("at_home"),  # where runs are replayed
]

SIDE = 200


def heat(xp: Any, start: Any, turns: int) -> Any:
    u = xp.array(start)
    for _ in range(turns):
        around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
        u[1:-1, 1:-1] += 0.2 * (around - 4.0 * u[1:-1, 1:-1])
    return u


def gradients(xp: Any, start: Any, turns: int) -> Any:
    x, direction = xp.array(start), xp.array(start) * 0.5
    norm = (x * x).sum()
    for _ in range(turns):
        along = xp.zeros_like(direction)
        along[1:-1] = 2.0 * direction[1:-1] - direction[:-2] - direction[2:]
        length = norm / (direction * along).sum()
        x -= 0.01 * length * along
        previous, norm = norm, (x * x).sum()
        direction *= norm / previous
        direction += 0.1 * x
    return x


def extremes(xp: Any, start: Any, turns: int) -> Any:
    a = xp.array(start)
    told = []
    for number in range(turns):
        most, least = (a * 1.5).max(), xp.abs(a).min()
        step = 0.5 / float(most + xp.sqrt(most * most) + least + number)
        a[1:] -= step * a[:-1]
        told.append(step)
    return a + sum(told)


def kinds(xp: Any, start: Any, turns: int) -> Any:
    whole = (xp.array(start) * 100).astype(np.int32)
    wide = xp.array(start).astype(np.complex128)
    for number in range(turns):
        whole[:, 1:] += whole[:, :-1] * np.int32(number + 1)
        wide[1:] -= wide[:-1] + (0.5 - 1j * number)
        wide[:-1] += whole[:-1]
    return wide + whole


def sliding(xp: Any, start: Any, turns: int) -> Any:
    d = xp.array(start)
    for k in range(turns):
        d = xp.minimum(d, d[:, k, None] + d[None, k, :])
    return d


def octets(xp: Any, start: Any, turns: int) -> Any:
    x = xp.array(np.tile((abs(start) * 40).astype(np.uint8), (6, 6)))
    for number in range(turns):
        x[1:] += x[:-1] * np.uint8(number + 1)
    return x[: len(start), : len(start)]


def many(xp: Any, start: Any, turns: int) -> Any:
    """More blocks in a turn than a replay has places for on the stack."""
    blocks = [xp.array(start) + number for number in range(70)]
    for _ in range(turns):
        for block in blocks:
            block[1:] -= 0.25 * block[:-1]
    return sum(blocks)


PROGRAMS = [heat, gradients, extremes, kinds, octets, many, sliding]


def counted(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each asked replay was one."""
    told: list[bool] = []
    again = native_replay.run

    def watched(*given: Any) -> Any:
        raised = again(*given)
        told.append(raised is not None)
        return raised

    monkeypatch.setattr(native_replay, "run", watched)
    return told


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_bits_are_those_of_numpy(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    told = counted(monkeypatch)
    for seed in range(4):  # a run that is observed may come second only
        start = np.random.default_rng(seed).normal(size=(SIDE, SIDE))
        wanted = program(np, start, 14)
        found = program(lazyfuse, start, 14).to_numpy()
        assert found.dtype == wanted.dtype
        assert found.tobytes() == wanted.tobytes()
    assert any(told)


def test_conditions_in_numbers_and_sums_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(xp: Any, values: Any) -> list[str]:
        a = xp.array(values)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for _ in range(6):
                share = (a * 2.0).sum() / (a * 0.0).sum()
                a[1:] += 0.0 * a[:-1]
                b = a * share
                np.asarray(b)
        return sorted({str(each.message) for each in told})

    start = np.random.default_rng(0).uniform(1, 2, 60_000)
    told = counted(monkeypatch)
    assert run(lazyfuse, start) == run(np, start)
    start[7] = np.inf
    assert run(lazyfuse, start) == run(np, start)
    start[7] = np.nan
    assert run(lazyfuse, start) == run(np, start)
    assert told


@pytest.mark.parametrize("which", [1, 2])
def test_a_block_that_cannot_be_had_leaves_updates_alone(
    which: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = np.random.default_rng(0).normal(size=(2 * SIDE, SIDE))  # its blocks are the pool's
    ours, theirs = lazyfuse.array(start), start.copy()

    def turn(u: Any) -> Any:
        u[1:-1, 1:-1] += 0.1 * (u[:-2, 1:-1] + u[2:, 1:-1])
        return u * 2.0

    for _ in range(6):
        assert np.array_equal(turn(ours).to_numpy(), turn(theirs))
    calls = 0

    def failing(pool: Any, shape: Any, dtype: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == which:
            raise MemoryError("no more")
        return buffers._empty(pool, shape, dtype)

    def reserve(pool: buffers.BufferPool, classes: Any) -> bool:
        pool._holds.append(None)
        pool.clear()
        return True

    found = turn(ours)
    with monkeypatch.context() as scarce:
        scarce.setattr(buffers.BufferPool, "reserve", reserve)
        evaluate.hardware.cpu().buffers.clear()
        base.NATIVE.bind("pool_empty", failing)  # C asks it where no block is free
        try:
            with pytest.raises(MemoryError):
                found.to_numpy()
        finally:
            base.NATIVE.bind("pool_empty", buffers._empty)
        assert calls == which
    wanted = turn(theirs)
    assert np.array_equal(found.to_numpy(), wanted)
    assert np.array_equal(ours.to_numpy(), theirs)


def test_results_that_are_parts_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    told = counted(monkeypatch)
    start = np.random.default_rng(0).normal(size=(SIDE, SIDE))
    ours, theirs = lazyfuse.array(start), start.copy()
    for number in range(8):
        for u in (ours, theirs):
            u[number : number + 100] *= 1.5
            u[:, 5:] -= u[:, :-5] * 0.5
        kept = ours[3:, ::2] + 1.0
        assert np.array_equal(kept.to_numpy(), theirs[3:, ::2] + 1.0)
        assert np.array_equal(ours.to_numpy(), theirs)
    assert told


def test_borders_of_one_block_are_copied_without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their extents meet, their elements do not."""
    asked = []
    by_python = native_replay._by_python

    def watched(event: Any, *rest: Any) -> int:
        asked.append(event)
        return by_python(event, *rest)

    monkeypatch.setattr(native_replay, "_by_python", watched)
    told = counted(monkeypatch)
    start = np.random.default_rng(0).normal(size=(3, 120, 120))
    ours, theirs = lazyfuse.array(start), start.copy()
    for _ in range(10):
        for state in (ours, theirs):
            state[:, 0, :], state[:, -1, :] = state[:, 1, :], state[:, -2, :]
            state[:, :, 0], state[:, 1:, -1] = state[:, :, 1], state[:, :-1, -2]
            state[:, 1:-1, 1:-1] += 0.25 * (state[:, :-2, 1:-1] + state[:, 2:, 1:-1])
            state *= 0.9
        assert np.array_equal(ours.to_numpy(), theirs)
    assert any(told)
    assert not [event for event in asked if isinstance(event, Copy)]


@pytest.mark.parametrize("backwards", [False, True])
def test_copies_whose_elements_meet_are_numpys(backwards: bool) -> None:
    start = np.random.default_rng(0).normal(size=(300, 300))
    ours, theirs = lazyfuse.array(start), start.copy()
    for turn in range(10):
        for u in (ours, theirs):
            if backwards:
                u[1 + turn :, 3:] = u[: -1 - turn, :-3]
            else:
                u[:-1, ::2] = u[1:, 0:300:2]
            u[::3] += u[::3, ::-1] * 0.5
        assert np.array_equal(ours.to_numpy(), theirs)


def test_small_kernels_that_recur_are_compiled_with_the_same_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted = []
    monkeypatch.setattr(tier_up, "TURNS", 4)
    monkeypatch.setattr(config.options, "compile_after", 0)

    def watched(step: Any, lowered: Any, device: Any) -> bool:
        wanted.append(step)
        program_tiers.compiled(
            step, lowered.source("numba"), device
        )  # as if the worker had been here
        step.selected.clear()
        return True

    monkeypatch.setattr(program_tiers, "has_tiered_up", watched)
    start = np.random.default_rng(0).normal(size=(200, 200))
    ours, theirs = lazyfuse.array(start), start.copy()
    for turn in range(40):
        for u in (ours, theirs):
            u[1:-1, 1:-1] += 0.1 * (u[:-2, 1:-1] - u[2:, 1:-1])
            u[0] *= -0.5
            u[:, -1] -= u[:, 1] * float(turn)
        assert np.array_equal(ours.to_numpy(), theirs)
    assert 0 < len(wanted) <= 8


SHAPES = [
    ((2000, 150), 0),
    ((3, 100_000), 1),
    ((600, 500), None),
    ((500_000,), 0),
    ((40, 50, 300), 0),
]
REDUCED = [("f8", 0), ("f4", 1), ("i8", 2), ("u1", 3), ("?", 0), ("i2", 1), ("u4", 4), ("c16", 1)]


@pytest.mark.parametrize(("dtype", "at"), REDUCED)
def test_partial_results_are_numpys_of_any_dtype_and_width(dtype: str, at: int) -> None:
    shape, axis = SHAPES[at]
    random = np.random.default_rng(at)
    base_values = random.integers(0, 200, shape)
    a = (base_values % 2 if dtype == "?" else base_values).astype(dtype)
    names = ("any", "all", "sum") if dtype == "?" else ("sum", "max", "min")
    special = a.copy()
    if dtype[0] == "f":
        special -= special.dtype.type(100)
        special.reshape(-1)[::7] *= special.dtype.type(-0.0)
        special.reshape(-1)[5] = np.nan
        special.reshape(-1)[-5] = np.inf
    for values in (a, special, -special if dtype[0] == "f" else a):
        x = lazyfuse.array(values)
        for name in names if dtype[0] != "c" else ("sum",):
            expected = getattr(values, name)(axis=axis)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for keepdims in (False, True):
                    expected = getattr(values, name)(axis=axis, keepdims=keepdims)
                    for _ in range(4):
                        found = getattr(x, name)(axis=axis, keepdims=keepdims)
                        np.testing.assert_array_equal(np.asarray(found), expected, strict=True)


def test_plans_whose_chains_decline_are_replayed() -> None:
    a = np.random.default_rng(0).normal(size=(600, 500))
    x = lazyfuse.array(a)
    for _ in range(60):
        np.testing.assert_array_equal(np.asarray(x.mean(axis=1)), a.mean(axis=1))
    before = counters.totals().decisions[decisions.REPLAYED]
    for _ in range(5):
        np.asarray(x.mean(axis=1))
    assert counters.totals().decisions[decisions.REPLAYED] - before == 5


def test_small_evaluations_that_come_round_are_replayed() -> None:
    a = np.random.default_rng(0).normal(size=40_000)
    x = lazyfuse.array(a)
    for _ in range(60):
        np.testing.assert_array_equal(np.asarray(x + 1 > 0.5), a + 1 > 0.5)
    before = counters.totals().decisions[decisions.REPLAYED]
    for _ in range(5):
        np.asarray(x + 1 > 0.5)
    assert counters.totals().decisions[decisions.REPLAYED] - before == 5


def test_what_exceptions_are_looked_for_in_lives_until_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A launch may read nothing of an operand that has several sources, all of which are read
    again where it has raised.
    """
    seen: list[tuple[Any, Any]] = []
    dead = capture._dead

    def noted(events: Any, kept: Any) -> Any:
        seen.append((events, dead(events, kept)))
        return seen[-1][1]

    monkeypatch.setattr(capture, "_dead", noted)
    start = np.random.default_rng(1).normal(size=(3, 18, 12))

    def turn(xp: Any, w: Any, v: Any, k: int) -> Any:
        edge = xp.pad(xp.pad(w[k], 1, mode="edge")[2:-2, 2:-2], 1)
        rows = xp.pad(v * 0.0, (k, 2), mode="wrap")[k : k + 18, 1:13]
        return edge / rows.sum(axis=1, keepdims=True)

    with config.options(plan_after=0, eager_below=0), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        w, v = lazyfuse.array(start), lazyfuse.array(start[0])
        for k in (0, 2) * 4:
            found = np.asarray(turn(lazyfuse, w, v, k))
            assert found.tobytes() == turn(np, start, start[0], k).tobytes()
    wider = 0
    for events, freed in seen:
        for at, event in enumerate(events):
            if type(event) is LaunchEvent:
                roots = {part.root for _, part in event.sources}
                wider += not roots <= {part.root for part in event.arrays}
                assert roots.isdisjoint([root for each in freed[:at] for root in each])
    assert wider
