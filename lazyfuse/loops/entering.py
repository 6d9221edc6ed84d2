"""Entering a compiled loop, and leaving it: values of names to words, and back.

Owns the memory that a compiled loop is given: its words, working memory, memory for arrays of its
own and for what it appends to lists.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np

from lazyfuse.arrays.ndarray import export, ndarray, wrap
from lazyfuse.devices.base import ALONE, Source
from lazyfuse.loops import kinds
from lazyfuse.loops.kinds import RANGE, UNBOUND, ArrayKind
from lazyfuse.loops.names import DOTTED
from lazyfuse.loops.text import (
    APPENDED,
    ARENA,
    END,
    LOG,
    LOGGED,
    ROOM,
    SCRATCH,
    Meant,
    View,
)  # fmt: skip
from lazyfuse.loops.ufuncs import addresses
from lazyfuse.runtime.layout.meta_arrays import address
from lazyfuse.runtime.placement import devices

_ENTRY = ctypes.PYFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
_LEAST, _MOST = 1 << 13, 1 << 21
"""Numbers for which memory for arrays of the loop's own is."""


class Out(NamedTuple):
    """What a compiled loop has left."""

    code: int
    values: list[Any]
    """Of the names that it assigns; `UNBOUND` for those that keep their values."""
    words: Any


class Version:
    """A loop compiled for names of certain kinds."""

    def __init__(self, stored: list[str], written: list[tuple[str, str]], meant: Meant) -> None:
        self.meant, self.written = meant, written
        self.stored = [*stored, *[DOTTED.format(*each) for each in written]]
        self.source = Source("numba", ALONE, meant.text, 0, (), ())
        self.call: Any = None
        self.program: Any = None
        self.arena: Any = None
        self.enters = [
            (name, kind, at, _how(kind)) for name, kind, at in meant.enters if kind is not UNBOUND
        ]
        self.exits = {
            code: [self._exit(name, left.get(name)) for name in self.stored]
            for code, left in meant.leaves.items()
        }
        self.loops = [(at, addresses(each, index)) for each, index, at in meant.functions]
        self.Words = ctypes.c_int64 * meant.words
        self.Floats = ctypes.c_double * meant.words

    def is_ready(self) -> bool:
        """Whether it can be entered; compiled in the background."""
        if self.call is None:
            device = devices.cpu()
            device.prepare_loops()
            self.program = device.soon(self.source)
            if self.program is not None:
                self.call = _ENTRY(self.program.entry)
        return self.call is not None

    def why_never(self) -> str:
        """Why it cannot be compiled."""
        return str(devices.cpu().why_never(self.source))

    def is_current(self) -> bool:
        """Whether the functions that it contains are still those of the program."""
        return all(get(*given) is value for get, given, value in self.meant.constants)

    def enter(self, first: tuple[int, ...], held: dict[str, Any]) -> Out | None:
        """Run the loop for names with these values; None where they do not fit after all.

        `first`: whom to ask for signals, the counter, stop and step. Attributes and lists have got
        their values when it returns.
        """
        meant = self.meant
        words = self.Words(*first)
        floats = self.Floats.from_buffer(words)
        most, kept = self._values(words, floats, held)
        if most < 0:
            return None
        if meant.blocks:
            kept.append(np.empty(2 * most * meant.blocks))
            words[SCRATCH], words[ROOM] = address(kept[-1]), most
        arena, is_ours = None, False
        if meant.makes is not None:
            whose = {type(held[name]) for name in meant.origins} | meant.makes
            if len(whose) != 1:
                return None
            is_ours = ndarray in whose
            arena, self.arena = self.arena, None  # a signal handler may enter it, too
            size = min(max(4 * most, _LEAST), _MOST)
            if arena is None or len(arena) < size:
                arena = np.empty(size)
            words[ARENA] = address(arena)
            words[END] = words[ARENA] + arena.nbytes
        appended = {}
        if meant.lists:
            if len({id(held[name]) for name in meant.lists}) != len(meant.lists):
                return None
            for name, (_, at) in meant.lists.items():
                appended[name] = np.empty(2 * APPENDED, "i8")
                words[at] = address(appended[name])
        if meant.logs:
            kept.append(np.empty(3 * LOGGED))
            words[LOG] = address(kept[-1])
        for at, both in self.loops:
            words[at : at + 2] = list(both)
        memory = ctypes.addressof(words)
        code = self.call(memory, memory)
        values = self._left(code, words, floats, held, is_ours)
        self.arena = arena
        for name, (kind, at) in meant.lists.items():
            numbers = appended[name].view(kinds.register(kind))[: words[at + 1]]
            new = numbers.astype(np.dtype(kinds.PYTHON.get(kind, kind)))
            held[name].extend(new.tolist() if kind in kinds.PYTHON else list(new))
        count = len(self.stored) - len(self.written)
        for (name, attribute), value in zip(self.written, values[count:], strict=True):
            if value is not UNBOUND:
                setattr(held[name], attribute, value)
        return Out(code, values[:count], words)

    def _values(self, words: Any, floats: Any, held: dict[str, Any]) -> tuple[int, list[Any]]:
        """Write what the loop begins with; the length of the longest axis, and what is to be kept
        alive.
        """
        most, kept = 64, []  # type: int, list[Any]
        for name, kind, at, how in self.enters:
            value = held[name]
            if how == "array":
                if type(value) is ndarray:
                    # whatever happens meanwhile, reads and writes go to this memory
                    value = export(value)
                    if kinds.of_array(value) != kind:
                        return -1, kept
                kept.append(value)
                size, shape = int(kind.code[1:]), value.shape
                steps = [step // size for step in value.strides]
                words[at : at + 1 + 2 * kind.rank] = [address(value), *shape, *steps]
                most = max(most, *shape)
            elif how == "f8":
                floats[at] = value
            elif how == "c16":
                floats[at], floats[at + 1] = value.real, value.imag
            elif how == "range":
                words[at : at + 3] = [value.start, value.step, len(value)]
            else:
                words[at] = int(value)
        return most, kept

    def _exit(self, name: str, kind: Any) -> tuple[Any, ...]:
        """How a name's value is read: its kind, where it is, where it says whether it is set."""
        if kind is None:
            return None, 0, 0, ""
        return kind, self.meant.slots[name, kind], self.meant.flags.get(name, 0), _how(kind)

    def _left(
        self, code: int, words: Any, floats: Any, held: dict[str, Any], is_ours: bool
    ) -> list[Any]:
        """The values that the loop has given to names and attributes."""
        made, own = [], {}  # type: list[Any], dict[Any, Any]
        for kind, slot, flag, how in self.exits.get(code, ()):
            value: Any = UNBOUND
            if kind is None or (flag and not words[flag]):
                pass
            elif how == "array":
                origin, place, size = key = tuple(words[slot : slot + 3])
                if origin < 0 and key not in own:
                    raw = ctypes.string_at(place, size * int(kind.code[1:]))
                    real = np.frombuffer(raw, np.dtype(kind.code)).copy()
                    own[key] = wrap(real) if is_ours else real
                value = own[key] if origin < 0 else held[self.meant.origins[origin]]
            elif how == "view":
                base = held[kind.base]
                *keys, count = words[slot : slot + base.ndim + 1]
                keys[kind.axis] = slice(keys[kind.axis], keys[kind.axis] + count)
                value = base[tuple(keys)]
            else:
                number: Any = words[slot] if how in ("i8", "b1") else floats[slot]
                if how == "c16":
                    number = complex(number, floats[slot + 1])
                if "|" in kind:
                    kind = kind.split("|")[words[slot + 2]]
                value = kinds.MAKERS[kind](number)
            made.append(value)
        return made or [UNBOUND] * len(self.stored)


def _how(kind: Any) -> str:
    """How values of a kind are written to words, and read."""
    if type(kind) is ArrayKind:
        return "array"
    return "view" if type(kind) is View else "range" if kind == RANGE else kinds.register(kind)
