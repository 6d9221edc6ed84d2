"""What programs see of arrays in chunks besides values: warnings, order, devices, copies."""

from __future__ import annotations

import copy
import os
import pickle
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import dask.array
import numpy
import pytest

import lazyfuse as np
from tests import campaign

pytestmark = campaign.TIMEOUT


@pytest.fixture
def scheduler(request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(getattr(request, "param", "on_threads"))


on_each = pytest.mark.parametrize(
    "scheduler", ["on_threads", "synchronous", "cluster"], indirect=True
)
CLUSTER = pytest.param("cluster", marks=pytest.mark.long)
on_each_in_time = pytest.mark.parametrize(
    "scheduler", ["on_threads", "synchronous", CLUSTER], indirect=True
)
on_threads = pytest.mark.parametrize("scheduler", ["on_threads"], indirect=True)


def cut(x: Any, chunks: Any) -> Any:
    return np.from_chunks(dask.array.from_array(x.copy(), chunks=chunks))


def line() -> int:
    return sys._getframe(1).f_lineno


# ---------------------------------------------------------------------------- warnings and errors


def heard(act: Callable[[], Any]) -> list[tuple[str, str, int]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        act()
    return [(str(each.message), each.filename, each.lineno) for each in caught]


@on_each
@pytest.mark.usefixtures("scheduler")
def test_one_warning_at_the_line_of_the_operation() -> None:
    x = cut(numpy.array([0.0, 1.0, 0.0, 4.0, 0.0]), 2)
    y, at = 1 / x, line()
    z, below = np.log(x - 1), line()
    assert heard(lambda: numpy.asarray(y)) == [
        ("divide by zero encountered in divide", __file__, at)
    ]
    found = heard(lambda: numpy.asarray(z))
    assert sorted(text for text, *_ in found) == [
        "divide by zero encountered in log",
        "invalid value encountered in log",
    ]
    assert {(file, number) for _, file, number in found} == {(__file__, below)}
    assert heard(lambda: numpy.asarray(y)) == []


@on_each
@pytest.mark.usefixtures("scheduler")
def test_reductions_and_products_warn_once() -> None:
    big = cut(numpy.array([[1e308, 1e308], [1e308, 1.0]]), 1)
    total, at = big.sum(), line()
    assert heard(lambda: float(total)) == [("overflow encountered in reduce", __file__, at)]
    product, at = big @ big, line()
    assert heard(lambda: numpy.asarray(product)) == [
        ("overflow encountered in matmul", __file__, at)
    ]


@on_each_in_time
@pytest.mark.usefixtures("scheduler")
def test_errstate() -> None:
    x = cut(numpy.array([0.0, 1.0, 0.0, 4.0]), 2)
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError, match="divide by zero"):
        float((1 / x).sum())
    with np.errstate(divide="ignore"):
        y = 1 / x
        assert heard(lambda: numpy.asarray(y)) == []
    with np.errstate(divide="ignore"):
        z = 1 / (x * 2)
    assert heard(lambda: numpy.asarray(z)) == []  # recorded there
    calls = []
    with np.errstate(divide="call", call=lambda *args: calls.append(args)):
        numpy.asarray(1 / (x * 3))
    assert len(calls) == 1
    with pytest.raises(FloatingPointError), numpy.errstate(all="raise"):
        numpy.asarray(np.sqrt(-x))


@on_threads
@pytest.mark.usefixtures("scheduler")
def test_warnings_as_errors_leave_values_usable() -> None:
    x = cut(numpy.array([0.0, 1.0, 0.0, 4.0]), 2)
    y = 1 / x
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning, match="divide by zero"):
            numpy.asarray(y)
    assert numpy.asarray(y).tolist() == [numpy.inf, 1.0, numpy.inf, 0.25]


@on_threads
@pytest.mark.usefixtures("scheduler")
def test_errors_of_shapes_come_at_once_as_numpys() -> None:
    x = cut(numpy.ones((4, 3)), 2)
    plain = numpy.ones((4, 3))
    wrong: list[Callable[[Any], Any]] = [
        lambda x: x + x[:3],
        lambda x: x.sum(axis=2),
        lambda x: x.reshape(5, -1),
        lambda x: x @ x,
        lambda x: x[5],
        lambda x: x[:, 0, 0],
        lambda x: x.astype("nonsense"),
        lambda x: x[:0].max(),
        lambda x: x & x,
    ]
    for act in wrong:
        with pytest.raises(Exception) as theirs:  # noqa: PT011  # whatever it is
            act(plain)
        with pytest.raises(type(theirs.value)) as ours:
            numpy.asarray(act(x))
        assert str(ours.value).replace("numpy.", "") == str(theirs.value).replace("numpy.", "")


# --------------------------------------------------------------------------- metadata and places


@on_threads
@pytest.mark.usefixtures("scheduler")
def test_order_flags_and_strides_are_numpys() -> None:
    plain = numpy.arange(24.0).reshape(4, 6)
    x = cut(plain, (2, 3))
    acts: list[Callable[[Any], Any]] = [
        lambda x: x,
        lambda x: x + 1,
        lambda x: x.T,
        lambda x: x.T + 1,
        lambda x: x[::2, ::-1],
        lambda x: x[::2, ::-1] * 2,
        lambda x: x.T.reshape(-1),
        lambda x: x.sum(axis=0, keepdims=True),
        lambda x: x.copy(order="F"),
        lambda x: x.astype("f4", order="F"),
        lambda x: x.T.astype("f4"),
        lambda x: x + x.T.reshape(4, 6),
        lambda x: x[None].transpose(2, 0, 1) * 3,
        lambda x: x.T.copy(),
    ]
    for place, act in enumerate(acts):
        want, got = act(plain), act(x)
        seen = numpy.asarray(got)
        for found in (got, seen):
            assert found.strides == want.strides, place
            assert found.flags.c_contiguous == want.flags.c_contiguous
            assert found.flags.f_contiguous == want.flags.f_contiguous
            assert found.dtype == want.dtype
            assert found.shape == want.shape
        assert got.flags.writeable
        assert numpy.array_equal(seen, want)


@on_each_in_time
@pytest.mark.usefixtures("scheduler")
def test_devices_and_residents() -> None:
    x = np.asarray(numpy.arange(40.0)).to_device("dask")
    assert x.device == "dask"
    y = np.persist(x * 2)
    assert y.device == "dask"
    mine = [each for each in np.resident() if each.operation == "multiply" and each.line]
    (found,) = [each for each in mine if each.file == __file__]
    assert (found.device, found.shape, found.nbytes, found.on_host) == ("dask", (40,), 320, False)
    back = y.to_device("cpu")
    assert back.device == "cpu"
    assert numpy.array_equal(numpy.asarray(back), numpy.arange(40.0) * 2)
    lazy = y.to_dask()
    assert lazy.shape == (40,)
    assert numpy.array_equal(lazy.compute(), numpy.arange(40.0) * 2)


@on_each_in_time
@pytest.mark.usefixtures("scheduler")
def test_copies_and_pickles() -> None:
    plain = numpy.arange(24.0).reshape(4, 6)
    for make in (
        lambda: cut(plain, 2),
        lambda: cut(plain, 2) + 0,
        lambda: np.persist(cut(plain, 2)),
    ):
        for act in (
            copy.copy,
            copy.deepcopy,
            lambda x: pickle.loads(pickle.dumps(x)),
            lambda x: x.copy(),
            np.array,
        ):
            x = make()
            y = act(x)
            y[1:3] = -1
            x[0] = 5
            want = plain.copy()
            want[0] = 5
            assert numpy.array_equal(numpy.asarray(x), want)
            want = plain.copy()
            want[1:3] = -1
            assert numpy.array_equal(numpy.asarray(y), want)
            assert type(y) is np.ndarray


@on_each_in_time
@pytest.mark.usefixtures("scheduler")
def test_host_arrays_are_read_when_they_are_recorded() -> None:
    host = numpy.arange(8.0)
    x = cut(numpy.zeros(8), 3)
    y = x + host
    mine = np.asarray(host) * 2 + x
    x[2:5] = host[2:5]
    host[:] = -1
    assert numpy.asarray(y).tolist() == list(range(8))
    assert numpy.asarray(mine).tolist() == list(range(0, 16, 2))
    assert numpy.asarray(x).tolist() == [0, 0, 2, 3, 4, 0, 0, 0]


@on_each
@pytest.mark.usefixtures("scheduler")
def test_blocks_are_never_written() -> None:
    """What a persisted value or a source holds stays, whatever is done with arrays over it."""
    plain = numpy.arange(12.0)
    held = dask.array.from_array(plain, chunks=5).persist()
    x = np.from_chunks(held)
    y = np.persist(x + 0)
    z = y[2:]
    first = y.copy()
    y += 1
    z *= 2
    np.add(x, 5, out=x)
    x[::2] = 0
    assert numpy.array_equal(held.compute(), plain)
    assert numpy.array_equal(plain, numpy.arange(12.0))
    want = plain + 1
    want[2:] *= 2
    assert numpy.array_equal(numpy.asarray(y), want)
    assert numpy.array_equal(numpy.asarray(first), plain)
    host = numpy.asarray(x)
    want = plain + 5
    want[::2] = 0
    assert numpy.array_equal(host, want)


# -------------------------------------------------------------------------------- several at once


@on_each
@pytest.mark.usefixtures("scheduler")
def test_threads_of_the_user_evaluate_at_the_same_time() -> None:
    plain = numpy.arange(120.0).reshape(10, 12)
    x = cut(plain, (3, 5))
    shared = (x * 2 - 1).T
    wrong = []

    def work(number: int) -> None:
        try:
            for step in range(4):
                mine = shared + number * step
                want = (plain * 2 - 1).T + number * step
                mine[1:4] = mine[2:5]
                want[1:4] = want[2:5].copy()
                if float(mine.sum()) != want.sum():
                    wrong.append((number, step, "sum"))
                if not numpy.array_equal(numpy.asarray(mine), want):
                    wrong.append((number, step, "values"))
        except Exception as error:
            wrong.append((number, repr(error)))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@on_threads
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.usefixtures("scheduler")
def test_forked_children() -> None:
    x = cut(numpy.arange(30.0), 7)
    y = x * 2
    assert float(x.sum()) == 435
    child = os.fork()
    if not child:
        try:
            with dask.config.set(scheduler="synchronous"):
                good = float(y.sum()) == 870 and numpy.asarray(x + 1)[3] == 4
            os._exit(0 if good else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert float(y.sum()) == 870
