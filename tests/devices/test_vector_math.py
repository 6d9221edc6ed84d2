"""Mathematical functions: right values, the same bits everywhere, vectorised loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lazyfuse.devices.base import Array, Source
from lazyfuse.devices.cpu import llvm_compiler
from lazyfuse.devices.cpu.device import CPU
from lazyfuse.devices.pools import object_code, vector_math
from tests.devices.sources import launch_of, map_source
from tests.pairwise import first

NUMPY: dict[str, Callable[..., Any]] = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "erf": np.vectorize(math.erf, otypes=["f8"]),
    "erfc": np.vectorize(math.erfc, otypes=["f8"]),
    "exp10": lambda x: np.power(10.0, x),
    "pow": np.power,
}
# Where the usual samples are not in the domain.
RANGES = {"acosh": (1.0, 9.0), "atanh": (-0.99, 0.99), "acos": (-1, 1), "asin": (-1, 1)}
POSITIVE = ("log", "log2", "log10", "log1p", "pow")
NAMES = sorted(vector_math.ARITY)

needs_libmvec = pytest.mark.skipif(
    vector_math.libmvec() is None, reason="no libmvec on this platform: scalar functions serve"
)


@pytest.fixture(scope="module")
def cpu() -> CPU:
    return CPU(threads=1)


def reference_of(name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = NUMPY[name] if name in NUMPY else getattr(np, name)
    return found


def source_of(name: str, code: str) -> Source:
    arity = vector_math.ARITY[name]
    prefix = "vm_" if code == "f8" else "vmf_"
    arguments = ", ".join(f"a{k}[i]" for k in range(arity))
    return map_source(f"a{arity}[i] = {prefix}{name}({arguments})", (code,) * (arity + 1))


def source_of_all(code: str) -> Source:
    """Every function of `a0` and `a1`, in one loop."""
    prefix = "vm_" if code == "f8" else "vmf_"
    calls = [("a0[i]", "a0[i], a1[i]")[vector_math.ARITY[name] - 1] for name in NAMES]
    lines = [f"a{k + 2}[i] = {prefix}{NAMES[k]}({calls[k]})" for k in range(len(NAMES))]
    return map_source("\n".join(lines), (code,) * (len(NAMES) + 2))


def samples(name: str, code: str, count: int) -> list[Array]:
    low, high = RANGES.get(name, (0.01, 20.0) if name in POSITIVE else (-9.0, 9.0))
    random = np.random.default_rng(7)
    return [random.uniform(low, high, count).astype(code) for _ in range(vector_math.ARITY[name])]


def run(cpu: CPU, name: str, inputs: list[Array]) -> Array:
    outs = [np.full_like(inputs[0], 77) for _ in NAMES]
    source = source_of_all(inputs[0].dtype.str[1:])
    cpu.compile(source).launch(launch_of((inputs[0], inputs[-1], *outs)))
    return outs[NAMES.index(name)]


@pytest.mark.parametrize("code", ["f8", "f4"])
@pytest.mark.parametrize("name", NAMES)
def test_values_are_within_four_units_in_the_last_place(cpu: CPU, name: str, code: str) -> None:
    inputs = samples(name, code, 1003)
    reference = reference_of(name)
    expected = reference(*[value.astype("f8") for value in inputs])
    error = np.abs(run(cpu, name, inputs).astype("f8") - expected)
    # erfc near its tail and exp10 by way of pow: the reference itself is off
    units = 32 if name in ("exp10", "erfc") and code == "f8" else 5
    assert (error <= units * np.spacing(np.abs(expected.astype(code)))).all()


# Each function in one precision: how a loop ends does not depend on what it calls.
@pytest.mark.parametrize(
    ("name", "code"),
    [
        pytest.param(name, code, marks=() if at % 2 == turn else pytest.mark.long)
        for at, name in enumerate(NAMES)
        for turn, code in enumerate(("f8", "f4"))
    ],
)
def test_a_result_does_not_depend_on_its_place(cpu: CPU, name: str, code: str) -> None:
    inputs = samples(name, code, 137)
    whole = run(cpu, name, inputs)
    for start in (1, 3, 8, 130):
        part = run(cpu, name, [value[start:] for value in inputs])
        assert part.tobytes() == whole[start:].tobytes()
    single = [run(cpu, name, [value[k : k + 1] for value in inputs])[0] for k in range(137)]
    assert np.array(single).tobytes() == whole.tobytes()


@pytest.mark.parametrize("code", ["f8", "f4"])
@pytest.mark.parametrize("name", NAMES)
def test_special_values_are_as_in_numpy(cpu: CPU, name: str, code: str) -> None:
    if name in ("erf", "erfc", "exp10"):
        expected_at = {"erf": [0.0, 1, -1], "erfc": [1.0, 0, 2], "exp10": [1.0, np.inf, 0]}[name]
        inputs = [np.array([0, np.inf, -np.inf], code)]
        np.testing.assert_array_equal(run(cpu, name, inputs), np.array(expected_at, code))
        return
    values = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan], code)
    grid = np.meshgrid(values, values) if vector_math.ARITY[name] == 2 else [values]
    inputs = [np.ascontiguousarray(part.ravel()) for part in grid]
    reference = reference_of(name)
    with np.errstate(all="ignore"):
        expected = reference(*inputs)
    result = run(cpu, name, inputs)
    np.testing.assert_allclose(result, expected, rtol=1e-6)
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(result[known]), np.signbit(expected[known]))


def loop_of(source: Source) -> str:
    text = llvm_compiler.assembly(source)
    return text[text.index("lazyfuse_entry:") :].split("\nlf_")[0]


# Of doubles, some of which are computed in the loop itself; of floats all are calls.
@needs_libmvec
@pytest.mark.parametrize("code", first(1, ["f8", "f4"]))
def test_loops_call_the_simd_version(code: str) -> None:
    loop = loop_of(source_of_all(code))
    for name in NAMES:
        features = object_code.target()[1]
        symbol, lanes = vector_math.vector_symbol(name, int(code[1]), features)
        assert lanes > 1
        if symbol.startswith("lf_own_"):  # in the loop itself
            alone = loop_of(source_of(name, code))
            assert "vpermi2pd" in alone or "vpermt2pd" in alone
        else:
            assert symbol in loop


@needs_libmvec
def test_a_loop_that_mixes_sizes_vectorises() -> None:
    body = "a2[i] = float64(vmf_sin(a0[i])) + vm_exp(a1[i])"
    text = llvm_compiler.assembly(map_source(body, ("f4", "f8", "f8")))
    loop = text[text.index("lazyfuse_entry:") :].split("\nlf_")[0]
    _, lanes = vector_math.vector_symbol("exp", 8, object_code.target()[1])
    assert f"lf_sinf_{lanes}" in loop


@pytest.mark.smoke
def test_functions_in_helpers_and_several_in_one_loop(cpu: CPU) -> None:
    helper = "@njit\ndef logistic(x):\n    return 1.0 / (1.0 + vm_exp(-x))\n\n\n"
    body = "a1[i] = logistic(a0[i]) + vm_pow(a0[i], 2.0) + vm_exp(a0[i]) + float64(vmf_exp(x0))"
    source = map_source(body, ("f8", "f8"), ("f4",), before=helper)
    data = np.linspace(-3, 3, 101)
    out = np.zeros(101)
    cpu.compile(source).launch(launch_of((data, out), (1.0,)))
    expected = 1 / (1 + np.exp(-data)) + data**2 + np.exp(data) + np.exp(np.float32(1.0))
    np.testing.assert_allclose(out, expected, rtol=1e-7)


def test_the_scalar_functions_serve_where_there_is_no_simd_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vector_math, "libmvec", lambda: None)
    source = map_source("a1[i] = vm_exp(a0[i]) + vm_atan2(a0[i], 2.0)", ("f8", "f8"))
    assert "_ZGV" not in llvm_compiler.assembly(source)
    data, out = np.linspace(-3, 3, 101), np.zeros(101)
    CPU(threads=1).compile(source).launch(launch_of((data, out)))
    np.testing.assert_allclose(out, np.exp(data) + np.arctan2(data, 2.0), rtol=1e-13)


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ("+sse4.1,+avx2,+avx512f", ("_ZGVeN8v_exp", 8)),
        ("+sse4.1,+avx2,-avx512f", ("_ZGVdN4v_exp", 4)),
        ("+sse4.1,-avx2", ("_ZGVbN2v_exp", 2)),
        ("", ("", 0)),
    ],
)
@needs_libmvec
def test_the_variant_follows_the_cpu(features: str, expected: tuple[str, int]) -> None:
    assert vector_math.vector_symbol("exp", 8, features) == expected
