"""Compiled programs in memory and on disk. Owns their keys, limits, counters and reasons.

A program's identity is its language and text. Its name on disk also holds a digest of everything
else that decides its machine code: versions, CPU, platform, the runtime modules of devices/. This
module knows no compiler and no loader: the device passes both in.
"""

from __future__ import annotations

import hashlib
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from .. import fork_safety, settings
from ..base import ALONE, DeviceError, DeviceLost, DeviceOptions, Pooled, Source
from ..caches import Group
from .compile_worker import Worker
from .disk_cache import DiskCache
from .object_code import Loaded, load

Key = tuple[str, str]
DISK_LIMIT = 256 << 20  # bytes of compiled programs kept on disk
_MOST_REASONS = 4096  # look-ups whose reason is kept


class Builder(Protocol):
    """How a device makes programs of one language."""

    def build(self, source: Source) -> tuple[Pooled, bytes | None]:
        """Compile a source. Return the program, and its code if that may be kept on disk."""

    def load(self, source: Source, code: bytes, fresh: bool = False) -> Pooled:
        """The program from code that `build` returned, in this or another process.

        `fresh`: it comes from the compiler, not from the disk.
        """


_pools: Group[ProgramPool] = Group(
    "devices.pools.programs",
    lambda each: len(each._programs),
    lambda: max((each.limit for each in _pools), default=0),
    lambda each: each.clear(),
)
_reasons: Group[ProgramPool] = Group(
    "devices.pools.programs.reasons",
    lambda each: len(each._reasons),
    _MOST_REASONS,
    lambda each: each._reasons.clear(),
)
_refused: Group[ProgramPool] = Group(
    "devices.pools.programs.refused",
    lambda each: len(each._refused),
    None,
    lambda each: each._refused.clear(),
    "one for each program that a device would not build",
)


class ProgramPool:
    """`get(source)` finds a program in memory or on disk, or builds it."""

    limit: int

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
        self.worker: Worker | None = None  # compiles ahead, where the device has one
        self._parallel = parallel  # whether the builders may work in several threads at once
        self._reasons: dict[str, str] = {}  # by identity: why the last look-up found nothing
        self._refused: dict[Key, str] = {}  # what `soon` will never return, with the reason
        self._uses = 0
        self.hits = self.built = self.loaded = self.evicted = self.ahead = 0
        self.seconds = 0.0  # spent building
        self.after_fork()
        fork_safety.register(self)
        for group in (_pools, _reasons, _refused):
            group.add(self)

    def after_fork(self) -> None:
        """Make the locks anew."""
        self._lock = threading.RLock()
        self._making: dict[Key, threading.RLock] = {}  # a lock for each program being made
        self._wanted: dict[Key, Source] = {}  # sources sent to the worker
        self._arrival = threading.Condition()

    def get(self, source: Source) -> Pooled:
        """The program of a source; raises `DeviceError` if it cannot be built."""
        program = self._programs.get((source.language, source.text))
        if program is None:
            return self._await(source) or self._make(source)
        self._uses += 1
        self.hits += 1
        program.used = self._uses
        return program

    def _await(self, source: Source) -> Pooled | None:
        """The program from the worker; None if the caller has to make it, or it is refused."""
        if self.worker is None or source.language == "numpy" or self.worker.why_not():
            return None
        key = source.language, source.text
        program = self.soon(source)
        if program is None and key not in self._refused:
            self.wait(key)
            program = self._programs.get(key)
        return program

    def soon(self, source: Source) -> Pooled | None:
        """The program if it is in memory or on disk; else None, and the worker compiles it.

        With a worker it never waits for a compiler; without a worker it builds at once. Never
        raises: `why_never` gives the reason.
        """
        key = source.language, source.text
        if key in self._programs:
            return self.get(source)
        if key in self._wanted or key in self._refused:
            return None
        try:
            if self.worker is None or self.worker.why_not():
                return self._make(source)
            builder = self._builders.get(source.language)
            if builder is None:
                return self._make(source)  # its error lists the languages
            problem = "disabled"
            if self._on_disk(source):
                program, problem = self._load(source, builder)
                if program is not None:
                    self._add(key, program)
                    return program
                problem = self._reason(source, problem)
        except DeviceLost:
            raise
        except DeviceError as error:
            self._refuse(key, str(error))
            return None
        self._remember(source, "first seen" if problem == "absent" else problem)
        self._ask(source)
        return None

    def _ask(self, source: Source) -> None:
        """Put a source into the worker's queue."""
        with self._arrival:
            self._wanted[source.language, source.text] = source
        if self.worker is None or not self.worker.want(source, source.name == ALONE):
            self.lost(None, "")

    def awaits(self, source: Source) -> bool:
        """Whether a program has been requested from the worker and has not arrived yet."""
        return (source.language, source.text) in self._wanted

    def uncompiled(self) -> list[Source]:
        """The sources sent to the worker that have not arrived and are not on disk."""
        with self._arrival:
            return list(self._wanted.values())

    def why_never(self, source: Source) -> str:
        """Why `soon` will never return a program; empty if it may."""
        return self._refused.get((source.language, source.text), "")

    def wait(self, key: Key | None = None, seconds: float | None = None) -> bool:
        """Wait for one program from the worker, or for all; whether they arrived in time."""
        if self.worker is not None:
            self.worker.hurry()

        def done() -> bool:
            return not self._wanted if key is None else key not in self._wanted

        with self._arrival:
            return self._arrival.wait_for(done, seconds)

    def arrived(self, source: Source, code: bytes | None, why: str, seconds: float) -> None:
        """Store what the worker has compiled (in the worker's thread)."""
        key = source.language, source.text
        try:
            if code is None:
                self._refuse(key, why)
                return
            program = self._builders[source.language].load(source, code, fresh=True)
            with self._lock:
                self.seconds += seconds
                self.built += 1
                self.ahead += 1
            self._add(key, program)
            if self._on_disk(source):
                self.disk.put(self._name(source), code)
        except DeviceError as error:
            self._refuse(key, str(error))
        finally:
            with self._arrival:
                self._wanted.pop(key, None)
                self._arrival.notify_all()

    def lost(self, source: Source | None, why: str) -> None:
        """Record that the worker has ended; `source`, if any, must not be compiled here either."""
        if source is not None:
            self._refuse((source.language, source.text), why)
        with self._arrival:
            self._wanted.clear()
            self._arrival.notify_all()

    def _refuse(self, key: Key, why: str) -> None:
        while len(self._refused) >= _MOST_REASONS:
            self._refused.pop(next(iter(self._refused)))
        self._refused[key] = why

    def holds(self, source: Source) -> bool:
        """Whether `get` would find the program without building it."""
        if (source.language, source.text) in self._programs:
            return True
        if not self._on_disk(source) or self.disk.is_empty():
            return False
        try:
            return self.disk.holds(self._name(source))
        except DeviceError:  # the digest in the names on disk is not available
            return False

    def why_missed(self, source: Source) -> str:
        """Why `source` was last built: "first seen", "evicted", "cleared", "damaged",
        "other versions" (of llvmlite, of this library, of the CPU) or "disabled"; "": it was not.
        """
        return self._reasons.get(_identity(source), "")

    def info(self) -> dict[str, Any]:
        """Counters of the programs in memory; those on disk under "disk"."""
        return {
            "programs": len(self._programs),
            "limit": self.limit,
            "hits": self.hits,
            "loaded": self.loaded,
            "built": self.built,
            "ahead": self.ahead,
            "awaited": len(self._wanted),
            "evicted": self.evicted,
            "seconds": self.seconds,
            "disk": self.disk.info(),
        }

    def clear(self, disk: bool = False) -> None:
        """Forget every program in memory, and with `disk` also on disk."""
        with self._lock:
            for program in self._programs.values():
                self._remember(program.source, "cleared")
            self._programs.clear()
            self._refused.clear()
            if disk:
                self.disk.clear()

    def configure(self, options: DeviceOptions) -> None:
        """Take the limits and the folder that the user chose."""
        self.set_limit(options.program_limit)
        folder = options.folder or settings.cache_directory()
        self.disk = DiskCache(folder, options.folder_limit, options.folder_used)

    def set_limit(self, limit: int) -> None:
        """Keep at most `limit` programs in memory; 0 keeps none."""
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
        return load(made, entry, fresh=True)

    def _make(self, source: Source) -> Pooled:
        builder = self._builders.get(source.language)
        if builder is None:
            known = ", ".join(self._builders)
            raise DeviceError(f"[compile] language: expected one of {known}, got {source.language}")
        key = (source.language, source.text)
        if key in self._refused:
            raise DeviceError(self._refused[key])
        with self._lock:
            making = self._making.setdefault(key, threading.RLock())
        with making if self._parallel else self._lock:
            try:
                program = self._programs.get(key)  # another thread may have made it meanwhile
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
        """The program from disk, or why not; an entry that does not load is removed as damaged."""
        if self.disk.is_empty():  # the digest of this environment takes 2 ms
            self.disk.counters.misses += 1
            return None, "absent"
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
        """Drop the tenth of the programs that was requested least recently."""
        oldest = sorted(self._programs, key=lambda key: self._programs[key].used)
        for key in oldest[: max(1, self.limit // 10)]:
            self._remember(self._programs.pop(key).source, "evicted")
            self.evicted += 1

    def _on_disk(self, source: Source) -> bool:
        return self.disk.enabled and source.language != "numpy" and not sys.is_finalizing()

    def _name(self, source: Source) -> str:
        return name_on_disk(source, self._environment())


def disk_of_environment() -> DiskCache:
    """The folder of programs as the environment variables set it."""
    limit = settings.number("LAZYFUSE_CACHE_LIMIT", DISK_LIMIT)
    return DiskCache(settings.cache_directory(), limit, settings.cache_enabled())


def name_on_disk(source: Source, environment: str) -> str:
    """The name of a program's entry on disk: its identity and the environment's digest."""
    return f"{_identity(source)}-{environment}"


def _identity(source: Source) -> str:
    text = f"{source.language}\n{source.name}\n{source.text}"
    return hashlib.sha256(text.encode()).hexdigest()[:40]
