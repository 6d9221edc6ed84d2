"""Ordinary programs around other packages print the same under NumPy and `python -m lazyfuse`.

Each `with_PACKAGE.py` runs with small and with large arrays; the small ones are run once more with
everything recorded.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
NEEDS = {
    "files": "numpy",
    "h5py": "h5py",
    "matplotlib": "matplotlib",
    "pandas": "pandas",
    "pillow": "PIL",
    "scipy": "scipy",
    "sklearn": "sklearn",
    "xarray": "xarray",
}
USUAL = ("files", "matplotlib", "pandas", "scipy")
"""Those that run with the usual options; the others run with everything recorded. `long`: both."""
NUMBER = re.compile(r"[-+]?\d+\.\d*(?:e[-+]\d+)?")


def _parameters(usual: Iterable[str]) -> list[Any]:
    """Every program; those that are not `usual` are `long`, those without their package skipped."""
    found = []
    for name, package in NEEDS.items():
        missing = importlib.util.find_spec(package) is None
        marks = [pytest.mark.skipif(missing, reason=f"{package} is not installed")]
        found.append(
            pytest.param(name, marks=marks if name in usual else [*marks, pytest.mark.long])
        )
    return found


PROGRAMS, RECORDED_PROGRAMS = _parameters(USUAL), _parameters(set(NEEDS) - set(USUAL))


def run(*arguments: str, **variables: str) -> list[str]:
    """The lines that a command prints; it must print the same complaints as ever: none."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"} | variables
    result = subprocess.run(
        [sys.executable, *arguments],
        cwd=HERE,
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout.splitlines()


@functools.cache
def expected(name: str, *arguments: str) -> list[str]:
    return run(f"with_{name}.py", *arguments)


def small(name: str) -> str:
    text = (HERE / f"with_{name}.py").read_text()
    found = re.search(r"^SIZES = \((\d+)", text, re.MULTILINE)
    assert found is not None
    return found[1]


def compare(found: list[str], wanted: list[str]) -> None:
    """Equal, except that printed figures may differ in their last digit, by rounding."""
    assert len(found) == len(wanted)
    for mine, theirs in zip(found, wanted, strict=True):
        if mine == theirs:
            continue
        assert re.sub(r"\s+", " ", NUMBER.sub("#", mine)) == re.sub(
            r"\s+", " ", NUMBER.sub("#", theirs)
        )
        pairs = zip(NUMBER.findall(mine), NUMBER.findall(theirs), strict=True)
        for first, second in pairs:
            last = 10.0 ** -len(second.partition(".")[2].partition("e")[0])
            assert float(first) == pytest.approx(float(second), rel=2e-5, abs=1.001 * last)


def test_every_program_is_tested() -> None:
    assert sorted(NEEDS) == sorted(path.stem[5:] for path in HERE.glob("with_*.py"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_prints_the_same(name: str) -> None:
    compare(run("-m", "lazyfuse", f"with_{name}.py"), expected(name))


@pytest.mark.parametrize("name", RECORDED_PROGRAMS)
def test_a_program_prints_the_same_with_everything_recorded(name: str) -> None:
    program = ["-m", "lazyfuse", f"with_{name}.py", small(name)]
    compare(run(*program, LAZYFUSE_EAGER_BELOW="0"), expected(name, small(name)))
