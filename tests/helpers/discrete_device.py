"""A device with memory of its own, made of the CPU device: what touches it by mistake crashes.

Meta arrays lie at addresses where there is no memory; launches translate them to real arrays. Holds
no test. `faults` plans failures: a point's next visits raise what is listed there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from lazyfuse import config
from lazyfuse.devices import registry
from lazyfuse.devices.base import Asynchronous, DeviceError, Launch, Program, Source, Traits
from lazyfuse.runtime.events import counters
from lazyfuse.runtime.placement import devices, pending_launches

NAME = "faraway"
_START = 1 << 61
_PAGE = 4096
_FILL = 0xAB


class _Block:
    def __init__(self, memory: Memory, size: int, interface: dict[str, Any], start: int) -> None:
        self.memory = memory
        self.guarded = np.full(size + 2 * _PAGE, _FILL, np.uint8)
        self.bytes = self.guarded[_PAGE : _PAGE + size]
        self.address = memory.next_address
        memory.next_address += (size // _PAGE + 2) * _PAGE
        interface["data"] = (self.address + start, False)
        self.__array_interface__ = {"version": 3, **interface}

    def check(self) -> None:
        """Nothing was written beside the block."""
        for side in (self.guarded[:_PAGE], self.guarded[-_PAGE:]):
            assert (side == _FILL).all(), "a launch wrote beside its arrays"


class Memory:
    """As `base.DeviceMemory`, with counters."""

    def __init__(self, device: FarAway) -> None:
        self.device = device
        self.next_address = _START
        self.uploads = self.gathers = 0

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        self.device.strike("allocate")
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return np.asarray(_Block(self, size, {"shape": shape, "typestr": dtype.str}, 0))

    def block(self, array: Any) -> Any:
        while isinstance(array, np.ndarray):
            array = array.base
        return array

    def holds(self, array: Any) -> bool:
        block = self.block(array)
        return isinstance(block, _Block) and block.memory is self

    def real(self, array: Any) -> Any:
        """The memory behind a meta array."""
        block = self.block(array)
        assert isinstance(block, _Block), "a host array went to the device without an upload"
        if not array.size:
            return np.empty(array.shape, array.dtype)
        offset = array.__array_interface__["data"][0] - block.address
        return np.ndarray(array.shape, array.dtype, block.bytes, offset, array.strides)

    def upload(self, array: Any) -> Any:
        self.device.strike("upload")
        self.uploads += 1
        assert _is_packed(array)
        interface = {"shape": array.shape, "typestr": array.dtype.str, "strides": array.strides}
        made = np.asarray(_Block(self, array.nbytes, interface, 0))
        self.real(made)[...] = array
        return made

    def gather(self, array: Any) -> Any:
        self.device.strike("gather")
        self.gathers += 1
        assert _is_packed(array)
        return self.real(array).copy(order="K")

    def copy(self, source: Any, target: Any) -> None:
        assert _is_packed(source)
        assert source.strides == target.strides
        self.real(target)[...] = self.real(source)


def _is_packed(array: Any) -> bool:
    order = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
    return bool(array.transpose(order).flags.c_contiguous)


class _Later:
    def __init__(self, device: FarAway, bits: int) -> None:
        self.device = device
        self.bits = bits

    def flags(self) -> int:
        self.device.strike("finish")
        return self.bits


class _Program(Program):
    def __init__(self, device: FarAway, program: Program) -> None:
        self.device = device
        self.program = program
        self.source = program.source

    def launch(self, launch: Launch) -> _Later:
        device = self.device
        device.strike("launch")
        device.launches += 1
        arrays = launch.arrays
        if device.memory is not None:
            memory = device.memory
            # positions of elements, which lowering adds, come from the host
            arrays = tuple([memory.real(a) if memory.holds(a) else a for a in arrays])
        bits = self.program.launch(replace(launch, arrays=arrays))
        assert isinstance(bits, int)
        for array in launch.arrays:
            if device.memory is not None and device.memory.holds(array):
                device.memory.block(array).check()
        return _Later(device, bits)


class FarAway(Asynchronous):
    """As `base.Asynchronous`. With `shares`, programs work on host arrays."""

    def __init__(self, shares: bool = False) -> None:
        self.traits = Traits(NAME, "gpu", 1, ("numpy",), shares_memory=shares)
        self.memory = None if shares else Memory(self)
        self.faults: dict[str, list[BaseException | None]] = {}
        self.launches = 0
        self.programs_made = 0

    def strike(self, point: str) -> None:
        planned = self.faults.get(point)
        fault = planned.pop(0) if planned else None
        if fault is not None:
            raise fault

    def compile(self, source: Source) -> _Program:
        self.strike("build")
        self.programs_made += 1
        return _Program(self, devices.cpu().compile(source))

    def cached(self, source: Source) -> bool:
        return False

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        return np.empty(shape, dtype)

    def wait(self) -> None:
        self.strike("wait")


@contextmanager
def in_use(shares: bool = False, name: str = NAME) -> Iterator[FarAway]:
    """The device as the one in use, under a name of the registry."""
    device = FarAway(shares)
    device.traits.name = name
    registry._made[name] = device
    registry.MODULES[name] = ("", "made of the CPU, by a test")
    try:
        with config.options(device=name):
            counters.reset()
            yield device
            device.faults.clear()
            pending_launches.wait(device)
    finally:
        del registry._made[name], registry.MODULES[name]


def fails(count: int, kind: Callable[[str], BaseException] = DeviceError) -> list[Any]:
    """That many failures."""
    return [kind("planned") for _ in range(count)]
