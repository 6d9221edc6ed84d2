"""Zarr arrays, read and written in parts, against NumPy and zarr itself."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lazyfuse.errors import ConfigurationError, UnsupportedError
from lazyfuse.io import chunks as geometry
from lazyfuse.io import handles
from lazyfuse.io.resolve import resolve, target
from tests.io import parts
from tests.io.test_sources import values

zarr = pytest.importorskip("zarr", minversion="3")

DTYPES = ["f8", ">i4", "?", "c8", "f2", "M8[s]", "S3", "U4"]


@pytest.mark.filterwarnings("ignore")  # zarr's about dtypes that its format 3 does not name yet
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("version", [2, 3])
def test_sources(tmp_path: Path, dtype: str, version: int) -> None:
    for shape, chunks in (((50, 33), (7, 5)), ((), ()), ((0, 4), (2, 2)), ((9,), (4,))):
        path = tmp_path / f"{len(shape)}-{shape}.zarr"
        array = zarr.create_array(
            path, shape=shape, chunks=chunks, dtype=dtype, zarr_format=version
        )
        expected = values(shape, dtype)
        array[...] = expected
        parts.compare(resolve(array, limit=1000), expected.astype(array.dtype), 5)
        opened = zarr.open_array(path, mode="r")
        parts.compare(resolve(str(path), limit=1000), expected.astype(opened.dtype), 5)


def test_shards(tmp_path: Path) -> None:
    array = zarr.create_array(
        tmp_path / "x.zarr", shape=(50, 33), chunks=(2, 4), shards=(10, 8), dtype="f8"
    )
    array[...] = values((50, 33))
    source = resolve(array, limit=700)
    assert source.chunks[0] == (10,) * 5
    parts.compare(source, values((50, 33)))
    small = resolve(array, limit=600)  # a shard is larger than that: its chunks are read
    assert max(small.chunks[0]) == 2
    parts.compare(small, values((50, 33)))


def test_chunks_are_whole_ones_of_the_storage(tmp_path: Path) -> None:
    array = zarr.create_array(tmp_path / "x.zarr", shape=(100, 90), chunks=(8, 10), dtype="f8")
    (rows, columns) = resolve(array, limit="30kB").chunks
    assert rows == (36, 36, 28) or all(size % 8 == 0 for size in rows[:-1])
    assert columns == (90,)
    assert resolve(array, chunks=(7, -1)).chunks[0] == (7,) * 14 + (2,)


def test_arrays_in_groups(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "g.zarr", mode="w")
    group.create_array("a/x", shape=(6,), dtype="f8")[:] = np.arange(6)
    for path in (tmp_path / "g.zarr" / "a" / "x", tmp_path / "g.zarr" / "a"):
        parts.compare(resolve(path), np.arange(6.0))
    parts.compare(resolve(f"{tmp_path}/g.zarr::a/x"), np.arange(6.0))
    parts.compare(resolve(group["a/x"]), np.arange(6.0))
    with pytest.raises(ConfigurationError, match="name one"):
        resolve(tmp_path / "g.zarr")


def test_other_stores(tmp_path: Path) -> None:
    store = zarr.storage.ZipStore(tmp_path / "x.zip", mode="w")
    zarr.create_array(store, shape=(9,), chunks=(4,), dtype="f8")[:] = np.arange(9)
    store.close()
    source = resolve(tmp_path / "x.zip")
    parts.compare(source, np.arange(9.0))
    in_memory = zarr.create_array({}, shape=(9,), chunks=(4,), dtype="f8")
    in_memory[:] = np.arange(9)
    source = resolve(in_memory)
    assert source.read((slice(2, 4),)).tolist() == [2, 3]
    with pytest.raises(UnsupportedError, match="use threads"):
        pickle.dumps(source)
    source.array.store.close()


def test_what_changed_since_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.zarr"
    array = zarr.create_array(path, shape=(9,), chunks=(4,), dtype="f8")
    source = resolve(path)
    source.read((slice(0, 9),))
    array.resize((12,))
    with pytest.raises(ConfigurationError, match="has changed"):
        source.read((slice(0, 9),))
    array.resize((9,))
    array.attrs["unit"] = "m"
    array[:] = 5
    assert (source.read((slice(0, 9),)) == 5).all()


# ------------------------------------------------------------------------------------ written


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("version", [2, 3])
def test_arrays_of_both_formats(tmp_path: Path, dtype: str, version: int) -> None:
    for shape in ((23, 17), (), (0, 3), (5,)):
        expected = values(shape, dtype)
        path = tmp_path / f"{shape}.zarr"
        place: Any = path
        if version == 2:  # a new one of ours has the newer format
            place = zarr.create_array(path, shape=shape, dtype=expected.dtype, zarr_format=2)
        parts.fill(target(place, shape, expected.dtype), expected)
        opened = zarr.open_array(path, mode="r")
        assert opened.metadata.zarr_format == version
        found = np.asarray(opened[...])
        assert found.shape == shape
        assert (found == expected).all()
    assert {each.name for each in tmp_path.iterdir()} == {
        f"{shape}.zarr" for shape in ((23, 17), (), (0, 3), (5,))
    }


def test_signs_of_zeros_and_nans_are_kept(tmp_path: Path) -> None:
    expected = np.array([-0.0, -0.0, 0.0, 0.0, np.nan, -0.0])
    made = target(tmp_path / "x.zarr", (6,), expected.dtype, ((2, 2, 2),))
    parts.fill(made, expected)
    assert parts.bits(zarr.open_array(tmp_path / "x.zarr")[:]) == parts.bits(expected)


def test_storage_follows_the_chunks_that_are_written(tmp_path: Path) -> None:
    def grain(shape: tuple[int, ...], written: Any) -> tuple[int, ...]:
        made = target(tmp_path / "x.zarr", shape, np.dtype("f8"), written)
        assert geometry.is_aligned(made.chunks, made.grain)
        return made.grain

    regular = ((4000,) * 5, (8000,))
    made = target(tmp_path / "x.zarr", (20_000, 8000), np.dtype("f8"), regular)
    assert made.chunks == regular
    assert 4000 % made.grain[0] == 0
    assert 2**22 < 8 * made.grain[0] * made.grain[1] < 2**26
    assert grain((30,), ((10, 10, 10),)) == (10,)
    assert grain((30,), ((7, 11, 12),)) == (12,), "these have to be written in other chunks"


def test_shards_of_the_user_are_written_whole(tmp_path: Path) -> None:
    expected = values((40, 40))
    path = tmp_path / "x.zarr"
    array = zarr.create_array(path, shape=(40, 40), chunks=(8, 8), shards=(16, 16), dtype="f8")
    made = target(array, (40, 40), expected.dtype)
    assert made.grain == (16, 16)
    parts.fill(made, expected)
    assert (array[...] == expected).all()


def test_failure_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "x.zarr"
    for former in (None, values((6, 6))):
        if former is not None:
            parts.fill(target(path, (6, 6), former.dtype), former)
        made = target(path, (8,), np.dtype("f4"), ((4, 4),))
        made.prepare()
        made.write((slice(0, 4),), np.ones(4, "f4"))
        if former is None:
            assert not path.exists()
        else:
            assert (zarr.open_array(path)[...] == former).all()
        made.abandon()
        made.abandon()
        assert sorted(tmp_path.iterdir()) == ([] if former is None else [path])
        if former is None:
            with pytest.raises(FileNotFoundError):
                resolve(path)
    parts.fill(made, np.arange(8, dtype="f4"))
    with pytest.raises(FileNotFoundError):
        made.finish()
    assert zarr.open_array(path)[...].tolist() == list(range(8))
    assert list(tmp_path.iterdir()) == [path]


def test_an_array_replaces_its_source(tmp_path: Path) -> None:
    path = tmp_path / "x.zarr"
    parts.fill(target(path, (6,), np.dtype("f8")), np.arange(6.0))
    source = resolve(path)
    parts.fill(target(path, (6,), np.dtype("f8")), source.read((slice(0, 6),)) * 2)
    parts.compare(resolve(path), np.arange(6) * 2.0)
    with pytest.raises(ConfigurationError, match="replaced"):
        source.read((slice(0, 6),))


def test_groups_are_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "x.zarr"
    zarr.open_group(path, mode="w").create_array("a", shape=(3,), dtype="f8")
    with pytest.raises(ConfigurationError, match="name an array in the group"):
        target(path, (3,), np.dtype("f8")).prepare()
    parts.fill(target(path / "b", (3,), np.dtype("f8")), np.arange(3.0))
    parts.fill(target(f"{path}::c", (3,), np.dtype("f8")), np.arange(3.0))
    assert sorted(zarr.open_group(path, mode="r").array_keys()) == ["a", "b", "c"]


def test_arrays_of_the_user(tmp_path: Path) -> None:
    for place in (tmp_path / "x.zarr", {}):
        array = zarr.create_array(place, shape=(20, 9), chunks=(6, 4), dtype="f8")
        expected = values((20, 9))
        made = target(array, (20, 9), np.dtype("f8"))
        assert made.grain == (6, 4)
        parts.fill(made, expected)
        assert (array[...] == expected).all()
        made.abandon()
        assert (array[...] == expected).all()
        array.store.close()
    with pytest.raises(ValueError, match="read-only"):
        target(zarr.open_array(tmp_path / "x.zarr", mode="r"), (20, 9), np.dtype("f8"))
    with pytest.raises(ValueError, match=r"\(20, 9\)"):
        target(zarr.open_array(tmp_path / "x.zarr"), (9, 20), np.dtype("f8"))
    handles.drop()
