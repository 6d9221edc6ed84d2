"""A file larger than the memory that a process is allowed, through a chain to a sum.

For `python -m benchmarks.chunked --stream`. Each turn is a process of its own, which begins with a
file that the system has dropped from its cache: one reads it plainly, block by block, and one is a
program of lazyfuse on threads.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy

BLOCK = 64 << 20
COLUMNS = 4096
TURNS = 3


def write(path: Path, size: int, kind: str) -> None:
    """Make the array, a part at a time."""
    rows = size // (8 * COLUMNS)
    step = BLOCK // (8 * COLUMNS)
    target: Any
    if kind == "npy":
        target = numpy.lib.format.open_memmap(path, "w+", numpy.float64, (rows, COLUMNS))
    else:
        import zarr

        chunks = (step, COLUMNS)
        target = zarr.create_array(
            str(path), shape=(rows, COLUMNS), chunks=chunks, dtype="f8", compressors=None
        )
    part = numpy.random.default_rng(0).random((step, COLUMNS))
    for begin in range(0, rows, step):
        target[begin : begin + step] = part[: min(step, rows - begin)]
    if kind == "npy":
        target.flush()
    os.sync()


def files(path: Path) -> list[Path]:
    """The files of an array."""
    return [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())


def forget(path: Path) -> None:
    """Let the system drop a file from its cache."""
    for each in files(path):
        file = os.open(each, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def plainly(path: Path) -> float:
    """Read all bytes into one block."""
    block = bytearray(BLOCK)
    for each in files(path):
        with open(each, "rb", buffering=0) as file:
            while file.readinto(block):
                pass
    return 0.0


def streamed(path: Path) -> float:
    """A chain of ten operations and a sum."""
    import lazyfuse as np

    x = np.from_chunks(str(path), chunks=(BLOCK // (8 * COLUMNS), COLUMNS))
    return float(((((((x * 2 + 1) * x - 3) * 0.5 + x) * x - 0.25) * x + 4) * 1.5).sum())


WAYS = {"plainly": plainly, "streamed": streamed}


def child(way: str, path: Path, allowed: int) -> None:
    """One turn, in a process of its own; prints its figures."""
    warm = path.with_name("warm-" + path.name)
    WAYS[way](warm)  # what is imported and compiled once
    resource.setrlimit(resource.RLIMIT_AS, (allowed, allowed))
    began = time.perf_counter()
    result = WAYS[way](path)
    seconds = time.perf_counter() - began
    print(json.dumps({"seconds": seconds, "result": result, "peak": peak()}))


def peak() -> int:
    """The most memory that this process has had; what `getrusage` says holds its parent's, too."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def measure(gigabytes: float, allowed: float, kind: str, folder: Path) -> None:
    """Write the file, read it by turns, print the medians, remove it."""
    place = folder / f"lazyfuse-stream-{os.getpid()}"
    place.mkdir()
    path = place / f"data.{kind}"
    size = int(gigabytes * 1e9)
    try:
        if shutil.disk_usage(place).free < 1.1 * size:
            raise SystemExit(f"{folder} has no room for {gigabytes} GB")
        write(path, size, kind)
        write(path.with_name("warm-" + path.name), 4 * BLOCK, kind)
        found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
        for _ in range(TURNS):
            for way, turns in found.items():
                forget(path)
                command = [sys.executable, "-m", __name__, way, str(path), str(int(allowed * 1e9))]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    raise SystemExit(done.stderr)
                turns.append(json.loads(done.stdout))
    finally:
        shutil.rmtree(place)
    rates = {
        way: size / 1e9 / statistics.median(turn["seconds"] for turn in turns)
        for way, turns in found.items()
    }
    most = max(turn["peak"] for turn in found["streamed"]) / 1e9
    print(
        f"{gigabytes:.3g} GB of {kind}, {allowed:.3g} GB of address space allowed: plain reading "
        f"{rates['plainly']:.2f} GB/s, streamed {rates['streamed']:.2f} GB/s "
        f"({rates['streamed'] / rates['plainly']:.2f}), peak {most:.2f} GB of memory"
    )


if __name__ == "__main__":
    child(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
