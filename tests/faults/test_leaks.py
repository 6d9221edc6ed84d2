"""Memory stays flat over 20,000 statements, 1,000 structures, 2,000 shapes; figures are shown."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import campaign
from tests.faults.children import Runs

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks /proc"),
    campaign.TIMEOUT,
]
# MB that the second half may add beside free buffers: plans are kept up to their limit
GROWTH = {"statements": 15.0, "structures": 60.0, "shapes": 15.0, "copies": 15.0}


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("shapes", 300),
        pytest.param("statements", 0, marks=pytest.mark.long),
        pytest.param("structures", 0, marks=pytest.mark.long),
        pytest.param("shapes", 0, marks=pytest.mark.long),
        pytest.param("copies", 0, marks=pytest.mark.long),
    ],
)
def test_memory_stays_flat(
    name: str, count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = Runs(tmp_path)
    out = runs.run("tests.faults.leaks", name, count)
    held = [tuple(map(float, line.split()[1:])) for line in out.splitlines()]
    own = [whole - free for whole, free in held]
    with capsys.disabled():
        print(f"\n    {name}, MB after each tenth: {[whole for whole, _ in held]}", end="")
    assert own[-1] - min(own[4:]) < GROWTH[name], held
