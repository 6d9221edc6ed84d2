"""Keys with a list of places that is a progression: recorded as slices, as NumPy has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse.arrays import index_keys, indexing
from lazyfuse.arrays.ndarray import node_of
from lazyfuse.codegen.graph.linearize import walk
from lazyfuse.runtime.scheduling import evaluate
from tests.global_state import recording_all_settled

SHAPES = [(5,), (4, 6), (3, 4, 5), (2, 3, 4, 3), (1, 5), (3, 1, 4)]


@pytest.fixture(autouse=True)
def _recorded() -> Iterator[None]:
    with recording_all_settled():
        yield


def _places(generator: np.random.Generator, length: int) -> list[int]:
    count = int(generator.integers(1, 4))
    kind = generator.integers(4)
    if kind == 0:
        return [0, -1]
    if kind == 1:
        return [int(generator.integers(-length, length))]
    if kind == 2:
        step, first = int(generator.choice([-2, -1, 1, 2, 3])), int(generator.integers(0, length))
        return [first + step * at for at in range(count)]
    low = -length - (generator.random() < 0.05)
    return [int(generator.integers(low, length)) for _ in range(count)]


def a_key(generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """A key with one list; some lists are no progressions, some places are not there."""
    parts: list[Any] = []
    own = generator.integers(len(shape))
    for axis, length in enumerate(shape):
        kind = generator.integers(5)
        if axis == own:
            parts.append(_places(generator, length))
        elif kind == 0:
            parts.append(int(generator.integers(-length, length)))
        elif kind < 3:
            parts.append(slice(None))
        else:
            first, last = sorted(generator.integers(0, length + 1, 2).tolist())
            parts.append(slice(first, last, int(generator.choice([1, 1, 2]))))
        if generator.random() < 0.1:
            parts.append(None)
    if generator.random() < 0.2:
        at = int(generator.integers(len(parts) + 1))
        parts[at : at + int(generator.integers(0, 2))] = [...]
    return parts[0] if len(parts) == 1 and generator.random() < 0.5 else tuple(parts)


def _program(xp: Any, seed: int) -> list[Any]:
    """One statement with such a key; the arrays that it leaves, or the error."""
    generator = np.random.default_rng(seed)
    shape = SHAPES[generator.integers(len(SHAPES))]
    dtype = np.dtype(["f8", "i4", "f4", "c16", "u1"][seed % 5])
    x = xp.array(generator.integers(0, 9, shape).astype(dtype)) + dtype.type(1)
    if generator.random() < 0.2:
        x = x.T
    if generator.random() < 0.3:
        x = x[:]
    if generator.random() < 0.2:
        np.asarray(x + 1)
    key, kind = a_key(generator, tuple(x.shape)), generator.integers(5)
    try:
        if kind < 2:
            return [x, x[key]]
        if kind == 2:
            x[key] *= 2
        elif kind == 3:
            x[key] = 3
        else:
            value = x[key] + dtype.type(1)
            x[key] = value[..., :1] if generator.random() < 0.5 and value.ndim else value
    except (IndexError, ValueError, TypeError) as error:
        return [x, (type(error), str(error))]
    return [x]


@pytest.mark.parametrize("part", range(10))
def test_values_orders_and_errors_are_numpys(part: int) -> None:
    for seed in range(part * 100, part * 100 + 100):
        found, expected = _program(lf, seed), _program(np, seed)
        assert len(found) == len(expected)
        for at, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
            if isinstance(theirs, tuple):
                assert ours == theirs, seed
                continue
            real = np.asarray(ours)
            assert (real.dtype, real.shape) == (theirs.dtype, theirs.shape), seed
            assert np.array_equal(real, theirs), seed
            long = np.array(theirs.shape) > 1
            if at and theirs.size:
                strides = np.array(real.strides)[long], np.array(theirs.strides)[long]
                assert np.array_equal(*strides), seed


def _facts(node: Any) -> Any:
    nodes, key, held, _, sizes = walk([node])
    return key, held, sizes, [(each.op.name, each.shape, each.dtype, each.perm) for each in nodes]


@pytest.mark.parametrize("part", range(5))
def test_the_nodes_are_those_of_the_python_text(part: int) -> None:
    met = 0
    for seed in range(part * 100, part * 100 + 100):
        generator = np.random.default_rng(seed)
        shape = SHAPES[generator.integers(len(SHAPES))]
        key = a_key(generator, shape)
        x = lf.array(generator.integers(0, 9, shape).astype("f8")) + 1.0
        x[..., :1]  # on a storage from here on
        theirs = index_keys.read(x, key)
        if theirs is None:
            continue
        met += 1
        ours = x[key]
        assert _facts(node_of(ours)) == _facts(node_of(theirs)), seed
        y = lf.array(np.ones(shape)) * 2.0
        z = lf.array(np.ones(shape)) * 2.0
        y[..., :1], z[..., :1]
        value = ours + 1.0
        y[key] = value
        with evaluate.held():
            indexing._write(z, key, value)
        assert _facts(node_of(y)) == _facts(node_of(z)), seed
    assert met > 30


def test_a_pending_block_stays_pending() -> None:
    x = lf.array(np.arange(24.0).reshape(4, 6)) * 2.0
    x[1:]
    edges = x[:, [0, -1]]
    x[[0, -1], 1:] *= -1.0
    assert node_of(x).value is None
    real = np.arange(24.0).reshape(4, 6) * 2.0
    assert np.array_equal(np.asarray(edges), real[:, [0, -1]])
    real[[0, -1], 1:] *= -1.0
    assert np.array_equal(np.asarray(x), real)
