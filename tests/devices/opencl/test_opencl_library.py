"""Scans, compaction, sorts, products and transforms by libraries, in both modes of memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from lazyfuse.devices.base import DeviceError
from lazyfuse.devices.opencl import device as opencl
from lazyfuse.devices.opencl.device import OpenCL
from lazyfuse.devices.opencl.failures import faults
from lazyfuse.devices.opencl.sort_keys import key_of
from tests.devices.opencl.opencl_sources import new_device, to_device, to_host

C_NAMES = {1: "uchar", 2: "ushort", 4: "uint", 8: "ulong"}
SIZES = (0, 1, 2, 1000, 20011)  # intervals of 4096 elements on a CPU


MODES = ("shared", "discrete")


def only(usual: str) -> pytest.MarkDecorator:
    """The other mode is `long`: the kernels are the same, and both modes are met by other tests."""
    modes = [pytest.param(each, marks=() if each == usual else pytest.mark.long) for each in MODES]
    return pytest.mark.parametrize("device", modes, indirect=True)


@pytest.fixture(scope="module", params=MODES)
def device(request: pytest.FixtureRequest) -> OpenCL:
    pytest.importorskip("mako", reason="pyopencl.scan needs it")
    return new_device(share=request.param == "shared")


@pytest.fixture(autouse=True)
def no_plans() -> Iterator[None]:
    yield
    faults.clear()


def integers(size: int, dtype: str = "i8") -> Any:
    limits = np.iinfo(dtype)
    found = np.random.default_rng(size).integers(limits.min, limits.max, size, dtype, endpoint=True)
    found[::5] = limits.max
    found[3::7] = limits.min
    return found


def floats(size: int, dtype: str = "f8") -> Any:
    found = np.random.default_rng(size).normal(size=size).astype(dtype)
    for start, value in enumerate((np.nan, -0.0, 0.0, np.inf, -np.inf, 5e-324, -1.0, 1.0)):
        found[start::11] = value
    return found


@only("shared")
def test_running_sums_wrap_around(device: OpenCL) -> None:
    for size in SIZES:
        a = integers(size)
        found = to_host(device, device.library.accumulate("add", to_device(device, a), a.dtype))
        np.testing.assert_array_equal(found, np.cumsum(a))


def test_sums_that_would_round_are_refused(device: OpenCL) -> None:
    a = floats(10)
    with pytest.raises(DeviceError, match=r"\[add\] library: expected integers"):
        device.library.accumulate("add", to_device(device, a), a.dtype)


@only("discrete")
def test_compaction_keeps_bits_and_order(device: OpenCL) -> None:
    for size in SIZES:
        a = floats(size).astype("c16")
        for mask in (a.real > 0, np.zeros(size, bool), np.ones(size, bool)):
            found = device.library.compact(to_device(device, a), to_device(device, mask))
            assert to_host(device, found).tobytes() == a[mask].tobytes()


def test_places_where_a_mask_is_true(device: OpenCL) -> None:
    for size in SIZES:
        mask = floats(size) > 0
        found = to_host(device, device.library.positions(to_device(device, mask)))
        np.testing.assert_array_equal(found, np.flatnonzero(mask))


@only("shared")
def test_sorts(device: OpenCL) -> None:
    for size in SIZES:
        a = floats(size)
        found = to_host(device, device.library.sort(to_device(device, a)))
        np.testing.assert_array_equal(found, np.sort(a))


@only("discrete")
def test_places_of_equal_elements_stay_in_order(device: OpenCL) -> None:
    for size in SIZES:
        a = floats(size)
        found = to_host(device, device.library.argsort(to_device(device, a)))
        np.testing.assert_array_equal(found, np.argsort(a, kind="stable"))


def test_parts_of_arrays(device: OpenCL) -> None:
    a = integers(1000)
    part = to_device(device, a)[100:900]
    found = device.library.accumulate("add", part, a.dtype)
    np.testing.assert_array_equal(to_host(device, found), np.cumsum(a[100:900]))


def test_keys_are_in_the_order_of_the_numbers() -> None:
    cl = pytest.importorskip("pyopencl")
    queue = new_device().queue
    dtypes = [np.dtype(each) for each in ("?", "i1", "u2", "i4", "u8", "i8", "f2", "f4", "f8")]
    text = "".join(
        f"""__kernel void of_{dtype.str[1:]}(__global const {C_NAMES[dtype.itemsize]} *x,
                                             __global ulong *y)
        {{ const size_t i = get_global_id(0); y[i] = {key_of(dtype).text}; }}
        """.replace("of_?", "of_b")
        for dtype in dtypes
    )
    program = cl.Program(queue.context, text).build(opencl.BUILD_OPTIONS, cache_dir=False)
    for dtype in dtypes:
        a = floats(500, dtype.str) if dtype.kind == "f" else integers(500, f"i{dtype.itemsize}")
        a = a % 2 == 0 if dtype.kind == "b" else a.astype(dtype)
        keys = np.zeros(a.size, np.uint64)
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        buffers = [cl.Buffer(queue.context, flags, hostbuf=each) for each in (a, keys)]
        kernel = getattr(program, f"of_{dtype.str[1:]}")
        kernel(queue.commands, a.shape, None, *buffers)
        cl.enqueue_copy(queue.commands, keys, buffers[1])
        assert int(keys.max()) < 1 << key_of(dtype).bits
        np.testing.assert_array_equal(keys.argsort(kind="stable"), a.argsort(kind="stable"))


@pytest.mark.parametrize("point", ["build", "launch", "finish"])
def test_C12_a_failure_is_told_and_the_next_use_works(point: str) -> None:
    pytest.importorskip("mako", reason="pyopencl.scan needs it")
    device = new_device(share=False)
    a = integers(10)
    x = to_device(device, a)
    faults.plan(point, "MEM_OBJECT_ALLOCATION_FAILURE")
    with pytest.raises(DeviceError, match="MEM_OBJECT_ALLOCATION_FAILURE"):
        device.library.accumulate("add", x, a.dtype)
    found = device.library.accumulate("add", x, a.dtype)
    np.testing.assert_array_equal(to_host(device, found), np.cumsum(a))


def test_C12_a_library_that_is_not_installed_is_told(
    device: OpenCL, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pyclblast", "pyvkfft", "pyvkfft.opencl"):
        monkeypatch.setitem(sys.modules, name, None)
    a = to_device(device, np.ones((4, 4), "c16"))
    with pytest.raises(DeviceError, match=r"\[library\] pyclblast: .*install it"):
        device.library.product(a, a)
    with pytest.raises(DeviceError, match=r"\[library\] pyvkfft.opencl: .*install it"):
        device.library.transform(a, (0,), False, "backward")


def test_products_by_clblast(device: OpenCL) -> None:
    pytest.importorskip("pyclblast")
    a, b = floats(65 * 33, "f8").reshape(65, 33), np.random.default_rng(1).normal(size=(33, 41))
    a[~np.isfinite(a)] = 1
    found = to_host(device, device.library.product(to_device(device, a), to_device(device, b)))
    bound = 33 * np.finfo("f8").eps * (np.abs(a) @ np.abs(b))
    assert (np.abs(found - a @ b) <= bound).all()


def test_operands_of_libraries_lie_as_buffers_do() -> None:
    device = new_device()
    a = np.arange(5000.0)
    alignment = device.queue.device.mem_base_addr_align // 8
    there = to_device(device, a)
    for start in range(20):
        found = device.library._aligned(there[start:])
        begins = found.ctypes.data if device.memory is None else device.memory.find(found)[1]
        assert begins % alignment == 0
        np.testing.assert_array_equal(to_host(device, found), a[start:])


@pytest.mark.parametrize("dtype", ["c8", "c16"])
@pytest.mark.parametrize("norm", ["backward", "ortho"])
def test_transforms_by_vkfft(device: OpenCL, dtype: str, norm: str) -> None:
    pytest.importorskip("pyvkfft")
    random = np.random.default_rng(1)
    a = (random.normal(size=(6, 40)) + 1j * random.normal(size=(6, 40))).astype(dtype)
    for axes in ((1,), (0,), (0, 1)):
        for inverse, theirs in ((False, np.fft.fftn), (True, np.fft.ifftn)):
            expected = theirs(a, axes=axes, norm=norm)
            x = to_device(device, a.copy())
            found = to_host(device, device.library.transform(x, axes, inverse, norm))
            bound = 10 * np.finfo(dtype).eps * np.linalg.norm(expected)
            assert found.dtype == expected.dtype
            assert np.linalg.norm(found - expected) <= bound
