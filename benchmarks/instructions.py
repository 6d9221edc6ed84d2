"""Instructions of a look at a result beside its kernels: `python -m benchmarks.instructions`.

Valgrind counts them (Debian: `valgrind`), so that a busy machine gives the same figures as an idle
one. Counted is what runs within `numpy.asarray`, in the interpreter, NumPy and lazyfuse's
extension: the evaluation and the loan, without compiled kernels. Each look takes half a minute.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

import lazyfuse as lf

SIZE = 40_000
LOOKS: dict[str, Callable[[Any, Any], Any]] = {
    "one operation": lambda x, y: lf.sqrt(x),
    "two operations": lambda x, y: (x - y) ** 2,
    "a part": lambda x, y: x[:-1] + x[1:],
    "values that are there": lambda x, y: x[::-1],
}
BEFORE, TURNS = 5_000, 2_000
"""Turns that are not counted, in which programs are compiled and read; those that are."""


def repeat(name: str) -> None:
    """What is counted, behind the same looks through another function."""
    generator = np.random.default_rng(0)
    x, y = (lf.array(generator.random(SIZE)) for _ in "xy")
    call = LOOKS[name]
    for _ in range(BEFORE):
        memoryview(call(x, y))
    for _ in range(TURNS):
        np.asarray(call(x, y))


def own_costs(lines: Iterable[str]) -> int:
    """The instructions of a file of callgrind's that lie in libraries: not in compiled kernels."""
    objects: dict[str, str] = {}
    here, total, skips = "", 0, False
    for line in lines:
        if found := re.match(r"ob=\((\d+)\)(?: (.*))?", line):
            objects.setdefault(found[1], found[2] or "")
            here = objects[found[1]]
        elif line.startswith("calls="):
            skips = True  # the line after it is what was called
        elif re.match(r"[+\-*\d]", line):
            total += 0 if skips or here == "???" else int(line.split()[1])
            skips = False
    return total


def counted(name: str) -> int:
    """The instructions within `asarray` in all turns."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        command = (
            "valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--collect-atstart=no",
            "--toggle-collect=array_asarray", sys.executable, "-m", "benchmarks.instructions", name,
        )  # fmt: skip
        subprocess.run(command, check=True, capture_output=True)
        with out.open(encoding="utf-8") as file:
            return own_costs(file)


def main() -> None:
    """Print a line for each look."""
    if len(sys.argv) == 2:
        repeat(sys.argv[1])
        return
    for name in LOOKS:
        print(f"{name:24s} {counted(name) / TURNS:8.0f} instructions", flush=True)


if __name__ == "__main__":
    main()
