"""Random programs of copies, parts that are written, and results that take operands' memory.

An array and its copy share their memory until one of them is written, and a kernel may write its
result where an operand lies: few arrays, many copies, the same windows over and over.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import numpy
import pytest

import lazyfuse
from lazyfuse import config
from tests import campaign, reached

pytestmark = campaign.TIMEOUT

NAMES = "abcd"
LINE = (
    "[::3]", "[1::3]", "[::2]", "[1::2]", "[:N//2]", "[N//2:]", "[5:N-5]", "[2:-8]", "[::-1]",
    "[:]", "[...]",
)  # fmt: skip
SQUARE = (
    "[1:-1, 1:-1]", "[:-2, 1:-1]", "[2:, 1:-1]", "[1:, 2:]", "[::-1]", "[:, ::-1]", "[::-1, ::-1]",
    "[0]", "[-1]", "[:, 0]", "[:, -1]", "[::2]", "[1::2]", "[...]", ".T[...]", ".T[1:-1, 1:-1]",
)  # fmt: skip
WHOLE = (
    "{x} = {y}.copy()", "{x} = {y}.copy()", "{x} = {y}[::-1].copy()", "{x} = {y} - {z}",
    "{x} = {y}.T + 1.0", "{x} = abs({y})", "{x} = np.where({y} > {z}, {x}, {y})", "{x} *= 0.5",
    "{x}[...] = {y}", "{x}[...] = {y} * 0.25 - {z}", "float({x}.max())", "float({x}.ravel()[7])",
)  # fmt: skip
PARTS = (
    "{x}{w} = {y}{v} * 2", "{x}{w} += {y}{v}", "{x}{w} = 1.5", "{x}{w} *= -1.0",
    "{x}{w} = {y}{v} + {z}{u} * 0.5",
    "np.add({y}{v}, {z}{u}, out={x}{w})",
    "np.copyto({x}{w}, {y}{v}, where={z}{u} > 0)", "{x}{w} = {z}{v}",
)  # fmt: skip


class Program(NamedTuple):
    """Statements that are repeated, and how many axes of how many elements their arrays have."""

    lines: list[str]
    turns: int
    axes: int
    size: int


def program(seed: int) -> Program:
    draw = random.Random(seed)
    axes = draw.choice((1, 2))
    size = draw.choice((12, 20)) if axes == 2 else 240
    probe = numpy.empty((size,) * axes)
    shapes = {w: eval(f"x{w}", {"x": probe, "N": size}).shape for w in (LINE, SQUARE)[axes - 1]}
    lines = []
    for _ in range(draw.randrange(3, 12)):
        names = dict(zip("xyz", draw.choices(NAMES, k=3), strict=True))
        window = draw.choice(list(shapes))
        alike = [w for w, shape in shapes.items() if shape == shapes[window]]
        text = draw.choice(WHOLE + PARTS)
        lines.append(text.format(w=window, v=draw.choice(alike), u=draw.choice(alike), **names))
    return Program(lines, draw.choice((1, 1, 2, 5)), axes, size)


def arrays(np: Any, program: Program) -> dict[str, Any]:
    count = numpy.arange(program.size**program.axes)
    found = {"np": np, "N": program.size}
    for name, step in zip(NAMES, (1, 7, 31, 101), strict=True):
        found[name] = np.array(
            (count * step % 997 * 0.25 - 50).reshape((program.size,) * program.axes)
        )
    return found


def differing(program: Program) -> list[str]:
    """The arrays that are not what they are in NumPy."""
    ours, theirs = arrays(lazyfuse, program), arrays(numpy, program)
    with numpy.errstate(all="ignore"):
        for line in program.lines * program.turns:
            exec(line, ours)
            exec(line, theirs)
        pairs = [(name, numpy.asarray(ours[name]), theirs[name]) for name in NAMES]
    return [name for name, x, y in pairs if not numpy.array_equal(x, y, equal_nan=True)]


@campaign.rounds(1500)
def test_copies_and_parts_equal_numpy(seeds: range) -> None:
    with config.options(eager_below=0):
        for seed in seeds:
            drawn = program(seed)
            with reached.program(seed):
                assert not differing(drawn), (seed, drawn)


FOUND = {
    "two updates of one version in one kernel": (
        "c = b.copy()", "c[::3] = b[::3] * 2", "b[::3] = c[::3] * 2", "a[::3] = c[::3] * 2",
        "float(b.max())",
    ),
    "the same in turns": ("b = a.copy()", "a[:N//2] = 1.5", "b[N//2:] = a[N//2:]", "float(a[0])"),
    "a result in the memory of what is updated": ("d[::-1] = d[:] * 2", "a = d[::-1].copy()"),
    "a copy that is read at other steps": ("a[...] = c", "c[::2] = a[:120]"),
    "an array that is read at other steps": ("d = c.copy()", "a = d.copy()", "a[::2] = a[:120]"),
    "a result where another operand lies": (
        "a = c[::-1].copy()", "d[::-1] = c[:] + d[:]", "c = d[::-1].copy()", "float(c[7])",
    ),
}  # fmt: skip


@pytest.mark.parametrize("turns", [1, 4])
@pytest.mark.parametrize("lines", FOUND.values(), ids=list(FOUND))
def test_what_random_programs_found(lines: tuple[str, ...], turns: int) -> None:
    with config.options(eager_below=0):
        assert not differing(Program(list(lines), turns, 1, 240))
