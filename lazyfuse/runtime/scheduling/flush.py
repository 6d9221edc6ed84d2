"""When recorded work runs although the program asks for no value.

Owns these rules; decisions.py has their names. Knows nodes, not arrays; `Pending` is given the
function that evaluates.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Collection, Sequence
from typing import Any
from weakref import ref

from lazyfuse import config
from lazyfuse.codegen.graph import references
from lazyfuse.codegen.graph.node import Node, Where, source_line, topological
from lazyfuse.codegen.table.ops import UPDATE
from lazyfuse.runtime.events import decisions, tracing
from lazyfuse.runtime.events.decisions import Rule
from lazyfuse.runtime.numerics import warning_filters
from lazyfuse.runtime.numerics.errstate import SourceLocation
from lazyfuse.runtime.numerics.warning_filters import NotedFilters
from lazyfuse.runtime.scheduling import compound_calls, parameters

# A launch costs some ten microseconds: as much as this many element operations.
WORTH_A_LAUNCH = 1 << 18
# A line that has repeated this often since the last sink is a loop. Short inner loops (Horner's
# rule, three components) fuse as a whole, long ones keep one structure per iteration.
ROUNDS = 8
# Fewer iterations are enough if they reduce: programs tend to look at the results of reductions,
# and the operands stay alive until then.
REDUCING = 3
# Iterations of elementwise work stay in registers when one kernel runs several of them: again
# `ROUNDS` iterations, or as many as this number of operations takes.
TOGETHER = 128
# Iterations that neither read nor store arrays of their own go on up to this many operations: a
# kernel has room for them.
ROOM = 248
# Most lines to remember that leave work pending at every sink.
STEADY_LINES = 64
# Recorded operations before the limits are checked.
CHECK_AFTER = 64
# Elements of an array for which there may be no memory: NumPy is asked when one is recorded.
VAST = 1 << 27
# Bytes that no budget reaches: without a budget, lists of nodes are searched when they doubled.
NEVER = 1 << 62


usual_filters: Any = warnings.filters
"""The default list of warning filters: contexts have lists of their own."""
native: Any = None
"""The native extension whose `frontier` is used (native/graph/keys.c); None: the Python below."""


class Pending:
    """The operations that a thread has recorded since the last flush."""

    __slots__ = (
        "allocate",
        "due",
        "due_for",
        "elements",
        "elements_due",
        "evaluate",
        "filters",
        "filters_first",
        "filters_size",
        "last",
        "lines",
        "looping",
        "nodes",
        "nodes_due",
        "nodes_planned",
        "noted",
        "overdue",
        "plain",
        "reducing",
        "room",
        "roomy_line",
        "rounds",
        "run",
        "steady",
        "waiting",
    )

    def __init__(
        self,
        evaluate: Callable[[Sequence[Node], Rule], None],
        flush: Callable[[Sequence[Node], Rule], None],
        allocate: Callable[[Node], None],
    ) -> None:
        self.evaluate = evaluate
        self.run = flush  # the same, but what fails stays pending
        self.allocate = allocate  # raises where there is no memory for a result
        self.nodes: list[ref[Node]] = []
        self.filters = usual_filters
        self.filters_first: Any = None  # its first filter: another one shows that the list changed
        self.filters_size = -1  # its length; -1: check the filters at each node
        self.look_at(self.filters)
        self.noted = warning_filters.usual  # the filters that were noted last
        self.lines: set[int] = set()  # lines that recorded since the last evaluation
        self.rounds: dict[int, int] = {}  # how often each line recorded since the last sink
        self.steady: set[int] = set()  # lines of loops with a sink in every iteration
        self.overdue = False  # whether a steady line has recorded work that was not evaluated
        self.plain = True  # whether all pending work is elementwise
        self.reducing = False  # whether pending work contains a reduction
        self.room = TOGETHER  # operations that may be pending when an iteration begins
        self.roomy_line = 0  # the line that has room for further iterations, see `may_go_on`
        self.last = 0  # the line of the newest node
        self.waiting = 0  # the line that repeated in the middle of an expression
        self.looping = False  # while a loop's own flush runs
        self.elements = 0
        self.due = self.due_for = (0, 0)  # when to check again if nothing is pending; the options
        self.plan_check()

    def note(self, node: Node) -> None:
        """Called once for each recorded node; may evaluate what was recorded before it."""
        if not _is_pending(node):
            return
        where = node.location
        raises = False
        if where is not None:
            filters = warnings.filters
            if (
                filters is not self.filters
                or len(filters) != self.filters_size
                or (filters and filters[0] is not self.filters_first)
            ):
                raises = self.look_at(filters)
                if filters is not self.filters:
                    self.mark(node)
                    self.filters_size = -1  # look at the usual ones again afterwards
            line = line_of(where)
            if not compound_calls.depth or line != self.last:  # one call may record several nodes
                self.rounds[line] = rounds = self.rounds.get(line, 0) + 1
                if rounds > (REDUCING if self.reducing else ROUNDS):
                    self.overdue = self.overdue or line in self.steady
                    due = not self.plain or self.waiting != 0 or len(self.nodes) >= self.room
                    due = due or (rounds % ROUNDS == 1 and self.room <= TOGETHER)
                    if due and line in self.lines and self.elements >= WORTH_A_LAUNCH:
                        if self.may_go_on(line):
                            pass
                        elif self.waiting != line and _waits_for_statement(node):
                            self.waiting = self.waiting or line
                        else:
                            self.flush_iteration(node)
                self.lines.add(line)
            self.last = line
        self.nodes.append(ref(node))
        if node.op.kind != "map":
            self.plain = False
            if node.op.kind == "reduce":
                self.reducing = True
        size = 1
        for length in node.arg.shape if node.op is UPDATE else node.shape:
            size *= length
        if size >= VAST:
            self.allocate(node)
        self.elements += size
        if len(self.nodes) >= self.nodes_due or self.elements >= self.elements_due:
            self.check_limits(node)
        if raises and node.op.kind not in ("view", "source") and _is_pending(node):
            self.evaluate([node], decisions.ERRORS)

    def look_at(self, filters: Any) -> bool:
        """Whether warning filters turn FP exceptions into errors, which their line has to raise."""
        raises = config.options.errors_at_once and _makes_errors(filters)
        if filters is self.filters:
            if (before := warning_filters.look_again()) is not None:
                for each in [each for pending, _ in list(threads) for each in list(pending.nodes)]:
                    node = each()
                    if node is not None and node.location is not None:
                        _mark(node, before)
            self.filters_size = -1 if raises else len(filters)
            self.filters_first = filters[0] if filters else None
        return raises

    def may_go_on(self, line: int) -> Rule | None:
        """Whether a loop of elementwise work has room for further iterations.

        Its iterations neither read nor write arrays of their own. Decided once: from then on,
        operations are counted instead of iterations.
        """
        if not self.plain or self.waiting:
            return None
        if self.room > TOGETHER:
            return decisions.ROOM if line != self.roomy_line else None
        turns, noted = 0, len(self.nodes)
        found, used, read = set[int](), set[int](), set[int]()
        for each in self.nodes:
            node = each()
            if node is not None:
                turns += node.location is not None and line_of(node.location) == line
                found.add(id(node))
                for source in node.src:  # also operations that were not noted
                    if source.shape:
                        (read if _is_read(source) else used).add(id(source))
        ends = len(found - used)
        work = len(found | used)
        room = (ROOM - work // max(turns, 1)) * noted // max(work, noted)
        if max(len(read), ends) >= ROUNDS or room <= max(noted, TOGETHER):
            return None
        self.room, self.roomy_line = room, line
        return decisions.ROOM

    def mark(self, node: Node) -> None:
        """Keep warning filters other than the usual ones in the node's source location."""
        if not self.noted.are_current():
            self.noted = NotedFilters()
        _mark(node, self.noted)

    def check_limits(self, newest: Node) -> None:
        """Flush if the graph, or the memory that it keeps alive, has outgrown the budget."""
        if tracing.records:
            tracing.recorded(newest)
            if len(self.nodes) < self.nodes_planned and self.elements < self.elements_due:
                return
        self.nodes = [each for each in self.nodes if _is_pending(each())]
        options = config.options
        if 0 < options.flush_nodes <= len(self.nodes):
            self.flush(newest, decisions.NODES)
        elif 0 < options.flush_bytes < held_bytes(self.frontier(newest)):
            self.flush(newest, decisions.BYTES)
        self.plan_check()

    def plan_check(self) -> None:
        """Set the next check: when the graph has doubled, or as many bytes as the budget came."""
        options = config.options
        due = max(CHECK_AFTER, 2 * len(self.nodes))
        self.nodes_due = min(due, options.flush_nodes) if options.flush_nodes else due
        if len(self.nodes) >= self.nodes_due:
            self.nodes_due = due
        self.nodes_planned = self.nodes_due
        budget = max(options.flush_bytes, 1 << 20) if options.flush_bytes else NEVER
        self.elements_due = self.elements + budget // 8
        if not self.nodes and not self.elements:
            self.due = self.nodes_planned, self.elements_due
            self.due_for = options.flush_nodes, options.flush_bytes
        self.listen()

    def listen(self) -> None:
        """Check at every node while there are listeners: without them it costs nothing."""
        self.nodes_due = 0 if tracing.records else self.nodes_planned

    def flush(self, newest: Node, rule: Rule) -> None:
        """Evaluate every array that is still wanted and was recorded before `newest`."""
        frontier = self.frontier(newest)
        if frontier:
            self.run(frontier, rule)
        else:
            self.reset()

    def flush_iteration(self, newest: Node) -> None:
        """A loop repeats: evaluate its pending work, if there is any."""
        for each in self.nodes:
            if _is_pending(each()):
                self.flush_loop(newest)
                return
        self.nodes.clear()
        self.lines.clear()
        self.elements = 0
        self.room = TOGETHER

    def flush_loop(self, newest: Node) -> None:
        """A loop repeats: flush, but go on counting its iterations."""
        self.looping = True
        try:
            self.flush(newest, decisions.LOOP)
        finally:
            self.looping = False

    def forget(self, elided: Sequence[Node]) -> None:
        """Drop nodes that stay pending and are no unfinished work (see elision.py)."""
        if not elided:
            return
        ids = {id(node) for node in elided}
        self.nodes = [each for each in self.nodes if id(each()) not in ids]

    def reset(self) -> None:
        """After an evaluation: keep only the nodes that are still pending."""
        # most are gone: of these nothing has to be asked
        self.nodes = left = [each for each in self.nodes if each() and _is_pending(each())]
        self.elements = 0
        self.lines.clear()
        self.plain = True
        self.reducing = False
        self.room = TOGETHER
        self.overdue = False
        self.waiting = 0
        if left or self.due_for != (config.options.flush_nodes, config.options.flush_bytes):
            self.plan_check()
        else:
            self.nodes_planned, self.elements_due = self.due
            self.nodes_due = 0 if tracing.records else self.nodes_planned
        if not self.looping:
            if not left and not self.steady:
                self.rounds.clear()
            else:
                self.keep_rounds(left)

    def keep_rounds(self, left: Sequence[ref[Node]]) -> None:
        """After a sink: count for each line the iterations whose work is still pending."""
        turns: dict[int, int] = {}
        for each in left:
            node = each()  # another thread may have dropped it since
            where = None if node is None else node.location
            if where is not None:
                line = line_of(where)
                turns[line] = turns.get(line, 0) + 1
        if len(self.steady) > STEADY_LINES:
            self.steady.clear()
        self.steady.update([line for line, count in turns.items() if count > ROUNDS])
        for line in self.steady:
            turns[line] = ROUNDS
        self.rounds = turns

    def overdue_outputs(self, wanted: Sequence[Node]) -> list[Node]:
        """The work that a loop left pending in each iteration although sinks ran.

        It is due with the next sink. Otherwise it would grow by one iteration for each sink, and
        keep every operand alive.
        """
        if not self.overdue:
            return []
        ids = {id(node) for node in wanted}
        return [node for node in self.frontier() if id(node) not in ids]

    def frontier(self, newest: Node | None = None, before: Collection[int] = ()) -> list[Node]:
        """Pending nodes that are alive and not merely operands of other pending nodes.

        `before`: ids of the references to nodes that are excluded.
        """
        if native is not None and not before:
            found = native.frontier(self.nodes, newest)
            return [node for node in found if not parameters.waits(node)]
        alive = []
        for each in self.nodes:
            node = each()
            if node is None or node is newest or node.value is not None:
                continue
            if node.resident is None and (not before or id(each) not in before):
                alive.append(node)
        used: set[int] = set()
        known = {id(node) for node in alive}
        below = alive
        while below:  # an operation in place has a node more than was noted: search below it, too
            deeper = []
            for node in below:
                for source in node.src:
                    key = id(source)
                    used.add(key)
                    if key not in known and source.value is None and source.resident is None:
                        known.add(key)
                        deeper.append(source)
            below = deeper
        return [node for node in alive if id(node) not in used and not parameters.waits(node)]


class _Token:
    """Lives as long as its thread."""


class Thread(threading.local):
    """What a thread has recorded: no other thread brings it along, flushes it or counts it."""

    recorded: Pending

    def __init__(self, *functions: Any) -> None:
        self.recorded = Pending(*functions)
        if not threads:
            Thread.recorded = self.recorded  # for finalisers while another thread's is made
        self.token = _Token()
        threads[:] = [each for each in threads if each[1]() or any(map(_is_left, each[0].nodes))]
        threads.append((self.recorded, ref(self.token)))


threads: list[tuple[Pending, ref[_Token]]] = []
"""What threads have recorded; where a thread has ended, as long as some of it is pending."""


def listen() -> None:
    """Tell what threads have recorded that listeners have come or gone."""
    for each, _ in threads:
        each.listen()


def uses() -> dict[int, int]:
    """How many operations that threads have recorded and not run read each node (by id)."""
    found: dict[int, int] = {}
    for each in [each for pending, _ in list(threads) for each in list(pending.nodes)]:
        node = each()
        if node is not None and _is_pending(node):
            for source in node.src:
                found[id(source)] = found.get(id(source), 0) + 1
    return found


def line_of(where: Where) -> int:
    """A source line as a number: hashing a code object would hash its text."""
    return (id(where[0]) << 16) + where[1]  # objects lie 16 bytes apart


def _waits_for_statement(newest: Node) -> Rule | None:
    """Whether an operand is an intermediate result of the same statement: to evaluate it before
    `newest` would store it for nothing.
    """
    for source in newest.src:
        if source.value is None and source.op.kind == "map" and source.resident is None:
            first, second = source.location, newest.location
            if first is not None and second is not None and first[0] is second[0]:
                inside = source_line(first)[:2] == source_line(second)[:2]
                return decisions.STATEMENT if inside else None
    return None


def _makes_errors(filters: Sequence[tuple[Any, ...]]) -> bool:
    """Whether a RuntimeWarning may become an exception, unless a general filter comes first."""
    for action, message, category, module, line in filters:
        if issubclass(RuntimeWarning, category):
            if action == "error":
                return True
            if message is None and module is None and not line:
                return False
    return False


def _is_read(source: Node) -> bool:
    """Whether an operand lies in memory, or comes from outside recorded work."""
    return source.value is not None or source.op.kind == "source"


def _mark(node: Node, filters: NotedFilters) -> None:
    """Note the warning filters of a node, and of those that the same call has recorded below it."""
    where = node.location
    assert where is not None
    if not isinstance(where, SourceLocation):
        node.location = SourceLocation.like(where, filters=filters)
    elif where.filters is None:
        where.filters = filters
    for source in node.src:
        if source.location == where and getattr(source.location, "filters", None) is None:
            _mark(source, filters)


def _is_pending(node: Node | None) -> bool:
    return node is not None and node.value is None and node.resident is None


def _is_left(node: ref[Node]) -> bool:
    return _is_pending(node())


def held_bytes(roots: Sequence[Node]) -> int:
    """Bytes of evaluated arrays that only recorded work keeps alive."""
    total = 0
    for node in topological(roots):
        if node.value is not None and references.of(node.value) <= 1:  # 1: the node
            total += node.value.nbytes
    return total
