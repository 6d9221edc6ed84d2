"""NumPy's order of summation, as data: which elements one pairwise sum covers, and its tree.

Sums of floats in kernels repeat NumPy's bits; this module describes NumPy's order. It follows
NumPy's iterator (sorting, coalescing and, since NumPy 2.3, buffering) and its pairwise loop. Pure
arithmetic on sizes and strides; imports nothing of lazyfuse.
"""

from __future__ import annotations

import math

from lazyfuse.devices.dataclass import dataclass

Ints = tuple[int, ...]

BUFFER = 8192  # elements of NumPy's iteration buffer (np.getbufsize)


@dataclass(frozen=True)
class Group:
    """Axes that NumPy's iterator walks as one, slowest first."""

    axes: Ints
    size: int
    stride: int
    reduced: bool


@dataclass(frozen=True)
class Summation:
    """How NumPy sums a value over its reduced axes.

    `order` holds all axes of size above 1, slowest first. The fastest `run` of them are summed
    pairwise, `block` elements at a time (0: all at once). The results of blocks, then of the slower
    reduced axes, are added to 0 one after the other. `run` 0: elements are added one by one.
    """

    order: Ints
    run: int
    block: int


def sort_axes(strides: list[Ints]) -> list[int]:
    """Axes from slowest to fastest as NumPy's iterator sorts them; `strides`: per array."""
    rank = len(strides[0])
    axes = list(reversed(range(rank)))  # fastest first: the iterator's own order
    for at in range(1, rank):
        place = at
        for other in reversed(range(at)):
            verdict = _compare(strides, axes[at], axes[other])
            if verdict < 0:
                place = other
            elif verdict > 0:
                break
        axes.insert(place, axes.pop(at))
    axes.reverse()
    return axes


def _compare(strides: list[Ints], first: int, second: int) -> int:
    """-1: the first axis is faster than the second; 1: it is slower; 0: no array decides."""
    verdict = 0
    for each in strides:
        if each[first] and each[second]:
            if abs(each[second]) <= abs(each[first]):
                return 1
            verdict = -1
    return verdict


def summation(shape: Ints, strides: Ints, reduced: tuple[bool, ...], convert: bool) -> Summation:
    """NumPy's order for summing a value with these strides; `convert`: while casting it."""
    wide = [axis for axis in range(len(shape)) if shape[axis] > 1]
    order = [wide[place] for place in sort_axes([tuple(strides[axis] for axis in wide)])]
    groups = _coalesce([Group((a,), shape[a], strides[a], reduced[a]) for a in order])
    if not groups or not groups[0].reduced:
        return Summation(tuple(order), 0, 0)
    count, block = _buffering(groups, convert)
    run = sum(len(group.axes) for group in groups[:count])
    total = math.prod([group.size for group in groups[:count]])
    return Summation(tuple(order), run, block if block < total else 0)


def _coalesce(groups: list[Group]) -> list[Group]:
    """Fastest first, neighbours joined where one stride serves both."""
    joined: list[Group] = []
    for group in reversed(groups):
        if joined and joined[-1].reduced == group.reduced:
            last = joined[-1]
            if last.stride * last.size == group.stride:
                joined[-1] = Group(
                    group.axes + last.axes, group.size * last.size, last.stride, last.reduced
                )
                continue
        joined.append(group)
    return joined


def _buffering(groups: list[Group], convert: bool) -> tuple[int, int]:
    """How many groups one pairwise sum covers, and at most how many elements (0: no limit).

    Follows npyiter_find_buffering_setup, for one output (stride 0 on reduced axes) and one input.
    The fastest group is reduced.
    """
    cost = 2 if convert else 1
    size = groups[0].size
    best, best_cost, best_size, best_core = 0, cost, size, 1
    single = True  # the input still moves by one stride
    outer = 0
    for at in range(1, len(groups)):
        if outer or (size >= BUFFER and cost > 1):
            break
        before, group = groups[at - 1], groups[at]
        if group.reduced != before.reduced:
            cost += 1
            outer = at
        if single and before.stride * before.size != group.stride:
            single = False
            cost += not convert
        core, size = size, size * group.size
        reach = min(size, BUFFER) if cost > 1 else size
        if cost * best_size <= best_cost * reach:
            best, best_cost, best_size, best_core = at, cost, size, core
    if best and best == outer:
        return best, 0
    if best == 0 and not convert:
        return 1, 0
    return best + 1, best_core * (BUFFER // best_core)


def left_half(count: int, complex_values: bool) -> int:
    """How many of `count` elements the left branch of NumPy's pairwise tree takes."""
    if complex_values:
        return (count - count % 8) // 2
    half = count // 2
    return half - half % 8


def leaves(count: int, limit: int, complex_values: bool) -> list[int]:
    """Sizes of the largest subtrees with at most `limit` elements, left to right."""
    found: list[int] = []
    pending = [count]
    while pending:
        size = pending.pop()
        if size <= limit:
            found.append(size)
        else:
            left = left_half(size, complex_values)
            pending += [size - left, left]
    return found
