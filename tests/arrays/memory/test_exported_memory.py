"""Memory that others see: random statements on it, and writes to it from outside, as in NumPy."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse import config
from tests.global_state import settle_pending

SHAPES = [(40,), (6, 8), (8, 1), (1, 8), (2, 3, 8)]
DTYPES = ["f8", "f8", "f8", "f4", "i8", "i4", "u1", "?", "c16"]
OPERATORS: list[Callable[[Any, Any], Any]] = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.floordiv,
    operator.mod,
    operator.lt,
    operator.eq,
    operator.and_,
    operator.iadd,
    operator.isub,
    operator.imul,
]
ONE: list[Callable[[Any, Any], Any]] = [
    lambda xp, x: -x,
    lambda xp, x: abs(x),
    lambda xp, x: ~x,
    lambda xp, x: xp.sqrt(x),
    lambda xp, x: xp.exp(x),
    lambda xp, x: xp.square(x),
    lambda xp, x: x.sum(),
    lambda xp, x: x.max(),
    lambda xp, x: x.min(axis=0),
    lambda xp, x: x.sum(-1, keepdims=True),
    lambda xp, x: xp.max(x, axis=0),
    lambda xp, x: x.mean(0),
    lambda xp, x: x.copy(),
    lambda xp, x: xp.abs(x),
    lambda xp, x: xp.where(x > 0, x, 1),
]
TWO = ["add", "multiply", "maximum", "less", "arctan2", "power"]
NUMBERS: list[Any] = [2, -1, 0, 0.5, 3.0, True, 1j, 300, np.float32(1.5), np.int64(3)]


class Pair:
    """The same arrays for NumPy and for us, under the same names."""

    def __init__(self, seed: int) -> None:
        self.draw = np.random.default_rng(seed)
        self.theirs: dict[str, Any] = {}
        self.ours: dict[str, Any] = {}
        self.outside: dict[str, tuple[Any, Any]] = {}
        for name in "abcd":
            self.lend(name)

    def lend(self, name: str) -> None:
        """A new array that the caller goes on holding; sometimes a view, or not for long."""
        shape = SHAPES[self.draw.integers(len(SHAPES))]
        values = self.draw.integers(-9, 9, shape).astype(self.draw.choice(DTYPES))
        kind = self.draw.integers(6)
        first, second = values.copy(), values.copy()
        if kind == 0:
            first, second = first.T, second.T
        elif kind == 1 and shape[-1] > 2:
            first, second = first[..., ::2], second[..., ::2]
        elif kind == 2:
            first.flags.writeable = second.flags.writeable = False
        self.theirs[name] = first[...]
        self.ours[name] = lf.asarray(second)
        if kind != 3:
            self.outside[name] = first, second

    def any(self) -> str:
        return str(self.draw.choice(list(self.theirs)))

    def key(self, shape: tuple[int, ...]) -> Any:
        parts: list[Any] = []
        for length in shape[: self.draw.integers(1, len(shape) + 1)]:
            start, stop = sorted(self.draw.integers(0, length + 1, 2).tolist())
            kind = self.draw.integers(5)
            parts.append(slice(start, stop) if kind < 3 else slice(None, None, -1))
            if kind == 4 and length:
                parts[-1] = int(self.draw.integers(-length, length))
        return tuple(parts) if self.draw.integers(3) else parts[0]

    def step(self) -> None:
        """One statement, the same for both; what it raises must be the same, too."""
        kind = int(self.draw.integers(10))
        name, other, to = self.any(), self.any(), str(self.draw.choice(list("efgh")))
        draw = self.draw
        number = NUMBERS[draw.integers(len(NUMBERS))]
        if kind < 3:
            function = OPERATORS[draw.integers(len(OPERATORS))]
            beside, turned = bool(draw.integers(3) == 0), bool(draw.integers(4) == 0)
            self.both(
                to, lambda v, xp: self._binary(function, v, name, other, number, beside, turned)
            )
        elif kind < 5:
            one = ONE[draw.integers(len(ONE))]
            self.both(to, lambda v, xp: one(xp, v[name]))
        elif kind == 5:
            called = TWO[draw.integers(len(TWO))]
            self.both(to, lambda v, xp: getattr(xp, called)(v[name], v[other]))
        elif kind == 6:
            called = TWO[draw.integers(len(TWO) - 1)]  # errors of powers leave anything behind
            self.both("", lambda v, xp: getattr(xp, called)(v[name], v[other], out=v[name]))
        elif kind == 7:
            key = self.key(np.shape(self.theirs[name]))
            self.both(to, lambda v, xp: v[name][key])
        elif kind == 8:
            key = self.key(np.shape(self.theirs[name]))
            beside = bool(draw.integers(2))
            self.both("", lambda v, xp: v[name].__setitem__(key, number if beside else v[other]))
        else:
            self._from_outside()

    @staticmethod
    def _binary(
        function: Any,
        v: dict[str, Any],
        name: str,
        other: str,
        number: Any,
        beside: bool,
        turned: bool,
    ) -> Any:
        first, second = v[name], number if beside else v[other]
        return function(second, first) if turned else function(first, second)

    def _from_outside(self) -> None:
        """Somebody else writes to the memory, or lets go of it."""
        if not self.outside:
            return
        name = str(self.draw.choice(list(self.outside)))
        if self.draw.integers(4) == 0:
            del self.outside[name]
            return
        first, second = self.outside[name]
        if first.flags.writeable:
            first[..., :2] = second[..., :2] = self.draw.integers(9)

    def both(self, to: str, run: Callable[[dict[str, Any], Any], Any]) -> None:
        results = []
        for values, xp in ((self.theirs, np), (self.ours, lf)):
            try:
                results.append(run(values, xp))
            except (TypeError, ValueError, IndexError, OverflowError, ZeroDivisionError) as error:
                results.append(type(error))
        first, second = results
        if isinstance(first, type):
            assert first is second, (first, second)
        elif to:
            assert np.shape(first) == np.shape(second)
            self.theirs[to], self.ours[to] = first, second
            if not np.shape(first):  # numbers are others' business
                del self.theirs[to], self.ours[to]

    def compare(self) -> None:
        for name, value in self.theirs.items():
            found = np.asarray(self.ours[name])
            assert found.dtype == value.dtype, name
            np.testing.assert_allclose(found, value, rtol=1e-12 if value.dtype != "f4" else 1e-5)
            if value.dtype.kind in "biu":
                np.testing.assert_array_equal(found, value)


@pytest.mark.parametrize("eager_below", [4, 20, 0])
@pytest.mark.parametrize("seed", range(25))
def test_random_statements(seed: int, eager_below: int) -> None:
    with config.options(eager_below=eager_below), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pair = Pair(seed)
        for step in range(60):
            pair.step()
            if step % 15 == 14:
                pair.compare()
        pair.compare()
        settle_pending()
