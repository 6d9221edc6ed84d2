"""Compiles, in a separate process, what is uncompiled when the program ends, for the next run.

Owns that process: one at a time for a folder of programs, at the lowest priority. It ends after
`SECONDS` of one core even if work remains. Without it, a script that is shorter than its compiler
would start each run uncompiled. The process inherits its lock and its work as open files: the lock
stays empty, and the work, a pickle, has no name by which another user could write to it. It writes
only programs, into that folder, if the folder still exists. No process waits for it. Needs `fcntl`
(not Windows).
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ..base import DeviceError, Source
from ..late_imports import module
from ..pools import compile_worker, environment, programs
from ..pools.disk_cache import DiskCache

LOCK = "compiling.lock"
SECONDS = 10  # of one core: about thirty programs; the next run requests the rest again
WAITS = 600  # seconds until its end on a machine that is busy otherwise
NICENESS = 19  # next to another busy process it gets a seventieth of a core


def leave(sources: Sequence[Source], disk: DiskCache) -> Any:
    """Start the process for these sources, as `subprocess.Popen`; None if it does not start.

    It does not start where the disk keeps no programs, where another process works for this folder,
    or where the system refuses a process or a lock. Raises nothing.
    """
    wanted = [source for source in sources if source.language == "numba"]
    if not wanted or not disk.can_store():
        return None
    opened: list[int] = []
    try:
        fcntl = module("fcntl")  # not on Windows
        opened.append(disk.lock_file(LOCK))
        fcntl.flock(opened[0], fcntl.LOCK_EX | fcntl.LOCK_NB)  # the process inherits it
        opened.append(disk.nameless_file())
        with open(opened[1], "wb", closefd=False) as file:
            pickle.dump((os.path.abspath(disk.directory), disk.limit, wanted), file)
        os.lseek(opened[1], 0, os.SEEK_SET)
        return compile_worker.start("cpu.compile_after_exit", opened)
    except (ImportError, OSError, ValueError, pickle.PickleError):
        return None
    finally:
        for each in opened:
            os.close(each)


def main() -> None:
    """The body of the process."""
    with suppress(AttributeError, OSError):
        os.nice(NICENESS)
    with suppress(AttributeError, ValueError):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the terminal may close
        signal.alarm(WAITS)  # ends this process, even within a program; so does the limit
    with suppress(ImportError, OSError, ValueError):
        resource = module("resource")
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    compiler = module(f"{__package__}.llvm_compiler")  # not in the program, which only starts this
    directory, limit, sources = pickle.load(sys.stdin.buffer)
    disk = DiskCache(directory, limit)
    for source in sources:
        name = programs.name_on_disk(source, environment.digest())
        if disk.holds(name):
            continue
        with suppress(DeviceError):
            code = compiler.compile_source(source)
            if os.path.isdir(directory):  # else it was removed meanwhile: do not create it
                disk.put(name, code)
        if time.process_time() > 0.9 * SECONDS:
            break
