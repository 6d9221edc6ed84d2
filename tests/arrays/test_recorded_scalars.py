"""Reductions, scalars and unary operators recorded in C: Python's nodes, NumPy's values."""

from __future__ import annotations

import operator
import warnings
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse.arrays import operators
from lazyfuse.arrays.ndarray import node_of
from lazyfuse.arrays.operators import SPECS
from lazyfuse.codegen.graph.node import Node
from lazyfuse.functions import reductions
from tests import campaign
from tests.global_state import recording_all_settled

DTYPES = ("f8", "f4", "i8", "i4", "u1", "?", "c16")
REDUCTIONS = ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin")
ONE: dict[str, Callable[[Any], Any]] = {
    "negative": operator.neg,
    "positive": operator.pos,
    "absolute": abs,
    "invert": operator.invert,
}
TWO: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "floor_divide": operator.floordiv,
    "less": operator.lt,
    "equal": operator.eq,
}


@pytest.fixture(autouse=True)
def _recorded() -> Iterator[None]:
    with recording_all_settled():
        yield


def _facts(node: Node) -> Any:
    where = node.location
    name = getattr(where, "name", None)
    known = [(each.op.name, each.shape, each.dtype, each.perm) for each in node.src]
    what = node.op.name, node.arg, node.shape, node.dtype, node.perm
    return what, known, type(where), name


def _array(generator: np.random.Generator, xp: Any, dtype: str) -> Any:
    shape = [(7, 9), (3, 4, 5), (11,), (1, 6)][generator.integers(4)]
    values = generator.integers(0, 5, shape).astype(dtype)
    x = xp.array(values) | xp.array(values) if dtype == "?" else xp.array(values) + values[:1]
    if generator.random() < 0.4:
        x = x[..., 1:]
    return x


def _expected(function: Callable[..., Any], *values: Any) -> Any:
    """NumPy's result, in silence; the type of its error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(*values)
        except TypeError:
            return TypeError


def _same(ours: Any, theirs: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = np.asarray(ours)
    assert (found.dtype, found.shape) == (theirs.dtype, theirs.shape)
    assert np.array_equal(found, theirs, equal_nan=True)


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_reductions(name: str, dtype: str) -> None:
    generator = np.random.default_rng(zlib.crc32(f"{name} {dtype}".encode()))
    for seed in range(6):
        axis = [None, 0, -1, 1, (0, 1)][generator.integers(5)]
        named = {} if axis is None else {"axis": axis}
        if generator.random() < 0.4:
            named["keepdims"] = True
        x, real = (_array(np.random.default_rng(seed), xp, dtype) for xp in (lf, np))
        for _ in range(3):
            try:
                expected = getattr(real, name)(**named)
            except (TypeError, ValueError, IndexError) as error:
                with pytest.raises(type(error)):
                    getattr(x, name)(**named)
                break
            found = getattr(x, name)(**named)
            theirs = getattr(reductions, name)(x, **named)
            function = getattr(lf, name)(x, **named)
            assert type(found) is type(theirs) is type(function)
            if hasattr(type(found), "_node"):
                assert _facts(node_of(found)) == _facts(node_of(theirs))
                assert _facts(node_of(found)) == _facts(node_of(function))
            _same(found, np.asarray(expected))


@pytest.mark.parametrize("dtype", DTYPES)
def test_operators_of_one_operand(dtype: str) -> None:
    for seed in range(4):
        x, real = (_array(np.random.default_rng(seed), xp, dtype) for xp in (lf, np))
        for name, function in ONE.items():
            for scalar in (False, True):
                for _ in range(2):
                    operand, value = (x.max(), real.max()) if scalar else (x, real)
                    expected = _expected(function, value)
                    if expected is TypeError:
                        with pytest.raises(TypeError):
                            function(operand)
                        continue
                    if scalar and operators.is_of_scalars(SPECS[name].op, operand.dtype):
                        with np.errstate(over="ignore"):
                            assert function(operand) == expected  # NumPy's at once
                        continue
                    found = function(operand)
                    theirs = operators.unary(SPECS[name], operand)
                    assert type(found) is type(theirs)
                    assert _facts(node_of(found)) == _facts(node_of(theirs))
                    _same(found, np.asarray(expected))
        squares = x**2, operators.power(SPECS["power"], x, 2)
        assert _facts(node_of(squares[0])) == _facts(node_of(squares[1]))
        _same(squares[0], real**2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("other", ["f8", "i4", "number", "whole"])
def test_operators_of_two_scalars(dtype: str, other: str) -> None:
    numbers = {"number": 1.5, "whole": 3}
    for seed in campaign.drawn(2):
        x, real = (_array(np.random.default_rng(seed), xp, dtype) for xp in (lf, np))
        y = beside = None
        if other not in numbers:
            y, beside = (_array(np.random.default_rng(seed + 1), xp, other) for xp in (lf, np))
        for name, function in TWO.items():
            for swapped in (False, True)[: 1 if SPECS[name].compares else 2]:
                for _ in range(2):
                    pair = x.max(), y.max() if y is not None else numbers[other]
                    values = real.max(), beside.max() if beside is not None else numbers[other]
                    if swapped:
                        values = values[::-1]
                    expected = _expected(function, *values)
                    if expected is TypeError:
                        continue
                    found = function(*pair[::-1]) if swapped else function(*pair)
                    theirs = operators.binary(SPECS[name], *pair, swapped)
                    assert type(found) is type(theirs)
                    if not hasattr(type(found), "_node"):
                        continue
                    ours, other_node = node_of(found), node_of(theirs)
                    if ours.op.kind != "host":
                        assert _facts(ours) == _facts(other_node)
                    _same(found, np.asarray(expected))


def test_functions_of_scalars() -> None:
    for function, name in ((lf.sqrt, "sqrt"), (lf.exp, "exp"), (lf.absolute, "absolute")):
        real = getattr(np, name)
        for scale in (1.0, 4.0):
            for _ in range(3):
                x = lf.array(np.arange(20.0)) * scale
                scalar = x.max()
                found, theirs = function(scalar), function._general(scalar)
                assert _facts(node_of(found)) == _facts(node_of(theirs))
                assert float(found) == real(19.0 * scale)
    for _ in range(3):
        scalar = (lf.array(np.arange(20.0)) * 2.0).max()
        other = (lf.array(np.arange(20.0)) * 3.0).sum()
        for pair in ((scalar, other), (3.0, scalar), (scalar, 3.0)):
            found, theirs = lf.maximum(*pair), lf.maximum._general(*pair)
            assert _facts(node_of(found)) == _facts(node_of(theirs))
        assert float(lf.maximum(scalar, other)) == 570.0


def test_scalars_tell_conditions_by_their_name() -> None:
    for _ in range(3):
        x = lf.array(np.arange(20.0)) * 1.0
        with pytest.warns(RuntimeWarning, match="divide by zero encountered in scalar divide"):
            assert float(x.max() / x.min()) == np.inf
    for _ in range(3):
        x = lf.array(np.full(20, 127, np.int8)) * np.int8(1)
        with pytest.warns(RuntimeWarning, match="overflow encountered in scalar add"):
            assert int(x.max() + x.max()) == -2
    for _ in range(3):
        with lf.errstate(divide="ignore"):
            x = lf.array(np.arange(20.0)) * 1.0
            found = x.max() / x.min()
        assert float(found) == np.inf


def test_shapes_that_change() -> None:
    values = np.arange(400.0).reshape(20, 20)
    for turn in range(60):
        x = lf.array(values) * 2.0
        part = x[turn % 7 :, : 3 + turn % 11]
        real = (values * 2.0)[turn % 7 :, : 3 + turn % 11]
        _same(part.sum(axis=turn % 2), real.sum(axis=turn % 2))
        _same(part.max(), real.max())
        _same(-part, -real)
