"""Every row of the op table against NumPy: as interpreted, and as compiled from its expression."""

from __future__ import annotations

import itertools
import math
import pickle
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from lazyfuse.codegen.graph.interpret import run_node
from lazyfuse.codegen.numba import helpers as numba_helpers
from lazyfuse.codegen.table import ops
from lazyfuse.codegen.table.ops import KERNEL_DTYPES, MULTIPLE, ROWS, TABLE, Op
from lazyfuse.codegen.table.promotion import Loop, cast_loop, intern_loop, resolve, spell
from tests.helpers import numba_runtime

Array = np.ndarray[Any, Any]
Case = tuple[Op, Loop]

MAPS = [row for row in ROWS if row.kind == "map"]
DIVISIONS = {"floor_divide", "remainder", "fmod"}
COMPARE_ONLY_VALUES = {"fmax", "fmin"}  # NumPy's own zeros differ between vector body and tail


def numeric_ufuncs() -> Iterator[np.ufunc]:
    for name in dir(np):
        value = getattr(np, name)
        if isinstance(value, np.ufunc) and name != "isnat":
            yield value


def loops_of(row: Op) -> list[Loop]:
    """The loops of a map row whose dtypes kernels can hold."""
    found = []
    if row.name == "cast":
        kinds = [np.dtype(each) for each in KERNEL_DTYPES]
        return [cast_loop(source, target) for source in kinds for target in kinds]
    if row.ufunc is not None:
        for text in row.ufunc.types:
            ins, outs = text.split("->")
            chars = [*ins, *outs]
            if all(char in "?bhilBHILqQfdFD" for char in chars):
                dtypes = [np.dtype(char) for char in chars]
                found.append(intern_loop(tuple(dtypes[:-1]), dtypes[-1]))
    else:
        for spelled in KERNEL_DTYPES:
            operands: tuple[Any, ...] = (np.dtype(spelled),) * row.nin
            operands = (np.dtype(bool), *operands[1:]) if row.name == "where" else operands
            try:
                loop = resolve(row, operands)
            except TypeError:
                continue
            special = ("where", "real", "imag", "copy", "clip", "clip_each")
            if row.name in special or loop.ins == operands:
                found.append(loop)
    return list(dict.fromkeys(found))


def edges(dtype: np.dtype[Any]) -> Array:
    """Values at which loops go wrong, and a few dull ones."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        numbers = [0, 1, 2, 3, 5, 7, 8, 10, 31, 32, 63, 64, 100, 127, info.max, info.max - 1]
        if dtype.kind == "i":
            numbers += [-1, -2, -3, -7, -8, -64, info.min, info.min + 1, info.min + 2]
        else:
            numbers += [info.max // 2, info.max // 2 + 1]
        return np.array([n for n in numbers if info.min <= n <= info.max], dtype)
    if dtype.kind == "f":
        real = np.finfo(dtype)
        floats = [0.0, 0.1, 0.5, 1.0, 1.5, 2.5, 3.0, 7.0, 1e6, float(real.max), float(real.tiny)]
        floats += [float(real.smallest_subnormal), 1.0 + float(real.eps), np.inf]
        return np.array([*floats, *[-number for number in floats], np.nan], dtype)
    parts = [0.0, -0.0, 1.0, -2.5, 1e30, np.inf, -np.inf, np.nan]
    return np.array([complex(a, b) for a, b in itertools.product(parts, parts)], dtype)


def arguments(row: Op, loop: Loop) -> list[Array]:
    """Every combination of edge values, then random values of the row's domain."""
    values = [edges(dtype) for dtype in loop.ins]
    if row.name == "cast" and loop.ins[0].kind in "fc" and loop.out.kind in "iu":
        values = [in_range(values[0], loop.out)]
    if row.name == "power_nonnegative":
        values[1] = values[1][~(values[1] < 0)] if loop.ins[1].kind == "i" else values[1]
    if row.nin == 3:
        values = [each[:24] for each in values]
    if row.nin == 2 and row.name == "ldexp":
        values[1] = np.append(values[1], np.arange(-1100, 1100, 13)).astype(loop.ins[1])
    grid = [each.ravel() for each in np.meshgrid(*values, indexing="ij")]
    random = np.random.default_rng(row.number)
    for index, dtype in enumerate(loop.ins):
        grid[index] = np.append(grid[index], sample(random, row, index, dtype))
    if row.name == "cast" and loop.ins[0].kind in "fc" and loop.out.kind in "iu":
        grid = [in_range(grid[0], loop.out)]
    if row.name == "power_nonnegative" and loop.ins[1].kind == "i":
        grid[1] = np.abs(grid[1] // 2)
    return grid


def in_range(values: Array, target: np.dtype[Any]) -> Array:
    """Those floats that `target` can hold once truncated; NumPy does not say what others become."""
    info = np.iinfo(target)
    real = np.trunc(values.real.astype(np.float64))
    return values[(real >= float(info.min)) & (real < float(info.max))]


def sample(random: Any, row: Op, index: int, dtype: np.dtype[Any], size: int = 200) -> Array:
    if dtype.kind == "b":
        return np.asarray(random.integers(0, 2, size) == 1)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return np.asarray(random.integers(info.min, info.max, size, dtype, endpoint=True))
    low, high = row.domain[index] if row.domain else (-1e3, 1e3)
    low, high = (max(low, -1e30), min(high, 1e30))
    if dtype.kind == "c":
        return np.asarray(random.uniform(-9, 9, size) + 1j * random.uniform(-9, 9, size), dtype)
    return np.asarray(random.uniform(low, high, size), dtype)


def expected(row: Op, loop: Loop, values: list[Array]) -> Array:
    with np.errstate(all="ignore"):
        return run_node(row, loop, values[0].shape, loop.out, None, values)


def assert_same_bits(got: Array, want: Array, note: str, zeros: bool = True) -> None:
    assert got.dtype == want.dtype, note
    if got.dtype.kind == "c":
        assert_same_bits(got.real, want.real, note)
        assert_same_bits(got.imag, want.imag, note)
        return
    same = got == want
    if got.dtype.kind == "f":
        same = (same & ((not zeros) | (np.signbit(got) == np.signbit(want)))) | (
            np.isnan(got) & np.isnan(want)
        )
    assert same.all(), (
        f"{note}: {got[~same][:5]} instead of {want[~same][:5]} at {np.nonzero(~same)[0][:5]}"
    )


def assert_close(row: Op, values: list[Array], got: Array, want: Array, note: str) -> None:
    eps = np.finfo(want.dtype).eps
    with np.errstate(all="ignore"):
        scale = np.abs(want).astype(np.float64)
        if want.dtype.kind == "c":  # each part within a few units of the size of the products
            scale = np.abs(values[0]).astype(np.float64)
            scale = scale * (np.abs(values[-1]) if row.name in ("multiply", "square") else 1.0)
            if row.name == "sign":
                scale = np.ones_like(scale)
        error = np.abs(got.astype(want.dtype) - want).astype(np.float64)
        limit = row.ulps * eps * scale + np.finfo(want.dtype).smallest_subnormal * 4
        fine = (error <= limit) | (got == want) | ~np.isfinite(want)
        fine &= np.isnan(got) == np.isnan(want) if want.dtype.kind == "f" else True
    assert fine.all(), f"{note}: {got[~fine][:5]} instead of {want[~fine][:5]}"


# ---- the table itself


def test_every_numeric_ufunc_of_numpy_has_a_row() -> None:
    missing = [
        ufunc.__name__
        for ufunc in numeric_ufuncs()
        if ufunc not in ops.BY_UFUNC and ufunc.__name__ not in MULTIPLE
    ]
    assert missing == []
    for names in MULTIPLE.values():
        assert all(TABLE[name].kind == "map" for name in names)


def test_names_in_numpy_find_the_row_of_their_ufunc() -> None:
    for name in np.__all__:  # numexpr adds a name of its own to the module
        value = getattr(np, name)
        if isinstance(value, np.ufunc) and value in ops.BY_UFUNC:
            assert TABLE[name] is ops.BY_UFUNC[value]


def test_rows_are_numbered_by_position_and_pickle_by_identity() -> None:
    for number, row in enumerate(ROWS):
        assert row.number == number
        assert TABLE[row.key] is row
        assert pickle.loads(pickle.dumps(row)) is row


def test_kinds_are_of_the_closed_set() -> None:
    assert {row.kind for row in ROWS} <= set(ops.KINDS)


def test_no_two_rows_claim_the_same_dunder() -> None:
    names = [name for row in ROWS for name in row.dunders]
    assert len(names) == len(set(names))
    assert {"__add__", "__rpow__", "__imatmul__", "__lt__", "__invert__"} <= set(names)


def test_kernel_reductions_are_rows_with_a_map_to_combine_with() -> None:
    for name in [row.key.removeprefix("reduce:") for row in ROWS if row.start]:
        row = TABLE[f"reduce:{name}"]
        assert row.name == f"{name}.reduce"
        assert TABLE[row.combine].kind == "map"
        assert ops.supports_reduce(row, np.dtype("i4"), np.dtype("i8")).ok
        assert not ops.supports_reduce(row, np.dtype("f2"), np.dtype("f2"))


@pytest.mark.parametrize("dtype", ["b1", "i4", "f8"])
def test_rows_know_which_reductions_take_several_axes(dtype: str) -> None:
    for row in ROWS:
        if row.kind != "reduce" or row.ufunc is None:
            continue
        try:
            row.ufunc.reduce(np.ones((2, 2), dtype), axis=(0, 1))
            several = True
        except ValueError:  # "reduction operation '...' is not reorderable"
            several = False
        except TypeError:
            continue  # no reduction of this dtype at all
        assert row.reorderable == several, row.name


def test_supports_says_why_not() -> None:
    half = resolve(TABLE["add"], (np.dtype("f2"), np.dtype("f2")))
    verdict = ops.supports(TABLE["add"], half)
    assert not verdict.ok
    assert "f2" in verdict.why
    complex_sine = resolve(TABLE["sin"], (np.dtype("c16"),))
    assert "numba expression" in ops.supports(TABLE["sin"], complex_sine).why
    assert ops.supports(TABLE["sin"], resolve(TABLE["sin"], (np.dtype("i4"),))).ok


def test_a_foreign_byte_order_is_no_kernel_dtype() -> None:
    assert not ops.kernel_dtype(np.dtype("f8").newbyteorder())
    assert ops.kernel_dtype(np.dtype("f8"))


def test_helpers_come_after_those_they_call() -> None:
    text = numba_helpers.source(["lcm_signed", "lcm_unsigned"])
    order = re.findall(r"def (\w+)\(", text)
    assert order == ["gcd_unsigned", "lcm_unsigned", "magnitude", "lcm_signed"] or (
        order.index("gcd_unsigned") < order.index("lcm_unsigned") < order.index("lcm_signed")
    )
    assert len(order) == len(set(order))


# ---- interpreted


@pytest.mark.parametrize("row", MAPS, ids=lambda row: row.name)
def test_interpreted_row_equals_numpy(row: Op) -> None:
    for loop in loops_of(row):
        values = arguments(row, loop)
        if row.name == "power" and loop.ins[1].kind == "i":
            values[1] = np.abs(values[1] // 2)
        got = expected(row, loop, values)
        with np.errstate(all="ignore"):
            if row.name == "cast":
                parts = values[0].real if loop.out.kind in "iuf" else values[0]
                want = parts.astype(loop.out)
            else:
                assert row.reference is not None
                want = row.reference(*values)
        assert_same_bits(got, want, f"{row.name} {loop}")


# ---- compiled

NUMBA_NAMES = {
    "b1": "boolean",
    "i1": "int8",
    "i2": "int16",
    "i4": "int32",
    "i8": "int64",
    "u1": "uint8",
    "u2": "uint16",
    "u4": "uint32",
    "u8": "uint64",
    "f4": "float32",
    "f8": "float64",
    "c8": "complex64",
    "c16": "complex128",
}
C_FUNCTIONS = """
acos acosh asin asinh atan atanh cos cosh exp expm1 log log10 log1p log2 sin sinh tan tanh
"""


def groups() -> dict[tuple[str, ...], list[Case]]:
    """The cases to compile: one compiled function per combination of input dtypes."""
    found: dict[tuple[str, ...], list[Case]] = defaultdict(list)
    for row in MAPS:
        for loop in loops_of(row):
            if ops.supports(row, loop).ok:
                found[tuple(spell(dtype) for dtype in loop.ins)].append((row, loop))
    return dict(found)


GROUPS = groups()


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """What a device gives to generated text, with the C library's functions for its vector math."""
    numba = pytest.importorskip("numba")
    space: dict[str, Any] = {"np": np, "math": math, "numba": numba}
    space |= {name: getattr(numba.types, name) for name in NUMBA_NAMES.values()}
    space["entry"] = numba.njit(error_model="numpy")
    space["njit"] = numba_runtime.helpers()
    space["CONVERTS_WIDE"] = True
    lines = [f"def vm_{name}(x): return math.{name}(x)" for name in C_FUNCTIONS.split()]
    lines += ["def vm_exp2(x): return np.exp2(x)", "def vm_cbrt(x): return np.cbrt(x)"]
    lines += ["def vm_pow(x, y): return x**y", "def vm_atan2(x, y): return math.atan2(x, y)"]
    lines += ["def vm_hypot(x, y): return math.hypot(x, y)"]
    for line in lines:
        exec(f"@njit\n{line}\n@njit\n{line.replace('vm_', 'vmf_')}", space)
    return space


def compile_group(cases: list[Case], space: dict[str, Any]) -> Callable[..., None]:
    """One function that computes every case: f(inputs..., outputs by dtype..., size)."""
    first = cases[0][1]
    outs = sorted({spell(loop.out) for _, loop in cases})
    inputs = [f"in{index}" for index in range(len(first.ins))]
    body = [f"        x{index} = {name}[i]" for index, name in enumerate(inputs)]
    helpers: dict[str, None] = {}
    for number, (row, loop) in enumerate(cases):
        text = row.expression("numba", tuple(spell(each) for each in loop.ins), spell(loop.out))
        assert text is not None
        helpers |= dict.fromkeys(numba_helpers.names_in(text))
        text = text.format(*[f"x{index}" for index in range(len(inputs))])
        cast = "" if loop.out.kind == "b" else NUMBA_NAMES[spell(loop.out)]
        body.append(f"        out_{spell(loop.out)}[{number}, i] = {cast}({text})")
    head = f"def compiled({', '.join(inputs)}, {', '.join('out_' + each for each in outs)}, size):"
    lines = [numba_helpers.source(helpers), "@entry", head, "    for i in range(size):", *body]
    exec("\n".join(lines), space)
    compiled = space["compiled"]
    assert callable(compiled)
    return compiled  # type: ignore[no-any-return]


def run_group(
    cases: list[Case], space: dict[str, Any]
) -> Iterator[tuple[Case, list[Array], Array]]:
    compiled = compile_group(cases, space)
    outs = sorted({spell(loop.out) for _, loop in cases})
    for number, (row, loop) in enumerate(cases):
        values = arguments(row, loop)
        size = values[0].size
        results = {each: np.zeros((len(cases), size), each) for each in outs}
        compiled(*values, *results.values(), size)
        yield (row, loop), values, results[spell(loop.out)][number]


# Integers of one, two and four bytes: their texts differ in the names of types and in the numbers
# that hold their width, so one or two of these dtypes stand for all in groups of each length (and
# three operands are but chosen from, which is the same for eight bytes).
ALIKE = {
    1: {"i1", "i2", "u1", "u2"},
    2: {"i2", "i4", "u1", "u4"},
    3: {"i1", "i4", "i8", "u2", "u4"},
}

# Beyond these: numbers of both sizes share the texts of complex numbers, of `ldexp`, and of what is
# but chosen from, so each is met at one of them (c16 alone, c8 in pairs); operations on one integer
# are met in i4 and u8, which stand for u4 and i8 (pairs of integers have all four kinds).
OTHERS = {"u4", "i8", "c8", "c16,c16", "f4,i8", "f8,i4", "b1,u1,u1", "b1,f8,f8"}
OTHERS |= {"b1,c8,c8", "u1,u1,u1", "f4,f4,f4"}


def left_out(ins: tuple[str, ...]) -> bool:
    """Whether other groups show the same."""
    return ",".join(ins) in OTHERS or (ins[-1] in ALIKE[len(ins)] and ins[0][0] in "biu")


@pytest.mark.parametrize(
    "ins",
    [pytest.param(x, marks=pytest.mark.long) if left_out(x) else x for x in GROUPS],
    ids=",".join,
)
def test_compiled_expression_equals_numpy(ins: tuple[str, ...], names: dict[str, Any]) -> None:
    for (row, loop), values, got in run_group(GROUPS[ins], names):
        note = f"{row.name} {loop}"
        want = expected(row, loop, values)
        if row.is_exact(loop.ins[0]):
            assert_same_bits(got, want, note, zeros=row.name not in COMPARE_ONLY_VALUES)
        else:
            assert row.ulps > 0, f"{note} is not exact and states no tolerance"
            assert_close(row, values, got, want, note)


@pytest.mark.parametrize("ins", [("i8", "i8"), ("u8", "u8")], ids=",".join)
def test_division_without_vectors_of_wide_integers(
    ins: tuple[str, ...], names: dict[str, Any]
) -> None:
    cases = [case for case in GROUPS[ins] if case[0].name in DIVISIONS]
    assert len(cases) >= 3
    for (row, loop), values, got in run_group(cases, names | {"CONVERTS_WIDE": False}):
        want = expected(row, loop, values)
        assert_same_bits(got, want, f"{row.name} {loop}", zeros=True)
