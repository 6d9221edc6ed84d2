"""An OpenCL device: launches over host arrays and over its own memory, flags, order, threads."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator

import numpy as np
import pytest

from lazyfuse.devices.base import DeviceError, Launch
from lazyfuse.devices.opencl.device import OpenCL
from tests.devices.opencl.opencl_sources import (
    first_device,
    flags_of,
    kind_of,
    new_device,
    opencl_source,
    quick_collections,
    ramp,
    run,
    to_device,
    to_host,
)
from tests.devices.sources import launch_of

ADD = opencl_source("a2 = a0 + a1;", ("f8", "f8", "f8"))
TWICE = opencl_source("a0 = a0 * 2;", ("f8",), name="twice")
SCALE = opencl_source("a1 = a0 * x0;", ("f8", "f8"), ("f8",), name="scale")


@pytest.fixture(scope="module", params=["shared", "discrete"])
def device(request: pytest.FixtureRequest) -> Iterator[OpenCL]:
    made = new_device(share=request.param == "shared")
    with quick_collections():
        yield made
        made.wait()


def test_traits_say_what_the_device_is(device: OpenCL) -> None:
    traits = device.traits
    assert traits.name.startswith("opencl:")
    assert traits.kind == kind_of(first_device())
    assert traits.languages == (("opencl",) if traits.kind == "cpu" else ("opencl-grid", "opencl"))
    assert traits.shares_memory == (device.memory is None)
    assert traits.model
    assert traits.platform
    assert traits.driver
    assert traits.threads >= 1
    assert traits.local_bytes > 0


@pytest.mark.parametrize("chunks", [1, 3, 40])
def test_chunks_together_cover_the_arrays(device: OpenCL, chunks: int) -> None:
    count = 1000
    x, y = ramp(count), ramp(count) * 3
    arrays = [to_device(device, each) for each in (x, y, np.zeros(count))]
    assert flags_of(device.compile(ADD).launch(launch_of(tuple(arrays), chunks=chunks))) == 0
    np.testing.assert_array_equal(to_host(device, arrays[2]), x + y)


@pytest.mark.smoke
def test_views_start_where_numpy_says(device: OpenCL) -> None:
    block, result = ramp(100), np.zeros(100)
    x, out = to_device(device, block), to_device(device, result)
    program = device.compile(ADD)
    flags_of(program.launch(launch_of((x[5:25], x[60:40:-1], out[1:61:3]))))
    expected = np.zeros(100)
    expected[1:61:3] = block[5:25] + block[60:40:-1]
    np.testing.assert_array_equal(to_host(device, out), expected)


def test_a_scalar_array_is_read_again_and_again(device: OpenCL) -> None:
    x, y, out = (to_device(device, each) for each in (ramp(50), np.full(1, 7.0), np.zeros(50)))
    flags_of(device.compile(ADD).launch(launch_of((x, y, out))))
    np.testing.assert_array_equal(to_host(device, out), ramp(50) + 7)


def test_in_place(device: OpenCL) -> None:
    x = to_device(device, ramp(10))
    program = device.compile(TWICE)
    for _ in range(5):
        program.launch(launch_of((x,)))
    np.testing.assert_array_equal(to_host(device, x), ramp(10) * 32)


SCALARS: list[tuple[str, list[object]]] = [
    ("f8", [np.float64(-2.5), 3, np.inf]),
    ("i1", [np.int8(-100)]),
    ("f4", [np.float32(0.1)]),
    ("u2", [np.uint16(60000)]),
    ("i8", [np.int64(-(2**63)), 5]),
    ("b1", [np.bool_(True)]),
    ("c16", [np.complex128(1.5 - 2j), 2.5]),
    ("u4", [np.uint32(2**32 - 1)]),
    ("i2", [np.int16(-30000)]),
    ("c8", [np.complex64(-1j)]),
    ("u1", [np.uint8(200)]),
    ("i4", [np.int32(-(2**31))]),
    ("u8", [np.uint64(2**64 - 1)]),
]


def test_scalars_of_every_type(device: OpenCL) -> None:
    """Each between others of other sizes, so that a wrong size would show."""
    codes = tuple(code for code, _ in SCALARS)
    body = " ".join(f"a{k} = x{k};" for k in range(len(codes)))
    program = device.compile(opencl_source(body, codes, codes))
    dtypes = [np.dtype(code if code != "b1" else "?") for code in codes]
    for turn in range(3):
        values = [given[turn % len(given)] for _, given in SCALARS]
        arrays = tuple(to_device(device, np.zeros(3, dtype)) for dtype in dtypes)
        flags_of(program.launch(launch_of(arrays, tuple(values))))
        for array, value, dtype in zip(arrays, values, dtypes, strict=True):
            np.testing.assert_array_equal(to_host(device, array), np.full(3, value, dtype))


def test_flags_of_each_launch_are_its_own(device: OpenCL) -> None:
    source = opencl_source("if (a0 == x0) atomic_or(raised, (int)x1);", ("f8",), ("f8", "i4"))
    program = device.compile(source)
    x = to_device(device, ramp(100))
    outcomes = [
        program.launch(launch_of((x,), (np.float64(value), np.int32(bits)), chunks=4))
        for value, bits in ((3, 1), (-1, 2), (99, 8), (50, 3), (-1, 1))
    ]
    assert [flags_of(outcome) for outcome in reversed(outcomes)] == [0, 3, 8, 0, 1]
    assert flags_of(outcomes[0]) == 1, "asked twice"


def test_many_launches_may_be_under_way(device: OpenCL) -> None:
    """More than there are words for conditions; each keeps its own."""
    source = opencl_source("a0 = a0 + 1; if (a0 == x0) atomic_or(raised, 8);", ("f8",), ("f8",))
    program = device.compile(source)
    x = to_device(device, np.zeros(1))
    outcomes = [program.launch(launch_of((x,), (np.float64(77),))) for _ in range(300)]
    assert [k for k, outcome in enumerate(outcomes) if flags_of(outcome)] == [76]
    assert to_host(device, x)[0] == 300


def test_nothing_to_do_is_no_launch(device: OpenCL) -> None:
    before = device.info()["launches"]
    empty = Launch((), (), (), np.zeros((0, 1), np.int64), np.zeros((0, 0), np.int64), 0)
    assert device.compile(opencl_source("", ())).launch(empty) == 0
    assert device.info()["launches"] == before


def test_empty_arrays_can_be_arguments(device: OpenCL) -> None:
    x = to_device(device, np.zeros(0))
    launch = Launch((x,), ((1,),), (), np.zeros((1, 1), np.int64), np.zeros((1, 1), np.int64), 0)
    assert flags_of(device.compile(TWICE).launch(launch)) == 0


def test_launches_are_counted(device: OpenCL) -> None:
    x = to_device(device, np.zeros(4))
    program = device.compile(TWICE)
    before = device.info()["launches"]
    for _ in range(3):
        program.launch(launch_of((x,)))
    assert device.info()["launches"] == before + 3


def test_settle_lets_go_of_what_launches_used(device: OpenCL) -> None:
    x = to_device(device, np.zeros(1000))
    alive = weakref.ref(x)
    later = device.compile(TWICE).launch(launch_of((x,)))
    del x
    gc.collect()
    assert alive() is not None, "the launch may still be under way"
    device.wait()
    gc.collect()
    assert alive() is None
    assert flags_of(later) == 0


def test_tables_live_as_long_as_their_launch(device: OpenCL) -> None:
    x = to_device(device, np.zeros(8))
    program = device.compile(TWICE)
    launch = launch_of((x,))
    device.wait()
    gc.collect()
    before = device.info()["tables"]
    for _ in range(5):
        program.launch(launch)
    assert device.info()["tables"] == before + 1
    other = launch_of((x,), chunks=2)
    program.launch(other)
    assert device.info()["tables"] == before + 2
    device.wait()
    del launch, other
    gc.collect()
    assert device.info()["tables"] == before


def test_tables_of_equal_sizes_and_other_strides_are_their_own(device: OpenCL) -> None:
    x, out = to_device(device, ramp(20)), to_device(device, np.zeros(20))
    program = device.compile(SCALE)
    sizes, offsets = np.array([[10]]), np.zeros((1, 2), np.int64)
    for stride in (1, 2, 1):
        launch = Launch((x, out), ((stride,), (1,)), (1.0,), sizes, offsets, 10)
        flags_of(program.launch(launch))
        np.testing.assert_array_equal(to_host(device, out)[:10], np.arange(0, 10 * stride, stride))


def test_threads_launch_at_the_same_time(device: OpenCL) -> None:
    """C7: one kernel object, many threads, each with arguments of its own."""
    program = device.compile(SCALE)
    wrong: list[int] = []

    def work(number: int) -> None:
        x, out = to_device(device, ramp(64) + number), to_device(device, np.zeros(64))
        for turn in range(40):
            later = program.launch(launch_of((x, out), (np.float64(turn),), chunks=2))
            if turn % 3 == 0:
                flags_of(later)
        if not np.array_equal(to_host(device, out), (ramp(64) + number) * 39):
            wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_grid_may_have_any_number_of_groups() -> None:
    device = new_device(GRID="1")
    assert device.traits.languages[0] == "opencl-grid"
    source = opencl_source("a0 = a0 + x0;", ("f8",), ("f8",), language="opencl-grid")
    for tasks in (0, 1, 3, 100_000):
        x = ramp(1000)
        assert run(device, source, (x,), (np.float64(2),), 50, tasks) == 0
        np.testing.assert_array_equal(x, ramp(1000) + 2)


def test_a_work_group_that_is_too_large_is_refused() -> None:
    device = new_device()
    source = opencl_source("a0 = 1;", ("f8",), language="opencl-grid")
    object.__setattr__(source, "group", 1 << 20)
    with pytest.raises(DeviceError, match="work-group: expected at most"):
        device.compile(source)


def test_read_only_arrays_can_be_read() -> None:
    device = new_device()
    x = ramp(10)
    x.flags.writeable = False
    out = np.zeros(10)
    run(device, SCALE, (x, out), (np.float64(3),))
    np.testing.assert_array_equal(out, ramp(10) * 3)
    frozen = np.frombuffer(x.tobytes())[::2]
    out = np.zeros(5)
    run(device, SCALE, (frozen, out), (np.float64(3),))
    np.testing.assert_array_equal(out, ramp(10)[::2] * 3)


def test_results_come_from_the_buffer_pool() -> None:
    device = new_device()
    first = device.empty((100_000,), np.dtype("f8"))
    address = first.__array_interface__["data"][0]
    del first
    assert device.empty((100_000,), np.dtype("f8")).__array_interface__["data"][0] == address
    device.set_pool_limit(0)
    assert device.info()["buffers"]["free_bytes"] == 0


def test_without_fp64_float64_is_refused_and_float32_runs() -> None:
    """E5: a device without double says so, aloud."""
    device = new_device(FP64="0")
    assert not device.traits.fp64
    assert any("no fp64" in note for note in device.traits.notes)
    for arrays, scalars in ((("f8",), ()), (("f4",), ("f8",)), (("c16",), ())):
        with pytest.raises(DeviceError, match="no fp64; float64 runs on the CPU"):
            device.compile(opencl_source("", arrays, scalars))
    x = ramp(5, np.float32)
    run(device, opencl_source("a0 = a0 * 2;", ("f4",)), (x,))
    np.testing.assert_array_equal(x, ramp(5) * 2)
