"""`lazyfuse` and `python -m lazyfuse`: unedited programs, as plain Python would run them."""

from __future__ import annotations

import importlib
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

import lazyfuse.__main__

ROOT = Path(__file__).parents[2]
Result = subprocess.CompletedProcess[str]


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))


def run(folder: Path, *arguments: str) -> Result:
    command = [sys.executable, "-W", "error", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100)


def lazy(folder: Path, *arguments: str) -> Result:
    return run(folder, "-m", "lazyfuse", *arguments)


def command(folder: Path, *arguments: str) -> Result:
    """By the console script, as pip writes it."""
    script = folder / "bin" / "lazyfuse"
    write(folder, {"bin/lazyfuse": SCRIPT})
    return run(folder, str(script), *arguments)


SCRIPT = """
    import sys
    from lazyfuse.__main__ import command
    if __name__ == "__main__":
        sys.argv[0] = sys.argv[0].removesuffix(".exe")
        sys.exit(command())
"""


def same(folder: Path, *arguments: str) -> Result:
    """Run under both and compare everything a shell can see."""
    plain, ours, script = (each(folder, *arguments) for each in (run, lazy, command))
    for found in (ours, script):
        assert found.stdout == plain.stdout
        assert found.stderr == plain.stderr
        assert found.returncode == plain.returncode
    return ours


IMPORTS = """
    import numpy
    import numpy as np
    import numpy.linalg
    import numpy.typing, numpy.testing as testing
    import numpy.linalg as la, math
    from numpy import add, ndarray as array_type
    from numpy.linalg import norm
    from numpy.lib.stride_tricks import sliding_window_view
    import importlib

    def late():
        import numpy.fft
        return numpy

    found = {
        "numpy": numpy, "np": np, "late": late(), "add": add, "norm": norm, "la": la,
        "type": array_type, "import_module": importlib.import_module("numpy"),
        "__import__": __import__("numpy"), "window": sliding_window_view, "fft": late().fft,
        "testing": testing,
    }

    def is_ours(thing):
        names = [getattr(thing, name, "") for name in ("__name__", "__module__")]
        names.append(type(thing).__module__)  # ufuncs themselves say what NumPy's say
        return any(each.startswith("lazyfuse") for each in names)
"""


@pytest.mark.smoke
def test_every_kind_of_import_is_replaced(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "program.py": IMPORTS + "\n    print([n for n, t in found.items() if not is_ours(t)])",
            "main.py": """
                import program, package.inner
                from package.inner import np
                print(np.__name__, package.inner.numpy.__name__, type(np.zeros(3)))
            """,
            "package/__init__.py": "",
            "package/inner.py": "import numpy as np\nfrom . import other\nnumpy = other.numpy\n",
            "package/other.py": "import numpy\n",
        },
    )
    assert lazy(tmp_path, "program.py").stdout == "[]\n"
    result = lazy(tmp_path, "main.py")
    expected = "[]\nlazyfuse lazyfuse <class 'lazyfuse.ndarray'>\n"
    assert result.stdout == expected, result.stderr
    assert not list(tmp_path.rglob("*program*.pyc")), "rewritten code must not be cached"


def test_installed_packages_keep_numpy(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "main.py": """
                import os, sys
                sys.path.append(os.path.abspath("env/lib/site-packages"))
                import numpy, pandas, third
                frame = pandas.DataFrame({"a": numpy.arange(3.0)})
                print(third.np.__name__, pandas.core.frame.np.__name__, numpy.__name__)
                print(frame["a"].sum(), sys.modules["numpy"].__name__)
            """,
            "env/lib/site-packages/third.py": "import numpy as np\n",
        },
    )
    result = lazy(tmp_path, "main.py")
    assert result.stdout == "numpy numpy lazyfuse\n3.0 numpy\n", result.stderr


def test_the_program_sees_what_plain_python_shows(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "sub/main.py": """
                '''What it is.'''
                import inspect, os, pickle, sys
                import helper, numpy

                class Thing:
                    def __init__(self, x): self.x = x

                print(sys.argv, os.path.basename(sys.path[0]), __name__, __doc__, __file__)
                print(__spec__, __package__, sys.modules["__main__"].Thing is Thing)
                print(pickle.loads(pickle.dumps(Thing(3))).x, helper.name, inspect.getsource(Thing))
            """,
            "sub/helper.py": "name = __name__\n",
        },
    )
    result = same(tmp_path, "sub/main.py", "a", "-b", "--report")
    assert "['sub/main.py', 'a', '-b', '--report'] sub __main__ What it is." in result.stdout


def test_tracebacks_show_the_program_only(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "main.py": """
                import numpy as np
                import helper
                helper.fail(np.zeros(3))
            """,
            "helper.py": """
                import numpy as np
                def fail(x):
                    return [][np.argmax(x)]
            """,
            "broken.py": "import numpy as np\nx = = 3\n",
            "late.py": "import broken\n",
        },
    )
    assert same(tmp_path, "main.py").stderr.count("File ") == 2
    for name in ("broken.py", "late.py"):
        result = lazy(tmp_path, name)
        assert result.returncode == 1
        assert "SyntaxError" in result.stderr
        assert 'broken.py", line 2' in result.stderr


@pytest.mark.parametrize(
    "ending",
    [
        "sys.exit('a reason')",
        "raise ValueError('no')",
        "os._exit(4)",
        "atexit.register(print, 'last')",
        # as above, but for the number
        *[
            pytest.param(text, marks=pytest.mark.long)
            for text in (
                "sys.exit(7)",
                "sys.exit()",
                "raise SystemExit(3)",
                "sys.excepthook = lambda *_: print('mine'); 1 / 0",
            )
        ],
    ],
)
def test_endings(tmp_path: Path, ending: str) -> None:
    write(
        tmp_path,
        {"main.py": f"import atexit, os, sys, numpy\nprint('begun', flush=True)\n{ending}\n"},
    )
    same(tmp_path, "main.py")


def test_modules_and_packages_run_with_m(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "tool/__init__.py": "",
            "tool/__main__.py": """
                import sys
                from . import work
                print(work.np.__name__, __name__, __package__, sys.argv[1:], __spec__.name)
            """,
            "tool/work.py": "import numpy as np\n",
            "single.py": "import numpy, sys; print(numpy.__name__, sys.argv[1:], __name__)\n",
            "folder/__main__.py": "import numpy, other; print(numpy.__name__, other.x)\n",
            "folder/other.py": "x = 5\n",
        },
    )
    result = lazy(tmp_path, "-m", "tool", "-x")
    assert result.stdout == "lazyfuse __main__ tool ['-x'] tool.__main__\n", result.stderr
    assert lazy(tmp_path, "-m", "single", "1").stdout == "lazyfuse ['1'] __main__\n"
    assert lazy(tmp_path, "folder").stdout == "lazyfuse 5\n"


def test_the_console_script_is_this_command() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    module, _, name = settings["project"]["scripts"]["lazyfuse"].partition(":")
    assert getattr(importlib.import_module(module), name) is lazyfuse.__main__.command


def test_programs_of_no_file(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "other.py": "import numpy\nx = 5\n",
            "main.py": "import sys; print(sys.argv)\n",
        },
    )
    text = "import numpy as np, other, sys; print(np.sum([1, 2]), other.x, sys.argv, __name__)"
    same(tmp_path, "-c", text, "a", "--report", "-c")
    same(tmp_path, "-c", f"{text}; print(repr(sys.path[0]))\nother.y")
    same(tmp_path, "-c", "import numpy as np\n[][np.argmax(np.zeros(3))]")
    assert command(tmp_path, "-c", "import numpy; print(numpy.__name__)").stdout == "lazyfuse\n"
    assert lazy(tmp_path, "--", "main.py", "--report").stdout == "['main.py', '--report']\n"


def test_a_program_from_the_standard_input(tmp_path: Path) -> None:
    text = "import numpy, sys\nprint(numpy.__name__, sys.argv, __name__)\n"
    call = [sys.executable, "-m", "lazyfuse", "-", "a"]
    done = subprocess.run(
        call, cwd=tmp_path, capture_output=True, text=True, input=text, timeout=99
    )
    assert done.stdout == "lazyfuse ['-', 'a'] __main__\n", done.stderr


def test_the_command_finds_modules_where_it_is_called(tmp_path: Path) -> None:
    write(tmp_path, {"single.py": "import numpy, sys; print(numpy.__name__, sys.path[0])\n"})
    assert command(tmp_path, "-m", "single").stdout == f"lazyfuse {tmp_path}\n"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["-c"], "usage: "),
        (["--nonsense", "x.py"], "unknown option --nonsense"),
        (["missing.py"], "can't open file 'missing.py'"),
        (["-m", "missing_module"], "no module named missing_module"),
        (["-m"], "usage: "),
    ],
)
def test_wrong_command_lines_are_explained(tmp_path: Path, arguments: list[str], text: str) -> None:
    result = lazy(tmp_path, *arguments)
    assert result.returncode == 2
    assert text in result.stderr
    assert "Traceback" not in result.stderr


def test_options_and_help(tmp_path: Path) -> None:
    assert "LAZYFUSE_EAGER_BELOW" in lazy(tmp_path, "--options").stdout
    assert "usage: " in lazy(tmp_path, "--help").stdout


@pytest.mark.smoke
def test_report_names_the_line(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "main.py": """
                import numpy as np
                a = np.linspace(0.0, 1.0, 200_000)
                b = a * 2.0 + 1.0
                print(float(b.sum()))
            """
        },
    )
    result = lazy(tmp_path, "--report", "main.py")
    assert result.returncode == 0, result.stderr
    assert result.stdout == run(tmp_path, "main.py").stdout
    assert "kernels launched" in result.stderr
    assert "main.py:" in result.stderr


def test_forked_workers(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "main.py": """
                import multiprocessing
                import numpy as np

                def work(k):
                    return float((np.arange(100_000.0) * k + 1.0).sum())

                if __name__ == "__main__":
                    work(1)  # threads and programs exist before the fork
                    with multiprocessing.get_context("fork").Pool(2) as pool:
                        print(pool.map(work, range(4)))
            """
        },
    )
    same(tmp_path, "main.py")
