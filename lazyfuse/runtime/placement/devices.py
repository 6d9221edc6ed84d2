"""The device in use, with the user's options applied to it.

Owns the choice of device, and what happens when the chosen device is unavailable or lost. Only
this module, evaluate.py and the modules that run plans see the devices.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyfuse import config
from lazyfuse.codegen.graph.linearize import Recording
from lazyfuse.codegen.graph.node import Node
from lazyfuse.codegen.lowering import lower
from lazyfuse.devices import cpu_figures as tunings
from lazyfuse.devices import registry, settings
from lazyfuse.devices.base import Array, Device, DeviceError, DeviceOptions
from lazyfuse.devices.pools import buffers
from lazyfuse.late_modules import when_run
from lazyfuse.runtime.events import counters
from lazyfuse.runtime.placement import calibrate, offload

if TYPE_CHECKING:
    from lazyfuse.codegen.plan.plan import Plan
    from lazyfuse.devices.cpu.device import CPU

tuning = tunings.tuning
"""This processor's figures for schedules: caches, tiles, threads, launches (never result bits)."""

CHOOSE = ("", "auto")
"""Names that leave the choice of the device to lazyfuse."""

AT_HOME = (*CHOOSE, "cpu")

innermost: ContextVar[str] = ContextVar("device", default="")  # of the innermost `with` block
_chunk: ContextVar[int] = ContextVar("chunk", default=0)  # bytes; 0: as the option says
_found: dict[str, Device] = {}  # by requested name
_lost: dict[Device, str] = {}  # devices that no longer work, with the reason


def current() -> Device:
    """The device that kernels run on unless something else decides."""
    found = user_selected()
    return cpu() if found is None or found.graphs else found


def user_selected() -> Device | None:
    """The device that the user named, by a block or an option; None if lazyfuse chooses."""
    name = innermost.get() or config.options.device
    return None if name in CHOOSE else named(name)


def is_default_cpu() -> bool:
    """Whether all plans run on the CPU: the user named no device, and there is no other one."""
    return not (innermost.get() or config.options.device) and offload.always_cpu()


def is_cpu() -> bool:
    """Whether `current` is the CPU; mostly that needs no device, which takes 10 ms to make."""
    return not names_another() or current() is cpu()


def names_another() -> bool:
    """Whether the user named a device other than the CPU."""
    return (innermost.get() or config.options.device) not in AT_HOME


def stays_on_cpu(plan: Plan, recording: Recording, wanted: Collection[Node] | None = None) -> bool:
    """Whether this and later runs of a plan at such sizes are the CPU's."""
    if (innermost.get() or config.options.device) == "cpu":
        return True
    return not names_another() and offload.stays_on_cpu(plan, recording, wanted)


def state_number() -> int:
    """Another number whenever the device of a plan may be another one than before."""
    named = (innermost.get() or config.options.device) == "cpu"
    return 2 * offload.state_number() + named


def cpu() -> CPU:
    """The device that everything falls back to."""
    found: Any = named("cpu")  # `typing.cast` would cost a call
    device: CPU = found
    return device


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Memory of the CPU's pool."""
    found: Array = room().empty(shape, dtype)
    return found


def room() -> buffers.BufferPool:
    """The CPU's pool, which is there before the device: that takes 10 ms to make."""
    device: Any = _found.get("cpu")
    return buffers.first(config.options.pool_limit) if device is None else device.buffers


def is_made() -> bool:
    """Whether the CPU has been asked for its programs, and so is there."""
    return "cpu" in _found


def copied(value: Array) -> Array:
    """A copy in the same memory order; pooled memory for large ones, since new pages are slow."""
    if not value.flags.c_contiguous:
        return value.copy(order="K")
    found = empty(value.shape, value.dtype)
    np.copyto(found, value)
    return found


def for_plan(plan: Plan, recording: Recording, wanted: Collection[Node] | None = None) -> Device:
    """The device for a plan: the one that the user named, or the one expected to be fastest."""
    device = user_selected()
    if device is not None:
        return cpu() if device.graphs else device
    choice = offload.choose(plan, recording, wanted)
    # without figures, work goes to the device that holds its operands
    return (None if choice.estimates else _sole_holder(plan, recording)) or named(choice.device)


def _sole_holder(plan: Plan, recording: Recording) -> Device | None:
    """The only usable device that holds operands which the host lacks; None if there is no such."""
    found = None
    for index in plan.bound:
        node = recording.nodes[plan.graph.values[index].origin]
        if node.resident is not None and node.value is None:
            if found is not None and found is not node.resident.device:
                return None
            found = node.resident.device
    return None if found is None or found.graphs or found in _lost else found


def named(name: str) -> Device:
    """The device of that name; if it is refused, the CPU, with the reason in the report."""
    device = _found.get(name) or _find(name)
    return cpu() if device in _lost else device


def _find(name: str) -> Device:
    try:
        device = registry.device(name)
    except DeviceError as error:
        if not is_known(name):
            raise
        counters.fell_back([], f"device {name}: {error}", name, "cpu")
        device = cpu()
    _found[name] = device
    _apply(device)
    return device


def is_known(name: object) -> bool:
    """Whether this may be the name of a device, usable or not."""
    if not isinstance(name, str):
        return False
    families = {entry.name.partition(":")[0] for entry in registry.devices()}
    return name in _found or name.partition(":")[0] in families


@contextmanager
def within(name: str, chunk: int = 0) -> Iterator[Device]:
    """Use the named device inside a `with` block, in this thread and task.

    `chunk`: bytes of a chunk on a device that runs graphs; 0: as outside.
    """
    outside = innermost.get(), _chunk.get()
    try:  # an interrupt comes after any call
        innermost.set(name)
        _chunk.set(chunk or outside[1])
        yield user_selected() or cpu()
    finally:
        innermost.set(outside[0])
        _chunk.set(outside[1])


def chunk_bytes() -> int:
    """The bytes of a chunk where nothing else says how an array is cut."""
    return _chunk.get() or config.options.chunk_bytes


def lose(device: Device, why: str) -> None:
    """Use the CPU from now on instead of a device that no longer works."""
    if device not in _lost and device is not cpu():  # nothing replaces the CPU
        _lost[device] = why
        name = device.traits.name
        offload.refuse(name, why)
        counters.fell_back([], f"device {name}: {why}; the CPU goes on", name, "cpu")


def is_lost(device: Device) -> bool:
    """Whether a device no longer works."""
    return device in _lost


def with_memory() -> list[str]:
    """The names of devices with memory of their own, as far as known without opening them."""
    lost = {device.traits.name for device in _lost}
    return [
        entry.name
        for entry in registry.devices()
        if entry.available
        and entry.traits is not None
        and not entry.traits.shares_memory
        and entry.name not in lost
    ]


def _apply(device: Device) -> None:
    """Apply the options to a device."""
    options = config.options
    above = options.threads_above
    if device.traits.name == "cpu":
        figures = calibrate.tuned(device, lambda: counters.totals().kernels)
        if above == tunings.THREADS_ABOVE:  # the user set no other value
            above = figures.threads_above
        chosen = options.stream_above
        lower.stream_above(figures.l3_bytes if chosen == lower.STREAM_ABOVE else chosen)
    folder = options.cache_dir
    device.configure(
        DeviceOptions(
            threads=options.threads,
            threads_above=above,
            pool_limit=options.pool_limit,
            program_limit=options.program_limit,
            compile_ahead=options.compile_ahead,
            compile_after_exit=options.compile_after_exit,
            folder=os.path.join(os.path.expanduser(folder), "programs") if folder else "",
            folder_limit=options.cache_limit,
            folder_used=options.cache,
        )
    )


def _forget(_: Any) -> None:
    _found.clear()


def reopen() -> None:
    """Open OpenCL devices again when they are next requested, lost ones too."""
    registry.reopen()
    offload.readmit()
    _found.clear()


def _reopen(name: str) -> None:
    """Open OpenCL devices again when an option that they are opened with changes."""
    row = next(row for row in config.rows() if row.name == name)

    def change(value: bool) -> None:
        before = settings.flag(row.variable, row.default)
        settings.chosen.pop(row.variable, None)
        if settings.flag(row.variable, row.default) != value:
            settings.chosen[row.variable] = value
        if value != before:
            reopen()

    config.on_change(name, change)


for _name in ("opencl_share", "opencl_grid", "opencl_fp64", "single_precision"):
    _reopen(_name)


# When one of these changes, the device is looked up again and gets the options again.
for _name in (
    "device", "threads", "threads_above", "pool_limit", "cache_dir", "cache_limit", "cache",
    "program_limit", "compile_ahead", "compile_after_exit", "stream_above",
):  # fmt: skip
    config.on_change(_name, _forget)

when_run(offload, lambda: offload.open_with(named))
