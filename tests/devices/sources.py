"""Sources and launches for the tests of devices."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from lazyfuse.devices.base import Array, Launch, Source
from lazyfuse.devices.cpu.device import CPU
from lazyfuse.devices.pools.disk_cache import DiskCache


def map_source(
    body: str,
    arrays: tuple[str, ...],
    scalars: tuple[str, ...] = (),
    name: str = "k",
    independent: bool = True,
    before: str = "",
) -> Source:
    """One loop over `a0`, `a1`, ...; `x0`, ... are the scalars; `body` is one iteration."""
    lines = [f"def {name}(meta, scalars):", "    clear_flags()", "    n = meta[0]"]
    for k, code in enumerate(arrays):
        lines += [f"    a{k} = pointer_{code}(meta[{1 + 2 * k}])", f"    s{k} = meta[{2 + 2 * k}]"]
    lines += [f"    x{k} = scalar_{code}(scalars, {k})" for k, code in enumerate(scalars)]
    lines += ["    for i in range(n):"] + ["        independent()"] * independent
    lines += [f"        {line}" for line in body.splitlines()]
    lines += ["    return test_flags()"]
    return Source("numba", name, before + "\n".join(lines) + "\n", 1, arrays, scalars)


def times(factor: int) -> Source:
    """A program that multiplies."""
    return map_source(f"a1[i] = a0[i] * {factor}.0", ("f8", "f8"), name=f"times{factor}")


def numpy_source(body: str, arrays: tuple[str, ...], scalars: tuple[str, ...] = ()) -> Source:
    """Text of language "numpy"; `a0`, `a1`, ... are the views of a chunk, `x0`, ... the scalars."""
    lines = ["def k(arrays, scalars, scratch):"]
    lines += [f"    a{k} = arrays[{k}]" for k in range(len(arrays))]
    lines += [f"    x{k} = scalars[{k}]" for k in range(len(scalars))]
    lines += [f"    {line}" for line in body.splitlines()]
    return Source("numpy", "k", "\n".join(lines) + "\n", 1, arrays, scalars)


def launch_of(
    arrays: tuple[Array, ...], scalars: tuple[Any, ...] = (), chunks: int = 1, elements: int = 0
) -> Launch:
    """A launch over all elements of one-dimensional arrays (strided ones too), in equal chunks."""
    count = max(len(array) for array in arrays)
    edges = np.linspace(0, count, chunks + 1).astype(np.int64)
    strides = tuple(
        (array.strides[0] // array.itemsize if len(array) == count else 0,) for array in arrays
    )
    return Launch(
        arrays,
        strides,
        scalars,
        np.diff(edges)[:, None],
        edges[:-1, None] * np.array([row[0] for row in strides]),
        elements or count,
    )


def from_disk(folder: str) -> tuple[int, str]:
    """Run a program that is on disk, or will be: how many were built, and the sum of its values."""
    cpu = CPU(threads=2, threads_above=1, disk=DiskCache(folder, 1 << 20))
    out = np.zeros(1001)
    source = map_source("a1[i] = vm_exp(a0[i]) + vmf_sin(float32(a0[i]))", ("f8", "f8"))
    cpu.compile(source).launch(launch_of((np.arange(1001.0) / 1000, out), (), 4))
    return cpu.info()["programs"]["built"], out.sum().hex()


def endless() -> Source:
    """A text that takes minutes to compile."""
    body = ["t = a0[i]", *["t = t * a0[i] + a1[i]"] * 20_000, "a1[i] = t"]
    return map_source("\n".join(body), ("f8", "f8"), name="endless")


def seconds_of(process: int) -> float:
    """The time of a core that a process has used."""
    with open(f"/proc/{process}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
