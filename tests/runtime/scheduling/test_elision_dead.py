"""What names hold of a turn that is over need not be written (elision.py)."""

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
from lazyfuse.runtime.placement import devices
from lazyfuse.runtime.scheduling import elision, evaluate, flush
from tests import campaign

SIDE = 40


@pytest.fixture(autouse=True)
def every_size(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(elision, "LARGE", 16)
    monkeypatch.setattr(flush, "WORTH_A_LAUNCH", 1)
    evaluate.clear_plans()
    with config.options(eager_below=0):
        counters.reset()
        yield
    evaluate.clear_plans()


def elided() -> int:
    found = counters.totals().decisions.items()
    return sum(count for rule, count in found if rule.decides == decisions.ELIDE)


def plate(xp: Any) -> Any:
    return xp.array(np.random.default_rng(1).normal(size=(SIDE, SIDE)))


def heat(xp: Any, steps: int = 12) -> tuple[Any, ...]:
    u = plate(xp)
    around = u
    for _ in range(steps):
        around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
        u[1:-1, 1:-1] += 0.2 * (around - 4.0 * u[1:-1, 1:-1])
    return u, around


def jacobi(xp: Any, steps: int = 44) -> tuple[Any, ...]:
    u, load = plate(xp), plate(xp) * 0.1
    new = change = None
    for number in range(steps):
        new = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - load[1:-1, 1:-1])
        if number % 20 == 19:
            change = float(xp.abs(new - u[1:-1, 1:-1]).max())
        u[1:-1, 1:-1] = new
    return u, new, change


def descent(xp: Any, steps: int = 9) -> tuple[Any, ...]:
    x, drop = plate(xp), plate(xp)
    step = scaled = x
    for _ in range(steps):
        step = drop * 0.5
        scaled = step * x
        x = x - step
        drop = drop * (1.0 / (1.0 + float(scaled.sum())))
    return x, drop, step, scaled


def same(found: Any, expected: Any) -> None:
    for mine, theirs in zip(found, expected, strict=True):
        mine, theirs = np.asarray(mine), np.asarray(theirs)
        assert mine.dtype == theirs.dtype
        assert mine.shape == theirs.shape
        assert mine.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("program", [heat, jacobi, descent])
def test_loops_leave_what_the_next_turn_binds_anew_F3(program: Any, threads: int) -> None:
    expected = program(np)
    with config.options(threads=threads, threads_above=1):
        for _ in range(3):
            same(program(lf), expected)
    if devices.is_default_cpu():  # else nothing is left to be made again
        assert counters.totals().decisions[decisions.DEAD] > 0


def test_what_is_read_again_is_written_F3() -> None:
    u = plate(lf)
    expected = plate(np)
    for _ in range(8):
        double = u * 2.0 + 1.0
        double_there = expected * 2.0 + 1.0
        looked = float((double + 1.0).max())
        assert looked == (double_there + 1.0).max()
        u = double * 0.25  # needs `double` in the next evaluation
        expected = double_there * 0.25
        same([u], [expected])
    assert elided() <= 1


def test_small_updates_do_not_copy_their_block_F3() -> None:
    u, copied = plate(lf), []
    for number in range(8):
        half = u * 0.5
        float(half.max())
        u[number] = 1.0
        copied.append(half._node is not None and half._node.value is not None)
        float(u.sum())
    same([u, half], small_updates())


def small_updates() -> tuple[Any, ...]:
    u = plate(np)
    for number in range(8):
        half = u * 0.5
        u[number] = 1.0
    return u, half


def test_the_option_switches_it_off_F3() -> None:
    with config.options(elision=False):
        for _ in range(3):
            same(heat(lf), heat(np))
    assert elided() == 0


@pytest.mark.parametrize("action", ["warn", "ignore"])
def test_conditions_are_told_as_often_as_numpy_tells_them_F3(action: Any) -> None:
    heard = []
    for xp in (np, lf):
        with warnings.catch_warnings(record=True) as caught, np.errstate(divide=action):
            warnings.simplefilter("always")
            u = xp.array(np.arange(float(SIDE * SIDE)).reshape(SIDE, SIDE))
            looked = []
            for _ in range(6):
                ratio = 1.0 / u
                looked.append(float((ratio + 1.0).min()))
                u = u + 0.0
            looked.append(np.asarray(ratio).tolist())
        heard.append(([str(each.message) for each in caught], looked))
    assert heard[0] == heard[1]


# ------------------------------------------------------------------------------ random programs


def names(count: int) -> list[str]:
    return [f"t{number}" for number in range(count)]


def expression(drawn: random.Random, inner: bool, known: list[str]) -> str:
    """Arithmetic on windows of the arrays (`inner`) or on whole ones."""
    whole = ["a", "b", "c"]
    if inner:
        windows = ["[1:-1, 1:-1]", "[:-2, 1:-1]", "[2:, 1:-1]", "[1:-1, :-2]", "[1:-1, 2:]"]
        leaves = [drawn.choice(whole) + drawn.choice(windows) for _ in range(3)]
    else:
        leaves = [drawn.choice(whole) for _ in range(3)]
    leaves += [drawn.choice(known)] if known and drawn.random() < 0.6 else []
    text = drawn.choice(leaves)
    for _ in range(drawn.randint(1, 3)):
        if drawn.random() < 0.2:
            text = f"xp.{drawn.choice(['minimum', 'maximum'])}({text}, {drawn.choice(leaves)})"
        else:
            text = f"({text} {drawn.choice('+-')} {drawn.choice([*leaves, '0.5', '0.25'])})"
    return f"{text} * 0.125"


def statements(drawn: random.Random) -> list[str]:
    inner, outer = [], []
    lines = []
    for name in names(drawn.randint(1, 4)):
        is_inner = drawn.random() < 0.7
        known = inner if is_inner else outer
        lines.append(f"{name} = {expression(drawn, is_inner, known)}")
        known.append(name)
        what = drawn.random()
        if what < 0.3:
            target = drawn.choice("abc")
            place = "[1:-1, 1:-1]" if is_inner else ""
            lines.append(
                f"{target}{place} {drawn.choice(['+=', '-='])} {name}"
                if drawn.random() < 0.5 or not is_inner
                else f"{target}{place} = {name}"
            )
        elif what < 0.45:
            lines.append(f"looked.append(float({drawn.choice([*inner, *outer])}.max()))")
        elif what < 0.55:
            lines.append(f"{drawn.choice('abc')}[{drawn.randint(0, 3)}] = 0.5")
        elif what < 0.65:
            lines.append(f"{name} *= 0.5")
        elif what < 0.75:
            lines.append(f"if turn % 4 == 2: kept = {name}")
        elif what < 0.8:
            lines.append(f"{drawn.choice('abc')} = {drawn.choice('abc')} * 0.75")
        elif what < 0.88:
            lines.append(f"looked.append(float({drawn.choice('abc')}.sum()))")
    if drawn.random() < 0.5:
        lines.append("c = (a + b) * 0.5")
    if drawn.random() < 0.3:
        lines.append("if turn % 5 == 3: looked.append(float(kept.sum()))")
    return lines


def source(seed: int) -> str:
    drawn = random.Random(seed)
    body = "\n        ".join(statements(drawn))
    zeros = "\n    ".join(f"{name} = xp.zeros(S)" for name in names(4))
    return f"""
def program(xp, a, b, c, turns, S):
    a, b, c = xp.array(a), xp.array(b), xp.array(c)
    looked = []
    {zeros}
    kept = a
    for turn in range(turns):
        {body}
    return [a, b, c, t0, t1, t2, t3, kept, *looked]
"""


@campaign.rounds(25)
def test_random_loops_that_hold_what_they_compute_F3(seeds: range) -> None:
    for seed in seeds:
        text = source(seed)
        scope: dict[str, Any] = {}
        exec(text, scope)
        generator = np.random.default_rng(seed)
        turns = 4 + seed % 13
        for _ in range(2 + seed % 2):
            side = (12, 17, 30)[seed % 3]
            arrays = generator.normal(size=(3, side, side))
            arguments = (*arrays, turns, (side - 2, side - 2))
            try:
                expected = scope["program"](np, *[x.copy() for x in arrays], *arguments[3:])
            except ValueError:
                break  # shapes that do not meet
            with config.options(threads=1 + seed % 2, threads_above=1):
                found = scope["program"](lf, *arguments)
            try:
                same(found, expected)
            except AssertionError:
                pytest.fail(f"seed {seed}\n{text}", pytrace=False)
