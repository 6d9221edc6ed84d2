"""A loop while it runs: Python first, part by part; compiled from where it stands.

Owns when a loop is compiled, how its names' values come in and go out, and when Python keeps it. A
loop that has taken HOT seconds is translated (meaning.py) and compiled in the background. From then
on it is entered at its beginning, and between two parts of its turns.
"""

from __future__ import annotations

import ast
import ctypes
import itertools
import sys
import threading
import time
from collections import ChainMap
from collections.abc import Iterator
from types import CodeType, FrameType, FunctionType
from typing import Any

from lazyfuse.arrays.base import NATIVE
from lazyfuse.arrays.conversion import FOREIGN  # noqa: F401  (completes the array type)
from lazyfuse.arrays.eager_policy import is_in_chunks
from lazyfuse.devices.caches import register
from lazyfuse.loops import kinds
from lazyfuse.loops.entering import TABLE_ADDRESS, Version
from lazyfuse.loops.items import MARK, Items, Listed, cut, form, items_of, length
from lazyfuse.loops.kinds import OTHER, RANGE, UNBOUND
from lazyfuse.loops.leaving import copied
from lazyfuse.loops.meaning import meaning
from lazyfuse.loops.names import DOTTED, attributes
from lazyfuse.loops.text import BROKE, CUR, FINISHED, Meant, Refused, numbered
from lazyfuse.runtime.numerics import errstate
from lazyfuse.runtime.scheduling.evaluate import begin_quietly

HOT = 0.02
"""Seconds in Python after which a loop is compiled."""
_PART = 0.004
"""Seconds of a part that Python runs before it looks for the compiled loop."""
_SHORT = 20e-6
"""Seconds of a loop for which entering a compiled one does not pay."""
_SKIPPED, _MOST_SKIPPED = 50, 10_000
"""Runs of a short loop between two that are timed, at first and in the end. Then it is not asked
for until another loop has run for some time.
"""
_LEAVES, _LEAVE = 8, 60e-6
"""Ways out after which a loop stays in Python, if that is faster; seconds that one takes."""
_VERSIONS = 6
INTERNAL = "lazyfuse failed to translate it"
_FIRST = MARK.format(0)
_MISSES = 20
"""Executions that could not be entered, after which Python keeps the loop."""

_MONITORING: Any = getattr(sys, "monitoring", None)
"""Python's own, since 3.12; to look for it takes longer than to enter a loop."""

functions: dict[CodeType, ast.FunctionDef] = {}
"""The functions of the program's texts that may be expanded where they are called."""
register("loops.functions", functions.__len__, None, None, "one for each function of the program")
_paused: list[Loop] = []
loops: list[Loop] = []
"""All loops that were found."""


def _function_of(function: FunctionType) -> ast.FunctionDef | None:
    return functions.get(function.__code__)


def is_watched() -> bool:
    """Whether a debugger, a tracer or a profiler looks at what Python runs."""
    if sys.gettrace() is not None or sys.getprofile() is not None:
        return True
    return _MONITORING is not None and any(map(_MONITORING.get_tool, range(6)))


class _Asked(threading.local):
    error: BaseException | None = None


_asked = _Asked()


@begin_quietly
def _poll() -> int:
    """Let signal handlers and other threads run; whether the loop is to be left."""
    try:
        for _ in (1, 2):  # Python looks at them at the end of a turn
            pass
    except BaseException as error:  # of a handler
        _asked.error = error
        return 1
    return 0


_POLL = ctypes.PYFUNCTYPE(ctypes.c_int)(_poll)
_POLL_ADDRESS = ctypes.cast(_POLL, ctypes.c_void_p).value


class Loop:
    """A loop of the program's text."""

    __slots__ = (
        "asked", "compiled_seconds", "compiled_turns", "entered", "forever", "is_dead", "items",
        "kinds", "latest", "left", "missed", "names", "no_name", "node", "on", "parts", "path",
        "paths", "ready", "refused", "seconds", "skips", "stored", "strange", "tick", "turns",
        "unbound", "versions", "written",
    )  # fmt: skip

    def __init__(
        self, node: ast.For | ast.While, names: list[str], stored: list[str], path: str
    ) -> None:
        self.node, self.names, self.stored, self.path = node, names, stored, path
        self.paths: list[tuple[str, str]] | None = None  # attributes that it reads, once it is hot
        self.written: list[tuple[str, str]] = []
        self.on = True
        self.tick: Any = itertools.repeat(True).__next__
        self.skips = _SKIPPED
        self.forever = (itertools.repeat(None),)
        self.kinds, self.items = _KINDS, items_of
        self.parts: Any = self.by_python
        if NATIVE is not None:
            self.parts = NATIVE.LoopEntrance(self, Loop.by_python, _left, is_watched, UNBOUND)
        self.unbound = UNBOUND
        self.no_name = NameError
        self.seconds = self.compiled_seconds = 0.0
        self.asked = 0.0  # seconds after which it is asked for again
        self.turns = self.compiled_turns = self.left = self.entered = 0
        self.strange = self.missed = 0
        self.versions: dict[Any, Version | None] = {}  # None: refused
        self.latest: Version | None = None
        self.ready = False
        self.refused = ""
        self.is_dead = False
        loops.append(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """A function is pickled with its loops, which begin anew."""
        return Loop, (copied(self.node), self.names, self.stored, self.path)

    def by_python(self, items: Any = None) -> Iterator[Run]:
        """The parts of one execution of the loop."""
        return self.following(Run(self, items))

    def following(self, run: Run, has_begun: bool = False) -> Iterator[Run]:
        """The parts of an execution that has begun, perhaps with its first part."""
        try:
            if not has_begun:
                yield run
            while run.count < 0 or run.at < run.count or run.at < run.recount():
                yield run
        finally:
            if run.misses or not run.entered:
                run.end()

    def prepare(self, version: Version) -> None:
        """A version fits: let C enter it where that takes nothing but words."""
        self.ready, self.latest = True, version
        if NATIVE is None:
            return
        if not version.is_plain or version.rows is None or self.paths or "(" in version.form:
            self.parts.prepare()
            return
        pays = _SHORT * self.turns / self.seconds if self.turns > 10 and self.seconds else 0.0
        self.parts.prepare(
            version, version.rows, version.packed_exits, tuple(version.meant.constants),
            version.entry, _POLL_ADDRESS, TABLE_ADDRESS, version.meant.words, version.blocks,
            max(int(pays), 0), version.form == _FIRST,
        )  # fmt: skip

    def give_up(self, why: str) -> None:
        """Python keeps this loop."""
        self.is_dead, self.refused = True, why
        self.on = False

    def pause(self) -> None:
        """The loop is short now: look again later."""
        if not self.is_dead:
            self.skips *= 2
            if self.skips > _MOST_SKIPPED:
                self.on, self.skips = False, _SKIPPED
                _paused.append(self)
                return
            later = itertools.chain(itertools.repeat(False, self.skips), itertools.repeat(True))
            self.tick = later.__next__


class Exit:
    """Where a compiled loop has stopped."""

    __slots__ = ("_counters", "_words", "at", "broke", "error", "finished", "turns", "values")

    def __init__(
        self, code: int, is_while: bool, values: list[Any], words: Any, meant: Meant
    ) -> None:
        self.values: list[Any] | None = values  # until they are in their names
        self.at = meant.begins.get(code, 0)
        self.finished = code == FINISHED
        self.broke = code == BROKE or (self.finished and is_while)
        self.turns = (None,) if self.at else ()
        self.error, _asked.error = _asked.error, None
        self._words, self._counters = words, meant.counters

    def arrive(self) -> int:
        """Python has come to the statement; raises what a signal handler has raised."""
        error, self.error = self.error, None
        if error is not None:
            raise error
        return 0

    def rest(self, number: int, now: Any, items: Any = None) -> Iterator[Any]:
        """What is left of the inner loop with this number: the item of its present turn, and what
        follows it.
        """
        at = self._counters[number]
        current, stop, step = self._words[at : at + 3]
        if items is None:
            return itertools.chain((now,), range(current + step, stop, step))
        if not step:  # the item of this turn has not been taken
            return itertools.islice(items, current + 1, None)
        return itertools.chain((now,), itertools.islice(items, current + 1, None))


class Run:
    """One execution of a loop, in parts."""

    __slots__ = (
        "_begun", "_python", "_resumes", "_size", "_tried", "_whole", "at", "count", "entered",
        "items", "loop", "misses",
    )  # fmt: skip

    def __init__(self, loop: Loop, items: Any) -> None:
        self.loop, self.items = loop, cut(items)
        self.at = self.misses = 0
        self._python = 0.0
        self._whole = self._tried = self.entered = self._resumes = False
        self.count = -1
        if isinstance(loop.node, ast.For):
            self.count = length(self.items)
            if self.count < 0:
                self._whole = True
            elif loop.turns > 10 and loop.seconds / loop.turns * self.count < _SHORT:
                self._whole = True
                loop.pause()

    def recount(self) -> int:
        """How many turns there are now: a list may have another length."""
        if type(self.items) in (Items, Listed):
            self.count = len(self.items)
        return self.count

    def end(self) -> None:
        """The loop has come to its end, or Python has left it."""
        loop = self.loop
        if self._whole and self.count == 1 and self.items is not None:
            loop.strange += 1
        is_short = self._python < 2 * _SHORT and not self.entered
        if is_short and (self.items is None or not loop.ready):
            loop.pause()
        if self.misses:
            loop.missed += 1
        if max(loop.strange, loop.missed) > _MISSES and not loop.entered:
            loop.give_up(loop.refused or "it goes over other than ranges and arrays")

    def __iter__(self) -> Iterator[Any]:
        """The turns of a part, for Python."""
        loop = self.loop
        if loop.ready and not (self._tried or self._whole) and self.count >= 0:
            self._tried, self._size = True, 0
            return iter(())  # `run` is called at once
        self._begun = time.perf_counter()
        if self._whole or loop.is_dead or is_watched():
            size = self.count - self.at if self.count >= 0 else -1
            if self._whole and self.count < 0 and self.items is not None:
                self.at = self.count = 1
                self._size = 1
                return iter(self.items)
        elif loop.ready and self._resumes:
            self._resumes, size = False, 0
        elif not loop.turns:
            size = 1
        else:
            is_first = self.at == 0
            # how long a `while` will take is not known
            wanted = _PART if not is_first else _SHORT if self.items is None else 0.0
            size = max(1, int(wanted / max(loop.seconds / loop.turns, 1e-9)))
        if self.count >= 0:
            size = min(size, self.count - self.at)
        self._size = size
        first, self.at = self.at, self.at + max(size, 0)
        if self.items is None:
            return iter(itertools.repeat(None) if size < 0 else itertools.repeat(None, size))
        return iter(self.items[first : first + size])

    def wants(self) -> bool:
        """After a part: whether the loop is to go on compiled."""
        loop, size = self.loop, self._size
        if size > 0:
            spent = time.perf_counter() - self._begun
            self._python += spent
            loop.seconds += spent
            loop.turns += size
        while _paused and self.at > 1:
            short = _paused.pop()
            short.on = not short.is_dead
        if loop.is_dead or self._whole or self.at == self.count:
            return False
        return loop.ready or loop.seconds > max(HOT, loop.asked)

    def run(self, values: Any) -> Exit | None:
        """Run the compiled loop; None if there is none (yet)."""
        loop, items = self.loop, self.items
        if is_watched() or not errstate.is_default():
            return None
        if loop.paths is None:
            loop.paths, loop.written = attributes(loop.node)
        if values is None:  # a name has none
            values = _values(loop.names, sys._getframe(1))
        for name, attribute in loop.paths:
            owner = values[loop.names.index(name)]
            is_written = (name, attribute) in loop.written
            values.append(kinds.attribute(owner, attribute, is_written))
        first, form_of = (_POLL_ADDRESS or 0, self.at, self.recount(), 1), ""
        if type(items) is range:
            if not _is_small(items):
                return None
            begin = items.start + self.at * items.step
            first = (_POLL_ADDRESS or 0, begin, items.stop, items.step)
        elif type(items) is Items:
            leaves: list[Any] = []
            form_of = form(items, leaves)
            values += leaves
        elif items is not None:
            form_of = _FIRST
            values.append(items.items if type(items) is Listed else items)
        version, out = loop.latest, None
        began = time.perf_counter()
        if version is not None and version.rows is not None and version.form == form_of:
            out = version.enter(first, values) if version.is_current() else None
        if out is None or version is None:
            fitting = self._fitting(values, form_of)
            if fitting is None:
                return None
            version, held = fitting
            out = version.enter(first, values, held)
            if out is None:
                self._missed()
                return None
        return self.ended(version, *out, first[1], first[3], time.perf_counter() - began)

    def ended(
        self, version: Version, code: int, found: list[Any], words: Any, begin: int, step: int,
        seconds: float,
    ) -> Exit:  # fmt: skip
        """Where the compiled loop has stopped, which began at that turn."""
        loop = self.loop
        loop.compiled_seconds += seconds
        self.entered = True
        turns = (words[CUR] - begin) // step
        loop.entered += 1
        loop.compiled_turns += turns
        exit_ = Exit(code, self.items is None, found, words, version.meant)
        if self.items is not None:
            self.at += turns + (exit_.at > 0)
        if exit_.at:
            self._left_at(exit_.at, version)
        return exit_

    def _fitting(self, values: list[Any], form_of: str) -> tuple[Version, dict[str, Any]] | None:
        """The version for these values, and the values as it takes them; None if there is none."""
        loop = self.loop
        assert loop.paths is not None
        names = [*loop.names, *[DOTTED.format(*each) for each in loop.paths]]
        marks = [MARK.format(k) for k in range(len(values) - len(names))]
        written = {DOTTED.format(*each) for each in loop.written}
        entry: dict[str, Any] = {name: UNBOUND for name in loop.stored if name not in loop.names}
        held: dict[str, Any] = {}
        present = []  # attributes that can be names
        for at, (name, value) in enumerate(zip([*names, *marks], values, strict=True)):
            is_attribute = len(loop.names) <= at < len(names)
            kind, held[name] = kinds.of_value(value, name in loop.stored or name in written)
            if type(value) is range and name in marks:
                kind = RANGE if _is_small(value) else OTHER
            if is_attribute and value is UNBOUND:
                continue
            if is_attribute:
                present.append(name)
            entry[name] = kind
        if form_of:
            entry["*"] = form_of
        present += [name for name, kind in entry.items() if type(kind) is str and kind == "int"]
        key = (*entry.values(), *present)
        if any(map(is_in_chunks, values)):
            return None
        version = loop.versions.get(key)
        if version is None or not version.is_current():
            version = self._made(entry, held, key, [*names, *marks])
            if version is None:
                self._missed()
                return None
        if not version.is_ready():
            why = version.why_never()
            if why:
                loop.give_up(f"does not compile: {why}")
            loop.asked = loop.seconds + _PART
            return None
        loop.prepare(version)
        return version, held

    def _made(
        self, entry: dict[str, Any], held: dict[str, Any], key: Any, names: list[str]
    ) -> Version | None:
        """A version for names of these kinds; None if there can be none."""
        loop = self.loop
        if loop.versions.get(key, self) is None:
            return None
        if len(loop.versions) >= _VERSIONS:
            loop.give_up(loop.refused or "its names have too many types")
            return None
        try:
            meant = meaning(loop.node, entry, _function_of)
            version = Version(names, loop.stored, loop.written, entry, held, meant)
        except Refused as why:
            loop.refused = str(why)
            loop.versions[key] = None
            if sum(each is None for each in loop.versions.values()) >= 3:
                loop.give_up(str(why))
            return None
        except Exception as error:  # a mistake of ours costs speed alone
            loop.give_up(f"{INTERNAL}: {error!r}")
            return None
        loop.versions[key] = version
        return version

    def _missed(self) -> None:
        """It could not be entered; the kinds after a turn of Python's may fit."""
        self.misses += 1
        self._whole = self.misses > 1

    def _left_at(self, at: int, version: Version) -> None:
        """Python has to do this statement: see whether leaving was worth it."""
        loop = self.loop
        self._resumes = True
        loop.left += at not in version.meant.ends
        saved = loop.compiled_turns * loop.seconds / max(loop.turns, 1)
        if loop.left >= _LEAVES and saved < loop.compiled_seconds + loop.left * _LEAVE:
            line = _line(loop.node, at)
            why = version.meant.reasons.get(at, "")
            loop.give_up(f"line {line}: Python has to do it, in many turns{why}")


def _left(
    loop: Loop, items: Any, version: Version, code: int, found: list[Any] | None, memory: bytes,
    values: list[Any], began: tuple[int, int], seconds: float,
) -> tuple[Exit, Iterator[Run]]:  # fmt: skip
    """For C: where the compiled loop has stopped, and the parts that follow."""
    words = version.Words.from_buffer_copy(memory)
    if found is None:
        found = version.left(code, words, values)
    run = Run(loop, items)
    return run.ended(version, code, found, words, *began, seconds), loop.following(run, True)


_KINDS: Any = (Run, *([NATIVE.LoopEntry] if NATIVE is not None else []))
"""What may be a part of an execution."""


def _values(names: list[str], frame: FrameType) -> list[Any]:
    """The values of names in a frame; `UNBOUND` for those that have none."""
    here, code = frame.f_locals, frame.f_code
    own = {*code.co_varnames, *code.co_cellvars, *code.co_freevars}
    beyond = ChainMap(frame.f_globals, frame.f_builtins)
    found = [
        here.get(name, UNBOUND) if name in own else here.get(name, beyond.get(name, UNBOUND))
        for name in names
    ]
    if type(here) is dict and here is not frame.f_globals:
        here.clear()  # a copy that the frame keeps, and with it the arrays
    return found


def _line(node: ast.For | ast.While, at: int) -> int:
    return next(each.lineno for each, (k, _, _) in numbered(node).items() if k == at)


def _is_small(items: range) -> bool:
    limit = 1 << kinds.SMALL
    return -limit < items.start < limit and -limit < items.stop < limit and abs(items.step) < limit
