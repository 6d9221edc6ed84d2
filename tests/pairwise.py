"""Parameters of tests chosen pairwise: every pair of values is met, not every combination.

A fault of one argument, or of two that meet, shows in some chosen combination. The combinations
that are left out run with the mark `long`. Only for parameters of which the code under test asks
at most two together; the test says which. Holds no test.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest


def chosen(*values: Sequence[Any]) -> list[tuple[int, ...]]:
    """Positions of values such that each pair of two arguments' values is met at least once."""
    every = list(itertools.product(*(range(len(each)) for each in values)))
    axes = list(itertools.combinations(range(len(values)), 2))
    open_pairs = {(a, b, row[a], row[b]) for row in every for a, b in axes}

    def meets(row: tuple[int, ...]) -> int:
        return sum((a, b, row[a], row[b]) in open_pairs for a, b in axes)

    found = []
    while open_pairs:
        best = max(every, key=meets)
        found.append(best)
        open_pairs -= {(a, b, best[a], best[b]) for a, b in axes}
    return found


def pairwise(names: str, *values: Sequence[Any]) -> pytest.MarkDecorator:
    """As stacked `parametrize`, one argument for each of `names`; the rest is marked `long`."""
    arguments = [each.strip() for each in names.split(",")]
    assert len(arguments) == len(values)
    usual = set(chosen(*values))
    rows = []
    for at in itertools.product(*(range(len(each)) for each in values)):
        marks = () if at in usual else (pytest.mark.long,)
        row = [each[k] for each, k in zip(values, at, strict=True)]
        rows.append(pytest.param(*row, marks=marks))
    return pytest.mark.parametrize(arguments, rows)


def first(usual: int, values: Sequence[Any]) -> list[Any]:
    """The first `usual` values as they are, the others with the mark `long`."""
    rest = [pytest.param(each, marks=pytest.mark.long) for each in values[usual:]]
    return [*values[:usual], *rest]


def spread(usual: int, values: Sequence[Any]) -> list[Any]:
    """About `usual` values evenly spread over all, the others with the mark `long`."""
    step = max(1, -(-len(values) // usual))
    return [
        each if at % step == 0 else pytest.param(each, marks=pytest.mark.long)
        for at, each in enumerate(values)
    ]
