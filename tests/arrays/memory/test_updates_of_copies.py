"""A run of updates over memory that somebody else reads copies it once, not at every update."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

import lazyfuse as np
from lazyfuse.runtime.execution import run_values


@pytest.mark.parametrize("turns", [1, 3])
def test_borders_of_a_copy_are_written_to_one_copy(
    turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = []
    target = run_values.RunValues.target

    def watched(self: Any, index: int) -> Any:
        part, whole = target(self, index)
        copied.append(whole is not self.array(self.plan.graph.values[index].src[0]))
        return part, whole

    monkeypatch.setattr(run_values.RunValues, "target", watched)
    start = numpy.random.default_rng(4).normal(size=(600, 500))
    kept = np.array(start)
    for turn in range(turns):
        x, expected = np.array(kept), start.copy()
        for each in (x, expected):
            each[0] = turn
            each[-1] = 2.0
            each[:, 0] = each[:, 1] * 3.0
            each[:, -1] = 4.0
        total = (x * 2.0).sum()
        numpy.testing.assert_array_equal(numpy.asarray(x), expected)
        assert float(total) == (expected * 2.0).sum()
    numpy.testing.assert_array_equal(numpy.asarray(kept), start)
    assert sum(copied) <= turns
