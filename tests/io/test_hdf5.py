"""HDF5 datasets, read and written in parts, against NumPy and h5py itself."""

from __future__ import annotations

import io
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lazyfuse.errors import ConfigurationError, UnsupportedError
from lazyfuse.io import chunks as geometry
from lazyfuse.io import handles
from lazyfuse.io.resolve import resolve, target
from tests.io import parts
from tests.io.test_sources import RECORD, values

h5py = pytest.importorskip("h5py")

DTYPES = ["f8", ">i4", "?", "c8", "f2", "S3", RECORD]


@pytest.fixture(autouse=True)
def closes_files() -> Any:
    yield
    handles.drop()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sources(tmp_path: Path, dtype: Any) -> None:
    path = tmp_path / "x.h5"
    shapes: list[Any] = [(50, 33), (), (0, 4), (9,)]
    with h5py.File(path, "w") as file:
        for number, shape in enumerate(shapes):
            file[f"plain/{number}"] = values(shape, dtype)
            if shape and 0 not in shape:
                packed = {"chunks": (7, 5)[: len(shape)], "compression": "gzip"}
                file.create_dataset(f"packed/{number}", data=values(shape, dtype), **packed)
    for number, shape in enumerate(shapes):
        expected = values(shape, dtype)
        parts.compare(resolve(f"{path}::/plain/{number}", limit=700), expected, 5)
        if shape and 0 not in shape:
            source = resolve(f"{path}::packed/{number}", limit=700)
            assert geometry.is_aligned(source.chunks, (7, 5)[: len(shape)])
            parts.compare(source, expected, 5)


def test_datasets_that_are_open(tmp_path: Path) -> None:
    for mode in ("r", "r+"):
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file["x"] = values((20, 5))
        with h5py.File(tmp_path / "x.h5", mode) as file:
            source = resolve(file["x"])
            parts.compare(source, values((20, 5)))
            handles.drop()
        parts.compare(source, values((20, 5)))  # closed by its user: opened by its name
        handles.drop()


def test_files_without_a_name() -> None:
    with h5py.File(io.BytesIO(), "w") as file:
        file["x"] = values((20, 5))
        source = resolve(file["x"])
        assert parts.bits(source.read((slice(2, 4), slice(0, 5)))) == parts.bits(
            values((20, 5))[2:4]
        )
        with pytest.raises(UnsupportedError, match="use threads"):
            pickle.dumps(source)


def test_names(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["g/x"] = values((6,))
    parts.compare(resolve(path), values((6,)))
    handles.drop()
    with h5py.File(path, "a") as file:
        file["y"] = values((7,))
        file["text"] = "words"
        file["none"] = h5py.Empty("f8")
    for name, text in (("", "name one"), ("::z", "no dataset z"), ("::g", "no dataset g")):
        with pytest.raises(ConfigurationError, match=text):
            resolve(f"{path}{name}")
    for name, text in (("text", "dtype of fixed size"), ("none", "no shape")):
        with pytest.raises(UnsupportedError, match=text):
            resolve(f"{path}::{name}")


def test_a_file_that_was_changed_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.zeros(6)
    source = resolve(f"{path}::x")
    assert not source.read((slice(0, 6),)).any()
    handles.drop()
    with h5py.File(path, "r+") as file:
        file["x"][...] = 1
    assert source.read((slice(0, 6),)).all()
    handles.drop()
    with h5py.File(path, "r+") as file:
        del file["x"]
        file["x"] = np.zeros(7)
    with pytest.raises(ConfigurationError, match="has changed"):
        source.read((slice(0, 6),))


def test_few_files_stay_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handles, "LIMIT", 4)
    for number in range(20):
        path = tmp_path / f"{number}.h5"
        with h5py.File(path, "w") as file:
            file["x"] = values((10,))
        parts.compare(resolve(path), values((10,)), 2)
        assert len(handles._open) <= 4


# ------------------------------------------------------------------------------------ written


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("there", [False, True], ids=["new-file", "in-a-file"])
def test_new_datasets(tmp_path: Path, dtype: Any, there: bool) -> None:
    path = tmp_path / "x.h5"
    if there:
        with h5py.File(path, "w") as file:
            file["other"] = 1
            file["g/(5,)"] = "in the way"
    for shape in ((23, 17), (), (0, 3), (5,)):
        expected = values(shape, dtype)
        made = target(f"{path}::g/{shape}", shape, expected.dtype)
        assert made.serial
        parts.fill(made, expected)
        with h5py.File(path, "r") as file:
            assert parts.bits(file[f"g/{shape}"][...].reshape(shape)) == parts.bits(expected)
    with h5py.File(path, "r") as file:
        assert set(file["g"]) == {"(23, 17)", "()", "(0, 3)", "(5,)"}
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="names no dataset"):
        target(tmp_path / "x.h5", (3,), np.dtype("f8"))


def test_failure_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    made = target(f"{path}::x", (8,), np.dtype("f4"))
    made.prepare()
    made.write((slice(0, 4),), np.ones(4, "f4"))
    assert not path.exists()
    made.abandon()
    made.abandon()
    assert not list(tmp_path.iterdir())
    parts.fill(target(f"{path}::x", (3,), np.dtype("f8")), np.arange(3.0))
    made = target(f"{path}::x", (8,), np.dtype("f4"))
    made.prepare()
    made.write((slice(0, 4),), np.ones(4, "f4"))
    with h5py.File(path, "r") as file:
        assert file["x"][...].tolist() == [0, 1, 2]
    made.abandon()
    with h5py.File(path, "r") as file:
        assert list(file) == ["x"]
    parts.fill(made, np.arange(8, dtype="f4"))
    with pytest.raises(KeyError):
        made.finish()
    with h5py.File(path, "r") as file:
        assert list(file) == ["x"]
        assert file["x"][...].tolist() == list(range(8))


def test_source_and_target_in_one_file_at_once(tmp_path: Path) -> None:
    """HDF5 opens a file in one way at a time: readers share the file with the writer, or wait."""
    path = tmp_path / "x.h5"
    expected = values((200, 10))
    parts.fill(target(f"{path}::x", expected.shape, expected.dtype), expected)
    source = resolve(f"{path}::x", chunks=(10, -1))
    made = target(f"{path}::y", expected.shape, expected.dtype)
    made.prepare()

    def copy(box: Any) -> None:
        made.write(box, source.read(box) * 2)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(copy, parts.chunk_boxes(source.chunks)))
    made.finish()
    parts.compare(resolve(f"{path}::y"), expected * 2)


def test_files_that_are_open_for_writing_are_told(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.zeros(6)
    with h5py.File(path, "r"):
        made = target(f"{path}::y", (3,), np.dtype("f8"))
        with pytest.raises(UnsupportedError, match="close it"):
            made.prepare()


def test_datasets_of_the_user(tmp_path: Path) -> None:
    expected = values((20, 9))
    with h5py.File(tmp_path / "x.h5", "w") as file:
        dataset = file.create_dataset("x", (20, 9), "f8", chunks=(6, 4))
        made = target(dataset, (20, 9), np.dtype("f8"))
        assert made.serial
        assert made.grain == (6, 4)
        parts.fill(made, expected)
        assert (dataset[...] == expected).all()
        with pytest.raises(UnsupportedError, match="other processes"):
            pickle.dumps(made)
    with (
        h5py.File(tmp_path / "x.h5", "r") as file,
        pytest.raises(ValueError, match="read-only"),
    ):
        target(file["x"], (20, 9), np.dtype("f8"))
