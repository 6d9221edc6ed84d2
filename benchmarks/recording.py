"""What recording a call costs, with the tape and without: `python -m benchmarks.recording`.

Each call is repeated on arrays that have their values and are large enough to be recorded; what it
gives is dropped unread, so nothing is computed. Shown are microseconds, and the calls of Python
functions in one call. Then the same of looks at results, beside NumPy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

import lazyfuse as lf

ROWS, COLUMNS = 300, 400
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "roll": lambda x, y: lf.roll(x, 1),
    "clip": lambda x, y: lf.clip(x, -1, 1),
    "nan_to_num": lambda x, y: lf.nan_to_num(x),
    "pad": lambda x, y: lf.pad(x, 1, mode="wrap"),
    "diff": lambda x, y: lf.diff(x),
    "gradient": lambda x, y: lf.gradient(x),
    "std": lambda x, y: x.std(axis=0),
    "einsum": lambda x, y: lf.einsum("ij,ij->i", x, y),
    "flip": lambda x, y: lf.flip(x),
    "add with out": lambda x, y: lf.add(x, y, out=lf.empty_like(x)),
    "where": lambda x, y: lf.where(x > y, x, 0),
    "add": lambda x, y: x + y,
    "sum of rows": lambda x, y: x.sum(axis=1),
}

LOOKS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "add": lambda xp, x, y: x + y,
    "chain": lambda xp, x, y: (x + y) * 2 - y,
    "sum": lambda xp, x, y: (x * y).sum(),
    "element": lambda xp, x, y: (x * y)[3, 4],
    "join": lambda xp, x, y: xp.concatenate([x[1:], x[:1]]),
    "append": lambda xp, x, y: xp.append(x[1:], x[:1], axis=0),
    "take": lambda xp, x, y: xp.take(x, [5, 3, 8], axis=0),
}


def microseconds(call: Callable[[Any, Any], Any], x: Any, y: Any) -> float:
    """The median of 15 times 100 calls, in microseconds."""
    times = []
    for _ in range(15):
        began = perf_counter()
        for _ in range(100):
            call(x, y)
        times.append((perf_counter() - began) / 100)
        lf.evaluate()
    return median(times) * 1e6


def looked(call: Callable[..., Any], *given: Any) -> float:
    """The median of a call and a look at its result, in microseconds."""
    times = []
    for _ in range(2000):
        began = perf_counter()
        np.asarray(call(*given))
        times.append(perf_counter() - began)
    return median(times) * 1e6


def calls_of_python(call: Callable[..., Any], *given: Any) -> int:
    """How many functions of Python one call runs, without itself."""
    count = 0

    def seen(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(seen)
    call(*given)
    sys.setprofile(None)
    return count - 1


def main() -> None:
    """Print a row for each call."""
    random = np.random.default_rng(0)
    x, y = (lf.array(random.normal(size=(ROWS, COLUMNS))) for _ in range(2))
    print(f"{'call':14} {'without':>8} {'calls':>6} {'with':>8} {'calls':>6}")
    for name, call in CALLS.items():
        found = []
        for after in (0, 3):
            with lf.options(tape_after=after, flush_nodes=0, flush_bytes=0):
                for _ in range(20):
                    call(x, y)
                found += [microseconds(call, x, y), calls_of_python(call, x, y)]
        print(f"{name:14} {found[0]:8.1f} {found[1]:6} {found[2]:8.1f} {found[3]:6}")
    print(f"\n{'look':14} {'NumPy':>8} {'here':>8} {'calls':>6}")
    mine, theirs = (x, y), (np.array(x), np.array(y))
    with lf.options(plan_after=0):
        for name, look in LOOKS.items():
            looked(look, lf, *mine)
            expected = looked(look, np, *theirs)
            calls = calls_of_python(lambda *given, look=look: np.asarray(look(*given)), lf, *mine)
            here = looked(look, lf, *mine)
            print(f"{name:14} {expected:8.1f} {here:8.1f} {calls - 1:6}")


if __name__ == "__main__":
    main()
