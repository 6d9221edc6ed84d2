"""The directory of object code: nothing that happens to it is an error."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyfuse
from lazyfuse.devices.cpu.device import CPU
from lazyfuse.devices.pools import disk_cache
from lazyfuse.devices.pools.disk_cache import DiskCache
from tests.devices.sources import launch_of, map_source


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "programs"


@pytest.fixture
def cache(place: Path) -> DiskCache:
    return DiskCache(str(place), 1 << 20)


def entry(place: Path, name: str) -> Path:
    return place / f"{name}.bin"


@pytest.mark.smoke
def test_what_is_put_is_found_by_another_cache(cache: DiskCache, place: Path) -> None:
    assert cache.is_empty()
    assert cache.look_up("one") == (None, "absent")
    assert cache.put("one", b"data")
    assert not cache.is_empty()
    assert cache.get("one") == b"data"
    other = DiskCache(str(place), 1 << 20)
    assert other.get("one") == b"data"
    assert other.holds("one")
    assert not other.holds("two")
    info = cache.info()
    assert (info["hits"], info["misses"], info["stores"], info["entries"]) == (1, 1, 1, 1)
    assert info["bytes"] == entry(place, "one").stat().st_size
    cache.clear()
    assert other.get("one") is None
    assert other.is_empty()
    assert list(place.iterdir()) == []


def test_the_directory_is_for_this_user_alone(cache: DiskCache, place: Path) -> None:
    cache.put("one", b"data")
    assert place.stat().st_mode & 0o077 == 0
    assert entry(place, "one").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: b"",
        lambda whole: whole[:-1],
        lambda whole: whole + b"x",
        lambda whole: whole[:20],
        lambda whole: whole[:-1] + bytes([whole[-1] ^ 1]),
        lambda whole: b"x" + whole[1:],
        lambda whole: b"\0" * len(whole),
    ],
)
def test_a_damaged_entry_is_not_used_and_goes(
    cache: DiskCache, place: Path, damage: Callable[[bytes], bytes]
) -> None:
    cache.put("one", b"data" * 100)
    path = entry(place, "one")
    path.write_bytes(damage(path.read_bytes()))
    assert cache.look_up("one") == (None, "damaged")
    assert not path.exists()
    assert cache.look_up("one") == (None, "absent")
    assert cache.info()["damaged"] == 1
    assert cache.put("one", b"data")
    assert cache.get("one") == b"data"


def test_an_entry_that_is_a_directory_is_no_entry(cache: DiskCache, place: Path) -> None:
    cache.put("two", b"data")
    entry(place, "one").mkdir()
    assert cache.get("one") is None
    assert not cache.put("one", b"data")
    assert cache.get("two") == b"data"
    assert cache.info()["failures"] == 1


def test_a_file_in_place_of_the_directory(place: Path) -> None:
    place.parent.mkdir()
    place.write_text("not a directory")
    cache = DiskCache(str(place), 1 << 20)
    assert not cache.put("one", b"data")
    assert cache.get("one") is None
    assert cache.info()["trouble"]
    cache.clear()
    assert place.read_text() == "not a directory"


def test_switched_off_it_touches_nothing(place: Path) -> None:
    for off in (DiskCache(str(place), 1 << 20, enabled=False), DiskCache("", 1 << 20)):
        assert not off.put("one", b"data")
        assert off.look_up("one") == (None, "disabled")
        assert not off.info()["enabled"]
    assert not place.exists()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
@pytest.mark.parametrize("function", ["open", "replace", "makedirs"])
def test_a_directory_that_cannot_be_written(
    cache: DiskCache, monkeypatch: pytest.MonkeyPatch, place: Path, function: str, number: int
) -> None:
    cache.put("one", b"data")
    calls = []
    genuine = getattr(os, function)

    def fail(*args: Any, **kwargs: Any) -> Any:
        if function == "open" and not args[1] & os.O_CREAT:
            return genuine(*args, **kwargs)  # reading works
        calls.append(args)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, function, fail)
    for _ in range(10):
        assert not cache.put("two", b"data")
    assert len(calls) == 3  # then it stops trying
    assert cache.get("one") == b"data"
    assert os.strerror(number) in cache.info()["trouble"]
    monkeypatch.undo()
    assert [path.name for path in place.iterdir()] == ["one.bin"]


def test_a_full_disk_while_writing_leaves_nothing_behind(
    cache: DiskCache, monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    cache.put("one", b"data")
    genuine = open

    class Full:
        def __init__(self, handle: int, mode: str) -> None:
            self.file = genuine(handle, mode)

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *exception: object) -> None:
            self.file.close()

        def write(self, content: bytes) -> None:
            self.file.write(content[:5])
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(disk_cache, "open", Full, raising=False)
    assert not cache.put("two", b"data")
    monkeypatch.undo()
    assert [path.name for path in place.iterdir()] == ["one.bin"]


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO])
def test_a_directory_that_cannot_be_read(
    cache: DiskCache, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    cache.put("one", b"data")

    def fail(*args: Any, **kwargs: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(disk_cache, "open", fail, raising=False)
    monkeypatch.setattr(os, "scandir", fail)
    assert cache.look_up("one") == (None, "absent")
    assert cache.names() == []
    assert cache.info()["entries"] == 0
    cache.clear()
    monkeypatch.setattr(os, "stat", fail)
    assert DiskCache(cache.directory, 1 << 20).get("one") is None


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="owners and modes are POSIX's")
@pytest.mark.parametrize("mode", [0o777, 0o775, 0o2770, 0o757, None])
def test_a_directory_of_somebody_else_is_not_used(
    cache: DiskCache, place: Path, monkeypatch: pytest.MonkeyPatch, mode: int | None
) -> None:
    """Others may write to it, or own it (None)."""
    cache.put("one", b"data")
    if mode is not None:
        place.chmod(mode)
    else:
        monkeypatch.setattr(disk_cache, "_ROOT", -1)
        monkeypatch.setattr(os, "geteuid", lambda: place.stat().st_uid + 1)
    other = DiskCache(str(place), 1 << 20)
    assert other.get("one") is None
    assert not other.put("two", b"data")
    assert "another user" in other.info()["trouble"]


def test_the_entries_unused_for_longest_go_first(place: Path) -> None:
    cache = DiskCache(str(place), 10_000)
    long_ago = time.time() - 10_000
    for number in range(8):
        assert cache.put(f"{number}", bytes(1000))
        os.utime(entry(place, f"{number}"), (long_ago + number, long_ago + number))
    assert cache.get("0") is not None  # used now
    assert cache.put("8", bytes(1500))
    assert cache.put("9", bytes(1500))
    left = set(cache.names())
    assert cache.info()["bytes"] <= 8_000
    assert {"0", "9"} <= left
    assert not {"1", "2"} & left


def test_an_entry_beyond_the_limit_is_not_kept(place: Path) -> None:
    cache = DiskCache(str(place), 1000)
    cache.put("large", bytes(5000))
    assert cache.info()["bytes"] <= 1000


def test_leftovers_of_dead_processes_are_removed(cache: DiskCache, place: Path) -> None:
    cache.put("one", b"data")
    old, new = place / "1-2-3.tmp", place / "4-5-6.tmp"
    old.write_bytes(b"half")
    new.write_bytes(b"half")
    os.utime(old, (0, 0))
    cache.names()
    assert not old.exists()
    assert new.exists()


def test_threads_may_share_a_directory(place: Path) -> None:
    caches = [DiskCache(str(place), 20_000) for _ in range(4)]
    wrong: list[bytes] = []

    def use(number: int) -> None:
        for turn in range(150):
            name = f"{(turn * 7 + number) % 20}"
            found = caches[number].get(name)
            if found is not None and found != name.encode() * 1000:
                wrong.append(found)
            caches[number].put(name, name.encode() * 1000)
            if turn % 50 == 49:
                caches[number].clear()

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert all(cache.info()["damaged"] == 0 for cache in caches)


def test_processes_may_share_a_directory(place: Path) -> None:
    script = """
import sys
from lazyfuse.devices.pools.disk_cache import DiskCache
cache = DiskCache(sys.argv[1], 8_000)
for turn in range(300):
    name = str(turn % 13)
    found = cache.get(name)
    assert found in (None, name.encode() * 500), found
    cache.put(name, name.encode() * 500)
assert cache.info()["damaged"] == 0, cache.info()
"""
    running = [subprocess.Popen([sys.executable, "-c", script, str(place)]) for _ in range(2)]
    assert [process.wait() for process in running] == [0, 0]


@pytest.mark.parametrize("trouble", ["damaged", "read-only", "vanishing", "garbage"])
def test_a_device_computes_whatever_happens_to_its_directory(
    place: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    source = map_source("a1[i] = a0[i] * 3.0", ("f8", "f8"))
    data, out = np.arange(100.0), np.zeros(100)

    def run() -> CPU:
        cpu = CPU(threads=2, threads_above=1, disk=DiskCache(str(place), 1 << 20))
        out[:] = 0
        cpu.compile(source).launch(launch_of((data, out), (), 4))
        np.testing.assert_array_equal(out, data * 3.0)
        return cpu

    run()
    files = list(place.iterdir())
    assert len(files) >= 2  # the program, and the loops that run its chunks
    if trouble == "damaged":
        for path in files:
            path.write_bytes(path.read_bytes()[:-3])
    elif trouble == "vanishing":
        for path in files:
            path.unlink()
        place.rmdir()
    elif trouble == "garbage":
        cache = DiskCache(str(place), 1 << 20)
        for path in files:  # intact entries, but not object code
            cache.put(path.stem, b"\x7fELF\x02\x01 not an object file")
    else:
        for path in files:
            path.unlink()

        def fail(*args: Any, **kwargs: Any) -> None:
            raise OSError(errno.EROFS, "Read-only file system")

        monkeypatch.setattr(os, "open", fail)
    cpu = run()
    assert cpu.info()["programs"]["built"] == 1
    reason = {"damaged": "damaged", "garbage": "damaged"}.get(trouble, "first seen")
    assert cpu.why_missed(source) == reason
    if trouble != "read-only":
        assert run().info()["programs"]["built"] == 0


# ------------------------------------------------- what stands in the place of an entry


def test_an_entry_is_bound_to_its_name(cache: DiskCache, place: Path) -> None:
    cache.put("one", b"data")
    cache.put("two", b"others")
    first, second = entry(place, "one").read_bytes(), entry(place, "two").read_bytes()
    entry(place, "one").write_bytes(second)
    entry(place, "two").write_bytes(first)
    assert cache.look_up("one") == (None, "damaged")
    assert cache.look_up("two") == (None, "damaged")
    assert cache.names() == []
    assert cache.put("one", b"data")
    assert cache.get("one") == b"data"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes in folders are POSIX's")
def test_a_pipe_is_damage_and_nobody_waits_for_it(cache: DiskCache, place: Path) -> None:
    cache.put("one", b"data")
    entry(place, "one").unlink()
    os.mkfifo(entry(place, "one"))
    assert cache.look_up("one") == (None, "damaged")
    assert cache.put("one", b"data")
    assert cache.get("one") == b"data"


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="links of this kind are POSIX's")
def test_links_and_folders_are_no_entries(cache: DiskCache, place: Path, tmp_path: Path) -> None:
    cache.put("one", b"data")
    entry(place, "one").rename(tmp_path / "elsewhere")
    entry(place, "one").symlink_to(tmp_path / "elsewhere")
    assert cache.look_up("one") == (None, "absent")
    assert cache.put("one", b"data")
    entry(place, "one").unlink()
    entry(place, "one").mkdir()
    assert cache.get("one") is None


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="owners and modes are POSIX's")
@pytest.mark.parametrize("change", ["mode", "owner"])
def test_a_file_of_somebody_else_is_not_read(
    cache: DiskCache, place: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """It may have been planted while the folder was open to others."""
    cache.put("one", b"data")
    assert cache.get("one") == b"data"
    if change == "mode":
        entry(place, "one").chmod(0o664)
    else:
        monkeypatch.setattr(disk_cache, "_ROOT", -1)
        monkeypatch.setattr(os, "geteuid", lambda: place.stat().st_uid + 1)
    assert cache.get("one") is None
    assert "another user" in cache.info()["trouble"]


def test_a_name_that_no_folder_can_have_stops_nothing() -> None:
    cache = DiskCache("a\0b", 1 << 20)
    assert not cache.put("one", b"data")
    assert cache.look_up("one") == (None, "absent")
    assert not cache.can_store()
    assert not cache.holds("o")
    cache.remove("one")
    assert cache.info()["entries"] == 0
    before = lazyfuse.options.cache_dir
    with pytest.raises(ValueError, match="cache_dir"):
        lazyfuse.options(cache_dir="a\0b")
    assert lazyfuse.options.cache_dir == before
