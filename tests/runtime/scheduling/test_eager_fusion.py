"""Expressions of small arrays run as one: NumPy's bits, warnings and errors, whoever looks on.

Each program runs as a loop of the user's, since a place is learnt after some visits.
"""

from __future__ import annotations

import functools
import random
import threading
import warnings
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse.arrays.base import NATIVE
from tests import reached
from tests.campaign import rounds

pytestmark = pytest.mark.skipif(NATIVE is None, reason="expressions are C's")

TURNS = 12
"""Turns of a loop: more than it takes to learn a place."""

ARRAYS = "abcmqijfz"

EXACT = {"np.hypot": "np.add", "np.arctan2": "np.subtract", "np.exp": "np.square"}
"""Exact functions in place of others."""


def world(xp: ModuleType, seed: int, size: int) -> dict[str, Any]:
    """Arrays of a few kinds, with what raises floating-point exceptions among them."""
    draw = np.random.default_rng(seed)
    n = max(3, round(size**0.5))
    named: dict[str, Any] = {
        name: draw.integers(-6, 7, size) * 0.5 + (0.25 if name == "b" else 0.0) for name in "abc"
    }
    named |= {name: draw.random((n, n)) - 0.5 for name in "mq"}
    named |= {name: draw.integers(-9, 9, size) for name in "ij"}
    named["f"] = draw.random(size).astype("f4")
    named["z"] = draw.random(size) + 1j * draw.random(size)
    named["t"] = draw.random(size) > 0.5
    named["w"] = draw.random((size, 2))[:, 0]
    named["r"], named["v"] = draw.random(n), draw.random((n, 1))
    if seed % 3 == 0:
        named["b"][size // 2] = np.inf
    return {"np": xp, "k": 3, "s": 1.5, **{k: xp.array(v) for k, v in named.items()}}


KINDS = {
    "a": "a b c w a[::-1] s k 2.0 -0.5 3".split(),
    "a[1:]": "a[1:] b[:-1] c[1:] w[1:] s 2 b[k:][:len(a)-k+2]".split()[:-1],
    "m": "m q m.T q[::-1] r v m[k] s 0.5 2".split(),
    "m[1:-1, 1:-1]": "m[1:-1,1:-1] q[2:,1:-1] m[:-2,1:-1] q[1:-1,2:] m[1:-1,:-2] 0.25".split(),
    "i": "i j i[::-1] k 2 -3 t".split(),
    "f": "f f[::-1] 2.0 k s".split(),
    "z": "z z[::-1] 2.0 1j a".split(),
}
BINARY = "+ - * / + - * // % ** < >= == !=".split()
CALLS = "np.add np.multiply np.maximum np.minimum np.subtract np.hypot np.arctan2".split()
ALONE = "np.sqrt np.absolute np.negative np.square np.exp -".split()


def expression(draw: random.Random, kind: str, depth: int) -> str:
    """A random expression of operands of a kind."""
    if depth == 0 or draw.random() < 0.15:
        return draw.choice(KINDS[kind])
    roll = draw.random()
    if roll < 0.15:
        return f"{draw.choice(ALONE)}({expression(draw, kind, depth - 1)})"
    if roll < 0.2:
        return f"({expression(draw, kind, depth - 1)})**2"
    left, right = expression(draw, kind, depth - 1), expression(draw, kind, depth - 1)
    if roll < 0.3:
        return f"{draw.choice(CALLS)}({left}, {right})"
    return f"({left} {draw.choice(BINARY)} {right})"


def program(seed: int, strict: bool) -> str:
    """A function with a few statements in a loop.

    `strict`: warnings are errors. An error of Python's own that follows one in the same expression
    (of `2.0 >= 1j`) hides it then.
    """
    draw = random.Random(seed)
    lines = []
    for _ in range(draw.randrange(2, 6)):
        kind = draw.choice([each for each in KINDS if not strict or each != "z"])
        text = expression(draw, kind, draw.randrange(1, 4))
        form = draw.randrange(6)
        if form == 0:
            lines.append(f"out.append({text})")
        elif form == 1:
            lines.append(f"x = {text}; out.append(x)")
        elif form == 2:
            lines.append(f"{kind.partition('[')[0]} += {text}")
        elif form == 3:
            lines.append(f"{kind}[...] = {text}")
        elif form == 4:
            lines.append(f"out.append([{text}, k])")
        else:
            lines.append(f"out.append((lambda: {text})())")
    lines.append(draw.choice(["k = 4 if turn > 9 else 3", "s = 2 if turn == 8 else s", "pass"]))
    lines.append(draw.choice(["a = b if turn == 10 else a", "c, b = b, c", "pass", "a = a * 0.5"]))
    tried = "".join(f"    try: {line}\n    except Exception as e: note(e)\n" for line in lines)
    return f"for turn in range({TURNS}):\n{tried}"


def told(value: Any) -> Any:
    """What can be compared of a result."""
    if isinstance(value, list):
        return [told(each) for each in value]
    if not hasattr(value, "shape"):
        return type(value).__name__, "", (), (), repr(value)
    real = np.array(value)
    if real.dtype.kind in "fc":  # which NaN it is hangs on vectors and gaps in NumPy, too
        for part in (real.real, real.imag) if real.dtype.kind == "c" else (real,):
            part[np.isnan(part)] = np.nan
    return type(value).__name__, real.dtype, real.shape, np.asarray(value).strides, real.tobytes()


def run(
    xp: ModuleType,
    text: str,
    seed: int,
    size: int,
    inside: bool,
    strict: bool,
) -> Any:
    """What a program gives, says and leaves behind."""
    names = world(xp, seed, size)
    notes: list[str] = []
    out: list[Any] = []
    names |= {"out": out, "note": lambda e: notes.append(f"{type(e).__name__}: {e}")}
    if inside:
        inner = text.replace("\n", "\n    ")
        given = ", ".join(name for name in names if name not in ("np", "note"))
        text = f"def run({given}):\n    {inner}\n    return {', '.join(ARRAYS)}\n"
        text += f"left = run({given})"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("error" if strict else "always")
        exec(compile(text, "<program>", "exec"), names)
    arrays = names["left"] if inside else [names[name] for name in ARRAYS]
    said = [(str(each.message), each.category, each.lineno) for each in caught]
    return [told(each) for each in out], [told(each)[1:] for each in arrays], notes, said


def check(seeds: range, inside: bool) -> None:
    """Programs give what they give with NumPy."""
    for seed in seeds:
        strict = seed % 5 == 0
        text = program(seed, strict)
        size = random.Random(seed).choice([20, 600, 1000, 3000])
        expected = run(np, text, seed, size, inside, strict)
        with reached.program(seed):
            found = run(lf, text, seed, size, inside, strict)
        for what, one, other in zip(
            ("out", "left", "errors", "said"), expected, found, strict=True
        ):
            if what == "out":  # NumPy's strides of results hang on memory that it reuses
                one, other = without_strides(one), without_strides(other)
            assert one == other, f"seed {seed}, size {size}: {what}\n{text}"


@rounds(150)
@pytest.mark.parametrize("inside", [True, False], ids=["function", "module"])
def test_random_programs(seeds: range, inside: bool) -> None:
    """Values, dtypes, memory order, warnings and their lines, errors: as in NumPy."""
    check(seeds, inside)


@rounds(4, start=10**6)
@pytest.mark.usefixtures("on_cpu")
def test_random_programs_compiled(seeds: range) -> None:
    """Each expression is compiled as soon as it is met."""
    with lf.options(eager_compile_above=1):
        NATIVE.expressions_forget()
        check(seeds, True)
    NATIVE.expressions_forget()


def without_strides(found: list[Any]) -> list[Any]:
    return [
        without_strides(each) if isinstance(each, list) else (each[1], each[2], each[4])
        for each in found
    ]


# ------------------------------------------------------------------------------ that it is done


def runs(text: str, **names: Any) -> int:
    """How many expressions of a text ran as one, in one of its turns."""
    code = compile(text, "<watched>", "exec")
    names = {"np": lf, **names}
    for _ in range(TURNS):
        before = NATIVE.expressions_ran()
        exec(code, names)
    return int(NATIVE.expressions_ran() - before)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = a*b + c", 1),
        ("x = 0.5 * (a[1:] + b[:-1])", 1),
        ("x = np.sqrt(a*a + b*b)", 1),
        ("x = np.exp(a*0 - b*0) * 2 + c", 2),  # exp is no exact loop
        ("x = np.maximum(a, b) * 2", 1),
        ("x = np.multiply(a, b, c) * 2", 0),  # writes to c
        ("x = (a*b) + np.add(b, c, a)", 0),
        ("x = [a*b]", 0),
        ("x = len(a*b)", 0),
        ("x = a*b + len(c)", 0),
        ("x = (a*b)[0] + c", 0),
        ("x = a*b if k else a", 0),
        ("x = (y := a*b) + c", 0),
        ("x = a*b + o.v", 1),
        ("x = a*b + o.property", 0),
        ("x = -a**2 + c", 1),
        ("x = a*2 > b", 1),
        ("x = sum([a, b, c]) * 2", 0),
        ("x = a*b + (\n   c*2)", 0),  # a warning names its line
        ("x = (a*b +\n   c) * (a - b)", 1),
        ("x = (lambda: a*b + c)()", 1),
        ("x = a*b + h(c)", 0),
    ],
)
def test_what_runs_as_one(text: str, expected: int) -> None:
    class Owner:
        def __init__(self) -> None:
            self.v = 3.0

        @property
        def property(self) -> float:
            return 3.0

    a, b, c = (lf.arange(600.0) + each for each in range(3))
    assert runs(text, a=a, b=b, c=c, k=1, o=Owner(), h=lambda x: x) == expected


# ------------------------------------------------------------------------------- other code


class Guest:
    """Operands of other code: they write to what the program reads, and note what they meet."""

    __array_ufunc__ = None

    def __init__(self, array: Any) -> None:
        self.array = array
        self.met: set[str] = set()

    def _write(self, other: Any) -> Any:
        self.met.add(type(other).__name__)
        self.array[3:9] += 1.0
        return other

    __add__ = __radd__ = __mul__ = __rmul__ = __sub__ = __rsub__ = __getitem__ = _write
    __lt__ = __gt__ = __le__ = __ge__ = _write

    @property
    def number(self) -> float:
        self.array[5:] *= 2.0
        return 2.0


def bits(x: Any) -> Any:
    """The bytes of an array, or of each of several."""
    if isinstance(x, list) or x.dtype == object:
        return [bits(each) for each in np.asarray(x, object).ravel()]
    return np.asarray(x).tobytes()


GUESTS = """
x = a*b + g
x = g + a*b
x = (a + b) * g * (a - c)
x = a*b + g[a]
x = a*b + g.number
x = a*b - h(a) * c
x = a*2 + (lambda: g + a)() * 3
x = a*b < g
x = a*b + sum([a, g, c])
x = np.sqrt(abs(a*b)) + o*2 + c
x = a*b + [g + a for _ in range(2)][0]
x = o*2 + o
x = a*b + reduce(np.add, [a, b, c])
"""


@pytest.mark.parametrize("line", GUESTS.strip().splitlines())
def test_no_other_code_meets_what_waits(line: str) -> None:
    results = []
    for xp in (np, lf):
        a, b, c = (xp.array(np.arange(600.0) + each) for each in range(3))
        guest = Guest(a)

        def h(x: Any, a: Any = a) -> Any:
            a += 1.0
            return x

        inner = np.empty(2, object)
        inner[:] = [a, b]
        names = {
            "np": xp, "a": a, "b": b, "c": c, "g": guest, "h": h, "o": inner[:1],
            "reduce": functools.reduce,
        }  # fmt: skip
        code, out = compile(line, "<guest>", "exec"), []
        for _ in range(TURNS):
            exec(code, names)
            out.append(bits(names["x"]))
        results.append((out, a.tobytes(), {each.replace("numpy.", "") for each in guest.met}))
    assert results[0] == results[1]


def test_names_that_change_their_kind() -> None:
    """Each turn looks at what the names are now."""
    kinds = [2.0, 3, np.float64(2.5), np.arange(600.0), lf.arange(600.0), True, None, "text", [1.0]]

    def loop(xp: ModuleType, a: Any, b: Any) -> list[Any]:
        out: list[Any] = []
        for turn in range(40):
            c = kinds[turn % len(kinds)] if turn > 10 else b
            if xp is np and isinstance(c, lf.ndarray):
                c = np.asarray(c)
            try:
                out.append(np.asarray(a * 2 + c * b).tobytes())
            except TypeError as error:
                out.append(str(error).replace("numpy.ndarray", "ndarray"))
        return out

    expected = loop(np, np.arange(600.0), np.arange(600.0) + 1)
    assert loop(lf, lf.arange(600.0), lf.arange(600.0) + 1) == expected


def test_large_and_pending_arrays_beside() -> None:
    """Large arrays are recorded; small parts of them are read at once."""

    def loop(xp: ModuleType) -> bytes:
        large = xp.array(np.arange(60_000.0).reshape(100, 600))
        small = xp.arange(600.0)
        total = xp.zeros(600)
        for k in range(30):
            total = total + (small * 2 - large[k % 100] * 0.5) * (large[:, k].sum() + 1)
            large[k] = small * k + large[k + 1] * 2
            if k % 7 == 0:
                large = large * 1.5 + large[::-1]
        return np.asarray(total).tobytes() + np.asarray(large).tobytes()

    assert loop(np) == loop(lf)


def test_error_states_of_all_kinds() -> None:
    a, b = np.arange(600.0) - 5, np.arange(600.0) * 0.0

    def loop(xp: ModuleType, **state: Any) -> list[Any]:
        x, y = xp.array(a), xp.array(b)
        out: list[Any] = []
        with np.errstate(**state), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(TURNS):
                try:
                    out.append(np.asarray(x / y + x * 2).tobytes())
                except FloatingPointError as error:
                    out.append(str(error))
        return [*out, *[str(each.message) for each in caught]]

    for state in ({}, {"all": "ignore"}, {"divide": "ignore"}, {"all": "raise"}, {"under": "warn"}):
        assert loop(np, **state) == loop(lf, **state), state


def test_nothing_waits_where_it_is_switched_off() -> None:
    a = lf.arange(600.0)
    with lf.options(eager_fusion=False):
        NATIVE.expressions_forget()
        for _ in range(TURNS):
            x = a * 2 + a
    assert np.asarray(x).tolist() == (np.arange(600.0) * 3).tolist()


def test_threads() -> None:
    """Many threads at the same places."""
    wrong: list[int] = []

    def work(number: int) -> None:
        a, b = lf.arange(5000.0) + number, lf.arange(5000.0)
        expected = (np.arange(5000.0) + number) * 2 + np.arange(5000.0) - 1.0
        for _ in range(200):
            x = a * 2 + b - 1.0
            if not np.array_equal(np.asarray(x), expected):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(each,)) for each in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong
