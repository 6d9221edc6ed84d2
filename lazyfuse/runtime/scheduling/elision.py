"""Elided stores: values that names hold and that an evaluation leaves pending.

A name in the user's program holds its value until the program binds it anew. So an evaluation that
needs only a sum would also write every intermediate value that has a name. Two rules say which of
these values need not be written:

- `CHEAP`: values that a few exact operations make from much smaller arrays. To rematerialise one
  costs less than to write and read it, and the operands that it keeps alive are small.
- `DEAD`: dead temporaries of a loop. Names hold the intermediate values of the last iteration until
  the next iteration binds them anew. The first run of a structure writes the values and watches
  them. From the second run on, values that no recording read stay pending. A value that only its
  name holds when a loop is flushed is elided, too: its readers in the next iteration compute it.

CHEAP elides a value once: an evaluation that meets it again writes it. A structure that elided a
value by DEAD writes it from then on if a later recording reads it. Only exact maps are elided, for
the bits of inexact functions may depend on the kernel. The run that elides a value reports its
floating-point exceptions. If there are any, the value is written at once, so that no later run
reports them again.

Owns the choice and what is remembered of it; evaluate.py asks, and says when the run is over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from math import inf, prod
from typing import TYPE_CHECKING, Any
from weakref import ref

from lazyfuse import config
from lazyfuse.codegen.graph import references
from lazyfuse.codegen.graph.linearize import Recording
from lazyfuse.codegen.graph.node import Memory, Node
from lazyfuse.codegen.rewrite.passes import MOVED_COST
from lazyfuse.codegen.table import ops
from lazyfuse.devices.dataclass import dataclass
from lazyfuse.runtime.capture import evaluations
from lazyfuse.runtime.events import counters
from lazyfuse.runtime.events.decisions import CHEAP, DEAD, Rule
from lazyfuse.runtime.scheduling.co_evaluation import is_watched

if TYPE_CHECKING:
    from lazyfuse.codegen.plan.plan import Plan

# Values of fewer elements are written: that costs almost nothing.
LARGE = 1 << 16
# Most recorded nodes that are searched, and most sizes that are remembered of each structure.
MAX_NODES = 192
MAX_SIZES = 8
# Most operations that rematerialise a value, and their additions per element: about the cost of
# writing and reading it. Longer recordings are DEAD's alone, which finds more in them.
MAX_REMATERIALISED = 64
MAX_COST = 48.0
# CHEAP: the value takes at least `SMALLER` times the memory of its operands.
SMALLER = 4
# DEAD: operands that are kept alive may take this many times the memory of the elided values:
# windows take more.
MAX_OPERANDS = 1.25
# DEAD: an update needs no copy of its block where it writes this part of it (strides.around).
COVERED = 7 / 8


@dataclass
class Choice:
    """What an evaluation elides: positions among the nodes of its recording."""

    rule: Rule
    elided: tuple[int, ...]
    rematerialised: tuple[int, ...]  # the elided ones that the run computes on the way
    pending: tuple[int, ...]  # `rematerialised`, and the nodes that stay pending below them
    operands: tuple[int, ...]
    key: tuple[Any, ...] = ()  # of the recording without the elided outputs
    plan: Plan | None = None  # of that key


@dataclass
class PerSize:
    """What is remembered of one structure at one set of sizes."""

    rule: Rule | None  # the rule to apply; None, the negative cache: neither elides anything
    runs: int = 0
    choice: Choice | None = None  # of this rule, once it is decided
    read: set[int] = field(default_factory=set)  # positions of values that a later recording read


Watch = tuple[ref[Any], Rule, PerSize | None, int]
"""A value that a recording may read: an elided node or a written array, its rule, the state that
notes the read, and its position."""


@dataclass
class Elision:
    """What an evaluation elides or watches; it keeps the operands' memory until the run is over."""

    rule: Rule | None = None  # None: nothing is elided
    rematerialised: Sequence[Node] = ()
    pending: Sequence[Node] = ()
    operands: Sequence[Node] = ()
    watched: Sequence[Watch] = ()  # all elided values
    state: PerSize | None = None
    choice: Choice | None = None


NOTHING = Elision()
NEVER = Elision()
"""Nothing is elided, whenever a recording of this structure and these sizes is evaluated."""
watched: dict[int, Watch] = {}
"""By id. Entries of dead objects are dropped from time to time."""
_due = 0
"""Recordings until that happens: as many as there are entries, for it looks at each of them."""


def elide(
    recording: Recording,
    roots: Sequence[Node],
    find: Callable[[Recording], Plan | None] = lambda recording: None,
    waits: bool = True,
    dry_run: bool = False,
) -> tuple[Elision, Plan | None]:
    """Mark held values of a recording as not to be written; also the plan, if it is known.

    `find` gives the plan of a recording whose structure has run before. `waits`: whether a caller
    waits for the roots.
    """
    met = _meet(recording, dry_run) if watched else {}
    plan = find(recording)
    if sum(recording.held) <= len(roots) or len(recording.held) > MAX_NODES:
        return NEVER, plan
    state = _state(plan, recording, waits, dry_run)
    options = config.options
    if state.rule is None or not (options.elision and options.fusion) or options.fusion_max_length:
        return NEVER, plan
    if is_watched():
        return NOTHING, plan
    choice = None
    if state.rule is DEAD and state.runs > 1:
        choice = _dead(state, recording, roots, met, waits)
        if choice is None and state.rule is DEAD:
            return NOTHING, plan
    if choice is None:
        choice = _cheap(state, recording, roots, met)
        if choice is None:
            return _watch(state, recording, roots) if state.rule is DEAD else NOTHING, plan
        state.rule = CHEAP
    _take_out(choice, recording)
    choice.plan = choice.plan or find(recording)
    return chosen(state, choice, recording.nodes, dry_run), choice.plan


def chosen(state: PerSize, choice: Choice, nodes: Sequence[Node], dry_run: bool = False) -> Elision:
    """What a choice elides of an evaluation of these nodes."""
    if not dry_run:
        counters.totals().decisions[choice.rule] += len(choice.elided)
    noted = choice.rematerialised if choice.rule is DEAD else ()
    return Elision(
        choice.rule,
        [nodes[at] for at in choice.rematerialised],
        [nodes[at] for at in choice.pending],
        [nodes[at] for at in choice.operands],
        [(ref(nodes[at]), choice.rule, state if at in noted else None, at) for at in choice.elided],
        state,
        choice,
    )


def conclude(elision: Elision, raised: bool) -> None:
    """End a run that elided or watched values; `raised`: floating-point exceptions arose."""
    if raised and elision.rule is DEAD and elision.state is not None:
        elision.state.rule, elision.state.choice = CHEAP, None
        evaluations.kept.clear()
    for watch in elision.watched if not raised or elision.rule is None else ():
        node = watch[0]()
        if node is not None and elision.rule is not None:
            watched[id(node)] = watch
        elif node is not None and node.value is not None:  # later recordings read the array
            watched[id(node.value)] = (ref(node.value), *watch[1:])


def forget() -> None:
    """Drop all watched values."""
    watched.clear()


def _state(plan: Plan | None, recording: Recording, waits: bool, dry_run: bool) -> PerSize:
    """The state of a recording; a fresh one at its first run, or if there are too many."""
    if plan is None:
        return PerSize(CHEAP)
    key = (waits, *recording.sizes)
    state: PerSize | None = plan.elisions.get(key)
    if state is None:
        if dry_run or len(plan.elisions) >= MAX_SIZES:
            return PerSize(CHEAP)
        state = plan.elisions[key] = PerSize(DEAD if _candidates(recording) else CHEAP)
    state.runs += not dry_run
    return state


def _meet(recording: Recording, dry_run: bool) -> dict[int, Rule]:
    """Note which elided or watched values a recording reads; their rules, by id."""
    global _due
    met = {}
    for node in recording.nodes:
        for what in (node, node.value):
            each = watched.get(id(what))
            if each is None or each[0]() is not what:
                continue
            met[id(what)] = each[1]
            if not dry_run:
                del watched[id(what)]
                if each[2] is not None:
                    each[2].read.add(each[3])
                    each[2].choice = None
                    evaluations.kept.clear()  # which would go on to elide it
    if not dry_run:
        _due -= 1
        if _due < 0:
            for key in list(watched):
                if watched[key][0]() is None:
                    del watched[key]
            _due = max(MAX_SIZES, len(watched))
    return met


def _take_out(choice: Choice, recording: Recording) -> None:
    """Remove elided values from the outputs of a recording."""
    for at in choice.elided:
        recording.held[at] = False
    if not choice.key:
        key = list(recording.key)
        for at in choice.elided:
            key[at] = (*key[at][:-1], False)
        choice.key = tuple(key)
    recording.key = choice.key


# --------------------------------------------------------------------------------------- the rules


def _candidates(recording: Recording, written: Collection[int] = ()) -> list[int]:
    """The positions of held values that may be elided at all; `written` nodes may not."""
    return [
        at
        for at, (node, held) in enumerate(zip(recording.nodes, recording.held, strict=True))
        if held and node.op.kind == "map" and not node.op.fusion_barrier
        if prod(node.shape) >= LARGE and id(node) not in written
    ]


def _cheap(
    state: PerSize, recording: Recording, roots: Sequence[Node], met: Mapping[int, Rule]
) -> Choice | None:
    """The values that are cheap to rematerialise and were not elided before."""
    if len(recording.nodes) > MAX_REMATERIALISED:
        return None
    choice = _choose_cheap(recording, {*map(id, roots), *met})
    if choice is None and state.rule is CHEAP and state.runs:
        is_home = all(node.resident is None for node in recording.nodes)
        if is_home and _choose_cheap(recording, ()) is None:
            state.rule = None  # for any roots: from now on key and sizes suffice to know it
    return choice


def _choose_cheap(recording: Recording, written: Collection[int]) -> Choice | None:
    """The values that are cheap to rematerialise, except `written` nodes."""
    nodes = recording.nodes
    elided = []
    pending, operands = set[int](), set[int]()
    shown = _shown_only(recording)
    for at in _candidates(recording, written):
        room = nodes[at].dtype.itemsize * prod(nodes[at].shape)
        if times := shown.get(id(nodes[at])):
            below = _below(nodes[at], (), ("map",), room, MOVED_COST / times)
        else:
            below = _below(nodes[at], (), ("map", "reduce"), room // SMALLER)
        if below is not None:
            elided.append(at)
            pending |= below[0]
            operands |= below[1]
    if not elided:
        return None
    found = tuple(elided)
    return Choice(CHEAP, found, found, *_positions(nodes, pending, operands))


def _shown_only(recording: Recording) -> dict[int, int]:
    """How often values are shown by maps of indices and views that no name holds, for those that
    nothing else reads: the kernels that read these compute the value where it is shown.
    """
    shown: dict[int, int] = {}
    read = set[int]()
    for node, held in zip(recording.nodes, recording.held, strict=True):
        if node.value is None and node.resident is None:
            for source in set(node.src):
                if node.op is ops.INDEX or (node.op is ops.VIEW and not held):
                    shown[id(source)] = shown.get(id(source), 0) + 1
                else:
                    read.add(id(source))
    return {key: times for key, times in shown.items() if key not in read}


def _watch(state: PerSize, recording: Recording, roots: Sequence[Node]) -> Elision:
    """Have the first run of a structure write everything, and watch what later recordings read."""
    found = _candidates(recording, set(map(id, roots)))
    return Elision(watched=[(ref(recording.nodes[at]), DEAD, state, at) for at in found])


def _dead(
    state: PerSize,
    recording: Recording,
    roots: Sequence[Node],
    met: Mapping[int, Rule],
    waits: bool,
) -> Choice | None:
    """The values that no later iteration of a loop read, as far as they were watched."""
    choice = state.choice
    if choice is None:
        choice = state.choice = _decide(recording, roots, state.read, waits)
        if choice is None:
            state.rule = CHEAP
            return None
    elided = {id(recording.nodes[at]) for at in choice.elided}
    if waits and not elided.isdisjoint(map(id, roots)):
        return None
    if DEAD in [met[each] for each in elided.intersection(met)]:
        return None  # DEAD elides a value once
    return choice


def _decide(
    recording: Recording, roots: Sequence[Node], read: Collection[int], waits: bool
) -> Choice | None:
    """Which values of a recording to elide if no later iteration reads them."""
    nodes = recording.nodes
    ids = set(map(id, roots))
    written = {id(node) for node, held in zip(nodes, recording.held, strict=True) if held}
    covered = _covered(recording)
    elided: dict[int, Below] = {}
    for at in _candidates(recording, ids if waits else ()):
        below = _below(nodes[at], written, ("map",), inf) if at not in read else None
        if below is None or any(covered.get(each, 1.0) < COVERED for each in below[1]):
            continue
        # a root is computed here for the first time: it is elided if that keeps nothing alive
        if id(nodes[at]) not in ids or not _bytes_kept(recording, below[1], covered):
            elided[at] = below
            written.discard(id(nodes[at]))
    operands = set[int]().union(*[below[1] for below in elided.values()])
    most = MAX_OPERANDS * sum([nodes[at].dtype.itemsize * prod(nodes[at].shape) for at in elided])
    if not elided or not written or _bytes_kept(recording, operands, covered) > most:
        return None
    computed = _reached(nodes, written)
    remade = [at for at in elided if id(nodes[at]) in computed]
    pending = set[int]().union(*[elided[at][0] for at in remade])
    return Choice(DEAD, tuple(elided), tuple(remade), *_positions(nodes, pending, operands))


# ----------------------------------------------------------------------- what values are made from

Below = tuple[set[int], set[int]]
"""By ids: the nodes that stay pending with a value, itself among them, and the operands that will
exist."""


def _below(
    root: Node,
    written: Collection[int],
    kinds: Sequence[str],
    room: float,
    additions: float = MAX_COST,
) -> Below | None:
    """What is below a value; None if it costs too much to rematerialise or may get other bits.

    Operations of `kinds` make it from operands of at most `room` bytes: values that exist or that
    the run writes.
    """
    cost, most = 0.0, additions * prod(root.shape)
    pending, operands = {id(root)}, set[int]()
    stack = [root]
    while stack:
        node = stack.pop()
        if not _repeats(node):
            return None
        if node.op not in ops.PLACES:
            domain = node.src[0].shape if node.op.kind == "reduce" else node.shape
            cost += node.op.cost * prod(domain)
        for source in node.src:
            identity = id(source)
            if identity in pending or identity in operands:
                continue
            if source.resident is not None:
                return None
            if source.value is not None or identity in written:
                operands.add(identity)
                room -= source.dtype.itemsize * prod(source.shape) if source.shape else 0
            elif source.op.kind in kinds or source.op in (*ops.PLACES, ops.FULL):
                pending.add(identity)
                stack.append(source)
            else:
                return None
        if room < 0 or cost > most or len(pending) > MAX_REMATERIALISED:
            return None
    return pending, operands


def _repeats(node: Node) -> bool:
    """Whether a rematerialised node has the same bits: those of functions may vary by kernel."""
    exact = node.op.kind != "map" or node.op.is_exact(node.arg.ins[0])
    return exact and node.op.pure


def _positions(
    nodes: Sequence[Node], pending: set[int], operands: set[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    place = {id(node): at for at, node in enumerate(nodes)}.__getitem__
    return tuple(map(place, pending)), tuple(map(place, operands))


def _covered(recording: Recording) -> dict[int, float]:
    """For each value that updates write over: the smallest part of it that one of them writes."""
    by_memory: dict[int, float] = {}
    for node in recording.nodes:
        if node.op is ops.UPDATE and node.value is None and node.resident is None:
            base = node.src[0]
            part = prod(node.arg.shape) / max(prod(base.shape), 1)
            by_memory[_memory(base)] = min(by_memory.get(_memory(base), 1.0), part)
    memories = {id(node): _memory(node) for node in recording.nodes}
    return {key: by_memory[each] for key, each in memories.items() if each in by_memory}


def _memory(node: Node) -> int:
    """An id of the memory of a value: equal for values that share it."""
    return id(node.arg) if node.value is not None and isinstance(node.arg, Memory) else id(node)


def _bytes_kept(recording: Recording, operands: Collection[int], covered: Collection[int]) -> int:
    """Bytes of operands that would be written over or freed if nothing were elided."""
    total, nodes = 0, recording.nodes
    for at in range(len(nodes)):  # a variable for the node would be a reference to it
        if id(nodes[at]) in operands and (
            id(nodes[at]) in covered
            or references.of(nodes[at]) <= recording.references_to(nodes[at])
        ):
            total += nodes[at].dtype.itemsize * prod(nodes[at].shape)
    return total


def _reached(nodes: Sequence[Node], roots: Collection[int]) -> set[int]:
    """The ids of the nodes that some values are computed from, and of these values."""
    found = set(roots)
    for node in reversed(nodes):  # readers come after what they read
        if id(node) in found and node.value is None:
            found.update([id(source) for source in node.src])
    return found
