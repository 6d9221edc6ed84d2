"""Loops in LLVM functions that are written with llvmlite's builder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def loop(
    build: Any,
    over: tuple[Any, Any, int],
    values: Sequence[Any],
    body: Callable[[Any, list[Any]], Sequence[Any]],
    also: Callable[[list[Any]], Any] | None = None,
) -> tuple[Any, list[Any]]:
    """`for index in range(*over): values = body(index, values)`; the index and values after it.

    `also(values)`: a further condition for another turn.
    """
    start, stop, step = over
    before = build.block
    head, inner, after = (build.function.append_basic_block() for _ in range(3))
    build.branch(head)
    build.position_at_end(head)
    index, *current = (build.phi(each.type) for each in (start, *values))
    for phi, each in zip((index, *current), (start, *values), strict=True):
        phi.add_incoming(each, before)
    goes_on = build.icmp_signed("<", index, stop)
    if also is not None:
        goes_on = build.and_(goes_on, also(current))
    build.cbranch(goes_on, inner, after)
    build.position_at_end(inner)
    for phi, each in zip(current, body(index, current), strict=True):
        phi.add_incoming(each, build.block)
    index.add_incoming(build.add(index, index.type(step)), build.block)
    build.branch(head)
    build.position_at_end(after)
    return index, current
