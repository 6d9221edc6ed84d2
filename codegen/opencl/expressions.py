"""One element's (or one vector's) arithmetic in text of language "opencl".

Owns the spelling of values, loads, casts and the op table's expressions in OpenCL C; knows no
loops. Values are named h (inputs), x (scalar arguments) and v (instructions).

In scalar text a value has its C type; truth values are `uchar` 0 or 1, complex numbers `double2`
and `float2`. In vector text it has `W` lanes of the type `VF8`, `VF4`, `VI1` ... `VU8` (macros of
the preamble, the C types themselves where `W` is 1). Truth values are masks, `VI1` of 0 and -1, as
comparisons give them: LLVM sees through their changes of width. Where `W` is 1 masks are 0 and 1,
so text reads only whether a mask is zero, or its last bit. Complex numbers have no vector version.
Scalar arguments stay scalar variables and are spread at each use.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from lazyfuse.codegen.lowering import comparison, flag_slots
from lazyfuse.codegen.lowering.kernel import Kernel, KernelError, Reduce, value_dtypes
from lazyfuse.codegen.lowering.printing import Values
from lazyfuse.codegen.opencl import fp_flags
from lazyfuse.codegen.opencl import helpers as opencl_helpers
from lazyfuse.codegen.opencl.fp_flags import Operation
from lazyfuse.codegen.opencl.helpers import C_TYPES, resolve
from lazyfuse.codegen.table import ops

LANGUAGE = "opencl"
SINGLE = "opencl-single"  # the op table's language for devices without doubles
# Bytes. On wider vectors PoCL 3.0's fmod does not return, and its pow is wrong at poles.
WIDEST_VECTOR = 32
_PARTS = ("x", "y")  # of complex numbers
_LAST_POSITION = "9223372036854775807L"

_WIDTHS = """
#ifndef LF_BYTES
#define LF_BYTES 16
#endif
"""
_GENERAL = """
#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
#if W == 1
#define LANES(t) t
#define CONVERT(t, v, x) ((t)(x))
#define VLOAD(p) (*(p))
#define VSTORE(v, p) (*(p) = (v))
#define ANY(m) ((m) != 0)
#define ONE(x) (x)
#else
#define LANES(t) CAT(t, W)
#ifdef __has_builtin
#if __has_builtin(__builtin_convertvector)
#define CONVERT(t, v, x) __builtin_convertvector(x, v)
#endif
#endif
#ifndef CONVERT
#define CONVERT(t, v, x) CAT(CAT(convert_, t), W)(x)
#endif
#define VLOAD(p) CAT(vload, W)(0, p)
#define VSTORE(v, p) CAT(vstore, W)(v, 0, p)
#define ANY(m) any(m)
#define ONE(x) (x).s0
#endif
"""


def c_type(dtype: str, vector: bool = False) -> str:
    """The type of a variable; in scalar text also that of an element in memory."""
    if vector:
        return "VI1" if dtype == "b1" else f"V{dtype.upper()}"
    return C_TYPES[dtype]


def typed(text: str, dtype: str, vector: bool = False) -> str:
    """An expression whose value has exactly this dtype; C itself widens small integers."""
    return f"TO_{c_type(dtype, True)}({text})" if vector else f"({C_TYPES[dtype]})({text})"


def spread(text: str, dtype: str) -> str:
    """A scalar value in every lane of a vector."""
    if dtype == "b1":
        return f"TO_VI1((VI1)({text}) != (VI1)(0))"
    return f"(({c_type(dtype, True)})({text}))"


def load(pointer: str, place: str, dtype: str) -> str:
    """One element; truth values lie in memory as bytes."""
    text = f"{pointer}[{place}]"
    return f"(uchar)({text} != 0)" if dtype == "b1" else text


def stored(text: str, dtype: str, vector: bool = False) -> str:
    """The text of the value that is written to memory."""
    return f"(AS_VU1({text}) & (VU1)(1))" if vector and dtype == "b1" else text


def template(op: str, ins: tuple[str, ...], out: str, vector: bool, single: bool = False) -> str:
    """The op table's expression over `{0} {1} {2}` with its types filled in."""
    text = ops.TABLE[op].expression(SINGLE if single else LANGUAGE, ins, out)
    if text is None:
        raise KernelError(f"[print] {op}: no {LANGUAGE} expression for {','.join(ins)}>{out}")
    return resolve(text, ins[0], out, vector)


def expression(
    op: str,
    ins: tuple[str, ...],
    out: str,
    args: tuple[str, ...],
    vector: bool = False,
    single: bool = False,
) -> str:
    """The op table's expression, cast to its result dtype."""
    return typed(template(op, ins, out, vector, single).format(*args), out, vector)


def converted(text: str, source: str, target: str, vector: bool = False) -> str:
    """A cast with the meaning of NumPy's `astype`."""
    if source == target:
        return text
    return expression("cast", (source,), target, (text,), vector)


def combined(reduction: Reduce, first: str, second: str, vector: bool = False) -> str:
    """Two partial results (or vectors of them) joined."""
    row = ops.TABLE[f"reduce:{reduction.op}"]
    dtype = reduction.accumulator
    return expression(row.combine, (dtype, dtype), dtype, (first, second), vector)


def best(reduction: Reduce, value: str, place: str, best_value: str, best_place: str) -> str:
    """Whether a value (at a position) beats the best so far; NaN wins, then the lowest position."""
    better, kind = comparison.better(reduction, value, best_value, _PARTS)
    same = f"({value} == {best_value})"
    if kind == "c":
        same = f"(({value}.x == {best_value}.x) & ({value}.y == {best_value}.y))"
    if kind in "fc":
        nan, best_nan = _is_nan(value, kind), _is_nan(best_value, kind)
        better = f"(({better} & !{best_nan}) | ({nan} & !{best_nan}))"
        same = f"({same} | ({nan} & {best_nan}))"
    return f"({better} | ({same} & ({place} < {best_place})))"


def _is_nan(value: str, kind: str) -> str:
    if kind == "f":
        return f"({value} != {value})"
    return f"(({value}.x != {value}.x) | ({value}.y != {value}.y))"


def identity(reduction: Reduce, of_value: bool = False, vector: bool = False) -> str:
    """The start of accumulators; for argmin and argmax the position, or the value (`of_value`)."""
    op, dtype = reduction.op, reduction.accumulator
    if op in ("argmin", "argmax") and not of_value:
        return _LAST_POSITION
    text = _spelled(comparison.start(op, dtype), dtype)
    return spread(text, dtype) if vector else f"(({C_TYPES[dtype]})({text}))"


def _spelled(number: float, dtype: str) -> str:
    if not isinstance(number, int):
        return {math.inf: "INFINITY", -math.inf: "-INFINITY"}.get(number, "NAN")
    if number == 1 and dtype[0] == "c":
        return "1.0f, 0.0f" if dtype == "c8" else "1.0, 0.0"
    if number < -1:
        return f"{number + 1}L - 1"
    return str(number) if number < 2 else f"{number}{'UL' if dtype[0] == 'u' else 'L'}"


def has_vector_form(op: str, ins: tuple[str, ...], out: str, single: bool = False) -> bool:
    """Whether an operation, without its implicit casts, can be written for vectors."""
    if any(dtype[0] == "c" for dtype in (*ins, out)):
        return False
    return opencl_helpers.are_vectors(template(op, ins, out, True, single))


def vectorisable(kernel: Kernel) -> bool:
    """Whether every instruction and cast of the kernel's maps has a vector version."""
    return all(has_vector_form(*each, kernel.single) for each in _operations(kernel))


def itemsize(kernel: Kernel) -> int:
    """The largest element, in bytes, that vector code of the kernel works with."""
    sizes = [int(dtype[1:]) for dtype in (*kernel.inputs, *kernel.scalars)]
    sizes += [int(store.dtype[1:]) for store in kernel.stores]
    sizes += [int(each.accumulator[1:]) for each in kernel.reductions]
    for op, ins, out in _operations(kernel):
        sizes += [int(dtype[1:]) for dtype in (*ins, out)]
        if out[0] != "c" and ins[0][0] != "c":
            text = template(op, ins, out, True, kernel.single)
            sizes.append(opencl_helpers.largest_item(text))
    return max(sizes)


def _operations(kernel: Kernel) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """The operations of the body and the casts of values that instructions and outputs need."""
    dtypes = value_dtypes(kernel)
    uses = [pair for each in kernel.body for pair in zip(each.args, each.ins, strict=True)]
    uses += [(each.value, each.dtype) for each in kernel.stores]
    uses += [(each.value, each.accumulator) for each in kernel.reductions]
    for value, dtype in uses:
        if dtypes[value] != dtype or dtype[0] == "c":
            yield "cast", (dtypes[value],), dtype
    for each in kernel.body:
        yield each.op, each.ins, each.out


class OpenCLValues(Values):
    """As `printing.Values`; in vector text the values are vectors."""

    def __init__(self, kernel: Kernel, vector: bool = False) -> None:
        super().__init__(kernel)
        self.vector = vector

    def name(self, value: int) -> str:
        """The text of a value; in vector text that of a vector."""
        text = super().name(value)
        is_scalar = self.scalars <= value < self.first
        return spread(text, self.dtypes[value]) if self.vector and is_scalar else text

    def cast(self, value: int, dtype: str) -> str:
        """A value as another dtype."""
        return converted(self.name(value), self.dtypes[value], dtype, self.vector)

    def statements(self) -> Iterator[str]:
        """One declaration per instruction."""
        vector, single = self.vector, self.kernel.single
        for value, each in self.numbered():
            args = self.arguments(each)
            text = expression(each.op, each.ins, each.out, args, vector, single)
            yield f"{c_type(each.out, vector)} v{value} = {text};"

    def flag_statements(self) -> list[str]:
        """Statements that add exceptions of instructions and casts of stores to `raised_here`."""
        return fp_flags.flag_statements(list(self._operations()), self.vector)

    def _operations(self) -> Iterator[Operation]:
        slots = flag_slots.slots(self.kernel)[len(self.kernel.reductions) :]
        for value, each in self.numbered():
            args, slot = self.arguments(each), slots[value - self.first]
            yield Operation(each.op, f"v{value}", each.out, args, each.ins, slot)
        for store in self.kernel.stores:
            source = self.dtypes[store.value]
            if source != store.dtype:
                text = self.cast(store.value, store.dtype)
                yield Operation("cast", text, store.dtype, (self.name(store.value),), (source,))


def preamble(body: str, itemsize: int) -> str:
    """The text above `body`: settings, `W`, and the types and helpers that it names."""
    helpers = opencl_helpers.source(body)
    whole = body + helpers
    lines = ["#pragma OPENCL FP_CONTRACT OFF"]
    if "double" in whole or "VF8" in whole:
        lines.append("#pragma OPENCL EXTENSION cl_khr_fp64 : enable")
    lines += [_WIDTHS.strip(), *_width(itemsize), _GENERAL.strip()]
    for dtype in opencl_helpers.vector_types(whole):
        name, kind = f"V{dtype.upper()}", C_TYPES[dtype]
        lines.append(f"#define {name} LANES({kind})")
        lines.append(f"#define TO_{name}(x) CONVERT({kind}, {name}, x)")
        lines.append(f"#define AS_{name}(x) CAT(as_, {name})(x)")
    return "\n".join(lines) + f"\n{helpers}"


def _width(itemsize: int) -> list[str]:
    """The lanes of a vector, as a number: macros join it to the names of types."""
    lines: list[str] = []
    for lanes in (16, 8, 4, 2):
        if lanes * itemsize <= WIDEST_VECTOR:
            word = "#elif" if lines else "#if"
            lines += [f"{word} LF_BYTES >= {lanes * itemsize}", f"#define W {lanes}"]
    return [*lines, "#else", "#define W 1", "#endif"] if lines else ["#define W 1"]
