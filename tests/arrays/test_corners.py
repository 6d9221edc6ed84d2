"""Corners in which large, recorded arrays once parted from NumPy: values, errors, orders, flags."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import lazyfuse
from lazyfuse.arrays import base, scalars
from tests.global_state import settle_pending

LARGE = 20_003


def outcome(program: Callable[[Any], Any], xp: Any) -> tuple[Any, list[str]]:
    """What a program gives or raises, and its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = program(xp)
        except Exception as error:
            found = type(error), str(error)
    return found, [str(each.message) for each in caught]


def agree(program: Callable[[Any], Any]) -> None:
    assert outcome(program, lazyfuse) == outcome(program, numpy)


@pytest.mark.parametrize("shape", [4, (4,), (2, 2), (3, 3), (1, 3), (0,), ()], ids=str)
@pytest.mark.parametrize("order", ["C", "F"])
def test_resize_works_in_memory_order(shape: Any, order: str) -> None:
    def program(xp: Any) -> Any:
        x = xp.array([[1, 2], [3, 4]], order=order)
        x.resize(shape, refcheck=False)
        y = xp.array(numpy.arange(LARGE * 3.0).reshape(3, LARGE), order=order) + 1
        y.resize((LARGE, 2), refcheck=False)
        return [(each.tolist(), each.strides, each.flags.fnc) for each in (x, y)]

    agree(program)


@pytest.mark.parametrize("name", ["zeros", "ones", "empty", "full"])
def test_axes_of_length_1_have_the_strides_of_the_order(name: str) -> None:
    def program(xp: Any) -> Any:
        fill = [2.5] if name == "full" else []
        shapes = [(LARGE, 1), (1, LARGE), (1, LARGE, 1), (5, 1), (1, 5), (1, 3, LARGE)]
        made = [getattr(xp, name)(shape, *fill, order=order) for shape in shapes for order in "CF"]
        like = [getattr(xp, f"{name}_like")(each, *fill) for each in made]
        return [each.strides for each in [*made, *like]], [each.flags.fnc for each in made]

    agree(program)


def test_a_class_that_cannot_be_hashed_leaves_no_exception_behind() -> None:
    class Meta(type):
        def __hash__(cls) -> int:
            raise ValueError("no hash")

    class Operand(metaclass=Meta):
        def __radd__(self, other: Any) -> str:
            return "added"

    for size in (5, LARGE):
        x = lazyfuse.arange(float(size))
        for operation in (lambda x: x + Operand(), lambda x: x.sum(Operand())):
            with pytest.raises((ValueError, TypeError), match=r"no hash|Operand"):
                operation(x)
        assert (x + 1).tolist() == (numpy.arange(float(size)) + 1).tolist()


@pytest.mark.skipif(not base.COMPILED, reason="the record path is pure Python")
def test_classes_on_the_compiled_one_keep_their_references() -> None:
    class Slots(base.NATIVE.Core):  # type: ignore[misc,name-defined]
        pass

    for kind in (scalars.scalar, Slots, type("More", (Slots,), {})):
        before = sys.getrefcount(kind)
        for _ in range(50):
            base.NATIVE.new(kind)
        assert sys.getrefcount(kind) == before
        made = weakref.ref(kind)
    del kind, Slots
    gc.collect()
    assert made() is None


def test_resize_of_what_is_no_single_piece_is_refused() -> None:
    def program(xp: Any) -> Any:
        x = xp.zeros((3, 4, 5)).transpose(1, 0, 2).copy("K")
        x.resize(7, refcheck=False)
        return x.tolist()

    agree(program)


def test_memory_that_took_read_only_values_can_be_written() -> None:
    def program(xp: Any) -> Any:
        a = xp.arange(float(LARGE))
        a[...] = xp.imag(a)
        seen = numpy.asarray(a)
        seen[3] = 5
        a += 1
        return a.flags.writeable, seen.flags.writeable, a.tolist()

    agree(program)


def test_complex_numbers_lose_their_imaginary_part_where_that_is_asked_for() -> None:
    def program(xp: Any, casting: str, dtype: str, where: Any = True) -> Any:
        a = xp.ones(LARGE, dtype)
        xp.copyto(a, 2 + 1j, casting=casting, where=where)
        return a.tolist()

    for casting in ("unsafe", "same_kind", "no"):
        for dtype in ("f8", "i4", "?", "c16"):
            agree(lambda xp, c=casting, d=dtype: program(xp, c, d))  # type: ignore[misc]
    agree(lambda xp: program(xp, "unsafe", "f8", numpy.arange(LARGE) % 2 == 0))


@pytest.mark.parametrize("value", [[[1.5]], [[[1.5]]], [1.5], [[1.5, 2.5]], [[]]], ids=str)
@pytest.mark.parametrize("shape", [(LARGE,), (LARGE, 2)], ids=str)
def test_lists_with_more_dimensions_than_the_part_are_refused(shape: Any, value: Any) -> None:
    for key in (slice(None, None, -1), slice(2, 4), 1, ..., [1, 2], (slice(3), ...)):

        def program(xp: Any, key: Any = key) -> Any:
            a = xp.zeros(shape)
            a[key] = value
            return a.tolist()

        agree(program)


def test_arrays_with_more_dimensions_than_the_part_are_taken() -> None:
    def program(xp: Any) -> Any:
        a = xp.zeros(LARGE)
        a[::-1] = numpy.ones((1, LARGE)) * 2
        a[2:9] = xp.array([[1.5]])
        return a.tolist()

    agree(program)


@pytest.mark.parametrize("name", ["joined", "grown", "grown and sorted"])
def test_results_that_no_memory_holds_raise_memory_errors(name: str) -> None:
    def program(xp: Any) -> Any:
        if name == "joined":
            many = xp.broadcast_to(xp.asarray(numpy.float64(1)), (1 << 44,))
            return float(xp.concatenate([many, many])[3])
        grown = xp.arange(1 << 22)[:, None] * xp.arange(1 << 22)
        return float(numpy.asarray(grown if name == "grown" else xp.sort(grown, axis=0))[1, 1])

    for xp in (numpy, lazyfuse):
        with pytest.raises(MemoryError, match=r"Unable to allocate .* TiB for an array"):
            program(xp)
    x = lazyfuse.arange(100_000) * 2.0
    assert float(x.max()) == 199_998.0  # goes on afterwards


class Bound:
    """A bound of a slice that runs code of the user's when it is looked at."""

    def __init__(self, action: Callable[[], object]) -> None:
        self.action = action
        self.calls = 0

    def __index__(self) -> int:
        self.calls += 1
        self.action()
        return 3


ACTIONS: dict[str, Callable[[Any], object]] = {
    "nothing": lambda x: None,
    "writes": lambda x: x.__setitem__(..., 2.0),
    "evaluates and writes": lambda x: (float(x.sum()), x.__setitem__(..., 2.0), float(x.sum())),
    "makes it small": lambda x: x.resize((5,), refcheck=False),
    "makes it smaller": lambda x: x.resize((LARGE - 2,), refcheck=False),
    "collects": lambda x: gc.collect(),
}


@pytest.mark.parametrize("pending", [True, False], ids=["pending", "there"])
@pytest.mark.parametrize("action", list(ACTIONS))
def test_bounds_of_slices_may_run_code(action: str, pending: bool) -> None:
    """They are looked at once, before the array is: as if they had been whole numbers then."""

    def program(xp: Any, writes: bool) -> Any:
        x = xp.arange(LARGE) * 1.0
        if not pending:
            float(x.sum())
        bound = Bound(lambda: ACTIONS[action](x))
        key = slice(bound.__index__() if xp is numpy else bound, None)
        if writes:
            x[key] = 7.0
            return x.tolist(), bound.calls
        y = x[key]
        return y.tolist(), x.tolist(), bound.calls

    agree(lambda xp: program(xp, False))
    agree(lambda xp: program(xp, True))


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, ValueError])
@pytest.mark.parametrize("size", [10, LARGE])
def test_what_bounds_of_slices_raise_is_not_lost(size: int, error: type[BaseException]) -> None:
    def fail() -> None:
        raise error

    x = lazyfuse.ones(size) * 2
    for key in (slice(Bound(fail), None), slice(None, Bound(fail)), slice(None, None, Bound(fail))):
        with pytest.raises(error):
            x[key]
        with pytest.raises(error):
            x[key] = 1.0
    assert x.tolist() == [2.0] * size


@pytest.mark.parametrize("size", [10, LARGE])
def test_warnings_of_lazy_bounds_are_errors_where_they_are_made_errors(size: int) -> None:
    x = (lazyfuse.arange(LARGE) * 1.0)[:size]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = (lazyfuse.ones(LARGE) / lazyfuse.zeros(LARGE)).argmax()
        with pytest.raises(RuntimeWarning, match="divide by zero"):
            x[first:]
        warnings.simplefilter("ignore")
        settle_pending()  # who evaluates next would hear of it


def test_slices_while_another_thread_writes() -> None:
    x = lazyfuse.arange(LARGE) * 1.0
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            x[:] = lazyfuse.ones(LARGE) * 2

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(300):
            first = (lazyfuse.arange(LARGE) < 3).sum()
            assert len(x[first:]) == LARGE - 3
    finally:
        stop.set()
        thread.join()


EMPTIED = """
import gc
import lazyfuse as np

parts = []


class Empties:
    def __init__(self):
        self.me = self

    def __del__(self):
        parts.clear()


for trial in range(300):
    parts[:] = [np.ones(3) for _ in range(40)]
    gc.collect()
    gc.set_threshold(1 + trial % 7)
    Empties()
    try:
        assert np.concatenate(parts).tolist() == [1.0] * 120
    except ValueError as error:
        assert "at least one array" in str(error)
    finally:
        gc.set_threshold(700)
"""


def test_a_finaliser_may_empty_a_list_of_arrays_that_are_joined() -> None:
    command = [sys.executable, "-X", "faulthandler", "-c", EMPTIED]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("dtype", ["U2", "O", "M8[D]", "m8[s]", "i4,f8", "f8", "c8"])
def test_arrays_of_every_dtype_are_explained(dtype: str) -> None:
    for size in (2, LARGE):
        x = lazyfuse.zeros(size, dtype)
        numpy.asarray(x)
        assert "the value is there" in str(lazyfuse.explain(x))


def test_arrays_change_their_size_while_threads_lend_memory() -> None:
    end, errors = threading.Event(), []

    def lends() -> None:
        keep = []
        while not end.is_set():
            keep.append(numpy.asarray(lazyfuse.arange(40_000) * 2.0))
            keep = keep[-20:]

    threads = [threading.Thread(target=lends) for _ in range(2)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    for thread in threads:
        thread.start()
    try:
        for _ in range(3000):
            x = lazyfuse.arange(20)
            x.resize(10, refcheck=False)
    except RuntimeError as error:
        errors.append(error)
    finally:
        sys.setswitchinterval(interval)
        end.set()
        for thread in threads:
            thread.join()
    assert errors == []


KEPT_TO_THE_END = """
import warnings
import lazyfuse as np

def program():
    found = []
    x = np.arange(100000) * 1.0
    y = np.ones(100000) * 3
    def show(*args, **named):
        found.append(float(y.sum()))
        y[5] = 7.0
    warnings.showwarning = show
    warnings.simplefilter("always")
    w = y / x
    found.append(float(w[1:].sum()))

program()
"""


def test_the_end_of_the_interpreter_is_silent() -> None:
    command = [sys.executable, "-c", KEPT_TO_THE_END]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
