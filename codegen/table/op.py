"""The type of op definitions (`Op`), and the functions that build rows of the op table.

Owns no row. The `rows_*` modules import it; all other modules import `codegen.table.ops`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, NamedTuple

import numpy as np

from lazyfuse.devices.caches import cached
from lazyfuse.devices.dataclass import dataclass

KERNEL_DTYPES = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "c8", "c16")
KINDS = (
    "map",
    "reduce",
    "scan",
    "gather",
    "scatter",
    "view",
    "index",
    "update",
    "contract",
    "sort",
    "source",
    "host",
)

ANY = "biufc"
"""Every kind of number."""
_WEAK_CHARS = "?bBhHiIlLqQfdFD"

Rule = Callable[[tuple[Any, ...]], tuple[tuple[np.dtype[Any], ...], np.dtype[Any]]]
Expressions = Mapping[str, Mapping[str, str]]
Texts = str | dict[str, str]


class Spread:
    """The expressions of a row by language, written out when one is first asked for."""

    __slots__ = ("_found", "_given")

    def __init__(self, numba: Texts, opencl: Texts | None, kinds: str, single: Texts) -> None:
        self._given = numba, opencl, kinds, single
        self._found: Expressions | None = None

    def get(self, language: str) -> Mapping[str, str] | None:
        """The expressions of a language, by the kinds of the arguments; None: it has none."""
        found = self._found
        if found is None:
            found = self._found = _expressions(*self._given)
        return found.get(language)


class Verdict(NamedTuple):
    """A decision and its reason."""

    ok: bool
    why: str = ""

    def __bool__(self) -> bool:
        return self.ok


@dataclass(frozen=True, eq=False)
class Op:
    """An op definition: one row of the table. Rows are compared by identity.

    `expressions` maps a language to expressions over `{0} {1} {2}`, looked up by `expression` from
    the most exact key to the least: "f8>i4", "f>i" (all inputs by kind, then the result), "i8,u8"
    (all inputs), "f8" (the first input), "f" (its kind), "*" (any). Those of "numba" are scalar
    Python, those of "opencl" templates of C for scalars and vectors (see helpers.py), those
    of "opencl-single" the same for devices without doubles.
    """

    name: str
    kind: str
    # of its own for each row; differs between processes; part of cache keys
    number: int = field(default_factory=itertools.count().__next__)
    nin: int = 1
    ufunc: Any = None
    reference: Callable[..., Any] | None = None
    rule: Rule | None = None  # dtypes -> (ins, out), where NumPy has no ufunc to ask
    expressions: Expressions | Spread = field(default_factory=dict)
    exact: str = ""  # kinds of the first input for which every tier gives NumPy's bits
    cost: float = 1.0  # per element, relative to an addition
    flags: tuple[str, ...] = ()  # floating-point exceptions that the op itself can raise, on floats
    integer_flags: tuple[str, ...] = ()  # and on integers
    dunders: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()  # NumPy's other names for it
    combine: str = ""  # reduce rows: the map row that joins two partial results
    identity: Any = None  # reduce rows: NumPy's identity, None if there is none
    reorderable: bool = False  # may NumPy reduce by it in any order of axes
    domain: tuple[tuple[float, float], ...] = ()  # per input: where generated tests sample floats
    ulps: int = 0  # where not exact: greatest error in units in the last place, in every tier
    unit: str = ""  # whose last place, if not the result's own: "operand", "sine"
    pure: bool = True
    fusion_barrier: bool = False  # the copy of a row for marked nodes: it shares no kernel
    sign: str = ""  # Python's operator in source text, for ops that have one
    refused: str = ""  # kinds of operands for which NumPy's loop may raise an exception
    weak_scalars: bool = True  # False: its errors name the types of Python numbers
    scalar_overflow: bool = False  # NumPy's integer scalars report overflow, its arrays do not
    eager_weight: int = 0  # additions that NumPy computes in the time of one; 0: `cost` decides
    misreported: str = ""  # kinds of results for which kernels raise flags that NumPy does not
    drops_nan: bool = False  # a NaN operand may leave no NaN; vector code misreports it as invalid
    signals_nan: bool = False  # NumPy compares the operands, and reports each NaN as invalid
    passes_nonfinite: bool = False  # an operand that is not finite makes the result not finite
    pole: int | None = None  # operand whose zero divides; None: each infinite result is a pole
    safe_at_one: bool = False  # raises no floating-point exception where array operands are 1
    parts: str = ""  # of complex numbers: "sum" and "product" are computed from the parts
    algebra: str = ""  # "identity": op(x) is x, "involution": op(op(x)) is x, of equal dtypes
    start: str = ""  # of its reduction: "zero", "one", all "bits", "greatest", "least"; "": none
    ordered: bool = False  # a floating-point reduction depends on the order of its operands
    skips_nan: bool = False  # its reduction prefers any value to NaN
    library: str = ""  # the function of the device's vector library that computes it
    doc: str = ""  # where NumPy has no function of that name

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    @property
    def key(self) -> str:
        """The row's key in the table."""
        return f"reduce:{self.name.removesuffix('.reduce')}" if self.kind == "reduce" else self.name

    def is_exact(self, dtype: np.dtype[Any]) -> bool:
        """Whether every tier gives NumPy's bits when the first input has this dtype."""
        return dtype.kind in self.exact

    def is_exact_in_numpy(self, dtype: np.dtype[Any]) -> bool:
        """Whether NumPy gives the same bits in any order and layout; integers count as floats
        if the op has no integer loop.
        """
        return dtype.kind in self.exact or (dtype.kind in "biu" and "f" in self.exact)

    def misreports(self, dtype: np.dtype[Any]) -> bool:
        """Whether kernels with results of this dtype raise flags that NumPy does not report."""
        if self.kind not in ("map", "reduce"):
            return False
        return self.drops_nan or not self.exact or dtype.kind in self.misreported

    @property
    def takes_weak_scalars(self) -> bool:
        """Whether a weak scalar counts as an array of the other operand's dtype: both operands
        have one dtype, and each float dtype has a loop.
        """
        eligible = self.weak_scalars and self.kind == "map" and self.nin == 2
        return eligible and _takes_weak_scalars(self.ufunc)

    def keeps(self, dtype: np.dtype[Any]) -> bool:
        """Whether two operands of this dtype give that dtype."""
        return self.nin == 2 and f"{dtype.char * 2}->{dtype.char}" in loops_of(self.ufunc)

    @property
    def numpy_weight(self) -> int:
        """NumPy additions that take as long as this op, in steps that decisions need."""
        return self.eager_weight or (4 if self.cost >= 4 else 1)

    def raises(self, dtype: np.dtype[Any]) -> tuple[str, ...]:
        """The floating-point exceptions NumPy may report if the first input has this dtype."""
        if dtype.kind in "fc":
            return self.flags
        return self.integer_flags if dtype.kind in "iu" else ()

    def expression(self, language: str, ins: tuple[str, ...], out: str) -> str | None:
        """The scalar expression for a loop in short dtype spellings, or None if there is none."""
        texts = self.expressions.get(language)
        if not texts:
            return None
        kinds = ",".join(each[0] for each in ins)
        joined = ",".join(ins)
        for key in (f"{joined}>{out}", f"{kinds}>{out[0]}", joined, ins[0], ins[0][0], "*"):
            text = texts.get(key)
            if text is not None:
                return text
        return None


@cached(1024, "NumPy is not asked again", clears=False)
def loops_of(ufunc: Any) -> frozenset[str]:
    """The loops of a ufunc, as NumPy spells them."""
    return frozenset(getattr(ufunc, "types", ()))


@cached(1024)
def _takes_weak_scalars(ufunc: Any) -> bool:
    pairs = {text[:2] for text in loops_of(ufunc) if not text[:2].strip(_WEAK_CHARS)}
    equal = pairs - {"qQ", "Qq"}  # which comparisons have besides
    return (
        bool(pairs)
        and all(pair[0] == pair[1] for pair in equal)
        and ("ff" in pairs or "dd" not in pairs)
    )


def elementwise(name: str, numba: Texts = "", opencl: Texts | None = None, **fields: Any) -> Op:
    """A map row for the ufunc `name`. A plain text serves the kinds in `kinds`.

    `single`: texts for devices without doubles, where those of `opencl` compute in doubles.
    `ufunc`: one that NumPy lacks.
    """
    kinds, single = fields.pop("kinds", "iufc"), fields.pop("single", {})
    ufunc = fields.pop("ufunc", None) or getattr(np, name)
    return Op(
        name,
        "map",
        nin=ufunc.nin,
        ufunc=ufunc,
        reference=ufunc,
        expressions=Spread(numba, opencl, kinds, single),
        **fields,
    )


def special(name: str, reference: Callable[..., Any], rule: Rule | None, **fields: Any) -> Op:
    """A map row that is not a NumPy ufunc."""
    numba, opencl = fields.pop("numba", ""), fields.pop("opencl", None)
    kinds, single = fields.pop("kinds", "biufc"), fields.pop("single", "")
    expressions = Spread(numba, opencl, kinds, single)
    return Op(name, "map", reference=reference, rule=rule, expressions=expressions, **fields)


def _expressions(numba: Texts, opencl: Texts | None, kinds: str, single: Texts) -> Expressions:
    """The texts of all languages: a numba text that is also valid C serves both."""
    texts = spread(numba, kinds)
    in_c = {key: _as_c(text) for key, text in texts.items()}
    in_c.update(spread(opencl or {}, kinds))
    in_c = {key: text for key, text in in_c.items() if text}
    return {"numba": texts, "opencl": in_c, "opencl-single": in_c | spread(single, kinds)}


_CHOICE = re.compile(r"\((.*) if (.*) else (.*)\)")
_PLAIN = re.compile(r"(\{\d\}(\.[xy]\b)?|[-+*/&|^~!=<>?:() ])*")


def _as_c(text: str) -> str:
    """A text for numba in C; empty if it has more than operators."""
    choice = _CHOICE.fullmatch(text)
    if choice:
        text = f"(({choice[2]}) ? {choice[1]} : {choice[3]})"
    text = text.replace(".real", ".x").replace(".imag", ".y").replace("not ", "!")
    return text if _PLAIN.fullmatch(text) else ""


def spread(text: str | dict[str, str], kinds: str) -> dict[str, str]:
    """One text for several kinds; keys of several kinds in a dict ("iu") are split too."""
    if isinstance(text, str):
        return dict.fromkeys(kinds, text) if text else {}
    result: dict[str, str] = {}
    for key, value in text.items():
        if key.isalpha():
            result.update(dict.fromkeys(key, value))
        else:
            result[key] = value
    return result
