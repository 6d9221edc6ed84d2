"""How far the evaluations are that run now, for those who show it.

`watchers` is empty unless progress is shown: an evaluation looks there once, a launch once, and
says nothing then. A step of a plan may have parts (chunks, tiles); what shows them asks
`Work.parts`, which reads a counter that the launch has anyway. Imports nothing of ours.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

watchers: list[object] = []
"""Who shows progress. If empty, no `Work` is made."""
under_way: dict[int, list[Work]] = {}
"""The evaluations that run, by thread; an inner one stands behind the one that asked for it."""
_finished = 0


class Work:
    """One evaluation: steps done out of those planned, and the parts of the present step."""

    __slots__ = ("_done", "_parts", "began", "steps", "steps_done")

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.steps_done = 0
        self.began = time.perf_counter()
        self._parts = 0
        self._done: Callable[[], int] = int

    def at(self, step: int) -> None:
        """Say that so many steps are done."""
        self._parts = 0
        self.steps_done = step

    def divide(self, parts: int, done: Callable[[], int]) -> None:
        """Say that the present step has parts, and who counts those that are done."""
        self._done = done
        self._parts = parts

    @property
    def parts(self) -> tuple[int, int]:
        """Parts of the present step that are done, and all of them; zeros if it has none."""
        count = self._parts
        return (min(self._done(), count), count) if count else (0, 0)

    @property
    def fraction(self) -> float:
        """The part of the steps that is done, from 0 to 1: steps count alike."""
        done, count = self.parts
        part = done / count if count else 0.0
        return min(1.0, (self.steps_done + part) / max(self.steps, 1))

    def end(self) -> None:
        """Take the evaluation from the list: it has ended, in whatever way."""
        global _finished
        me = threading.get_ident()
        under_way[me].remove(self)
        if not under_way[me]:
            del under_way[me]
        _finished += 1


def begin(steps: int) -> Work | None:
    """Enter an evaluation of so many steps into the list, if progress is shown."""
    if not watchers:
        return None
    work = Work(steps)
    under_way.setdefault(threading.get_ident(), []).append(work)
    return work


def divide(parts: int, done: Callable[[], int]) -> None:
    """As `Work.divide`, for the evaluation of this thread."""
    mine = under_way.get(threading.get_ident())
    if mine:
        mine[-1].divide(parts, done)


def finished() -> int:
    """How many evaluations have ended while progress was shown."""
    return _finished
