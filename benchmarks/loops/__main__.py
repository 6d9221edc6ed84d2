"""`python -m benchmarks.loops`: programs that loop in Python, as the launcher runs them.

    python -m benchmarks.loops everyday [--programs a,b] [--rounds 3]
    python -m benchmarks.loops npbench  [--programs a,b] [--rounds 11] [--preset S]
    python -m benchmarks.loops textbook [--programs a,b] [--rounds 11]
    python -m benchmarks.loops variants [--programs a,b] [--rounds 11] [--preset S]

Python and the launcher run the same files by turns, in processes of their own; `npbench` and
`textbook` (textbook.py) have `numba.njit` beside them, `variants` the same programs with small
differences. The programs of `everyday` are in benchmarks/loops/programs: a file's name stands for
all of its programs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.loops import everyday, npbench, textbook, variants
from benchmarks.loops.everyday import Found
from benchmarks.loops.npbench import Row


def main(given: Sequence[str]) -> None:
    """Measure, print, and write the figures to a file if one is named."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.loops",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=("everyday", "npbench", "textbook", "variants"))
    parser.add_argument("--programs", default="", help="names, with commas")
    parser.add_argument("--rounds", type=int, help="of turns")
    parser.add_argument("--preset", default="S", help="of NPBench: S, M, L or paper")
    parser.add_argument("--warm", type=float, default=npbench.WARM, help="seconds, in NPBench")
    parser.add_argument("--reasons", action="store_true", help="why loops stay in Python")
    parser.add_argument("--json", help="file for the figures")
    options = parser.parse_args(given)
    rows: Sequence[Found | Row]
    if options.what == "everyday":
        rows = found = everyday.run(everyday.chosen(options.programs), options.rounds or 3)
        print(everyday.summary(found))
        if options.reasons:
            print(everyday.reasons(found))
    else:
        is_textbook = options.what == "textbook"
        names = options.programs.split(",") if options.programs else npbench.NAMES
        if is_textbook and not options.programs:
            names = textbook.NAMES
        preset = "" if is_textbook else options.preset
        kind = variants if options.what == "variants" else npbench
        rows = measured = kind.run(names, preset, options.rounds or 11, options.warm)
        print(npbench.summary(measured))
        if options.reasons:
            for row in measured:
                print(row.name, *(f"  {each}" for each in _staying(row)), sep="\n")
    if options.json:
        Path(options.json).write_text(json.dumps([row.as_dict() for row in rows], indent=1) + "\n")


def _staying(row: Row) -> list[str]:
    return [f"{each.line}: {each.code}: {each.stays}" for each in row.loops if each.stays]


if __name__ == "__main__":
    main(sys.argv[1:])
