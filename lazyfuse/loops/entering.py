"""Entering a compiled loop, and leaving it: values of names to words, and back.

Owns the memory that a compiled loop is given: its words, working memory, and memory for arrays of
its own.
"""

from __future__ import annotations

import ctypes
import inspect
import itertools
import math
import sys
from array import array
from types import NoneType
from typing import Any, NamedTuple

import numpy as np

from lazyfuse.arrays.base import NATIVE
from lazyfuse.arrays.eager_policy import is_in_chunks
from lazyfuse.arrays.ndarray import export, ndarray, wrap
from lazyfuse.devices.base import ALONE, Source
from lazyfuse.loops import kinds
from lazyfuse.loops.kinds import (
    LETTER,
    LONG,
    OTHER,
    RANGE,
    UNBOUND,
    ArrayKind,
    Literal,
    Object,
    Sequence,
    Unbound,
)  # fmt: skip
from lazyfuse.loops.names import DOTTED
from lazyfuse.loops.objects import TABLE
from lazyfuse.loops.text import ARENA, DEPTH, END, LARGE, LOG, LOGGED, OBJECTS, ROOM, SCRATCH, Meant
from lazyfuse.loops.ufuncs import addresses
from lazyfuse.loops.values import View
from lazyfuse.runtime.layout.meta_arrays import address
from lazyfuse.runtime.placement import devices

_ENTRY = ctypes.PYFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
_LEAST, _MOST = 1 << 13, 1 << 21
"""Numbers for which memory for arrays of the loop's own is."""
_BY_VALUE = (int, ndarray, np.ndarray)
"""Types of which some values have a kind, and others have none."""
_FRAMES, _DEEPEST = 50, 2_000
"""Python's frames that are left alone, and how deep functions go at most on a thread's stack."""
TABLE_ADDRESS = ctypes.addressof(TABLE)
_PENDING = -2
"""What C says where an array has to be exported first (native/entering)."""


class Room(NamedTuple):
    """The memory of a loop while it runs."""

    is_ours: bool
    """Whether arrays that it makes are ours."""
    arena: Any
    kept: list[Any]


class Version:
    """A loop compiled for names of certain kinds."""

    def __init__(
        self,
        names: list[str],
        stored: list[str],
        written: list[tuple[str, str]],
        entry: dict[str, Any],
        held: dict[str, Any],
        meant: Meant,
    ) -> None:
        self.meant, self.written, self.names = meant, written, names
        self.form = entry.get("*", "")
        self.stored = [*stored, *[DOTTED.format(*each) for each in written]]
        self.source = Source("numba", ALONE, meant.text, 0, (), ())
        self.program: Any = None
        self.entry = 0
        self.arena: Any = None
        self.types: list[type] = []
        self.enters = [
            (name, kind, at, _how(kind)) for name, kind, at in meant.enters if kind is not UNBOUND
        ]
        self.exits = {
            code: [self._exit(name, left.get(name)) for name in self.stored]
            for code, left in meant.leaves.items()
        }
        self.loops = [(at, addresses(each, index)) for each, index, at in meant.functions]
        self.blocks = 0 if meant.grids or NATIVE is None else meant.blocks  # which C provides
        self.is_plain = (
            meant.makes is None
            and self.blocks == meant.blocks
            and not (self.loops or meant.appended or meant.logs or written or meant.recurses)
        )
        self.rows = self._packed(entry, held) if NATIVE is not None else None
        self.packed_exits = {code: _packed_exit(each) for code, each in self.exits.items()}
        self.Words = ctypes.c_int64 * meant.words
        self.Floats = ctypes.c_double * meant.words

    def is_ready(self) -> bool:
        """Whether it can be entered; compiled in the background."""
        if self.program is None:
            device = devices.cpu()
            device.prepare_loops()
            self.program = device.soon(self.source)
            self.entry = 0 if self.program is None else self.program.entry
        return self.program is not None

    def why_never(self) -> str:
        """Why it cannot be compiled."""
        return str(devices.cpu().why_never(self.source))

    def is_current(self) -> bool:
        """Whether the functions that it contains are still those of the program."""
        return all(get(*given) is value for get, given, value in self.meant.constants)

    def enter(
        self, first: tuple[int, ...], values: list[Any], held: dict[str, Any] | None = None
    ) -> tuple[int, list[Any], Any] | None:
        """Run the loop for names with these values; None where they do not fit. How it ended, the
        values of the names that it assigns (`UNBOUND` for those that keep theirs), its words.

        `first`: whom to ask for signals, the counter, stop and step. `held`: values of the kinds
        for which this is, by name; without it C looks at the kinds. Attributes have got their
        values when it returns.
        """
        words = self.Words(*first)
        words[OBJECTS] = TABLE_ADDRESS
        if held is None:
            filled = NATIVE.loop_fill(self.rows, values, words, self.blocks)
            if filled == _PENDING and not any(map(is_in_chunks, values)):
                # whatever happens meanwhile, reads and writes go to this memory
                ready = [export(x) if type(x) is ndarray else x for x in values]
                filled = NATIVE.loop_fill(self.rows, ready, words, self.blocks)
        else:
            filled = self._values(words, held)
        if type(filled) is int:
            return None
        # what is in `filled` lives until the loop has run
        if self.is_plain and (held is None or not self.blocks):
            code, found = self._run(words)
            if found is None:
                found = self._left(code, words, held or self._by_name(values), is_ours=False)
            return code, found, words
        held = held or self._by_name(values)
        room = self._arrange(words, held, most=filled[0])
        if room is None:
            return None
        code, found = self._run(words)
        if found is None:
            found = self._left(code, words, held, room.is_ours)
        self.arena = room.arena
        count = len(self.stored) - len(self.written)
        for (name, attribute), value in zip(self.written, found[count:], strict=True):
            if value is not UNBOUND:
                setattr(held[name], attribute, value)
        return code, found[:count], words

    def left(self, code: int, words: Any, values: list[Any]) -> list[Any]:
        """The values that a loop which makes no arrays has given to names."""
        return self._left(code, words, self._by_name(values), is_ours=False)

    def _by_name(self, values: list[Any]) -> dict[str, Any]:
        return dict(zip(self.names, values, strict=True))

    def _run(self, words: Any) -> tuple[int, list[Any] | None]:
        """Run the loop: how it ended, and the values of its names where C reads them."""
        if NATIVE is not None:
            return NATIVE.loop_call(self.entry, words, self.packed_exits, UNBOUND)  # type: ignore[no-any-return]
        memory = ctypes.addressof(words)
        return _ENTRY(self.entry)(memory, memory), None

    def _arrange(self, words: Any, held: dict[str, Any], most: int) -> Room | None:
        """Give the loop memory; None if it cannot run. `most`: the length of the longest axis."""
        meant, kept, arena = self.meant, [], None  # type: Meant, list[Any], Any
        if meant.grids:
            most = max([most, *[min(LARGE, held[name].size) for name in meant.origins]])
        if meant.blocks:
            kept.append(np.empty(2 * most * meant.blocks))
            words[SCRATCH], words[ROOM] = address(kept[-1]), most
        is_ours = False
        if meant.makes is not None:
            whose = {type(held[name]) for name in meant.origins} | meant.makes
            if len(whose) != 1:
                return None
            is_ours = ndarray in whose
            arena, self.arena = self.arena, None  # a signal handler may enter it, too
            size = min(max(8 * most, _LEAST), _MOST)
            if arena is None or len(arena) < size:
                arena = np.empty(size)
            words[ARENA] = address(arena)
            words[END] = words[ARENA] + arena.nbytes
        appended = {id(held[name]) for name in meant.appended}
        if any(id(held[name]) in appended for name in meant.iterated if name in held):
            return None
        if meant.recurses:
            words[DEPTH] = _depth()
        if meant.logs:
            kept.append(np.empty(3 * LOGGED[meant.recurses]))
            words[LOG] = address(kept[-1])
        for at, both in self.loops:
            words[at : at + 2] = list(both)
        return Room(is_ours, arena, kept)

    def _values(self, words: Any, held: dict[str, Any]) -> list[Any] | int:
        """As C's loop_fill."""
        kept: list[Any] = [64]
        floats = self.Floats.from_buffer(words)
        for name, kind, at, how in self.enters:
            value = held[name]
            if how == "array":
                if type(value) is ndarray:
                    # whatever happens meanwhile, reads and writes go to this memory
                    value = export(value)
                    if kinds.of_array(value) != kind:
                        return -1
                kept.append(value)
                size, shape = int(kind.code[1:]), value.shape
                steps = [step // size for step in value.strides]
                words[at : at + 1 + 2 * kind.rank] = [address(value), *shape, *steps]
                kept[0] = max(kept[0], *shape)
            elif how == "f8":
                floats[at] = value
            elif how == "c16":
                floats[at], floats[at + 1] = value.real, value.imag
            elif how == "object":
                words[at] = id(value)
            elif how == "range":
                words[at : at + 3] = [value.start, value.step, len(value)]
            else:
                words[at] = int(value)
        return kept

    def _packed(self, entry: dict[str, Any], held: dict[str, Any]) -> bytes | None:
        """Rows for C: what a value has to be, which one it is, where its words are, and more of
        its kind. None if C does not know such values.
        """
        places = {name: at for name, kind, at in self.meant.enters if kind is not UNBOUND}
        rows: list[int] = []
        for index, name in enumerate(self.names):
            kind, at = entry.get(name, UNBOUND), places.get(name, 0)
            if type(kind) is ArrayKind and at:
                number = np.dtype(kind.code).num
                bits = number | kind.rank << 8 | kind.unit << 16 | kind.writes << 17
                rows += ord("a"), index, at, bits, 0
            elif kind in ("int", LONG):
                is_small = kind == "int" and (type(kind) is Literal or name not in self.stored)
                rows += ord("i"), index, at, is_small, 0
            elif kind in kinds.PYTHON:
                rows += ord(kind[0]), index, at, 0, 0
            elif kind == LETTER:
                rows += ord("h"), index, at, 0, 0
            elif type(kind) is Sequence:
                first = held[name][:1] if type(held[name]) in (list, tuple) else ()
                self.types.append(type(first[0]) if first else NoneType)
                rows += ord("q"), index, at, id(type(held[name])), id(self.types[-1])
            elif kind in kinds.SCALARS:
                number = np.dtype(kind).num
                rows += ord("s") | number << 8, index, at, id(kinds.MAKERS[kind]), 0
            elif isinstance(kind, (Object, Unbound)):
                rows += ord("o"), index, 0, id(kind.value if type(kind) is Object else kind), 0
            elif type(kind) is ArrayKind or (kind == OTHER and type(held[name]) not in _BY_VALUE):
                self.types.append(type(held[name]))
                rows += ord("t"), index, 0, id(self.types[-1]), 0
            else:
                return None
        return array("q", rows).tobytes()

    def _exit(self, name: str, kind: Any) -> tuple[Any, ...]:
        """How a name's value is read: its kind, where it is, where it says whether it is set."""
        if kind is None:
            return None, 0, 0, ""
        return kind, self.meant.slots[name, kind], self.meant.flags.get(name, 0), _how(kind)

    def _left(self, code: int, words: Any, held: dict[str, Any], is_ours: bool) -> list[Any]:
        """The values that the loop has given to names and attributes."""
        floats = self.Floats.from_buffer(words)
        made, own = [], {}  # type: list[Any], dict[Any, Any]
        for kind, slot, flag, how in self.exits.get(code, ()):
            value: Any = UNBOUND
            if kind is None or (flag and not words[flag]):
                pass
            elif how == "array":
                origin, place, *shape = key = tuple(words[slot : slot + 2 + kind.rank])
                if origin < 0 and key not in own:
                    raw = ctypes.string_at(place, math.prod(shape) * int(kind.code[1:]))
                    real = np.frombuffer(raw, np.dtype(kind.code)).copy().reshape(shape)
                    own[key] = wrap(real) if is_ours else real
                value = own[key] if origin < 0 else held[self.meant.origins[origin]]
            elif how == "view":
                base = held[kind.base]
                keys: list[Any] = words[slot : slot + base.ndim]
                for axis, at in zip(kind.axes, itertools.count(slot + base.ndim)):
                    keys[axis] = slice(keys[axis], keys[axis] + words[at])
                value = base[tuple(keys)]
            elif how == "object":  # nothing else has run since the loop looked at it
                value = ctypes.cast(words[slot], ctypes.py_object).value
            else:
                number: Any = words[slot] if how in ("i8", "b1") else floats[slot]
                if how == "c16":
                    number = complex(number, floats[slot + 1])
                if "|" in kind:
                    kind = kind.split("|")[words[slot + 2]]
                value = kinds.MAKERS[kind](number)
            made.append(value)
        return made or [UNBOUND] * len(self.stored)


def _packed_exit(rows: list[tuple[Any, ...]]) -> bytes | None:
    """Rows for C: what a value is, where its words are, where it says whether they are set."""
    made: list[int] = []
    for kind, slot, flag, how in rows:
        if how in ("array", "view"):
            return None
        if how == "object" or kind == LETTER:
            made += ord("q" if how == "object" else "h"), slot, flag, 0, 0
            continue
        weak, _, last = str(kind or "u").rpartition("|")
        is_numpys = kind is not None and last not in kinds.PYTHON
        what = ord("s" if is_numpys else last[0]) | (ord(weak[0]) if weak else 0) << 8
        made += what | (how == "f8") << 16, slot, flag, id(np.dtype(last)) if is_numpys else 0, 0
    return array("q", made).tobytes()


def _depth() -> int:
    """How deep a function may call itself here, before Python would raise RecursionError."""
    free, frame = sys.getrecursionlimit() - _FRAMES, inspect.currentframe()
    while frame is not None:
        free, frame = free - 1, frame.f_back
    return min(max(free, 0), _DEEPEST)


def _how(kind: Any) -> str:
    """How values of a kind are written to words, and read."""
    if type(kind) is ArrayKind:
        return "array"
    if type(kind) is Sequence:
        return "object"
    return "view" if type(kind) is View else "range" if kind == RANGE else kinds.register(kind)
