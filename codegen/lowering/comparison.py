"""Which of two values argmin and argmax prefer, as text that is valid in both Python and C."""

from __future__ import annotations

from lazyfuse.codegen.lowering.kernel import Reduce


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
