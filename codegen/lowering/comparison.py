"""What reductions start from, and which of two values argmin and argmax prefer.

The latter as text that is valid in both Python and C.
"""

from __future__ import annotations

import math

from lazyfuse.codegen.lowering.kernel import Reduce
from lazyfuse.codegen.table import ops


def better(
    reduction: Reduce, value: str, best_value: str, parts: tuple[str, str]
) -> tuple[str, str]:
    """Whether a value beats the best so far if neither is NaN, and the kind of both.

    `parts`: the names of the real and the imaginary part of a complex number.
    """
    sign = "<" if reduction.op == "argmin" else ">"
    kind = reduction.accumulator[0]
    if kind != "c":
        return f"({value} {sign} {best_value})", kind
    x, y = parts
    real = f"({value}.{x} {sign} {best_value}.{x})"
    imag = f"({value}.{y} {sign} {best_value}.{y})"
    return f"({real} | (({value}.{x} == {best_value}.{x}) & {imag}))", kind


def start(op: str, dtype: str) -> float:
    """The number from which accumulators of a dtype start; both parts of a complex NaN or infinity.

    Integers are exact. -0.0 + 0 is 0.0, in NumPy too.
    """
    row, kind, bits = ops.TABLE[f"reduce:{op}"], dtype[0], 8 * int(dtype[1:])
    if row.skips_nan and kind in "fc":  # NaN gives way to any other value
        return math.nan
    if row.start in ("zero", "one"):
        return int(row.start == "one")
    greatest: float = {"b": 1, "i": 2 ** (bits - 1) - 1, "u": 2**bits - 1}.get(kind, math.inf)
    if row.start == "bits":
        return -1 if kind == "i" else greatest
    if row.start == "greatest":
        return greatest
    least: float = {"b": 0, "u": 0, "i": -(2 ** (bits - 1))}.get(kind, -math.inf)
    return least
