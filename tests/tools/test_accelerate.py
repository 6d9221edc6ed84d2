"""`accelerate`: functions written for NumPy, unedited, with numpy arrays on both sides."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.linalg import norm

import lazyfuse
from lazyfuse import accelerate
from lazyfuse.errors import UnsupportedError

Array = np.ndarray[Any, np.dtype[Any]]
N = 40_000
SCALE = 3.0
seen: list[type] = []
TABLE = np.arange(float(N))
counter = 0

pytestmark = pytest.mark.parametrize("n", [7, N], ids=["small", "large"])


def helper(x: Any) -> Any:
    seen.append(type(x))
    return np.exp(-x) * SCALE


def chain(x: Any, y: Any) -> Any:
    seen.append(type(x))
    return helper(x) + np.where(x > y, x, np.sqrt(y)) / norm(y)


def arrays(n: int) -> tuple[Array, Array]:
    generator = np.random.default_rng(3)
    return generator.random(n), generator.random(n)


def same(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, (tuple, list)):
        assert len(found) == len(expected)
        for mine, theirs in zip(found, expected, strict=True):
            same(mine, theirs)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        same(list(found.values()), list(expected.values()))
    elif isinstance(expected, (np.ndarray, np.generic)):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    else:
        assert found == expected


def check(function: Callable[..., Any], *args: Any) -> Any:
    """The same result, and the same changes to the arguments."""
    theirs = [value.copy() if isinstance(value, np.ndarray) else value for value in args]
    expected = function(*theirs)
    found = accelerate(function)(*args)
    same(found, expected)
    same(list(args), theirs)
    return found


def test_functions_helpers_and_names_are_replaced(n: int) -> None:
    x, y = arrays(n)
    check(chain, x, y)
    assert seen[-2:] == [lazyfuse.ndarray, lazyfuse.ndarray]
    seen.clear()
    chain(x, y)
    assert seen == [np.ndarray, np.ndarray]
    assert accelerate(chain).__name__ == "chain"


def test_results_of_every_shape(n: int) -> None:
    class Pair(NamedTuple):
        first: Any
        second: Any

    def several(x: Any) -> Any:
        total = x.sum()
        return x + 1, [total, x[:2] * 2], {"a": x * 3, "b": None}, Pair(x - 1, "text"), 5, x.mean()

    x, _ = arrays(n)
    found = check(several, x)
    assert isinstance(found[0], np.ndarray)
    assert isinstance(found[5], np.float64)
    assert np.shares_memory(found[0], found[0])


def test_writes_into_arguments_are_seen(n: int) -> None:
    def write(x: Any, y: Any) -> Any:
        x[1:] = x[:-1] * 2
        x += y
        before = x * 1.0
        np.multiply(x, 2.0, out=y)
        x[...] = 0.5
        x[::3] = before[::3]
        y[y > 1.0] = 1.0
        return before

    check(write, *arrays(n))


def test_writes_through_views_and_to_parts(n: int) -> None:
    def write(x: Any) -> Any:
        middle = x[1:-1]
        middle *= 3.0
        return x[2:].sum()

    x, _ = arrays(n)
    whole = np.repeat(x, 2)
    part = whole[::2]
    check(write, part)
    expected = np.repeat(x, 2)
    write(expected[::2])
    np.testing.assert_array_equal(whole, expected)


def test_arguments_come_back_as_themselves(n: int) -> None:
    @accelerate
    def fill(out: Any, value: Any) -> Any:
        out += value
        return out, [out]

    x, _ = arrays(n)
    first, (second,) = fill(x, 2.0)
    assert first is x
    assert second is x


def test_a_view_that_is_returned_shares_memory(n: int) -> None:
    @accelerate
    def tail(x: Any) -> Any:
        x *= 2.0
        x[...] = x + 1.0
        return x[1:]

    x, _ = arrays(n)
    found = tail(x)
    assert np.shares_memory(found, x)
    np.testing.assert_array_equal(found, x[1:])
    x[1] = 17.0
    assert found[0] == 17.0
    found[1] = 18.0
    assert x[2] == 18.0


def test_results_do_not_change_with_the_arguments_later(n: int) -> None:
    kept: list[Any] = []

    @accelerate
    def remember(x: Any) -> Any:
        kept.append(x * 2.0)
        return x + 1.0

    x, _ = arrays(n)
    expected = x + 1.0, x * 2.0
    found = remember(x)
    x[:] = -1.0
    np.testing.assert_array_equal(found, expected[0])
    np.testing.assert_array_equal(np.asarray(kept[0]), expected[1])


def test_arguments_that_overlap(n: int) -> None:
    def shift(a: Any, b: Any) -> Any:
        a[:] = b * 2.0
        return b.sum()

    x, _ = arrays(n)
    y = x.copy()
    expected = shift(y[1:], y[:-1])
    assert accelerate(shift)(x[1:], x[:-1]) == expected
    np.testing.assert_array_equal(x, y)


def test_arguments_that_are_reached_in_two_ways(n: int) -> None:
    class Solver:
        def __init__(self) -> None:
            self.u = np.arange(float(n))

        def step(self, u: Any) -> Any:
            later = u * 2.0
            self.u[...] = 1.0
            return later + u

    plain, ours = Solver(), Solver()
    expected = plain.step(plain.u)
    found = accelerate(Solver.step)(ours, ours.u)
    same(found, expected)
    same(ours.u, plain.u)
    TABLE[:] = np.arange(float(N))

    def uses_a_global(x: Any) -> Any:
        later = x + 1.0
        TABLE[...] = 0.0
        return later

    same(accelerate(uses_a_global)(TABLE), np.arange(float(N)) + 1.0)
    assert not TABLE.any()


def test_methods_and_attributes(n: int) -> None:
    class Model:
        def __init__(self, weights: Array) -> None:
            self.weights = weights
            self.history: list[Any] = []

        @accelerate
        def update(self, x: Any) -> Any:
            seen.append(type(self.weights))
            self.weights = self.weights - 0.1 * x
            self.history.append(self.weights.sum())
            return self

        @staticmethod
        @accelerate
        def double(x: Any) -> Any:
            return x * 2

    x, y = arrays(n)
    model = Model(y)
    seen.clear()
    assert model.update(x) is model
    assert seen == [lazyfuse.ndarray]
    assert type(model.weights) is np.ndarray
    assert type(model.history[0]) is np.float64
    np.testing.assert_allclose(model.weights, y - 0.1 * x)
    same(Model.double(x), x * 2)


def test_lists_and_dicts_are_the_callers_own(n: int) -> None:
    @accelerate
    def collect(into: list[Any], by_name: dict[str, Any], pairs: Any) -> Any:
        into.append(into[0] + 1.0)
        by_name["sum"] = by_name["x"].sum()
        into[0] *= 2.0
        return into, pairs[0] + pairs[1]

    x, y = arrays(n)
    values, names = [x], {"x": y}
    doubled, more, total = x * 2.0, x + 1.0, x * 2.0 + y
    result, added = collect(values, names, (x, y))
    assert result is values
    assert values[0] is x
    assert names["x"] is y
    same(values, [doubled, more])
    same(names["sum"], y.sum())
    same(added, total)


def test_closures_defaults_and_recursion(n: int) -> None:
    numpy_here, factor = np, 2.0

    def inner(x: Any, function: Any = np.add) -> Any:
        seen.append(type(numpy_here.zeros(3)))
        return function(x, numpy_here.cos(x)) * factor

    def outer(x: Any, depth: int) -> Any:
        return outer(x + inner(x), depth - 1) if depth else x

    seen.clear()
    check(outer, arrays(n)[0], 3)
    assert seen[0] is np.ndarray
    assert seen[-1] is lazyfuse.ndarray


def test_nonlocal_and_global_names_are_the_programs_own(n: int) -> None:
    calls = 0

    @accelerate
    def count(x: Any) -> Any:
        global counter, SCALE
        nonlocal calls
        calls += 1
        counter = counter + x.sum()
        return x * SCALE

    global counter, SCALE
    counter = 0
    x = np.ones(n)
    count(x)
    count(x)
    assert calls == 2
    assert counter == 2 * n
    assert isinstance(counter, np.float64)
    before = SCALE
    SCALE = 11.0
    try:
        assert count(x)[0] == 11.0
    finally:
        SCALE = before


def test_decorated_helpers_and_functions_of_functions(n: int) -> None:
    def logged(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any) -> Any:
            return function(*args)

        return wrapper

    @logged
    def softmax(x: Any) -> Any:
        seen.append(type(np.ones(2)))
        e = np.exp(x - np.max(x))
        return e / e.sum()

    def apply(function: Any, x: Any) -> Any:
        return function(x)

    def main(x: Any) -> Any:
        return apply(softmax, x)

    seen.clear()
    check(main, arrays(n)[0])
    assert seen[-1] is lazyfuse.ndarray


def test_nested_acceleration_stays_lazy_inside(n: int) -> None:
    @accelerate
    def inner(x: Any) -> Any:
        return x * 2.0

    @accelerate
    def outer(x: Any) -> Any:
        y = inner(x)
        seen.append(type(y))
        return y + 1.0

    seen.clear()
    x, _ = arrays(n)
    same(outer(x), x * 2.0 + 1.0)
    assert seen == [lazyfuse.ndarray]
    assert isinstance(inner(lazyfuse.array(x)), lazyfuse.ndarray)


def test_errors_leave_the_writes_made_before_them(n: int) -> None:
    @accelerate
    def fail(x: Any, values: list[Any]) -> None:
        x += 1.0
        values.append(x * 2.0)
        raise KeyError("after the write")

    x = np.zeros(n)
    values: list[Any] = []
    with pytest.raises(KeyError, match="after the write"):
        fail(x, values)
    np.testing.assert_array_equal(x, np.ones(n))
    same(values, [np.full(n, 2.0)])


def test_numpy_errors_come_through(n: int) -> None:
    @accelerate
    def add(x: Any, y: Any) -> Any:
        return x + y

    with pytest.raises(ValueError, match="operands could not be broadcast together"):
        add(np.ones(n), np.ones(n + 1))


def test_read_only_and_other_arrays(n: int) -> None:
    @accelerate
    def twice(x: Any) -> Any:
        return x * 2

    @accelerate
    def write(x: Any) -> Any:
        x[0] = 1

    x, _ = arrays(n)
    x.flags.writeable = False
    same(twice(x), np.asarray(x) * 2)
    with pytest.raises(ValueError, match="read-only"):
        write(x)
    for value in (x.astype(object), x.astype(">f8"), x.reshape(1, n).T, np.ma.array(x), x[::-1]):
        np.testing.assert_array_equal(twice(value), value * 2)


def test_generators(n: int) -> None:
    @accelerate
    def steps(x: Any) -> Iterator[Any]:
        for _ in range(3):
            x += 1.0
            yield x * 2.0
        return

    x = np.zeros(n)
    found = []
    for value in steps(x):
        assert type(value) is np.ndarray
        found.append((value[0], x[0]))
    assert found == [(2.0, 1.0), (4.0, 2.0), (6.0, 3.0)]


def test_functions_of_other_packages(n: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    x, _ = arrays(n)
    np.testing.assert_allclose(accelerate(stats.gmean)(x), stats.gmean(x))
    np.testing.assert_allclose(accelerate(np.linalg.norm)(x), np.linalg.norm(x))


def test_what_cannot_be_accelerated_is_refused(n: int) -> None:
    async def later() -> Any:
        yield 1

    for thing in (3, dict, later):
        with pytest.raises(UnsupportedError, match=r"\[accelerate\] .*expected a function"):
            accelerate(thing)  # type: ignore[type-var]
    assert accelerate(accelerate(chain)) is not chain


def test_generators_get_what_is_sent_and_thrown(n: int) -> None:
    def program(x: Any) -> Any:
        total = x * 0.0
        closed: list[str] = []
        while True:
            try:
                sent = yield total, closed
            except KeyError as error:
                closed.append(str(error))
            else:
                total = total + sent
                if len(closed) > 1:
                    return total * 2.0

    def drive(running: Any, x: Any) -> Any:
        found = [next(running), running.send(x), running.throw(KeyError("a"))]
        found += [running.throw(KeyError("b"))]
        with pytest.raises(StopIteration) as stop:
            running.send(x * 2.0)
        return [total for total, _ in found], found[-1][1], stop.value.value

    x, _ = arrays(n)
    same(drive(accelerate(program)(x), x), drive(program(x), x))
    ended: list[int] = []

    @accelerate
    def ends(x: Any) -> Any:
        try:
            yield x + 1.0
        finally:
            ended.append(len(x))

    running = ends(x)
    next(running)
    running.close()
    assert ended == [n]


def test_coroutines(n: int) -> None:
    import asyncio

    @accelerate
    async def program(x: Any, wait: Any) -> Any:
        later = x * 2.0
        seen.append(type(x))
        await wait(x)
        x += 1.0
        return later + x

    async def main() -> None:
        x, _ = arrays(n)
        start = x.copy()

        async def wait(inside: Any) -> None:
            await asyncio.sleep(0)
            x[:] = 5.0  # another task writes meanwhile

        seen.clear()
        found = await program(x, wait)
        assert seen == [lazyfuse.ndarray]
        same(found, start * 2.0 + 6.0)
        same(x, np.full(n, 6.0))

        async def fails(inside: Any) -> None:
            raise KeyError("inside")

        with pytest.raises(KeyError, match="inside"):
            await program(x, fails)

    asyncio.run(main())


def test_dataclasses_with_and_without_slots(n: int) -> None:
    @dataclasses.dataclass
    class Plain:
        x: Any
        parts: dict[str, Any]

    @dataclasses.dataclass(slots=True)
    class Slotted:
        x: Any
        inner: Any

    @dataclasses.dataclass(frozen=True, slots=True)
    class Frozen:
        x: Any

    @accelerate
    def step(state: Any) -> Any:
        seen.append(type(state.x))
        state.x = state.x + state.inner.x.sum()
        state.inner.x[...] = 2.0
        return state.x * 2.0, Frozen(state.x - 1.0)

    x, y = arrays(n)
    state = Slotted(x, Frozen(y))
    expected = x + y.sum()
    seen.clear()
    doubled, frozen = step(state)
    assert seen == [lazyfuse.ndarray]
    same(doubled, expected * 2.0)
    same(frozen.x, expected - 1.0)
    same(state.x, expected)
    assert state.inner.x is y
    same(y, np.full(n, 2.0))

    @accelerate
    def total(state: Any) -> Any:
        return state.x.sum() + state.parts["y"].sum()

    same(total(Plain(x, {"y": y})), x.sum() + y.sum())


def test_repeated_calls_are_the_same(n: int) -> None:
    def program(x: Any, out: Any, scale: Any, turn: int) -> Any:
        np.multiply(x, scale, out=out)
        out[turn % len(out)] = -1.0
        return out, out.sum(), x - out.mean()

    x, _ = arrays(n)
    ours = accelerate(program)
    for turn in range(3000 if n < 100 else 30):
        mine, theirs = np.zeros(n), np.zeros(n)
        found = ours(x, mine, 0.5 + turn, turn % 4)
        same(found, program(x, theirs, 0.5 + turn, turn % 4))
        assert found[0] is mine


def test_calls_on_few_elements_that_record_are_never_plain(n: int) -> None:
    @accelerate
    def table(x: Any, size: int) -> Any:
        seen.append(type(x))
        return (np.arange(size) * 2.0 + x[0]).sum()

    x = np.ones(5)
    seen.clear()
    for _ in range(20):
        same(table(x, 60_000), (np.arange(60_000) * 2.0 + 1.0).sum())
    assert seen == [lazyfuse.ndarray] * 20
