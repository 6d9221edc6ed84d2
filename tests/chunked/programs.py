"""Random programs over arrays in chunks, run with NumPy and with lazyfuse side by side.

A program is text over real arrays `R0`, `R1` ... and a few tools, which differ in the two worlds:
`cut` puts a real array into chunks, `opened` does so over a source of some kind, `keep` persists,
`through` goes to a dask array and back, `computed` lets Dask compute. Sums add chunk by chunk, so
that values are compared up to rounding; dtypes, shapes, exceptions and everything that is no sum
are NumPy's.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy

import lazyfuse
from tests.chunked import phrases, sources
from tests.programs.compare import Difference, Statement, alike, attempt, same, world

NAMES = "abcdefgh"
DTYPES = "f8 f8 f8 f4 i8 i4 u1 i2 ? c16 c8 f2".split()
MOST_ELEMENTS = 3000
TOLERANCE = {  # of programs that meet such a dtype, or one whose sines are of it
    "f2": 2e-2, "u1": 2e-2, "?": 2e-2, "f4": 1e-4, "i2": 1e-4, "c8": 1e-4,
}  # fmt: skip

World = dict[str, Any]
Chunks = tuple[tuple[int, ...], ...]


def host_tools() -> World:
    """The tools in NumPy's world."""
    return {
        "cut": lambda x, chunks: x.copy(),
        "opened": lambda x, kind, chunks: x.copy(),
        "keep": lambda x: x,
        "through": lambda x: numpy.array(x, order="C"),
        "computed": lambda x: numpy.array(x, order="C"),
    }


def chunked_tools(folder: sources.Folder) -> World:
    """The tools in ours."""
    import dask.array

    def cut(x: Any, chunks: Chunks) -> Any:
        return lazyfuse.from_chunks(dask.array.from_array(x.copy(), chunks=chunks))

    return {
        "cut": cut,
        "opened": folder.opened,
        "keep": lazyfuse.persist,
        "through": lambda x: lazyfuse.from_chunks(lazyfuse.asarray(x).to_dask()),
        "computed": lambda x: lazyfuse.array(lazyfuse.asarray(x).to_dask().compute(), order="C"),
    }


@dataclass
class Program:
    """Statements over real arrays that a seed makes anew for each run."""

    seed: int
    inputs: Callable[[], World]
    dtypes: list[str]
    statements: list[Statement] = field(default_factory=list)

    def __str__(self) -> str:
        text = " ".join([each.text for each in self.statements])
        inputs = {name: each for name, each in self.inputs().items() if name in text}
        shown = [f"{name} = {value!r}" for name, value in inputs.items()]
        looks = [each.text + ("  # look" if each.look else "") for each in self.statements]
        return "\n".join(["", f"# seed {self.seed}", *shown, *looks])


class Pair:
    """One program under way in both worlds."""

    def __init__(self, program: Program) -> None:
        text = str(program.statements)
        self.tolerance = max(
            each if kind in program.dtypes or f"'{kind}'" in text else 1e-8
            for kind, each in TOLERANCE.items()
        )
        self.plain = world(numpy, host_tools() | program.inputs())
        self.folder = sources.Folder()
        self.lazy = world(lazyfuse, chunked_tools(self.folder) | program.inputs())

    def step(self, statement: Statement) -> None:
        """Run one statement in both worlds and compare what can be seen."""
        want = attempt(statement.text, self.plain)
        got = attempt(statement.text, self.lazy)
        if want != got and not alike(want, got):
            raise Difference(f"{statement.text}: NumPy {want or 'runs'}, lazyfuse {got or 'runs'}")
        if want is None and statement.target in self.plain:
            self.check(statement.target, statement.look)

    def check(self, name: str, values: bool) -> None:
        """Compare one name; its values only if asked, since that evaluates them."""
        want, got = self.plain[name], self.lazy[name]
        try:
            _compare(name, want, got, self.tolerance if values else -1.0)
        except Difference:
            raise
        except Exception as error:
            raise Difference(
                f"{name}: reading it raises {type(error).__name__}: {error}"
            ) from error

    def finish(self, order: random.Random) -> None:
        """Compare everything that is left, in some order."""
        names, ours = [
            sorted(name for name in names if name in NAMES or name[0] == "R")
            for names in (self.plain, self.lazy)
        ]
        if names != ours:
            raise Difference(f"names {names}, ours {ours}")
        order.shuffle(names)
        for name in names:
            self.check(name, True)


def _compare(name: str, want: Any, got: Any, tolerance: float) -> None:
    """Values up to a tolerance, of floats alone; below 0 what is known without them."""
    if isinstance(want, (tuple, list)):
        if type(want) is not type(got) or len(want) != len(got):
            raise Difference(f"{name}: expected {want!r}, got {got!r}")
        for at, (first, second) in enumerate(zip(want, got, strict=True)):
            _compare(f"{name}[{at}]", first, second, tolerance)
        return
    want = numpy.asarray(want)
    got = got if isinstance(got, lazyfuse.ndarray) else numpy.asarray(got)
    if want.dtype != got.dtype or want.shape != got.shape:
        raise Difference(f"{name}: {want.dtype}{want.shape}, got {got.dtype}{got.shape}")
    if tolerance >= 0:
        same(name, want, numpy.asarray(got), tolerance)


def run(program: Program) -> None:
    """Run a whole program in both worlds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pair = Pair(program)
        try:
            for statement in program.statements:
                pair.step(statement)
            pair.finish(random.Random(program.seed))
        finally:
            pair.folder.clear()


class Grammar:
    """One random program in the making; `names` are NumPy's."""

    def __init__(
        self, seed: int, longest: int = 9, said: Sequence[phrases.Phrase] = phrases.ALL
    ) -> None:
        self.said = said
        self.rng = random.Random(seed)
        self.seed = seed
        self.longest = longest
        rank = self.rng.choice([1, 1, 2, 2, 2, 3])
        shape = tuple(self.rng.randint(1, 12 if rank < 3 else 6) for _ in range(rank))
        self.shapes = [shape, shape, shape[self.rng.randrange(rank) :]]
        self.dtypes = [self.rng.choice(DTYPES) for _ in self.shapes]
        self.names: World = {}

    def inputs(self) -> World:
        """The program's real arrays, the same at each call."""
        rng = numpy.random.default_rng(self.seed)
        shaped = zip(self.shapes, self.dtypes, strict=True)
        return {f"R{at}": values(rng, *each) for at, each in enumerate(shaped)}

    def program(self) -> Program:
        """Write the program."""
        self.names = world(numpy, host_tools() | self.inputs())
        found = Program(self.seed, self.inputs, self.dtypes)
        for at, name in enumerate(NAMES[: len(self.shapes)]):
            self.write(found, f"{name} = {self.made(at)}", name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(self.rng.randint(1, self.longest)):
                text, target = self.rng.choice(self.said)(self)
                if text:
                    self.write(found, text, target)
        return found

    def write(self, program: Program, text: str, target: str) -> None:
        """Add a statement, unless what it sets is too large."""
        attempt(text, self.names)
        program.statements.append(Statement(text, target, self.rng.random() < 0.12))
        for name in list(self.names):
            value = self.names[name]
            if isinstance(value, numpy.ndarray) and value.size > MOST_ELEMENTS:
                del self.names[name]
                program.statements.append(Statement(f"del {name}"))

    def made(self, at: int) -> str:
        """A real array in chunks: tasks of Dask's, or over a source of any kind."""
        chunks = self.chunks(self.shapes[at])
        if self.rng.random() < 0.5:
            return f"cut(R{at}, {chunks})"
        return f"opened(R{at}, {self.rng.choice(list(sources.KINDS))!r}, {chunks})"

    def chunks(self, shape: tuple[int, ...]) -> Chunks:
        """Some chunks, of one size or of any."""
        return tuple([self.cuts(length) for length in shape])

    def cuts(self, length: int) -> tuple[int, ...]:
        some = self.rng.choice([length, max(length // 2, 1), max(length // 3, 1), 1 + length // 4])
        left, sizes = length, []
        while left > 0:
            size = some if self.rng.random() < 0.8 else self.rng.randint(1, left)
            sizes.append(min(size, left))
            left -= sizes[-1]
        return tuple(sizes) or (0,)

    def pick(self, wanted: Callable[[Any], bool] = lambda x: True) -> str:
        """A variable that holds an array with some property; "" if there is none."""
        found = [
            name
            for name in NAMES
            if isinstance(self.names.get(name), numpy.ndarray) and wanted(self.names[name])
        ]
        return self.rng.choice(found) if found else ""

    def free(self) -> str:
        """A name for a new value."""
        unused = [name for name in NAMES if name not in self.names]
        return self.rng.choice(unused[:1] or list(NAMES))


def values(rng: numpy.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    """Real values: with ties, zeros of both signs, and now and then a NaN."""
    kind = numpy.dtype(dtype)
    if kind.kind == "b":
        return rng.random(shape) > 0.5
    if kind.kind in "iu":
        return rng.integers(0 if kind.kind == "u" else -50, 50, shape).astype(kind)
    found = rng.integers(-24, 24, shape) / 8  # sums of them are exact
    if kind.kind == "c":
        found = found + 1j * rng.integers(-24, 24, shape) / 8
    if rng.random() < 0.25:
        found = numpy.where(rng.random(shape) < 0.1, numpy.nan, found)
    return found.astype(kind)
