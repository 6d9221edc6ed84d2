"""Children that take turns: Python, the launcher, numba; and the comparison of their results."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from lazyfuse.tools.explain_loops import LoopState as Loop

ROOT = Path(__file__).parents[2]
CHILD = str(ROOT / "benchmarks/loops/child.py")
LIMIT = 300  # seconds for an answer: something hangs
WAIT = 10.0  # seconds for what is being compiled in the background
WAYS = {"python": (), "lazyfuse": ("-m", "lazyfuse"), "numba": ()}

Job = dict[str, Any]


class Child:
    """A program in a process of its own; see child.py."""

    def __init__(self, job: Job, way: str, folder: str) -> None:
        self.way, self.folder = way, folder
        self.errors = Path(folder, f"{way}-{os.urandom(4).hex()}")
        fixed = {
            "LAZYFUSE_CACHE_DIR": folder,
            "NUMBA_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "",  # an installed package has its bytecode
        }
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, *WAYS[way], CHILD, json.dumps(job | {"numba": way == "numba"})],
                cwd=ROOT,
                env=os.environ | fixed,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def ask(self, text: str) -> Any:
        """The answer to a line."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            print(text, file=self.process.stdin, flush=True)
            ready, _, _ = select.select([self.process.stdout], [], [], LIMIT)
            answer = self.process.stdout.readline() if ready else ""
        except BrokenPipeError:
            answer = ""
        if not answer:
            lines = self.errors.read_text().strip().splitlines() or [f"no answer in {LIMIT} s"]
            raise RuntimeError(f"{self.way}: {lines[-1][:200]}")
        return json.loads(answer)

    def results(self) -> list[Any]:
        """What the last call gave."""
        path = Path(self.folder, "results")
        self.ask(f"save {path}")
        found: list[Any] = pickle.loads(path.read_bytes())
        return found

    def loops(self) -> list[Loop]:
        """What became of the program's loops."""
        return [Loop(*each) for each in self.ask("loops")]

    def end(self) -> None:
        """Let the process end by itself, as programs do."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(WAIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


@contextmanager
def children(job: Job, ways: Sequence[str], folder: str) -> Iterator[list[Child]]:
    """One child per way, which are gone afterwards."""
    with ExitStack() as stack:
        started = []
        for way in ways:
            started.append(Child(job, way, folder))
            stack.callback(started[-1].end)
        yield started


@contextmanager
def cache() -> Iterator[str]:
    """A folder for programs and results that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="lazyfuse-loops-", ignore_cleanup_errors=True) as path:
        yield path


def compared(theirs: Sequence[Any], ours: Sequence[Any]) -> str:
    """What is different in our results: "" nothing, "close" the last bits, else what."""
    if len(theirs) != len(ours):
        return f"WRONG: {len(ours)} results, not {len(theirs)}"
    worst = ""
    for a, b in zip(theirs, ours, strict=True):
        if a == b:
            continue
        if a[:3] != b[:3]:
            return f"WRONG: {b[:3]}, not {a[:3]}"
        if a[1] is None:
            return f"WRONG: {b[3][:30]}, not {a[3][:30]}"
        x, y = (np.frombuffer(each[3], a[1]) for each in (a, b))
        if x.dtype.kind not in "fc" or not np.allclose(x, y, 1e-5, 1e-8, equal_nan=True):
            return f"WRONG: {np.count_nonzero(x != y)} of {x.size} elements"
        worst = "close" if x.tobytes() != y.tobytes() else worst
    return worst
