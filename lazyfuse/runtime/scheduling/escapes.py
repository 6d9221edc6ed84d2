"""Escape analysis of numbers: where the result of a reduction goes in the user's function.

A number that has not been computed is a number to operations of ours alone. Compiled code of others
(`Decimal(s)`, `time.sleep(s)`, a database) and callers want NumPy's. The instructions of a function
say where a number goes: into operators, into calls, into local names, from there to where these are
read. `uses` reads them, once per place, and gives what has to hold for the number to meet code of
ours alone; None if it goes anywhere else.

The order of statements is left aside: a local name counts wherever it is read. Owns the decision
what an instruction does with a number.
"""

from __future__ import annotations

import bisect
import dis
from collections.abc import Iterable, Sequence
from types import CodeType

from lazyfuse.devices.caches import cached
from lazyfuse.runtime.scheduling.eager_fusion import (
    CONSTANTS,
    LOADS,
    PAIRS,
    SKIPPED,
    Source,
    instructions,
)

Use = tuple[bool, Source]
"""What a name must be: True: a function of ours (or one of Python's that takes our numbers), False:
an array that takes the number as an element."""

_STORES = ("STORE_FAST", "STORE_NAME", "STORE_FAST_STORE_FAST", "STORE_FAST_LOAD_FAST")

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
BINARY_OP COMPARE_OP BINARY_SUBSCR IS_OP CONTAINS_OP TO_BOOL UNARY_NEGATIVE UNARY_INVERT UNARY_NOT
FORMAT_VALUE FORMAT_SIMPLE FORMAT_WITH_SPEC CONVERT_VALUE BUILD_STRING POP_TOP
""".split()
)
"""Instructions that ask our number itself, or drop it."""


_METADATA = ("dtype", "itemsize", "nbytes", "ndim", "shape", "size")
"""Attributes that our number has before it is computed."""


class _Item:
    """A value on the stack: the name it was loaded by, if any, and whether it is the number."""

    __slots__ = ("is_number", "name")

    def __init__(self, name: Source | None = None, is_number: bool = False) -> None:
        self.name = name
        self.is_number = is_number


class _Escapes(Exception):
    """The number goes to code that is not known."""


@cached(1024)
def uses(code: CodeType, offset: int, is_script: bool) -> tuple[Use, ...] | None:
    """What has to hold in the frame of a function for the result of an instruction to meet our own
    operations alone; None: it goes elsewhere. `is_script`: the names of the code are those of a
    program, which other code reads nowhere but in its functions.
    """
    analysis = _Analysis(code, offset, is_script)
    try:
        return analysis.run()
    except _Escapes:
        return None


class _Analysis:
    """The names that hold the number, and what has to hold for it to stay among ours."""

    def __init__(self, code: CodeType, offset: int, is_script: bool) -> None:
        self.code, self.offset, self.is_script = code, offset, is_script
        self.names: set[str] = set()
        self.found: dict[Use, None] = {}

    def run(self) -> tuple[Use, ...]:
        """Read all instructions until no further name is found to hold the number."""
        offsets = list(instructions(self.code)[1])
        at = bisect.bisect_right(offsets, self.offset) - 1
        if self.offset >= len(self.code.co_code):
            raise _Escapes
        self.offset = offsets[at]  # a call of a Python function stands at the end of its caches
        known = -1
        while known < len(self.names):
            known = len(self.names)
            self._read(self.code)
        if self.is_script and self.names:
            for inner in _functions(self.code):
                self._read(inner)
        return tuple(self.found)

    def _read(self, code: CodeType) -> None:
        """Follow the number through one code object, in the order of the text."""
        steps, _ = instructions(code)
        stack: list[_Item] = []
        for at, step in enumerate(steps):
            if step.is_jump_target:
                self._reset(stack)
            self._follow(code, steps, at, stack)
            if code is self.code and step.offset == self.offset:
                if not stack:
                    raise _Escapes
                stack[-1].is_number = True

    def _reset(self, stack: list[_Item]) -> None:
        """The stack is not known from here on."""
        if any(item.is_number for item in stack):
            raise _Escapes
        stack.clear()

    def _follow(
        self, code: CodeType, steps: Sequence[dis.Instruction], at: int, stack: list[_Item]
    ) -> None:
        """Do to the stack what an instruction does."""
        step = steps[at]
        name = step.opname
        if name in SKIPPED or name in ("KW_NAMES", "RESUME", "NOT_TAKEN"):
            return
        if name in CONSTANTS:
            stack.append(_Item())
        elif name in LOADS or name in ("LOAD_NAME", "LOAD_GLOBAL"):
            stack.append(self._loaded(code, step.arg or 0, step.argval, name))
        elif name in PAIRS:
            for place, each in zip(divmod(step.arg or 0, 16), step.argval, strict=True):
                stack.append(self._loaded(code, place, each, "LOAD_FAST"))
        elif name in ("SWAP", "COPY"):
            self._rearrange(name, step.arg or 0, stack)
        elif name == "UNPACK_SEQUENCE":
            before = steps[at - 1]
            if before.opname != "BUILD_TUPLE" or before.arg != step.arg:
                self._reset(stack)
        elif name == "BUILD_TUPLE" and _is_unpacked(steps, at):
            self._fill(stack, step.arg or 0)
            count = step.arg or 0
            stack[len(stack) - count :] = stack[: -count - 1 : -1]
        elif name.startswith("POP_JUMP"):
            del stack[-1:]  # a number is asked whether it is true
            self._reset(stack)
        else:
            self._take(code, step, stack)

    def _loaded(self, code: CodeType, place: int, name: str, opname: str) -> _Item:
        is_global = opname in ("LOAD_NAME", "LOAD_GLOBAL")
        if opname == "LOAD_DEREF":
            held = False  # a number that was stored there has escaped
        elif code is self.code:
            held = name in self.names
        else:
            held = is_global and name in self.names
        # the local names of other functions cannot be looked at
        known = is_global or code is self.code
        return _Item((-1 if is_global else place, 0, name, None) if known else None, held)

    def _fill(self, stack: list[_Item], count: int) -> None:
        """Let the stack have as many values: what was below is not known, and not the number."""
        while len(stack) < count:
            stack.insert(0, _Item())

    def _rearrange(self, name: str, count: int, stack: list[_Item]) -> None:
        self._fill(stack, count)
        if name == "COPY":
            stack.append(stack[-count])
        else:
            stack[-1], stack[-count] = stack[-count], stack[-1]

    def _take(self, code: CodeType, step: dis.Instruction, stack: list[_Item]) -> None:
        """An instruction of the tables, or one that is not known."""
        name = step.opname
        count = _TAKEN.get(name, -1)
        if name in _BY_ARGUMENT:
            count = (step.arg or 0) + _BY_ARGUMENT[name]
        elif name == "FORMAT_VALUE":
            count = 1 + bool((step.arg or 0) & 4)
        if count < 0:
            self._reset(stack)
            return
        self._fill(stack, count)
        taken = stack[len(stack) - count :]
        del stack[len(stack) - count :]
        if any(item.is_number for item in taken):
            self._use(step, taken, code is not self.code)
        if name not in _NOTHING_LEFT:
            result = _Item()
            if name in ("LOAD_ATTR", "LOAD_METHOD"):
                result.name = _attribute(taken[0].name, step.argval)
            elif name == "STORE_FAST_LOAD_FAST":
                result.is_number = step.argval[1] in self.names
            stack.append(result)

    def _use(self, step: dis.Instruction, taken: list[_Item], is_inner: bool) -> None:
        """Note what has to hold where an instruction takes the number."""
        name = step.opname
        if name in _TAKES_NUMBERS or (name == "LOAD_ATTR" and step.argval in _METADATA):
            return
        if name in _STORES:
            if is_inner or (name == "STORE_NAME" and not self.is_script):
                raise _Escapes
            names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
            if name == "STORE_FAST_STORE_FAST":  # the first takes the top
                self.names.update(
                    each
                    for each, item in zip(names, reversed(taken), strict=True)
                    if item.is_number
                )
            else:
                self.names.add(names[0])
        elif name in ("CALL", "CALL_KW") and not taken[0].is_number:
            self._need(True, taken[0])
        elif name in ("STORE_SUBSCR", "STORE_SLICE"):
            self._need(False, taken[1])
        else:
            raise _Escapes

    def _need(self, is_function: bool, item: _Item) -> None:
        if item.name is None:
            raise _Escapes
        self.found[is_function, item.name] = None


def _attribute(source: Source | None, name: str) -> Source | None:
    """An attribute of what was loaded by its name."""
    if source is None or source[3] is not None:
        return None
    return source[0], 0, source[2], name


def _is_unpacked(steps: Sequence[dis.Instruction], at: int) -> bool:
    """Whether a tuple goes straight into as many names."""
    after = steps[at + 1] if at + 1 < len(steps) else None
    return after is not None and after.opname == "UNPACK_SEQUENCE" and after.arg == steps[at].arg


def _functions(code: CodeType) -> Iterable[CodeType]:
    """The functions in a code object, and those in these."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _functions(each)
