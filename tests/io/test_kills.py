"""Processes that are killed as they write, and that may use little memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lazyfuse.io import handles
from lazyfuse.io.resolve import resolve, target
from tests.io import parts
from tests.io.test_sources import values

WRITES = """
import sys
import numpy as np
from lazyfuse.io.resolve import target
made = target(sys.argv[1], (400, 100), np.dtype("f8"), ((100,) * 4, (100,)))
made.prepare()
made.write((slice(0, 100), slice(0, 100)), np.ones((100, 100)))
print("written", flush=True)
while True:
    made.write((slice(100, 200), slice(0, 100)), np.ones((100, 100)))
"""


@pytest.mark.parametrize("kind", ["npy", "zarr", "h5"])
@pytest.mark.parametrize("there", [False, True], ids=["new", "there"])
def test_a_process_that_is_killed_leaves_what_was_there(
    tmp_path: Path, kind: str, there: bool
) -> None:
    if kind != "npy":
        pytest.importorskip({"zarr": "zarr", "h5": "h5py"}[kind])
    if kind == "h5" and there:
        pytest.skip("HDF5 keeps no journal: documented")
    path = f"{tmp_path}/x.{kind}" + ("::/x" if kind == "h5" else "")
    former = values((30, 20))
    if there:
        parts.fill(target(path, former.shape, former.dtype), former)
        source = resolve(path)
    command = [sys.executable, "-c", WRITES, path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "written\n"
        writer.kill()
    if there:
        parts.compare(source, former)
        parts.compare(resolve(path), former)
    else:
        with pytest.raises(FileNotFoundError):
            resolve(path)
    made = target(path, former.shape, former.dtype)  # what was left is in nobody's way
    parts.fill(made, former + 1)
    parts.compare(resolve(path), former + 1)
    handles.drop()


READS = """
import resource, sys
import numpy as np
from lazyfuse.io.resolve import resolve
source = resolve(sys.argv[1])
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
limit = used + (1 << 30)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
rows, columns = source.shape
try:
    np.load(sys.argv[1], mmap_mode="r")
except OSError:
    print("no room for all of it")
print(source.read((slice(rows - 2, rows), slice(0, columns))).sum())
print(source.read((slice(0, rows, None), slice(columns - 1, columns))).sum())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks /proc")
def test_files_may_be_larger_than_the_address_space(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    shape = (1 << 11, 1 << 17)  # 2 GiB, of which two pages are on the disk
    made = target(path, shape, np.dtype("f8"))
    with open(path, "wb") as file:
        file.write(made.header)  # type: ignore[attr-defined]
        file.truncate(len(made.header) + 8 * shape[0] * shape[1])  # type: ignore[attr-defined]
    mapped = np.load(path, mmap_mode="r+")
    mapped[-1, -1] = 3
    del mapped
    command = [sys.executable, "-c", READS, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.split("\n")[:3] == ["no room for all of it", "3.0", "3.0"], done.stderr
