"""Views, writes and copies: random programs run in NumPy and in lazyfuse, compared to the bit.

A program makes arrays, views them in every way, writes through the views, hands memory out and
takes memory in, and evaluates now and then.
"""

from __future__ import annotations

import contextlib
import gc
import operator
import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from lazyfuse import config
from lazyfuse.arrays.ndarray import export, gather, ndarray, wrap, wrap_shared
from tests import campaign
from tests.helpers.states import recording_all

DTYPES = ("f8", "f8", "f8", "i8", "f4", "c16", "u1", "?")
BINARY = (operator.add, operator.sub, operator.mul, operator.lt, operator.eq, operator.and_)
INPLACE = (operator.iadd, operator.isub, operator.imul, operator.ior, operator.itruediv)
LIMIT = 1e5  # beyond it programs stop calculating: conversions of huge floats are undefined


class Failure(Exception):
    """Both sides raised the same error."""


def attempt(function: Callable[[], Any]) -> tuple[Any, Exception | None]:
    """What a call returns, or the error that it raises."""
    try:
        return function(), None
    except Exception as error:
        return None, error


class Program:
    """One random program: pairs of a NumPy array and the array of ours that must equal it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.pairs: list[tuple[Any, Any]] = []
        self.outside: list[tuple[Any, Any]] = []  # real memory on both sides, written by outsiders
        self.log: list[str] = [f"seed {seed}"]

    # ---------------------------------------------------------------------------- choices

    def pick(self) -> tuple[Any, Any]:
        return self.random.choice(self.pairs)

    def writable(self) -> tuple[Any, Any]:
        return self.pick()

    def shape(self) -> tuple[int, ...]:
        return tuple(
            self.random.choice((1, 2, 3, 3, 4, 6, 0) if self.random.random() < 0.3 else (2, 3, 4))
            for _ in range(self.random.choice((0, 1, 1, 2, 2, 2, 3)))
        )

    def values(self, shape: tuple[int, ...], dtype: str) -> Any:
        size = int(np.prod(shape, dtype=int))
        numbers = [self.random.randrange(0, 9) for _ in range(size)]
        return np.array(numbers).astype(dtype).reshape(shape)

    def basic_key(self, shape: tuple[int, ...]) -> Any:
        rng = self.random
        parts: list[Any] = []
        for length in shape[: rng.randrange(len(shape) + 1) if rng.random() < 0.4 else None]:
            chance = rng.random()
            if chance < 0.25 and length:
                parts.append(rng.randrange(-length, length))
            elif chance < 0.9:
                ends = [None, *range(-length - 1, length + 2)]
                step = rng.choice((None, 1, -1, 2, -2))
                parts.append(slice(rng.choice(ends), rng.choice(ends), step))
            else:
                parts.extend((None, slice(None)))
        if rng.random() < 0.15:
            parts.insert(rng.randrange(len(parts) + 1), ...)
        if rng.random() < 0.02:
            parts.append(rng.choice((99, "x", 1.5)))
        if len(parts) == 1 and rng.random() < 0.7:
            return parts[0]
        return tuple(parts)

    def fancy_key(self, shape: tuple[int, ...]) -> Any:
        rng = self.random
        if rng.random() < 0.5 or not shape or not shape[0]:
            rank = rng.randrange(len(shape) + 1)
            return self.values(shape[:rank], "i8") > 4
        count = rng.randrange(4)
        return np.array([rng.randrange(-shape[0], shape[0]) for _ in range(count)], "i8")

    def both_keys(self, shape: tuple[int, ...]) -> tuple[Any, Any]:
        if self.random.random() < 0.75:
            key = self.basic_key(shape)
            return key, key
        key = self.fancy_key(shape)
        return key, wrap(key.copy()) if self.random.random() < 0.5 else key

    def operand(self, like: tuple[int, ...]) -> tuple[Any, Any]:
        """A number, an array that exists, a new array that broadcasts, or a NumPy scalar."""
        rng = self.random
        chance = rng.random()
        if chance < 0.3:
            number = rng.choice((0, 1, 2, 3, 1.5, -1, True, np.float64(2.5), np.int64(3)))
            return number, number
        if chance < 0.7:
            return self.pick()
        cut = like[rng.randrange(len(like) + 1) :]
        shape = tuple(1 if rng.random() < 0.2 else length for length in cut)
        value = self.values(shape, rng.choice(DTYPES))
        if chance < 0.8:
            return value, value.copy()
        return value, wrap(value.copy())

    # -------------------------------------------------------------------------- operations

    def run(self, name: str, theirs: Callable[[], Any], ours: Callable[[], Any]) -> tuple[Any, Any]:
        """Do it on both sides; the same result or the same error."""
        self.log.append(name)
        wanted, refused = attempt(theirs)
        found, error = attempt(ours)
        if error is not None and refused is None:
            raise error
        assert type(error) is type(refused), (error, refused)
        assert str(error) == str(refused), (str(error), str(refused))
        if refused is not None:
            raise Failure
        return wanted, found

    def keep(self, pair: tuple[Any, Any]) -> None:
        wanted, found = pair
        if isinstance(wanted, np.ndarray):
            assert isinstance(found, ndarray), type(found)
        self.pairs.append((wanted, found))
        if len(self.pairs) > 9:
            del self.pairs[self.random.randrange(len(self.pairs))]

    def make(self) -> None:
        value = self.values(self.shape(), self.random.choice(DTYPES))
        if self.random.random() < 0.3:
            value = np.asfortranarray(value)
        self.log.append(f"make {value.dtype}{value.shape}")
        self.keep((value, wrap(value.copy(order="K"))))

    def take_in(self) -> None:
        """Somebody else's memory, seen through one of our arrays."""
        value = self.values(self.shape(), self.random.choice(DTYPES))
        twin = value.copy()
        key = self.basic_key(value.shape) if self.random.random() < 0.5 else ...
        try:
            part, twin_part = value[key], twin[key]
        except IndexError:
            return
        if not isinstance(part, np.ndarray):
            return
        self.log.append(f"take in {value.dtype}{value.shape}[{key}]")
        self.keep((part, wrap_shared(twin_part)))
        if self.random.random() < 0.7:
            self.outside.append((value, twin))

    def hand_out(self) -> None:
        """Memory of ours, seen by somebody else."""
        wanted, found = self.array()
        self.log.append("export")
        self.outside.append((wanted, export(found)))
        if self.random.random() < 0.5:
            self.keep((wanted[...], wrap_shared(self.outside[-1][1])))

    def write_outside(self) -> None:
        if not self.outside:
            return
        wanted, found = self.random.choice(self.outside)
        key = self.basic_key(wanted.shape)
        number = self.random.randrange(9)
        self.log.append(f"outsider writes [{key}] = {number}")
        try:
            wanted[key] = number
        except (IndexError, ValueError):
            return
        found[key] = number

    def forget(self) -> None:
        if self.outside and self.random.random() < 0.5:
            del self.outside[self.random.randrange(len(self.outside))]
        elif len(self.pairs) > 2:
            del self.pairs[self.random.randrange(len(self.pairs))]

    def array(self) -> tuple[Any, Any]:
        while True:
            wanted, found = self.pick()
            if isinstance(wanted, np.ndarray):
                return wanted, found

    def read(self) -> None:
        wanted, found = self.array()
        key, own = self.both_keys(wanted.shape)
        self.keep(self.run(f"read [{key}]", lambda: wanted[key], lambda: found[own]))

    def reshaped(self) -> None:
        wanted, found = self.array()
        rng = self.random
        axes = list(range(wanted.ndim))
        rng.shuffle(axes)
        order = rng.choice("CFAK")
        choice = rng.randrange(10)
        steps: list[tuple[str, Callable[[Any], Any]]] = [
            ("T", lambda x: x.T),
            (f"transpose {axes}", lambda x: x.transpose(axes)),
            ("swapaxes", lambda x: x.swapaxes(0, -1)),
            ("reshape -1", lambda x: x.reshape(-1, order=order if order != "K" else "C")),
            (f"ravel {order}", lambda x: x.ravel(order)),
            ("squeeze", lambda x: x.squeeze()),
            ("diagonal", lambda x: x.diagonal()),
            ("view", lambda x: x.view()),
            ("real", lambda x: x.real),
            (
                f"reshape half {order}",
                lambda x: x.reshape((2, -1), order=order if order != "K" else "C"),
            ),
        ]
        name, step = steps[choice]
        self.keep(self.run(name, lambda: step(wanted), lambda: step(found)))

    def copied(self) -> None:
        wanted, found = self.array()
        rng = self.random
        order = rng.choice("CFAK")
        dtype = rng.choice(DTYPES)
        if rng.random() < 0.5 or not self.is_tame(wanted):
            name, step = f"copy {order}", lambda x: x.copy(order)
        elif rng.random() < 0.3:
            name, step = "flatten", lambda x: x.flatten()
        else:
            name, step = f"astype {dtype}", lambda x: x.astype(dtype, order=order)
        self.keep(self.run(name, lambda: step(wanted), lambda: step(found)))

    def is_tame(self, *values: Any) -> bool:
        return all(bool(np.all(np.abs(np.asarray(v).astype("c16")) < LIMIT)) for v in values)

    def calculate(self) -> None:
        wanted, found = self.pick()
        rng = self.random
        if not self.is_tame(wanted):
            return
        chance = rng.random()
        if chance < 0.2:
            unary = rng.choice((operator.neg, operator.pos, abs, operator.invert))
            self.keep(self.run(unary.__name__, lambda: unary(wanted), lambda: unary(found)))
            return
        if chance < 0.3:
            exponent = rng.choice((2, 2.0, 0.5, -1, 3, np.int64(2)))
            self.keep(self.run(f"** {exponent}", lambda: wanted**exponent, lambda: found**exponent))
            return
        binary = rng.choice(BINARY)
        theirs, ours = self.operand(np.shape(wanted))
        if not self.is_tame(theirs):
            return
        if rng.random() < 0.3 and not isinstance(ours, np.ndarray):
            self.keep(
                self.run(
                    f"r{binary.__name__} {np.shape(wanted)} {np.shape(theirs)}",
                    lambda: binary(theirs, wanted),
                    lambda: binary(ours, found),
                )
            )
            return
        self.keep(
            self.run(
                f"{binary.__name__} {np.shape(wanted)} {np.shape(theirs)}",
                lambda: binary(wanted, theirs),
                lambda: binary(found, ours),
            )
        )

    def write(self) -> None:
        wanted, found = self.array()
        key, own = self.both_keys(wanted.shape)
        theirs, ours = self.operand(wanted.shape)
        if not self.is_tame(theirs):
            return
        self.run(
            f"write {wanted.shape}[{key}] = {np.shape(theirs)}",
            lambda: operator.setitem(wanted, key, theirs),
            lambda: operator.setitem(found, own, ours),
        )

    def write_condition(self) -> None:
        wanted, found = self.array()
        number = self.random.randrange(9)
        if wanted.dtype.kind == "c":
            return
        self.run(
            f"write where > {number}",
            lambda: operator.setitem(wanted, wanted > number, number),
            lambda: operator.setitem(found, found > number, number),
        )

    def shift(self) -> None:
        wanted, found = self.array()
        if wanted.ndim and wanted.shape[0] > 1:

            def step(x: Any) -> None:
                x[1:] = x[:-1]

            self.run("shift", lambda: step(wanted), lambda: step(found))

    def swap(self) -> None:
        wanted, found = self.array()
        if wanted.ndim and wanted.shape[0] > 1:

            def step(x: Any) -> None:
                x[0], x[1] = x[1], x[0]

            self.run("swap", lambda: step(wanted), lambda: step(found))

    def change(self) -> None:
        wanted, found = self.array()
        if not self.is_tame(wanted):
            return
        rng = self.random
        change = rng.choice(INPLACE)
        theirs, ours = self.operand(wanted.shape)
        if not self.is_tame(theirs):
            return
        if rng.random() < 0.1:
            change, theirs, ours = operator.ipow, 2, 2
        name = f"{change.__name__} {wanted.dtype}{wanted.shape} {np.shape(theirs)}"
        if rng.random() < 0.5:
            pair = self.run(name, lambda: change(wanted, theirs), lambda: change(found, ours))
            assert pair[1] is found
            return
        key = self.basic_key(wanted.shape)

        def step(x: Any, value: Any) -> None:
            x[key] = change(x[key], value)

        self.run(f"[{key}] {name}", lambda: step(wanted, theirs), lambda: step(found, ours))

    def look(self) -> None:
        wanted, found = self.pick()
        self.log.append("look")
        check(wanted, found)

    STEPS = (
        (make, 2), (take_in, 1), (hand_out, 1), (write_outside, 2), (forget, 1), (read, 5),
        (reshaped, 4), (copied, 2), (calculate, 5), (write, 5), (write_condition, 1), (shift, 1),
        (swap, 1), (change, 5), (look, 1),
    )  # fmt: skip

    def play(self) -> None:
        steps = [step for step, weight in self.STEPS for _ in range(weight)]
        self.make()
        self.make()
        for _ in range(self.random.randrange(3, 25)):
            with contextlib.suppress(Failure):
                self.random.choice(steps)(self)
            if not any(isinstance(wanted, np.ndarray) for wanted, _ in self.pairs):
                self.make()
        for wanted, found in self.random.sample(self.pairs, len(self.pairs)):
            check(wanted, found)
        for wanted, found in self.outside:
            np.testing.assert_array_equal(found, wanted)


def check(wanted: Any, found: Any) -> None:
    """The same value, type, dtype, shape and (where it shows) memory order."""
    if not isinstance(wanted, np.ndarray):
        assert isinstance(found, type(wanted)), (type(found), type(wanted))
        same(np.asarray(wanted), gather(found) if isinstance(found, ndarray) else np.asarray(found))
        return
    assert isinstance(found, ndarray)
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    if wanted.size:
        same_strides(wanted, found)
        assert found.flags.writeable == wanted.flags.writeable
    same(wanted, gather(found))
    if wanted.size:
        same_strides(wanted, found)


def same_strides(wanted: Any, found: Any) -> None:
    """The same memory order; strides of axes of length one say nothing."""
    shown = [pair for pair in zip(wanted.shape, wanted.strides, strict=True) if pair[0] > 1]
    assert [pair for pair in zip(found.shape, found.strides, strict=True) if pair[0] > 1] == shown


def same(wanted: Any, found: Any) -> None:
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


def play(seed: int, eager_below: int) -> None:
    """Run one program; a failure tells the program."""
    program = Program(seed)
    before = config.options.eager_below
    config.options(eager_below=eager_below)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program.play()
    except Exception as error:
        error.add_note("\n".join(program.log[-30:]))
        raise
    finally:
        config.options(eager_below=before)


@pytest.fixture(autouse=True)
def tidy() -> Iterator[None]:
    yield
    gc.collect()


@campaign.rounds(70)
@pytest.mark.parametrize("eager_below", [0, 3, 10, 16384])
def test_random_programs(eager_below: int, seeds: range) -> None:
    """Every array of every program equals NumPy's."""
    for seed in seeds:
        play(seed, eager_below)


@pytest.mark.smoke
def test_the_memory_order_of_a_leaf_is_part_of_its_plan() -> None:
    """The same recording over arrays in C and in Fortran order."""
    value = np.arange(12.0).reshape(3, 4)
    with recording_all():
        for order in ("C", "F", "C"):
            x = wrap(np.array(value, order=order))
            part = x.reshape(-1, order=order)[2:9] * 2
            same(value.reshape(-1, order=order)[2:9] * 2, gather(part))
