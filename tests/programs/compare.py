"""Programs written once as text, run with NumPy and with lazyfuse side by side, and compared.

A program is a seed for its real input arrays and a list of statements. `run` executes each
statement in both worlds and raises `Difference` at the first one whose exception, type, shape,
dtype, strides or bits differ; `shrink` drops the statements that a difference does not need.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import CodeType
from typing import Any, TypeVar

import numpy
import pytest

import lazyfuse
from lazyfuse.runtime.capture import conditions
from tests.programs import wrong_phrases

World = dict[str, Any]


class Difference(AssertionError):
    """The two worlds parted."""


@dataclass(frozen=True)
class Statement:
    """One statement; `target` is the name it sets, `look` whether its values are read at once."""

    text: str
    target: str = ""
    look: bool = False


@dataclass
class Program:
    """Statements over real input arrays `R0`, `R1` ... that `inputs` makes anew for each run."""

    inputs: Callable[[], dict[str, Any]]
    statements: list[Statement] = field(default_factory=list)
    tolerance: float = 0.0
    wary: int = 0  # after errors at each so many statements everything is compared; 0: at none

    def __str__(self) -> str:
        real = {k: v for k, v in self.inputs().items() if k not in wrong_phrases.NAMES}
        shown = [f"{name} = {_spelled(value)}" for name, value in real.items()]
        looks = [each.text + ("  # look" if each.look else "") for each in self.statements]
        return "\n".join(["", *shown, *looks])


def _spelled(value: Any) -> str:
    if value.size > 40:
        return f"array of {value.dtype}, shape {value.shape}, strides {value.strides}"
    text = repr(value).replace("\n", "")
    return text if value.flags.c_contiguous else f"{text}  # strides {value.strides}"


@lru_cache(maxsize=4096)
def code_of(text: str) -> CodeType:
    """A statement, compiled."""
    return compile(text, "<program>", "exec")


def world(module: Any, inputs: dict[str, Any]) -> World:
    """Names that a program starts with."""
    return {"np": module, "numpy": numpy, "k": 1, **inputs}


def attempt(text: str, names: World) -> tuple[str, str] | None:
    """Run a statement; the exception that came of it, as type and text."""
    try:
        exec(code_of(text), names)
    except Exception as error:
        # Python shows a class of ours by its bare name
        return type(error).__name__, str(error).replace("numpy.ndarray", "ndarray")
    return None


@contextmanager
def beginning() -> Iterator[None]:
    """Each statement runs as the first of a process, before evaluations are set up."""

    def first(text: str, names: World) -> tuple[str, str] | None:
        if conditions.native is not None:
            conditions.native.replay_setup(None)
        return usual(text, names)

    usual = attempt
    with pytest.MonkeyPatch.context() as patch, lazyfuse.options(plan_after=10**6):
        for name in (__name__, "tests.programs.deep"):
            patch.setattr(f"{name}.attempt", first)
        yield


FOREIGN = (
    ("ValueError", "setting an array element with a sequence."),
    ("TypeError", "only 0-dimensional arrays can be converted to Python scalars"),
)
"""What NumPy says when an array is an element, of arrays of its own and of other types."""


def alike(want: Any, got: Any) -> bool:
    """Whether errors differ in a type's name only: lazy scalars have a type of their own."""
    if (want, got) == FOREIGN:
        return True
    of_scalars = ("object is not iterable", "has no len()", "objects is not writable")
    return bool(want and got) and want[0] == got[0] and want[1].endswith(of_scalars)


class Pair:
    """One program under way in both worlds."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.plain = world(numpy, program.inputs())
        self.lazy = world(lazyfuse, program.inputs())

    def step(self, statement: Statement) -> bool:
        """Run one statement in both worlds and compare what can be seen; whether it ran."""
        want = attempt(statement.text, self.plain)
        got = attempt(statement.text, self.lazy)
        if want != got and not alike(want, got):
            raise Difference(f"{statement.text}: NumPy {want or 'runs'}, lazyfuse {got or 'runs'}")
        name = statement.target
        if name and name in self.plain and want is None:
            self.check(name, statement.look)
        return want is None

    def check(self, name: str, values: bool) -> None:
        """Compare one name; its values only if asked, since that evaluates them."""
        try:
            same(name, self.plain[name], self.lazy[name], self.program.tolerance, values)
        except Difference:
            raise
        except Exception as error:
            raise Difference(
                f"{name}: reading it raises {type(error).__name__}: {error}"
            ) from error

    def finish(self) -> None:
        """Compare everything that is left."""
        plain, lazy = [{n for n in names if n[0] != "_"} for names in (self.plain, self.lazy)]
        if plain != lazy:
            raise Difference(f"names {plain ^ lazy}")
        for name in sorted(plain - {"np", "numpy"} - wrong_phrases.NAMES):
            self.check(name, True)


def run(program: Program) -> None:
    """Run a whole program in both worlds; what failed may be looked at by the program's `wary`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pair = Pair(program)
        for position, statement in enumerate(program.statements):
            if not pair.step(statement) and program.wary and position % program.wary == 0:
                pair.finish()  # an error leaves everything as NumPy's does
        pair.finish()


AnyProgram = TypeVar("AnyProgram", bound=Any)
"""A dataclass with a list of `statements`."""


def failure(program: AnyProgram, how: Callable[[AnyProgram], object] = run) -> str:
    """What `how` says against a program; "" if nothing."""
    try:
        how(program)
    except Difference as difference:
        return str(difference)
    return ""


def shrink(program: AnyProgram, how: Callable[[AnyProgram], object] = run) -> AnyProgram:
    """The program with as few statements as still differ."""
    statements = list(program.statements)
    size = max(1, len(statements) // 2)
    while size:
        start = 0
        while start < len(statements):
            fewer = statements[:start] + statements[start + size :]
            if failure(replace(program, statements=fewer), how):
                statements = fewer
            else:
                start += size
        size //= 2
    made: AnyProgram = replace(program, statements=statements)
    return made


def complain(program: AnyProgram, what: str, how: Callable[[AnyProgram], object] = run) -> None:
    """Fail with the reduced program."""
    small = shrink(program, how)
    pytest.fail(f"{failure(small, how) or what}\n{small}", pytrace=False)


# -------------------------------------------------------------------------------------- values


def same(name: str, want: Any, got: Any, tolerance: float = 0.0, values: bool = True) -> None:
    """Raise `Difference` unless `got` is what NumPy gives: type, dtype, shape, strides, bits."""
    if isinstance(want, (tuple, list)):
        if type(want) is not type(got) or len(want) != len(got):
            raise Difference(f"{name}: expected {want!r}, got {got!r}")
        for position, (first, second) in enumerate(zip(want, got, strict=True)):
            same(f"{name}[{position}]", first, second, tolerance, values)
    elif isinstance(want, (numpy.ndarray, numpy.generic)):
        same_kind(name, want, got)
        if values:
            same_values(name, want, numpy.asarray(got), tolerance)
    elif values and (type(want) is not type(got) or not _equal(want, got, tolerance)):
        raise Difference(f"{name}: expected {want!r}, got {got!r}")


def same_kind(name: str, want: Any, got: Any) -> None:
    """Compare what is known of an array or scalar without its values."""
    kinds = (numpy.ndarray, lazyfuse.ndarray) if isinstance(want, numpy.ndarray) else type(want)
    if not isinstance(got, kinds):
        raise Difference(f"{name}: expected {type(want)}, got {type(got)}")
    if want.dtype != got.dtype or want.shape != got.shape:
        raise Difference(f"{name}: {want.dtype}{want.shape}, got {got.dtype}{got.shape}")
    # NumPy reuses operands from this size on, and with them their memory order, as it likes
    if 0 < want.nbytes < 1 << 18 and isinstance(want, numpy.ndarray):
        pairs = zip(want.shape, want.strides, got.strides, strict=True)
        if any(length > 1 and first != second for length, first, second in pairs):
            raise Difference(f"{name}: strides {want.strides}, got {got.strides}")


def same_values(name: str, want: Any, got: Any, tolerance: float) -> None:
    """Compare bits (any NaN equal to any other), or up to a tolerance of the largest value."""
    if want.shape != got.shape or want.dtype != got.dtype:
        raise Difference(f"{name}: {want.dtype}{want.shape}, values {got.dtype}{got.shape}")
    want = numpy.asarray(want)
    if want.dtype.kind == "O":
        # texts first: NaN, and arrays as elements, which cannot be compared
        good = repr(want) == repr(got) or bool(numpy.array_equal(want, got))
    elif want.dtype.kind == "c":
        same_values(f"{name}.real", want.real, got.real, tolerance)
        same_values(f"{name}.imag", want.imag, got.imag, tolerance)
        return
    elif want.dtype.kind != "f":
        good = bool((want == got).all())
    elif tolerance:
        good = _near(want, got, tolerance)
    else:
        with numpy.errstate(all="ignore"):
            nan = numpy.isnan(want)
            exact = (want == got) & (numpy.signbit(want) == numpy.signbit(got))
        good = bool((exact | (nan & numpy.isnan(got))).all())
    if not good:
        raise Difference(f"{name}: expected\n{want!r}, got\n{got!r}\nat {_first(want, got)}")


def _near(want: Any, got: Any, tolerance: float) -> bool:
    with numpy.errstate(all="ignore"):
        scale = numpy.abs(want[numpy.isfinite(want)]).max(initial=1.0)
        near = (numpy.abs(got - want) <= tolerance * scale) | (want == got)
        return bool((near | (numpy.isnan(want) & numpy.isnan(got))).all())


def _first(want: Any, got: Any) -> str:
    with numpy.errstate(all="ignore"):
        differs = (want != got) & ~((want != want) & (got != got))
    places: Sequence[Any] = numpy.argwhere(differs)
    if not len(places):
        return "the sign of a zero"
    place = tuple(places[0])
    return f"{tuple(map(int, place))}: {want[place]!r} and {got[place]!r} ({len(places)} differ)"


def _equal(want: Any, got: Any, tolerance: float) -> bool:
    if isinstance(want, (float, complex)):
        try:
            same_values("", numpy.asarray(want), numpy.asarray(got), tolerance)
        except Difference:
            return False
        return True
    return bool(want == got)
