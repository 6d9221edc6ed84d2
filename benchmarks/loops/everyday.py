"""Programs of everyday: Python and the launcher by turns, in processes with five calls each."""

from __future__ import annotations

import ast
import functools
import linecache
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.loops import turns
from benchmarks.loops.turns import Loop

PROGRAMS = Path(__file__).parent / "programs"
CALLS = 5
SLOWER = 0.95  # times Python's speed: what is below counts as slower
UNCHANGED = 1.5  # times Python's speed: nothing much was compiled
MATTERS = 0.1  # of the time of Python's: a loop that took less is not told of


@dataclass(slots=True)
class Found:
    """What was measured of a program: seconds in each round, of the first and of the last call."""

    name: str
    python_first: list[float] = field(default_factory=list)
    python: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    last: list[float] = field(default_factory=list)
    fault: str = ""
    loops: list[Loop] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """Our speed beside Python's at the last call, of later processes if there are any."""
        return statistics.median(self.python) / self.ours

    @property
    def ours(self) -> float:
        """Our seconds there."""
        return statistics.median(self.last[1:] or self.last)

    @property
    def at_first(self) -> float:
        """The same at the first call of the first process, which finds nothing on disk."""
        return self.python_first[0] / self.first[0]

    @property
    def again(self) -> float:
        """The same at the first call of later processes."""
        return statistics.median(self.python_first) / statistics.median(self.first[1:] or [1e9])

    def staying(self) -> list[Loop]:
        """The loops that Python keeps, where that matters, told or not told why."""
        least = MATTERS * CALLS * statistics.median(self.python or [0.0])
        kept = [each for each in self.loops if each.stays or not each.compiled_turns]
        return [each for each in kept if each.seconds > least]

    def is_unseen(self) -> bool:
        """Whether no loop tells why the program is no faster."""
        return not self.staying() and bool(self.last) and self.ratio < UNCHANGED

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        names = ("name", "python_first", "python", "first", "last", "fault")
        return {name: getattr(self, name) for name in names} | {
            "loops": [each._asdict() for each in self.loops]
        }


@functools.cache
def sizes() -> dict[str, tuple[Path, int]]:
    """The programs: the file of each, and its size."""
    found = {}
    for path in sorted(PROGRAMS.glob("*.py")):
        tree = ast.parse(path.read_text())
        (table,) = (
            ast.literal_eval(node.value)
            for node in tree.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SIZES"
        )
        found.update({name: (path, size) for name, size in table.items()})
    return found


def chosen(words: str) -> list[str]:
    """The programs whose name, or whose file's, is named; all if nothing is."""
    wanted = words.split(",") if words else []
    return [
        name
        for name, (path, _) in sizes().items()
        if not wanted or name in wanted or path.stem in wanted
    ]


def measure(name: str, rounds: int, folder: str) -> Found:
    """Run a program."""
    path, size = sizes()[name]
    job = {"file": str(path), "function": name, "size": size}
    found = Found(name)
    try:
        for _ in range(rounds):
            with turns.children(job, ["python"], folder) as (python,):
                seconds = python.ask(f"call {CALLS}")
                theirs = python.results()
            found.python_first.append(seconds[0])
            found.python.append(seconds[-1])
            with turns.children(job, ["lazyfuse"], folder) as (ours,):
                seconds = ours.ask("call 1")
                faults = [turns.compared(theirs, ours.results())]
                seconds += ours.ask(f"call {CALLS - 1}")
                faults.append(turns.compared(theirs, ours.results()))
                found.loops = ours.loops()
                ours.ask(f"finish {turns.WAIT}")
            found.first.append(seconds[0])
            found.last.append(seconds[-1])
            found.fault = max(found.fault, *faults, key=len)
    except RuntimeError as error:
        found.fault = f"WRONG: {error}"
    return found


def run(names: Sequence[str], rounds: int) -> list[Found]:
    """Run and show programs."""
    print(f"{'program':<28} {'python':>9} {'lazyfuse':>9} {'speed':>7} {'first':>7} {'again':>7}")
    rows = []
    with turns.cache() as folder:
        for name in names:
            rows.append(measure(name, rounds, folder))
            print(line(rows[-1]), flush=True)
    return rows


def line(row: Found) -> str:
    """A program's line."""
    if not row.last:
        return f"{row.name:<28} {row.fault}"
    python = statistics.median(row.python)
    again = f"{row.again:7.2f}" if len(row.first) > 1 else "      -"
    stays = "  stays" if row.staying() else "  unseen" if row.is_unseen() else ""
    return (
        f"{row.name:<28} {1e3 * python:6.1f} ms {1e3 * row.ours:6.1f} ms {row.ratio:7.2f} "
        f"{row.at_first:7.2f} {again}  {row.fault}{stays}"
    )


def summary(rows: Iterable[Found]) -> str:
    """The mean, what is slower, and what is wrong."""
    measured = [row for row in rows if row.last]
    wrong = [row.name for row in rows if row.fault.startswith("WRONG")]
    slow = [row.name for row in measured if row.ratio < SLOWER]
    mean = statistics.geometric_mean([row.ratio for row in measured]) if measured else 0.0
    return (
        f"speed beside Python's, last of {CALLS} calls: geometric mean {mean:.2f} of "
        f"{len(measured)} programs; below {SLOWER}: {len(slow)} {' '.join(slow)}\n"
        f"stay in Python: {sum(bool(row.staying()) for row in measured)}, without a word: "
        f"{sum(row.is_unseen() for row in measured)}; "
        f"wrong: {len(wrong)} {' '.join(wrong)}"
    )


def reasons(rows: Iterable[Found]) -> str:
    """Why loops stay in Python: each reason with its places, the most frequent first."""
    places = defaultdict(list)
    for row in rows:
        file = sizes()[row.name][0]
        if row.is_unseen():
            places["no loop tells why"].append(f"    {row.name} ({file.stem}.py)")
        for each in row.staying():
            in_brackets = re.fullmatch(r".* \((.*)\)", each.stays)
            reason = in_brackets[1] if in_brackets else re.sub(r"line \d+: ", "", each.stays)
            at = [int(found) for found in re.findall(r"line (\d+)", each.stays)] or [each.line]
            places[reason or "no reason is given"].append(
                f"    {row.name} ({file.stem}.py), {each.seconds:.2f} s in Python\n"
                f"        {each.line}: {each.code}\n"
                f"        {at[-1]}: {linecache.getline(each.file, at[-1]).strip()}"
            )
    ordered = sorted(places.items(), key=lambda item: -len(item[1]))
    return "\n".join("\n".join((f"{len(each)} x {reason}", *each)) for reason, each in ordered)
