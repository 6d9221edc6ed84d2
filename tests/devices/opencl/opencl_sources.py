"""Handwritten OpenCL programs and devices for the tests of OpenCL devices."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from lazyfuse.devices.base import Array, DeviceError, Later, Source
from lazyfuse.devices.opencl import platforms
from lazyfuse.devices.opencl.device import OpenCL
from lazyfuse.devices.pools.disk_cache import DiskCache
from tests import opencl_builds  # noqa: F401  # child processes build as this suite does
from tests.devices.sources import launch_of

C_TYPES = {
    "f8": "double", "f4": "float", "i1": "char", "i2": "short", "i4": "int", "i8": "long",
    "u1": "uchar", "u2": "ushort", "u4": "uint", "u8": "ulong", "b1": "uchar",
    "c16": "double2", "c8": "float2",
}  # fmt: skip


def opencl_source(
    body: str,
    arrays: tuple[str, ...],
    scalars: tuple[str, ...] = (),
    name: str = "k",
    language: str = "opencl",
) -> Source:
    """One loop per chunk over `a0[i]`, `a1[i]`, ...; `x0`, ... are the scalars."""
    arguments = ["__global const long *table, const long chunks"]
    arguments += [f"__global char *b{k}, const long o{k}" for k in range(len(arrays))]
    arguments += [f"const {C_TYPES[code]} x{k}" for k, code in enumerate(scalars)]
    arguments += ["__global int *raised"]
    width = 1 + len(arrays)
    lines = ["#pragma OPENCL FP_CONTRACT OFF", f"__kernel void {name}({', '.join(arguments)}) {{"]
    if language == "opencl":
        lines += ["long c = get_global_id(0);", "if (c >= chunks) return;", "{"]
    else:
        lines += ["if (get_local_id(0)) return;"]
        lines += ["for (long c = get_group_id(0); c < chunks; c += get_num_groups(0)) {"]
    lines += [f"__global const long *row = table + {len(arrays)} + c * {width};"]
    for k, code in enumerate(arrays):
        kind = C_TYPES[code]
        lines += [f"__global {kind} *p{k} = (__global {kind} *)(b{k} + o{k}) + row[{1 + k}];"]
        lines += [f"#define a{k} p{k}[i * table[{k}]]"]
    lines += ["for (long i = 0; i < row[0]; i++) {", body, "}", "}", "}"]
    group = 0 if language == "opencl" else 4
    return Source(language, name, "\n".join(lines) + "\n", 1, arrays, scalars, group=group)


def first_device() -> platforms.Found:
    """The first device of CPU type, else the first of all; skips the test where there is none."""
    try:
        found = platforms.find()
    except DeviceError as error:
        pytest.skip(str(error))
    return next((each for each in found if platforms.traits(each).kind == "cpu"), found[0])


def kind_of(found: platforms.Found) -> str:
    """What pyopencl says that a device is."""
    types = pytest.importorskip("pyopencl").device_type
    return "cpu" if found.device.type & types.CPU else "gpu"


def new_device(share: bool = True, disk: DiskCache | None = None, **settings: str) -> OpenCL:
    """A device of its own context, with environment variables set while it is opened."""
    found = first_device()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAZYFUSE_OPENCL_SHARE", str(int(share)))
        for name, value in settings.items():
            patch.setenv(f"LAZYFUSE_OPENCL_{name}", value)
        return OpenCL(found, disk=disk)


def to_device(device: OpenCL, array: Array) -> Array:
    """An array that programs of the device can work on."""
    return array if device.memory is None else device.memory.upload(array)


def to_host(device: OpenCL, array: Array) -> Array:
    """Its values, once everything under way has finished."""
    device.wait()
    return array if device.memory is None else device.memory.gather(array)


def run(
    device: OpenCL,
    source: Source,
    arrays: tuple[Array, ...],
    scalars: tuple[Any, ...] = (),
    chunks: int = 1,
    tasks: int | None = None,
) -> int:
    """Run a program on host arrays, through copies where the device has its own memory: flags."""
    there = arrays
    if device.memory is not None:
        there = tuple(device.memory.upload(np.ascontiguousarray(array)) for array in arrays)
    launch = launch_of(there, scalars, chunks)
    if tasks is not None:
        launch.tasks = tasks
    flags = flags_of(device.compile(source).launch(launch))
    for host, array in zip(arrays, there, strict=True):
        if array is not host and host.flags.writeable:
            host[...] = to_host(device, array)
    return flags


def flags_of(outcome: int | Later) -> int:
    """The IEEE conditions of a launch, which has finished then."""
    return outcome if isinstance(outcome, int) else outcome.flags()


def child_environment(**more: Any) -> dict[str, str]:
    """This process's environment with changes, for a child."""
    return {**os.environ, **{name: str(value) for name, value in more.items()}}


@contextlib.contextmanager
def quick_collections() -> Iterator[None]:
    """`gc.collect` looks at what is made from now on; all of numba and pyopencl takes it 0.2 s."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def ramp(count: int, dtype: Any = np.float64) -> Array:
    """0, 1, 2, ..."""
    return np.arange(count, dtype=dtype)
