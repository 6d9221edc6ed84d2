"""The instructions of a code object, read once, and which of them load what.

Owns what escapes.py and stretches.py both know of instructions.
"""

from __future__ import annotations

import dis
from types import CodeType

from lazyfuse.devices.caches import cached

LOADS = ("LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK", "LOAD_DEREF")
PAIRS = ("LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW")
CONSTANTS = ("LOAD_CONST", "LOAD_CONST_IMMORTAL", "LOAD_CONST_MORTAL", "LOAD_SMALL_INT")
SKIPPED = ("CACHE", "EXTENDED_ARG", "NOP", "PRECALL", "PUSH_NULL")
OPERATORS = frozenset("+ - * / // % ** & | ^ << >>".split())


@cached(256)
def instructions(code: CodeType) -> tuple[list[dis.Instruction], dict[int, int]]:
    """The instructions of a code object, and the number of each by its offset."""
    steps = list(dis.get_instructions(code))
    return steps, {step.offset: number for number, step in enumerate(steps)}
