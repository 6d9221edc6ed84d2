"""Launches without a wait yet: their floating-point exceptions are reported at the next gather.

Owns the list of them per device, for devices with memory of their own. Holds descriptions of
operations, not nodes: a node held here would look as if the program could still read it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from lazyfuse.codegen.graph.node import Node
from lazyfuse.codegen.table.op import Op
from lazyfuse.devices.base import Device, DeviceError, Later
from lazyfuse.devices.dataclass import dataclass
from lazyfuse.runtime.numerics import fp_flags
from lazyfuse.runtime.placement import devices as hardware

# Launches remembered; when there are more, the oldest have finished.
LIMIT = 256


@dataclass(frozen=True)
class RecordedAt:
    """What a warning needs to know about a recorded operation."""

    location: Any
    arg: Any


Reported = tuple[int, Sequence[tuple[Op, Any]]]

_waiting: dict[Device, deque[tuple[Later, list[tuple[Op, RecordedAt]], list[int]]]] = {}
_early: dict[Device, list[Reported]] = {}


def add(
    device: Device, later: Later, operations: Sequence[tuple[Op, Node]], slots: Sequence[int]
) -> None:
    """Remember a launch; its program reports the IEEE flags of its operations in `slots`."""
    telling = [
        (op, RecordedAt(node.location, node.arg), slot)
        for (op, node), slot in zip(operations, slots, strict=True)
        if op.flags or op.integer_flags
    ]
    waiting = _waiting.setdefault(device, deque())
    marks = [(op, mark) for op, mark, _ in telling]
    waiting.append((later, marks, [slot for _, _, slot in telling]))
    if len(waiting) > LIMIT:
        _finish(device, 1)


def wait(device: Device) -> list[Reported]:
    """Wait for every launch of a device; returns floating-point exceptions not reported yet."""
    waiting = _waiting.get(device)
    if waiting:
        _finish(device, len(waiting))
    return _early.pop(device, [])


def devices() -> list[Device]:
    """The devices with pending launches."""
    return [*{**_waiting, **_early}]


def _finish(device: Device, count: int) -> None:
    waiting = _waiting[device]
    for _ in range(count):
        later, marks, slots = waiting.popleft()
        try:
            bits = later.flags()
        except DeviceError as error:
            # later launches may have read its missing results
            hardware.lose(device, str(error))
            waiting.clear()
            return
        if bits and marks:
            _early.setdefault(device, []).extend(fp_flags.by_operation(bits, marks, slots))
