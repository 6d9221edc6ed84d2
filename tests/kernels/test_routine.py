"""Hand-written loops as programs: launched over chunks, refused and failing without harm."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import lazyfuse
from lazyfuse import config
from lazyfuse.codegen.graph.node import HostCall
from lazyfuse.devices.base import DeviceError
from lazyfuse.runtime.events import counters
from lazyfuse.runtime.execution import routine
from lazyfuse.runtime.execution.routine import Routine

COUNT = Routine(
    "count_bytes",
    ("count", "row"),
    {"data": "u1", "found": "i8"},
    """
    for k in range(count):
        found[row * 256 + int64(data[k])] += 1
    """,
)
SCALED = Routine(
    "scaled",
    ("count",),
    {"data": "f8", "out": "f8"},
    """
    clear_flags()
    for k in range(count):
        out[k] = twice(data[k * data_stride]) * factor
    return test_flags()
    """,
    scalars={"factor": "f8"},
    helpers="""
    @njit
    def twice(value):
        return value + value
    """,
)


@pytest.mark.parametrize("threads", [1, 4])
def test_chunks_on_threads(threads: int) -> None:
    data = np.random.default_rng(0).integers(0, 256, 300_007).astype("u1")
    starts, lengths = routine.spread(data.size, 1 << 15)
    assert lengths.sum() == data.size
    assert starts[0] == 0
    rows = np.arange(len(starts))
    found = np.zeros((len(starts), 256), np.int64)
    with config.options(threads=threads, threads_above=0):
        launch = COUNT.launcher()
        assert launch is not None
        sizes, offsets = np.stack([lengths, rows], 1), np.stack([starts, 0 * starts], 1)
        launch((data, found), sizes, offsets, work=data.size)
    np.testing.assert_array_equal(found.sum(0), np.bincount(data, minlength=256))


def test_strides_scalars_and_conditions() -> None:
    launch = SCALED.launcher()
    assert launch is not None
    data, out = np.arange(10.0), np.zeros(5)
    assert launch((data, out), 5, None, (3.0,), (2, 1)) == 0
    np.testing.assert_array_equal(out, data[::2] * 6)
    assert launch((data, out), 5, None, (1e308,), (2, 1)) & 2  # overflow


def test_the_switch() -> None:
    with config.options(routines=False):
        assert COUNT.launcher() is None
        assert not routine.verdict(HostCall("sort", functools.partial(np.sort, axis=0)))
    found = routine.verdict(HostCall("sort", functools.partial(np.sort, axis=0)))
    assert found
    assert "compiled loops" in found.why
    assert not routine.verdict(HostCall("cross", np.cross))


def test_a_text_that_is_refused_leaves_it_to_numpy() -> None:
    wrong = Routine("wrong", ("count",), {"data": "f8"}, "data[0] = no_such_name")
    before = sum(counters.totals().fallbacks.values())
    assert wrong.launcher() is None
    assert wrong.launcher() is None
    assert sum(counters.totals().fallbacks.values()) == before + 1


def test_a_launch_that_fails_leaves_it_to_numpy() -> None:
    def failing(values: Any) -> Any:
        raise DeviceError("[launch] for the test")

    before = counters.totals().fallbacks["[launch] for the test"]
    assert routine.either(failing, np.sort, [3, 1]).tolist() == [1, 3]
    assert routine.attempt(failing, [3, 1]) is None
    assert counters.totals().fallbacks["[launch] for the test"] == before + 2


def test_calls_together() -> None:
    done: list[int] = []
    with config.options(threads=4):
        routine.together([functools.partial(done.append, k) for k in range(50)])
        assert sorted(done) == list(range(50))
        with pytest.raises(ZeroDivisionError):
            routine.together([functools.partial(divmod, 1, k % 2) for k in range(9)])


def test_an_explanation_names_them() -> None:
    x = lazyfuse.asarray(np.random.default_rng(0).standard_normal(100_000))
    assert "compiled loops" in str(lazyfuse.explain(lazyfuse.argsort(x * 2)))
    with config.options(routines=False):
        assert "in NumPy: argsort" in str(lazyfuse.explain(lazyfuse.argsort(x * 2)))
