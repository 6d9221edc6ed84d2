"""What is read from files and memory, in parts, against NumPy's arrays."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lazyfuse.errors import ConfigurationError, UnsupportedError
from lazyfuse.io import plain_files, raw_files, sources
from lazyfuse.io.resolve import resolve
from tests.io import parts

RECORD = np.dtype([("a", "i4"), ("b", ">f8")])
DTYPES = ["f8", ">i4", "?", "M8[s]", "U3", "S5", RECORD, "c16", ">f2", "u1", "V6"]
SHAPES = [(7, 5, 9), (0, 3), (), (200,), (1, 1, 4), (2, 0), (1,)]


def values(shape: tuple[int, ...], dtype: Any = "f8", order: Any = "C") -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(3)
    dtype = np.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    if dtype.kind in "bUfc":  # not every bit is a value
        return rng.integers(0, 2 if dtype.kind == "b" else 100, shape).astype(dtype, order=order)
    plain = np.frombuffer(rng.bytes(size), dtype).reshape(shape)
    return np.array(plain, order=order, copy=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_npy(tmp_path: Path, dtype: Any, shape: tuple[int, ...]) -> None:
    for order in "CF":
        expected = values(shape, dtype, order)
        path = tmp_path / f"{order}.npy"
        np.save(path, expected)
        for limit in (1, 50, 10_000):
            parts.compare(resolve(path, limit=limit), expected, 5)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_npy_of_all_versions(tmp_path: Path, version: tuple[int, int]) -> None:
    expected = values((5, 3))
    path = tmp_path / "x.npy"
    with open(path, "wb") as file:
        np.lib.format.write_array(file, expected, version=version)
    parts.compare(resolve(str(path)), expected)


def test_npy_prefers_chunks_in_its_own_order(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((100, 100), order="F"))
    assert resolve(path, limit="8kB").chunks == ((100,), (10,) * 10)
    np.save(path, np.zeros((100, 100)))
    assert resolve(path, limit="8kB").chunks == ((10,) * 10, (100,))
    assert resolve(path, chunks=(50, 20)).chunks == ((50, 50), (20,) * 5)


@pytest.mark.parametrize(
    ("direct", "run", "gap"),
    [(True, 64, 1 << 16), (True, 1 << 16, 30), (True, 1, 1), (False, 1, 1)],
)
def test_every_way_to_move_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, direct: bool, run: int, gap: int
) -> None:
    """Runs, windows and transposed pieces, on small arrays; `direct` is off as on Windows."""
    monkeypatch.setattr(raw_files, "DIRECT", direct and raw_files.DIRECT)
    monkeypatch.setattr(raw_files, "WINDOW", 3000)
    monkeypatch.setattr(raw_files, "SCRATCH", 600)
    monkeypatch.setattr(raw_files, "RUN", run)
    monkeypatch.setattr(raw_files, "GAP", gap)
    for order in "CF":
        expected = values((23, 17, 11), "f4", order)
        path = tmp_path / f"{order}.npy"
        np.save(path, expected)
        parts.compare(resolve(path, limit=2000), expected, 60)
    mapped = np.memmap(tmp_path / "x.bin", "f4", "w+", 77, (23, 17, 11))
    mapped[...] = expected
    for view in (mapped[::-2], mapped[:, ::-3, 2:5], mapped.transpose(1, 2, 0)[::4]):
        parts.compare(resolve(view, limit=2000), np.array(view), 60)


def test_items_that_are_longer_than_all_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mapped = np.memmap(tmp_path / "x.bin", "S70000", "w+", shape=(7, 3))
    mapped[...] = np.arange(21).reshape(7, 3).astype("S")
    for window in (1 << 27, 100):
        monkeypatch.setattr(raw_files, "WINDOW", window)
        monkeypatch.setattr(raw_files, "SCRATCH", window)
        for view in (mapped[::2], mapped[:, 1], mapped.T, mapped):
            parts.compare(resolve(view, limit=200_000), np.array(view), 5)


def test_memmaps_and_their_views(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    mapped = np.memmap(path, "f4", "w+", 12345, (50, 40, 6))
    mapped[...] = values(mapped.shape, "f4")
    views = [
        mapped, mapped[3:], mapped[::2, ::-1], mapped.T, mapped[5:9, 3:20:4, ::-1], mapped[4:5],
        np.asarray(mapped)[2:], mapped.view("i4"), mapped.reshape(25, 480), mapped[7, 8, 3:],
        mapped[1:2, 2:3, 3:4], mapped.view("S4")[0], np.broadcast_to(mapped[3, :, :1], (40, 5)),
    ]  # fmt: skip
    for view in views:
        found = resolve(view, limit=2000)
        assert isinstance(found, plain_files.PlainFile)
        parts.compare(found, np.array(view))
    read_only = np.memmap(path, ">i2", "r", 4099, (100, 7), order="F")
    assert isinstance(resolve(read_only), plain_files.PlainFile)
    parts.compare(resolve(read_only), np.array(read_only))


def test_writes_to_a_memmap_show(tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "x.bin", "f8", "w+", shape=(100,))
    source = resolve(mapped)
    mapped[:] = 3
    assert (source.read((slice(0, 100),)) == 3).all()


def test_memmaps_without_their_file_are_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    mapped = np.memmap(path, "f8", "w+", shape=(5000,))
    mapped[:] = np.arange(5000)
    private = np.memmap(path, "f8", "c", shape=(5000,))
    private[0] = -1
    assert resolve(private).read((slice(0, 1),)) == -1
    mapped.flush()
    shutil.move(path, tmp_path / "moved")
    parts.compare(resolve(mapped), np.arange(5000.0))
    np.ones(6000).tofile(path)  # another file has the name now
    parts.compare(resolve(mapped), np.arange(5000.0))
    assert resolve(mapped).literal


def test_memory() -> None:
    for array in (
        values((7, 5, 3)),
        values((4, 6), order="F"),
        values((9, 9))[::-2, 3:],
        values(()),
    ):
        parts.compare(resolve(array, limit=100), array)
    array = values((5,))
    source = resolve(array)
    block = source.read((slice(0, 5),))
    block[:] = 0
    assert not (array == 0).any()


def test_sources_are_small_to_send(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.zeros(100_000, "u1"))
    source = resolve(path, chunks=1)
    assert len(source.chunks[0]) == 100_000
    assert len(pickle.dumps(source)) < 600


def test_a_file_that_was_replaced_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, values((5, 5)))
    source = resolve(path)
    np.save(tmp_path / "y.npy", values((5, 5)) + 1)
    os.replace(tmp_path / "y.npy", path)
    with pytest.raises(ConfigurationError, match="replaced"):
        source.read((slice(0, 5), slice(0, 5)))


def test_a_file_that_became_shorter_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, values((500, 50)))
    source = resolve(path)
    os.truncate(path, 1000)
    with pytest.raises(EOFError, match="1000 bytes"):
        source.read((slice(400, 500), slice(0, 50)))
    with pytest.raises(EOFError, match="1000 bytes"):
        source.read((slice(0, 500), slice(3, 4)))
    with pytest.raises(ValueError, match="bytes"):
        resolve(path)


@pytest.mark.parametrize(
    "box", [(slice(0, 3),), (slice(0, 3), slice(0, 9)), (slice(3, 1), slice(0, 2)), ()], ids=str
)
def test_boxes_outside_are_refused(box: Any) -> None:
    with pytest.raises(IndexError, match="slices within"):
        resolve(values((5, 5))).read(box)


def test_errors_name_the_cure(tmp_path: Path) -> None:
    cases: list[tuple[Any, type[Exception], str]] = [
        ([1, 2], UnsupportedError, "give a path"),
        (np.array([1, "x"], object), UnsupportedError, "dtype of fixed size"),
        (np.array(["x"], np.dtypes.StringDType()), UnsupportedError, "dtype of fixed size"),
        (tmp_path / "none.npy", FileNotFoundError, "none.npy"),
        (tmp_path, ConfigurationError, "folder is no zarr array"),
        (tmp_path / "text", ConfigurationError, "numpy.memmap"),
        (tmp_path / "bad.npy", ConfigurationError, "bad.npy"),
        (tmp_path / "objects.npy", UnsupportedError, "dtype of fixed size"),
    ]
    (tmp_path / "text").write_text("words, words")
    (tmp_path / "bad.npy").write_bytes(b"\x93NUMPY\x01\x00\x05\x00abc")
    np.save(tmp_path / "objects.npy", np.array([None]))
    for data, kind, text in cases:
        with pytest.raises(kind, match=text):
            resolve(data)


def test_arrays_of_dask_and_xarray_are_left_to_the_caller() -> None:
    xarray = pytest.importorskip("xarray")
    assert resolve(xarray.Variable("x", [1, 2])) is NotImplemented
    assert resolve(xarray.DataArray([1, 2])) is NotImplemented
    da = pytest.importorskip("dask.array")
    assert resolve(da.zeros(3)) is NotImplemented


def test_boxes_of_chunks_of_an_empty_array() -> None:
    source = sources.memory(np.zeros((0, 4)))
    assert [source.read(box).shape for box in parts.chunk_boxes(source.chunks)] == [(0, 4)]
