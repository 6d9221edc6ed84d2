"""Parts of one block that one kernel stores (plan.py, update_hazards.py)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse import config
from lazyfuse.runtime.capture import capture, conditions
from lazyfuse.runtime.events import counters, decisions
from lazyfuse.runtime.execution.executor import Run
from lazyfuse.runtime.execution.run_values import RunValues
from tests import campaign

SHAPE = (14, 23)


@pytest.fixture(autouse=True)
def recorded() -> Iterator[None]:
    with config.options(eager_below=0):
        yield


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of what is copied beside kernels."""
    found: list[tuple[int, ...]] = []

    copied = capture.CapturingRun.copied

    def note(run: Any, target: Any, source: Any) -> None:
        found.append(target.shape)
        if isinstance(run, capture.CapturingRun):
            copied(run, target, source)

    monkeypatch.setattr(RunValues, "copied", note)
    monkeypatch.setattr(capture.CapturingRun, "copied", note)
    update, move = Run.update, Run.move

    def count_update(run: Any, index: int) -> None:
        found.append(run.nodes[run.plan.graph.values[index].origin].arg.shape)
        update(run, index)

    def count_move(run: Any, temporary: Any, part: Any) -> None:
        found.append(part.shape)
        move(run, temporary, part)

    monkeypatch.setattr(Run, "update", count_update)
    monkeypatch.setattr(Run, "move", count_move)
    return found


def arrays(seed: int = 0, count: int = 3) -> Any:
    return np.random.default_rng(seed).normal(size=(count, *SHAPE))


def same(mine: Any, theirs: Any) -> None:
    mine = np.asarray(mine)
    assert (mine.dtype, mine.shape, mine.strides) == (theirs.dtype, theirs.shape, theirs.strides)
    assert mine.tobytes() == theirs.tobytes()


def fluxes(xp: Any, height: Any, east: Any, south: Any, axis: int) -> Any:
    u, v = east / height, south / height
    pressure = 0.5 * height * height
    return (
        xp.stack([east, east * u + pressure, east * v], axis=axis),
        xp.stack([south * u, south * v + pressure, south, pressure], axis=axis),
    )


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_every_part_is_stored_in_place_F3(axis: int, copied: list[tuple[int, ...]]) -> None:
    given = arrays() + 3.0
    expected = fluxes(np, *given, axis)
    for _ in range(3):
        found = fluxes(lf, *[lf.array(x) for x in given], axis)
        same((found[0] + 0.0), expected[0] + 0.0)
        for mine, theirs in zip(found, expected, strict=True):
            same(mine, theirs)
    assert not copied


@pytest.mark.parametrize("join", ["stack", "concatenate"])
def test_joined_parts_are_stored_by_the_kernel_that_computes_them(join: str) -> None:
    """Views of the result are read in memory: it is filled by one kernel, in replays, too."""
    given = arrays(count=2)
    x, y = [lf.array(each) for each in given]
    whole = getattr(np, join)([given[0], given[0] * given[1] + 1.0, given[0] - given[1]])
    with lf.options(plan_after=0, eager_below=0):
        for _ in range(8):
            before = counters.totals().kernels, counters.totals().decisions[decisions.REPLAYED]
            joined = getattr(lf, join)([x, x * y + 1.0, x - y])
            found = np.asarray(joined[:, 1:] - joined[:, :-1])
            kernels = counters.totals().kernels - before[0]
            same(found, whole[:, 1:] - whole[:, :-1])
    assert kernels == 2
    replays = counters.totals().decisions[decisions.REPLAYED] - before[1]
    assert replays == (conditions.native is not None)


def test_parts_of_other_blocks_that_are_read_F3() -> None:
    for _ in range(3):
        given = arrays()
        found, expected = [lf.array(x) for x in given], given.copy()
        for xp, (a, b, c) in ((lf, found), (np, expected)):
            rows = xp.concatenate([a + b, c[3:5], b * 2.0, c[:4] - 1.0], axis=0)
            a[2:6] = b[2:6] * 0.5
            a[6:9] = b[6:9]
            a[1:4] = a[1:4] + a[2:5]
            result = xp.concatenate([rows, a], axis=0)
            if xp is np:
                theirs = result
            else:
                mine = result
        same(mine, theirs)
        for x, y in zip(found, expected, strict=True):
            same(x, y)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_last_write_counts_F3(threads: int) -> None:
    with config.options(threads=threads, threads_above=1):
        for _ in range(3):
            results = []
            for xp in (lf, np):
                a, b, c = [xp.array(x) for x in arrays()]
                block = xp.zeros((30, SHAPE[1]))
                block[:14] = a + b
                block[10:24] = a - b
                before = block * 1.0
                block[5:19] = a * c
                block[::2][:14] = b * c
                results.append((block, before, block.sum(axis=0)))
            for mine, theirs in zip(*results, strict=True):
                same(mine, theirs)


def part(drawn: random.Random) -> str:
    """A value of SHAPE."""
    names = ["a", "b", "c"]
    one, two = drawn.choice(names), drawn.choice(names)
    return drawn.choice(
        [one, f"{one} + {two}", f"{one} * 0.5 - {two}", f"old[2:16] * {one}", f"xp.abs({one})",
         f"{one}[::-1]", f"old[{drawn.randint(0, 9)}:][:14]", f"{one} + {two}.max(axis=0)"]
    )  # fmt: skip


def program(seed: int) -> str:
    drawn = random.Random(seed)
    lines = []
    for _ in range(drawn.randint(2, 5)):
        start, step = drawn.randint(0, 16), drawn.choice([1, 1, 1, 2])
        target = f"old[{start if step == 1 else start % 3}::{step}][:14]"
        lines.append(f"{target} {drawn.choice(['=', '=', '=', '+='])} {part(drawn)}")
        if drawn.random() < 0.3:
            lines.append("kept.append(old * 1.0)")
        if drawn.random() < 0.3:
            function = drawn.choice(["stack", "concatenate"])
            axis = drawn.choice([0, 1, -1])
            parts = ", ".join(part(drawn) for _ in range(drawn.randint(2, 5)))
            lines.append(f"kept.append(xp.{function}([{parts}], axis={axis}))")
        if drawn.random() < 0.15:
            lines.append("kept.append(float(old.sum()))")
    body = "\n    ".join(lines)
    return (
        "def program(xp, old, a, b, c):\n"
        "    old, a, b, c = xp.array(old), xp.array(a), xp.array(b), xp.array(c)\n"
        f"    kept = []\n    {body}\n    return [old, *kept]\n"
    )


@campaign.rounds(40)
def test_random_parts_F3(seeds: range) -> None:
    for seed in seeds:
        text = program(seed)
        scope: dict[str, Any] = {}
        exec(text, scope)
        for turn in range(3):
            block = np.random.default_rng(seed + turn).normal(size=(40, SHAPE[1]))
            given = (block, *arrays(seed + turn))
            expected = scope["program"](np, *given)
            with config.options(threads=1 + seed % 2, threads_above=1):
                found = scope["program"](lf, *given)
            try:
                for mine, theirs in zip(found, expected, strict=True):
                    mine, theirs = np.asarray(mine), np.asarray(theirs)
                    assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
                    assert mine.tobytes() == theirs.tobytes()
            except AssertionError:
                pytest.fail(f"seed {seed}\n{text}", pytrace=False)
