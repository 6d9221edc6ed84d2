"""Every example prints the same under NumPy and under `python -m lazyfuse`, last digits aside."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SIZES = {
    "black_scholes": 40_000,
    "game_of_life": 160,
    "heat_equation": 160,
    "image_filters": 160,
    "kmeans": 20_000,
    "larger_than_memory": 4_000,
    "logistic_regression": 5_000,
    "loops": 60,
    "mandelbrot": 200,
    "monte_carlo": 50_000,
    "nbody": 150,
    "reusable_program": 20_000,
    "shallow_water": 150,
}
NUMBER = re.compile(r"[-+]?\d+\.\d+")


def run(*arguments: str, **variables: str) -> tuple[str, str]:
    """What a command prints to its two outputs, in the repository's root; warnings are errors."""
    command = [sys.executable, "-W", "error", *arguments]
    environment = os.environ | variables
    result = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100
    )
    assert result.returncode == 0, result.stderr
    return result.stdout, result.stderr


@functools.cache
def output(*arguments: str, **variables: str) -> str:
    """What a command prints; it must print no warnings. Asked again, it is not run again."""
    text, complaints = run(*arguments, **variables)
    assert complaints == ""
    return text


def test_every_example_is_tested() -> None:
    assert sorted(SIZES) == sorted(path.stem for path in (ROOT / "examples").glob("*.py"))


# all but a few small arrays of the examples are recorded anyway: one program is enough for that
RUNS = [pytest.param(name, "", id=name) for name in sorted(SIZES)]
RUNS[0] = pytest.param("black_scholes", "", id="black_scholes", marks=pytest.mark.smoke)
RUNS += [
    pytest.param(
        name,
        "0",
        id=f"{name} all recorded",
        marks=() if name in ("kmeans",) else pytest.mark.long,
    )
    for name in sorted(SIZES)
]


@pytest.mark.parametrize(("name", "eager_below"), RUNS)
def test_example_prints_the_same(name: str, eager_below: str) -> None:
    program = [f"examples/{name}.py", str(SIZES[name])]
    expected = output(*program)
    found = output("-m", "lazyfuse", *program, LAZYFUSE_EAGER_BELOW=eager_below)
    assert NUMBER.sub("#", found) == NUMBER.sub("#", expected)
    pairs = zip(NUMBER.findall(found), NUMBER.findall(expected), strict=True)
    for mine, theirs in pairs:
        # printed figures may differ in their last digit, by rounding
        last = 10.0 ** -len(theirs.partition(".")[2])
        assert float(mine) == pytest.approx(float(theirs), rel=1e-6, abs=1.001 * last)


@pytest.mark.skipif(
    os.environ.get("LAZYFUSE_DEVICE") != "opencl", reason="for runs with LAZYFUSE_DEVICE=opencl"
)
@pytest.mark.parametrize("name", sorted(SIZES))
def test_the_report_tells_that_opencl_ran_every_kernel_U3_D6(name: str) -> None:
    program = [f"examples/{name}.py", str(SIZES[name])]
    _, text = run("-m", "lazyfuse", "--report", *program, LAZYFUSE_EAGER_BELOW="0")
    kernels = re.search(r"kernels launched +(\d+),", text)
    assert kernels is not None
    assert re.search(rf"run as +{kernels[1]} opencl\n", text)
    assert re.search(rf"launched on +{kernels[1]} opencl:0\n", text)
