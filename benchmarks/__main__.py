"""`python -m benchmarks`: every case at every size, lazyfuse and its peers beside NumPy.

With `--peers` it judges: peers, first calls, memory and equal bits, and a verdict for each goal.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import benchmarks.cases  # noqa: F401  # fills CASES
from benchmarks import device, judge, libraries, machine, picture, show
from benchmarks.case import CASES, Case
from benchmarks.measure import Row, measure

PEERS = ("numexpr", "numba", "jax", "torch")


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--cases", default="", help="names or parts of names, with commas")
    parser.add_argument("--sizes", default="", help="elements, with commas")
    parser.add_argument(
        "--peers",
        nargs="?",
        const=",".join(PEERS),
        default="",
        help="judge: those of numexpr, numba, jax, torch that are installed (or the ones named) "
        "beside us, and all that was promised",
    )
    parser.add_argument("--parts", default="", help=f"of the judgement: {','.join(judge.PARTS)}")
    parser.add_argument(
        "--minutes", type=float, default=judge.MINUTES, help="after which peers are left out"
    )
    parser.add_argument("--equal", action="store_true", help="judge the results alone")
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


def sizes_of(each: Case, text: str) -> list[int]:
    """The sizes at which a case is measured: those asked for, or its own one."""
    return [each.ordinary] if each.ordinary else [int(float(word)) for word in text.split(",")]


def run(options: argparse.Namespace) -> list[Row]:
    """Measure, show, and write what was asked for; what has been measured, if interrupted."""
    columns = libraries.present((), options.device)
    about = machine.describe(columns)
    print(f"{about['processor']}, {about['cores']} cores, Python {about['python']}")
    print(f"copy: {about['copy_bytes_per_second'] / 1e9:.1f} GB/s; {about['versions']}")
    if options.device:
        about["device"] = device.describe(options.device, options.seconds)
        device.show(about["device"])
        columns += device.peers(options.device)
    rows: list[Row] = []
    try:
        for name in chosen(options.cases):
            for size in sizes_of(CASES[name], options.sizes or "1e2,1e4,1e6"):
                if size <= CASES[name].largest:
                    rows += measure(CASES[name], size, columns, options.seconds)
                    print(f"\r{name} {size:.0e}   ", end="", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print("\ninterrupted: the cases up to here")
    print("\r", end="", file=sys.stderr)
    show.table(rows)
    _write(options, rows, {"machine": about})
    return rows


def run_judge(options: argparse.Namespace) -> judge.Record:
    """Measure everything, show it, and say which goals were met."""
    parts = "equal" if options.equal else options.parts
    wanted = [name for name in parts.split(",") if name] or list(judge.PARTS)
    unknown = set(wanted) - set(judge.PARTS)
    if unknown:
        raise SystemExit(f"--parts: {', '.join(sorted(unknown))}? of {', '.join(judge.PARTS)}")
    sizes = [int(float(text)) for text in (options.sizes or judge.SIZES).split(",")]
    peers = [name for name in (options.peers or ",".join(PEERS)).split(",") if name]
    record = judge.run(judge.chosen(options.cases), sizes, peers, wanted, options.minutes)
    about = record.about
    print(f"{about['processor']}, {about['cores']} cores, Python {about['python']}")
    print(f"{about['versions']}; record path: {about['record_path']}, {about['lazyfuse']}")
    print("seconds: " + ", ".join(f"{name} {took:.0f}" for name, took in about["seconds"].items()))
    if record.rows:
        show.table(record.rows)
    if "without_peers" in about:
        print(f"no time for peers: {', '.join(about['without_peers'])}")
    judge.show_children(record)
    for verdict in record.verdicts:
        print(verdict)
    found = record.as_dict()
    del found["about"], found["rows"]
    _write(options, record.rows, {"machine": about, **found})
    return record


def _write(options: argparse.Namespace, rows: list[Row], record: dict[str, Any]) -> None:
    """The files that were asked for."""
    if options.json:
        command = shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]])
        whole = {"command": command, **record, "rows": [row.as_dict() for row in rows]}
        Path(options.json).write_text(json.dumps(whole, indent=1) + "\n")
    if options.picture:
        picture.draw(rows, options.picture)


def main() -> None:
    """Run with a program cache of its own, so that first calls are cold, unless asked not to."""
    options = arguments(sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        if not options.warm:
            os.environ["LAZYFUSE_CACHE_DIR"] = folder
        if options.peers or options.equal or options.parts:
            run_judge(options)
        else:
            run(options)


if __name__ == "__main__":
    main()
