"""Innermost loops that are asked once, before their turns: values, warnings, exceptions, memory."""

from __future__ import annotations

import math
import signal
import textwrap
import warnings
from typing import Any

import numpy as np
import pytest

from lazyfuse.loops import quick, take_over
from tests.helpers.loop_programs import _told as told
from tests.helpers.loop_programs import code_of, compiled_at_once

N = 2_500  # longer than what is kept at once

PROGRAMS = {
    "stencils": """
        for i in range(1, 49):
            for j in range(1, 49):
                B[i, j] = 0.2 * (A[i, j] + A[i, j - 1] + A[i, 1 + j] + A[i + 1, j] + A[i - 1, j])
        for i in range(48):
            for j in range(49):
                A[i, j] = A[i + 1, j] - B[i][j]
                B[48 - i, 48 - j] = A[i, j]
    """,
    "sums": """
        s, t, c = 0.0, 0, 2**59
        for i in range(n):
            s += x[i] * y[i]
            t += 3
            c -= p[i % 50]
            z[i] = s
            if x[i] > 0.5:
                t -= i
        for k in range(40):
            for i in range(30):
                t += 1099511627770
                s *= 1.0 + x[i]
                s -= x[k]
        out = s, t, c
    """,
    "sums beyond 64 bits": """
        t = 2**62
        for k in range(3):
            for i in range(n):
                t += 1099511627000 + i
        c = -(2**63) + 20
        for i in range(40):
            c -= 1
        t, c = 2**61 - 40, 2**63 - 2**61 - 5
        for i in range(20):
            t += c
            t += 30
            c = i
        out = out, t, c
    """,
    "steps": """
        for i in range(n - 1, -1, -1):
            x[i] = x[i] + y[n - 1 - i]
        for i in range(n - 1, 3, -4):
            y[i] = x[i - 3]
        for i in range(0, n, 3):
            x[i] *= 2.0
        for i in range(-9, 9):
            y[i] += 1.0
        for i in range(5, 5):
            y[i] = 100.0
        for i in range(n // 2):
            x[2 * i] = y[n - 1 - 2 * i] - x[2 * i + 1]
        out = i
    """,
    "out of range": """
        out = []
        for k in range(4):
            try:
                for i in range(n + 1):
                    x[i] += 1.0
                    y[i] = x[i - k] * 2.0
                    t = i
            except IndexError as error:
                out.append((str(error), i, t))
        try:
            for i in range(n):
                p[i - 60] += 1
        except IndexError as error:
            out.append((str(error), i))
    """,
    "warnings": """
        x[n - 40], y[n - 40] = 1e200, 1e200
        x[30], y[31], y[40] = np.inf, np.nan, 0.0
        for i in range(n):
            z[i] = x[i] * y[i]
        for i in range(n):
            z[i] += x[i] / y[i]
        s = 0.0
        for k in range(2):
            for i in range(n):
                s += x[i] * y[i]
        for i in range(50):
            small[i] = q[i] * q[i]
            q[i] += small[i]
        out = s
    """,
    "integers": """
        big = p * 2**57
        for k in range(3):
            for i in range(49):
                p[i] = p[i] + p[i + 1] - k
                small[i] = p[i] // 3
        for i in range(50):
            big[i] = big[i] + big[49 - i]
        out = []
        try:
            for i in range(50):
                small[i] = p[i] * 4000000
        except OverflowError as error:
            out.append((str(error), i))
        try:
            for i in range(50):
                p[i] = 7 // (p[i] - p[30])
        except ZeroDivisionError as error:
            out.append((str(error), i))
        out.append(big)
    """,
    "one memory by two names": """
        a, b = x[1:], x[:-1]
        for i in range(n - 1):
            a[i] = b[i] * 0.5 + 1.0
        for i in range(n - 2, -1, -1):
            b[i] = a[i] + 0.25
        c, d = A[:, 3], A[3]
        for k in range(2):
            for i in range(50):
                c[i] = d[i] * d[3] - c[49 - i]
        flat = A.reshape(-1)
        for k in range(40):
            for j in range(40):
                flat[k * 50 + j] += A[j, k]
        out = a, c
    """,
    "choices": """
        for k in range(2):
            for i in range(n):
                if x[i] > 0.0:
                    z[i] = math.sqrt(x[i])
                elif y[i] < 0.0:
                    z[i] = abs(y[i])
                else:
                    t = i
                flags[i] = x[i] > y[i] and x[i] < 1.0
                w = min(x[i], y[i])
                v = x[i] if flags[i] else w
        else:
            t = t + 1
        out = t, w, v
    """,
    "items": """
        s = 0.0
        for a in x:
            s += a
        for i, a in enumerate(y):
            x[i] = a - s
        for a, b in zip(x, y):
            s = max(s, a * b)
        for i, k in enumerate(p):
            y[i] += k
        out = s, i, k, a, b
    """,
    "attributes": """
        o = Box(x)
        for k in range(3):
            for i in range(n):
                o.values[i] += o.scale
                o.count += 1
        out = o.count, o.scale
    """,
}
TEXT = """
class Box:
    def __init__(self, values):
        self.values, self.scale, self.count = values, 0.5, 0
def f(A, B, x, y, z, p, q, small, flags):
    n, out = len(x), None
{}
    return A, B, x, y, z, p, q, small, flags, out
"""


def given() -> list[Any]:
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(2, N))
    p = rng.integers(-40, 60, 50)
    q = rng.integers(-46_400, 46_400, 50).astype("i4")
    return [
        rng.normal(size=(50, 50)), rng.normal(size=(50, 50)).T, x, y.copy(), np.zeros(2 * N)[::2],
        p, q, np.zeros(50, "i4"), np.zeros(N, bool),
    ]  # fmt: skip


def run(text: str, compiled: bool) -> Any:
    """What is left of the last of three calls, and the warnings of all."""
    scope: dict[str, Any] = {"np": np, "math": math}
    exec(code_of(text, "<quick>", compiled), scope)
    with warnings.catch_warnings(record=True) as caught:
        for _ in range(3):
            caught.clear()
            warnings.simplefilter("always")
            found = scope["f"](*given())
    lines = [(str(each.message), each.lineno) for each in caught]
    return [told(each) for each in found], lines


@pytest.mark.parametrize("sizes", [(1, 3), (8, 1024), (5, 64)], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_leave_what_python_leaves(
    name: str, sizes: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = TEXT.format(textwrap.indent(textwrap.dedent(PROGRAMS[name]), "    "))
    expected = run(text, False)
    before = len(take_over.loops)
    with compiled_at_once():
        monkeypatch.setattr(quick, "LEAST", sizes[0])
        monkeypatch.setattr(quick, "MOST", sizes[1])
        assert run(text, True) == expected
        loops = take_over.loops[before:]
    texts = [each.meant.text for loop in loops for each in loop.versions.values() if each]
    assert all(loop.entered for loop in loops if loop.turns), [x.refused for x in loops]
    assert sum("goes_on" in each for each in texts) > len(texts) // 2


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers")
def test_an_interrupt_comes_between_turns() -> None:
    text = """
def f(x, y, seen):
    try:
        for k in range(10**9):
            for i in range(len(x)):
                x[i] = x[i] + 1.0
                y[i] = x[i] * 2.0
    except KeyboardInterrupt:
        seen.append((k, i))
"""

    calls: list[None] = []

    def stop(*_: Any) -> None:
        calls.append(None)
        raise KeyboardInterrupt

    scope: dict[str, Any] = {}
    seen: list[tuple[int, int]] = []
    before = signal.signal(signal.SIGALRM, stop)
    try:
        with compiled_at_once():
            exec(code_of(text, "<quick>", True), scope)
            for delay in (0.3, 0.1, 0.2):
                x, y = np.zeros((2, 5_000))
                signal.setitimer(signal.ITIMER_REAL, delay, 9.0)  # again, if the first is lost
                scope["f"](x, y, seen)
                assert len(calls) == len(seen)
                k, i = seen[-1]
                assert (y[:i] == 2 * (k + 1)).all()
                assert (y[i + 1 :] == 2 * k).all()
                assert (x[:i] == k + 1).all()
                assert (x[i + 1 :] == k).all()
                assert x[i] in (k, k + 1)
                assert y[i] in (2 * x[i], 2 * x[i] - 2)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
