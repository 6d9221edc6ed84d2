"""Programs that import other libraries in other orders, or have arrays of their own kind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pandas", reason="pandas is not installed")


def test_a_library_that_was_imported_first(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import pandas\nimport lazyfuse as np\nx = np.arange(4)\n"
        "print(pandas.Series(x)[x > 1].tolist())\n"
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True)
    assert done.stdout == "[2, 3]\n"


def test_array_methods_of_a_program_give_numpys_arrays(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import numpy as np\n"
        "class Track:\n    def __array__(self, dtype=None, copy=None):\n"
        "        return np.arange(3.0) + 1\n"
        "import pandas\n"
        "print(pandas.Series(np.asarray(Track())).sum(), pandas.Index(Track()).tolist())\n"
    )
    command = [sys.executable, "-m", "lazyfuse", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("6.0 [1.0, 2.0, 3.0]\n", "")
