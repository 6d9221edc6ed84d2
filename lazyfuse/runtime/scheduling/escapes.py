"""Escape analysis of numbers: where the result of a reduction goes in the user's function.

A number that has not been computed is a number to operations of ours alone. Code of others
(`Decimal(s)`, a database, `other.__sub__(s)`) and callers want NumPy's. The instructions of a
function say where a number goes from the place that makes it, on every path: into operators, into
calls, into local names, from there to where these are read. `uses` follows them, once per place,
and gives what has to hold at that place for the number to meet code of ours alone; None if it goes
anywhere else.

Python asks the operand on the left first. So that one has to be an array or a plain number: loaded
by a name, which is looked at when the number is made, or made by operations from such. On the right
may stand anything: our operator then goes on with NumPy's number. Owns the decision what an
instruction does with a number.
"""

from __future__ import annotations

import bisect
import dis
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from types import CodeType
from typing import Any, Final, NamedTuple

from lazyfuse.devices.caches import cached
from lazyfuse.runtime.scheduling.instructions import (
    CONSTANTS,
    LOADS,
    PAIRS,
    SKIPPED,
    instructions,
)

FUNCTION: Final = "function"
ELEMENTS: Final = "elements"
OPERAND: Final = "operand"
GLOBAL: Final = -1
NAME: Final = -2
"""Places of names that are no local ones: of the module; of a class body or the module."""

Source = tuple[int, int, str, str | None]
"""A name: its place in the frame, what it is to be for C (0: nothing), the name, and the attribute
that is loaded from its object."""

Use = tuple[str, Source]
"""What a name must be. `FUNCTION`: one of ours (or of Python's that takes our numbers); `ELEMENTS`:
an array that takes the number as an element; `OPERAND`: an array, or a plain number."""

_STORES = frozenset(
    """
STORE_FAST STORE_NAME STORE_GLOBAL STORE_DEREF STORE_FAST_STORE_FAST STORE_FAST_LOAD_FAST
""".split()
)

_TAKEN = {
    **dict.fromkeys(("STORE_FAST", "STORE_NAME", "POP_TOP"), 1),
    **dict.fromkeys(("STORE_GLOBAL", "STORE_DEREF", "RETURN_VALUE", "LIST_APPEND"), 1),
    **dict.fromkeys(("LOAD_ATTR", "LOAD_METHOD", "TO_BOOL", "FORMAT_SIMPLE", "CONVERT_VALUE"), 1),
    **dict.fromkeys(("UNARY_NEGATIVE", "UNARY_INVERT", "UNARY_NOT", "STORE_FAST_LOAD_FAST"), 1),
    **dict.fromkeys(("BINARY_OP", "COMPARE_OP", "BINARY_SUBSCR", "IS_OP", "CONTAINS_OP"), 2),
    **dict.fromkeys(("STORE_ATTR", "STORE_FAST_STORE_FAST", "FORMAT_WITH_SPEC"), 2),
    **dict.fromkeys(("BINARY_SLICE", "STORE_SUBSCR"), 3),
    "STORE_SLICE": 4,
}
"""How many values an instruction takes from the stack."""

_BY_ARGUMENT = {
    **dict.fromkeys(("BUILD_TUPLE", "BUILD_LIST", "BUILD_SET", "BUILD_STRING", "BUILD_SLICE"), 0),
    **dict.fromkeys(("CALL", "BUILD_CONST_KEY_MAP"), 1),
    "CALL_KW": 2,  # with the tuple of names
}
"""The same for those that take as many as their argument says, and these."""

_NOTHING_LEFT = frozenset(
    """
STORE_FAST STORE_NAME POP_TOP STORE_GLOBAL STORE_DEREF RETURN_VALUE LIST_APPEND STORE_ATTR
STORE_FAST_STORE_FAST STORE_SUBSCR STORE_SLICE
""".split()
)
"""Instructions that put nothing on the stack; others of the tables put one value there."""

_TAKES_NUMBERS = frozenset(
    """
TO_BOOL UNARY_NEGATIVE UNARY_INVERT UNARY_NOT FORMAT_VALUE FORMAT_SIMPLE FORMAT_WITH_SPEC
CONVERT_VALUE BUILD_STRING POP_TOP
""".split()
)
"""Instructions that ask our number itself, or drop it."""

_TWO = frozenset(("BINARY_OP", "COMPARE_OP", "BINARY_SUBSCR"))
"""Instructions that ask the lower of two operands first."""

_OPERATIONS = frozenset((*_TWO, "BINARY_SLICE", "UNARY_NEGATIVE", "UNARY_INVERT"))
"""Instructions whose results are arrays and numbers where all that they take is."""

_RUNS_NOTHING = frozenset("POP_TOP LIST_APPEND RETURN_VALUE IS_OP LOAD_ATTR LOAD_METHOD".split())
"""Instructions that run no code that sets names, whatever they take. So do those that build."""

_ENDS = frozenset(
    "RETURN_VALUE RETURN_CONST RAISE_VARARGS RERAISE JUMP_FORWARD JUMP_BACKWARD".split()
) | {"JUMP_BACKWARD_NO_INTERRUPT"}
"""Instructions after which the next one does not run."""

_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))

_READS_FRAMES = frozenset(
    """
locals vars globals eval exec evaluate query _getframe currentframe
""".split()
)
"""Functions of Python, numexpr and pandas that look up the names of their caller."""

_METADATA = frozenset(("dtype", "itemsize", "nbytes", "ndim", "shape", "size"))
"""Attributes that our number has before it is computed."""


_NO_VALUE = frozenset("KW_NAMES RESUME NOT_TAKEN JUMP_FORWARD JUMP_BACKWARD".split())
"""More instructions that leave the stack alone."""

_PLAIN_CONSTANTS = (bool, int, float, str, tuple, type(None), type(...))
"""Constants that leave operations with our number to it. Python's complex numbers do them
themselves with NumPy's floats, which are Python's, too.
"""


class _Item(NamedTuple):
    """A value on the stack or of a name."""

    is_number: bool = False  # whether it may be the number
    needs: frozenset[Use] | None = None
    """What has to hold for it to be an array or a plain number; None: nothing shows it to be."""
    name: Source | None = None  # by which it was loaded
    is_constant: bool = False

    def joined(self, other: _Item) -> _Item:
        """What is true of either."""
        if self == other:
            return self
        return _Item(
            self.is_number or other.is_number,
            _all(self.needs, other.needs),
            self.name if self.name == other.name else None,
            self.is_constant and other.is_constant,
        )


def _all(*needs: frozenset[Use] | None) -> frozenset[Use] | None:
    """What has to hold for several things; None: nothing shows one of them."""
    known = [each for each in needs if each is not None]
    return _NONE.union(*known) if len(known) == len(needs) else None


_NONE: frozenset[Use] = frozenset()
_UNKNOWN = _Item()
_NUMBER = _Item(True, _NONE)


class _State:
    """What is known before an instruction: the upper part of the stack, the names that have been
    stored since the number was made, and `ran`: what has to hold for no code of others to have run
    since; None: some has, and may have set names that it shares.
    """

    __slots__ = ("names", "ran", "stack")

    def __init__(
        self,
        stack: Iterable[_Item] = (),
        names: dict[str, _Item] | None = None,
        ran: frozenset[Use] | None = frozenset(),
    ) -> None:
        self.stack = list(stack)
        self.names = dict(names or {})
        self.ran = ran

    def fill(self, count: int) -> None:
        """Let the stack have as many values: what was below is not known, and not the number."""
        while len(self.stack) < count:
            self.stack.insert(0, _UNKNOWN)

    def take(self, count: int) -> list[_Item]:
        """Take values from the stack."""
        self.fill(count)
        taken = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return taken

    def lowest(self, count: int) -> _Item:
        """The lowest of the upper values of the stack."""
        self.fill(count)
        return self.stack[-count]

    def forget(self) -> None:
        """The stack is not known from here on."""
        if any(item.is_number for item in self.stack):
            raise _Escapes
        self.stack.clear()


class _Escapes(Exception):
    """The number goes to code that is not known."""


@cached(1024)
def uses(code: CodeType, offset: int, is_script: bool) -> tuple[Use, ...] | None:
    """What has to hold in the frame of a function for the result of an instruction to meet our own
    operations alone; None: it goes elsewhere. `is_script`: the names of the code are those of a
    program, which other code reads nowhere but in its functions.
    """
    try:
        return _Analysis(code, offset, is_script).run()
    except _Escapes:
        return None


class _Analysis:
    """The names that hold the number, and what has to hold for it to stay among ours."""

    def __init__(self, code: CodeType, offset: int, is_script: bool) -> None:
        self.code, self.offset, self.is_script = code, offset, is_script
        self.held: set[str] = set()
        self.found: dict[Use, None] = {}
        self.inner = [*_functions(code)] if is_script else []
        self.stores = _stores((code, *self.inner)) if is_script else {}

    def run(self) -> tuple[Use, ...]:
        """Follow the number from where it is made."""
        if self.offset >= len(self.code.co_code):
            raise _Escapes
        _Walk(self, self.code).from_place(self.offset)
        if self.held and any(
            not _READS_FRAMES.isdisjoint(each.co_names) for each in (self.code, *self.inner)
        ):
            raise _Escapes
        for each in self.inner if self.held else ():
            _Walk(self, each).all()
        return tuple(self.found)


class _Walk:
    """The paths through one code object on which something may be the number."""

    def __init__(self, analysis: _Analysis, code: CodeType) -> None:
        self.analysis, self.code = analysis, code
        self.is_inner = code is not analysis.code
        self.steps, self.at = instructions(code)
        self.entries: dict[int, _State] = {}
        self.waiting: list[int] = []
        self.handlers = _handlers(code, self.at)

    def from_place(self, offset: int) -> None:
        """Follow what the instruction at `offset` makes."""
        offsets = [*self.at]
        # a call of a Python function stands at the end of its caches
        place = bisect.bisect_right(offsets, offset) - 1
        if self.steps[place].opname == "PRECALL":  # that has called: its CALL is left out
            place += 1
        first = place
        while first > 0 and not self.steps[first].is_jump_target:
            first -= 1
        state = _State()
        for at in range(first, place + 1):
            if at == place and self.steps[at].opname in ("CALL", "CALL_KW"):
                self._need_ours(state.lowest(_taken(self.steps[at])))
            self._follow(at, state)
            # what a name was when the stack got it, it is to be when the number is made
            state.stack = [_settled(item, state) for item in state.stack]
            state.names.clear()
            state.ran = _NONE
        if not state.stack:
            raise _Escapes
        state.stack[-1] = _NUMBER
        self._walk(place + 1, state)

    def all(self) -> None:
        """Follow the names of the program that hold the number."""
        self._walk(0, _State(ran=None))

    def _walk(self, at: int, state: _State) -> None:
        self._run(at, state)
        while self.waiting:
            at = self.waiting.pop()
            known = self.entries[at]
            self._run(at, _State(known.stack, known.names, known.ran))

    def _run(self, at: int, state: _State) -> None:
        """Follow the instructions from one on to where paths meet."""
        if not self.is_inner and not any(
            item.is_number for item in (*state.stack, *state.names.values())
        ):
            return
        while at < len(self.steps):
            step = self.steps[at]
            for handler in self.handlers.get(at, ()):
                self._meet(handler, _State((), state.names, None))
            self._follow(at, state)
            if step.opcode in _JUMPS:
                self._meet(self._place(step.argval), state)
            at += 1
            if step.opname in _ENDS:
                return
            if at < len(self.steps) and self.steps[at].is_jump_target:
                self._meet(at, state)
                return

    def _meet(self, at: int, state: _State) -> None:
        """Let a path arrive; what is new goes on from there."""
        known = self.entries.get(at)
        if known is None:
            self.entries[at] = _State(state.stack, state.names, state.ran)
            self.waiting.append(at)
            return
        stack = [
            first.joined(second)
            for first, second in zip_longest(
                reversed(known.stack), reversed(state.stack), fillvalue=_UNKNOWN
            )
        ][::-1]
        names = {
            name: known.names.get(name, self._kept(name)).joined(
                state.names.get(name, self._kept(name))
            )
            for name in known.names.keys() | state.names
        }
        ran = _all(known.ran, state.ran)
        if (stack, names, ran) != (known.stack, known.names, known.ran):
            self.entries[at] = _State(stack, names, ran)
            self.waiting.append(at)

    def _kept(self, name: str) -> _Item:
        """A name that has not been stored on a path."""
        if name in self.code.co_varnames:
            return self._loaded(_State(), self.code.co_varnames.index(name), name, False)
        return self._loaded(_State(), NAME, name, True) if self.analysis.is_script else _UNKNOWN

    def _place(self, offset: int) -> int:
        """The number of the instruction that a jump goes to."""
        return self.at[offset] if offset in self.at else bisect.bisect_left([*self.at], offset)

    def _follow(self, at: int, state: _State) -> None:
        """Do to the state what an instruction does."""
        step, stack = self.steps[at], state.stack
        name = step.opname
        if name in SKIPPED or name in _NO_VALUE:
            return
        if name in CONSTANTS:
            known = _NONE if isinstance(step.argval, _PLAIN_CONSTANTS) else None
            stack.append(_Item(False, known, None, True))
        elif name in LOADS:
            stack.append(self._loaded(state, step.arg or 0, step.argval, name == "LOAD_DEREF"))
        elif name in ("LOAD_NAME", "LOAD_GLOBAL"):
            place = NAME if name == "LOAD_NAME" else GLOBAL
            stack.append(self._loaded(state, place, step.argval, True))
        elif name in PAIRS:
            for place, each in zip(divmod(step.arg or 0, 16), step.argval, strict=True):
                stack.append(self._loaded(state, place, each, False))
        elif name == "COPY":
            state.fill(step.arg or 0)
            stack.append(stack[-(step.arg or 0)])
        elif name == "SWAP":
            count = step.arg or 0
            state.fill(count)
            stack[-1], stack[-count] = stack[-count], stack[-1]
        elif name == "UNPACK_SEQUENCE":
            if not (at and _is_unpacked(self.steps, at - 1)):
                self._unknown(step, state)
        elif name == "BUILD_TUPLE" and _is_unpacked(self.steps, at):
            stack.extend(state.take(step.arg or 0)[::-1])
        elif name.startswith("POP_JUMP"):
            state.take(1)  # a number is asked whether it is true
        else:
            self._take(step, state)

    def _loaded(self, state: _State, place: int, name: str, is_shared: bool) -> _Item:
        """What a name gives; others may set a shared one."""
        stored = state.names.get(name)
        if self.analysis.stores.get(name) == 1:
            is_shared = False
        if stored is not None:
            return stored._replace(needs=_all(stored.needs, state.ran)) if is_shared else stored
        if self.is_inner and place >= 0:
            return _UNKNOWN  # the local names of other functions cannot be looked at
        source = place, 0, name, None
        if self.is_inner and name in self.analysis.held:
            return _Item(True, None, source)
        needs = frozenset({(OPERAND, source)})
        return _Item(False, _all(needs, state.ran) if is_shared else needs, source)

    def _take(self, step: dis.Instruction, state: _State) -> None:
        """An instruction of the tables, or one that is not known."""
        name = step.opname
        count = _taken(step)
        if count < 0:
            self._unknown(step, state)
            return
        taken = state.take(count)
        if any(item.is_number for item in taken):
            self._use(step, taken)
        if name in _STORES:
            self._store(step, taken, state)
            return
        result = self._result(step, taken, state)
        if name not in _RUNS_NOTHING and not name.startswith("BUILD_"):
            state.ran = _all(state.ran, result.needs)
        if name not in _NOTHING_LEFT:
            state.stack.append(result)

    def _unknown(self, step: dis.Instruction, state: _State) -> None:
        held = state.names.get(step.argval) if isinstance(step.argval, str) else None
        if held is not None and held.is_number and not step.opname.startswith("DELETE_"):
            raise _Escapes
        state.forget()
        state.ran = None

    def _store(self, step: dis.Instruction, taken: list[_Item], state: _State) -> None:
        """Put values into names."""
        names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
        if step.opname == "STORE_FAST_LOAD_FAST":
            state.names[names[0]] = taken[0]
            place = (step.arg or 0) & 15
            state.stack.append(self._loaded(state, place, names[1], False))
            return
        for name, item in zip(names, reversed(taken), strict=True):  # the first takes the top
            state.names[name] = item
            if item.is_number:
                self.analysis.held.add(name)

    def _result(self, step: dis.Instruction, taken: list[_Item], state: _State) -> _Item:
        """What an instruction makes of what it takes."""
        name, needs = step.opname, [item.needs for item in taken]
        if name in ("LOAD_ATTR", "LOAD_METHOD"):
            source = _attribute(taken[0].name, step.argval)
            if source is None or needs[0] is None:
                return _Item(False, needs[0], source)
            return _Item(False, _all(frozenset({(OPERAND, source)}), state.ran), source)
        if name in ("CALL", "CALL_KW"):
            function = taken[0].name
            if function is not None:
                needs[0] = frozenset({(FUNCTION, function)})
        elif name not in _OPERATIONS and name not in ("BUILD_SLICE", "BUILD_TUPLE"):
            return _UNKNOWN
        return _Item(False, _all(*needs))

    def _use(self, step: dis.Instruction, taken: list[_Item]) -> None:
        """Note what has to hold where an instruction takes the number."""
        name = step.opname
        if name in _TAKES_NUMBERS or (name == "LOAD_ATTR" and step.argval in _METADATA):
            return
        if name in _TWO and not (name == "BINARY_SUBSCR" and taken[0].is_number):
            if taken[1].is_number:
                self._need(taken[0].needs)
        elif name == "IS_OP" or (name == "CONTAINS_OP" and not taken[1].is_number):
            # constants are never NumPy's numbers
            if not any(item.is_constant for item in taken[name == "CONTAINS_OP" :]):
                raise _Escapes
        elif name in _STORES:
            if self.is_inner or name in ("STORE_GLOBAL", "STORE_DEREF"):
                raise _Escapes
            if name == "STORE_NAME" and not self.analysis.is_script:
                raise _Escapes
        elif name in ("CALL", "CALL_KW") and not taken[0].is_number:
            self._need_name(FUNCTION, taken[0].name)
        elif name in ("STORE_SUBSCR", "STORE_SLICE") and not taken[1].is_number:
            self._need_name(ELEMENTS, taken[1].name)
        else:
            raise _Escapes

    def _need_ours(self, function: _Item) -> None:
        """A call that makes a number is of a function of ours: others put it into something."""
        if function.name is None:
            self._need(function.needs)
        else:
            self._need_name(FUNCTION, function.name)

    def _need(self, needs: frozenset[Use] | None) -> None:
        if needs is None:
            raise _Escapes
        self.analysis.found.update(dict.fromkeys(sorted(needs, key=repr)))

    def _need_name(self, kind: str, name: Source | None) -> None:
        if name is None:
            raise _Escapes
        self.analysis.found[kind, name] = None


def _taken(step: dis.Instruction) -> int:
    """How many values an instruction takes from the stack; -1: it is not known."""
    name = step.opname
    if name in _BY_ARGUMENT:
        return (step.arg or 0) + _BY_ARGUMENT[name]
    if name == "FORMAT_VALUE":
        return 1 + bool((step.arg or 0) & 4)
    return _TAKEN.get(name, -1)


def _settled(item: _Item, state: _State) -> _Item:
    """A value that was loaded before something ran and names were stored."""
    sources = [source for _, source in item.needs or ()]
    if any(source[2] in state.names for source in (*sources, item.name or (0, 0, "", None))):
        return _UNKNOWN
    if any(place < 0 or attribute is not None for place, _, _, attribute in sources):
        return item._replace(needs=_all(item.needs, state.ran))
    return item


def _attribute(source: Source | None, name: str) -> Source | None:
    """An attribute of what was loaded by its name."""
    if source is None:
        return None
    return source[0], 0, source[2], name if source[3] is None else f"{source[3]}.{name}"


def _is_unpacked(steps: Sequence[dis.Instruction], at: int) -> bool:
    """Whether a tuple goes straight into as many names."""
    built, after = steps[at], steps[at + 1] if at + 1 < len(steps) else None
    if built.opname != "BUILD_TUPLE" or after is None:
        return False
    return after.opname == "UNPACK_SEQUENCE" and after.arg == built.arg


def _handlers(code: CodeType, places: dict[int, int]) -> dict[int, list[int]]:
    """Where the exceptions of each instruction go."""
    found: dict[int, list[int]] = {}
    if code.co_exceptiontable:
        bytecode: Any = dis.Bytecode(code)
        for entry in bytecode.exception_entries:
            for offset in range(entry.start, entry.end, 2):
                if offset in places:
                    found.setdefault(places[offset], []).append(places[entry.target])
    return found


def _stores(codes: Iterable[CodeType]) -> dict[str, int]:
    """How often the text of a program stores each of its global names."""
    found: dict[str, int] = {}
    for at, code in enumerate(codes):
        for step in instructions(code)[0]:
            if step.opname == "STORE_GLOBAL" or (at == 0 and step.opname == "STORE_NAME"):
                found[step.argval] = found.get(step.argval, 0) + 1
    return found


def _functions(code: CodeType) -> Iterable[CodeType]:
    """The functions in a code object, and those in these."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _functions(each)
