"""What is written to files and memory, in parts, against NumPy's files."""

from __future__ import annotations

import errno
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lazyfuse.errors import ConfigurationError, UnsupportedError
from lazyfuse.io import chunks as geometry
from lazyfuse.io import plain_targets, raw_files, targets
from lazyfuse.io.resolve import resolve, target
from tests.io import parts
from tests.io.test_sources import DTYPES, SHAPES, values


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_npy_is_numpys_file(tmp_path: Path, dtype: Any, shape: tuple[int, ...]) -> None:
    expected = values(shape, dtype)
    np.save(tmp_path / "theirs.npy", expected)
    for chunks in (None, 2, "20B"):
        made = target(tmp_path / "ours.npy", shape, expected.dtype)
        wanted = geometry.normalise(chunks, shape, expected.dtype)
        parts.fill(made, expected, wanted)
        assert (tmp_path / "ours.npy").read_bytes() == (tmp_path / "theirs.npy").read_bytes()
    assert len(list(tmp_path.iterdir())) == 2


def test_long_headers(tmp_path: Path) -> None:
    dtype = np.dtype([(f"field number {number}", "f8") for number in range(3000)])
    expected = np.zeros((3,), dtype)
    parts.fill(target(tmp_path / "x.npy", (3,), dtype), expected)
    assert np.load(tmp_path / "x.npy", max_header_size=1 << 20).dtype == dtype


@pytest.mark.parametrize(
    ("direct", "run", "gap"),
    [(True, 64, 1 << 16), (True, 1 << 16, 30), (True, 1, 1), (False, 1, 1)],
)
def test_every_way_to_move_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, direct: bool, run: int, gap: int
) -> None:
    monkeypatch.setattr(raw_files, "DIRECT", direct and raw_files.DIRECT)
    monkeypatch.setattr(raw_files, "WINDOW", 3000)
    monkeypatch.setattr(raw_files, "SCRATCH", 600)
    monkeypatch.setattr(raw_files, "RUN", run)
    monkeypatch.setattr(raw_files, "GAP", gap)
    expected = values((23, 17, 11), "f4")
    mapped = np.memmap(tmp_path / "x.bin", "f4", "w+", 77, (23, 17, 11))
    for view in (mapped, mapped[::-2], mapped[:, ::-3, 2:5], mapped.transpose(1, 2, 0)[::4]):
        for chunks in (None, 4, (1, -1, 3), "500B"):
            mapped[...] = 0
            wanted = expected.reshape(-1)[: view.size].reshape(view.shape)
            cut = geometry.normalise(chunks, view.shape, view.dtype)
            parts.fill(target(view, view.shape, view.dtype), wanted, cut)
            assert (view == wanted).all()
            assert np.count_nonzero(mapped) == np.count_nonzero(wanted), "nothing beside it"


def test_memmaps_of_the_user_are_written_in_place(tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "x.bin", ">f4", "w+", 100, (20, 9), order="F")
    expected = values((20, 9))
    made = target(mapped, (20, 9), np.dtype(">f4"))
    assert isinstance(made, plain_targets.PlainTarget)
    parts.fill(pickle.loads(pickle.dumps(made)), expected)
    assert (mapped == expected).all()
    made.abandon()
    assert (mapped == expected).all()
    with pytest.raises(ValueError, match="read-only"):
        target(np.memmap(tmp_path / "x.bin", "f4", "r"), (205,), np.dtype("f4"))
    with pytest.raises(ValueError, match=r"\(20, 9\)"):
        target(mapped, (9, 20), np.dtype(">f4"))


def test_memory_is_written_by_this_process_alone(tmp_path: Path) -> None:
    array = np.zeros((20, 9))
    for each in (array, np.memmap(tmp_path / "x.bin", "f8", "w+", shape=(20, 9))):
        if each is not array:
            os.remove(tmp_path / "x.bin")
        made = target(each, (20, 9), np.dtype("f8"))
        assert made.serial
        parts.fill(made, values((20, 9)))
        assert (each == values((20, 9))).all()
        with pytest.raises(UnsupportedError, match="use threads"):
            pickle.dumps(made)
    array.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        target(array, (20, 9), np.dtype("f8"))


def test_blocks_are_cast_as_numpy_casts_to_out(tmp_path: Path) -> None:
    made = target(tmp_path / "x.npy", (4,), np.dtype("f4"))
    made.prepare()
    made.write((slice(0, 4),), np.arange(4))
    with pytest.raises(TypeError, match="same_kind"):
        made.write((slice(0, 4),), np.arange(4) * 1j)
    with pytest.raises(ValueError, match=r"shape \(4,\)"):
        made.write((slice(0, 4),), np.arange(3))
    with pytest.raises(IndexError):
        made.write((slice(0, 5),), np.arange(5))
    made.finish()
    assert np.load(tmp_path / "x.npy").tolist() == [0, 1, 2, 3]


def test_failure_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    for former in (False, True):
        if former:
            np.save(path, np.arange(3))
        made = target(path, (8,), np.dtype("f4"))
        made.prepare()
        made.write((slice(0, 4),), np.ones(4, "f4"))
        assert path.exists() == former
        if former:
            assert np.load(path).tolist() == [0, 1, 2]
        made.abandon()
        made.abandon()
        assert list(tmp_path.iterdir()) == ([path] if former else [])
    parts.fill(made, np.arange(8, dtype="f4"))
    with pytest.raises(FileNotFoundError):
        made.finish()
    assert np.load(path).tolist() == list(range(8))


def test_a_file_replaces_its_source(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.arange(1000.0))
    source = resolve(path, chunks=100)
    made = target(path, (1000,), np.dtype("f8"))
    made.prepare()
    for box in parts.chunk_boxes(source.chunks):
        made.write(box, source.read(box) * 2)
    made.finish()
    parts.compare(resolve(path), np.arange(1000.0) * 2)


def test_a_full_disk_is_told_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def unknown(*_: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    made = target(tmp_path / "x.npy", (8,), np.dtype("f4"))
    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(OSError, match="No space"):
        made.prepare()
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(os, "posix_fallocate", unknown)
    parts.fill(made, np.zeros(8, "f4"))


def test_errors_name_the_cure(tmp_path: Path) -> None:
    cases: list[tuple[Any, Any, type[Exception], str]] = [
        ([1], "f8", UnsupportedError, "give a path"),
        (tmp_path / "x.txt", "f8", ConfigurationError, "NAME.zarr"),
        ("s3://bucket/x.zarr", "f8", ConfigurationError, r"zarr\.Array"),
        (tmp_path / "x.npy", object, UnsupportedError, "dtype of fixed size"),
    ]
    for data, dtype, kind, text in cases:
        with pytest.raises(kind, match=text):
            target(data, (1,), np.dtype(dtype))


def test_pieces_of_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    f8 = np.dtype("f8")
    assert targets.stored(((10, 10, 5), (7,)), (25, 7), f8) == (10, 7)
    assert targets.stored((), (), f8) == ()
    assert targets.stored(((0,), (5,)), (0, 5), f8) == (1, 5)
    monkeypatch.setattr(targets, "STORED", 800)
    assert targets.stored(((1009,) * 3,), (3027,), f8) == (1009,), "a prime number"
    assert targets.stored(((1000,) * 3,), (3000,), f8) == (100,)
    assert targets.stored(((1009,),), (1009,), f8) == (100,)
    assert targets.stored(((4, 4), (1000, 1000)), (8, 2000), f8) == (1, 100)


def test_the_callers_chunks_are_asked_for_where_storage_allows_them(tmp_path: Path) -> None:
    written = ((3, 4, 3), (8,))
    mapped = np.memmap(tmp_path / "x.bin", "f8", "w+", shape=(10, 8))
    for place in (tmp_path / "x.npy", mapped, np.zeros((10, 8))):
        assert target(place, (10, 8), np.dtype("f8"), written).chunks == written
        assert target(place, (10, 8), np.dtype("f8")).chunks == ((10,), (8,))
    assert targets.cut(written, (10, 8), np.dtype("f8"), (5, 4)) == (5, 4)
    assert targets.cut(written, (10, 8), np.dtype("f8"), (1, 4)) == ((3, 4, 3), 8)
    assert targets.cut(((5, 5), (8,)), (10, 8), np.dtype("f8"), (4, 4)) == (4, 8)
