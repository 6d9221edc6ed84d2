"""Memory that OpenCL programs work on: host arrays where memory is shared, else device blocks.

Owns the meta arrays of devices (`base.DeviceMemory`): arrays at unmapped addresses, whose last base
holds the block. Addresses are never reused, so no two meta arrays of a process seem to overlap.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import threading
from collections import deque
from dataclasses import asdict
from typing import Any

import numpy as np

from lazyfuse.devices.dataclass import dataclass

from .. import fork_safety, late_imports
from ..base import Array, DeviceError
from ..caches import Group, pools
from ..pools.buffers import BufferPool
from .failures import device_error, faults, out_of_memory
from .pinned import pin_of, send
from .queue import Queue

_START = 1 << 62  # far above every address of a process, and positive as a signed number
_PAGE = 4096
_KINDS = "biufcmM"  # dtypes that a type string describes completely
_DOUBLES = (np.dtype("f8"), np.dtype("c16"))
_SHARE = 4  # free blocks may take a fourth of the device's memory by default

_addresses = itertools.count(_START // _PAGE)
_address_lock = threading.Lock()


def _new_address(size: int) -> int:
    """The start of a range of addresses that no other meta array has."""
    global _addresses
    with _address_lock:
        page = next(_addresses)
        _addresses = itertools.count(page + 1 + size // _PAGE)
    return page * _PAGE


class HostBuffers:
    """OpenCL buffers over the memory of NumPy arrays, for devices that share memory."""

    def __init__(self, queue: Queue) -> None:
        cl = late_imports.module("pyopencl")
        self._buffer = cl.Buffer
        self._context = queue.context
        self._read = cl.mem_flags.READ_ONLY | cl.mem_flags.USE_HOST_PTR
        self._write = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
        self._nothing = np.zeros(16)

    def of(self, array: Array) -> tuple[Any, int]:
        """A buffer that holds an array, and the byte offset of its first element.

        Making a buffer costs less than a lookup. It keeps the array's memory alive.
        """
        flags = array.flags
        how = self._write if flags.writeable else self._read
        if flags.forc and array.size:
            return self._buffer(self._context, how, 0, array), 0
        if not array.size:
            return self._buffer(self._context, self._write, 0, self._nothing), 0
        low, size = _extent(array)
        address: int = array.__array_interface__["data"][0]
        block: Any = (ctypes.c_char * size).from_address(address + low)
        block.owner = array
        return self._buffer(self._context, self._write, 0, block), -low


def _extent(array: Array) -> tuple[int, int]:
    """The offset of the lowest byte from the first element, and the length of the bytes' range."""
    low = high = 0
    for length, stride in zip(array.shape, array.strides, strict=True):
        if stride < 0:
            low += (length - 1) * stride
        else:
            high += (length - 1) * stride
    return low, high - low + array.itemsize


@dataclass
class Transfers:
    """Counters of the copies between the host and a device."""

    uploads: int = 0
    uploaded_bytes: int = 0
    gathers: int = 0
    gathered_bytes: int = 0
    pinned_bytes: int = 0
    copies: int = 0
    copied_bytes: int = 0

    def info(self) -> dict[str, int]:
        """As a dictionary."""
        return asdict(self)


class _Block:
    """The last base of a meta array and of all its views: when it dies, the block is free."""

    __slots__ = ("__array_interface__", "address", "buffer", "memory", "narrow", "size")

    def __init__(
        self, memory: Blocks, buffer: Any, size: int, narrow: int, interface: dict[str, Any]
    ) -> None:
        self.memory = memory
        self.buffer = buffer
        self.size = size
        self.narrow = narrow  # 1: the device holds floats for doubles, half the bytes
        self.address = _new_address(size)
        interface["data"] = (self.address + interface.pop("start"), False)
        self.__array_interface__ = {"version": 3, **interface}

    def __del__(self) -> None:
        self.memory.dead.append(self.buffer)


_memories: Group[Blocks] = pools("devices.opencl.memory")


class Blocks:
    """`base.DeviceMemory` over pyopencl's pool, with a limit on free bytes.

    Blocks die wherever the garbage collector runs, so dying takes no lock: they go to `dead`, and
    the next allocation or query gives them back. The queue runs in order, so a block may be reused
    while a launch that used it is still running. Where it `narrows`, blocks of float64 and
    complex128 hold float32, and views of another dtype are refused.
    """

    limit: int

    def __init__(
        self, queue: Queue, buffers: BufferPool, limit: int = -1, narrows: bool = False
    ) -> None:
        cl = late_imports.module("pyopencl")
        self.queue = queue
        self.narrows = narrows
        self.host = buffers
        self.transfers = Transfers()
        self.dead: deque[Any] = deque()
        self.set_limit(limit)
        self._copy = cl.enqueue_copy
        self._pool = cl.tools.MemoryPool(cl.tools.ImmediateAllocator(queue.commands))
        self._uploads = cl.CommandQueue(queue.context, queue.device)
        self.after_fork()
        fork_safety.register(self)
        _memories.add(self)

    def after_fork(self) -> None:
        """Make the lock anew."""
        self._lock = threading.RLock()

    # -- base.DeviceMemory ----------------------------------------------------------------------

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """As `base.DeviceMemory.empty`."""
        return self._make(shape, dtype, None, 0, math.prod(shape) * dtype.itemsize)[0]

    def holds(self, array: Array) -> bool:
        """As `base.DeviceMemory.holds`."""
        block = _last_base(array)
        return isinstance(block, _Block) and block.memory is self

    def find(self, array: Array) -> tuple[Any, int]:
        """The buffer of a meta array and the byte offset of its first element."""
        block, start = self._block_and_offset(array)
        if self.narrows and block.narrow != (array.dtype in _DOUBLES):
            raise DeviceError(
                f"[launch] arrays: this device keeps float64 as float32, which has other bits:"
                f" cannot look at it as {array.dtype}"
            )
        return block.buffer, start >> block.narrow

    def _block_and_offset(self, array: Array) -> tuple[_Block, int]:
        """The block of a meta array and its byte offset in the block's addresses."""
        block = _last_base(array)
        if not isinstance(block, _Block) or block.memory is not self:
            raise DeviceError(
                "[launch] arrays: expected arrays in the device's memory, got a host array;"
                " upload it first"
            )
        address: int = array.__array_interface__["data"][0]
        return block, address - block.address

    def upload(self, array: Array) -> Array:
        """As `base.DeviceMemory.upload`. Returns when the host may write `array` again."""
        low, size = _extent(array) if array.size else (0, 0)
        _check_packed(array, "upload")
        made, buffer, recycled = self._make(array.shape, array.dtype, array.strides, -low, size)
        if size:
            after = self.queue.marker() if recycled else None
            flat = _flat(array)
            if self._is_narrow(array.dtype):
                flat = _narrowed(flat)
            self._transfer("upload", self._uploads, buffer, flat, copy=send, wait_for=after)
            self.transfers.uploaded_bytes += flat.nbytes
        self.transfers.uploads += 1
        return made

    def gather(self, array: Array) -> Array:
        """As `base.DeviceMemory.gather`."""
        block, start = self._block_and_offset(array)
        low, size = _extent(array) if array.size else (0, 0)
        _check_packed(array, "gather")
        order = _order(array)
        dense = self.host.empty(tuple(array.shape[axis] for axis in order), array.dtype)
        if size:
            self._fetch(block, start + low, dense.reshape(-1).view(np.uint8))
        self.transfers.gathers += 1
        found: Array = dense.transpose(np.argsort(order))[_upwards(array)]
        return found

    def _fetch(self, block: _Block, start: int, flat: Array) -> None:
        """Copy bytes of a block to the host."""
        commands, stop = self.queue.commands, start + flat.nbytes
        if not block.narrow:
            pin = pin_of(_last_base(flat), flat.nbytes, self.queue.context, self.dead)
            copy = pin and pin.fetch
            self._transfer("gather", commands, flat, block.buffer, copy=copy, src_offset=start)
            self.transfers.gathered_bytes += flat.nbytes
            self.transfers.pinned_bytes += flat.nbytes if pin is not None else 0
            return
        first, last = start // 8, -(-stop // 8)
        floats = np.empty(last - first, np.float32)
        self._transfer("gather", commands, floats, block.buffer, src_offset=first * 4)
        self.transfers.gathered_bytes += floats.nbytes
        doubles = floats.astype(np.float64).view(np.uint8)
        flat[...] = doubles[start - first * 8 : stop - first * 8]

    def copy(self, source: Array, target: Array) -> None:
        """As `base.DeviceMemory.copy`."""
        (read, first), (write, second) = self.find(source), self.find(target)
        if not source.size:
            return
        low, size = _extent(source)
        if source.shape != target.shape or source.strides != target.strides:
            raise DeviceError(
                f"[copy] expected one layout, got {source.shape} {source.strides}"
                f" and {target.shape} {target.strides}"
            )
        _check_packed(source, "copy")
        narrow = int(self._is_narrow(source.dtype))
        low, size = low >> narrow, size >> narrow
        self._transfer(
            "copy", self.queue.commands, write, read,
            byte_count=size, src_offset=first + low, dst_offset=second + low,
        )  # fmt: skip
        self.transfers.copies += 1
        self.transfers.copied_bytes += size

    # -- the pool -------------------------------------------------------------------------------

    def info(self) -> dict[str, int]:
        """Blocks and bytes that meta arrays hold, and those that are free."""
        with self._lock:
            self._bury()
            return {
                "live_blocks": self._pool.active_blocks,
                "live_bytes": self._pool.active_bytes,
                "free_blocks": self._pool.held_blocks,
                "free_bytes": self._free_bytes(),
                "limit": self.limit,
            }

    def clear(self) -> None:
        """Give every free block back to the driver."""
        with self._lock:
            self._bury()
            self._pool.free_held()

    def set_limit(self, limit: int) -> None:
        """Keep at most `limit` bytes of free blocks; -1: a fourth of the device's memory."""
        memory: int = self.queue.device.global_mem_size
        self.limit = memory // _SHARE if limit < 0 else limit

    def _bury(self) -> None:
        """Give the blocks of dead meta arrays to the pool. The caller holds the lock."""
        while self.dead:
            self.dead.popleft().release()
        if self._free_bytes() > self.limit:
            self._pool.free_held()

    def _free_bytes(self) -> int:
        """Bytes of free blocks, and what live blocks are larger than was asked for."""
        pool = self._pool
        return pool.managed_bytes - pool.active_bytes if pool.held_blocks else 0

    def _make(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        strides: tuple[int, ...] | None,
        start: int,
        size: int,
    ) -> tuple[Array, Any, bool]:
        """A meta array over a block, its buffer, and whether the block is a reused one."""
        if dtype.kind not in _KINDS:
            raise DeviceError(f"[empty] dtype: expected numbers, got {dtype}")
        narrow = int(self._is_narrow(dtype))
        with self._lock:
            self.queue.check()
            self._bury()
            before = self._pool.managed_bytes
            buffer = self._allocate(max(size >> narrow, 1))
            recycled = self._pool.managed_bytes == before
        interface = {"shape": shape, "strides": strides, "typestr": dtype.str, "start": start}
        return np.asarray(_Block(self, buffer, size, narrow, interface)), buffer, recycled

    def _is_narrow(self, dtype: np.dtype[Any]) -> bool:
        """Whether blocks of a dtype hold floats for doubles."""
        return self.narrows and dtype in _DOUBLES

    def _allocate(self, size: int) -> Any:
        try:
            faults.strike("allocate")
            return self._pool.allocate(size)
        except self.queue.errors as error:
            if not out_of_memory(error):
                raise self.queue.failure(error, "allocate") from error
        self._pool.free_held()
        try:
            faults.strike("allocate")
            return self._pool.allocate(size)
        except self.queue.errors as error:
            if out_of_memory(error):
                problem = device_error(error, "allocate")
                raise DeviceError(f"{problem}, {size} bytes") from error
            raise self.queue.failure(error, "allocate") from error

    def _transfer(
        self, doing: str, commands: Any, target: Any, source: Any, copy: Any = None, **how: Any
    ) -> None:
        self.queue.check()
        try:
            faults.strike(doing)
            (copy or self._copy)(commands, target, source, **how)
        except self.queue.errors as error:
            raise self.queue.failure(error, doing, afterwards=True) from error


def _last_base(array: Array) -> Any:
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base


def _check_packed(array: Array, doing: str) -> None:
    expected = array.itemsize
    steps = sorted(zip(map(abs, array.strides), array.shape, strict=True))
    for step, length in steps:
        if length == 1 or not array.size:
            continue
        if step != expected:
            raise DeviceError(
                f"[{doing}] expected a packed array, got shape {array.shape}"
                f" with strides {array.strides}; copy it first"
            )
        expected *= length


def _order(array: Array) -> Any:
    """The axes from the widest stride to the narrowest."""
    return np.argsort([-abs(stride) for stride in array.strides], kind="stable")


def _upwards(array: Array) -> tuple[Any, ...]:
    """The index that reverses the axes of negative stride."""
    return (*[slice(None, None, -1 if step < 0 else 1) for step in array.strides], ...)


def _narrowed(flat: Array) -> Array:
    """Bytes of doubles converted to bytes of floats; numbers too large become infinite."""
    with np.errstate(all="ignore"):
        return flat.view(np.float64).astype(np.float32).view(np.uint8)


def _flat(array: Array) -> Array:
    """The bytes of a packed array in the order of their addresses."""
    flat: Array = array[_upwards(array)].transpose(_order(array)).reshape(-1).view(np.uint8)
    return flat
