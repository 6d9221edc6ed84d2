"""Programs of NPBench that loop: Python, the launcher and `numba.njit` by turns.

The environment variable NPBENCH names a checkout of spcl/npbench. numba gets NPBench's own text for
it, where its results are right, or NumPy's text; in both, one thread and no `fastmath`.
"""

from __future__ import annotations

import ast
import json
import os
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.loops import textbook, turns
from benchmarks.loops.turns import Child, Job, Loop

NAMES = (
    "nussinov crc16 seidel_2d spmv syr2k cholesky ludcmp lu symm syrk adi trmm gramschmidt deriche "
    "nbody durbin trisolv"
).split()
WARM = 2.0  # seconds of calls before the first that is timed
TIMES = 4  # that what these calls want compiled is waited for


@dataclass(slots=True)
class Row:
    """Median seconds of a program (or of a variant of it), and what its results were like."""

    name: str
    seconds: dict[str, float] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    text_for_numba: str = ""
    loops: list[Loop] = field(default_factory=list)

    def speed(self, way: str, beside: str) -> float:
        """How fast a way was beside another; 0 if it is not known."""
        if way not in self.seconds or beside not in self.seconds:
            return 0.0
        return self.seconds[beside] / self.seconds[way]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"loops": [each._asdict() for each in self.loops]}


def job(name: str, preset: str) -> Job:
    """What a child is told of a program; preset "" is of textbook.py."""
    if not preset:
        names = [f"given{k}" for k in range(len(textbook.made(name)))]
        return {
            "file": textbook.__file__,
            "function": name,
            "maker": textbook.__file__,
            "parameters": {"name": name},
            "init": {"func_name": "made", "input_args": ["name"], "output_args": names},
            "arguments": names,
        }
    checkout = os.environ.get("NPBENCH")
    if not checkout:
        raise SystemExit("NPBENCH: expected the path of a checkout of spcl/npbench")
    path = Path(checkout).resolve()
    info = json.loads((path / f"bench_info/{name}.json").read_text())["benchmark"]
    base = path / "npbench/benchmarks" / info["relative_path"] / info["module_name"]
    return {
        "file": f"{base}_numpy.py",
        "function": info["func_name"],
        "maker": f"{base}.py",
        "parameters": info["parameters"][preset],
        "init": info["init"],
        "arguments": info["input_args"],
    }


def measure(
    name: str, given: Job, rounds: int, folder: str, warm: float = WARM, with_numba: bool = True
) -> Row:
    """Run a program in all ways."""
    row = Row(name)
    with turns.children(given, ["python", "lazyfuse"], folder) as started:
        theirs = None
        for child in started:
            try:
                child.ask("call 1")
                first = child.results()
                for _ in range(TIMES if child.way == "lazyfuse" else 0):
                    child.ask(f"warm {warm / TIMES}")
                    child.ask(f"finish {turns.WAIT}")
                child.ask("call 1")
                theirs = theirs or first
                faults = [turns.compared(theirs, each) for each in (first, child.results())]
                row.faults[child.way] = max(faults, key=len)
            except RuntimeError as error:
                row.faults[child.way] = f"WRONG: {error}"
                return row
        numba = _numba(given, theirs, row, folder) if with_numba else None
        if numba is not None:
            started.append(numba)
        try:
            times: dict[str, list[float]] = {child.way: [] for child in started}
            for _ in range(rounds):
                for child in started:
                    times[child.way] += child.ask("call 1")
            row.seconds = {way: statistics.median(each) for way, each in times.items()}
            row.loops = started[1].loops()
            fault = turns.compared(theirs or [], started[1].results())
            row.faults["lazyfuse"] = max(fault, row.faults["lazyfuse"], key=len)
        finally:
            if numba is not None:
                numba.end()
    return row


def _numba(given: Job, theirs: Any, row: Row, folder: str) -> Child | None:
    """A warm child with numba whose results are right; None if there is none."""
    own = given["file"].replace("_numpy.py", "_numba_n.py")
    for text, path in (("NPBench's", own), ("NumPy's", given["file"])):
        if not Path(path).exists():
            continue
        child = Child(given | {"file": path}, "numba", folder)
        try:
            child.ask("call 2")
            fault = turns.compared(_comparable(theirs), _comparable(child.results()))
        except RuntimeError as error:
            fault = f"WRONG: {error}"
        if not fault.startswith("WRONG"):
            row.text_for_numba, row.faults["numba"] = text, fault
            return child
        row.faults["numba"] = f"{text} text: {fault}"
        child.end()
    return None


def _comparable(results: Any) -> Any:
    """Results without the difference between Python's numbers and NumPy's, which numba has not."""
    numbers = []
    for kind, dtype, shape, data in results:
        if kind == "scalar" or dtype is None:
            value = np.frombuffer(data, dtype)[0] if dtype else ast.literal_eval(data)
            data, shape, kind, dtype = np.float64(value).tobytes(), (), "scalar", "<f8"
        numbers.append((kind, dtype, shape, data))
    return numbers


def run(names: Sequence[str], preset: str, rounds: int, warm: float) -> list[Row]:
    """Run and show programs."""
    print(f"{'program':<12} {'python':>11} {'lazyfuse':>11} {'numba':>11}", end="")
    print("   beside NumPy: lazyfuse  numba; lazyfuse beside numba")
    rows = []
    with turns.cache() as folder:
        for name in names:
            rows.append(measure(name, job(name, preset), rounds, folder, warm))
            print(line(rows[-1]), flush=True)
    return rows


def line(row: Row) -> str:
    """A program's line."""
    ways = ("python", "lazyfuse", "numba")
    times = " ".join(
        f"{1e3 * row.seconds[way]:8.3f} ms" if way in row.seconds else f"{'-':>11}" for way in ways
    )
    told = "; ".join(f"{way} {fault}" for way, fault in row.faults.items() if fault)
    if row.text_for_numba == "NumPy's":
        told += "; numba has NumPy's text"
    ours, theirs = row.speed("lazyfuse", "python"), row.speed("numba", "python")
    return (
        f"{row.name:<12} {times} {ours:23.2f} {theirs:6.2f} "
        f"{row.speed('lazyfuse', 'numba'):9.2f}  {told}"
    )


def summary(rows: Iterable[Row]) -> str:
    """Geometric means, and what is wrong."""
    parts = []
    for way, beside in (("lazyfuse", "python"), ("numba", "python"), ("lazyfuse", "numba")):
        speeds = [speed for row in rows if (speed := row.speed(way, beside))]
        if speeds:
            mean = statistics.geometric_mean(speeds)
            parts.append(f"{way} beside {beside} {mean:.2f} ({len(speeds)})")
    wrong = [row.name for row in rows if row.faults.get("lazyfuse", "").startswith("WRONG")]
    return f"geometric means: {', '.join(parts)}; wrong: {len(wrong)} {' '.join(wrong)}"
