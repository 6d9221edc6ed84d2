"""Loads, stores, private arrays and scalars of generated text, as LLVM instructions.

Owns what `p[i]`, `local_f8(32)` and `scalar_f8(scalars, k)` emit (builtins.py lists them). A value
is one LLVM value, a complex number two: LLVM would split the access to a pair, and drop the access
group of loops. Importing it loads nothing heavy.
"""

from __future__ import annotations

from typing import Any

from ...late_imports import module as heavy
from . import loop_metadata


def load(builder: Any, place: Any, is_complex: bool) -> tuple[Any, ...]:
    """An element at an address of any alignment."""
    parts = _halves(builder, place) if is_complex else [place]
    return tuple([loop_metadata.join_group(builder.load(part, align=1)) for part in parts])


def store(builder: Any, place: Any, value: tuple[Any, ...]) -> None:
    """Write an element to an address of any alignment."""
    parts = _halves(builder, place) if len(value) > 1 else [place]
    for part, each in zip(parts, value, strict=True):
        loop_metadata.join_group(builder.store(each, part, align=1))


def _halves(builder: Any, place: Any) -> list[Any]:
    int32 = heavy("llvmlite.ir").IntType(32)
    return [builder.gep(place, [int32(0), int32(k)]) for k in range(2)]


def local(builder: Any, element: Any, count: int) -> Any:
    """A pointer to a private array on the stack."""
    ir = heavy("llvmlite.ir")
    with builder.goto_entry_block():
        memory = builder.alloca(ir.ArrayType(element, count))
    memory.align = 64
    return builder.bitcast(memory, element.as_pointer())


def scalar(builder: Any, base: Any, slot: Any, code: str) -> tuple[Any, ...]:
    """Slot k: integers and booleans as int64 bits, floats as float64, complex as two float64."""
    first = builder.gep(base, [builder.shl(slot, slot.type(1))])
    if code[0] == "f":
        return (_float(builder, first, code),)
    if code[0] == "c":
        second = builder.gep(first, [heavy("llvmlite.ir").IntType(64)(1)])
        return _float(builder, first, code), _float(builder, second, code)
    return (_integer(builder, first, code),)


def _float(builder: Any, place: Any, code: str) -> Any:
    value = builder.load(place)
    if code in ("f8", "c16"):
        return value
    return builder.fptrunc(value, heavy("llvmlite.ir").FloatType())


def _integer(builder: Any, place: Any, code: str) -> Any:
    ir = heavy("llvmlite.ir")
    word = ir.IntType(64)
    bits = builder.load(builder.bitcast(place, word.as_pointer()))
    if code == "b1":
        return builder.icmp_unsigned("!=", bits, word(0))
    wanted = ir.IntType(8 * int(code[1:]))
    return bits if wanted.width == 64 else builder.trunc(bits, wanted)
