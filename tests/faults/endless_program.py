"""A program without an end that compares itself with NumPy: something to be killed.

    python -m tests.faults.endless_program SEED HOW [PROGRAMS]

HOW: `inside` compiles in this process, `ahead` in a worker, `numpy` nothing. A line is printed for
each program that is done, at first "ready"; status 9 says that a value was wrong.
"""

from __future__ import annotations

import itertools
import random
import sys

import numpy

import lazyfuse
from lazyfuse.runtime.execution import program_tiers
from lazyfuse.runtime.placement import devices
from tests.faults import statements


def main(seed: int, how: str, count: int) -> None:
    """Print a line for each program."""
    program_tiers.COMPILE_ELEMENTS = 0
    lazyfuse.options.compile_ahead = how == "ahead"
    lazyfuse.options.compile_after = 0 if how != "numpy" else 1 << 40
    print("ready", flush=True)
    for turn in range(count) if count else itertools.count():
        ours, theirs = statements.arrays(lazyfuse), statements.arrays(numpy)
        # a number of its own makes kernels of its own
        number = random.Random(seed + turn).randrange(1, 1000)
        lines = [*statements.program(seed + turn), f"a = a * 0.5 - {number}.0 / (b * b + 1.0)"]
        for line in lines:
            exec(line, ours)
            exec(line, theirs)
        if not statements.equal(statements.values(ours), statements.values(theirs)):
            print("wrong", seed + turn, flush=True)
            sys.exit(9)
        worker = getattr(getattr(devices.cpu(), "_worker", None), "_process", None)
        print("done", turn, worker.pid if worker else 0, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 0)
