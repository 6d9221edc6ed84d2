"""Random loops that read another part of a pending value in each turn: NumPy's values every time.

A captured run is replayed for parts at other offsets; whether it may be depends on where a part
lies: one that goes over the end of a row is no box of its base.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse import config
from lazyfuse.runtime.capture import conditions, tier_up
from lazyfuse.runtime.events import counters, decisions
from tests import campaign, reached
from tests.campaign import rounds

pytestmark = campaign.TIMEOUT
TURNS = 24

Part = Callable[[Any, int, int, int], Any]
"""A part of an array with two axes at two indices, of a length; it fits wherever they are."""
PARTS: tuple[Part, ...] = (
    lambda y, i, j, n: y[i],
    lambda y, i, j, n: y[:, j],
    lambda y, i, j, n: y[:, j, None],
    lambda y, i, j, n: y[i : i + n],
    lambda y, i, j, n: y[i : i + n, j : j + n],
    lambda y, i, j, n: y[i : i + n, j : j + n].T,
    lambda y, i, j, n: y[i : i + n][::-1, j],
    lambda y, i, j, n: y[i, ::-1],
    lambda y, i, j, n: y[i : i + n : 2, ::3],
    lambda y, i, j, n: y.T[j],
    lambda y, i, j, n: y[i:].T[j, :n],
    lambda y, i, j, n: y[None, i : i + n, j],
    lambda y, i, j, n: y.diagonal()[i : i + n],
    lambda y, i, j, n: y[i : i + 1, j : j + n],
)
FLAT: tuple[Part, ...] = (
    lambda y, i, j, n: y.reshape(-1)[i + j : i + j + n + 1],
    lambda y, i, j, n: y.reshape(-1)[i * j : i * j + 2 * n : 2],
    lambda y, i, j, n: y.reshape(-1)[i + j + n : i + j : -1],
    lambda y, i, j, n: y.reshape(y.shape[1], -1)[i % y.shape[1]],
)
"""Some of these go over the end of a row."""
JOINS: tuple[Callable[[Any, Any, Any], Any], ...] = (
    lambda y, p, q: p * 3 - q,
    lambda y, p, q: y - p.sum() + q.max(),
    lambda y, p, q: (p + 1) * (q - 2),
    lambda y, p, q: y + (p.reshape(-1)[:1] - q.reshape(-1)[-1:]),
    lambda y, p, q: np.minimum(y, p.reshape(-1)[0] + q.reshape(-1)[0]),
    lambda y, p, q: p / (q - 3) + y.max(),
)


def outer(y: Any, xp: Any, i: int, j: int) -> Any:
    """Rows and columns of a value that changes in each turn, as shortest paths have them."""
    for k in (i, j, i + 1):
        y[:] = xp.minimum(y[:], xp.add.outer(y[:, k], y[k % y.shape[0], :]))
    return y


def program(seed: int) -> Callable[[Any], list[Any]]:
    """A loop over turns whose parts lie elsewhere each time: what each turn gives."""
    draw = Random(seed)
    rows, columns = draw.randint(6, 14), draw.randint(6, 14)
    part = draw.choice(FLAT if draw.random() < 0.4 else PARTS)
    other = part if draw.random() < 0.7 else draw.choice(PARTS)
    join, n = draw.choice(JOINS), draw.randint(1, 3)
    turned, squared = draw.random() < 0.3, draw.random() < 0.5
    floats, paths, over = draw.random() < 0.4, draw.random() < 0.15, draw.random() < 0.2
    held, across, down = draw.random() < 0.2, draw.random() < 0.5, draw.random() < 0.3
    limit = min(rows, columns) - n - 2
    places = [[draw.randint(0, limit) for _ in range(4)] for _ in range(TURNS)]
    values = np.array([draw.randint(-99, 99) for _ in range(rows * columns)])

    def turn(xp: Any, a: Any, i: int, j: int, k: int, m: int) -> Any:
        y = a * 2 + 1
        if squared:
            y = xp.maximum(y * y, a)
        if across:  # an operand of another layout: its parts are found by indices
            y = y + a[1]
        if down:
            y = y - a[:, 2:3]
        if over:
            y = y[1:] - a[:-1]
        if paths:
            return outer(y[:8].copy(), xp, i, j)
        if held:
            kept.append(y)
        return join(y, part(y, i, j, n), other(y, k, m, n))

    kept: list[Any] = []  # else nothing needs the whole value that the parts are of

    def run(xp: Any) -> list[Any]:
        a = xp.array(values.astype(float if floats else int).reshape(rows, columns))
        if turned:
            a = a.T
        found = []
        for place in places:
            try:
                found.append(turn(xp, a, *place))
            except (ValueError, IndexError) as error:  # shapes that do not meet
                found.append(type(error))
            else:
                if xp is not np:
                    lf.evaluate(found[-1])
        return found

    return run


def told(run: Callable[[Any], list[Any]], xp: Any) -> tuple[list[Any], list[str]]:
    """What each turn gives, and the warnings of all."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = run(xp)
    return found, [str(each.message) for each in seen]


def same(ours: tuple[list[Any], list[str]], theirs: tuple[list[Any], list[str]]) -> bool:
    if ours[1] != theirs[1]:
        return False
    for mine, expected in zip(ours[0], theirs[0], strict=True):
        if isinstance(expected, type):
            if mine is not expected:
                return False
            continue
        mine = np.asarray(mine)
        if mine.dtype != expected.dtype or mine.tobytes() != expected.tobytes():
            return False
    return True


@rounds(200)
@pytest.mark.usefixtures("on_cpu")
def test_parts_that_slide(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tier_up, "MOST", 0)  # what runs in blocks is kept: no program will come
    with config.options(eager_below=0, plan_after=0, compile_after=10**6):
        for seed in seeds:
            run = program(seed)
            with reached.program(seed):
                assert same(told(run, lf), told(run, np)), f"seed {seed}"


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.skipif(conditions.native is None, reason="C replays")
def test_shortest_paths_are_replayed() -> None:
    a = lf.array(np.arange(40_000).reshape(200, 200) * 7 % 1013)
    with config.options(plan_after=0):
        for _ in range(3):
            before = counters.totals().decisions[decisions.REPLAYED]
            path = lf.array(a)
            for k in range(200):
                path[:] = lf.minimum(path[:], lf.add.outer(path[:, k], path[k, :]))
            lf.evaluate(path)
        assert counters.totals().decisions[decisions.REPLAYED] - before > 20
