"""What a short program leaves uncompiled is on disk some seconds later, whoever watches."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import weakref
from pathlib import Path
from typing import Any

import pytest

from lazyfuse.devices.base import Source
from lazyfuse.devices.cpu import compile_after_exit
from lazyfuse.devices.cpu.device import CPU
from lazyfuse.devices.pools import compile_worker
from lazyfuse.devices.pools.disk_cache import DiskCache
from tests.devices.sources import map_source, times

pytest.importorskip("fcntl", reason="locks of files are not to be had here")
LONG = 500.0  # seconds: on a busy machine a process of the lowest priority waits for long
pytestmark = pytest.mark.timeout(600)


def disk_of(folder: Path) -> DiskCache:
    return DiskCache(str(folder / "programs"), 1 << 24)


def until(condition: Any) -> bool:
    end = time.monotonic() + LONG
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return bool(condition())


def is_free(folder: Path) -> bool:
    """Whether no process is at work for a folder."""
    import fcntl

    with open(folder / "programs" / compile_after_exit.LOCK, "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_sources_are_on_disk_when_the_process_has_ended_F11(tmp_path: Path) -> None:
    wrong = map_source("a1[i] = nonsense(a0[i])", ("f8", "f8"), name="wrong")
    process = compile_after_exit.leave([times(2), wrong, times(3)], disk_of(tmp_path))
    assert process is not None
    assert until(lambda: is_free(tmp_path))
    found = CPU(disk=disk_of(tmp_path), ahead=True)
    assert [found.cached(each) for each in (times(2), wrong, times(3))] == [True, False, True]
    assert found.soon(times(3)) is not None
    assert found.info()["programs"]["loaded"] == 1


def test_one_process_for_a_folder(tmp_path: Path) -> None:
    first = compile_after_exit.leave([times(4)], disk_of(tmp_path))
    assert first is not None
    assert compile_after_exit.leave([times(5)], disk_of(tmp_path)) is None
    assert until(lambda: is_free(tmp_path))
    device = CPU(disk=disk_of(tmp_path))
    assert device.cached(times(4))
    assert not device.cached(times(5))


def test_a_folder_that_is_gone_stays_gone(tmp_path: Path) -> None:
    disk = disk_of(tmp_path)
    assert compile_after_exit.leave([times(6)], disk) is not None
    kept = os.open(tmp_path / "programs" / compile_after_exit.LOCK, os.O_RDWR)
    (tmp_path / "programs" / compile_after_exit.LOCK).unlink()
    (tmp_path / "programs").rmdir()

    import fcntl

    def ended() -> bool:
        try:
            fcntl.flock(kept, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    assert until(ended)
    os.close(kept)
    assert not (tmp_path / "programs").exists()


def test_nothing_is_started_where_nothing_can_be_kept_E2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compile_after_exit.leave([], disk_of(tmp_path)) is None
    assert compile_after_exit.leave([Source("numpy", "", "", 0, (), ())], disk_of(tmp_path)) is None
    assert compile_after_exit.leave([times(2)], DiskCache("", 0, enabled=False)) is None
    (tmp_path / "file").write_text("")
    assert compile_after_exit.leave([times(2)], DiskCache(str(tmp_path / "file"), 1)) is None
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python-that-is-not-there"))
    assert compile_after_exit.leave([times(2)], disk_of(tmp_path)) is None
    assert is_free(tmp_path)


SCRIPT = """
import numpy
import lazyfuse as np
a = np.array(numpy.arange(300_000.0))
print(float((a * 2.0 + 1.0)[7]))
"""


@pytest.mark.parametrize("on", [True, False])
def test_programs_of_a_short_script_reach_the_disk_F11(tmp_path: Path, on: bool) -> None:
    plain = {k: v for k, v in os.environ.items() if not k.startswith("LAZYFUSE_")}
    environment = plain | {
        "LAZYFUSE_CACHE_DIR": str(tmp_path),
        "LAZYFUSE_COMPILE_AFTER_EXIT": "on" if on else "off",
        "LAZYFUSE_PLAN_AFTER": "0",  # else NumPy runs what is new
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT],
        env=environment, capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "15.0\n", "")
    assert (tmp_path / "programs" / compile_after_exit.LOCK).exists() is on
    if on:
        assert until(lambda: is_free(tmp_path))
        assert disk_of(tmp_path).names()


def test_who_closes_the_worker_leaves_nothing(tmp_path: Path) -> None:
    left = []
    worker = compile_worker.Worker(lambda *_: None, lambda *_: None, lambda: left.append(1))
    assert worker.want(times(2))
    worker.close()
    compile_worker._end_of_program(weakref.ref(worker))
    assert left == []

    other = compile_worker.Worker(lambda *_: None, lambda *_: None, lambda: left.append(1))
    assert other.want(times(2))
    compile_worker._end_of_program(weakref.ref(other))
    assert left == [1]
    assert not other.want(times(2))
