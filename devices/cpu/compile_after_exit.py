"""What a program's end leaves uncompiled: a process of its own puts it on disk for the next run.

Owns that process: one at a time for a folder of programs, at the lowest priority, ended after
`SECONDS` of one core whatever is left. A script that is shorter than its compiler would else begin
each run anew. The process reads its work from the file that is its lock, writes programs into that
folder if the folder is still there, and nothing else; no process waits for it. Needs `fcntl` (not
Windows).
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
from . import numba_compiler

LOCK = "compiling.lock"
SECONDS = 10  # of one core: some thirty programs; the next run asks again for what is left then
WAITS = 600  # seconds until then on a machine that is busy otherwise
NICENESS = 19  # of two hungry processes this one gets a seventieth of a core


def leave(sources: Sequence[Source], disk: DiskCache) -> Any:
    """Start the process for these sources, as `subprocess.Popen`; None if there will be none.

    None where nothing can be kept, where another process is at work for this folder, or where
    processes or locks are not to be had. Raises nothing.
    """
    wanted = [source for source in sources if source.language == "numba"]
    if not wanted or not disk.can_store():
        return None
    try:
        fcntl = module("fcntl")  # not on Windows
        lock = os.open(os.path.join(disk.directory, LOCK), os.O_RDWR | os.O_CREAT, 0o600)
    except (ImportError, OSError):
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the process inherits it
        os.ftruncate(lock, 0)
        with open(lock, "wb", closefd=False) as file:
            pickle.dump((os.path.abspath(disk.directory), disk.limit, wanted), file)
        os.lseek(lock, 0, os.SEEK_SET)
        return compile_worker.start("cpu.compile_after_exit", lock)
    except (OSError, ValueError, pickle.PickleError):
        return None
    finally:
        os.close(lock)


def main() -> None:
    """What the process does."""
    with suppress(AttributeError, OSError):
        os.nice(NICENESS)
    with suppress(AttributeError, ValueError):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the terminal may close
        signal.alarm(WAITS)  # ends us, even in the middle of a program, and so does the limit
    with suppress(ImportError, OSError, ValueError):
        resource = module("resource")
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    directory, limit, sources = pickle.load(sys.stdin.buffer)
    disk = DiskCache(directory, limit)
    for source in sources:
        name = programs.name_on_disk(source, environment.digest())
        if disk.holds(name):
            continue
        with suppress(DeviceError):
            code = numba_compiler.compile_source(source)
            if os.path.isdir(directory):  # else it was removed meanwhile: leave it so
                disk.put(name, code)
        if time.process_time() > 0.9 * SECONDS:
            break
