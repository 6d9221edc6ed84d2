"""Runs of `benchmarks.probe` in fresh processes: first calls, memory, equal bits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.case import Case

ROOT = Path(__file__).parents[1]
LIMIT = 400  # seconds for a child: something hangs
SLACK = 64 << 20  # bytes beyond operands and results that chains may take
NOISE = 4 << 20  # bytes that a process's memory differs by from run to run
LATE = 0.1  # seconds that a first call on a cold cache may be behind NumPy's
LONGER = 1.1  # times NumPy's, for the first ten calls on a cold cache

Found = dict[str, Any]
Sized = tuple[Case, int]

PLANNED = {"LAZYFUSE_PLAN_AFTER": "0"}
"""Nothing is NumPy's at first: the programs of all structures reach the cache."""

WAYS: dict[str, dict[str, str]] = {
    "cold": PLANNED,
    "warm": PLANNED,
    "fresh": {},
    "one thread": {"LAZYFUSE_NUM_THREADS": "1", **PLANNED},
    "unfused": {"LAZYFUSE_FUSION": "0", **PLANNED},
    "all recorded": {"LAZYFUSE_EAGER_BELOW": "0", **PLANNED},
}
"""How results are computed again; the first two with the cache empty and filled by the first."""

DIFFERENT_TIERS = ("unfused", "all recorded")
"""Ways that may take another tier: inexact functions then keep to their bounds, not to bits."""


@contextmanager
def cache() -> Iterator[str]:
    """A folder for programs that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="lazyfuse-bench-", ignore_cleanup_errors=True) as path:
        yield path


def run(job: Found, folder: str, **variables: str) -> Found:
    """What a probe found, or {"error": ...}."""
    # a child must not find the compiler of the one before at work; an installed package has its
    # modules' bytecode, which the first child leaves for the others
    fixed = {
        "LAZYFUSE_CACHE_DIR": folder,
        "LAZYFUSE_COMPILE_AFTER_EXIT": "0",
        "PYTHONDONTWRITEBYTECODE": "",
    }
    environment = os.environ | fixed | variables
    command = [sys.executable, "-m", "benchmarks.probe", json.dumps(job)]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT
        )
    except subprocess.TimeoutExpired:
        return {"error": f"took more than {LIMIT} s"}
    try:
        found: Found = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return {"error": (done.stderr.strip().splitlines() or ["no output"])[-1][:200]}
    return found


def _say(case: Case) -> None:
    print(f"\r{case.name:<40}", end="", file=sys.stderr, flush=True)


def _compiled(folder: str) -> int:
    """Programs on disk."""
    return sum(path.is_file() for path in Path(folder, "programs").rglob("*"))


# Equal results


def equal(sized: Sequence[Sized], folder: str) -> list[Found]:
    """Each case computed in several ways, beside NumPy; leaves its programs in `folder`."""
    names = [(case.name, size) for case, size in sized]
    found = {}
    for way, variables in WAYS.items():
        job = {"kind": "bits", "cases": names, "calls": 3 if way == "cold" else 1}
        found[way] = run(job, folder, **variables)
    return [_compared(case, size, found) for case, size in sized]


def fill(sized: Sequence[Sized], folder: str) -> None:
    """Compile what the cases need into `folder`."""
    names = [(case.name, size) for case, size in sized]
    run({"kind": "bits", "cases": names, "calls": 3}, folder, **PLANNED)


def _compared(case: Case, size: int, found: dict[str, Found]) -> Found:
    """One line: the faults of a case, if there are any."""
    faults = []
    digests: set[str] = set()
    worst = 0.0
    for way, result in found.items():
        each = result.get("cases", {}).get(f"{case.name} {size}")
        if each is None or "error" in each:
            faults.append(f"{way}: {(each or result).get('error', 'no result')}")
            continue
        worst = max(worst, each["worst"])
        if not each["alike"]:
            faults.append(f"{way}: another dtype or shape than NumPy's")
        elif case.exact and not each["same"]:
            faults.append(f"{way}: not NumPy's bits, off by {each['worst']:.2g}")
        elif each["worst"] > case.tolerance:
            faults.append(f"{way}: off by {each['worst']:.2g}")
        if len(set(each["digests"])) > 1:
            faults.append(f"{way}: other bits at a later call")
        if way not in DIFFERENT_TIERS:
            digests.update(each["digests"])
    if len(digests) > 1:
        faults.append("bits depend on threads, tier or cache")
    return {
        "case": case.name, "size": size, "exact": case.exact, "worst": worst, "faults": faults,
    }  # fmt: skip


# First calls


def first_calls(sized: Iterable[Sized], warm: str) -> list[Found]:
    """Each case's first call: NumPy's, ours with an empty cache, ours with the cache `warm`."""
    rows = []
    for case, size in sized:
        _say(case)
        job: Found = {"kind": "first", "case": case.name, "size": size}
        numpy, cold = _first(job, warm)
        if cold.get("first", 0.0) > numpy.get("first", 0.0) + LATE / 2:
            # a process is soon disturbed: the better of two, for both
            pairs = zip((numpy, cold), _first(job, warm), strict=True)
            numpy, cold = (min(pair, key=lambda each: each.get("first", LIMIT)) for pair in pairs)
        before = _compiled(warm)
        again = run(job | {"library": "lazyfuse"}, warm)
        row: Found = {"case": case.name, "size": size, "numpy": numpy, "cold": cold, "warm": again}
        row["compiled_warm"] = _compiled(warm) - before
        errors = [each["error"] for each in (numpy, cold, again) if "error" in each]
        if errors:
            row["error"] = errors[0]
        else:
            row["behind"] = cold["first"] - numpy["first"]
        rows.append(row)
    return rows


def _first(job: Found, warm: str) -> tuple[Found, Found]:
    """NumPy's first call, and ours with an empty cache."""
    numpy = run(job | {"library": "numpy"}, warm)
    with cache() as empty:
        return numpy, run(job | {"library": "lazyfuse"}, empty)


# Memory


def memory(sized: Iterable[Sized], warm: str) -> list[Found]:
    """The highest memory of a call beside NumPy's, operands not counted."""
    rows = []
    for case, size in sized:
        _say(case)
        job: Found = {"kind": "memory", "case": case.name, "size": size}
        theirs = run(job | {"library": "numpy"}, warm)
        ours = run(job | {"library": "lazyfuse"}, warm)
        row: Found = {"case": case.name, "size": size, "numpy": theirs, "lazyfuse": ours}
        errors = [each["error"] for each in (theirs, ours) if "error" in each]
        if errors:
            row["error"] = errors[0]
        else:
            row["above"] = max(ours["peak"], ours["again"]) - max(theirs["peak"], theirs["again"])
            row["beyond_results"] = max(ours["peak"], ours["again"]) - ours["outputs"]
        rows.append(row)
    return rows
