"""Uniform random numbers of PCG64 by a compiled loop, on all threads: NumPy's stream, bit for bit.

The generator is a linear congruence of 128 bits, so the state after any number of steps is known
at once. Each chunk starts at the state of its first number; within a chunk `LANES` states advance
in parallel, in vectors. Owns the loop and the arithmetic of jumps; random.py decides when to draw.
"""

from __future__ import annotations

import math
import platform
import textwrap
from typing import Any

import numpy as np

from lazyfuse.devices.caches import cached
from lazyfuse.runtime.execution import routine
from lazyfuse.runtime.execution.routine import Routine

Array = np.ndarray[Any, np.dtype[Any]]

LANES = 64  # parallel states: enough vectors to hide the latency of a product
CHUNK = 1 << 16  # numbers
FEWEST = 1 << 14  # NumPy draws fewer numbers in less time than a launch takes

_MULTIPLIER = (2549297995355413924 << 64) + 4865540595714422341
_WORD, _STATE = (1 << 64) - 1, (1 << 128) - 1
_GENERATORS: list[type] = [np.random.PCG64]
# on other machines NumPy's compiler may contract `low + range * x`
_UNCONTRACTED = platform.machine().lower() in ("x86_64", "amd64")

_HELPERS = """
@njit
def uniform(high, low):
    mixed, turn = high ^ low, high >> uint64(58)
    word = (mixed >> turn) | (mixed << ((uint64(64) - turn) & uint64(63)))
    return float64(int64(word >> uint64(11))) * 1.1102230246251565e-16
"""

_ADVANCED = """
product, crossed = below * {by}_below, low * {by}_below
crossed += product >> half
above = below * {by}_low + (crossed & ones)
high = (
    (high * (({by}_low << half) | {by}_below) + ((low << half) | below) * {by}_high)
    + (low * {by}_low + (crossed >> half) + (above >> half) + {plus}_high)
)
below = (product & ones) + {plus}_below
low = (above & ones) + {plus}_low + (below >> half)
high += low >> half
"""


def _steps(by: str, plus: str, depth: int) -> str:
    """The kernel text that advances `high, low, below`, indented."""
    return textwrap.indent(_ADVANCED.format(by=by, plus=plus), 4 * depth * " ").strip()


# A state is a high word and two halves of the low one, since vectors can multiply halves.
_UNIFORM = Routine(
    "uniform_pcg64",
    ("count", "first_high", "first_low"),
    {"out": "f8"},
    f"""
    highs, lows, belows = local_u8({LANES}), local_u8({LANES}), local_u8({LANES})
    half, ones = uint64(32), uint64(0xFFFFFFFF)
    high, low, below = uint64(first_high), uint64(first_low) >> half, uint64(first_low) & ones
    for j in range({LANES}):
        low, below = low & ones, below & ones
        highs[j], lows[j], belows[j] = high, low, below
        {_steps("one", "odd", 2)}
    whole = count - count % {LANES}
    for at in range(0, whole, {LANES}):
        for j in range({LANES}):
            independent()
            high, low, below = highs[j], lows[j] & ones, belows[j] & ones
            out[at + j] = start + width * uniform(high, (low << half) | below)
            {_steps("by", "plus", 3)}
            highs[j], lows[j], belows[j] = high, low, below
    for j in range(count - whole):
        low, below = lows[j] & ones, belows[j] & ones
        out[whole + j] = start + width * uniform(highs[j], (low << half) | below)
    """,
    scalars={
        "start": "f8",
        "width": "f8",
        **{
            f"{word}_{part}": "u8"
            for word in ("one", "odd", "by", "plus")
            for part in ("high", "low", "below")
        },
    },
    helpers=_HELPERS,
)


def is_known(bit_generator: Any) -> bool:
    """Whether this module can draw the stream of a bit generator."""
    return type(bit_generator) in _GENERATORS


def register(kind: type) -> None:
    """Accept `kind`, a subclass that draws as NumPy's PCG64 does."""
    _GENERATORS.append(kind)


def random(
    bit_generator: Any, size: Any = None, dtype: Any = np.float64, out: Any = None
) -> Array | None:
    """As `Generator.random`; None if NumPy must draw."""
    if out is not None or dtype is not np.float64:
        return None
    return _drawn(bit_generator, size, 0.0, 1.0)


def uniform(bit_generator: Any, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Array | None:
    """As `Generator.uniform` between two numbers; None if NumPy must draw."""
    if type(low) not in (int, float) or type(high) not in (int, float) or not _UNCONTRACTED:
        return None
    try:
        start, width = float(low), float(high) - float(low)
    except OverflowError:
        return None
    if not math.isfinite(width) or width < 0.0:
        return None  # NumPy raises its error
    return _drawn(bit_generator, size, start, width)


def _drawn(bit_generator: Any, size: Any, start: float, width: float) -> Array | None:
    shape = (size,) if type(size) is int else size
    if type(shape) is not tuple or any(type(n) is not int or n < 0 for n in shape):
        return None
    count = math.prod(shape)
    if count < FEWEST or not is_known(bit_generator):
        return None
    return routine.attempt(_filled, bit_generator, shape, count, start, width)


def _filled(
    bit_generator: Any, shape: tuple[int, ...], count: int, start: float, width: float
) -> Array | None:
    launch = _UNIFORM.launcher()
    if launch is None:
        return None
    found = routine.empty(shape, np.float64)
    with bit_generator.lock:
        known = bit_generator.state
        state, odd = known["state"]["state"], known["state"]["inc"]
        sizes, places = [], list(range(0, count, CHUNK))
        by, plus = _jump(CHUNK)
        at = _stepped(state, odd, 1)  # each number comes from the state after a step
        for place in places:
            sizes.append((min(CHUNK, count - place), _signed(at >> 64), _signed(at & _WORD)))
            at = (at * by + odd * plus) & _STATE
        by, plus = _jump(LANES)
        words = (_MULTIPLIER, odd, by, odd * plus & _STATE)
        parts = [
            np.uint64(part)
            for word in words
            for part in (word >> 64, (word & _WORD) >> 32, word & _WORD >> 32)
        ]
        launch((found,), sizes, places, (start, width, *parts), work=4 * count)
        known["state"]["state"] = _stepped(state, odd, count)
        bit_generator.state = known
    return found


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def _stepped(state: int, odd: int, steps: int) -> int:
    by, plus = _jump(steps)
    return (state * by + odd * plus) & _STATE


@cached(64)
def _jump(steps: int) -> tuple[int, int]:
    """The `a` and `b` for which the state after `steps` is `state * a + increment * b`."""
    by, plus = 1, 0
    factor, term = _MULTIPLIER, 1
    while steps:
        if steps & 1:
            by, plus = by * factor & _STATE, (plus * factor + term) & _STATE
        term = term * (factor + 1) & _STATE
        factor = factor * factor & _STATE
        steps >>= 1
    return by, plus
