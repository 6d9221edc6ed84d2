"""`python -m benchmarks.importing`: what `import lazyfuse` takes beside `import numpy`, by turns.

Each import has a process of its own, which finds byte code on disk, as in an installation.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections.abc import Sequence

MODULES = ("numpy", "lazyfuse")
PROGRAM = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"


def seconds(module: str) -> float:
    """Seconds of one import in a new process, which may write byte code."""
    command = [sys.executable, "-c", PROGRAM.format(module)]
    done = subprocess.run(command, env={}, capture_output=True, text=True, check=True)
    return float(done.stdout)


def main(given: Sequence[str]) -> None:
    """Measure and print medians, in milliseconds."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.importing", description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="of each import")
    options = parser.parse_args(given)
    for module in MODULES:
        seconds(module)  # writes the byte code
    found = [[seconds(module) for module in MODULES] for _ in range(options.runs)]
    numpy, ours = (statistics.median(column) for column in zip(*found, strict=True))
    print(
        f"numpy {1e3 * numpy:.0f} ms, lazyfuse {1e3 * ours:.0f} ms: {1e3 * (ours - numpy):.0f} more"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
