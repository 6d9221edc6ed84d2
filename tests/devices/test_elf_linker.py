"""Linking object files without LLVM: the same results as llvmlite's linker, and what it refuses."""

from __future__ import annotations

import ctypes
import math
import random
import struct
from contextlib import suppress

import pytest

from lazyfuse.devices.base import DeviceError
from lazyfuse.devices.pools import elf_linker, object_code

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
    loaded = object_code.load(code, "entry")
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


def test_damaged_files_raise_and_never_crash() -> None:
    """Programs on disk have a digest; this is what stands behind it. Nothing of them is run."""
    whole = object_code.emit(CALLS)
    rng = random.Random(5)
    for _ in range(3000):
        code = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            code[rng.randrange(len(code))] = rng.randrange(256)
        with suppress(elf_linker.Unsupported, DeviceError):
            linked(bytes(code[: rng.choice((len(code), rng.randrange(len(code))))]))


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
