"""`python -m benchmarks --peers`: what was promised, measured in one run, and what was missed.

Owns the goals and the order of measuring. Small sizes, first calls, memory and equal bits are
measured before any peer is imported: their threads and allocators would change what we see.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks import children, libraries, machine, show
from benchmarks.case import CASES, Case
from benchmarks.children import Found, Sized
from benchmarks.measure import REST, Budget, Row, measure

SIZES = "1e1,1e2,1e3,1e4,1e6,1e7"
LARGE = 10**6  # from here on peers are measured, too
COLUMNS = ("numexpr", "numba.np", "jax.jit", "torch.compile")
"""The peers that have to be beaten: what a NumPy user would write with them."""
BY_HAND = ("numba.par",)
"""Loops written by hand: shown, not judged."""
PARTS = ("equal", "first", "memory", "small", "large")
MINUTES = 14.0
"""After so long only NumPy and we go on."""
COMPILING = Budget(total=200.0, call=30.0)
"""torch.compile and numba with parallel=True take up to half a minute for a program."""
FIRST_AT, MEMORY_AT, EQUAL_AT = 10**6, 4 * 10**6, (50_000, 10**6)
SMALL_SECONDS, LARGE_SECONDS = 0.08, 0.25


@dataclass(slots=True)
class Verdict:
    """One goal: whether it was met, the figure, and each miss with its own."""

    goal: str
    met: bool | None  # None: nothing was measured for it
    figure: str = ""
    missed: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        word = {True: "met   ", False: "MISSED", None: "-     "}[self.met]
        lines = [f"{word} {self.goal}" + (f": {self.figure}" if self.figure else "")]
        return "\n".join([*lines, *(f"         {miss}" for miss in self.missed)])


@dataclass(slots=True)
class Record:
    """All that was measured."""

    about: dict[str, Any] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    first: list[Found] = field(default_factory=list)
    memory: list[Found] = field(default_factory=list)
    equal: list[Found] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def run(
    cases: Sequence[Case],
    sizes: Sequence[int],
    peers: Sequence[str],
    parts: Sequence[str],
    minutes: float = MINUTES,
) -> Record:
    """Measure the parts in their order, print what was found, and judge.

    After `minutes` the cases that are left are measured beside NumPy alone.
    """
    record = Record()
    clock = _Clock()
    deadline = time.monotonic() + 60.0 * minutes
    with children.cache() as warm:
        sized = _at(cases, FIRST_AT)
        if "equal" in parts:
            twice = [each for size in EQUAL_AT for each in _at(cases, size)]
            record.equal = children.equal(list(dict.fromkeys(twice)), warm)
            clock.lap("equal bits")
        elif "first" in parts or "memory" in parts:
            children.fill(sized, warm)
        if "first" in parts:
            record.first = children.first_calls(sized, warm)
            clock.lap("first calls")
        if "memory" in parts:
            record.memory = children.memory(_at(cases, MEMORY_AT), warm)
            clock.lap("memory")
    columns = libraries.present(())
    record.about = machine.describe(columns)
    record.about |= {"record_path": machine.record_path(), "lazyfuse": machine.place()}
    if "small" in parts:
        small = [size for size in sizes if size < LARGE]
        _table(
            record, [c for c in cases if not c.ordinary], small, columns, SMALL_SECONDS, deadline
        )
        clock.lap("small sizes")
    if "large" in parts:
        columns += _judged(peers)
        record.about["versions"] = {each.name: each.version for each in columns}
        large = [size for size in sizes if size >= LARGE]
        record.about["copy_by_size"] = {n: machine.copy_rate(n) for n in large}
        _table(record, cases, large, columns, LARGE_SECONDS, deadline)
        clock.lap("large sizes, with peers")
    record.about["seconds"] = clock.laps
    record.about["compiling_seconds"] = COMPILING.spent
    record.rows.sort(key=lambda row: (row.case, row.size))
    record.verdicts = [goal(record) for goal in GOALS]
    return record


def _judged(peers: Sequence[str]) -> list[libraries.Library]:
    """The columns of peers that are installed: compiled NumPy style, and loops by hand."""
    found = libraries.present(peers)[2:]
    return [each for each in found if each.name in COLUMNS + BY_HAND]


def _at(cases: Iterable[Case], size: int) -> list[Sized]:
    return [(case, case.ordinary or min(size, case.largest)) for case in cases]


def _table(
    record: Record,
    cases: Iterable[Case],
    sizes: Sequence[int],
    columns: Sequence[libraries.Library],
    seconds: float,
    deadline: float,
) -> None:
    """Rows of a table of cases and sizes, size by size: the largest may be left to NumPy and us."""
    for each in sizes:
        for case in cases:
            size = case.ordinary or each
            if size > case.largest or (case.ordinary and each != sizes[0]):
                continue
            print(
                f"\r{case.name} {size:.0e}                    ", end="", file=sys.stderr, flush=True
            )
            late = time.monotonic() > deadline and len(columns) > 2
            if late:
                record.about.setdefault("without_peers", []).append(f"{case.name} {size}")
            measured = columns[:2] if late else columns
            rest = REST if len(measured) > 2 else 0.0
            record.rows += measure(case, size, measured, seconds, COMPILING, False, rest)
    print("\r", end="", file=sys.stderr)


class _Clock:
    """How long each part took."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = now - self._last
        self._last = now
        print(f"\r{name}: {self.laps[name]:.0f} s", file=sys.stderr)


# The goals


def _ours(record: Record, wanted: Callable[[Row], bool]) -> list[Row]:
    return [row for row in record.rows if row.library == libraries.OURS and wanted(row)]


def _large(row: Row) -> bool:
    return row.own or row.size >= LARGE


def _named(row: Row) -> str:
    return f"{row.case} {show.power(row.size)}"


def _mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else 0.0


def _slower(rows: Sequence[Row], least: float) -> list[str]:
    """Rows below a ratio to NumPy, and those that have none."""
    failed = [f"{_named(row)}: {row.error[:100]}" for row in rows if row.error]
    below = sorted((row.ratio, _named(row)) for row in rows if not row.error and row.ratio < least)
    return failed + [f"{name}: {ratio:.2f} times NumPy" for ratio, name in below]


def faster_than_numpy(record: Record) -> Verdict:
    """Large sizes."""
    rows = _ours(record, _large)
    goal = "n >= 1e6, programs, examples: every case faster than NumPy"
    if not rows:
        return Verdict(goal, None)
    missed = _slower(rows, 1.0)
    mean = _mean([row.ratio for row in rows if row.ratio])
    figure = f"{len(rows) - len(missed)} of {len(rows)}, geometric mean {mean:.2f}"
    return Verdict(goal, not missed, figure, missed)


def _rivals(record: Record, row: Row, names: Sequence[str] = COLUMNS) -> list[Row]:
    """What the peers took for the same case."""
    return [
        other
        for other in record.rows
        if other.library in names
        and (other.case, other.size) == (row.case, row.size)
        and not other.error
    ]


def faster_than_peers(record: Record) -> Verdict:
    """Each case beside each peer."""
    goal = "n >= 1e6: every case faster than numexpr, numba, jax.jit, torch.compile"
    pairs = [
        (row, other)
        for row in _ours(record, _large)
        if not row.error
        for other in _rivals(record, row)
    ]
    if not pairs:
        return Verdict(goal, None)
    worse = sorted(
        (other.steady / row.steady, f"{_named(row)}: {other.library}")
        for row, other in pairs
        if other.steady <= row.steady
    )
    missed = [f"{name} is {1 / ratio:.2f} times faster" for ratio, name in worse]
    return Verdict(goal, not missed, f"{len(pairs) - len(missed)} of {len(pairs)}", missed)


def best_peer(record: Record) -> Verdict:
    """The fastest peer of each case."""
    goal = "geometric mean at least 1.3 times the best peer of each case"
    ratios = {
        _named(row): min(other.steady for other in rivals) / row.steady
        for row in _ours(record, _large)
        if not row.error and (rivals := _rivals(record, row))
    }
    if not ratios:
        return Verdict(goal, None)
    mean = _mean(list(ratios.values()))
    hand = [
        rivals[0].steady / row.steady
        for row in _ours(record, _large)
        if not row.error and (rivals := _rivals(record, row, BY_HAND))
    ]
    figure = f"{mean:.2f} over {len(ratios)} cases"
    if hand:
        figure += f" ({_mean(hand):.2f} beside numba loops by hand, {len(hand)} cases)"
    return Verdict(goal, mean >= 1.3, figure)


def bandwidth(record: Record) -> Verdict:
    """Cases that do nothing but stream."""
    goal = "bandwidth-bound cases at 90 % of the bandwidth of a copy of the same size and run"
    rates = record.about.get("copy_by_size", {})
    rows = [row for row in _ours(record, _large) if row.moved and row.steady and row.size in rates]
    if not rows:
        return Verdict(goal, None)
    shares = {_named(row): row.moved / row.steady / rates[row.size] for row in rows}
    missed = [f"{name}: {share:.0%}" for name, share in shares.items() if share < 0.9]
    parts = []
    for size, rate in rates.items():
        found = [shares[_named(row)] for row in rows if row.size == size]
        if found:
            met = sum(share >= 0.9 for share in found)
            place = f"at {show.power(size)} {met} of {len(found)}, mean {_mean(found):.0%}"
            parts.append(f"{place} of {rate / 1e9:.1f} GB/s")
    return Verdict(goal, not missed, "; ".join(parts), missed)


def small_sizes(record: Record) -> Verdict:
    """Sizes from 10 to 1e4."""
    path = record.about.get("record_path", "")
    least = 0.9 if path.startswith("compiled") else 0.45
    goal = f"n = 10 to 1e4: no case below {least} of NumPy ({path})"
    rows = _ours(record, lambda row: not row.own and row.size <= 10**4)
    if not rows:
        return Verdict(goal, None)
    missed = _slower(rows, least)
    lowest = min((row.ratio for row in rows if row.ratio), default=0.0)
    return Verdict(goal, not missed, f"lowest {lowest:.2f} of {len(rows)}", missed)


def small_mean(record: Record) -> Verdict:
    """The mean over the same."""
    goal = "n = 10 to 1e4: geometric mean at or above 1"
    rows = _ours(record, lambda row: not row.own and row.size <= 10**4 and row.ratio > 0)
    if not rows:
        return Verdict(goal, None)
    by_size = {
        size: _mean([row.ratio for row in rows if row.size == size])
        for size in sorted({row.size for row in rows})
    }
    mean = _mean([row.ratio for row in rows])
    parts = ", ".join(f"{show.power(size)} {value:.2f}" for size, value in by_size.items())
    return Verdict(goal, mean >= 1.0, f"{mean:.2f} ({parts})")


def first_cold(record: Record) -> Verdict:
    """First calls with an empty cache."""
    late = children.LATE
    goal = f"first call with an empty cache: at most {late * 1e3:.0f} ms behind NumPy"
    rows = [row for row in record.first if "behind" in row]
    if not record.first:
        return Verdict(goal, None)
    missed = [f"{row['case']}: {row['error']}" for row in record.first if "error" in row]
    behind = sorted(((row["behind"], row["case"]) for row in rows), reverse=True)
    missed += [f"{name}: {more * 1e3:.0f} ms behind" for more, name in behind if more > late]
    half = sum(row["behind"] <= 0.05 for row in rows)
    worst = max((row["behind"] for row in rows), default=0.0)
    imports = sorted(row["cold"]["import"] for row in rows)
    figure = f"worst {worst * 1e3:.0f} ms, {half} of {len(rows)} within 50 ms"
    if imports:
        figure += f"; importing lazyfuse {imports[len(imports) // 2] * 1e3:.0f} ms"
    return Verdict(goal, not missed, figure, missed)


def first_ten(record: Record) -> Verdict:
    """The first ten calls with an empty cache, the compiler at work beside them."""
    goal = f"ten first calls with an empty cache: at most {children.LONGER} times NumPy's"
    rows = [row for row in record.first if "behind" in row]
    if not rows:
        return Verdict(goal, None)
    times = sorted(((r["cold"]["ten"] / r["numpy"]["ten"], r["case"]) for r in rows), reverse=True)
    missed = [f"{name}: {times:.2f}" for times, name in times if times > children.LONGER]
    figure = f"geometric mean {_mean([each for each, _ in times]):.2f}, worst {times[0][0]:.2f}"
    return Verdict(goal, not missed, figure, missed)


def first_warm(record: Record) -> Verdict:
    """First calls with a cache that knows the programs."""
    goal = "warm cache: nothing compiled, numba not imported"
    if not record.first:
        return Verdict(goal, None)
    missed = []
    for row in record.first:
        about = row["warm"].get("programs", {})
        words = []
        if row["compiled_warm"]:
            words.append(f"{row['compiled_warm']} programs compiled")
        if about.get("numba"):
            words.append("numba imported")
        if about.get("ahead"):
            words.append(f"{about['ahead']} programs compiled ahead")
        if words:
            missed.append(f"{row['case']}: {', '.join(words)}")
    count = len(record.first)
    return Verdict(goal, not missed, f"{count - len(missed)} of {count}", missed)


def peak_memory(record: Record) -> Verdict:
    """Beside NumPy's."""
    goal = "peak memory never above NumPy's"
    if not record.memory:
        return Verdict(goal, None)
    missed = [f"{row['case']}: {row['error']}" for row in record.memory if "error" in row]
    rows = sorted((row for row in record.memory if "above" in row), key=lambda row: -row["above"])
    for row in rows:
        if row["above"] > children.NOISE:
            ours = max(row["lazyfuse"]["peak"], row["lazyfuse"]["again"])
            text = f"{row['case']}: {ours / 1e6:.0f} MB, {row['above'] / 1e6:.0f} more than NumPy"
            missed.append(text)
    count = len(record.memory)
    return Verdict(goal, not missed, f"{count - len(missed)} of {count}", missed)


def chain_memory(record: Record) -> Verdict:
    """Beyond operands and results."""
    goal = f"peak memory of chains at most operands + results + {children.SLACK >> 20} MB"
    chains = {name for name, case in CASES.items() if case.functional}  # they write into no array
    rows = [row for row in record.memory if "beyond_results" in row and row["case"] in chains]
    if not rows:
        return Verdict(goal, None)
    over = sorted((row["beyond_results"], row["case"]) for row in rows)[::-1]
    missed = [f"{name}: {more / 1e6:.0f} MB more" for more, name in over if more > children.SLACK]
    return Verdict(goal, not missed, f"most {over[0][0] / 1e6:.0f} MB ({over[0][1]})", missed)


def in_place(record: Record) -> Verdict:
    """Programs with views and updates."""
    goal = "programs with views and in-place updates faster than NumPy at their ordinary sizes"
    rows = _ours(record, lambda row: row.own and not row.case.startswith("example"))
    if not rows:
        return Verdict(goal, None)
    missed = _slower(rows, 1.0)
    figure = f"{len(rows) - len(missed)} of {len(rows)}, "
    figure += f"geometric mean {_mean([row.ratio for row in rows if row.ratio]):.2f}"
    return Verdict(goal, not missed, figure, missed)


def equal_results(record: Record) -> Verdict:
    """By the exactness contract."""
    ways = ", ".join(children.WAYS)
    goal = f"results equal by the exactness contract ({ways})"
    if not record.equal:
        return Verdict(goal, None)
    faulty = [row for row in record.equal if row["faults"]]
    missed = [f"{r['case']} {show.power(r['size'])}: {'; '.join(r['faults'])}" for r in faulty]
    count = len(record.equal)
    exact = sum(row["exact"] for row in record.equal)
    figure = f"{count - len(faulty)} of {count} ({exact} of them NumPy's bits)"
    return Verdict(goal, not faulty, figure, missed)


GOALS = (
    faster_than_numpy, faster_than_peers, best_peer, bandwidth, small_sizes, small_mean,
    first_cold, first_ten, first_warm, peak_memory, chain_memory, in_place, equal_results,
)  # fmt: skip


def chosen(cases: str) -> list[Case]:
    """Cases by names or parts of names; all if there are none."""
    wanted = [name for name in cases.split(",") if name]
    names = [name for name in sorted(CASES) if not wanted or any(w in name for w in wanted)]
    return [CASES[name] for name in names]


def show_children(record: Record) -> None:
    """First calls and memory as lines of text."""
    if record.first:
        print("first calls in fresh processes: NumPy (ten), empty cache (ten), warm cache (ten)")
    for row in record.first:
        if "error" not in row:
            cells = [row[way][calls] for way in ("numpy", "cold", "warm") for calls in _CALLS]
            print(f"  {row['case']:<28}" + "".join(f"{show.seconds(c):>10}" for c in cells))
    if record.memory:
        print("memory of a call in MB, operands not counted: results, NumPy, ours, kept free")
    for row in record.memory:
        if "error" not in row:
            ours, theirs = row["lazyfuse"], row["numpy"]
            peaks = [max(each["peak"], each["again"]) for each in (theirs, ours)]
            cells = [ours["outputs"], *peaks, ours["kept"]]
            print(f"  {row['case']:<28}" + "".join(f"{cell / 1e6:>8.0f}" for cell in cells))


_CALLS = ("first", "ten")
