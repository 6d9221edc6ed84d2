"""Processes killed at random moments: who shares their cache is right, and nothing stays behind.

Children evaluate, compile in themselves or in their worker, load programs and write them to disk;
each compares itself with NumPy all the time. After the last one no process, no temporary file and
no lock may be left, and a new process has to find the cache usable.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest

from lazyfuse.devices.cpu import compile_after_exit
from lazyfuse.devices.pools.disk_cache import DiskCache
from tests import campaign
from tests.devices.sources import endless, times
from tests.faults.children import PATIENCE, Runs, until

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks for processes in /proc"),
    campaign.TIMEOUT,
]
PROGRAM = "tests.faults.endless_program"
WAYS = ("inside", "ahead", "ahead", "numpy")
TOGETHER = 2  # children at once, which share the cache
SPAN = {"inside": 3.0, "ahead": 4.0, "numpy": 0.5}  # seconds in which it happens


@campaign.rounds(4)
def test_killed_programs_leave_nothing(
    seeds: range, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, slowest = Runs(tmp_path), 0.0
    for first in range(seeds.start, seeds.stop, TOGETHER):
        draw = random.Random(first)
        ways = draw.choices(WAYS, k=TOGETHER)
        # others meet the programs that these have left on disk
        children = [runs.start(PROGRAM, draw.randrange(40), how) for how in ways]
        for child, how in zip(children, ways, strict=True):
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            time.sleep(draw.random() * SPAN[how])
            child.kill()
            out, errors = child.communicate(timeout=PATIENCE)
            assert (child.returncode, errors) == (-signal.SIGKILL, ""), (first, how, out)
        slowest = max(slowest, runs.ended())
        if (first - seeds.start) % (10 * TOGETHER) == 0:
            runs.run(PROGRAM, draw.randrange(40), "inside", 2)
    runs.run(PROGRAM, 3, "ahead", 4)
    runs.ended()
    at_most_cut_off(runs, kills=len(seeds))
    say(capsys, f"{len(seeds)} kills, what lived on ended within {slowest:.2f} s; {found(runs)}")


def found(runs: Runs) -> str:
    """What is on disk; every entry has to be a whole one."""
    disk = DiskCache(str(runs.cache / "programs"), 1 << 30)
    assert all(disk.look_up(name)[1] == "" for name in disk.names())
    return f"{len(disk.names())} entries on disk, {len(runs.left())} files cut off"


def at_most_cut_off(runs: Runs, kills: int) -> None:
    """A kill may cut off the file that is being written; an hour later the cache removes it."""
    assert all(path.endswith(".tmp") for path in runs.left())
    assert len(runs.left()) <= kills


def say(capsys: pytest.CaptureFixture[str], text: str) -> None:
    with capsys.disabled():
        print(f"\n    {text}", end="")


@campaign.rounds(1, 10**4)
def test_a_killed_worker_costs_time_alone(seeds: range, tmp_path: Path) -> None:
    """The program goes on, whatever its compiler's process was doing when it ended."""
    runs = Runs(tmp_path)
    for seed in seeds:
        draw = random.Random(seed)
        child = runs.start(PROGRAM, seed, "ahead")
        assert child.stdout is not None
        killed = 0
        while killed < 2:
            line = child.stdout.readline().split()
            assert line, child.stderr and child.stderr.read()
            assert line[0] in ("ready", "done"), line
            if line[0] == "done" and int(line[2]) and draw.random() < 0.3:
                time.sleep(draw.random() * 0.3)
                try:
                    os.kill(int(line[2]), signal.SIGKILL)
                    killed += 1
                except ProcessLookupError:
                    continue
        for _ in range(5):
            assert child.stdout.readline().split()[0] == "done"
        child.kill()
        child.communicate(timeout=PATIENCE)
        runs.ended()
    at_most_cut_off(runs, kills=3 * len(seeds))  # the program may be writing when it is killed


@campaign.rounds(2, 2 * 10**4)
def test_a_killed_compiler_after_the_end_holds_nothing(seeds: range, tmp_path: Path) -> None:
    """Its lock is free at once, what it has written is whole, and the next one goes on."""
    runs = Runs(tmp_path)
    disk = DiskCache(str(runs.cache / "programs"), 1 << 24)
    for seed in seeds:
        draw = random.Random(seed)
        sources = [times(each) for each in draw.sample(range(2, 10_000), 8)]
        process = compile_after_exit.leave(sources, disk)
        assert process is not None, "the lock of one that was killed is held"
        time.sleep(draw.random() * 1.5)
        os.kill(process.pid, signal.SIGKILL)
        os.waitpid(process.pid, 0)
    found(runs)


@pytest.mark.long
def test_the_compiler_after_the_end_takes_ten_seconds_of_a_core_at_most(tmp_path: Path) -> None:
    """Whatever it was left; and it works where nobody has a use for the folder."""
    disk = DiskCache(str(tmp_path / "programs"), 1 << 24)
    process = compile_after_exit.leave([endless()], disk)
    assert process is not None
    until(lambda: os.readlink(f"/proc/{process.pid}/cwd") == os.path.abspath(os.sep))
    _, status, usage = os.wait4(process.pid, 0)
    assert os.waitstatus_to_exitcode(status) != 0
    used = usage.ru_utime + usage.ru_stime
    assert compile_after_exit.SECONDS - 1 < used < compile_after_exit.SECONDS + 1
    assert disk.names() == []
    assert compile_after_exit.leave([times(2)], disk) is not None, "the lock is free again"
