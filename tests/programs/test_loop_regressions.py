"""What random programs that come round again once found, reduced: NumPy's bits in every turn."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

from lazyfuse import config
from lazyfuse.runtime.scheduling import flush
from tests.programs.compare import Statement
from tests.programs.deep import DeepProgram, observe

CASES = {
    "a loop that comes round between the two steps of divmod": (
        "a = np.array(R0) + k",
        "b = divmod(a.max(), 2)",
    ),
    "places along a short axis of windows": (
        "a = (W[k % 2 : k % 2 + 3] * 0.5).mean(axis=0)",
        "b = np.stack([R0, R0 * k]).sum(axis=0)",
    ),
}


def inputs() -> dict[str, Any]:
    values = numpy.random.default_rng(0).uniform(0, 2, (7, 40))
    return {"R0": values[0], "W": values[1:].reshape(6, 5, 8)}


@pytest.mark.parametrize("usual", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_turns_A6(case: str, usual: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flush, "WORTH_A_LAUNCH", 1)  # a run for every turn
    statements = []
    for k in range(14):
        statements.append(Statement(f"k = {k}"))
        statements += [Statement(text, text.split(" = ")[0]) for text in CASES[case]]
    for below in (0, 10):
        with config.options(eager_below=below):
            observe(DeepProgram(inputs, statements, usual=usual))
