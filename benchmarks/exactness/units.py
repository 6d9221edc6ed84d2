"""The accuracy of the op table's functions: what a bound in units means.

Owns the classes of loops (exact, inexact, NumPy's own) and the size whose last place is the unit.
The rows hold the bounds themselves. Must not import the graph.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lazyfuse.codegen.table.op import Op

Array = np.ndarray[Any, np.dtype[Any]]

EXACT, INEXACT, NUMPY = "exact", "inexact", "numpy"
# Sines nearer to zero than this come from huge arguments. The error of libmvec's reduction, which
# NumPy's sine has too, is then below a unit of this number, not of the result.
SMALLEST_SINE = 2.0**-42


def class_of(op: Op, ins: tuple[str, ...], out: str) -> str:
    """EXACT: NumPy's bits everywhere. INEXACT: within `op.ulps`. NUMPY: no kernel has the loop."""
    if op.expression("numba", ins, out) is None:
        return NUMPY
    return EXACT if ins[0][0] in op.exact else INEXACT


def size_of_unit(op: Op, operands: list[Array], result: Array) -> Array:
    """The sizes whose last place is the unit of the errors of results.

    For both parts of complex results it is the larger part; `op.unit` names other rules.
    """
    with np.errstate(all="ignore"):
        if result.dtype.kind == "c":
            return np.asarray(np.maximum(np.abs(result.real), np.abs(result.imag)))
        sizes = np.abs(result)
        if op.unit == "operand":
            larger = np.maximum.reduce([np.abs(each) for each in operands]).astype(sizes.dtype)
            larger = np.where(np.isfinite(larger), larger, larger.dtype.type(0))
            return np.asarray(np.maximum(sizes, larger))
        if op.unit == "sine" and operands[0].dtype == np.float64:
            return np.maximum(sizes, SMALLEST_SINE)
        return sizes


def units(values: Array, sizes: Array) -> Array:
    """A unit in the last place of numbers of these sizes, for the dtype of `values`."""
    real = np.finfo(values.dtype)
    least, most = np.float64(real.smallest_normal), np.float64(real.max)
    with np.errstate(all="ignore"):
        bounded = np.clip(np.nan_to_num(sizes.astype(np.float64)), least, most)
        return np.asarray(np.ldexp(1.0, np.frexp(bounded)[1] - 1 - real.nmant))
