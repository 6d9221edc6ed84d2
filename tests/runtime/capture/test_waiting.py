"""Replays while a program is being compiled, and from the moment on in which it has come."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lazyfuse.runtime.capture import conditions

PROGRAM = """
import json, sys
import numpy
import lazyfuse as np
from lazyfuse.devices.pools import compile_worker
from lazyfuse.runtime.events import counters
from lazyfuse.runtime.placement import devices

def steps(xp, x, turns):
    for _ in range(turns):
        x[1:-1] = 0.5 * (x[2:] + x[:-2]) + FUNCTION(x[1:-1])
        float(x[5])
    return x

compile_worker.DELAY = 1000.0
start = numpy.linspace(0.0, 1.0, 300_001)
x, y = np.array(start), start.copy()
found = {}
for name in ("before", "after"):
    steps(np, x, 24)
    totals = counters.totals()
    found[name] = {
        "replays": sum(n for rule, n in totals.decisions.items() if rule.name == "replay"),
        "waiting": totals.waiting, "numba": totals.languages["numba"],
    }
    found[name]["report"] = "waiting for the compiler: " in str(np.report())
    assert devices.cpu().finish(120.0)
    counters.reset()
again = np.array(start)
steps(np, again, 48)
found["same"] = np.asarray(again).tobytes() == np.asarray(x).tobytes()
close = numpy.allclose(np.asarray(x), steps(numpy, y, 48), rtol=1e-12, atol=0.0)
found["close"] = bool(close)
print(json.dumps(found))
"""


@pytest.mark.skipif(conditions.native is None, reason="C replays")
@pytest.mark.parametrize("function", ["abs", "np.exp"])
def test_runs_are_replayed_before_and_after_their_program_comes(
    function: str, tmp_path: Path
) -> None:
    variables = {"LAZYFUSE_CACHE_DIR": str(tmp_path), "LAZYFUSE_COMPILE_AHEAD": "1"}
    text = PROGRAM.replace("FUNCTION", function.replace("np.", "xp."))
    done = subprocess.run(
        [sys.executable, "-c", text], env=os.environ | variables, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    before, after = found["before"], found["after"]
    assert before["replays"] > 4
    assert before["waiting"] > 4
    assert before["numba"] == 0
    assert before["report"]
    assert after["replays"] > 4
    assert after["numba"] > 4
    assert after["waiting"] == 0
    assert found["same"]
    assert found["close"]
