"""One step of an ordered reduction, in OpenCL C, with the floating-point exceptions of that step.

Owns `joined`, the text of the step, and the functions that it calls. For a sum or product NumPy
reports what its single additions or multiplications raise: an infinity among the elements
raises nothing, but two infinities of different signs do.
"""

from __future__ import annotations

import re

from lazyfuse.codegen.lowering.kernel import Reduce, is_ordered
from lazyfuse.codegen.opencl.expressions import c_type, combined, expression
from lazyfuse.codegen.opencl.fp_flags import Operation, flag_statements
from lazyfuse.codegen.table import ops

_JOINED = """
static inline {kind} joined_{op}_{dtype}(const {kind} first, const {kind} second, int *raised)
{{
    const {kind} found = {found};
    int raised_here[1] = {{0}};
    {statements}
    *raised |= raised_here[0];
    return found;
}}
"""


def joined(reduction: Reduce, first: str, second: str, raised: str) -> str:
    """Two partial results joined; `raised` points to the flags."""
    if not is_ordered(reduction):
        return combined(reduction, first, second)
    return f"joined_{reduction.op}_{reduction.accumulator}({first}, {second}, {raised})"


def step(reduction: Reduce, first: str, second: str, found: str, slot: int) -> Operation:
    """A step whose result is `found`, to find its exceptions."""
    dtype = reduction.accumulator
    row = ops.TABLE[f"reduce:{reduction.op}"]
    return Operation(row.combine, found, dtype, (first, second), (dtype, dtype), slot)


def not_finite(value: str, dtype: str) -> str:
    """Whether a partial result is infinite or NaN; it then stays so after further steps."""
    parts = (f"{value}.x", f"{value}.y") if dtype[0] == "c" else (value,)
    return " || ".join(f"!isfinite({part})" for part in parts)


def helpers(text: str) -> str:
    """The functions that a text calls."""
    names = sorted(set(re.findall(r"\bjoined_(add|multiply)_([fc]\d+)\(", text)))
    return "".join(_function(op, dtype) for op, dtype in names)


def _function(op: str, dtype: str) -> str:
    operation = Operation(op, "found", dtype, ("first", "second"), (dtype, dtype))
    return _JOINED.format(
        kind=c_type(dtype),
        op=op,
        dtype=dtype,
        found=expression(op, (dtype, dtype), dtype, ("first", "second"), False),
        statements="\n    ".join(flag_statements([operation], vector=False)),
    )
