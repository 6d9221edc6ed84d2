"""Rewrite rules that are exact in NumPy's arithmetic: NaN, -0.0 and overflow included.

A rule takes a value and its graph so far and returns the index of an earlier value that equals it,
or None. Every rule is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lazyfuse.codegen.graph.linearize import Value

Rule = Callable[[Value, Sequence[Value]], "int | None"]


def same_type_cast(value: Value, graph: Sequence[Value]) -> int | None:
    """A cast to the dtype that the source already has, or a copy: values are immutable here."""
    if value.op.algebra != "identity":
        return None
    source = graph[value.src[0]]
    same = source.dtype == value.dtype and source.shape == value.shape
    return value.src[0] if same and source.perm == value.perm else None


def involution(value: Value, graph: Sequence[Value]) -> int | None:
    """-(-x), ~~x, conjugate twice; of truth values, logical not twice."""
    if value.op.algebra != "involution":
        return None
    inner = graph[value.src[0]]
    if inner.op is not value.op or inner.dtype != value.dtype:
        return None
    origin = graph[inner.src[0]]
    same = origin.dtype == value.dtype and origin.shape == value.shape
    return inner.src[0] if same and origin.perm == value.perm else None


def identity_view(value: Value, graph: Sequence[Value]) -> int | None:
    """A view of its whole source."""
    if value.axes is None:
        return None
    source = graph[value.src[0]]
    if source.shape != value.shape or source.dtype != value.dtype:
        return None
    same = all(a == i or source.shape[i] == 1 for i, a in enumerate(value.axes))
    return value.src[0] if same else None


RULES: tuple[Rule, ...] = (same_type_cast, involution, identity_view)
