"""Launches that nobody has waited for: their conditions are told at the next gather.

Owns the list of them per device, for devices with memory of their own. Holds marks of operations,
not nodes: a node held here would look as if somebody read it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lazyfuse.codegen.graph.node import Node
from lazyfuse.codegen.table.op import Op
from lazyfuse.devices.base import Device, DeviceError, Later
from lazyfuse.runtime.numerics import fp_flags
from lazyfuse.runtime.placement import devices as hardware

# Launches remembered: the oldest ones are over by then.
LIMIT = 256


@dataclass(frozen=True, slots=True)
class RecordedAt:
    """What a warning says of a recorded operation."""

    location: Any
    arg: Any


Reported = tuple[int, Sequence[tuple[Op, Any]]]

_waiting: dict[Device, deque[tuple[Later, list[tuple[Op, RecordedAt]], list[int]]]] = {}
_early: dict[Device, list[Reported]] = {}


def add(
    device: Device, later: Later, operations: Sequence[tuple[Op, Node]], slots: Sequence[int]
) -> None:
    """Remember a launch, whose program tells the conditions of its operations in `slots`."""
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
    """Wait for every launch of a device; the conditions that arose and were not told yet."""
    waiting = _waiting.get(device)
    if waiting:
        _finish(device, len(waiting))
    return _early.pop(device, [])


def devices() -> list[Device]:
    """The devices with launches that nobody has waited for."""
    return [*{**_waiting, **_early}]


def _finish(device: Device, count: int) -> None:
    waiting = _waiting[device]
    for _ in range(count):
        later, marks, slots = waiting.popleft()
        try:
            bits = later.flags()
        except DeviceError as error:
            # nobody knows what the launches after it have read
            hardware.lose(device, str(error))
            waiting.clear()
            return
        if bits and marks:
            _early.setdefault(device, []).extend(fp_flags.by_operation(bits, marks, slots))
