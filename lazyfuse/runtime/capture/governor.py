"""The governor: places in the user's program where recording does not pay run at once.

Recording and evaluating cost some ten microseconds. Where NumPy would have taken less, and kernels
save nothing, the operations had better not be recorded. Which places these are depends on the
machine, so both sides are measured, per place (an instruction at a class of sizes): what an
evaluation that comes round takes, and what NumPy takes for its operations, in a short trial. Where
NumPy is faster, the place runs at once for some time; then it records again and is measured anew.
Where it is not, the next trial comes later each time.

Only evaluations of exact maps and reductions of middling arrays are governed: no bit depends on the
outcome. native/places.c keeps the places and takes NumPy's times. Owns the decision.
"""

from __future__ import annotations

from collections import Counter
from math import inf, prod
from typing import TYPE_CHECKING, Any

from lazyfuse import config
from lazyfuse.codegen.graph.node import Node, source_line
from lazyfuse.codegen.table import ops
from lazyfuse.runtime.capture import conditions
from lazyfuse.runtime.events import counters, decisions

if TYPE_CHECKING:
    from lazyfuse.codegen.graph.linearize import Recording


LARGEST = 1 << 20
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
# Seconds that an operation takes to be recorded, an evaluation beside its kernels, and what of it
# is not measured: all that in a loop of nothing else. After other work, which leaves nothing of it
# in the first caches, each takes longer by one factor.
RECORDING, BESIDE, AROUND = 1.5e-6, 2.5e-6, 6e-6
# Seconds of a short call of NumPy's, and of each element of one on single bytes.
CALL, BYTE = 1e-6, 3e-11

_FUNCTIONS = ("clip", "where")
"""Maps of NumPy's that are no ufuncs."""

Place = tuple[Any, int, int]
"""A code object, the offset of an instruction, and elements."""


class Watch:
    """What is known of one evaluation that comes round."""

    __slots__ = (
        "bytes", "due", "places", "playing", "seconds", "small", "tried", "turns", "turns_each",
        "visits", "wait",
    )  # fmt: skip

    def __init__(
        self, places: Counter[Place], small: int, single: set[Place], first: int = FIRST
    ) -> None:
        self.places = places
        self.bytes = single  # places whose operations read single bytes
        self.small = small  # operations on few elements beside them
        self.turns = 0
        self.due = first
        self.seconds = inf  # of the shortest one that was measured, and of that its kernels
        self.playing = 0.0
        self.turns_each = 1.0  # evaluations per visit of its places
        self.tried = 0  # the turn after which a trial began; 0: none is under way
        self.wait = 4 * FIRST  # turns until the next trial, if the last one did not pay
        self.visits = VISITS

    def note(self, seconds: float, playing: float) -> None:
        """Called after each evaluation, with what it took, and what of it its kernels."""
        self.turns = turns = self.turns + 1
        if turns <= self.due - MEASURED:
            if turns == self.due - MEASURED:
                self.set_visits(-1)
            return
        if not self.tried:
            if seconds < self.seconds:
                self.seconds, self.playing = seconds, playing
            if turns >= self.due:
                self.turns_each = self.evaluations_each()
                self.tried = turns
                self.set_visits(TRIAL)
            return
        theirs = self.measured()
        if theirs is None:
            if turns - self.tried > PATIENCE:  # a place is not reached, or C has no such operation
                self.set_visits(0)
                self.put_off()
            return
        longer = max(1.0, (self.seconds - self.playing) / BESIDE)
        recording = RECORDING * (self.places.total() + self.small)
        ours = self.turns_each * (self.seconds + longer * AROUND) + longer * recording
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
        self.due = self.turns + 1 + turns  # the first turn begins to count visits
        self.seconds = inf
        self.tried = 0

    def evaluations_each(self) -> float:
        """Evaluations per visit of the places: the program drops some results unread."""
        passed = 0
        for place in self.places:
            found = conditions.native.governed(*place)
            passed += found[3] if found is not None else 0
        return min(1.0, MEASURED * self.places.total() / passed) if passed else 1.0

    def measured(self) -> float | None:
        """What NumPy took for all places; None while the trial goes on."""
        total, began = CALL * self.small, False
        for place, count in self.places.items():
            found = conditions.native.governed(*place)
            if found is None:
                return None
            left, runs, seconds, _ = found
            if runs and left:
                return None
            began = began or runs > 0
            if not runs and place not in self.bytes:
                return None
            # nothing to govern there: it reads an array of single bytes, which runs at once anyway
            total += count * (seconds if runs else CALL + BYTE * place[2])
        return total if began else None

    def set_visits(self, visits: int) -> None:
        """Have NumPy run the next visits of all places."""
        for place, count in self.places.items():
            conditions.native.govern(*place, visits * count if visits > 0 else visits)


def watch(recording: Recording, first: int = FIRST) -> Watch | None:
    """The watch of an evaluation that is kept; None if it is not to be governed. `first`:
    evaluations before its first trial.
    """
    if not config.options.governor:
        return None
    places: Counter[Place] = Counter()
    small = 0
    single: set[Place] = set()
    for node in recording.nodes:
        if node.value is not None or node.op in ops.PLACES:
            continue
        size = _exact_size(node)
        if size is None or places.total() + small == MOST:
            return None
        if size < config.options.eager_below:  # NumPy's at once where its operands are
            small += 1
            continue
        where = node.location
        named = node.op.kind == "reduce" or node.op.ufunc is not None or node.op.name in _FUNCTIONS
        if not named or where is None or size > LARGEST:
            return None
        place = (where[0], where[1], size)
        places[place] += 1
        if any(source.dtype.itemsize == 1 for source in node.src):
            single.add(place)
    return Watch(places, small, single, first) if places else None


def _exact_size(node: Node) -> int | None:
    """How many elements an exact map or reduction goes through; None for other operations."""
    op = node.op
    if op.kind == "map" and op.is_exact(node.arg.ins[0]):
        return prod(node.shape)
    if op.kind == "reduce" and op.is_exact(node.src[0].dtype):
        return prod(node.src[0].shape)
    return None


def forget(value: object = None) -> None:
    """Record everywhere again."""
    if conditions.native is not None:
        conditions.native.ungovern()


config.on_change("governor", forget)
