"""Random programs around classes derived from `ndarray`, as public packages write them.

A program defines a class, or a family of three: how it is made, what it takes along, which of the
protocols and methods it has, each of which calls its base by name or through `super()`. Then it
uses arrays of it beside plain ones: operators, ufuncs, functions, methods by every way, indexing,
copies and pickles. It runs with NumPy and with lazyfuse; what comes out is compared, with classes,
tags and which of the class's methods were called.
"""

from __future__ import annotations

import textwrap
from random import Random
from typing import Any

import numpy
import pytest

from lazyfuse import config
from tests import campaign, reached
from tests.programs.compare import Program, Statement, complain, failure

PRELUDE = """
import copy as _copy, pickle as _pickle, sys as _sys, types as _types
__name__ = "programs_of_" + np.__name__
_calls = []

def _shown(x):
    if isinstance(x, (list, tuple)):
        return [_shown(each) for each in x]
    if isinstance(x, np.ndarray):
        plain = type(x).__name__ == "ndarray"
        kind = ("foreign ", "")[type(x) is np.ndarray or x is n] if plain else ""
        real = numpy.asarray(x).ravel()
        ends = real if real.size < 100 else numpy.concatenate([real[:4], real[-4:]])
        tag = getattr(x, "tag", None)
        return kind + type(x).__name__, str(x.dtype), x.shape, repr(ends.tolist()), tag
    if isinstance(x, np.generic):
        return str(x.dtype), repr(x)
    if " at 0x" in repr(x):
        return type(x).__name__
    return type(x).__name__, repr(x)

def _outcome(x):
    found = repr((_shown(x), _calls))
    _calls.clear()
    return found
"""

MADE = (
    "self = np.asarray(data).view(cls)",
    "self = np.array(data, copy=True).view(cls)",
    "self = np.ndarray.__new__(cls, np.shape(data)); self[...] = data",
    "self = super().__new__(cls, np.shape(data), dtype=float); self[...] = data",
    "self = np.ndarray.__new__(cls, np.shape(data), buffer=np.array(data, dtype=float))",
)

FINALIZED = (
    "self.tag = getattr(source, 'tag', 'none')",
    "if source is None: return\nself.tag = getattr(source, 'tag', 'plain')",
    "{base}.__array_finalize__({self}source)\nself.tag = getattr(source, 'tag', 'none')",
    "self.tag = source.tag if isinstance(source, {name}) else 'other'",
)

UFUNC = """
def __array_ufunc__(self, ufunc, method, *inputs, out=None, **kwargs):
    known = [n for n in ("add", "subtract", "multiply", "sqrt") if getattr(np, n) is ufunc]
    _calls.append((ufunc.__name__, method, known))
    plain = [x.view(np.ndarray) if isinstance(x, {name}) else x for x in inputs]
    _calls.append([type(x) is np.ndarray for x in plain if isinstance(x, np.ndarray)])
    if out:
        kwargs["out"] = tuple([x.view(np.ndarray) if isinstance(x, {name}) else x for x in out])
    found = {call}
    if found is NotImplemented or method == "at":
        return found
    if out:
        return out[0] if len(out) == 1 else out
    if isinstance(found, tuple):
        return tuple([np.asarray(x).view({name}) for x in found])
    return {wrapped}
"""

UFUNC_CALLS = (
    "super().__array_ufunc__(ufunc, method, *plain, **kwargs)",
    "np.ndarray.__array_ufunc__(self, ufunc, method, *plain, **kwargs)",
    "getattr(ufunc, method)(*plain, **kwargs)",
)

UFUNC_RESULTS = (
    "found",
    "np.asarray(found).view(type(self))",
    "found.view({name}) if isinstance(found, np.ndarray) else found",
)

WRAP = """
def __array_wrap__(self, array, context=None, return_scalar=False):
    told = context and [n for n in ("add", "sqrt") if getattr(np, n) is context[0]]
    _calls.append(("wrap", told, type(array) is np.ndarray, return_scalar))
    {body}
"""

WRAPPED = (
    "return super().__array_wrap__(array, context, return_scalar)",
    "return np.ndarray.__array_wrap__(self, array, context, return_scalar)",
    "return array.view(type(self))",
    "return array[()] if return_scalar else {base}.__array_wrap__({self}array + 0)",
)

FUNCTION = """
def __array_function__(self, func, types, args, kwargs):
    told = [n for n in ("sum", "mean", "concatenate", "sort") if getattr(np, n) is func]
    _calls.append((func.__name__, told, [each.__name__ for each in types]))
    if func is np.sort:
        return "sorted"
    return {base}.__array_function__({self}func, types, args, kwargs)
"""

REDUCED = """
def __reduce__(self):
    made, args, state = {base}.__reduce__({own})
    return made, args, (*state, self.tag)

def __setstate__(self, state):
    self.tag = state[-1]
    {base}.__setstate__({self}state[:-1])
"""

METHOD = """
def {method}(self, *args, **kwargs):
    _calls.append({method!r})
    return {base}.{method}({self}*args, **kwargs)
"""

INDEXED = """
def __getitem__(self, key):
    found = {base}.__getitem__({self}key)
    if isinstance(found, {name}):
        found.tag = "part"
    return found
"""

OVERRIDDEN = """__add__ __contains__ __copy__ __deepcopy__ __eq__ __getitem__ __iadd__ __iter__
__len__ __lt__ __matmul__ __mul__ __neg__ __radd__ __repr__ __rsub__ __setitem__ __str__ all
argmax argsort
astype clip copy cumsum dot flatten item max mean min ravel repeat reshape round sort squeeze std
sum take tolist transpose view""".split()

OPERATIONS = """s + 1|1 + s|s + p|p + s|s * s|s - p|p - s|s / 2|s @ s.T|p @ s.T|-s|abs(s)|s == p
p < s|s > 0|divmod(s, 3)|divmod(p, s)|s ** 2|p ** 2|s.__reduce__()[0].__name__
np.ndarray.__reduce__(s)[2][1:4]|s // p|p % s|s[1:]|s[0]|s[-1]|s[p > 2]|s[s > 2]
s[[1, 0]]|s[np.array([0, 2])]|s[..., None]|s[::-1]|p[s > 2]|p[1:]|len(s)|list(s)|2.0 in s|repr(s)
str(s)|f"{s}"|float(s.ravel()[0])|bool(s.all())|isinstance(s, np.ndarray)|isinstance(p, type(s))
issubclass(type(s), np.ndarray)|type(s + p) is type(s)|s.tag|hash(s)|s.missing""".replace(
    "\n", "|"
).split("|")

FUNCTIONS = """add(s, p)|add(p, s)|add(s, p, out=s)|add(s, p, out=p)|subtract(p, 1, out=s)
sqrt(abs(s))|sqrt(abs(p))|sum(s)|sum(s, axis=0)|mean(s)|mean(s, axis=0)|max(s)|cumsum(s)
concatenate([s, p])|concatenate([p, s])|where(s > 1, s, p)|stack([s, s])|sort(s)|argsort(s)
unique(s)|clip(s, 1, 3)|clip(p, 0, s)|dot(s, s.T)|transpose(s)|reshape(s, -1)|asarray(s)
asanyarray(s)|array(s)|array(s, subok=True)|copy(s)|ones_like(s)|zeros_like(s, subok=False)
full_like(p, 2)|allclose(s, p)|add.reduce(s)|add.accumulate(s)|add.reduceat(s, [0, 2])
add.outer(s[:2], p[:2])|multiply.reduce(s, axis=0)|add.at(s, 0, 1)|maximum(s, p)|modf(s)|modf(p)
isfinite(s)|median(s)|round(s)|atleast_2d(s)|broadcast_to(s, (2, *s.shape))|split(s, 2)
take(s, [0, 1])|any(s)|argmax(s)|diff(s)|ravel(s)|expand_dims(s, 0)|flip(s)|tile(s, 2)
count_nonzero(s)|nonzero(s)|searchsorted(p.ravel(), s)|interp(s, [0, 9], [0, 1])|shape(s)
may_share_memory(s, p)|array_equal(s, p)|copyto(s, p)|copyto(p, s)|einsum("...->...", s)""".replace(
    "\n", "|"
).split("|")

METHODS = (
    """sum()|sum(axis=0, keepdims=True)|sum(out=o)|sum(0, None, v)|mean(0)|mean()|std()|min()
argmax()|argmax(axis=0, out=w)|cumsum()|copy()|copy("F")|astype("f4")|astype(int)|reshape(-1)
reshape((-1, 2))|ravel()|flatten()|transpose()|squeeze()|take([0, 1])|take(np.array([1, 0]))
repeat(2)|round(1)|clip(0, 2)|clip(0, 2, out=s)|clip(0, 2, p)|nonzero()|tolist()|item(0)
view()|view(np.ndarray)|view(type(s))|view("i8")|searchsorted(2)|searchsorted([2, 3])|argsort()
diagonal()|trace()|any()|all()|prod()|var()|conj()|byteswap()|compress([True])|fill(2)|sort()
put([0], 7)|setflags(write=True)|swapaxes(0, 0)|argpartition(1)|tobytes()|resize(s.shape)
max(axis=0)|dot(p.T)|dot(3)|choose([s, p])|getfield("f4").shape|__getitem__(0)|__setitem__(0, 5)
__getitem__(p > 1)|__setitem__(slice(1, 3), p[1:3])|__len__()|__repr__()|__str__()
__add__(1)|__add__(p)|__radd__(p)|__rsub__(2)|__iadd__(1)|__iadd__(p)|__eq__(p)|__neg__()
__lt__(p)|__matmul__(p.T)|__divmod__(2)|__contains__(1)|__copy__()|__deepcopy__({})|__bool__()
__array_wrap__(p)|__array_wrap__(np.arange(2.0))|__array_finalize__(p)
__array_ufunc__(np.add, "__call__", p, 1)|__array_ufunc__(np.add, "reduce", p)|__float__()
__array_function__(np.sum, (type(s),), (s,), {})|__array_namespace__().__name__[-0:0]|__pow__(2)
__format__("")|__index__()|__mul__(s)|__truediv__(p)|__and__(1)|__invert__()|__pos__()|__abs__()
""".strip()
    .replace("\n", "|")
    .split("|")
)

ATTRIBUTES = "T base dtype flat itemsize nbytes ndim real imag shape size strides mT".split()

STATEMENTS = """s[0] = 9|s[...] = p|s[s > 2] = 0|s[p > 2] = p[p > 2]|p[s > 1] = 3|s += 1|s *= p
p += s|p[...] = s|s -= s|s = p.view(_Kind)|s = _Kind(p)|s = p[1:].view(type(s))
p = np.asarray(s)|p = p * 2
p = s.view(np.ndarray)|s = _other.view(_Kind)|s.tag = "set"|s.shape = s.shape|p = np.sqrt(abs(p))
s.dtype = s.dtype|s.flat[0] = 3|s.real = 1|s.flat = p.ravel()[::-1]|s = s.T
p = p + s.view(np.ndarray)|s = s.copy()|s = s[:2]|s @= 1""".replace("\n", "|").split("|")

COPIES = (
    "_copy.copy(s)",
    "_copy.deepcopy(s)",
    "_copy.deepcopy([s, p, s])",
    *[f"_pickle.loads(_pickle.dumps(s, {protocol}))" for protocol in (0, 2, 4, 5)],
    "_pickle.loads(_pickle.dumps([s, p]))",
)


def base_of(random: Random, name: str) -> dict[str, str]:
    """How a method calls its base: through `super()`, or by the name of a class."""
    if random.random() < 0.4:
        return {"base": "super()", "self": "", "own": "", "name": name}
    return {"base": "np.ndarray", "self": "self, ", "own": "self", "name": name}


def protocols(random: Random, name: str, likely: float) -> list[str]:
    """Those of NumPy's protocols that a class takes part in."""
    found = []
    if random.random() < likely:
        result = random.choice(UFUNC_RESULTS).format(name=name)
        call = random.choice(UFUNC_CALLS)
        found.append(UFUNC.format(name=name, call=call, wrapped=result))
    if random.random() < likely:
        how = base_of(random, name)
        found.append(WRAP.format(body=random.choice(WRAPPED).format(**how)))
    if random.random() < likely / 2:
        found.append(FUNCTION.format(**base_of(random, name)))
    return found


def methods(random: Random, name: str) -> list[str]:
    """Methods that call those of the base."""
    found = [
        METHOD.format(method=each, **base_of(random, name))
        for each in random.sample(OVERRIDDEN, random.randint(0, 5))
    ]
    if random.random() < 0.3:
        found.append(REDUCED.format(**base_of(random, name)))
    if random.random() < 0.3:
        found.append(INDEXED.format(**base_of(random, name)))
    return found


def definition(random: Random) -> str:
    """The classes of a program; `_Kind` is the one that it uses."""
    made = random.choice(MADE)
    new = f"def __new__(cls, data, tag='made'):\n    {made}\n    self.tag = tag\n    return self\n"
    final = random.choice(FINALIZED).format(**base_of(random, "_Base"))
    final = "def __array_finalize__(self, source):\n" + textwrap.indent(final, "    ")
    alone = random.random() < 0.6
    mixed = random.random() < 0.3
    first = [new, final, *methods(random, "_Base"), *protocols(random, "_Base", 0.4 * alone)]
    mixin = ["_flavour = 1", *(protocols(random, "_Base", 0.5) if mixed else ())]
    texts = [
        _class("_Mixin", "", mixin),
        _class("_Base", "_Mixin, np.ndarray" if mixed else "np.ndarray", first),
    ]
    if alone:
        texts.append("_Kind = _Base")
    else:
        second = ["_level = 2", *methods(random, "_Kind"), *protocols(random, "_Kind", 0.4)]
        texts.append(_class("_Kind", "_Base", second))
    module = "_sys.modules[__name__] = _types.SimpleNamespace(_Base=_Base, _Kind=_Kind)"
    return "\n".join([*texts, module])


def _class(name: str, bases: str, parts: list[str]) -> str:
    return f"class {name}({bases}):\n" + textwrap.indent("\n".join(parts), "    ")


def expression(random: Random) -> str:
    """Something that is computed of a subclass's array `s` and a plain one `p`."""
    kind = random.random()
    if kind < 0.2:
        return random.choice(OPERATIONS)
    if kind < 0.45:
        return "np." + random.choice(FUNCTIONS)
    if kind < 0.52:
        return random.choice(COPIES)
    who = random.choices(["s", "p", "n"], [5, 1, 1])[0]
    if kind < 0.6:
        name = random.choice(ATTRIBUTES)
        named = f"np.ndarray.{name}.__get__({who})"
        return random.choice([named, f"{who}.{name}" if who != "n" else named])
    name, _, rest = random.choice(METHODS).partition("(")
    if random.random() < 0.4:
        return f"{who if who != 'n' else 's'}.{name}({rest}"
    return f"np.ndarray.{name}({who}, {rest}"


def inputs_of(seed: int) -> Any:
    shapes: list[tuple[int, ...]] = [(6,), (4, 4), (12,), (2, 3), (5,), (3, 5)]
    shape = [(40_000,), (200, 200)][seed % 2] if seed % 11 < 2 else shapes[seed % 6]

    def inputs() -> dict[str, Any]:
        drawn = numpy.random.default_rng(seed)
        return {f"_n{at}": drawn.integers(-3, 9, shape) / 2 for at in range(3)}

    return inputs


START = """_other = np.array(_n0); p = np.array(_n1); n = numpy.array(_n2)
s = _Kind(np.array(_n0)); o = np.zeros(())
v = np.zeros(s.shape[1:]); w = np.zeros(s.shape[1:], int)
"""


def program(seed: int) -> Program:
    """A random program."""
    random = Random(seed)
    statements = [Statement(PRELUDE), Statement(definition(random)), Statement(START)]
    for _ in range(random.randint(4, 9)):
        if random.random() < 0.25:
            statements.append(Statement(random.choice(STATEMENTS)))
        else:
            text = f"t = _outcome({expression(random)})"
            statements.append(Statement(text, "t", True))
        statements.append(Statement("t = _outcome([s, p])", "t", True))
    return Program(inputs_of(seed), statements)


@campaign.rounds(450)
def test_subclasses_are_those_of_numpy(seeds: range) -> None:
    for seed in seeds:
        below = (0, config.options.eager_below)[seed % 3 > 0]
        with config.options(eager_below=below, plan_after=0), reached.program(seed):
            made = program(seed)
            if found := failure(made):
                complain(made, found)


@pytest.mark.parametrize("seed", range(20))
def test_programs_are_python(seed: int) -> None:
    for statement in program(seed).statements:
        compile(statement.text, "<program>", "exec")
