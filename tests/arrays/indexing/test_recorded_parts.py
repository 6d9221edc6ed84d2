"""Parts of blocks whose records come round (native/tape/): Python's nodes, NumPy's values."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse import config
from lazyfuse.arrays import base
from lazyfuse.arrays.ndarray import node_of
from lazyfuse.arrays.storage import Storage
from lazyfuse.codegen.graph.linearize import walk
from lazyfuse.runtime.scheduling import flush
from tests import campaign
from tests.global_state import settle_pending

OPERATORS: list[Callable[[Any, Any], Any]] = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.lt,
    operator.iadd,
    operator.isub,
    operator.imul,
]


@pytest.fixture(autouse=True)
def _recorded() -> Iterator[None]:
    with config.options(eager_below=0, tape_after=1):
        yield


@contextmanager
def in_python() -> Iterator[None]:
    """Parts of blocks are recorded by the Python text: where that is not so already."""
    if not base.COMPILED:
        yield
        return
    with pytest.raises(AttributeError):
        base.NATIVE.bind("storage", int)
    try:
        yield
    finally:
        base.NATIVE.bind("storage", Storage)


def a_key(generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """A basic key; a few of them lead nowhere."""
    parts: list[Any] = []
    for length in shape:
        kind = generator.integers(10)
        start, stop = sorted(generator.integers(-length, length, 2).tolist())
        if kind < 3:
            parts.append(slice(1, -1))
        elif kind < 7:
            parts.append(slice(start, stop, int(generator.choice([1, 1, 2, -1]))))
        elif kind < 8:
            parts.append(int(generator.integers(-length, length + (generator.random() < 0.1))))
        else:
            parts.append(slice(None))
        if generator.random() < 0.15:
            parts.append(None)
    if generator.random() < 0.3:
        at = int(generator.integers(len(parts)))
        parts[at:] = [Ellipsis]
    return tuple(parts) if len(parts) > 1 or generator.random() < 0.5 else parts[0]


def _structure(x: Any) -> Any:
    """All that a plan and a run get to know of what was recorded for an array."""
    nodes, key, held, _, sizes = walk([node_of(x)])
    arguments = [None if each.value is not None else each.arg for each in nodes]
    lines = [each.location[1] if each.location else None for each in nodes]
    dtypes = [(each.op.name, each.shape, each.dtype, each.perm) for each in nodes]
    return key, held, sizes, arguments, lines, dtypes


def _statement(xp: Any, seed: int) -> list[Any]:
    """One random statement on parts of pending or evaluated blocks; the arrays that it leaves."""
    generator = np.random.default_rng(seed)
    shape = [(7, 9), (8, 8), (3, 5, 6), (11,)][seed % 4]
    dtype = ["f8", "i4", "f4"][seed % 3]
    values = generator.integers(-9, 9, (2, *shape)).astype(dtype)
    blocks = [xp.array(values[0]) * 2, xp.array(values[1]) + 1]
    for each in blocks:
        each[:1]  # on a storage from here on
    if seed % 5 == 0:
        np.asarray(blocks[0]).sum()
    first, second = (blocks[at] for at in generator.integers(0, 2, 2))
    keys = [a_key(generator, shape) for _ in range(3)]
    kind = generator.integers(8)
    try:
        if kind < 2:
            function = OPERATORS[generator.integers(len(OPERATORS))]
            blocks.append(function(first[keys[0]], second[keys[1]]))
        elif kind == 2:
            blocks.append(OPERATORS[generator.integers(4)](3, first[keys[0]]))
        elif kind == 3:
            first[keys[0]] = second[keys[1]]
        elif kind == 4:
            first[keys[0]] += second[keys[1]]
        elif kind == 5:
            xp.minimum(first[keys[0]], second[keys[1]], out=first[keys[2]])
        elif kind == 6:
            part = first[keys[0]]
            xp.absolute(part, out=part)
            xp.absolute(part, out=part)
        else:
            part = first[keys[0]][..., None]
            part *= 2
            blocks.append(part[..., 0] - second[keys[1]])
    except (IndexError, ValueError, TypeError) as error:
        blocks.append(str(error))
    return blocks


def recorded_twice(
    statement: Callable[[Any, int], list[Any]], seed: int
) -> tuple[list[Any], list[Any]]:
    """What a random statement leaves when C records it, and when Python does."""
    settle_pending()  # no flush comes in between
    statement(lf, seed)  # loops are known from here on
    found = statement(lf, seed)
    with in_python():
        return found, statement(lf, seed)


@campaign.rounds(240)
def test_the_nodes_are_those_of_the_python_text(seeds: range) -> None:
    for seed in seeds:
        found, expected = recorded_twice(_statement, seed)
        assert len(found) == len(expected)
        for ours, theirs in zip(found, expected, strict=True):
            if isinstance(ours, str) or not isinstance(ours, lf.ndarray) or not ours.shape:
                assert type(ours) is type(theirs)
                continue
            assert _structure(ours) == _structure(theirs), seed


@campaign.rounds(240)
def test_values_orders_and_errors_are_numpys(seeds: range) -> None:
    for seed in seeds:
        expected = _statement(np, seed)
        for _ in range(2):
            found = _statement(lf, seed)
            assert len(found) == len(expected)
            for ours, theirs in zip(found, expected, strict=True):
                if isinstance(theirs, str):
                    assert isinstance(ours, str), seed
                    continue
                real = np.asarray(ours)
                assert (real.dtype, real.shape) == (theirs.dtype, theirs.shape), seed
                assert np.array_equal(real, theirs), seed


def _turns(xp: Any, seed: int, turns: int) -> list[Any]:
    """A loop whose slices, shapes and numbers change from turn to turn."""
    generator = np.random.default_rng(seed)
    side = 24
    u = xp.array(generator.integers(-9, 9, (side, side)).astype(float))
    v = xp.array(generator.integers(-9, 9, (side, side)).astype(float)) + 1.0
    row = u[3]
    for turn in range(turns):
        at = 1 + turn % 5
        centre = u[at:-at, 1:-1]
        around = u[at - 1 : -at - 1, 1:-1] + v[at:-at, :-2] - 3.0 * centre
        centre += around
        u[:, at] = v[at, :]
        xp.minimum(v, v[:, at, None] + u[None, at, :], out=v)
        u[at:, at:] -= v[at:, at, None] * 2.0
        row *= float(turn % 3)
        v[-1] = row
        xp.maximum(u, -64.0, out=u)
        xp.minimum(u, 64.0, out=u)
        xp.maximum(v, -64.0, out=v)
        if turn % 7 == 6:
            v[0] = u[at].max()
    return [u, v, row]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("eager_below", [0, 30, 200])
def test_loops_over_changing_parts(
    seed: int, eager_below: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flush, "WORTH_A_LAUNCH", 1)
    with config.options(eager_below=eager_below):
        for turns in (3, 25, 26):
            for ours, theirs in zip(_turns(lf, seed, turns), _turns(np, seed, turns), strict=True):
                assert np.array_equal(np.asarray(ours), theirs)


def test_a_view_taken_before_an_update_sees_it() -> None:
    x = lf.array(np.arange(30.0).reshape(5, 6)) + 0.0
    part = x[1:3, 2:5]
    x[...] += 1.0
    part *= 2.0
    x[2] = part[0, 0] * x[4]
    real = np.arange(30.0).reshape(5, 6)
    view = real[1:3, 2:5]
    real += 1.0
    view *= 2.0
    real[2] = view[0, 0] * real[4]
    assert np.array_equal(np.asarray(x), real)
    assert np.array_equal(np.asarray(part), view)
    assert part.base is x


def test_arrays_that_may_not_be_written() -> None:
    x = lf.array(np.arange(30.0).reshape(5, 6)) + 0.0
    part = x[1:]
    wide = lf.broadcast_to(part, (2, 4, 6))
    for change in (
        lambda: operator.iadd(wide, 1.0),
        lambda: operator.setitem(wide, (0, 0), part[0]),
        lambda: lf.add(wide, wide, out=wide),
    ):
        with pytest.raises(ValueError, match="read-only"):
            change()
    assert np.array_equal(np.asarray(x), np.arange(30.0).reshape(5, 6))
