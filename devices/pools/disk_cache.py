"""A directory of small files: bytes by name, checked, capped, shared between processes.

Owns the file format and the directory's limits; knows nothing of programs. No method raises because
of the directory (read-only, full, foreign, damaged, changed by another process): a read then finds
nothing and a write is skipped, with the reason in `info()`.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from lazyfuse.devices.dataclass import dataclass

_MAGIC = b"lazyfuse-2\n"
_HEAD = len(_MAGIC) + 32  # the magic and a digest, see `_head`
_WRITABLE = stat.S_IWGRP | stat.S_IWOTH
# Safe opening: a pipe with an entry's name makes no reader wait, and a link is not followed.
_OPEN = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
_OPEN |= getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_CREATE = _OPEN | os.O_RDWR | os.O_CREAT
_SUFFIX = ".bin"
_TEMPORARY = ".tmp"
_STALE = 3600.0  # seconds after which a temporary file belongs to a dead process
_TOUCH = 600.0  # a hit marks its file as used at most this often
_KEEP = 0.8  # a full directory is emptied down to this part of its limit
_MOST_FAILURES = 3  # consecutive failed writes after which this process stops trying
_MOST_BYTES = 64 << 20  # of one entry
_ROOT = 0  # the user whose directories every user trusts


@dataclass
class Counters:
    """Counts of a cache's events since this process began."""

    hits: int = 0
    misses: int = 0
    stores: int = 0
    damaged: int = 0
    failures: int = 0


class DiskCache:
    """`get(name)` and `put(name, data)`; names are made of letters, digits and "-"."""

    def __init__(self, directory: str, limit: int, enabled: bool = True) -> None:
        self.directory = directory
        self.limit = limit
        self.enabled = enabled and bool(directory)
        self.counters = Counters()
        self.trouble = ""  # the last failure, for info()
        self._numbers = itertools.count()
        self._size: int | None = None  # bytes in the directory; None: not counted yet
        self._failed_in_a_row = 0
        self._trusted: bool | None = None

    def get(self, name: str) -> bytes | None:
        """The data stored under `name`, or None."""
        return self.look_up(name)[0]

    def look_up(self, name: str) -> tuple[bytes | None, str]:
        """The data stored under `name`, or None and why: "absent", "damaged" or "disabled".

        A damaged entry is removed.
        """
        data, problem = self._read(name)
        if data is not None:
            self.counters.hits += 1
        else:
            self.counters.misses += 1
        if problem == "damaged":
            self.counters.damaged += 1
            self.trouble = f"damaged entry {name}"
            self.remove(name)
        return data, problem

    def is_empty(self) -> bool:
        """Whether the directory has no entry, so that no name is worth making."""
        if not self._usable():
            return True
        try:
            with os.scandir(self.directory) as listing:
                return not any(item.name.endswith(_SUFFIX) for item in listing)
        except OSError:
            return False  # reading an entry says what is wrong

    def holds(self, name: str) -> bool:
        """Whether an entry of that name exists (perhaps damaged)."""
        return self._usable() and os.path.exists(self._path(name))

    def can_store(self) -> bool:
        """Whether `put` is likely to work."""
        if not self.enabled:
            return False
        try:
            os.makedirs(self.directory, mode=0o700, exist_ok=True)
        except (OSError, ValueError) as error:
            self.trouble = str(error)
            return False
        return self._usable() and os.access(self.directory, os.W_OK)

    def put(self, name: str, data: bytes) -> bool:
        """Store an entry; whether it worked."""
        if not self.enabled or self._failed_in_a_row >= _MOST_FAILURES or len(data) > _MOST_BYTES:
            return False
        try:
            os.makedirs(self.directory, mode=0o700, exist_ok=True)
            if not self._usable():
                return False
            self._write(self._path(name), _head(name, data) + data)
        except (OSError, ValueError) as error:  # ValueError: a NUL in the folder's name
            self._note_failure(error)
            return False
        self._failed_in_a_row = 0
        self.counters.stores += 1
        self._grow(_HEAD + len(data))
        return True

    def remove(self, name: str) -> None:
        """Remove an entry."""
        with suppress(OSError, ValueError):
            os.unlink(self._path(name))

    def lock_file(self, name: str) -> int:
        """The open file of that name, which is for locking: of this user alone, and empty.

        What another user could write to, or a link, is replaced. `OSError` where that fails.
        """
        path = os.path.join(self.directory, name)
        with suppress(OSError):  # a link is not opened
            handle = os.open(path, _CREATE, 0o600)
            status = os.fstat(handle)
            if stat.S_ISREG(status.st_mode) and _is_ours(status):
                return handle
            os.close(handle)
        with suppress(FileNotFoundError):
            os.unlink(path)
        return os.open(path, _CREATE | os.O_EXCL, 0o600)

    def nameless_file(self) -> int:
        """A new open file without a name: this process alone can hand it on."""
        handle, path = self._temporary()
        os.unlink(path)
        return handle

    def names(self, prefix: str = "") -> list[str]:
        """The names of entries that begin with `prefix`."""
        names = [item.name.removesuffix(_SUFFIX) for item in self._files()]
        return [name for name in names if name.startswith(prefix)]

    def clear(self) -> None:
        """Remove every entry."""
        for _, _, name in self._entries():
            self.remove(name)
        self._size = None
        self._failed_in_a_row = 0

    def info(self) -> dict[str, Any]:
        """Counters, size and the last failure."""
        entries = self._entries()
        return {
            "directory": self.directory,
            "enabled": self.enabled,
            "entries": len(entries),
            "bytes": sum(entry[1] for entry in entries),
            "limit": self.limit,
            **asdict(self.counters),
            "trouble": self.trouble,
        }

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name + _SUFFIX)

    def _usable(self) -> bool:
        """Whether only this user (or root) can write the directory: its files run as code."""
        if not self.enabled:
            return False
        if self._trusted is None:
            try:
                status = os.stat(self.directory)
            except OSError:
                return False  # it does not exist yet
            except ValueError as error:
                self._trusted, self.trouble = False, str(error)
                return False
            self._trusted = stat.S_ISDIR(status.st_mode) and _is_ours(status)
            if not self._trusted:
                self.trouble = f"{self.directory} belongs to, or is writable by, another user"
        return self._trusted

    def _read(self, name: str) -> tuple[bytes | None, str]:
        if not self.enabled:
            return None, "disabled"
        if not self._usable():
            return None, "absent"
        path = self._path(name)
        try:
            handle = os.open(path, _OPEN | os.O_RDONLY)
            try:
                content = self._content(path, handle)
            finally:
                os.close(handle)
        except FileNotFoundError:
            return None, "absent"
        except OSError as error:
            self.trouble = str(error)
            return None, "absent"
        data = content[_HEAD:]
        if content[:_HEAD] != _head(name, data):
            return None, "damaged"
        return data, ""

    def _content(self, path: str, handle: int) -> bytes:
        """The bytes of an entry; none if it is no file, or too long.

        `OSError` if others may have written it.
        """
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_BYTES + _HEAD:
            return b""
        if not _is_ours(status):  # the directory may have been writable for other users before
            raise PermissionError(f"{path} belongs to, or is writable by, another user")
        if time.time() - status.st_mtime > _TOUCH:
            _touch(handle if os.utime in os.supports_fd else path)
        with open(handle, "rb", closefd=False) as file:
            # read by the file's size: where memory is short, a buffer for the longest entry fails
            return file.read(status.st_size + 1)

    def _write(self, path: str, content: bytes) -> None:
        """Write a temporary file, then rename it: readers see all or nothing."""
        handle, temporary = self._temporary()
        try:
            with open(handle, "wb") as file:
                file.write(content)
            os.replace(temporary, path)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary)
            raise

    def _temporary(self) -> tuple[int, str]:
        """A new open file and its path."""
        name = f"{os.getpid()}-{id(self)}-{next(self._numbers)}{_TEMPORARY}"
        path = os.path.join(self.directory, name)
        return os.open(path, _CREATE | os.O_EXCL, 0o600), path

    def _note_failure(self, error: Exception) -> None:
        self.counters.failures += 1
        self._failed_in_a_row += 1
        self.trouble = str(error)

    def _entries(self) -> list[tuple[float, int, str]]:
        """Time of last use, bytes and name of every entry."""
        found: list[tuple[float, int, str]] = []
        for item in self._files():
            with suppress(OSError):  # removed by another process meanwhile
                status = item.stat()
                found.append((status.st_mtime, status.st_size, item.name.removesuffix(_SUFFIX)))
        return found

    def _files(self) -> Iterator[os.DirEntry[str]]:
        """The files of entries; removes files of dead processes."""
        if not self._usable():
            return
        try:
            with os.scandir(self.directory) as listing:
                for item in listing:
                    if item.name.endswith(_SUFFIX):
                        yield item
                    elif item.name.endswith(_TEMPORARY):
                        with suppress(OSError):
                            if time.time() - item.stat().st_mtime > _STALE:
                                os.unlink(item.path)
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                self.trouble = str(error)

    def _grow(self, size: int) -> None:
        """Account for a new entry; over the limit, remove the entries unused for longest."""
        if self._size is not None:
            self._size += size
            if self._size <= self.limit:
                return
        entries = self._entries()
        self._size = sum(entry[1] for entry in entries)
        if self._size <= self.limit:
            return
        for _, length, name in sorted(entries):
            if self._size <= _KEEP * self.limit:
                break
            self.remove(name)
            self._size -= length


def _head(name: str, data: bytes) -> bytes:
    """The bytes before an entry's data, a digest that binds the data to the name."""
    return _MAGIC + hashlib.sha256(name.encode() + b"\n" + data).digest()


def _is_ours(status: os.stat_result) -> bool:
    """A folder or file of this user (or of root) that neither a group nor others may write."""
    if not hasattr(os, "geteuid"):  # Windows: access lists, not modes
        return True
    return status.st_uid in (os.geteuid(), _ROOT) and not status.st_mode & _WRITABLE


def _touch(file: int | str) -> None:
    with suppress(OSError):
        os.utime(file)
