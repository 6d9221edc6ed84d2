"""Boolean masks: sums over a part, writes into a part."""

from __future__ import annotations

from typing import Any

from benchmarks.case import case, vectors


@case("09_mask_sum", vectors(1), functional=False)
def mask_sum(xp: Any, x: Any) -> Any:
    return x[x > 1.0].sum()


@case("10_mask_assign", vectors(1), functional=False, streams=True)
def mask_assign(xp: Any, x: Any) -> Any:
    y = x * 2.0
    y[y > 2.0] = 0.0
    return y
