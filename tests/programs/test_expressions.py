"""Random programs in NumPy and in lazyfuse: the same bits, dtypes, shapes, strides, exceptions."""

from __future__ import annotations

import os

import pytest

from lazyfuse import config, programs
from tests.programs.compare import complain, failure
from tests.programs.grammar import LARGE, MIDDLE, SMALL, Grammar, Sizes

COUNT = int(os.environ.get("LAZYFUSE_FUZZ", "300"))
pytestmark = pytest.mark.timeout(900)  # on OpenCL every new structure is built, 0.2 s each


def check(seed: int, sizes: Sizes, inexact: bool) -> None:
    """One random program."""
    program = Grammar(seed, sizes, inexact).program()
    what = failure(program)
    if what:
        complain(program, f"seed {seed}: {what}")


@pytest.mark.parametrize("inexact", [False, True])
def test_everything_recorded_A1_A6(inexact: bool) -> None:
    with config.options(eager_below=0):
        for seed in range(COUNT):
            check(seed, SMALL, inexact)


@pytest.mark.parametrize("inexact", [False, True])
def test_recorded_and_immediate_mixed_A6(inexact: bool) -> None:
    with config.options(eager_below=30):
        for seed in range(COUNT):
            check(10**6 + seed, MIDDLE, inexact)


@pytest.mark.parametrize("inexact", [False, True])
def test_default_options_A6(inexact: bool) -> None:
    # inexact kernels of this size are compiled at once: a tenth of a second each
    for seed in range(COUNT // (20 if inexact else 4)):
        check(2 * 10**6 + seed, LARGE, inexact)


def test_small_arrays_at_once_A6() -> None:
    for seed in range(COUNT // 4):
        check(3 * 10**6 + seed, SMALL, False)


def test_without_fusion_A6() -> None:
    with config.options(eager_below=0, fusion=False):
        for seed in range(COUNT // 4):
            check(4 * 10**6 + seed, SMALL, False)


def test_validated_A6() -> None:
    with config.options(eager_below=0, validate=True):
        for seed in range(COUNT // 6):
            check(5 * 10**6 + seed, SMALL, seed % 2 == 1)


@pytest.mark.parametrize("inexact", [False, True])
def test_compiled_A6(inexact: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "COMPILE_ELEMENTS", 0)
    with config.options(eager_below=0, compile_after=0):
        for seed in range(6 * 10**6, 6 * 10**6 + COUNT // 30):
            check(seed, SMALL, inexact)
