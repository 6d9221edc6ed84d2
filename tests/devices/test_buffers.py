"""Pooled memory: reuse, limits, aliasing, threads."""

from __future__ import annotations

import gc
import sys
import threading

import numpy as np
import pytest

from lazyfuse.arrays.base import COMPILED
from lazyfuse.devices.base import Array, DeviceError
from lazyfuse.devices.pools import buffers
from lazyfuse.devices.pools.buffers import ALIGNMENT, SMALLEST, BufferPool, size_class

F8 = np.dtype("f8")
LARGE = 100_000


def address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def test_small_arrays_are_numpy_s_own() -> None:
    array = BufferPool().empty((10, 10), F8)
    assert array.base is None
    assert array.flags.owndata


@pytest.mark.parametrize("code", ["?", "i1", "i8", "u2", "f2", "f4", "f8", "g", "c8", "c16", "G"])
def test_large_arrays_are_ordinary(code: str) -> None:
    array = BufferPool().empty((400, 500), np.dtype(code))
    assert (array.shape, array.dtype) == ((400, 500), np.dtype(code))
    assert array.flags.c_contiguous
    assert array.flags.writeable
    assert address(array) % ALIGNMENT == 0
    array[...] = 1
    assert np.count_nonzero(array) == array.size


@pytest.mark.parametrize(
    "dtype", [np.dtype("O"), np.dtype("f8, i4"), np.dtype("U20"), np.dtype(("f8", 3))]
)
def test_other_dtypes_are_not_pooled(dtype: np.dtype[np.void]) -> None:
    pool = BufferPool()
    expected = np.empty((LARGE,), dtype)
    array = pool.empty((LARGE,), dtype)
    assert (array.shape, array.dtype) == (expected.shape, expected.dtype)
    assert pool.info()["new"] == 0


@pytest.mark.smoke
def test_memory_is_reused_when_the_last_view_has_gone() -> None:
    pool = BufferPool()
    array = pool.empty((LARGE,), F8)
    place = address(array)
    view = array.reshape(100, -1)[3:, ::2].T
    del array
    assert address(pool.empty((LARGE,), F8)) != place
    del view
    again = pool.empty((LARGE - 5,), F8)
    assert address(again) == place
    assert pool.info()["reused"] == 1


@pytest.mark.parametrize("classes", [0, 1, 2])
def test_larger_blocks_serve_without_python(classes: int) -> None:
    pool = BufferPool()
    size = size_class(LARGE * 8)
    larger = size
    for _ in range(classes):
        larger = size_class(larger + 1)
    place = address(pool.empty((larger,), np.dtype("u1")))
    called: list[str] = []
    sys.setprofile(lambda frame, event, _: called.append(event))
    array = pool.empty((size,), np.dtype("u1"))
    sys.setprofile(None)
    assert address(array) == place
    assert pool.info()["reused"] == 1
    assert "call" not in called or not COMPILED


def test_another_thread_takes_what_is_about_to_be_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = BufferPool()
    del (array := [pool.empty((LARGE,), F8)])[0]
    assert array == []
    # without the count
    monkeypatch.setattr(BufferPool, "_forget", lambda pool, blocks: blocks.clear())
    pool._drop_to(0)
    assert not any(pool._free.values())


def test_a_memoryview_keeps_the_memory() -> None:
    pool = BufferPool()
    array = pool.empty((LARGE,), F8)
    array[:] = 5
    exported = memoryview(array)  # type: ignore[arg-type]  # mypy knows no buffers before 3.12
    del array
    other = pool.empty((LARGE,), F8)
    other[:] = 6
    assert exported[0] == exported[LARGE - 1] == 5


def test_memory_in_a_cycle_comes_back() -> None:
    pool = BufferPool()
    ring: list[object] = [pool.empty((LARGE,), F8)]
    ring.append(ring)
    del ring
    gc.collect()
    assert pool.info()["free_blocks"] == 1


def test_the_limit_holds() -> None:
    size = size_class(8 * LARGE)
    pool = BufferPool(3 * size)
    arrays = [pool.empty((LARGE,), F8) for _ in range(6)]
    arrays.clear()
    assert pool.info()["free_bytes"] <= 3 * size
    assert pool.info()["dropped"] == 3
    pool.set_limit(size)
    assert pool.info()["free_bytes"] <= size
    huge = pool.empty((10 * LARGE,), F8)
    del huge
    assert pool.info()["free_bytes"] <= size
    pool.set_limit(0)
    kept = pool.empty((LARGE,), F8)
    del kept
    assert pool.info()["free_bytes"] == 0


def test_clear_gives_everything_back() -> None:
    pool = BufferPool()
    arrays = [pool.empty((count * LARGE,), F8) for count in (1, 2, 3)]
    arrays.clear()
    assert pool.info()["free_blocks"] == 3
    pool.clear()
    assert pool.info()["free_bytes"] == pool.info()["free_blocks"] == 0


def test_idle_blocks_are_given_back() -> None:
    pool = BufferPool()
    idle, busy = pool.empty((LARGE,), F8), pool.empty((3 * LARGE,), F8)
    del idle
    (block,) = pool._free[size_class(8 * LARGE)]
    block.since -= 100  # seconds
    pool._look -= 100
    del busy
    assert pool.info()["free_bytes"] == size_class(24 * LARGE)


def test_out_of_memory_empties_the_pool_before_it_gives_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = BufferPool()
    freed = pool.empty((LARGE,), F8)
    del freed
    genuine = buffers._Block
    tries: list[int] = []

    def block(size: int) -> object:
        tries.append(pool.info()["free_blocks"])
        if len(tries) < limit:
            raise MemoryError
        return genuine(size)

    limit = 2
    monkeypatch.setattr(buffers, "_Block", block)
    pool.empty((5 * LARGE,), F8)
    assert tries == [1, 0]
    limit = 100
    assert pool.empty((9 * LARGE,), F8).base is None  # smaller than a block, and there


def test_what_no_memory_holds_is_numpys_error() -> None:
    with pytest.raises(MemoryError, match=r"Unable to allocate 1\.00 EiB") as caught:
        BufferPool().empty((1 << 57,), F8)
    assert isinstance(caught.value, DeviceError)  # another tier may have more


def test_size_classes_waste_an_eighth_at_most() -> None:
    for size in [*range(SMALLEST, SMALLEST + 5000), 10**6, 10**7 + 1, 2**30, 2**30 + 1]:
        assert size <= size_class(size) <= size * 9 / 8 + 1


def test_threads_never_share_a_block() -> None:
    pool = BufferPool(40 * LARGE)
    wrong: list[int] = []

    def use(number: int) -> None:
        held: list[Array] = []
        for turn in range(300):
            array = pool.empty((LARGE // 4 + turn % 3,), F8)
            array[:4] = number
            array[-4:] = number
            held.append(array)
            if len(held) > turn % 5:
                oldest = held.pop(0)
                if not (oldest[:4] == number).all() or not (oldest[-4:] == number).all():
                    wrong.append(number)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert pool.info()["free_bytes"] <= 40 * LARGE


@pytest.mark.parametrize("dtype", ["f8", "?", "c16", ">i4", "M8[s]", "g", "U3", "O"])
def test_python_and_c_lend_alike(dtype: str) -> None:
    """What `empty` gives over used memory, of every kind of dtype and at every edge of a class."""
    kind = np.dtype(dtype)
    for size in (0, 1, SMALLEST - 1, SMALLEST, SMALLEST + 1, 98_304, 98_305, 1_000_003):
        shapes: tuple[tuple[int, ...], ...] = ((size,), (size // 3, 3), (1, size, 1))
        for shape in shapes:
            told = []
            for empty in (buffers._empty, BufferPool.empty):
                pool = BufferPool()
                del (array := [empty(pool, shape, kind)])[0]
                found = empty(pool, shape, kind)
                place = found.ctypes.data % ALIGNMENT if found.nbytes >= SMALLEST else 0
                told.append((found.shape, found.dtype, found.strides, found.flags.num, place))
                told[-1] += ((pool.info()["reused"], pool.info()["new"], len(array)),)
                del found
                told[-1] += (pool.info()["free_bytes"],)
            assert told[0] == told[1], (shape, dtype)


def test_sizes_that_no_memory_holds_are_refused() -> None:
    pool = BufferPool()
    for shape in ((2**62,), (2**40, 2**40), (-1,), ("3",)):
        for empty in (buffers._empty, BufferPool.empty):
            with pytest.raises((MemoryError, ValueError, TypeError, OverflowError)):
                empty(pool, shape, F8)
