"""More statements for random programs: windows, masks, index arrays, sinks, errors, foreign arrays.

Each phrase works like those of `phrases`: it writes a statement and the name that it sets, or gives
up (None). What it writes may fail in NumPy: the same exception is then expected of lazyfuse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tests.programs import deep_forms as texts
from tests.programs.phrases import (
    EXACT,
    Phrase,
    Written,
    index,
    is_complex,
    is_float,
    literal,
    operand,
    result,
    safe_to_write,
)

if TYPE_CHECKING:
    from tests.programs.grammar import Grammar


def array(grammar: Grammar, ranks: tuple[int, ...] = (), kinds: str = "biufc") -> str | None:
    """A variable that holds an array of one of these ranks and kinds of dtype."""
    return grammar.pick(
        lambda x: (
            isinstance(x, np.ndarray) and (not ranks or x.ndim in ranks) and x.dtype.kind in kinds
        )
    )


def fill(grammar: Grammar, forms: tuple[str, ...], **names: str | None) -> Written:
    """One of the forms with its names; given up where one of them is missing."""
    form = grammar.rng.choice(forms)
    if any(name is None and f"{{{key}}}" in form for key, name in names.items()):
        return None
    return result(grammar, form.format(**names))


def said(grammar: Grammar, forms: tuple[str, ...], **names: str | None) -> Written:
    """As `fill` for a statement that sets no name."""
    form = grammar.rng.choice(forms)
    if any(name is None and f"{{{key}}}" in form for key, name in names.items()):
        return None
    return form.format(**names), ""


def mask_for(grammar: Grammar, x: str) -> str:
    """A mask of the shape of `x`."""
    shape = np.shape(grammar.names[x])
    fitting = grammar.arrays(lambda y: y.dtype.kind == "b" and y.shape == shape)
    if fitting and grammar.rng.random() < 0.5:
        return grammar.rng.choice(fitting)
    return grammar.rng.choice((f"({x} > 1)", f"({x} == {x})", f"({x} != 0)", f"~({x} < 2)"))


# ---------------------------------------------------------------------------------------- views


def windows(grammar: Grammar) -> Written:
    v, x, y = array(grammar, (1,)), array(grammar, (1, 2, 3)), array(grammar)
    if v is None or x is None or y is None or not grammar.fits(x, y):
        return None
    if len(grammar.names[v]) < 2 or grammar.names[x].size > 2000:
        return None
    return fill(grammar, texts.WINDOWS, v=v, x=x, y=y)


def views(grammar: Grammar) -> Written:
    x, m, v = array(grammar, (1, 2, 3)), array(grammar, (2,)), array(grammar, (1,))
    return fill(grammar, texts.VIEWS, x=x, m=m, v=v)


# --------------------------------------------------------------------------------------- writes


def overlap(grammar: Grammar) -> Written:
    kinds = "iuf"
    x, m = array(grammar, (1, 2, 3), kinds), array(grammar, (2,), kinds)
    return said(grammar, texts.OVERLAPS, x=x, m=m)


def facts(grammar: Grammar) -> Written:
    """Changes of an array that has one name: what NumPy hands through has another type here."""
    x = array(grammar)
    value = grammar.names.get(x or "")
    if sum(each is value for each in grammar.names.values()) != 1:
        return None
    return said(grammar, texts.FACTS, x=x)


def calls(grammar: Grammar) -> Written:
    x = array(grammar)
    number = literal(grammar)
    if x is None or not safe_to_write(grammar, x, number):
        return None
    return said(grammar, texts.CALLS, x=x, k=mask_for(grammar, x), n=number)


def masked(grammar: Grammar) -> Written:
    """Reads and writes with masks, of some of the axes too."""
    rng = grammar.rng
    x = array(grammar, (1, 2, 3))
    if x is None:
        return None
    k = mask_for(grammar, x)
    sums = f"({x}.sum(axis=tuple(range(1, {x}.ndim))) > 1)"
    rows = rng.choice((sums, f"np.arange(len({x})) % 2 == 0"))
    places = [k, k, f"{rows}", f"..., {x}.any(axis=tuple(range({x}.ndim - 1)))", f"{rows}, ..., 0"]
    places += [f"np.nonzero({k})", f"np.flatnonzero({rows})", f"{rows}, -1:", f"~{k}", f"None, {k}"]
    where = rng.choice(places)
    if rng.random() < 0.4:
        forms = (f"{x}[{where}]", f"{x}[{where}]", f"np.compress({rows}, {x}, axis=0)")
        forms += (f"np.extract({k}, {x})", f"np.argwhere({k})", f"{x}[{where}].sum()")
        forms += (f"np.count_nonzero({k}, axis=0)", f"np.delete({x}, {rows}, axis=0)")
        return result(grammar, rng.choice(forms))
    found = f"{x}[{where}]"
    value = rng.choice((literal(grammar), f"{found}[::-1]", f"{found} * 2", operand(grammar)))
    if not safe_to_write(grammar, x, value):
        return None
    if is_complex(grammar, value) and not is_complex(grammar, x):
        return None  # NumPy warns of the imaginary part where the mask is not empty
    symbols = ["=", "=", "+=", "-=", *([] if is_complex(grammar, x, value) else ["*="])]
    return f"{x}[{where}] {rng.choice(symbols)} {value}", ""


def fancy(grammar: Grammar) -> Written:
    """Reads and writes through index arrays, alone and mixed with slices and numbers."""
    rng = grammar.rng
    x = array(grammar, (1, 2, 3))
    if x is None:
        return None
    i, j = (str([rng.randint(-3, 2) for _ in range(3)]) for _ in "ij")
    places = [i, f"{i}, ::-1", f"..., {i}", f"{i}, {j}", f"np.ix_({i}, {j})", f"0, {i}"]
    places += [f"np.array({i})[:, None], {j}", f"numpy.array({i}, 'i1')", f"np.array([{i}, {j}])"]
    places += [f"{i}, None, 0", f"None, {i}", f"{i}, :, {j}", "[]", f"[True] * len({x})"]
    places += [f"::-1, {i}", f"np.arange(len({x}))[::-1]"]
    places += [f"np.argsort({x}[..., 0], axis=0, kind='stable')"]
    where = rng.choice(places)
    if rng.random() < 0.5:
        forms = (f"{x}[{where}]",) * 4 + (
            f"np.take({x}, {i}, axis=0)", f"np.take({x}, {i}, axis=-1, mode='wrap')",
            f"{x}.take({i})", f"np.take_along_axis({x}, {x}.argsort(0, kind='stable'), axis=0)",
            f"np.choose({x} > 1, [{x}, 0])", f"np.select([{x} > 1, {x} < 0], [{x}, 1], 2)",
            f"{x}.choose([{x}, {x}], mode='clip')", f"np.delete({x}, 0, axis=0)",
            f"np.insert({x}, 0, 1, axis=0)", f"np.append({x}, {x}, axis=0)", f"{x}.item(-1)",
        )  # fmt: skip
        return result(grammar, rng.choice(forms))
    found = f"{x}[{where}]"
    value = rng.choice((literal(grammar), operand(grammar), found, f"{found}[::-1] + 1"))
    if not safe_to_write(grammar, x, value):
        return None
    return f"{x}[{where}] {rng.choice(('=', '=', '+=', '-='))} {value}", ""


# ----------------------------------------------------------------------------------- arithmetic

BINARY = (
    "add subtract multiply maximum minimum fmax copysign less equal floor_divide divide".split()
)


def parts(grammar: Grammar) -> Written:
    x, y, z = array(grammar), operand(grammar), array(grammar)
    if x is None or z is None or not grammar.fits(x, y, z) or is_complex(grammar, x, y, z):
        return None
    k, b = mask_for(grammar, x), grammar.rng.choice(BINARY)
    return fill(grammar, texts.PARTS, x=x, y=y, z=z, k=k, b=b)


def reductions(grammar: Grammar) -> Written:
    x, z = array(grammar, kinds="biuf"), array(grammar)
    if x is None or z is None or (grammar.value(z).dtype.kind in "iu" and is_float(grammar, x)):
        return None
    rank = grammar.names[x].ndim
    axes = ["0", "-1", "None", "()", "(0, 1)", "1", *([str(tuple(range(rank)))] if rank else [])]
    k, a = mask_for(grammar, x), grammar.rng.choice(axes)
    return fill(grammar, texts.REDUCTIONS, x=x, z=z, k=k, a=a)


def arrangements(grammar: Grammar) -> Written:
    x, y = array(grammar, kinds="biuf"), array(grammar, kinds="biuf")
    if x is None or y is None or grammar.names[x].size > 2000:
        return None
    return fill(grammar, texts.ARRANGEMENTS, x=x, y=y)


def products(grammar: Grammar) -> Written:
    x, y = array(grammar, kinds="biu"), array(grammar, kinds="biu")
    if x is None or y is None or grammar.names[x].size * grammar.names[y].size > 60_000:
        return None
    return fill(grammar, texts.PRODUCTS, x=x, y=y)


# ------------------------------------------------------------------------------ looks and copies


def looks(grammar: Grammar) -> Written:
    x, y = array(grammar), array(grammar)
    return fill(grammar, texts.LOOKS, x=x, y=y)


def steered(grammar: Grammar) -> Written:
    """Scalars that nobody has looked at as operands, indices and arguments."""
    return fill(grammar, texts.STEERED, x=array(grammar, kinds="biuf"))


def copies(grammar: Grammar) -> Written:
    return fill(grammar, texts.COPIES, x=array(grammar))


def outside(grammar: Grammar) -> Written:
    x = array(grammar)
    if x is None or ("R0" in grammar.names and not safe_to_write(grammar, "R0", x)):
        return None
    return said(grammar, texts.OUTSIDE, x=x)


# --------------------------------------------------------------------------------------- errors


def errors(grammar: Grammar) -> Written:
    return fill(grammar, texts.ERRORS, x=array(grammar))


def wrong(grammar: Grammar) -> Written:
    x = array(grammar, kinds="biuf")
    return said(grammar, texts.WRONG, x=x, z=grammar.free())


def scalars(grammar: Grammar) -> Written:
    return result(grammar, grammar.rng.choice(texts.SCALARS))


def sliced(grammar: Grammar) -> Written:
    """A view and, by its name, another arrangement of it."""
    x = array(grammar, (1, 2, 3))
    if x is None:
        return None
    where = index(grammar, grammar.names[x].shape, 0.0)
    return result(grammar, f"{x}[{where}]{grammar.rng.choice(('', '.T', '.real', '.squeeze()'))}")


DEEP: list[tuple[Phrase, float]] = [
    *EXACT, (windows, 3), (views, 8), (overlap, 7), (calls, 6), (facts, 1), (masked, 6),
    (fancy, 6), (parts, 8), (steered, 6), (reductions, 7), (arrangements, 7), (products, 2),
    (looks, 7), (copies, 6), (outside, 3), (errors, 3), (wrong, 4), (scalars, 2), (sliced, 5),
]  # fmt: skip
