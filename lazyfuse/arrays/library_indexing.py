"""What NumPy does at once, and a device by its libraries, for arrays that are or will be there.

Owns `computed`, the way to such a result, and `x[mask]`. Where the device cannot, NumPy does it:
what lies on the device is copied back then, and counted.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from lazyfuse import config
from lazyfuse.arrays.ndarray import alone, caller, ndarray, node_of, ready, wrap
from lazyfuse.arrays.operators import dtype_of, shape_of
from lazyfuse.arrays.storage import CANONICAL
from lazyfuse.codegen.graph.node import HostCall, Node
from lazyfuse.codegen.table import ops
from lazyfuse.devices.base import Device, DeviceError, DeviceLost
from lazyfuse.runtime.events import counters, decisions
from lazyfuse.runtime.placement import devices, library_calls, residency
from lazyfuse.runtime.scheduling import evaluate

Array = np.ndarray[Any, np.dtype[Any]]
Work = Callable[[Any, list[Array]], Array]


def device_for(*operands: Any) -> Any:
    """The device whose libraries should do something with these arrays; None if it is the host."""
    if config.options.opencl_library == "off" or any(type(x) is not ndarray for x in operands):
        return None
    device = devices.pinned()
    if device is None:
        homes = {_home(x) for x in operands}
        device = homes.pop() if len(homes) == 1 else None
    if device is None or not library_calls.is_wanted(device):
        return None
    return device if all(ready(x) is None for x in operands) else None


def _home(x: ndarray) -> Any:
    """The device that alone has the values of an array."""
    storage = x._storage
    node = storage.node if storage is not None else x._node
    resident = node.resident if node is not None and node.value is None else None
    return resident.device if resident is not None else None


def computed(device: Device, call: HostCall, nodes: list[Node], work: Work) -> Any:
    """The result of a call by a device's library; None, with the reason told, if it cannot.

    `call` is what the host would do: with it the value can be computed again if the device is lost.
    """
    with evaluate.held():
        evaluate.compute(nodes, decisions.LIBRARY)
        name = device.traits.name
        node = Node(ops.HOST, tuple(nodes), call, (), nodes[0].dtype, None, caller())
        try:
            operands = [_placed(each, device) for each in nodes]
            if not all(operand.flags.c_contiguous for operand in operands):
                return None
            array = work(device.library, operands)
        except DeviceError as error:
            if isinstance(error, DeviceLost):
                devices.lose(device, str(error))
            counters.fell_back(None, [node], str(error), name)
            return None
        node.shape, node.dtype = array.shape, CANONICAL[array.dtype]
        counters.ran_single(node, name)
        if device.memory is None:
            return wrap(array)
        _stays(node, array, device)
    return alone(node)


def _placed(node: Node, device: Device) -> Array:
    """The values of an evaluated node where the library can read them."""
    if device.memory is None:
        return residency.gather(node, "operand")
    return residency.upload(node, device, "operand")


def _stays(node: Node, array: Array, device: Device) -> None:
    """Let a node have its value on the device."""
    lineage = residency.Lineages(set()).of(node)
    resident = residency.keep(node, array, device)
    resident.lineage, resident.made = lineage, True
    node.src = ()


# ---------------------------------------------------------------------------------------- masks


def select(x: ndarray, key: Any) -> Any:
    """`x[key]` for a mask of the shape of `x`, by a library; None for every other key."""
    mask = key[0] if type(key) is tuple and len(key) == 1 else key
    if type(mask) is not ndarray or dtype_of(mask) != np.bool_ or shape_of(mask) != shape_of(x):
        return None
    device = device_for(x, mask) if dtype_of(x) in CANONICAL else None
    if device is None:
        return None
    return computed(
        device, HostCall("getitem", operator.getitem), [node_of(x), node_of(mask)], _compact
    )


def _compact(library: Any, operands: list[Array]) -> Array:
    found: Array = library.compact(*operands)
    counters.copied("gather", 4, library.name, "length of the result")
    return found
