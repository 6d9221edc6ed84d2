"""The op table: one row per op, the only description of that op.

Owns TABLE, how rows get into it, and the lookups. The `rows_*` modules hold the rows, one module
per family. Must not import the graph. Operators, ufunc objects, docstrings, eager paths in Python
and C, warnings and parity tests derive from the rows.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyfuse.codegen.table import rows_arithmetic, rows_math, rows_structure
from lazyfuse.codegen.table.op import KERNEL_DTYPES, KINDS, Op, Verdict, loops_of
from lazyfuse.devices.caches import cached
from lazyfuse.devices.dataclass import replace

if TYPE_CHECKING:
    from lazyfuse.codegen.table.promotion import Loop

__all__ = [
    "BY_UFUNC",
    "CAST",
    "COPY",
    "EMPTY",
    "FULL",
    "HOST",
    "INDEX",
    "KERNEL_DTYPES",
    "KINDS",
    "LEAF",
    "MULTIPLE",
    "PLACES",
    "ROWS",
    "SCALAR",
    "TABLE",
    "UPDATE",
    "VIEW",
    "Op",
    "Verdict",
    "add",
    "as_fusion_barrier",
    "define",
    "kernel_dtype",
    "lookup",
    "supports",
    "supports_reduce",
]

# Ufuncs with two results are recorded as two nodes.
MULTIPLE = {
    "divmod": ("floor_divide", "remainder"),
    "modf": ("modf_fraction", "modf_integer"),
    "frexp": ("frexp_mantissa", "frexp_exponent"),
}


def _reduce_row(row: Op) -> Op:
    ufunc = row.ufunc
    # A sum of floats is pairwise in NumPy, and kernels repeat it; they cut a product into chunks.
    inexact = row.name == "multiply"
    return Op(
        f"{row.name}.reduce",
        "reduce",
        ufunc=ufunc,
        reference=ufunc.reduce,
        exact=row.exact.replace("f", "").replace("c", "") if inexact else row.exact,
        cost=row.cost,
        flags=row.flags,
        combine=row.name,
        identity=ufunc.identity,
        reorderable=bool(row.start) or row.reorderable,
        ulps=64 if inexact else row.ulps,
        # vectors of accumulators add up unused lanes, too
        misreported=row.misreported + ("fc" if row.ordered else ""),
        drops_nan=row.drops_nan,
        start=row.start,
        ordered=row.ordered,
        skips_nan=row.skips_nan,
        doc=f"Reduces an array by applying {row.name} along axes.",
    )


def _arg_row(name: str, function: Callable[..., Any], combine: str) -> Op:
    return Op(
        f"{name}.reduce",
        "reduce",
        reference=function,
        exact="biufc",
        cost=2.0,
        combine=combine,
        drops_nan=True,
        reorderable=True,
        start=TABLE[combine].start,
    )


ROWS: list[Op] = []
TABLE: dict[str, Op] = {}
BY_UFUNC: dict[Any, Op] = {}


def add(row: Op) -> Op:
    """Add a row to the table, under its names and its ufunc; returns it."""
    ROWS.append(row)
    TABLE.update(dict.fromkeys((row.key, *row.aliases), row))
    if row.ufunc is not None and row.kind != "reduce":
        BY_UFUNC[row.ufunc] = row
    return row


def define(*rows: Op) -> None:
    """Add ops to the table, and the reductions of those that NumPy can reduce by.

    The row holds all that lazyfuse knows of an op: how it is recorded, printed in each language,
    run on small arrays, reported. Objects made from its ufunc before do not use the new row.
    """
    added = [add(row) for row in rows]
    for row in added:
        if row.ufunc is not None:
            loops_of(row.ufunc)  # later NumPy may have no memory for it, and crashes then
        if row.kind == "map" and row.nin == 2 and row.ufunc is not None:
            add(_reduce_row(row))


define(*rows_arithmetic.ROWS, *rows_math.ROWS, *rows_structure.ROWS)
add(_arg_row("argmin", np.argmin, "minimum"))
add(_arg_row("argmax", np.argmax, "maximum"))

LEAF = TABLE["leaf"]
SCALAR = TABLE["scalar"]
COPY = TABLE["copy"]
CAST = TABLE["cast"]
FULL = TABLE["full"]
EMPTY = TABLE["empty"]
VIEW = TABLE["view"]
INDEX = TABLE["index"]
UPDATE = TABLE["update"]
HOST = TABLE["host"]
PIECES = ("real", "imag")
"""Names of operations whose results lie in the memory of complex numbers in NumPy."""
PLACES = (VIEW, INDEX)
"""Operations without memory of their own: kernels read their sources."""


def is_view(op: Op) -> bool:
    """Whether a result lies in the memory of the operand in NumPy: sums follow how that lies."""
    return op is VIEW or op.name in PIECES


def lookup(name: str) -> Op:
    """The row of that name."""
    return TABLE[name]


@cached(why="one for each row of the op table, compared by identity", clears=False)
def as_fusion_barrier(op: Op) -> Op:
    """The copy of a row that shares no kernel and is not simplified; otherwise the same."""
    return op if op.fusion_barrier else replace(op, number=-2 - op.number, fusion_barrier=True)


def _pickled(op: Op) -> tuple[Any, ...]:
    return (lookup, (op.key,))


copyreg.pickle(Op, _pickled)  # rows are compared by identity: pickle them by name


_KERNEL = frozenset(KERNEL_DTYPES)


def supports(op: Op, loop: Loop, language: str = "numba") -> Verdict:
    """Whether a map row can run inside a kernel with this loop."""
    if op.kind != "map":
        return Verdict(False, f"{op.name} is not elementwise")
    ins = tuple(_short(dtype) for dtype in loop.ins)
    out = _short(loop.out)
    strange = [dtype for dtype in (*ins, out) if dtype not in _KERNEL]
    if strange:
        return Verdict(False, f"{op.name}: kernels do not hold dtype {strange[0]}")
    if op.expression(language, ins, out) is None:
        return Verdict(False, f"{op.name} has no {language} expression for {','.join(ins)}")
    return Verdict(True)


def supports_reduce(op: Op, dtype: np.dtype[Any], accumulator: np.dtype[Any]) -> Verdict:
    """Whether a reduce row can run inside a kernel for this source dtype and accumulator."""
    if op.kind != "reduce" or not op.start:
        return Verdict(False, f"{op.name} is not a kernel reduction")
    for each in (dtype, accumulator):
        if not kernel_dtype(each):
            return Verdict(False, f"{op.name}: kernels do not hold dtype {each}")
    return Verdict(True)


def kernel_dtype(dtype: np.dtype[Any]) -> bool:
    """Whether kernels can hold values of this dtype."""
    return _short(dtype) in _KERNEL


def _short(dtype: np.dtype[Any]) -> str:
    # foreign byte order must not count as native
    return str(dtype.str[1:]) if dtype.isnative else str(dtype.str)
