"""Calls that come round: C records them as Python did, and asks Python where it has to."""

from __future__ import annotations

import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse import config
from lazyfuse.arrays import base
from lazyfuse.arrays.ndarray import node_of
from lazyfuse.codegen.graph.linearize import linearize
from lazyfuse.namespace import steps
from tests.global_state import settle_pending

pytestmark = pytest.mark.skipif(not base.COMPILED, reason="only the native extension follows calls")

SHAPES = [(7000,), (25, 300), (2, 50, 70)]


@pytest.fixture(autouse=True)
def from_the_first_call() -> Iterator[None]:
    with config.options(tape_after=1, eager_below=100, plan_after=0):
        yield


def followed() -> int:
    """How many calls C has done by their templates."""
    return int(base.NATIVE.steps_count()[1])


def _written(call: Callable[[Any, Any], None]) -> Callable[..., Any]:
    def program(xp: Any, x: Any, axis: Any) -> Any:
        y = x * 2
        call(xp, y)
        return y

    return program


CALLS: dict[str, Callable[..., Any]] = {
    "mean": lambda xp, x, axis: xp.mean(x, axis=axis),
    "kept mean": lambda xp, x, axis: x.mean(axis=axis, keepdims=True),
    "typed mean": lambda xp, x, axis: xp.mean(
        x, axis=axis, dtype=np.complex64 if x.dtype.kind == "c" else np.float32
    ),
    "std": lambda xp, x, axis: xp.std(x, axis=axis),
    "var of a sample": lambda xp, x, axis: xp.var(x, axis=axis, ddof=1),
    "ptp": lambda xp, x, axis: xp.ptp(x, axis=axis),
    "round": lambda xp, x, axis: xp.round(x, 2),
    "roll": lambda xp, x, axis: xp.roll(x, 3, axis),
    "clip": lambda xp, x, axis: xp.clip(x.real, -1, 1),
    "where": lambda xp, x, axis: xp.where(x.real > 0, x, 0),
    "nan_to_num": lambda xp, x, axis: xp.nan_to_num(x),
    "concatenate": lambda xp, x, axis: xp.concatenate([x[1:], x[:1]]),
    "flip": lambda xp, x, axis: xp.flip(x, axis) + 1,
    "stack": lambda xp, x, axis: xp.stack([x, x], -1)[..., 1],
    "pad": lambda xp, x, axis: xp.pad(x, 1, mode="wrap"),
    "gradient": lambda xp, x, axis: xp.gradient(x)[0],
    "diff": lambda xp, x, axis: xp.diff(x, axis=-1),
    "power": lambda xp, x, axis: x.real.astype("f8") ** 2.5 if x.size else x,
    "named out": lambda xp, x, axis: xp.multiply(x, 2, out=xp.empty_like(x)),
    "chosen elements": lambda xp, x, axis: xp.negative(x, out=xp.zeros_like(x), where=x.real > 0),
    "masked number": _written(lambda xp, y: y.__setitem__(y.real > 1, 0)),
    "part": _written(lambda xp, y: y.__setitem__(slice(1, None), y[:-1] * 3)),
    "in place": _written(lambda xp, y: y.__imul__(2)),
    "sums of rows": lambda xp, x, axis: xp.add.reduce(x, axis=0, keepdims=True) + x,
}


def key_of(x: Any) -> Any:
    """The structure of what was recorded for an array, node for node."""
    return None if getattr(x, "_eager", 0) is not None else linearize([node_of(x)]).key


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "c16"])
@pytest.mark.filterwarnings("ignore:.*power:RuntimeWarning")
def test_the_nodes_are_those_that_python_makes(name: str, dtype: str) -> None:
    random = np.random.default_rng(5)
    program = CALLS[name]
    before = followed()
    for shape in SHAPES:
        for order in ("C", "F"):
            for axis in (None, 0, len(shape) - 1):
                keys, told = [], []
                for turn in range(4):
                    a = np.asarray(random.normal(size=shape) * 9, order=order).astype(dtype)
                    x = lf.array(a) * 1
                    settle_pending()
                    with config.options(tape_after=0 if turn == 3 else 1):
                        if turn == 0:
                            for _ in range(2):
                                program(lf, x, axis)
                        found = program(lf, x, axis)
                        keys.append(key_of(found))
                    with warnings.catch_warnings(record=True) as caught:
                        warnings.simplefilter("always")
                        expected = program(np, a * 1, axis)
                    told.append([str(each.message) for each in caught])
                    shown = np.asarray(found)
                    assert (shown.dtype, shown.shape) == (expected.dtype, expected.shape)
                    np.testing.assert_allclose(shown, expected, rtol=1e-4, atol=1e-4)
                assert keys[0] == keys[1] == keys[2] == keys[3]
    # these record nothing, or more than fits
    at_once = name in ("round", "nan_to_num") and dtype in ("i4", "c16")
    assert followed() > before or at_once


def test_a_call_that_looks_at_values_is_pythons() -> None:
    a = np.arange(5000.0)
    for turn in range(6):
        x = lf.array(a + turn) * 1.0
        assert lf.count_nonzero(x > 2500.0) == np.count_nonzero(a + turn > 2500.0)
        assert lf.unique(x // 100.0).size == np.unique((a + turn) // 100.0).size
        picked = x[lf.array((a + turn) % 7 == 0)]
        np.testing.assert_array_equal(np.asarray(picked), (a + turn)[(a + turn) % 7 == 0])


def test_numbers_layouts_and_dtypes_are_other_calls() -> None:
    for turn in range(8):
        for dtype in ("f8", "f4", "i8"):
            a = (np.arange(6000).reshape(60, 100) + turn).astype(dtype)
            x = lf.array(a) * 1
            for low in (1, 2.5, True, np.float32(3), turn):
                for ours, theirs in ((x, a), (x.T, a.T), (x[::2], a[::2]), (x[:, 3:], a[:, 3:])):
                    expected = np.clip(theirs, low, 4000)
                    found = np.asarray(lf.clip(ours, low, 4000))
                    assert found.dtype == expected.dtype
                    np.testing.assert_array_equal(found, expected)


def test_operands_that_share_memory_are_other_calls() -> None:
    for turn in range(6):
        a, b = np.arange(8000.0) + turn, np.arange(8000.0) * 2
        x, y = lf.array(a) * 1.0, lf.array(b) * 1.0
        for target, source in ((x[1:], x[:-1]), (x[1:], y[:-1]), (y[1:], y[1:]), (x[:-1], x[1:])):
            lf.add(target, source, out=target)
        for target, source in ((a[1:], a[:-1]), (a[1:], b[:-1]), (b[1:], b[1:]), (a[:-1], a[1:])):
            np.add(target, source, out=target)
        np.testing.assert_array_equal(np.asarray(x), a)
        np.testing.assert_array_equal(np.asarray(y), b)


def test_warnings_come_at_each_call() -> None:
    z = lf.array(np.arange(5000) + 1j) * 1.0
    for _ in range(4):
        with pytest.warns(np.exceptions.ComplexWarning):
            z.astype("f8")
        with pytest.warns(RuntimeWarning, match="overflow"):
            lf.clip(lf.array(np.ones(5000, "f4")) * 2, 0, 1e300)


NUMBERED: dict[str, Callable[..., Any]] = {
    "clip": lambda xp, x, p, q: xp.clip(x, p, q),
    "where": lambda xp, x, p, q: xp.where(x > p, x, q),
    "one number twice": lambda xp, x, p, q: xp.clip(x, p, p),
    "function of it": lambda xp, x, p, q: xp.isclose(x, p, rtol=abs(q)),
    "out": lambda xp, x, p, q: xp.multiply(x, q, out=xp.empty_like(x)),
    "part": lambda xp, x, p, q: (lambda y: (y.__setitem__(slice(9, 60), q), y)[1])(x * 2),
    "power": lambda xp, x, p, q: abs(x) ** q,
    "nan_to_num": lambda xp, x, p, q: xp.nan_to_num(x, nan=p, posinf=q),
    "full_like": lambda xp, x, p, q: xp.full_like(x, q) + x,
}


@pytest.mark.parametrize("kind", [float, np.float64, np.float32])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("name", NUMBERED)
def test_other_numbers_are_the_same_call(name: str, dtype: str, kind: Any) -> None:
    call = NUMBERED[name]
    random = np.random.default_rng(7)
    a = random.normal(size=(20, 30)).astype(dtype)
    x = lf.array(a) * 1
    for turn in range(14):
        p, q = (kind(each) for each in random.normal(size=2))
        if turn > 10:  # powers, counts, and what float32 cannot hold
            p, q = kind(-1.0), kind((0.5, 2.0, 1e-30)[turn - 11])
        expected, found = np.asarray(call(np, a, p, q)), np.asarray(call(lf, x, p, q))
        assert found.dtype == expected.dtype
        if name == "power" or not np.array_equal(found, expected):
            np.testing.assert_allclose(found, expected, rtol=1e-6 if dtype == "f4" else 1e-14)
            assert name == "power"


LOSING: dict[str, Callable[..., Any]] = {
    "part": lambda xp, x, q: x.__setitem__(slice(1, 400), q),
    "fill": lambda xp, x, q: x.fill(q),
    "full_like": lambda xp, x, q: xp.full_like(x, q),
    "copyto": lambda xp, x, q: xp.copyto(x, q, casting="unsafe"),
    "clip": lambda xp, x, q: xp.clip(x, q, 9.3),
}


@pytest.mark.parametrize("kind", [float, np.float64, np.float32])
@pytest.mark.parametrize("dtype", ["i4", "u1", "i8", "f4", "?"])
@pytest.mark.parametrize("name", LOSING)
def test_what_dtypes_lose_of_other_numbers(name: str, dtype: str, kind: Any) -> None:
    call = LOSING[name]
    for each in (0.3, 1.7, 5.6, 3e9 + 0.5, 300.7, 803.2, -3.25, -2e9 - 0.5, 0.7):
        told: list[Any] = []
        for xp in (np, lf):
            x = (xp.arange(500) % 7).astype(dtype)
            x = x * xp.ones(1, dtype)[0]
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                try:
                    found = call(xp, x, kind(each))
                    told.append(np.asarray(x if found is None else found).tobytes())
                except (OverflowError, ValueError) as error:
                    told.append(type(error))
            told.append(len(caught))
        assert told[:2] == told[2:], f"{each}: {told[1], told[3]}"


def test_numbers_that_differ_fill_no_table() -> None:
    x = lf.array(np.arange(600.0)) * 1
    before, done = base.NATIVE.steps_count()
    for turn in range(50):
        lf.clip(x, -0.3 - turn / 7, 0.7 + turn / 7)
    after, now = base.NATIVE.steps_count()
    assert after - before <= 3
    assert now - done >= 40


def test_numbers_that_lose_something_warn_at_each_write() -> None:
    for _ in range(5):
        x = lf.ones(500) * 2.0
        with pytest.warns(np.exceptions.ComplexWarning):
            x[..., :3] = np.complex64(1 + 2j)
        y = lf.ones(500, np.float32) * 2
        with pytest.warns(RuntimeWarning, match="overflow"):
            y[1:300] = np.float64(1e300)
        assert (float(x[0]), float(y[0])) == (1.0, 2.0)


def test_arguments_of_other_types_are_other_calls() -> None:
    a = np.random.default_rng(1).normal(size=(300, 200))
    for turn in range(5):
        x = lf.array(a + turn) * 1.0
        for axis in (1, True, np.int64(1), (1,), (0, 1), (1, 0), -1):
            try:
                expected = np.mean(a + turn, axis=axis)
            except TypeError as error:
                with pytest.raises(TypeError, match=str(error)[:20]):
                    lf.mean(x, axis=axis)
                continue
            np.testing.assert_allclose(np.asarray(lf.mean(x, axis=axis)), expected)
        with pytest.raises(np.exceptions.AxisError):
            lf.mean(x, axis=2)


def test_error_states_and_lines_are_those_of_the_call() -> None:
    a = np.full((200, 300), 1e308)
    for _ in range(5):
        x = lf.array(a) * 1.0
        with np.errstate(over="ignore"):
            quiet = lf.mean(x)
            assert float(quiet) == np.inf
        with pytest.warns(RuntimeWarning, match="overflow"):
            assert float(lf.mean(x)) == np.inf
        with np.errstate(over="raise"), pytest.raises(FloatingPointError):
            float(lf.mean(lf.array(a)))


def test_an_option_that_changes_ends_what_is_known() -> None:
    x = lf.array(np.arange(5000.0)) * 1.0
    for _ in range(4):
        lf.roll(x, 1)
    before = followed()
    lf.roll(x, 1)
    assert followed() == before + 1
    with config.options(fusion=False):
        lf.roll(x, 1)
    assert followed() == before + 1


def test_memory_that_others_hold_is_not_followed() -> None:
    real = np.arange(5000.0)
    x = lf.asarray(real)
    for turn in range(6):
        y = lf.roll(x, 1)
        real[0] = turn
        assert float(y[1]) == max(turn - 1, 0)


def test_what_a_view_belongs_to_is_its_base() -> None:
    x = lf.array(np.arange(6000.0).reshape(60, 100)) * 1.0
    for turn in range(5):
        y = lf.flip(x, 1)
        assert y.base is x
        y[0, 0] = turn
        assert float(x[0, -1]) == turn


def test_one_thread_traces_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a traced call records is none of the program's, and C knows one tracing thread."""
    tracing, most, wrong = [0], [0], []
    traced = steps.traced

    def slowly(*call: Any) -> Any:
        tracing[0] += 1
        most[0] = max(most[0], tracing[0])
        time.sleep(2e-4)  # others go on
        try:
            return traced(*call)
        finally:
            tracing[0] -= 1

    def program(first: int) -> None:
        try:
            for size in range(first, first + 40):
                x = lf.arange(1000 + size) * 1.0
                found = lf.std(x * 2 + lf.roll(x, 3))
                plain = np.arange(1000 + size) * 1.0
                assert float(found) == np.std(plain * 2 + np.roll(plain, 3))
        except BaseException as error:
            wrong.append(error)

    monkeypatch.setattr(steps, "traced", slowly)
    threads = [threading.Thread(target=program, args=(1000 * each,)) for each in range(4)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    finally:
        sys.setswitchinterval(before)
    assert not wrong
    assert most[0] == 1
