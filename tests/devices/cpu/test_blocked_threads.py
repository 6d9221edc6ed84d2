"""Blocked NumPy runs on several threads only where its calls are long: bits are the same."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lazyfuse.devices.cpu import launch
from lazyfuse.devices.cpu.device import CPU
from lazyfuse.devices.thread_pool import ThreadPool
from tests.devices.sources import launch_of, numpy_source

SOURCE = numpy_source("np.divide(a0, a1, out=a2)\nnp.add(a2, a0, out=a2)", ("f8",) * 3)


@pytest.fixture
def helped(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many helpers each launch asks for."""
    counts: list[int] = []
    real = ThreadPool.run

    def run(
        self: ThreadPool,
        work: Callable[[], object],
        assist: Callable[[], object],
        helpers: int,
    ) -> None:
        counts.append(helpers)
        real(self, work, assist, helpers)

    monkeypatch.setattr(ThreadPool, "run", run)
    return counts


@pytest.mark.parametrize(("seconds", "expected"), [(0.0, 1), (math.inf, 0)])
@pytest.mark.parametrize("chunks", [2, 3, 17])
def test_calls_decide_and_values_do_not(
    monkeypatch: pytest.MonkeyPatch, helped: list[int], seconds: float, expected: int, chunks: int
) -> None:
    monkeypatch.setattr(launch, "_LONG_CALL", seconds)
    program = CPU(threads=2, threads_above=1).compile(SOURCE)
    x, y = np.arange(20_000.0), np.arange(20_000.0) - 7.0
    with np.errstate(all="ignore"):
        right = x / y + x
    for _ in range(launch._TRIES + 2):
        found = np.empty(20_000)
        flags = program.launch(launch_of((x, y, found), chunks=chunks))
        np.testing.assert_array_equal(found, right)
        assert flags == 1  # 7 / 0, perhaps in a chunk that was tried alone
    assert helped == [expected] * (launch._TRIES + 2)


def test_the_first_launches_are_timed(helped: list[int]) -> None:
    made: Any = CPU(threads=2, threads_above=1).compile(SOURCE)
    arrays = tuple(np.ones(1000) for _ in range(3))
    assert made._pace == math.inf
    made.launch(launch_of(arrays, chunks=4))
    assert made._pace < math.inf
    first = made._pace
    for _ in range(launch._TRIES):
        made.launch(launch_of(arrays, chunks=4))
    assert made._pace <= first
    assert made._tries == 0


def test_an_error_in_a_chunk_that_is_timed_is_told() -> None:
    source = numpy_source("np.add(a0, a1, out=a2[:1])", ("f8",) * 3)
    program = CPU(threads=2, threads_above=1).compile(source)
    with pytest.raises(ValueError, match=r"broadcast|operand"):
        program.launch(launch_of(tuple(np.ones(100) for _ in range(3)), chunks=4))
