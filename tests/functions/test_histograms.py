"""Histograms, counts and searches by compiled loops give NumPy's values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lazyfuse import config
from lazyfuse.functions import histograms
from lazyfuse.runtime.events import counters
from tests.helpers.compare import both
from tests.pairwise import first

SIZE = 40_021


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops of ours for fewer values than are worth it."""
    monkeypatch.setattr(histograms, "_WORTH", 1)


# the text converts whole numbers to the dtype of the edges, whichever they are
DTYPES = ("f8", "u1", "f4", "i8")


def values(dtype: str, *, finite: bool = False) -> Any:
    rng = np.random.default_rng(3)
    found = rng.standard_normal(SIZE) * 100
    if dtype[0] == "f" and not finite:
        found[::97], found[5::97], found[7::97] = np.inf, np.nan, -0.0
    return (np.abs(found) if dtype[0] == "u" else found).astype(dtype)


RANGES = (
    (0, 4), (0.1, 0.7), (-50.5, 51), (3, 3), (4, 1), (0, np.nan), (-1e300, 1e300),
    (np.float64(0.1), np.float64(9.3)), (np.float32(0.1), np.float32(9.3)),
)  # fmt: skip


# float32s are met in values on edges, below
@pytest.mark.parametrize("dtype", first(2, DTYPES))
@pytest.mark.parametrize("bins", [1, 64, 0])
def test_uniform_bins(dtype: str, bins: int, threads: int) -> None:
    for given in (values(dtype), values(dtype, finite=True)):
        both(lambda xp, a: xp.histogram(a, bins), given)
        # bounds of NumPy's give edges of their dtype: for whole numbers in a long run
        for limits in RANGES if dtype != "u1" else RANGES[:7]:
            both(lambda xp, a, limits=limits: xp.histogram(a, bins, limits), given)
    both(lambda xp, a: xp.histogram(a, bins, (0, 9), density=True), values(dtype, finite=True))
    both(lambda xp, a: xp.histogram(a, bins, weights=a), values(dtype, finite=True))


@pytest.mark.parametrize("dtype", first(2, ("f8", "u1", "f4", "i8")))
def test_given_edges(dtype: str, threads: int) -> None:
    edges: Any
    for edges in (
        [0, 1, 1, 2], [0.0, 1, 1], np.linspace(-200, 200, 33), [3, 2, 1], [1], [],
        np.arange(-100, 100), [0, np.nan, 2], [-np.inf, 0, np.inf], [[1, 2]], 2.5,
        np.sort(np.random.default_rng(1).standard_normal(100) * 50).astype("f4"),
    ):  # fmt: skip
        both(lambda xp, a, edges=edges: xp.histogram(a, edges), values(dtype))


@pytest.mark.parametrize("nudge", [-9.0, 0.0, 9.0])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_values_on_edges(dtype: str, nudge: float) -> None:
    edges = np.linspace(-1, 1, 65).astype(dtype)
    on = np.repeat(edges, 700)
    given = np.nextafter(on, np.dtype(dtype).type(nudge)) if nudge else on
    both(lambda xp, a: xp.histogram(a, 64, (-1, 1)), given)
    both(lambda xp, a: xp.histogram(a, edges), given)


# long and short, with a sign and without, and what NumPy refuses
@pytest.mark.parametrize("dtype", first(3, ["i8", "u1", "f8", "i1", "u8"]))
def test_bincount(dtype: str, threads: int) -> None:
    rng = np.random.default_rng(5)
    given = rng.integers(0, 100, SIZE).astype(dtype)
    for least in (0, 7, 5000, -1):
        both(lambda xp, a, least=least: xp.bincount(a, minlength=least), given)
    both(lambda xp, a: xp.bincount(a, a), given)
    both(lambda xp, a: xp.bincount(a - a.dtype.type(50)), given)
    both(lambda xp, a: xp.bincount(a * 1000 if a.dtype.itemsize == 8 else a), given)


def tables(dtype: str) -> list[Any]:
    rng = np.random.default_rng(7)
    made = []
    for size in (1, 2, 65, 5000):
        table = rng.standard_normal(size) * 100
        if dtype[0] == "f" and size > 60:
            table[-2:], table[:3], table[20:30] = np.nan, -np.inf, table[20]
        made.append(np.sort((np.abs(table) if dtype[0] == "u" else table).astype(dtype)))
    return [*made, made[-1][::-1], made[-1][:0], np.full(9, 3, dtype)]


# the side is a comparison in the text, whatever the dtype: each side once, with numbers that have
# NaN and with whole ones; test_guides meets both sides with NaN
SEARCHES = [
    ("f8", "left"), ("i8", "right"), ("f8", "right"), ("i8", "left"), ("f4", "right"),
    ("f4", "left"), ("u1", "right"), ("u1", "left"),
]  # fmt: skip


@pytest.mark.parametrize("search", first(2, SEARCHES))
def test_searches(search: tuple[str, Any], threads: int) -> None:
    dtype, side = search
    given = values(dtype)
    for table in tables(dtype):
        both(lambda xp, v, table=table: xp.searchsorted(table, v, side), given)
        both(lambda xp, v, table=table: xp.digitize(v, table, side == "left"), given)
    both(lambda xp, v: xp.searchsorted(np.linspace(0, 9, 70), v, side), given)
    both(lambda xp, v: xp.searchsorted(xp.sort(v), v, side), given)


def test_tables_that_numpy_refuses() -> None:
    given = values("f8")
    for table in ([1.0, 3.0, 2.0], [[1.0]], [1j], "a", []):
        both(lambda xp, v, table=table: xp.digitize(v, table), given)
    both(lambda xp, v: xp.searchsorted([3.0, 1.0, 2.0], v), given)
    both(lambda xp, v: xp.searchsorted([1.0, 2.0], v, "middle"), given)


@pytest.mark.parametrize("name", ["histogram", "bincount", "digitize"])
def test_compiled_and_not(name: str) -> None:
    """The switch goes back to NumPy, and says so in the counters."""
    calls: dict[str, Callable[[Any, Any], Any]] = {
        "histogram": lambda xp, a: xp.histogram(a, 8, (0, 256)),
        "bincount": lambda xp, a: xp.bincount(a),
        "digitize": lambda xp, a: xp.digitize(a, [3, 50, 100]),
    }
    for wanted in (True, False):
        before = counters.totals().languages["routine"]
        with config.options(routines=wanted):
            both(calls[name], values("u1"))
        assert (counters.totals().languages["routine"] > before) == wanted
