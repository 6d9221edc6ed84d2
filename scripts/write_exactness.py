"""Writes docs/exactness.md from the op table and the measured figures.

`python scripts/write_exactness.py`; the figures come from `python -m benchmarks.exactness`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from lazyfuse.codegen.table.op import KERNEL_DTYPES, Op
from lazyfuse.codegen.table.ops import ROWS, TABLE

ROOT = Path(__file__).parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))
from benchmarks.exactness.units import EXACT, INEXACT, NUMPY, class_of  # noqa: E402

TARGET = ROOT / "docs" / "exactness.md"
PROSE = ROOT / "docs" / "exactness.in.md"
FIGURES = ROOT / "benchmarks" / "results" / "exactness.json"
KINDS = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex"}
WAYS = {
    "numpy": "NumPy",
    "compiled": "compiled",
    "opencl": "OpenCL",
    "opencl-grid": "OpenCL grid",
    "opencl-single": "OpenCL single",
}
NAMES = {"f4": "float32", "f8": "float64", "c8": "complex64", "c16": "complex128"}


def classes(row: Op) -> dict[str, str]:
    """For each kind of the first operand: exact, inexact, or NumPy's own."""
    found: dict[str, str] = {}
    for kind in KINDS:
        ours = {class_of(row, ins, out) for ins, out in loops(row) if ins[0][0] == kind}
        if ours:
            found[kind] = INEXACT if INEXACT in ours else EXACT if EXACT in ours else NUMPY
    return found


def loops(row: Op) -> list[tuple[tuple[str, ...], str]]:
    """The loops of a row over dtypes that kernels hold."""
    if row.ufunc is None:
        return [((each,) * max(row.nin, 1), each) for each in KERNEL_DTYPES]
    found = []
    for text in row.ufunc.types:
        ins, outs = text.split("->")
        if not set(ins + outs) <= set("?bhilBHILqQfdFD"):
            continue
        spelled = [np.dtype(char).str[1:] for char in ins + outs[0]]
        found.append((tuple(spelled[:-1]), spelled[-1]))
    return found


def class_table() -> str:
    """One line for all operations of the same classes."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for row in ROWS:
        if row.kind != "map" or row.name in ("cast", "copy", "where", "clip_each"):
            continue
        found = classes(row)
        if row.ufunc is None:
            found = dict.fromkeys(row.exact, EXACT)
        cells = [
            " ".join(KINDS[kind] for kind, each in found.items() if each == wanted)
            for wanted in (EXACT, INEXACT, NUMPY)
        ]
        if cells[1]:
            cells[1] += f" ({row.ulps})"
        groups.setdefault((cells[0], cells[1], cells[2]), []).append(f"`{row.name}`")
    lines = ["| operations | exact | inexact (units) | NumPy's own |", "|---|---|---|---|"]
    for cells3, names in sorted(groups.items(), key=lambda each: each[1]):
        lines.append(f"| {' '.join(names)} | " + " | ".join(cells3) + " |")
    return "\n".join(lines)


def figure_table(record: dict[str, Any]) -> str:
    """One line per function and dtype: the bound, and the largest and mean error in each way."""
    known: dict[tuple[str, str], dict[str, Any]] = {}
    for each in record["figures"]:
        known.setdefault((each["function"], each["dtype"]), {})[each["way"]] = each
    head = ["function", "dtype", "bound", *WAYS.values(), "from NumPy"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for (name, dtype), ways in sorted(known.items()):
        cells = [
            f"{ways[way]['max']:.2f} ({ways[way]['mean']:.2f})" if way in ways else ""
            for way in WAYS
        ]
        apart = max(each.get("numpy", 0.0) for each in ways.values())
        bound = str(TABLE[name].ulps)
        line = [f"`{name}`", NAMES[dtype], bound, *cells, f"{apart:.0f}"]
        lines.append("| " + " | ".join(line) + " |")
    return "\n".join(lines)


def text() -> str:
    """The whole page."""
    record = json.loads(FIGURES.read_text())
    about = record["about"]
    where = f"{about['points']:,} points per function and dtype, NumPy {about['numpy']}"
    parts = {
        "CLASSES": class_table(),
        "FIGURES": figure_table(record),
        "MEASURED": f"{where}, {about['processor']}",
    }
    page = PROSE.read_text()
    for name, part in parts.items():
        page = page.replace("{{" + name + "}}", part)
    return page


if __name__ == "__main__":
    TARGET.write_text(text())
