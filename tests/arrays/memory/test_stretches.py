"""Expressions on memory of other code, which other code writes to at any point: as in NumPy.

Random programs in the user's own text: what may run between two operations stands in it.
"""

from __future__ import annotations

import _thread
import functools
import operator
import random
import signal
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse.arrays import stretches
from lazyfuse.arrays.base import NATIVE
from tests.campaign import rounds

N = 96
"""Elements: more than NumPy does at once with the options of these tests."""

pytestmark = [
    pytest.mark.skipif(NATIVE is None, reason="stretches are C's"),
    pytest.mark.usefixtures("on_cpu"),
]


@pytest.fixture
def open_operations(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The operations after which an expression stayed open."""
    found: list[Any] = []

    follow = stretches._next

    def watched(*args: Any) -> Any:
        step = follow(*args)
        if step is not None:
            found.append(step)
        return step

    monkeypatch.setattr(stretches, "_next", watched)
    with lf.options(eager_below=2, compile_after=1000):
        yield found
    assert not stretches._open.private


class Writer:
    """An operand whose operators write to the memory that the program reads."""

    __array_ufunc__ = None

    def __init__(self, outside: list[Any]) -> None:
        self.outside = outside

    def _write(self, other: Any) -> Any:
        for real in self.outside:
            real += 1
        return other

    __add__ = __radd__ = __mul__ = __rmul__ = __sub__ = __rsub__ = _write
    __lt__ = __gt__ = __le__ = __ge__ = _write


def world(xp: ModuleType) -> dict[str, Any]:
    """What a program sees: arrays over memory that it, too, holds from outside."""
    outside = [np.arange(N) % 7 + k for k in range(3)]
    outside[1] = outside[1].astype(float)
    outside[2] = np.repeat(outside[2].astype(float), 2)[::2]
    a, b, c = map(xp.asarray, outside)

    def poke(value: Any = 2) -> Any:
        outside[0][3:9] += 5
        outside[1][:] = outside[1][::-1] + 1
        outside[2][::3] = 4
        return value

    def series(*values: Any) -> Iterator[Any]:
        for value in values:
            yield value
            poke()
            yield value

    class Holder:
        @property
        def array(self) -> Any:
            poke()
            return a

    names = {"np": xp, "functools": functools, "operator": operator, "series": series, "poke": poke}
    names |= {"a": a, "b": b, "c": c, "A": outside[0], "B": outside[1], "w": Writer(outside)}
    names["o"] = xp.asarray(np.array([Writer(outside)] * N, dtype=object))
    names["f"] = xp.frompyfunc(poke, 1, 1)
    return names | {"h": Holder(), "short": xp.asarray(np.ones(5)), "k": 3}


def expression(draw: random.Random, depth: int) -> str:
    """A random expression; some of its parts write to what others read."""
    if depth == 0:
        rare = [
            "poke()",
            "w",
            "(o * 2)",
            "(f(a) * 1.0)",
            "h.array",
            "(t := a)",
            "A",
            "poke(b)",
            "short",
        ]
        return draw.choice(["a", "b", "c", "a", "b", "t", "2", "k", "1.5", draw.choice(rare)])

    def sub() -> str:
        return expression(draw, depth - 1 - draw.randrange(2) if depth > 1 else 0)

    kind = draw.randrange(14)
    if kind < 6:
        return f"({sub()} {draw.choice(['+', '-', '*', '+', '-', '*', '<', '>='])} {sub()})"
    if kind == 6:
        return f"(-{sub()})"
    if kind == 7:
        name = draw.choice(["negative", "abs", "square", "sign"])
        return f"np.{name}({sub()})"
    if kind == 8:
        return f"np.{draw.choice(['maximum', 'add', 'subtract', 'multiply'])}({sub()}, {sub()})"
    if kind == 9:
        return f"np.where({sub()} > 3, {sub()}, {sub()})"
    if kind == 10:
        method = draw.choice(["max()", "min(axis=0)", "sum()", "any()"])
        return f"np.asarray({sub()}).{method}" if draw.random() < 0.3 else f"({sub()} * a).{method}"
    return draw.choice(
        [
            "({0} if k > 2 else {1})", "[{0}, {1}][0]", "({0}, {1})[1]", "(t := {0} * {1})",
            "(lambda x: x + {0})({1} * 2)", "poke({0} * {1})", "({0} * a)[::-1]",
            "(np.clip({0}, 0, 5, out=a) + {1})", "(({0} * a) + np.negative({1}, out=b))",
            "(functools.reduce(operator.add, series({0}, {1})) * b)", "(sum([{0}, {1}, a]) * b)",
            "(operator.mul({0}, a) + {1})", "(a[1:] - {0})[::2].max()", "(b[k:] - b[:-k] * {0})",
            "(a[2:] * a[:-2] - a[1:-1])", "sorted([1, 2], key=lambda n: poke(n))[0]",
        ]
    ).format(sub(), sub())  # fmt: skip


def program(seed: int) -> str:
    draw = random.Random(seed)
    lines = ["t = a"]
    for number in range(draw.randint(2, 5)):
        line = f"r{number} = {expression(draw, draw.randint(1, 4))}"
        kind = draw.randrange(6)
        if kind == 0:
            lines += ["try:", f"    {line}", "except Exception as error:",
                      f"    poke(); r{number} = type(error).__name__"]  # fmt: skip
        elif kind == 1:
            lines += [f"for t in (a, b * 2, a - b): {line}"]
        else:
            lines.append(line)
        if draw.random() < 0.4:
            lines.append(draw.choice(["poke()", "A *= 2", "B[:] = 1", "a += 1", "b[2:5] = 0"]))
    names = ", ".join(f"r{n}" for n in range(5) if any(f"r{n} =" in line for line in lines))
    body = "\n".join(f"    {line}" for line in lines)
    if draw.random() < 0.5:
        return (
            f"def main(a, b, c, k, w):\n{body}\n    return [{names}]\nfound = main(a, b, c, k, w)"
        )
    return "\n".join([*lines, f"found = [{names}]"])


def outcome(text: str, xp: ModuleType) -> Any:
    names = world(xp)
    try:
        exec(compile(text, "<program>", "exec"), names)
    except Exception as error:
        return type(error).__name__, [np.array(names[each]) for each in ("A", "B")]
    return [shown(x) for x in (*names["found"], names["A"], names["B"])]


def shown(x: Any) -> Any:
    """A result by its values; writers differ between the worlds."""
    if isinstance(x, (str, Writer)):
        return x if isinstance(x, str) else "writer"
    real = np.array(x)
    if real.dtype == object:
        return [shown(each) for each in real.ravel()]
    return real


def same(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, (list, tuple)):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(theirs, np.ndarray):
        return bool(np.array_equal(ours, theirs) and np.asarray(ours).dtype == theirs.dtype)
    return bool(ours == theirs)


@pytest.mark.filterwarnings("ignore")
@rounds(400)
def test_random_programs_with_writes_at_any_point(seeds: range, open_operations: list[Any]) -> None:
    for seed in seeds:
        text = program(seed)
        theirs = outcome(text, np)
        assert same(outcome(text, lf), theirs), f"seed {seed}\n{text}"
    assert len(open_operations) > len(seeds)


def test_an_interrupted_expression_is_forgotten(
    monkeypatch: pytest.MonkeyPatch, open_operations: list[Any]
) -> None:
    real = np.arange(float(N))
    x = lf.asarray(real)

    def compute() -> Any:
        return lf.exp(x * 0.5) + x * 2.0

    wanted = np.exp(real * 0.5) + real * 2.0
    assert np.allclose(compute(), wanted)
    follow = stretches._next

    def interrupted(*args: Any) -> Any:
        step = follow(*args)
        if step is not None and args[0].f_code is compute.__code__:
            _thread.interrupt_main()
        return step

    with monkeypatch.context() as patched:
        patched.setattr(stretches, "_next", interrupted)
        with pytest.raises(KeyboardInterrupt):
            compute()
    real += 1.0
    opened = len(open_operations)
    assert np.allclose(compute(), np.exp(real * 0.5) + real * 2.0)
    assert len(open_operations) > opened


def test_handlers_of_signals_find_an_expression_open(
    monkeypatch: pytest.MonkeyPatch, open_operations: list[Any]
) -> None:
    real, other = np.arange(float(N)), np.arange(float(N)) * 3.0
    x, y = lf.asarray(real), lf.asarray(other)
    seen: list[Any] = []

    def handler(*_: Any) -> None:
        seen.append(np.asarray(lf.exp(y * 0.25) - y).copy())
        real[:] = 7.0

    def compute() -> Any:
        return (x * 2.0) * (lf.exp(x * 0.5) + x)

    follow = stretches._next

    def visited(*args: Any) -> Any:
        step = follow(*args)
        if args[0].f_code is compute.__code__ and len(seen) < 3:
            signal.raise_signal(signal.SIGUSR1)
        return step

    monkeypatch.setattr(stretches, "_next", visited)
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        results = [np.asarray(compute()).copy() for _ in range(4)]
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(seen) >= 3
    for each in seen:
        assert np.allclose(each, np.exp(other * 0.25) - other)
    assert np.allclose(results[-1], 14.0 * (np.exp(3.5) + 7.0))


def test_threads_with_a_lock(open_operations: list[Any]) -> None:
    real = np.zeros(N)
    x = lf.asarray(real)
    lock = threading.Lock()
    wrong: list[Any] = []

    def write() -> None:
        for turn in range(200):
            with lock:
                real[:] = turn

    def read() -> None:
        for _ in range(200):
            with lock:
                found = np.asarray((x * 2.0 + 1.0) * x - x)
            if found.min() != found.max():
                wrong.append(found)

    threads = [threading.Thread(target=each) for each in (write, read, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert open_operations
