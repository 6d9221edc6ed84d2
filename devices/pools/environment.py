"""What decides a program's machine code besides its text: versions, CPU, platform, our runtime.

Owns the digest in names on disk. Does not import numba: it reads numba's version file.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import marshal
import os
import pkgutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from ..caches import cached
from . import object_code, vector_math
from .target import SETTINGS

# The packages of devices/ whose modules decide what a text compiles to.
_RUNTIME = ("cpu", "cpu.frontend", "cpu.intrinsics", "pools")
_DEVICES = (__package__ or "").rpartition(".")[0]


@cached(1)
def digest() -> str:
    """A short name of this environment; loads llvmlite to ask for the CPU.

    `DeviceError` if llvmlite does not load: its installation is damaged, or memory is short.
    """
    object_code.linker()
    return hashlib.sha256("\0".join(facts()).encode()).hexdigest()[:24]


def facts() -> list[str]:
    """Everything that the digest covers, as readable text."""
    import llvmlite
    import llvmlite.binding as llvm

    try:
        features = llvm.get_host_cpu_features().flatten()
    except RuntimeError:  # LLVM does not know this platform's CPU features
        features = ""
    return [
        f"python {sys.version} {sys.implementation.cache_tag}",
        f"numpy {np.__version__}",
        f"llvmlite {llvmlite.__version__}",
        f"numba {_numba_version()}",
        f"platform {sys.platform} {vector_math.machine()} {sys.maxsize}",
        f"cpu {llvm.get_host_cpu_name()} {features}",
        f"libmvec {vector_math.libmvec() is not None} {_libc()}",
        f"settings {[os.environ.get('NUMBA_' + name) for name in SETTINGS.split()]}",
        f"runtime {runtime(*_RUNTIME)}",
    ]


def _numba_version() -> str:
    """The text of numba's version file: importing numba, or its metadata, costs far more."""
    found = importlib.util.find_spec("numba")
    if found is None or found.origin is None:
        return "none"
    try:
        with open(os.path.join(os.path.dirname(found.origin), "_version.py"), "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        import numba

        return str(numba.__version__)


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
            total.update(_text(f"{_DEVICES}.{package}.{name}"))
    return total.hexdigest()


def _text(name: str) -> bytes:
    """The text of a module, also from a zip; its code where only code is installed."""
    spec: Any = importlib.util.find_spec(name)
    with suppress(OSError):
        text: bytes = spec.loader.get_data(spec.origin)
        if spec.origin.endswith(".py"):
            return text
    code = spec.loader.get_code(name)
    return marshal.dumps(code) if code is not None else b""
