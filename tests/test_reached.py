"""Campaigns say what their programs reached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy
import pytest

import lazyfuse as np
from lazyfuse import config
from lazyfuse.runtime.capture import conditions
from lazyfuse.runtime.events import counters
from tests import reached


@pytest.fixture
def own_tally() -> Iterator[None]:
    before = reached.taken()
    yield
    reached.taken()
    reached._tally.update(before)


def counted(size: int, turns: int = 1, seed: int = 1, reset: bool = False) -> Counter[str]:
    x = np.array(numpy.full(size, 3.0))
    with reached.program(seed):
        for turn in range(turns):
            x[1:] += x[:-1] * 0.0 + 1.0
            assert float(x.max()) == 4.0 + turn
        if reset:
            counters.reset()
            assert float((x + x).max()) == 8.0
    return Counter(reached.taken())


@pytest.mark.usefixtures("own_tally", "at_home")
def test_what_a_program_reached() -> None:
    with config.options(eager_below=0):
        found = counted(40_000, turns=6)
        assert found["programs"] == found["kernels"] == 1
        assert [name for name in found if name.startswith("in ")]
        assert found["rule gather"] == 1
        assert found["replays"] == found["rule replay"] == (conditions.native is not None)
        assert counted(40_000, reset=True)["kernels"] == 1
    assert counted(10)["kernels"] == 0
    if reached._native is not None:
        found = counted(10, seed=reached.MEASURED)
        assert found["at once"] == found["measured"] == 1


def test_the_line_that_is_printed() -> None:
    found = Counter({"programs": 2000, "kernels": 1000, "replays": 5, "measured": 100})
    found |= Counter({"at once": 100, "in numba": 800, "in blocked": 1000, "rule gather": 2000})
    assert reached.line(found) == (
        "2,000 programs: kernels 50 %; replays 0.2 %; operations alone 0 %; functions of NumPy 0 %;"
        " at once 100 %; in: blocked 50 %, numba 40 %; rule: gather 100 %"
    )
