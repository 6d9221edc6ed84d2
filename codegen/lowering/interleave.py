"""How many iterations of a loop are interleaved: each step is computed for all of them.

A long chain of operations waits for its own results, and processors look a few hundred
instructions ahead: less than two iterations of such a loop. LLVM interleaves short loops by itself
but never long ones. Owns the estimate from a kernel's body; no bit of a value depends on it.
"""

from __future__ import annotations

from lazyfuse.codegen.lowering.kernel import Kernel, value_dtypes
from lazyfuse.codegen.table import ops

# Additions' worth of work: LLVM handles shorter bodies itself, and they mostly wait for memory.
SHORTEST = 10.0
# Vectors kept in registers by a processor that has 32 (the device halves the count for others). A
# few more are allowed, since operands come from memory and not all are needed at once.
REGISTERS = 36
MOST = 4


def statement(kernel: Kernel) -> str:
    """The marker statement for the loop that computes a kernel's values."""
    count = interleaved(kernel)
    return "independent()" if count == 1 else f"independent_{count}()"


def interleaved(kernel: Kernel) -> int:
    """1, 2 or 4 iterations."""
    count = 1
    if sum(ops.TABLE[each.op].cost for each in kernel.body) >= SHORTEST:
        while count < MOST and 2 * count * live(kernel) <= REGISTERS:
            count *= 2
    return count


def live(kernel: Kernel) -> int:
    """The largest number of live values between two operations."""
    dtypes, inputs = value_dtypes(kernel), len(kernel.inputs)
    first = inputs + len(kernel.scalars)
    last: dict[int, int] = {}
    begin: dict[int, int] = {}
    for at, each in enumerate(kernel.body, first):
        begin[at] = at
        for value in each.args:
            begin.setdefault(value, at)
            last[value] = at
    results = [each.value for each in kernel.stores] + [each.value for each in kernel.reductions]
    last.update(dict.fromkeys(results, len(dtypes)))
    changes = [0] * (len(dtypes) + 1)
    for value, until in last.items():
        is_scalar = inputs <= value < first
        if dtypes[value] == "b1" or is_scalar:  # masks have registers of their own
            continue
        width = 2 if dtypes[value][0] == "c" else 1
        changes[begin.get(value, until)] += width
        changes[until] -= width
    most = now = 0
    for change in changes:
        now += change
        most = max(most, now)
    return most
