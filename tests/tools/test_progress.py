"""`lazyfuse.progress()`: what it shows, in lines, of evaluations that a test can hold still."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import lazyfuse as np
from lazyfuse.devices import progress as marks
from lazyfuse.devices.cpu.launch import NumbaProgram, NumpyProgram
from lazyfuse.devices.cpu.tile_loop import Batch
from lazyfuse.errors import ConfigurationError
from lazyfuse.runtime.events import tracing
from lazyfuse.runtime.execution.executor import Run
from lazyfuse.tools import progress as shown

DEADLINE = 60.0


class Terminal(io.StringIO):
    """A text file that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    find = shown.importlib.util.find_spec
    monkeypatch.setattr(
        shown.importlib.util, "find_spec", lambda name: None if name == "rich" else find(name)
    )


def until(wanted: Any) -> None:
    """Wait for what another thread does."""
    end = time.monotonic() + DEADLINE
    while not wanted():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


@pytest.fixture
def evaluation() -> Iterator[marks.Work]:
    """An evaluation of four steps that stands still, in this thread."""
    marks.watchers.append(evaluation)
    work = marks.begin(4)
    marks.watchers.remove(evaluation)
    assert work is not None
    yield work
    if marks.under_way:
        work.end()


def test_nobody_is_told_unless_somebody_watches() -> None:
    before = marks.finished()
    assert marks.begin(3) is None
    x = np.arange(300_000.0)
    assert float((x * 2 + 1).sum()) == 300_000.0**2
    assert marks.finished() == before


def test_steps_and_parts_make_a_fraction(evaluation: marks.Work) -> None:
    assert evaluation.fraction == 0.0
    evaluation.at(2)
    assert evaluation.fraction == 0.5
    done = [3]
    marks.divide(6, lambda: done[0])
    assert evaluation.parts == (3, 6)
    assert evaluation.fraction == 0.625
    done[0] = 9  # more threads ask for a part than there are
    assert evaluation.parts == (6, 6)
    evaluation.at(4)
    assert evaluation.fraction == 1.0


def test_a_line_says_how_far_it_is(without_rich: None, evaluation: marks.Work) -> None:
    file = Terminal()
    with np.progress(after=0, file=file):
        evaluation.at(1)
        evaluation.divide(10, lambda: 5)
        until(lambda: "step 2 of 4, 5 of 10 parts" in file.getvalue())
        evaluation.end()
    assert " 38%" in file.getvalue()
    assert "#" in file.getvalue()
    last = file.getvalue().rpartition("\r")[2]
    assert last.startswith("1 evaluation in ")
    assert last.endswith("\n")


def test_a_bar_by_rich(evaluation: marks.Work) -> None:
    pytest.importorskip("rich", reason="rich is not installed")
    file = Terminal()
    with np.progress(after=0, file=file):
        evaluation.at(3)
        until(lambda: "75%" in file.getvalue())
        evaluation.end()
    assert "step 4 of 4" in file.getvalue()
    assert "1 evaluation in " in file.getvalue()


def test_a_file_gets_one_line(evaluation: marks.Work) -> None:
    file = io.StringIO()
    with np.progress(after=0, file=file) as progress:
        until(lambda: progress._watches[0].display is not None)
        evaluation.end()
    assert file.getvalue().startswith("1 evaluation in ")
    assert file.getvalue().count("\n") == 1


def test_what_is_short_is_not_shown() -> None:
    file = io.StringIO()
    with np.progress(after=DEADLINE, file=file):
        assert float((np.arange(300_000.0) * 2).sum()) == 300_000.0 * 299_999.0
    assert file.getvalue() == ""


def test_a_switch(without_rich: None, evaluation: marks.Work) -> None:
    file = Terminal()
    np.progress(True, after=0, file=file)
    np.progress(True, after=0, file=file)
    assert len(marks.watchers) == 1
    until(lambda: "step 1 of 4" in file.getvalue())
    np.progress(False)
    assert marks.watchers == []
    assert tracing.listeners == ()
    assert not any(each.name == "lazyfuse-progress" for each in threading.enumerate())
    np.progress(False)


@pytest.mark.parametrize("after", [-1, "1", float("nan")])
def test_bad_seconds_are_an_error_at_the_call(after: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"\[progress\] after: expected seconds"):
        np.progress(after=after)
    assert marks.watchers == []


def test_launches_say_their_parts(on_cpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled kernels, blocked NumPy and tiles tell the evaluation; it ends whatever happens."""
    told: dict[type, tuple[int, int]] = {}
    works: list[marks.Work] = []
    begin = marks.begin

    def keep(steps: int) -> marks.Work | None:
        work = begin(steps)
        works.append(work)  # type: ignore[arg-type]
        return work

    monkeypatch.setattr(marks, "begin", keep)
    for kind, name in ((NumbaProgram, "_rows"), (NumpyProgram, "launch"), (Batch, "run")):
        inner = getattr(kind, name)

        def watch(self: Any, *args: Any, kind: type = kind, inner: Any = inner) -> Any:
            found = inner(self, *args)
            told[kind] = works[-1].parts
            return found

        monkeypatch.setattr(kind, name, watch)
    x = np.arange(2_000_000.0).reshape(1000, 2000)
    with np.progress(after=DEADLINE):
        for _ in range(8):
            y = np.exp(x / 1e6)
            np.evaluate(y / y.sum(axis=1, keepdims=True))
    for done, count in told.values():
        assert done == count > 1
    assert told, "no launch of several parts was met"
    assert marks.under_way == {}
    assert len(works) >= 8


def test_an_error_ends_the_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Any, *args: Any) -> Any:
        raise KeyboardInterrupt

    x = np.arange(300_000.0) * 2
    monkeypatch.setattr(Run, "run_kernel", fail)
    with np.progress(after=DEADLINE), pytest.raises(KeyboardInterrupt):
        np.evaluate(x)
    assert marks.under_way == {}
    monkeypatch.undo()
    assert float(x[5]) == 10.0
