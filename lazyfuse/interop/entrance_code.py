"""Wrapper code: tests of arguments in front of the bodies of other libraries' functions.

A library's Python function stays the same object, with its name, signature, defaults, frame and
references; its code gets a few more instructions, right after its first one. They test the types of
the parameters and convert those that may hold a value of ours before the body runs:

    if type(a) in suspects or type(b) in suspects: a = convert(a); b = convert(b)

The type of a parameter that still holds its default is not tested. Modules that bound, pickled or
registered the function before get the new code too. Owns the instructions, which it writes for the
running interpreter. Imports nothing of lazyfuse.
"""

from __future__ import annotations

import dis
import inspect
import itertools
import sys
from collections.abc import Callable, Collection, Iterator
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from lazyfuse.devices.caches import cached

_FORWARD = "FORWARD_" if sys.version_info < (3, 12) else ""
_NULL_FIRST = sys.version_info < (3, 13)
_EXTENDED = dis.opmap["EXTENDED_ARG"]
_MADE_CELL = dis.opmap["MAKE_CELL"]
_RESUME = dis.opmap["RESUME"]


def _sample(p: Any, *q: Any) -> Any:
    """Contains the instructions of a wrapper, to find the inline caches after each of them."""
    if p is not None and type(p) in q:
        p = _sample(p)
    while q:  # compiles to jumps if true and jumps if false
        p = 1
    return p or 1


def _caches(code: CodeType) -> dict[int, int]:
    """The units of inline cache after each kind of instruction in `code`."""
    all_of_it = list(dis.get_instructions(code))
    return {
        here.opcode: (after.offset - here.offset) // 2 - 1
        for here, after in itertools.pairwise(all_of_it)
    }


_CACHES = _caches(_sample.__code__)


USERS = "args"
"""The name of the parameter that libraries pass on unchanged to the user's function."""


class Suspects(NamedTuple):
    """The types that wrappers look for, and the functions that convert the values."""

    types: frozenset[type]
    convert: Callable[[Any], Any]
    any_of: Callable[[Any], bool]
    """Whether any of the arguments of `*` needs converting."""
    any_named: Callable[[Any], bool]
    convert_all: Callable[[Any], Any]
    convert_named: Callable[[Any], Any]


class _Assembler:
    """Writes a few instructions. A jump goes forward, to their end."""

    def __init__(self) -> None:
        self.made = bytearray()
        self._jumps: list[int] = []

    def put(self, name: str, argument: int = 0) -> None:
        op = dis.opmap[name]
        if argument > 255:
            self.made += bytes((_EXTENDED, argument >> 8))
        self.made += bytes((op, argument & 255)) + bytes(2 * _CACHES.get(op, 0))

    def load(self, local: _Local) -> None:
        self.put("LOAD_DEREF" if local.shared else "LOAD_FAST", local.position)

    def call(self, constant: int, local: _Local) -> None:
        """Call a constant with one local variable."""
        if _NULL_FIRST:
            self.put("PUSH_NULL")
        self.put("LOAD_CONST", constant)
        if not _NULL_FIRST:
            self.put("PUSH_NULL")
        self.load(local)
        if "PRECALL" in dis.opmap:
            self.put("PRECALL", 1)
        self.put("CALL", 1)

    def convert(self, constant: int, local: _Local) -> None:
        self.call(constant, local)
        self.put("STORE_DEREF" if local.shared else "STORE_FAST", local.position)

    def jump_if(self, condition: str) -> None:
        """Jump to the end if the top of the stack is `condition`: TRUE, FALSE or NONE."""
        self._jumps.append(len(self.made))
        self.put(f"POP_JUMP_{_FORWARD}IF_{condition}")
        if "NOT_TAKEN" in dis.opmap:
            self.put("NOT_TAKEN")

    def finish(self) -> bytes:
        for at in self._jumps:
            self.made[at + 1] = (len(self.made) - at) // 2 - 1 - _CACHES.get(self.made[at], 0)
        return bytes(self.made)


class _Local(NamedTuple):
    """A parameter: its index among the locals, and whether inner functions share it."""

    position: int
    shared: bool


class _Parameters(NamedTuple):
    """The indices of the parameters among a function's locals, without those to pass unchanged."""

    single: list[int]
    defaults: dict[int, Any]
    star: int | None
    named: int | None


def _parameters(function: FunctionType, skipped: int) -> _Parameters:
    code = function.__code__
    plain, total = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    given = function.__defaults__ or ()
    defaults = dict(enumerate(given, plain - len(given)))
    named = function.__kwdefaults__ or {}
    defaults |= {i: named[n] for i, n in enumerate(code.co_varnames[:total]) if n in named}
    single = [
        i
        for i in range(skipped, total)
        if code.co_varnames[i] != USERS or defaults.get(i) != ()  # else the user's
    ]
    star = code.co_flags & inspect.CO_VARARGS
    last = total + bool(star)
    return _Parameters(
        single, defaults, total if star else None, last if code.co_flags & _NAMED else None
    )


_NAMED = inspect.CO_VARKEYWORDS
_PLAIN_DEFAULTS = (bool, int, float, str)
_NO_DEFAULT, _NONE = -1, -2


_TYPE, _TYPES, _CONVERT, _ANY_OF, _ANY_NAMED, _CONVERT_ALL, _CONVERT_NAMED, _DEFAULTS = range(8)
"""Indices of the constants added to a code object: `type`, the suspects, then some defaults."""

_STEP = 16  # they start at a multiple of this, so that functions share pieces of code


@cached(1024)
def _test(local: _Local, first: int, slot: int) -> tuple[bytes, int]:
    """Convert one parameter unless it holds its default, or its type needs no converting.

    Also gives the offset of the instruction that looks the type up, which a metaclass may forbid.
    """
    write = _Assembler()
    if slot != _NO_DEFAULT:
        write.load(local)
        if slot != _NONE:
            write.put("LOAD_CONST", first + slot)
            write.put("IS_OP")
        write.jump_if("NONE" if slot == _NONE else "TRUE")
    write.call(first + _TYPE, local)
    write.put("LOAD_CONST", first + _TYPES)
    place = len(write.made) // 2
    write.put("CONTAINS_OP")
    write.jump_if("FALSE")
    write.convert(first + _CONVERT, local)
    return write.finish(), place


@cached(1024)
def _test_all(local: _Local, first: int, test: int, convert: int) -> bytes:
    """Convert the arguments of `*` or `**` if any of them needs it."""
    write = _Assembler()
    write.load(local)
    if "TO_BOOL" in dis.opmap:
        write.put("TO_BOOL")
    write.jump_if("FALSE")
    write.call(first + test, local)
    write.jump_if("FALSE")
    write.convert(first + convert, local)
    return write.finish()


@cached(1024)
def _convert(local: _Local, constant: int) -> bytes:
    write = _Assembler()
    write.convert(constant, local)
    return write.finish()


def _handle() -> bytes:
    write = _Assembler()
    for name in ("PUSH_EXC_INFO", "POP_TOP", "POP_EXCEPT"):
        write.put(name)
    return write.finish()


def _jump_over(units: int) -> bytes:
    write = _Assembler()
    if units > 255:
        write.put("EXTENDED_ARG", units >> 8)
    write.put("JUMP_FORWARD", units & 255)
    return write.finish()


_HANDLER = _handle()
_LOOKUP = 1 + _CACHES[dis.opmap["CONTAINS_OP"]]  # units; an exception's offset is after the caches


class _Block(NamedTuple):
    """The instructions of a wrapper, and offsets in them."""

    made: bytes
    lookups: list[int]
    """Offsets of type lookups. If a metaclass forbids the lookup, the handler takes over."""
    handler: int
    """Offset of the code that passes every parameter to `convert`."""
    defaults: list[Any]
    """The constants after those that all wrappers have."""


def _block(there: _Parameters, first: int, shared: Collection[int]) -> _Block:
    defaults: dict[tuple[type, Any], int] = {}
    tests, lookups, conversions = bytearray(), [], [_HANDLER]
    for place in there.single:
        default = there.defaults.get(place, there)
        slot = _NONE if default is None else _NO_DEFAULT
        if type(default) in _PLAIN_DEFAULTS:
            slot = defaults.setdefault((type(default), default), _DEFAULTS + len(defaults))
        local = _Local(place, place in shared)
        test, lookup = _test(local, first, slot)
        lookups.append(len(tests) // 2 + lookup)
        tests += test
        conversions.append(_convert(local, first + _CONVERT))
    for many, any_of, convert in (
        (there.star, _ANY_OF, _CONVERT_ALL),
        (there.named, _ANY_NAMED, _CONVERT_NAMED),
    ):
        if many is not None:
            local = _Local(many, many in shared)
            tests += _test_all(local, first, any_of, convert)
            conversions.append(_convert(local, first + convert))
    handler = b"".join(conversions)
    tests += _jump_over(len(handler) // 2)
    return _Block(
        bytes(tests + handler), lookups, len(tests) // 2, [default for _, default in defaults]
    )


def add(function: FunctionType, suspects: Suspects, skipped: int = 0) -> None:
    """Put tests of a function's parameters, all but the first `skipped`, in front of its body."""
    code = function.__code__
    if code.co_consts and code.co_consts[-1] is suspects.types:
        return  # it has the tests already
    there = _parameters(function, skipped)
    if not any((there.single, there.star is not None, there.named is not None)):
        return
    body = code.co_code
    split = _begin_of_body(body)
    first = -(-len(code.co_consts) // _STEP) * _STEP
    block = _block(there, first, _shared(body, split))
    length = len(block.made) // 2
    entries = [(split + x, split + x + _LOOKUP, split + block.handler, 0) for x in block.lookups]
    for start, end, target, state in _exceptions(code.co_exceptiontable):
        if start < split < end:  # the range must not cover the inserted code
            entries.append((start, split, target + length, state))
            start = split
        moved = [x if x < split else x + length for x in (start, target)]
        entries.append((moved[0], end if end <= split else end + length, moved[1], state))
    lines = _after_units(code.co_linetable, split)
    unused = (None,) * (first - len(code.co_consts))
    function.__code__ = code.replace(
        co_code=body[: 2 * split] + block.made + body[2 * split :],
        co_consts=(*code.co_consts, *unused, type, *suspects, *block.defaults, suspects.types),
        co_stacksize=max(code.co_stacksize, _DEPTH),
        co_linetable=code.co_linetable[:lines] + _no_lines(length) + code.co_linetable[lines:],
        co_exceptiontable=b"".join(_encoded(sorted(entries))),
    )


def lead(function: FunctionType, target: Callable[[Any], Any]) -> None:
    """Redirect all calls of a function of one parameter to `target`."""
    code = function.__code__
    split = _begin_of_body(code.co_code)
    first = len(code.co_consts)
    write = _Assembler()
    write.call(first, _Local(0, 0 in _shared(code.co_code, split)))
    write.put("RETURN_VALUE")
    lines = code.co_linetable[: _after_units(code.co_linetable, split)]
    function.__code__ = code.replace(
        co_code=code.co_code[: 2 * split] + write.finish(),
        co_consts=(*code.co_consts, target),
        co_stacksize=max(code.co_stacksize, _DEPTH),
        co_linetable=lines + _no_lines(len(write.made) // 2),
        co_exceptiontable=b"",
    )


_DEPTH = 5  # of the stack; deepest with an exception's information below a call


def _begin_of_body(body: bytes) -> int:
    """The offset, in units, after the function's first instructions."""
    found = body.index(_RESUME)
    while found % 2:
        found = body.index(_RESUME, found + 1)
    return found // 2 + 1


def _shared(body: bytes, end: int) -> Collection[int]:
    """The indices of locals that inner functions share."""
    head = body[: 2 * end]
    if _MADE_CELL not in head[::2]:
        return ()
    return [head[i + 1] for i in range(0, len(head), 2) if head[i] == _MADE_CELL]


# ----------------------------------------------------------------- the tables of a code object


def _after_units(lines: bytes, units: int) -> int:
    """The length of the part of a table of lines that describes the first `units`."""
    at = 0
    while units > 0:
        units -= (lines[at] & 7) + 1
        at += 1
        while at < len(lines) and not lines[at] & 128:
            at += 1
    if units:
        raise ValueError("an instruction shares its line with the first one")
    return at


def _no_lines(units: int) -> bytes:
    """A table of lines for `units` on the same line as the code before them."""
    whole, rest = divmod(units, 8)
    made = bytes((_SAME_LINE | 7, 0)) * whole
    return made + bytes((_SAME_LINE | rest - 1, 0)) if rest else made


_SAME_LINE = 128 | 13 << 3  # an entry without columns; the change of the line follows


def _exceptions(table: bytes) -> Iterator[tuple[int, int, int, int]]:
    """For each handler: the start and end of its range, its offset, and the stack's state."""
    numbers = _numbers(iter(table))
    for start in numbers:
        length, target, state = next(numbers), next(numbers), next(numbers)
        yield start, start + length, target, state


def _numbers(table: Iterator[int]) -> Iterator[int]:
    for byte in table:
        value = byte & 63
        while byte & 64:
            byte = next(table)
            value = value << 6 | byte & 63
        yield value


def _encoded(entries: list[tuple[int, int, int, int]]) -> Iterator[bytes]:
    for start, end, target, state in entries:
        first = _number(start)
        yield bytes((first[0] | 128,)) + first[1:]
        yield from map(_number, (end - start, target, state))


def _number(value: int) -> bytes:
    parts = [value & 63]
    while value := value >> 6:
        parts.insert(0, 64 | value & 63)
    return bytes(parts)
