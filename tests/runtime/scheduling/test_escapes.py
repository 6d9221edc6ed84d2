"""Where numbers go: what meets code of others is NumPy's number, what only our operations take may
stay lazy.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import json
import pickle
import sqlite3
import statistics
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from types import CodeType
from typing import Any

import numpy
import pytest

import lazyfuse
from lazyfuse.arrays.base import NATIVE
from lazyfuse.arrays.scalars import numbers_stay, scalar
from lazyfuse.runtime.scheduling import escapes
from lazyfuse.runtime.scheduling.instructions import instructions
from tests.helpers.numbers_of_users import numbers_of_users  # noqa: F401  # a fixture

np = lazyfuse


def place_of_sum(code: CodeType) -> int:
    """The offset of the instruction that calls the first method `sum`."""
    steps, _ = instructions(code)
    names = [at for at, step in enumerate(steps) if step.argval == "sum"]
    return next(step.offset for step in steps[names[0] :] if step.opname.startswith("CALL"))


def found(text: str, is_script: bool = False) -> tuple[escapes.Use, ...] | None:
    """What `uses` says of `x.sum()` in the body of a function, or in a program."""
    if is_script:
        code = compile(text, "program", "exec")
    else:
        lines = "".join(f"    {line}\n" for line in text.split("\n"))
        names: dict[str, Any] = {}
        exec(f"def f(x, y, out, d):\n{lines}", names)
        code = names["f"].__code__
    return escapes.uses(code, place_of_sum(code), is_script)


STAYS = """
return x - x.sum()
s = x.sum();return x - s
s = x.sum();t = s;return x * t
return x / (x.sum() + 1)
return (x - x.min()) / (x.sum() - x.min())
a, b = x.sum(), x.max();return (x - a) / b
a, b, c, e = 1, x.sum(), x.max(), 2;return b * x
t = 0.0;t += x.sum();return y * t
if x.sum() > 3:;    y = 2 * y;return y
while (s := x.sum()) > 3:;    x -= 1
return f"{x.sum():.3f}"
x.sum()
return y[x.sum()]
return x.sum() in (1, 2)
return x.sum() is None
y = x * 2;return y[1:] - x.sum()
s = x.sum();y = s;y = x if out is None else out;return y - s
s = x.sum();for i in range(3):;    x = x * 2 - s;return x
return -x.sum() * y
return x[1:] * x.sum()
s = x.sum();assert s.dtype == x.dtype and s.shape == ();return x * s
""".strip().split("\n")

LEAVES = """
return x.sum()
return x.sum(), 1
return [x.sum()]
s = x.sum();return s
s = x.sum();t = s;return {"a": t}
s = x.sum();y += s;return y, s
d.a = x.sum()
yield x.sum()
s = x.sum();return lambda: s
global total;total = x.sum()
s = x.sum();return [s for _ in range(3)]
return x.sum().real
return x.sum() if len(d) else 1
return x.sum() is np.True_
return x.sum() in d
return [1] * x.sum()
return x.sum()[()]
s = x.sum();y = [1];return y - s
s = x.sum();for y in out:;    x = y - s;return x
s = x.sum();return eval("s")
s = x.sum();return y * s, locals()
return d[0](x.sum())
return d(*[x.sum()])
s = x.sum();return d(**{"s": s})
assert len(d), x.sum()
a, *b = x.sum(), 1, 2;return a
return (lambda s=x.sum(): s)
for s in (x.sum(), 1):;    print(s)
""".strip().split("\n")


@pytest.mark.parametrize("text", STAYS)
def test_what_only_operations_take_may_stay(text: str) -> None:
    uses = found(text.replace(";", "\n"))
    assert uses is not None
    assert {source[2] for _, source in uses} <= {"x", "y", "out", "t"}


@pytest.mark.parametrize("text", LEAVES)
def test_what_goes_elsewhere_does_not(text: str) -> None:
    assert found(text.replace(";", "\n")) is None


def kinds(text: str) -> list[tuple[str, str, str | None]]:
    """What the names of a function must be."""
    uses = found(text)
    assert uses is not None
    return [(kind, name, attribute) for kind, (_, _, name, attribute) in uses]


SUM = (escapes.FUNCTION, "x", "sum")


def test_calls_elements_and_operands_depend_on_what_the_names_are() -> None:
    assert kinds("out[1] = math.floor(d.f(x.sum()))\nd['a'] = 1\ny[0] = abs(x.sum())") == [
        SUM, (escapes.FUNCTION, "d", "f"),
    ]  # fmt: skip
    assert kinds("s = x.sum()\nout[1] = s\nnp.clip(y, a_max=s)\nprint(s)") == [
        SUM, (escapes.ELEMENTS, "out", None), (escapes.FUNCTION, "np", "clip"),
        (escapes.FUNCTION, "print", None),
    ]  # fmt: skip
    # code of others that runs in between may set what it shares
    for text in ("return f(x)[0] - x.sum()", "s = x.sum()\nf()\nreturn z - s"):
        assert (escapes.FUNCTION, "f", None) in kinds(text)
    assert found("s = x.sum()\nfor y in d:\n    pass\nreturn z - s") is None
    assert found("s = x.sum()\nfor y in d:\n    pass\nreturn d.a - s") is None
    assert kinds("return d.a.b - x.sum()") == [SUM, (escapes.OPERAND, "d", "a.b")]
    assert kinds("s = x.sum()\ny = np.sqrt(x)\nreturn y - s") == [
        SUM, (escapes.FUNCTION, "np", "sqrt"), (escapes.OPERAND, "x", None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "stays"),
    [
        ("s = x.sum()\ny = x - s", True),
        ("s = x.sum()\ndef f():\n    return s * x", True),
        ("x = d()\ns = x.sum()\ndef f():\n    return x * s", True),
        ("s = x.sum()\ndef f():\n    return x * s", False),
        ("s = x.sum()\nfor x in y:\n    z = x - s", False),
        ("s = x.sum()\ndef f():\n    return s", False),
        ("s = x.sum()\ndef f():\n    t = s\n    return x * t", False),
        ("s = x.sum()\nclass A:\n    def f(self):\n        return [s]", False),
    ],
)
def test_names_of_a_program_are_read_by_its_functions(text: str, stays: bool) -> None:
    assert (found(text, is_script=True) is not None) is stays
    assert found(text) is None if not stays else True
    code = compile(text, "cell", "exec")
    assert escapes.uses(code, place_of_sum(code), False) is None  # other cells may read them


def test_an_instruction_that_is_not_there_is_not_understood() -> None:
    assert escapes.uses(place_of_sum.__code__, 10**6, False) is None


class Keeper:
    """What the user's program has beside arrays."""

    def __init__(self) -> None:
        self.value: Any = None
        self.seen: list[Any] = []

    def keep(self, value: Any) -> Any:
        self.seen.append(value)
        return value

    __sub__ = keep


def through_attribute(x: Any, keeper: Keeper) -> Any:
    keeper.value = x.sum()
    return keeper.value


def through_method(x: Any, keeper: Keeper) -> Any:
    s = x.mean()
    keeper.keep(s)
    return x[:3] - s


def through_generator(x: Any, keeper: Keeper) -> Any:
    def each() -> Iterator[Any]:
        yield x.max()
        yield np.sqrt(x.sum())

    keeper.seen += each()
    return keeper.seen[-1] * 2


def through_closure(x: Any, keeper: Keeper) -> Any:
    s = np.dot(x, x)
    return keeper.keep(lambda: s)()


def through_element(x: Any, keeper: Keeper) -> Any:
    return keeper.keep(x[7])


def through_containers(x: Any, keeper: Keeper) -> Any:
    keeper.seen += [x.sum(), {"a": x.max()}["a"], (x.min(),)[0]]
    table = {"a": np.linalg.norm(x)}
    table["b"] = x.std() + 1
    keeper.seen += table.values()
    return table["b"]


def through_running_total(x: Any, keeper: Keeper) -> Any:
    total = 0.0
    for step in range(3):
        total += (x * step).sum()
    return keeper.keep(total)


def through_comparison(x: Any, keeper: Keeper) -> Any:
    return keeper.keep(x.sum() > 3)


def through_map(x: Any, keeper: Keeper) -> Any:
    keeper.seen += map(np.sum, [x, x * 2])
    return max(map(np.max, [x, x * 3]))


def through_abs_in_a_loop(x: Any, keeper: Keeper) -> Any:
    for _ in range(20):  # Python calls `abs` otherwise after some rounds
        keeper.keep(abs(x.max() - x.min()))
    return keeper.seen[-1]


def through_operators_of_others(x: Any, keeper: Keeper) -> Any:
    day = datetime.timedelta(days=1)
    keeper.keep(day * x.max())
    keeper.keep(x.max() * day)
    keeper.keep(fractions.Fraction(1, 2) == x.min())
    keeper.keep(2j * x.max())
    return keeper - x.sum()


def through_key(x: Any, keeper: Keeper) -> Any:
    table: dict[Any, list[int]] = collections.defaultdict(list)
    table[x.max()].append(1)
    return keeper.keep(next(iter(table)))


def through_results(x: Any, keeper: Keeper) -> Any:
    keeper.keep(divmod(x.max(), 7)[0])
    keeper.keep(np.modf(x.mean())[0])
    sums = list(map(np.sum, [x]))
    keeper.keep(sums[0])
    keeper.keep((*np.average(x, returned=True), 1)[0])
    pair = np.average(x, returned=True)
    pair += (1,)
    return keeper.keep(pair)[0]


def through_objects(x: Any, keeper: Keeper) -> Any:
    own = numpy.empty(2, object)
    s = x.sum()
    own[0] = s
    keeper.keep(np.array(s, dtype=object).tolist())
    return keeper.keep(own[0])


def through_identity(x: Any, keeper: Keeper) -> Any:
    keeper.keep((x == x).all() is np.True_)
    return x.max() is None


WAYS = [
    through_abs_in_a_loop, through_operators_of_others, through_key, through_results,
    through_objects, through_identity,
    through_attribute, through_method, through_generator, through_closure, through_element,
    through_containers, through_running_total, through_comparison, through_map,
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_numbers_that_leave_a_function_are_numpys(
    way: Callable[[Any, Keeper], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(module: Any) -> list[Any]:
        monkeypatch.setitem(globals(), "np", module)
        keeper = Keeper()
        x = module.arange(100_000) * 0.25
        result = way(x, keeper)
        return [result, *keeper.seen]

    ours, theirs = run(lazyfuse), run(numpy)
    for left, right in zip(ours, theirs, strict=True):
        if not isinstance(right, numpy.ndarray) and not callable(right):
            assert type(left) is type(right)
        if isinstance(right, tuple):
            assert list(map(type, left)) == list(map(type, right))
        if isinstance(right, datetime.timedelta):
            assert left == right
        elif not callable(right):
            numpy.testing.assert_allclose(numpy.asarray(left), right, rtol=1e-14)


def row_of(value: Any) -> Any:
    """The value after a visit to a database."""
    with closing(sqlite3.connect(":memory:")) as database:
        return database.execute("select ?", (value,)).fetchone()


TAKERS: dict[str, Callable[[Any], Any]] = {
    "decimal": decimal.Decimal,
    "fraction": fractions.Fraction,
    "timedelta": lambda s: datetime.timedelta(seconds=s),
    "statistics": lambda s: statistics.fmean([s, 1.0]),
    "json": lambda s: json.dumps({"s": s}),
    "pickle": lambda s: type(pickle.loads(pickle.dumps(s))),
    "struct": lambda s: struct.pack("d", s),
    "sqlite": row_of,
    "type": type,
    "hex": float.hex,
    "format": lambda s: "%.3f" % s,  # noqa: UP031  # the way itself is meant
}


@pytest.mark.parametrize("name", TAKERS)
def test_compiled_code_of_others_takes_our_sums(name: str) -> None:
    taker = TAKERS[name]

    def ours(x: Any) -> Any:
        s = (x * 0.5).sum()
        return taker(s)

    def at_once(x: Any) -> Any:
        return taker((x * 0.5).sum())

    x = np.arange(100_000.0)
    expected = at_once(numpy.arange(100_000.0))
    assert ours(x) == expected
    assert at_once(x) == expected


@pytest.mark.skipif(NATIVE is None, reason="C alone looks at local names")
def test_sums_that_only_arrays_take_are_computed_with_them() -> None:
    x = np.arange(100_000.0) + 1

    def centred() -> Any:
        mean = x.mean()
        return x - mean

    y = centred()
    plan = str(lazyfuse.explain(y))
    assert "mean" in plan or "add.reduce" in plan or "sum" in plan
    numpy.testing.assert_array_equal(numpy.asarray(y), numpy.arange(100_000.0) - 49_999.5)


def test_numbers_stay_lazy_wherever_they_go_if_the_user_says_so() -> None:
    def total(x: Any) -> Any:
        return x.sum()

    x = np.arange(100_000.0) + 1
    assert type(total(x)) is numpy.float64
    with lazyfuse.options(lazy_numbers=True):
        s = total(x)
        assert type(s) is scalar
    assert float(s) == 5000050000.0


PROGRAM = """
import decimal
import lazyfuse as np
x = np.arange(100_000.0)
s = x.sum()
y = x - s
t = x.max()
print(decimal.Decimal(t), y[0], type(s).__name__)
def later():
    return decimal.Decimal(s)
print(later())
"""


def test_a_program_gives_numbers_to_compiled_code(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    run = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=False)
    assert run.stdout.split() == ["99999", "-4999950000.0", "float64", "4999950000"], run.stderr
    piped = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert piped.stdout == run.stdout, piped.stderr


MODULE = """
import lazyfuse as np
x = np.arange(100_000.0)
s = x.sum()
y = x - s
"""


def test_names_of_a_module_are_read_by_others(tmp_path: Path) -> None:
    (tmp_path / "numbers_of_ours.py").write_text(MODULE)
    text = f"""
import runpy, sys
sys.path.insert(0, {str(tmp_path)!r})
import numbers_of_ours
ran = runpy.run_path({str(tmp_path / "numbers_of_ours.py")!r}, run_name="__main__")
print(type(numbers_of_ours.s).__name__, type(ran["s"]).__name__)
"""
    run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert run.stdout.split() == ["float64", "float64"], run.stderr


def test_a_call_of_ours_in_one_thread_keeps_no_number_of_another() -> None:
    def total(x: Any) -> Any:
        return x.sum()

    x = np.arange(100_000.0)
    with numbers_stay(), ThreadPoolExecutor(1) as pool:
        assert type(pool.submit(total, x).result()) is numpy.float64
        assert type(total(x)) is scalar


def test_numbers_of_parameters_wait_for_their_program() -> None:
    t = lazyfuse.parameter("t")
    x = np.arange(100_000.0)
    program = lazyfuse.freeze({"sum": (x * t).sum(), "all": x + t})
    assert float(program(t=2.0)["sum"]) == 2 * float(x.sum())
