"""A fresh structure of exact operations is NumPy's until it has taken some time."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any
from weakref import ref

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse.codegen.table import ops
from lazyfuse.devices.pools import vector_math
from lazyfuse.runtime.capture import conditions
from lazyfuse.runtime.events import counters, decisions
from lazyfuse.runtime.execution import concurrency
from lazyfuse.runtime.placement import devices
from lazyfuse.runtime.scheduling import evaluate, fresh

COUNT = 50_000
DATA = np.random.default_rng(0).normal(size=COUNT)


@pytest.fixture(autouse=True)
def long_trial(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No structure takes so long, none is known, no other thread has evaluated just now, and this
    process has done more than its first evaluations.
    """
    if conditions.native is not None:
        evaluate._set_up()
    monkeypatch.setattr(concurrency, "share", 0.0)
    evaluate.clear_plans()
    fresh._spent.clear()
    with lf.options(plan_after=1_000_000, eager_below=0):
        yield


def ran(program: Any) -> tuple[Any, int, int]:
    """The result, the kernels that were launched, and the evaluations that were NumPy's."""
    counters.reset()
    found = program(lf)
    totals = counters.totals()
    return found, totals.kernels, totals.decisions[decisions.FRESH]


PROGRAMS: dict[str, Any] = {
    "map": lambda xp: xp.asarray((xp.array(DATA) * 2.0 + 1.0) / 3.0),
    "several results": lambda xp: [
        float((xp.array(DATA) * 2.0).sum()),
        float(xp.array(DATA).max()),
    ],
    "rows": lambda xp: (lambda x: x - (x * 2.0).mean(axis=1, keepdims=True))(
        xp.array(DATA).reshape(100, 500)
    ),
    "turned": lambda xp: (xp.array(DATA).reshape(100, 500).T * 2.0 + 1.0)[3:90, ::2].sum(axis=0),
    "window of a result": lambda xp: (xp.array(DATA) * 2.0)[5:40_000:3] + 1.0,
    "comparison": lambda xp: xp.where(xp.array(DATA) > 0.5, xp.array(DATA) - 1.0, 0.0),
    "part": lambda xp: ((xp.array(DATA) + 1j) + 2.0).imag.sum(),
    "element of a held result": lambda xp: (lambda x: x[5] + x[7])(xp.array(DATA) * 2.0),
    "integers": lambda xp: (xp.arange(COUNT) // 7 % 5).sum(),
    "sorted": lambda xp: xp.sort(xp.array(DATA) * 2.0) + 1.0,
    "rolled": lambda xp: xp.roll(xp.array(DATA) * 2.0, 3) + 1.0,
    "joined": lambda xp: xp.concatenate([xp.array(DATA)[5:] * 2.0, xp.array(DATA)[:5]]) - 1.0,
    "slopes": lambda xp: xp.gradient(xp.array(DATA).reshape(100, 500), axis=0).max(axis=1),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_numpys(name: str) -> None:
    expected = np.asarray(PROGRAMS[name](np))
    for limit in (1_000_000, 0):
        with lf.options(plan_after=limit):
            found = np.asarray(PROGRAMS[name](lf))
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert found.tobytes() == expected.tobytes()


@pytest.mark.skipif(conditions.native is None, reason="the native extension runs them again")
@pytest.mark.parametrize("name", PROGRAMS)
def test_later_evaluations_run_by_numpys_loops(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    by_python: list[int] = []
    run = fresh.run
    monkeypatch.setattr(fresh, "run", lambda each: by_python.append(1) or run(each))
    counters.reset()
    expected = np.asarray(PROGRAMS[name](np))
    for _ in range(5):
        found = np.asarray(PROGRAMS[name](lf))
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert found.tobytes() == expected.tobytes()
    again = counters.totals().decisions[decisions.FRESH] - len(by_python)
    assert again > 0 or name in ("turned", "part")  # held views, and orders of other kinds


def test_a_structure_is_planned_once_it_has_taken_its_time() -> None:
    def program(xp: Any) -> Any:
        return np.asarray(xp.array(DATA) * 2.0 + 1.0 - xp.array(DATA))

    expected, kernels, times = ran(program)
    assert (kernels, times) == (0, 1)
    (key,) = fresh._spent
    fresh._spent[key][0] = 1e4
    found, kernels, times = ran(program)
    assert (kernels, times) == (1, 0)
    assert found.tobytes() == expected.tobytes()
    fresh._spent.clear()  # a plan that is there is used
    assert ran(program)[1:] == (1, 0)


def test_long_evaluations_are_planned_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh, "LARGEST", 2 * COUNT)
    assert ran(lambda xp: np.asarray(xp.array(DATA) * 2.0 + 1.0 - 3.0))[1:] == (1, 0)


def test_inexact_operations_that_need_a_compiler_are_planned_at_once() -> None:
    program: Any = lambda xp: np.asarray(xp.logaddexp(xp.array(DATA), 2.0) + 1.0)
    assert ran(program)[1:] == (1, 0)


@pytest.mark.skipif(not vector_math.libmvec(), reason="functions of the C library in vectors")
@pytest.mark.skipif(conditions.native is None, reason="their loop is the native extension's")
@pytest.mark.parametrize("kind", ["f8", "f4"])
def test_inexact_operations_have_the_bits_of_kernels(kind: str) -> None:
    x, y = np.random.default_rng(1).uniform(0.01, 0.99, (2, 100, 500)).astype(kind)
    served = 0
    for row in ops.TABLE.values():
        loop = f"{np.dtype(kind).char * row.ufunc.nin}->{np.dtype(kind).char}" if row.ufunc else ""
        if row.kind != "map" or "f" in row.exact or loop not in getattr(row.ufunc, "types", ()):
            continue
        given = (x, y[:1], y[1:2])[: row.ufunc.nin]

        def program(xp: Any, row: Any = row, given: Any = given) -> Any:
            ours = [xp.array(each) for each in given]
            return np.asarray(getattr(xp, row.ufunc.__name__)(*ours) - 1)

        with np.errstate(all="ignore"):
            found, _, times = ran(program)
            with lf.options(plan_after=0):
                expected, _, never = ran(program)
        assert never == 0
        assert found.tobytes() == expected.tobytes(), row.name
        served += times
    assert served > 20


def test_updates_write_into_copies() -> None:
    def program(xp: Any) -> list[Any]:
        x = xp.array(DATA) * 2.0
        before = x + 1.0
        part = x[20:41_000]
        x[10:40_000] += x[5:39_995] * 3.0
        part *= 0.5
        return [np.asarray(each) for each in (x + 1.0, before, part, x)]

    found, kernels, singles = ran(program)
    assert kernels == 0
    assert singles > 0
    for one, other in zip(found, program(np), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_view_that_a_name_holds_has_memory_of_its_own() -> None:
    x = lf.array(DATA.reshape(100, 500)) * 2.0
    y = x.T
    z = np.asarray(y + 1.0)
    y[0, 0] = 7.0
    assert float(x[0, 0]) == 7.0
    assert z[0, 0] == DATA[0] * 2.0 + 1.0


def test_warnings_name_the_operation() -> None:
    x = np.full(COUNT, 1e308)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        np.asarray(lf.array(x) * 10.0 - 1.0)
    assert [str(each.message) for each in told] == ["overflow encountered in multiply"]


def test_no_intermediate_result_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[int] = []
    run_node = fresh.run_node
    nodes: list[Any] = []

    def watched(node: Any, spent: Any) -> int:
        bits = run_node(node, spent)
        nodes.append(ref(node))
        alive.append(sum(each() is not None for each in nodes))
        return bits

    monkeypatch.setattr(fresh, "run_node", watched)
    x = lf.array(DATA)
    for _ in range(8):
        x = x * 2.0 + 1.0
    np.asarray(x)
    assert len(alive) == 16
    assert max(alive) <= 3


def test_an_operand_that_is_not_read_again_takes_the_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[bool] = []
    run_node = fresh.run_node

    def watched(node: Any, spent: Any) -> int:
        taken.append(spent is not None)
        return run_node(node, spent)

    monkeypatch.setattr(fresh, "run_node", watched)
    x = lf.array(DATA)
    y = x * 2.0
    z = y - 1.0
    held = np.asarray((z + 3.0) * z + (z / 4.0).reshape(100, 500)[:, ::-1].ravel()[0])
    assert (
        held.tobytes()
        == (
            (DATA * 2.0 - 1.0 + 3.0) * (DATA * 2.0 - 1.0) + ((DATA * 2.0 - 1.0) / 4.0)[499]
        ).tobytes()
    )
    assert np.asarray(y).tobytes() == (DATA * 2.0).tobytes()
    assert np.asarray(z).tobytes() == (DATA * 2.0 - 1.0).tobytes()
    assert any(taken)
    assert not all(taken)


def test_random_chains_have_numpys_bits() -> None:
    generator = np.random.default_rng(7)
    for _ in range(30):
        steps = generator.integers(0, 6, 12)
        picks = generator.integers(0, 100, (12, 2))

        def program(xp: Any, steps: Any = steps, picks: Any = picks) -> Any:
            values = [xp.array(DATA), xp.array(DATA[::-1].copy()), xp.array(DATA) > 0.0]
            for step, (first, second) in zip(steps, picks, strict=True):
                a, b = values[first % len(values)], values[second % len(values)]
                if step == 0:
                    values.append(a + b * 1.0)
                elif step == 1:
                    values.append(a * 1.5 - b)
                elif step == 2:
                    values.append(xp.where(a > b, a * 1.0, b * 2.0))
                elif step == 3:
                    values.append((a * 1.0).reshape(100, 500)[:, ::-1].T.sum(axis=1).mean() + b)
                elif step == 4:
                    values.append(xp.abs(a * 1.0) - (b * 1.0)[::-1])
                else:
                    values[first % len(values)] = a * 1.0 + 1.0  # the old value is dropped
            return np.asarray(values[-1] + values[int(picks[0, 0]) % len(values)])

        expected = program(np)
        assert program(lf).tobytes() == expected.tobytes()


@pytest.mark.skipif(conditions.native is None, reason="runs are captured for the extension")
def test_numpy_goes_on_while_programs_are_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocked NumPy, which stands in for what is being compiled, may take longer than NumPy."""
    device = devices.cpu()
    x, expected = lf.array(DATA), (DATA * 2.0 - 1.0).tobytes()

    def kernels_of(looks: int) -> tuple[int, int]:
        counters.reset()
        for _ in range(looks):
            assert np.asarray(x * 2.0 - 1.0).tobytes() == expected
        return counters.totals().kernels, counters.totals().decisions[decisions.FRESH]

    with lf.options(plan_after=20):  # NumPy goes on for 10 ms, many looks on any machine
        with monkeypatch.context() as compiling:
            compiling.setattr(type(device), "compiles_ahead", lambda self: True)
            compiling.setattr(type(device.programs), "awaits", lambda self, source: True)
            compiling.setattr(counters, "awaited", lambda device, source: True)
            while not kernels_of(50)[0]:
                pass  # until it is planned
            kernels, numpys = kernels_of(300)
            assert kernels < numpys
        while kernels_of(50)[1]:
            pass  # the programs are there
        assert kernels_of(50) == (50, 0)


REDUCED = "sum max min any all mean prod count_nonzero".split()


@pytest.mark.skipif(conditions.native is None, reason="the native extension runs them again")
def test_reductions_that_come_again_have_numpys_bits() -> None:
    """From its second evaluation on C reduces, where one of NumPy's loops does."""
    draw = np.random.default_rng(3)
    for turn in range(150):
        name, dtype = str(draw.choice(REDUCED)), str(draw.choice("? i1 i4 i8 u8 f4 f8 c16".split()))
        shape = [(700,), (40, 30), (2, 90, 3), (1, 5), (3, 1, 4), (129,)][int(draw.integers(6))]
        x = draw.normal(size=shape) * 3
        if dtype[0] in "fc" and turn % 3 == 0:
            x.flat[int(draw.integers(x.size))] = [np.nan, np.inf, -np.inf, -0.0][turn % 4]
        with np.errstate(all="ignore"):
            x = x.astype(dtype)
        axis: Any = [None, 0, -1, tuple(range(len(shape)))][int(draw.integers(4))]
        named = {"axis": axis, "keepdims": bool(draw.integers(2))}

        def program(xp: Any, name: str = name, named: Any = named, x: Any = x) -> Any:
            values = xp.array(x)
            mask = values != values.ravel()[0] if name in ("any", "all") else values + values
            return xp.asarray(getattr(xp, name)(mask, **named))

        with warnings.catch_warnings(), np.errstate(all="ignore"), lf.options(eager_below=4):
            warnings.simplefilter("ignore")
            expected = program(np)
            for _ in range(3):
                np.testing.assert_array_equal(np.asarray(program(lf)), expected, strict=True)


@pytest.mark.parametrize("name", ["sum", "max", "argmax", "prod", "any"])
@pytest.mark.parametrize("axis", [None, 0])
def test_reductions_tell_of_what_they_read(name: str, axis: Any) -> None:
    """A flag of the operation below is told at each evaluation, as in NumPy."""
    x = lf.array(np.zeros((100, 50)))
    with lf.options(eager_below=1000):
        for _ in range(5):
            with pytest.warns(RuntimeWarning, match="divide by zero encountered in divide"):
                np.asarray(getattr(1.0 / x, name)(axis=axis))


@pytest.mark.skipif(conditions.native is None, reason="the native extension runs them again")
@pytest.mark.parametrize("name", ["sum", "max", "any", "count_nonzero"])
def test_common_reductions_need_no_python(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, asked = lf.array(DATA), []

    def program() -> Any:
        return np.asarray(getattr(lf, name)(x > 0.5 if name in ("any", "count_nonzero") else x * 2))

    with lf.options(eager_below=1000):
        expected = program()
        program()
        whole = fresh.one
        monkeypatch.setattr(fresh, "one", lambda *node: asked.append(node) or whole(*node))
        assert program() == expected
    assert not asked
