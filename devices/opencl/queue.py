"""The queue of one OpenCL device: its context, pending launches and failures.

Owns the order of launches, the words in which programs report floating-point exceptions, and the
loss of a device: once lost, or inherited through `fork`, it refuses all work with the reason.
"""

from __future__ import annotations

import atexit
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np

from .. import fork_safety, late_imports
from ..base import WORDS, Array, DeviceError, DeviceLost
from .failures import Fault, device_error, faults

_SLOTS = 128  # most pending launches; the next one waits for the oldest
_FORKED = "the device was opened before this process was forked"


class QueuedLaunch:
    """A pending launch: `base.Later`. `keep` keeps its arguments alive until it is done."""

    __slots__ = ("bits", "error", "event", "keep", "queue", "slot")

    def __init__(self, queue: Queue, slot: int, keep: Any, event: Any) -> None:
        self.queue = queue
        self.slot = slot
        self.keep = keep
        self.event = event
        self.bits = -1
        self.error: DeviceError | None = None

    def flags(self) -> int:
        """As `base.Later.flags`."""
        if self.bits < 0 and self.error is None:
            self.queue.retire(self)
        if self.error is not None:
            raise self.error
        return self.bits


class Words:
    """Integers that programs OR their flags into, a row for each pending launch.

    The first integer of a row is zero if no exception arose. Where the device shares memory, the
    host reads them directly; else `refresh` fetches them.
    """

    def __init__(self, queue: Any, context: Any, step: int, shared: bool) -> None:
        flags = late_imports.module("pyopencl").mem_flags
        self._queue = queue
        self._shared = shared
        self._step = step
        self.host = np.zeros((_SLOTS, step), np.int32)
        how = flags.USE_HOST_PTR if shared else flags.COPY_HOST_PTR
        buffer = late_imports.module("pyopencl").Buffer
        self._whole = buffer(context, flags.READ_WRITE | how, hostbuf=self.host)
        width = step * self.host.itemsize
        self.parts = [self._whole.get_sub_region(k * width, width) for k in range(_SLOTS)]
        self.free = deque(range(_SLOTS))

    def refresh(self) -> None:
        """Make the words of finished launches readable in `host`."""
        if not self._shared:
            late_imports.module("pyopencl").enqueue_copy(self._queue, self.host, self._whole)

    def take_back(self, slot: int) -> int:
        """Return the flags of a finished launch as one number, and free its words."""
        bits = int(self.host[slot, 0])
        if bits:
            row = self.host[slot, :WORDS]
            bits = int.from_bytes(row.astype("<i4").tobytes(), "little")
            row[:] = 0
            if not self._shared:
                cl = late_imports.module("pyopencl")
                cl.enqueue_copy(
                    self._queue, self._whole, row,
                    dst_offset=slot * self._step * self.host.itemsize,
                )  # fmt: skip
        self.free.append(slot)
        return bits


class Queue:
    """A context and its in-order queue. `lock` guards launching and the pending launches."""

    def __init__(self, device: Any) -> None:
        cl = late_imports.module("pyopencl")
        self.device = device
        self.errors: tuple[type[BaseException], ...] = (cl.Error, Fault)
        try:
            late_imports.module("pyopencl.invoker")  # pyopencl makes a folder at this import
        except OSError as error:
            raise DeviceError(f"[open] pyopencl: {error}; set PYOPENCL_NO_CACHE=1") from error
        try:
            faults.strike("open")
            self.context = cl.Context([device])
            self.commands = cl.CommandQueue(self.context, device)
        except self.errors as error:
            raise device_error(error, "open") from error
        self.lost = ""
        self.launches = 0
        self.failed: DeviceError | None = None  # since the last call of `wait`
        self._enqueue = cl.enqueue_nd_range_kernel
        self._words: Words | None = None
        self._pending: deque[QueuedLaunch] = deque()
        self.lock = threading.RLock()
        fork_safety.register(self)
        _opened.add(self)

    def after_fork(self) -> None:
        """Mark the device as lost: the child has neither the driver's threads nor its state.

        Nothing is released: a driver may wait for ever for a lock that another thread held.
        """
        self.lost = self.lost or _FORKED
        self.lock = threading.RLock()

    def share_words(self, shared: bool) -> None:
        """Make the words for flags. Called before the first launch."""
        align = max(self.device.mem_base_addr_align // 8, 64)
        try:
            self._words = Words(self.commands, self.context, max(align // 4, WORDS), shared)
        except self.errors as error:
            raise self.failure(error, "open") from error

    def check(self) -> None:
        """Raise `DeviceLost` if the device is lost."""
        if self.lost:
            raise DeviceLost(f"[opencl] the device is lost: {self.lost}")

    def build(self, program: Any, options: list[str]) -> None:
        """Build a program without pyopencl's cache: ours has limits, counters and reasons.

        pyopencl warns of any output of a successful build, which means nothing to the user. The
        filter is permanent: a temporary one would affect all threads as well.
        """
        talk = late_imports.module("pyopencl").CompilerWarning
        warnings.filterwarnings("ignore", category=talk, module="pyopencl")
        program.build(options, [self.device], cache_dir=False)

    def word(self) -> tuple[int, Any]:
        """Free words for the next launch: their number and buffer. The caller holds the lock."""
        words = self._words
        assert words is not None, "share_words comes first"
        if not words.free:
            self._await(self._pending[len(self._pending) // 2])
        self.check()
        slot = words.free.popleft()
        return slot, words.parts[slot]

    def start(
        self, kernel: Any, sizes: tuple[tuple[int, ...], tuple[int, ...]], slot: int, keep: Any
    ) -> QueuedLaunch:
        """Enqueue a kernel whose arguments are set. The caller holds the lock."""
        try:
            faults.strike("launch")
            event = self._enqueue(self.commands, kernel, *sizes)
            self.commands.flush()
        except self.errors as error:
            assert self._words is not None
            self._words.free.append(slot)
            raise self.failure(error, "launch") from error
        pending = QueuedLaunch(self, slot, keep, event)
        self._pending.append(pending)
        self.launches += 1
        return pending

    def retire(self, pending: QueuedLaunch) -> None:
        """Wait for a launch and all before it."""
        self.check()
        try:
            faults.strike("finish")
            pending.event.wait()  # without the lock: other threads may launch meanwhile
        except self.errors as error:
            self._fail_all(error)
            return
        with self.lock:
            self._await(pending)

    def wait(self) -> None:
        """As `base.Asynchronous.wait`."""
        with self.lock:
            self.check()
            try:
                faults.strike("finish")
                self.commands.finish()
            except self.errors as error:
                self._fail_all(error)
            else:
                if self._pending:
                    self._await(self._pending[-1])
            failed, self.failed = self.failed, None
        if failed is not None:
            raise failed

    def marker(self) -> list[Any]:
        """Events that complete when all work enqueued so far is done."""
        with self.lock:
            self.check()
            found = [late_imports.module("pyopencl").enqueue_marker(self.commands)]
            self.commands.flush()
        return found

    def failure(self, error: BaseException, doing: str, afterwards: bool = False) -> DeviceError:
        """A driver's error as a `DeviceError`; if it ends the device, mark the device as lost."""
        mine = device_error(error, doing, afterwards)
        if isinstance(mine, DeviceLost):
            self.lost = str(mine)
        return mine

    def _await(self, last: QueuedLaunch) -> None:
        """Take the flags of `last` and all launches before it, and release their arguments."""
        if last.bits >= 0 or last.error is not None:
            return
        assert self._words is not None
        try:
            last.event.wait()
            self._words.refresh()
            while last.bits < 0:
                pending = self._pending.popleft()
                pending.bits = self._words.take_back(pending.slot)
                pending.keep = pending.event = None
        except self.errors as error:
            self._fail_all(error)

    def _fail_all(self, error: BaseException) -> None:
        """Fail every pending launch: accepted work failed, so no pending result can be trusted."""
        with self.lock:
            self.failed = self.failure(error, "finish", afterwards=True)
            pendings, self._pending = self._pending, deque()
            for pending in pendings:
                pending.error = self.failed
            try:
                self.commands.finish()  # launches that still run use their memory
                self._reclaim(pendings)
            except self.errors:
                self.lost = self.lost or str(self.failed)
            for pending in pendings:
                pending.keep = pending.event = None

    def _reclaim(self, pendings: Iterable[QueuedLaunch]) -> None:
        assert self._words is not None
        self._words.refresh()
        for pending in pendings:
            self._words.take_back(pending.slot)


_opened: weakref.WeakSet[Queue] = weakref.WeakSet()


def _finish_all() -> None:
    """Finish all queues at exit, before the interpreter frees arrays that programs still use."""
    for queue in list(_opened):
        if not queue.lost:
            try:
                queue.commands.finish()
            except queue.errors:
                continue


atexit.register(_finish_all)


def zeros(context: Any, size: int) -> Any:
    """A buffer of zeros."""
    cl = late_imports.module("pyopencl")
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    host: Array = np.zeros(size, np.uint8)
    return cl.Buffer(context, flags, hostbuf=host)
