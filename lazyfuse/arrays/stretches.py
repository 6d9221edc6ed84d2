"""Expressions on memory of other code, evaluated as a whole: the operations of one expression of
the user's, between which no other code can run.

Such memory must be read before other code writes to it. An operation that reads it is recorded on
the memory itself; it stays pending if the next thing that can run is another operation of ours on
its result. The instructions of the user's frame say so: up to that operation they only load names,
constants and attributes of modules, and the values on the stack are known to be arrays of ours,
numbers and NumPy's arrays, so Python asks no other class. The last operation of such a stretch
evaluates it (`leave`). Results that are stored, calls of other functions, and whatever else is not
known end it: nothing is pending on other code's memory when other code runs.

Only with the native extension, whose operators and ufuncs call `leave` as the last thing that they
do, and which reads the local names of a frame.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Sequence
from types import CodeType, FrameType, ModuleType
from typing import Any

import numpy as np

from lazyfuse.arrays.base import NATIVE
from lazyfuse.arrays.ndarray import CANONICAL, OURS
from lazyfuse.arrays.nodes import INSIDE
from lazyfuse.runtime.events import decisions
from lazyfuse.runtime.scheduling import evaluate
from lazyfuse.runtime.scheduling.instructions import (
    CONSTANTS,
    LOADS,
    OPERATORS,
    PAIRS,
    SKIPPED,
    instructions,
)

_NUMBERS = frozenset((bool, int, float, complex))
"""Types whose operators leave the operation to an array on their right."""

_LONGEST = 24
"""Instructions up to the next operation, at most."""

_UNKNOWN: Any = object()

_PART: Any = object()
"""An array of ours that is known by nothing else."""

_SKIPPED = (*SKIPPED, "KW_NAMES")
_NAMED = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_ATTR", "LOAD_METHOD")
_SLICES = ("BUILD_SLICE", "BINARY_SLICE", "BINARY_SUBSCR")
_PLAIN = frozenset((*LOADS, *PAIRS, *CONSTANTS, *_SKIPPED, *_NAMED, *_SLICES))
"""Instructions that `_load` may follow."""


class Stretch:
    """What is open.

    `private`: operands in memory of other code, with the arrays that stand for them, by `id`.
    `place`: the instruction of the operation under way, or of the next one, `operands`: what it
    takes from the user's stack, `stack`: what is known to lie below these. `last`: the offset of
    the operation before it.
    """

    __slots__ = ("last", "operands", "place", "private", "stack")

    def __init__(self) -> None:
        self.private: dict[int, tuple[Any, Any]] = {}
        self.operands: list[Any] = []
        self.stack: list[Any] = []
        self.place: tuple[CodeType, int] | None = None
        self.last = -1


_open = Stretch()
_leaving = False  # whether a stretch is being evaluated


def is_open_result(x: Any) -> bool:
    """Whether an operand is a result of the open expression, pending on memory of other code."""
    return any(x is each for each in _open.operands) and _pending(x) is not None


def private_of(x: Any) -> Any:
    """The array that stands for an operand in the open expression, or None."""
    found = _open.private.get(id(x))
    return found[1] if found is not None else None


def begin(operands: Sequence[Any], private: list[Any], frame: FrameType) -> bool:
    """Whether an operation may stay pending for now, though some of its operands lie in memory of
    other code, over which it has `private` arrays: `leave` decides when it ends. `frame`: the one
    that called the operation.
    """
    global _open
    if NATIVE is None or frame.f_globals.get("__package__") in INSIDE or _is_watched():
        return False
    if _leaving or not NATIVE.stretch_begin():  # another thread's is open
        return False
    here = frame.f_code, frame.f_lasti
    if _open.place not in (None, here) and not _is_alive(_open, frame):
        _open = Stretch()
    if _open.place is None:
        below = _below(frame)
        if below is None:
            return False
        _open.place, _open.last, _open.stack = here, here[1], below
    elif _open.place != here:
        return False
    for x, own in zip(operands, private, strict=True):
        if own is not x:
            _open.private[id(x)] = x, own
    return True


def leave(result: Any) -> bool:
    """Called by C when an operation of the thread that has an open expression ends: whether it is
    still open. At its end, what is pending on memory of other code is evaluated. `result`: None
    after an error, which drops what lay on the stack.
    """
    global _open
    state = _open
    if _leaving:  # an operation of the evaluation
        return True
    if state.place is None:
        return False
    frame = sys._getframe(1)
    code, at = frame.f_code, frame.f_lasti
    if state.place != (code, at):
        return _passed_by(state, frame)
    _open = Stretch()
    if result is None:
        return False
    found = _next(frame, code, at, [*state.stack, result])
    if found is not None:
        offset, state.stack, state.operands = found
        state.place, state.last = (code, offset), at
        _open = state
        return True
    state.operands = []
    state.stack.append(result)
    del result
    _evaluate(state)
    return False


def _passed_by(state: Stretch, frame: FrameType) -> bool:
    """An operation elsewhere: inside ours, in a handler of a signal, in a finaliser, or after an
    exception that left the expression.
    """
    global _open
    if frame.f_globals.get("__package__") in INSIDE:
        return True
    if not _is_alive(state, frame):
        _open = Stretch()
        return False
    _evaluate(state)  # the handler may write next
    return True


def _is_alive(state: Stretch, frame: FrameType) -> bool:
    """Whether a frame, or one that called it, is in the middle of the open expression."""
    assert state.place is not None
    code, offset = state.place
    at: FrameType | None = frame
    while at is not None:
        if at.f_code is code and state.last <= at.f_lasti <= offset:
            return True
        at = at.f_back
    return False


def _evaluate(state: Stretch) -> None:
    """Evaluate what lies on the user's stack, as far as it is known."""
    global _leaving
    pending = [node for x in (*state.stack, *state.operands) if (node := _pending(x)) is not None]
    state.stack = []
    _leaving = True
    try:
        if pending:
            evaluate.evaluate(pending, decisions.EXPORTED_OPERAND)
    finally:
        _leaving = False


def _is_watched() -> bool:
    """Whether a debugger may run code between two instructions."""
    monitoring: Any = getattr(sys, "monitoring", None)  # from Python 3.12 on
    if monitoring is not None and monitoring.get_tool(monitoring.DEBUGGER_ID) is not None:
        return True
    return sys.gettrace() is not None


def _below(frame: FrameType) -> list[Any] | None:
    """What is known to lie on the stack below the operands of a frame's instruction, which is an
    operation of ours. None if it may be a call of other code (`sum`, `functools.reduce`), which
    goes on after the operation: what the instruction takes must have been loaded just before.
    """
    code = frame.f_code
    steps, places = instructions(code)
    last = first = places.get(frame.f_lasti, 0)
    while first > 0 and steps[first - 1].opname in _PLAIN and not steps[first].is_jump_target:
        first -= 1
    for start in range(first, last):
        stack: list[Any] = []
        if all(
            step.opname in _SKIPPED or _load(frame, code, step, step.opname, stack)
            for step in steps[start:last]
        ):
            taken = _operands(steps[last], steps[last].opname, stack)
            return stack[:-taken] if taken > 0 else None
    return None


def _pending(x: Any) -> Any:
    """The node of an array that has no value yet."""
    if type(x) not in OURS:
        return None
    node = x._node if x._storage is None else x._storage.node
    return node if node is not None and node.value is None else None


def _next(
    frame: FrameType, code: CodeType, at: int, stack: list[Any]
) -> tuple[int, list[Any], list[Any]] | None:
    """Where the next operation of ours comes, what lies on the stack below its operands, and these;
    None if anything else might run before it. `stack`: its known top after the instruction at `at`.
    """
    steps, places = instructions(code)
    first = places.get(at)
    if first is None:
        return None
    for step in steps[first + 1 : first + _LONGEST]:
        name = step.opname
        if name in _SKIPPED:
            continue
        taken = _operands(step, name, stack)
        if taken > 0:
            operands = [x.of if type(x) is _Method else x for x in stack[-taken:]]
            return step.offset, stack[:-taken], operands
        if taken == 0 or not _load(frame, code, step, name, stack):
            return None
    return None


def _operands(step: dis.Instruction, name: str, stack: list[Any]) -> int:
    """How many values an operation of ours takes from the stack; 0 if it may be that of others, and
    -1 where the instruction is none.
    """
    if name in ("BINARY_OP", "COMPARE_OP"):
        if name == "BINARY_OP" and step.argrepr not in OPERATORS:
            return 0
        return 2 if len(stack) >= 2 and _is_operator_of_ours(stack[-2], stack[-1]) else 0
    if name in ("UNARY_NEGATIVE", "UNARY_INVERT"):
        return 1 if stack and _ours(stack[-1]) else 0
    if name in ("CALL", "CALL_KW"):
        count = (step.arg or 0) + (name == "CALL_KW")  # with the tuple of names
        if len(stack) <= count:
            return 0
        called, operands = stack[-count - 1], stack[len(stack) - count :]
        if name == "CALL_KW":
            operands.pop()
        return count + 1 if _is_call_of_ours(called, operands) else 0
    return -1


def _is_call_of_ours(called: Any, operands: list[Any]) -> bool:
    """Whether a call is a ufunc's, function's or method's of ours, which writes to no array, and
    runs no other code.
    """
    arrays = [_ours(x) for x in operands]
    if not all(
        ours or type(x) in _NUMBERS or x is None for x, ours in zip(operands, arrays, strict=True)
    ):
        return False
    if isinstance(called, NATIVE.UfuncCore):  # without rows: of a function of the user's, perhaps
        return called._rows is not None and bool(called.nin == len(operands))
    is_method = type(called) is _Method
    function = called.function if is_method else called
    if type(function) is not NATIVE.Quick or function.__name__ not in _FUNCTIONS:
        return False
    # a second array might be `out`
    return function.__name__ == "where" or not any(arrays[0 if is_method else 1 :])


_FUNCTIONS = frozenset("all any clip max mean min prod ptp std sum var where".split())
"""Functions and methods that give arrays or numbers of ours for arrays of ours."""


def _is_operator_of_ours(left: Any, right: Any) -> bool:
    """Whether an operator on these calls ours, and no other before."""
    if _ours(left):
        if type(right) is np.ndarray:
            return right.dtype in CANONICAL
        return _ours(right) or type(right) in _NUMBERS
    return type(left) in _NUMBERS and _ours(right)


def _ours(x: Any) -> bool:
    """Whether a value is an array or number of ours, whose elements are no objects of others."""
    return x is _PART or (type(x) in OURS and x.dtype in CANONICAL)


def _load(
    frame: FrameType, code: CodeType, step: dis.Instruction, name: str, stack: list[Any]
) -> bool:
    """Put on the stack what an instruction loads; False if it does anything else."""
    if name in LOADS:
        stack.append(_local(frame, step.arg, step.argval))
    elif name in PAIRS:
        stack += [_local(frame, -1, each) for each in step.argval]
    elif name in CONSTANTS:
        stack.append(step.argval)
    elif name == "LOAD_GLOBAL" or (name == "LOAD_NAME" and frame.f_globals is _names(frame, code)):
        stack.append(_global(frame, step.argval))
    elif name in ("LOAD_ATTR", "LOAD_METHOD") and stack:
        stack.append(_attribute(stack.pop(), step.argval))
    elif name == "BUILD_SLICE" and len(stack) >= (step.arg or 0):
        bounds = [stack.pop() for _ in range(step.arg or 0)]
        stack.append(slice(None) if all(map(_is_bound, bounds)) else _UNKNOWN)
    elif name == "BINARY_SLICE" and len(stack) >= 3:
        bounds = [stack.pop(), stack.pop()]
        stack.append(_part(stack.pop(), slice(None)) if all(map(_is_bound, bounds)) else _UNKNOWN)
    elif name == "BINARY_SUBSCR" and len(stack) >= 2:
        key = stack.pop()
        stack.append(_part(stack.pop(), key))
    else:
        return False
    return stack[-1] is not _UNKNOWN


def _is_bound(x: Any) -> bool:
    return x is None or type(x) is int


def _part(x: Any, key: Any) -> Any:
    """What slices of an evaluated array of ours give: a view, which is ours."""
    return _PART if _ours(x) and type(key) is slice and _pending(x) is None else _UNKNOWN


def _local(frame: FrameType, at: Any, name: str) -> Any:
    try:
        return NATIVE.frame_local(frame, at, name)
    except NameError:
        return _UNKNOWN


def _names(frame: FrameType, code: CodeType) -> Any:
    """The local names of a module's frame; they are its global ones."""
    return frame.f_locals if not code.co_flags & 1 else None  # 1: a function's


def _global(frame: FrameType, name: str) -> Any:
    for table in (frame.f_globals, frame.f_builtins):
        if type(table) is not dict:
            return _UNKNOWN
        if name in table:
            return table[name]
    return _UNKNOWN


class _Method:
    """A method of an array of ours, and the array."""

    __slots__ = ("function", "of")

    def __init__(self, function: Any, of: Any) -> None:
        self.function, self.of = function, of


def _attribute(x: Any, name: str) -> Any:
    """An attribute of a module, or a method of an array: looking others up may run their code."""
    if x is _PART:
        return _UNKNOWN
    if _ours(x):
        return _Method(getattr(type(x), name), x) if name in _FUNCTIONS else _UNKNOWN
    if not isinstance(x, ModuleType) or type(x).__getattribute__ is not ModuleType.__getattribute__:
        return _UNKNOWN
    return vars(x).get(name, _UNKNOWN) if name not in vars(type(x)) else _UNKNOWN


if NATIVE is not None:
    NATIVE.bind("stretch_left", leave)
