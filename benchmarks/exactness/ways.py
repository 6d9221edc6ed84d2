"""The ways in which a function can be computed here: tiers of the CPU, languages of OpenCL.

Owns WAYS: name -> a context in which lazyfuse computes that way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import lazyfuse
from lazyfuse.runtime.events import counters
from lazyfuse.runtime.execution import program_tiers
from lazyfuse.runtime.placement import devices
from lazyfuse.runtime.scheduling import evaluate

Array = np.ndarray[Any, np.dtype[Any]]
Way = Callable[[str, list[Array]], Array]


@contextmanager
def numpy() -> Iterator[Way]:
    """NumPy itself; the oracle computes so too."""

    def call(name: str, arguments: list[Array]) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(getattr(np, name)(*arguments))

    yield call


@contextmanager
def _recorded(languages: tuple[str, ...], **options: Any) -> Iterator[Way]:
    """Lazyfuse with everything recorded; who else computes than asked for is an error."""

    def call(name: str, arguments: list[Array]) -> Array:
        counters.reset()
        with np.errstate(all="ignore"):
            operands = [lazyfuse.array(each) for each in arguments]
            result = getattr(lazyfuse, name)(*operands)
            found = lazyfuse.explain(result).kernels
            value = result.to_numpy()
        if not found or any(each.language not in languages for each in found):
            ran = [each.language for each in found] or ["NumPy at once"]
            raise LookupError(f"{name} of {arguments[0].dtype} runs as {', '.join(ran)}")
        if fallbacks := counters.totals().fallbacks:
            raise LookupError(f"{name} of {arguments[0].dtype}: {dict(fallbacks)}")
        return np.asarray(value)

    with lazyfuse.options(eager_below=0, **options):
        devices.reopen()
        evaluate.clear_plans()
        try:
            yield call
        finally:
            lazyfuse.synchronize()
            devices.reopen()
            evaluate.clear_plans()


@contextmanager
def blocked() -> Iterator[Way]:
    """Kernels as blocks of NumPy's calls."""
    before = program_tiers.COMPILE_ELEMENTS
    program_tiers.COMPILE_ELEMENTS = 1 << 62
    try:
        with _recorded(("numpy",), device="cpu") as call:
            yield call
    finally:
        program_tiers.COMPILE_ELEMENTS = before


@contextmanager
def compiled() -> Iterator[Way]:
    """Kernels compiled by numba."""
    before = program_tiers.COMPILE_ELEMENTS
    program_tiers.COMPILE_ELEMENTS = 0
    try:
        with _recorded(("numba",), device="cpu", compile_after=0) as call:
            yield call
    finally:
        program_tiers.COMPILE_ELEMENTS = before


@contextmanager
def opencl() -> Iterator[Way]:
    """OpenCL, the text for devices that are CPUs."""
    with _recorded(("opencl",), device="opencl", opencl_grid=False) as call:
        yield call


@contextmanager
def opencl_grid() -> Iterator[Way]:
    """OpenCL, the text for GPUs."""
    with _recorded(("opencl-grid",), device="opencl", opencl_grid=True) as call:
        yield call


@contextmanager
def opencl_single() -> Iterator[Way]:
    """OpenCL without double precision: float64 in float32."""
    options: dict[str, Any] = {"opencl_fp64": False, "single_precision": True}
    with _recorded(("opencl",), device="opencl", **options) as call:
        yield call


WAYS: dict[str, Callable[[], Any]] = {
    "numpy": numpy,
    "blocked": blocked,
    "compiled": compiled,
    "opencl": opencl,
    "opencl-grid": opencl_grid,
    "opencl-single": opencl_single,
}
