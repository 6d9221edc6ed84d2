"""`lazyfuse.progress()`: shows how far long evaluations are.

Owns the thread that looks, and the three ways to show: a bar in a notebook, one by rich in a
terminal, else a plain line. devices/progress.py is what it looks at.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
import time
from html import escape
from types import TracebackType
from typing import Any, TextIO

from lazyfuse.devices import progress as progress_marks
from lazyfuse.errors import ConfigurationError, message
from lazyfuse.runtime.events import tracing
from lazyfuse.tools.notebook_names import shell

EVERY = 0.1
"""Seconds between two looks."""
_ROUND = "height:10px;border-radius:5px"


class _Notebook:
    """A bar under the cell, in one output that is updated."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, fraction: float, text: str) -> None:
        text = f"{fraction:.0%}, {text}"
        done = f"{_ROUND};width:{fraction:.1%};background:rgb(66,133,244)"
        self._put(
            '<div style="display:flex;align-items:center;gap:10px">'
            f'<div style="{_ROUND};width:260px;background:rgba(128,128,128,.3)">'
            f'<div style="{done}"></div></div><span>{escape(text)}</span></div>',
            text,
        )

    def end(self, text: str) -> None:
        self._put(f'<div style="opacity:.75">{escape(text)}</div>', text)

    def _put(self, html: str, plain: str) -> None:
        display: Any = importlib.import_module("IPython.display").display
        data = {"text/html": html, "text/plain": plain}
        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


class _Rich:
    """A bar by rich, which is taken away at the end."""

    def __init__(self, file: TextIO) -> None:
        rich: Any = importlib.import_module("rich.progress")
        console: Any = importlib.import_module("rich.console").Console(file=file)
        self._bar = rich.Progress(
            rich.BarColumn(), rich.TaskProgressColumn(), rich.TextColumn("{task.description}"),
            console=console, auto_refresh=False, transient=True,
        )  # fmt: skip
        self._bar.start()
        self._task = self._bar.add_task("", total=1.0)

    def show(self, fraction: float, text: str) -> None:
        self._bar.update(self._task, completed=fraction, description=text, refresh=True)

    def end(self, text: str) -> None:
        self._bar.stop()
        self._bar.console.print(text, highlight=False)


class _Line:
    """A line that is written over in a terminal; elsewhere only what was done."""

    _WIDTH = 30

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._written = 0

    def show(self, fraction: float, text: str) -> None:
        if self._file.isatty():
            bar = ("#" * round(fraction * self._WIDTH)).ljust(self._WIDTH)
            self._write(f"\r[{bar}] {fraction:4.0%}, {text}")

    def end(self, text: str) -> None:
        self._write(f"\r{text}\n" if self._written else f"{text}\n")

    def _write(self, text: str) -> None:
        over = " " * max(0, self._written - len(text))
        end = "\n" if text.endswith("\n") else ""
        self._file.write(text.removesuffix("\n") + over + end)
        self._file.flush()
        self._written = len(text)


Display = _Notebook | _Rich | _Line
"""A way to show progress: `show` how far it is, from 0 to 1; at the `end` what was done."""


def _display(file: TextIO | None) -> Display:
    """The way to show progress here; `file` takes lines instead of the standard error."""
    here = shell()
    if file is None and hasattr(here, "kernel"):
        return _Notebook()
    out = sys.stderr if file is None else file
    if out.isatty() and importlib.util.find_spec("rich") is not None:
        return _Rich(out)
    return _Line(out)


class _Nothing(tracing.Event):
    """An event that the runtime never makes."""


class _Watch:
    """The thread that looks at the evaluations of all threads and shows the longest one."""

    def __init__(self, after: float, file: TextIO | None) -> None:
        self.after = after
        self.file = file
        self.display: Display | None = None
        self.began = time.perf_counter()
        self.before = progress_marks.finished()
        self._listener: tracing.Listener | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, name="lazyfuse-progress", daemon=True)

    def start(self) -> None:
        # Replays in C say nothing of their steps; while a listener is there, none runs.
        self._listener = tracing.add(lambda event: None, _Nothing)
        progress_marks.watchers.append(self)
        try:
            self._thread.start()
        except BaseException:
            self._leave()
            raise

    def stop(self) -> None:
        """Look no more, and say what was done if progress was shown."""
        self._leave()
        self._stop.set()
        self._thread.join()
        if self.display is not None:
            count = progress_marks.finished() - self.before
            seconds = time.perf_counter() - self.began
            self.display.end(f"{count} evaluation{'s' * (count != 1)} in {seconds:.1f} s")

    def _leave(self) -> None:
        progress_marks.watchers.remove(self)
        if self._listener is not None:
            self._listener.remove()

    def _look(self) -> None:
        while not self._stop.wait(EVERY):
            works = [found[0] for found in list(progress_marks.under_way.values()) if found]
            if not works:
                continue
            work = min(works, key=lambda each: each.began)
            seconds = time.perf_counter() - work.began
            if seconds < self.after:
                continue
            if self.display is None:
                self.display = _display(self.file)
            self.display.show(work.fraction, _text(work, seconds))


def _text(work: progress_marks.Work, seconds: float) -> str:
    done, count = work.parts
    text = f"step {min(work.steps_done + 1, work.steps)} of {work.steps}"
    if count:
        text += f", {done:,} of {count:,} parts"
    return f"{text}, {seconds:.1f} s"


class progress:  # noqa: N801  # a function to its users
    """Show how far long evaluations are: `with lazyfuse.progress(): ...`.

    Steps are kernels and operations alone; a step may have parts: chunks, or tiles of a chain. What
    takes less than `after` seconds is not shown. A notebook shows a bar, a terminal a bar by rich
    if that is installed, or a line; `file` (text, open for writing) takes lines, to the standard
    error otherwise. `lazyfuse.progress(True)` shows it from now on, `lazyfuse.progress(False)` no
    more. Meanwhile evaluations that come round are not replayed.
    """

    def __init__(
        self, on: bool | None = None, *, after: float = 0.5, file: TextIO | None = None
    ) -> None:
        self._after = _seconds(after)
        self._file = file
        self._watches: list[_Watch] = []
        if on is not None:
            while _switched:
                _switched.pop().__exit__(None, None, None)
        if on:
            self.__enter__()
            _switched.append(self)

    def __enter__(self) -> progress:
        watch = _Watch(self._after, self._file)
        watch.start()
        self._watches.append(watch)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._watches.pop().stop()


_switched: list[progress] = []


def _seconds(value: object) -> float:
    if isinstance(value, (int, float)) and value >= 0:
        return float(value)
    what = message("progress", "after", "seconds", value, "take 0.5, for example")
    raise ConfigurationError(what)
