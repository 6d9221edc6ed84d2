"""Counting: `bincount` and `histogram`, with uniform bins or given edges.

Owns the compiled loops. They count each block of values into its own table, on all threads, and add
the tables; counts are integers, so the order does not matter. The steps that choose a bin are
NumPy's (`numpy/lib/_histograms_impl.py`), element by element. Weights are added in NumPy's order:
one after the other; in histograms by NumPy's blocks of 65536 values, each from zero.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np

from lazyfuse.arrays.conversion import to_numpy
from lazyfuse.arrays.ndarray import concrete_value, gather, ndarray, wrap
from lazyfuse.arrays.operators import dtype_of
from lazyfuse.arrays.recording import host, may_record, shape_of
from lazyfuse.devices.caches import DTYPES, cached, memo
from lazyfuse.functions.searching import GUIDED, NUMBA_TYPES, place_text
from lazyfuse.interop.fallback import records
from lazyfuse.kernels import search_index
from lazyfuse.runtime.events import decisions
from lazyfuse.runtime.execution import routine as routines
from lazyfuse.runtime.scheduling import evaluate

Array = np.ndarray[Any, np.dtype[Any]]

_INTP = np.dtype(np.intp)
_SHORTEST = 1 << 15  # fewest values per block
_WORTH = 1 << 16  # values from which compiled loops beat NumPy's
_MOST = 1 << 16  # most bins of a block's table
_TILE = 256  # values whose bins are found before any is counted
_LANES = 4  # alternating tables: equal neighbours do not wait for each other
_FEW = 1 << 11  # most bins for which tables alternate

_KEPT = 64  # cached histograms with bounds given as numbers
_uniforms: dict[Any, Uniform] = memo("functions.histograms.uniforms", _KEPT)

INTEGERS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4")
BINNED = (*INTEGERS, "f4", "f8")
"""The dtypes of values that compiled loops count."""


def _counted(
    routine: routines.Routine,
    values: Array,
    bins: int,
    *more: Array,
    scalars: tuple[Any, ...] = (),
    numbers: tuple[int, ...] = (),
) -> Array | None:
    """The counts of a routine, summed over its tables; each table ends with a flag for NumPy.

    None if the routine is not compiled, or if a flag leaves the values to NumPy.
    """
    launch = routine.launcher()
    if launch is None:
        return None
    starts, lengths = routines.spread(values.size, max(_SHORTEST, 4 * bins))
    width = bins + 2  # a count of values in no bin, and the flag
    lanes = _LANES if bins <= _FEW else 1
    tables = np.zeros((len(starts), lanes, width), np.int64)
    rows = np.arange(len(starts)) * (lanes * width)
    places = [starts, rows, *[0 * starts for _ in more]]
    launch(
        (values, tables, *more),
        [[length, bins, lanes - 1, *numbers] for length in lengths],
        np.stack(places, 1),
        scalars,
        work=8 * values.size,
    )
    if tables[:, 0, -1].any():
        return None
    found: Array = tables[:, :, :bins].sum((0, 1))
    return found


# -------------------------------------------------------------------------------- bincount


def _in_turn(count: str, places: str) -> str:
    """Kernel text that counts `count` bins of `places`, in alternating tables."""
    steps = [
        f"    counts[{at} * (bins + 2) + int64({places}[k + {at}])] += 1" for at in range(_LANES)
    ]
    lines = [
        f"whole = {count} - {count} % {_LANES} if lanes else 0",
        f"for k in range(0, whole, {_LANES}):",
        *steps,
        f"for k in range(whole, {count}):",
        f"    counts[int64({places}[k])] += 1",
    ]
    return "\n".join(lines) + "\n"


@cached(why=DTYPES)
def _bincount_routine(code: str) -> routines.Routine:
    """Counts `count` values from 0 on."""
    arrays = {"values": code, "counts": "i8"}
    body = _in_turn("count", "values")
    return routines.Routine(f"bincount_{code}", ("count", "bins", "lanes"), arrays, body)


def _bincounted(values: Array, minlength: int) -> Array | None:
    """As `numpy.bincount` of a NumPy array; None if NumPy must count, or raise."""
    code = values.dtype.str[1:]
    if values.size < (_WORTH if code == "u1" else 2 * _WORTH):
        return None
    values = np.ascontiguousarray(values)
    if code == "u1":  # bins for every possible value
        found = _counted(_bincount_routine(code), values, 256)
        if found is None:
            return None
        last = int(np.flatnonzero(found)[-1]) + 1
        return _lengthened(found[:last].copy(), minlength)
    ends = routines.extremes(values, _SHORTEST)
    if ends is None:
        return None
    bins = ends[1] + 1
    if ends[0] < 0 or bins > max(_MOST, values.size >> 3):
        return None
    found = _counted(_bincount_routine(code), values, bins)
    return None if found is None else _lengthened(found, minlength)


@cached(why=DTYPES)
def _weigh_routine(code: str, weight: str) -> routines.Routine:
    """Adds weights, one after the other, to the bins of `count` values from 0 on."""
    body = """
    for k in range(count):
        sums[int64(values[k])] += float64(weights[k])
    """
    arrays = {"values": code, "weights": weight, "sums": "f8"}
    return routines.Routine(f"weigh_{code}_{weight}", ("count",), arrays, body)


def _weighed(values: Array, weights: Array, minlength: int) -> Array | None:
    """As `numpy.bincount` with weights; None if NumPy must count, or raise."""
    if values.size < _WORTH or weights.shape != values.shape:
        return None
    values, weights = np.ascontiguousarray(values), np.ascontiguousarray(weights)
    launch = _weigh_routine(values.dtype.str[1:], weights.dtype.str[1:]).launcher()
    ends = routines.extremes(values, _SHORTEST)
    if launch is None or ends is None or ends[0] < 0:
        return None
    sums = np.zeros(max(ends[1] + 1, minlength))
    launch((values, weights, sums), (values.size,))
    return sums


def _lengthened(counts: Array, least: int) -> Array:
    """Counts, with zeros appended up to length `least`."""
    if least <= len(counts):
        return counts
    longer = np.zeros(least, counts.dtype)
    longer[: len(counts)] = counts
    return longer


@records(np.bincount, eager="arrays")
def bincount(x: Any, /, weights: Any = None, minlength: Any = 0) -> Any:
    """As `numpy.bincount`."""
    if type(x) is not ndarray or type(minlength) is not int or minlength < 0:
        return None
    if concrete_value(x) is not None or len(shape_of(x)) != 1:
        return None
    if dtype_of(x).str[1:] not in INTEGERS:
        return None
    if weights is None:
        return wrap(routines.either(_bincounted, np.bincount, gather(x), minlength=minlength))
    if not _are_weights(weights, x):
        return None
    evaluate.evaluate([each._node for each in (x, weights) if each._node], decisions.BINCOUNT)
    real = gather(x), gather(weights)
    return wrap(routines.either(_weighed, np.bincount, *real, minlength=minlength))


# -------------------------------------------------------------------------------- histogram


_IN_ORDER = """
for k in range(size):
    counts[(k & lanes) * (bins + 2) + bin[k]] += float64(weights[start + k])
"""


@cached(why=DTYPES)
def _uniform_routine(code: str, edge: str, step: str, weight: str = "") -> routines.Routine:
    """Bins of one width: NumPy's steps, in the dtype `edge` and from the division on in `step`.

    They hold counts, or sums of weights (of dtype `weight`) in the order of the values.

    NumPy compares each value with the edges next to it. That comparison matters only near an edge,
    and so does the use of a product instead of NumPy's division. So a tile takes NumPy's steps only
    if one of its values is within `margin` of an edge or has no certain bin. Values outside the
    range are counted after the last bin. If the steps leave the table of edges, NumPy takes over.
    """
    real, wide = ("float32" if each == "f4" else "float64" for each in (edge, step))
    counting = textwrap.indent(_IN_ORDER if weight else _in_turn("size", "bin"), 8 * " ").strip()
    body = f"""
    bin = local_i8({_TILE})
    strange = 0
    ratio = scale / width
    inner = 0.5 - margin
    outside = float64(bins) + 0.5
    for start in range(0, count, {_TILE}):
        size = min({_TILE}, count - start)
        near = 0
        for k in range(size):
            independent()
            given = {real}(values[start + k])
            keep = (given >= first) & (given <= last)
            place = float64({wide}(given - first) * ratio) if keep else outside
            at = int64(place)
            near = near | int64(not (abs(place - float64(at) - 0.5) <= inner))
            bin[k] = at
        if near:
            for k in range(size):
                independent()
                given = {real}(values[start + k])
                keep = (given >= first) & (given <= last)
                value = given if keep else first
                at = int64({wide}(value - first) / width * scale)
                wrong = (at < 0) | (at > bins)
                at = at - 1 if at == bins else at
                at = at - 1 if value < edges[max(min(at, bins), 0)] else at
                more = (value >= edges[max(min(at + 1, bins), 0)]) & (at != bins - 1)
                at = at + 1 if more else at
                wrong = wrong | (at < 0) | (at > bins)
                strange = strange | int64(keep & wrong)
                bin[k] = bins if wrong | (not keep) else at
        {counting}
    counts[bins + 1] = strange
    """
    arrays = {"values": code, "counts": "f8" if weight else "i8", "edges": edge}
    if weight:
        arrays["weights"] = weight
    scalars = {"first": edge, "last": edge, "width": step, "scale": step, "margin": "f8"}
    name = f"histogram_{code}_{edge}_{step}{'_' * bool(weight)}{weight}"
    return routines.Routine(name, ("count", "bins", "lanes"), arrays, body, scalars)


def _margin(edges: Array) -> float:
    """A safe distance from an edge, in bins, from which rounding cannot change the bin."""
    bins = len(edges) - 1
    span, largest = float(edges[-1] - edges[0]), float(np.abs(edges[[0, -1]]).max())
    margin = 64.0 * float(np.finfo(edges.dtype).eps) * bins * (1.0 + largest / span)
    return margin if margin < 0.25 else 2.0


@cached(why=DTYPES)
def _edges_routine(code: str, edge: str) -> routines.Routine:
    """Counts values between given edges; the last edge belongs to the last bin.

    A tile of searches runs in parallel, as in `searching`.
    """
    found = place_text(edge, "right", "values[start + k]", NUMBA_TYPES[edge])
    body = f"""
    at = local_i8({_TILE})
    wanted = local_{edge}({_TILE})
    final = table[bins]
    entries = bins + 1
    absent = 0
    for start in range(0, count, {_TILE}):
        size = min({_TILE}, count - start)
    {textwrap.indent(found, "    ")}
        for k in range(size):
            independent()
            bin = at[k] - 1
            bin = bins - 1 if wanted[k] == final else bin
            at[k] = bin if (bin >= 0) & (bin < bins) else bins
        for k in range(size):
            counts[(k & lanes) * (bins + 2) + at[k]] += 1
    """
    arrays = {"values": code, "counts": "i8", "table": edge, "guide": "i8"}
    name = f"edges_{code}_{edge}"
    return routines.Routine(name, ("count", "bins", "lanes", "window"), arrays, body, GUIDED)


_EXACT = 1 << 53  # float64 holds all integers up to here
_NUMPYS_BLOCK = 1 << 16  # values per block of `numpy.histogram`


def _distance(high: Any, low: Any) -> Any:
    """The distance between two bounds, in NumPy's dtype for it: unsigned for integers."""
    dtype = np.result_type(high, low)
    if dtype.kind != "i":
        return np.subtract(high, low, dtype=dtype)
    ends = np.asarray(high, dtype), np.asarray(low, dtype)
    return np.subtract(*ends, casting="unsafe", dtype=f"u{dtype.itemsize}")


class _Histogram:
    """The counts of `numpy.histogram`, by a routine where one does it."""

    has_routine = True

    compiled: Callable[..., Array | None]
    by_numpy: Callable[..., Array]

    def __call__(self, *given: Array) -> Array:
        return routines.either(self.compiled, self.by_numpy, *given)


class Uniform(_Histogram):
    """With bins of one width and a range; of weights, if `weight`, their dtype, is given, sums."""

    def __init__(
        self, edges: Array, bounds: tuple[Any, Any], dtype: np.dtype[Any], weight: str = ""
    ) -> None:
        self.edges = edges
        self.bounds = bounds
        self.routine = self._routine(dtype.str[1:], weight)
        """The counting routine and its scalars; None for dtypes and bounds left to NumPy."""

    def _routine(self, code: str, weight: str) -> tuple[routines.Routine, tuple[Any, ...]] | None:
        first, last = self.bounds
        if first == last:
            first, last = first - 0.5, last + 0.5
        edge = self.edges.dtype
        with np.errstate(all="ignore"):
            width = _distance(last, first)
            step = np.result_type(np.empty(0, edge), width)
            ends = edge.type(first), edge.type(last)
            plain = step.str[1:] in ("f4", "f8") and np.isfinite([*ends, step.type(width)]).all()
        fits = edge.str[1:] in ("f4", "f8") and (edge.str[1:] == "f4") == (code == "f4")
        if not fits or not plain or np.result_type(np.empty(0, edge), first, last) != edge:
            return None
        if code[0] in "iu" and max(abs(first), abs(last)) >= _EXACT:
            return None
        bins = len(self.edges) - 1
        routine = _uniform_routine(code, edge.str[1:], step.str[1:], weight)
        return routine, (*ends, step.type(width), step.type(bins), _margin(self.edges))

    def by_numpy(self, values: Array, weights: Array | None = None) -> Array:
        """By NumPy, as the reference."""
        return np.histogram(values, len(self.edges) - 1, self.bounds, weights=weights)[0]

    def compiled(self, values: Array, weights: Array | None = None) -> Array | None:
        """The counts, or sums of weights, by a routine."""
        if self.routine is None or values.size < routines.FEWEST:
            return None
        routine, scalars = self.routine
        flat = np.ascontiguousarray(values).reshape(-1)
        if weights is not None:
            return self._summed(routine, scalars, flat, np.ascontiguousarray(weights).reshape(-1))
        return _counted(routine, flat, len(self.edges) - 1, self.edges, scalars=scalars)

    def _summed(
        self, routine: routines.Routine, scalars: tuple[Any, ...], flat: Array, weights: Array
    ) -> Array | None:
        """The sums by a routine: as NumPy, it sums each block from zero and adds the blocks."""
        bins = len(self.edges) - 1
        launch = None if bins > _FEW else routine.launcher()
        if launch is None:
            return None
        starts = np.arange(0, flat.size, _NUMPYS_BLOCK)
        tables = np.zeros((len(starts), bins + 2))
        rows = np.arange(len(starts)) * (bins + 2)
        sizes = [[min(_NUMPYS_BLOCK, flat.size - start), bins, 0] for start in starts.tolist()]
        places = np.stack([starts, rows, 0 * starts, starts], 1)
        launch((flat, tables, self.edges, weights), sizes, places, scalars, work=12 * flat.size)
        if tables[:, -1].any():
            return None
        sums = np.zeros(bins, weights.dtype)
        for table in tables[:, :bins]:
            sums += table.astype(weights.dtype)
        return sums


class Between(_Histogram):
    """Between given edges, without weights."""

    def __init__(self, edges: Array) -> None:
        self.edges = edges

    def by_numpy(self, values: Array) -> Array:
        """By NumPy, as the reference."""
        return np.histogram(values, self.edges)[0]

    def compiled(self, values: Array) -> Array | None:
        """The counts by a routine, in the dtype in which NumPy compares."""
        bins = len(self.edges) - 1
        code = values.dtype.str[1:]
        common = np.result_type(values, self.edges)
        if code not in BINNED or common.str[1:] not in ("f4", "f8", "i8") or bins > _MOST:
            return None
        if values.size < _WORTH:
            return None
        edges = np.ascontiguousarray(self.edges, common)
        if bins < 1 or not (edges[:-1] <= edges[1:]).all():  # descending, or NaN
            return None
        flat = np.ascontiguousarray(values).reshape(-1)
        guide = search_index.BucketIndex(edges)
        return _counted(
            _edges_routine(code, common.str[1:]), flat, bins, guide.table, guide.starts,
            scalars=guide.scalars, numbers=(guide.window,),
        )  # fmt: skip


@records(np.histogram, eager="arrays")
def histogram(
    a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> Any:
    """As `numpy.histogram`; for a large `a` the counts are recorded, the edges computed at once."""
    if type(a) is not ndarray or concrete_value(a) is not None:
        return None
    usual = density is None or density is True or density is False
    found = _recorded_histogram(a, bins, range, weights) if usual else None
    return _as_density(*found) if density and found is not None else found


def _as_density(counts: Any, edges: Any) -> Any:
    """The density and the edges, by the last steps of NumPy's function."""
    return counts / np.array(np.diff(gather(edges)), float) / counts.sum(), edges


def _recorded_histogram(a: ndarray, bins: Any, range: Any, weights: Any) -> Any:
    """Recorded counts, and edges; None if NumPy must do it. Raises NumPy's errors for the bins."""
    dtype = dtype_of(a)
    if dtype.str[1:] not in BINNED or not may_record() or 0 in shape_of(a):
        return None
    if weights is not None and not _are_weights(weights, a):
        return None
    bins = to_numpy(bins)
    if type(bins) is not int:
        return _recorded_between(a, bins) if weights is None else None
    if bins > _MOST:
        return None
    weight = "" if weights is None else dtype_of(weights).str[1:]
    if range is None:
        low, high = a.min(), a.max()  # type: ignore[attr-defined]
        ends = np.array([to_numpy(low), to_numpy(high)], dtype)
        edges, bounds = np.histogram_bin_edges(ends, bins), (ends[0], ends[1])
        function = Uniform(edges, bounds, dtype, weight)
    else:
        bounds = to_numpy(tuple(range))
        if len(bounds) != 2 or not all(isinstance(each, (int, float)) for each in bounds):
            return None
        function = _uniform(bins, bounds, dtype, weight)
    if function.routine is None:
        return None
    sources = (a,) if weights is None else (a, weights)
    kind = _INTP if weights is None else dtype_of(weights)
    return host("histogram", function, sources, (bins,), kind), wrap(function.edges.copy())


def _uniform(bins: int, bounds: tuple[Any, Any], dtype: np.dtype[Any], weight: str) -> Uniform:
    """The counting object for given bounds; cached, since programs often repeat the call."""
    # the key has the text of Python numbers: 0.0 differs from -0.0, and 1 from 1.0
    key = None
    if {type(bounds[0]), type(bounds[1])} <= {int, float} and bins <= _FEW:
        key = bins, repr(bounds), dtype, weight
        found = _uniforms.get(key)
        if found is not None:
            return found
    edges = np.histogram_bin_edges(np.empty(0, dtype), bins, bounds)
    made = Uniform(edges, bounds, dtype, weight)
    if key is not None and made.routine is not None:  # else NumPy warns each time
        _uniforms[key] = made
    return made


def _are_weights(weights: Any, a: ndarray) -> bool:
    """Whether weights are a lazyfuse array of the shape of `a` and of a supported dtype."""
    if type(weights) is not ndarray or shape_of(weights) != shape_of(a):
        return False
    return dtype_of(weights).str[1:] in BINNED


def _recorded_between(a: ndarray, bins: Any) -> Any:
    """Recorded counts for given edges, and the edges; None if NumPy must do it."""
    edges = np.asarray(bins) if type(bins) in (list, tuple, np.ndarray) else None
    if edges is None or edges.ndim != 1 or edges.dtype.kind not in "iuf":
        return None
    if not 1 < len(edges) <= _MOST:
        return None
    edges = np.histogram_bin_edges(np.empty(0, dtype_of(a)), edges)  # raises for descending edges
    counts = host("histogram", Between(edges.copy()), (a,), (len(edges) - 1,), _INTP)
    return counts, wrap(edges.copy())
