"""Held values that nobody is going to read: what names still hold of a turn of a loop that is over.

When a loop is evaluated, the names of its last turn are bound to what that turn computed on the
way. Most of it is never read: the next turn binds the names anew. From its second run on a
structure leaves such values pending, as long as no evaluation meets them again. What was read after
the first run is not tried; what is met is written from then on. A value of which only its name
knows when a loop is flushed is left, too: what reads it in the next turn computes it then.

Only exact maps are left, whose operands take no more memory than they would, and which are not
written over but by updates of nearly all of their block, for these need no copy. Conditions that
arise are told once: then values are written, as rematerialise.py does, which is asked first.

Owns the choice and what is remembered of it; evaluate.py asks, and tells when it is over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any
from weakref import ref

from lazyfuse import config
from lazyfuse.codegen.graph import references
from lazyfuse.codegen.graph.linearize import Recording
from lazyfuse.codegen.graph.node import Memory, Node
from lazyfuse.codegen.plan.plan import Plan
from lazyfuse.codegen.table import ops
from lazyfuse.runtime.events import counters
from lazyfuse.runtime.scheduling import rematerialise
from lazyfuse.runtime.scheduling.co_evaluation import is_watched

# Pending operations that are looked at, and sizes that are remembered of each structure.
MOST = 192
KEPT = 8
# Operations that making a value again may take, beside what it costs (rematerialise.MOST_COST).
LONGEST = 64
# Operands that are kept may take so much more memory than what is left unwritten: windows do.
MORE = 1.25
# An update needs no copy of its block where it writes so much of it (windows.around).
COVERED = 7 / 8


@dataclass(slots=True)
class Case:
    """One structure at one set of sizes. Positions are those among the nodes of its recording."""

    turns: int = 0
    by_others: bool = False  # whether rematerialise.py finds something in it
    left: tuple[int, ...] | None = None  # what need not be written; None: not decided
    computed: frozenset[int] = frozenset()  # those of them that are computed on the way
    operands: tuple[int, ...] = ()
    forgotten: tuple[int, ...] = ()  # what stays pending below `computed`
    key: tuple[Any, ...] = ()
    plan: Plan | None = None  # of that key
    read: set[int] | None = None  # what somebody read again


@dataclass(slots=True)
class Elided:
    """What an evaluation leaves pending; whoever has it keeps the memory of the operands."""

    nodes: Sequence[Node] = ()
    operands: Sequence[Node] = ()
    forgotten: Sequence[Node] = ()
    watched: Sequence[tuple[int, ref[Node]]] = ()  # written, to see whether somebody reads it
    case: Case | None = None
    count: int = 0


NOTHING = Elided()
_left: list[tuple[ref[Node], Case, int]] = []
"""What was left and may still be met."""
_written: list[tuple[ref[Any], Case, int]] = []
"""Arrays of first runs that may still be read."""


def leave(
    recording: Recording,
    roots: Sequence[Node],
    find: Callable[[Recording], Plan | None] = lambda recording: None,
    waits: bool = True,
    only_look: bool = False,
) -> tuple[Elided, Plan | None]:
    """Mark held values of a recording as not to be written; also the plan, if it is known.

    `find` gives the plan of a recording that was seen before. `waits`: whether somebody waits for
    the roots. `only_look`: nothing is going to run.
    """
    met = _meet(recording) if (_left or _written) and not only_look else ()
    plan = find(recording)
    if sum(recording.held) <= len(roots):
        return NOTHING, plan
    case = _case(plan, recording, waits, only_look)
    left = None if case is None else _of_a_loop(case, recording, roots, waits, only_look, met)
    if left is not None:
        if left.count and case is not None:
            plan = case.plan = case.plan or find(recording)
        return left, plan
    nodes, operands = rematerialise.leave(recording, roots, plan, only_look)
    if not nodes:
        return NOTHING, plan
    return Elided(nodes, operands, nodes, count=len(nodes)), find(recording)


def _of_a_loop(
    case: Case,
    recording: Recording,
    roots: Sequence[Node],
    waits: bool,
    only_look: bool,
    met: Collection[int],
) -> Elided | None:
    """What this module leaves; None where rematerialise.py is asked."""
    held = recording.held
    options = config.options
    if not (options.remake and options.fusion) or options.fusion_max_length or is_watched():
        return NOTHING
    if case.turns == 1:
        others, operands = rematerialise.leave(recording, roots, None, only_look)
        case.by_others = bool(others)
        if others:
            return Elided(others, operands, others, count=len(others))
        return _watch(case, recording, roots)
    if case.left is None:
        _decide(case, recording, roots, waits)
        if not case.left:
            return None
    nodes = recording.nodes
    assert case.left is not None
    found = [nodes[at] for at in case.left]
    if any(id(node) in met for node in found):
        return NOTHING  # once is enough
    if waits and not {id(node) for node in roots}.isdisjoint([id(node) for node in found]):
        return NOTHING
    for at in case.left:
        held[at] = False
    if not case.key:
        key = list(recording.key)
        for at in case.left:
            key[at] = (*key[at][:-1], False)
        case.key = tuple(key)
    recording.key = case.key
    if not only_look:
        counters.totals.remade += len(found)
    return Elided(
        [nodes[at] for at in case.left if at in case.computed],
        [nodes[at] for at in case.operands],
        [nodes[at] for at in case.forgotten],
        [(at, ref(nodes[at])) for at in case.left],
        case,
        len(found),
    )


def over(left: Elided, raised: bool) -> None:
    """An evaluation is over that left or watched something; `raised`: conditions arose in it."""
    case = left.case
    if case is None:
        return
    if case.left is None:
        for at, each in left.watched:
            node = each()
            if node is not None and node.value is not None:
                _written.append((ref(node.value), case, at))
    elif raised:
        case.left = ()
    else:
        _left.extend([(each, case, at) for at, each in left.watched])


def forget() -> None:
    """Forget what may still be met."""
    _left.clear()
    _written.clear()


def _case(plan: Plan | None, recording: Recording, waits: bool, only_look: bool) -> Case | None:
    """What is known of a recording; None where nothing of it is left in this way."""
    if plan is None or len(recording.held) > MOST:
        return None
    key = (waits, *recording.sizes)
    case: Case | None = plan.cases.get(key)
    if case is None:
        if only_look or len(plan.cases) >= KEPT:
            return None
        case = plan.cases[key] = Case()
        if not any(_is_candidate(recording, at) for at in range(len(recording.nodes))):
            case.left = ()
    case.turns += not only_look
    return None if case.by_others or case.left == () else case


def _is_candidate(recording: Recording, at: int) -> bool:
    """Whether a held value may be left at all."""
    if not recording.held[at]:
        return False
    node = recording.nodes[at]
    return node.op.kind == "map" and not node.op.apart and prod(node.shape) >= rematerialise.LARGE


def _watch(case: Case, recording: Recording, roots: Sequence[Node]) -> Elided:
    """The first run of a structure: everything is written, and watched."""
    ids = {id(node) for node in roots}
    nodes = recording.nodes
    found = [
        (at, ref(nodes[at]))
        for at in range(len(nodes))
        if _is_candidate(recording, at) and id(nodes[at]) not in ids
    ]
    return Elided(watched=found, case=case)


def _meet(recording: Recording) -> set[int]:
    """Take note of what was left or watched and is met; the ids of the former."""
    met: set[int] = set()
    nodes = recording.nodes
    waiting = [each for each in _left if each[0]() is not None]
    _left.clear()
    if waiting:
        ids = {id(node) for node in nodes}
        for each in waiting:
            identity = id(each[0]())
            if identity not in ids:
                _left.append(each)
                continue
            met.add(identity)
            if each[2] in each[1].computed:  # a second time, then
                _is_read(each[1], each[2])
    arrays = [each for each in _written if each[0]() is not None]
    _written.clear()
    if arrays:
        ids = {id(node.value) for node in nodes if node.value is not None}
        for each in arrays:
            if id(each[0]()) in ids:
                _is_read(each[1], each[2])
            else:
                _written.append(each)
    return met


def _is_read(case: Case, at: int) -> None:
    case.read = {*(case.read or ()), at}
    if case.left != ():
        case.left, case.key, case.plan = None, (), None


# ------------------------------------------------------------------------------------- deciding


def _decide(case: Case, recording: Recording, roots: Sequence[Node], waits: bool) -> None:
    """Which values of a recording need not be written."""
    nodes, held = recording.nodes, recording.held
    place = {id(node): at for at, node in enumerate(nodes)}
    ids = {id(node) for node in roots}
    covered = _covered(recording, place)
    left: dict[int, tuple[set[int], set[int]]] = {}
    for at, node in enumerate(nodes):
        if not _is_candidate(recording, at) or at in (case.read or ()):
            continue
        below = _below(node, recording, place, left) if not waits or id(node) not in ids else None
        if below is None or any(covered.get(each, 1.0) < COVERED for each in below[1]):
            continue
        # a root was not computed yet: it is left if that keeps nothing alive
        if id(node) not in ids or not _bytes_kept(recording, below[1], covered):
            left[at] = below
    rest = [at for at, is_held in enumerate(held) if is_held and at not in left]
    case.left = ()
    if not left or not rest:
        return
    operands = set().union(*[below[1] for below in left.values()])
    if _bytes_kept(recording, operands, covered) > MORE * sum([_bytes(nodes[at]) for at in left]):
        return
    computed = _reached(recording, rest, place)
    case.left = tuple(left)
    case.computed = frozenset(left) & computed
    case.operands = tuple(operands)
    forgotten = set().union(*[left[at][0] for at in case.computed])
    case.forgotten = tuple(forgotten)


def _below(
    root: Node,
    recording: Recording,
    place: dict[int, int],
    left: dict[int, tuple[set[int], set[int]]],
) -> tuple[set[int], set[int]] | None:
    """What a value is made of: what stays pending with it, and the operands that will be there."""
    cost, size = 0.0, prod(root.shape)
    pending, operands = {place[id(root)]}, set[int]()
    stack = [root]
    while stack:
        node = stack.pop()
        if not rematerialise.repeats(node):
            return None
        cost += 0.0 if node.op is ops.VIEW else node.op.cost * prod(node.shape)
        for source in node.src:
            at = place[id(source)]
            if source.resident is not None:
                return None
            if source.value is not None or (recording.held[at] and at not in left):
                operands.add(at)
            elif source.op.kind == "map" or source.op in (ops.VIEW, ops.FULL):
                if at not in pending:
                    pending.add(at)
                    stack.append(source)
            else:
                return None
        if cost > rematerialise.MOST_COST * size or len(pending) > LONGEST:
            return None
    return pending, operands


def _covered(recording: Recording, place: dict[int, int]) -> dict[int, float]:
    """Of each value that updates write over: the smallest part of it that one of them writes."""
    by_memory: dict[int, float] = {}
    for node in recording.nodes:
        if node.op is ops.UPDATE and node.value is None and node.resident is None:
            base = node.src[0]
            part = prod(node.arg.shape) / max(prod(base.shape), 1)
            memory = _memory(base)
            by_memory[memory] = min(by_memory.get(memory, 1.0), part)
    found = {}
    for node in recording.nodes:
        if (memory := _memory(node)) in by_memory:
            found[place[id(node)]] = by_memory[memory]
    return found


def _memory(node: Node) -> int:
    """What stands for the memory of a value."""
    return id(node.arg) if node.value is not None and isinstance(node.arg, Memory) else id(node)


def _bytes(node: Node) -> int:
    return node.dtype.itemsize * prod(node.shape)


def _bytes_kept(recording: Recording, operands: set[int], covered: dict[int, float]) -> int:
    """Bytes of operands that would be written over or go if nothing were left."""
    nodes = recording.nodes
    total = 0
    for at in operands:
        if at in covered or references.of(nodes[at]) <= recording.references_to(nodes[at]):
            total += _bytes(nodes[at])
    return total


def _reached(recording: Recording, roots: Sequence[int], place: dict[int, int]) -> set[int]:
    """The positions of what some values are computed from."""
    found = set(roots)
    stack = list(roots)
    while stack:
        node = recording.nodes[stack.pop()]
        if node.value is None:
            for source in node.src:
                at = place[id(source)]
                if at not in found:
                    found.add(at)
                    stack.append(at)
    return found
