"""What the random programs of a campaign reached: kernels, replays, NumPy, small arrays, chunks.

A campaign that finds nothing says little unless its programs went where faults may be. It runs each
program in a block, and the shares are printed when the test ends (`pytest -s`) and for each file in
the summary of the run:

    for seed in seeds:
        with reached.program(seed):
            ...

A program in a child process is counted there: `before = now()`, later `since(before)`, which the
parent gives to `add`. Figures are those of `lazyfuse.report()`. What runs at once on small arrays
is counted nowhere unless the option `report` is on: one program of `MEASURED` has it, by its seed,
so that a seed that fails does so again. Holds no test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from lazyfuse import bootstrap, config
from lazyfuse.runtime.events import counters, decisions, numpy_calls, spans

MEASURED = 16
"""One program of so many has the option `report`."""

KERNELS, REPLAYS = "kernels", "replays"
ALONE, FUNCTIONS = "operations alone", "functions of NumPy"
AT_ONCE, EXPRESSIONS = "at once", "block by block without a plan"
TIERS, CHUNKS = "another tier", "tasks of chunks"
ALWAYS = (KERNELS, REPLAYS, ALONE, FUNCTIONS)
"""Routes that are printed even if no program took them."""

_PROGRAMS, _MEASURED = "programs", "measured"
_native: Any = bootstrap.machine_code()
_tally: Counter[str] = Counter()  # of the test that runs: programs, by what they reached

State = tuple[counters.Totals, Counter[str]]


def now() -> State:
    """The counters at this moment."""
    totals = counters.totals()
    found = Counter({KERNELS: totals.kernels, ALONE: totals.singles})
    found[REPLAYS] = totals.decisions[decisions.REPLAYED]
    found[FUNCTIONS] = sum(list(numpy_calls.table.values()))
    found[EXPRESSIONS] = _native.expressions_ran() if _native is not None else 0
    found[TIERS] = totals.fallbacks.total()
    found[CHUNKS] = sum(count for count, _, _ in list(totals.tasks.values()))
    for language, count in list(totals.languages.items()):
        found[f"in {'blocked' if language == 'numpy' else language}"] = count
    for rule, count in [*totals.flushes.items(), *totals.decisions.items()]:
        found[f"rule {rule.name}"] = count
    if spans.on:
        lines = list(spans.gather().lines.values())
        found[AT_ONCE] = sum(line.at_once[kind] for line in lines for kind in spans.AT_ONCE)
    return totals, found


def since(before: State) -> set[str]:
    """What has been reached since; a program may have set the counters to zero."""
    totals, found = now()
    return set(found - before[1] if totals is before[0] else +found)


def add(routes: Iterable[str], measured: bool = False) -> None:
    """Count one program by what it reached."""
    _tally.update({_PROGRAMS, *([_MEASURED] if measured else ()), *routes})


@contextmanager
def program(seed: int = 1) -> Iterator[None]:
    """Run a program of a campaign, and count what it reaches."""
    measured = seed % MEASURED == 0 and _native is not None
    with config.options(report=True) if measured else nullcontext():
        before = now()
        yield
        add(since(before), measured)


def taken() -> dict[str, int]:
    """What was counted since the last call."""
    found = dict(_tally)
    _tally.clear()
    return found


def line(found: Counter[str]) -> str:
    """The shares, as text."""
    count = found[_PROGRAMS]
    shares = {name: number / count for name, number in found.items()}
    shares |= {AT_ONCE: found[AT_ONCE] / found[_MEASURED]} if found[_MEASURED] else {}
    parts = [_shown(name, shares.get(name, 0.0)) for name in ALWAYS]
    parts += [_shown(name, shares[name]) for name in (AT_ONCE, EXPRESSIONS, TIERS, CHUNKS)
              if name in shares]  # fmt: skip
    for prefix in ("in ", "rule "):
        names = sorted((name for name in shares if name.startswith(prefix)), key=shares.__getitem__)
        text = ", ".join(_shown(name.removeprefix(prefix), shares[name]) for name in names[::-1])
        parts += [f"{prefix.strip()}: {text}"] if text else []
    return f"{count:,} programs: {'; '.join(parts)}"


def _shown(name: str, share: float) -> str:
    return f"{name} {100 * share:.{0 if share >= 0.1 or not share else 1}f} %"
