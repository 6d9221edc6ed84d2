"""Long programs that print how much memory their process holds, after each tenth of them.

    python -m tests.faults.leaks [statements|structures|shapes|copies] [COUNT]

What programs load once is loaded before the first. Of two numbers of megabytes the first is what
the process has of the system, the second what of it lies in free buffers, which the next results
take and which go after half a minute.
"""

from __future__ import annotations

import gc
import random
import resource
import sys
from collections.abc import Callable
from typing import Any

import numpy

import lazyfuse
from lazyfuse.runtime.placement import devices
from tests.faults import statements

TENTHS = 10
K = numpy.arange(60_000)
A, B = K % 1009 * 0.5 - 70.0, K * 7919 % 997 * 0.25 + 1.0
Turn = Callable[[int], object]


def held() -> tuple[float, float]:
    """Megabytes of this process, and of free buffers."""
    with open("/proc/self/statm", encoding="utf-8") as file:
        pages = int(file.read().split()[1])
    buffers: Any = devices.cpu()
    free = buffers.buffers.info()["free_bytes"]
    return pages * resource.getpagesize() / 1e6, free / 1e6


def mixed(number: int) -> None:
    """A few statements of a random program: with errors, looks, other packages' reads."""
    names = statements.arrays(lazyfuse)
    for line in statements.program(number % 97):
        exec(line, names)
    try:
        names["a"] + names["b"][:-1]
    except ValueError:
        small = lazyfuse.array([1.0, 2.0, 3.0]) * number
        float(small[1])


STEPS = (
    "x = x + y", "x = x * y", "x = x - y", "y = abs(x)", "y = np.maximum(x, y)", "x = -x",
    "y = np.minimum(y, 3.0)", "x = np.where(x > y, x, y)",
)  # fmt: skip


def structure(number: int) -> None:
    """A program that nobody has seen."""
    draw = random.Random(number)
    names = {"np": lazyfuse, "x": lazyfuse.array(A[:40_000]), "y": lazyfuse.array(B[:40_000])}
    with numpy.errstate(all="ignore"):
        for _ in range(draw.randrange(5, 14)):
            exec(draw.choice(STEPS), names)
        numpy.asarray(names["x"]), numpy.asarray(names["y"])


def shape(number: int) -> None:
    """A program that everybody has seen, at a size of its own."""
    size = 40_000 + 7 * number % 19_000
    y = lazyfuse.array(A[:size]) * 2.0 + lazyfuse.array(B[:size])
    y[1:-1] -= y[:-2]
    float(y.max())


_kept: list[Any] = []


def copy(number: int) -> None:
    """Recorded copies, sixty of which live at a time."""
    if number % 60 == 0:
        _kept.clear()
    _kept.append(lazyfuse.array(A[:50_000]) * 1.5)
    if number % 7 == 0:
        float(_kept[-1][3])


PROGRAMS: dict[str, tuple[Turn, int]] = {
    "statements": (mixed, 20_000 // 12),  # programs of twelve
    "structures": (structure, 1_000),
    "shapes": (shape, 2_000),
    "copies": (copy, 1_200),
}


def load(turn: Turn) -> None:
    """Turns until the compiled programs are there, with what loads them: the first is half of the
    megabytes, and comes whenever the compiler has time.
    """
    lazyfuse.options(plan_after=0)  # the programs are not NumPy's at first
    device: Any = devices.cpu()
    for _ in range(8):
        for number in range(20):
            turn(number)
        device.finish(60.0)
        if not device.info()["programs"]["awaited"]:
            break


def run(name: str, count: int) -> list[tuple[float, float]]:
    """What is held after each tenth."""
    turn, usual = PROGRAMS[name]
    count = count or usual
    found = []
    load(turn)
    for number in range(count):
        turn(number)
        if (number + 1) * TENTHS // count > number * TENTHS // count:
            gc.collect()
            found.append(held())
    return found


if __name__ == "__main__":
    names = sys.argv[1:2] or list(PROGRAMS)
    for name in names:
        for whole, free in run(name, int(sys.argv[2]) if len(sys.argv) > 2 else 0):
            print(f"{name} {whole:.1f} {free:.1f}", flush=True)
