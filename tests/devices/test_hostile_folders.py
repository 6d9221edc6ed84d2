"""Folders of programs in which others have been: nothing of theirs is read, followed or waited for.

Each round puts links, pipes, folders, files of another user and files that others may write in the
places of entries, of the lock and of leftovers, and then uses the folder in a random order. Files
outside stay as they were, an entry has the bytes that were put, and work for the process that
compiles after the program reaches it and nobody else.
"""

from __future__ import annotations

import os
import pickle
import random
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lazyfuse.devices.cpu import compile_after_exit
from lazyfuse.devices.pools import compile_worker
from lazyfuse.devices.pools.disk_cache import DiskCache
from tests import campaign
from tests.campaign import rounds
from tests.devices.sources import times

pytest.importorskip("fcntl", reason="owners, modes and locks of files are POSIX's")
pytestmark = campaign.TIMEOUT
STRANGER = 1234
PRECIOUS = b"precious data" * 50
NAMES = ("one", "two", "three")


class Hostile:
    """A folder, and around it what must stay as it is."""

    def __init__(self, place: Path, rng: random.Random) -> None:
        self.rng = rng
        self.place = place
        self.folder = place / "programs"
        self.victim, self.missing = place / "victim", place / "missing"
        self.victim.write_bytes(PRECIOUS)
        self.victim.chmod(0o600)
        self.disk = DiskCache(str(self.folder), 1 << 16)
        self.put = {name: rng.randbytes(rng.randrange(2000)) for name in NAMES}
        for name, data in self.put.items():
            assert self.disk.put(name, data)

    def plant(self, path: Path) -> str:
        """Put something in the place of a file; what it is."""
        kinds = [
            "nothing", "garbage", "link", "dangling link", "link to itself", "hard link", "folder",
            "full folder", "pipe", "open to all", "open to the group", "huge",
        ]  # fmt: skip
        kind = self.rng.choice([*kinds, *(["stranger's"] * 3 if os.geteuid() == 0 else [])])
        genuine = path.read_bytes() if path.is_file() else b""
        if kind == "nothing":
            return kind
        path.unlink(missing_ok=True)
        if kind in ("link", "dangling link", "link to itself"):
            path.symlink_to({"link": self.victim, "dangling link": self.missing}.get(kind, path))
        elif kind == "hard link":
            os.link(self.victim, path)
        elif "folder" in kind:
            path.mkdir()
            if kind == "full folder":
                (path / "x").write_bytes(PRECIOUS)
        elif kind == "pipe":
            os.mkfifo(path)
        elif kind == "huge":
            path.touch()
            os.truncate(path, 1 << self.rng.choice([10, 20, 40]))
        else:
            # with a digest that fits: only who wrote the file tells it from a genuine one
            path.write_bytes(self.rng.randbytes(99) if kind == "garbage" else genuine)
            modes = {"open to all": 0o606, "open to the group": 0o660, "stranger's": 0o666}
            path.chmod(modes.get(kind, 0o600))
            if kind == "stranger's":
                os.chown(path, STRANGER, STRANGER)
        return kind

    def is_whole(self) -> bool:
        """Whether what lies outside the folder is as it was."""
        status = self.victim.stat()
        return (
            self.victim.read_bytes() == PRECIOUS
            and stat.S_IMODE(status.st_mode) == 0o600
            and not self.missing.exists()
            and {each.name for each in self.place.iterdir()} == {"programs", "victim"}
        )


def use(hostile: Hostile, planted: dict[str, str], given: list[Any]) -> None:
    """Everything that a program does with its folder, in some order."""
    disk, rng = DiskCache(str(hostile.folder), 1 << 16), hostile.rng

    def read() -> None:
        for name in NAMES:
            found = disk.get(name)
            assert found in (None, hostile.put[name])
            if planted.get(f"{name}.bin") not in (None, "nothing"):
                assert found is None, planted

    def store() -> None:
        name = rng.choice(NAMES)
        if disk.put(name, hostile.put[name]):
            planted.pop(f"{name}.bin", None)

    def leave() -> None:
        given.clear()
        work = [times(2), times(3)]
        if compile_after_exit.leave(work, disk) is not None:
            _, _, found = given[0]
            assert found == work
        else:
            assert planted[compile_after_exit.LOCK] in ("folder", "full folder")

    acts: list[Callable[[], object]] = [read, store, leave, disk.names, disk.info, disk.is_empty]
    for act in rng.sample(acts, len(acts)):
        act()
        assert hostile.is_whole(), (act, planted)
    disk.clear()


@rounds(150)
def test_nothing_of_others_is_taken(
    seeds: range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []

    def start(main: str, inherited: Any) -> object:
        work = inherited[-1]
        status = os.fstat(work)
        assert status.st_nlink == 0, "another process can open the work"
        assert status.st_uid == os.geteuid()
        assert stat.S_IMODE(status.st_mode) == 0o600
        lock = os.fstat(inherited[0])
        assert stat.S_ISREG(lock.st_mode)
        assert not lock.st_mode & 0o022
        assert lock.st_uid == os.geteuid()
        with open(work, "rb", closefd=False) as file:
            given.append(pickle.load(file))
        return given

    monkeypatch.setattr(compile_worker, "start", start)
    for seed in seeds:
        place = tmp_path / "here"
        place.mkdir()
        hostile = Hostile(place, random.Random(seed))
        names = [*(f"{name}.bin" for name in NAMES), compile_after_exit.LOCK, "1-1-1.tmp"]
        planted = {name: hostile.plant(hostile.folder / name) for name in names}
        use(hostile, planted, given)
        assert hostile.is_whole(), planted
        shutil.rmtree(place)
