"""What `save_chunks` leaves: through links what `numpy.save` would, and nothing where it fails."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array
import numpy
import pytest

import lazyfuse as np
from lazyfuse.io import targets
from lazyfuse.io.packages import package
from tests import campaign
from tests.campaign import rounds

pytestmark = campaign.TIMEOUT
VALUES = numpy.arange(600.0).reshape(60, 10)
FORMER = numpy.arange(12.0).reshape(4, 3)
KINDS = {"npy": "x.npy", "zarr": "x.zarr", "hdf5": "x.h5::/x", "hdf5 beside": "x.h5::/y"}
PLACES = [
    "nothing",
    "there",
    "link",
    "dangling link",
    "link to a link",
    "endless link",
    "linked folder",
]


class Middle(Exception):
    """A task fails."""


def chunked(fails_at: int, rows: int) -> Any:
    """The values in chunks of some rows; one task may fail."""

    def act(block: Any, block_info: Any = None) -> Any:
        if block_info[0]["chunk-location"][0] == fails_at:
            raise Middle
        return block * 1.0

    lazy = dask.array.from_array(VALUES, chunks=(rows, -1))
    return np.from_chunks(lazy.map_blocks(act, dtype="f8", meta=numpy.empty((0, 0))))


def write_former(path: Path, kind: str) -> None:
    if kind == "npy":
        numpy.save(path, FORMER)
    elif kind == "zarr":
        package("zarr").create_array(path, shape=FORMER.shape, dtype="f8")[...] = FORMER
    else:
        with package("h5py").File(path, "w") as file:
            file["x"] = FORMER


def lay(folder: Path, kind: str, place: str) -> Path:
    """Make what is there before; the path that is saved to."""
    name = KINDS[kind].partition("::")[0]
    (folder / "real").mkdir(parents=True)
    (folder / "links").mkdir()
    path, real = folder / "links" / name, folder / "real" / name
    if place in ("there", "link", "link to a link", "linked folder") or kind == "hdf5 beside":
        write_former(path if place == "there" else real, kind)
    if place in ("link", "dangling link"):
        path.symlink_to(real)
    elif place == "link to a link":
        (folder / "links" / "other").symlink_to(os.path.relpath(real, folder / "links"))
        path.symlink_to(folder / "links" / "other")
    elif place == "endless link":
        path.symlink_to(path)
    elif place == "linked folder":
        path.parent.rmdir()
        path.parent.symlink_to(real.parent)
    return path


def tree(folder: Path) -> dict[str, str]:
    """Every name in a folder that is no part of a zarr array, with what it is."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if not any(each.suffix == ".zarr" for each in path.parents):
            kind = "link to " + os.readlink(path) if path.is_symlink() else "file"
            found[str(path.relative_to(folder))] = (
                "folder" if kind == "file" and path.is_dir() else kind
            )
    return found


def read(path: Path, kind: str) -> Any:
    if kind == "npy":
        return numpy.load(path)
    if kind == "zarr":
        return package("zarr").open_array(path, mode="r")[...]
    with package("h5py").File(path, "r") as file:
        return file[KINDS[kind].partition("::/")[2]][...]


@rounds(60)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("on_threads")
def test_what_is_left(
    kind: str, seeds: range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like NumPy's file where all is written; where a task or the renaming fails, as before."""
    replace = os.replace

    def broken(*_: object) -> None:
        raise OSError("no room for a name")

    for seed in seeds:
        rng = random.Random(seed)
        place = rng.choice(PLACES)
        if kind == "hdf5 beside" and place in ("nothing", "dangling link", "endless link"):
            place = "link"
        path = lay(tmp_path / "here", kind, place)
        before = tree(tmp_path / "here")
        rows = rng.choice([1, 5, 7, 60])
        fault = rng.choice(["", "task", "task", "rename"])
        x = chunked(rng.randrange(-(-60 // rows)) if fault == "task" else -1, rows)
        target = str(path) + KINDS[kind][len(path.name) :]
        if fault == "rename" and kind != "hdf5 beside":
            monkeypatch.setattr(os, "replace", broken)
        error = attempt(lambda: np.save_chunks(target, x))  # noqa: B023
        monkeypatch.setattr(os, "replace", replace)
        what = f"seed {seed}: {place}, {fault or 'no fault'}: {error!r}"
        if place == "endless link":
            assert isinstance(error, OSError), what
            assert tree(tmp_path / "here") == before, what
        elif error is None:
            assert fault != "task", what
            assert numpy.array_equal(read(path, kind), VALUES), what
            after = tree(tmp_path / "here")
            assert {name: after.pop(name) for name in before} == before, what
            wanted = {"dangling link": {f"real/{path.name}"}, "nothing": {f"links/{path.name}"}}
            assert set(after) == wanted.get(place, set()), what
        else:
            assert isinstance(error, Middle if fault == "task" else OSError), what
            assert tree(tmp_path / "here") == before, what
            if path.exists() and kind != "hdf5 beside":
                assert numpy.array_equal(read(path, kind), FORMER), what
        shutil.rmtree(tmp_path / "here")


def attempt(act: Callable[[], object]) -> BaseException | None:
    """What comes of a call."""
    try:
        act()
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("place", PLACES[:-2])
@pytest.mark.usefixtures("on_threads")
def test_the_same_names_as_numpy_leaves(tmp_path: Path, place: str) -> None:
    ours, theirs = (lay(tmp_path / name, "npy", place) for name in ("ours", "theirs"))
    np.save_chunks(ours, chunked(-1, 7))
    numpy.save(theirs, VALUES)
    mine, other = tree(tmp_path / "ours"), tree(tmp_path / "theirs")
    assert mine == {name: each.replace("theirs", "ours") for name, each in other.items()}
    assert ours.read_bytes() == theirs.read_bytes()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="files are told by /proc")
@pytest.mark.parametrize("most", [targets.MANY, 2])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("synchronous")
def test_data_are_on_the_disk_before_the_name_is(
    kind: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file of the result and its folders are synchronised, then named, then the name is."""
    monkeypatch.setattr(targets, "MANY", most)
    path = lay(tmp_path / "here", kind, "there")
    done: list[tuple[str, str]] = []
    fsync, replace, everything = os.fsync, os.replace, os.sync

    def synchronised(file: int) -> None:
        done.append(("sync", os.readlink(f"/proc/self/fd/{file}")))
        fsync(file)

    def named(place: str, new: str) -> None:
        if new == str(path):  # zarr names files of its own
            names = [os.path.join(place, *folder) for folder in files_of(Path(place))]
            synced = {what for act, what in done if act == "sync"}
            assert ("all", "") in done or synced >= set(names)
            done.append(("name", new))
        replace(place, new)

    def all_of_it() -> None:
        done.append(("all", ""))
        everything()

    monkeypatch.setattr(os, "fsync", synchronised)
    monkeypatch.setattr(os, "replace", named)
    monkeypatch.setattr(os, "sync", all_of_it)
    np.save_chunks(str(path) + KINDS[kind][len(path.name) :], chunked(-1, 7))
    if "hdf5" in kind:  # a dataset in a file that was there
        assert ("sync", str(path)) in done
    else:
        assert done[-2:] == [("name", str(path)), ("sync", str(path.parent))]
        assert (("all", "") in done) == (kind == "zarr" and most == 2)


def files_of(place: Path) -> list[tuple[str, ...]]:
    """A file, or every file and folder in a folder and itself, as parts below it."""
    return [(), *[each.relative_to(place).parts for each in place.rglob("*")]]


def test_tasks_of_a_cluster_that_go_on_leave_nothing(cluster: Any, tmp_path: Path) -> None:
    for turn in range(2):
        with contextlib.suppress(Middle):
            np.save_chunks(tmp_path / f"x{turn}.zarr", chunked(3, 1))
    assert list(tmp_path.iterdir()) == []
