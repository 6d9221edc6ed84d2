"""Nodes that stand for operands while a call is traced (namespace/steps.py): none has a value.

Owns what a thread that traces may not do: evaluate what reads a stand-in, and warn. evaluate.py and
the functions that warn ask here; other threads, and other work of this one, go on as ever.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from lazyfuse.codegen.graph.node import HostCall, Node, topological
from lazyfuse.codegen.table import ops

active = 0
"""How many calls are being traced, by all threads."""


class Looked(BaseException):
    """A traced function needs the values of its operands. No handler of errors catches it."""


class _Here(threading.local):
    """The stand-ins of this thread's traced call, by id."""

    nodes: frozenset[int] = frozenset()


_here = _Here()


def _look() -> None:
    raise Looked


def stand_in(node: Node) -> Node:
    """A pending node of the same geometry, which nothing can evaluate."""
    return Node(ops.HOST, (), HostCall("stand-in", _look), node.shape, node.dtype, node.perm, None)


@contextmanager
def tracing(nodes: Sequence[Node]) -> Iterator[None]:
    """Meanwhile, evaluating what reads one of these nodes raises `Looked` in this thread."""
    global active
    _here.nodes = frozenset(map(id, nodes))
    active += 1
    try:
        yield
    finally:
        active -= 1
        _here.nodes = frozenset()


def refuse(nodes: Sequence[Node]) -> None:
    """Raise `Looked` if nodes that are to be evaluated read a stand-in."""
    if _here.nodes and not _here.nodes.isdisjoint(map(id, topological(nodes))):
        raise Looked


def speak() -> None:
    """The caller is going to warn of its arguments, as it does at each call: a traced call ends."""
    if active and _here.nodes:
        raise Looked


def speak_of(value: Any, dtype: Any) -> None:
    """The same where NumPy warns that a number becomes one of another dtype."""
    if active and _here.nodes and _warns(np.asarray(value), dtype):
        raise Looked


def _warns(number: Any, dtype: Any) -> bool:
    if number.dtype.kind == "c" != dtype.kind:
        return True
    try:
        with np.errstate(all="raise"):
            number.astype(dtype)
    except (FloatingPointError, OverflowError):
        return True
    return False
