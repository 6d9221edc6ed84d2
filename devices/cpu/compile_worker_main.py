"""The process of the compile worker: sources in, object code out (see compile_worker.py).

Owns nothing. Imports only those lazyfuse modules that compile, and llvmlite.
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
from . import llvm_compiler

NICENESS = 1  # a program that waits for it runs at a fraction of its speed
_LOOKS = 0.25  # seconds between checks that the program is still running


def main() -> None:
    """Compile until the input ends."""
    with suppress(AttributeError, OSError):
        os.nice(NICENESS)  # the program computes meanwhile, and has precedence
    if sys.platform != "win32":
        threading.Thread(target=_end_with, args=(int(sys.argv[5]),), daemon=True).start()
    wishes, results = os.fdopen(os.dup(0), "rb", buffering=0), _own_output()
    with suppress(EOFError, OSError):
        while True:
            source = receive(wishes)
            send(results, _compiled(source))


def _end_with(program: int) -> None:
    """End this process when the program has ended, even within a compilation.

    The program passes its process number: it may have ended before this process could ask for it.
    """
    while os.getppid() == program:
        time.sleep(_LOOKS)
    os._exit(1)


def _compiled(source: Source) -> tuple[bytes | None, str, float]:
    start = time.perf_counter()
    try:
        code: bytes | None = llvm_compiler.compile_source(source)
        why = ""
    except DeviceError as error:
        code, why = None, str(error)
    return code, why, time.perf_counter() - start


def _own_output() -> Any:
    """The pipe for results; what libraries print is discarded."""
    sys.stdout.flush()
    results = os.fdopen(os.dup(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.close(nothing)
    return results
