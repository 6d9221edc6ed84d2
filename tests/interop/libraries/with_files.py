"""NumPy's files, buffers and pickles in ordinary use, with the standard library beside them."""

import array
import copy
import ctypes
import functools
import hashlib
import io
import json
import pickle
import struct
import sys
import tempfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np

SIZES = (40, 20_000)


def digest(x):
    return hashlib.sha256(np.ascontiguousarray(x)).hexdigest()[:12]


def files(folder, n):
    x, grid = np.arange(float(n)) * 1.5, np.arange(n, dtype=np.int32).reshape(-1, 4)
    np.save(folder / "x.npy", x)
    np.savez(folder / "all.npz", x=x, grid=grid.T)
    np.savez_compressed(folder / "packed.npz", x, mask=x > 3)
    print(digest(np.load(folder / "x.npy")), (folder / "x.npy").stat().st_size)
    with np.load(folder / "all.npz") as stored:
        print(sorted(stored.files), stored["grid"].shape, digest(stored["grid"]))
    print([digest(value) for _, value in sorted(np.load(folder / "packed.npz").items())])
    x.tofile(folder / "raw")
    print(digest(np.fromfile(folder / "raw")), np.fromfile(folder / "raw", count=3, offset=8))
    np.savetxt(folder / "text", grid[:3], fmt="%d", header="a b c d")
    print((folder / "text").read_text(), np.loadtxt(folder / "text", dtype=int).sum())
    print(np.genfromtxt(io.StringIO("1,2\n3,nan"), delimiter=","))
    mapped = np.memmap(folder / "map", dtype=np.float64, mode="w+", shape=(n,))
    mapped[:] = x
    mapped[2:4] += 10
    mapped.flush()
    print(digest(np.fromfile(folder / "map")), isinstance(mapped, np.memmap), mapped.sum())
    again = np.load(folder / "x.npy", mmap_mode="r")
    print(again[3], (again * 2 + x).sum(), again.flags.writeable)
    with open(folder / "out", "wb") as file:
        file.write(x[:4])
        file.write(memoryview(grid[:1]))
    print((folder / "out").read_bytes().hex())
    target = np.empty(4)
    with open(folder / "out", "rb") as file:
        print(file.readinto(target), target)


def buffers(n):
    x = np.arange(n, dtype=np.int16) + 1
    view = memoryview(x)
    print(view.format, view.shape, view[2], view.nbytes, bytes(x)[:6], x.tobytes()[:4])
    view[0] = 77
    print(x[0], struct.unpack_from("3h", x), zlib.crc32(x), digest(x))
    struct.pack_into("h", x, 2, -5)
    print(x[1], array.array("h", x.tobytes())[:3], bytearray(x[:2]), b"".join([x[:1], x[1:2]]))
    numbers = array.array("d", [1.0, 2.0, 3.0])
    shared = np.frombuffer(numbers)
    shared *= 2
    print(numbers.tolist(), np.asarray(memoryview(numbers)).sum(), np.array(numbers))
    block = bytearray(8 * n)
    y = np.frombuffer(block)
    y[:] = np.arange(n)
    y += 0.5
    print(struct.unpack_from("2d", block, 8), int.from_bytes(np.arange(3, dtype="u1"), "little"))
    pointer = y.ctypes.data_as(ctypes.POINTER(ctypes.c_double))
    pointer[1] = 100.0
    print(y[:3], np.ctypeslib.as_array(pointer, shape=(3,)))
    print(json.dumps({"mean": y.mean(), "list": y[:2].tolist()}), y[:2].data.tolist())
    print(np.from_dlpack(y)[:2], y.__dlpack_device__()[1], np.from_dlpack(x) is not x)


def total(x, scale=1.0):
    return x.sum() * scale


def pickles(n):
    x = np.arange(float(n)).reshape(-1, 2)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        for value in (x, x.T, x[::2], x > 3, np.array(["a", None], dtype=object), x.sum()):
            again = pickle.loads(pickle.dumps(value, protocol))
            print(protocol, np.shape(again), np.asarray(again).dtype, digest(again != 0))
    kept = []
    text = pickle.dumps(x, 5, buffer_callback=kept.append)
    print(len(kept), len(text) < 1000, np.array_equal(pickle.loads(text, buffers=kept), x))
    twice = pickle.loads(pickle.dumps([x, x]))
    print(twice[0] is twice[1], copy.copy(x).sum(), copy.deepcopy({"x": [x]})["x"][0].shape)
    independent = copy.deepcopy(x)
    x[0] = -1
    print(independent[0], pickle.loads(pickle.dumps(np.add)) is np.add, np.dtype("f4") == "f4")
    parts = np.split(np.arange(float(n)), 4)
    with get_context("fork").Pool(2) as pool:
        print(pool.map(functools.partial(total, scale=2.0), parts))
    with ThreadPoolExecutor(2) as pool:
        print(list(pool.map(total, parts)))


def main():
    with tempfile.TemporaryDirectory() as folder:
        for n in map(int, sys.argv[1:] or SIZES):
            files(Path(folder), n)
            buffers(n)
            pickles(n)


if __name__ == "__main__":
    main()
