"""One OpenCL device at work: its context, its queue, what is under way, what went wrong.

Owns the order of launches, the words in which programs report floating-point exceptions, and the
end of a device: once lost, or inherited through `fork`, it refuses everything with the reason.
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

_SLOTS = 128  # launches under way at most; the next one waits for the oldest
_FORKED = "the device was opened before this process was forked"


class QueuedLaunch:
    """A launch: `base.Later`. `keep` holds what it uses until it is done."""

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
    """Integers that programs OR their flags into, a row for each launch under way.

    The first integer of a row is zero if no exception arose. On a device that shares memory the
    host reads them where they lie; else `refresh` fetches them.
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
        """The flags of a finished launch, as one number; its words are free again."""
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
    """A context and its in-order queue. `lock` guards launching and whatever is under way."""

    def __init__(self, device: Any) -> None:
        cl = late_imports.module("pyopencl")
        self.device = device
        self.errors: tuple[type[BaseException], ...] = (cl.Error, Fault)
        try:
            late_imports.module(
                "pyopencl.invoker"
            )  # what kernels need makes a folder when imported
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
        self.failed: DeviceError | None = None  # since the last call of `settle`
        self._enqueue = cl.enqueue_nd_range_kernel
        self._words: Words | None = None
        self._pending: deque[QueuedLaunch] = deque()
        self.lock = threading.RLock()
        fork_safety.register(self)
        _opened.add(self)

    def after_fork(self) -> None:
        """The child has neither the driver's threads nor its state: nothing works any more.

        Nothing is released here: a driver may wait for ever for a lock that another thread held.
        """
        self.lost = self.lost or _FORKED
        self.lock = threading.RLock()

    def share_words(self, shared: bool) -> None:
        """Make the words for flags; before the first launch."""
        align = max(self.device.mem_base_addr_align // 8, 64)
        try:
            self._words = Words(self.commands, self.context, max(align // 4, WORDS), shared)
        except self.errors as error:
            raise self.failure(error, "open") from error

    def check(self) -> None:
        """Raise `DeviceLost` if the device cannot be used any more."""
        if self.lost:
            raise DeviceLost(f"[opencl] the device is lost: {self.lost}")

    def build(self, program: Any, options: list[str]) -> None:
        """Build a program without pyopencl's own cache: ours has limits, counters and reasons.

        pyopencl warns of any output of a successful build; compilers may say what they like. The
        filter stays: one for the moment of the build would be one for all threads as well.
        """
        talk = late_imports.module("pyopencl").CompilerWarning
        warnings.filterwarnings("ignore", category=talk, module="pyopencl")
        program.build(options, [self.device], cache_dir=False)

    def word(self) -> tuple[int, Any]:
        """Free words for the next launch: their number and buffer. Under the lock."""
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
        """Enqueue a kernel whose arguments are set. Under the lock."""
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
            pending.event.wait()  # outside of the lock: others may go on launching
        except self.errors as error:
            self._fail_all(error)
            return
        with self.lock:
            self._await(pending)

    def wait(self) -> None:
        """As `base.Asynchronous.settle`."""
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
        """Events after which everything enqueued so far is done."""
        with self.lock:
            self.check()
            found = [late_imports.module("pyopencl").enqueue_marker(self.commands)]
            self.commands.flush()
        return found

    def failure(self, error: BaseException, doing: str, afterwards: bool = False) -> DeviceError:
        """A driver's error as ours; if it is the device's end, the device remembers."""
        mine = device_error(error, doing, afterwards)
        if isinstance(mine, DeviceLost):
            self.lost = str(mine)
        return mine

    def _await(self, last: QueuedLaunch) -> None:
        """Take the flags of `last` and all before it, and let go of what they used."""
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
        """Work that had been accepted failed: nothing under way can be trusted."""
        with self.lock:
            self.failed = self.failure(error, "finish", afterwards=True)
            pendings, self._pending = self._pending, deque()
            for pending in pendings:
                pending.error = self.failed
            try:
                self.commands.finish()  # what goes on running still uses its memory
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
    """Before the interpreter frees arrays that programs still use."""
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
