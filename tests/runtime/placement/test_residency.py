"""What lies where: uploads, results that stay on a device, copies back.

Test names end with the feature rows that they show.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy
import pytest

import lazyfuse as np
from lazyfuse import config
from lazyfuse.runtime.events import counters
from tests import campaign
from tests.arrays.memory import test_aliasing as aliasing
from tests.global_state import settle_pending
from tests.helpers.discrete_device import NAME, FarAway, Memory, in_use
from tests.programs import test_random_graphs as graphs

N = 50_000


@pytest.fixture
def device() -> Iterator[FarAway]:
    settle_pending()  # what tests before have left would be computed with what these look at
    with in_use() as found:
        yield found


@pytest.fixture
def memory(device: FarAway) -> Memory:
    assert device.memory is not None
    return device.memory


def values(seed: int = 1, shape: Any = N) -> Any:
    return numpy.random.default_rng(seed).uniform(1, 2, shape)


def test_ten_statements_without_a_sink_copy_nothing_back_C8(memory: Memory) -> None:
    a, b = values(1), values(2)
    x, y = np.array(a), np.array(b)
    expected = a
    z = x
    for _ in range(10):
        z = z * y + 1.0
        np.evaluate(z)
        expected = expected * b + 1.0
    assert memory.gathers == 0
    assert memory.uploads == 2
    numpy.testing.assert_array_equal(z.to_numpy(), expected)
    assert memory.gathers == 1


def test_sums_that_stay_there_are_fetched_beside_pending_ones_C8(memory: Memory) -> None:
    a = values(1, (250, 200))
    x = np.array(a)
    total = (x * 2.0).sum(axis=0)
    np.evaluate(total)
    other, third = (x + 1.0).sum(axis=0), (x * 3.0).sum(axis=0)
    gathers = memory.gathers
    numpy.testing.assert_array_equal(total.to_numpy(), (a * 2.0).sum(axis=0))
    assert memory.gathers == gathers + 1
    numpy.testing.assert_array_equal(other.to_numpy(), (a + 1.0).sum(axis=0))
    numpy.testing.assert_array_equal(third.to_numpy(), (a * 3.0).sum(axis=0))


def test_nothing_is_uploaded_or_gathered_twice_C8_E4(memory: Memory) -> None:
    a = values()
    x = np.array(a)
    for factor in (2.0, 3.0, 4.0):
        y = x * factor
        numpy.testing.assert_array_equal(y.to_numpy(), a * factor)
        numpy.testing.assert_array_equal(y.to_numpy(), a * factor)
        assert y[3] == a[3] * factor
    assert memory.uploads == 1
    assert memory.gathers == 3


def test_a_chain_is_one_launch_U3(device: FarAway, memory: Memory) -> None:
    a = values()
    x = np.array(a)
    y = (((x * 2.0 + 1.0) / x - 3.0) * x).to_numpy()
    numpy.testing.assert_array_equal(y, ((a * 2.0 + 1.0) / a - 3.0) * a)
    assert device.launches == 1
    assert (memory.uploads, memory.gathers) == (1, 1)


def test_a_map_and_its_reduction_are_one_pass_U3(device: FarAway) -> None:
    a, b = values(1), values(2)
    found = ((np.array(a) - np.array(b)) ** 2).mean()
    assert float(found) == ((a - b) ** 2).mean()
    assert device.launches == 1


def test_host_writes_make_uploads_out_of_date_C8(memory: Memory) -> None:
    a = values()
    x = np.array(a)
    with config.options(validate=True):
        for step in range(4):
            numpy.testing.assert_array_equal((x * 2.0).to_numpy(), a * 2.0)
            if step == 0:
                x[5] = a[5] = 9.0
            elif step == 1:
                x[10:20] = a[10:20] = 7.0
            else:
                numpy.sort(a)
                x.sort()
                a.sort()
    assert memory.uploads == 4


def test_exported_memory_is_read_as_it_is_now_C8(memory: Memory) -> None:
    a = values()
    x = np.array(a)
    assert float((x + 0.0)[7]) == a[7]
    outside = x.to_numpy()
    for number in (3.0, 4.0):
        outside[7] = number
        assert float((x + 0.0)[7]) == number
    del outside
    assert float((x + 0.0)[7]) == 4.0
    before = memory.uploads
    assert float((x + 1.0)[7]) == 5.0
    assert memory.uploads == before


def test_parts_are_written_on_the_device_in_place_E3(memory: Memory) -> None:
    a, b = values(1), values(2)
    x, y = np.array(a) * 2.0, np.array(b)
    np.evaluate(x)
    expected = a * 2.0
    for start in range(0, 40_000, 20_000):
        x[start : start + 20_000] = y[:20_000] + 1.0
        np.evaluate(x)
        expected[start : start + 20_000] = b[:20_000] + 1.0
    assert (memory.uploads, memory.gathers) == (2, 0)
    assert counters.totals().copies["copy", NAME, "update"] == 0
    numpy.testing.assert_array_equal(x.to_numpy(), expected)


def test_results_take_the_memory_of_operands_that_nobody_reads_again_E3(memory: Memory) -> None:
    a = values()
    x = np.array(a) * 2.0
    np.evaluate(x)
    blocks = memory.next_address
    for _ in range(5):
        x += 1.0
        np.evaluate(x)
    assert memory.next_address == blocks, "no new block"
    expected = a * 2.0
    for _ in range(5):
        expected += 1.0
    numpy.testing.assert_array_equal(x.to_numpy(), expected)


def test_a_result_that_is_kept_is_not_written_over_E3() -> None:
    a = values()
    with in_use():
        x = np.array(a) * 2.0
        np.evaluate(x)
        kept = x + 0.0
        part = x[5:25_000]
        x += 1.0
        x[:20_000] = 3.0
        np.evaluate(x)
        expected = a * 2.0 + 1.0
        expected[:20_000] = 3.0
        numpy.testing.assert_array_equal(kept.to_numpy(), a * 2.0)
        numpy.testing.assert_array_equal(part.to_numpy(), expected[5:25_000])
        numpy.testing.assert_array_equal(x.to_numpy(), expected)


def test_a_plan_without_kernels_uploads_nothing_C8(memory: Memory, device: FarAway) -> None:
    a = values()
    x = np.array(a)
    numpy.testing.assert_array_equal(np.sort(x[::-1]).to_numpy(), numpy.sort(a))
    assert (memory.uploads, device.launches) == (0, 0)


def test_an_element_is_gathered_alone_C8(memory: Memory) -> None:
    a = values()
    y = np.array(a) * 2.0
    np.evaluate(y)
    assert float(y[11]) == a[11] * 2.0
    assert (
        sum(counters.totals().copied[key] for key in counters.totals().copied if key[0] == "gather")
        == 8
    )


def test_what_lies_where_is_listed_D6(device: FarAway) -> None:
    def mine() -> list[Any]:
        # others may be left by a test before, until the garbage collector runs
        found = [each for each in np.resident() if each.file == __file__]
        return [each for each in found if each.operation == "multiply"]

    a = values()
    x = np.array(a)
    y = x * 2.0
    np.evaluate(y)
    z = y + 1.0
    (result,) = mine()
    assert (result.device, result.shape, result.nbytes) == (NAME, (N,), 8 * N)
    assert result.file == __file__
    assert result.uses == 1
    assert not result.on_host
    assert str(result).startswith(f"{NAME}: float64[{N}]")
    assert " 1 arrays" not in str(np.report()).split("resident")[1]
    y.to_numpy()
    (result,) = mine()
    assert result.on_host
    del x, y, z
    assert mine() == []


def test_the_report_says_what_was_copied_D6(device: FarAway) -> None:
    (np.array(values()) * 2.0).to_numpy()
    text = str(np.report())
    assert f"1 upload {NAME}, 0.4 MB: operand" in text
    assert f"1 gather {NAME}, 0.4 MB" in text


def test_conditions_are_told_where_the_values_are_looked_at_F8(device: FarAway) -> None:
    x = np.array(numpy.zeros(N))
    y = 1.0 / x
    np.evaluate(y)
    with pytest.warns(RuntimeWarning, match="divide by zero encountered in divide") as caught:
        y.to_numpy()
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y.to_numpy()


def test_conditions_are_told_by_synchronize(device: FarAway) -> None:
    y = 1.0 / np.array(numpy.zeros(N))
    np.evaluate(y)
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        np.synchronize()
    assert numpy.isinf(y.to_numpy()).all()


def test_underflow_is_told_where_it_is_asked_for_F8(device: FarAway) -> None:
    settle_pending()  # what a test before has left would be computed with it
    before = device.launches
    x = np.array(numpy.full(N, 1e-300))
    with np.errstate(under="raise"), pytest.raises(FloatingPointError, match="underflow"):
        (x * x).to_numpy()
    assert device.launches == before


@pytest.mark.parametrize("eager_below", [0, 3])
@pytest.mark.parametrize("shares", [False, True])
def test_random_programs_of_views_and_writes_C8_E4(eager_below: int, shares: bool) -> None:
    with in_use(shares), config.options(validate=True):
        for seed in campaign.drawn(60, start=60_000):
            aliasing.play(seed, eager_below)


@pytest.mark.parametrize("keep", [True, False])
def test_random_graphs_equal_the_oracle_C12(keep: bool, device: FarAway) -> None:
    for seed in campaign.drawn(150, start=70_000):
        graphs.check(seed, keep)
