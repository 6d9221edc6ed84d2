"""What the reference interpreter has found out about the exceptions of a kernel, and when to ask it
again.

A kernel that raises the same flags in every run of a loop would be interpreted in every run. Owns
`KnownExceptions`: what was found is believed while nothing of it would be told, for longer and
longer stretches. So an operation that begins to raise what others of its kernel have raised before
may be told some runs later; no name is ever taken from here.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from lazyfuse.codegen.graph import interpret
from lazyfuse.runtime.numerics import fp_flags

Array = np.ndarray[Any, np.dtype[Any]]

# One of these operands raises an exception if any operand does.
_LARGEST = (float(np.finfo("f4").max), float(np.finfo("f8").max), np.inf)
EXTREMES = (0.0, 1.0, -2.0, 5e-324, *_LARGEST, *[-each for each in _LARGEST])
# Runs after the last news in which the interpreter is asked each time. Then at powers of two.
ALWAYS = 8
# Places of a program that share a kernel and are told apart.
PLACES = 8


class KnownExceptions:
    """The exceptions of one kernel, as the interpreter found them at one place of a program."""

    __slots__ = ("bits", "raised", "runs")

    def __init__(self) -> None:
        self.bits = 0  # flags that were asked about
        self.raised: dict[int, int] = {}  # what each value has raised
        self.runs = 0  # since there was news

    def add(self, bits: int, found: Mapping[int, int]) -> None:
        """The interpreter has been asked about these flags."""
        if bits & ~self.bits or any(own & ~self.raised.get(i, 0) for i, own in found.items()):
            self.runs = 0
        self.bits |= bits
        for index, own in found.items():
            self.raised[index] = self.raised.get(index, 0) | own

    @property
    def are_fresh(self) -> bool:
        """Whether there was news lately: the next runs are likely to ask."""
        return self.runs < ALWAYS

    def suffices(self, bits: int) -> bool:
        """Whether a further run with these flags need not be looked at."""
        if bits & ~self.bits:
            return False
        self.runs += 1
        return not is_due(self.runs)


def is_due(runs: int) -> bool:
    """Whether the interpreter is asked after that many runs."""
    return runs < ALWAYS or runs & (runs - 1) == 0


def at(known: dict[Any, KnownExceptions], place: Any) -> KnownExceptions:
    """What is known of a kernel at this place; nothing at first."""
    if place not in known:
        if len(known) >= PLACES:
            known.clear()
        known[place] = KnownExceptions()
    return known[place]


def possible(run: Any, index: int, known: Mapping[int, Array], result: Array | None) -> int:
    """What an operation of a run can have raised some of whose operands are lost."""
    values = run.plan.graph.values
    value = values[index]
    sources = [values[each] for each in value.src]
    bits = 0
    for tried in itertools.product(EXTREMES, repeat=sum(s not in known for s in value.src)):
        rest = iter(tried)
        with np.errstate(all="ignore"):
            made = [
                known[each] if each in known else np.full(run.shape(each), next(rest), x.dtype)
                for each, x in zip(value.src, sources, strict=True)
            ]
        with fp_flags.collecting() as flags:
            interpret.run_node(
                value.op, value.arg, run.shape(index), value.dtype, value.perm, made,
                [each.perm for each in sources],
            )  # fmt: skip
        bits |= flags.bits
    operation = [(value.op, run.nodes[value.origin])]
    return bits if result is None else bits & fp_flags.shown([result], operation)
