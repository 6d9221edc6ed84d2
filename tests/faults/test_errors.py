"""Random programs with errors among their statements: each raises as in NumPy, and harms nothing.

A third of the statements fails (`wrong_phrases.py`): shapes, dtypes, keys, `out=`, casts, what the
statement calls, floating-point conditions as errors. Devices, compilers and the folder of programs
fail meanwhile, which programs must not notice. Everything that lives is compared with NumPy: after
errors here and there, and at the end.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy
import pytest

from lazyfuse import config
from lazyfuse.devices.base import DeviceError
from lazyfuse.devices.cpu import llvm_compiler
from lazyfuse.devices.pools import disk_cache
from lazyfuse.runtime.execution import program_tiers
from lazyfuse.runtime.placement import devices
from tests import campaign, reached
from tests.helpers.discrete_device import in_use
from tests.programs import wrong_phrases
from tests.programs.compare import Pair, Program, Statement, complain, failure
from tests.programs.grammar import LARGE, MIDDLE, SMALL, Grammar, Sizes

pytestmark = campaign.TIMEOUT


def check(seeds: Iterable[int], sizes: Sizes) -> None:
    """Programs with errors; after those of some statements everything is compared."""
    for seed in seeds:
        program = Grammar(seed, sizes, wrong=True).program()
        with reached.program(seed):
            what = failure(replace(program, wary=seed % 4))
        if what:
            complain(replace(program, wary=seed % 4), f"seed {seed}: {what}")


@campaign.rounds(100, 10**7)
@pytest.mark.parametrize(
    ("below", "sizes"), [(0, SMALL), (30, MIDDLE), (16384, SMALL)], ids=["all", "mixed", "small"]
)
def test_errors_leave_everything_as_numpy_does(seeds: range, below: int, sizes: Sizes) -> None:
    with config.options(eager_below=below):
        check(seeds, sizes)


@campaign.rounds(30, 11**7)
def test_errors_in_programs_of_large_arrays(seeds: range) -> None:
    check(seeds, LARGE)


@campaign.rounds(30, 12**7)
def test_errors_raised_at_once(seeds: range) -> None:
    """As where the program's filters make errors of warnings."""
    with config.options(eager_below=0, errors_at_once=True):
        check(seeds, SMALL)


# ------------------------------------------------------------------------ what fails below them


def sometimes(
    function: Callable[..., Any], draw: random.Random, error: Callable[[str], BaseException]
) -> Callable[..., Any]:
    """The function, which fails every third time or so."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if draw.random() < 0.3:
            raise error("planned")
        return function(*args, **kwargs)

    return call


POINTS = ("build", "launch", "allocate", "upload")  # what fails later may be lost, and told of


@campaign.rounds(30, 13**7)
@pytest.mark.parametrize("shares", [False, True])
def test_errors_among_failures_of_a_device(seeds: range, shares: bool) -> None:
    for seed in seeds:
        draw = random.Random(seed)
        program = Grammar(seed, SMALL, wrong=True).program()
        with in_use(shares) as device, config.options(eager_below=0):
            for point in POINTS:
                kinds = [DeviceError("planned") if draw.random() < 0.1 else None for _ in range(99)]
                device.faults[point] = kinds
            with reached.program():
                what = failure(program)
            if what:
                pytest.fail(f"seed {seed}: {what}\n{program}", pytrace=False)


@contextmanager
def failing_compiler(draw: random.Random) -> Iterator[None]:
    """The compiler refuses texts, and the folder does not give or take programs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program_tiers, "COMPILE_ELEMENTS", 0)
        compiles = sometimes(llvm_compiler.compile_source, draw, DeviceError)
        patch.setattr(llvm_compiler, "compile_source", compiles)
        for name in ("_write", "_content"):
            method = sometimes(getattr(disk_cache.DiskCache, name), draw, OSError)
            patch.setattr(disk_cache.DiskCache, name, lambda *args, method=method: method(*args))
        yield


@campaign.rounds(6, 14**7)
def test_errors_among_failures_of_the_compiler(seeds: range) -> None:
    for seed in seeds:
        devices.cpu().programs.clear()
        options = config.options(eager_below=0, compile_after=0)
        with failing_compiler(random.Random(seed)), options:
            check([seed], SMALL)
    devices.cpu().programs.clear()


# ------------------------------------------------------------------------------- what it has found

FOUND = (
    "a.sum(nonsense=3)", "a.max(1, 2, 3, 4, 5, 6, 7)", "np.concatenate([a, a], casting='nonsense')",
    "np.stack([a, a], casting='nonsense')", "a[...] = [1, [2, 3]]", "a.max()[()][nowhere:]",
    "a.reshape(-1)[:1].squeeze()[nowhere:]", "r = a.imag; r[broken] = 2", "a.imag[[nowhere]] = 2",
    "assert a.squeeze() is a", "assert a.astype(a.dtype, copy=False) is a",
    "b = a.squeeze(); b.flags.writeable = False; b.flags.writeable = True; b[0] = 2",
)  # fmt: skip


@pytest.mark.parametrize("below", [0, 16384])
@pytest.mark.parametrize("text", FOUND)
def test_reduced(text: str, below: int) -> None:
    with config.options(eager_below=below):
        pair = Pair(Program(lambda: {"R0": numpy.arange(7.0), **wrong_phrases.tools()}))
        for each in ("a = np.array(R0)", text):
            pair.step(Statement(each))
        pair.finish()
