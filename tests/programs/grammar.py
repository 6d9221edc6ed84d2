"""Random programs: statements chosen by what the variables of the NumPy world hold so far.

`Grammar(seed, sizes, inexact).program()` writes one. Exact programs hold only operations whose bits
are promised; inexact ones keep all values between about 0.5 and 2 and use the other functions. In
`wrong` ones a third of the statements fails (`wrong_phrases.py`).
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.programs import phrases, tame_phrases, wrong_phrases
from tests.programs.compare import Program, Statement, attempt, world

Array = np.ndarray[Any, np.dtype[Any]]
DTYPES = "? i1 u1 i2 u2 i4 u4 i8 u8 f2 f4 f8 c8 c16".split()
COMMON = "? i4 i8 u1 f4 f8 f8 f8 c16".split()
NAMES = "abcdefgh"
MOST_ELEMENTS = 60_000


@dataclass(frozen=True)
class Sizes:
    """The lengths that a program's shapes are made of, and how many axes they may have."""

    lengths: Sequence[int]
    ranks: Sequence[int] = (0, 1, 1, 2, 2, 2, 3)
    vectors: Sequence[int] = ()  # lengths for arrays of one axis


SMALL = Sizes((0, 1, 1, 2, 3, 4, 5, 5, 7, 7, 8, 9), vectors=(1, 5, 9, 40, 130, 1000))
MIDDLE = Sizes((1, 1, 6, 7, 9, 12), vectors=(1, 9, 80, 400))
LARGE = Sizes((1, 130, 131, 150), ranks=(1, 2, 2, 2), vectors=(1, 16400, 20000, 33000))


class Grammar:
    """One random program in the making."""

    def __init__(
        self,
        seed: int,
        sizes: Sizes,
        inexact: bool = False,
        rng: random.Random | None = None,
        wrong: bool = False,
    ) -> None:
        self.rng = rng or random.Random(seed)
        self.seed = seed
        self.inexact = inexact
        self.wrong = wrong  # whether a third of the statements is to fail
        self.sizes = sizes
        count = self.rng.choice((1, 2, 2, 3))
        dtypes = DTYPES if self.rng.random() < 0.5 else COMMON
        if inexact:
            dtypes = ["f4", "f8", "f8", "c16", "c8"]
        self.dtypes = [self.rng.choice(dtypes) for _ in range(count)]
        lengths = [self.rng.choice(sizes.lengths) for _ in range(2)]
        self.lengths = [*lengths, 1] if self.rng.random() < 0.5 else lengths
        self.vector = self.rng.choice(sizes.vectors or self.lengths)
        self.shapes = [self.shape() for _ in range(3)]
        self.names: dict[str, Any] = {}

    # -- inputs ---------------------------------------------------------------------------------

    def shape(self) -> tuple[int, ...]:
        rank = self.rng.choice(self.sizes.ranks)
        if rank == 1 and self.rng.random() < 0.5:
            return (self.vector,)
        return tuple(self.rng.choice(self.lengths) for _ in range(rank))

    def inputs(self) -> dict[str, Any]:
        """The program's real arrays, the same at each call, and what its statements call."""
        rng = np.random.default_rng(self.seed)
        return (wrong_phrases.tools() if self.wrong else {}) | {
            f"R{position}": values(rng, shape, self.dtypes[position % len(self.dtypes)], tame)
            for position, (shape, tame) in enumerate(
                zip(self.shapes, [self.inexact] * 3, strict=True)
            )
        }

    # -- choosing -------------------------------------------------------------------------------

    def arrays(self, wanted: Callable[[Any], bool] = lambda x: True) -> list[str]:
        found = []
        for name in NAMES:
            value = self.names.get(name)
            if isinstance(value, (np.ndarray, np.generic)) and wanted(value):
                found.append(name)
        return found

    def pick(self, wanted: Callable[[Any], bool] = lambda x: True) -> str | None:
        """A variable that holds an array or scalar, recent ones more often."""
        found = self.arrays(wanted)
        return self.rng.choice(found) if found else None

    def free(self) -> str:
        """A name for a new value."""
        unused = [name for name in NAMES if name not in self.names]
        return self.rng.choice(unused[:1] or NAMES)

    def value(self, text: str) -> Array:
        """What an expression is, as an array; 0 if it fails."""
        try:
            return np.asarray(eval(text, self.names))
        except Exception:
            return np.asarray(0)

    def fits(self, *texts: str) -> bool:
        """Whether these operands broadcast to something that is not too big (or not at all)."""
        shapes = [self.value(text).shape for text in texts]
        try:
            return int(np.prod(np.broadcast_shapes(*shapes))) <= MOST_ELEMENTS
        except ValueError:
            return True

    def tolerance(self) -> float:
        """The error that is allowed, relative to the largest value; 0: none."""
        if not self.inexact:
            return 0.0
        return 4000 * float(np.finfo("f4" if {"f4", "c8"} & {*self.dtypes} else "f8").eps)

    # -- writing --------------------------------------------------------------------------------

    def program(self, length: int | None = None) -> Program:
        """Write a program; it runs in the NumPy world meanwhile, so that choices make sense."""
        program = Program(self.inputs, tolerance=self.tolerance())
        self.names = world(np, self.inputs())
        count = length or self.rng.randint(4, 20)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for position in range(count):
                text, target = self.sentence(position)
                look = self.rng.random() < 0.15
                attempt(text, self.names)
                program.statements.append(Statement(text, target, look))
        return program

    def sentence(self, position: int) -> tuple[str, str]:
        """One statement and the name that it sets."""
        if position < 2:
            return phrases.creation(self)
        table = tame_phrases.INEXACT if self.inexact else phrases.EXACT
        if self.wrong:
            table = wrong_phrases.among(table)
        weights = [weight for _, weight in table]
        for _ in range(20):
            phrase = self.rng.choices(table, weights)[0][0]
            found = phrase(self)
            if found is not None:
                return found
        return phrases.creation(self)


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, tame: bool) -> Array:
    """Random values of a dtype: small numbers for the most part, with some odd ones."""
    kind = np.dtype(dtype)
    if tame:
        found = rng.uniform(0.6, 1.8, shape)
        if kind.kind == "c":
            return np.asarray(found + 0.3j * rng.uniform(0.6, 1.8, shape), kind)
        return np.asarray(found, kind)
    if kind.kind == "b":
        return np.asarray(rng.random(shape) < 0.5)
    if kind.kind in "iu":
        low = 0 if kind.kind == "u" else -9
        found = np.asarray(rng.integers(low, 10, shape)).astype(kind)
        limits = np.iinfo(kind)
        odd = rng.choice(np.array([limits.min, limits.max, 0, 1], kind), shape)
        return np.asarray(np.where(rng.random(shape) < 0.05, odd, found), kind)
    found = np.round(rng.normal(0, 3, shape), rng.integers(0, 9))
    odd = rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan, 1e300, 1e-310, 0.5], shape)
    chance = rng.choice([0.0, 0.0, 0.1])
    with np.errstate(all="ignore"):
        plain = np.where(rng.random(shape) < chance, odd, found)
        if kind.kind == "c":
            plain = plain + 1j * rng.permutation(plain.ravel()).reshape(shape)
        return np.asarray(plain).astype(kind)
