"""Errors of tasks, told at the line of the program that asked for them.

Owns `told`. Without it a failing task would say which file it missed, and not for which line.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lazyfuse.codegen.graph.node import Node, source_line
from lazyfuse.devices.base import DeviceError
from lazyfuse.errors import EvaluationError
from lazyfuse.runtime.placement import residency


@contextmanager
def told(node: Node | None) -> Iterator[None]:
    """Names the operation in errors of the tasks that run within, and its line.

    An error of a task stays what it is, and gets a note; where the cluster is gone, it is an
    `EvaluationError`.
    """
    try:
        yield
    except (DeviceError, EvaluationError) as error:
        if node is None or isinstance(error, EvaluationError):
            raise
        file, line, function = source_line(node.location)
        name = residency.name_of(node)
        raise EvaluationError(
            str(error), op=name, file=file, line=line, function=function
        ) from error
    except Exception as error:
        file, line, function = source_line(None if node is None else node.location)
        if node is not None and not getattr(error, "__notes__", ()):
            where = f'recorded in File "{file}", line {line}, in {function}'
            error.add_note(f"[{residency.name_of(node)}] {where}")
        raise
