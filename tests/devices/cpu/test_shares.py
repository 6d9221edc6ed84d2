"""Maps of middling size: how they are cut, and when helpers join. No bit depends on either."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse.codegen.lowering import lower
from lazyfuse.codegen.lowering.kernel import Instruction, Kernel, Store
from lazyfuse.devices.cpu import launch
from lazyfuse.runtime.placement import devices
from lazyfuse.runtime.scheduling import evaluate

SIZES = [8191, 8193, 32768, 65537, 131072, 262145]


@pytest.fixture
def work() -> Iterator[Any]:
    """How the CPU runs chunks, with two threads whatever the machine has."""
    with lf.options(threads=2, threads_above=100_000):
        device: Any = devices.cpu()
        yield device.work


def doubled() -> Kernel:
    """`x + x`"""
    add = Instruction("add", (0, 0), ("f8", "f8"), "f8")
    return Kernel(1, ("f8",), (), (add,), (Store(1, "f8"),))


@pytest.mark.parametrize("size", [*SIZES, 10**6, 3 * 10**6])
def test_chunks_cover_every_element_once(size: int) -> None:
    table = lower.lower(doubled(), (size,), [(1,)], [(1,)]).table("numba")
    starts, lengths = table.offsets[:, 0].tolist(), table.sizes[:, 0].tolist()
    ends = [start + length for start, length in zip(starts, lengths, strict=True)]
    assert sorted(starts) == [0, *sorted(ends)[:-1]]
    assert max(ends) == size
    assert max(lengths) <= lower.CHUNK
    if size >= 4 * lower.SMALLEST_SHARE:
        assert len(lengths) >= lower.SHARES


def test_steps_and_slow_steps_weigh() -> None:
    light = "    v1 = float64((h0 + h0))\n"
    assert launch.weight(light) < launch.weight(4 * light) < 2.0
    assert launch.weight("    v1 = float64((h0 / h0))\n") >= 2.0
    assert launch.weight("    v1 = float64(vm_exp(h0))\n") >= 2.0


def test_helpers_join_from_some_work_on(work: Any) -> None:
    assert work.helpers(99_000, 4) == 0
    assert work.helpers(100_000, 4) == 1
    assert work.helpers(100_000, 1) == 0
    assert work.helpers(100_000, 4, native=False) == 1


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("size", SIZES)
def test_values_do_not_depend_on_it(size: int, threads: int) -> None:
    generator = np.random.default_rng(size)
    a, b = generator.normal(size=(2, size))
    evaluate.clear_plans()
    with lf.options(eager_below=0, compile_after=0, threads=threads, threads_above=1000):
        x, y = lf.array(a), lf.array(b)
        for _ in range(3):
            np.testing.assert_array_equal((x * y + x / y).to_numpy(), a * b + a / b)
            np.testing.assert_array_equal((x + y).to_numpy(), a + b)
            np.testing.assert_array_equal(lf.where(x > y, x, y[::-1]), np.where(a > b, a, b[::-1]))
            x[1:-1] = x[:-2] + y[2:] * 0.5
            a[1:-1] = a[:-2] + b[2:] * 0.5
        np.testing.assert_array_equal(x.to_numpy(), a)


@pytest.mark.parametrize("dtype", ["f8", "f4", "?", "c16"])
def test_memory_of_others_is_read_when_it_is_recorded(dtype: str) -> None:
    values = np.arange(1 << 20).reshape(1 << 10, 1 << 10).astype(dtype)
    for a in (values, values.T, values[:, ::-1]):
        x = lf.asarray(a)
        before = a.copy()
        found = (x & x) if dtype == "?" else x + a
        a[3, 4:900] = 0
        np.testing.assert_array_equal(found.to_numpy(), before if dtype == "?" else before + before)
        np.testing.assert_array_equal(x.to_numpy(), a)
