"""The statements that random programs are made of: each phrase writes one, or gives up (None).

A phrase gets the `Grammar` whose variables it may look at. What it writes may fail in NumPy: the
same exception is then expected of lazyfuse.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tests.programs.grammar import Grammar

Written = tuple[str, str] | None
Phrase = Callable[["Grammar"], Written]

EXACT_BINARY = (
    "add subtract multiply divide floor_divide remainder fmod copysign maximum minimum fmax fmin "
    "equal not_equal less less_equal greater greater_equal logical_and logical_or logical_xor "
    "bitwise_and bitwise_or bitwise_xor left_shift right_shift gcd lcm heaviside nextafter "
    "true_divide mod ldexp"
).split()
EXACT_UNARY = (
    "negative positive absolute fabs sign sqrt square floor ceil trunc rint isnan isinf isfinite "
    "signbit conjugate reciprocal logical_not invert bitwise_count spacing degrees deg2rad"
).split()
COMPLEX_BINARY = (
    "add subtract equal not_equal less greater maximum minimum fmax logical_and logical_or".split()
)
COMPLEX_UNARY = "negative positive conjugate isnan isfinite isinf logical_not rint".split()
OPERATORS = "+ - * / // % & | ^ << >> < <= > >= == !=".split()
COMPLEX_OPERATORS = "+ - == != < >".split()
LITERALS = "0 1 2 -1 3 7 100 300 -129 0.5 2.0 -0.0 1e300 3.25 True 2j".split()
SCALARS = (
    "np.float64(1.5) np.float32(0.1) np.int8(3) np.uint8(200) np.int64(-5) np.bool_(True) "
    "np.float16(2.5) np.complex64(1+2j) np.int32(70000)"
).split()
REDUCTIONS = "sum min max any all argmin argmax mean var std ptp count_nonzero".split()


def is_complex(grammar: Grammar, *texts: str) -> bool:
    return any(grammar.value(text).dtype.kind == "c" for text in texts)


# ---------------------------------------------------------------------------------- operands


def literal(grammar: Grammar) -> str:
    if grammar.inexact:
        return grammar.rng.choice(["0.5", "1", "2", "1.25", "np.float32(1.5)", "np.float64(0.75)"])
    return grammar.rng.choice(LITERALS if grammar.rng.random() < 0.7 else SCALARS)


def operand(grammar: Grammar, numbers: float = 0.25) -> str:
    """A variable, perhaps sliced on the spot, a real array, or a number."""
    rng = grammar.rng
    chance = rng.random()
    if chance < numbers:
        return literal(grammar)
    if chance < numbers + 0.08:
        return rng.choice(("R0", "R1", "R2"))
    name = grammar.pick()
    if name is None:
        return "R0"
    if rng.random() < 0.25:
        return f"{name}[{index(grammar, np.shape(grammar.names[name]))}]"
    return f"{name}.T" if rng.random() < 0.08 else name


def index(grammar: Grammar, shape: tuple[int, ...], wild: float = 0.03) -> str:
    """A basic index: numbers, slices with any step, an ellipsis, new axes."""
    rng = grammar.rng
    parts = []
    for length in shape:
        chance = rng.random()
        if chance < wild:
            parts.append(str(rng.choice((length, -length - 1, 99))))
        elif chance < 0.25 and length:
            parts.append(str(rng.randrange(-length, length)))
        elif chance < 0.5:
            parts.append(":")
        else:
            parts.append(a_slice(grammar, length))
    if parts and rng.random() < 0.3:
        parts = parts[: rng.randrange(len(parts))]
    if rng.random() < 0.12:
        parts.insert(rng.randint(0, len(parts)), "None")
    if rng.random() < 0.12 or not parts:
        parts.insert(rng.randint(0, len(parts)), "...")
    return ", ".join(parts)


def a_slice(grammar: Grammar, length: int) -> str:
    rng = grammar.rng
    if rng.random() < 0.1:  # elsewhere each time that it comes round
        return f"k:{max(length - 3, 0)} + k"
    step = rng.choice(("", "", ":1", ":2", ":-1", ":-1", ":-2", ":3"))
    ends = [str(rng.randint(-length - 1, length + 1)) if rng.random() < 0.5 else "" for _ in "01"]
    if rng.random() < 0.4:  # the usual ones of stencils
        ends = rng.choice((["1", ""], ["", "-1"], ["1", "-1"], ["", ""]))
    return f"{ends[0]}:{ends[1]}{step}"


def axis_of(grammar: Grammar, name: str) -> str:
    rng = grammar.rng
    rank = np.ndim(grammar.names[name])
    choices = ["None", "0", "-1", str(rank)] if rng.random() < 0.1 else ["None", "0", "-1"]
    choices += [str(axis) for axis in range(rank)]
    if rank > 1:
        choices += ["(0, 1)", "(0, -1)", "()", "tuple(range(2))"]
    return rng.choice(choices)


def result(grammar: Grammar, expression: str) -> Written:
    target = grammar.free()
    return f"{target} = {expression}", target


# ---------------------------------------------------------------------------------- creation


def creation(grammar: Grammar) -> tuple[str, str]:
    rng = grammar.rng
    target = grammar.free()
    shape = grammar.shape()
    dtype = rng.choice(grammar.dtypes)
    real = f"R{rng.randrange(3)}"
    plain = [f"np.array({real})", f"np.array({real}, order='F')", f"np.asarray({real})"]
    ones = [f"np.ones({shape}, '{dtype}')", f"np.full({shape}, 1, '{dtype}')"]
    if grammar.inexact:
        return f"{target} = {rng.choice([*plain, plain[0], *ones[:1]])}", target
    length = rng.choice(grammar.lengths)
    others = [
        f"np.zeros({shape}, '{dtype}')",
        f"np.arange({grammar.vector})",
        f"np.arange({rng.randint(-5, 5)}, {length * 2}, 2, dtype='f8')",
        f"np.linspace(0, 1, {length})",
        f"np.eye({length}, dtype='{dtype}')",
        f"np.full({shape}, {rng.choice(LITERALS)})",
    ]
    return f"{target} = {rng.choice([*plain, *plain, *ones, *others])}", target


# --------------------------------------------------------------------------------- elementwise


def operation(grammar: Grammar) -> Written:
    first, second = operand(grammar, 0.1), operand(grammar)
    symbols = COMPLEX_OPERATORS if is_complex(grammar, first, second) else OPERATORS
    if grammar.rng.random() < 0.04:
        symbols = ["@"] if not is_float(grammar, first, second) else symbols
    if not grammar.fits(first, second):
        return None
    return result(grammar, f"{first} {grammar.rng.choice(symbols)} {second}")


def is_float(grammar: Grammar, *texts: str) -> bool:
    return any(grammar.value(text).dtype.kind in "fc" for text in texts)


def several(grammar: Grammar) -> Written:
    """A longer expression: something to fuse."""
    names = [operand(grammar) for _ in range(4)]
    if is_complex(grammar, *names) or not grammar.fits(*names):
        return None
    symbols = [grammar.rng.choice("+ - * / + -".split()) for _ in range(3)]
    a, b, c, d = names
    forms = (
        f"({a} {symbols[0]} {b}) {symbols[1]} ({c} {symbols[2]} {d})",
        f"(({a} {symbols[0]} {b}) {symbols[1]} {c}) {symbols[2]} {d}",
        f"np.where({a} > {b}, {c}, {d})",
        f"np.where({a} < {b}, {c} {symbols[0]} {d}, {a})",
        f"abs({a} {symbols[0]} {b}) {symbols[1]} {c}",
        f"({a} {symbols[0]} {b}).sum() {symbols[1]} {c}",
    )
    return result(grammar, grammar.rng.choice(forms))


def unary(grammar: Grammar) -> Written:
    x = operand(grammar, 0.05)
    rng = grammar.rng
    if rng.random() < 0.3:
        forms = ["-{}", "+{}", "{}.conj()", "{}.real", "{}.imag"]
        if not is_complex(grammar, x):
            forms += ["abs({})", "~{}", "round({})", "np.round({}, 1)"]
            if grammar.value(x).ndim or not is_float(grammar, x):  # of a scalar: C's pow
                forms += ["{} ** 2", "{} ** 1"]
        if x[0] not in "0123456789-T":
            return result(grammar, rng.choice(forms).format(x))
    names = COMPLEX_UNARY if is_complex(grammar, x) else EXACT_UNARY
    return result(grammar, f"np.{rng.choice(names)}({x}{keywords(grammar, x)})")


def keywords(grammar: Grammar, *operands: str) -> str:
    """Now and then out=, where=, dtype= or casting= for a ufunc."""
    rng = grammar.rng
    chance = rng.random()
    out = grammar.pick(lambda x: isinstance(x, np.ndarray))
    if chance < 0.12 and out is not None:
        floats = grammar.value(out).dtype.kind in "fc"
        extra = ", casting='unsafe'" if floats and rng.random() < 0.4 else ""
        mask = grammar.pick(lambda x: x.dtype.kind == "b")
        # NumPy 2.4 crashes in `greater(bytes, -129, where=mask)`: comparisons of what does not fit
        plain = any(text.lstrip("-").isdigit() for text in operands)
        if mask is not None and rng.random() < 0.3 and not plain:
            extra += f", where={mask}"
        return f", out={out}{extra}" if grammar.fits(out, *operands) else ""
    if chance < 0.18:
        return f", dtype='{rng.choice(grammar.dtypes)}'"
    return ""


def binary(grammar: Grammar) -> Written:
    first, second = operand(grammar, 0.1), operand(grammar)
    if not grammar.fits(first, second):
        return None
    names = COMPLEX_BINARY if is_complex(grammar, first, second) else EXACT_BINARY
    extra = keywords(grammar, first, second)
    if "dtype='c" in extra or (is_complex(grammar, *extra_out(extra)) and "multiply" in names):
        extra = ""
    return result(grammar, f"np.{grammar.rng.choice(names)}({first}, {second}{extra})")


def extra_out(extra: str) -> list[str]:
    return [extra.split("out=")[1][0]] if "out=" in extra else []


def choice(grammar: Grammar) -> Written:
    mask = grammar.pick(lambda x: x.dtype.kind == "b") or f"({grammar.pick()} == 1)"
    first, second = operand(grammar), operand(grammar)
    if "None" in mask or not grammar.fits(mask, first, second):
        return None
    return result(grammar, f"np.where({mask}, {first}, {second})")


def clipping(grammar: Grammar) -> Written:
    x, low, high = grammar.pick(), operand(grammar, 0.7), operand(grammar, 0.7)
    if x is None or not grammar.fits(x, low, high) or is_complex(grammar, x, low, high):
        return None
    forms = [f"np.clip({x}, {low}, {high})", f"{x}.clip({low}, {high})", f"{x}.clip({low})"]
    return result(grammar, grammar.rng.choice(forms))


def conversion(grammar: Grammar) -> Written:
    x = grammar.pick()
    dtype = grammar.rng.choice(grammar.dtypes)
    if x is None or (np.dtype(dtype).kind in "iu" and is_float(grammar, x)):
        return None  # what C makes of a NaN as an integer is nobody's promise
    forms = [f"{x}.astype('{dtype}')", f"{x}.astype('{dtype}', copy=False)", f"{x}.copy()"]
    forms += [f"np.array({x}, dtype='{dtype}')", f"np.asarray({x}, dtype='{dtype}')"]
    forms += [f"{x}.astype('{dtype}', casting='safe')", f"np.ascontiguousarray({x})"]
    return result(grammar, grammar.rng.choice(forms))


# ----------------------------------------------------------------------------------- reductions


def reduction(grammar: Grammar) -> Written:
    rng = grammar.rng
    x = grammar.pick()
    if x is None:
        return None
    names = ["sum", "any", "all", "max", "min"] if is_complex(grammar, x) else REDUCTIONS
    if not is_float(grammar, x):
        names = [*names, "prod"]
    name = rng.choice(names)
    arguments = [f"axis={axis_of(grammar, x)}"]
    if rng.random() < 0.4:
        arguments.append(f"keepdims={rng.choice(('True', 'False'))}")
    if name in ("sum", "mean") and rng.random() < 0.15:
        arguments.append(f"dtype='{rng.choice(('f8', 'f4', 'c16'))}'")
    if name in ("sum", "max", "min") and rng.random() < 0.1:
        arguments.append("initial=3")
    function = rng.random() < 0.5 or name in ("count_nonzero", "ptp")
    text = ", ".join(arguments)
    return result(grammar, f"np.{name}({x}, {text})" if function else f"{x}.{name}({text})")


def ufunc_method(grammar: Grammar) -> Written:
    x = grammar.pick(lambda x: x.dtype.kind in "biuf")
    if x is None:
        return None
    rng = grammar.rng
    name = rng.choice("add maximum minimum logical_or bitwise_xor logical_and".split())
    method = rng.choice(("reduce", "reduce", "accumulate"))
    axis = "0" if method == "accumulate" else axis_of(grammar, x)
    return result(grammar, f"np.{name}.{method}({x}, axis={axis})")


# ---------------------------------------------------------------------------------------- views


def view(grammar: Grammar) -> Written:
    rng = grammar.rng
    x = grammar.pick()
    if x is None:
        return None
    value = grammar.names[x]
    shape = np.shape(value)
    rank = len(shape)
    size = int(np.prod(shape))
    forms = [f"{x}[{index(grammar, shape)}]"] * 6
    forms += [f"{x}.T", f"{x}.reshape(-1)", f"{x}.ravel()", f"{x}.flatten()", f"{x}[::-1]"]
    forms += [f"np.expand_dims({x}, 0)", f"{x}.squeeze()", f"np.atleast_2d({x})", f"{x}[...]"]
    forms += [f"{x}.reshape({divided(size, rng.choice((2, 3, 4)))})", f"np.flip({x})"]
    if rank > 1:
        axes = tuple(rng.sample(range(rank), rank))
        forms += [f"{x}.transpose({axes})", f"np.swapaxes({x}, 0, -1)", f"{x}.diagonal()"]
        forms += [f"np.moveaxis({x}, 0, -1)", f"{x}.reshape({shape[::-1]}, order='F')"]
    if size * 3 <= 3000:
        forms += [f"np.broadcast_to({x}, {(3, *shape)})"]
    if rng.random() < 0.1 and not grammar.inexact:
        forms = [f"{x}.view()", f"{x}.view('{rng.choice(('i4', 'i8', 'u1', 'f8'))}')"]
    return result(grammar, rng.choice(forms))


def divided(size: int, by: int) -> str:
    return f"{by}, {size // by}" if size % by == 0 else f"{size}, 1"


# --------------------------------------------------------------------------------------- writes


def place(grammar: Grammar) -> str | None:
    """Somewhere to write to: a variable or a part of one."""
    name = grammar.pick(lambda x: isinstance(x, np.ndarray))
    if name is None or grammar.rng.random() < 0.25:
        return name
    return f"{name}[{index(grammar, np.shape(grammar.names[name]))}]"


def safe_to_write(grammar: Grammar, target: str, value: str) -> bool:
    """No floats into integers: out of range, C says nothing about what they become."""
    return grammar.value(target).dtype.kind not in "iub" or not is_float(grammar, value)


def write(grammar: Grammar) -> Written:
    target, value = place(grammar), operand(grammar, 0.4)
    if target is None or not safe_to_write(grammar, target, value):
        return None
    if "[" not in target:
        target += "[...]"
    return f"{target} = {value}", ""


def update(grammar: Grammar) -> Written:
    target, value = place(grammar), operand(grammar, 0.4)
    if target is None:
        return None
    if grammar.inexact:
        return f"{target} {grammar.rng.choice(('+=', '*='))} 0", ""
    complicated = is_complex(grammar, value) or is_complex(grammar, target.split("[")[0])
    symbols = ["+", "-"] if complicated else ["+", "-", "*", "/", "//", "%", "&", "|", "**"]
    symbol = grammar.rng.choice(symbols)
    if symbol == "**":
        value = "2"
    return f"{target} {symbol}= {value}", ""


def masked_write(grammar: Grammar) -> Written:
    rng = grammar.rng
    x = grammar.pick(lambda x: isinstance(x, np.ndarray))
    if x is None:
        return None
    mask = rng.choice((f"{x} > 1", f"{x} == {x}", f"{x} != 2"))
    fitting = grammar.arrays(lambda y: y.dtype.kind == "b" and y.shape == grammar.names[x].shape)
    if fitting and rng.random() < 0.5:
        mask = rng.choice(fitting)
    value = rng.choice((literal(grammar), literal(grammar), f"{x}[{mask}]", f"{x}[{mask}][::-1]"))
    if not safe_to_write(grammar, x, value if "[" not in value else x):
        return None
    symbol = rng.choice(("=", "=", "+="))
    if symbol == "+=" and is_complex(grammar, x):
        symbol = "="
    return f"{x}[{mask}] {symbol} {value}", ""


def picked(grammar: Grammar) -> Written:
    """Reads and writes through arrays of indices."""
    rng = grammar.rng
    x = grammar.pick(lambda x: np.ndim(x) > 0)
    if x is None:
        return None
    length = np.shape(grammar.names[x])[0]
    if not length:
        return None
    numbers = [rng.randrange(-length, length) for _ in range(3)]
    if rng.random() < 0.05:
        numbers[0] = length
    where = rng.choice((str(numbers), f"np.array({numbers})", f"numpy.array({numbers})"))
    forms = [f"{x}[{where}]", f"{x}[{where}, ...]", f"np.take({x}, {numbers}, axis=0)"]
    forms += [f"{x}[{x} > 1]", f"{x}[{x} == {x}]", f"np.nonzero({x})[0]"]
    if rng.random() < 0.5:
        return result(grammar, rng.choice(forms))
    value = literal(grammar)
    if not safe_to_write(grammar, x, value):
        return None
    if rng.random() < 0.3 and not is_complex(grammar, x):
        return f"{x}[{where}] += {value}", ""
    return f"{x}[{where}] = {value}", ""


def other_writes(grammar: Grammar) -> Written:
    rng = grammar.rng
    x = grammar.pick(lambda x: isinstance(x, np.ndarray))
    value = operand(grammar, 0.4)
    if x is None or not safe_to_write(grammar, x, value):
        return None
    mask = grammar.pick(lambda x: x.dtype.kind == "b")
    forms = [f"np.copyto({x}, {value})", f"{x}.fill({literal(grammar)})", f"{x}.sort()"]
    forms += [f"np.put({x}, [0, -1], {value})", f"R0[...] = {x}"]
    if mask is not None:
        forms += [f"np.copyto({x}, {value}, where={mask})", f"np.putmask({x}, {mask}, {value})"]
    text = rng.choice(forms)
    if "fill" in text and not safe_to_write(grammar, x, text.split("fill")[1]):
        return None
    if text.startswith("R0") and not safe_to_write(grammar, "R0", x):
        return None
    return text, ""


# ------------------------------------------------------------------------------------- the rest


def rearrangement(grammar: Grammar) -> Written:
    x, y = grammar.pick(lambda x: np.ndim(x) > 0), grammar.pick(lambda x: np.ndim(x) > 0)
    if x is None or np.size(grammar.names[x]) > 40_000:
        return None
    forms = [f"np.roll({x}, {grammar.rng.randint(-3, 3)}, axis=0)", f"np.sort({x}, axis=0)"]
    forms += [f"np.concatenate([{x}, {y}])", f"np.stack([{x}, {x}])", f"np.cumsum({x}, axis=0)"]
    forms += [f"np.diff({x}, axis=0)", f"np.argsort({x}, axis=0, kind='stable')"]
    forms += [f"np.repeat({x}, 2, axis=0)", f"np.tile({x}, 2)", f"np.outer([1, 2], {x})"]
    forms += [f"np.searchsorted(np.sort({x}.ravel()), 1)", f"np.split({x}, 1)[0]"]
    forms += [f"np.unique({x})", f"np.median({x})", f"np.isin({x}, [1, 2])", f"np.pad({x}, 1)"]
    text = grammar.rng.choice(forms)
    if "outer" in text and is_complex(grammar, x):
        return None
    return result(grammar, text)


def question(grammar: Grammar) -> Written:
    """Python values, and control flow that depends on the data."""
    rng = grammar.rng
    x, y = grammar.pick(), grammar.pick()
    if x is None:
        return None
    forms = [f"{x}.shape", f"len({x})", f"{x}.size", f"{x}.flags.c_contiguous", f"{x}.tolist()"]
    forms += [f"bool({x}.any())", f"str({x}.dtype)", f"float({x}.min())", f"np.shape({x})"]
    forms += [f"np.shares_memory({x}, {y})", f"{x}.flags.writeable", f"np.array_equal({x}, {y})"]
    forms += [f"{x}.item(0)", f"[each for each in {x}][:2]", f"np.result_type({x}, {y})"]
    forms += [f"{x}.sum() == {x}.sum()", f"repr({x}.max())", f"repr({x})", f"f'{{{x}.min()}}'"]
    forms += [f"hash({x}.any())", f"isinstance({x}.max(), np.float64)", f"divmod({x}, 3)"]
    if is_complex(grammar, x):
        forms = forms[:7]
    target = grammar.free()
    text = rng.choice(forms)
    if rng.random() < 0.25 and not is_complex(grammar, x):
        text = f"({x} + 1 if {x}.max() > 1 else {x} - True)"
    return f"{target} = {text}", target


def loop(grammar: Grammar) -> Written:
    rng = grammar.rng
    x = grammar.pick(lambda x: isinstance(x, np.ndarray) and x.ndim > 0 and x.dtype.kind in "iuf")
    if x is None:
        return None
    bodies = (
        f"{x}[1:] = {x}[:-1]",
        f"{x}[1:] += {x}[:-1]",
        f"{x}[1:-1] = ({x}[:-2] + {x}[2:]) * 2 - {x}[1:-1]",
        f"{x} = {x} + k",
        f"{x}[k:k + 2] = {x}[-2:]",
        f"{x}[::-1] -= {x}",
    )
    return f"for k in range({rng.randint(1, 4)}):\n    {rng.choice(bodies)}", x


def removal(grammar: Grammar) -> Written:
    name = grammar.pick()
    return (f"del {name}", "") if len(grammar.arrays()) > 2 else None


EXACT: list[tuple[Phrase, float]] = [
    (creation, 3), (operation, 10), (several, 6), (unary, 6), (binary, 8), (choice, 2),
    (clipping, 2), (conversion, 3), (reduction, 7), (ufunc_method, 1), (view, 9), (write, 6),
    (update, 6), (masked_write, 3), (picked, 3), (other_writes, 3), (rearrangement, 3),
    (question, 3), (loop, 2), (removal, 1),
]  # fmt: skip
