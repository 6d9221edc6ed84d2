"""What the figures were taken on: processor, versions, and the speed of plain copying."""

from __future__ import annotations

import itertools
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
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


def copy_rate(elements: int) -> float:
    """Bytes read and written per second while as many doubles are copied between warm arrays, by
    one thread or by one for each core, whichever is faster.
    """
    source, target = np.ones(elements), np.ones(elements)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    bounds = [elements * part // cores for part in range(cores + 1)]
    parts = [(target[a:b], source[a:b]) for a, b in itertools.pairwise(bounds)]
    turns = range(max(10, min(200, 2 * 10**8 // max(elements, 1))))
    best = min(_seconds(lambda: np.copyto(target, source)) for _ in turns)
    with ThreadPoolExecutor(cores) as pool:
        together = min(_seconds(lambda: list(pool.map(_copy, parts))) for _ in turns)
    return 16 * elements / min(best, together)


def _copy(pair: tuple[Any, Any]) -> None:
    np.copyto(*pair)


def record_path() -> str:
    """Whether lazyfuse's hot modules run as machine code: "compiled" or "pure Python"."""
    modules = [sys.modules[name] for name in list(sys.modules) if name.startswith("lazyfuse.")]
    files = [getattr(module, "__file__", None) or "" for module in modules]
    ours = sum(file.endswith((".so", ".pyd")) for file in files)
    return f"compiled ({ours} modules)" if ours else "pure Python"


def place() -> str:
    """The folder that lazyfuse was imported from: the checkout, or an installation."""
    return os.path.dirname(getattr(sys.modules.get("lazyfuse"), "__file__", None) or "")


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
