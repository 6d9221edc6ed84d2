"""Programs of up to fifty statements, drawn and shrunk by hypothesis, in NumPy and in lazyfuse.

The suite draws a few hundred, the same ones each time; `campaign.py` says how to draw more and
others, and options come by their variables:

    LAZYFUSE_CAMPAIGN=20 LAZYFUSE_DEVICE=opencl python -m pytest tests/programs/test_deep.py

A failure ends with a script that shows it.
"""

from __future__ import annotations

import os
import zlib
from typing import Any

import hypothesis
import numpy
import pytest

import lazyfuse
from lazyfuse import config
from lazyfuse.runtime.execution import program_tiers
from tests import campaign, reached
from tests.campaign import rounds
from tests.programs import deep
from tests.programs.compare import beginning
from tests.programs.deep import DeepProgram, Kind

ON_OPENCL = os.environ.get("LAZYFUSE_DEVICE", "").startswith("opencl")
pytestmark = campaign.TIMEOUT


def explore(kind: Kind, seeds: range, **options: Any) -> None:
    """Draw programs; fail with the smallest script found that differs."""
    found: list[tuple[DeepProgram, str]] = []

    @hypothesis.seed(seeds.start)
    @hypothesis.settings(
        # there every new structure is built, 0.2 s each
        max_examples=max(1, len(seeds) // 20 if ON_OPENCL else len(seeds)),
        deadline=None,
        database=None,
        print_blob=False,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(deep.programs(kind))
    def agree(program: DeepProgram) -> None:
        with reached.program(zlib.crc32(repr(program.statements).encode())):
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


@rounds(40)
@pytest.mark.parametrize("below", [0, 3, 10, 16384])
def test_programs_A6(below: int, seeds: range) -> None:
    explore(Kind(), seeds, eager_below=below)


@rounds(40)
@pytest.mark.parametrize("below", [0, 16384])
def test_everything_looked_at_after_each_statement_A6(below: int, seeds: range) -> None:
    explore(Kind(longest=12, each=True), seeds, eager_below=below, tape_after=1)


@rounds(40)
@pytest.mark.parametrize("below", [0, 10])
def test_programs_at_the_beginning_of_a_process_A6(below: int, seeds: range) -> None:
    with beginning():
        explore(Kind(), seeds, eager_below=below)


@rounds(20)
def test_inexact_functions_A6(seeds: range) -> None:
    explore(Kind(inexact=True, longest=20), seeds, eager_below=0, tape_after=1)


@rounds(5)
def test_compiled_at_once_A6(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_tiers, "COMPILE_ELEMENTS", 0)
    explore(Kind(longest=15), seeds, eager_below=0, compile_after=0)


@rounds(20)
def test_without_fusion_A6(seeds: range) -> None:
    explore(Kind(), seeds, eager_below=0, fusion=False)


@rounds(20)
def test_validated_A6(seeds: range) -> None:
    explore(Kind(), seeds, eager_below=0, validate=True)


@pytest.mark.skipif(ON_OPENCL, reason="draws too few programs to meet the fault")
def test_a_fault_is_found_and_shrunk_to_a_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazyfuse, "eye", lambda *args, **kwargs: numpy.ones(3))
    with pytest.raises(pytest.fail.Exception) as failure:
        explore(Kind(longest=4), range(500))
    head, script = str(failure.value).split("import copy", 1)
    assert ", got float64(3,)" in head
    variables: dict[str, Any] = {}
    exec("import copy" + script, variables)  # runs with NumPy as it stands
    statements = script.splitlines()[script.splitlines().index("k = 1") + 1 :]
    assert len([line for line in statements if line and line[0] != "R"]) == 1
    assert "np.eye(" in statements[-1]
