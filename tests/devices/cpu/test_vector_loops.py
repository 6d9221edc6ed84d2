"""Loops of blocked NumPy over the functions of compiled text: the same bits and conditions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lazyfuse.devices.base import Array, Source
from lazyfuse.devices.cpu import vector_loops
from lazyfuse.devices.cpu.device import CPU
from lazyfuse.devices.cpu.launch import Scratch
from lazyfuse.devices.pools import object_code, vector_math
from lazyfuse.devices.pools.disk_cache import DiskCache
from lazyfuse.runtime.capture import conditions
from tests.devices.sources import launch_of, map_source

SPECIAL = [
    0.0, -0.0, 1.0, -1.0, 0.5, np.inf, -np.inf, np.nan, 5e-324, -5e-324, 1e308, -1e308, 2.3e-308,
    709.8, -745.2, 1e22, 88.8, -104.0, 3e38, 1e-40, 2.0, 3.0, -2.0, 100.5,
]  # fmt: skip


@pytest.fixture(scope="module", params=["native", "llvmlite"])
def device(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[CPU]:
    """With loops of the native extension, where there is one, or of llvmlite alone."""
    folder = tmp_path_factory.mktemp("loops") / "programs"
    native = conditions.native
    vector_loops.use(native if request.param == "native" else None)
    yield CPU(disk=DiskCache(str(folder), 1 << 26))
    vector_loops.use(native)


def operands(size: int, arity: int) -> list[Array]:
    """Special values, in all pairs, and values of all magnitudes."""
    generator = np.random.default_rng(size)
    parts = []
    for k in range(arity):
        special = np.tile(SPECIAL, len(SPECIAL)) if k else np.repeat(SPECIAL, len(SPECIAL))
        tame = generator.normal(0, 3, 5003)
        unit = generator.uniform(-1, 1, 5003)
        wild = generator.integers(0, 1 << 62, 5003).view("f8")
        with np.errstate(all="ignore"):
            parts.append(np.concatenate([special, tame, unit, wild]).astype(f"f{size}"))
    return parts


def compiled(size: int) -> Source:
    """All functions in one program: operands x, y, then an output for each."""
    prefix = "vm_" if size == 8 else "vmf_"
    lines = ["x = a0[i]", "y = a1[i]"]
    for k, (name, arity) in enumerate(vector_math.ARITY.items(), 2):
        lines.append(f"a{k}[i] = {prefix}{name}({'x, y' if arity == 2 else 'x'})")
    count = 2 + len(vector_math.ARITY)
    return map_source("\n".join(lines), (f"f{size}",) * count, name=f"all{size}")


@pytest.mark.parametrize("size", [8, 4])
def test_every_function_has_the_bits_of_compiled_text_F11(device: CPU, size: int) -> None:
    x, y = operands(size, 2)
    expected = [np.empty_like(x) for _ in vector_math.ARITY]
    device.compile(compiled(size)).launch(launch_of((x, y, *expected)))
    prefix = "vm_" if size == 8 else "vmf_"
    for (name, arity), theirs in zip(vector_math.ARITY.items(), expected, strict=True):
        loop = device._vector_loops.loop(prefix + name)
        ours = np.empty_like(x)
        loop(ours, Scratch(), *(x, y)[:arity])
        assert ours.tobytes() == theirs.tobytes(), name
        for first in (1, 5, len(x) - 11):  # other places in a vector
            for count in (1, 2, 7, 8, 9, 31):
                part = slice(first, first + count)
                few = np.empty_like(x[part])
                loop(few, Scratch(), *(x[part], y[part])[:arity])
                assert few.tobytes() == theirs[part].tobytes(), (name, first, count)


@pytest.mark.parametrize("name", ["vm_exp", "vm_log", "vm_pow", "vmf_sin", "vmf_tanh"])
def test_conditions_are_those_of_compiled_text_B9(device: CPU, name: str) -> None:
    size = 8 if name.startswith("vm_") else 4
    arity = vector_math.ARITY[name.partition("_")[2]]
    text = f"a{arity}[i] = {name}({', '.join(f'a{k}[i]' for k in range(arity))})"
    program = device.compile(map_source(text, (f"f{size}",) * (arity + 1), name=f"only_{name}"))
    loop = device._vector_loops.loop(name)
    tame = np.linspace(0.5, 2.0, 40).astype(f"f{size}")
    for value in (1.0, *SPECIAL):
        given = [tame.copy() for _ in range(arity)]
        with np.errstate(all="ignore"):
            given[0][17] = value
        out = np.empty_like(tame)
        assert loop(out, Scratch(), *given) == program.launch(launch_of((*given, out))), value


def test_operands_of_any_layout_and_dtype(device: CPU) -> None:
    loop = device._vector_loops.loop("vm_pow")
    shape = (6, 10)
    x = np.random.default_rng(0).uniform(1, 2, shape)
    cases: list[tuple[Any, Any]] = [
        (x, np.float32(1.5)),
        (x.T.copy().T, np.asarray(3)),
        (np.repeat(x, 2, axis=1)[:, ::-2], x[:1]),
        (x.astype("f4"), x.astype("i4")),
    ]
    for first, second in cases:
        a, b = np.asarray(first), np.asarray(second)
        full = [np.ascontiguousarray(np.broadcast_to(each, shape), "f8") for each in (a, b)]
        expected = np.empty(shape)
        loop(expected, Scratch(), *full)
        for out in (np.empty(shape), np.empty((10, 6)).T, np.empty((6, 20))[:, ::2]):
            loop(out, Scratch(), a, b)
            assert np.array_equal(out, expected)
    same = x.copy()
    loop(same, Scratch(), same, same)
    expected = np.empty(shape)
    loop(expected, Scratch(), x, x)
    assert same.tobytes() == expected.tobytes()


def test_working_memory_that_is_let_go_of_is_not_read(
    device: CPU, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`Scratch` forgets its arrays when it is full, which may be between two operands."""
    loop = device._vector_loops.loop("vm_pow")
    x, y = np.random.default_rng(0).uniform(1, 2, (2, 20_000)).astype("f4")
    expected = np.empty(x.shape)
    loop(expected, Scratch(), x.astype("f8"), y.astype("f8"))
    monkeypatch.setattr(Scratch, "LIMIT", 0)
    found = np.empty(x.shape)
    for _ in range(4):
        loop(found, Scratch(), x, y)
        assert np.array_equal(found, expected)


@pytest.mark.skipif(conditions.native is None, reason="the loops of the native extension")
def test_the_extension_calls_the_version_of_compiled_text() -> None:
    _, features = object_code.target()
    ours = conditions.native.vector_features()
    for name in vector_math.ARITY:
        for size in (4, 8):
            chosen = vector_math.vector_symbol(name, size, features)
            assert vector_math.vector_symbol(name, size, ours) == chosen


def test_it_is_kept_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_loops, "ready", lambda name: None)
    for stores in (1, 0):
        device = CPU(disk=DiskCache(str(tmp_path / "programs"), 1 << 24))
        device._vector_loops.loop("vm_exp")
        assert device.info()["programs"]["disk"]["stores"] == stores


def test_without_a_simd_version_the_scalar_function_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vector_math, "vector_symbol", lambda *_: ("", 0))
    cpu, features = object_code.target()
    text = vector_loops.llvm_text("exp", 8, features)
    code = vector_loops.emit(text, cpu, features)
    loop = vector_loops._loaded(object_code.load(code, object_code.ENTRY), "exp", 8)
    x, y = np.linspace(-3, 3, 11), np.empty(11)
    loop(y, Scratch(), x)
    assert np.allclose(y, np.exp(x), rtol=1e-15, atol=0)
