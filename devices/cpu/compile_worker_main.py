"""What the compile worker's process runs: sources in, object code out (see compile_worker.py).

Owns nothing. Imports numba, and of our modules only those that compile.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from ..base import DeviceError, Source
from ..pools.compile_worker import receive, send
from . import numba_compiler

NICENESS = 5  # a core that is wanted otherwise is left to a quarter of its time
_LOOKS = 0.25  # seconds between two looks whether the program is still there


def main() -> None:
    """Compile until the input ends."""
    with suppress(AttributeError, OSError):
        os.nice(NICENESS)  # the results are computed meanwhile: they come first
    if sys.platform != "win32":
        threading.Thread(target=_end_with, args=(int(sys.argv[5]),), daemon=True).start()
    wishes, results = os.fdopen(os.dup(0), "rb", buffering=0), _own_output()
    with suppress(EOFError, OSError):
        while True:
            source = receive(wishes)
            send(results, _compiled(source))


def _end_with(program: int) -> None:
    """End this process, in the middle of whatever it compiles, when the program has ended.

    The program gives its own number: it may have ended before this process could ask for it.
    """
    while os.getppid() == program:
        time.sleep(_LOOKS)
    os._exit(1)


def _compiled(source: Source) -> tuple[bytes | None, str, float]:
    start = time.perf_counter()
    try:
        code: bytes | None = numba_compiler.compile_source(source)
        why = ""
    except DeviceError as error:
        code, why = None, str(error)
    return code, why, time.perf_counter() - start


def _own_output() -> Any:
    """Our results' pipe; what libraries print goes nowhere."""
    sys.stdout.flush()
    results = os.fdopen(os.dup(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.close(nothing)
    return results
