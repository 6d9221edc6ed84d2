"""Numbers of other dtypes in captured runs: C converts them as NumPy does."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse.runtime.capture import conditions, native_replay
from lazyfuse.runtime.events import counters, decisions
from lazyfuse.runtime.scheduling import evaluate

pytestmark = pytest.mark.skipif(conditions.native is None, reason="C replays")

COUNT = 3000


@pytest.fixture(autouse=True)
def _planned() -> Iterator[None]:
    evaluate.clear_plans()
    with lf.options(plan_after=0, eager_below=0, compile_after=10**9):
        yield


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The events of replays that Python has done."""
    found: list[Any] = []
    by_python = native_replay._by_python

    def watched(event: Any, *rest: Any) -> int:
        found.append(type(event).__name__)
        return by_python(event, *rest)

    monkeypatch.setattr(native_replay, "_by_python", watched)
    return found


FUNCTIONS: dict[str, Any] = {
    "mean": lambda x: x.mean(),
    "std": lambda x: x.std(),
    "var of a sample": lambda x: x.var(ddof=1),
    "norm": lambda x: (x * 2).mean() / 3,
    "narrowed": lambda x: (x * 1.0).mean().astype("f4"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8", "u2", "?"])
def test_conversions_are_numpys(name: str, dtype: str, left: list[Any]) -> None:
    made, function = np.random.default_rng(5), FUNCTIONS[name]
    for turn in range(12):
        data = (made.normal(size=COUNT) * 50).astype(dtype)
        found, expected = function(lf.array(data)), function(data)
        assert (np.asarray(found).dtype, float(found)) == (expected.dtype, float(expected))
        if turn == 8:
            left.clear()
            counters.reset()
    assert counters.totals().decisions[decisions.REPLAYED] == 3
    assert "Call" not in left


@pytest.mark.parametrize("size", [1e300, 1e-44, 1e-300, np.nan, np.inf, -1e39, 3.0])
def test_what_float32_cannot_hold_is_numpys_to_tell(size: float) -> None:
    for _ in range(10):
        told = []
        for xp in (np, lf):
            x = xp.array(np.full(COUNT, size)) * 1.0
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                found = np.asarray(x.max().astype("f4"))
            told.append((found.tobytes(), [str(each.message) for each in caught]))
        assert told[0] == told[1]
