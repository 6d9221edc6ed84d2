"""Integer arithmetic: shifts, exclusive or, remainders."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.case import Array, case


def _integers(n: int, generator: np.random.Generator) -> tuple[Array, ...]:
    return (generator.integers(0, 1 << 40, n),)


@case("19_intmix", _integers)
def mix(xp: Any, x: Any) -> Any:
    x = (x ^ (x >> 13)) * 31 + 7
    x = (x ^ (x << 5)) & 0xFFFFFFFF
    return (x * 5 - (x >> 3)) % 1009
