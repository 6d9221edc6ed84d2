"""What random programs once found, reduced: each runs with NumPy and with lazyfuse."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

import lazyfuse
from lazyfuse import config
from lazyfuse.runtime.execution import program_tiers
from tests.programs.compare import Program, Statement, run

CASES = {
    "clip keeps the sign of a zero where the bounds are numbers": """
        x = np.array(R0) * -0.0
        a, b, c = x.clip(0, 3), np.clip(x, np.arange(1), 3.0), np.clip(x, -1, -0.0)
        d = np.clip(x, np.zeros(len(x)), 3.0)
    """,
    "clip with one keyword bound": "x = np.array(R0)\na = x.clip(x[::-1])\nb = x.clip(max=1)",
    "half precision next to other dtypes": """
        a = np.where(np.array(R0) > 1, np.float16(2.5), np.zeros(40, 'c8'))
        h = np.array(R0).astype('f2')
        b = h.argmin() <= h
        h[...] = b
    """,
    "sums over repeated axes walk as NumPy's": """
        a = np.broadcast_to(np.asarray(R0).reshape(8, 5), (3, 8, 5))
        b = a.mean(axis=-1, keepdims=True) / 3
        c = a.sum(axis=(0, 2))
    """,
    "indices come in C order": "a = np.array(R0).reshape(2, 4, 5).T\nb = a.argmin(axis=2)",
    "where without axes is an array": "a = np.where(np.array(R0).any(), 1.5, 0)\na[...] += 1",
    "arrays made of lazy scalars": """
        s = np.array(R0).any()
        a = np.array(s, dtype='i4')
        b, c = np.asarray(s, dtype='f4'), np.ascontiguousarray(np.array(R0).sum())
        d, e = s.conj(), s ** 2
    """,
    "flip of no axes": "a = np.flip(np.zeros(()))",
    "matmul of scalars": "a = np.array(R0).sum()\nb = a @ a",
    "masks convert numbers as arrays": """
        a = np.ones(40, 'i1')
        a[a > 0] = np.int32(70000)
    """,
    "masks refuse Python numbers": "a = np.ones(40, 'i1')\na[a > 0] = 70000",
    "integers refuse lazy scalars that they cannot hold": """
        a, s = np.ones(40, 'i1'), np.array(R0).sum()
        a[1:] = (s * 1e6).astype('i8')
        a[:2] = s
        a[:3] = s * np.nan
        a[a > 0] = (s * 1e6).astype('i8')
    """,
    "shapes and dtypes of out come first": """
        a, b = np.array(R0), np.arange(40)
        np.maximum(a, np.ones(7), out=b)
        np.maximum(a[1:], a, out=a)
    """,
    "read only comes before the index": """
        a = np.broadcast_to(np.array(R0), (3, 40))
        a[9, 0] = 1
    """,
    "astype hands a reversed array back": """
        a = np.array(R0)[::-1]
        b = a.astype('f8', copy=False)
        c = b is a
    """,
    "imaginary parts of real arrays": """
        a = np.array(R0).reshape(8, 5).T.imag
        b = a.flags.writeable
    """,
    "rounding to decimals forgets the memory order": """
        a = np.array(R0).reshape(8, 5)
        b, c, d = np.round(a.T[::2], 1), np.round(a.T, 1), np.round(a.T[::2])
    """,
    "read only comes before the number": """
        a = np.broadcast_to(np.array(R0).astype('u1'), (3, 40))
        a.fill(-129)
    """,
    "casts name what they refuse": "a = np.array(R0).astype('i4', casting='safe')",
    "the identity of a sum": "a = np.array(R0) * -0.0\nb = a.mean(axis=0, keepdims=True)",
}


def inputs() -> dict[str, Any]:
    return {"R0": numpy.random.default_rng(0).uniform(0, 2, 40)}


@pytest.mark.smoke
@pytest.mark.parametrize("below", [0, 16384])
@pytest.mark.parametrize("case", CASES)
def test_regressions_A6(case: str, below: int) -> None:
    lines = [line.strip() for line in CASES[case].strip().splitlines()]
    with config.options(eager_below=below):
        run(Program(inputs, [Statement(line, look=False) for line in lines]))


def test_clip_compiled_keeps_the_sign_of_a_zero_A6(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_tiers, "COMPILE_ELEMENTS", 0)
    lines = ["x = np.array(R0) * -0.0", "a = x.clip(0.0, 3.0)", "b = np.clip(x, x * -1.0, 3.0)"]
    with config.options(eager_below=0, compile_after=0):
        run(Program(inputs, [Statement(line) for line in lines]))


@pytest.mark.parametrize("size", [8, 40_000])
def test_windows_that_meet_are_written_in_numpys_order_A6(size: int) -> None:
    def call(xp: Any) -> Any:
        x = xp.array(numpy.random.default_rng(0).uniform(0, 2, (size, 3))) + 0.5
        windows = xp.lib.stride_tricks.sliding_window_view(x, 2, 0, writeable=True)
        windows += 1
        windows *= windows * 2.0 + windows
        windows[...] = windows * 0.5 + xp.arange(2)
        return x

    with config.options(eager_below=0, compile_after=0):
        numpy.testing.assert_array_equal(numpy.asarray(call(lazyfuse)), call(numpy))


@pytest.mark.parametrize("function", ["floor_divide", "remainder", "fmod"])
@pytest.mark.parametrize("dtype", ["i4", "u8", "i8"])
def test_compiled_integer_division_by_zero_warns_A6(
    function: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_tiers, "COMPILE_ELEMENTS", 0)
    with config.options(eager_below=0, compile_after=0):
        x = lazyfuse.arange(300_000).astype(dtype)
        found = getattr(lazyfuse, function)(x * 2 + 1, x) + 1
        with pytest.warns(RuntimeWarning, match=f"divide by zero encountered in {function}"):
            found.to_numpy()
