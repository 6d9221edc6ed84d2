"""The extension in IPython's own shell, in this process: cells as a user types them."""

from __future__ import annotations

import atexit
import importlib
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

import lazyfuse
from lazyfuse.interop import import_hook
from lazyfuse.runtime.events import counters, numpy_calls
from lazyfuse.runtime.execution.executor import Run
from lazyfuse.tools.explain_loops import explain_loops
from tests.helpers.loop_programs import compiled_at_once

pytest.importorskip("IPython", reason="IPython is not installed")
from IPython.core.interactiveshell import InteractiveShell

LOAD = "%load_ext lazyfuse"


class Cells:
    """A shell whose cells are run one by one; `shown` is what was displayed and not printed."""

    def __init__(self, shell: InteractiveShell, capture: Any) -> None:
        self.shell = shell
        self._capture = capture

    def __call__(self, text: str) -> str:
        """Run a cell that has to succeed; what it printed and displayed, as text."""
        done = self.shell.run_cell(text, store_history=True)
        done.raise_error()
        return str(self._capture.readouterr().out)

    def __getitem__(self, name: str) -> Any:
        return self.shell.user_ns[name]


@pytest.fixture
def cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Cells]:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    hooks = sys.displayhook, sys.excepthook
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance()
    shell.history_manager.enabled = False
    try:
        yield Cells(shell, capsys)
    finally:
        lazyfuse.unload_ipython_extension(shell)
        atexit.unregister(shell.atexit_operations)
        shell.atexit_operations()
        InteractiveShell.clear_instance()
        sys.displayhook, sys.excepthook = hooks


def test_later_cells_import_lazyfuse_as_numpy(cell: Cells) -> None:
    cell(LOAD)
    cell("import numpy as np\nfrom numpy import linalg\nimport numpy.fft\nx = np.ones(3)")
    assert cell["np"] is cell["numpy"] is lazyfuse
    assert cell["linalg"] is lazyfuse.linalg
    assert type(cell["x"]) is lazyfuse.ndarray
    assert sys.modules["numpy"] is numpy


def test_imports_behind_it_in_the_same_cell_are_lazyfuse_too(cell: Cells) -> None:
    told = cell(
        f"{LOAD}\nimport numpy as np\nif True:\n    import numpy.linalg as la\nx = np.ones(3)"
    )
    assert "Run its import again" not in told
    assert cell["np"] is lazyfuse
    assert cell["la"] is lazyfuse.linalg
    assert type(cell["x"]) is lazyfuse.ndarray


def test_an_array_is_displayed_as_numpys(cell: Cells) -> None:
    cell(LOAD)
    assert cell("import numpy as np\nnp.arange(3) * 2.0") == "Out[2]: array([0., 2., 4.])\n"


def test_unloading_gives_numpy_back(cell: Cells) -> None:
    cell(LOAD)
    cell("import numpy as np")
    assert import_hook.is_installed()
    cell("%unload_ext lazyfuse")
    assert not import_hook.is_installed()
    cell("import numpy")
    assert cell["np"] is lazyfuse, "names that are bound stay"
    assert cell["numpy"] is numpy
    assert "lazyfuse.timeit" not in cell.shell.magics_manager.magics["line"]
    assert cell.shell.ast_transformers == []


def test_loading_again_changes_nothing(cell: Cells) -> None:
    cell(LOAD)
    cell(LOAD)
    lazyfuse.load_ipython_extension(cell.shell)
    assert len(cell.shell.ast_transformers) == 1
    cell("%reload_ext lazyfuse")
    assert len(cell.shell.ast_transformers) == 1
    cell("import numpy")
    assert cell["numpy"] is lazyfuse


def test_modules_of_the_folder_get_lazyfuse(
    cell: Cells, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_module_of_notebook.py").write_text("import numpy as np\nx = np.ones(4)\n")
    cell(LOAD)
    cell("import own_module_of_notebook as own")
    monkeypatch.delitem(sys.modules, "own_module_of_notebook")
    assert cell["own"].np is lazyfuse


def test_what_has_numpy_from_before_is_named(
    cell: Cells, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "early_module_of_notebook.py").write_text("import numpy as np\n")
    cell("import numpy as np\nimport early_module_of_notebook")
    told = cell(LOAD)
    monkeypatch.delitem(sys.modules, "early_module_of_notebook")
    assert "NumPy from before: np. Run its import again" in told
    (modules,) = (line for line in told.splitlines() if line.startswith("modules with NumPy"))
    assert "early_module_of_notebook" in modules  # these tests, too, are the user's own modules


def test_dir_of_the_package_does_not_show_the_extension() -> None:
    names = dir(importlib.import_module("lazyfuse"))
    assert "load_ipython_extension" not in names
    assert "unload_ipython_extension" not in names


# ------------------------------------------------------------------------------------ report


def test_report_is_that_of_the_cell_alone(cell: Cells) -> None:
    cell(LOAD)
    cell("import numpy as np\na = np.arange(200_000.) + 1\nb = float(np.exp(a / 1e6).sum()) + a[3]")
    before = counters.totals().kernels
    told = cell("%%lazyfuse.report\nc = np.sqrt(a * 3)\nd = float(c[5])\nd")
    assert f"Out[3]: {numpy.sqrt(18.0)}" in told
    assert "at In [3]:3" in told or "In [3]:2" in told
    assert "In [2]" not in told
    assert counters.totals().kernels > before, "the program's counters have the cell's work"
    assert not lazyfuse.options.report


def test_report_of_a_cell_counts_its_calls_of_numpy(cell: Cells) -> None:
    cell(LOAD)
    cell("import numpy as np\nx = np.arange(12.)\nnp.trapezoid(x)")
    numpy_calls.clear_counts()
    cell("np.apply_along_axis(sum, 0, x)")
    before = dict(numpy_calls.counts())
    told = cell("%%lazyfuse.report\nnp.polyfit(x, x, 1);")
    assert "apply_along_axis" not in told
    assert before.items() <= numpy_calls.counts().items()


def test_report_after_an_error_leaves_the_counters_whole(cell: Cells) -> None:
    cell(LOAD)
    cell("import numpy as np\na = np.arange(200_000.) * 2\nb = float(a.sum())")
    before = counters.totals().kernels
    with pytest.raises(ZeroDivisionError):
        cell("%%lazyfuse.report\nc = float((a + 1).sum())\n1 / 0")
    assert counters.totals().kernels > before
    assert not lazyfuse.options.report


def test_report_takes_no_line(cell: Cells) -> None:
    cell(LOAD)
    with pytest.raises(ValueError, match=r"expected nothing behind %%lazyfuse\.report, got 'x'"):
        cell("%%lazyfuse.report x\n1")


# ------------------------------------------------------------------------------------ timeit


def test_timeit_computes_in_every_run(cell: Cells) -> None:
    cell(LOAD)
    cell("import numpy as np\na = np.arange(200_000.) + 0\nnp.evaluate(a)")
    before = sum(counters.totals().flushes.values())
    told = cell("%lazyfuse.timeit -n 4 -r 3 a * 2 + 1")
    assert sum(counters.totals().flushes.values()) - before >= 12
    assert "each run computes its results; %timeit would time" in told
    assert "3 runs, 4 loops each" in told


def test_timeit_of_a_cell_computes_what_it_assigns(cell: Cells) -> None:
    cell(LOAD)
    cell("import numpy as np\na = np.zeros(200_000) + 1\nnp.evaluate(a)")
    before = sum(counters.totals().flushes.values())
    told = cell("r = %lazyfuse.timeit -n 2 -r 2 -q -o b = a + 1; c = [b * 2]\n")
    assert told == ""
    assert cell["r"].loops == 2
    assert sum(counters.totals().flushes.values()) - before >= 4
    cell("%%lazyfuse.timeit -n 2 -r 2 k = a * 3\na[...] = k + 1")
    assert lazyfuse.explain(cell["a"]).recorded == 0, "written elements are computed, too"
    assert "_lazyfuse_compute" not in cell.shell.user_ns


def test_timeit_leaves_functions_as_they_are(cell: Cells) -> None:
    cell(LOAD)
    cell(
        "%%lazyfuse.timeit -n 1 -r 1\ndef f(x):\n    'text'\n    x\n    return 3\nassert f(1) == 3"
    )


def test_timeit_without_a_statement_is_an_error(cell: Cells) -> None:
    cell(LOAD)
    with pytest.raises(ValueError, match="statement: expected one, got none"):
        cell("%lazyfuse.timeit -n 3")


# ----------------------------------------------------------------------------------- explain


def test_explain_of_an_expression_computes_nothing(cell: Cells) -> None:
    cell(LOAD)
    cell("import numpy as np\na = np.arange(200_000.) + 0\nnp.evaluate(a)")
    before, numbers = counters.totals().kernels, lazyfuse.options.lazy_numbers
    told = cell("%lazyfuse.explain (np.exp(a) * 2).sum()")
    assert "3 recorded operations" in told
    assert counters.totals().kernels == before
    assert lazyfuse.options.lazy_numbers is numbers


def test_explain_of_a_cell_without_expression_takes_what_it_assigns(cell: Cells) -> None:
    cell(LOAD)
    cell("import numpy as np\na = np.arange(200_000.) + 0\nnp.evaluate(a)")
    told = cell("%%lazyfuse.explain\nb = a * 2\nc = b + 1\nn = 5")
    assert "2 recorded operations" in told
    assert cell("%lazyfuse.explain 5") == "nothing to explain: there is no array of lazyfuse\n"


# -------------------------------------------------------------------------------------- pages

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "notebooks.md"


def test_the_cells_of_the_page_run(cell: Cells) -> None:
    cells = re.findall(r"```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(cells) == 6
    told = [cell(text) for text in cells]
    assert "array([0." in told[1]
    assert "kernels" in told[2]
    assert "per loop" in told[3]
    assert "recorded operations" in told[4]


# ----------------------------------------------------------------------------------- interrupts


def test_after_an_interrupt_the_next_cell_is_right(
    cell: Cells, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stop button is SIGINT; here it comes when a plan begins to run, and IPython shows it."""
    cell(LOAD)
    cell("import numpy as np\na = np.arange(300_000.) + 0\nnp.evaluate(a)")
    execute, sent = Run.execute, []

    def interrupt(self: Run) -> None:
        if not sent:
            sent.append(True)
            signal.raise_signal(signal.SIGINT)
        execute(self)

    monkeypatch.setattr(Run, "execute", interrupt)
    done = cell.shell.run_cell("b = np.sqrt(a * 2) + np.sort(a)[::-1]\nnp.evaluate(b)\nc = 5")
    assert sent
    assert isinstance(done.error_in_exec, KeyboardInterrupt)
    assert "c" not in cell.shell.user_ns
    cell("d = np.sqrt(a * 2) + np.sort(a)[::-1]\nr = float(b[7]), float(d[7]), float(a.sum())")
    wanted = numpy.sqrt(14.0) + 299_992
    assert cell["r"] == (wanted, wanted, 300_000 * 299_999 / 2)


# ------------------------------------------------------------------------------------ loops

TABLE = """
import numpy as np
def table(n):
    t = np.zeros((n, n))
    for i in range(1, n):
        for j in range(1, n):
            t[i, j] = t[i - 1, j] + t[i, j - 1] * 0.5 + 1.0
    return t
"""


@pytest.fixture
def at_once() -> Iterator[None]:
    with compiled_at_once():
        yield


@pytest.mark.usefixtures("at_once")
def test_loops_of_cells_are_compiled(cell: Cells) -> None:
    cell(TABLE)
    expected = cell["table"](30)
    cell(LOAD)
    cell(f"{TABLE}for _ in range(3):\n    t = table(30)")
    assert (expected == cell["t"]).all()
    outer, inner = explain_loops(cell["table"])
    assert outer.compiled_turns > 60
    assert inner.code == "for j in range(1, n):"


@pytest.mark.usefixtures("at_once")
def test_loops_at_the_top_of_a_cell_are_compiled_and_leave_no_names(cell: Cells) -> None:
    cell(LOAD)
    before = set(cell.shell.user_ns)
    cell("s = 0\nfor i in range(100):\n    s += i * 2")
    assert cell["s"] == 9900
    assert {"s", "i"} <= set(cell.shell.user_ns) - before
    assert not [name for name in cell.shell.user_ns if name.startswith(".")]
    assert explain_loops()[-1].compiled_turns > 90


@pytest.mark.usefixtures("at_once")
def test_loops_behind_the_extension_in_its_cell_are_compiled(cell: Cells) -> None:
    cell(f"{LOAD}\ns = 0\nfor i in range(100):\n    s += i * 2")
    assert cell["s"] == 9900
    assert explain_loops()[-1].compiled_turns > 90


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    "magic", ["timeit -n 2 -r 2", "lazyfuse.timeit -n 2 -r 2", "time", "lazyfuse.report"]
)
def test_loops_in_magics_are_compiled(cell: Cells, magic: str) -> None:
    cell(LOAD)
    before = len(explain_loops())
    cell(f"%%{magic}\ns = 0\nfor i in range(100):\n    s += i * 2\nkept = s")
    (state,) = explain_loops()[before:]
    assert state.code == "for i in range(100):"
    assert state.compiled_turns > 90


@pytest.mark.usefixtures("at_once")
def test_an_exception_in_a_cell_has_its_line(cell: Cells) -> None:
    cell(LOAD)
    cell("import numpy as np\nv = np.ones(5)")
    with pytest.raises(IndexError, match="index 5 is out of bounds") as caught:
        cell("for i in range(9):\n    v[i] = v[i] + 1.0")
    (entry,) = [each for each in caught.traceback if "ipython-input" in str(each.path)]
    assert entry.lineno + 1 == 2
    assert cell["v"].tolist() == [2.0] * 5


@pytest.mark.usefixtures("at_once")
def test_unloading_leaves_loops_to_python(cell: Cells) -> None:
    kind = type(cell.shell.compile)
    cell(LOAD)
    assert type(cell.shell.compile) is not kind
    cell("%unload_ext lazyfuse")
    assert type(cell.shell.compile) is kind
    before = len(explain_loops())
    cell("s = 0\nfor i in range(100):\n    s += i * 2")
    assert len(explain_loops()) == before


@pytest.mark.usefixtures("at_once")
def test_loops_of_modules_that_a_cell_imports_are_compiled(cell: Cells, tmp_path: Path) -> None:
    (tmp_path / "of_a_notebook.py").write_text(TABLE)
    cell(LOAD)
    cell("import of_a_notebook\nt = of_a_notebook.table(30)")
    assert explain_loops(cell["of_a_notebook"].table)[0].compiled_turns
    del sys.modules["of_a_notebook"]
