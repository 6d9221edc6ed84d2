"""Time loops over slices: blocks that change places, runs that are replayed, work that is left."""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np
import pytest

import lazyfuse
from lazyfuse.codegen.graph.node import Layout
from lazyfuse.codegen.plan.lifetimes import overlap
from lazyfuse.runtime.capture import conditions, evaluations, native_replay
from lazyfuse.runtime.events import decisions
from lazyfuse.runtime.layout.strides import around
from lazyfuse.runtime.scheduling import evaluate, flush
from tests.pairwise import spread

SIDE = 60

STATEMENTS = [
    "u[1:-1, 1:-1] += 0.1 * (u[:-2, 1:-1] + u[2:, 1:-1] - 2.0 * u[1:-1, 1:-1])",
    "u[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])",
    "v[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])",
    "u, v = v, u",
    "v[1:, :] -= 0.1 * (u[1:, :] - u[:-1, :])",
    "v[:, 1:] -= 0.1 * (v[:, :-1] - u[:, 1:])",
    "u[::2] += 0.5 * u[1::2]",
    "u[::-1] = u * 0.75",
    "u -= u[3:4] * 0.01",
    "u -= np.clip(u[:, 7:8] * u[7:8, :], -1.0, 1.0) * 0.001",
    "np.minimum(u, u[:, 5, None] + u[None, 5, :], out=u)",
    "u[0], u[-1] = u[1], u[-2]",
    "u[:, 0] = v[:, -1]",
    "u[2:-2] *= 0.5 + 0.5 * v[2:-2]",
    "w = u[1:-1, 1:-1]; w += 0.01",
    "w = u[1:-1, 1:-1]; w *= 1.01; t = w * 2.0; v[1:-1, 1:-1] = t",
    "kept.append(u.copy()); kept[:-2] = []",
    "kept.append(u[1:-1] * 2.0); kept[:-2] = []",
    "total.append(float(u[:, 1:-1].sum()))",
    "total.append(float(v.max()))",
    "x = x + 0.5 * u",
    "u = u.T",
    "a = np.asarray(v); a[3, 3] = 0.5; del a",
    "u = np.clip(u, -2.0, 2.0)",
    "u = np.roll(u, 1, axis=0)",
    "i = (i + 1) % 5; v = np.minimum(v, v[:, i, None] + v[None, i, :])",
    "i = (i + 1) % 5; x = x + u[i : i + 3].sum()",
    "i = (i + 1) % 5; u[i : i + 3] *= 0.5",
    "i = (i + 1) % 5; x = u[i:, ::-1][:2] * v[:2] + x[i] * 0.5 + u[i, 1]; x = u + x[0]",
    "s = (u * u).sum(); u = u / (1.0 + s); x = x + v / (2.0 + np.abs(s))",
    "r = np.zeros_like(u); r[1:-1] = u[2:] - u[:-2]; x = x + r * (r * v).sum() * 1e-6",
]


def run(xp: Any, lines: list[str], steps: int, start: Any) -> list[Any]:
    scope: dict[str, Any] = {
        "np": xp, "u": xp.array(start), "v": xp.array(start[::-1]), "x": xp.zeros(start.shape),
        "kept": [], "total": [], "i": 0,
    }  # fmt: skip
    bounds = [f"np.clip({name}, -4.0, 4.0, out={name})" for name in "uvx"]
    code = compile("\n".join([*lines, *bounds]), "<step>", "exec")
    for _ in range(steps):
        exec(code, scope)
    found = [scope["u"], scope["v"], scope["x"], *scope["kept"]]
    return [*map(np.asarray, found), *scope["total"]]


@pytest.mark.parametrize("seed", range(30))
def test_random_steps_repeated_give_numpys_bits(seed: int) -> None:
    generator = random.Random(seed)
    lines = generator.sample(STATEMENTS, generator.randint(1, 5))
    start = np.random.default_rng(seed).normal(size=(SIDE, SIDE))
    steps = 14
    expected = run(np, lines, steps, start)
    for threads in (1, 2):
        with lazyfuse.options(eager_below=0, threads=threads):
            found = run(lazyfuse, lines, steps, start)
        for ours, theirs in zip(found, expected, strict=True):
            assert np.array_equal(ours, theirs), lines


@pytest.mark.parametrize("prepared", [True, False])
# a stencil, a change of places, rows, steps and a row of the block itself: the others are their
# like, and are met at small sizes above
@pytest.mark.parametrize("line", spread(5, STATEMENTS[:10]))
def test_loops_at_sizes_that_are_recorded(
    line: str, prepared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flush, "WORTH_A_LAUNCH", 1)  # a run for every turn
    start = np.random.default_rng(3).normal(size=(300, 301 if "T" in line else 300))
    expected = run(np, [line], 30, start)
    with lazyfuse.options(capture=prepared, eager_below=1000, compile_after=0):
        found = run(lazyfuse, [line], 30, start)
    for ours, theirs in zip(found, expected, strict=True):
        assert np.array_equal(ours, theirs)


def stencil(u: Any) -> None:
    u[1:-1, 1:-1] += 0.1 * (u[:-2, 1:-1] + u[2:, 1:-1] - 2.0 * u[1:-1, 1:-1])


def replayed(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    told: list[bool] = []
    native = native_replay.run

    def watched(*given: Any) -> Any:
        raised = native(*given)
        told.append(raised is not None)
        return raised

    monkeypatch.setattr(evaluations, "keep", lambda *_: None)  # what goes by one look-up
    monkeypatch.setattr(native_replay, "run", watched)
    return told


def loop(u: Any, steps: int, look: Any = None) -> list[Any]:
    told = []
    for number in range(steps):
        stencil(u)
        evaluate.finish((), decisions.CALLED) if isinstance(u, lazyfuse.ndarray) else None
        if look is not None:
            told.append(look(u, number))
    return told


@pytest.mark.skipif(conditions.native is None, reason="C replays")
@pytest.mark.usefixtures("at_home")
def test_a_loop_in_place_is_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    told = replayed(monkeypatch)
    start = np.random.default_rng(0).normal(size=(400, 300))
    ours, theirs = lazyfuse.array(start), start.copy()
    loop(ours, 12)
    loop(theirs, 12)
    assert sum(told) >= 8
    assert np.array_equal(np.asarray(ours), theirs)


@pytest.mark.parametrize(
    "look",
    [
        lambda u, number: u[5:, 3:] * 2.0,
        lambda u, number: u.copy(),
        lambda u, number: np.asarray(u).copy() if number % 3 else None,
        lambda u, number: float(u[1:, 1:].sum()),
        lambda u, number: u.reshape(-1)[7:9000] + 1.0 if number % 2 else None,
        lambda u, number: u.T + 1.0,
    ],
)
@pytest.mark.smoke
def test_who_looks_in_between_sees_the_values_of_that_turn(look: Any) -> None:
    start = np.random.default_rng(1).normal(size=(300, 200))
    ours, theirs = lazyfuse.array(start), start.copy()
    found, expected = loop(ours, 12, look), loop(theirs, 12, look)
    for one, other in zip(found, expected, strict=True):
        assert (one is None and other is None) or np.array_equal(np.asarray(one), other)
    assert np.array_equal(np.asarray(ours), theirs)


def test_a_holder_outside_keeps_its_memory() -> None:
    start = np.random.default_rng(1).normal(size=(300, 200))
    ours, theirs = lazyfuse.array(start), start.copy()
    loop(ours, 6)
    loop(theirs, 6)
    seen = np.asarray(ours)
    loop(ours, 6)
    loop(theirs, 6)
    assert np.array_equal(np.asarray(ours), theirs)
    assert np.array_equal(seen, theirs), "asarray shares memory, as it does in NumPy"


def test_conditions_are_told_in_replays_too() -> None:
    def told(xp: Any) -> list[str]:
        u = xp.array(np.linspace(2.0, 3.0, 90_000).reshape(300, 300))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(14):
                u[1:-1] *= u[:-2] * u[2:]
                u[1:-1].max()
                evaluate.finish((), decisions.CALLED)
        assert np.isinf(np.asarray(u)).any()
        return sorted({str(each.message) for each in caught})

    assert told(lazyfuse) == told(np)


def test_blocks_change_places_where_a_stencil_reads_what_it_writes() -> None:
    assert around((9, 9), Layout(10, (7, 7), (9, 1))) is not None
    assert around((9, 9), Layout(0, (9, 9), (9, 1))) == ()
    assert around((9, 9), Layout(0, (4, 9), (18, 1))) is None, "no box"
    assert around((9, 9), Layout(0, (3, 3), (9, 1))) is None, "most of it stays"
    assert around((8, 4), Layout(2, (4, 16), (8, 1))) is None, "windows that meet"


def test_rows_columns_and_what_lies_beside_them_do_not_meet() -> None:
    block = np.zeros((50, 50))
    assert not overlap(block[20:, 19, None], block[20:, 20:])
    assert not overlap(block[None, 19, 20:], block[20:, 20:])
    assert not overlap(block[::2], block[1::2])
    assert overlap(block[:-2], block[2:])
    assert not overlap(block[1:], block[1:])


def test_float_sums_of_a_part_that_was_just_written_follow_its_memory() -> None:
    start = np.random.default_rng(2).normal(size=(500, 401))
    for window in (np.s_[:, 1:-1], np.s_[:, 1:], np.s_[::2], np.s_[:, ::2]):
        ours, theirs = lazyfuse.array(start), start.copy()
        ours[window] *= 1.1
        theirs[window] *= 1.1
        assert float(ours[window].sum()) == theirs[window].sum()
        assert np.array_equal(np.asarray(ours[window].sum(axis=0)), theirs[window].sum(axis=0))


def test_a_loop_that_looks_every_turn_leaves_nothing_behind() -> None:
    p = lazyfuse.array(np.random.default_rng(0).normal(size=50_000))
    x = lazyfuse.zeros(50_000)
    expected, q = np.zeros(50_000), np.asarray(p).copy()
    for _ in range(40):
        x += 0.5 * p
        p = p * 0.9
        float(p.max())
        expected += 0.5 * q
        q = q * 0.9
    assert len(evaluate.recorded()) < 40
    assert np.array_equal(np.asarray(x), expected)


def test_intermediate_values_of_updates_are_not_kept() -> None:
    u = lazyfuse.array(np.ones((400, 400)))
    for _ in range(12):
        u[1:, :] -= 0.1 * (u[1:, :] * 3.0)
    frontier = evaluate.here.recorded.frontier()
    assert len(frontier) <= 1


@pytest.mark.parametrize("shape", [(75, 40), (300, 400)])
def test_what_an_update_wrote_is_not_read_by_kernels_that_compute_it_again(
    shape: tuple[int, int],
) -> None:
    start = np.random.default_rng(0).normal(size=shape)

    def turns(xp: Any) -> list[Any]:
        u, v = xp.array(start), xp.array(start[::-1])
        for turn in range(2):
            v[:, 1:] += 1.25
            u[:, 1:] -= 0.5 * v[:, 1:]
            if turn % 2 == 0:
                u, v = xp.clip(u, -4.0, 4.0), xp.clip(v, -4.0, 4.0)
        return [np.asarray(u), np.asarray(v)]

    expected = turns(np)
    with lazyfuse.options(eager_below=0):
        found = turns(lazyfuse)
    for ours, theirs in zip(found, expected, strict=True):
        assert np.array_equal(ours, theirs)
