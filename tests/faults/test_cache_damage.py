"""A folder of programs that is damaged at random while it is used: right values, only slower.

Files are cut, flipped, exchanged, replaced by folders, pipes and links, given to others; the folder
goes, comes back, cannot be written, is full. What a device says of it is in its report.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy
import pytest

from lazyfuse.devices.cpu.device import CPU
from lazyfuse.devices.pools.disk_cache import DiskCache
from tests import campaign
from tests.devices.sources import launch_of, times
from tests.faults.children import Runs

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in folders here"),
    campaign.TIMEOUT,
]
FACTORS = (2, 3, 5)

# ----------------------------------------------------------------------------------- of one file


def cut(path: Path, draw: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: draw.randrange(path.stat().st_size)])


def flip(path: Path, draw: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(draw.choice((1, 1, 8))):
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def append(path: Path, draw: random.Random) -> None:
    path.write_bytes(path.read_bytes() + draw.randbytes(draw.randrange(1, 99)))


def exchange(path: Path, draw: random.Random) -> None:
    other = draw.choice(sorted(path.parent.glob("*.bin")))
    mine = path.read_bytes()
    path.write_bytes(other.read_bytes())
    other.write_bytes(mine)


def folder_instead(path: Path, draw: random.Random) -> None:
    path.unlink()
    path.mkdir()
    if draw.random() < 0.5:
        (path / "something").write_text("")


def pipe_instead(path: Path, draw: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def link_instead(path: Path, draw: random.Random) -> None:
    target = draw.choice([path.with_suffix(".moved"), Path("/dev/zero"), Path("nowhere"), path])
    if target.suffix == ".moved":
        path.rename(target)
    else:
        path.unlink()
    path.symlink_to(target)


def unreadable(path: Path, draw: random.Random) -> None:
    path.chmod(draw.choice((0o000, 0o200, 0o666)))


def of_somebody_else(path: Path, draw: random.Random) -> None:
    with suppress(PermissionError):
        os.chown(path, 1234, 1234)


def gone(path: Path, draw: random.Random) -> None:
    path.unlink()


OF_FILES: tuple[Callable[[Path, random.Random], None], ...] = (
    cut, flip, append, exchange, folder_instead, pipe_instead, link_instead, unreadable,
    of_somebody_else, gone,
)  # fmt: skip

# --------------------------------------------------------------------------------- of the folder


def no_folder(folder: Path, draw: random.Random) -> None:
    shutil.rmtree(folder)


def file_instead(folder: Path, draw: random.Random) -> None:
    shutil.rmtree(folder)
    folder.write_text("no folder")


def closed_folder(folder: Path, draw: random.Random) -> None:
    folder.chmod(draw.choice((0o500, 0o000, 0o777, 0o770)))


def link_to_another(folder: Path, draw: random.Random) -> None:
    other = folder.with_suffix(".moved")
    folder.rename(other)
    folder.symlink_to(draw.choice((other, folder.parent / "nowhere")))


OF_FOLDERS = (no_folder, file_instead, closed_folder, link_to_another)


def damage(folder: Path, draw: random.Random) -> None:
    """Something that happens to the folder."""
    if draw.random() < 0.2:
        draw.choice(OF_FOLDERS)(folder, draw)
        return
    paths = [path for path in sorted(folder.glob("*.bin")) if path.is_file()]
    if paths:
        draw.choice(OF_FILES)(draw.choice(paths), draw)


def mend(folder: Path) -> None:
    """An empty place again, if it is no folder of ours any more."""
    if folder.is_symlink() or folder.is_file():
        folder.unlink()
    elif folder.exists():
        folder.chmod(0o700)
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.is_symlink() or not path.is_file() or path.suffix != ".bin":
                path.unlink()
    other = folder.with_suffix(".moved")
    if other.exists():
        shutil.rmtree(other)


def check(device: CPU, factor: int) -> None:
    """The device makes or finds a program, which computes what it should."""
    x, y = numpy.arange(7.0), numpy.empty(7)
    device.compile(times(factor)).launch(launch_of((x, y)))
    assert y.tolist() == (x * factor).tolist()


@campaign.rounds(12)
def test_whatever_happens_to_the_folder(seeds: range, tmp_path: Path) -> None:
    folder = tmp_path / "programs"
    for seed in seeds:
        draw = random.Random(seed)
        mend(folder)
        device = CPU(disk=DiskCache(str(folder), 1 << 24))
        check(device, 2)  # something is there, and in use
        for _ in range(draw.randrange(1, 5)):
            with suppress(OSError):  # of what is damaged already
                damage(folder, draw)
            check(device, draw.choice(FACTORS))
            device.programs.clear()
        other = CPU(disk=DiskCache(str(folder), 1 << 24))
        for factor in FACTORS:
            check(other, factor)
        disk = other.info()["programs"]["disk"]
        built = other.info()["programs"]["built"]
        assert disk["hits"] + built >= len(FACTORS), disk
    mend(folder)


FULL = """
import resource, signal, sys
from tests.faults import endless_program
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
import io
sys.stdout = io.StringIO()
endless_program.main(int(sys.argv[2]), "inside", 1)
import lazyfuse
disk = lazyfuse.cache_info()["programs"]["disk"]
assert f"programs on disk  {disk['trouble']}" in str(lazyfuse.report()), lazyfuse.report()
sys.stderr.write(f"{disk['failures']} {disk['stores']} {disk['trouble']}")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits sizes of files")
def test_no_room_for_any_file(tmp_path: Path) -> None:
    """As on a full disk: nothing is kept, nothing half written stays, and the report says so."""
    runs = Runs(tmp_path)
    command = [sys.executable, "-c", FULL, "200", "5"]
    done = subprocess.run(
        command,
        env=runs.environment | {"LAZYFUSE_PLAN_AFTER": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    failures, stores, trouble = done.stderr.split(maxsplit=2)
    assert int(failures)
    assert stores == "0"
    assert "too large" in trouble
    assert [path for path in runs.cache.rglob("*") if path.is_file()] == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mounts a small disk")
def test_a_full_disk(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    runs.cache.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=12k", "none", str(runs.cache)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("nobody but root mounts disks")
    try:
        out = runs.run("tests.faults.endless_program", 6, "inside", 3)
        assert out.splitlines()[-1].startswith("done")
        assert runs.left() == []
    finally:
        subprocess.run(["umount", "-l", str(runs.cache)], check=True)
