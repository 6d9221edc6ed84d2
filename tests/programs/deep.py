"""Long random programs drawn by hypothesis, and what is compared of them beyond values.

`programs(...)` is the strategy. A statement is chosen by what NumPy's variables hold so far, each
in a span of its own, so that hypothesis can drop statements one by one. `script` writes a program
as NumPy code that runs by itself. `observe` runs it in both worlds and also compares warnings,
flags and which arrays share memory.
"""

from __future__ import annotations

import copy
import io
import operator
import pickle
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import combinations
from textwrap import indent
from typing import Any

import numpy as np
from hypothesis import strategies as st

import lazyfuse
from tests import global_state
from tests.programs import tame_phrases
from tests.programs.compare import (
    Difference,
    Pair,
    Program,
    Statement,
    alike,
    attempt,
    failure,
    world,
)
from tests.programs.deep_phrases import DEEP
from tests.programs.grammar import Grammar, Sizes
from tests.programs.phrases import Phrase, creation

MOST_KEPT = 4000  # elements of a variable: larger ones are dropped at once
SHORT = Sizes((3, 4, 1, 2, 5, 0), vectors=(4, 7, 40))
LONG = Sizes((1, 130, 131, 150), ranks=(1, 2, 2, 2), vectors=(1, 16400, 20000, 33000))
HEADER = """\
import copy, io, operator, pickle
import numpy
import numpy as np  # or: import lazyfuse as np
from numpy import inf, nan


def saved(x):
    file = io.BytesIO()
    np.save(file, x)
    return file.getvalue()


k = 1
"""


def saver(module: Any) -> Callable[[Any], bytes]:
    """What a program calls as `saved`: the bytes of a .npy file."""

    def saved(x: Any) -> bytes:
        file = io.BytesIO()
        module.save(file, x)
        return file.getvalue()

    return saved


def names(module: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """Names that a program starts with."""
    tools = {"copy": copy, "pickle": pickle, "operator": operator, "saved": saver(module)}
    return world(module, {**tools, **inputs})


TOOLS = {"np", "numpy", "copy", "pickle", "operator", "saved"}


@dataclass(frozen=True)
class Kind:
    """What programs to draw."""

    sizes: Sizes = SHORT
    inexact: bool = False
    longest: int = 50
    each: bool = False  # look at everything after each statement
    kept: int = MOST_KEPT


class DeepGrammar(Grammar):
    """One program in the making, its choices made by hypothesis."""

    def __init__(self, rng: Any, kind: Kind) -> None:
        super().__init__(rng.randrange(1000), kind.sizes, kind.inexact, rng)
        self.kind = kind
        self.written: list[Statement] = []
        self.start()

    def start(self) -> None:
        """Begin NumPy's world anew."""
        self.names = names(np, self.inputs())

    def add(self, rng: Any) -> None:
        """Write one more statement, now and then the last ones again."""
        self.rng = rng
        if len(self.written) > 4 and rng.random() < 0.06:
            self.again(rng)
            return
        table: Sequence[tuple[Phrase, float]] = tame_phrases.INEXACT if self.inexact else DEEP
        phrase = rng.choices([each for each, _ in table], [weight for _, weight in table])[0]
        found = phrase(self) if len(self.written) > 1 else creation(self)
        if found is None:
            return
        self.write(*found, rng.random() < 0.15)

    def again(self, rng: Any) -> None:
        """Write the last statements again, some times, where `k` and the real arrays are others."""
        body = self.written[-rng.randint(1, 6) :]
        others = ("R0[...] = R0[::-1]", "R1 += R1[:1]", "pass", "pass")
        for _ in range(rng.randint(2, 7)):
            self.write(f"k = {rng.randrange(4)}; {rng.choice(others)}")
            for each in body:
                self.write(each.text, each.target, each.look)

    def write(self, text: str, target: str = "", look: bool = False) -> None:
        """Write a statement, unless it leaves what NumPy promises nothing about."""
        if not defined(text, self.names):
            self.start()
            for statement in self.written:
                attempt(statement.text, self.names)
            return
        self.written.append(Statement(text, target, look))
        for name in self.arrays(lambda x: x.size > self.kind.kept):
            del self.names[name]
            self.written.append(Statement(f"del {name}"))


def defined(text: str, variables: dict[str, Any]) -> bool:
    """Run a statement; whether it converted no number to an integer type that cannot hold it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        attempt(text, variables)
    return not any("encountered in cast" in str(each.message) for each in caught)


@st.composite
def statements(draw: st.DrawFn, grammar: DeepGrammar) -> bool:
    """Add a statement to a program, or say that it is complete."""
    if not draw(st.integers(0, 40)):
        return False
    grammar.add(draw(st.randoms(use_true_random=False)))
    return True


@st.composite
def programs(draw: st.DrawFn, kind: Kind) -> Program:
    """Programs of a kind."""
    grammar = DeepGrammar(draw(st.randoms(use_true_random=False)), kind)
    for _ in range(kind.longest):
        if not draw(statements(grammar)):
            break
    return DeepProgram(grammar.inputs, grammar.written, grammar.tolerance(), kind.each)


@dataclass
class DeepProgram(Program):
    """A program that prints as a script."""

    each: bool = False
    usual: bool = False  # the filters of warnings are those that the process has

    def __str__(self) -> str:
        return script(self)

    __repr__ = __str__


def script(program: Program) -> str:
    """The program as NumPy code that runs by itself."""
    inputs = program.inputs()
    lines = ["", HEADER, *(f"{name} = {spelled(value)}" for name, value in inputs.items())]
    variables = names(np, inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for statement in program.statements:
            text = statement.text
            if attempt(text, variables) is not None:
                text = f"try:\n{indent(text, '    ')}\nexcept Exception as error:\n    print(error)"
            elif statement.look and statement.target:
                text = f"{text}\nprint({statement.target})"
            lines.append(text)
    return "\n".join(lines)


def spelled(value: Any) -> str:
    """An array as an expression, exact to the bit."""
    flat = value.ravel()
    real = flat.view(flat.real.dtype)
    text = f"numpy.array({real.tolist()}, {real.dtype.str!r})"
    whole = f".view({flat.dtype.str!r})" if flat.dtype.kind == "c" else ""
    return f"{text}{whole}.reshape({value.shape})"


class Observed(Pair):
    """A program under way in both worlds, watched closely."""

    def __init__(self, program: DeepProgram) -> None:
        self.program = program
        self.each = program.each
        self.usual = global_state.usual_filters if program.usual else nullcontext
        self.plain = names(np, program.inputs())
        self.lazy = names(lazyfuse, program.inputs())
        self.warned: set[tuple[str, str]] = set()

    def step(self, statement: Statement) -> None:
        with warnings.catch_warnings(record=True) as wanted:
            warnings.simplefilter("always")
            want = attempt(statement.text, self.plain)
        with warnings.catch_warnings(record=True) as found, self.usual():
            warnings.simplefilter("always")
            got = attempt(statement.text, self.lazy)
            if want != got and not alike(want, got):
                raise Difference(
                    f"{statement.text}: NumPy {want or 'runs'}, lazyfuse {got or 'runs'}"
                )
            self.look(statement, want is None)
        # of what a failing statement did before it failed, nobody has a result to look at
        each = self.each and want is None
        self.compare_warnings(statement.text, summary(wanted), summary(found), each)

    def look(self, statement: Statement, ran: bool) -> None:
        if self.each:
            self.everything()
        elif ran and statement.target in self.plain:
            self.check(statement.target, statement.look)

    def check(self, name: str, values: bool) -> None:
        super().check(name, values)
        want, got = self.plain[name], self.lazy[name]
        if not isinstance(want, np.ndarray) or want.nbytes >= 1 << 18:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy's of what broadcast_arrays made
            for flag in ("writeable", "c_contiguous", "f_contiguous"):
                if getattr(want.flags, flag) != getattr(got.flags, flag):
                    raise Difference(f"{name}.flags.{flag}: {getattr(got.flags, flag)}")

    def compare_warnings(self, text: str, want: set[Any], got: set[Any], each: bool) -> None:
        """Warnings that come when a value is needed may be late, those of the call may not."""
        self.warned |= want
        if each:
            missing, more = want - got, got - want
        else:
            missing = {each for each in want - got if each[0] != "RuntimeWarning"}
            more = got - self.warned
        if missing or more:
            raise Difference(f"{text}: NumPy warns {want or 'not'}, lazyfuse {got or 'not'}")

    def everything(self) -> None:
        """Compare every variable, and which of them share memory."""
        plain, lazy = [{n for n in each if n[0] != "_"} for each in (self.plain, self.lazy)]
        if plain != lazy:
            raise Difference(f"names {plain ^ lazy}")
        for name in sorted(plain - TOOLS):
            self.check(name, True)

    def finish(self) -> None:
        self.everything()
        shown = [n for n in sorted(self.plain) if n[0] != "_"]
        arrays = [n for n in shown if isinstance(self.plain[n], np.ndarray)]
        for first, second in combinations(arrays, 2):
            want = np.may_share_memory(self.plain[first], self.plain[second])
            got = lazyfuse.may_share_memory(self.lazy[first], self.lazy[second])
            if want != got:
                raise Difference(f"may_share_memory({first}, {second}): expected {want}")


def summary(caught: Sequence[Any]) -> set[tuple[str, str]]:
    """Warnings as category and text; floating-point conditions without the operation's name.

    A fused kernel names the first operation that can raise the condition.
    """
    found = {(each.category.__name__, str(each.message)) for each in caught}
    return {(category, text.split(" encountered in ")[0]) for category, text in found}


def observe(program: DeepProgram) -> None:
    """Run a program in both worlds; raise `Difference` where they part."""
    pair = Observed(program)
    for statement in program.statements:
        pair.step(statement)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pair.finish()


def difference(program: DeepProgram) -> str:
    """What `observe` says against a program; "" if nothing."""
    return failure(program, observe)


def reduced(program: DeepProgram) -> DeepProgram:
    """The program with as few statements and looks as still differ."""
    small = program
    for position in range(len(program.statements) - 1, -1, -1):
        before, after = small.statements[:position], small.statements[position + 1 :]
        unseen = replace(small.statements[position], look=False)
        for middle in ([], [unseen]):
            smaller = replace(small, statements=[*before, *middle, *after])
            if difference(smaller):
                small = smaller
                break
    return small
