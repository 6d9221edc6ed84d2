"""How often NumPy ran a function at once for the user's program, by the line that called it."""

from __future__ import annotations

from types import CodeType, FrameType
from typing import Any

from lazyfuse.bootstrap import HERE
from lazyfuse.codegen.graph.node import source_line

_HOME = str(HERE)

table: dict[tuple[str, CodeType, int], int] = {}
"""Calls by function, code object and instruction offset of the first frame outside lazyfuse."""


_done = False  # since `begin`


def begin() -> dict[str, int]:
    """How often NumPy ran each function, before a call that C may make itself the next time."""
    global _done
    _done = False
    return by_name()


def note_done() -> None:
    """Note that NumPy has just done a call on the values of its operands, as it does for its own
    arrays. Such calls are part of functions that are ours, and are not counted.
    """
    global _done
    _done = True


def is_done() -> bool:
    """Whether `note_done` was called since `begin`."""
    return _done


def count(name: str, frame: FrameType | None) -> None:
    """Count a call of `name` that NumPy ran for the first frame outside lazyfuse."""
    while frame is not None and frame.f_code.co_filename.startswith(_HOME):
        frame = frame.f_back
    if frame is not None:
        key = (name, frame.f_code, frame.f_lasti)
        table[key] = table.get(key, 0) + 1


def name_of(function: Any) -> str:
    """The name under which calls of a function of NumPy's are counted."""
    module = getattr(function, "__module__", None) or "numpy"
    return f"{module}.{function.__name__}".removeprefix("numpy.")


def by_name() -> dict[str, int]:
    """How often NumPy ran each function."""
    found: dict[str, int] = {}
    for key in list(table):  # other threads add to it
        found[key[0]] = found.get(key[0], 0) + table.get(key, 0)
    return found


def counts() -> dict[tuple[str, str, int], int]:
    """How often each function fell back to NumPy: (function, file, line) -> calls."""
    found: dict[tuple[str, str, int], int] = {}
    for (name, code, offset), number in list(table.items()):
        file, line, _function = source_line((code, offset))
        found[name, file, line] = found.get((name, file, line), 0) + number
    return found


def clear_counts() -> None:
    """Set all counts to zero."""
    table.clear()
