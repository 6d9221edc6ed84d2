"""One case and one library in a process of its own: first calls, memory, bits.

`python -m benchmarks.probe JOB` prints one line of JSON; the parents are first.py, memory.py and
equal.py. Imports as little as the case needs, so that a first call is one.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import json
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

import benchmarks.cases  # noqa: F401  # fills CASES
from benchmarks import libraries
from benchmarks.case import CASES, Array, Case
from benchmarks.measure import reset_peak, resident


def opened(name: str) -> tuple[libraries.Library, float]:
    """NumPy or lazyfuse, and the seconds that importing it took."""
    start = time.perf_counter()
    library = libraries.of_numpy() if name == "numpy" else libraries.of_lazyfuse()
    return library, time.perf_counter() - start


def bound(case: Case, size: int, library: libraries.Library) -> Callable[[], Any]:
    """A call of the case on inputs that nobody else holds."""
    inputs = case.make(size, np.random.default_rng(5))
    args = [library.take(value) for value in inputs]
    del inputs
    runner, force = library.runner(case), library.force
    assert runner is not None
    run = runner
    return lambda: force(run(*args))


def device() -> Any:
    """The CPU device of lazyfuse, or None where lazyfuse is not loaded."""
    hardware = sys.modules.get("lazyfuse.runtime.placement.devices")
    return hardware.cpu() if hardware else None


def wait() -> None:
    """Wait until nothing is being compiled."""
    finish = getattr(device(), "finish", None)
    if finish is not None:
        finish(libraries.WAITED)


def programs() -> dict[str, Any]:
    """What was compiled and loaded, and which compilers this process has imported."""
    found = device()
    about = dict(found.info()["programs"]) if found is not None else {}
    about = {name: value for name, value in about.items() if isinstance(value, int)}
    return about | {name: name in sys.modules for name in ("numba", "llvmlite")}


def first(job: dict[str, Any]) -> dict[str, Any]:
    """The first ten calls, one after the other, and the best of a few once nothing is being
    compiled.
    """
    library, importing = opened(job["library"])
    call = bound(CASES[job["case"]], job["size"], library)
    times = [_timed(call) for _ in range(2)]
    after = programs()  # what the first results needed
    times += [_timed(call) for _ in range(8)]
    found = {"import": importing, "first": times[0], "second": times[1], "programs": after}
    found |= {"ten": sum(times), "tenth": times[-1]}
    if job.get("steady"):
        wait()
        found["steady"] = min(_timed(call) for _ in range(5))
    return found


def _timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def memory(job: dict[str, Any]) -> dict[str, Any]:
    """Bytes that a call adds at its highest, once programs are loaded; also for a second call
    that finds what the first one left behind.
    """
    case = CASES[job["case"]]
    library, _ = opened(job["library"])
    small = bound(case, case.ordinary or max(job["size"] // 8, 1), library)
    small()
    library.wait(small)
    small()
    del small
    call = bound(case, job["size"], library)
    found = device()
    if found is not None:
        found.buffers.clear()
    gc.collect()
    with suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)
    peaks = []
    result: Any = None
    reset_peak()
    before = resident("VmRSS")
    for _ in range(2):
        del result
        result = call()
        peaks.append(max(resident("VmHWM") - before, 0))
    outputs = sum(part.nbytes for part in libraries.to_numpy(result))
    kept = found.info()["buffers"]["free_bytes"] if found is not None else 0
    return {"peak": peaks[0], "again": peaks[1], "outputs": outputs, "kept": kept}


def bits(job: dict[str, Any]) -> dict[str, Any]:
    """Digests of the results of each case, call by call, and their distance from NumPy's."""
    library, _ = opened("lazyfuse")
    numpy = libraries.of_numpy()
    found = {}
    for name, size in job["cases"]:
        case = CASES[name]
        expected = libraries.to_numpy(bound(case, size, numpy)())
        try:
            found[f"{name} {size}"] = _computed(case, size, library, job["calls"], expected)
        except Exception as error:  # the other cases still count
            found[f"{name} {size}"] = {"error": f"{type(error).__name__}: {error}"[:200]}
    return {"cases": found, "programs": programs()}


def _computed(
    case: Case, size: int, library: libraries.Library, calls: int, expected: tuple[Array, ...]
) -> dict[str, Any]:
    """Several calls of a case: all their digests, and how far the last one is from `expected`."""
    call = bound(case, size, library)
    digests = []
    results: tuple[Array, ...] = ()
    for _ in range(calls):
        results = library.back(call())
        digests.append(_digest(results))
        wait()
    return {"digests": digests, **_distance(results, expected)}


def _digest(results: tuple[Array, ...]) -> str:
    digest = hashlib.sha256()
    for part in results:
        digest.update(f"{part.dtype.str}{part.shape}".encode())
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()[:16]


def _distance(found: tuple[Array, ...], expected: tuple[Array, ...]) -> dict[str, Any]:
    """Whether dtypes and shapes agree, whether bits do, and the largest relative difference."""
    kinds = [(part.dtype.str, part.shape) for part in found]
    alike = kinds == [(part.dtype.str, part.shape) for part in expected]
    same = alike and _digest(found) == _digest(expected)
    worst = 0.0
    if alike and not same:
        with np.errstate(all="ignore"):
            for mine, theirs in zip(found, expected, strict=True):
                worst = max(worst, _difference(mine, theirs))
    return {"alike": alike, "same": same, "worst": worst}


def _difference(mine: Array, theirs: Array) -> float:
    """The largest difference, relative to the largest value: sums of many terms cancel."""
    size = np.abs(theirs)
    scale = float(np.max(size[np.isfinite(size)], initial=0.0)) or 1.0
    wrong = (mine != theirs) & ~((mine != mine) & (theirs != theirs))
    if not wrong.any():
        return 0.0
    away = np.abs(np.asarray(mine, complex) - np.asarray(theirs, complex))[wrong]
    return float(np.max(np.where(np.isnan(away), np.inf, away))) / scale


JOBS = {"first": first, "memory": memory, "bits": bits}

if __name__ == "__main__":
    job = json.loads(sys.argv[1])
    print(json.dumps(JOBS[job["kind"]](job)))
