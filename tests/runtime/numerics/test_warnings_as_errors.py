"""Where filters make errors of warnings, a statement raises where it stands, and is done once."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy
import pytest

import lazyfuse
from tests import campaign

N = 60_000


@pytest.fixture(autouse=True)
def at_once() -> Iterator[None]:
    with lazyfuse.options(errors_at_once=True):
        yield


def told(lines: list[str], np: Any, look: Any) -> Any:
    """What each statement raises, and the arrays at the end."""
    k = numpy.arange(N)
    names = {
        "np": np,
        "a": np.array((k * 37 % 101) * 0.25 - 3.0),
        "b": np.array((k * 31 % 97) * 0.5 + 1.0),
    }
    raised = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for line in lines:
            try:
                exec(line, names)
                if look is not None:
                    look(names["a"])
            except Warning as error:
                raised.append((line, type(error), str(error)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            arrays = [numpy.array(names[name]) for name in "ab"]
    return raised, arrays


def same(lines: list[str], look: Any = numpy.asarray) -> None:
    ours, theirs = told(lines, lazyfuse, look), told(lines, numpy, look)
    assert ours[0] == theirs[0], lines
    for mine, other in zip(ours[1], theirs[1], strict=True):
        numpy.testing.assert_array_equal(mine, other, str(lines))


STATEMENTS = (
    "a *= 1e308; a *= 1e308", "a *= 1e308", "a /= 0 * a", "np.sqrt(a, out=a)",
    "a *= 1e307; a += a * 10", "a[10:-10] /= 0.0 * b[20:]", "b = a * 1e308 * 10", "b = np.log(a)",
    "a[3:] = b[3:] / (0 * b[:-3])", "a = (a / 0).sum()", "b -= np.sqrt(a)",
    "a, b = b, a * 1e308 * a",
)  # fmt: skip
LOOKS = (numpy.asarray, lambda a: float(a.ravel()[3]) if a.ndim else float(a), None)


@pytest.mark.parametrize("look", LOOKS, ids=["asarray", "float", "nobody"])
@pytest.mark.parametrize("line", STATEMENTS)
def test_the_statement_raises_and_is_done_once(line: str, look: Any) -> None:
    same([line, "a = a + 1", "b *= 2"], look=look)


def test_filters_that_change_in_place() -> None:
    x = lazyfuse.array(numpy.full(N, 1e300))
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        for _ in range(3):
            y = x * 2.0
            warnings.simplefilter("error")
            with pytest.raises(RuntimeWarning, match="overflow encountered in multiply"):
                x * 1e300
            warnings.filterwarnings("ignore", category=RuntimeWarning)
            assert lazyfuse.isinf(x * 1e300).all()
            warnings.resetwarnings()
            assert float(y[5]) == 2e300


def test_what_is_ignored_or_shown_stays_recorded() -> None:
    x = lazyfuse.array(numpy.full(N, 2.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", RuntimeWarning)
        assert "1 recorded operations" in str(lazyfuse.explain(x * 2.0))
    with warnings.catch_warnings():
        warnings.resetwarnings()
        warnings.simplefilter("error", DeprecationWarning)
        assert "1 recorded operations" in str(lazyfuse.explain(x * 2.0))


def test_on_the_command_line() -> None:
    """Where the interpreter's own list of filters says so from the beginning."""
    program = (
        "import numpy, lazyfuse as np\n"
        "a = np.array(numpy.full(60_000, 1e300))\n"
        "for turn in range(3):\n"
        "    try: a *= 1e300; print('not reached')\n"
        "    except RuntimeWarning as error: print(error)\n"
        "    a = a * 0 + 1e300 if turn else np.array(numpy.full(60_000, 1e300))\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "LAZYFUSE_ERRORS_AT_ONCE"}
    found = []
    for text in (program, program.replace("lazyfuse as np", "numpy as np")):
        command = [sys.executable, "-W", "error", "-c", text]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        found.append((done.returncode, done.stdout, done.stderr.splitlines()[-1:]))
    assert found[0] == found[1]


PARTS = (
    "a = a * {n}", "a *= {n}", "a += b", "b = a / b", "b[{i}:] *= a[{i}:]",
    "a[:{i}] = b[:{i}] * {n}",
    "a = np.where(a > b, a, b / a)", "b = np.sqrt(abs(a)) - b", "a /= b - {n}",
    "b = np.maximum(a, b)",
    "a = np.log(b)", "b -= b.sum()", "a = a - a.max()", "b = np.exp(a * 0.01)", "a = a[::-1] + b",
)  # fmt: skip


@campaign.rounds(40)
def test_random_statements(seeds: range) -> None:
    for seed in seeds:
        draw = random.Random(seed)
        lines = [
            draw.choice(PARTS).format(
                n=draw.choice([0.0, 2.5, 1e200, -1e308]), i=draw.randrange(1, 99)
            )
            for _ in range(draw.randrange(2, 9))
        ]
        exact = not any("log" in line or "exp" in line or "sum" in line for line in lines)
        if exact:
            same(lines, draw.choice(LOOKS[::2]))


@pytest.mark.parametrize("ask", [numpy.asarray, numpy.array, numpy.ascontiguousarray])
def test_what_a_buffer_request_raises_is_not_lost(ask: Any) -> None:
    """NumPy asks for a buffer first and drops what that raises."""
    with lazyfuse.options(errors_at_once=False):
        x = lazyfuse.array(numpy.full(N, 1e300)) * 1e300
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(RuntimeWarning, match="overflow encountered in multiply"):
                ask(x)
            assert numpy.isinf(ask(x)).all()  # told once


def test_an_error_of_a_memoryview_is_raised_once() -> None:
    with lazyfuse.options(errors_at_once=False):
        x = lazyfuse.array(numpy.full(N, 1e300)) * 1e300
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises((RuntimeWarning, SystemError)):
                memoryview(x)
            assert memoryview(x)[3] == numpy.inf
            assert numpy.asarray(x)[5] == numpy.inf
            assert x.__array__()[7] == numpy.inf
