"""`roll`, `take` of a range, `concatenate` and `stack` of arrays that are recorded."""

from __future__ import annotations

import random
import threading
from typing import Any

import numpy as np
import pytest

import lazyfuse
from lazyfuse.functions.joining import PIECES, rolled
from lazyfuse.runtime.scheduling import evaluate
from tests.pairwise import first

DTYPES = ["u1", "f8", "i4", "f4", "c16"]


def _given(pick: random.Random, lengths: tuple[int, ...] = (0, 1, 2, 3, 5, 8)) -> Any:
    shape = tuple(pick.choice(lengths) for _ in range(pick.randint(1, 3)))
    a = np.arange(np.prod(shape), dtype=pick.choice(DTYPES)).reshape(shape)
    way = pick.random()
    return a.T if way < 0.3 else a[..., ::-1] if way < 0.45 else a


def _told(function: Any, *args: Any) -> Any:
    try:
        return function(*args)
    except Exception as error:  # whatever it is, it is to be NumPy's
        return error


def _same(found: Any, wanted: Any, what: Any, of_strides: bool = True) -> None:
    if isinstance(wanted, Exception):
        assert type(found) is type(wanted), what
        assert str(found) == str(wanted), what
        return
    found = np.asarray(found)
    assert found.dtype == wanted.dtype, what
    np.testing.assert_array_equal(found, wanted, err_msg=str(what))
    if wanted.size and of_strides:
        assert found.strides == wanted.strides, what


def test_rolled_is_numpys() -> None:
    """Two copies over the flat memory give what NumPy's pieces do, in the same memory order."""
    pick = random.Random(1)
    for _ in range(1500):
        a = _given(pick)
        axis = pick.choice([None, *range(-a.ndim - 1, a.ndim + 1)])
        shift: Any = pick.randint(-12, 12)
        if pick.random() < 0.15:
            axis, shift = (0, -1), pick.choice([shift, (1, 2), (1, 2, 3)])
        what = (a.shape, a.strides, shift, axis)
        _same(_told(rolled, a, shift, axis), _told(np.roll, a, shift, axis), what)


@pytest.mark.parametrize("eager_below", [0, 4, 100_000])
def test_roll(eager_below: int) -> None:
    """Small or big, pending or there."""
    pick = random.Random(2)
    with lazyfuse.options(eager_below=eager_below):
        for _ in range(250):
            a = _given(pick)
            axis = pick.choice([None, *range(-a.ndim - 1, a.ndim + 1)])
            shift = pick.choice([0, 1, -1, 3, 9, np.int64(2), (1, 2)])
            x = lazyfuse.array(a)
            given, real = (x + x, a + a) if pick.random() < 0.5 else (x, a)
            what = (a.shape, a.strides, shift, axis)
            _same(_told(lazyfuse.roll, given, shift, axis), _told(np.roll, real, shift, axis), what)


@pytest.mark.smoke
def test_a_roll_reads_what_was_there() -> None:
    """A write after the call does not show in its result."""
    real = np.arange(90_000.0).reshape(300, 300)
    x = lazyfuse.array(real) + 0.0
    later = lazyfuse.roll(x, 5, axis=1)
    x[:] = 0.0
    np.testing.assert_array_equal(np.asarray(later), np.roll(real, 5, axis=1))


@pytest.mark.parametrize("eager_below", [0, 100_000])
def test_take_of_a_range(eager_below: int) -> None:
    """A range within bounds is a copy of a slice, all else is NumPy's."""
    pick = random.Random(3)
    with lazyfuse.options(eager_below=eager_below):
        for _ in range(400):
            a = _given(pick, (1, 2, 3, 5, 8))
            axis = pick.choice([None, *range(-a.ndim - 1, a.ndim + 1)])
            step = pick.choice([1, 1, 2, -1, -2, 3])
            places = range(pick.randint(-2, 9), pick.randint(-2, 9), step)
            x = lazyfuse.array(a)
            found = _told(lazyfuse.take, x, places, axis)
            x[...] = 0
            _same(found, _told(np.take, a, places, axis), (a.shape, places, axis))


def _joined(xp: Any, seed: int) -> list[Any]:
    pick, numbers = random.Random(seed), np.random.default_rng(seed)
    rank = pick.randint(1, 3)
    shape = [pick.choice([1, 2, 3, 5]) for _ in range(rank)]
    axis = pick.randrange(-rank, rank)
    base = xp.array(numbers.integers(0, 9, shape).astype(pick.choice(DTYPES)))
    base = base + base
    parts = []
    for _ in range(pick.randint(1, 4)):
        own = list(shape)
        own[axis] = pick.choice([own[axis], 1, 2, 4, 0])
        if own == shape and pick.random() < 0.6:
            parts.append(pick.choice([base, base * 2, base[::-1]]))
            continue
        part = xp.array(numbers.integers(0, 9, own).astype(pick.choice(DTYPES)))
        part = part + part if pick.random() < 0.5 else part
        parts.append(xp.asfortranarray(part) if pick.random() < 0.3 else part)
    way = pick.choice(["concatenate", "stack", "vstack", "hstack"])
    try:
        if way == "concatenate":
            made = xp.concatenate(parts, axis)
        elif way == "stack":
            made = xp.stack([base, base, base * 3], pick.randint(0, rank))
        else:
            made = getattr(xp, way)(parts)
    except ValueError:
        return []
    if pick.random() < 0.5:
        base[...] = 0
    if pick.random() < 0.5 and made.size:
        made[..., 0] = 7
    return [made, made + 1, made[..., ::2] * 2, base, made.sum(axis=0)]


@pytest.mark.parametrize("eager_below", [0, 10])
def test_joins(eager_below: int) -> None:
    """What is joined part by part is what NumPy joins: values, dtype, memory order."""
    with lazyfuse.options(eager_below=eager_below):
        for seed in range(250):
            found = _joined(lazyfuse, seed)
            wanted = _joined(np, seed)
            assert len(found) == len(wanted), seed
            for one, other in zip(found, wanted, strict=True):
                _same(one, np.asarray(other), seed, of_strides=False)


@pytest.mark.usefixtures("on_cpu")  # joins on other devices are calls
def test_a_join_is_no_call() -> None:
    """A few arrays are stored where they belong by what computes them; many are one call."""
    x = lazyfuse.array(np.arange(90_000.0).reshape(300, 300))
    few = lazyfuse.stack([x * 2.0, x + 1.0, x])
    many = lazyfuse.concatenate([x * 2.0] * (PIECES + 1))
    assert "concatenate" not in str(lazyfuse.explain(few))
    assert "concatenate" in str(lazyfuse.explain(many))
    real = np.arange(90_000.0).reshape(300, 300)
    np.testing.assert_array_equal(np.asarray(few), np.stack([real * 2.0, real + 1.0, real]))
    np.testing.assert_array_equal(np.asarray(many), np.concatenate([real * 2.0] * (PIECES + 1)))


def _relaxed(xp: Any, start: Any, turns: int) -> Any:
    d = xp.array(start) + 0.0
    for k in range(turns):
        xp.minimum(d, d[:, k, None] + d[None, k, :], out=d)
    return np.asarray(d)


def _stepped(xp: Any, start: Any, held: list[Any]) -> Any:
    """Each turn begins with two arrays of which one is not read again."""
    x, y = xp.array(start) + 0.0, xp.array(start) + 1.0
    for turn in range(36):
        x, y = y[::-1] * 0.5 + x, x * 0.25 + y
        z = y[1:] - y[:-1]
        y[1:] += z
        if turn % 6 == 2:
            held.append(x)
        if turn % 6 == 5:
            held.append(np.asarray(y))
    return np.asarray(x) + np.asarray(y)


# steps have operands that die and such as are held, in one loop: the other loops have one of both
@pytest.mark.parametrize("way", first(1, ["steps", "relaxed", "held"]))
def test_operands_that_die_give_their_buffers_in_replays(way: str) -> None:
    """Loops whose results take the buffers of dying operands, over and over; where somebody holds
    an operand, its values stay.
    """
    start = np.random.default_rng(5).uniform(1, 100, (140, 140))
    wanted = _relaxed(np, start, 50)
    kept: list[Any] = []
    result = _stepped(np, start, kept)
    for _ in range(3):
        if way == "relaxed":
            np.testing.assert_array_equal(_relaxed(lazyfuse, start, 50), wanted)
        if way != "steps":
            continue
        held: list[Any] = []
        np.testing.assert_array_equal(_stepped(lazyfuse, start, held), result)
        for one, other in zip(held, kept, strict=True):
            np.testing.assert_array_equal(np.asarray(one), other)
    if way != "held":
        return
    d, real = lazyfuse.array(start), start.copy()
    held: list[tuple[Any, Any]] = []
    for k in range(40):
        lazyfuse.minimum(d, d[:, k, None] + d[None, k, :], out=d)
        np.minimum(real, real[:, k, None] + real[None, k, :], out=real)
        if k % 6 == 0:
            held.append((d + 0.0, real.copy()))
        if k % 6 == 3:
            held.append((np.array(d), real.copy()))
    for found, there in held:
        np.testing.assert_array_equal(np.asarray(found), there)


def test_joins_from_two_threads() -> None:
    """Each thread's blocks are its own."""
    x = lazyfuse.array(np.arange(60_000.0))
    wrong: list[int] = []

    def work(number: int) -> None:
        for turn in range(20):
            both = lazyfuse.concatenate([x * number, x + turn])
            real = np.arange(60_000.0)
            wanted = np.concatenate([real * number, real + turn])
            if not np.array_equal(np.asarray(both), wanted):
                wrong.append(turn)

    threads = [threading.Thread(target=work, args=(number,)) for number in (2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_loops_are_flushed_between_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a loop comes round in the middle of a statement, the flush waits for the next one: an
    intermediate result would be stored for nothing.
    """
    wanted: list[int] = []
    compute = evaluate.here.recorded.run

    def counted(nodes: Any, reason: str) -> None:
        wanted.append(len(nodes))
        compute(nodes, reason)

    monkeypatch.setattr(evaluate.here.recorded, "run", counted)
    start = np.random.default_rng(5).uniform(1, 100, (400, 400))
    found = _relaxed(lazyfuse, start, 40)
    np.testing.assert_array_equal(found, _relaxed(np, start, 40))
    assert len(wanted) >= 3
    assert set(wanted) == {1}
