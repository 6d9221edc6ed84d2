"""What the figures were taken on: processor, versions, and the speed of plain copying."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.libraries import Library

_BYTES = 64 << 20


def describe(libraries: Sequence[Library]) -> dict[str, Any]:
    """The machine and the versions, for the record."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0,
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {library.name: library.version for library in libraries},
        "copy_bytes_per_second": bandwidth(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def bandwidth() -> float:
    """Bytes read and written per second by one thread's copy between two warm arrays."""
    source = np.ones(_BYTES // 8)
    target = np.empty_like(source)
    return 2 * _BYTES / min(_seconds(lambda: np.copyto(target, source)) for _ in range(10))


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
