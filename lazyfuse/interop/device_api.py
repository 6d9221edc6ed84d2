"""The devices of work and data, as users see and choose them.

Owns `lazyfuse.device`, `lazyfuse.resident`, `lazyfuse.synchronize`, and the meaning of `x.device`,
`x.to_device` and the keyword `device` of NumPy's functions. devices.py assigns devices to plans.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any
from weakref import ref

import numpy as np

from lazyfuse import config, listing
from lazyfuse.arrays.ndarray import alone, gather, ndarray, node_of
from lazyfuse.arrays.storage import Block
from lazyfuse.codegen.graph.node import Node, source_line
from lazyfuse.codegen.table import ops
from lazyfuse.devices.dataclass import dataclass
from lazyfuse.errors import ConfigurationError, message
from lazyfuse.interop import chunked_api
from lazyfuse.io import chunks as chunk_sizes
from lazyfuse.runtime.chunked import run
from lazyfuse.runtime.events import decisions
from lazyfuse.runtime.placement import devices, pending_launches, residency
from lazyfuse.runtime.scheduling import evaluate, flush

HOST = "cpu"

_IN_CHUNKS = "dask"
"""The device whose arrays are in chunks."""


def _may_chunk(name: str) -> None:
    """From now on, evaluations look for arrays in chunks."""
    if name == _IN_CHUNKS:
        run.open_chunks()


config.on_change("device", _may_chunk)
_may_chunk(config.options.device)


def selects_chunks() -> bool:
    """Whether large new arrays are to be made in chunks."""
    if not devices.names_another():
        return False
    selected = devices.user_selected()
    return selected is not None and selected.graphs


class device:  # noqa: N801  # a function to its users
    """Select the device for a block: `with lazyfuse.device("opencl:1"): ...`.

    Work recorded within the block has run on that device when the block ends, even small work. The
    block concerns only its thread and task. If the device is unusable, the report says so, and the
    CPU replaces it. `chunks`: on the device `dask`, the bytes of a chunk of what is made there, as
    a number or text such as `"128MB"`.
    """

    def __init__(self, name: object, chunks: object = None) -> None:
        if not isinstance(name, str):
            what = message(
                "device", "name", 'text such as "opencl"', name, "see lazyfuse.devices()"
            )
            raise ConfigurationError(what)
        if chunks is not None and not isinstance(chunks, (int, str)):
            what = message("device", "chunks", 'bytes such as "128MB"', chunks)
            raise ConfigurationError(what)
        self.name = name
        self.chunk = 0 if chunks is None else chunk_sizes.parse_bytes(chunks)
        self._blocks: list[tuple[AbstractContextManager[Any], list[ref[Node]]]] = []

    def __enter__(self) -> str:
        _may_chunk(self.name)
        block = devices.within(self.name, self.chunk)
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


@dataclass(frozen=True)
class Residence:
    """An array in the memory of a device."""

    device: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    nbytes: int
    operation: str  # that made it; "leaf" if it was copied there
    file: str
    line: int
    uses: int  # operations that read it, run or pending
    on_host: bool  # whether the host has the values too
    chunks: str = ""  # of an array in chunks: how many, of which shape, and where they are

    def __str__(self) -> str:
        where = f" at {self.file}:{self.line}" if self.line else ""
        host = ", also on the host" if self.on_host else ""
        return (
            f"{self.device}: {self.dtype}{list(self.shape)}, {self.nbytes} bytes, "
            f"{self.operation}{where}, {self.uses} uses{host}"
            f"{', ' * bool(self.chunks)}{self.chunks}"
        )


def resident() -> list[Residence]:
    """The arrays in the devices' own memories, largest first; a notebook shows a table."""
    recorded = flush.uses()
    found = [_residence(each, recorded) for each in residency.residents()]
    return listing.Listing(sorted(found, key=lambda each: -each.nbytes))


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
        found.described(),
    )


def synchronize() -> None:
    """Wait for the pending work of every device, and warn of its floating-point exceptions."""
    evaluate.wait_and_warn(pending_launches.devices())


def place_of(x: ndarray) -> str:
    """The device that holds an array's data: the host, unless a device made or was given them."""
    node = _node(x)
    if node is None or node.resident is None or not node.resident.made:
        return HOST
    name: str = node.resident.device.traits.name
    return name


def names() -> list[str]:
    """The devices that can hold arrays: the host, and those with their own memory."""
    return [HOST, *devices.with_memory()]


def is_elsewhere(name: Any) -> bool:
    """Whether `device=name` names a device other than the host; NumPy refuses unknown ones."""
    return name is not None and name != HOST and devices.is_known(name)


def placed(function: Callable[..., Any], name: Any, *args: Any, **kwargs: Any) -> Any:
    """The result that a function makes on the host, moved to a device."""
    return moved(function(*args, **kwargs), name, None)


def _node(x: ndarray) -> Node | None:
    storage = x._storage
    return storage.node if storage is not None else x._node


def moved(x: Any, name: Any, stream: Any) -> Any:
    """An array with the values of `x` in the memory of a device (array API)."""
    if stream is not None or name == HOST or not devices.is_known(name):
        np.empty(0).to_device(name, stream=stream)  # raises NumPy's errors
        if place_of(x) != HOST or devices.current().asynchronous:
            gather(x)
            _let_go(x)
        return x
    target = _device(name)
    if place_of(x) == target.traits.name:
        return x
    if target.graphs:
        with evaluate.quiet:
            return alone(chunked_api.move_to_chunks(node_of(x)))
    if target.memory is None or not node_of(x).shape:
        gather(x)  # the device shares the host's memory
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
    """A new node whose values are in the device's memory alone."""
    source = node_of(x)
    evaluate.compute([source], decisions.TO_DEVICE)
    node = Node(ops.LEAF, (), None, source.shape, source.dtype, source.perm, None)
    node.arg = Block(node)
    residency.move(source, node, target)
    return node


def _let_go(x: ndarray) -> None:
    """Drop the device's copy: the host's values are the array's from now on."""
    node = _node(x)
    if node is not None:
        residency.drop(node)
