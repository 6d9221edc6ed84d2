"""Compiled programs, in memory and on disk. Owns their keys, limits, counters and reasons.

A program's identity is its language and text. On disk its name also holds a digest of everything
else that decides its machine code: versions, CPU, platform, this package's own runtime files.
Knows no compiler and no loader: the device passes both in.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from . import forking
from .base import DeviceError, DeviceLost, Later, Source
from .disk_cache import DiskCache
from .object_code import Loaded, load

Key = tuple[str, str]
_MOST_REASONS = 4096  # look-ups whose reason is remembered


class Pooled(Protocol):
    """A program that remembers when it was last asked for."""

    source: Source
    used: int

    def launch(self, launch: Any) -> int | Later:
        """As `base.Program.launch`."""


class Builder(Protocol):
    """How a device makes programs of one language."""

    def build(self, source: Source) -> tuple[Pooled, bytes | None]:
        """Compile; the program, and its code if that may be kept."""

    def load(self, source: Source, code: bytes) -> Pooled:
        """The program from code that `build` gave, perhaps in another process."""


class ProgramPool:
    """`get(source)` finds a program in memory, on disk, or builds it."""

    def __init__(
        self,
        builders: Mapping[str, Builder],
        disk: DiskCache,
        environment: Callable[[], str],
        limit: int = 512,
        parallel: bool = False,
    ) -> None:
        self.disk = disk
        self.limit = limit
        self._builders = builders
        self._environment = environment
        self._programs: dict[Key, Pooled] = {}
        self._parallel = parallel  # whether the builders may work in several threads at once
        self._reasons: dict[str, str] = {}  # by identity: why the last look-up found nothing
        self._uses = 0
        self.hits = self.built = self.loaded = self.evicted = 0
        self.seconds = 0.0  # spent building
        self.after_fork()
        forking.register(self)

    def after_fork(self) -> None:
        """Make the locks anew."""
        self._lock = threading.RLock()
        self._making: dict[Key, threading.RLock] = {}  # one for each program being made

    def get(self, source: Source) -> Pooled:
        """The program of a source; raises `DeviceError` if it cannot be built."""
        program = self._programs.get((source.language, source.text))
        if program is None:
            return self._make(source)
        self._uses += 1
        self.hits += 1
        program.used = self._uses
        return program

    def holds(self, source: Source) -> bool:
        """Whether `get` would find the program without building it."""
        if (source.language, source.text) in self._programs:
            return True
        return self._on_disk(source) and self.disk.holds(self._name(source))

    def why_missed(self, source: Source) -> str:
        """Why `source` was last built: "first seen", "evicted", "cleared", "damaged",
        "other versions" (of numba, of this library, of the CPU) or "disabled"; "": it was not.
        """
        return self._reasons.get(_identity(source), "")

    def info(self) -> dict[str, Any]:
        """Counters of the memory; those of the disk under "disk"."""
        return {
            "programs": len(self._programs),
            "limit": self.limit,
            "hits": self.hits,
            "loaded": self.loaded,
            "built": self.built,
            "evicted": self.evicted,
            "seconds": self.seconds,
            "disk": self.disk.info(),
        }

    def clear(self, disk: bool = False) -> None:
        """Forget every program in memory, and on disk too if asked."""
        with self._lock:
            for program in self._programs.values():
                self._remember(program.source, "cleared")
            self._programs.clear()
            if disk:
                self.disk.clear()

    def set_limit(self, limit: int) -> None:
        """Keep at most so many programs in memory; 0 keeps none."""
        with self._lock:
            self.limit = limit
            while len(self._programs) > limit:
                self._evict()

    def code(self, source: Source, emit: Callable[[str], bytes], entry: str) -> Loaded:
        """Machine code that is not a program, from disk or by `emit(text)`."""
        name = self._name(source)
        kept = self.disk.get(name)
        if kept is not None:
            try:
                return load(kept, entry)
            except DeviceError:
                self.disk.remove(name)
        made = emit(source.text)
        self.disk.put(name, made)
        return load(made, entry)

    def _make(self, source: Source) -> Pooled:
        builder = self._builders.get(source.language)
        if builder is None:
            known = ", ".join(self._builders)
            raise DeviceError(f"[compile] language: expected one of {known}, got {source.language}")
        key = (source.language, source.text)
        with self._lock:
            making = self._making.setdefault(key, threading.RLock())
        with making if self._parallel else self._lock:
            try:
                program = self._programs.get(key)  # another thread may have been faster
                if program is None:
                    program = self._find_or_build(source, builder)
                    self._add(key, program)
            finally:
                self._making.pop(key, None)
        return program

    def _add(self, key: Key, program: Pooled) -> None:
        with self._lock:
            self._uses += 1
            program.used = self._uses
            self._programs[key] = program
            if len(self._programs) > self.limit:
                self._evict()

    def _load(self, source: Source, builder: Builder) -> tuple[Pooled | None, str]:
        """The program from disk, or why not; an entry that does not load is damaged and goes."""
        name = self._name(source)
        code, problem = self.disk.look_up(name)
        if code is None:
            return None, problem
        try:
            program = builder.load(source, code)
        except DeviceLost:
            raise
        except DeviceError as error:
            self.disk.trouble = str(error)
            self.disk.remove(name)
            return None, "damaged"
        with self._lock:
            self.loaded += 1
        return program, ""

    def _find_or_build(self, source: Source, builder: Builder) -> Pooled:
        problem = "absent"
        if self._on_disk(source):
            program, problem = self._load(source, builder)
            if program is not None:
                return program
        elif source.language != "numpy":
            problem = "disabled"
        self._remember(source, self._reason(source, problem))
        start = time.perf_counter()
        program, code = builder.build(source)
        with self._lock:
            self.seconds += time.perf_counter() - start
            self.built += 1
        if code is not None and self._on_disk(source):
            self.disk.put(self._name(source), code)
        return program

    def _reason(self, source: Source, problem: str) -> str:
        """Why a source that is about to be built was not found."""
        identity = _identity(source)
        if problem == "damaged":
            return problem
        if self._reasons.get(identity) in ("evicted", "cleared"):
            return self._reasons[identity]
        if problem == "absent" and self._on_disk(source) and self.disk.names(identity):
            return "other versions"
        return "disabled" if problem == "disabled" else "first seen"

    def _remember(self, source: Source, reason: str) -> None:
        while len(self._reasons) >= _MOST_REASONS:
            self._reasons.pop(next(iter(self._reasons)))
        self._reasons[_identity(source)] = reason

    def _evict(self) -> None:
        """Drop the tenth of the programs that were not asked for for longest."""
        oldest = sorted(self._programs, key=lambda key: self._programs[key].used)
        for key in oldest[: max(1, self.limit // 10)]:
            self._remember(self._programs.pop(key).source, "evicted")
            self.evicted += 1

    def _on_disk(self, source: Source) -> bool:
        return self.disk.enabled and source.language != "numpy"

    def _name(self, source: Source) -> str:
        return f"{_identity(source)}-{self._environment()}"


def _identity(source: Source) -> str:
    text = f"{source.language}\n{source.name}\n{source.text}"
    return hashlib.sha256(text.encode()).hexdigest()[:40]
