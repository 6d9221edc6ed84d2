"""Reads from tables of up to 256 bytes by indices of one byte (byte_table.py)."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse.devices.cpu.intrinsics import byte_table

SIZES = (1, 63, 64, 65, 1000, 131_072, 200_003)


def table(entries: int, dtype: str) -> Any:
    numbers = np.random.default_rng(entries).integers(0, 256, entries).astype(np.uint8)
    return (numbers & 1).astype(bool) if dtype == "b1" else numbers.view(dtype)


def indices(size: int, entries: int) -> Any:
    return np.random.default_rng(size).integers(0, entries, size).astype(np.uint8)


@pytest.mark.parametrize("dtype", ["u1", "i1", "b1"])
@pytest.mark.parametrize("entries", [1, 2, 127, 128, 129, 255, 256])
def test_reads_are_numpys(entries: int, dtype: str) -> None:
    values = table(entries, dtype)
    for size in SIZES:
        index = indices(size, entries)
        found = lf.array(values)[lf.array(index)]
        np.testing.assert_array_equal(found.to_numpy(), values[index])
        assert found.dtype == values.dtype
        taken = lf.take(lf.array(values), lf.array(index.reshape(-1, 1)))
        np.testing.assert_array_equal(taken.to_numpy(), values[index.reshape(-1, 1)])


def test_what_lies_outside_is_refused() -> None:
    values, index = table(200, "u1"), indices(150_000, 200)
    for place in (0, 99_999, 149_999):
        wrong = index.copy()
        wrong[place] = 200
        with pytest.raises(IndexError, match="index 200 is out of bounds"):
            lf.array(values)[lf.array(wrong)].to_numpy()


@pytest.mark.parametrize("wide", [False, True])
def test_the_function_on_every_machine(wide: bool) -> None:
    ir = pytest.importorskip("llvmlite.ir")
    binding = pytest.importorskip("llvmlite.binding")
    if wide and not binding.get_host_cpu_features().get("avx512vbmi"):
        pytest.skip("the machine does not permute bytes of two registers")
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    module = ir.Module()
    byte_table._function(module, wide).linkage = "external"
    features = binding.get_host_cpu_features().flatten()
    machine = binding.Target.from_default_triple().create_target_machine(features=features)
    parsed = binding.parse_assembly(str(module))
    with binding.create_mcjit_compiler(parsed, machine) as engine:
        engine.finalize_object()
        call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64)(
            engine.get_function_address("lf_read_bytes")
        )
        values = table(256, "u1")
        for size in SIZES:
            index, out = indices(size, 256), np.full(size + 8, 77, np.uint8)
            call(out.ctypes.data, values.ctypes.data, index.ctypes.data, size)
            np.testing.assert_array_equal(out[:size], values[index])
            assert (out[size:] == 77).all()
