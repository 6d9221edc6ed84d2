"""Random programs warn as NumPy does: the same words, lines and counts in every state.

Each batch runs in processes of its own: nothing is compiled in the first, kernels are on disk for
the second. Programs whose kernels had written over what would tell who raised an exception
("operands lost") are counted; in them a name may be wrong (docs/design/numerics.md).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lazyfuse.arrays import base
from tests.campaign import TIMEOUT, drawn

pytestmark = TIMEOUT

RECORDED = {"LAZYFUSE_PLAN_AFTER": "0", "LAZYFUSE_EAGER_BELOW": "0"}
STATES: dict[str, tuple[dict[str, str], list[int]]] = {
    "cold, then on disk": (RECORDED, [1, 2]),
    "replayed": ({"LAZYFUSE_PLAN_AFTER": "0", "LAZYFUSE_EAGER_BELOW": "1000"}, [10]),
    # NumPy's for a short time, so that some structures are planned in ten turns, and others are not
    "as users have it": ({"LAZYFUSE_PLAN_AFTER": "1", "LAZYFUSE_EAGER_BELOW": "1000"}, [20]),
    "in Python": ({**RECORDED, "LAZYFUSE_COMPILED": "0"}, [3]),
    "not fused": ({**RECORDED, "LAZYFUSE_FUSION": "0"}, [2]),
}
STRUCTURES = 5  # programs of one structure, which differ in values, filters and error states


def run(seeds: range, folder: Path, variables: dict[str, str], turns: list[int]) -> dict[str, Any]:
    """What a process found out about the programs with these seeds."""
    plain = {k: v for k, v in os.environ.items() if not k.startswith("LAZYFUSE_")}
    asked = {"from": seeds.start, "to": seeds.stop, "turns": turns, "structures": STRUCTURES}
    done = subprocess.run(
        [sys.executable, "-m", "tests.helpers.warning_programs", json.dumps(asked)],
        env={**plain, "LAZYFUSE_CACHE_DIR": str(folder), **variables},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# Short alone: among thousands of programs there are some left that differ ("overflow encountered in
# reduce" told again after other kernels; operands that a kernel has written over).
@pytest.mark.parametrize("seeds", [drawn(60)], ids=["short"])
@pytest.mark.parametrize("state", STATES)
def test_programs_warn_as_numpy_does(seeds: range, state: str, tmp_path: Path) -> None:
    variables, turns = STATES[state]
    for _ in range(2 if "disk" in state else 1):
        found = run(seeds, tmp_path, variables, turns)
        counts = {name: count for name, count in found.items() if name != "found"}
        print(f"{state}, {len(seeds)} programs: {counts}")
        assert not found["found"]
        assert found["warned"]
        assert found["kernels"]
        assert found["replays"] or state in ("not fused", "in Python") or not base.COMPILED
