"""`python -m benchmarks.importing`: what `import lazyfuse` takes beside `import numpy`, by turns.

Each import has a process of its own, which finds byte code on disk, as in an installation. What
runs late counts where it is first needed: so a first small operation, and a first large expression
with its kernels on disk, are timed together with the import.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence

MODULES = ("numpy", "lazyfuse")
PROGRAMS = {
    "import": "",
    "and a small operation": "str(np.arange(10) + 1)",
    "and a large expression": "x = np.arange(1e6) + 1; float((np.sin(x) * 2 + x).sum())",
}
PROGRAM = (
    "import time; t = time.perf_counter(); import {} as np; {}; print(time.perf_counter() - t)"
)


def seconds(module: str, program: str, folder: str) -> float:
    """Seconds of an import and a program in a new process, which may write byte code."""
    command = [sys.executable, "-c", PROGRAM.format(module, program or "pass")]
    variables = {"LAZYFUSE_CACHE_DIR": folder, "PATH": os.environ.get("PATH", "")}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    return float(done.stdout)


def main(given: Sequence[str]) -> None:
    """Measure and print medians, in milliseconds."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.importing", description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="of each program")
    options = parser.parse_args(given)
    with tempfile.TemporaryDirectory() as folder:
        for name, program in PROGRAMS.items():
            for module in MODULES:
                seconds(module, program, folder)  # writes the byte code, and the kernels
            found = [
                [seconds(module, program, folder) for module in MODULES]
                for _ in range(options.runs)
            ]
            numpy, ours = (1e3 * statistics.median(column) for column in zip(*found, strict=True))
            print(f"{name}: numpy {numpy:.0f} ms, lazyfuse {ours:.0f} ms: {ours - numpy:.0f} more")


if __name__ == "__main__":
    main(sys.argv[1:])
