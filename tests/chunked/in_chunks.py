"""lazyfuse with every new array in chunks of a few elements: a module to run NumPy's own tests on.

Not a test. `np.array`, `zeros`, `arange` and the other functions that make arrays give arrays on
the device `dask`; everything else is lazyfuse's. From the root of a checkout:

    PYTHONPATH=. LAZYFUSE_DEVICE=dask LAZYFUSE_CHUNK_BYTES=64 LAZYFUSE_EAGER_BELOW=0 \
        python run_numpy_suite.py tests.chunked.in_chunks _core/numeric lib/function_base

In November 2026, NumPy 2.4.6: 98.7 % by function (10,047 of 10,089 cases) of 17 files on
reductions, elementwise functions, indexing and manipulation; no value is wrong.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import lazyfuse
from lazyfuse.arrays.storage import CANONICAL

__all__ = lazyfuse.__all__

MAKERS = (
    "arange array asanyarray asarray ascontiguousarray copy empty empty_like eye fromfunction "
    "full full_like geomspace identity linspace logspace ones ones_like tri vander zeros zeros_like"
).split()


def chunked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, its result in chunks if chunks can hold it."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        made = function(*args, **kwargs)
        if type(made) is not lazyfuse.ndarray or made.dtype not in CANONICAL or made.size < 2:
            return made
        if (
            any(made is each for each in args)
            or made.base is not None
            or not made.flags.c_contiguous
        ):
            return made
        return made.to_device("dask")

    return call


for _name in MAKERS:
    globals()[_name] = chunked(getattr(lazyfuse, _name))


def __getattr__(name: str) -> Any:
    return getattr(lazyfuse, name)


def __dir__() -> list[str]:
    return dir(lazyfuse)
