"""The process that compiles ahead: wishes arrive, and whatever befalls it, we go on."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lazyfuse.devices.base import DeviceError, Source
from lazyfuse.devices.cpu.device import CPU
from lazyfuse.devices.pools import compile_worker
from lazyfuse.devices.pools.disk_cache import DiskCache
from tests.devices.sources import launch_of, map_source, times

LONG = 60.0  # seconds, on a busy machine


CHILD = """
import os, sys
from lazyfuse.devices.cpu.device import CPU
from lazyfuse.devices.pools.disk_cache import DiskCache
from tests.devices.sources import times
device = CPU(disk=DiskCache(sys.argv[1], 1 << 24), ahead=True)
"""


def run(device: CPU, source: Source) -> list[float]:
    x, y = np.arange(4.0), np.empty(4)
    program = device.soon(source)
    assert program is not None
    program.launch(launch_of((x, y)))
    return y.tolist()


def make(folder: Path, on: bool = True) -> CPU:
    return CPU(disk=DiskCache(programs_in(folder), 1 << 24, on), ahead=True)


def programs_in(folder: Path) -> str:
    return str(folder / "programs")


def close(device: CPU) -> None:
    device._worker.close()


@pytest.fixture
def device(tmp_path: Path) -> Iterator[CPU]:
    made = make(tmp_path)
    yield made
    close(made)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lasting")


@pytest.fixture(scope="module")
def lasting(folder: Path) -> Iterator[CPU]:
    """One device, and one process of its own, for tests that leave both as they are."""
    made = make(folder)
    yield made
    close(made)


def test_wishes_arrive_and_are_kept_F11(device: CPU, tmp_path: Path) -> None:
    assert device.compiles_ahead()
    assert [device.soon(times(k)) for k in (2, 3)] == [None, None]
    assert device.why_never(times(2)) == ""
    assert device.finish(LONG)
    assert run(device, times(2)) == [0.0, 2.0, 4.0, 6.0]
    assert run(device, times(3)) == [0.0, 3.0, 6.0, 9.0]
    info = device.info()["programs"]
    assert (info["ahead"], info["built"], info["awaited"]) == (2, 2, 0)
    assert info["disk"]["stores"] >= 2  # and the loops that every launch needs
    assert device._worker.started == 1
    assert device.programs.why_missed(times(2)) == "first seen"

    other = make(tmp_path)
    assert run(other, times(2)) == [0.0, 2.0, 4.0, 6.0]
    assert other.info()["programs"]["loaded"] == 1
    assert other._worker.started == 0


def test_who_cannot_go_on_waits_for_it(lasting: CPU) -> None:
    before = lasting.info()["programs"]["ahead"]
    assert lasting.compile(times(5)).source == times(5)
    assert lasting.info()["programs"]["ahead"] == before + 1


def test_text_that_does_not_compile_is_refused_once(lasting: CPU) -> None:
    device = lasting
    wrong = map_source("a1[i] = nonsense(a0[i])", ("f8", "f8"), name="wrong")
    assert device.soon(wrong) is None
    assert device.finish(LONG)
    assert "nonsense" in device.why_never(wrong)
    assert device.soon(wrong) is None
    assert device.finish(0.0), "it is not asked for again"
    with pytest.raises(DeviceError, match="nonsense"):
        device.compile(wrong)


def test_one_crash_is_forgiven_two_are_not_E2(device: CPU, monkeypatch: pytest.MonkeyPatch) -> None:
    real, fails = compile_worker.send, [True, True, False]

    def send(pipe: Any, message: object) -> None:
        if fails and fails.pop():
            device._worker._process.kill()
            device._worker._process.wait()
        real(pipe, message)

    monkeypatch.setattr(compile_worker, "send", send)
    device.soon(times(2))
    assert device.finish(LONG)
    assert run(device, times(2)) == [0.0, 2.0, 4.0, 6.0]
    assert device.compiles_ahead()

    device.soon(times(3))
    assert device.finish(LONG)
    assert device.soon(times(3)) is None
    assert "ended 2 times" in device.why_never(times(3))
    assert not device.compiles_ahead()
    assert run(device, times(4)) == [0.0, 4.0, 8.0, 12.0]  # compiled here
    assert device.info()["programs"]["ahead"] == 1


def test_an_idle_worker_ends_and_another_is_started(
    device: CPU, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_worker, "IDLE", 0.01)
    device.soon(times(2))
    assert device.finish(LONG)
    deadline = time.monotonic() + LONG
    while device._worker._thread is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert device._worker._process is None
    monkeypatch.undo()
    device.soon(times(3))
    assert device.finish(LONG)
    assert device._worker.started == 2
    assert device._worker.trouble == ""


class Late(queue.SimpleQueue[Any]):
    """Nothing comes in time, and something does before anybody has looked."""

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if timeout is not None:
            raise queue.Empty
        return super().get(block)


def test_a_wish_that_comes_as_the_worker_ends_is_taken() -> None:
    worker = compile_worker.Worker(
        lambda source: False, lambda *found: None, lambda source, why: None
    )
    worker._wishes = Late()
    wish = map_source("a1[i] = a0[i]", ("f8", "f8"))
    for each in (wish, None):
        worker._wishes.put(each)
        assert worker._next(0.01) is each
    assert worker._next(0.01) is None


@pytest.mark.parametrize("executable", ["", "/usr/bin/game"])
def test_without_a_python_to_start_it_is_compiled_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executable: str
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    device = make(tmp_path)
    assert not device.compiles_ahead()
    assert run(device, times(6)) == [0.0, 6.0, 12.0, 18.0]


def test_a_process_that_cannot_be_started_E2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python-that-is-not-there"))
    device = make(tmp_path)
    assert device.soon(times(6)) is None
    assert device.finish(LONG)
    assert not device.compiles_ahead()
    assert run(device, times(6)) == [0.0, 6.0, 12.0, 18.0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_compiles_by_itself_E2(device: CPU) -> None:
    device.soon(times(2))
    child = os.fork()
    if child == 0:
        fine = not device.compiles_ahead() and run(device, times(3))[1] == 3.0
        os._exit(0 if fine else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert device.finish(LONG)
    assert run(device, times(2)) == [0.0, 2.0, 4.0, 6.0]


LATER = """
import numpy
from lazyfuse.devices.pools import elf_linker
from tests.devices.sources import launch_of
assert device.cached(times(2)) and not device.cached(times(3))
x, y = numpy.arange(4.0), numpy.empty(4)
device.soon(times(2)).launch(launch_of((x, y)))
assert y.tolist() == [0.0, 2.0, 4.0, 6.0]
info = device.info()["programs"]
assert (info["loaded"], info["ahead"], device._worker.started) == (1, 0, 0), info
assert not {"numba", "llvmlite.binding"} & set(sys.modules) or not elf_linker.AVAILABLE
"""


def test_what_is_on_disk_is_loaded_at_once_without_llvm_F11(lasting: CPU, folder: Path) -> None:
    lasting.compile(times(2))
    done = in_a_child(LATER, folder)
    assert (done.returncode, done.stderr) == (0, "")


def in_a_child(script: str, folder: Path, how: str = "") -> subprocess.CompletedProcess[str]:
    """The child has a device of its own on the folder, and loads no pytest."""
    modes = ["-X", "dev", "-W", "error"] if how else ["-W", "error"]
    command = [sys.executable, *modes, "-c", CHILD + script, programs_in(folder), how]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONG)


SCRIPT = """
import time
from tests.devices.sources import endless, seconds_of
device.soon(times(2))
if sys.argv[2] != "at once":
    device.finish()
    if sys.argv[2] == "killed while it compiles":
        spent = seconds_of(device._worker._process.pid)
        device.soon(endless())
        while seconds_of(device._worker._process.pid) < spent + 0.5:
            time.sleep(0.02)
    print(device._worker._process.pid, flush=True)
if sys.argv[2].startswith("killed"):
    os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("how", ["at once", "in order", "killed", "killed while it compiles"])
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks for processes in /proc")
def test_it_ends_with_its_parent_E2(tmp_path: Path, how: str) -> None:
    done = in_a_child(SCRIPT, tmp_path, how)
    assert done.returncode == (-9 if how.startswith("killed") else 0)
    assert done.stderr == ""
    if how != "at once":
        deadline = time.monotonic() + LONG
        while _runs(int(done.stdout)):
            assert time.monotonic() < deadline
            time.sleep(0.02)


STOPPED = """
import fcntl, pickle, signal, termios, time
from lazyfuse.devices.pools import compile_worker
from tests.devices.sources import endless
starts = compile_worker.start
def start():
    process = starts()
    process.send_signal(signal.SIGSTOP)
    fcntl.fcntl(process.stdin, fcntl.F_SETPIPE_SZ, 1 << 20)  # all of the wish is under way
    return process
compile_worker.start = start
device.soon(endless())
def sent():
    process = device._worker._process
    waiting = process and fcntl.ioctl(process.stdin, termios.FIONREAD, b"0000")
    return waiting and int.from_bytes(waiting, sys.byteorder) > len(pickle.dumps(endless()))
while not sent():
    time.sleep(0.02)
print(device._worker._process.pid, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks for processes in /proc")
def test_it_ends_if_its_parent_does_before_it_has_begun(tmp_path: Path) -> None:
    process = int(in_a_child(STOPPED, tmp_path).stdout)
    os.kill(process, signal.SIGCONT)
    deadline = time.monotonic() + 60
    try:
        while _runs(process):
            assert time.monotonic() < deadline, "it compiles for nobody"
            time.sleep(0.02)
    finally:
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGKILL)


def _runs(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


PROGRAM = f"""{CHILD}
device.soon(times(2))
device.finish()
process = device._worker._process.pid
print(os.readlink("/proc/%d/cwd" % process) if os.path.isdir("/proc/self") else os.sep)
"""


def test_it_keeps_out_of_the_folder_that_it_was_started_in(tmp_path: Path) -> None:
    """What lies there is not imported, and the folder can be removed or unmounted."""
    here, program = tmp_path / "here", tmp_path / "there" / "program.py"
    here.mkdir()
    program.parent.mkdir()
    for name in ("signal", "pickle", "struct", "numba"):
        planted = f"open({str(tmp_path / name)!r}, 'w'); raise ImportError"
        (here / f"{name}.py").write_text(planted)
    root = str(Path(__file__).parents[2])
    program.write_text(f"import os, sys\nsys.path.insert(0, {root!r})\n{PROGRAM}")
    done = subprocess.run(
        [sys.executable, str(program), programs_in(tmp_path)],
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
        timeout=LONG,
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()) == Path(os.path.abspath(os.sep))
    assert {path.name for path in tmp_path.iterdir()} == {"here", "there", "programs"}
