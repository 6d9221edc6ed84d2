"""Turns that write windows of blocks and read others, whose values are named, kept, joined and
looked at: whatever takes another's memory or place, the values are NumPy's.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import numpy as np
import pytest

import lazyfuse
from lazyfuse import config
from lazyfuse.arrays.base import COMPILED
from lazyfuse.runtime.capture import capture
from lazyfuse.runtime.execution import update_hazards
from lazyfuse.runtime.scheduling import flush
from tests import campaign

State = dict[str, Any]


@pytest.fixture(autouse=True)
def every_turn_runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small blocks, that are recorded, change places and run at every turn."""
    monkeypatch.setattr(flush, "WORTH_A_LAUNCH", 1)
    monkeypatch.setattr(update_hazards, "SWAP_BYTES", 1)
    before = config.options.eager_below
    config.options(eager_below=0)
    yield
    config.options(eager_below=before)


def _set_inside(xp: Any, s: State, x: str, y: str, k: int) -> None:
    u, v = s[x], s[y]
    s["new"] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + v[1:-1, 2:])
    u[1:-1, 1:-1] = s["new"]


def _add_inside(xp: Any, s: State, x: str, y: str, k: int) -> None:
    u = s[x]
    centre = u[1:-1, 1:-1]
    s["around"] = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
    centre += 0.125 * k * (s["around"] - 4.0 * centre)


def _step_of_layers(xp: Any, s: State, x: str, y: str, k: int) -> None:
    state = s["layers"]
    first, second, third = state
    along = xp.stack([second, second * third + first, s[x]])
    across = xp.stack([third * k, s[y], third], axis=0)
    mean = 0.25 * (state[:, 1:-1, :-2] + state[:, 1:-1, 2:] + state[:, :-2, 1:-1])
    change = along[:, 1:-1, 2:] - along[:, 1:-1, :-2] + across[:, 2:, 1:-1]
    if k % 2:
        s["mean"] = mean
    state[:, 1:-1, 1:-1] = 0.5 * mean - 0.25 * change


def _borders(xp: Any, s: State, x: str, y: str, k: int) -> None:
    s[x][0], s[x][-1] = s[x][1], s[x][-2]
    s["layers"][:, :, 0], s["layers"][:, :, -1] = s["layers"][:, :, 1], s["layers"][:, :, -2]


def _whole(xp: Any, s: State, x: str, y: str, k: int) -> None:
    s[x] = 0.5 * s[x] + s[y] * 0.25
    s[y] -= s[x]


def _exchange(xp: Any, s: State, x: str, y: str, k: int) -> None:
    s[x], s[y] = s[y], s[x]


def _keep(xp: Any, s: State, x: str, y: str, k: int) -> None:
    s[f"kept{k % 3}"] = s[x][k % 3 :, 1:] * 2.0


def _keep_view(xp: Any, s: State, x: str, y: str, k: int) -> None:
    s[f"view{k % 3}"] = s[x][1:, k % 3 :]


def _hand_out(xp: Any, s: State, x: str, y: str, k: int) -> None:
    s[f"out{k % 2}"] = np.asarray(s[x]) if k % 2 else np.asarray(s[x]).sum()


def _write_through(xp: Any, s: State, x: str, y: str, k: int) -> None:
    for each in ("view0", "view1"):
        if each in s:
            s[each][..., 0] = k


def _copy(xp: Any, s: State, x: str, y: str, k: int) -> None:
    s[y] = xp.array(s[x])


def _look(xp: Any, s: State, x: str, y: str, k: int) -> None:
    s["seen"] = float(s[x][1:-1].max())


STATEMENTS: list[Callable[[Any, State, str, str, int], None]] = [
    _set_inside, _set_inside, _add_inside, _add_inside, _step_of_layers, _step_of_layers, _borders,
    _whole, _exchange, _keep, _keep_view, _hand_out, _write_through, _copy, _look,
]  # fmt: skip


def _program(xp: Any, seed: int) -> State:
    pick = random.Random(seed)
    side = pick.choice([8, 9, 20])
    generator = np.random.default_rng(seed)
    s: State = {x: xp.array(generator.normal(size=(side, side))) for x in "uv"}
    s["layers"] = xp.array(generator.normal(size=(3, side, side)))
    chosen = [(pick.choice(STATEMENTS), *pick.sample("uv", 2)) for _ in range(pick.randint(1, 4))]
    rarely = pick.choice([1, 1, 2, 5])
    for k in range(pick.randint(10, 22)):
        for at, (statement, x, y) in enumerate(chosen):
            if at < 2 or k % rarely == 0:
                statement(xp, s, x, y, k % 4)
    return s


def check(seed: int) -> None:
    with np.errstate(all="ignore"):
        expected = _program(np, seed)
        found = _program(lazyfuse, seed)
        for name, value in expected.items():
            mine = np.asarray(found[name])
            assert mine.shape == np.shape(value), (seed, name)
            assert mine.tobytes() == np.asarray(value).tobytes(), (seed, name)


@campaign.rounds(80)
def test_random_turns(seeds: range) -> None:
    for seed in seeds:
        check(seed)


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of what runs copy while they are observed."""
    shapes: list[tuple[int, ...]] = []

    class Counting(capture.CapturingRun):
        __slots__ = ()

        def copied(self, target: Any, source: Any) -> None:
            shapes.append(target.shape)
            super().copied(target, source)

    monkeypatch.setattr(capture, "CapturingRun", Counting)
    return shapes


@pytest.mark.skipif(not COMPILED, reason="runs are observed for the extension, which repeats them")
@pytest.mark.usefixtures("on_cpu")  # whose runs are observed
def test_a_block_evaluated_between_the_reads_of_a_statement_is_not_copied(
    copied: list[tuple[int, ...]],
) -> None:
    side = 64
    start = np.random.default_rng(0).normal(size=(side, side))

    def program(xp: Any) -> Any:
        u = xp.array(start)
        for _ in range(40):
            centre = u[1:-1, 1:-1]
            around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
            centre += 0.2 * (around - 4.0 * centre)
        return u

    assert np.asarray(program(lazyfuse)).tobytes() == program(np).tobytes()
    assert copied
    assert sum(prod(shape) >= side * side for shape in copied) <= 1  # what the array was made from


def test_a_part_of_a_stack_is_stored_in_place(copied: list[tuple[int, ...]]) -> None:
    a, b = np.random.default_rng(1).normal(size=(2, 40, 40))
    x, y = lazyfuse.array(a), lazyfuse.array(b)
    joined = lazyfuse.stack([x + y, y], axis=1)
    assert np.asarray(joined).tobytes() == np.stack([a + b, b], axis=1).tobytes()
    assert not copied  # the kernel has what was there already, too
