"""`python -m benchmarks`: every case at every size, lazyfuse and its peers beside NumPy."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import benchmarks.cases  # noqa: F401  # fills CASES
from benchmarks import device, libraries, machine, picture, show
from benchmarks.case import CASES
from benchmarks.measure import Row, measure

PEERS = ("numexpr", "numba", "jax", "torch")


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--cases", default="", help="names or parts of names, with commas")
    parser.add_argument("--sizes", default="1e2,1e4,1e6", help="elements, with commas")
    parser.add_argument(
        "--peers",
        nargs="?",
        const=",".join(PEERS),
        default="",
        help="also those of numexpr, numba, jax, torch that are installed (or the ones named)",
    )
    parser.add_argument(
        "--device",
        default="",
        help="lazyfuse on the CPU and on this device (opencl, opencl:1, ...) side by side, "
        "with the device's own figures; on a GPU also cupy, jax and torch there",
    )
    parser.add_argument("--seconds", type=float, default=0.2, help="per library, case and size")
    parser.add_argument("--warm", action="store_true", help="use the program cache as it is")
    parser.add_argument("--json", help="file for the figures")
    parser.add_argument("--picture", help="file for a picture (png, svg or pdf)")
    return parser.parse_args(given)


def chosen(names: str) -> list[str]:
    """The cases that a list of names or parts of names means; all if it is empty."""
    wanted = [name for name in names.split(",") if name]
    return [name for name in sorted(CASES) if not wanted or any(part in name for part in wanted)]


def run(options: argparse.Namespace) -> list[Row]:
    """Measure, show, and write what was asked for."""
    columns = libraries.present((name for name in options.peers.split(",") if name), options.device)
    about = machine.describe(columns)
    print(f"{about['processor']}, {about['cores']} cores, Python {about['python']}")
    print(f"copy: {about['copy_bytes_per_second'] / 1e9:.1f} GB/s; {about['versions']}")
    if options.device:
        about["device"] = device.describe(options.device, options.seconds)
        device.show(about["device"])
        columns += device.peers(options.device)
    rows = []
    for name in chosen(options.cases):
        for size in (int(float(text)) for text in options.sizes.split(",")):
            if size <= CASES[name].largest:
                rows += measure(CASES[name], size, columns, options.seconds)
                print(f"\r{name} {size:.0e}   ", end="", file=sys.stderr, flush=True)
    print("\r", end="", file=sys.stderr)
    show.table(rows)
    if options.json:
        record = {
            "command": shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]]),
            "machine": about,
            "rows": [row.as_dict() for row in rows],
        }
        Path(options.json).write_text(json.dumps(record, indent=1) + "\n")
    if options.picture:
        picture.draw(rows, options.picture)
    return rows


def main() -> None:
    """Run with a program cache of its own, so that first calls are cold, unless asked not to."""
    options = arguments(sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        if not options.warm:
            os.environ["LAZYFUSE_CACHE_DIR"] = folder
        run(options)


if __name__ == "__main__":
    main()
