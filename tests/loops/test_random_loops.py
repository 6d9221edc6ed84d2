"""Random loops, compiled where they stand, leave what Python leaves: see helpers/loop_programs.py.

Each batch runs in a process of its own, in which loops are compiled before their second turn.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import campaign


def run(seeds: range, arrays: str) -> dict[str, Any]:
    """What a process found out about the programs with these seeds."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("LAZYFUSE_")}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.helpers.loop_programs",
            f"{seeds.start}",
            f"{seeds.stop}",
            arrays,
        ],
        env={**plain, "LAZYFUSE_COMPILE_AHEAD": "0", "LAZYFUSE_CACHE": "0"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("arrays", ["numpy", "lazyfuse"])
@campaign.rounds(90, 3 * 10**6)
def test_loops_leave_what_python_leaves(seeds: range, arrays: str) -> None:
    found = run(seeds, arrays)
    print(f"{arrays}: {found}")
    assert not found["found"]
    assert found["reached"] > len(seeds) // 3
    assert found["left"]
    assert found["turns"]
