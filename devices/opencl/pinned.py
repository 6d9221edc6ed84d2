"""The host's memory that a device copies to directly: blocks of the pool, pinned by the driver.

A driver copies to other memory by way of its own; on an NVIDIA H100 that takes four times as long.
Owns the buffers over pinned blocks, for as long as the blocks' memory lives. To pin a small one
takes longer than a copy: it serves one first. An operand in other memory is pinned for its copy.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from .. import late_imports
from ..base import Array

LEAST = 1 << 20  # bytes of a block that is pinned before its second copy
AT_ONCE = 1 << 24  # bytes for which pinning pays in a single copy
_SEEN = "served a copy"
_REFUSED = "the driver does not pin it"


class Pin:
    """A buffer over a block's memory. When the block goes, `dead` gets the buffer: blocks die
    wherever the garbage collector runs, and it keeps the memory until the driver has let it go.
    """

    __slots__ = ("address", "buffer", "dead")

    def __init__(self, buffer: Any, address: int, dead: deque[Any]) -> None:
        self.buffer, self.address, self.dead = buffer, address, dead

    def __del__(self) -> None:
        self.dead.append(self.buffer)

    def fetch(self, commands: Any, target: Array, source: Any, src_offset: int) -> None:
        """Copy bytes of a buffer to a part of the block; returns when they are there."""
        cl = late_imports.module("pyopencl")
        offset = target.__array_interface__["data"][0] - self.address
        cl.enqueue_copy(
            commands, self.buffer, source,
            byte_count=target.nbytes, src_offset=src_offset, dst_offset=offset,
        )  # fmt: skip
        # by the standard, the memory holds what the buffer does while it is mapped
        mapped, _ = cl.enqueue_map_buffer(
            commands, self.buffer, cl.map_flags.READ, offset, target.shape, np.uint8
        )
        mapped.base.release(commands)


def pin_of(lease: Any, size: int, context: Any, dead: deque[Any]) -> Pin | None:
    """The pin of the block that an array of so many bytes is over; None if it has none (yet)."""
    block = getattr(lease, "_block", None)
    if block is None or size < LEAST:
        return None
    if block.pin is None and size < AT_ONCE:
        block.pin = _SEEN
    elif block.pin is None or block.pin is _SEEN:
        buffer = _pinned(
            context, block.memory, late_imports.module("pyopencl").mem_flags.READ_WRITE
        )
        address = block.memory.__array_interface__["data"][0]
        block.pin = _REFUSED if buffer is None else Pin(buffer, address, dead)
    return block.pin if type(block.pin) is Pin else None


def send(commands: Any, target: Any, source: Array, **how: Any) -> None:
    """Copy memory to a buffer; returns when it has been read."""
    cl = late_imports.module("pyopencl")
    is_large = source.nbytes >= AT_ONCE
    pin = _pinned(commands.context, source, cl.mem_flags.READ_ONLY) if is_large else None
    cl.enqueue_copy(commands, target, source, **how)
    del pin


def _pinned(context: Any, memory: Array, access: int) -> Any:
    """A buffer over memory of the host; None where a system limits how much is pinned."""
    cl = late_imports.module("pyopencl")
    try:
        return cl.Buffer(context, access | cl.mem_flags.USE_HOST_PTR, hostbuf=memory)
    except cl.Error:
        return None
