"""What users write: `from_chunks`, `save_chunks`, `device("dask")`, `explain`, the report."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.array
import numpy
import pytest

import lazyfuse as np

pytestmark = pytest.mark.usefixtures("on_threads")

DATA = numpy.random.default_rng(3).normal(2.0, 3.0, (4000, 6))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "data.npy"
    numpy.save(found, DATA)
    return found


@pytest.fixture
def small_chunks() -> Iterator[None]:
    """Everything above ten kilobytes is large."""
    with np.options(chunk_bytes=10_000, chunk_memory=1000):
        yield


def standardised(x: Any) -> Any:
    return ((x - x.mean(axis=0)) / x.std(axis=0)).clip(-1, 1)


@pytest.mark.parametrize("name", ["out.npy", "out.zarr", "out.h5::/group/x"])
def test_from_a_file_to_a_file(file: Path, tmp_path: Path, name: str) -> None:
    if ".zarr" in name:
        pytest.importorskip("zarr")
    if ".h5" in name:
        pytest.importorskip("h5py")
    x = np.from_chunks(file, chunks=(700, -1))
    assert x.device == "dask"
    np.save_chunks(f"{tmp_path}/{name}", standardised(x))
    found = np.from_chunks(f"{tmp_path}/{name}")
    numpy.testing.assert_allclose(numpy.asarray(found), standardised(DATA), atol=1e-12)


def test_a_file_that_is_read_is_not_written_over(file: Path) -> None:
    x = np.from_chunks(file, chunks=(700, -1))
    opened = numpy.load(file, mmap_mode="r+")
    with pytest.raises(ValueError, match="is read by what is to be written"):
        np.save_chunks(opened, x[::-1])
    numpy.testing.assert_array_equal(opened, DATA)
    np.save_chunks(file, x[::-1] * 2)  # a new file takes the name when it is complete
    numpy.testing.assert_array_equal(numpy.load(file), DATA[::-1] * 2)


@pytest.mark.usefixtures("small_chunks")
def test_out_of_a_ufunc_may_be_a_memmap(file: Path, tmp_path: Path) -> None:
    out: Any = numpy.lib.format.open_memmap(tmp_path / "o.npy", "w+", "f8", DATA.shape)
    x = np.from_chunks(file)
    assert np.multiply(x, 2, out=out) is out
    numpy.testing.assert_array_equal(out, DATA * 2)
    same = numpy.load(file, mmap_mode="r+")
    np.subtract(x, x[::-1], out=same)  # reads what it writes: as NumPy does it
    numpy.testing.assert_array_equal(same, DATA - DATA[::-1])


@pytest.mark.usefixtures("small_chunks")
def test_a_mapped_file_larger_than_the_memory_for_chunks_is_read_in_chunks(file: Path) -> None:
    data = numpy.arange(300_000.0).reshape(-1, 3)
    numpy.save(file, data)
    x = np.load(file, mmap_mode="r")
    y = x[1:] * 2 - x[:-1]
    assert "tasks of Dask" in str(np.explain(y))
    numpy.testing.assert_array_equal(numpy.asarray(y), data[1:] * 2 - data[:-1])


@pytest.mark.usefixtures("small_chunks")
def test_a_dataset_larger_than_the_memory_for_chunks_is_read_in_chunks(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as made:
        made["x"] = DATA
    with h5py.File(tmp_path / "x.h5", "r") as opened:
        x = np.asarray(opened["x"])
        assert x.device == "dask"
        numpy.testing.assert_array_equal(numpy.asarray(x[1:] - x[:-1]), DATA[1:] - DATA[:-1])
    small = numpy.arange(5.0)
    with np.options(chunk_memory=1 << 30):
        assert np.asarray(small).device == "cpu"


def test_without_dask_the_error_says_what_to_install(tmp_path: Path) -> None:
    program = f"""
import sys
sys.modules["dask"] = sys.modules["dask.array"] = None
import lazyfuse as np
for call in (lambda: np.from_chunks({str(tmp_path)!r}), lambda: np.ones(3).to_dask()):
    try:
        call()
    except NotImplementedError as error:
        print(str(error)[-30:])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.count("pip install 'lazyfuse[dask]'") == 2, done.stderr


def test_an_array_that_is_written_to_later_does_not_show(file: Path) -> None:
    mine = DATA.copy()
    y = np.from_chunks(mine, chunks=(700, -1)) * 2
    mine[:] = 0
    numpy.testing.assert_array_equal(numpy.asarray(y), DATA * 2)


def test_new_arrays_are_in_chunks_on_the_device() -> None:
    with np.device("dask", chunks=10_000):
        a = np.arange(100_000)
        b = np.linspace(0.0, 1.0, 10_000)
        rng = np.random.default_rng(5)
        c, d = rng.normal(size=(1000, 10)), rng.random((1000, 10))
        assert {x.device for x in (a, b, c, d)} == {"dask"}
        assert np.arange(5).device == "cpu"
        z = np.zeros((500, 30))
        z[3:9, ::2] = 4
        assert float(z.sum()) == 4 * 6 * 15
    numpy.testing.assert_array_equal(numpy.asarray(a), numpy.arange(100_000))
    numpy.testing.assert_array_equal(numpy.asarray(b), numpy.linspace(0.0, 1.0, 10_000))
    with np.device("dask", chunks=10_000):
        again = np.random.default_rng(5).normal(size=(1000, 10))
    numpy.testing.assert_array_equal(numpy.asarray(again), numpy.asarray(c))
    assert abs(float(c.mean())) < 0.2


def test_explain_shows_stages_and_tasks_and_runs_nothing(file: Path) -> None:
    x = np.from_chunks(file, chunks=(1000, -1))
    text = str(np.explain(standardised(x)))
    file.unlink()
    assert "tasks of Dask on threads of this process" in text
    assert "4 chunks of [1000, 6]" in text
    assert text.count("stage") == 3


def test_the_report_counts_tasks_by_kernel(file: Path) -> None:
    np.report(reset=True)
    assert float((np.from_chunks(file, chunks=(1000, -1)) * 2).sum()) == pytest.approx(
        2 * DATA.sum()
    )
    (found,) = np.report().tasks
    assert (found.worker, found.kernel, found.count) == ("threads", "multiply-add", 4)
    assert "multiply-add on threads" in str(np.report())


def test_dask_arrays_go_in_and_out(file: Path) -> None:
    theirs = dask.array.from_array(DATA, chunks=(900, 3))
    x = np.from_chunks(theirs)
    assert x.to_dask().chunks == theirs.chunks
    numpy.testing.assert_array_equal((x * 2).to_dask().compute(), DATA * 2)
    assert isinstance(x + theirs, dask.array.Array)
    assert dask.array.asarray(x).chunks == theirs.chunks
    assert np.concatenate([x, theirs]).chunks[0] == 2 * theirs.chunks[0]
    numpy.testing.assert_array_equal((x + theirs).compute(), DATA * 2)


def test_resident_tells_chunks_and_where_they_are(file: Path) -> None:
    x = np.from_chunks(file, chunks=(1000, -1))
    y = np.persist(x * 2)
    texts = [str(each) for each in np.resident()]
    assert any("4 chunks of 1000x6" in text and str(file) in text for text in texts)
    assert any("4 chunks of 1000x6, in this process" in text for text in texts)
    assert y.device == "dask"


def test_what_is_not_read_in_chunks_says_so() -> None:
    with pytest.raises(NotImplementedError, match="give a path"):
        np.from_chunks(object())
    with pytest.raises(NotImplementedError, match="cast it"):
        np.from_chunks(numpy.array(["a", "b"]))
