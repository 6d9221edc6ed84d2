"""Rows of the op table that are not ufuncs: casts, selections, parts of numbers, structure.

Owns the dtype rules of those rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from lazyfuse.codegen.table.op import ANY, KERNEL_DTYPES, Op, special

Array = np.ndarray[Any, np.dtype[Any]]
DTypes = tuple[np.dtype[Any], ...]
Resolved = tuple[DTypes, np.dtype[Any]]


def _common(dtypes: tuple[Any, ...]) -> np.dtype[Any]:
    """Promotion of dtypes and weak Python scalar types."""
    return np.result_type(*[each(0) if isinstance(each, type) else each for each in dtypes])


def _same(dtypes: tuple[Any, ...]) -> Resolved:
    common = _common(dtypes)
    return ((common,) * len(dtypes), common)


# NumPy has two loops for clip, which differ in the sign of a zero at a bound of zero.


def _clipped(x: Array, low: Array, high: Array) -> Array:
    """The clip loop for bounds that are the same everywhere."""
    if np.size(low) == 1 == np.size(high):  # as numbers: NumPy steps along arrays of one element
        return np.asarray(np.clip(x, np.reshape(low, ()), np.reshape(high, ())))
    if x.dtype == np.float16:  # float16 has its own loop
        return np.asarray(np.clip(x, low, high))
    raised = np.where((x < low) | (low != low), low, x)
    return np.where((raised > high) | (high != high), high, raised)


def _clipped_each(x: Array, low: Array, high: Array) -> Array:
    """The clip loop for bounds that differ between elements."""
    if x.dtype == np.float16:
        return np.asarray(np.clip(x, low, high))
    raised = np.where((x != x) | (x > low), x, low)
    return np.where((raised != raised) | (raised < high), raised, high)


def _selected(dtypes: tuple[Any, ...]) -> Resolved:
    common = _common(dtypes[1:])
    return ((np.dtype(bool), common, common), common)


def _part(dtypes: tuple[Any, ...]) -> Resolved:
    common = _common(dtypes)
    return ((common,), common.type(0).real.dtype if common.kind == "c" else common)


def _power(dtypes: tuple[Any, ...]) -> Resolved:
    first, second, out = np.power.resolve_dtypes((*dtypes, None))
    return ((first, second), out)


def _first_of_two(ufunc: np.ufunc, which: int) -> Any:
    def rule(dtypes: tuple[Any, ...]) -> Resolved:
        chosen = ufunc.resolve_dtypes((dtypes[0], None, None))
        return ((chosen[0],), chosen[1 + which])

    return rule


# Floats to integers. LLVM leaves conversions out of range undefined; these helpers do not.
_TRUNCATE = {"i8": "truncate_i8", "u4": "truncate_i8", "u8": "truncate_u8"}
_NUMBA_NAMES = {"i": "int", "u": "uint", "f": "float"}


def _cast(source: str, target: str) -> str:
    """The expression that casts one dtype to another, as `astype` does."""
    if target == "b1":
        complex_text = "(({0}.real != 0) | ({0}.imag != 0))"
        return "{0}" if source == "b1" else complex_text if source[0] == "c" else "({0} != 0)"
    if target[0] == "c":
        part = "float32" if target == "c8" else "float64"
        if source[0] == "c":
            return f"complex({part}({{0}}.real), {part}({{0}}.imag))"
        return f"complex({part}({{0}}), {part}(0.0))"
    value = "{0}.real" if source[0] == "c" else "{0}"
    if source == "b1" and target[0] == "f":
        return "(1.0 if {0} else 0.0)"  # through an integer it takes three instructions more
    if source[0] in "fc" and target[0] in "iu":
        value = f"{_TRUNCATE.get(target, 'truncate_i4')}({value})"
    return f"{_NUMBA_NAMES[target[0]]}{8 * int(target[1:])}({value})"


def _cast_c(source: str, target: str) -> str:
    """The same in C, which always converts the value of a text to its dtype."""
    if target == "b1":
        complex_text = "(({0}.x != 0) | ({0}.y != 0))"
        other = complex_text if source[0] == "c" else "({0} != (T)(0))"
        return "{0}" if source == "b1" else other
    value = "({0} & (T)(1))" if source == "b1" else "{0}.x" if source[0] == "c" else "{0}"
    if target[0] == "c":
        part = "to_F4" if target == "c8" else "to_F8"
        return f"(R)({part}({value}), {part}({'{0}.y' if source[0] == 'c' else '(0)'}))"
    if source[0] in "fc" and target[0] in "iu":
        part = "P" if source[0] == "c" else "T"
        return f"{_TRUNCATE.get(target, 'truncate_i4')}_{part}({value})"
    return value


def _casts(cast: Callable[[str, str], str]) -> dict[str, str]:
    pairs = itertools.product(KERNEL_DTYPES, repeat=2)
    return {f"{source}>{target}": cast(source, target) for source, target in pairs}


def _imag(value: Any) -> Any:
    return value.imag if value.dtype.kind == "c" else np.zeros_like(value)


def _clip(name: str, reference: Any, of_floats: str) -> Op:
    """One of the loops for clip; `of_floats`: the helper that clips a float."""
    given = "({0}, {1}, {2})"
    texts = {
        "b": "(({0} | {1}) & {2})",
        "iu": f"clip_integer{given}",
        "f": f"{of_floats}{given}",
    }
    in_c = {"iu": f"clip_integer_T{given}", "f": f"{of_floats}_T{given}"}
    return special(
        name, reference, _same, nin=3, numba=texts, opencl=in_c, exact="biuf", cost=2.0,
        drops_nan=True,
    )  # fmt: skip


SELECTION: tuple[Op, ...] = (
    special(
        "cast",
        lambda value: value,
        None,
        numba=_casts(_cast),
        opencl=_casts(_cast_c),
        exact="biufc",
        cost=0.5,
        flags=("over", "under", "invalid"),
        algebra="identity",  # to the same dtype
        doc="Converts elements to another dtype, as astype does.",
        misreported=ANY,
    ),
    special(
        "copy",
        lambda value: value,
        _same,
        numba="{0}",
        exact="biufc",
        cost=0.2,
        doc="The same elements in new memory.",
        passes_nonfinite=True,
        algebra="identity",
    ),
    special(
        "where",
        np.where,
        _selected,
        nin=3,
        numba="({1} if {0} else {2})",
        opencl="(to_M({0}) ? {1} : {2})",
        kinds="b",
        exact="b",
        drops_nan=True,
        eager_weight=8,
    ),
    _clip("clip", _clipped, "clip_float"),
    _clip("clip_each", _clipped_each, "clip_float_each"),
)

PARTS: tuple[Op, ...] = (
    special(
        "real",
        np.real,
        _part,
        numba={"biuf": "{0}", "c": "{0}.real"},
        exact="biufc",
        doc="The real part.",
    ),
    special(
        "imag",
        _imag,
        _part,
        numba={"b": "False", "iu": "0", "f": "0.0", "c": "{0}.imag"},
        opencl={"biuf": "(T)(0)"},
        doc="The imaginary part.",
        exact="biufc",
    ),
    special(
        "modf_fraction",
        lambda value: np.modf(value)[0],
        _first_of_two(np.modf, 0),
        numba={"f8": "modf_fraction_f8({0})", "f4": "modf_fraction_f4({0})"},
        opencl={"f": "modf_fraction_T({0})"},
        doc="The fractional part, with the sign of the number.",
        exact="f",
        cost=3.0,
    ),
    special(
        "modf_integer",
        lambda value: np.modf(value)[1],
        _first_of_two(np.modf, 1),
        numba="np.trunc({0})",
        opencl="trunc({0})",
        kinds="f",
        doc="The integral part.",
        exact="f",
    ),
    special(
        "frexp_mantissa",
        lambda value: np.frexp(value)[0],
        _first_of_two(np.frexp, 0),
        numba={
            "f8": "frexp_mantissa_f8({0})",
            "f4": "float32(frexp_mantissa_f8(float64({0})))",
        },
        opencl={"f": "frexp_mantissa_f8(to_F8({0}))"},
        single={"f4": "frexp_mantissa_single_T({0})"},
        doc="The mantissa of frexp.",
        exact="f",
        cost=6.0,
    ),
    special(
        "frexp_exponent",
        lambda value: np.frexp(value)[1],
        _first_of_two(np.frexp, 1),
        numba="frexp_exponent_f8(float64({0}))",
        opencl="frexp_exponent_f8(to_F8({0}))",
        single={"f4": "frexp_exponent_single_T({0})"},
        kinds="f",
        doc="The exponent of frexp.",
        exact="f",
        cost=6.0,
    ),
    special(
        # no kernel can raise the error for a negative exponent of a signed integer: power has no
        # expression for signed integers, and this row is recorded if the exponents are known
        "power_nonnegative",
        np.power,
        _power,
        nin=2,
        numba={
            "i": "power_signed(int64({0}), int64({1}))",
            "u": "power_unsigned(uint64({0}), uint64({1}))",
        },
        opencl={"iu": "power_integer_T({0}, {1})"},
        doc="As power, for integer exponents known not to be negative.",
        exact="iu",
        cost=30.0,
        scalar_overflow=True,
    ),
)

CONTRACTIONS: tuple[Op, ...] = tuple(
    Op(
        name,
        "contract",
        nin=2,
        ufunc=getattr(np, name),
        reference=getattr(np, name),
        cost=100.0,
        flags=("over", "under", "invalid"),
        dunders=("__matmul__", "__rmatmul__", "__imatmul__") if name == "matmul" else (),
    )
    for name in ("matmul", "vecdot", "matvec", "vecmat")
)

LEAF = Op("leaf", "source", nin=0, doc="Real memory.")
SCALAR = Op("scalar", "source", nin=0, doc="A 0-d value, passed to kernels as an argument.")
FULL = Op("full", "source", nin=1, doc="One scalar everywhere.")
VIEW = Op("view", "view", nin=1, doc="An affine window of the flat memory of the source.")
EMPTY = Op("empty", "source", nin=0, doc="Memory that updates fill.")
INDEX = Op("index", "index", nin=-1, doc="Elements of the sources, by a map of indices.")
UPDATE = Op("update", "update", nin=2, doc="The source's memory with a window overwritten.")
HOST = Op("host", "host", nin=-1, doc="A function of evaluated arrays.")
STRUCTURE: tuple[Op, ...] = (LEAF, SCALAR, FULL, VIEW, EMPTY, INDEX, UPDATE, HOST)

ROWS: tuple[Op, ...] = SELECTION + PARTS + CONTRACTIONS + STRUCTURE
