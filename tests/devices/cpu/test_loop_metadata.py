"""Independent loops vectorise with any number of pointers; arithmetic stays as written."""

from __future__ import annotations

import re

import numpy as np
import pytest

from lazyfuse.devices.base import Source
from lazyfuse.devices.cpu import llvm_compiler
from lazyfuse.devices.cpu.device import CPU
from lazyfuse.devices.pools.vector_math import machine
from tests.devices.sources import launch_of, map_source

x86_only = pytest.mark.skipif(machine() != "x86_64", reason="reads x86 assembly")


def many_operands(inputs: int, independent: bool) -> Source:
    total = " + ".join(f"v{k}" for k in range(inputs))
    loads = "\n".join(f"v{k} = a{k}[i]" for k in range(inputs))
    body = f"{loads}\na{inputs}[i] = {total}\na{inputs + 1}[i] = ({total}) * v0"
    return map_source(body, ("f8",) * (inputs + 2), independent=independent)


def packed(text: str) -> int:
    """How many additions of whole vectors a program has."""
    return len(re.findall(r"v?addpd", text))


@x86_only
@pytest.mark.parametrize("inputs", [2, 8, 20])
def test_independent_loops_vectorise_whatever_the_number_of_pointers(inputs: int) -> None:
    assert packed(llvm_compiler.assembly(many_operands(inputs, True))) >= inputs - 1


@x86_only
def test_independent_loops_need_no_run_time_checks() -> None:
    marked, plain = (llvm_compiler.compile_source(many_operands(8, yes)) for yes in (True, False))
    assert len(marked) < len(plain)


@x86_only
def test_no_contraction_and_no_reassociation() -> None:
    text = llvm_compiler.assembly(map_source("a2[i] = a0[i] * a1[i] + a0[i]", ("f8",) * 3))
    assert packed(text)
    assert "vfm" not in text
    body = "x = a0[i]\ntotal = total + x\na1[i] = total"
    source = map_source(body, ("f8", "f8"))
    source = Source(
        "numba",
        "k",
        source.text.replace("    for", "    total = 0.0\n    for"),
        1,
        source.arrays,
        (),
    )
    data, out = np.random.default_rng(0).standard_normal(1001), np.zeros(1001)
    CPU(threads=1).compile(source).launch(launch_of((data, out)))
    np.testing.assert_array_equal(out, np.cumsum(data))


@x86_only
@pytest.mark.parametrize("code", ["f8", "f4", "i8"])
def test_what_keeps_some_elements_is_stored_whole(code: str) -> None:
    """LLVM would make masked stores of them, which take ten times as long on some processors."""
    body = "x, y = a0[i], a1[i]\na1[i] = x if x > y else y"
    text = llvm_compiler.assembly(map_source(body, (code, code)))
    assert re.search(r"vp?cmpgt|vp?cmplt|vp?max", text)
    assert not re.search(r"vp?maskmov|\{%k\d\}$", text, re.MULTILINE)


def test_only_the_innermost_loop_around_the_mark_is_independent() -> None:
    """The outer loop accumulates in memory, the inner ones may be taken apart."""
    text = """def k(meta, scalars):
    n, m = meta[0], meta[1]
    a = pointer_f8(meta[2])
    b = pointer_f8(meta[5])
    for i in range(n):
        for j in range(m):
            independent()
            b[j] = b[j] + a[i * m + j]
        for j in range(m):
            independent()
            if a[i * m + j] < 0.0:
                continue
            b[j] = b[j] * 1.5
    return int32(0)
"""
    array, out = np.random.default_rng(1).standard_normal((17, 100)), np.zeros(100)
    expected = np.zeros(100)
    for row in array:
        expected += row
        expected[row >= 0] *= 1.5
    source = Source("numba", "k", text, 2, ("f8", "f8"), ())
    launch = launch_of((array.ravel(), out))
    launch.sizes, launch.strides = np.array([[17, 100]]), ((100, 1), (0, 1))
    CPU(threads=1).compile(source).launch(launch)
    np.testing.assert_array_equal(out, expected)


def test_the_mark_is_harmless_in_helpers_and_outside_loops() -> None:
    text = """@njit
def add(p, q, n):
    for j in range(n):
        independent()
        q[j] = p[j] + 1.0


def k(meta, scalars):
    independent()
    add(pointer_f8(meta[1]), pointer_f8(meta[3]), meta[0])
    return int32(0)
"""
    data, out = np.arange(50.0), np.zeros(50)
    CPU(threads=1).compile(Source("numba", "k", text, 1, ("f8", "f8"), ())).launch(
        launch_of((data, out))
    )
    np.testing.assert_array_equal(out, data + 1)
