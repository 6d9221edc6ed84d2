"""Which NumPy calls run on a device, through the device's libraries.

Owns the table from a host call or product to the device's library call. Exact work gives NumPy's
bits; matrix products and transforms differ by rounding, as between any two libraries. Float sums in
order of their elements stay on the host, because parallel sums round differently. So does an
unstable `argsort`, because equal elements would come in a different order.

Three entry points: `run` for a step of a recorded graph; `perform` for a call whose result size
depends on its values (arrays/library_indexing.py); `work_of` for a caller that only needs to know.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyfuse import config
from lazyfuse.codegen.graph.node import Node
from lazyfuse.codegen.table import ops
from lazyfuse.codegen.table.ops import TABLE
from lazyfuse.devices.base import Device, DeviceError, DeviceLost
from lazyfuse.runtime.events import counters
from lazyfuse.runtime.placement import devices

if TYPE_CHECKING:
    from lazyfuse.runtime.execution.executor import Run

Array = np.ndarray[Any, np.dtype[Any]]
Work = Callable[[Any, list[Array]], Array]
"""Takes a device's library and operands in C order; returns a result in C order, of any shape."""

Named = dict[str, Any]

_STABLE = ("stable", "mergesort")
_MATMUL = TABLE["matmul"]


def is_wanted(device: Device) -> bool:
    """Whether calls should run through a device's libraries."""
    choice = config.options.opencl_library
    if choice == "off" or device.library is None or devices.is_lost(device):
        return False
    # on the host's own cores NumPy is as fast and needs no copy
    return choice == "on" or device.traits.kind == "gpu"


def work_of(node: Node) -> Work | None:
    """The library call for an operation; None if every device leaves it to NumPy."""
    if any(source.perm is not None for source in node.src):
        return None
    function: Any = node.arg.function if node.op is ops.HOST else None
    named: Named = {}
    if isinstance(function, functools.partial) and not function.args:
        function, named = function.func, function.keywords
    is_allowed, routine = _CALLS.get(id(np.dot if node.op is _MATMUL else function), _NONE)
    if not is_allowed(node, named):
        return None
    return lambda library, operands: routine(library, node, *operands)


def run(run: Run, index: int) -> Array | None:
    """The result of a step by a library of the run's device; None if NumPy must compute it."""
    if not is_wanted(run.assigned_device) or run.device is not run.assigned_device:
        return None
    value = run.plan.graph.values[index]
    node = run.nodes[value.origin]
    work = work_of(node)
    if work is None or not all(_is_near(run, source) for source in value.src):
        return None
    if run.assigned_device.memory is None:
        run.wait()  # pending launches may fail and be repeated on another device
    found = perform(
        node, run.assigned_device, work, (run.loaded(source) for source in value.src), run.abandon
    )
    if found is None:
        return None
    counters.ran_single(node, run.assigned_device.traits.name)
    return found.reshape(run.shape(index))


def perform(
    node: Node,
    device: Device,
    work: Work,
    operands: Iterator[Array],
    lose: Callable[[DeviceLost], Any],
) -> Array | None:
    """The result of an operation by a device's library; None, with the reason reported, on failure.

    Calls `lose` if the device is lost.
    """
    try:
        arrays = list(operands)
        if not all(array.flags.c_contiguous for array in arrays):
            return None
        return work(device.library, arrays)
    except DeviceError as error:
        if isinstance(error, DeviceLost):
            lose(error)
        counters.fell_back([node], str(error), device.traits.name)
        return None


def _is_near(run: Run, index: int) -> bool:
    """Whether the device holds an operand; copying one there could cost what the device saves."""
    memory = run.assigned_device.memory
    if memory is None or config.options.opencl_library == "on" or memory.holds(run.array(index)):
        return True
    resident = run.nodes[run.plan.graph.values[index].origin].resident
    return resident is not None and resident.device is run.assigned_device


def _is_flat(node: Node, named: Named) -> bool:
    return named["axis"] is None or len(node.src[0].shape) == 1


def _is_sortable(node: Node, named: Named) -> bool:
    return _is_flat(node, named) and node.src[0].dtype.kind in "biuf"


def _is_stable(node: Node, named: Named) -> bool:
    return _is_sortable(node, named) and bool(named.get("stable") or named.get("kind") in _STABLE)


def _is_exact(node: Node, named: Named) -> bool:
    kinds = node.src[0].dtype.kind in "biu" and node.dtype.kind in "iu"
    return kinds and _is_flat(node, named)


def _is_product(node: Node, named: Named) -> bool:
    first, second = node.src
    same = first.dtype == second.dtype == node.dtype and node.dtype.char in "fdFD"
    return same and len(first.shape) == len(second.shape) == 2 and 0 not in first.shape


def _always(node: Node, named: Named) -> bool:
    return True


def _with_length(library: Any, found: Array) -> Array:
    counters.copied("gather", 4, library.name, "length of the result")
    return found


def _transform(library: Any, node: Node, x: Array) -> Array:
    theirs, named = node.arg.function.func, node.arg.function.keywords
    axes = named["axes"] if "axes" in named else (named["axis"],)
    found: Array = library.transform(x, axes, theirs in _INVERSE, named["norm"] or "backward")
    return found


_FORWARD = (np.fft.fft, np.fft.fft2, np.fft.fftn)
_INVERSE = (np.fft.ifft, np.fft.ifft2, np.fft.ifftn)

_NONE: Any = (lambda node, named: False, None)
_CALLS: dict[int, tuple[Callable[[Node, Named], bool], Callable[..., Array]]] = {
    id(np.sort): (_is_sortable, lambda lib, node, x: lib.sort(x)),
    id(np.argsort): (_is_stable, lambda lib, node, x: lib.argsort(x)),
    id(np.cumsum): (_is_exact, lambda lib, node, x: lib.accumulate("add", x, node.dtype)),
    id(np.cumprod): (_is_exact, lambda lib, node, x: lib.accumulate("multiply", x, node.dtype)),
    id(np.dot): (_is_product, lambda lib, node, x, y: lib.product(x, y)),
    id(np.flatnonzero): (_always, lambda lib, node, x: _with_length(lib, lib.positions(x))),
    id(operator.getitem): (_always, lambda lib, node, *both: _with_length(lib, lib.compact(*both))),
    **{id(theirs): (_always, _transform) for theirs in (*_FORWARD, *_INVERSE)},
}
"""By NumPy function: whether a library computes it for a node with these keywords, and how.

By identity: some recorded functions cannot be hashed.
"""
