"""Expressions of small arrays in several threads: they share places, programs and their tables."""

from __future__ import annotations

import itertools
import random
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse.arrays.base import NATIVE
from lazyfuse.runtime.scheduling import eager_fusion
from tests import reached
from tests.campaign import TIMEOUT, rounds
from tests.runtime.scheduling.test_eager_fusion import ARRAYS, program, told, world

pytestmark = TIMEOUT
THREADS = 3


@contextmanager
def switching(seconds: float) -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def in_threads(work: Callable[[int], object], count: int = THREADS) -> None:
    """Run `work(0)` ... in threads that begin together; the first failure is raised."""
    failures: list[BaseException] = []
    gate = threading.Barrier(count)

    def run(number: int) -> None:
        gate.wait()
        try:
            work(number)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def values(xp: Any, code: CodeType, seed: int, size: int) -> Any:
    """What a program gives and leaves behind."""
    names = world(xp, seed, size)
    notes: list[str] = []
    out: list[Any] = []
    names |= {"out": out, "note": lambda e: notes.append(f"{type(e).__name__}: {e}")}
    exec(code, names)
    kept = [told(each) for each in names["run"](*[names[each] for each in names["given"]])]
    return _plain([told(each) for each in out]), _plain(kept), notes


def _plain(found: list[Any]) -> list[Any]:
    """Without strides, which hang on memory that NumPy reuses."""
    return [
        _plain(each) if isinstance(each, list) else (each[0], each[1], each[2], each[4])
        for each in found
    ]


def function_of(text: str) -> str:
    """A program as a function of its names, which all threads call."""
    given = [*world(np, 0, 20), "out"]
    given.remove("np")
    inner = text.replace("\n", "\n    ")
    body = f"    {inner}\n    return {', '.join(ARRAYS)}\n"
    return f"given = {given}\ndef run({', '.join(given)}):\n{body}"


@pytest.mark.parametrize("interval", [5e-3, 1e-6])
@rounds(60, start=3 * 10**6)
def test_random_programs_of_several_threads(seeds: range, interval: float) -> None:
    """All threads go through the same places, which are new; some are compiled."""
    wrong: list[int] = []
    ways = itertools.cycle([{}, {"eager_below": 256}, {"eager_compile_above": 1}, {}])
    with warnings.catch_warnings(), switching(interval):
        warnings.simplefilter("ignore")
        for seed, way in zip(seeds, ways, strict=False):
            text = program(seed, strict=True)  # without complex numbers
            for inexact in ("np.hypot", "np.arctan2", "np.exp", " ** "):
                text = text.replace(inexact, " + " if inexact == " ** " else "np.add")
            text = text.replace("np.add(", "np.maximum(1.0, ") if "np.exp" in text else text
            code = compile(function_of(text), "<program>", "exec")
            size = random.Random(seed).choice([600, 1000, 3000])
            given = [seed, seed + 1, seed + 2]
            want = [values(np, code, each, size) for each in given]
            with reached.program(seed), lf.options(**way):

                def work(number: int) -> None:
                    if values(lf, code, given[number], size) != want[number]:  # noqa: B023
                        wrong.append(seed)  # noqa: B023

                in_threads(work)
    assert not wrong, f"{len(set(wrong))} of {len(seeds)} programs: {wrong[:5]}"


needs_native = pytest.mark.skipif(NATIVE is None, reason="expressions are C's")


@needs_native
def test_a_thread_that_comes_by_while_a_place_is_learnt(monkeypatch: pytest.MonkeyPatch) -> None:
    x = lf.arange(2000.0)
    seen: list[type] = []

    def look(y: Any) -> None:
        seen.append(type(y))

    def goes(x: Any) -> None:
        look(np.sqrt(x))
        look(lf.sqrt(x))

    def learn(code: CodeType, offset: int) -> Any:
        if code is goes.__code__:
            in_threads(lambda number: goes(x), 1)
        return eager_fusion.site(code, offset)

    NATIVE.expressions_forget()
    NATIVE.bind("expression_site", learn)
    try:
        for _ in range(20):
            goes(x)
    finally:
        NATIVE.bind("expression_site", eager_fusion.site)
    assert set(seen) == {type(np.sqrt(x)), type(x)}


PAIRS = [(one, two) for one in "+-*" for two in "+-*"]
DTYPES = "f8 f4 i8 i4 u4 u8".split()


def structures() -> Iterator[tuple[Callable[..., Any], list[slice], str]]:
    """More structures of two operations than the table of programs has room for."""
    for one, two in PAIRS:
        names: dict[str, Any] = {}
        exec(f"def run(a, b, c):\n    return (a {one} b) {two} c\n", names)
        for dtype in DTYPES:
            for steps in itertools.product((1, -1, 2), repeat=3):
                yield names["run"], [slice(None, None, step) for step in steps], dtype


def operands(xp: Any, parts: list[slice], dtype: str) -> list[Any]:
    lengths = [1200 if part.step == 2 else 600 for part in parts]
    return [
        xp.array((np.arange(n) * (k + 3) % 17).astype(dtype))[part]
        for k, (n, part) in enumerate(zip(lengths, parts, strict=True))
    ]


@needs_native
@pytest.mark.usefixtures("on_cpu")
def test_a_program_goes_to_its_own_structure() -> None:
    """While Python is asked for the program of one, its entry becomes another's."""
    everything = list(structures())
    asked: list[Any] = []

    def all_once() -> None:
        for run, parts, dtype in everything:
            run(*operands(lf, parts, dtype))

    def answer(structure: Any) -> Any:
        asked.append(structure)
        if len(asked) > 1:
            return None  # the others have no programs
        all_once()
        return eager_fusion.program(structure)

    with lf.options(eager_compile_above=1 << 15, compile_after=0):
        NATIVE.expressions_forget()
        for _ in range(9):  # the places are known
            for run, *_ in everything[:: 27 * len(DTYPES)]:
                run(*operands(lf, [slice(None)] * 3, "f8"))
        NATIVE.bind("expression_program", answer)
        try:
            first, parts, dtype = everything[0]
            while not asked:
                first(*operands(lf, parts, dtype))
            for run, parts, dtype in everything:
                given, want = operands(lf, parts, dtype), run(*operands(np, parts, dtype))
                for _ in range(30):
                    found = run(*given)
                assert np.array_equal(np.asarray(found), want), (parts, dtype)
        finally:
            NATIVE.bind("expression_program", eager_fusion.program)
            NATIVE.expressions_forget()
