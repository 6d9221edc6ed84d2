"""Object files: which symbols they need, and loading them, by elf_linker.py or llvmlite.

Owns the table of symbols that lazyfuse supplies to the linker. LLVM ends the process at an unknown
symbol, so `load` reads the object's symbol table first and raises an error. It does so at many
damaged files, too: where elf_linker.py works, LLVM gets only what was compiled just now. LLVM also
ends the process without memory, so callers check `room` first.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ..base import DeviceError
from ..caches import CONSTANT, cached
from . import elf_linker, vector_math

ENTRY = "lazyfuse_entry"  # what compiled programs export
_TO_LOAD = 16 << 20  # bytes that have to be free before LLVM loads an object
TO_COMPILE = 128 << 20  # the same before LLVM compiles a text

_supplied: dict[str, int] = {}  # addresses by symbol, see `supply`


class Loaded:
    """A function of machine code in memory, which is freed with the last of its functions."""

    __slots__ = ("_find", "address")

    def __init__(self, find: Callable[[str], int], entry: str) -> None:
        self._find = find  # also keeps the memory
        self.address = find(entry)
        if not self.address:
            raise DeviceError(f"[load] object code: no function {entry}")

    def at(self, entry: str) -> Loaded:
        """Another function of the same code."""
        return Loaded(self._find, entry)


def room(size: int) -> None:
    """Raise `DeviceError` unless `size` bytes can be allocated."""
    try:
        mmap.mmap(-1, size).close()
    except (OSError, MemoryError, ValueError) as error:
        raise DeviceError(f"[load] memory: LLVM needs {size >> 20} MiB; {error}") from error


@cached(1, CONSTANT, clears=False)
def linker() -> Any:
    """The binding module of llvmlite, with the native target and our symbols registered."""
    if "llvmlite.binding" not in sys.modules:
        room(TO_COMPILE)
    try:
        import llvmlite.binding as llvm
    except Exception as error:  # its installation is damaged, or memory is short
        raise DeviceError(f"[load] llvmlite does not load: {error}") from error

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    if vector_math.libmvec() is not None:
        llvm.load_library_permanently(vector_math.LIBMVEC)
    for name, address in (vector_math.symbols() | _supplied).items():
        llvm.add_symbol(name, address)
    return llvm


def supply(symbol: str, address: int) -> None:
    """Let machine code that is loaded from now on call a function by this name."""
    _supplied[symbol] = address
    if "llvmlite.binding" in sys.modules:
        linker().add_symbol(symbol, address)


@cached(1, CONSTANT, clears=False)
def _libraries() -> list[Any]:
    """Where functions are that generated code calls by their own names, in the order to look."""
    found = [vector_math.libmvec(), ctypes.CDLL(None)]
    with suppress(OSError):
        found.append(vector_math.libm())
    return [library for library in found if library is not None]


def _address_of(symbol: str) -> int:
    """Where a function is that machine code calls; 0 if it is unknown."""
    address = _supplied.get(symbol) or vector_math.symbols().get(symbol)
    if address:
        return address
    for library in _libraries():
        with suppress(AttributeError):
            return vector_math.address(library, symbol)
    return 0


def load(code: bytes, entry: str, fresh: bool = False) -> Loaded:
    """Link an object file into this process; raises `DeviceError` if that is impossible.

    `fresh`: it comes from the compiler, not from the disk.
    """
    if elf_linker.AVAILABLE:
        try:
            functions = elf_linker.link(code, _address_of)
            return Loaded(functions.find, entry)
        except elf_linker.Unsupported as error:
            if not fresh:
                raise DeviceError(f"[load] object code: {error}") from error
    return _load_by_llvm(code, entry)


def _load_by_llvm(code: bytes, entry: str) -> Loaded:
    llvm = linker()
    room(_TO_LOAD)
    missing = unresolved(code)
    if missing:
        raise DeviceError(f"[load] object code: unknown symbols {', '.join(missing)}")
    try:
        target = llvm.Target.from_default_triple()
        machine = target.create_target_machine(codemodel="jitdefault", jit=True)
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        return Loaded(engine.get_function_address, entry)
    except RuntimeError as error:
        raise DeviceError(f"[load] object code: {error}") from error


def emit(text: str, cpu: str = "", features: str = "", optimise: int = 2) -> bytes:
    """Object code of LLVM text: for a CPU and its features, by default any of this architecture."""
    llvm = linker()
    room(TO_COMPILE)
    machine = target_machine(cpu, features, optimise)
    try:
        return bytes(machine.emit_object(llvm.parse_assembly(text)))
    except RuntimeError as error:  # LLVM before 16 reads another syntax
        raise DeviceError(f"[compile] LLVM text: {error}") from error


@cached(1, CONSTANT, clears=False)
def target() -> tuple[str, str]:
    """The CPU that programs are compiled for: its name and its features, as LLVM spells them."""
    llvm = linker()
    try:
        features = llvm.get_host_cpu_features().flatten()
    except RuntimeError:  # LLVM does not know this platform's CPU features
        features = ""
    return llvm.get_host_cpu_name(), features


def target_machine(cpu: str, features: str, optimise: int) -> Any:
    """LLVM's description of this machine."""
    target = linker().Target.from_default_triple()
    return target.create_target_machine(
        cpu=cpu,
        features=features,
        opt=optimise,
        reloc="static" if target.name.startswith("x86") else "default",
        codemodel="jitdefault",
        jit=True,
    )


def unresolved(code: bytes) -> list[str]:
    """The symbols that an object file needs and this process does not have."""
    llvm = linker()
    return [name for name in undefined_symbols(code) if llvm.address_of_symbol(name) is None]


def undefined_symbols(code: bytes) -> list[str]:
    """The external symbols of an ELF, Mach-O or COFF file (64-bit, little-endian)."""
    try:
        if code[:6] == elf_linker.ELF:
            return elf_linker.undefined_symbols(code)
        if code[:4] == b"\xcf\xfa\xed\xfe":
            return _mach_o(code)
        if code[:2] in (b"\x64\x86", b"\x64\xaa"):
            return _coff(code)
    except elf_linker.DAMAGED as error:
        raise DeviceError(f"[load] object code: damaged symbol table ({error})") from error
    raise DeviceError("[load] object code: not a known file format")


def _mach_o(code: bytes) -> list[str]:
    """Undefined external entries of LC_SYMTAB, without their leading underscore."""
    (count,) = struct.unpack_from("<I", code, 16)
    position, starts = 32, list[int]()
    for _ in range(count):
        command, size = struct.unpack_from("<II", code, position)
        if command == 2:  # LC_SYMTAB, of which there is one
            offset, length, strings, _ = struct.unpack_from("<IIII", code, position + 8)
            for i in range(length):
                name, kind, _, _, value = struct.unpack_from("<IBBHQ", code, offset + 16 * i)
                if kind & 0x0E == 0 and kind & 1 and value == 0:  # N_UNDF, N_EXT, not common
                    starts.append(strings + name)
            break
        if size < 8:  # a command has a head
            raise IndexError("the commands do not end")
        position += size
    return [name.removeprefix("_") for name in elf_linker.texts_at(code, starts)]


def _coff(code: bytes) -> list[str]:
    """External entries of section 0."""
    offset, count = struct.unpack_from("<II", code, 8)
    strings, names, starts, i = offset + 18 * count, list[str](), list[int](), 0
    while i < count:
        position = offset + 18 * i
        zero, start, value, section, _, storage, extra = struct.unpack_from(
            "<IIIhHBB", code, position
        )
        if storage == 2 and section == 0 and value == 0:
            if zero:
                names.append(code[position : position + 8].rstrip(b"\0").decode())
            else:
                starts.append(strings + start)
        i += 1 + extra
    return [*names, *elf_linker.texts_at(code, starts)]
