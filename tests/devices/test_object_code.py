"""Object files: their symbols, and refusing what cannot be linked."""

from __future__ import annotations

import ctypes
import random
import struct
from contextlib import suppress

import pytest

from lazyfuse.devices.base import DeviceError
from lazyfuse.devices.pools import object_code
from tests.campaign import rounds

TEXT = """
declare i32 @a_rather_long_name(i32)
declare i32 @f(i32)
@place = external global i32
@common_one = common global i64 0
define i32 @entry(i32 %x) {
  %a = call i32 @a_rather_long_name(i32 %x)
  %b = call i32 @f(i32 %a)
  %c = load i32, ptr @place
  %d = add i32 %b, %c
  ret i32 %d
}
"""
TRIPLES = [
    f"{cpu}-{system}"
    for cpu in ("x86_64", "aarch64")
    for system in ("unknown-linux-gnu", "apple-macosx", "pc-windows-msvc")
]


def emit_for(triple: str) -> bytes:
    llvm = object_code.linker()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly(f'target triple = "{triple}"\n' + TEXT)
    code: bytes = llvm.Target.from_triple(triple).create_target_machine().emit_object(module)
    return code


@pytest.mark.parametrize("triple", TRIPLES)
def test_undefined_symbols_of_every_file_format(triple: str) -> None:
    expected = ["a_rather_long_name", "f", "place"]
    assert sorted(object_code.undefined_symbols(emit_for(triple))) == expected


@rounds(600)
def test_damaged_tables_of_symbols_are_refused(seeds: range) -> None:
    """Whatever the format, and whatever is changed in it: symbols or an error, in short time."""
    sound = [emit_for(triple) for triple in TRIPLES]
    for seed in seeds:
        rng = random.Random(seed)
        code = bytearray(rng.choice(sound))
        for _ in range(rng.choice([1, 2, 4])):
            at, width = rng.randrange(len(code)), rng.choice([1, 2, 4, 8])
            number = rng.choice([0, 1, 2, 0xFF, 1 << 31, (1 << 32) - 1, (1 << 64) - 1, len(code)])
            code[at : at + width] = (number & ((1 << 8 * width) - 1)).to_bytes(width, "little")
        with suppress(DeviceError):
            object_code.undefined_symbols(bytes(code))


@pytest.mark.parametrize("kind", [1, 2])
def test_commands_that_do_not_end_are_refused(kind: int) -> None:
    command = struct.pack("<IIIIII", kind, 0, 0, 1 << 30, 0, 0)
    with pytest.raises(DeviceError, match="damaged"):
        object_code.undefined_symbols(
            b"\xcf\xfa\xed\xfe" + b"\0" * 12 + b"\xff" * 4 + b"\0" * 12 + command
        )


def test_unknown_symbols_are_refused_before_llvm_ends_the_process() -> None:
    with pytest.raises(DeviceError, match="unknown symbols a_rather_long_name, f, place"):
        object_code.load(object_code.emit(TEXT), "entry", fresh=True)


def test_a_missing_entry_is_refused() -> None:
    code = object_code.emit("define i32 @one() { ret i32 1 }")
    with pytest.raises(DeviceError, match="no function two"):
        object_code.load(code, "two")


@pytest.mark.parametrize("code", [b"", b"something else", b"\x7fELF\x02\x01\x01" + b"\0" * 20])
def test_what_is_no_object_file_is_refused(code: bytes) -> None:
    with pytest.raises(DeviceError, match="object code"):
        object_code.load(code, "entry")


def test_a_truncated_file_is_refused() -> None:
    whole = emit_for("x86_64-unknown-linux-gnu")
    for length in range(8, len(whole), 37):
        with pytest.raises(DeviceError, match="object code"):
            object_code.load(whole[:length], "entry")


def test_loaded_code_runs_and_is_freed() -> None:
    code = object_code.emit("define i32 @one(i32 %x) { %y = add i32 %x, 1\n ret i32 %y }")
    many = [object_code.load(code, "one") for _ in range(20)]
    call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(many[7].address)
    del many[:7], many[1:]
    assert call(41) == 42
