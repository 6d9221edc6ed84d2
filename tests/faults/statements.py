"""Random programs of statements, each of which NumPy does at once, and what disturbs them."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy

import lazyfuse
from tests import reached

N = 40_000
NAMES = "abc"

STATEMENTS = (
    "{x} = {x} * 1.5 + {y}", "{x} = {y} - {z}", "{x} += {y} * 0.25", "{x} *= 0.5",
    "{x}[{i}:] -= {y}[{i}:]", "{x}[{i}:{j}] = {y}[{i}:{j}]", "{x}[:{i}] = 1.25",
    "{x} = np.where({y} > {z}, {x}, {y})", "{x}[1:-1] = ({x}[:-2] + {x}[2:]) * 0.5",
    "{x} = np.minimum({y}, 1e6) - {x}.max()", "{x} = {y}[::-1] + {z}", "{x} = {y}.copy()",
    "{x} = np.concatenate([{x}[{i}:], {y}[:{i}]])", "{x} = abs({y}) + {x}.min()", "{x}[{i}] = 3.0",
    "{x} = np.sqrt(abs({x})) + {z}", "{x}[::3] = {y}[::3] * 2", "np.negative({x}, out={x})",
    "{x} = np.roll({y}, {i}) * 0.5 + {z}", "{x} = np.repeat({y}[::2] * 0.5, 2) - {z}",
    "{x} = np.concatenate([{x}[{i}:] * 0.5, {y}[:{i}] - 1])",
    "{x}[1:-1] = np.roll({y} - 1.0, {j})[1:-1] * 0.5", "{x} += np.roll({x} * 0.25, 1)",
    "{x} = np.pad({y} * 0.5, 2, mode='wrap')[2:-2] - np.roll({x} + 1.0, -1)",
    "{x} = np.sort({y}) - {z}", "{x}[{i}:] += np.cumsum({y}[{i}:]) * 1e-5",
    "np.add({y}, {z}, out={x})", "{x}[([1, {i}, {j}],)] = {y}[([{j}, 2, {i}],)]",
    "{x}[[{i}, 5]] *= 0.5", "{x}[{y} > 40] = 0.75", "np.copyto({x}, {y} * 0.5)",
    "{x}.reshape(-1, 200).T[3:9, 5] += 0.25", "{x}.reshape(-1, 200)[[1, 7], 2:4] = 1.5",
    "{x} = np.take({y} + 1.0, np.arange({x}.size) // 2)", "{x}[{i}:{j}].sort()",
    "np.multiply({x}[{i}:{j}], 0.5, out={x}[{i}:{j}])",
)  # fmt: skip
LOOKS = (
    "float({x}[{i}])",
    "float({x}.sum() * 0)",
    "numpy.asarray({x})",
    "float({x}.max())",
    "bool(({x} > 1).any())",
    "float(np.nanmean({x}))",
    "float(np.average({y} + {x}))",
    "{x}[{i}:{j}].tolist()",
    "float({x}.reshape(-1, 200)[3:9].T.max())",
)


def program(seed: int) -> list[str]:
    """Statements over three arrays, with looks in between. Values stay below 1e9."""
    draw = random.Random(seed)
    found = []
    for _ in range(draw.randrange(6, 20)):
        first = draw.randrange(N - 200)
        names = {"i": first, "j": first + draw.randrange(1, 100)}
        names |= dict(zip("xyz", draw.choices(NAMES, k=3), strict=True))  # type: ignore[arg-type]
        found.append(draw.choice(STATEMENTS if draw.random() < 0.7 else LOOKS).format(**names))
    return found


def arrays(np: Any) -> dict[str, Any]:
    """The names that a program begins with."""
    k = numpy.arange(N)
    return {
        "np": np,
        "numpy": numpy,
        "a": np.array(k % 1009 * 0.5),
        "b": np.array(k * 7919 % 997 * 0.25 - 70),
        "c": np.array(numpy.full(N, 2.5)),
    }


def values(names: dict[str, Any]) -> list[Any]:
    """Copies of the arrays as they are now."""
    return [numpy.array(names[name]) for name in NAMES]


def equal(ours: list[Any], theirs: list[Any]) -> bool:
    """Whether arrays are equal, element by element."""
    return all(map(numpy.array_equal, ours, theirs))


def disturbed(seed: int, fails: Callable[[str, dict[str, Any]], bool]) -> int:
    """How many statements of a program `fails` has seen fail, which it does one by one.

    Each of them was done or not, and none twice.
    """
    with reached.program():
        return beside_others(seed, fails)


def beside_others(seed: int, fails: Callable[[str, dict[str, Any]], bool]) -> int:
    """The same for a part of a program, which the caller counts."""
    ours, theirs = arrays(lazyfuse), arrays(numpy)
    met = 0
    for line in program(seed):
        before = values(theirs)
        exec(line, theirs)
        if not fails(line, ours):
            continue
        met += 1
        found = values(ours)
        if not equal(found, values(theirs)):
            assert equal(found, before), (seed, line)
            theirs.update({name: before[at] for at, name in enumerate(NAMES)})
    assert equal(values(ours), values(theirs)), seed
    return met


SENDER = """
import os, random, sys, time
parent, number, most = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
os.write(1, b"!")
while os.getppid() == parent:
    time.sleep(random.random() * most)
    os.kill(parent, number)
"""


@contextmanager
def signals(handler: Callable[[int, Any], Any], most: float) -> Iterator[None]:
    """Another process sends signals, at most so many seconds apart.

    From Python 3.13 on a handler may run between the beginning of NumPy's own `errstate`, in which
    tests compare, and its block: NumPy's state is put back at the end.
    """
    number, state = signal.SIGUSR1, numpy.geterr()
    before = signal.signal(number, handler)
    command = [sys.executable, "-S", "-E", "-c", SENDER, str(os.getpid()), str(number), str(most)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as sender:
        try:
            assert sender.stdout is not None
            sender.stdout.read(1)
            yield
        finally:
            sender.kill()
            sender.wait()
            signal.signal(number, before)
            numpy.seterr(**state)
