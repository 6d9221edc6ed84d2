"""Programs of both languages: arguments, chunks, flags, errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lazyfuse.devices.base import Array, DeviceError, Launch, Source
from lazyfuse.devices.cpu.device import CPU
from lazyfuse.devices.cpu.launch import Scratch, address_of
from tests.devices.sources import from_disk, launch_of, map_source, numpy_source

DTYPES = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "c8", "c16")
VALUES = {"b": True, "i": -5, "u": 250, "f": -1.5, "c": 2.5 - 0.5j}


@pytest.fixture(scope="module")
def cpu() -> CPU:
    return CPU(threads=3, threads_above=1)


@pytest.mark.parametrize("code", DTYPES)
def test_every_dtype_travels_as_array_and_as_scalar(cpu: CPU, code: str) -> None:
    text = "a1[i] = a0[i]\na2[i] = x0"
    if code == "b1":
        text = "a1[i] = a0[i]\na2[i] = uint8(x0)"
    program = cpu.compile(map_source(text, (code,) * 3, (code,)))
    value = np.array(VALUES[code[0]]).astype(code)
    data = np.arange(-50, 51).astype(code)
    copy, filled = np.zeros_like(data), np.zeros_like(data)
    for scalar in (value[()], value.item()):
        filled[:] = 0
        assert program.launch(launch_of((data, copy, filled), (scalar,))) == 0
        np.testing.assert_array_equal(copy, data)
        np.testing.assert_array_equal(filled, np.full_like(data, value))


def test_a_large_unsigned_scalar_keeps_all_its_bits(cpu: CPU) -> None:
    program = cpu.compile(map_source("a0[i] = x0", ("u8",), ("u8",)))
    out = np.zeros(3, "u8")
    program.launch(launch_of((out,), (2**64 - 1,)))
    assert out.tolist() == [2**64 - 1] * 3


@pytest.mark.parametrize("chunks", [1, 2, 7, 40])
@pytest.mark.parametrize("language", ["numba", "numpy"])
def test_chunks_cover_the_domain(cpu: CPU, language: str, chunks: int) -> None:
    if language == "numba":
        source = map_source("a2[i * s2] = a0[i * s0] * x0 + a1[i * s1]", ("f8",) * 3, ("f8",))
    else:
        source = numpy_source("np.add(np.multiply(a0, x0), a1, out=a2)", ("f8",) * 3, ("f8",))
    first, second = np.arange(1000.0)[::-2], np.arange(3000.0)[::6]
    out = np.zeros(1500)[::3]
    flags = cpu.compile(source).launch(launch_of((first, second, out), (2.0,), chunks))
    assert flags == 0
    np.testing.assert_array_equal(out, first * 2.0 + second)


def test_a_broadcast_array_has_stride_zero(cpu: CPU) -> None:
    first, second, out = np.arange(100.0), np.array([3.0]), np.zeros(100)
    for source in (
        map_source("a2[i * s2] = a0[i * s0] + a1[i * s1]", ("f8",) * 3),
        numpy_source("np.add(a0, a1, out=a2)", ("f8",) * 3),
    ):
        out[:] = 0
        cpu.compile(source).launch(launch_of((first, second, out), (), 4))
        np.testing.assert_array_equal(out, first + 3.0)


def test_two_loops_have_two_sizes_and_strides(cpu: CPU) -> None:
    text = """def k(meta, scalars):
    n, m = meta[0], meta[1]
    a, s, t = pointer_f4(meta[2]), meta[3], meta[4]
    b, u, v = pointer_f4(meta[5]), meta[6], meta[7]
    for i in range(n):
        for j in range(m):
            independent()
            b[i * u + j * v] = a[i * s + j * t]
    return int32(0)
"""
    source = Source("numba", "k", text, 2, ("f4", "f4"), ())
    array = np.arange(24, dtype="f4").reshape(4, 6)
    out = np.zeros((6, 4), "f4")
    sizes, offsets = np.array([[3, 4], [3, 4]]), np.array([[0, 0], [3, 12]])
    launch = Launch((array, out), ((1, 6), (4, 1)), (), sizes, offsets, 24)
    cpu.compile(source).launch(launch)
    np.testing.assert_array_equal(out, array.T)


@pytest.mark.smoke
def test_memory_need_not_be_aligned_nor_contiguous(cpu: CPU) -> None:
    packed = np.zeros(301, np.dtype([("flag", "i1"), ("value", "f8")]))
    packed["value"] = np.arange(301)
    raw = np.zeros(8 * 301 + 1, np.uint8)
    shifted: Array = raw[1:].view("f8")
    shifted[:] = packed["value"]
    out = np.zeros(301)
    assert (
        cpu.compile(map_source("a1[i] = a0[i] + 1.0", ("f8",) * 2)).launch(
            launch_of((shifted, out))
        )
        == 0
    )
    np.testing.assert_array_equal(out, np.arange(301) + 1.0)


@pytest.mark.smoke
def test_an_output_may_be_an_input(cpu: CPU) -> None:
    body = "v = a0[i]\na1[i] = v + 1.0\na2[i] = v * 2.0"
    data, other = np.arange(1001.0), np.zeros(1001)
    cpu.compile(map_source(body, ("f8",) * 3)).launch(launch_of((data, data, other), (), 3))
    np.testing.assert_array_equal(data, np.arange(1001) + 1.0)
    np.testing.assert_array_equal(other, np.arange(1001) * 2.0)


@pytest.mark.parametrize(
    ("body", "value", "flag"),
    [
        ("a1[i] = 1.0 / a0[i]", 0.0, 1),
        ("a1[i] = a0[i] * a0[i]", 1e200, 2),
        ("a1[i] = a0[i] * a0[i]", 1e-200, 4),
        ("a1[i] = a0[i] - a0[i]", np.inf, 8),
        ("a1[i] = vm_log(a0[i])", 0.0, 1),
        ("a1[i] = vm_log(a0[i])", -1.0, 8),
        ("a1[i] = vm_exp(a0[i])", 1000.0, 2),
    ],
)
def test_flags_of_any_element_and_chunk_are_reported(
    cpu: CPU, body: str, value: float, flag: int
) -> None:
    program = cpu.compile(map_source(body, ("f8", "f8")))
    out = np.zeros(1000)
    for chunks in (1, 5):
        for place in (0, 501, 999):
            data = np.full(1000, 1.5)
            assert program.launch(launch_of((data, out), (), chunks)) == 0
            data[place] = value
            assert program.launch(launch_of((data, out), (), chunks)) == flag


def test_flags_of_numpy_text_are_reported_not_warned_of(cpu: CPU) -> None:
    program = cpu.compile(numpy_source("np.divide(a0, a1, out=a2)", ("f8",) * 3))
    first, second, out = np.ones(100), np.ones(100), np.zeros(100)
    second[70] = 0
    with np.errstate(all="raise"):
        assert program.launch(launch_of((first, second, out), (), 9)) == 1
    first[70] = 0
    assert program.launch(launch_of((first, second, out), (), 9)) == 8


def test_no_chunks_is_no_work(cpu: CPU) -> None:
    launch = launch_of((np.zeros(4), np.zeros(4)))
    launch.sizes, launch.offsets = launch.sizes[:0], launch.offsets[:0]
    for source in (
        map_source("a1[i] = a0[i]", ("f8", "f8")),
        numpy_source("a1[...] = a0", ("f8", "f8")),
    ):
        assert cpu.compile(source).launch(launch) == 0


@pytest.mark.parametrize(
    "body", ["a0[i] = a_name_nobody_knows", "a0[i] = 'text'", "a0[i] = = 1", "a0[i] = vm_exp()"]
)
def test_a_text_that_does_not_compile_is_a_device_error(cpu: CPU, body: str) -> None:
    with pytest.raises(DeviceError, match=r"\[compile\] k:"):
        cpu.compile(map_source(body, ("f8",)))


def test_numpy_text_that_does_not_compile_is_a_device_error(cpu: CPU) -> None:
    with pytest.raises(DeviceError, match=r"\[compile\] k:"):
        cpu.compile(numpy_source("a0 = = 1", ("f8",)))


def test_an_unknown_language_is_a_device_error(cpu: CPU) -> None:
    with pytest.raises(DeviceError, match="expected one of numba, numpy, got fortran"):
        cpu.compile(Source("fortran", "k", "", 1, (), ()))


def test_a_negative_status_is_a_device_error(cpu: CPU) -> None:
    program = cpu.compile(map_source("if a0[i] > 5.0:\n    return int32(-1)", ("f8",)))
    for chunks in (1, 4):
        assert program.launch(launch_of((np.zeros(100),), (), chunks)) == 0
        with pytest.raises(DeviceError, match="raised an exception"):
            program.launch(launch_of((np.arange(100.0),), (), chunks))


def test_an_exception_in_numpy_text_comes_through(cpu: CPU) -> None:
    program = cpu.compile(numpy_source("raise KeyError('here')", ("f8",)))
    with pytest.raises(KeyError, match="here"):
        program.launch(launch_of((np.zeros(100),), (), 8))
    assert (
        cpu.compile(numpy_source("a0[...] = 1", ("f8",))).launch(launch_of((np.zeros(100),), (), 8))
        == 0
    )


def test_helper_functions_are_compiled_once(cpu: CPU) -> None:
    helper = "@njit\ndef twice(x):\n    return x + x\n\n\n"
    out = np.zeros(10)
    for scale in ("1.0", "2.0"):
        source = map_source(f"a1[i] = twice(a0[i]) * {scale}", ("f8", "f8"), before=helper)
        cpu.compile(source).launch(launch_of((np.arange(10.0), out)))
        np.testing.assert_array_equal(out, 2 * float(scale) * np.arange(10.0))


def test_integer_division_does_not_raise_python_exceptions(cpu: CPU) -> None:
    program = cpu.compile(map_source("a1[i] = a0[i] // a1[i]", ("i8", "i8")))
    assert program.launch(launch_of((np.arange(9), np.arange(9)))) >= 0


def test_local_arrays_are_private(cpu: CPU) -> None:
    text = """def k(meta, scalars):
    n = meta[0]
    a = pointer_f8(meta[1])
    t = local_f8(8)
    for i in range(n):
        for j in range(8):
            t[j] = a[i] + j
        a[i] = t[7] - t[0]
    return int32(0)
"""
    data = np.arange(10.0)
    cpu.compile(Source("numba", "k", text, 1, ("f8",), ())).launch(launch_of((data,)))
    assert data.tolist() == [7.0] * 10


def test_scratch_is_reused_and_bounded() -> None:
    scratch = Scratch()
    first = scratch(0, (100,), "f8")
    assert scratch(0, (100,), "f8") is first
    assert scratch(1, (100,), "f8") is not first
    assert scratch(0, (100,), "f4").dtype == np.float32
    for slot in range(100):
        scratch(slot, (1 << 20,), "f8")
    assert scratch.size <= Scratch.LIMIT


def test_numpy_text_gets_scratch_of_its_own_thread(cpu: CPU) -> None:
    body = "t = scratch(0, a0.shape, 'f8')\nnp.multiply(a0, a0, out=t)\nnp.add(t, 1, out=a1)"
    data, out = np.arange(100_000.0), np.zeros(100_000)
    cpu.compile(numpy_source(body, ("f8", "f8"))).launch(launch_of((data, out), (), 50))
    np.testing.assert_array_equal(out, data * data + 1)


def test_the_address_of_an_array_is_where_its_first_element_lies() -> None:
    data = np.arange(20.0).reshape(4, 5)
    for array in (
        data,
        data[1:, ::-1],
        data.T,
        data[2, 3:],
        np.array(3.0),
        data.view(np.ma.MaskedArray),
    ):
        assert address_of(array) == array.__array_interface__["data"][0]


def test_object_code_does_not_import_numba(tmp_path: Path) -> None:
    """A second process runs a kernel from disk."""
    import subprocess
    import sys

    script = """
import sys
import numpy as np
from tests.devices import sources
print(*sources.from_disk(sys.argv[1]), "numba" in sys.modules)
"""
    folder = str(tmp_path / "programs")
    built, total = from_disk(folder)
    done = subprocess.run(
        [sys.executable, "-c", script, folder],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
    )
    assert built == 1
    assert done.stdout.split() == ["0", total, "False"]
