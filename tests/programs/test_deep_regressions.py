"""What deep random programs once found, reduced: each runs with NumPy and with lazyfuse."""

from __future__ import annotations

import warnings
from typing import Any

import numpy
import pytest

import lazyfuse
from lazyfuse import config
from tests.programs.compare import Statement
from tests.programs.deep import DeepProgram, observe

CASES = {
    "elements of unstack are scalars": """
        a = np.unstack(np.array(R0) * 2)[:2]
        b = np.unstack(np.array(R0).reshape(8, 5) * 2, axis=-1)
    """,
    "flat reads what it has written": """
        a = np.arange(4) * 2; a.flat[1:] = a
    """,
    "outputs that share memory": """
        a = np.array(R0) + 1
        b = a.view()
        c = np.divmod(a, 3, out=(b, a))
    """,
    "real and imaginary parts convert numbers": """
        a, b = np.zeros(3, 'i2'), np.zeros(3, 'c8')
        a.real = np.int32(70000)
        b.imag = np.float64(1e300)
    """,
    "a third operand of maximum": """
        a = np.zeros(40)
        b = np.maximum(R0, 1, a)
    """,
    "conditions of work recorded before errors were asked for": """
        a = R0[:1] / np.zeros(40); c = np.seterr(all='raise'); b = a + 1; np.seterr(**c)
    """,
    "windows that meet are read back from memory": """
        a = np.arange(4)
        b = np.lib.stride_tricks.as_strided(a, (3, 2), a.strides * 2)
        c = b[::-1]; c += b; b[...] = c
    """,
    "scans refuse tuples of axes": "a = np.cumsum(np.array(R0), axis=(0,))",
    "select over memory that is handed out": """
        a = np.full((5, 3), 7)
        b = a.view('f4')
        c = np.select([a > 1, a < 0], [a, 1], 2)
    """,
    "counts over repeated axes keep the memory order": """
        a = np.broadcast_to(np.array(R0).reshape(8, 5), (3, 8, 5))
        b = np.count_nonzero(a, axis=2)
    """,
    "sums of complex numbers as real ones": "a = np.sum(np.array(R0) * 1j, axis=0, dtype='f4')",
}


def inputs() -> dict[str, Any]:
    return {"R0": numpy.random.default_rng(0).uniform(0, 2, 40)}


@pytest.mark.parametrize("below", [0, 3, 16384])
@pytest.mark.parametrize("case", CASES)
def test_regressions_A6(case: str, below: int) -> None:
    lines = [line.strip() for line in CASES[case].strip().splitlines()]
    statements = [Statement(line, *line.split(" = ")[:1]) for line in lines]
    with config.options(eager_below=below):
        observe(DeepProgram(inputs, statements, each=True))


def test_a_warning_made_an_error_leaves_the_error_state_alone_F8() -> None:
    with config.options(eager_below=0), warnings.catch_warnings():
        warnings.simplefilter("error")
        x = lazyfuse.ones(3) / lazyfuse.zeros(3)
        with pytest.raises(RuntimeWarning, match="divide by zero"):
            lazyfuse.errstate(all="raise").__enter__()
        assert numpy.geterr()["divide"] == "warn"
        assert numpy.isinf(numpy.asarray(x)).all()
