"""Numbers alone, written into an array: their own dtype counts, not that of the array."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

import lazyfuse
from lazyfuse import config


@pytest.mark.parametrize("below", [0, 16384])
@pytest.mark.parametrize("name", ["subtract", "add", "multiply", "maximum", "divide"])
@pytest.mark.parametrize("numbers", [(100, 2), (1.5, 3), (True, False), (2, 1e300)])
@pytest.mark.parametrize("dtype", ["u1", "i4", "i8", "f4", "f8"])
def test_numbers_alone_written_into_an_array_A6(
    below: int, name: str, numbers: tuple[Any, Any], dtype: str
) -> None:
    def run(module: Any) -> Any:
        out = module.zeros((4, 4), dtype)
        with numpy.errstate(all="ignore"):
            try:
                getattr(module, name)(*numbers, out=out)
            except TypeError as error:
                return str(error)
        return numpy.asarray(out).tolist()

    with config.options(eager_below=below):
        assert run(lazyfuse) == run(numpy)
