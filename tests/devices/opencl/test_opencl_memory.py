"""Meta arrays for memory that the host cannot read: geometry, lifetime, transfers, the pool."""

from __future__ import annotations

import gc
import itertools
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from lazyfuse.devices.base import Array, DeviceError
from lazyfuse.devices.opencl.device import OpenCL
from lazyfuse.devices.opencl.memory import Blocks, _last_base
from lazyfuse.devices.opencl.pinned import AT_ONCE, LEAST, Pin
from tests.devices.opencl.opencl_sources import (
    flags_of,
    new_device,
    opencl_source,
    quick_collections,
    ramp,
)
from tests.devices.sources import launch_of

TWICE = opencl_source("a0 = a0 * 2;", ("f8",), name="twice")


@pytest.fixture(scope="module")
def device() -> Iterator[OpenCL]:
    made = new_device(share=False)
    with quick_collections():
        yield made
        made.wait()


@pytest.fixture
def memory(device: OpenCL) -> Blocks:
    assert device.memory is not None
    gc.collect()
    device.clear()
    return device.memory


def values(shape: tuple[int, ...], dtype: Any) -> Array:
    kind = np.dtype(dtype)
    raw = np.random.default_rng(7).integers(0, 2, int(np.prod(shape)) * kind.itemsize, np.uint8)
    return raw.view(kind).reshape(shape)


LAYOUTS = {
    "c": lambda x: x,
    "fortran": lambda x: np.asfortranarray(x),
    "permuted": lambda x: np.ascontiguousarray(x.transpose(1, 2, 0)).transpose(2, 0, 1),
    "reversed": lambda x: x[::-1],
    "reversed within": lambda x: np.asfortranarray(x)[:, ::-1, ::-1],
    "one long axis": lambda x: x[:, :1, :].copy()[:, :, :],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_C5_upload_and_gather_keep_values_and_layout(memory: Blocks, layout: str) -> None:
    for dtype in ("f8", "i1", "?", "c16", "M8[ns]", "f2", "u4"):
        host = LAYOUTS[layout](values((3, 4, 5), dtype))
        stand_in = memory.upload(host)
        assert (stand_in.shape, stand_in.strides, stand_in.dtype) == (
            host.shape,
            host.strides,
            host.dtype,
        )
        back = memory.gather(stand_in)
        assert back.strides == host.strides, dtype
        assert back.tobytes() == host.tobytes(), dtype
        assert not memory.holds(back)


def test_C5_small_and_empty_arrays(memory: Blocks) -> None:
    shapes: list[tuple[int, ...]] = [(), (0,), (3, 0, 2), (1,), (1, 1, 1)]
    for shape in shapes:
        host = np.full(shape, 2.5)
        stand_in = memory.upload(host)
        assert stand_in.shape == shape
        np.testing.assert_array_equal(memory.gather(stand_in), host)


def test_stand_ins_answer_numpys_questions(memory: Blocks) -> None:
    """Views and overlaps are NumPy's own; no two blocks ever seem to overlap."""
    x = memory.empty((10, 20), np.dtype("f8"))
    assert x.flags.c_contiguous
    assert x.flags.writeable
    assert x.flags.aligned
    part = x[2:5, ::2].T
    assert (part.shape, part.strides) == ((10, 3), (16, 160))
    assert memory.holds(x)
    assert memory.holds(part)
    assert memory.holds(x.reshape(-1)[3:].view("i8"))
    assert np.shares_memory(x, part)
    assert not np.shares_memory(x[:, 0], x[:, 1])
    others = [memory.empty((10, 20), np.dtype("f8")) for _ in range(20)]
    for first, second in itertools.combinations([x, *others], 2):
        assert not np.may_share_memory(first, second)
    assert not memory.holds(np.zeros(3))
    assert not np.may_share_memory(x, np.zeros(3))


def test_addresses_are_not_used_again(memory: Blocks) -> None:
    """Whoever remembers an address of a block that is gone does not meet another block there."""
    seen = {memory.empty((100,), np.dtype("f8")).__array_interface__["data"][0] for _ in range(50)}
    assert len(seen) == 50
    assert all(address % 4096 == 0 for address in seen)


def test_a_program_works_on_parts_of_a_stand_in(device: OpenCL, memory: Blocks) -> None:
    x = memory.upload(ramp(30))
    flags_of(device.compile(TWICE).launch(launch_of((x[10:20],))))
    expected = ramp(30)
    expected[10:20] *= 2
    np.testing.assert_array_equal(memory.gather(x), expected)
    np.testing.assert_array_equal(memory.gather(x[15:25]), expected[15:25])


def test_a_host_array_is_refused_by_a_launch(device: OpenCL) -> None:
    program = device.compile(TWICE)
    with pytest.raises(DeviceError, match=r"expected arrays in the device's memory.*upload"):
        program.launch(launch_of((np.zeros(3),)))


def test_stand_ins_of_another_device_are_refused(device: OpenCL) -> None:
    other = new_device(share=False)
    assert other.memory is not None
    stand_in = other.memory.upload(ramp(4))
    assert device.memory is not None
    assert not device.memory.holds(stand_in)
    with pytest.raises(DeviceError, match="in the device's memory"):
        device.memory.gather(stand_in)


def test_only_packed_arrays_are_moved(memory: Blocks) -> None:
    gaps = ramp(20)[::2]
    spread = np.broadcast_to(ramp(3), (4, 3))
    for array in (gaps, spread, np.lib.stride_tricks.as_strided(ramp(9), (3, 3), (8, 8))):
        with pytest.raises(DeviceError, match="expected a packed array"):
            memory.upload(array)
    with pytest.raises(DeviceError, match="expected a packed array"):
        memory.gather(memory.empty((20,), np.dtype("f8"))[::2])


def test_records_are_refused(memory: Blocks) -> None:
    with pytest.raises(DeviceError, match="expected numbers"):
        memory.empty((3,), np.dtype([("a", "f8")]))
    with pytest.raises(DeviceError, match="expected numbers"):
        memory.upload(np.array([None]))


def test_copy_on_the_device(memory: Blocks) -> None:
    x = memory.upload(ramp(12).reshape(3, 4))
    y = memory.upload(np.zeros((5, 4)))
    memory.copy(x, y[1:4])
    np.testing.assert_array_equal(memory.gather(y)[1:4], ramp(12).reshape(3, 4))
    assert not memory.gather(y)[[0, 4]].any()
    memory.copy(x[:0], y[:0])
    with pytest.raises(DeviceError, match="expected one layout"):
        memory.copy(x, y.T[:3])
    with pytest.raises(DeviceError, match="expected one layout"):
        memory.copy(x, y[:2])


def test_U4_transfers_are_counted(memory: Blocks) -> None:
    before = memory.transfers.info()
    x = memory.upload(ramp(1000))
    y = memory.empty((1000,), np.dtype("f8"))
    memory.copy(x, y)
    memory.gather(y[:10])
    after = memory.transfers.info()
    grown = {name: after[name] - before[name] for name in after}
    assert grown == {
        "uploads": 1, "uploaded_bytes": 8000, "gathers": 1, "gathered_bytes": 80,
        "pinned_bytes": 0, "copies": 1, "copied_bytes": 8000,
    }  # fmt: skip


def test_U4_memory_that_serves_again_is_pinned(device: OpenCL, memory: Blocks) -> None:
    count = LEAST // 4
    x, y = memory.upload(ramp(count)), memory.upload(-ramp(count))
    device.buffers.clear()
    start = memory.transfers.pinned_bytes
    found = [memory.gather(x)]
    assert memory.transfers.pinned_bytes == start
    for each, expected in ((y, -ramp(count)), (x[count // 4 :], ramp(count)[count // 4 :])):
        found.clear()
        found.append(memory.gather(each))
        assert (found[0] == expected).all()
    assert memory.transfers.pinned_bytes == start + 8 * count  # another size has another block
    found.clear()
    found.append(memory.gather(y[: count // 2 + 1][::-1]))
    found[0][:] = 7.0  # the host's, as other memory
    assert (found[0] == 7.0).all()
    assert (memory.gather(y) == -ramp(count)).all()


def test_pinned_memory_lives_until_the_driver_has_let_it_go(device: OpenCL, memory: Blocks) -> None:
    count = LEAST // 8
    x = memory.upload(ramp(count))
    device.buffers.clear()
    memory.clear()
    for _ in range(3):
        memory.gather(x)
    block: Any = _last_base(memory.gather(x))._block
    assert type(block.pin) is Pin
    buffer, alive = block.pin.buffer, weakref.ref(block.memory)
    del block
    device.buffers.clear()
    assert len(memory.dead) == 1
    assert memory.dead[0] is buffer
    del buffer
    assert alive() is not None
    memory.clear()
    assert alive() is None
    assert not memory.dead
    assert (memory.gather(x) == ramp(count)).all()


def test_large_memory_is_pinned_at_once(device: OpenCL, memory: Blocks) -> None:
    device.buffers.clear()
    start = memory.transfers.pinned_bytes
    values = ramp(AT_ONCE // 8 + 5)
    values.flags.writeable = False
    assert (memory.gather(memory.upload(values[5:])) == values[5:]).all()
    assert memory.transfers.pinned_bytes == start + AT_ONCE


def test_memory_that_the_driver_does_not_pin_serves_as_before(
    device: OpenCL, memory: Blocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    cl = pytest.importorskip("pyopencl")

    def refused(*_: Any, **__: Any) -> None:
        raise cl.MemoryError

    device.buffers.clear()
    monkeypatch.setattr(cl, "Buffer", refused)
    start = memory.transfers.pinned_bytes
    for size in (LEAST, LEAST, LEAST, AT_ONCE):
        values = ramp(size // 8)
        assert (memory.gather(memory.upload(values)) == values).all()
    assert memory.transfers.pinned_bytes == start


def test_C10_a_block_is_free_when_its_last_view_is_gone(memory: Blocks) -> None:
    start = memory.info()["live_blocks"]
    x = memory.empty((1000,), np.dtype("f8"))
    view = x[10:20].reshape(2, 5).T
    assert memory.info()["live_blocks"] == start + 1
    del x
    assert memory.info()["live_blocks"] == start + 1
    del view
    info = memory.info()
    assert info["live_blocks"] == start
    assert info["free_blocks"] == 1
    assert info["free_bytes"] >= 8000


def test_C10_free_blocks_are_handed_out_again(memory: Blocks) -> None:
    for _ in range(10):
        memory.empty((1000,), np.dtype("f8"))
    info = memory.info()
    assert info["free_blocks"] == 1
    memory.clear()
    assert memory.info()["free_blocks"] == 0


def test_C10_what_live_blocks_are_larger_than_asked_for_is_not_free(memory: Blocks) -> None:
    held = memory.empty((1001,), np.dtype("f8"))
    memory.clear()
    assert memory.info()["free_bytes"] == 0
    assert memory.holds(held)


def test_C10_the_limit_bounds_what_lies_free(memory: Blocks) -> None:
    try:
        memory.set_limit(10_000)
        blocks = [memory.empty((1000,), np.dtype("f8")) for _ in range(5)]
        del blocks
        assert memory.info()["free_bytes"] <= 10_000
    finally:
        memory.set_limit(-1)
    assert memory.limit > 10_000


def test_a_block_that_launches_still_use_may_be_handed_out(device: OpenCL, memory: Blocks) -> None:
    """The queue runs in order, and an upload into such a block waits for what came before."""
    program = device.compile(TWICE)
    for turn in range(30):
        x = memory.upload(np.full(100_000, float(turn)))
        program.launch(launch_of((x,)))
        y = memory.empty((100_000,), np.dtype("f8"))
        memory.copy(x, y)
        del x
        z = memory.upload(np.full(100_000, -1.0))
        assert (memory.gather(y) == 2 * turn).all()
        assert (memory.gather(z) == -1).all()


def test_threads_move_data_at_the_same_time(memory: Blocks) -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        for turn in range(30):
            host = ramp(500 + turn) + number
            if not np.array_equal(memory.gather(memory.upload(host)), host):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
