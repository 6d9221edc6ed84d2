"""Measurements in a file that need not fit into memory: standardised, clipped and saved in chunks.

    python examples/larger_than_memory.py [number of rows]

The file is read, computed and written chunk by chunk, by threads of this process. With a line such
as `client = dask.distributed.Client()` before it, the same program runs on a cluster. It needs
`pip install 'lazyfuse[dask]'`.
"""

import sys
import tempfile
from pathlib import Path

import numpy

import lazyfuse as np

COLUMNS = 64


def measure(file, rows, block=1 << 14):
    """Write measurements of `COLUMNS` sensors to a file, a block of rows at a time."""
    generator = numpy.random.default_rng(20)
    scale = 1.0 + numpy.arange(COLUMNS)
    data = numpy.lib.format.open_memmap(file, "w+", "f8", (rows, COLUMNS))
    for start in range(0, rows, block):
        part = data[start : start + block]
        part[:] = scale * generator.normal(3.0, 1.0, part.shape)
    data.flush()


def standardise(x):
    """Columns with mean 0 and deviation 1, outliers cut off."""
    return ((x - x.mean(axis=0)) / x.std(axis=0)).clip(-3, 3)


def main(rows):
    with tempfile.TemporaryDirectory() as folder:
        raw, ready = Path(folder, "raw.npy"), Path(folder, "ready.npy")
        measure(raw, rows)

        x = np.from_chunks(raw, chunks=(max(rows // 16, 1), -1))
        print(f"on {x.device}: {x.shape[0]} x {x.shape[1]} in {len(x.to_dask().chunks[0])} chunks")
        y = standardise(x)
        np.save_chunks(ready, y)

        z = np.from_chunks(ready)
        print(f"mean      {float(z.mean()):.6f}")
        print(f"deviation {float(z.std()):.6f}")
        print(f"cut off   {int((np.abs(z) == 3).sum())} of {z.size}")
        print(f"largest column of row 0: {int(z[0].argmax())}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000)
