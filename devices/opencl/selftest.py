"""The test of a device before its first use: right values, shared memory, widths of vectors.

Owns the examination when a device is first opened, and its outcome on disk.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from lazyfuse.devices.dataclass import dataclass

from .. import late_imports
from ..base import Array
from ..pools.disk_cache import DiskCache
from . import probe
from .failures import SELF_TEST, faults
from .queue import Queue

DEFAULT_WIDTH = 32  # bytes of a vector where no trial was possible
NARROW = 16  # a width that every runtime handles
DIES = "programs end the process, or compute wrong values, when tried in a child process"
_COUNT = 1000
_TEXT = """
#if DOUBLE
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef double real;
#else
typedef float real;
#endif
__kernel void test(__global const float *f, __global const real *d, __global const long *i,
                   __global float *fs, __global real *ds, __global long *is) {
    size_t k = get_global_id(0);
    fs[k] = f[k] / 3.0f - f[k];
    is[k] = i[k] * 5 + (i[k] >> 33);
    if (k % 2 == 0)
        vstore2(vload2(0, d + k) * (real)0.5 + (real)1, 0, ds + k);
}
__kernel void add_one(__global char *block, const long start, const long count) {
    __global long *x = (__global long *)(block + start);
    for (long k = 0; k < count; k++)
        x[k] += 1;
}
"""


@dataclass(frozen=True)
class Verdict:
    """The outcome. `reason`: why the device is refused; "" if it is usable."""

    reason: str
    shares: bool


def verdict(queue: Queue, disk: DiskCache, name: str, fp64: bool, share: bool) -> Verdict:
    """The verdict on a device, from disk if it is there. Failures are not kept: they may pass."""
    kept = json.loads(disk.get(name) or b"{}")
    if "shares" in kept:
        return Verdict("", kept["shares"] is True)
    found = examine(queue, fp64, share)
    if not found.reason:
        disk.put(name, json.dumps({"shares": found.shares}).encode())
    return found


def examine(queue: Queue, fp64: bool, share: bool) -> Verdict:
    """Run the self-test. Memory is shared if `share` is set and the test confirms it."""
    cl = late_imports.module("pyopencl")
    try:
        program = cl.Program(queue.context, _TEXT)
        queue.build(program, [f"-DDOUBLE={int(fp64)}", "-w"])
        problem = _wrong_values(queue, program, fp64)
        shares = share and not problem and _shares(queue, program)
    except queue.errors as error:
        return Verdict(f"failed the self-test: {queue.failure(error, SELF_TEST)}", False)
    return Verdict(f"failed the self-test: {problem}" if problem else "", shares)


def width(queue: Queue, disk: DiskCache, name: str, index: int, kind: str) -> int:
    """Bytes of the vectors that programs use: tried once, if the outcome can be kept on disk.

    0: every trial crashed or gave wrong values, so this process must not build programs.
    """
    if kind != "cpu":
        return NARROW  # a GPU's work-items are scalar: longer vectors only cost registers
    kept = json.loads(disk.get(name) or b"{}")
    if kept.get("width") in probe.WIDTHS:
        return int(kept["width"])
    device = queue.device
    if not device.native_vector_width_double or not disk.can_store():
        return DEFAULT_WIDTH if device.native_vector_width_char >= DEFAULT_WIDTH else NARROW
    found = probe.best_width(index)
    if found:
        disk.put(name, json.dumps({"width": found}).encode())
    return found


def _wrong_values(queue: Queue, program: Any, fp64: bool) -> str:
    """Which values are wrong; "" if none."""
    cl = late_imports.module("pyopencl")
    real: Any = np.float64 if fp64 else np.float32
    f = np.linspace(-7.0, 9.0, _COUNT).astype(np.float32)
    d: Array = np.linspace(-1e3, 1e3, _COUNT).astype(real)
    i = np.arange(_COUNT, dtype=np.int64) * 12345678901
    expected = (f / np.float32(3) - f, d * real(0.5) + real(1), i * 5 + (i >> 33))
    found = tuple(np.zeros_like(each) for each in expected)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    buffers = [cl.Buffer(queue.context, flags, hostbuf=x) for x in (f, d, i, *found)]
    kernel = cl.Kernel(program, "test")
    _set(kernel, *buffers)
    cl.enqueue_nd_range_kernel(queue.commands, kernel, (_COUNT,), None)
    for host, buffer in zip(found, buffers[3:], strict=True):
        cl.enqueue_copy(queue.commands, host, buffer)
    if faults.spoils(SELF_TEST):
        found[0][0] += 1
    names = ("float32", "float64" if fp64 else "float32 vectors", "int64")
    # division of float32 need not be correctly rounded in OpenCL
    good = [np.allclose(found[0], expected[0], rtol=1e-5, atol=1e-6)]
    good += [np.array_equal(found[k], expected[k]) for k in (1, 2)]
    wrong = [name for name, fine in zip(names, good, strict=True) if not fine]
    return "wrong values of " + ", ".join(wrong) if wrong else ""


def _shares(queue: Queue, program: Any) -> bool:
    """Whether the program and the host see each other's writes to an array without a call.

    The array is unaligned: a driver that copies such arrays fails this test, and the device is
    used with its own memory.
    """
    cl = late_imports.module("pyopencl")
    block = np.zeros(_COUNT + 1, np.int64)[1:]
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
    buffer = cl.Buffer(queue.context, flags, hostbuf=block)
    kernel = cl.Kernel(program, "add_one")
    _set(kernel, buffer, np.int64(0), np.int64(_COUNT))
    for turn in range(3):
        block += 10
        cl.enqueue_nd_range_kernel(queue.commands, kernel, (1,), (1,))
        queue.commands.finish()
        if not (block == 11 * (turn + 1)).all():
            return False
    return True


def _set(kernel: Any, *arguments: Any) -> None:
    """Set the arguments one by one: `set_args` writes to pyopencl's cache on disk."""
    for position, argument in enumerate(arguments):
        kernel.set_arg(position, argument)
