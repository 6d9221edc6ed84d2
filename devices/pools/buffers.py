"""Memory for results, reused when the last array over it is gone.

Owns raw blocks (from `np.empty`, so that NumPy asks for huge pages), their size classes and the
limit on free ones. Reuse pays, because new pages cost more than arithmetic. Imports only base and
critical.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from .. import critical
from ..base import Array, OutOfMemory
from ..caches import Group, pools

SMALLEST = 65536  # bytes; below, the C library's own pool is as good
ALIGNMENT = 64  # a cache line, and the widest vector
_KINDS = "biufcmM"  # dtypes that a type string describes completely
_STEPS = 8  # size classes per power of two: at most an eighth of a block is waste
_LARGER = 2  # size classes by which a block may be larger than what it serves
_IDLE = 30.0  # seconds after which a free block is given back to the system
_LOOK = 1.0  # seconds between two searches for idle blocks


def default_limit() -> int:
    """A quarter of the machine's memory, 4 GiB at most."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not a POSIX system
        memory = 4 << 30
    return min(memory // 4, 4 << 30)


class _Block:
    """Raw memory, the address of its first aligned byte, and what a device keeps with it."""

    __slots__ = ("address", "memory", "pin", "since", "size")

    def __init__(self, size: int) -> None:
        self.memory = np.empty(size + ALIGNMENT, dtype=np.uint8)
        start: int = self.memory.__array_interface__["data"][0]
        self.address = start + -start % ALIGNMENT
        self.size = size
        self.since = 0.0
        self.pin: Any = None


class _Lease(ctypes.c_char * (1 << 62)):  # type: ignore[misc]
    """The base of the arrays over a block: when it dies, no array refers to the block any more.

    It is a buffer over all memory after the block's address. NumPy makes an array over one in
    0.3 us.
    """

    _pool: BufferPool | None = None  # an interrupt may come before it is set
    _block: _Block

    # a default argument keeps the function: modules are empty when the interpreter ends
    @critical.begin_quietly
    def __del__(self, ends: Callable[[], bool] = sys.is_finalizing) -> None:
        try:
            if self._pool is not None and not ends():
                self._pool._take_back(self._block)
        except BaseException as error:  # raised by a signal's handler: Python would drop it here
            critical.waiting.append((critical.raise_later, 0, error))


_lease_at = _Lease.from_address
_clock: Callable[[], float] = time.monotonic


_pools: Group[BufferPool] = pools("devices.pools.buffers")


class BufferPool:
    """`empty(shape, dtype)` as `np.empty`, over reused memory if the array is large.

    Leases end wherever the garbage collector runs, so no method takes a lock: blocks move by atomic
    `deque` operations, and `_free_bytes` is an estimate that `_trim` corrects. When two threads
    trim at the same time, each may free blocks that the other has counted.
    """

    __slots__ = (
        "__weakref__", "_free", "_free_bytes", "_holds", "_look", "dropped", "limit", "new",
        "reused",
    )  # fmt: skip

    limit: int

    def __init__(self, limit: int = -1) -> None:
        self.limit = default_limit() if limit < 0 else limit
        self.new = self.reused = self.dropped = 0  # blocks made, reused, freed
        self._free: dict[int, deque[_Block]] = {}
        self._free_bytes = 0
        self._look = 0.0  # time of the next search for idle blocks
        self._holds: list[None] = []  # one entry per reservation: none is freed meanwhile
        _pools.add(self)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """A C-contiguous, uninitialised array of a plain dtype, aligned to cache lines if large."""
        size = math.prod(shape) * dtype.itemsize
        if size < SMALLEST or dtype.kind not in _KINDS:
            return np.empty(shape, dtype)
        size = size_class(size)
        try:
            block = self._free[size].pop()  # the block used last: its lines may still be in a cache
        except (KeyError, IndexError):
            found = self._larger(size) or self._new_block(size)
            if found is None:
                return self._unpooled(shape, dtype)
            block = found
        else:
            self._free_bytes -= size
            self.reused += 1
        lease = _lease_at(block.address)
        lease._block = block
        lease._pool = self
        return np.ndarray(shape, dtype, lease)

    @staticmethod
    def classes(blocks: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        """From pairs (bytes, count) of blocks to the pairs (class, count) that `reserve` takes."""
        found: dict[int, int] = {}
        for size, count in blocks:
            if size >= SMALLEST:
                size = size_class(size)
                found[size] = found.get(size, 0) + count
        return tuple(found.items())

    def reserve(self, classes: Sequence[tuple[int, int]]) -> bool:
        """Reserve blocks, a number per class, until `release`; whether memory suffices.

        For a run that must not fail halfway for want of memory.
        """
        free = self._free
        self._holds.append(None)  # atomic, as `pop` is
        for size, count in classes:
            if size not in free or len(free[size]) < count:
                break
        else:
            return True
        found = self._missing(classes)
        if found is None:
            self._drop_to(0)
            found = self._missing(classes)
            if found is None:
                self._holds.pop()
                return False
        for block in found:  # taken after the blocks that were in use: its pages are not mapped yet
            free.setdefault(block.size, deque()).appendleft(block)
            self._free_bytes += block.size
        return True

    def _missing(self, classes: Sequence[tuple[int, int]]) -> list[_Block] | None:
        """New blocks where too few are free; None if memory does not suffice."""
        made: list[_Block] = []
        now = _clock()
        try:
            for size, count in classes:
                for _ in range(count - len(self._free.get(size, ()))):
                    made.append(_Block(size))
                    made[-1].since = now
        except MemoryError:
            return None
        self.new += len(made)
        return made

    def release(self) -> None:
        """End a reservation."""
        self._holds.pop()
        if self._free_bytes > self.limit and not self._holds:
            self._drop_to(self.limit)

    def clear(self) -> None:
        """Give every free block back to the system."""
        self._drop_to(0)

    def info(self) -> dict[str, int]:
        """Bytes free and the limit on them; counters of blocks."""
        free = [block.size for blocks in list(self._free.values()) for block in list(blocks)]
        return {
            "free_bytes": sum(free),
            "free_blocks": len(free),
            "limit": self.limit,
            "new": self.new,
            "reused": self.reused,
            "dropped": self.dropped,
        }

    def set_limit(self, limit: int) -> None:
        """Keep at most `limit` bytes of free blocks; -1: the default."""
        self.limit = default_limit() if limit < 0 else limit
        self._drop_to(self.limit)

    def _larger(self, size: int) -> _Block | None:
        """A free block, a little larger: arrays with and without a border share blocks."""
        for _ in range(_LARGER):
            size = size_class(size + 1)
            with suppress(KeyError, IndexError):
                block = self._free[size].pop()
                self._free_bytes -= size
                self.reused += 1
                return block
        return None

    def _new_block(self, size: int) -> _Block | None:
        """A block from the system, if necessary after freeing all others; None without memory."""
        self.new += 1
        self._free.setdefault(size, deque())
        try:
            return _Block(size)
        except MemoryError:
            self.clear()
        with suppress(MemoryError):
            return _Block(size)
        return None

    @staticmethod
    def _unpooled(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """An array of exactly the requested size, less than a block; or NumPy's error."""
        try:
            return np.empty(shape, dtype)
        except MemoryError as error:
            raise OutOfMemory(str(error)) from error

    def _take_back(self, block: _Block) -> None:
        """Return a block to the pool. Runs wherever the last reference dies, so it never waits."""
        now = block.since = _clock()
        self._free[block.size].append(block)
        self._free_bytes += block.size
        if self._free_bytes > self.limit or now > self._look:
            self._trim(now)

    def _trim(self, now: float) -> None:
        """Enforce the limits on free bytes and idle time."""
        if self._holds:
            return
        self._look = now + _LOOK
        self._drop_to(self.limit)
        for blocks in list(self._free.values()):
            while now - _since(blocks) > _IDLE:
                self._forget(blocks)

    def _drop_to(self, goal: int) -> None:
        """Free the blocks unused for longest, until at most `goal` bytes are free."""
        classes = list(self._free.values())
        self._free_bytes = sum(block.size for blocks in classes for block in list(blocks))
        while self._free_bytes > goal:
            oldest = min(classes, key=_since)
            if not oldest:
                break
            self._forget(oldest)

    def _forget(self, blocks: deque[_Block]) -> None:
        with suppress(IndexError):  # another thread took it
            self._free_bytes -= blocks.popleft().size
            self.dropped += 1


@critical.begin_quietly
def _trim_quietly(pool: BufferPool) -> None:
    """For C, where the last reference to an array has died: see `_Lease.__del__`."""
    try:
        pool._trim(_clock())
    except BaseException as error:
        critical.waiting.append((critical.raise_later, 0, error))


_empty: Any = BufferPool.empty


def use(native: Any) -> None:
    """Lend and take back with the native extension from now on; None: with the Python here."""
    global _clock
    kind: Any = BufferPool
    kind.empty = _empty
    _clock = time.monotonic
    for pool in _pools:
        pool._look = 0.0  # another clock
    if native is not None:
        native.bind("block", _Block)
        native.bind("pool", BufferPool)
        native.bind("pool_empty", _empty)
        native.bind("trim", _trim_quietly)
        kind.empty = native.pool_empty
        _clock = native.clock


_first: BufferPool | None = None
_taken = False


def first(limit: int = -1) -> BufferPool:
    """The pool of the first device, which may be made later than the first block is wanted."""
    global _first
    if _first is None:
        _first = BufferPool(limit)
    return _first


def for_device(limit: int) -> BufferPool:
    """A pool for a device that is being made: the first one gets `first`."""
    global _taken
    if _taken:
        return BufferPool(limit)
    _taken = True
    first().set_limit(limit)
    return first()


def _since(blocks: deque[_Block]) -> float:
    """The time at which the oldest of these free blocks became free."""
    try:
        return blocks[0].since
    except IndexError:  # empty, perhaps because another thread took the last one
        return math.inf


def size_class(size: int) -> int:
    """The size of the blocks that serve `size` bytes."""
    step = max(1 << (size.bit_length() - 1), 1) // _STEPS
    return -(-size // step) * step
