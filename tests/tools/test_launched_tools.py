"""`lazyfuse -m TOOL`: debuggers, profilers, test runners, prompts run the user's code as ours."""

from __future__ import annotations

import ast
import importlib.util
import os
import pstats
import pty
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from lazyfuse.interop import import_hook
from tests.tools.test_main import Result, lazy, run, write

PROGRAM = {
    "main.py": """
        import sys
        import numpy as np
        import helper

        def work(n):
            x = np.arange(float(n))
            return helper.total(x)

        if __name__ == "__main__":
            print(np.__name__, helper.np.__name__, work(4), sys.argv[1:])
    """,
    "helper.py": """
        import numpy as np

        def total(x):
            assert isinstance(x, np.ndarray)
            return float(x.sum())
    """,
}
SAID = "lazyfuse lazyfuse 6.0 ['a']\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, PROGRAM)
    return tmp_path


def typed(folder: Path, text: str, *arguments: str) -> Result:
    """Run with `text` on the standard input."""
    call = [sys.executable, "-m", "lazyfuse", *arguments]
    return subprocess.run(
        call, cwd=folder, input=text, capture_output=True, text=True, timeout=100, check=False
    )


# ---------------------------------------------------------------------- debuggers, profilers


def test_pdb_stops_in_the_program_and_its_prompt_has_lazyfuse(folder: Path) -> None:
    commands = "b 7\nc\np np.__name__\nimport numpy.linalg as la\np la.__name__\nn\np x\nw\nc\nq\n"
    found = typed(folder, commands, "-m", "pdb", "main.py", "a")
    assert "(Pdb) 'lazyfuse'" in found.stdout
    assert "(Pdb) (Pdb) 'lazyfuse.linalg'" in found.stdout, found.stdout
    assert "array([0., 1., 2., 3.])" in found.stdout
    assert "main.py(8)work()" in found.stdout
    assert SAID in found.stdout
    assert "changed nothing" not in found.stderr


def test_steps_of_pdb_go_over_operations_of_arrays(folder: Path) -> None:
    found = typed(folder, "b 7\nc\n" + "s\n" * 4 + "q\n", "-m", "pdb", "main.py")
    stops = [line for line in found.stdout.splitlines() if "> /" in line]
    places = [line.rpartition("/")[2] for line in stops]
    expected = ["main.py(7)work()", "main.py(8)work()", "helper.py(4)total()"]
    assert places[1:] == [*expected, "helper.py(5)total()", "helper.py(6)total()"], found.stdout


def test_steps_of_pdb_enter_functions_that_numpy_calls(tmp_path: Path) -> None:
    text = "import numpy as np\ndef f(x):\n    return x + 1\nnp.fromfunction(f, (2,))\n"
    write(tmp_path, {"main.py": text})
    found = typed(tmp_path, "b 4\nc\n" + "s\n" * 40 + "q\n", "-m", "pdb", "main.py")
    assert "main.py(2)f()" in found.stdout, found.stdout


def test_breakpoint_in_a_program(tmp_path: Path) -> None:
    write(tmp_path, {"main.py": "import numpy as np\nbreakpoint()\nx = np.zeros(2) + 1\ny = x\n"})
    found = typed(tmp_path, "n\ns\np type(x)\nc\n", "main.py")
    assert "main.py(4)<module>()" in found.stdout, found.stdout
    assert "<class 'lazyfuse.ndarray'>" in found.stdout


def test_cprofile_counts_the_programs_functions(folder: Path) -> None:
    found = lazy(folder, "-m", "cProfile", "-o", "out.prof", "main.py", "a")
    assert found.stdout == SAID, found.stderr
    names = {
        (Path(file).name, name) for file, _, name in pstats.Stats(str(folder / "out.prof")).stats
    }  # type: ignore[attr-defined]
    assert {("main.py", "work"), ("helper.py", "total")} <= names


@pytest.mark.parametrize("tool", ["cProfile -s cumtime", "trace --trackcalls", "kernprof -l"])
def test_tools_that_run_a_script(folder: Path, tool: str) -> None:
    name, *options = tool.split()
    pytest.importorskip(name)
    found = lazy(folder, "-m", name, *options, "main.py", "a")
    assert SAID in found.stdout, found.stderr
    assert found.returncode == 0


def test_coverage_finds_the_lines_that_ran(folder: Path) -> None:
    pytest.importorskip("coverage")
    found = lazy(folder, "-m", "coverage", "run", "--branch", "--source=.", "-m", "main")
    assert found.returncode == 0, found.stderr
    plain = run(folder, "-m", "coverage", "report", "--show-missing").stdout.splitlines()
    assert [line.split() for line in plain[2:4]] == [
        ["helper.py", "4", "0", "0", "0", "100%"],
        ["main.py", "8", "0", "2", "1", "90%", "10->exit"],
    ]


def test_timeit(folder: Path) -> None:
    found = lazy(
        folder, "-m", "timeit", "-n1", "-r1", "-s", "import numpy as np", "print(np.__name__)"
    )
    assert found.stdout.startswith("lazyfuse\n1 loop"), found.stderr
    assert found.stderr == ""


# ------------------------------------------------------------------------------ test runners


TESTS = {
    "conftest.py": """
        import numpy as np
        import pytest

        @pytest.fixture
        def x():
            return np.arange(3.0)
    """,
    "test_it.py": """
        import numpy
        import conftest

        def test_name(x):
            names = numpy.__name__, conftest.np.__name__, type(x).__module__
            assert names == ("lazyfuse", "lazyfuse", "lazyfuse")

        def test_numpy(x):
            assert numpy.__name__ == "numpy"

        def test_wrong(x):
            assert x.sum() == 4.0
    """,
}


PYTEST = ("-m", "pytest", "-q", "--rootdir=.")


def test_pytest_runs_tests_with_lazyfuse_and_explains_failures(tmp_path: Path) -> None:
    write(tmp_path, TESTS)
    found = lazy(tmp_path, *PYTEST)
    assert "test_it.py:13: AssertionError" in found.stdout, found.stdout
    assert "E       assert np.float64(3.0) == 4.0" in found.stdout
    assert "2 failed, 1 passed" in found.stdout
    assert found.returncode == 1
    assert found.stderr == ""


def test_what_pytest_keeps_on_disk_is_not_mixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    write(tmp_path, TESTS)
    lazy(tmp_path, *PYTEST, "-k", "numpy")
    assert "1 passed" in run(tmp_path, *PYTEST, "-k", "numpy").stdout
    assert "1 failed" in lazy(tmp_path, *PYTEST, "-k", "numpy").stdout
    kept = sorted(path.name for path in tmp_path.glob("__pycache__/test_it*"))
    assert len(kept) == 2
    assert kept[0].startswith("test_it-lazyfuse")


def test_workers_of_pytest_xdist_run_with_lazyfuse(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    write(tmp_path, TESTS)
    found = lazy(tmp_path, *PYTEST, "-n", "1", "-k", "name")
    assert "1 passed" in found.stdout, found.stdout + found.stderr
    assert found.stderr == ""


def test_unittest_and_doctest(tmp_path: Path) -> None:
    files = {
        "test_two.py": """
            import unittest
            import numpy as np

            class Two(unittest.TestCase):
                def test_name(self):
                    self.assertEqual(np.__name__, "lazyfuse")
        """,
        "text.txt": """
            >>> import numpy as np
            >>> np.__name__
            'lazyfuse'
            >>> np.ones(2) + 1
            array([2., 2.])
        """,
        "module.py": """
            def f():
                '''
                >>> from numpy import linalg
                >>> linalg.__name__
                'lazyfuse.linalg'
                '''
        """,
    }
    write(tmp_path, files)
    found = lazy(tmp_path, "-m", "unittest")
    assert found.stderr.endswith("\n\nOK\n"), found.stderr
    found = lazy(tmp_path, "-m", "doctest", "text.txt", "module.py")
    assert (found.stdout, found.stderr, found.returncode) == ("", "", 0)


# ----------------------------------------------------------------------------- other processes


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_new_processes_of_multiprocessing_run_with_lazyfuse(tmp_path: Path, method: str) -> None:
    text = f"""
        import multiprocessing
        import numpy as np
        import helper

        def name(_):
            return np.__name__, helper.np.__name__, helper.total(np.ones(3))

        if __name__ == "__main__":
            with multiprocessing.get_context("{method}").Pool(1) as pool:
                print(pool.map(name, [0]))
    """
    write(tmp_path, {**PROGRAM, "main.py": text})
    found = lazy(tmp_path, "main.py")
    assert found.stdout == "[('lazyfuse', 'lazyfuse', 3.0)]\n", found.stderr
    assert found.stderr == ""
    assert run(tmp_path, "main.py").stdout == "[('numpy', 'numpy', 3.0)]\n"


def test_workers_of_joblib_run_with_lazyfuse(tmp_path: Path) -> None:
    pytest.importorskip("joblib")
    text = """
        import joblib
        import helper

        if __name__ == "__main__":
            print(joblib.Parallel(2)(joblib.delayed(helper.name)() for _ in range(2)))
    """
    write(
        tmp_path,
        {"main.py": text, "helper.py": "import numpy\ndef name():\n    return numpy.__name__\n"},
    )
    found = typed(tmp_path, "", "main.py")
    assert found.stdout == "['lazyfuse', 'lazyfuse']\n", found.stderr


# -------------------------------------------------------------------------------- text as code


def test_text_that_the_program_runs(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "main.py": """
                from __future__ import annotations
                text = "import numpy as np; name = np.__name__"

                def local():
                    found = {}
                    exec(text, found)
                    return found["name"]

                exec(text)
                print(name, local(), eval(" __import__('numpy').__name__"))
                exec(compile(text, "<made>", "exec"))
                print(name, eval("1 + 1"), eval(compile("2", "<made>", "eval")))
                exec("def f(x: undefined): import numpy; return numpy.__name__")
                print(f(1), f.__annotations__)
                import other
                print(other.found["np"].__name__)
            """,
            "other.py": "found = {}\nexec('import n' + 'umpy as np', found)\n",
            "third.py": "import sys; sys.path.append('site-packages'); import made",
            "site-packages/made.py": """
                space = {}
                exec(compile("import numpy; name = numpy.__name__", "<made>", "exec"), space)
                print(space["name"])
            """,
        },
    )
    found = lazy(tmp_path, "main.py")
    expected = [
        "lazyfuse lazyfuse lazyfuse",
        "lazyfuse 2 2",
        "lazyfuse {'x': 'undefined'}",
        "lazyfuse",
    ]
    assert found.stdout.splitlines() == expected, found.stderr
    assert lazy(tmp_path, "third.py").stdout == "numpy\n"


def test_without_arguments_the_program_is_on_the_standard_input(tmp_path: Path) -> None:
    text = "import numpy, sys\nprint(numpy.__name__, sys.argv, repr(sys.path[0]), __name__)\n"
    assert typed(tmp_path, text).stdout == "lazyfuse [''] '' __main__\n"


def test_without_arguments_a_terminal_is_a_prompt(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "dumb", "PYTHONSTARTUP": "start.py", "HOME": str(tmp_path)}
    write(tmp_path, {"start.py": "import numpy as begun\n"})
    call = [sys.executable, "-m", "lazyfuse"]
    with subprocess.Popen(
        call, cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        said = until(ours, ">>> ")
        os.write(ours, b"import numpy as np\n")
        said += until(ours, ">>> ")
        os.write(ours, b"np.ones(2) + 1, begun.__name__\n")
        said += until(ours, ">>> ")
        os.write(ours, b"[][1]\n")
        said += until(ours, ">>> ")
        os.write(ours, b"import sys; sys.exit(3)\n")
        process.wait(60)
    os.close(ours)
    assert said.startswith(f"Python {sys.version_info[0]}.")
    assert "(array([2., 2.]), 'lazyfuse')" in said
    assert 'File "<stdin>", line 1, in <module>\r\nIndexError' in said
    assert "lazyfuse/" not in said
    assert process.returncode == 3


def until(terminal: int, end: str) -> str:
    """What a terminal shows until `end` stands there, within a minute."""
    said, last = "", time.monotonic() + 60
    while not said.endswith(end) and time.monotonic() < last:
        if select.select([terminal], [], [], 0.1)[0]:
            said += os.read(terminal, 4096).decode()
    assert said.endswith(end), said
    return said


# ------------------------------------------------------------------------- errors, and nothing


def test_errors_are_shown_as_under_python(tmp_path: Path) -> None:
    files = {
        "broken.py": "import numpy as np\nx = = 3\n",
        "caught.py": """
            import traceback
            import numpy as np
            try:
                import broken
            except SyntaxError:
                traceback.print_exc()
            try:
                compile("import numpy; x = = 3", "<made>", "exec")
            except SyntaxError as error:
                print(error)
            import failing
        """,
        "failing.py": "import numpy as np\n\n\n[][np.argmax(np.zeros(3))]\n",
    }
    write(tmp_path, files)
    for arguments in (["caught.py"], ["-c", "import numpy, broken"]):
        plain, ours = run(tmp_path, *arguments), lazy(tmp_path, *arguments)
        assert ours.stdout == plain.stdout
        assert ours.stderr == plain.stderr
        assert ours.returncode == plain.returncode == 1
    ours = lazy(tmp_path, "-m", "cProfile", "broken.py")
    assert 'broken.py", line 2' in ours.stderr
    assert "import_hook" not in ours.stderr


def test_exit_codes_pass_through_tools(tmp_path: Path) -> None:
    write(tmp_path, {"main.py": "import numpy, sys\nsys.exit(5)\n"})
    tool = ["-m", "coverage", "run"] if importlib.util.find_spec("coverage") else ["-m", "main"]
    assert lazy(tmp_path, *tool, "main.py").returncode == 5


def test_a_program_that_lazyfuse_does_not_touch_is_told(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "main.py": "import helper\nprint('done')\n",
            "helper.py": "x = 1\n",
        },
    )
    told = "lazyfuse changed nothing: found no import of numpy outside installed packages"
    found = lazy(tmp_path, "main.py")
    assert found.stdout == "done\n"
    assert found.stderr == f"{told} (files and texts: 2)\n"
    assert lazy(tmp_path, "-m", "platform").stderr == f"{told} (files and texts: 0)\n"


def test_python_is_left_as_it_was(tmp_path: Path) -> None:
    text = """
        import builtins
        import sys
        from importlib.machinery import SourceFileLoader

        def state():
            return builtins.compile, SourceFileLoader.get_code, "get_code" in vars(SourceFileLoader)

        before = state()
        import lazyfuse
        assert before == state()
        assert "lazyfuse.interop.launched" not in sys.modules
        from lazyfuse.interop import import_hook
        import_hook.install(texts=False)
        import one
        exec(compile("import numpy", "main.py", "exec"))
        assert (one.numpy.__name__, numpy.__name__) == ("lazyfuse", "numpy")
        import_hook.install()
        exec(compile("import numpy", "main.py", "exec"))
        assert numpy.__name__ == "lazyfuse"
        import_hook.remove()
        import two
        assert (before, two.numpy.__name__) == (state(), "numpy")
    """
    write(tmp_path, {"main.py": text, "one.py": "import numpy\n", "two.py": "import numpy\n"})
    assert run(tmp_path, "main.py").stderr == ""


def test_a_program_may_have_deep_expressions(tmp_path: Path) -> None:
    text = f"import numpy\nprint(numpy.__name__, {'+'.join(['1'] * 900)})\n"
    write(tmp_path, {"main.py": text})
    assert lazy(tmp_path, "main.py").stdout == "lazyfuse 900\n"
    assert run(tmp_path, "main.py").stdout == "numpy 900\n"


def test_a_tree_that_is_too_deep_to_copy_stays_as_it_is() -> None:
    tree = ast.parse("import numpy\nsum_ = " + "+".join(["1"] * 900))
    names: dict[str, Any] = {}
    code = import_hook._replaced_code(tree, "main.py")
    exec(code or compile(tree, "main.py", "exec"), names)
    assert names["sum_"] == 900
