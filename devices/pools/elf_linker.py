"""Links an object file into this process without LLVM: ELF of x86-64, as LLVM emits it for a JIT.

In LLVM's large code model, which a JIT has on x86-64, every address in the code is a 64-bit word.
So linking is: lay out the sections that the program reads, write these words, and let the pages be
executed. llvmlite takes some 40 ms to import and to start, which a process whose programs are all
on disk would spend for nothing else. What is not known here raises `Unsupported`: llvmlite links
the file if it was compiled just now (see object_code.py). Time and memory are bounded by a file's
size, whatever it holds. The structures are those of the System V ABI (gABI chapter 4; its AMD64
supplement, table 4.9).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ..base import DeviceError
from ..caches import CONSTANT, cached

AVAILABLE = sys.platform == "linux" and os.uname().machine == "x86_64"
"""Whether this process may try: elsewhere llvmlite links."""

ELF = b"\x7fELF\x02\x01"
"""How a 64-bit, little-endian ELF file begins."""
_X86_64 = b"\x01\x00\x3e\x00"  # a relocatable file of x86-64
_HEADER, _SECTION = struct.Struct("<40xQ10xHHH"), struct.Struct("<IIQQQQIIQQ")
_SYMBOL, _RELOCATION = struct.Struct("<IBBHQQ"), struct.Struct("<QQq")
_SYMTAB, _RELA, _NOBITS = 2, 4, 8  # kinds of sections
_WRITE, _ALLOC = 1, 2  # flags of sections
_SHARED_INDICES = 0xFF00  # section numbers from here on have other meanings
_ABS64 = 1  # R_X86_64_64: the symbol's address and the addend
_UNWIND = ".eh_frame"  # for exceptions, which no program of ours raises or lets through
_READ_EXECUTE = 5
_SHARED = (
    16  # times as many letters as a table has may its names have together: they may share ends
)


DAMAGED = struct.error, IndexError, ValueError, OverflowError
"""What reading a damaged file raises."""


class Unsupported(Exception):
    """What this linker leaves to llvmlite."""


class Image:
    """Linked machine code; its memory is freed with it."""

    __slots__ = ("_functions", "_memory")

    def __init__(self, memory: mmap.mmap, functions: dict[str, int]) -> None:
        self._memory = memory
        self._functions = functions

    def find(self, function: str) -> int:
        """The address of a function; 0 if there is none of this name."""
        return self._functions.get(function, 0)


class _Section(NamedTuple):
    name: str
    kind: int
    flags: int
    data: bytes
    link: int
    info: int
    alignment: int


def link(code: bytes, address_of: Callable[[str], int]) -> Image:
    """Link an object file; `address_of` gives the address of a symbol that the file lacks, or 0.

    Raises
    ------
    Unsupported
        The file has something that only llvmlite knows, or the system lets no page be executed.
    DeviceError
        The file is damaged, a symbol has no address, or there is no memory.
    """
    if code[:6] != ELF or code[16:20] != _X86_64:
        raise Unsupported("no ELF file of x86-64")
    try:
        return _linked(_sections(code), address_of)
    except DAMAGED as error:
        raise DeviceError(f"[load] object code: damaged ({error})") from error


def undefined_symbols(code: bytes) -> list[str]:
    """The external symbols that an ELF file lacks, of any processor (64-bit, little-endian)."""
    return [
        text for text, info, index, _ in _symbol_rows(_sections(code)) if not index and info >> 4
    ]


def _sections(code: bytes) -> list[_Section]:
    table, size, count, names = _HEADER.unpack_from(code)
    rows = [_SECTION.unpack_from(code, table + size * i) for i in range(count)]
    texts = texts_at(code, [rows[names][4] + row[0] for row in rows])
    sections = []
    room = len(code)
    for text, row in zip(texts, rows, strict=True):
        _, kind, flags, _, offset, length, linked, info, alignment, _ = row
        length = 0 if kind == _NOBITS else length
        room -= length
        if offset + length > len(code) or room < 0:
            raise IndexError("a section ends behind the file, or lies in another")
        data = code[offset : offset + length]
        sections.append(_Section(text, kind, flags, data, linked, info, alignment))
    return sections


def _symbol_rows(sections: list[_Section]) -> Iterator[tuple[str, int, int, int]]:
    """Name, kind, number of the section, and value of every symbol."""
    (table,) = (section for section in sections if section.kind == _SYMTAB)
    rows = list(_SYMBOL.iter_unpack(table.data))
    texts = texts_at(sections[table.link].data, [row[0] for row in rows])
    for text, (_, info, _, index, value, _) in zip(texts, rows, strict=True):
        yield text, info, index, value


def _text_at(data: bytes, start: int) -> str:
    """The text that begins there and ends before a zero byte."""
    return data[start : data.index(b"\0", start)].decode()


def texts_at(data: bytes, starts: list[int]) -> list[str]:
    """The texts that begin at these places, which together are not much longer than the data."""
    found = []
    room = _SHARED * len(data)
    for start in starts:
        found.append(_text_at(data, start))
        room -= len(found[-1])
        if room < 0:
            raise ValueError("names lie in each other")
    return found


def _linked(sections: list[_Section], address_of: Callable[[str], int]) -> Image:
    offsets, size = _layout(sections)
    try:
        memory = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, MemoryError) as error:
        raise DeviceError(f"[load] memory for machine code: {error}") from error
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for number, offset in offsets.items():
        memory[offset : offset + len(sections[number].data)] = sections[number].data
    values, functions = _symbols(sections, offsets, base, address_of)
    for section in sections:
        if section.kind == _RELA and section.info in offsets:
            _relocate(memory, offsets[section.info], sections[section.info], section, values)
    if _process().mprotect(ctypes.c_void_p(base), ctypes.c_size_t(len(memory)), _READ_EXECUTE):
        raise Unsupported("the system lets no page be executed that was written")
    return Image(memory, functions)


def _layout(sections: list[_Section]) -> tuple[dict[int, int], int]:
    """Where the sections lie that the program needs, and the bytes of all."""
    offsets: dict[int, int] = {}
    end = 0
    for number, section in enumerate(sections):
        if not section.flags & _ALLOC or section.name == _UNWIND:
            continue
        if section.flags & _WRITE or section.kind == _NOBITS:
            raise Unsupported(f"section {section.name} is written to")
        if section.alignment > mmap.PAGESIZE:
            raise Unsupported(f"section {section.name} is aligned to {section.alignment} bytes")
        end += -end % max(section.alignment, 1)
        offsets[number] = end
        end += len(section.data)
    return offsets, end


def _symbols(
    sections: list[_Section], offsets: dict[int, int], base: int, address_of: Callable[[str], int]
) -> tuple[list[int | None], dict[str, int]]:
    """The address of every symbol by its number, None where it has none, and those of functions."""
    values: list[int | None] = []
    functions: dict[str, int] = {}
    unknown: list[str] = []
    for text, info, index, value in _symbol_rows(sections):
        if index in offsets:
            if value > len(sections[index].data):
                raise IndexError("a symbol lies behind its section")
            values.append(base + offsets[index] + value)
            if info >> 4 and text:  # not local
                functions[text] = base + offsets[index] + value
        elif index == 0 and text:
            values.append(address_of(text))
            if not values[-1]:
                unknown.append(text)
        elif index >= _SHARED_INDICES and info & 15 != 4:  # the name of the source file is no value
            raise Unsupported(f"symbol {text} lies in no section")
        else:
            values.append(None)
    if unknown:
        raise DeviceError(f"[load] object code: unknown symbols {', '.join(unknown)}")
    return values, functions


def _relocate(
    memory: mmap.mmap, start: int, section: _Section, rows: _Section, values: list[int | None]
) -> None:
    """Write the addresses that a section holds."""
    for offset, info, addend in _RELOCATION.iter_unpack(rows.data):
        value = values[info >> 32]
        if info & 0xFFFFFFFF != _ABS64 or value is None:
            raise Unsupported(f"relocation {info & 0xFFFFFFFF} of section {section.name}")
        if offset + 8 > len(section.data):
            raise IndexError("a relocation lies behind its section")
        struct.pack_into("<Q", memory, start + offset, (value + addend) & (1 << 64) - 1)


@cached(1, CONSTANT, clears=False)
def _process() -> Any:
    return ctypes.CDLL(None)
