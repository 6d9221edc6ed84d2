"""Values that an evaluation leaves unwritten although a name holds them (elision.py)."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse import config
from lazyfuse.runtime.events import counters, decisions
from lazyfuse.runtime.scheduling import elision, evaluate
from tests import campaign
from tests.pairwise import first

SIDE = 300


@pytest.fixture(autouse=True)
def every_size(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(elision, "LARGE", 1 << 10)
    evaluate.clear_plans()
    with config.options(eager_below=0):
        counters.reset()
        yield
    evaluate.clear_plans()


def stars(count: int = SIDE) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(3)
    return generator.normal(size=(3, count)), generator.uniform(0.5, 1.5, count)


def pulls(xp: Any, position: Any, mass: Any) -> tuple[Any, ...]:
    difference = position[:, None, :] - position[:, :, None]
    squared = (difference * difference).sum(axis=0) + 0.0025
    pull = mass / (squared * xp.sqrt(squared))
    return difference, squared, pull, (difference * pull).sum(axis=2)


def same(mine: Any, theirs: Any) -> None:
    mine = np.asarray(mine)
    assert mine.dtype == theirs.dtype
    assert mine.shape == theirs.shape
    assert mine.tobytes() == theirs.tobytes()


def test_what_a_sink_passes_by_is_left_and_made_again_when_wanted_F3() -> None:
    position, mass = stars()
    expected = pulls(np, position, mass)
    found = pulls(lf, lf.array(position), lf.array(mass))
    same(found[3], expected[3])
    assert counters.totals().decisions[decisions.CHEAP] == 3
    assert [each._node is not None and each._node.value is None for each in found[:3]] == [True] * 3
    for mine, theirs in zip(found, expected, strict=True):
        same(mine, theirs)
    assert f"3 {decisions.CHEAP}" in str(lf.report())


def test_explain_says_so_and_leaves_nothing_F3() -> None:
    position, mass = stars()
    found = pulls(lf, lf.array(position), lf.array(mass))
    assert f"left unwritten: 3 values ({decisions.CHEAP})" in str(lf.explain(found[3]))
    assert counters.totals().decisions[decisions.CHEAP] == 0
    np.asarray(found[3])
    assert counters.totals().decisions[decisions.CHEAP] == 3


def test_it_is_left_once_F3() -> None:
    position, mass = stars()
    *_, pull, total = pulls(lf, lf.array(position), lf.array(mass))
    np.asarray(total)
    np.asarray((pull * 2.0).sum(axis=0))
    assert pull._node.value is not None
    same(pull, pulls(np, position, mass)[2])


def test_what_lies_below_an_elided_value_is_no_unfinished_work_F3() -> None:
    position, mass = stars()
    found = pulls(lf, lf.array(position), lf.array(mass))
    np.asarray(found[3])
    before = counters.totals().kernels
    evaluate.finish((), decisions.CALLED)
    assert counters.totals().kernels == before
    assert counters.totals().decisions[decisions.CHEAP] == 3
    for mine, theirs in zip(found, pulls(np, position, mass), strict=True):
        same(mine, theirs)


def test_what_is_as_large_as_its_operands_is_written_F3() -> None:
    values = np.random.default_rng(0).normal(size=(50, 400))
    x = lf.array(values)
    y = x * 2.0
    np.asarray(y.sum(axis=1))
    assert counters.totals().decisions[decisions.CHEAP] == 0


def test_the_option_switches_it_off_F3() -> None:
    position, mass = stars()
    with config.options(elision=False):
        found = pulls(lf, lf.array(position), lf.array(mass))
        np.asarray(found[3])
    assert counters.totals().decisions[decisions.CHEAP] == 0
    assert all(each._node.value is not None for each in found[:3])


# random programs below write over what is recorded: here what is small is computed at once
@pytest.mark.parametrize("small", first(1, [True, False]))
def test_operands_that_are_written_over_keep_their_old_values_F3(small: bool) -> None:
    position, mass = stars()
    with config.options(eager_below=2000 if small else 0):
        mine, theirs = lf.array(position), position.copy()
        for _ in range(4):
            found, expected = pulls(lf, mine, lf.array(mass)), pulls(np, theirs, mass)
            mine += 0.1 * found[3]
            theirs += 0.1 * expected[3]
            mine[0] *= 2.0
            theirs[0] *= 2.0
            for one, other in zip((*found, mine), (*expected, theirs), strict=True):
                same(one, other)


def test_operands_keep_their_memory_F3() -> None:
    row = np.random.default_rng(1).normal(size=SIDE)
    for _ in range(4):
        x = lf.array(row) * 2.0
        np.asarray(x)
        outer = x[:, None] * x[None, :]
        x = x + 1.0  # nobody but `outer` reads the old one
        total = outer.sum(axis=0) + x
        old = row * 2.0
        expected = old[:, None] * old[None, :]
        same(total, expected.sum(axis=0) + (old + 1.0))
        same(outer, expected)


@pytest.mark.parametrize("action", ["warn", "ignore"])
def test_conditions_are_told_once_F3(action: Any) -> None:
    row = np.arange(float(SIDE))
    heard = []
    for xp in (np, lf):
        with warnings.catch_warnings(record=True) as caught, np.errstate(divide=action):
            warnings.simplefilter("always")
            x = xp.array(row)
            ratio = xp.array(row)[None, :] / x[:, None]
            total = np.asarray((ratio * 0.0 + 1.0).max(axis=1))
            result = np.asarray(ratio), total
        heard.append(
            ([str(each.message) for each in caught if "divide" in str(each.message)], result)
        )
    assert heard[0][0] == heard[1][0]
    for mine, theirs in zip(heard[1][1], heard[0][1], strict=True):
        np.testing.assert_array_equal(mine, theirs)  # a NaN's sign is nobody's


@campaign.rounds(12)
def test_random_programs_that_hold_what_they_compute_F3(seeds: range) -> None:
    for seed in seeds:
        run(seed)


def run(seed: int) -> None:
    """One random structure, three times with other values; every name is looked at in the end."""
    drawn = random.Random(seed)
    rows, columns = drawn.choice([40, 64, 101]), drawn.choice([50, 64, 77])
    text = statements(drawn)
    generator = np.random.default_rng(seed)
    for turn in range(3):
        inputs = {
            "a": generator.normal(size=(rows, 1)),
            "b": generator.normal(size=(1, columns)),
            "c": generator.normal(size=columns),
        }
        worlds = []
        for xp in (np, lf):
            names: dict[str, Any] = {"np": xp}
            names |= {name: xp.array(value) for name, value in inputs.items()}
            for line in text:
                exec(line, names)
            worlds.append({n: np.asarray(v) for n, v in names.items() if n[0] in "abcxyz"})
        for name, theirs in worlds[0].items():
            mine = worlds[1][name]
            assert mine.tobytes() == theirs.tobytes(), (seed, turn, name, text)


def statements(drawn: random.Random) -> list[str]:
    large, small = ["x0"], ["a", "b", "c"]
    lines = [f"x0 = a {drawn.choice('+-*')} b"]
    for number in range(1, drawn.randint(4, 14)):
        one, two = drawn.choice(large), drawn.choice([*large, *small, "0.5"])
        line = drawn.choice([
            f"x{number} = {one} {drawn.choice('+-*')} {two}",
            f"x{number} = np.where({one} > 0.1, {one}, {two})",
            f"x{number} = np.sqrt(np.abs({one})) + {two}",
            f"x{number} = a[::-1] * {one} - c",
            f"y{number} = {one}.sum(axis={drawn.randint(0, 1)})",
            f"y{number} = float(({one} * {two}).max())",
            f"y{number} = float(({one} + {two}).sum())",
            f"y{number} = ({one} * 2.0).min(axis=1)",
            f"{drawn.choice(small)} += {drawn.choice(['0.25', '1.5'])}",
            f"{drawn.choice(small)}[..., :3] *= 0.75",
            f"c -= {one}.mean(axis=0)",
            f"c[2:9] = {one}[1, 2:9]",
            f"z{number} = {one}[1:, ::2]",
            f"{one} *= 0.5",
            f"{one}[3:7, 1:] += 1.0",
            f"{one} = {one} - {two}",
            f"del {one}; {one} = a - c",
        ])  # fmt: skip
        lines.append(line)
        if line.startswith("x"):
            large.append(f"x{number}") if f"x{number} =" in line else None
    return lines
