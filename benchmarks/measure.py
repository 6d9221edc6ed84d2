"""Measuring one case at one size: every library in the same run, in interleaved rounds."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.case import Array, Case
from benchmarks.libraries import Library

SHORTEST = 2e-3
"""Seconds that one timing has to last, so that the clock and the loop do not count."""

_RESET_PEAK = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")


@dataclass(slots=True)
class Row:
    """What was found for one library: seconds, bytes, the ratio to NumPy (2.0: twice as fast)."""

    case: str
    size: int
    library: str
    first: float = 0.0
    steady: float = 0.0
    peak: int | None = None
    ratio: float = 0.0
    error: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(slots=True)
class _Candidate:
    row: Row
    call: Callable[[], Any]
    library: Library
    repeats: int = 1


def measure(case: Case, size: int, libraries: Sequence[Library], seconds: float) -> list[Row]:
    """Rows for every library that knows the case, NumPy's first. `seconds` per library at most."""
    inputs = case.make(size, np.random.default_rng(5))
    candidates = []
    rows = []
    expected: tuple[Array, ...] | None = None
    for library in libraries:
        candidate = _prepare(case, size, library, inputs)
        if candidate is None:
            continue
        rows.append(candidate.row)
        try:
            found = _first_calls(candidate)
            expected = expected or found
            _compare(found, expected, case.tolerance)
        except Exception as error:  # a peer that cannot run a case is a result, too
            candidate.row.error = f"{type(error).__name__}: {error}"[:200]
        else:
            candidates.append(candidate)
    _rounds(candidates, seconds)
    for row in rows:
        row.ratio = rows[0].steady / row.steady if row.steady else 0.0
    return rows


def _prepare(case: Case, size: int, library: Library, inputs: tuple[Any, ...]) -> _Candidate | None:
    library.enter()
    runner = library.runner(case)
    if runner is None:
        return None
    run, force = runner, library.force
    args = [library.take(value) for value in inputs]
    return _Candidate(Row(case.name, size, library.name), lambda: force(run(*args)), library)


def _first_calls(candidate: _Candidate) -> tuple[Array, ...]:
    """The very first call with its compilation, a second one for memory, a third for its length."""
    row = candidate.row
    row.first, result = _timed(candidate.call)
    found = candidate.library.back(result)
    del result
    row.peak = _peak(candidate.call)
    row.steady, _ = _timed(candidate.call)
    candidate.repeats = max(1, int(SHORTEST / max(row.steady, 1e-9)))
    return found


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def _rounds(candidates: Sequence[_Candidate], seconds: float) -> None:
    """Best of several rounds, the libraries taking turns."""
    spent = dict.fromkeys(range(len(candidates)), 0.0)
    while spent:
        for number in list(spent):
            candidate = candidates[number]
            elapsed = _block(candidate)
            candidate.row.steady = min(candidate.row.steady, elapsed / candidate.repeats)
            spent[number] += elapsed
            if spent[number] >= seconds:
                del spent[number]


def _block(candidate: _Candidate) -> float:
    candidate.library.enter()
    call = candidate.call
    start = time.perf_counter()
    for _ in range(candidate.repeats):
        call()
    return time.perf_counter() - start


def _compare(found: tuple[Array, ...], expected: tuple[Array, ...], tolerance: float) -> None:
    if len(found) != len(expected):
        raise ValueError(f"{len(found)} results instead of {len(expected)}")
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance)


def _peak(call: Callable[[], Any]) -> int | None:
    """Bytes of resident memory that a call adds at its highest; None where Linux is not there."""
    gc.collect()
    try:
        _RESET_PEAK.write_text("5")
        before = _resident("VmRSS")
    except OSError:
        call()
        return None
    call()
    return max(_resident("VmHWM") - before, 0)


def _resident(field: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    return 0
