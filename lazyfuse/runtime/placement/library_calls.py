"""Which recorded calls of NumPy's run on a device, by the libraries that it has.

Owns the rules: a host call or a product with what it means there. Exact work gives NumPy's bits;
matrix products differ by rounding, as those of any two libraries do. Float sums in order of their
elements stay on the host (parallel ones round differently), and so does `argsort` unless it is
stable: else the order of equal elements would be another one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyfuse import config
from lazyfuse.codegen.graph.node import Node
from lazyfuse.codegen.table import ops
from lazyfuse.codegen.table.ops import TABLE
from lazyfuse.devices.base import Device, DeviceError, DeviceLost
from lazyfuse.errors import ConfigurationError, message
from lazyfuse.runtime.events import counters
from lazyfuse.runtime.placement import devices

if TYPE_CHECKING:
    from lazyfuse.runtime.execution.executor import Run

Array = np.ndarray[Any, np.dtype[Any]]
Work = Callable[[Any, list[Array]], Array]
"""A library of a device and operands in C order to a result in C order, of any shape."""

_CHOICES = ("auto", "on", "off")
_STABLE = ("stable", "mergesort")
_MATMUL = TABLE["matmul"]


def is_wanted(device: Device) -> bool:
    """Whether calls should run by the libraries of a device."""
    choice = config.options.opencl_library
    if choice == "off" or device.library is None or devices.is_lost(device):
        return False
    # on the host's own cores NumPy is as fast, and it needs no copy
    return choice == "on" or device.traits.kind == "gpu"


def work_of(node: Node) -> Work | None:
    """What a recorded operation is on a device; None if it runs in NumPy anywhere."""
    if any(source.perm is not None for source in node.src):
        return None
    if node.op is _MATMUL:
        return _product(node, {})
    if node.op is not ops.HOST:
        return None
    function: Any = node.arg.function
    keywords: dict[str, Any] = {}
    if isinstance(function, functools.partial) and not function.args:
        function, keywords = function.func, function.keywords
    rule = _RULES.get(id(function))
    return rule(node, keywords) if rule is not None else None


def run(run: Run, index: int) -> Array | None:
    """The result of a step by a library of the run's device; None if NumPy has to do it."""
    if not is_wanted(run.home) or run.device is not run.home:
        return None
    value = run.plan.graph.values[index]
    node = run.nodes[value.origin]
    work = work_of(node)
    if work is None or not all(_is_near(run, source) for source in value.src):
        return None
    if run.home.memory is None:
        run.settle()  # what is under way may fail, and be done again elsewhere
    try:
        operands = [run.operand(source) for source in value.src]
        if not all(operand.flags.c_contiguous for operand in operands):
            return None
        found = work(run.home.library, operands)
    except DeviceError as error:
        if isinstance(error, DeviceLost):
            run.abandon(error)
        counters.fell_back(None, [node], str(error), run.home.traits.name)
        return None
    counters.ran_single(node, run.home.traits.name)
    return found.reshape(run.shape(index))


def _is_near(run: Run, index: int) -> bool:
    """Whether the device has an operand; a copy there would cost what the device may save."""
    memory = run.home.memory
    if memory is None or config.options.opencl_library == "on" or memory.holds(run.array(index)):
        return True
    resident = run.nodes[run.plan.graph.values[index].origin].resident
    return resident is not None and resident.device is run.home


def _is_flat(node: Node, axis: Any) -> bool:
    return axis is None or len(node.src[0].shape) == 1


def _sort(node: Node, keywords: dict[str, Any]) -> Work | None:
    if not _is_flat(node, keywords["axis"]) or node.dtype.kind not in "biuf":
        return None
    return lambda library, operands: library.sort(operands[0])


def _argsort(node: Node, keywords: dict[str, Any]) -> Work | None:
    stable = keywords.get("stable") or keywords.get("kind") in _STABLE
    if not stable or not _is_flat(node, keywords["axis"]) or node.src[0].dtype.kind not in "biuf":
        return None
    return lambda library, operands: library.argsort(operands[0])


def _accumulate(name: str) -> Callable[[Node, dict[str, Any]], Work | None]:
    def rule(node: Node, keywords: dict[str, Any]) -> Work | None:
        exact = node.src[0].dtype.kind in "biu" and node.dtype.kind in "iu"
        if not exact or not _is_flat(node, keywords["axis"]):
            return None
        return lambda library, operands: library.accumulate(name, operands[0], node.dtype)

    return rule


def _product(node: Node, keywords: dict[str, Any]) -> Work | None:
    first, second = node.src
    same = first.dtype == second.dtype == node.dtype and node.dtype.char in "fdFD"
    if not same or not len(first.shape) == len(second.shape) == 2 or 0 in first.shape:
        return None
    return lambda library, operands: library.product(*operands)


_RULES: dict[int, Callable[[Node, dict[str, Any]], Work | None]] = {
    id(np.sort): _sort,
    id(np.argsort): _argsort,
    id(np.cumsum): _accumulate("add"),
    id(np.cumprod): _accumulate("multiply"),
    id(np.dot): _product,
}
"""By identity: not every function that is recorded can be hashed."""


def _check(choice: str) -> None:
    if choice not in _CHOICES:
        expected = " or ".join(_CHOICES)
        what = message("options", "opencl_library", expected, choice, "see lazyfuse.options()")
        raise ConfigurationError(what)


config.on_change("opencl_library", _check)
