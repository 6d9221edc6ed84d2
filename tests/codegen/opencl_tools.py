"""A small launcher for text of language "opencl": no pool, no cache, host memory used in place.

The device is the first of CPU type; on a machine that has none, the first of all, a GPU mostly.

It builds with the options of the product's device, so that kernels are optimised there where they
are optimised here (conftest.py). A build takes 0.1 s before it sees the text and 0.03 s for each
kernel in it: `prepare` builds many texts at once.
"""

from __future__ import annotations

import ctypes
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from lazyfuse.devices.base import WORDS, Launch, Source
from lazyfuse.devices.opencl import device

# Vectors of 8 doubles crash PoCL 3.0 on some machines, so 64 bytes are not tried here.
WIDTHS = (8, 16, 32)

_MACRO = re.compile(r"^ *#define (\w+)", re.MULTILINE)
_GLOBAL = re.compile(
    r"^(?:static|typedef)\b[^;({]*?(\w+)(?:\(| __attribute__|;)|^__kernel.*?\b(\w+)\(__global",
    re.MULTILINE | re.DOTALL,
)


@lru_cache(maxsize=1)
def _context() -> tuple[Any, Any, Any]:
    cl = pytest.importorskip("pyopencl", reason="pyopencl is not installed")
    try:
        devices = [d for p in cl.get_platforms() for d in p.get_devices()]
    except cl.Error as error:
        pytest.skip(f"no OpenCL platform: {error}")
    if not devices:
        pytest.skip("no OpenCL device")
    cpus = [each for each in devices if each.type & cl.device_type.CPU]
    context = cl.Context((cpus or devices)[:1])
    return cl, context, cl.CommandQueue(context)


class OpenCLProgram:
    """A built text; `launch` runs every chunk and returns the conditions raised."""

    def __init__(self, source: Source, kernel: Any) -> None:
        self.source = source
        self.kernel = kernel

    def launch(self, launch: Launch, groups: int = 2) -> int:
        """Run every chunk, or so many work-groups; the conditions of all operations together."""
        return self.told(launch, groups) & 15

    def told(self, launch: Launch, groups: int = 2) -> int:
        """As `launch`; the bits of the last argument, which say whose the conditions are."""
        cl, context, queue = _context()
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
        strides = np.array(launch.strides, dtype=np.int64).ravel()
        rows = np.concatenate([launch.sizes, launch.offsets], axis=1).ravel()
        table, raised = np.concatenate([strides, rows]), np.zeros(WORDS, np.int32)
        arguments: list[Any] = [table, np.int64(len(launch.sizes))]
        for array in launch.arrays:
            block, offset = _block(array)
            arguments += [block, np.int64(offset)]
        arguments += [
            _scalar(x, code) for x, code in zip(launch.scalars, self.source.scalars, strict=True)
        ]
        arguments.append(raised)
        buffers = [
            cl.Buffer(context, flags, hostbuf=each) if isinstance(each, np.ndarray) else each
            for each in arguments
        ]
        self.kernel.set_args(*buffers)
        group = self.source.group
        items = groups * group if group else len(launch.sizes)
        cl.enqueue_nd_range_kernel(queue, self.kernel, (items,), (group or 1,))
        for host, buffer in zip(arguments, buffers, strict=True):
            if isinstance(host, np.ndarray):
                read = cl.map_flags.READ
                mapped, _ = cl.enqueue_map_buffer(queue, buffer, read, 0, host.shape, host.dtype)
                mapped.base.release(queue)
        queue.finish()
        return int.from_bytes(raised.tobytes(), "little")


MOST = 4096  # programs that are kept
BATCH = 24  # kernels of one build, in campaigns

_programs: dict[tuple[Source, int], OpenCLProgram] = {}


def compiled(source: Source, width: int = 32) -> OpenCLProgram:
    """A program, built once."""
    prepare([source], width)
    return _programs[source, width]


def prepare(sources: Iterable[Source], width: int = 32) -> None:
    """Build those that are not built yet, as one program."""
    missing = [each for each in dict.fromkeys(sources) if (each, width) not in _programs]
    if not missing:
        return
    if len(_programs) > MOST:
        _programs.clear()
    cl, context, _ = _context()
    options = [*device.BUILD_OPTIONS, "-cl-fp32-correctly-rounded-divide-sqrt"]
    options.append(f"-DLF_BYTES={width}")
    text = "\n".join(alone(each.text, number) for number, each in enumerate(missing))
    with strict_compiler(context.devices[0]):
        program = cl.Program(context, text).build(options, cache_dir=False)
    for number, each in enumerate(missing):
        kernel = cl.Kernel(program, f"{each.name}_{number}")
        _programs[each, width] = OpenCLProgram(each, kernel)


@contextmanager
def strict_compiler(device: Any) -> Iterator[None]:
    """What the compiler says of a text is an error; GPUs' talk of all that they have built."""
    cl = pytest.importorskip("pyopencl")
    is_cpu = device.type & cl.device_type.CPU
    with warnings.catch_warnings():
        warnings.simplefilter("error" if is_cpu else "ignore", cl.CompilerWarning)
        yield


def batches(seeds: Sequence[int]) -> Iterator[Sequence[int]]:
    """Shares of many seeds, such that `prepare` can build the kernels of one at once."""
    for start in range(0, len(seeds), BATCH):
        yield seeds[start : start + BATCH]


def alone(text: str, number: int) -> str:
    """A text that may stand beside others and sees nothing of theirs: its names end in a number."""
    names = dict.fromkeys(name for found in _GLOBAL.findall(text) for name in found if name)
    macros = dict.fromkeys([*_MACRO.findall(text), *names])
    macros.pop("LF_BYTES", None)
    lines = [f"#define {name} {name}_{number}" for name in names]
    return "\n".join([*lines, text, *(f"#undef {name}" for name in macros), ""])


def _block(array: Any) -> tuple[Any, int]:
    """The bytes of memory that hold an array, and where its first element is in them."""
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    low, high = np.lib.array_utils.byte_bounds(base)
    length = max(high - low, 1)
    block = np.ctypeslib.as_array((ctypes.c_ubyte * length).from_address(low))
    return block, array.__array_interface__["data"][0] - low


def _scalar(value: Any, code: str) -> Any:
    return np.uint8(value) if code == "b1" else np.dtype(code).type(value)
