"""Random functions of numbers: reductions and picks that go everywhere a number may go.

`Numbers(seed).text()` is a function `program(np, A, keep, other, tools)`. What it hands to `keep`,
to operators of `other` and to what it returns is what code of others gets. Holds no test.
"""

from __future__ import annotations

import copy
import ctypes
import datetime
import decimal
import fractions
import functools
import itertools
import json
import math
import operator
import pickle
import random
import re
import sqlite3
import statistics
import struct
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import numpy

import lazyfuse

KINDS = "float64 float64 float32 int64 int32 uint8 bool complex128 int8 uint64 float16".split()
SIZES = (1, 3, 8)

MAKERS = """
{a}.sum() | {a}.max() | {a}.min() | {a}.mean() | {a}.prod() | {a}.all() | {a}.any() | {a}.std()
np.sum({a}) | np.max({a} * 2) | np.dot({a}, {b}) | {a} @ {b} | np.linalg.norm({a}) | {a}.argmax()
{a}[0] | {a}[-1] | ({a} * 2)[0] | ({a} + {b}).sum() | np.median({a}) | np.ptp({a}) | {a}.var()
({a} == {b}).all() | ({a} > 1).any() | ({a} > {b}).sum() | np.count_nonzero({a} > 1)
np.vdot({a}, {b}) | np.add.reduce({a}) | ({a} - {a}.min()).max() | np.average({a})
np.trace(np.outer({a}, {b})) | {a}.max() - {a}.min() | np.abs({a}).max() | np.sqrt({a}.sum())
np.nanmax({a}) | np.inner({a}, {b})
"""

PARTS = """
{n} + {m} | {n} - {m} | {n} * {m} | {n} / {m} | {n} // {m} | {n} % {m} | {n} ** 2 | -{n} | +{n}
~{n} | {n} + 1 | 2.5 * {n} | 1 - {n} | 1j * {n} | {n} & {m} | {n} | {m} ^ {n} | {n} << 1
True + {n} | {n} ** {m} | abs({n}) | abs({n} - {m}) | round({n}) | round({n}, 2) | divmod({n}, 3)
divmod({n}, {m}) | pow({n}, 2) | pow({n}, 2, 5) | min({n}, {m}) | max({n}, 1) | sum([{n}, {m}])
sorted([{n}, {m}]) | bool({n}) | int({n}) | float({n}) | complex({n}) | str({n}) | repr({n})
format({n}, ".3") | hash({n}) | {n} < {m} | {n} == {m} | {n} != 1 | 0 <= {n} < 10 | 0 < {n}
{n} >= {m} | not {n} | {n} and {m} | {n} or 1 | {n}.real | {n}.imag | {n}.dtype | {n}.shape
{n}.item() | {n}.conj() | {n}.astype("f4") | {n}.round(1) | {n}.sum() | {n}.T | {n}.tolist()
{n}.is_integer() | {n}.tobytes() | {n}.max() | {n}.ndim | {n}.copy() | {n} is np.True_
{n} is None | {n} is np.False_ | {n} is {n} | {n} is not {m} | {n} in (1, 2.0) | {n} in [{m}, 3]
isinstance({n}, float) | isinstance({n}, np.floating) | isinstance({n}, (int, str)) | f"{{{n}}}"
f"{{{n}!r}} {{{m}:.3}}" | "%s" % {n} | "%.2f" % {n} | "%d %r" % ({n}, {m}) | "{{}}".format({n})
np.sqrt({n}) | np.add({n}, {m}) | np.maximum({n}, 1) | np.float32({n}) | np.float64({n})
np.abs({n}) | np.array({n}) | np.array([{n}, {m}]) | np.asarray({n}) | np.isnan({n})
np.full(2, {n}) | np.int64({n}) | np.clip({a}, 0, {n}) | {a} - {n} | {n} * {a} | ({a} - {n}) / {m}
{a}.dot({n}) | np.where({a} > {n}, 1, 0) | np.modf({n}) | np.frexp({n}) | np.divmod({n}, 3)
np.sign({n}) | np.exp({n}) | np.real({n}) | np.round({n}, 1) | {n} if {m} else {n}
(lambda: {n})() | [{n}][0] | {{"k": {n}}}["k"] | ({n}, {m}) | [{n} for _ in range(2)]
[1, 2] * {n} | [5, 6, 7][{n}] | "ab" * {n} | range({n}) | {a}[{n}] | slice({n}) | [5, 6, 7][:{n}]
np.append({a}, {n}) | np.linspace(0, {n}, 3) | np.arange({n}) | np.zeros(3)[{n}] | (1, 2) + ({n},)
divmod({n}, 3)[0] | divmod({n}, {m}) + (1,) | np.divmod({n}, {m})[1] | np.modf({n})[0]
np.frexp({n})[1] | np.average({a}, returned=True)[0] | np.average({a}, returned=True) + (1,)
np.unravel_index({n}, (9, 9))[0] | np.broadcast_arrays({n}, {m})[0] | np.meshgrid({n}, {m})[0]
np.unique({n})[0] | np.nonzero({a} > {n})[0] | np.array([{n}], dtype=object)[0]
np.array({n}, dtype=object) | np.full(2, {n}, dtype=object) | np.isscalar({n}) | np.ndim({n})
np.result_type({n}) | np.stack([{n}, {m}]) | np.atleast_1d({n}) | {n}[()] | {n}[None] | {n}[...]
len({n}) | iter({n}) | {n}.flat | {n}.nope | memoryview({n}).nbytes
"""

TAKERS = """
keep({n}) | keep({n}, {m}) | keep([{n}, {m}]) | keep(k={n}) | keep(*[{n}]) | keep(**{{"k": {n}}})
keep(type({n})) | tools.json({n}) | tools.decimal({n}) | tools.fraction({n}) | tools.sqlite({n})
tools.pack("d", {n}) | tools.ctypes({n}) | tools.seconds({n}) | tools.fmean([{n}, 1.0])
tools.pickle({n}) | tools.deepcopy({n}) | tools.copy({n}) | tools.math.floor({n})
tools.math.sqrt({n}) | tools.math.isclose({n}, {m}) | tools.hex({n}) | tools.operator.add({n}, {m})
tools.operator.lt({n}, {m}) | tools.operator.index({n}) | tools.random({n})
tools.operator.neg({n}) | tools.operator.itemgetter({n})([4, 5, 6]) | tools.chr({n})
tools.pack("q", {n}) | tools.reduce(tools.operator.mul, [{n}, {m}])
list(tools.accumulate([{n}, {m}])) | list(map(type, [{n}])) | max([{n}, {m}], key=keep)
sorted([{n}, {m}], key=keep) | {{{n}: 1}} | {{1: "a", {n}: "b"}} | {{{n}, {m}}} | tools.day * {n}
{n} * tools.day | tools.day < {n} | tools.one + {n} | {n} - tools.one | tools.third * {n}
{n} / tools.third | tools.third == {n} | {n} < tools.third | tools.one == {n} | {n} == tools.one
tools.partial(keep, {n})() | [*map(keep, [{n}, {m}])] | any([{n}]) | all([{n}, {m}])
zip([{n}], [{m}]) | print({n}, file=tools.out) | tools.counter[{n}] | tools.lists[{n}]
getattr({n}, "real") | vars().get("{n}") | locals().get("{n}") | eval("{n}")
tools.format_map("{{{n}}}", locals()) | tools.isinstance({n}, float) | tools.eager + {n}
{n} + tools.eager | np.vectorize(keep)({n}) | np.frompyfunc(keep, 1, 1)({n})
np.apply_along_axis(lambda v, k: keep(k), 0, {a}, {n})
np.piecewise({a}, [{a} > 0], [lambda v, k: keep(k), 1], {n}) | other(other + {n}) | other + {n}
{n} + other | other - {n} | {n} * other | other / {n} | other // {n} | other ** {n} | {n} ** other
other @ {n} | other < {n} | {n} < other | other == {n} | {n} == other | {n} != other | other[{n}]
{n} in other | divmod(other, {n}) | divmod({n}, other) | other.method({n}) | other.field + {n}
other % {n} | other & {n} | {n} | other | other << {n} | {n} >= other | other.a[0] * {n}
other[{n}:] | other.array - {n} | ({n} - other.array).sum() | other.numbers[0] + {n}
other.numbers + [{n}]
"""

STATEMENTS = """
{t} = {n} | {t}, {u} = {n}, {m} | {t} = {u} = {n} | {t} += {n} | {t} -= {a}.sum() | {t} *= 2
other.value = {n} | other[1] = {n} | other[{n}] = 1 | real[0] = {n} | objects[0] = {n}
{a}[0] = {n} | other += {n} | keep(other) | keep(real, objects, {a}) | lists.append({n})
lists += [{n}, {m}] | lists[:] = [{n}] | table["k"] = {n} | table[{n}] = 1 | keep(lists, table)
objects[:] = {n} | objects.fill({n}) | own[0] = {n} | own.fill({n}) | own[1:] = {n} | keep(own)
del {t}; {t} = 1 | {a} = {a} + {n} | {b} = {a} - {n} | global shared; shared = {n}; keep(shared)
{t} = lambda: {n}; {t} = {t}() | objects.put(1, {n}) | own[-1] = abs({n}) | keep([{t} := {n}])
keep({t} := {n}, {t}) | real[:] = {n} | real[1] += {n} | {a} = {a} * 2 - {a}.sum()
"""

LISTS = {
    name: [piece.strip() for line in text.strip().split("\n") for piece in line.split(" | ")]
    for name, text in (
        ("makers", MAKERS), ("parts", PARTS), ("takers", TAKERS), ("statements", STATEMENTS),
    )
}  # fmt: skip

HEADER = """\
def program(np, A, B, keep, other, tools):
    lists, table, real = [], {}, tools.eager.copy()
    objects, own = np.array([None, 1, 2], dtype=object), np.array([None, 1, 2], dtype=object)
    n0 = n1 = n2 = n3 = 1
"""


class Numbers:
    """One random function."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.kind = self.draw.choice(KINDS)
        self.size = self.draw.choice(SIZES)

    def arrays(self) -> tuple[Any, Any]:
        """The two real arrays that the function is given."""
        draw = numpy.random.default_rng(self.draw.getrandbits(32))
        made = draw.integers(0, 4, (2, self.size)) + (0 if self.kind == "bool" else 0.5)
        if self.draw.random() < 0.5 and self.kind[0] == "f":
            made = made * draw.standard_normal((2, self.size))
        first, second = made.astype(self.kind)
        return (first * (1 + 2j) if first.dtype.kind == "c" else first), second

    def filled(self, name: str) -> str:
        """A piece of one of the lists."""
        names = [f"n{i}" for i in range(4)]
        draw = self.draw.choice
        pairs = {"a": draw("AAB"), "b": draw("AB"), "t": draw(names), "u": draw(names)}
        numbers = [*names, *names, f"({self.maker()})", f"abs({draw(names)} - {draw(names)})"]
        return draw(LISTS[name]).format(n=draw(numbers), m=draw(numbers), **pairs)

    def maker(self) -> str:
        """An expression that makes a number."""
        return self.draw.choice(LISTS["makers"]).format(
            a=self.draw.choice("AAB"), b=self.draw.choice("AB")
        )

    def line(self) -> list[str]:
        """One statement."""
        what = self.draw.random()
        name = f"n{self.draw.randrange(4)}"
        if what < 0.25:
            return [f"{name} = {self.maker()}"]
        if what < 0.4:
            return [f"keep({self.filled('parts')})"]
        if what < 0.5:
            return [f"{name} = {self.filled('parts')}"]
        if what < 0.75:
            return [f"keep({self.filled('takers')})"]
        if what < 0.9:
            return self.filled("statements").split("; ")
        return self.block()

    def block(self) -> list[str]:
        """Statements in a loop, a branch, or others."""
        inner = [line for _ in range(self.draw.randint(1, 3)) for line in self.line()]
        name = f"n{self.draw.randrange(4)}"
        head, tail = self.draw.choice([
            ("for i in range(2):", []),
            (f"for {name} in [{self.maker()}, 2]:", []),
            (f"if {name} > 1:", ["else:", f"    {name} = 2"]),
            ("try:", ["except Exception as error:", "    keep(type(error))"]),
            ("try:", ["finally:", f"    keep({name})"]),
            ("with np.errstate(all='ignore'):", []),
            (f"while {name} is None:", []),
            (f"if ({name} := {self.maker()}) > 1:", []),
        ])  # fmt: skip
        return [head, *(f"    {line}" for line in inner), *tail]

    def lines(self) -> list[str]:
        """The statements of the function, but for its first and last."""
        found = [f"n{i} = {self.maker()}" for i in range(2)]
        for _ in range(self.draw.randint(3, 10)):
            piece = self.line()
            if self.draw.random() < 0.4:
                piece = [
                    "try:", *(f"    {line}" for line in piece),
                    "except Exception as error:", "    keep(type(error))",
                ]  # fmt: skip
            found += piece
        how = self.draw.choice(["return", "return", "yield"])
        last = f"{self.draw.choice(['n0', 'n1', self.maker(), self.filled('parts')])}"
        return [*found, f"{how} {last}"]


def text_of(lines: list[str]) -> str:
    """The function."""
    return HEADER + "".join(f"    {line}\n" for line in lines)


def shown(value: Any, depth: int = 0) -> Any:
    """What can be told of a value: its type first, then all that it holds."""
    kind = type(value)
    if kind in (numpy.ndarray, lazyfuse.ndarray):
        real = numpy.asarray(value)
        return "array", real.dtype, real.shape, [shown(each, depth) for each in real.ravel()]
    if kind in (list, tuple) or isinstance(value, tuple):
        return kind.__name__, [shown(each, depth + 1) for each in value]
    if kind is set:
        return "set", sorted([str(shown(each, depth + 1)) for each in value])
    if kind is dict:
        return [(shown(k, depth + 1), shown(v, depth + 1)) for k, v in value.items()]
    if isinstance(value, Iterator):
        return [shown(each, depth + 1) for each in value] if depth < 3 else kind.__name__
    if isinstance(value, type):
        return value.__name__
    if kind is bytes:  # the memory of an array of objects is addresses
        return "bytes", len(value)
    if kind.__repr__ is object.__repr__ or callable(value) or kind is Other:
        return kind.__name__
    return kind.__name__, _ADDRESS.sub("", repr(value))


_ADDRESS = re.compile(" at 0x[0-9a-f]+")


class Other:
    """Code of others, which notes what its operators get."""

    def __init__(self, keep: Any, array: Any) -> None:
        self.keep, self.array, self.numbers = keep, array, [2.0]
        self.field = datetime.timedelta(seconds=1)
        self.a = [self]

    def method(self, *values: Any) -> Any:
        self.keep(*values)
        return 3

    __call__ = __getitem__ = __setitem__ = __contains__ = method


for _name in "add sub mul truediv floordiv mod divmod pow matmul and or xor lshift rshift".split():
    setattr(Other, f"__{_name}__", Other.method)
    setattr(Other, f"__r{_name}__", Other.method)
for _name in "lt le gt ge eq ne".split():
    setattr(Other, f"__{_name}__", Other.method)


def _sqlite(value: Any) -> Any:
    with closing(sqlite3.connect(":memory:")) as database:
        return database.execute("select ?", (value,)).fetchone()


class _Out:
    def write(self, text: str) -> None: ...


def _drawn(value: Any) -> float:
    """A draw that `value` seeds, by its hash; that of a NaN is its address."""
    found = random.Random(value).random()
    return found if value == value else 0.0


def tools() -> SimpleNamespace:
    """What the function may hand its numbers to."""
    return SimpleNamespace(
        json=json.dumps, decimal=decimal.Decimal, fraction=fractions.Fraction, sqlite=_sqlite,
        pack=struct.pack, ctypes=lambda value: ctypes.c_double(value).value, chr=chr,
        seconds=lambda value: datetime.timedelta(seconds=value), fmean=statistics.fmean,
        pickle=lambda value: pickle.loads(pickle.dumps(value)), deepcopy=copy.deepcopy,
        copy=copy.copy, math=math, hex=float.hex, operator=operator, out=_Out(),
        random=_drawn, reduce=functools.reduce,
        accumulate=itertools.accumulate, partial=functools.partial, isinstance=isinstance,
        day=datetime.timedelta(days=1), one=decimal.Decimal(1), third=fractions.Fraction(1, 3),
        counter=Counter(), lists=defaultdict(list), eager=numpy.arange(3.0),
        format_map=lambda text, names: text.format(**names),
    )  # fmt: skip
