"""`explain_loops`: what became of a program's loops."""

from __future__ import annotations

import ast
import inspect
import linecache
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple


class LoopState(NamedTuple):
    """A loop of the program: its place, its turns and seconds in Python and compiled.

    `stays`: why Python keeps it, or keeps it for names of some types; empty if nothing does.
    """

    file: str
    line: int
    code: str
    turns: int
    seconds: float
    compiled_turns: int
    compiled_seconds: float
    left: int
    stays: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}  {self.code}"
        python = f"Python {self.turns} turns, {self.seconds:.3f} s"
        compiled = f"compiled {self.compiled_turns} turns, {self.compiled_seconds:.3f} s"
        left = f", left {self.left} times" if self.left else ""
        why = f"\n    {self.stays}" if self.stays else ""
        return f"{where}\n    {compiled}{left}; {python}{why}"


class LoopStates(list[LoopState]):
    """The loops of a function, or of all texts; prints as a text."""

    def __repr__(self) -> str:
        return "\n".join(map(str, self)) or "no loop has been prepared (see the guide, loops)"


def explain_loops(function: Callable[..., Any] | None = None) -> LoopStates:
    """What became of the loops of a function, or of all loops of the program.

    A loop is listed once it has run. Loops that take long are compiled in programs that the
    launcher runs (`lazyfuse FILE`), in notebooks (`%load_ext lazyfuse`), in accelerated functions,
    and in packages that `compile_loops` was given; the list says how many turns of each ran
    compiled, and why Python does the others.
    """
    code = getattr(inspect.unwrap(function), "__code__", None) if function is not None else None
    made = LoopStates(_states())
    if function is not None and code is None:
        raise TypeError(f"explain_loops: expected a Python function, got {function!r}")
    if code is None:
        return made
    last = max((line for _, _, line in code.co_lines() if line), default=0)
    inside = range(code.co_firstlineno, last + 1)
    return LoopStates(
        each for each in made if each.file == code.co_filename and each.line in inside
    )


def _states() -> Iterator[LoopState]:
    module = sys.modules.get("lazyfuse.loops.take_over")
    for loop in module.loops if module is not None else ():
        if loop.turns or loop.entered:
            line = loop.node.lineno
            yield LoopState(
                loop.path,
                line,
                linecache.getline(loop.path, line).strip() or ast.unparse(loop.node).split("\n")[0],
                loop.turns,
                loop.seconds,
                loop.compiled_turns,
                loop.compiled_seconds,
                loop.left,
                loop.refused,
            )
