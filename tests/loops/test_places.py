"""Where loops are compiled without the launcher: accelerated functions, packages asked for.

Those of notebooks are in tests/tools/test_notebook.py.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import os
import pickle
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import lazyfuse
from lazyfuse.loops import find, take_over
from lazyfuse.loops.leaving import copied
from lazyfuse.loops.prepared import prepared
from lazyfuse.tools.compile_loops import compile_loops
from lazyfuse.tools.explain_loops import explain_loops
from tests.helpers.loop_programs import code_of, compiled_at_once

HERE = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def at_once() -> Iterator[None]:
    with compiled_at_once():
        yield


def module(folder: Path, text: str, name: str = "of_a_user") -> ModuleType:
    """A module with a file, as Python imports it."""
    file = folder / f"{name}.py"
    file.write_text(textwrap.dedent(text))
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def turns(function: Callable[..., Any]) -> int:
    """How many turns of a function's loops ran compiled."""
    return sum(each.compiled_turns for each in explain_loops(function))


def total(k: int) -> Callable[..., Any]:
    @lazyfuse.accelerate
    def inner(v: Any, n: int) -> Any:
        s = 0.0
        for i in range(n):
            s += v[i] * k
        return s

    return inner


class Grid:
    def __init__(self) -> None:
        self.__step = 0.5

    @lazyfuse.accelerate
    def fill(self, t: Any) -> Any:
        step = self.__step
        for i in range(1, len(t)):
            t[i] = t[i - 1] + step
        return t


@pytest.mark.parametrize("n", [300, 100_000])
def test_a_loop_of_a_closure_is_compiled(n: int) -> None:
    v = np.arange(float(n))
    double, triple = total(2), total(3)
    for _ in range(3):
        assert double(v, 300) == 2 * sum(range(300))
        assert triple(v, 300) == 3 * sum(range(300))
    assert turns(double) > 1500


@pytest.mark.parametrize("n", [300, 100_000])
def test_a_loop_of_a_method_is_compiled(n: int) -> None:
    t = np.zeros(n)
    assert Grid().fill(t) is t
    assert t.tolist() == [k * 0.5 for k in range(n)]
    assert turns(Grid.fill) > n - 10


def test_an_exception_in_an_accelerated_loop_has_its_line() -> None:
    with pytest.raises(IndexError, match="index 300 is out of bounds") as caught:
        total(2)(np.ones(300), 301)
    (entry,) = [each for each in caught.traceback[1:] if str(each.path) == __file__]
    assert str(entry.statement).strip() == "s += v[i] * k"


def test_functions_around_and_inside_have_their_loops_compiled(tmp_path: Path) -> None:
    made = module(
        tmp_path,
        """
        import functools

        def logged(function):
            @functools.wraps(function)
            def call(*args):
                return function(*args)
            return call

        @logged
        def outer(n, start=1, *, step=2):
            def inner(s):
                for i in range(n):
                    s += i * step
                return s
            return inner(start)
        """,
    )
    accelerated = lazyfuse.accelerate(made.outer.__wrapped__)
    for _ in range(3):
        assert accelerated(100) == made.outer(100) == 1 + 9900
    assert turns(accelerated) > 250
    assert made.outer.__wrapped__.__code__ is accelerated.__wrapped__.__code__


def test_a_text_that_has_changed_is_not_used(tmp_path: Path) -> None:
    text = """
        def changed(n):
            s = 0
            for i in range(n):
                s += i * 2
            return s

        def same(n):
            s = 0
            for i in range(n):
                s += i
            return s
    """
    made = module(tmp_path, text)
    (tmp_path / "of_a_user.py").write_text(textwrap.dedent(text.replace("i * 2", "i * 3")))
    assert prepared(made.changed.__code__) is made.changed.__code__
    assert lazyfuse.accelerate(made.changed)(100) == 9900
    assert turns(made.changed) == 0
    same = lazyfuse.accelerate(made.same)
    assert same(100) == 4950
    assert turns(same) > 90


def test_a_function_without_a_text_runs_as_before() -> None:
    scope: dict[str, Any] = {}
    text = "def f(n):\n    s = 0\n    for i in range(n):\n        s += i * 2\n    return s\n"
    exec(text, scope)
    assert prepared(scope["f"].__code__) is scope["f"].__code__
    assert lazyfuse.accelerate(scope["f"])(100) == 9900


def test_code_with_loops_of_ours_stays() -> None:
    scope: dict[str, Any] = {}
    exec(code_of("def f(n):\n    for i in range(n):\n        n += i\n", __file__, True), scope)
    assert prepared(scope["f"].__code__) is scope["f"].__code__


def test_a_function_for_another_compiler_keeps_its_code() -> None:
    text = """
    @numba.njit(cache=True)
    def decorated(n):
        for i in range(n): n += i
    def given(n):
        for i in range(n): n += i
    given = numba.jit(nopython=True)(given)
    def plain(n):
        for i in range(n): n += i
    """
    code = code_of(textwrap.dedent(text), "<compilers>", True)
    found = {each.co_name: each for each in code.co_consts if hasattr(each, "co_name")}
    held = {
        name: any(isinstance(each, take_over.Loop) for each in code.co_consts)
        for name, code in found.items()
    }
    assert held == {"decorated": False, "given": False, "plain": True}


def test_what_other_tools_note_in_a_tree_is_not_copied() -> None:
    tree = ast.parse("for i in range(9):\n    s = i * 2")
    for node in ast.walk(tree):
        node.parent = threading.Lock()  # type: ignore[attr-defined]
    assert ast.dump(copied(tree)) == ast.dump(tree)
    assert find.rewrite(tree, "<noted>")


def test_a_function_is_pickled_with_its_loops() -> None:
    cloudpickle = pytest.importorskip("cloudpickle")
    scope: dict[str, Any] = {"__name__": "__main__"}
    text = "def f(n):\n    s = 0\n    for i in range(n):\n        s += i * 2\n    return s\n"
    exec(code_of(text, "<pickled>", True), scope)
    again = pickle.loads(cloudpickle.dumps(scope["f"]))
    assert again(100) == 9900
    assert take_over.loops[-1].compiled_turns > 90


def test_packages_are_compiled_where_they_are_asked_for(tmp_path: Path) -> None:
    """A package beside it stays, NumPy stays NumPy, and what is imported already takes part."""
    loop = "s = 0\n    for i in range(n):\n        s += 2 * i\n    return s\n"
    for name in ("asked/early", "asked/inner/late", "other/module", "askedalike/module"):
        file = tmp_path / "site-packages" / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        (file.parent / "__init__.py").touch()
        file.write_text(f"from numpy import ones\ndef f(n):\n    {loop}")
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent("""
            import importlib, sys, numpy
            import asked.early, other.module
            held = asked.early.f
            import lazyfuse
            from lazyfuse import explain_loops
            before = list(sys.meta_path)
            import lazyfuse.loops.find
            assert sys.meta_path == before
            lazyfuse.compile_loops("asked")
            lazyfuse.compile_loops("asked")
            import asked.inner.late, askedalike.module
            def mine(n):
                s = 0
                for i in range(n):
                    s += 2 * i
                return s
            lazyfuse.compile_loops(__name__)
            for f in (held, asked.inner.late.f, other.module.f, askedalike.module.f, mine):
                for _ in range(8):
                    assert f(200_000) == 200_000 * 199_999
                print(sum(each.compiled_turns for each in explain_loops(f)) > 0)
            assert asked.inner.late.ones is numpy.ones
            assert held is asked.early.f
        """)
    )
    env = {**os.environ, "LAZYFUSE_COMPILE_AHEAD": "0"}
    env["PYTHONPATH"] = os.pathsep.join([str(HERE), str(tmp_path / "site-packages")])
    command = [sys.executable, "-W", "error", str(program)]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.split() == ["True", "True", "False", "False", "True"]


@pytest.mark.parametrize(
    ("names", "error", "text"),
    [
        ((), TypeError, "expected names of packages"),
        ((3,), TypeError, "expected names of packages, got 3"),
        (("no_package_of_this_name",), ValueError, "expected what can be imported"),
        (("",), ValueError, "expected what can be imported"),
        (("numpy.linalg",), ValueError, "expected others than NumPy and lazyfuse"),
    ],
)
def test_what_is_no_package_is_refused(names: Any, error: type[Exception], text: str) -> None:
    before = list(sys.meta_path)
    with pytest.raises(error, match=rf"\[compile_loops\] packages: {text}"):
        compile_loops(*names)
    assert sys.meta_path == before


def test_wrapped_functions_are_explained() -> None:
    @functools.wraps(total)
    def wrapper() -> None: ...

    assert explain_loops(wrapper) == explain_loops(total)
