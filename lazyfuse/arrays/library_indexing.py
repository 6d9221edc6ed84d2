"""Calls that NumPy does at once on the host, and a device by its libraries for arrays on it.

Owns `computed`, which gets such a result, and `x[mask]`; library_calls.py maps calls to the
library's. Where the device cannot do a call, NumPy does it: its operands are copied back from the
device, and the copies are counted.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from lazyfuse import config
from lazyfuse.arrays.conversion import to_numpy
from lazyfuse.arrays.ndarray import alone, caller, concrete_value, ndarray, node_of, wrap
from lazyfuse.arrays.operators import dtype_of, shape_of
from lazyfuse.arrays.storage import CANONICAL
from lazyfuse.codegen.graph.node import HostCall, Node
from lazyfuse.codegen.table import ops
from lazyfuse.devices.base import Device
from lazyfuse.runtime.chunked import dask_arrays, run
from lazyfuse.runtime.chunked import select as chunk_select
from lazyfuse.runtime.events import counters, decisions
from lazyfuse.runtime.placement import devices, library_calls, residency
from lazyfuse.runtime.scheduling import evaluate


def device_for(*operands: Any) -> Any:
    """The device whose libraries should work on these arrays; None: NumPy on the host."""
    if config.options.opencl_library == "off" or any(type(x) is not ndarray for x in operands):
        return None
    device = devices.user_selected()
    if device is None:
        homes = {_home(x) for x in operands}
        device = homes.pop() if len(homes) == 1 else None
    if device is None or not library_calls.is_wanted(device):
        return None
    return device if all(concrete_value(x) is None for x in operands) else None


def _home(x: ndarray) -> Any:
    """The device that has the only values of an array, or None."""
    storage = x._storage
    node = storage.node if storage is not None else x._node
    resident = node.resident if node is not None and node.value is None else None
    return resident.device if resident is not None else None


def computed(device: Device, call: HostCall, *nodes: Node) -> Any:
    """The result of a call by a device's library; None, with the reason reported, if it cannot.

    `call` is the host's version, which computes the value again if the device is lost.
    """
    shared = device.memory is None
    with evaluate.held():
        node = Node(ops.HOST, nodes, call, (), nodes[0].dtype, None, caller())
        work = library_calls.work_of(node)
        if work is None:
            return None
        evaluate.compute(nodes, decisions.LIBRARY)
        operands = (
            residency.gather(each, "operand")
            if shared
            else residency.upload(each, device, "operand")
            for each in nodes
        )
        array = library_calls.perform(
            node, device, work, operands, lambda error: devices.lose(device, str(error))
        )
        if array is None:
            return None
        node.shape, node.dtype = array.shape, CANONICAL[array.dtype]
        counters.ran_single(node, device.traits.name)
        if shared:
            return wrap(array)
        lineage = residency.Lineages(set()).of(node)
        resident = residency.keep(node, array, device)  # the node's value is on the device
        resident.lineage, resident.made = lineage, True
        node.src = ()
    return alone(node)


def select(x: ndarray, key: Any) -> Any:
    """`x[key]` for a mask of the shape of `x`, by a library; None for every other key."""
    mask = key[0] if type(key) is tuple and len(key) == 1 else key
    if type(mask) is not ndarray or dtype_of(mask) != np.bool_ or shape_of(mask) != shape_of(x):
        return None
    device = device_for(x, mask) if dtype_of(x) in CANONICAL else None
    if device is None:
        return None
    return computed(device, HostCall("getitem", operator.getitem), node_of(x), node_of(mask))


def select_chunks(x: ndarray, key: Any) -> Any:
    """`x[key]` of an array in chunks for a key with arrays; None: as on the host.

    A mask of the shape of `x` is counted, chunk by chunk; other keys are Dask's, if `x` is large.
    """
    mask = key[0] if type(key) is tuple and len(key) == 1 else key
    if dtype_of(x) not in CANONICAL or not len(shape_of(x)):
        return None
    with evaluate.quiet:
        if type(mask) is ndarray and dtype_of(mask) == np.bool_ and shape_of(mask) == shape_of(x):
            found = chunk_select.select(node_of(x), node_of(mask))
        else:
            found = dask_arrays.picked(node_of(x), to_numpy(key))
        return None if found is None else alone(run.leaf_of(found))
