"""Lists, tuples, bytes and strings in loops: their items where they lie in Python's memory.

Owns what is asked of an item before it is a number: its type, as the loop was compiled for it. Such
a loop holds objects that it does not own, so it is left before anything else may run (`patience`).
"""

from __future__ import annotations

import ast
import ctypes
from typing import NamedTuple

import numpy as np

from lazyfuse.loops import kinds
from lazyfuse.loops.kinds import Sequence
from lazyfuse.loops.places import Places
from lazyfuse.loops.text import OBJECTS, Again, Leaves, Maybe
from lazyfuse.loops.values import Number, Place

_TYPES = {each: kind for each, kind in kinds.MAKERS.items() if each != kinds.LETTER} | {
    name: kind for kind, name in kinds.SEQUENCES.items()
}
_WORDS = [*_TYPES, *[f"dtype {code}" for code in kinds.SCALARS], "True"]
_DTYPES = [np.dtype(code) for code in kinds.SCALARS]
TABLE = (ctypes.c_int64 * len(_WORDS))(*map(id, (*_TYPES.values(), *_DTYPES, True)))
"""Where Python's types, NumPy's dtypes and `True` are."""
_MAKERS = {"float": "py_float", "int": "py_int", "bool": "py_bool", "complex": "py_complex"}


_HEAD = object.__basicsize__
_IN_TUPLE, _IN_BYTES = tuple.__basicsize__ // 8, bytes.__basicsize__ - 1


def _lie_as_thought() -> bool:
    """Whether items lie where the texts look for them; Python's versions differ."""
    items, data = [1.5], bytearray(b"x")
    pair = items, data

    def word(place: int, k: int) -> int:
        return ctypes.c_int64.from_address(place + 8 * k).value

    return _HEAD == 16 and (
        word(id(items), 2) == len(items)
        and word(word(id(items), 3), 0) == id(items[0])
        and word(id(pair), _IN_TUPLE) == id(items)
        and ctypes.c_char.from_address(id(b"yz") + _IN_BYTES).value == b"y"
        and ctypes.c_char.from_address(word(id(data), 5)).value == b"x"
        and ctypes.c_double.from_address(id(items[0]) + _HEAD).value == items[0]
    )


if not _lie_as_thought():
    kinds.SEQUENCES.clear()


class Held(NamedTuple):
    """A sequence: its kind, and where it is."""

    kind: Sequence
    address: str


class Letter(NamedTuple):
    """A string of one character, as its number."""

    text: str


class Objects(Places):
    """Writes what reads and writes items of Python's sequences."""

    def sequence_kind(self, node: ast.expr) -> Sequence | None:
        """The kind of the sequence that an expression names; None if it is none."""
        node = self.named(node)
        kind = self.kinds.get(node.id) if isinstance(node, ast.Name) else None
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, (ast.Tuple, ast.Slice)):
            outer = self.sequence_kind(node.value)
            kind = None if outer is None else outer.item
        kind = kind.kind if isinstance(kind, Maybe) else kind
        return kind if isinstance(kind, Sequence) else None

    def sequence(self, node: ast.expr) -> Held | None:
        """The sequence that an expression names; None if it is none."""
        node, kind = self.named(node), self.sequence_kind(node)
        if kind is None:
            return None
        if not self.memory.holds:
            self.memory.holds = True
            raise Again
        if isinstance(node, ast.Subscript):
            outer = self.sequence(node.value)
            assert outer is not None
            found = self.item_at(outer, self.inside(node.slice, self.size(outer)))
            return found if isinstance(found, Held) else None
        assert isinstance(node, ast.Name)
        if isinstance(self.kinds[node.id], Maybe):
            self.leave(f"{node.id}_set == 0")
        return Held(kind, f"{node.id}_object")

    def is_part(self, node: ast.Subscript) -> bool:
        return self.sequence_kind(node.value) is None and super().is_part(node)

    def size(self, held: Held) -> str:
        """How many items a sequence has."""
        return self.temp(f"pointer_i8({held.address})[2]")

    def item_at(self, held: Held, at: str) -> Number | Held | Letter:
        """An item; leaves where it is of another type than the first was at entry."""
        (name, kind), address = held.kind, held.address
        if name == "bytes":
            return Number(self.temp(f"int64(pointer_u1({address} + {_IN_BYTES})[{at}])"), "int", 8)
        if name == "bytearray":
            start = f"pointer_u1(pointer_i8({address})[5])"
            return Number(self.temp(f"int64({start}[{at}])"), "int", 8)
        if name == "str":
            return Letter(self.temp(f"py_letter({address}, {at})"))
        found = self.temp(self._slot_at(held.kind.type, address, at))
        known = kind.type if isinstance(kind, Sequence) else kind
        if known not in _TYPES:
            raise Leaves("items of this type")
        self.leave(f"pointer_i8({found})[1] != {_word(known)}")
        if isinstance(kind, Sequence):
            return Held(kind, found)
        if kind == "bool":
            return Number(self.temp(f"{found} == {_word('True')}"), kind)
        if kind != "int":
            code = kinds.PYTHON.get(kind, kind)
            return Number(
                self.temp(self.loaded(f"pointer_{code}({found} + {_HEAD})", "0", code)), kind
            )
        beyond = self._take(1)
        number = self.temp(f"py_number({found}, address_of(meta, {beyond}))")
        self.leave(f"meta[{beyond}] != 0")
        return Number(number, kind)

    @staticmethod
    def _slot_at(name: str, address: str, at: str) -> str:
        """Where the address of an item is."""
        if name == "tuple":
            return f"pointer_i8({address})[{_IN_TUPLE} + {at}]"
        return f"pointer_i8(pointer_i8({address})[3])[{at}]"

    def made(self, value: Number) -> str:
        """A new object for a number."""
        kind, text = value.kind, value.text
        if kind in kinds.SCALARS:
            slot = self.slot_of(kind)
            self.put(f"{slot}[0] = {self.as_element(value, kind)}")
            return f"py_scalar(address_of({slot}, 0), {_word(f'dtype {kind}')})"
        if kind not in _MAKERS:
            raise Leaves("a list of numbers of several types")
        if kind == "complex":
            held = self.temp(text)
            text = f"{held}.real, {held}.imag"
        return f"{_MAKERS[kind]}({self.widened(value) if kind == 'bool' else text})"

    def slot_of(self, code: str) -> str:
        """A pointer to room for one element."""
        return self.temp(f"pointer_{code}(address_of(meta, {self._take(2)}))")

    def place(self, node: ast.Subscript) -> Place:
        """Where an element, or the item of a list that is assigned, is."""
        held = self.sequence(node.value)
        if held is None:
            return super().place(node)
        item, at = held.kind.item, self.inside(node.slice, self.size(held))
        if held.kind.type != "list" or item not in kinds.MAKERS or self.called:
            raise Leaves("an item that is assigned")
        old = self.temp(self._slot_at("list", held.address, at))
        self.leave(f"pointer_i8({old})[1] != {_word(item)}")  # nothing runs where a number ends
        return Place(node.value, held.address, at, item)

    def element(self, place: Place) -> Number:
        kind = self.sequence_kind(place.owner)
        if kind is None:
            return super().element(place)
        found = self.item_at(Held(kind, place.pointer), place.at)
        assert isinstance(found, Number)
        return found

    def converted(self, place: Place, value: Number) -> str:
        is_item = self.sequence_kind(place.owner) is not None
        return self.made(value) if is_item else super().converted(place, value)

    def store_element(self, place: Place, text: str) -> None:
        if self.sequence_kind(place.owner) is None:
            super().store_element(place, text)
        else:
            self.put(f"py_set({place.pointer}, {place.at}, {text})")

    def append(self, owner: ast.expr, node: ast.Call) -> None:
        """Add a number to a list."""
        if len(node.args) != 1 or node.keywords:
            raise Leaves("an expression")
        owner = self.named(owner)
        held, name = self.sequence(owner), owner.id if isinstance(owner, ast.Name) else ""
        if name in self.stored or not isinstance(self.entry.get(name), Sequence):
            name = ""  # which list it is, is not known at entry
        goes_over_it = self.iterated and ("" in self.iterated or not name)
        if held is None or held.kind.type != "list" or self.called or goes_over_it:
            raise Leaves("an expression")
        value = self.number(node.args[0])
        if not held.kind.item and name:  # it was empty
            self.memory.items[name] = value.kind
            self.heads.clear()
            raise Again
        self.appended.add(name)
        made = self.made(value)
        self.settle()
        self.put(f"py_append({held.address}, {made})")

    def store_sequence(self, name: str, held: Held) -> None:
        """Give a name a sequence."""
        self.put(f"{name}_object = {held.address}")
        self.assigned(name, held.kind)


def _word(name: str) -> str:
    """A word of the table."""
    return f"pointer_i8(meta[{OBJECTS}])[{_WORDS.index(name)}]"
