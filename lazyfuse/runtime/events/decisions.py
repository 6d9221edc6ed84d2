"""Every decision that lazyfuse takes by itself, as one list of named rules: `RULES`.

The rules say when recorded work runs and with what, what is recomputed or not stored, what is
written in place, and what NumPy does at once. Each rule has one owner: the module that decides and
passes the rule on. `explain` prints the rules that apply to an array, the report counts evaluations
by rule, docs/decisions.md lists them. Owns names and reasons; imports nothing, so that every layer
can name its rules.
"""

from __future__ import annotations

NOW = "evaluate now"
TOGETHER = "evaluate together"
LATER = "evaluate later"
RECOMPUTE = "recompute"
ELIDE = "elide"
IN_PLACE = "update in place"
REPLAY = "replay"
EAGER = "run at once in NumPy"

DECISIONS = {
    NOW: "Pending operations run now, and all that they read.",
    TOGETHER: "Other pending operations run in the same evaluation, or in another thread's.",
    LATER: "Operations stay pending although a rule or a value asked for them.",
    RECOMPUTE: "A value that several kernels read is computed by each of them, not stored.",
    ELIDE: "A value that a name holds stays pending: no kernel stores it.",
    IN_PLACE: "A result takes memory that holds another value.",
    REPLAY: "What an evaluation launched before is launched again, without a plan.",
    EAGER: "NumPy does an operation when it is called; all others are recorded.",
}
"""The kinds of decisions, each with its meaning."""


class Rule:
    """One rule. A function that decides returns the rule that applies, or `None` for no."""

    __slots__ = ("decides", "name", "option", "owner", "reason")

    def __init__(self, decides: str, name: str, reason: str, owner: str, option: str = "") -> None:
        self.decides = decides
        self.name = name
        self.reason = reason  # why, and when
        self.owner = owner  # the module of lazyfuse that decides
        self.option = option  # the option that turns it off

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"

    def __repr__(self) -> str:
        return f"<rule {self}>"


_listed: list[Rule] = []


def _rule(decides: str, name: str, reason: str, owner: str, option: str = "") -> Rule:
    """Make a rule and add it to the list, in the order of this file."""
    _listed.append(Rule(decides, name, reason, owner, option))
    return _listed[-1]


# ------------------------------------------------------------- evaluate now: the program asks

GATHER = _rule(NOW, "gather", "the program looks at the values", "arrays.ndarray")
CHUNK = _rule(NOW, "chunk", "a task of Dask computes its block", "runtime.chunked.recipe")
EXPORT = _rule(
    NOW, "export", "other code gets the memory, and may read and write it", "arrays.storage"
)
WRITE = _rule(NOW, "write", "NumPy itself writes to the memory", "arrays.ndarray")
FOREIGN_READ = _rule(
    NOW, "foreign read", "other code may change this memory: its present values are copied",
    "arrays.ndarray",
)  # fmt: skip
THREAD_WROTE = _rule(
    NOW, "thread", "another thread has written to the array meanwhile", "arrays.ndarray"
)
UNRECORDED_VIEW = _rule(
    NOW, "view", "nodes cannot describe this view, so it looks at real memory", "arrays.ndarray"
)
SELECTION_SIZE = _rule(
    NOW, "selection size", "the program asks for the size of x[mask]", "arrays.mask_selection"
)
SELECTION_VALUES = _rule(
    NOW, "selection values", "the program looks at the values of x[mask]", "arrays.mask_selection"
)
SELECTION_EMPTY = _rule(
    NOW, "selection empty", "an empty x[mask] raises an error in NumPy", "arrays.mask_selection"
)
INDICES = _rule(
    NOW, "indices", "computed indices and what they index are evaluated together", "arrays.scatter"
)
BINCOUNT = _rule(
    NOW, "bincount", "the greatest number decides the size of the result", "functions.histograms"
)
LIBRARY = _rule(NOW, "library", "a device's library reads the operands", "arrays.library_indexing")
TO_DEVICE = _rule(NOW, "to_device", "the program moves the array", "interop.device_api")
DEVICE_BLOCK = _rule(NOW, "device", "the end of a block that names a device", "interop.device_api")
CALLED = _rule(NOW, "evaluate", "the program calls lazyfuse.evaluate", "namespace.assemble")
FREEZE = _rule(NOW, "freeze", "a frozen program keeps its constants as values", "tools.freeze")
FROZEN_CALL = _rule(NOW, "frozen call", "the program calls a frozen program", "tools.freeze")
ACCELERATED = _rule(
    NOW, "accelerated call", "a call of an accelerated function ends", "tools.accelerate"
)
BIND = _rule(NOW, "bind", "a frozen program takes arguments as values", "tools.freeze")

# ------------------------------------------------------------- evaluate now: without a sink

LOOP = _rule(NOW, "loop", "a line of a loop repeats", "runtime.scheduling.flush")
NODES = _rule(
    NOW, "nodes", "the recorded graph reached its limit", "runtime.scheduling.flush", "flush_nodes"
)
BYTES = _rule(
    NOW, "bytes", "recorded work holds more memory than the budget", "runtime.scheduling.flush",
    "flush_bytes",
)  # fmt: skip
ERRORS = _rule(
    NOW, "errors", "warnings are errors here", "runtime.scheduling.flush", "errors_at_once"
)
ERRSTATE = _rule(
    NOW, "errstate", "the error state changes, and holds for what was recorded before it",
    "runtime.scheduling.evaluate",
)  # fmt: skip
CONDITIONS = _rule(
    NOW, "conditions", "elided values raised floating-point errors, which are reported once",
    "runtime.scheduling.evaluate",
)  # fmt: skip
EXPORTED_OPERAND = _rule(
    NOW, "exported operand", "a kernel reads exported memory now, so that it needs no copy",
    "arrays.exported_memory", "exported_at_once",
)  # fmt: skip

# ------------------------------------------------------------- evaluate together, later

SMALL_OUTPUTS = _rule(
    TOGETHER, "small outputs", "small results of the same large operands: one pass gives them all",
    "runtime.scheduling.co_evaluation", "fusion",
)  # fmt: skip
READING_OUTPUTS = _rule(
    TOGETHER, "reading outputs", "what reads exported values would copy them later",
    "runtime.scheduling.co_evaluation", "fusion",
)  # fmt: skip
OVERDUE = _rule(
    TOGETHER, "overdue outputs", "a loop leaves work behind at every sink, and would grow",
    "runtime.scheduling.flush",
)  # fmt: skip
CONCURRENT = _rule(
    TOGETHER, "concurrent", "evaluations with long calls share the cores with other threads'",
    "runtime.execution.concurrency", "concurrent_evaluations",
)  # fmt: skip
SELECTION = _rule(
    LATER, "selection", "x[mask] keeps its mask until the program asks for its size",
    "arrays.mask_selection", "dynamic_sizes",
)  # fmt: skip
STATEMENT = _rule(
    LATER, "statement", "a loop is evaluated between statements, not inside an expression",
    "runtime.scheduling.flush",
)  # fmt: skip
ROOM = _rule(
    LATER, "room", "iterations of elementwise work without arrays of their own fill one kernel",
    "runtime.scheduling.flush",
)  # fmt: skip

# ------------------------------------------------------------- what is stored, and where

COSTLY = _rule(
    RECOMPUTE, "large", "no cache holds the value: cheap work costs less than storing and loading",
    "runtime.scheduling.recompute",
)  # fmt: skip
CHEAP = _rule(
    ELIDE, "cheap", "the value is cheap to make again from operands four times smaller",
    "runtime.scheduling.elision", "elision",
)  # fmt: skip
DEAD = _rule(
    ELIDE, "dead in a loop", "the loop binds the name anew, and earlier values were not read again",
    "runtime.scheduling.elision", "elision",
)  # fmt: skip
UPDATE = _rule(
    IN_PLACE, "update", "nothing reads the old values, so the kernel writes over them",
    "runtime.execution.run_values",
)  # fmt: skip
SWAP = _rule(
    IN_PLACE, "swap", "the kernel reads what it writes: a second block replaces the old one",
    "runtime.execution.update_hazards",
)  # fmt: skip
SPARE_LOADS = _rule(
    IN_PLACE, "spare loads", "the kernel reads few elements of what it writes: these are copied",
    "runtime.execution.update_hazards",
)  # fmt: skip
KEPT_OPERANDS = _rule(
    IN_PLACE, "operands kept", "exceptions of the kernel may have to be told by its operands",
    "runtime.execution.executor",
)  # fmt: skip
LOST_OPERANDS = _rule(
    IN_PLACE, "operands lost", "the first exceptions of a kernel that wrote over its operands",
    "runtime.execution.run_values",
)  # fmt: skip
DONATION = _rule(
    IN_PLACE, "donation", "an operand without later readers gives its buffer to a result",
    "runtime.execution.executor",
)  # fmt: skip
REPLAYED = _rule(
    REPLAY, "replay", "all steps of a plan were captured at this geometry",
    "runtime.capture.replay", "capture",
)  # fmt: skip

# ------------------------------------------------------------- run at once in NumPy

SMALL = _rule(
    EAGER, "small", "fewer elements than eager_below: recording would take as long as the work",
    "runtime.scheduling.eager_rules", "eager_below",
)  # fmt: skip
SINGLE_BYTES = _rule(
    EAGER, "single bytes", "NumPy moves bytes fastest: up to 8 times eager_below of them",
    "runtime.scheduling.eager_rules", "eager_below",
)  # fmt: skip
VALUES_THERE = _rule(
    EAGER, "values there", "all values are there and small, and recorded work reads none of them",
    "arrays.eager_policy", "eager_below",
)  # fmt: skip
UNRECORDED_DTYPE = _rule(EAGER, "dtype", "kernels do not hold this dtype", "arrays.eager_policy")
STRANGE_MEMORY = _rule(
    EAGER, "strange memory", "nodes cannot describe how the array lies in memory",
    "arrays.eager_policy",
)  # fmt: skip
FAILS = _rule(EAGER, "fails", "NumPy raises the error at the call", "arrays.eager_policy")
ERROR_STATE = _rule(
    EAGER, "error state", "the floating-point error state wants errors at the line that has them",
    "arrays.eager_policy",
)  # fmt: skip
EXPORTED = _rule(
    EAGER, "exported", "other code may change an operand: a copy would take as long as the work",
    "arrays.eager_policy", "exported_at_once",
)  # fmt: skip
EXPORTED_TARGET = _rule(
    EAGER, "exported target", "other code sees the memory that is written", "arrays.eager_policy"
)
PART_OF_NUMBER = _rule(
    EAGER, "part of number", "the target is the real or the imaginary parts of complex numbers",
    "arrays.eager_policy",
)  # fmt: skip
MIDDLING_BLOCK = _rule(
    EAGER, "middling block", "an update, a join or a number of up to 8 times eager_below elements, "
    "which are there and, if written, not read by recorded work; a small product of such arrays; "
    "an exact operation at an instruction whose results are looked at alone",
    "arrays.eager_policy", "eager_below",
)  # fmt: skip
SMALL_WRITE = _rule(
    EAGER, "small write", "few elements are written, and recorded work reads none of the old ones",
    "arrays.eager_policy", "eager_below",
)  # fmt: skip
FRESH = _rule(
    EAGER, "fresh", "a new structure of exact operations is planned once it has taken some time, "
    "and is NumPy's until its programs are there", "runtime.scheduling.fresh", "plan_after",
)  # fmt: skip

RULES = tuple(_listed)
"""Every rule, in the order of docs/decisions.md."""
