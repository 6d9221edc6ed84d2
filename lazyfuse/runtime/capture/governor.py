"""The governor: places in the user's program where recording does not pay run at once.

Recording and evaluating cost some ten microseconds. Where NumPy would have taken less, and kernels
save nothing, the operations had better not be recorded. Which places these are depends on the
machine, so both sides are measured, per place (an instruction at a class of sizes): what an
evaluation that comes round takes, and what NumPy takes for its operations, in a short trial. Where
NumPy is faster, the place runs at once for some time; then it records again and is measured anew.
Where it is not, the next trial comes later each time.

Only evaluations of exact maps and reductions of middling arrays are governed: no bit depends on the
outcome. native/governor.c keeps the places and takes NumPy's times. Owns the decision.
"""

from __future__ import annotations

from collections import Counter
from math import inf, prod
from typing import Any

from lazyfuse import config
from lazyfuse.codegen.graph.linearize import Recording
from lazyfuse.codegen.graph.node import Node, source_line
from lazyfuse.codegen.table import ops
from lazyfuse.runtime.capture import conditions
from lazyfuse.runtime.events import counters, decisions

LARGEST = 1 << 18
"""Elements of an operation above which recording always pays."""
MOST = 16
"""Operations of an evaluation above which it always pays."""
FIRST = 48
"""Evaluations before the first trial: by then its kernels are compiled, or it never repeats."""
MEASURED = 16
"""Evaluations that are measured before each trial."""
TRIAL = 12
"""Visits of each place that are NumPy's in a trial."""
PATIENCE = 64
"""Evaluations after which a trial ends whose places were not all visited."""
VISITS, MOST_VISITS = 1 << 10, 1 << 16
"""Visits of a place that run at once before it is measured anew: four times as many each time."""
MARGIN = 0.95
"""NumPy must take at most this fraction of what recorded work takes."""
# Seconds that an operation takes to be recorded, and an evaluation around what is measured of it.
RECORDING, AROUND = 0.8e-6, 2e-6
# Seconds of a call of NumPy's on single bytes, and of each of them.
CALL, BYTE = 1e-6, 3e-11

Place = tuple[Any, int, int]
"""A code object, the offset of an instruction, and elements."""


class Watch:
    """What is known of one evaluation that comes round."""

    __slots__ = ("due", "places", "seconds", "tried", "turns", "visits", "wait")

    def __init__(self, places: Counter[Place]) -> None:
        self.places = places
        self.turns = 0
        self.due = FIRST
        self.seconds = inf  # of the shortest one that was measured
        self.tried = 0  # the turn after which a trial began; 0: none is under way
        self.wait = 4 * FIRST  # turns until the next trial, if the last one did not pay
        self.visits = VISITS

    def note(self, seconds: float) -> None:
        """Called after each evaluation, with what it took."""
        self.turns = turns = self.turns + 1
        if turns <= self.due - MEASURED:
            return
        if not self.tried:
            self.seconds = min(self.seconds, seconds)
            if turns >= self.due:
                self.tried = turns
                self.set_visits(TRIAL)
            return
        theirs = self.measured()
        if theirs is None:
            if turns - self.tried > PATIENCE:  # a place is not reached, or C has no such operation
                self.set_visits(0)
                self.put_off()
            return
        ours = self.seconds + AROUND + RECORDING * self.places.total()
        if theirs > MARGIN * ours:
            self.put_off()
            return
        counters.totals.decisions[decisions.GOVERNED] += 1
        code, offset, _ = next(reversed(self.places))
        file, line, _function = source_line((code, offset))
        counters.totals.governed[file, line] = theirs, ours
        self.set_visits(self.visits)
        self.visits = min(4 * self.visits, MOST_VISITS)
        self.begin(MEASURED)

    def put_off(self) -> None:
        """Record for longer than the last time, then try again."""
        self.begin(self.wait)
        self.wait *= 4

    def begin(self, turns: int) -> None:
        """Measure again, and try again after so many turns."""
        self.due = self.turns + turns
        self.seconds = inf
        self.tried = 0

    def measured(self) -> float | None:
        """What NumPy took for all places; None while the trial goes on."""
        total, began = 0.0, False
        for place, count in self.places.items():
            found = conditions.native.governed(*place)
            if found is None:
                return None
            left, runs, seconds = found
            if runs and left:
                return None
            began = began or runs > 0
            # nothing to govern there: it reads an array of single bytes, which runs at once anyway
            total += count * (seconds if runs else CALL + BYTE * place[2])
        return total if began else None

    def set_visits(self, visits: int) -> None:
        """Have NumPy run the next visits of all places."""
        for place, count in self.places.items():
            conditions.native.govern(*place, visits * count)


def watch(recording: Recording) -> Watch | None:
    """The watch of an evaluation that is kept; None if it is not to be governed."""
    if not config.options.governor:
        return None
    places: Counter[Place] = Counter()
    for node in recording.nodes:
        if node.value is not None or node.op is ops.VIEW:
            continue
        place = _place(node)
        if place is None or places.total() == MOST:
            return None
        places[place] += 1
    return Watch(places) if places else None


def _place(node: Node) -> Place | None:
    """Where an operation was recorded, if it is an exact one on a middling array."""
    op, where = node.op, node.location
    if op.kind == "map" and op.ufunc is not None:
        exact, size = op.is_exact(node.arg.ins[0]), prod(node.shape)
    elif op.kind == "reduce":
        exact, size = op.is_exact(node.src[0].dtype), prod(node.src[0].shape)
    else:
        return None
    fits = exact and where is not None and config.options.eager_below <= size <= LARGEST
    return (where[0], where[1], size) if fits and where is not None else None


def forget(value: object = None) -> None:
    """Record everywhere again."""
    if conditions.native is not None:
        conditions.native.ungovern()


config.on_change("governor", forget)
