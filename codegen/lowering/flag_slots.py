"""Which operation raised which floating-point exception, where a device has no flag register.

A launch reports exceptions in words of bits. The lowest four bits of the first word are the flags
of all operations together, in NumPy's numbers. The next four are the flags of slot 0, and so on
through the words. A kernel's ordered reductions have the first slots, so that the second pass over
partial results has the same slots. Each instruction that can raise an exception has a later slot.
raised_words.py has the text.
"""

from __future__ import annotations

from collections.abc import Iterable

from lazyfuse.codegen.lowering.kernel import Kernel, is_ordered
from lazyfuse.codegen.table import ops
from lazyfuse.devices.base import WORDS

NO_SLOT = -1
"""Instead of a slot: the exceptions are reported without their operation."""
WIDTH = 4
OF_WORD = 32 // WIDTH
MOST = WORDS * OF_WORD - 1
_ALL = (1 << WIDTH) - 1


def slots(kernel: Kernel) -> list[int]:
    """The slots of the reductions, then of the instructions; kernels of equal operations agree."""
    rows = [ops.TABLE[each.op] for each in kernel.body]
    raising = [bool(row.flags or row.integer_flags) for row in rows]
    return _numbered([*map(is_ordered, kernel.reductions), *raising])


def of_reductions(kernel: Kernel) -> list[int]:
    """The slots of the reductions alone."""
    return _numbered(map(is_ordered, kernel.reductions))


def _numbered(raising: Iterable[bool]) -> list[int]:
    found = []
    free = 0
    for each in raising:
        found.append(free if each and free < MOST else NO_SLOT)
        free += each
    return found


def of_slot(bits: int, slot: int) -> int:
    """The flags of one slot in the words of a launch."""
    return bits >> WIDTH * (slot + 1) & _ALL if slot != NO_SLOT else 0


def in_slot(conditions: int, slot: int) -> int:
    """The words of a launch in which a slot has these flags."""
    return conditions | (conditions << WIDTH * (slot + 1) if slot != NO_SLOT else 0)
