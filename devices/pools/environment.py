"""What decides a program's machine code besides its text: versions, CPU, platform, our runtime.

Owns the digest in names on disk. Where elf_linker.py links it does not import llvmlite: it reads
its version file and the system's description of the CPU.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import itertools
import marshal
import os
import pkgutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from ..caches import cached
from . import elf_linker, object_code, vector_math

# The packages of devices/ whose modules decide what a text compiles to.
_RUNTIME = ("cpu", "cpu.frontend", "cpu.intrinsics", "pools")
_DEVICES = (__package__ or "").rpartition(".")[0]


@cached(1)
def digest() -> str:
    """A short name of this environment.

    `DeviceError` if llvmlite does not load where it is asked for the CPU: its installation is
    damaged, or memory is short.
    """
    return hashlib.sha256("\0".join(facts()).encode()).hexdigest()[:24]


def facts() -> list[str]:
    """Everything that the digest covers, as readable text."""
    return [
        f"python {sys.version} {sys.implementation.cache_tag}",
        f"numpy {np.__version__}",
        f"llvmlite {_version('llvmlite')}",
        f"platform {sys.platform} {vector_math.machine()} {sys.maxsize}",
        f"cpu {_processor() or object_code.target()}",
        f"libmvec {vector_math.libmvec() is not None} {_libc()}",
        f"runtime {runtime(*_RUNTIME)}",
    ]


def _version(package: str) -> str:
    """The text of a package's version file: importing it, or its metadata, costs far more."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        return "none"
    try:
        with open(os.path.join(os.path.dirname(found.origin), "_version.py"), "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return str(importlib.import_module(package).__version__)


_CPU = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags")
"""What tells one x86-64 from another in the system's description."""


def _processor() -> str:
    """The first CPU as the system describes it; empty where LLVM has to say."""
    known = described_processor() if elf_linker.AVAILABLE else {}
    return "; ".join(known[name] for name in _CPU) if known.keys() >= set(_CPU) else ""


def described_processor() -> dict[str, str]:
    """Linux's description of the first CPU; empty elsewhere."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            lines = list(itertools.takewhile(str.strip, file))
    except OSError as error:
        if error.errno == errno.ENOMEM:
            raise MemoryError(str(error)) from error
        return {}
    parted = (line.partition(":") for line in lines)
    return {name.strip(): value.strip() for name, _, value in parted}


def _libc() -> str:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):
        return ""


def runtime(*packages: str) -> str:
    """A digest of all modules of packages of devices/ that give generated text its meaning.

    It covers all modules: a list of the relevant ones would have to be maintained.

    Raises
    ------
    MemoryError
        There is no memory to list the folders with.
    """
    try:
        return _texts(packages)
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
        raise MemoryError(str(error)) from error


def _texts(packages: Sequence[str]) -> str:
    total = hashlib.sha256()
    for package in packages:
        found = importlib.import_module(f"{_DEVICES}.{package}")
        for name in sorted(each.name for each in pkgutil.iter_modules(found.__path__)):
            total.update(f"{package}.{name}".encode())
            total.update(_text(found.__path__[0], f"{_DEVICES}.{package}.{name}"))
    return total.hexdigest()


def _text(folder: str, name: str) -> bytes:
    """The text of a module, also from a zip; its code where only code is installed."""
    try:  # looking for the module as an import does takes as long as all the rest
        with open(os.path.join(folder, f"{name.rpartition('.')[2]}.py"), "rb") as file:
            return file.read()
    except OSError as error:
        if error.errno == errno.ENOMEM:
            raise
    spec: Any = importlib.util.find_spec(name)
    with suppress(OSError):
        text: bytes = spec.loader.get_data(spec.origin)
        if spec.origin.endswith(".py"):
            return text
    code = spec.loader.get_code(name)
    return marshal.dumps(code) if code is not None else b""
