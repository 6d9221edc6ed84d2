"""Measuring one case at one size: every library in the same run, in interleaved rounds."""

from __future__ import annotations

import gc
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.case import Array, Case
from benchmarks.libraries import Library

SHORTEST = 2e-3
"""Seconds that one timing has to last, so that the clock and the loop do not count."""

REST = 0.22
"""Seconds after which threads of OpenMP (torch, numba) no longer wait in a loop for more work:
until then they take a core from whoever comes next."""

TURNS = 2
"""How often a library's turn comes, where there is a rest before it."""

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
    own: bool = False  # a whole program at the one size that is usual for it
    moved: int = 0  # bytes of operands and results, where nothing but their traffic counts

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(slots=True)
class Budget:
    """Seconds that slow libraries may spend on first calls: each of them, and each call."""

    total: float = 1e9
    call: float = 1e9
    spent: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def for_first_call(self, library: Library) -> Iterator[None]:
        """Count a first call, and end it with an error if it takes too long."""
        before = self.spent.get(library.name, 0.0)
        allowed = min(self.call, self.total - before)
        if not library.slow or allowed >= 1e8:
            yield
            return
        if allowed < 1.0:
            raise TimeoutError(f"spent its {self.total:.0f} s for compiling on other cases")

        def stop(*_: object) -> None:
            raise TimeoutError(f"the first call took more than {allowed:.0f} s")

        previous = signal.signal(signal.SIGALRM, stop)
        start = time.perf_counter()
        signal.setitimer(signal.ITIMER_REAL, allowed, 1.0)  # again: callbacks of C swallow it
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)
            self.spent[library.name] = before + time.perf_counter() - start


@dataclass(slots=True)
class _Candidate:
    row: Row
    call: Callable[[], Any]
    library: Library
    repeats: int = 1


def measure(
    case: Case,
    size: int,
    libraries: Sequence[Library],
    seconds: float,
    budget: Budget | None = None,
    memory: bool = True,
    rest: float = 0.0,
) -> list[Row]:
    """Rows for every library that knows the case, NumPy's first. `seconds` per library at most.

    `memory`: also the highest memory of a call that is made for nothing else. `rest`: seconds of
    sleep before each library's turn, where libraries leave threads behind that spin (see REST).
    """
    inputs = case.make(size, np.random.default_rng(5))
    budget = budget or Budget()
    candidates = []
    rows = []
    expected: tuple[Array, ...] | None = None
    for library in libraries:
        candidate = _prepare(case, size, library, inputs)
        if candidate is None:
            continue
        rows.append(candidate.row)
        try:
            with budget.for_first_call(library):
                candidate.row.first, result = _timed(candidate.call)
            found = candidate.library.back(result)
            del result
            library.wait(candidate.call)
            _next_calls(candidate, memory)
            expected = expected or found
            _compare(found, expected, case.tolerance)
        except Exception as error:  # a peer that cannot run a case is a result, too
            candidate.row.error = f"{type(error).__name__}: {error}"[:200]
        else:
            candidates.append(candidate)
    _rounds(candidates, seconds, rest)
    moved = sum(
        part.nbytes for part in (*inputs, *(expected or ())) if isinstance(part, np.ndarray)
    )
    for row in rows:
        row.moved = moved if case.streams else 0
        row.ratio = rows[0].steady / row.steady if row.steady else 0.0
    return rows


def _prepare(case: Case, size: int, library: Library, inputs: tuple[Any, ...]) -> _Candidate | None:
    library.enter()
    runner = library.runner(case)
    if runner is None:
        return None
    run, force = runner, library.force
    args = [library.take(value) for value in inputs]
    row = Row(case.name, size, library.name, own=bool(case.ordinary))
    return _Candidate(row, lambda: force(run(*args)), library)


def _next_calls(candidate: _Candidate, memory: bool) -> None:
    """A second call for memory, a third for its length."""
    row = candidate.row
    if memory:
        row.peak = _peak(candidate.call)
    row.steady, _ = _timed(candidate.call)
    candidate.repeats = max(1, int(SHORTEST / max(row.steady, 1e-9)))


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def _rounds(candidates: Sequence[_Candidate], seconds: float, rest: float) -> None:
    """Best of several rounds, the libraries taking turns of one block, or longer after a rest."""
    spent = dict.fromkeys(range(len(candidates)), 0.0)
    while spent:
        for number in list(spent):
            candidate = candidates[number]
            until = spent[number] + (seconds / TURNS if rest else 0.0)
            time.sleep(rest)
            while True:
                elapsed = _block(candidate)
                candidate.row.steady = min(candidate.row.steady, elapsed / candidate.repeats)
                spent[number] += elapsed
                if spent[number] >= until:
                    break
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
        reset_peak()
        before = resident("VmRSS")
    except OSError:
        call()
        return None
    call()
    return max(resident("VmHWM") - before, 0)


def reset_peak() -> None:
    """Let the highest memory of this process begin anew."""
    _RESET_PEAK.write_text("5")


def resident(field: str) -> int:
    """Bytes of memory that this process has (VmRSS), or had at most (VmHWM)."""
    for line in _STATUS.read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    return 0
