"""Small parts of large blocks: NumPy works on them at once, and they stay parts of their block.

Random programs keep parts over statements that record work on the block, evaluate it, export its
memory, or give it other values. `lazyfuse.arrays` has a block's parts in every state at once then.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import lazyfuse
from lazyfuse import config
from lazyfuse.arrays.base import COMPILED
from tests import campaign

SIDE = 12
BLOCKS = "ab"
PARTS = "pqr"
KEYS = (
    "[3]", "[-1]", "[:, 2]", "[:, -1]", "[2:5, 3]", "[4, ::2]", "[::-1, 5]", "[1:3, 2:6]", "[5][2:]",
    "[::4, ::4]", "[2, 3:4]", "[n]", "[:, n]", "[n:n+3, 1]", "[...][2]", "[None, 4]", "[7].T", "[0:2].T",
    "[6, ..., ::3]",
)  # fmt: skip
INNER = ("[1:]", "[::-1]", "[...]", "[0:1]", "[::2]", ".T", "[1:][::-1]")
ELEMENTS = ("[1, 2]", "[n, 3]", "[-1, n]", "[0][5]", "[11, 11]")
STATEMENTS = (
    # parts that stay, parts of parts
    "{p} = {a}{k}", "{p} = {a}{k}", "{p} = {a}{k}", "if {q}.ndim < 5: {p} = {q}{i}", "if {q}.ndim < 5: {p} = {q}{i}", "{p} = {q}",
    # small work at once
    "{p} = {q} * 2 - {q}", "{p} = abs({q})", "s = float({p}.sum())", "s = float({a}{e})",
    "{a}{e} = s", "{a}{e} = 7", "{a}{e} += 1.5", "{a}{e} = np.float64(0.25)", "s = {p}.ravel()[0] * 1.0",
    "{a}{k} = 2.5", "{a}{k} = {b}{k} * 0.5", "{a}{k} += {b}{k}", "{a}{k} -= {a}{k} * 0.5",
    "{p} += 1", "{p} *= {q}", "{p}[...] = {q}", "{p}[...] = s", "{p}.fill(s)", "{p}{i} = 4",
    "np.add({p}, {p}, out={p})", "np.negative({q}, out={q})", "np.copyto({p}, s)", "{p}.sort()",
    "{p} = np.sort({q})", "{p} = {q}.copy()", "{p} = {q}.reshape(-1)", "{p} = {q}.ravel()",
    "if {q}.size + {p}.size < 99: {p} = np.concatenate([{q}.ravel(), {p}.ravel()])", "{p} = np.where({q} > 0, {q}, 1.0)",
    "{p} = np.squeeze({q})", "{p} = np.atleast_2d({q})", "if {q}.size < 13 > {q}.ndim: {p} = np.broadcast_to({q}, (40,) + {q}.shape)",
    "if {q}.ndim < 4: {p} = {q}.reshape({q}.shape + (1,))", "{p} = np.flip({q})", "{p} = {q} @ {q}", "if {q}.size < 13: {p} = np.outer({q}, {q})",
    "for row in {a}: s = s * 0.5 + float(row[1])", "for row in {a}: row[2] = s", "s = max({p}.ravel().tolist())",
    "{p} = np.array({q})", "{p} = {q}.astype(np.float32)", "{p}[{q} > 1] = 0.5", "s = len({p}) + 0.5",
    "{a}[n], {a}[2] = {a}[2].copy(), {a}[n].copy()", "{p} = {a}[[1, 3]]", "{a}[[1, 3]] = {a}[[3, 1]]",
    "{p} = {q} + {a}[:, :1].T[0, :1]", "{p} = {q} ** 2", "{p} = np.float64(2) * {q}", "{p} = {q} <= s",
    # the block as a whole: recorded, evaluated, replaced
    "{a} = {b} * 0.5 + {a}", "{a} += {b}", "{a} *= 0.5", "{a}[...] = {b}", "{a}[1:] = {a}[:-1] * 0.5",
    "{a} = np.where({a} > s, {a}, {b})", "{a} = {b}.copy()", "{a} = {b}", "{a} = {b}.T + 0.0", "{a}[{a} > 5] = 1.0",
    "s = float({a}.sum()) / 200", "np.multiply({a}, 0.25, out={a})", "w = {a} + {b}", "w = {a} + {b}", "{a} = w * 0.125",
    # memory that other code has
    "x = np.asarray({a})", "x = numpy.asarray({p})", "x[...] = 3", "x[:1] += 1", "x = None", "x = numpy.asarray({a})",
    "{p} = np.asarray(x)", "x = memoryview({a}[3].copy())", "numpy.asarray({p})[...] += 0.5", "n = (n + 5) % 12",
    "n = numpy.int64(n)",
)  # fmt: skip


def program(seed: int) -> list[str]:
    draw = random.Random(seed)
    lines = []
    for _ in range(draw.randrange(8, 40)):
        a, b = draw.choice(BLOCKS), draw.choice(BLOCKS)
        p, q = draw.choice(PARTS), draw.choice(PARTS)
        k, i, e = draw.choice(KEYS), draw.choice(INNER), draw.choice(ELEMENTS)
        lines.append(draw.choice(STATEMENTS).format(a=a, b=b, p=p, q=q, k=k, i=i, e=e))
    return lines * draw.choice((1, 1, 2, 3))


def names(np: Any) -> dict[str, Any]:
    count = numpy.arange(SIDE * SIDE)
    found: dict[str, Any] = {"np": np, "numpy": numpy, "s": 0.5, "n": 4, "x": None, "w": None}
    for name, step in zip(BLOCKS, (7, 31), strict=True):
        found[name] = np.array((count * step % 97 * 0.25 - 10).reshape(SIDE, SIDE))
    for name in PARTS:
        found[name] = found["a"][3]
    return found


def run(np: Any, lines: list[str]) -> tuple[dict[str, Any], list[str]]:
    found, raised = names(np), []
    with numpy.errstate(all="ignore"):
        for line in lines:
            try:
                exec(line, found)
            except Exception as error:
                raised.append(f"{line}: {type(error).__name__}")
            else:
                raised.append(line)
    return found, raised


def differing(lines: list[str]) -> list[str]:
    """The names that have not NumPy's values at the end, and statements that raised otherwise."""
    (ours, first), (theirs, second) = run(lazyfuse, lines), run(numpy, lines)
    found = [f"{x} | {y}" for x, y in zip(first, second, strict=True) if x != y]
    for name in (*BLOCKS, *PARTS, "s", "x", "w"):
        x, y = numpy.asarray(ours[name]), numpy.asarray(theirs[name])
        if x.dtype != y.dtype or x.shape != y.shape:
            found.append(f"{name}: {x.dtype} {x.shape}, {y.dtype} {y.shape}")
        elif y.dtype != object and not numpy.array_equal(x, y, equal_nan=True):
            found.append(name)
    return found


@pytest.mark.parametrize("limit", [3, 20, 60, 140])
@campaign.rounds(250)
def test_random_programs(seeds: range, limit: int) -> None:
    with config.options(eager_below=limit):
        for seed in seeds:
            lines = program(seed)
            assert not differing(lines), (seed, lines)
