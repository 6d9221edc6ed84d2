"""Values in the memory of devices: kept uploads, results that stay, copies back.

Owns `Resident`, the counters of copies, and the lineage from which a value can be computed again
when its device is lost. Knows nodes and devices, neither plans nor the array type.

A node's upload equals its host values until those are written. Every writer of host memory calls
`forget` first (`Storage.writable`, `array.writable`, the end of an export, and the executor where
it writes in place).
"""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import numpy as np

from lazyfuse import config
from lazyfuse.codegen.graph import interpret
from lazyfuse.codegen.graph.node import HostCall, Node, source_line
from lazyfuse.codegen.table import ops
from lazyfuse.devices.base import Device, DeviceError, DeviceLost, DeviceMemory
from lazyfuse.errors import EvaluationError
from lazyfuse.runtime.events import counters
from lazyfuse.runtime.layout.meta_arrays import address, reach
from lazyfuse.runtime.numerics import narrow_precision
from lazyfuse.runtime.placement import devices

Array = np.ndarray[Any, np.dtype[Any]]

# Operations since the value left the host, above which it cannot be computed again: a lineage
# without a limit would grow with every iteration of a long loop.
LINEAGE_OPERATIONS = 1000
# Bytes of operands kept for lineages.
LINEAGE_BYTES = 64 << 20


class Seal:
    """Tells whether host values are unchanged since they were copied to a device."""

    __slots__ = ("intact",)

    def __init__(self) -> None:
        self.intact = True


class Lineage(NamedTuple):
    """A copy of the operations that made a value, so that it can be computed again."""

    node: Node
    operations: int  # on the longest path to the host
    held: int  # bytes of host memory that it keeps alive


class Resident:
    """A node's value in the memory of a device."""

    __slots__ = (
        "__weakref__",
        "array",
        "device",
        "lineage",
        "made",
        "node",
        "seal",
        "spoiled",
        "uses",
    )

    def __init__(self, node: Node, array: Array, device: Device) -> None:
        self.node = weakref.ref(node)
        self.array = array
        self.device = device
        before: Resident | None = node.resident
        self.seal: Seal = Seal() if before is None else before.seal
        self.lineage: Lineage | None = None
        self.made = False  # computed on the device or moved there; False: an upload of host values
        self.spoiled = False  # a kernel may have written over it
        self.uses = 0  # operations that read it on the device

    def described(self) -> str:
        """Where the parts of the value lie, if it has any."""
        return ""

    def fetch(self, purpose: str) -> Array:
        """The values as a host array."""
        return copied_back(self.array, self.device, purpose)


_lives: weakref.WeakSet[Resident] = weakref.WeakSet()


def residents() -> list[Resident]:
    """The values in the memory of devices now."""
    return [each for each in _lives if (node := each.node()) is not None and node.resident is each]


# -------------------------------------------------------------------- uploads and copies back


def _memory(device: Device) -> DeviceMemory:
    assert device.memory is not None, "values lie in the memory of devices that have one"
    return device.memory


def copied_there(array: Array, device: Device, purpose: str) -> Array:
    """A meta array with the values of a host array."""
    packed = array if _is_packed(array) else array.copy(order="K")
    found = _memory(device).upload(packed)
    counters.copied("upload", array.nbytes, device.traits.name, purpose)
    return found


def copied_back(array: Array, device: Device, purpose: str) -> Array:
    """A host array with the values of a meta array."""
    memory = _memory(device)
    if _is_packed(array):
        found: Array = memory.gather(array)
        counters.copied("gather", array.nbytes, device.traits.name, purpose)
        return found
    flat, start = stretch(array)
    host: Array = memory.gather(flat)
    counters.copied("gather", flat.nbytes, device.traits.name, purpose)
    return np.ndarray(array.shape, array.dtype, host, start, array.strides).copy(order="K")


def stretch(array: Array) -> tuple[Array, int]:
    """The segment of bytes around a meta array's elements, and the offset of the first element."""
    low, high = reach(array)
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    block = base.transpose(sorted(range(base.ndim), key=lambda axis: -base.strides[axis]))
    flat = block.reshape(-1).view(np.uint8)
    begin = address(array) - address(flat) + low
    return flat[begin : begin + high - low + array.itemsize], -low


def _is_packed(array: Array) -> bool:
    flags = array.flags
    if flags.c_contiguous or flags.f_contiguous:
        return True
    order = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
    return bool(array.transpose(order).flags.c_contiguous)


def upload(node: Node, device: Device, purpose: str) -> Array:
    """The values of an evaluated node in a device's memory, copied there once."""
    resident = node.resident
    if resident is not None and resident.device is device:
        if config.options.validate and node.value is not None:
            _check(node, resident)
        array: Array = resident.array
        return array
    value = gather(node, purpose)
    return keep(node, copied_there(value, device, purpose), device).array


def keep(node: Node, array: Array, device: Device) -> Resident:
    """Record that the value of a node is in a device's memory."""
    node.resident = resident = Resident(node, array, device)
    note(resident)
    return resident


def note(resident: Resident) -> None:
    """List a value that is in the memory of a device."""
    _lives.add(resident)


def forget(node: Node | None) -> None:
    """Drop the upload: host code is about to write to the node's values."""
    if node is not None and (resident := node.resident) is not None:
        resident.seal.intact = False
        node.resident = None


def move(source: Node, node: Node, device: Device) -> None:
    """Give a node the values of another node, in its own memory on a device."""
    memory = _memory(device)
    array = upload(source, device, "to_device")
    ordered = array if source.perm is None else array.transpose(source.perm)
    twin = memory.empty(ordered.shape, array.dtype)
    memory.copy(ordered.reshape(-1), twin.reshape(-1))
    if source.perm is not None:
        twin = twin.transpose(np.argsort(source.perm))
    resident = keep(node, twin, device)
    resident.made = True
    resident.lineage = Lineages(set()).of(source)


def hand_over(node: Node, heir: Node) -> None:
    """Give the value on the device to `heir`, the node that replaces `node`."""
    resident: Resident = node.resident
    node.resident = None
    heir.resident = resident
    resident.node = weakref.ref(heir)


def drop(node: Node) -> None:
    """The device is about to write to an upload: from now on the node has only its host values."""
    if node.value is not None:
        node.resident = None
    else:
        node.resident.spoiled = True


def gather(node: Node, purpose: str) -> Array:
    """The host values of an evaluated node, copied back at most once."""
    value = node.value
    if value is not None:
        return value
    resident: Resident = node.resident
    if resident.spoiled or devices.is_lost(resident.device):
        return recover(node)
    try:
        value = resident.fetch(purpose)
    except DeviceError as error:
        if isinstance(error, DeviceLost):
            devices.lose(resident.device, str(error))
        counters.fell_back([node], str(error), resident.device.traits.name, "NumPy")
        return recover(node)
    node.value = value
    return value


def _check(node: Node, resident: Resident) -> None:
    """With `validate`: check that an upload used again equals the host values."""
    found = _memory(resident.device).gather(resident.array)
    expected = narrow_precision.kept(np.asarray(node.value), resident.device.traits)
    if found.tobytes() != expected.tobytes():
        file, line, function = source_line(node.location)
        what = "the copy on the device is out of date: a writer of host memory did not say so"
        raise EvaluationError(what, op=node.op.name, file=file, line=line, function=function)


# ------------------------------------------------------------------------------------- lineage


class _Origin:
    """In a lineage: host values that another node owns, and a seal to check them against."""

    __slots__ = ("kept", "node", "seal")

    def __init__(self, node: Node, seal: Seal, kept: Node | None) -> None:
        self.node = weakref.ref(node)
        self.seal = seal
        self.kept = kept  # the node itself, if no other code can write to its memory


class Lineages:
    """Makes the lineages of one run's results before their sources are dropped.

    `alone`: the ids of leaves that only this run holds.
    """

    def __init__(self, alone: set[int]) -> None:
        self.alone = alone
        self.room = LINEAGE_BYTES
        self.copies: dict[int, Lineage | None] = {}
        self.twins: list[Node] = []  # copied leaves, kept alive so that their ids stay unique

    def of(self, root: Node) -> Lineage | None:
        """The lineage of a node that has just run; None if it is too long or unknown."""
        stack = [root]
        while stack:
            node = stack[-1]
            if id(node) in self.copies:
                stack.pop()
                continue
            sources = node.src if node is root or is_pending(node) else ()
            waiting = [source for source in sources if id(source) not in self.copies]
            if waiting:
                stack += waiting
                continue
            stack.pop()
            self.copies[id(node)] = self._copy(node, sources)
        return self.copies[id(root)]

    def _copy(self, node: Node, sources: tuple[Node, ...]) -> Lineage | None:
        if not sources:
            return self._end(node)
        found = [self.copies[id(source)] for source in sources]
        known = [each for each in found if each is not None]
        operations = 1 + max([each.operations for each in known], default=0)
        held = sum([each.held for each in known])
        too_much = held > LINEAGE_BYTES
        if len(known) < len(found) or operations > LINEAGE_OPERATIONS or too_much:
            return None
        src = tuple([each.node for each in known])
        copy = Node(node.op, src, node.arg, node.shape, node.dtype, node.perm, node.location)
        return Lineage(copy, operations, held)

    def _end(self, node: Node) -> Lineage | None:
        """The start of a lineage: a number, an earlier result, or host values."""
        if node.op is ops.SCALAR:
            return Lineage(node, 0, 0)
        resident: Resident | None = node.resident
        if resident is not None and resident.lineage is not None:
            return resident.lineage
        value = node.value
        if value is None:
            return None
        if resident is not None:
            return self._host(node, resident.seal, value.nbytes)
        # a step on the host read it: a later write to it would go unnoticed
        own = node if id(node) in self.alone else self._device_copy(node)
        return self._host(own, Seal(), value.nbytes)

    def _device_copy(self, node: Node) -> Node:
        """A new leaf; it holds a host copy of the node's values if there is room for copies."""
        value = node.value
        assert value is not None
        twin = Node(ops.LEAF, (), None, node.shape, node.dtype, node.perm, node.location)
        if value.nbytes <= self.room:
            twin.value = value.copy(order="K")
            self.alone.add(id(twin))
            self.twins.append(twin)
        return twin

    def _host(self, node: Node, seal: Seal, size: int) -> Lineage:
        keeps = id(node) in self.alone and size <= self.room
        self.room -= size if keeps else 0
        origin = _Origin(node, seal, node if keeps else None)
        leaf = Node(ops.LEAF, (), origin, node.shape, node.dtype, node.perm, node.location)
        return Lineage(leaf, 0, size if keeps else 0)


def is_pending(node: Node) -> bool:
    """Whether a node has a value neither on the host nor on a device."""
    return node.value is None and node.resident is None


def recover(node: Node) -> Array:
    """The value of a node whose device is lost: the reference interpreter recomputes it."""
    resident: Resident = node.resident
    lineage = resident.lineage
    ends = _ends(lineage.node) if lineage is not None else None
    if lineage is None or ends is None:
        file, line, function = source_line(node.location)
        what = (
            f"the value was in the memory of {resident.device.traits.name}, which is lost, "
            "and what it was computed from is gone; look at results that must survive"
        )
        raise EvaluationError(what, op=node.op.name, file=file, line=line, function=function)
    try:
        with np.errstate(all="ignore"):
            value = interpret.interpret([lineage.node])[0]
    finally:
        for end in ends:
            end.value = None
    node.value = value if value.flags.owndata else value.copy(order="K")
    node.resident = None
    return node.value


def _ends(root: Node) -> list[Node] | None:
    """The starts of a lineage with their values; None if one was written to or no longer exists."""
    found: list[Node] = []
    seen: set[int] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        stack += node.src
        if isinstance(node.arg, _Origin):
            source = node.arg.node()
            if source is None or source.value is None or not node.arg.seal.intact:
                for each in found:
                    each.value = None
                return None
            node.value = source.value
            found.append(node)
    return found


def name_of(node: Node) -> str:
    """The operation that made a value, as text."""
    return node.arg.name if isinstance(node.arg, HostCall) else node.op.name
