"""Programs that once went wrong over arrays in chunks, each as short as it could be made."""

from __future__ import annotations

import numpy
import pytest

from lazyfuse import config
from tests.chunked import programs
from tests.programs.compare import Statement

REAL = {
    "R0": numpy.arange(36).reshape(3, 4, 3),
    "R1": numpy.arange(90.0).reshape(10, 9),
    "R2": numpy.array([1.0, numpy.nan, 3.0, -2.0, 5.0]),
    "R3": numpy.arange(24),
    "R4": numpy.arange(20, dtype="u1").reshape(4, 5),
}
WENT_WRONG = {
    "one element of some chunks": "a = cut(R1, ((4, 4, 2), (5, 4))); a[2, -3] += 5",
    "one element of a vector": "a = cut(R2, ((2, 2, 1),)); a[3] = 7",
    "nothing is written": "a = cut(R1, ((4, 6), (9,))); a[..., -4:-3:-1] *= 0",
    "written through a reshape": (
        "a = cut(R1, ((7, 2, 1), (4, 4, 1))); b = a[:-1, ::2].reshape(-1); b[...] = 5"
    ),
    "a view of a reshape": (
        "a = cut(R1, ((7, 3), (9,))); b = np.moveaxis(a.reshape(3, -1), 0, -1).sum()"
    ),
    "a diagonal is written": "a = cut(R1, ((7, 2, 1), (4, 4, 1))); np.fill_diagonal(a, -1)",
    "a diagonal within a view": (
        "a = cut(R1, ((7, 2, 1), (4, 4, 1))); b = a.reshape(3, -1)[:-1, ::2].T; b[:1] = b[-1:]"
    ),
    "rows of a reshape on the host": (
        "a = cut(R3.reshape(6, 4), ((2, 4), (2, 2))); b = a + (np.asarray(R3) + 1).reshape(6, 4)"
    ),
    "tiles": "a = np.tile(cut(R0, ((1, 2), (2, 2), (3,))), (2, 3, 2))",
    "products of arrays that tasks read": (
        "a = opened(R1, 'npy', ((4, 6), (9,))); b = a @ R1.T; c = np.dot(a.T, a); d = R1[0, :3] @ "
        "opened(R1, 'hdf5', ((10,), (4, 5)))[:3]; e = np.tensordot(a, a, 2); f = b @ b * 2"
    ),
    "a summed axis of one element": "a = cut(R0, ((1, 2), (2, 2), (3,))); b = np.dot(a, a[:, :1])",
    "numbers of products": "a = cut(R2, ((2, 3),)); b = (a * 0 + 1) @ (a * 0 + 1)",
    "a product of what is on the host": (
        "a = cut(R1, ((4, 6), (9,))); b = a.tolist(); c = a @ a.T; d = (c - c.mean(axis=0)) * 2"
    ),
    "a product that sums nothing": "a = cut(R1, ((4, 6), (9,)))[:, 3:3]; b = a @ a.T",
    "chunks without elements": (
        "a = cut(R3, ((8, 8, 8),)); b = a[a == a.max()]; c = np.ptp(b); d = b @ b"
    ),
    "a mask to dask": "a = cut(R3, ((8, 8, 8),)); b = computed(a[a == a.max()])",
    "counts of NaN": "a = np.unique(cut(R2, ((2, 3),)), return_counts=True)",
    "sums of small integers": "a = cut(R4, ((2, 2), (5,))); b = np.einsum('ij,kj->ik', a, a)",
    "labels that repeat": "a = cut(R4, ((2, 2), (5,)))[:, :4]; b = np.einsum('ii->i', a)",
    "results for an array": "a = np.zeros(5); np.median(cut(R4, ((2, 2), (5,))), axis=0, out=a)",
    "axes that are none": "np.median(cut(R4, ((2, 2), (5,))), axis=4)",
    "others evaluated together": (
        "a = cut(R1, ((4, 6), (9,))); b = a * 2; c = np.fft.ifft(np.nan_to_num(cut(R2, ((3, 2),))))"
    ),
    "a product with the host": ("a = np.array(R1) * 1j; b = np.dot(cut(R1, ((4, 6), (9,))), a.T)"),
    "a move on the host": "a = np.roll(np.array(R1) * 2, 3); b = cut(R1, ((4, 6), (9,))) + a",
}


@pytest.mark.parametrize("chunk_bytes", [1 << 27, 32])
@pytest.mark.parametrize("name", WENT_WRONG)
@pytest.mark.usefixtures("on_threads")
def test_went_wrong(name: str, chunk_bytes: int) -> None:
    steps = [
        Statement(text.strip(), text.partition("=")[0].strip())
        for text in WENT_WRONG[name].split("; ")
    ]
    program = programs.Program(
        0, lambda: {name: x.copy() for name, x in REAL.items()}, ["f8"], steps
    )
    for device in ("", "dask"):
        with config.options(eager_below=0, chunk_bytes=chunk_bytes, device=device):
            programs.run(program)
