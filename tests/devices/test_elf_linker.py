"""Linking object files without LLVM: the same results as llvmlite's linker, and what it refuses."""

from __future__ import annotations

import ctypes
import math
import random
import struct
import tracemalloc

import pytest

from lazyfuse.devices.base import DeviceError
from lazyfuse.devices.pools import elf_linker, object_code
from tests.campaign import rounds

pytestmark = pytest.mark.skipif(not elf_linker.AVAILABLE, reason="llvmlite links here")

CALLS = """
@table = private unnamed_addr constant [4 x double] [double 1.5, double 2.5, double 3.5, double 4.5]
declare double @fmod(double, double)
declare double @lf_exp(double)
define double @entry(i64 %i, double %x) {
  %place = getelementptr double, ptr @table, i64 %i
  %a = load double, ptr %place
  %b = call double @fmod(double %x, double %a)
  %c = call double @lf_exp(double %b)
  %d = call double @other(double %c)
  ret double %d
}
define double @other(double %x) noinline {
  %y = fadd double %x, 0.25
  ret double %y
}
"""
TABLES = """
@table = private constant [64 x i64] zeroinitializer
define i64 @entry(i64 %i) {
  %place = getelementptr i64, ptr @table, i64 %i
  %a = load i64, ptr %place
  ret i64 %a
}
"""
WRITTEN = """
@count = global i64 3
define i64 @entry() {
  %a = load i64, ptr @count
  store i64 7, ptr @count
  ret i64 %a
}
"""


def linked(code: bytes) -> elf_linker.Image:
    return elf_linker.link(code, object_code._address_of)


def test_calls_constants_and_functions_of_the_same_file() -> None:
    image = linked(object_code.emit(CALLS))
    kind = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64, ctypes.c_double)
    entry = kind(image.find("entry"))
    for i in range(4):
        assert entry(i, 17.3) == math.exp(math.fmod(17.3, 1.5 + i)) + 0.25
    assert image.find("nothing") == 0


def test_variables_are_llvmlites() -> None:
    code = object_code.emit(WRITTEN)
    with pytest.raises(elf_linker.Unsupported):
        linked(code)
    with pytest.raises(DeviceError, match="written to"):  # LLVM gets nothing from the disk
        object_code.load(code, "entry")
    loaded = object_code.load(code, "entry", fresh=True)
    entry = ctypes.CFUNCTYPE(ctypes.c_int64)(loaded.address)
    assert [entry(), entry()] == [3, 7]


def test_code_for_another_processor_is_refused() -> None:
    code = object_code.emit(CALLS)
    with pytest.raises(elf_linker.Unsupported, match="no ELF"):
        linked(code[:18] + b"\xb7\x00" + code[20:])


def test_a_relocation_behind_its_section_is_refused() -> None:
    code = bytearray(object_code.emit(CALLS))
    for number, section in enumerate(elf_linker._sections(bytes(code))):
        if section.kind == elf_linker._RELA and section.name != ".rela.eh_frame":
            table, size, _, _ = elf_linker._HEADER.unpack_from(code)
            offset = elf_linker._SECTION.unpack_from(code, table + size * number)[4]
            struct.pack_into("<Q", code, offset, 1 << 40)
    with pytest.raises(DeviceError, match="damaged"):
        linked(bytes(code))


def fields(code: bytes) -> list[tuple[int, int]]:
    """Place and width of each number that the linker reads: of the header and of all tables."""
    table, size, count, _ = elf_linker._HEADER.unpack_from(code)
    found = [(40, 8), (58, 2), (60, 2), (62, 2), (16, 2), (18, 2)]
    for row in range(table, table + size * count, size):
        found += [(row, 4), (row + 4, 4), *[(row + at, 8) for at in (8, 24, 32, 48)]]
        found += [(row + 40, 4), (row + 44, 4)]
        _, kind, _, _, begin, length, *_ = elf_linker._SECTION.unpack_from(code, row)
        for at in range(begin, begin + length, 24):
            if kind == elf_linker._SYMTAB:
                found += [(at, 4), (at + 4, 1), (at + 6, 2), (at + 8, 8), (at + 16, 8)]
            elif kind == elf_linker._RELA:
                found += [(at, 8), (at + 8, 4), (at + 12, 4), (at + 16, 8)]
    return found


NUMBERS = [
    0,
    1,
    2,
    4,
    8,
    0xFF,
    0xFFFF,
    *[(1 << n) + d for n in (12, 31, 32, 40, 63, 64) for d in (-1, 0)],
]


def mutated(whole: bytes, rng: random.Random) -> bytes:
    """A file with some numbers, bytes or runs of bytes changed, or its end missing."""
    code = bytearray(whole)
    how = rng.choice(["number", "number", "number", "byte", "run", "end"])
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        if how == "number":
            at, width = rng.choice(fields(whole))
            number = rng.choice([*NUMBERS, rng.getrandbits(64), len(whole), len(whole) - 1])
            code[at : at + width] = (number & ((1 << 8 * width) - 1)).to_bytes(width, "little")
        elif how == "byte":
            code[rng.randrange(len(code))] = rng.randrange(256)
        elif how == "run":
            at, count = rng.randrange(len(code)), rng.randrange(1, 64)
            code[at : at + count] = rng.randbytes(count)
        else:
            return bytes(code[: rng.randrange(len(code))])
    return bytes(code[: len(whole)])


@rounds(1000)
def test_damaged_files_are_refused_and_never_llvms(
    seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs on disk have a digest; this is what stands behind it. Nothing of them is run."""
    sound = [object_code.emit(text) for text in (CALLS, WRITTEN, TABLES)]
    refused = 0

    def forbidden() -> None:
        raise AssertionError("LLVM gets a file from the disk")

    monkeypatch.setattr(object_code, "linker", forbidden)
    for seed in seeds:
        rng = random.Random(seed)
        code = mutated(rng.choice(sound), rng)
        try:
            object_code.load(code, "entry")
        except DeviceError:
            refused += 1
    assert refused > len(seeds) // 3


@pytest.mark.parametrize("sections", [1, 0xFFFF])
def test_time_and_memory_are_bounded_by_the_size_of_a_file(sections: int) -> None:
    """Each section is the whole file, each symbol has the longest name."""
    name = b"x" * (1 << 16) + b"\0"
    symbols = struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0) * (1 << 15)
    body = name + symbols
    table = 64 + len(body)
    rows = [(0, elf_linker._SYMTAB, 0, 0, 64 + len(name), len(symbols), 1, 0, 1, 24)]
    rows += [(0, 1, 2, 0, 64, len(name) if sections == 1 else table - 64, 0, 0, 1, 0)] * sections
    head = struct.pack("<16sHHIQQQIHHHHHH", elf_linker.ELF, 1, 62, 1, 0, 0, table, 0, 64, 0, 0,
                       64, len(rows[:0xFFFF]), 1)  # fmt: skip
    code = head + body + b"".join([elf_linker._SECTION.pack(*row) for row in rows])
    tracemalloc.start()
    try:
        with pytest.raises(DeviceError, match="damaged"):
            linked(code)
        assert tracemalloc.get_traced_memory()[1] < 32 * len(code)
    finally:
        tracemalloc.stop()


def test_memory_is_given_back() -> None:
    code = object_code.emit(CALLS)

    def mapped() -> int:
        with open("/proc/self/maps") as file:
            return sum(1 for _ in file)

    before = mapped()
    many = [linked(code) for _ in range(50)]
    del many
    assert mapped() < before + 25


def test_supplied_functions_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_code, "_supplied", {})
    double = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
    mine = double(lambda x: 2 * x)
    address = ctypes.cast(mine, ctypes.c_void_p).value
    assert address
    object_code.supply("lazyfuse_test_double", address)
    code = object_code.emit(
        "declare i64 @lazyfuse_test_double(i64)\n"
        "define i64 @entry(i64 %x) { %y = call i64 @lazyfuse_test_double(i64 %x)\n ret i64 %y }"
    )
    loaded = object_code.load(code, "entry")
    assert double(loaded.address)(21) == 42
