"""Tests of arguments in front of functions: nothing else about the functions changes."""

from __future__ import annotations

import asyncio
import inspect
import pickle
import random
import sys
import traceback
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest

from lazyfuse.interop import entrance_code


class Ours:
    """Stands for a type that is converted."""


class Forbids(type):
    def __hash__(cls) -> int:
        raise RuntimeError("no hashes here")


class Shown(Ours):
    def __repr__(self) -> str:
        return "Shown()"


class Unhashable(metaclass=Forbids):
    pass


def convert(value: Any) -> Any:
    return "converted" if isinstance(value, Ours) else value


def any_of(values: Any) -> bool:
    return any(isinstance(value, (Ours, Unhashable)) for value in values)


SUSPECTS = entrance_code.Suspects(
    frozenset((Ours, Shown)),
    convert,
    any_of,
    lambda named: any_of(named.values()),
    lambda values: tuple(map(convert, values)),
    lambda named: {name: convert(value) for name, value in named.items()},
)


def entered(function: Any, skipped: int = 0) -> Any:
    entrance_code.add(function, SUSPECTS, skipped)
    return function


def test_every_kind_of_parameter_is_converted() -> None:
    @entered
    def function(
        a: Any, /, b: Any = None, c: Any = "x", *d: Any, e: Any = 1.5, f: Any, **g: Any
    ) -> Any:
        return a, b, c, d, e, f, g, (lambda: (b, g))()

    x, y = Ours(), "converted"
    assert function(1, f=2) == (1, None, "x", (), 1.5, 2, {}, (None, {}))
    found = function(x, x, x, 3, x, e=x, f=x, g=x, h=4)
    assert found == (y, y, y, (3, y), y, y, {"g": y, "h": 4}, (y, {"g": y, "h": 4}))
    assert str(inspect.signature(function)).startswith("(a: 'Any', /, b: 'Any' = None")


def test_a_function_is_entered_once() -> None:
    def function(a: Any) -> Any:
        return a

    entered(function)
    code = function.__code__
    assert entered(function).__code__ is code
    assert hash(code) == hash(function.__code__)


def test_instances_and_what_goes_to_the_user_are_left_alone() -> None:
    def method(self: Any, x: Any, args: Any = ()) -> Any:
        return self, x, args

    def index(self: Any, args: Any) -> Any:
        return args

    x = Ours()
    assert entered(method, 1)(x, x, x) == (x, "converted", x)
    assert entered(index, 1)(x, x) == "converted"


def test_generators_coroutines_and_closures() -> None:
    @entered
    def generate(a: Any) -> Any:
        try:
            yield a
        except ValueError:
            yield "caught", a

    @entered
    async def wait(a: Any) -> Any:
        return a

    made = generate(Ours())
    assert next(made) == "converted"
    assert made.throw(ValueError) == ("caught", "converted")
    assert asyncio.run(wait(Ours())) == "converted"
    made.close()
    outer = "outer"
    assert entered(lambda a: (a, outer))(Ours()) == ("converted", "outer")


def test_hundreds_of_parameters() -> None:
    names = ", ".join(f"p{i}={i % 3}" for i in range(300))
    space: dict[str, Any] = {}
    exec(f"def function({names}): return [{', '.join(f'p{i}' for i in range(300))}]", space)
    function = entered(space["function"])
    assert function() == [i % 3 for i in range(300)]
    assert function(p299=Ours(), p7=Ours()) == [
        "converted" if i in (7, 299) else i % 3 for i in range(300)
    ]


def test_classes_that_may_not_be_looked_up() -> None:
    @entered
    def function(a: Any, b: Any = None, *c: Any) -> Any:
        return a, b, c

    odd = Unhashable()
    assert function(odd, Ours(), odd, Ours()) == (odd, "converted", (odd, "converted"))


def test_what_a_conversion_raises_is_raised_once() -> None:
    calls: list[Any] = []

    def fail(value: Any) -> Any:
        calls.append(value)
        raise KeyboardInterrupt

    def function(a: Any, b: Any = 1) -> Any:
        try:
            return a
        finally:
            calls.append("body")

    entrance_code.add(function, SUSPECTS._replace(convert=fail))  # type: ignore[arg-type]
    x = Ours()
    with pytest.raises(KeyboardInterrupt) as told:
        function(x)
    assert calls == [x]
    assert [frame.name for frame in traceback.extract_tb(told.tb)][1:] == ["function", "fail"]


def test_frames_lines_and_references_are_as_they_were() -> None:
    @entered
    def function(a: Any, b: Any = None) -> Any:
        counted = sys.getrefcount(a)
        frame = sys._getframe()
        assert frame.f_back is not None
        return counted, frame.f_lineno - frame.f_code.co_firstlineno, frame.f_back.f_code.co_name

    def same(a: Any, b: Any = None) -> Any:
        return sys.getrefcount(a)

    value = object()
    usual = same(value)
    counted, line, name = function(value)
    assert (line, name) == (5, "test_frames_lines_and_references_are_as_they_were")
    assert counted == usual
    assert [x[2] for x in function.__code__.co_lines()][-1] is not None
    assert len(list(function.__code__.co_positions())) == len(function.__code__.co_code) // 2


BODIES = """
    total = []
    for x in (1, 2):
        try:
            total.append(len(str({0})) // x)
            if x == 2:
                raise ValueError({1!r})
        except (ValueError, TypeError) as error:
            total.append((type(error).__name__, error.__traceback__.tb_lineno))
        finally:
            total.append(x)
    with memoryview(b"ab") as view:
        total.append(bytes(view))
    return total, [repr(y) for y in ({0}, {2})], (lambda: {2})()
"""


@pytest.mark.parametrize("seed", range(40))
def test_random_functions_do_what_they_did(seed: int) -> None:
    """Signatures at random, with handlers, loops and shared parameters behind the tests."""
    rng = random.Random(seed)
    source, names = _random_source(rng)
    plain, tested = _compiled(source), entered(_compiled(source))
    assert inspect.signature(plain) == inspect.signature(tested)
    for _ in range(4):
        args, named = _random_call(rng, plain)
        left = plain(*map(convert, args), **{k: convert(x) for k, x in named.items()})
        assert tested(*args, **named) == left, (source, names)


def _random_source(rng: random.Random) -> tuple[str, list[str]]:
    names = [f"p{i}" for i in range(rng.randint(1, 6))]
    given = rng.randint(0, len(names))
    parts = [
        name if i < given else f"{name}={rng.choice(('None', '1', 'True', '2.5', repr('x'), '()'))}"
        for i, name in enumerate(names)
    ]
    split = rng.randint(0, len(parts))
    star = rng.choice(("*", "*rest"))
    if split < len(parts) or star == "*rest":
        parts.insert(split, star)
    if rng.random() < 0.5:
        parts.append("**more")
    body = BODIES.format(rng.choice(names), rng.choice(names), rng.choice(names))
    return f"def function({', '.join(parts)}):{body}", names


def _compiled(source: str) -> FunctionType:
    space: dict[str, FunctionType] = {}
    exec(source, space)
    return space["function"]


def _random_call(rng: random.Random, function: Callable[..., Any]) -> tuple[list[Any], Any]:
    values = lambda: rng.choice((Shown(), 1, "x", None, 2.5, [1]))
    args, named = [], {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            args += [values() for _ in range(rng.randint(0, 2))]
        elif parameter.kind is parameter.VAR_KEYWORD:
            named |= {f"extra{i}": values() for i in range(rng.randint(0, 2))}
        elif parameter.kind is parameter.KEYWORD_ONLY:
            if parameter.default is parameter.empty or rng.random() < 0.5:
                named[name] = values()
        elif parameter.default is parameter.empty or len(args) < 3:
            args.append(values())
    return args, named


def public(a: Any) -> Any:
    return a


def test_functions_pickle_as_before() -> None:
    entered(public)
    assert pickle.loads(pickle.dumps(public)) is public
