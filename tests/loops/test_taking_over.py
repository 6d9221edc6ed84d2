"""Loops are taken over while they run, and left where Python has to go on."""

from __future__ import annotations

import functools
import math
import operator
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lazyfuse.loops import take_over
from lazyfuse.tools.explain_loops import explain_loops
from tests.helpers.loop_programs import code_of, compiled_at_once

FILE = "<taken over>"


@pytest.fixture(autouse=True)
def at_once() -> Iterator[None]:
    """Every loop is compiled before its second turn."""
    with compiled_at_once():
        yield


def made(text: str, **names: Any) -> dict[str, Any]:
    """The names of a program whose loops may be taken over."""
    scope: dict[str, Any] = {"np": np, **names}
    exec(code_of(textwrap.dedent(text), FILE, True), scope)
    return scope


def of_loop(line: int) -> Any:
    return next(each for each in reversed(take_over.loops) if each.node.lineno == line)


def test_a_loop_goes_on_compiled() -> None:
    scope = made("""
        def total(n):
            s = 0
            for i in range(n):
                s += i * i
            return s
    """)
    assert scope["total"](1000) == sum(i * i for i in range(1000))
    assert of_loop(4).compiled_turns >= 998
    (state,) = explain_loops(scope["total"])
    assert state.line == 4
    assert not state.stays


def test_integers_go_on_beyond_64_bits() -> None:
    scope = made("""
        def power(n):
            s = 1
            for i in range(n):
                s = s * 3
            return s
    """)
    assert scope["power"](100) == 3**100
    assert of_loop(4).left == 1


def test_an_exception_has_its_line_and_its_names() -> None:
    scope = made("""
        def walk(v, n):
            s = 0.0
            for i in range(n):
                s = s + v[i]
                v[i] = s
            return s
    """)
    v = np.ones(5)
    with pytest.raises(IndexError, match="index 5 is out of bounds") as caught:
        scope["walk"](v, 9)
    frame = caught.traceback[-1].frame.f_locals
    assert caught.traceback[-1].lineno + 1 == 5
    assert frame["i"] == 5
    assert type(frame["s"]) is np.float64
    assert v.tolist() == [1, 2, 3, 4, 5]


def test_a_warning_has_its_line() -> None:
    scope = made("""
        def grow(v):
            for i in range(1, len(v)):
                v[i] = v[i - 1] * 1e200
    """)
    v = np.ones(4)
    with pytest.warns(RuntimeWarning, match="overflow encountered in scalar multiply") as told:
        scope["grow"](v)
    assert [each.lineno for each in told] == [4]
    assert np.isinf(v[2:]).all()


def test_a_comparison_has_the_warnings_of_what_it_compares() -> None:
    scope = made("""
        def count(v, w):
            n = 0
            for i in range(9):
                n += (v / w[i] < 1.0).sum()
            return n
    """)
    v, w = np.ones(4), np.arange(9.0)[::-1] - 2.0
    with pytest.warns(RuntimeWarning, match="divide by zero encountered in divide") as told:
        assert scope["count"](v, w) == 28
    assert [each.lineno for each in told] == [5]
    assert of_loop(4).compiled_turns > 5


def test_a_constant_that_does_not_fit_is_told_in_each_turn() -> None:
    """LLVM turns a constant in a choice into the infinity that it is in the array."""
    scope = made("""
        def fill(v, w):
            for i in range(9):
                v[:3] = np.where(w > i % 5, w, 1e300)
    """)
    v, w = np.zeros(3, "f4"), np.array([9.0, 3.0, 3.5])
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        scope["fill"](v, w)
    assert [str(each.message) for each in told] == ["overflow encountered in cast"] * 3
    assert of_loop(3).compiled_turns > 4
    assert v.tolist() == [9, math.inf, 3.5]


def test_squares_of_numpys_complex_zeros_have_no_signs() -> None:
    scope = made("""
        def squares(c, out):
            for i in range(len(c)):
                out[i] = c[i] ** 2
            return out
    """)
    zeros = [complex(x, y) for x in (0.0, -0.0) for y in (0.0, -0.0)]
    c = np.array([*zeros, complex(-1, 0), complex(0, -1), *zeros])
    out = scope["squares"](c, np.ones_like(c))
    expected = np.array([each**2 for each in c])
    assert out.tobytes() == expected.tobytes()
    assert of_loop(3).compiled_turns


def test_functions_that_are_replaced_are_seen() -> None:
    scope = made("""
        def weigh(x):
            return x * 2
        def total(n):
            s = 0
            for i in range(n):
                s += weigh(i)
            return s
    """)
    assert scope["total"](100) == 9900
    assert of_loop(6).compiled_turns > 90
    scope["weigh"] = lambda x: x * 3
    assert scope["total"](100) == 14850


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers")
def test_a_handler_that_changes_a_list_ends_the_loop_that_reads_it() -> None:
    text = """
def wait(flags, rows):
    n = 0
    while flags[0] == 0:
        for row in rows:
            n += row[0]
    return n
"""
    flags, rows = [0], [[1], [2]]
    scope = made(text)

    def handle(number: int, frame: Any) -> None:
        if explain_loops(scope["wait"])[0].compiled_turns > 1000:
            flags[:] = [1]
            rows.clear()

    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
        assert scope["wait"](flags, rows) > 1000
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert explain_loops(scope["wait"])[0].compiled_turns > 1000


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers")
def test_signals_are_served_and_raise_where_the_loop_is() -> None:
    scope = made("""
        def spin(n, v):
            s = 0
            for i in range(n):
                for j in range(1000):
                    s ^= j
                v[0] = i
            return s
    """)
    v = np.zeros(2)
    for _ in range(3):  # compiled for names with and without values
        scope["spin"](50, v)
    seen = []

    def handle(number: int, frame: Any) -> None:
        seen.append(v[0])
        if len(seen) >= 2:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)
        with pytest.raises(KeyboardInterrupt):
            scope["spin"](10**9, v)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(seen) == 2
    assert of_loop(4).compiled_turns > 1000


def test_other_threads_run_meanwhile() -> None:
    scope = made("""
        def wait(flag):
            k = 0
            while not flag[0]:
                k += 1
                if k > 1000000:
                    k = 0
            return k
    """)
    flag = np.zeros(1, dtype=bool)

    def put() -> None:
        time.sleep(0.3)
        flag[0] = True

    thread = threading.Thread(target=put)
    thread.start()
    scope["wait"](flag)
    thread.join()
    assert of_loop(4).entered


def test_tracers_see_python() -> None:
    scope = made("""
        def total(n):
            s = 0
            for i in range(n):
                s += i
            return s
    """)
    lines: list[int] = []

    def trace(frame: Any, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename == FILE and event == "line":
            lines.append(frame.f_lineno)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        assert scope["total"](20) == 190
    finally:
        sys.settrace(before)
    assert lines.count(5) == 20


def test_names_of_the_program_are_its_own() -> None:
    scope = made("""
        s = 0
        for i in range(50):
            s += i
    """)
    ours = [name for name in scope if name.startswith(".")]
    assert scope["s"] == 1225
    assert all(scope[name] is None or not hasattr(scope[name], "items") for name in ours)


def test_functions_that_ask_for_their_names_keep_their_code() -> None:
    text = "def f(n):\n    s = 0\n    for i in range(n):\n        s += i\n    return locals()\n"
    scope = made(text)
    assert scope["f"](4) == {"n": 4, "s": 6, "i": 3}


@pytest.mark.parametrize(
    ("text", "left"),
    [("for x in [1, 2]:\n    y = x + 1\n", {"y": 3}), ("while a:\n    a = a - 1\n", {"a": 0})],
)
def test_what_is_no_loop_of_numbers_stays(text: str, left: dict[str, int]) -> None:
    scope: dict[str, Any] = {"a": 5}
    exec(code_of(text, FILE, True), scope)
    assert scope | left == scope


def test_the_launcher_compiles_loops_and_a_second_process_enters_compiled(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(
        textwrap.dedent("""
            import numpy as np

            def table(n):
                t = np.zeros((n, n))
                for i in range(1, n):
                    for j in range(1, n):
                        t[i, j] = t[i - 1, j] + t[i, j - 1] * 0.5 + 1.0
                return t

            first = table(300)
            for k in range(3):
                again = table(300)
                assert (first == again).all()
            import lazyfuse
            print(any(each.compiled_turns for each in lazyfuse.explain_loops(table)))
            print(float(again[-1, -1]))
        """)
    )
    env = {**os.environ, "LAZYFUSE_CACHE_DIR": str(tmp_path / "cache")}
    env["LAZYFUSE_COMPILE_AHEAD"] = "0"
    told = [
        subprocess.run(
            [sys.executable, *command, str(file)],
            env=env,
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parents[2],
        ).stdout.split()
        for command in (["-m", "lazyfuse"], ["-m", "lazyfuse"], [])
    ]
    assert told[0][0] == told[1][0] == "True"
    assert told[0][1] == told[1][1] == told[2][-1]


def test_targets_are_done_from_left_to_right() -> None:
    scope = made("""
        def put(p, v, n):
            for i in range(n):
                p[0], v[p[0]] = i, i + 0.5
    """)
    p, v = np.zeros(1, dtype=int), np.zeros(9)
    scope["put"](p, v, 9)
    assert v.tolist() == [i + 0.5 for i in range(9)]


def test_sums_have_numpys_types_and_zeros() -> None:
    scope = made("""
        def sums(u, v, n):
            for i in range(n):
                a = u[:i].sum()
            for i in range(n):
                b = v[: n - 1 - i].sum()
                c = v[:: 2**62 + i].sum()
            return a, b, c
    """)
    u, v = np.arange(9, dtype="u1"), np.ones(9)
    a, b, c = scope["sums"](u, v, 9)
    assert type(a) is np.uint64
    assert (a, c) == (28, 1.0)
    assert np.copysign(1.0, b) == 1.0


def test_functions_of_modules_that_are_replaced_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("functions")
    module.__dict__["root"] = math.sqrt
    scope = made(
        """
        def total(n):
            s = 0.0
            for i in range(n):
                s += functions.root(i)
            return s
    """,
        functions=module,
    )
    for _ in range(3):  # compiled for names with and without values
        assert scope["total"](50) == functools.reduce(operator.add, map(math.sqrt, range(50)))
    assert of_loop(4).compiled_turns
    module.__dict__["root"] = math.exp
    assert scope["total"](50) == functools.reduce(operator.add, map(math.exp, range(50)))


def test_functions_of_one_place_and_name_are_told_apart() -> None:
    text = """
        def weigh(x):
            return x * {}
        def total(n):
            s = 0
            for i in range(n):
                s += weigh(i)
            return s
    """
    first, second = made(text.format(2)), made(text.format(3))
    assert (first["total"](50), second["total"](50)) == (2450, 3675)
    assert (first["total"](50), second["total"](50)) == (2450, 3675)
