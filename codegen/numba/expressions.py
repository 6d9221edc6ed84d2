"""Scalar values in text of language "numba": loads, casts, the op table's expressions.

Owns the spelling of one element's arithmetic; knows no loops.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from lazyfuse.codegen.lowering import comparison
from lazyfuse.codegen.lowering.kernel import KernelError, Reduce
from lazyfuse.codegen.lowering.printing import Values
from lazyfuse.codegen.table import ops

LANGUAGE = "numba"
_PARTS = ("real", "imag")  # of complex numbers
_TYPES = {
    "b1": "bool",
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
_CHOICE = re.compile(r"\((\{\d\}|1\.0) if (.*) else (\{\d\}|0\.0)\)")
# The one whose steps LLVM combines as vectors. NumPy's sign of a zero depends on its vectors, too.
_EXTREMES = {"maximum": "largest", "minimum": "smallest"}
_LAST_POSITION = "int64(9223372036854775807)"


def typed(text: str, dtype: str) -> str:
    """An expression whose value has exactly this dtype; numba itself widens integers."""
    return f"{_TYPES[dtype]}({text})"


def load(pointer: str, place: str, dtype: str) -> str:
    """One element; truth values lie in memory as bytes."""
    text = f"{pointer}[{place}]"
    return f"({text} != 0)" if dtype == "b1" else text


def stored(text: str, dtype: str) -> str:
    """The text that is assigned to an element."""
    return f"uint8({text})" if dtype == "b1" else text


def expression(op: str, ins: tuple[str, ...], out: str, args: tuple[str, ...]) -> str:
    """The op table's expression, cast to its result dtype."""
    template = ops.TABLE[op].expression(LANGUAGE, ins, out)
    if template is None:
        raise KernelError(f"[print] {op}: no {LANGUAGE} expression for {','.join(ins)}>{out}")
    return typed(_straight(template, ins, out).format(*args), out)


def _straight(template: str, ins: tuple[str, ...], out: str) -> str:
    """A choice between operands as `select`: LLVM would move work into the arms of branches."""
    choice = _CHOICE.fullmatch(template)
    if choice is None or any(ins[int(choice[k][1])] != out for k in (1, 3) if choice[k][0] == "{"):
        return template
    return f"select({choice[2]}, {choice[1]}, {choice[3]})"


def converted(text: str, source: str, target: str) -> str:
    """A cast with the meaning of NumPy's `astype`."""
    return text if source == target else expression("cast", (source,), target, (text,))


def combined(reduction: Reduce, first: str, second: str) -> str:
    """Two partial results joined."""
    row = ops.TABLE[f"reduce:{reduction.op}"]
    dtype = reduction.accumulator
    if dtype[0] == "f" and row.combine in _EXTREMES:
        return f"{_EXTREMES[row.combine]}({first}, {second})"
    return expression(row.combine, (dtype, dtype), dtype, (first, second))


def number(text: str, reduction: Reduce) -> str:
    """The value that argmin and argmax compare: truth values as numbers."""
    return f"uint8({text})" if reduction.accumulator == "b1" else text


def best(reduction: Reduce, value: str, place: str, best_value: str, best_place: str) -> str:
    """Whether a value (at a position) beats the best so far; NaN wins, then the lowest position."""
    better, kind = comparison.better(reduction, value, best_value, _PARTS)
    same = f"({value} == {best_value})"
    if kind in "fc":
        nan, best_nan = f"({value} != {value})", f"({best_value} != {best_value})"
        better = f"(({better} & ({best_value} == {best_value})) | ({nan} & (not {best_nan})))"
        same = f"({same} | ({nan} & {best_nan}))"
    return f"({better} | ({same} & ({place} < {best_place})))"


def better(reduction: Reduce, value: str, best_value: str) -> str:
    """Whether a real value beats the best so far, at any positions; the first NaN wins."""
    found, kind = comparison.better(reduction, value, best_value, _PARTS)
    if kind != "f":
        return found
    # no less or equal: greater, or one of them is NaN
    other = ">=" if reduction.op == "argmin" else "<="
    return f"((not ({value} {other} {best_value})) & ({best_value} == {best_value}))"


def extreme(reduction: Reduce, first: str, second: str) -> str:
    """The better one of two real numbers; NaN where one is NaN."""
    least = reduction.op in ("argmin", "fmin")
    if reduction.accumulator[0] == "f":
        return f"{_EXTREMES['minimum' if least else 'maximum']}({first}, {second})"
    return f"{'min' if least else 'max'}({first}, {second})"


def skips_nan(reduction: Reduce) -> bool:
    """Whether a reduction of floats gives NaN only where there is nothing else."""
    return ops.TABLE[f"reduce:{reduction.op}"].skips_nan and reduction.accumulator[0] == "f"


def worst(reduction: Reduce) -> str:
    """What no float is worse than, for a reduction that skips NaN."""
    return typed("np.inf" if reduction.op == "fmin" else "-np.inf", reduction.accumulator)


def identity(reduction: Reduce, of_value: bool = False) -> str:
    """The start of accumulators; for argmin and argmax the position, or the value (`of_value`)."""
    op, dtype = reduction.op, reduction.accumulator
    if op in ("argmin", "argmax") and not of_value:
        return _LAST_POSITION
    if dtype == "b1" and op in ("argmin", "argmax"):
        dtype = "u1"
    return typed(_spelled(comparison.start(op, dtype), dtype[0]), dtype)


def _spelled(number: float, kind: str) -> str:
    if isinstance(number, int):
        return str(number) if number >= -1 else f"{number + 1} - 1"
    text = f"np.{number}" if number != -math.inf else "-np.inf"
    return text if kind == "f" else f"complex({text}, {text})"


class NumbaValues(Values):
    """As `printing.Values`."""

    def cast(self, value: int, dtype: str) -> str:
        """A value as another dtype."""
        return converted(self.name(value), self.dtypes[value], dtype)

    def statements(self) -> Iterator[str]:
        """One assignment per instruction."""
        for value, each in self.numbered():
            yield f"v{value} = {expression(each.op, each.ins, each.out, self.arguments(each))}"
