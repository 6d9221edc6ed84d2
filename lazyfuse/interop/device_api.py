"""Where work runs and data lies, as users see and choose it.

Owns `lazyfuse.device`, `lazyfuse.resident`, `lazyfuse.synchronize`, and what `x.device`,
`x.to_device` and the keyword `device` of NumPy's functions mean. Which device a plan gets is
devices.py's.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from weakref import ref

import numpy as np

from lazyfuse.arrays.ndarray import alone, gather, ndarray, node_of
from lazyfuse.arrays.storage import Block
from lazyfuse.codegen.graph.node import Node, source_line
from lazyfuse.codegen.table import ops
from lazyfuse.errors import ConfigurationError, message
from lazyfuse.runtime.events import decisions
from lazyfuse.runtime.placement import devices, pending_launches, residency
from lazyfuse.runtime.scheduling import evaluate

HOST = "cpu"


class device:  # noqa: N801  # a function to its users
    """Name the device for a block: `with lazyfuse.device("opencl:1"): ...`.

    What is recorded within the block has run there when the block ends, also where it is small.
    Only this thread and task are concerned. A device that cannot be had is told in the report, and
    the CPU takes its place.
    """

    def __init__(self, name: object) -> None:
        if not isinstance(name, str):
            what = message(
                "device", "name", 'text such as "opencl"', name, "see lazyfuse.devices()"
            )
            raise ConfigurationError(what)
        self.name = name
        self._blocks: list[tuple[AbstractContextManager[Any], list[ref[Node]]]] = []

    def __enter__(self) -> str:
        block = devices.within(self.name)
        found = block.__enter__()
        self._blocks.append((block, evaluate.recorded()))
        return found.traits.name

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        block, before = self._blocks.pop()
        try:
            if kind is None:
                evaluate.finish(before, decisions.DEVICE_BLOCK)
        finally:
            block.__exit__(None, None, None)


@dataclass(frozen=True, slots=True)
class Residence:
    """An array that lies in the memory of a device."""

    device: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    nbytes: int
    operation: str  # that made it; "leaf" for what was copied there
    file: str
    line: int
    uses: int  # operations that read it, run or recorded
    on_host: bool  # whether the host has the values, too

    def __str__(self) -> str:
        where = f" at {self.file}:{self.line}" if self.line else ""
        host = ", also on the host" if self.on_host else ""
        return (
            f"{self.device}: {self.dtype}{list(self.shape)}, {self.nbytes} bytes, "
            f"{self.operation}{where}, {self.uses} uses{host}"
        )


def resident() -> list[Residence]:
    """What lies in the memory of devices that do not share ours, largest first."""
    recorded = evaluate.uses()
    found = [_residence(each, recorded) for each in residency.residents()]
    return sorted(found, key=lambda each: -each.nbytes)


def _residence(found: residency.Resident, recorded: dict[int, int]) -> Residence:
    node: Node | None = found.node()
    assert node is not None, "a value without a node is not listed"
    file, line, _ = source_line(node.location)
    return Residence(
        found.device.traits.name,
        node.shape,
        node.dtype,
        found.array.nbytes,
        residency.name_of(node),
        file,
        line,
        found.uses + recorded.get(id(node), 0),
        node.value is not None,
    )


def synchronize() -> None:
    """Wait until every device has done what it was given, and warn of what arose meanwhile."""
    evaluate.wait_and_warn(pending_launches.devices())


def place_of(x: ndarray) -> str:
    """Where the data of an array lie: the host, unless they were made on or moved to a device."""
    node = _node(x)
    if node is None or node.resident is None or not node.resident.made:
        return HOST
    name: str = node.resident.device.traits.name
    return name


def names() -> list[str]:
    """Where arrays can lie: the host, and the devices that have a memory of their own."""
    return [HOST, *devices.with_memory()]


def is_elsewhere(name: Any) -> bool:
    """Whether `device=name` asks for a device other than the host; NumPy refuses the others."""
    return name is not None and name != HOST and devices.is_known(name)


def placed(function: Callable[..., Any], name: Any, *args: Any, **kwargs: Any) -> Any:
    """What a function makes on the host, moved to a device."""
    return moved(function(*args, **kwargs), name, None)


def _node(x: ndarray) -> Node | None:
    storage = x._storage
    return storage.node if storage is not None else x._node


def moved(x: Any, name: Any, stream: Any) -> Any:
    """An array with the values of `x` whose data lie on a device now (array API)."""
    if stream is not None or name == HOST or not devices.is_known(name):
        np.empty(0).to_device(name, stream=stream)  # refuses what NumPy refuses
        if place_of(x) != HOST or devices.current().asynchronous:
            gather(x)
            _let_go(x)
        return x
    target = _device(name)
    if place_of(x) == target.traits.name:
        return x
    if target.memory is None or not node_of(x).shape:
        gather(x)  # memory is shared: there is no other place
        return x
    with evaluate.quiet:
        return alone(_copy(x, target))


def _device(name: str) -> Any:
    found = devices.named(name)
    if found is devices.cpu():
        what = message("to_device", "not usable", "a device", name, "lazyfuse.report() says why")
        raise ConfigurationError(what)
    return found


def _copy(x: ndarray, target: Any) -> Node:
    """A node of its own whose values lie on the device alone."""
    source = node_of(x)
    evaluate.compute([source], decisions.TO_DEVICE)
    node = Node(ops.LEAF, (), None, source.shape, source.dtype, source.perm, None)
    node.arg = Block(node)
    residency.move(source, node, target)
    return node


def _let_go(x: ndarray) -> None:
    """The host's values are the array's from now on."""
    node = _node(x)
    if node is not None:
        residency.drop(node)
