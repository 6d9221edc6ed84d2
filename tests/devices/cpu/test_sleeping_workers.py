"""Helpers that look for work sleep at once when BLAS is about to use the cores, and wake again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse.devices.cpu import native_threads
from lazyfuse.runtime.placement import devices

pytestmark = pytest.mark.skipif(
    not native_threads.AVAILABLE, reason="no futex, or an unknown processor"
)

N = 400_000
LONG = 60.0  # seconds that a machine under load may need


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Helpers that would let others have the core, but look for work for minutes."""
    monkeypatch.setattr(native_threads, "SPINS", 0)
    monkeypatch.setattr(native_threads, "YIELDS", 1 << 40)
    helpers: Any = devices.cpu().work.native  # type: ignore[attr-defined]
    helpers.resize()
    with lf.options(threads=3, threads_above=1000):
        yield helpers
    helpers.resize()


def use(native: Any) -> Any:
    """A computation with helpers, which then look for more."""
    a = np.arange(N, dtype=float)
    assert np.array_equal((lf.array(a) * 2.0 + a).to_numpy(), a * 3.0)
    if native._started(2) is None:
        pytest.skip("no machine code here")
    return native._team


def all_sleep(crew: Any) -> bool:
    end = time.monotonic() + LONG
    while crew.sleepers.value < crew.size and time.monotonic() < end:
        time.sleep(0.001)
    return bool(crew.sleepers.value == crew.size)


def test_resting_helpers_sleep_and_work_again(native: Any) -> None:
    for _ in range(5):
        crew = use(native)
        native.sleep_early()
        assert all_sleep(crew)


def test_a_product_by_blas_lets_helpers_sleep(native: Any) -> None:
    generator = np.random.default_rng(0)
    matrix, vector = generator.random((4000, 16)), generator.random(16)
    x = lf.array(matrix)
    for _ in range(3):
        crew = use(native)
        with lf.options(eager_below=0):
            found = ((x @ vector) * 2.0).to_numpy()
        np.testing.assert_allclose(found, matrix @ vector * 2.0, rtol=1e-12)
        assert all_sleep(crew)


def test_without_helpers_there_is_nothing_to_do(native: Any) -> None:
    native.resize()
    native.sleep_early()
    assert native._team is None
