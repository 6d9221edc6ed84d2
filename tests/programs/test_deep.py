"""Programs of up to fifty statements, drawn and shrunk by hypothesis, in NumPy and in lazyfuse.

The suite draws a few hundred, the same ones each time. `LAZYFUSE_DEEP` draws that many in each
test, others with each `LAZYFUSE_DEEP_SEED`, and options come by their variables:

    LAZYFUSE_DEEP=20000 LAZYFUSE_DEEP_SEED=1 python -m pytest tests/programs/test_deep.py
    LAZYFUSE_DEEP=2000 LAZYFUSE_DEVICE=opencl python -m pytest tests/programs/test_deep.py

A failure ends with a script that shows it.
"""

from __future__ import annotations

import os
from typing import Any

import hypothesis
import numpy
import pytest

import lazyfuse
from lazyfuse import config, programs
from tests.programs import deep
from tests.programs.deep import DeepProgram, Kind

ON_OPENCL = os.environ.get("LAZYFUSE_DEVICE", "").startswith("opencl")
COUNT = int(os.environ.get("LAZYFUSE_DEEP", "0"))
SEED = int(os.environ.get("LAZYFUSE_DEEP_SEED", "0"))
pytestmark = pytest.mark.timeout(900 + COUNT)


def explore(kind: Kind, count: int, **options: Any) -> None:
    """Draw programs; fail with the smallest script found that differs."""
    found: list[tuple[DeepProgram, str]] = []

    @hypothesis.seed(SEED)
    @hypothesis.settings(
        # there every new structure is built, 0.2 s each
        max_examples=COUNT or max(1, count // 20 if ON_OPENCL else count),
        deadline=None,
        database=None,
        print_blob=False,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(deep.programs(kind))
    def agree(program: DeepProgram) -> None:
        what = deep.difference(program)
        if what:
            found.append((program, what))  # the last one is the smallest
            raise AssertionError

    with config.options(**options):
        try:
            agree()
        except AssertionError:
            small = deep.reduced(found[-1][0])
            pytest.fail(f"{deep.difference(small) or found[-1][1]}\n{small}", pytrace=False)


@pytest.mark.parametrize("below", [0, 3, 10, 16384])
def test_programs_A6(below: int) -> None:
    explore(Kind(), 80, eager_below=below)


@pytest.mark.parametrize("below", [0, 16384])
def test_everything_looked_at_after_each_statement_A6(below: int) -> None:
    explore(Kind(longest=12, each=True), 60, eager_below=below)


def test_inexact_functions_A6() -> None:
    explore(Kind(inexact=True, longest=20), 20, eager_below=0)


def test_compiled_at_once_A6(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "COMPILE_ELEMENTS", 0)
    explore(Kind(longest=15), 10, eager_below=0, compile_after=0)


def test_without_fusion_A6() -> None:
    explore(Kind(), 20, eager_below=0, fusion=False)


def test_validated_A6() -> None:
    explore(Kind(), 20, eager_below=0, validate=True)


@pytest.mark.skipif(ON_OPENCL, reason="draws too few programs to meet the fault")
def test_a_fault_is_found_and_shrunk_to_a_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazyfuse, "eye", lambda *args, **kwargs: numpy.ones(3))
    with pytest.raises(pytest.fail.Exception) as failure:
        explore(Kind(longest=6), 500)
    head, script = str(failure.value).split("import copy", 1)
    assert ", got float64(3,)" in head
    variables: dict[str, Any] = {}
    exec("import copy" + script, variables)  # runs with NumPy as it stands
    statements = script.splitlines()[script.splitlines().index("k = 1") + 1 :]
    assert len([line for line in statements if line and line[0] != "R"]) == 1
    assert "np.eye(" in statements[-1]
