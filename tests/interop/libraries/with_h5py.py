"""h5py in ordinary use: data sets, attributes, slices and selections, in a file in memory."""

import sys

import h5py
import numpy as np

SIZES = (40, 20_000)


def show(name, *values):
    print(name, *[np.array2string(np.asarray(x), precision=6, threshold=8) for x in values])


def store(file, n):
    x = np.arange(float(n))
    file.create_dataset("x", data=x)
    file["grid"] = x.reshape(-1, 10)
    file.create_dataset("packed", data=x * 2 + 1, chunks=(n // 4,), compression="gzip", dtype="f4")
    file.create_dataset("whole", data=np.arange(n) % 7 == 0)
    file.create_dataset("complex", data=x[:10] + 1j)
    file.create_dataset(
        "names", data=np.array(["a", "bc"], dtype=object), dtype=h5py.string_dtype()
    )
    file.create_dataset("bytes", data=np.array([b"ab", b"c"]))
    file.create_dataset("records", data=np.array([(1, 2.0)], dtype=[("i", "i4"), ("f", "f8")]))
    grown = file.create_dataset("grown", shape=(0,), maxshape=(None,), dtype="f8")
    for part in (x[:10], x[10:20] * 2):
        grown.resize(len(grown) + len(part), axis=0)
        grown[-len(part) :] = part
    pieces = file.create_dataset("pieces", (2,), dtype=h5py.vlen_dtype(np.dtype("f8")))
    pieces[0] = x[:3]
    pieces[1] = x[:2] + 0.5
    group = file.create_group("group/inner")
    group.attrs["scale"] = x[:3]
    group.attrs["mean"] = x.mean()
    group.attrs["count"] = x.argmax()


def read(file, n):
    x = np.array(file["x"])
    show(
        "read",
        x.sum(),
        file["grid"][1:3, ::4],
        file["x"][...].shape,
        np.asarray(file["packed"])[:3],
    )
    show("kinds", file["whole"][:8], file["complex"][2:4], file["names"][1], file["bytes"][:])
    show("fields", file["records"]["f"], file["grown"][8:12], file["pieces"][1])
    mask = x % 4 == 1
    show("mask", file["x"][mask].sum(), file["grid"][:, np.arange(10) > 6].sum())
    show("places", file["x"][np.array([1, 3, 5])], file["grid"][np.array([0, 2]), 1])
    show("numbers", file["x"][x.argmax()], file["x"][: int(x[:5].max())])
    attrs = file["group/inner"].attrs
    show("attributes", attrs["scale"], attrs["mean"], attrs["count"])
    target = np.zeros(n)
    file["x"].read_direct(target)
    target *= 2
    file["x"].write_direct(target)
    file["grid"][0] = np.ones(10)
    file["grid"][1, 2:4] = x[5:7] * 3
    file["x"][mask] = -x[mask]
    show(
        "written", file["x"][:6], file["grid"][:2], (file["x"][()] + x).sum(), np.mean(file["grid"])
    )


def main():
    for n in map(int, sys.argv[1:] or SIZES):
        with h5py.File("memory.h5", "w", driver="core", backing_store=False) as file:
            print(f"--- {n} elements")
            store(file, n)
            read(file, n)


if __name__ == "__main__":
    main()
